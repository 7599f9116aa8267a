"""The posterior whose PAC-Bayes certificate is best.

It minimises ``mean Phi(-y m / sd) + KL / lambda``, where ``m`` and ``sd`` are the mean and the standard
deviation of a score. Among the rank that the hinge loss finds and none, with and without effects, and a
few ``lambda``, those with the least PAC-Bayes-kl bound are taken. The certificate pays for the choice of
rank and effects, which are part of the prior, while ``lambda`` is free, since the bound holds for every
posterior at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from onebit.certificates import directions
from onebit.certificates.bounds import pac_bayes_kl
from onebit.data.observations import Observations
from onebit.engine.crew import Callback, Workers
from onebit.engine.descent import Fit
from onebit.engine.fitting import run
from onebit.engine.recipe import Recipe
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import GIBBS, HINGE
from onebit.model.posterior import Posterior

# The recipe of a search; a smaller prior scale than elsewhere, since columns are not pruned by it.
OPTIMISED = Recipe(loss=GIBBS, prior_scale=0.003)

# Of the hinge posterior that the fit starts from; the optimum does not depend on it.
_START_TEMPERATURE = 0.7
# Searched from the middle outwards, as long as the bound falls.
_MIDDLE = 1.0
_LOWER = (0.7, 0.5, 0.35, 0.25, 0.15)
_HIGHER = (1.5, 2.0, 3.0, 4.0, 6.0)
# The delta at which candidates are compared; the certificate takes its own.
_DELTA = 0.05
# Draws that choose a posterior are not the ones that certify it.
_OF_SEARCH = (3, 0)
# Posteriors are compared by divergences of at most so many draws, which are right to a fraction of a nat;
# what is certified of the best one is estimated anew, from as many as its confidence needs.
_MOST_DRAWS = 2_000


@dataclass(frozen=True)
class Optimised:
    """The result of a search.

    Attributes
    ----------
    fit : Fit
        The posterior with the least bound.
    temperature : float
        Its ``lambda / n``.
    prior_choices : int
        The number of priors that were chosen from with the answers.
    """

    fit: Fit
    temperature: float
    prior_choices: int


def prior_choices(recipe: Recipe, try_effects: bool) -> int:
    """Return the number of priors that a search chooses from: ranks, with and without effects."""
    return (recipe.rank + 1) * (2 if try_effects else 1)


def optimise(
    recipe: Recipe,
    observations: Observations,
    workers: Workers,
    rng: np.random.Generator,
    callback: Callback | None = None,
    *,
    temperature: float | None = None,
    try_effects: bool = True,
) -> Optimised:
    """Find the posterior with the least bound.

    Parameters
    ----------
    recipe : Recipe
        The largest rank and the rest of the prior, with the Gibbs loss.
    observations : Observations
        The answers.
    workers : Workers
        Who does the work.
    rng : numpy.random.Generator
        Of the starts.
    callback : callable, optional
        Told of every round.
    temperature : float, optional
        The only ``lambda / n`` to try.
    try_effects : bool
        Whether to compare priors with and without effects; else the recipe's stands.
    """
    largest = recipe.hierarchy(observations.shape)
    choices = prior_choices(recipe, try_effects)

    def hinge(hierarchy: Hierarchy) -> Posterior:
        """Return where the Gibbs loss starts from, which has no convex start of its own."""
        start = workers.start(observations, hierarchy, rng, full=recipe.full)
        convex = replace(recipe, loss=HINGE, temperature=_START_TEMPERATURE)
        return run(convex, observations, hierarchy, start, workers, callback).posterior

    def attempt(hierarchy: Hierarchy, temperature: float, *begins: Posterior) -> tuple[float, Fit, float]:
        here = replace(recipe, temperature=temperature)
        fits = [run(here, observations, hierarchy, begin, workers, callback) for begin in begins]
        bounds = [_bound(fit, observations.n, temperature, choices) for fit in fits]
        best = int(np.argmin(bounds))
        return bounds[best], fits[best], temperature

    def search(hierarchy: Hierarchy, start: Posterior) -> Iterator[tuple[float, Fit, float]]:
        """Fit at one temperature after the other, as long as the bound falls."""
        if temperature is not None:
            yield attempt(hierarchy, temperature, start)
            return
        middle = attempt(hierarchy, _MIDDLE, start)
        yield middle
        for grid in (_HIGHER, _LOWER):
            last = middle
            for next_one in grid:
                # What a high temperature has learnt is not all forgotten at a lower one.
                begins = (last[1].posterior,) if grid is _HIGHER else (last[1].posterior, start)
                tried = attempt(hierarchy, next_one, *begins)
                yield tried
                if tried[0] >= last[0]:
                    break
                last = tried

    found = hinge(largest).effective_rank
    tried = [
        result
        for hierarchy in _candidates(largest, found, try_effects)
        for result in search(hierarchy, hinge(hierarchy))
    ]
    _, fit, chosen = min(tried, key=lambda result: result[0])
    return Optimised(fit, chosen, choices)


def _candidates(largest: Hierarchy, found: int, try_effects: bool) -> list[Hierarchy]:
    """Return the priors to compare: the rank found and none, with and without effects."""
    effects = (True, False) if try_effects else (largest.row_effects,)
    structures = {(rank, with_effects) for rank in (0, found) for with_effects in effects}
    return [
        replace(largest, rank=rank, row_effects=with_effects, column_effects=with_effects)
        for rank, with_effects in sorted(structures)
        if rank or with_effects or len(structures) == 1
    ]


def _bound(fit: Fit, n: int, temperature: float, choices: int) -> float:
    divergence = fit.posterior.kl
    risk = min(max(fit.objective - divergence / (temperature * n), 0.0), 1.0)
    if directions.apply_to(fit.posterior):
        estimate = directions.divergence(
            fit.posterior, n, 0.5, np.random.default_rng(_OF_SEARCH), _MOST_DRAWS
        ).estimate
        divergence = min(divergence, estimate)
    return pac_bayes_kl(risk, divergence + math.log(choices), n, _DELTA)
