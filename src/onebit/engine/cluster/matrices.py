"""Tall matrices in parts on a cluster, and products with the answers: what starts and patterns need.

A matrix over the divided side has a part for each block, one over the other side a single part. Small
matrices are numpy's and lie with the client.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.engine.cluster.blocks import ALONE, Blocks, plus, view_of
from onebit.engine.cluster.client import Cluster, same
from onebit.engine.cluster.reading import Block
from onebit.engine.cpu import tall
from onebit.engine.cpu.presence import CpuPresence, entry_counts
from onebit.engine.known import NOBODY
from onebit.engine.start import CpuResiduals, Start, first_effects, leading_triples, sign_sums
from onebit.model.hierarchy import Hierarchy

Array = NDArray[np.float64]


class Parts:
    """A tall matrix, or a vector, in parts; arithmetic goes part by part."""

    def __init__(self, cluster: Cluster, futures: Sequence[Any], length: int) -> None:
        self.cluster, self.futures, self.length = cluster, list(futures), length

    def __len__(self) -> int:
        return self.length

    def each(self, task: Callable[..., Any], *others: Any, what: str = "matrix") -> Parts:
        """Apply a task to each part, with the parts of others or with one value for all."""
        lists = [
            other.futures if isinstance(other, Parts) else [other] * len(self.futures) for other in others
        ]
        return Parts(self.cluster, self.cluster.each(task, self.futures, *lists, what=what), self.length)

    def values(self, what: str = "matrix") -> list[Any]:
        """Return the parts themselves."""
        return self.cluster.results(self.futures, f"computing a {what}")

    def small(self) -> list[Any]:
        """Return parts that are small."""
        return self.cluster.small(self.futures, "computing a matrix")

    def sum(self) -> float:
        """Return the sum of all entries."""
        return float(sum(self.each(np.sum).small()))

    def __getitem__(self, place: Any) -> Parts:
        return self.each(operator.getitem, place)

    def __gt__(self, other: Any) -> Parts:
        return self.each(operator.gt, other)

    def __mul__(self, other: Any) -> Parts:
        return self.each(operator.mul, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Parts:
        return self.each(operator.truediv, other)

    def __add__(self, other: Any) -> Parts:
        return self.each(operator.add, other)

    def __sub__(self, other: Any) -> Parts:
        return self.each(operator.sub, other)


def _inner(left: NDArray[Any], right: NDArray[Any]) -> Array:
    return tall.inner(np.ascontiguousarray(left), np.ascontiguousarray(right), ALONE)


def _gram(matrix: NDArray[Any]) -> Array:
    """Return a matrix's product with itself: one argument, which a disk does not make into two."""
    whole = np.ascontiguousarray(matrix)
    return tall.inner(whole, whole, ALONE)


def _product(matrix: NDArray[Any], small: Array) -> Array:
    return tall.times(np.ascontiguousarray(matrix), np.ascontiguousarray(small), ALONE)


def _beside(*parts: Array) -> Array:
    return np.hstack(parts)


def _single(matrix: Array) -> NDArray[np.float32]:
    return matrix.astype(np.float32)


class ClusterTall:
    """Tall matrices on a cluster; see ``engine.known.Tall``."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def placed(self, array: Array) -> Any:
        """Return an array over the side that is not divided, on the cluster; a small one as it is."""
        if array.ndim < 2:
            return array
        return Parts(self.cluster, [self.cluster.submit(same, array, what="matrix")], len(array))

    def inner(self, left: Parts, right: Parts) -> Array:
        """Return ``left' right``."""
        if left is right:
            return self.gram(left)
        return np.asarray(sum(left.each(_inner, right).small()))

    def gram(self, matrix: Parts) -> Array:
        """Return ``matrix' matrix``."""
        return np.asarray(sum(matrix.each(_gram).small()))

    def product(self, matrix: Parts, small: Array) -> Parts:
        """Return ``matrix small``."""
        return matrix.each(_product, small)

    def joined(self, parts: list[Parts]) -> Parts:
        """Return tall matrices side by side."""
        return parts[0].each(_beside, *parts[1:])

    def single(self, matrix: Parts) -> Parts:
        """Return the matrix in single precision."""
        return matrix.each(_single)

    def fetched(self, matrix: Parts) -> NDArray[Any]:
        """Return the matrix in the client's memory, block after block."""
        return np.concatenate(matrix.values())


def _of_divided(maker: Any, block: Block, side: int, vectors: Array, *more: Any) -> Array:
    """Return what a block's part of the matrix makes of vectors over the other side."""
    return np.asarray(maker(block, side, *more).times(side, vectors))


def _of_whole(maker: Any, block: Block, side: int, vectors: Array, *more: Any) -> Array:
    """Return what a block adds to the matrix's transpose times vectors over the divided side."""
    return np.asarray(maker(block, side, *more).times(1 - side, vectors))


def _multiplied(blocks: Blocks, maker: Any, divided: bool, vectors: Parts, *more: Sequence[Any]) -> Parts:
    """Multiply with a matrix in blocks, to the divided side or to the other one."""
    count = len(blocks.futures)
    fixed = [maker] * count, blocks.futures, [blocks.side] * count
    if divided:
        lists = [vectors.futures[0]] * count
        parts = blocks.cluster.each(_of_divided, *fixed, lists, *more, what="multiply")
        return Parts(blocks.cluster, parts, blocks.shape[blocks.side])
    parts = blocks.cluster.each(_of_whole, *fixed, vectors.futures, *more, what="multiply")
    return Parts(blocks.cluster, [blocks.cluster.added(parts, plus, "add-products")], blocks.others)


def _in_order(side: int, own: Any, other: Any) -> tuple[Any, Any]:
    """Return something of the divided side and of the other one as that of rows and of columns."""
    return (own, other) if side == 0 else (other, own)


def _presence(block: Block, side: int, own: Any, other: Any) -> CpuPresence:
    return CpuPresence(block.seen, ALONE, _in_order(side, own, other))


def _entries(block: Block, side: int) -> NDArray[np.int64]:
    return entry_counts(view_of(block, side), ALONE)


def _column(counts: NDArray[np.int64]) -> Array:
    return counts.astype(float)[:, None]


def _scaled(vectors: Array, counts: NDArray[np.int64]) -> Array:
    from onebit.model.placing import DAMPING

    return vectors * ((counts + DAMPING) ** -0.5).astype(np.float32)[:, None]


class ClusterPresence(ClusterTall):
    """The divided pattern on a cluster; see ``engine.known.Presence``.

    The divided side is the first here, whichever it is: what a decomposition starts from is made for the
    other one, which is small.
    """

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks.cluster)
        self.blocks = blocks
        self.shape = blocks.shape[blocks.side], blocks.others
        self._counts = both_sides(blocks, _entries, "count-entries")[:: -1 if blocks.side else 1]

    def counts(self, side: int) -> Parts:
        """Return a column with the number of entries of each member of a side that have answers."""
        return self._counts[side].each(_column)

    def silent(self, side: int) -> NDArray[np.int64]:
        """Return nobody: those without answers are found where the states are."""
        return NOBODY

    def scaled(self, side: int, vectors: Parts) -> Parts:
        """Return vectors over a side, divided by the roots of the counts."""
        return vectors.each(_scaled, self._counts[side])

    def times(self, side: int, vectors: Parts) -> Parts:
        """Return the matrix (side 0) or its transpose (side 1) times these vectors."""
        own, other = self._counts
        more = own.futures, other.futures * len(own.futures)
        return _multiplied(self.blocks, _presence, side == 0, vectors, *more)


def both_sides(blocks: Blocks, task: Any, what: str) -> tuple[Parts, Parts]:
    """Return what a task finds of rows and of columns, added up for the side that is not divided."""
    found: list[Any] = [None, None]
    for side in (0, 1):
        parts = blocks.each(task, [side] * len(blocks.futures), what=what)
        if side != blocks.side:
            parts = [blocks.cluster.added(parts, plus, "add-counts")]
        found[side] = Parts(blocks.cluster, parts, blocks.shape[side])
    return found[0], found[1]


def _signs(block: Block, side: int) -> Array:
    return sign_sums(view_of(block, side))


def _answers(block: Block, side: int) -> Array:
    return view_of(block, side).counts.astype(float)


def _residuals(
    block: Block,
    side: int,
    counts: Any,
    others: Any,
    effects: Any,
    other_effects: Any,
    mean_weight: float,
) -> CpuResiduals:
    seen = block.seen
    own = _in_order(side, counts, others)
    return CpuResiduals(
        (seen.by_row, seen.by_column), own, _in_order(side, effects, other_effects), mean_weight, ALONE
    )


def _largest(matrix: Array) -> tuple[Array, Array]:
    """Return the sizes and the signs of the largest entries of each column."""
    if len(matrix) == 0:
        return np.zeros(matrix.shape[1]), np.ones(matrix.shape[1])
    found = matrix[np.abs(matrix).argmax(axis=0), np.arange(matrix.shape[1])]
    return np.abs(found), np.where(found < 0, -1.0, 1.0)


class _Residuals(ClusterTall):
    """The residuals with the divided side as their rows; see ``engine.start.Residuals``."""

    def __init__(self, blocks: Blocks, counts: Sequence[Parts], effects: Sequence[Parts]) -> None:
        super().__init__(blocks.cluster)
        self.blocks = blocks
        self.shape = blocks.shape[blocks.side], blocks.others
        own, other = blocks.side, 1 - blocks.side
        many = len(blocks.futures)
        self._more = (
            counts[own].futures, counts[other].futures * many, effects[own].futures,
            effects[other].futures * many, [blocks.total_weight / blocks.n] * many,
        )  # fmt: skip

    def flips(self, matrix: Parts) -> Array:
        """Return the sign of the entry of largest size of each column."""
        sizes, signs = zip(*matrix.each(_largest).small(), strict=True)
        best = np.argmax(np.stack(sizes), axis=0)
        return np.stack(signs)[best, np.arange(len(best))]

    def times(self, side: int, vectors: Parts) -> Parts:
        """Return the matrix (side 0) or its transpose (side 1) times these vectors."""
        return _multiplied(self.blocks, _residuals, side == 0, vectors, *self._more)


def _start(effects: Array, vectors: Array, scale: Array, rank: int, has_effect: bool) -> Array:
    """Return the means of a start: factors, then the effect."""
    factors = np.zeros((len(effects), rank))
    factors[:, : vectors.shape[1]] = vectors * scale
    return np.column_stack([factors, effects]) if has_effect else factors


def _none(effects: Array) -> Array:
    return np.zeros((len(effects), 0))


def _nothing(counts: Array) -> Array:
    return np.zeros(len(counts))


def cluster_start(blocks: Blocks, hierarchy: Hierarchy, rng: np.random.Generator) -> Start:
    """Return the spectral start, in parts; see ``engine.start``."""
    counts = both_sides(blocks, _answers, "count-answers")
    effects: Any = [part.each(_nothing) for part in counts]
    if hierarchy.intercept_side is not None:
        effects = first_effects(
            hierarchy, list(both_sides(blocks, _signs, "sum-signs")), list(counts), effects
        )
    vectors: list[Any] = [part.each(_none) for part in effects]
    values = np.zeros(0)
    if hierarchy.rank:
        residuals = _Residuals(blocks, counts, effects)
        left, values, right = leading_triples(residuals, hierarchy.rank, rng)
        vectors[blocks.side], vectors[1 - blocks.side] = left, right
    means = [
        effects[side].each(
            _start, vectors[side], np.sqrt(blocks.shape[side] * values), hierarchy.rank,
            hierarchy.has_effect(side), what="start",
        )
        for side in (0, 1)
    ]  # fmt: skip
    return Start(means[0], means[1])
