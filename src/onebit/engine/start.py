"""Where a fit starts: the leading singular vectors of what the effects leave unexplained.

``L = R = 0`` is a stationary point of every objective here, and random starts can fall into it. The
spectral start (rows and columns scaled by the square root of their counts, so that popular ones do
not drown the rest) does not. The vectors are found by a few rounds of block power iteration over the two
sorted views; nothing of length n is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel
from onebit.data.observations import Observations
from onebit.data.sorting import View
from onebit.engine.cpu.layout import lines_of_zeros, whole_blocks
from onebit.engine.cpu.passes import add_lines
from onebit.engine.cpu.room import line_room
from onebit.engine.cpu.threads import Threads
from onebit.engine.cpu.vectors import prefetch_lines
from onebit.model.hierarchy import Hierarchy

Array = NDArray[np.float64]

# Variance of every coordinate at the start: small enough that the means decide the first weights.
START_VARIANCE = 0.1
# A pseudo-count that shrinks the first guess of the effects of rows with few answers.
_SHRINKAGE = 5.0
# Rounds of power iteration, and the least number of vectors beyond those that are wanted.
_ROUNDS = 4
_MORE = 5
# Relative size below which a singular value is rounding.
_SMALLEST = 1e-6
# Weights beyond this many times their mean would let single answers decide.
LARGEST_WEIGHT = 3.0
# Lines are asked for this many answers before they are needed.
_AHEAD = 24
_ONE, _TWO = np.float32(1.0), np.float32(2.0)


@dataclass(frozen=True)
class Start:
    """Means of the coordinates of rows and columns, from which the first round departs.

    Arrays of those who do the work: numpy's on a CPU.
    """

    rows: Any
    columns: Any


class Residuals(Protocol):
    """The matrix of answers less what the effects expect, scaled by the roots of the counts.

    Tall matrices are arrays of those who do the work, small ones numpy's.
    """

    shape: tuple[int, int]

    def placed(self, array: Array) -> Any:
        """Return an array as one of the workers' own."""
        ...

    def gram(self, tall: Any) -> Array:
        """Return ``tall' tall``."""
        ...

    def product(self, tall: Any, small: Array) -> Any:
        """Return ``tall small``."""
        ...

    def flips(self, tall: Any) -> Array:
        """Return the sign of the entry of largest size of each column."""
        ...

    def times(self, side: int, vectors: Any) -> Any:
        """Return the matrix (side 0) or its transpose (side 1) times these vectors."""
        ...


def spectral_start(
    observations: Observations,
    hierarchy: Hierarchy,
    rng: np.random.Generator,
    jitter: float = 0.0,
    pool: Threads | None = None,
) -> Start:
    """Return the spectral start; ``jitter`` adds noise of that size relative to it.

    The first start of a fit has no jitter; further ones (``n_init``) do, to reach other optima.
    """
    pool = pool or Threads(1, None)
    views = (observations.by_row, observations.by_column)
    effects = [np.zeros(view.size) for view in views]
    if hierarchy.intercept_side is not None:
        sums = [sign_sums(view) for view in views]
        effects = first_effects(hierarchy, sums, [view.counts for view in views], effects)
    factors = [np.zeros((view.size, hierarchy.rank)) for view in views]
    if hierarchy.rank:
        fill_factors(factors, residuals_of(observations, effects, pool), rng, jitter)
    means = [
        np.column_stack([factor, effects[side]]) if hierarchy.has_effect(side) else factor
        for side, factor in enumerate(factors)
    ]
    return Start(means[0], means[1])


def fill_factors(
    factors: list[Any], residuals: Residuals, rng: np.random.Generator, jitter: float
) -> None:
    """Write the leading singular vectors to the factors of rows and columns, and noise if asked for."""
    u, values, v = leading_triples(residuals, factors[0].shape[1], rng)
    for factor, vectors in zip(factors, (u, v), strict=True):
        factor[:, : len(values)] = vectors * residuals.placed(np.sqrt(len(vectors) * values))
        if jitter:
            size = jitter * math.sqrt(float((factor**2).mean()) + 1e-4)
            factor += size * residuals.placed(rng.standard_normal(tuple(factor.shape)))


def first_effects(
    hierarchy: Hierarchy, sums: list[Any], counts: list[Any], zeros: list[Any]
) -> list[Any]:
    """Return a first guess of the effects of rows and columns from the sums of their signs."""
    average = min(max(float(sums[0].sum()) / float(counts[0].sum()), -0.98), 0.98)
    effects = list(zeros)
    for side in (0, 1):
        if hierarchy.has_effect(side):
            excess = sums[side] - average * counts[side]
            effects[side] = 2.0 * excess / (counts[side] + _SHRINKAGE)
    assert hierarchy.intercept_side is not None
    effects[hierarchy.intercept_side] = effects[hierarchy.intercept_side] + 2.0 * math.atanh(average)
    return effects


def sign_sums(view: View) -> Array:
    """Return the sum of the signs of each row (or column)."""
    running = np.concatenate([[0], np.cumsum(view.sign, dtype=np.int64)])
    return np.diff(running[view.start]).astype(float)


@kernel(nogil=True, error_model="numpy")
def _multiply(
    begin, end, start, index, sign, weight, mean_weight, own_scale, own_odds, vectors, room, out
):
    """Write the products of rows ``begin:end`` of the matrix of residuals with ``vectors``.

    The last column of ``vectors`` holds the other side's odds: one gather brings both.
    """
    width = vectors.shape[1]
    values, part = room
    for i in range(begin, end):
        for t in range(width):
            out[i, t] = 0.0
        for chunk in range(start[i], start[i + 1], values.shape[0]):
            count = min(values.shape[0], start[i + 1] - chunk)
            for k in range(count):
                prefetch_lines(vectors, index, chunk + k + _AHEAD, chunk + k + _AHEAD + 1)
                j = np.uint32(index[chunk + k])
                # The sign less its expectation, tanh(x / 2) with exp(x) the product of the odds.
                odds = own_odds[i] * vectors[j, width - 1]
                residual = np.float32(sign[chunk + k]) - _ONE + _TWO / (odds + _ONE)
                if weight.shape[0] > 0:
                    residual *= min(weight[chunk + k] / mean_weight, LARGEST_WEIGHT)
                values[k] = residual
            add_lines(values, count, vectors, index, chunk, own_scale[i], part, out[i])


class CpuResiduals:
    """The matrix of answers less what the effects expect, scaled by the roots of the counts."""

    def __init__(
        self,
        views: tuple[View, View],
        counts: Sequence[NDArray[Any]],
        effects: Sequence[Array],
        mean_weight: float,
        pool: Threads,
    ) -> None:
        self.views = views
        self.scales = [(1.0 / np.sqrt(np.maximum(count, 1))).astype(np.float32) for count in counts]
        self.odds = [np.exp(effect).astype(np.float32) for effect in effects]
        self.mean_weight = mean_weight
        self.pool = pool
        self.shape = self.views[0].size, self.views[1].size

    def placed(self, array: Array) -> Array:
        """Return the array."""
        return array

    # Without the threads of a linear algebra library, which would fight ours.
    def gram(self, tall: Array) -> Array:
        """Return ``tall' tall``."""
        return np.einsum("mi,mj->ij", tall, tall)

    def product(self, tall: Array, small: Array) -> Array:
        """Return ``tall small``."""
        return np.einsum("mi,ij->mj", tall, small)

    def flips(self, tall: Array) -> Array:
        """Return the sign of the entry of largest size of each column."""
        return np.where(tall[np.abs(tall).argmax(axis=0), np.arange(tall.shape[1])] < 0, -1.0, 1.0)

    def times(self, side: int, vectors: Array) -> Array:
        """Return the matrix (side 0) or its transpose (side 1) times these vectors."""
        view, other = self.views[side], 1 - side
        table = lines_of_zeros(len(vectors), whole_blocks(vectors.shape[1] + 1))
        table[:, : vectors.shape[1]] = vectors * self.scales[other][:, None]
        table[:, -1] = self.odds[other]
        out = np.empty((view.size, table.shape[1]))

        def task(begin: int, end: int) -> None:
            _multiply(
                begin, end, view.start, view.index, view.sign, view.weight, self.mean_weight,
                self.scales[side], self.odds[side], table, line_room(table.shape[1]), out,
            )  # fmt: skip

        self.pool.ranges(task, view.start)
        return out[:, : vectors.shape[1]]


def residuals_of(observations: Observations, effects: list[Array], pool: Threads) -> CpuResiduals:
    """Return the residuals of all answers."""
    views = observations.by_row, observations.by_column
    mean_weight = observations.total_weight / observations.n
    return CpuResiduals(views, [view.counts for view in views], effects, mean_weight, pool)


def _principal(residuals: Residuals, tall: Any) -> tuple[Any, Array, Array]:
    """Return the left vectors, the values and the right vectors of a matrix with few columns."""
    squares, turn = np.linalg.eigh(residuals.gram(tall))
    squares, turn = np.maximum(squares[::-1], 0.0), turn[:, ::-1]
    values = np.sqrt(squares)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > _SMALLEST * values[0])
    return residuals.product(tall, turn * inverse), values, turn


def leading_triples(residuals: Residuals, rank: int, rng: np.random.Generator) -> tuple[Any, Array, Any]:
    """Return the leading left vectors, values and right vectors, by block power iteration."""
    rows, columns = residuals.shape
    wanted = min(whole_blocks(rank + _MORE + 1) - 1, rows, columns)
    right = residuals.placed(rng.standard_normal((columns, wanted)))
    for _ in range(_ROUNDS):
        left = _principal(residuals, residuals.times(0, right))[0]
        right, values, turn = _principal(residuals, residuals.times(1, left))
    found = min(rank, wanted)
    u, values, v = residuals.product(left, turn[:, :found]), values[:found], right[:, :found]
    # Singular vectors are defined up to a sign; fix it so that a start is reproducible.
    flip = np.diag(residuals.flips(u))
    return residuals.product(u, flip), values, residuals.product(v, flip)
