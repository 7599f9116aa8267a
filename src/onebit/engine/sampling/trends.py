"""Moving the rows of a side together with the slopes that they follow.

Rows are drawn around what the slopes say of them, and slopes around what the rows say: where many rows
have few answers, these follow the slopes and hold them fast, and both creep. So the slopes are drawn once
more, given the answers, while what is left of each row beyond its part of them stays (Yu and Meng's
interweaving, 2011). Given the variables of the answers this is a linear regression, a coordinate at a
time: with ``q_i`` what is known of row ``i``, ``P_i`` the precision that its answers give it, ``r_i``
their pull at the present row and ``v`` the prior variances of the slopes ``s``, a step of the slopes of
coordinate ``k`` has the precision ``sum_i P_ikk q_i q_i' + 1 / v`` and the linear term
``sum_i r_ik q_i - s / v``. What the factors of all rows are centred at is the slope of a column of ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from onebit.engine.cpu import tall
from onebit.engine.cpu.threads import Threads
from onebit.model.gaussians import positive_root

Array = NDArray[np.float64]

# The prior variance of a mean that is not to move.
FIXED = 1e-12
# Rows whose products are summed at once.
_ROWS_AT_ONCE = 4096
# Bytes of what the answers of a side may say of its rows: of larger sides it is not kept.
_MOST_BYTES = 2**28


@dataclass(frozen=True)
class Trend:
    """The slopes that the rows of a side follow, and what it takes to draw them once more.

    ``slopes`` and their prior ``variances`` have the shape (columns of what is known and one more,
    coordinates): the last line are the means of the rows, which follow them as they follow the slopes.
    ``noise`` has it the other way round, or is nothing where they are not to be drawn once more.
    """

    slopes: Array
    variances: Array
    noise: Array | None


@dataclass(frozen=True)
class Told:
    """What the answers tell of each row: precisions (coordinates twice, then rows) and linear terms."""

    precision: Array
    linear: Array

    @classmethod
    def room(cls, rows: int, coordinates: int, wanted: bool) -> Told:
        """Return room for it, or none where it is not wanted or would be too large."""
        if not wanted or 8 * rows * coordinates * (coordinates + 1) > _MOST_BYTES:
            rows = 0
        return cls(np.empty((coordinates, coordinates, rows)), np.empty((coordinates, rows)))

    def scales(self, values: Array, rank: int) -> Array:
        """Return what rows at these values say of the columns' scales; see ``passes.sample_rows``."""
        factors, precision = values[:rank], self.precision[:rank, :rank]
        pull = self.linear[:rank] - np.einsum("aem,em->am", self.precision[:rank, rank:], values[rank:])
        square = np.einsum("am,abm,bm->ab", factors, precision, factors)
        return np.concatenate([square.ravel(), (factors * pull).sum(axis=1)])


def moved_along(
    known: NDArray[Any] | None, values: NDArray[Any], told: Told, trend: Trend, pool: Threads
) -> Array:
    """Return the values (coordinates, then rows) where the slopes of a trend have been drawn anew."""
    assert trend.noise is not None
    values = values.astype(float)
    lines = np.ones((values.shape[1], len(trend.slopes)), np.float32)
    if known is not None:
        lines[:, :-1] = known
    pulls = told.linear - np.einsum("abm,bm->am", told.precision, values)
    for k, noise in enumerate(trend.noise):
        bounds = 1.0 / trend.variances[:, k]
        precision = _weighted_square(lines, told.precision[k, k]) + np.diag(bounds)
        linear = tall.inner(lines, pulls[k][:, None], pool)[:, 0] - bounds * trend.slopes[:, k]
        root = positive_root(precision)
        if root is None:  # which the slopes have no part in: to leave them changes no distribution
            continue
        whitened = solve_triangular(root, linear, lower=True) + noise
        step = solve_triangular(root, whitened, lower=True, trans=1)
        along = tall.times(lines, step[:, None], pool)[:, 0]
        values[k] += along
        pulls -= told.precision[k] * along
    return values


def _weighted_square(lines: NDArray[np.float32], weights: Array) -> Array:
    """Return the sum of the outer products of some lines, each times its weight."""
    total = np.zeros((lines.shape[1], lines.shape[1]))
    for begin in range(0, len(lines), _ROWS_AT_ONCE):
        rows = slice(begin, begin + _ROWS_AT_ONCE)
        part = lines[rows] * np.sqrt(weights[rows])[:, None]
        total += part.T @ part  # of one matrix with itself, which takes half the work of two
    return total
