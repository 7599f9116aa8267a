"""The lines of all rows and columns of one chain, where the kernels walk them: the CPU's.

The chain itself asks for nothing that grows with the data: sums over lines (``Moments``), the same linear
change of all lines of a side (``Change``), one pass that draws a side anew, and one that looks at the
answers along a few directions of the whole. So another device needs these and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onebit.data import checked
from onebit.data.sides import MEMBERS
from onebit.data.storage import Tensors
from onebit.engine.cpu import tall
from onebit.engine.cpu.presence import CpuTall
from onebit.engine.cpu.threads import Threads
from onebit.engine.cpu.vectors import LANES
from onebit.engine.sampling import passes, whole
from onebit.engine.sampling.target import Table, Target, filled_table
from onebit.engine.sampling.trends import Evidence, Trend, move_along
from onebit.model.hierarchy import Hierarchy

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

# Lines are in single precision: by how much their sums may differ from those that moves have carried on.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Change:
    """What every line of a side becomes: ``line matrix + shift``, factors first, then the effect."""

    matrix: Array
    shift: Array


@dataclass(frozen=True)
class Moments:
    """Sums over the lines of a side: of the lines, of their outer products, and with what is known.

    What is known has mean zero over a side, so that its products do not notice a shift.
    """

    size: int
    total: Array
    gram: Array
    projections: Array | None

    def state(self, name: str) -> Tensors:
        """Return the sums as arrays whose names begin with ``name``."""
        sums = {f"{name}.total": self.total, f"{name}.gram": self.gram}
        return sums if self.projections is None else sums | {f"{name}.projections": self.projections}

    def restored(self, tensors: Tensors, name: str) -> Moments:
        """Return the sums that ``state`` returned, which are these but for rounding."""
        found = {}
        for part, own in self.state(name).items():
            found[part.removeprefix(f"{name}.")] = sums = checked.checked_array(
                tensors, part, np.float64, own.shape
            )
            if not np.allclose(sums, own, rtol=_ROUNDING, atol=_ROUNDING * np.abs(own).max(initial=1.0)):
                raise checked.FileError(f"{part} are no sums over the lines of the chain")
        return Moments(self.size, found["total"], found["gram"], found.get("projections"))

    def changed(self, change: Change) -> Moments:
        """Return the moments after a change of all lines."""
        matrix, shift, projections = change.matrix, change.shift, self.projections
        turned = self.total @ matrix
        gram = matrix.T @ self.gram @ matrix + np.outer(turned, shift) + np.outer(shift, turned)
        return Moments(
            self.size,
            turned + self.size * shift,
            gram + self.size * np.outer(shift, shift),
            None if projections is None else projections @ matrix,
        )


class Lines(Protocol):
    """The lines ``(factors, 1, effect)`` of rows and columns, on some device."""

    def draw(
        self, side: int, key: tuple[int, int], sweep: int, precision: Array, linear: Array,
        trend: Trend | None,
    ) -> tuple[Array, Moments]:  # fmt: skip
        """Draw all lines of a side; return what they say of the columns' scales, and their moments."""
        ...

    def moments(self) -> list[Moments]:
        """Return the sums over the lines of both sides."""
        ...

    def expect(self, key: tuple[int, int], sweep: int) -> None:
        """Learn that the next thing to happen to the lines is this sweep: it may begin."""
        ...

    def change(self, side: int, change: Change) -> None:
        """Change all lines of a side."""
        ...

    def along(self, scale: Array, level: float, centres: tuple[float, float]) -> whole.Along:
        """Return the loss of all answers where the whole is changed, and how it bends."""
        ...

    def scores(self, rows: Codes, columns: Codes) -> Array:
        """Return the present scores of pairs of codes."""
        ...

    def answers(self, places: NDArray[np.int64]) -> tuple[Codes, Codes, NDArray[np.int8]]:
        """Return the rows, columns and signs of some answers, by their places in row order."""
        ...

    def silent(self, side: int) -> NDArray[np.int64]:
        """Return the rows (or columns) without answers, whose pattern is not known."""
        ...

    def table(self, side: int) -> Table:
        """Return the lines of a side in this machine's memory."""
        ...

    def free(self, side: int) -> Table:
        """Return the factors of all lines of a side, then the effect if it has one, there."""
        ...

    def put(self, side: int, table: Table) -> None:
        """Take up other lines."""
        ...


class CpuLines:
    """Lines in this machine's memory, drawn on the threads of a pool."""

    def __init__(self, target: Target, tables: list[Table], pool: Threads) -> None:
        self.target, self.tables, self.pool = target, tables, pool
        self._trends: dict[int, Array] = {}
        self._rooms: dict[tuple[int, int, int], tuple[Any, ...]] = {}

    @property
    def _hierarchy(self) -> Hierarchy:
        return self.target.hierarchy

    def draw(
        self, side: int, key: tuple[int, int], sweep: int, precision: Array, linear: Array,
        trend: Trend | None,
    ) -> tuple[Array, Moments]:  # fmt: skip
        """Draw all lines of a side; return what they say of the columns' scales, and their moments."""
        target, rank = self.target, self._hierarchy.rank
        view, copies = target.views[side], target.copies[side]
        linear, known = linear[None], target.known.values[side]
        if trend is not None and known is not None:
            linear = linear + precision * tall.times(np.asarray(known), trend.slopes, self.pool)
        table, other = self.tables[side], self.tables[1 - side]
        groups = -(-view.size // LANES)
        scales = np.empty((groups if rank else 0, rank * (rank + 1)))
        free = self._hierarchy.n_free(side)
        kept = Evidence.rows_kept(view.size, free, trend)
        precisions, pulls = passes.evidence_room(kept, free)
        evidence = Evidence(precisions.transpose(0, 2, 1), pulls.T)

        def task(begin: int, end: int) -> None:
            passes.sample_rows(
                begin, end, view.start, view.index, view.sign, view.weight, copies, other, table,
                precision, linear, target.temperature, target.loss.code, rank,
                self._hierarchy.has_effect(side), target.hats, key, sweep, side, scales,
                precisions, pulls, self._room(side, begin, end),
            )  # fmt: skip

        self.pool.ranges(task, np.append(view.start[:-1:LANES], view.start[-1]))
        if not np.isfinite(table.sum(dtype=float)):
            bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
            raise diverged(target, side, sweep, int(bad[0]) if len(bad) else None)
        if trend is None or not kept:
            return scales.sum(axis=0), self._moments(side)
        tall_here, values = CpuTall(self.pool), self.free(side).T.astype(float)
        move_along(tall_here, self._trend_lines(side, trend), values, evidence, trend)
        self._set_free(side, values.T)
        return evidence.scales(tall_here, values, rank), self._moments(side)

    def _room(self, side: int, begin: int, end: int) -> tuple[Any, ...]:
        """Return the room of a task, made once: the same groups are never drawn twice at a time."""
        task = side, begin, end
        if task not in self._rooms:
            self._rooms[task] = self.target.room(*task)
        return self._rooms[task]

    def _trend_lines(self, side: int, trend: Trend) -> Array:
        """Return the leading columns of what is known of each line of a side, and ones."""
        if side not in self._trends:
            known, ones = self.target.known.values[side], np.ones((len(self.tables[side]), 1))
            self._trends[side] = ones if known is None else np.hstack([known[:, trend.leading], ones])
        return self._trends[side]

    def _set_free(self, side: int, values: Array) -> None:
        """Take up other factors of all lines of a side, and effects if it has them."""
        rank, table = self._hierarchy.rank, self.tables[side]
        table[:, :rank] = values[:, :rank]
        if self._hierarchy.has_effect(side):
            table[:, rank + 1] = values[:, rank]

    def free(self, side: int) -> Table:
        """Return the coordinates of one side: the factors, then the effect if there is one."""
        return free_coordinates(self.tables[side], self._hierarchy, side)

    def moments(self) -> list[Moments]:
        """Return the sums over the lines of both sides."""
        return [self._moments(side) for side in (0, 1)]

    def expect(self, key: tuple[int, int], sweep: int) -> None:
        """Nothing begins before it is asked for: the threads are the ones that ask."""

    def _moments(self, side: int) -> Moments:
        free, values = self.free(side), self.target.known.values[side]
        return Moments(
            len(free),
            free.sum(axis=0, dtype=float),
            tall.inner(free, free, self.pool),
            None if values is None else tall.inner(values, free, self.pool),
        )

    def change(self, side: int, change: Change) -> None:
        """Change all lines of a side."""
        self._set_free(side, tall.times(self.free(side), change.matrix, self.pool) + change.shift)

    def along(self, scale: Array, level: float, centres: tuple[float, float]) -> whole.Along:
        """Return the loss of all answers where the whole is changed, and how it bends."""
        return whole.along(self.target, self.tables, scale, level, centres, self.pool)

    def scores(self, rows: Codes, columns: Codes) -> Array:
        """Return the present scores of pairs of codes."""
        rank = self._hierarchy.rank
        left, right = self.tables[0][rows], self.tables[1][columns]
        score = np.einsum("nk,nk->n", left[:, :rank], right[:, :rank]).astype(float)
        return score + left[:, rank + 1] + right[:, rank + 1]

    def answers(self, places: NDArray[np.int64]) -> tuple[Codes, Codes, NDArray[np.int8]]:
        """Return the rows, columns and signs of some answers, by their places in row order."""
        view = self.target.views[0]
        rows = (np.searchsorted(view.start, places, side="right") - 1).astype(np.int32)
        return rows, view.index[places], view.sign[places]

    def silent(self, side: int) -> NDArray[np.int64]:
        """Return the rows (or columns) without answers, whose pattern is not known."""
        return np.flatnonzero(self.target.views[side].counts == 0)

    def table(self, side: int) -> Table:
        """Return the lines of a side."""
        return self.tables[side]

    def put(self, side: int, table: Table) -> None:
        """Take up other lines."""
        self.tables[side] = table


# Puts factors and effects of rows and columns where the kernels of a device walk them.
Place = Callable[[Target, list[NDArray[np.floating]]], Lines]


def on_threads(pool: Threads) -> Place:
    """Return what puts lines into this machine's memory, for the threads of a pool."""

    def place(target: Target, values: list[NDArray[np.floating]]) -> Lines:
        hierarchy = target.hierarchy
        tables = [
            filled_table(part, hierarchy.rank, hierarchy.has_effect(side))
            for side, part in enumerate(values)
        ]
        return CpuLines(target, tables, pool)

    return place


ALONE = Threads(1, None)
on_one_thread = on_threads(ALONE)


def free_coordinates(table: Table, hierarchy: Hierarchy, side: int) -> Table:
    """Return the factors of all lines, then the effect if the side has one."""
    rank = hierarchy.rank
    if not hierarchy.has_effect(side):
        return table[:, :rank]
    free = np.empty((len(table), rank + 1), np.float32)
    free[:, :rank], free[:, rank] = table[:, :rank], table[:, rank + 1]
    return free


def diverged(target: Target, side: int, sweep: int, line: int | None) -> FloatingPointError:
    """Return the error of a chain whose numbers left what a machine holds."""
    where = f"the {MEMBERS[side]}s" if line is None else f"{MEMBERS[side]} {line}"
    return FloatingPointError(
        f"the chain diverged in sweep {sweep}: a draw of {where} is not finite; lower the "
        f"temperature ({target.temperature:g}) or the weights of the answers"
    )
