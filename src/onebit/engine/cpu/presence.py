"""The pattern of the answers on a CPU: products with it, and with tall matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel
from onebit.data.observations import Observations
from onebit.data.sorting import View
from onebit.engine.cpu import tall
from onebit.engine.cpu.layout import lines_of_zeros, whole_blocks
from onebit.engine.cpu.passes import add_lines
from onebit.engine.cpu.room import line_room
from onebit.engine.cpu.threads import Threads
from onebit.engine.cpu.vectors import prefetch_lines
from onebit.model.placing import DAMPING

Array = NDArray[np.float64]

# Lines are asked for this many answers before they are needed.
_AHEAD = 24


@kernel(nogil=True, error_model="numpy")
def _multiply(begin, end, start, index, own_scale, vectors, room, out):
    """Write the products of rows ``begin:end`` of the pattern with ``vectors``.

    Rows list their columns in order, so that further answers of an entry follow the first.
    """
    width = vectors.shape[1]
    values, part = room
    for i in range(begin, end):
        for t in range(width):
            out[i, t] = 0.0
        for chunk in range(start[i], start[i + 1], values.shape[0]):
            count = min(values.shape[0], start[i + 1] - chunk)
            for k in range(count):
                at = chunk + k
                prefetch_lines(vectors, index, at + _AHEAD, at + _AHEAD + 1)
                again = at > start[i] and index[at] == index[at - 1]
                values[k] = np.float32(0.0) if again else np.float32(1.0)
            add_lines(values, count, vectors, index, chunk, own_scale[i], part, out[i])


@kernel(nogil=True)
def _entries(begin, end, start, index, out):
    """Count the entries of rows ``begin:end`` that have answers."""
    for i in range(begin, end):
        out[i] = 0
        for k in range(start[i], start[i + 1]):
            if k == start[i] or index[k] != index[k - 1]:
                out[i] += 1


def entry_counts(view: View, pool: Threads) -> NDArray[np.int64]:
    """Return the number of entries of each row (or column) that have answers."""
    counts = np.empty(view.size, np.int64)
    pool.ranges(lambda begin, end: _entries(begin, end, view.start, view.index, counts), view.start)
    return counts


class CpuTall:
    """Tall matrices in this machine's memory, shared out among threads."""

    def __init__(self, pool: Threads) -> None:
        self.pool = pool

    def placed(self, array: Array) -> Array:
        """Return the array."""
        return array

    def inner(self, left: NDArray[Any], right: NDArray[Any]) -> Array:
        """Return ``left' right``."""
        return tall.inner(left, right, self.pool)

    def grams(self, matrix: NDArray[Any], weights: Array) -> Array:
        """Return ``matrix' diag(w) matrix`` for each line ``w`` of the weights."""
        return tall.grams(matrix, weights, self.pool)

    def product(self, matrix: NDArray[Any], small: Array) -> Array:
        """Return ``matrix small``."""
        return tall.times(matrix, np.ascontiguousarray(small), self.pool)

    def joined(self, parts: list[Array]) -> Array:
        """Return tall matrices side by side."""
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def single(self, matrix: Array) -> NDArray[np.float32]:
        """Return the matrix in single precision."""
        return matrix.astype(np.float32)

    def fetched(self, matrix: Array) -> Array:
        """Return the matrix."""
        return matrix


class CpuPresence(CpuTall):
    """The divided pattern; see ``engine.known``.

    ``counts`` are given for answers that are a part of all.
    """

    def __init__(
        self,
        observations: Observations,
        pool: Threads,
        counts: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        super().__init__(pool)
        self.views = (observations.by_row, observations.by_column)
        self.shape = observations.shape
        self._counts = counts or (entry_counts(self.views[0], pool), entry_counts(self.views[1], pool))
        self.scales = [((count + DAMPING) ** -0.5).astype(np.float32) for count in self._counts]

    def silent(self, side: int) -> NDArray[np.int64]:
        """Return the rows (side 0) or columns without answers."""
        return np.flatnonzero(self._counts[side] == 0)

    def counts(self, side: int) -> Array:
        """Return a column with the number of entries of each row (side 0) or column that have answers."""
        return self._counts[side].astype(float)[:, None]

    def scaled(self, side: int, vectors: Array) -> Array:
        """Return vectors over the rows (side 0) or columns, divided by the roots of the counts."""
        return vectors * self.scales[side][:, None]

    def times(self, side: int, vectors: Array) -> Array:
        """Return the matrix (side 0) or its transpose (side 1) times these vectors."""
        view, wanted = self.views[side], vectors.shape[1]
        table = lines_of_zeros(len(vectors), whole_blocks(wanted))
        # As ``scaled`` does, without an array between.
        scale = self.scales[1 - side][:, None]
        np.multiply(vectors, scale, out=table[:, :wanted], casting="same_kind")
        out = np.empty((view.size, table.shape[1]))

        def task(begin: int, end: int) -> None:
            room = line_room(table.shape[1])
            _multiply(begin, end, view.start, view.index, self.scales[side], table, room, out)

        self.pool.ranges(task, view.start)
        return np.ascontiguousarray(out[:, :wanted])
