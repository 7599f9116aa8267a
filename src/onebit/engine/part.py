"""A part of a large table, from which its fit starts.

A spectral start is rough, and the first rounds of a fit go into finding out what a share of the rows
would have told as well. So a large table is first fitted to some of its rows, all of their answers, for a
few rounds. What that says of the columns, and of the variances, is where the rounds over all answers
begin; rows begin with their prior, and the first pass, which is over the rows, finds them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onebit.data.observations import Observations
from onebit.engine.cpu.threads import Threads
from onebit.engine.descent import LARGE_TABLE, Schedule
from onebit.engine.recipe import Recipe
from onebit.model.gaussians import Gaussians
from onebit.model.hierarchy import Hierarchy
from onebit.model.posterior import Posterior

# Fits to fewer answers take seconds at most.
_FEWEST_ANSWERS = LARGE_TABLE
# Rows and columns have so many answers in a part, on average, for each of their coordinates: from fewer,
# factors would be lost that all answers show.
_ANSWERS_EACH = 3.0
# The shares of the rows that a part may have.
_SHARES = (0.125, 0.25)
# Variances are held in all of these rounds, and nothing else is waited for.
_ROUNDS = 5


def part_of(
    observations: Observations, rank: int, rng: np.random.Generator, pool: Threads | None = None
) -> Observations | None:
    """Return the answers of some rows to start from; None where all are too few, or too few of a row."""
    n, (rows, columns) = observations.n, observations.shape
    least = _ANSWERS_EACH * (rank + 1)
    shares = [share for share in _SHARES if share * n >= least * columns]
    if rank == 0 or n < _FEWEST_ANSWERS or n < least * rows or not shares:
        return None
    chosen = np.flatnonzero(rng.random(rows) < shares[0])
    if len(chosen) < least:  # few rows, whose entries were answered again and again
        return None
    return observations.of_rows(chosen, pool)


def part_recipe(whole: Recipe) -> Recipe:
    """Return the recipe of the fit to a part: a few rounds, without what the pattern tells."""
    return replace(whole, pattern=None, schedule=Schedule(_ROUNDS, 0.0, held_rounds=_ROUNDS))


def start_from(part: Posterior, hierarchy: Hierarchy) -> Posterior:
    """Return where a fit to all answers begins, given the posterior of a part."""
    mean, variance = part.hierarchy.prior_moments(0, part.hyper)
    rows = Gaussians.alike(mean, variance, hierarchy.shape[0], part.rows.full)
    return Posterior(rows, part.columns, part.hyper, replace(hierarchy, regressions=(None, None)))
