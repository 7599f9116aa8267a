"""Slice sampling on the line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Most steps of a slice to either side, each of one in the logarithm.
_STEPS = 30
# Most shrinkings of a slice. Each leaves three quarters of it on average: after so many nothing is left.
_SHRINKS = 500


def slice_draw(log_density: Callable[[float], float], start: float, rng: np.random.Generator) -> float:
    """Draw once from a density on the line by a slice (Neal, 2003): step out, then shrink.

    Where the slice is too thin for doubles, or the density is not a number, the present value stays: a
    step that leaves the target as it is.
    """
    level = log_density(start) - rng.standard_exponential()
    low = start - rng.random()
    high = low + 1.0
    for _ in range(_STEPS):
        if log_density(low) <= level:
            break
        low -= 1.0
    for _ in range(_STEPS):
        if log_density(high) <= level:
            break
        high += 1.0
    for _ in range(_SHRINKS):
        value = low + (high - low) * rng.random()
        if log_density(value) > level:
            return value
        if value < start:
            low = value
        else:
            high = value
    return start
