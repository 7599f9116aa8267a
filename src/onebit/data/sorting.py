"""Answers sorted by row and by column: what every pass walks along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from onebit.data.kernels import kernel

Counts = NDArray[np.int64]

# Fewer answers are sorted before threads have begun.
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


def _empty_view(start: NDArray[np.int64], weight: NDArray[np.float32]) -> View:
    n = int(start[-1])
    return View(start, np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int8), np.empty_like(weight))


class _Pieces:
    """Consecutive pieces of the answers, one for each of some threads, and what is counted in each.

    A piece writes its answers behind those of the pieces before it, so that the result does not depend
    on how many there are.
    """

    def __init__(self, cuts: Counts, pool: Pool | None) -> None:
        self.cuts, self.pool = [int(cut) for cut in cuts], pool

    def each(self, task: Callable[[int, int, int], object]) -> None:
        """Run ``task(piece, begin, end)`` for every piece."""

        def run(piece: int) -> None:
            task(piece, self.cuts[piece], self.cuts[piece + 1])

        if self.pool is None:
            run(0)
        else:
            self.pool.each(run, len(self.cuts) - 1)

    def zeros(self, *shape: int) -> Counts:
        """Return room for what is counted in each piece."""
        return np.zeros((len(self.cuts) - 1, *shape), np.int64)


def _starts(counts: Counts) -> Counts:
    """Return where owners begin, who have so many answers."""
    start = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=start[1:])
    return start


def _behind(counts: Counts) -> Counts:
    """Return how many answers of each owner the pieces before each one have."""
    return np.cumsum(counts, axis=0) - counts


def _turned(view: View, others: int, pool: Pool | None, turned: View | None = None) -> View:
    """Return a view the other way round, written over an earlier one of these answers if it is given."""
    pieces, lines = 1 if pool is None else pool.count, np.array([0, view.size])
    cuts = np.array([0, len(view.index)])
    if pieces > 1:
        lines = np.searchsorted(view.start, np.linspace(0, cuts[-1], pieces + 1))
        lines[0], lines[-1] = 0, view.size
        cuts = view.start[lines]
    if turned is None or pieces > 1:
        answers = _Pieces(cuts, pool)
        counts = answers.zeros(others)
        answers.each(lambda piece, begin, end: _count(begin, end, view.index, counts[piece]))
        turned = turned or _empty_view(_starts(counts.sum(axis=0)), view.weight)
        cursor = turned.start[:-1] + _behind(counts)
    else:
        cursor = turned.start[None, :-1].copy()
    to = turned

    def task(piece: int, begin: int, end: int) -> None:
        _turn(begin, end, view.start, view.index, view.sign, view.weight, cursor[piece], to.index,
              to.sign, to.weight)  # fmt: skip

    _Pieces(lines, pool).each(task)
    return turned


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
    pool = _worth_it(pool, len(sign))
    if weight is None:
        weight = np.empty(0, dtype=np.float32)
    else:
        order = np.argsort(weight, kind="stable")
        rows, columns, sign, weight = rows[order], columns[order], sign[order], weight[order]
    # Each stable sort keeps the order of the one before: rows list their columns in order, columns
    # their rows, and repeats of one entry their answers, so that results do not depend on the
    # order in which answers came. The first view by columns is only a step, and overwritten.
    threads = 1 if pool is None else pool.count
    pieces = _Pieces(np.linspace(0, len(sign), threads + 1).astype(np.int64), pool)
    counts = pieces.zeros(shape[1], 2)
    pieces.each(lambda piece, begin, end: _count_signs(begin, end, columns, sign, counts[piece]))
    of_both = counts.sum(axis=0)
    by_column = _empty_view(_starts(of_both.sum(axis=1)), weight)
    cursor = by_column.start[:-1, None] + np.stack([np.zeros_like(of_both[:, 0]), of_both[:, 0]], axis=1)
    cursor = cursor + _behind(counts)

    def task(piece: int, begin: int, end: int) -> None:
        _sort_loose(begin, end, columns, rows, sign, weight, cursor[piece], by_column.index,
                    by_column.sign, by_column.weight)  # fmt: skip

    pieces.each(task)
    by_row = _turned(by_column, shape[0], pool)
    _turned(by_row, shape[1], pool, by_column)
    for view in (by_row, by_column):
        view.freeze()
    return by_row, by_column


@kernel(nogil=True)
def _copy_rows(begin, end, rows, start, index, sign, weight, taken_start, taken):
    """Copy some rows of a view, the places ``begin:end`` of ``rows``, to where they begin."""
    taken_index, taken_sign, taken_weight = taken
    for i in range(begin, end):
        to = taken_start[i]
        for k in range(start[rows[i]], start[rows[i] + 1]):
            taken_index[to], taken_sign[to] = index[k], sign[k]
            if len(weight):
                taken_weight[to] = weight[k]
            to += 1


def views_of_rows(
    view: View, rows: NDArray[np.int64], others: int, pool: Pool | None = None
) -> tuple[View, View]:
    """Return the answers of some rows, in order, by row and by column.

    Parameters
    ----------
    view : View
        The answers of every row.
    rows : array of codes
        Which rows.
    others : int
        The number of columns.
    pool : Pool, optional
        Threads to share the work out to.
    """
    counts = view.counts[rows]
    taken = _empty_view(_starts(counts), view.weight[: counts.sum()])
    into = (taken.index, taken.sign, taken.weight)
    _copy_rows(0, len(rows), rows, view.start, view.index, view.sign, view.weight, taken.start, into)
    turned = _turned(taken, others, _worth_it(pool, len(taken.index)))
    for part in (taken, turned):
        part.freeze()
    return taken, turned


def _worth_it(pool: Pool | None, answers: int) -> Pool | None:
    """Return the threads, where there are several and each has enough to do."""
    return pool if pool is not None and 1 < pool.count <= answers // _FEWEST_A_THREAD else None
