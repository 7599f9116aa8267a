"""What a fit on a cluster comes to: parts that say what they know, or one posterior on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.engine.cluster.blocks import Blocks, view_of
from onebit.engine.cluster.fitting import ClusterFit
from onebit.engine.cluster.matrices import both_sides
from onebit.engine.cluster.reading import Block
from onebit.engine.cluster.sides import Setting, State
from onebit.model.gaussians import Gaussians
from onebit.model.hierarchy import HyperPosterior
from onebit.model.placing import Placing
from onebit.model.posterior import Posterior, expected

Array = NDArray[np.float64]


class Part(NamedTuple):
    """The final states of some rows or columns."""

    mean: Array
    covariance: Array


def _final(state: State, counts: NDArray[np.int64], setting: Setting, hyper: HyperPosterior) -> Part:
    """Return final states: those without answers are where they are to be expected."""
    gaussians = Gaussians.trusted(state.mean, state.covariance, True)
    silent = np.flatnonzero(counts == 0)
    if len(silent) and hyper.slopes[setting.side] is not None:
        moments = setting.hierarchy.silent_moments(setting.side, hyper)
        gaussians = expected(gaussians, silent, *moments)
    return Part(gaussians.mean, gaussians.covariance)


def _counts(block: Block, side: int) -> NDArray[np.int64]:
    return view_of(block, side).counts


def _labels(block: Block) -> pd.Index:
    return block.labels


def part_posterior(own: Part, other: Part, side: int, above: Any) -> Posterior:
    """Return the posterior of a block's rows and all columns; ``above``: hyperposterior and prior."""
    hyper, hierarchy = above
    parts = [Gaussians.trusted(part.mean, part.covariance, True) for part in (own, other)]
    rows, columns = parts[:: -1 if side else 1]
    return Posterior(rows, columns, hyper, replace(hierarchy, shape=(len(rows.mean), len(columns.mean))))


def _scored(held: Any, own: Part, other: Part, side: int, above: Any, task: Callable[..., Any]) -> Any:
    """Hand the posterior of a block's rows and all columns to whoever wants to predict with it."""
    return task(held, part_posterior(own, other, side, above))


class Outcome:
    """The final states of a fit on a cluster.

    Parameters
    ----------
    fit : ClusterFit
        How the descent ended.
    blocks : Blocks
        The answers it was fitted to.
    """

    def __init__(self, fit: ClusterFit, blocks: Blocks) -> None:
        self.fit, self.blocks = fit, blocks
        side, cluster = blocks.side, blocks.cluster
        states = fit.states
        counts = [part.futures for part in both_sides(blocks, _counts, "count-answers")]
        self.own_counts, self.other_counts = counts[side], counts[1 - side][0]
        found: list[Any] = [None, None]
        for place in (0, 1):
            setting = Setting(states.hierarchy, place)
            given = states.sides[place]
            fixed = [setting] * len(given), [states.hyper] * len(given)
            found[place] = cluster.each(_final, given, counts[place], *fixed, what="final-state")
        self.own, self.other = found[side], found[1 - side][0]

    def scored(self, held: list[Any], task: Callable[..., Any], what: str) -> list[Any]:
        """Let each block predict something: ``task(what is asked of it, its posterior)``."""
        many = len(held)
        above = self.fit.states.hyper, self.fit.states.hierarchy
        fixed = [[value] * many for value in (self.other, self.blocks.side, above, task)]
        cluster = self.blocks.cluster
        return cluster.results(cluster.each(_scored, held, self.own, *fixed, what=what), what)

    def labels(self) -> tuple[pd.Index, NDArray[np.int64], NDArray[np.int64]]:
        """Return the ids of the divided side, their order, and where each block begins before it."""
        cluster = self.blocks.cluster
        parts = cluster.results(self.blocks.each(_labels, what="ids"), "collecting ids")
        starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        together = parts[0].append(parts[1:])
        return together, np.argsort(together.to_numpy(), kind="stable"), starts

    def posterior(self, order: NDArray[np.int64]) -> Posterior:
        """Bring all states to this machine; ``order`` is that of the ids of the divided side."""
        side, cluster, states = self.blocks.side, self.blocks.cluster, self.fit.states
        means, covariances = [], []
        for future in self.own:  # one after the other: the scheduler is not to hold them all
            part = cluster.result(future, "collecting the model")
            means.append(part.mean)
            covariances.append(part.covariance)
        own = Gaussians(np.concatenate(means)[order], np.concatenate(covariances)[order], True)
        last = cluster.result(self.other, "collecting the model")
        other = Gaussians(last.mean, last.covariance, True)
        rows, columns = (own, other) if side == 0 else (other, own)
        placings: list[Placing | None] = list(self.fit.known.placings)
        placing = placings[1 - side]
        if placing is not None and len(placing.loading) == len(order):
            placings[1 - side] = replace(placing, loading=placing.loading[order])
        return Posterior(rows, columns, states.hyper, states.hierarchy, (placings[0], placings[1]))
