"""Answers sorted by row and by column: what every pass walks along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import fixed, kernel

Counts = NDArray[np.int64]

# Fewer answers are sorted before another thread has begun.
_FEWEST_A_THREAD = 200_000


class Pool(Protocol):
    """Threads that work side by side."""

    count: int

    def each(self, task: Callable[[int], object], count: int) -> None:
        """Run ``task`` for every number below ``count``."""
        ...


@dataclass(frozen=True)
class View:
    """The observations of every row (or of every column), stored one after the other.

    The answers of row ``i`` are ``start[i]:start[i + 1]`` of ``index`` (which column) and ``sign``
    (-1 or 1). ``weight`` is empty when all answers weigh the same.
    """

    start: NDArray[np.int64]
    index: NDArray[np.int32]
    sign: NDArray[np.int8]
    weight: NDArray[np.float32]

    @property
    def size(self) -> int:
        """The number of rows (or columns)."""
        return len(self.start) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of answers of each row (or column)."""
        return np.diff(self.start)

    def freeze(self) -> None:
        """Let nobody write to the arrays from here on."""
        for array in (self.start, self.index, self.sign, self.weight):
            array.setflags(write=False)

    def narrowed(self) -> tuple[NDArray[np.int32], View]:
        """Return whom of the other side answers are about, and the answers by places among these."""
        members, index = np.unique(self.index, return_inverse=True)
        return members, replace(self, index=fixed(index.astype(np.int32)))

    def owners(self) -> NDArray[np.int32]:
        """Return, for each observation, the row (or column) that it belongs to."""
        return np.repeat(np.arange(self.size, dtype=np.int32), self.counts)


class Entries(NamedTuple):
    """Observations one by one: codes, signs and, if there are any, weights."""

    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    sign: NDArray[np.int8]
    weight: NDArray[np.float32] | None

    def on_host(self) -> Entries:
        """Return the same in this machine's own memory."""
        return self


@kernel(nogil=True)
def _count(begin, end, owner, counts):
    """Count the answers ``begin:end`` of each owner."""
    for k in range(begin, end):
        counts[owner[k]] += 1


@kernel(nogil=True)
def _count_signs(begin, end, owner, sign, counts):
    """Count the answers ``begin:end`` of each owner: the negative ones, then the positive ones."""
    for k in range(begin, end):
        counts[owner[k], (sign[k] + 1) >> 1] += 1


@kernel(nogil=True)
def _sort_loose(begin, end, owner, other, sign, weight, cursor, index, signs, weights):
    """Write the answers ``begin:end`` owner by owner, negative ones first, else in the order they came.

    ``cursor[i]`` is where the negative answers of owner ``i`` begin, and where the positive ones do;
    both move to where they end.
    """
    for k in range(begin, end):
        i, yes = owner[k], (sign[k] + 1) >> 1
        at = cursor[i, yes]
        cursor[i, yes] = at + 1
        index[at], signs[at] = other[k], sign[k]
        if len(weight):
            weights[at] = weight[k]


@kernel(nogil=True)
def _turn(begin, end, start, index, sign, weight, cursor, turned_index, turned_sign, turned_weight):
    """Write rows ``begin:end`` of a view the other way round, as answers of every column."""
    for i in range(begin, end):
        for k in range(start[i], start[i + 1]):
            at = cursor[index[k]]
            cursor[index[k]] = at + 1
            turned_index[at], turned_sign[at] = i, sign[k]
            if len(weight):
                turned_weight[at] = weight[k]


def _empty_view(start: Counts, weighted: bool) -> View:
    n = int(start[-1])
    weight = np.empty(n if weighted else 0, dtype=np.float32)
    return View(start, np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int8), weight)


def _pieces(pool: Pool | None, answers: int, shape: tuple[int, int]) -> int:
    """Return into how many pieces answers are cut for some threads.

    Each has enough to do, and what is counted of its rows or columns takes no more room than the answers.
    """
    if pool is None:
        return 1
    return max(min(pool.count, answers // _FEWEST_A_THREAD, answers // max(shape)), 1)


def _each(pool: Pool | None, task: Callable[[int], object], pieces: int) -> None:
    """Run a task for every piece."""
    if pool is None or pieces == 1:
        for piece in range(pieces):
            task(piece)
    else:
        pool.each(task, pieces)


def _starts(counts: Counts) -> Counts:
    """Return where owners begin, who have so many answers."""
    start = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=start[1:])
    return start


def _cursors(counts: Counts, begin: Counts) -> Counts:
    """Return where each piece writes the answers of each owner: behind those of the pieces before it.

    ``counts`` has what is in each piece, and is written over; ``begin`` is where owners begin. So the
    result does not depend on how many pieces there are.
    """
    ends = counts.sum(axis=0)
    for piece in range(len(counts) - 1, -1, -1):
        ends -= counts[piece]
        counts[piece] = begin + ends
    return counts


def _turned(view: View, others: int, pool: Pool | None, into: View | None = None) -> View:
    """Return a view the other way round, written into a view of the same answers if one is given."""
    answers = len(view.index)
    pieces = _pieces(pool, answers, (view.size, others))
    lines = np.searchsorted(view.start, np.linspace(0, answers, pieces + 1)).tolist()
    lines[0], lines[-1] = 0, view.size
    if into is None or pieces > 1:
        counts = np.zeros((pieces, others), np.int64)

        def count(piece: int) -> None:
            begin, end = (int(view.start[line]) for line in lines[piece : piece + 2])
            _count(begin, end, view.index, counts[piece])

        _each(pool, count, pieces)
        into = into or _empty_view(_starts(counts.sum(axis=0)), len(view.weight) > 0)
        cursors = _cursors(counts, into.start[:-1])
    else:
        cursors = into.start[None, :-1].copy()
    to = into

    def turn(piece: int) -> None:
        _turn(
            lines[piece], lines[piece + 1], view.start, view.index, view.sign, view.weight,
            cursors[piece], to.index, to.sign, to.weight,
        )  # fmt: skip

    _each(pool, turn, pieces)
    return to


def sorted_views(entries: Entries, shape: tuple[int, int], pool: Pool | None = None) -> tuple[View, View]:
    """Sort loose answers by row and by column.

    Parameters
    ----------
    entries : Entries
        The answers.
    shape : two int
        The numbers of rows and columns.
    pool : Pool, optional
        Threads to share the work out to. The views do not depend on them.
    """
    rows, columns = (np.ascontiguousarray(codes, dtype=np.int32) for codes in entries[:2])
    sign, weight = entries.sign, entries.weight
    weighted = weight is not None
    if weight is None:
        weight = np.empty(0, dtype=np.float32)
    else:
        order = np.argsort(weight, kind="stable")
        rows, columns, sign, weight = rows[order], columns[order], sign[order], weight[order]
    rows, columns, sign, weight = fixed(rows), fixed(columns), fixed(sign), fixed(weight)
    # Each stable sort keeps the order of the one before: rows list their columns in order, columns
    # their rows, and repeats of one entry their answers, so that results do not depend on the
    # order in which answers came. The first view by columns is only a step, and overwritten.
    pieces = _pieces(pool, len(sign), shape)
    cuts = np.linspace(0, len(sign), pieces + 1).astype(int).tolist()
    counts = np.zeros((pieces, shape[1], 2), np.int64)
    _each(
        pool,
        lambda piece: _count_signs(cuts[piece], cuts[piece + 1], columns, sign, counts[piece]),
        pieces,
    )
    of_both = counts.sum(axis=0)
    by_column = _empty_view(_starts(of_both.sum(axis=1)), weighted)
    begin = np.stack([by_column.start[:-1], by_column.start[:-1] + of_both[:, 0]], axis=1)
    cursors = _cursors(counts, begin)

    def sort(piece: int) -> None:
        _sort_loose(
            cuts[piece], cuts[piece + 1], columns, rows, sign, weight, cursors[piece], by_column.index,
            by_column.sign, by_column.weight,
        )  # fmt: skip

    _each(pool, sort, pieces)
    by_row = _turned(by_column, shape[0], pool)
    _turned(by_row, shape[1], pool, by_column)
    for view in (by_row, by_column):
        view.freeze()
    return by_row, by_column


@kernel(nogil=True)
def _copy_rows(rows, start, index, sign, weight, taken_start, taken_index, taken_sign, taken_weight):
    """Copy some rows of a view to where they begin."""
    for i in range(len(rows)):
        to = taken_start[i]
        for k in range(start[rows[i]], start[rows[i] + 1]):
            taken_index[to], taken_sign[to] = index[k], sign[k]
            if len(weight):
                taken_weight[to] = weight[k]
            to += 1


def views_of_rows(
    view: View, rows: NDArray[np.int64], others: int, pool: Pool | None = None
) -> tuple[View, View]:
    """Return the answers of some rows, by row and by column.

    Parameters
    ----------
    view : View
        The answers of every row.
    rows : array of codes
        Which rows, in ascending order.
    others : int
        The number of columns.
    pool : Pool, optional
        Threads to share the work out to. The views do not depend on them.
    """
    rows = np.asarray(rows)
    ends = np.concatenate([[-1], rows, [view.size]]) if rows.dtype.kind in "iu" else np.zeros(2)
    if rows.ndim != 1 or (np.diff(ends) <= 0).any():
        raise ValueError(f"rows to take are codes below {view.size}, in ascending order, each once")
    taken = _empty_view(_starts(view.counts[rows]), len(view.weight) > 0)
    _copy_rows(
        rows.astype(np.int64), view.start, view.index, view.sign, view.weight, taken.start, taken.index,
        taken.sign, taken.weight,
    )  # fmt: skip
    turned = _turned(taken, others, pool)
    for part in (taken, turned):
        part.freeze()
    return taken, turned
