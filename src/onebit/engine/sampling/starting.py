"""Where chains start: at a draw from the variational posterior."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel
from onebit.engine.cpu.threads import Threads
from onebit.model.gaussians import Gaussians

Array = NDArray[np.float64]


@kernel(nogil=True, error_model="numpy")
def _correlate(begin, end, mean, covariance, values):
    """Turn standard normal noise into draws of some rows; say how many have no root."""
    n = mean.shape[1]
    root = np.empty((n, n))
    without = 0
    for i in range(begin, end):
        t = 0
        for a in range(n):
            for b in range(a + 1):
                left = covariance[i, t]
                t += 1
                for k in range(b):
                    left -= root[a, k] * root[b, k]
                root[a, b] = math.sqrt(left) if a == b else left / root[b, b]
        finite = True
        for a in range(n - 1, -1, -1):  # from the last on: each needs those before it
            total = mean[i, a]
            for b in range(a + 1):
                total += root[a, b] * values[i, b]
            values[i, a] = total
            finite &= math.isfinite(total)
        without += 0 if finite else 1
    return without


def drawn_values(gaussians: Gaussians, rng: np.random.Generator, pool: Threads) -> Array:
    """Return one draw of all rows, whose noise is drawn in order.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.engine.cpu.threads import Threads
    >>> from onebit.engine.sampling.starting import drawn_values
    >>> from onebit.model.gaussians import Gaussians
    >>> certain = Gaussians(np.arange(6.0).reshape(3, 2), np.full((3, 2), 1e-20), False)
    >>> drawn_values(certain, np.random.default_rng(0), Threads(1, None)).round(6)
    array([[0., 1.],
           [2., 3.],
           [4., 5.]])
    """
    mean, covariance = gaussians.mean, gaussians.covariance
    values = rng.standard_normal(mean.shape)
    if not gaussians.full:
        return mean + np.sqrt(covariance) * values
    without: list[int] = []
    pool.even(
        lambda begin, end: without.append(_correlate(begin, end, mean, covariance, values)),
        len(mean),
        covariance.shape[1] * mean.shape[1],
    )
    if sum(without):
        raise ValueError("the posterior holds a covariance that is not positive definite")
    return values
