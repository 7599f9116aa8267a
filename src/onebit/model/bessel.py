"""Logarithms of the modified Bessel function of the second kind, for any order.

The Gamma prior on a column variance leads to generalised inverse Gaussian distributions whose order
is about ``-(m1 + m2) / 2``. ``scipy.special.kv`` overflows for orders of a few hundred, so everything
here works in logarithms:

* below ``LARGE_ORDER``, from ``K_v(z) = int_0^inf exp(-z cosh t) cosh(v t) dt``, with the trapezoidal
  rule, which converges geometrically on this integrand;
* above it, from the uniform asymptotic expansion in the order (DLMF 10.41.4), which holds for every
  ``z > 0`` at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LARGE_ORDER = 30.0
_TERMS = 10
_NODES = 4001


class LogBesselK(NamedTuple):
    """``log K_v(z)``, its derivative in the order, and ``log(K_{v+1}(z) / K_v(z))``."""

    log_value: Array
    order_derivative: Array
    log_ratio: Array


def log_bessel_k(order: ArrayLike, argument: ArrayLike) -> LogBesselK:
    """Evaluate ``log K_v(z)`` and the two quantities that generalised inverse Gaussians need.

    Parameters
    ----------
    order : array_like
        The order ``v``, of either sign (``K_{-v} = K_v``; the derivative is odd in ``v``).
    argument : array_like
        The argument ``z > 0``.

    Examples
    --------
    >>> from onebit.model.bessel import log_bessel_k
    >>> round(float(log_bessel_k(0.5, 2.0).log_value), 6)  # K_1/2(z) = sqrt(pi / (2 z)) exp(-z)
    -2.120782
    >>> bool(log_bessel_k(-5e6, 1e-3).log_value < 1e9)
    True
    """
    order, argument = np.broadcast_arrays(
        np.asarray(order, dtype=float), np.asarray(argument, dtype=float)
    )
    shape = order.shape
    order, argument = order.ravel(), argument.ravel()
    size = np.abs(order)
    value, derivative = _log_value_and_derivative(size, argument)
    # A difference of logarithms loses digits as the order grows; the expansion has the ratio itself.
    shifted, _ = _log_value_and_derivative(np.abs(order + 1.0), argument)
    ratio = shifted - value
    large = order >= LARGE_ORDER
    ratio[large] = _log_ratio_by_expansion(order[large], argument[large])
    derivative = np.where(order < 0, -derivative, derivative)
    return LogBesselK(value.reshape(shape), derivative.reshape(shape), ratio.reshape(shape))


def _log_value_and_derivative(order: Array, argument: Array) -> tuple[Array, Array]:
    """Return ``log K_v(z)`` and its derivative in ``v``, for ``v >= 0``."""
    value, derivative = np.empty_like(order), np.empty_like(order)
    large = order >= LARGE_ORDER
    for mask, method in ((large, _by_expansion), (~large, _by_quadrature)):
        if mask.any():
            value[mask], derivative[mask] = method(order[mask], argument[mask])
    return value, derivative


def _by_quadrature(order: Array, argument: Array) -> tuple[Array, Array]:
    # Beyond `upper` the integrand is below exp(-750) of its peak: t < 720 wherever z is a normal
    # float, so z (cosh t - 1) - v t >= 750 there. The step stays below 0.2, where the rule is exact
    # to rounding.
    upper = np.arccosh(1.0 + (750.0 + 720.0 * order) / argument)
    nodes = np.linspace(0.0, 1.0, _NODES) * upper[:, None]
    log_term = (
        -argument[:, None] * np.cosh(nodes)
        + order[:, None] * nodes
        + np.log1p(np.exp(-2.0 * order[:, None] * nodes))
        - np.log(2.0)
    )
    log_term[:, 0] -= np.log(2.0)  # trapezoid: half weight at the symmetric end point
    top = log_term.max(axis=1, keepdims=True)
    weight = np.exp(log_term - top)
    total = weight.sum(axis=1)
    value = np.log(total) + top[:, 0] + np.log(upper / (_NODES - 1))
    derivative = (weight * nodes * np.tanh(order[:, None] * nodes)).sum(axis=1) / total
    return value, derivative


def _expansion_polynomials() -> tuple[Array, Array, Array]:
    """Return the coefficients of the ``U_k`` of DLMF 10.41.9, their derivatives, and the ``V_k``."""
    p = Polynomial([0.0, 1.0])
    values, slopes = [Polynomial([1.0])], [Polynomial([1.0])]
    for _ in range(_TERMS):
        last = values[-1]
        integral = ((1.0 - 5.0 * p**2) * last).integ()
        values.append(0.5 * p**2 * (1.0 - p**2) * last.deriv() + integral / 8.0)
        slopes.append(values[-1] - p * (1.0 - p**2) * (0.5 * last + p * last.deriv()))
    width = 3 * _TERMS + 1

    def table(polynomials: list[Polynomial]) -> Array:
        return np.array([np.pad(q.coef, (0, width - len(q.coef))) for q in polynomials]).T

    return table(values), table([q.deriv() for q in values]), table(slopes)


_U, _U_DERIVATIVE, _V = _expansion_polynomials()
_SIGNS = (-1.0) ** np.arange(_TERMS + 1)


def _expansion_point(order: Array, argument: Array) -> tuple[Any, ...]:
    """Return ``x = z / v``, ``sqrt(1 + x^2)``, ``p``, the powers of ``p``, and ``(-1 / v)^k``."""
    x = argument / order
    root: Array = np.hypot(1.0, x)
    p = 1.0 / root
    powers = p[:, None] ** np.arange(len(_U))
    scales = _SIGNS * order[:, None] ** -np.arange(_TERMS + 1.0)
    return x, root, p, powers, scales


def _by_expansion(order: Array, argument: Array) -> tuple[Array, Array]:
    x, root, p, powers, scales = _expansion_point(order, argument)
    log_tail = np.log(x) - np.log1p(root)  # log(x / (1 + sqrt(1 + x^2)))
    terms = scales * (powers @ _U)
    series = terms.sum(axis=1)
    slope_p = (scales * (powers @ _U_DERIVATIVE)).sum(axis=1)
    slope_order = -(terms @ np.arange(_TERMS + 1.0)) / order
    value = (
        0.5 * np.log(np.pi / (2.0 * order)) - order * (root + log_tail) - 0.5 * np.log(root)
    ) + np.log(series)
    dp_dorder = p * (1.0 - p * p) / order
    derivative = -log_tail - 0.5 * p * p / order + (slope_p * dp_dorder + slope_order) / series
    return value, derivative


def _log_ratio_by_expansion(order: Array, argument: Array) -> Array:
    """Return ``log(K_{v+1}(z) / K_v(z)) = log(v / z - K_v'(z) / K_v(z))``, by DLMF 10.41.6."""
    x, root, _, powers, scales = _expansion_point(order, argument)
    value = (scales * (powers @ _U)).sum(axis=1)
    slope = (scales * (powers @ _V)).sum(axis=1)
    return np.log1p(root * slope / value) - np.log(x)
