"""What a chain samples, and the parts of its state that stand above rows and columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data.observations import Observations
from onebit.data.sorting import View
from onebit.engine.cpu.layout import lines_of_zeros, whole_blocks
from onebit.engine.cpu.vectors import LANES
from onebit.engine.known import NOTHING, Known
from onebit.engine.sampling.room import rows_room
from onebit.engine.sampling.variates import LARGEST_COPIES, polya_gamma_hats
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import LOGISTIC, Loss

Array = NDArray[np.float64]
Table = NDArray[np.float32]
Places = NDArray[np.int64]
NO_PLACES = np.zeros((0, 0), np.int64)
# Answers of a block, whose sums are added up in order, and most blocks.
_BLOCK_ANSWERS, _MOST_BLOCKS = 8192, 1024


class Target:
    """What a chain samples: a prior, a loss and the answers, as the kernel takes them."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        loss: Loss,
        temperature: float,
        views: tuple[View, View] | Callable[[], tuple[View, View]],
        known: Known = NOTHING,
    ) -> None:
        if hierarchy.sparse is not None:
            raise ValueError('inference="sampling" has no sparse prior; set sparse=None')
        self.hierarchy = hierarchy
        self.loss = loss
        self.temperature = float(temperature)
        self._views = views
        self.known = known
        self.hats = polya_gamma_hats()

    @classmethod
    def of(
        cls,
        observations: Observations,
        hierarchy: Hierarchy,
        loss: Loss,
        temperature: float,
        known: Known = NOTHING,
    ) -> Target:
        """Return the posterior of some answers."""
        # Sorted when they are asked for: another device sorts its own.
        return cls(
            hierarchy, loss, temperature, lambda: (observations.by_row, observations.by_column), known
        )

    @cached_property
    def views(self) -> tuple[View, View]:
        """The answers by row and by column, in this machine's memory."""
        return self._views() if callable(self._views) else self._views

    @cached_property
    def copies(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many answers each one counts for, or nothing where that is one."""
        rows, columns = (self._whole_weights(view) for view in self.views)
        return rows, columns

    @cached_property
    def blocks(self) -> NDArray[np.int64]:
        """Where blocks of rows begin and end whose sums are added up in order."""
        return blocks_of(self.views[0].start)

    def weighs(self, side: int) -> bool:
        """Say whether answers count otherwise than once."""
        if self.loss is LOGISTIC:
            return len(self.copies[side]) > 0
        return len(self.views[side].weight) > 0 or self.temperature != 1.0

    def room(self, side: int, begin: int, end: int) -> tuple[Any, ...]:
        """Return room for drawing the rows (or columns) of the groups ``begin:end``."""
        longest = self.views[side].counts[begin * LANES : end * LANES].max(initial=1)
        width, free = whole_blocks(self.hierarchy.rank + 2), self.hierarchy.n_free(side)
        return rows_room(width, free, int(longest), self.weighs(side))

    def unknown(self, side: int, slopes: Array) -> tuple[Array, Array, Array]:
        """Return what slopes say of a member of which nothing is known.

        What is added to its coordinates, how much these vary, and how much with the pattern alone.
        """
        regression = self.hierarchy.regressions[side]
        assert regression is not None
        square = (regression.squares / regression.size)[:, None] * slopes**2
        pattern = square[regression.places("pattern")].sum(axis=0)
        return regression.typical @ slopes, square.sum(axis=0), pattern

    def _whole_weights(self, view: View) -> NDArray[np.int64]:
        if self.loss is not LOGISTIC:
            return np.empty(0, np.int64)
        if len(view.weight) == 0:
            copies = self.whole(np.ones(1))[0]
            return np.empty(0, np.int64) if copies == 1 else np.full(len(view.index), copies)
        return self.whole(view.weight.astype(float))

    def whole(self, weight: Array) -> NDArray[np.int64]:
        """Return how many answers some weights count for in the logistic loss, if that is whole."""
        copies = np.rint(self.temperature * weight).astype(np.int64)
        bad = np.abs(self.temperature * weight - copies) > 1e-6 * copies
        bad |= (copies < 1) | (copies > LARGEST_COPIES)
        if bad.any():
            what = f"temperature {self.temperature:g}"
            if (weight != 1.0).any():
                what += f" times the weight {weight[bad][0]:g} of an answer"
            raise ValueError(
                f"the logistic loss is sampled exactly where temperature times weight is a whole number "
                f"from 1 to {LARGEST_COPIES}; got {what}. Set temperature=1 and whole weights, or use "
                'HingeCompleter, which takes any, or inference="variational"'
            )
        return copies


@dataclass(frozen=True)
class HyperDraw:
    """A draw of what stands above the factors: variances and intercept.

    ``effects`` has the variance of the row effects, then that of the column effects; one where there are
    none. ``strengths`` are places on the grid of ``onebit.model.regression``, of shape (groups,
    coordinates) for each side. The factors' means and the slopes of regressions are integrated out but
    for the pass over a side's rows, which needs them.
    """

    factors: Array
    effects: Array
    intercept: float
    strengths: tuple[Places, Places] = (NO_PLACES, NO_PLACES)

    def variances(self, side: int, has_effect: bool) -> Array:
        """Return the variances of a side's coordinates around their means."""
        if not has_effect:
            return self.factors
        both = np.empty(len(self.factors) + 1)
        both[:-1], both[-1] = self.factors, self.effects[side]
        return both


def prior_terms(hierarchy: Hierarchy, hyper: HyperDraw, side: int, mean: Array) -> tuple[Array, Array]:
    """Return the prior's precision and linear term of one row (or column), given what is above it."""
    precision, linear = np.empty(hierarchy.n_free(side)), np.zeros(hierarchy.n_free(side))
    precision[: hierarchy.rank] = 1.0 / hyper.factors
    linear[: hierarchy.rank] = mean / hyper.factors
    if hierarchy.has_effect(side):
        precision[hierarchy.rank] = 1.0 / hyper.effects[side]
        if side == hierarchy.intercept_side:
            linear[hierarchy.rank] = hyper.intercept / hyper.effects[side]
    return precision, linear


def filled_table(values: NDArray[np.floating], rank: int, has_effect: bool) -> Table:
    """Return the table that the other side gathers from, for these factors and effects."""
    table = lines_of_zeros(len(values), whole_blocks(rank + 2))
    table[:, :rank] = values[:, :rank]
    table[:, rank] = 1.0
    if has_effect:
        table[:, rank + 1] = values[:, rank]
    return table


def blocks_of(start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where blocks of rows begin and end: some thousand answers each, whatever the threads."""
    answered = np.flatnonzero(np.diff(start) > 0)
    if len(answered) == 0:
        return np.zeros(1, np.int64)
    total = int(start[-1])
    count = min(max(total // _BLOCK_ANSWERS, 1), _MOST_BLOCKS)
    cuts = np.searchsorted(start, np.linspace(0, total, count + 1)).astype(np.int64)
    # Each block ends with a row that has answers.
    cuts[0], cuts[-1] = 0, answered[-1] + 1
    ends = answered[np.maximum(np.searchsorted(answered, cuts[1:], side="left") - 1, 0)] + 1
    return np.unique(np.concatenate([[0], ends]))
