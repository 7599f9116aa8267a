"""Slice sampling of how large columns of factors are (Neal, 2003): step out, then shrink.

The more answers or lines there are, the thinner is a slice and the more often it shrinks: compiled, with
random numbers by counters.
"""

from __future__ import annotations

import math

import numpy as np

from onebit.data.kernels import kernel, within_kernels
from onebit.engine.sampling.philox import OF_ROWS, ZERO, fine_uniform, random_words, use

# Most steps of a slice to either side, each of one in the logarithm.
_STEPS = 30
# Most shrinkings of a slice. Each leaves three quarters of it on average: after so many nothing is left.
_SHRINKS = 500
# Rows have smaller numbers: what is drawn here shares their counters.
_BEYOND_ROWS = 0xFFFFFFFF


@within_kernels(forceinline=True, error_model="numpy")
def _log_density(t, a, b, c, d, variance):
    g = math.exp(t)
    if not 0.0 < variance * g < math.inf:  # beyond what a double holds
        return -math.inf
    return a * t - b / g + g * (c - d * g)


@kernel(error_model="numpy")
def slice_draw(a, b, c, d, variance, key, number, sweep):
    """Draw ``t`` from the density ``~ exp(a t - b e^-t + c e^t - d e^2t)``, the present value being 0.

    Where the slice is too thin for doubles, or the density is not a number, the present value stays: a
    step that leaves the target as it is. Where ``variance e^t`` is no double, the density is nothing.
    """
    row, purpose = _BEYOND_ROWS - number, use(0, OF_ROWS, 0)
    words = random_words(key, ZERO, row, sweep, purpose)
    level = _log_density(0.0, a, b, c, d, variance) + math.log(fine_uniform(words[0], words[1]))
    low = -fine_uniform(words[2], words[3])
    high = low + 1.0
    for _ in range(_STEPS):
        if _log_density(low, a, b, c, d, variance) <= level:
            break
        low -= 1.0
    for _ in range(_STEPS):
        if _log_density(high, a, b, c, d, variance) <= level:
            break
        high += 1.0
    for attempt in range(_SHRINKS):
        words = random_words(key, attempt + 1, row, sweep, purpose)
        value = low + (high - low) * fine_uniform(words[0], words[1])
        if _log_density(value, a, b, c, d, variance) > level:
            return value
        if value < 0.0:
            low = value
        else:
            high = value
    return 0.0


@kernel(error_model="numpy")
def drawn_stretches(curvature, pull, variances, power, inverse, rate, key, sweep):
    """Draw how far each column is stretched, one after the other.

    With stretches ``g`` the augmented log-likelihood is ``pull . g - g' curvature g / 2``; the prior's
    log density of a variance ``v`` is ``power log v - inverse / v - rate v``.
    """
    stretches = np.ones(len(variances))
    for k in range(len(variances)):
        linear = pull[k]
        for j in range(len(variances)):
            if j != k:
                linear -= (curvature[k, j] if j < k else curvature[j, k]) * stretches[j]
        v = variances[k]
        t = slice_draw(
            power + 1.0, inverse / v, linear - rate * v, 0.5 * curvature[k, k], v, key, k, sweep
        )
        stretches[k] = math.exp(t)
    return stretches


@kernel(error_model="numpy")
def drawn_balances(lines, energies, variances, power, inverse, rate, key, sweep):
    """Draw how each column grows on one side, and its variance with it, while the other side shrinks.

    Of rows, then of columns: with ``g`` for each, the ``lines`` of this side are divided by ``sqrt g``,
    the other side's are multiplied by it, and the variance ``v`` becomes ``g v``, under which the other
    side is as likely as before. The log density of ``t = log g`` is ``(power + 1 - lines) t - inverse
    e^-t / v - rate v e^t - energy e^-2t / (2 v)``. The first draw leaves the second one's ``energy / v``.
    """
    count = len(variances)
    balances = np.ones((2, count))
    for side in range(2):
        for k in range(count):
            v = variances[k] * balances[0, k]
            # A slice's density ends in e^2t: it is drawn for -t, and 1 / v is what must stay a double.
            t = slice_draw(
                lines[side] - power - 1.0, rate * v, -inverse / v, 0.5 * energies[side, k] / variances[k],
                1.0 / v, key, (1 + side) * count + k, sweep,
            )  # fmt: skip
            balances[side, k] = math.exp(-t)
    return balances
