"""Where a fit starts: the leading singular vectors of what the effects leave unexplained.

``L = R = 0`` is a stationary point of every objective here, and random starts can fall into it. The
spectral start (rows and columns scaled by the square root of their counts, so that popular ones do
not drown the rest) does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from onebit.hierarchy import Hierarchy
from onebit.observations import Observations

Array = NDArray[np.float64]

# Variance of every coordinate at the start: small enough that the means decide the first weights.
START_VARIANCE = 0.1
# A pseudo-count that shrinks the first guess of the effects of rows with few answers.
_SHRINKAGE = 5.0
# Below this size a dense decomposition is exact and as fast.
_DENSE_SIZE = 60_000


@dataclass(frozen=True)
class Start:
    """Means of the coordinates of rows and columns, from which the first round departs."""

    rows: Array
    columns: Array


def spectral_start(
    observations: Observations, hierarchy: Hierarchy, rng: np.random.Generator, jitter: float = 0.0
) -> Start:
    """Return the spectral start; ``jitter`` adds noise of that size relative to it.

    The first start of a fit has no jitter; further ones (``n_init``) do, to reach other optima.
    """
    view = observations.by_row
    owner, index = view.owners(), view.index
    sign = view.sign.astype(float)
    if len(view.weight):
        sign *= np.minimum(view.weight / (observations.total_weight / observations.n), 3.0)
    counts = [np.maximum(side.counts, 1) for side in (view, observations.by_column)]
    rows, columns = observations.shape
    effects = [np.zeros(rows), np.zeros(columns)]
    if hierarchy.intercept_side is not None:
        average = float(np.clip(view.sign.mean(), -0.98, 0.98))
        excess = view.sign - average
        for side, (code, size) in enumerate(((owner, rows), (index, columns))):
            if hierarchy.has_effect(side):
                total = np.bincount(code, weights=excess, minlength=size)
                effects[side] = 2.0 * total / (counts[side] + _SHRINKAGE)
        effects[hierarchy.intercept_side] += 2.0 * np.arctanh(average)
        sign -= np.tanh(0.5 * (effects[0][owner] + effects[1][index]))
    left, right = np.zeros((rows, hierarchy.rank)), np.zeros((columns, hierarchy.rank))
    if hierarchy.rank:
        scale = 1.0 / np.sqrt(counts[0][owner] * counts[1][index].astype(float))
        matrix = scipy.sparse.coo_array((sign * scale, (owner, index)), shape=(rows, columns))
        u, values, vt = _leading_triples(matrix.tocsr(), hierarchy.rank, rng)
        found = len(values)
        left[:, :found] = u * np.sqrt(rows * values)
        right[:, :found] = vt.T * np.sqrt(columns * values)
        if jitter:
            for factor in (left, right):
                size = jitter * np.sqrt((factor**2).mean() + 1e-4)
                factor += size * rng.standard_normal(factor.shape)
    means = [
        np.column_stack([factor, effects[side]]) if hierarchy.has_effect(side) else factor
        for side, factor in enumerate((left, right))
    ]
    return Start(means[0], means[1])


def _leading_triples(
    matrix: scipy.sparse.csr_array, rank: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    smallest = min(matrix.shape)
    start = rng.standard_normal(smallest)
    if matrix.shape[0] * matrix.shape[1] <= _DENSE_SIZE or rank >= smallest - 1:
        u, values, vt = np.linalg.svd(matrix.toarray(), full_matrices=False)
        u, values, vt = u[:, :rank], values[:rank], vt[:rank]
    else:
        u, values, vt = scipy.sparse.linalg.svds(matrix, k=rank, v0=start)
        order = np.argsort(-values)
        u, values, vt = u[:, order], values[order], vt[order]
    # Singular vectors are defined up to a sign; fix it so that a start is reproducible.
    flip = np.where(u[np.abs(u).argmax(axis=0), np.arange(u.shape[1])] < 0, -1.0, 1.0)
    return u * flip, values, vt * flip[:, None]
