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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onebit.engine.known import Tall
from onebit.model.gaussians import positive_root

Array = NDArray[np.float64]

# The prior variance of a mean that is not to move.
FIXED = 1e-12
# Columns whose slopes are drawn once more: all together would take longer than the other steps.
_LEADING = 16
# Where less than this share of what says where rows are is the prior's, rows follow their answers.
_LEAST_LEFT = 0.25
# Bytes of the evidence of one side's answers: of larger sides it is not kept.
_MOST_BYTES = 2**28


@dataclass(frozen=True)
class Trend:
    """The slopes that the rows of a side follow, and what it takes to draw the leading ones once more.

    Attributes
    ----------
    slopes : ndarray of shape (columns of what is known, coordinates)
        All of them.
    leading : ndarray of int
        The columns whose slopes are drawn once more: the longest ones.
    present, variances : ndarray of shape (leading columns and one more, coordinates)
        The slopes of these columns and their prior variances; the last line are the means of the rows,
        which follow them as they follow the slopes.
    spread : ndarray of shape (coordinates,)
        The variances of the rows around all that.
    noise : ndarray of shape (coordinates, leading columns and one more), optional
        None where nothing is drawn once more.
    """

    slopes: Array
    leading: NDArray[np.int64]
    present: Array
    variances: Array
    spread: Array
    noise: Array | None


def leading(squares: Array) -> NDArray[np.int64]:
    """Return which columns of what is known are the longest."""
    return np.sort(np.argsort(-squares, kind="stable")[:_LEADING])


class WeighingTall(Tall, Protocol):
    """Who computes with tall matrices whose rows have weights."""

    def grams(self, tall: Any, weights: Any) -> Array:
        """Return ``tall' diag(w) tall`` for each line ``w`` of the weights."""
        ...


@dataclass(frozen=True)
class Evidence:
    """What the answers say of each row, where the work is done.

    ``precision`` has the shape (coordinates, coordinates, rows), ``linear`` (coordinates, rows).
    """

    precision: Any
    linear: Any

    @staticmethod
    def rows_kept(rows: int, coordinates: int, trend: Trend | None) -> int:
        """Return of how many rows it is kept: of none where nothing moves or it would be too large."""
        moves = trend is not None and trend.noise is not None
        return rows if moves and 8 * rows * coordinates * (coordinates + 1) <= _MOST_BYTES else 0

    def scales(self, tall: Tall, values: Any, rank: int) -> Array:
        """Return what rows at these values say of the columns' scales; see ``passes.sample_rows``."""
        if rank == 0:
            return np.empty(0)
        parts = [((self.precision[k] * values) @ values[k])[:, None] for k in range(rank)]
        said = tall.joined(parts)
        pulls = (self.linear[:rank] * values[:rank]).sum(1) - said[rank:].sum(0)
        return np.append(tall.fetched(said[:rank]), tall.fetched(pulls))


def move_along(tall: WeighingTall, lines: Any, values: Any, evidence: Evidence, trend: Trend) -> None:
    """Draw the leading slopes of a trend anew, and move the values (coordinates, then rows) with them.

    ``lines`` are the leading columns of what is known of the rows, and ones. Coordinates that the answers
    say enough of stay, and those whose regression has no root: neither asks for the slopes, so that no
    distribution changes.
    """
    assert trend.noise is not None
    every = np.arange(len(trend.noise))
    weights = evidence.precision[every, every]
    left = 1.0 / (1.0 + tall.placed(trend.spread)[:, None] * weights)
    moving = every[tall.fetched(left.mean(1)) >= _LEAST_LEFT]
    bounds = 1.0 / trend.variances.T
    grams = tall.grams(lines, weights[moving])
    every_bound = np.arange(bounds.shape[1])
    grams[:, every_bound, every_bound] += bounds[moving]
    for k, back in zip(moving, _inverse_roots(grams), strict=True):
        if back is None:
            continue
        pull = evidence.linear[k] - (evidence.precision[k] * values).sum(0)
        linear = tall.inner(lines, pull[:, None])[:, 0] - bounds[k] * trend.present[:, k]
        step = back.T @ (back @ linear + trend.noise[k])
        values[k] += tall.product(lines, step[:, None])[:, 0]


def _inverse_roots(grams: Array) -> list[Array | None]:
    """Return the inverses of the lower triangular roots of matrices; None for those that have none."""
    together = positive_root(grams)
    if together is not None:
        return list(np.linalg.inv(together))
    roots = [positive_root(gram) for gram in grams]
    return [None if root is None else np.asarray(np.linalg.inv(root), dtype=float) for root in roots]
