"""Answers in blocks on a cluster, and how some of them are held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.data.holding import Cut, Taken, taken_out
from onebit.data.ids import IdIndex
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS
from onebit.data.sorting import View
from onebit.engine.cluster.client import Cluster
from onebit.engine.cluster.reading import Block
from onebit.engine.cpu.threads import Threads

_BINS = 1 << 16
# A task works by itself: Dask runs as many at once as a worker has threads.
ALONE = Threads(1, None)


class Facts(NamedTuple):
    """What the whole must know of a block."""

    size: int
    n: int
    weight: float
    yes: int


@dataclass(frozen=True)
class Blocks:
    """The answers of a fit, in blocks.

    Attributes
    ----------
    cluster : Cluster
        Where they are.
    side : int
        The side that blocks divide: 0 for rows.
    others : int
        The size of the other side.
    futures : list
        The blocks.
    facts : list of Facts
        What is known of each.
    weighted : bool
        Whether answers have weights.
    """

    cluster: Cluster
    side: int
    others: int
    futures: list[Any]
    facts: list[Facts]
    weighted: bool

    @classmethod
    def of(cls, cluster: Cluster, side: int, others: int, futures: list[Any], weighted: bool) -> Blocks:
        """Take up blocks, and look at each."""
        facts = cluster.small(cluster.each(facts_of, futures, what="count-answers"), "reading blocks")
        return cls(cluster, side, others, futures, facts, weighted)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        sizes = [self.others, self.others]
        sizes[self.side] = sum(part.size for part in self.facts)
        return sizes[0], sizes[1]

    @property
    def n(self) -> int:
        """The number of answers."""
        return sum(part.n for part in self.facts)

    @property
    def total_weight(self) -> float:
        """The sum of the weights."""
        return float(sum(part.weight for part in self.facts)) if self.weighted else float(self.n)

    @property
    def commoner(self) -> int:
        """The commoner answer."""
        return 1 if 2 * sum(part.yes for part in self.facts) > self.n else -1

    def each(self, task: Callable[..., Any], *lists: Any, what: str) -> list[Any]:
        """Hand over a task for each block."""
        return self.cluster.each(task, self.futures, *lists, what=what)

    def divided(self, labels: Any, cut: Cut) -> tuple[Blocks, list[Any]]:
        """Take out the answers whose hashes are at most the cut's: what is left, and those (futures)."""
        count = len(self.futures)
        both = self.each(divide, [self.side] * count, [labels] * count, [cut] * count, what="hold-out")
        left = self.cluster.each(first, both, what="answers-to-fit")
        held = self.cluster.each(second, both, what="answers-held-out")
        return Blocks.of(self.cluster, self.side, self.others, left, self.weighted), held

    def cut(self, labels: Any, size: int, key: int) -> Cut:
        """Find the hash below which the ``size`` smallest lie."""
        count = len(self.futures)
        fixed = [self.side] * count, [labels] * count, [key] * count
        binned = self.cluster.added(self.each(bins, *fixed, what="hashes"), plus, "add-hashes")
        running = np.cumsum(self.cluster.result(binned, "choosing what is held out"))
        place = int(np.searchsorted(running, size))
        before = int(running[place - 1]) if place else 0
        inside = self.each(hashes_in, *fixed, [place] * count, what="hashes")
        found = np.sort(np.concatenate(self.cluster.small(inside, "choosing what is held out")))
        return Cut(key, found[size - before - 1])


def facts_of(block: Block) -> Facts:
    """Count what a block holds."""
    seen = block.seen
    yes = int((seen.by_row.sign > 0).sum())
    return Facts(len(block.labels), seen.n, seen.total_weight, yes)


def first(pair: tuple[Any, Any]) -> Any:
    """Return the first of two."""
    return pair[0]


def second(pair: tuple[Any, Any]) -> Any:
    """Return the second of two."""
    return pair[1]


def plus(*parts: Any) -> Any:
    """Add several things up, in their order."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def view_of(block: Block, side: int) -> View:
    """Return the answers of each row (side 0) or column."""
    return block.seen.by_column if side else block.seen.by_row


def _labelled(block: Block, side: int, labels: pd.Index) -> Observations:
    """Return a block's answers with the ids of both sides, which their hashes are made of."""
    other = IdIndex(labels, MEMBERS[1 - side])
    return replace(block.seen, columns=other) if side == 0 else replace(block.seen, rows=other)


def bins(block: Block, side: int, labels: pd.Index, key: int) -> NDArray[np.int64]:
    """Count the hashes of a block's answers by their first bits."""
    hashes = _labelled(block, side, labels).hashes(key)
    return np.bincount((hashes >> np.uint64(48)).astype(np.int64), minlength=_BINS)


def hashes_in(block: Block, side: int, labels: pd.Index, key: int, place: int) -> NDArray[np.uint64]:
    """Return the hashes that begin with certain bits."""
    hashes = _labelled(block, side, labels).hashes(key)
    return hashes[(hashes >> np.uint64(48)) == np.uint64(place)]


def divide(block: Block, side: int, labels: pd.Index, cut: Cut) -> tuple[Block, Taken]:
    """Take answers out of a block; return what is left, and those."""
    seen = _labelled(block, side, labels)
    left, taken = taken_out(seen, cut.marks(seen))
    plain = replace(left, rows=block.seen.rows, columns=block.seen.columns)
    return Block(block.labels, plain), taken
