"""Draws from the generalised inverse Gaussian distribution, for every order and argument."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onebit.data.kernels import kernel, within_kernels

# Devroye's hat accepts more than half of the proposals, whatever the arguments: so many rejections in a
# row do not happen, and where numbers that are none make them happen, the mode in x stands in.
_MOST_PROPOSALS = 10_000
# Below these, squares vanish.
_TINY, _FLATTEST = 1e-290, 1e-150
_COSH_1 = math.cosh(1.0)


def generalised_inverse_gaussian(
    order: ArrayLike, a: ArrayLike, b: ArrayLike, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw from the densities ``~ x^(order - 1) exp(-(a x + b / x) / 2)`` (Devroye, 2014).

    Parameters
    ----------
    order, a, b : array-like
        One each for every draw. Orders may have either sign; ``a`` and ``b`` are positive.
    rng : Generator
        Where the uniform numbers come from.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.model.gig import generalised_inverse_gaussian
    >>> draws = generalised_inverse_gaussian(-1e4, 1.0, [2e4, 8e4], np.random.default_rng(0))
    >>> draws.round().tolist()
    [1.0, 4.0]
    """
    order, a, b = np.broadcast_arrays(*(np.asarray(part, dtype=float) for part in (order, a, b)))
    shape = order.shape
    order, a, b = (np.array(part).ravel() for part in (order, a, b))
    found, wanted = np.zeros(order.size), np.ones(order.size, bool)
    for _ in range(_MOST_PROPOSALS):
        if _propose(order, a, b, rng.random((3, order.size)), found, wanted) == 0:
            break
    return _placed(order, a, b, found).reshape(shape)


@within_kernels(forceinline=True, error_model="numpy")
def _flatness(order, a, b):
    """Return ``sqrt(a b)``, and ``alpha``: how flat a log density is at its mode, but for its order."""
    size, omega = abs(order), math.sqrt(a * b)
    if not a * b > _TINY:
        omega = math.sqrt(a) * math.sqrt(b)  # a b may vanish
    # sqrt(omega^2 + order^2) - |order| without the cancellation.
    return omega, max(omega * (omega / (math.hypot(omega, size) + size)), _FLATTEST)


@within_kernels(forceinline=True, error_model="numpy")
def _depth(x, alpha, size):
    """Return how far the log density is below its mode."""
    return alpha * (math.cosh(x) - 1.0) + size * (math.expm1(x) - x)


@within_kernels(forceinline=True, error_model="numpy")
def _slope(x, alpha, size):
    return -alpha * math.sinh(x) - size * math.expm1(x)


@kernel(error_model="numpy")
def _propose(order, a, b, uniform, found, wanted):
    """Propose a draw for each one that is wanted; return how many are wanted after that."""
    left_over = 0
    for i in range(order.shape[0]):
        if not wanted[i]:
            continue
        size = abs(order[i])
        alpha = _flatness(order[i], a[i], b[i])[1]
        # Where the hat's tails touch the log density: some unit below its mode.
        up, down, right, left = _depth(1.0, alpha, size), _depth(-1.0, alpha, size), 1.0, 1.0
        if up > 2.0:
            right = math.sqrt(2.0 / (alpha + size))
        elif up < 0.5:
            right = math.log(4.0 / (alpha + 2.0 * size))
        if down > 2.0:
            left = math.sqrt(4.0 / (alpha * _COSH_1 + size))
        elif down < 0.5:
            left = math.log1p(1.0 / alpha + math.sqrt(1.0 / (alpha * alpha) + 2.0 / alpha))
            if size > 0.0:
                left = min(1.0 / size, left)
        eta, zeta = _depth(right, alpha, size), -_slope(right, alpha, size)
        theta, xi = _depth(-left, alpha, size), _slope(-left, alpha, size)
        p, r = 1.0 / xi, 1.0 / zeta
        top, bottom = right - r * eta, left - p * theta  # the hat is flat from here to there
        flat = bottom + top
        part, log_v = uniform[0, i] * (flat + p + r), math.log1p(-uniform[1, i])
        if part < flat:
            x, hat = flat * uniform[1, i] - bottom, 0.0
        elif part < flat + r:
            x = top - r * log_v
            hat = -eta - zeta * (x - right)
        else:
            x = p * log_v - bottom
            hat = xi * (x + left) - theta
        if uniform[2, i] * math.exp(hat) <= math.exp(-_depth(x, alpha, size)):
            found[i], wanted[i] = x, False
        else:
            left_over += 1
    return left_over


@kernel(error_model="numpy")
def _placed(order, a, b, found):
    """Return the draws whose logarithms are so far from the mode."""
    out = np.empty(order.shape[0])
    for i in range(order.shape[0]):
        ratio = abs(order[i]) / _flatness(order[i], a[i], b[i])[0]
        value = math.exp(found[i]) * (ratio + math.hypot(1.0, ratio))
        out[i] = (value if order[i] >= 0 else 1.0 / value) * math.sqrt(b[i] / a[i])
    return out
