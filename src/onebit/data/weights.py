"""Weights of answers, checked."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Relative to the mean weight. The kernels gather in single precision.
LARGEST_WEIGHT = 1e4


def weights_of(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float32] | None:
    """Return weights in single precision; what cannot be a weight is an error."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=float)
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has shape {weight.shape}, expected ({n},)")
    bad = ~((weight >= 0) & (weight < 1e30))
    if bad.any():
        position = int(np.argmax(bad))
        raise ValueError(
            f"sample_weight is {weight[position]} at position {position}; weights are not negative "
            "and below 1e30"
        )
    single = weight.astype(np.float32)
    if not single.any():
        raise ValueError("sample_weight is zero everywhere; at least one answer must count")
    # In double precision and sorted: the same in whatever order they come.
    top, mean = float(single.max()), float(np.sort(single[single > 0]).mean(dtype=float))
    if top > LARGEST_WEIGHT * mean:
        raise ValueError(
            f"sample_weight is {top:g} at position {int(single.argmax())}, more than "
            f"{LARGEST_WEIGHT:g} times the mean weight {mean:g}; beside it the others would vanish in "
            "rounding"
        )
    return single
