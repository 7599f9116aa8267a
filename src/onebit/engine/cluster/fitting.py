"""A fit on a cluster: the procedure of ``engine.fitting``, with states that stay where they are.

The descent is the engine's own. What differs is who does the work, and that a checkpoint is a file for
each part, written by whoever has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.engine.cluster.blocks import Blocks
from onebit.engine.cluster.client import Cluster
from onebit.engine.cluster.journal import Journal
from onebit.engine.cluster.matrices import ClusterPresence, ClusterTall, Parts, cluster_start
from onebit.engine.cluster.sides import DividedSide, Setting, States, WholeSide, begun, summed_again
from onebit.engine.crew import Callback
from onebit.engine.descent import Descent
from onebit.engine.known import NOTHING, Known, known_of
from onebit.engine.recipe import Recipe
from onebit.engine.start import Start
from onebit.model.hierarchy import Hierarchy

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClusterFit:
    """A posterior on a cluster and how it was reached; see ``engine.descent.Fit``."""

    states: States
    known: Known
    objective: float
    path: Array
    n_iter: int
    converged: bool
    divergence: float


class Crew:
    """Makes the working states of a descent on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def sides(
        self, blocks: Blocks, begin: Any, hierarchy: Hierarchy, full: bool, known: Known = NOTHING
    ) -> tuple[Any, Any]:
        """Return the working states of rows and columns, from a start or from states."""
        made: list[Any] = []
        task: Any
        for side, kind in enumerate((DividedSide, WholeSide)[:: -1 if blocks.side else 1]):
            setting = Setting(hierarchy, side, self.cluster.device)
            if isinstance(begin, Start):
                means: Parts = (begin.rows, begin.columns)[side]
                given, task = means.futures, begun
            else:
                given, task = begin[side], summed_again
            values = known.values[side]
            told = [None] * len(given) if values is None else values.futures
            many = [setting] * len(given)
            states = self.cluster.each(task, many, given, told, what="begin")
            made.append(kind(blocks, setting, states, values))
        return made[0], made[1]


def known_on(recipe: Recipe, blocks: Blocks) -> Known:
    """Return what a recipe lets be known of rows and columns: the pattern of these answers."""
    wanted = recipe.pattern_sides(recipe.hierarchy(blocks.shape))
    if not any(wanted):
        return NOTHING
    presence, first = ClusterPresence(blocks), blocks.side  # the divided side first
    order = (wanted[first], wanted[1 - first])
    found = known_of(ClusterTall(blocks.cluster), presence.shape, presence, order)
    values, regressions, placings = found.values, found.regressions, found.placings
    return Known(
        (values[first], values[1 - first]),
        (regressions[first], regressions[1 - first]),
        (placings[first], placings[1 - first]),
    )


def fit_on(
    recipe: Recipe,
    blocks: Blocks,
    rng: np.random.Generator,
    journal: Journal,
    start: States | None = None,
    callback: Callback | None = None,
) -> ClusterFit:
    """Follow a recipe on a cluster, from where a journal left it if it has something.

    Parameters
    ----------
    recipe : Recipe
        What to do: one descent with full covariances.
    blocks : Blocks
        The answers.
    rng : numpy.random.Generator
        For the start.
    journal : Journal
        Where states are left every few rounds.
    start : States, optional
        Where to begin, in place of a spectral start.
    callback : callable, optional
        Told of every round.
    """
    known = known_on(recipe, blocks)
    hierarchy = replace(recipe.hierarchy(blocks.shape), regressions=known.regressions)
    schedule, crew = recipe.schedule, Crew(blocks.cluster)
    descent = Descent(blocks, hierarchy, recipe.loss, True, recipe.temperature, schedule, known)
    saved = journal.found(hierarchy, known)
    begin: Any = start
    if start is None:
        begin = cluster_start(blocks, hierarchy, rng) if saved is None else Start(None, None)
    offer = partial(journal.offer, descent)
    final, divergence = descent.run(crew, begin, saved, callback, offer, journal.folder)
    rows, columns = descent.sides
    states = States((rows.states, columns.states), descent.hyper, hierarchy)
    path = np.array(descent.path)
    return ClusterFit(states, known, final, path, descent.n_iter, descent.settled, divergence)
