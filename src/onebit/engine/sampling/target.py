"""What a chain samples, and the parts of its state that stand above rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from onebit.data.observations import Observations, View
from onebit.engine.cpu.passes import whole_blocks
from onebit.engine.known import NOTHING, Known
from onebit.engine.sampling.variates import LARGEST_COPIES, polya_gamma_hats
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import LOGISTIC, Loss

Array = NDArray[np.float64]
Table = NDArray[np.float32]
Places = NDArray[np.int64]
NO_PLACES = np.zeros((0, 0), np.int64)


class Target:
    """What a chain samples: a prior, a loss and the answers, as the kernel takes them."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        loss: Loss,
        temperature: float,
        views: tuple[View, View],
        known: Known = NOTHING,
    ) -> None:
        if hierarchy.sparse is not None:
            raise ValueError('inference="sampling" has no sparse prior; set sparse=None')
        self.hierarchy = hierarchy
        self.loss = loss
        self.temperature = float(temperature)
        self.views = views
        self.known = known
        self.copies = tuple(self._whole_weights(view) for view in views)
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
        return cls(hierarchy, loss, temperature, (observations.by_row, observations.by_column), known)

    @cached_property
    def silent(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows and the columns without answers, whose pattern is not known."""
        rows, columns = (np.flatnonzero(view.counts == 0) for view in self.views)
        return rows, columns

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
        """Return how many answers each one counts for, or nothing where that is one."""
        if self.loss is not LOGISTIC:
            return np.empty(0, np.int64)
        weight = np.ones(1) if len(view.weight) == 0 else view.weight.astype(float)
        copies = np.rint(self.temperature * weight).astype(np.int64)
        bad = np.abs(self.temperature * weight - copies) > 1e-6 * copies
        bad |= (copies < 1) | (copies > LARGEST_COPIES)
        if bad.any():
            what = f"temperature {self.temperature:g}"
            if len(view.weight):
                what += f" times the weight {weight[bad][0]:g} of an answer"
            raise ValueError(
                f"the logistic loss is sampled exactly where temperature times weight is a whole number "
                f"from 1 to {LARGEST_COPIES}; got {what}. Set temperature=1 and whole weights, or use "
                'HingeCompleter, which takes any, or inference="variational"'
            )
        if len(view.weight) == 0:
            return np.empty(0, np.int64) if copies[0] == 1 else np.full(len(view.index), copies[0])
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
        return np.append(self.factors, self.effects[side]) if has_effect else self.factors


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
    table = np.zeros((len(values), whole_blocks(rank + 2)), np.float32)
    table[:, :rank] = values[:, :rank]
    table[:, rank] = 1.0
    if has_effect:
        table[:, rank + 1] = values[:, rank]
    return table
