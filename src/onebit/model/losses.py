"""The losses, each as a quadratic majoriser of its expectation.

A loss enters the descent through two inequalities (the last one: through derivatives); what sampling and
calibration ask of one is theirs. For a score ``x`` with mean ``m`` and second moment ``q = E[x^2]``, and
a sign ``y``::

    E[loss(y x)] <= bound(y, m, q)
    bound(y, m', q') <= bound(y, m, q) - slope y (m' - m) + weight (q' - q) / 2      for all m', q'

The first gives the objective; the second, which touches at ``(m', q') = (m, q)``, gives closed-form
Gaussian updates that can only decrease it.

* ``logistic``, ``log(1 + exp(-y x))``: Jaakkola's bound (Proposition 2 of the paper) at its best point
  ``xi = sqrt(q)``: ``bound = log(2 cosh(xi / 2)) - y m / 2``, ``slope = 1 / 2``,
  ``weight = tanh(xi / 2) / (2 xi)``.
* ``hinge``, ``max(0, 1 - y x) = (1 - y x) / 2 + |1 - y x| / 2``: Jensen's inequality for the root of
  ``r = E[(1 - y x)^2] = 1 - 2 y m + q`` gives ``bound = (1 - y m) / 2 + sqrt(r) / 2``, whose tangent
  in ``r`` has ``slope = 1 / 2 + 1 / (2 sqrt(r))`` and ``weight = 1 / (2 sqrt(r))``. It is never above
  the Lipschitz bound of the paper's Proposition 1.

* ``gibbs``, the 0-1 loss of a predictor drawn from the posterior: ``bound = Phi(-y m / sd)``, exact for
  Gaussian scores. It has no quadratic majoriser: slope and weight are its derivatives in ``m`` and ``q``
  (with the weight of a wrong answer, which would be negative, moved into the slope), and the engine takes
  half steps, smaller ones where the objective rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from onebit.data.kernels import kernel, within_kernels

Array = NDArray[np.float64]

# sqrt(r) is replaced by sqrt(r + SMOOTHING), still an upper bound: the weight stays finite when a
# score hits the margin exactly. It adds at most 5e-5 to the bound.
SMOOTHING = 1e-8

LOGISTIC_CODE, HINGE_CODE, GIBBS_CODE = 0, 1, 2


@numba.njit(inline="always", error_model="numpy")
def slope_weight_bound(code, sign, mean, second_moment):
    """Return ``(slope, weight, bound)`` at ``(mean, second_moment)``: what a kernel needs at once."""
    if code == LOGISTIC_CODE:
        root = math.sqrt(max(second_moment, 0.0))
        decay = math.exp(-root)
        if root < 1e-3:  # the limit of tanh(root / 2) / (2 root)
            weight = 0.25 - root * root / 48.0
        else:
            weight = (1.0 - decay) / ((1.0 + decay) * 2.0 * root)
        return 0.5, weight, 0.5 * (root - sign * mean) + math.log1p(decay)
    if code == GIBBS_CODE:
        # The second moment is summed in single precision, where a small difference drowns.
        variance = max(second_moment - mean * mean, 1e-4 * second_moment + 1e-12)
        deviation = math.sqrt(variance)
        margin = sign * mean / deviation
        density = 0.3989422804014327 * math.exp(-0.5 * margin * margin)
        bound = 0.5 * math.erfc(margin * 0.7071067811865476)
        if margin <= 0.0:
            return density / deviation, 0.0, bound
        return density * (1.0 + margin * margin) / deviation, density * margin / variance, bound
    root = math.sqrt(max(1.0 - 2.0 * sign * mean + second_moment, 0.0) + SMOOTHING)
    weight = 0.5 / root
    return 0.5 + weight, weight, 0.5 * (1.0 - sign * mean + root)


# What follows is the same in single precision for a few dozen scores at once, in loops that turn
# vector instructions: no branch on a score, no call of a library.
_ONE, _HALF, _TWO = np.float32(1.0), np.float32(0.5), np.float32(2.0)
_LOG2_E = np.float32(1.4426950408889634)
_LN_2, _LN_2_REST = np.float32(0.693359375), np.float32(-2.12194440054690583e-4)  # the first is short
_SMALLEST_EXPONENT = np.float32(-87.0)
# Of exp(x) for |x| <= log(2) / 2, and of tanh(sqrt(q) / 2) / (2 sqrt(q)) for q < 1/4.
_E7, _E6, _E5, _E4, _E3 = (np.float32(1.0 / math.factorial(k)) for k in (7, 6, 5, 4, 3))
_T0, _T1, _T2, _T3, _T4 = (np.float32(c) for c in (1 / 4, -1 / 48, 1 / 480, -17 / 80640, 31 / 1451520))
_QUARTER = np.float32(0.25)
_WHOLE = 16  # scores of a whole vector, of the widest instructions
_SINGLE_SMOOTHING = np.float32(SMOOTHING)
# What may be reordered: enough to vectorise sums; infinities and NaN keep their meaning.
_VECTOR = {"reassoc", "contract", "arcp", "nsz"}


# A sum that the compiler may reorder can come out in another order in another copy of the loop. These two
# fix the order, in four strands that do not wait for each other.
@within_kernels(forceinline=True, error_model="numpy")
def _sum_in_order(count, values):
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = count // 4 * 4
    for k in range(0, whole, 4):
        a += values[k]
        b += values[k + 1]
        c += values[k + 2]
        d += values[k + 3]
    for k in range(whole, count):
        a += values[k]
    return (a + b) + (c + d)


@within_kernels(forceinline=True, error_model="numpy")
def _product_in_order(count, values):
    a, b, c, d = 1.0, 1.0, 1.0, 1.0
    whole = count // 4 * 4
    for k in range(0, whole, 4):
        a *= values[k]
        b *= values[k + 1]
        c *= values[k + 2]
        d *= values[k + 3]
    for k in range(whole, count):
        a *= values[k]
    return (a * b) * (c * d)


@within_kernels(forceinline=True, error_model="numpy", fastmath=_VECTOR)
def decays(count, root, decay):
    """Write ``exp(-root)``."""
    for k in range(count):
        x = max(-root[k], _SMALLEST_EXPONENT)
        exponent = np.int32(x * _LOG2_E - _HALF)
        whole = np.float32(exponent)
        x = (x - whole * _LN_2) - whole * _LN_2_REST
        tail = _E3 + x * (_E4 + x * (_E5 + x * (_E6 + x * _E7)))
        power = np.int32((exponent + 127) << 23).view(np.float32)  # of two
        decay[k] = (_ONE + x * (_ONE + x * (_HALF + x * tail))) * power


@within_kernels(forceinline=True, error_model="numpy")
def _filled_up(first, count, sign, mean, second_moment, signs):
    """Write the signs, and something harmless up to a whole vector; return its end.

    What is left over from whole vectors goes one by one otherwise, and takes as long as several of them.
    """
    whole = (count + _WHOLE - 1) // _WHOLE * _WHOLE
    for k in range(count):
        signs[k] = np.float32(sign[first + k])
    for k in range(count, whole):
        signs[k], mean[k], second_moment[k] = _ONE, _ONE, _ONE
    return whole


@within_kernels(forceinline=True, error_model="numpy", fastmath=_VECTOR)
def _majorise_logistic(count, signs, mean, second_moment, root, power):
    """Replace means and second moments; leave the linear parts of the bounds, and their factors."""
    for k in range(count):
        root[k] = np.sqrt(max(second_moment[k], np.float32(0.0)))
    decays(count, root, power)
    for k in range(count):
        y, decay = signs[k], power[k]
        q = second_moment[k]
        series = _T0 + q * (_T1 + q * (_T2 + q * (_T3 + q * _T4)))
        ratio = (_ONE - decay) / ((_ONE + decay) * _TWO * root[k])
        root[k] = root[k] - y * mean[k]
        power[k] = _ONE + decay
        mean[k] = _HALF * y
        second_moment[k] = series if q < _QUARTER else ratio


@within_kernels(forceinline=True, error_model="numpy", fastmath=_VECTOR)
def _majorise_hinge(first, count, sign, mean, second_moment, terms):
    for k in range(count):
        y = np.float32(sign[first + k])
        square = _ONE - _TWO * y * mean[k] + second_moment[k]
        root = np.sqrt(max(square, np.float32(0.0)) + _SINGLE_SMOOTHING)
        weight = _HALF / root
        terms[k] = _ONE - y * mean[k] + root
        mean[k] = y * (_HALF + weight)
        second_moment[k] = weight
    return 0.5 * _sum_in_order(count, terms)


@within_kernels(error_model="numpy")
def _majorise_one_by_one(code, first, count, sign, weight, mean, second_moment):
    total = 0.0
    for k in range(count):
        y = float(sign[first + k])
        slope, curvature, bound = slope_weight_bound(code, y, float(mean[k]), float(second_moment[k]))
        u = float(weight[first + k]) if weight.shape[0] > 0 else 1.0
        total += u * bound
        mean[k] = u * y * slope
        second_moment[k] = u * curvature
    return total


@kernel(nogil=True, error_model="numpy")
def majorise(code, first, count, sign, weight, mean, second_moment, signs, root, power):
    """Replace means by signed slopes, second moments by weights; return the sum of the bounds.

    For ``count`` answers from ``first`` on, at most 96: a product of so many terms cannot overflow.
    ``weight`` is empty or holds what each answer counts. ``signs``, ``root`` and ``power`` are room. All
    have room for whole vectors of sixteen.
    """
    if weight.shape[0] == 0 and code == LOGISTIC_CODE:
        whole = _filled_up(first, count, sign, mean, second_moment, signs)
        _majorise_logistic(whole, signs, mean, second_moment, root, power)
        return 0.5 * _sum_in_order(count, root) + math.log(_product_in_order(count, power))
    if weight.shape[0] == 0 and code == HINGE_CODE:
        return _majorise_hinge(first, count, sign, mean, second_moment, root)
    return _majorise_one_by_one(code, first, count, sign, weight, mean, second_moment)


@kernel(error_model="numpy")
def _evaluate(code, sign, mean, second_moment, out):
    for k in range(sign.size):
        slope, weight, bound = slope_weight_bound(code, sign[k], mean[k], second_moment[k])
        out[k, 0] = slope
        out[k, 1] = weight
        out[k, 2] = bound


class Loss(Protocol):
    """What the engine and its callers ask of a loss."""

    @property
    def name(self) -> str:
        """The loss's name."""
        ...

    @property
    def code(self) -> int:
        """The number under which the kernels know it."""
        ...

    @property
    def step(self) -> float:
        """The share of an update to take at first: one where the updates cannot overshoot."""
        ...

    def value(self, margin: ArrayLike) -> Array:
        """Return the loss at the margins ``y x``."""
        ...

    def bound(self, sign: ArrayLike, mean: ArrayLike, second_moment: ArrayLike) -> Array:
        """Return the upper bound on the expected loss of scores with these moments."""
        ...

    def majoriser(
        self, sign: ArrayLike, mean: ArrayLike, second_moment: ArrayLike
    ) -> tuple[Array, Array]:
        """Return ``(slope, weight)`` of the quadratic that touches the bound at these moments."""
        ...


@dataclass(frozen=True)
class MajorisedLoss:
    """A loss whose bound and majoriser are compiled into the kernels under ``code``.

    Examples
    --------
    >>> from onebit.model.losses import HINGE
    >>> HINGE.value([2.0, 0.5, -1.0]).tolist()
    [0.0, 0.5, 2.0]
    >>> HINGE.bound(1, mean=0.5, second_moment=0.25).round(3).tolist()  # no variance: the loss itself
    0.5
    """

    name: str
    code: int
    value_of: Callable[[Any], Array]
    step: float = 1.0

    def __reduce__(self) -> tuple[Any, ...]:
        # There is one of each, which others recognise by identity; copies are the same one.
        return _known_loss, (self.name,)

    def value(self, margin: ArrayLike) -> Array:
        """Return the loss at the margins ``y x``."""
        return self.value_of(np.asarray(margin, dtype=float))

    def bound(self, sign: ArrayLike, mean: ArrayLike, second_moment: ArrayLike) -> Array:
        """Return the upper bound on the expected loss of scores with these moments."""
        return self._all(sign, mean, second_moment)[..., 2]

    def majoriser(
        self, sign: ArrayLike, mean: ArrayLike, second_moment: ArrayLike
    ) -> tuple[Array, Array]:
        """Return ``(slope, weight)`` of the quadratic that touches the bound at these moments."""
        parts = self._all(sign, mean, second_moment)
        return parts[..., 0], parts[..., 1]

    def _all(self, *arguments: ArrayLike) -> Array:
        arrays = np.broadcast_arrays(*(np.asarray(a, dtype=float) for a in arguments))
        out = np.empty((arrays[0].size, 3))
        _evaluate(self.code, *(np.ascontiguousarray(a).ravel() for a in arrays), out)
        return out.reshape(*arrays[0].shape, 3)


def _known_loss(name: str) -> MajorisedLoss:
    """Return a loss by its name."""
    return {loss.name: loss for loss in (LOGISTIC, GIBBS, HINGE)}[name]


LOGISTIC = MajorisedLoss("logistic", LOGISTIC_CODE, lambda margin: np.logaddexp(0.0, -margin))
GIBBS = MajorisedLoss("gibbs", GIBBS_CODE, lambda margin: (margin <= 0).astype(float), step=0.5)
HINGE = MajorisedLoss("hinge", HINGE_CODE, lambda margin: np.maximum(0.0, 1.0 - margin))
