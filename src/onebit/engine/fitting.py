"""The procedure of a fit, from answers to a posterior, and on to draws.

A hinge fit that is to have calibrated probabilities begins with a fit to nine tenths of the answers, or
fewer where they are few. Its errors on the others give the curve, and its posterior is where the engine's
last fit starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onebit.data.observations import Observations
from onebit.engine import scoring
from onebit.engine.algorithm_1 import ApproximateBound, minimise_avb
from onebit.engine.cpu.rehearsal import begin_compiling
from onebit.engine.crew import Callback, Workers
from onebit.engine.descent import Fit, minimise
from onebit.engine.known import NOTHING, Known
from onebit.engine.part import part_of, part_recipe, start_from
from onebit.engine.recipe import Recipe
from onebit.engine.sampling.rehearsal import SAMPLERS
from onebit.engine.sampling.sampler import Sampled
from onebit.engine.sampling.target import Target
from onebit.engine.start import Start
from onebit.engine.workers import Cpu
from onebit.model.calibration import Calibration, fit_calibration, natural_calibration
from onebit.model.feature_effects import slope_covariance
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import HINGE, LOGISTIC
from onebit.model.posterior import Posterior

Codes = NDArray[np.int32]

# Relative size of the noise added to the spectral start of the second and later starts.
JITTER = 0.5
# Hinge scores are calibrated on a tenth of the answers, held out of a first fit; where these are few, on
# so many, or a third of all if that is less.
_CALIBRATION_SHARE, _FEW, _LARGEST_SHARE = 0.1, 40, 1.0 / 3.0
SMALLEST_CALIBRATION = 30
TOO_FEW_TO_CALIBRATE = "too few to calibrate by"


@dataclass(frozen=True)
class Fitted:
    """What a fit found.

    Attributes
    ----------
    descent : Fit
        The variational posterior and how it was reached.
    calibration : Calibration or None
        Of the hinge loss: the curve of its probabilities.
    avb : ApproximateBound or None
        Of the paper's method: its bound.
    sampled : Sampled or None
        The draws, if the recipe asks for them.
    """

    descent: Fit
    calibration: Calibration | None = None
    avb: ApproximateBound | None = None
    sampled: Sampled | None = None


def fit(
    recipe: Recipe,
    observations: Observations,
    workers: Workers,
    rng: np.random.Generator,
    start: Posterior | None = None,
    *,
    callback: Callback | None = None,
    pairs: tuple[Codes, Codes] | None = None,
    known: Known | None = None,
) -> Fitted:
    """Follow a recipe.

    Parameters
    ----------
    recipe : Recipe
        What to do.
    observations : Observations
        The answers.
    workers : Workers
        Who does the work: the threads of a CPU, or a GPU.
    rng : numpy.random.Generator
        Starts, splits and seeds; the result depends on it and not on the workers, but for rounding.
    start : Posterior, optional
        Where to begin, in place of a spectral start: the posterior of a similar fit.
    callback : callable, optional
        Told of every round and sweep.
    pairs : two arrays of codes, optional
        Pairs whose predictions are averaged over every draw, kept or not.
    known : Known, optional
        What ``known_of`` found for these answers before.
    """
    workers.sort(observations)
    if recipe.sampling is not None:
        # What cannot be sampled is said before the work begins.
        hierarchy = recipe.sampled_hierarchy(recipe.hierarchy(observations.shape))
        target = Target.of(observations, hierarchy, recipe.loss, recipe.temperature)
        if recipe.loss is LOGISTIC and not observations.weighted:
            target.whole(np.ones(1))
        elif recipe.loss is LOGISTIC and not workers.on_gpu:
            target.whole(observations.by_row.weight.astype(float))
        if not workers.on_gpu:
            SAMPLERS.begin(workers.count)
    elif recipe.full and not workers.on_gpu:
        begin_compiling(workers.count)
    calibration = None
    if recipe.loss is HINGE:
        calibration, first = _calibrated(recipe, observations, workers, rng, callback)
        start = first if start is None else start
        if recipe.paper:
            start = None  # Algorithm 1 has a start of its own
    known = known_of(recipe, observations, workers) if known is None else known
    descent, avb = descend(recipe, observations, workers, rng, start, callback, known)
    sampled = None
    if recipe.sampling is not None:
        sampled = _sampled(recipe, observations, descent.posterior, workers, rng, callback, pairs, known)
    descent = replace(descent, posterior=_with_spreads(descent.posterior, known))
    return Fitted(descent, calibration, avb, sampled)


def known_of(
    recipe: Recipe,
    observations: Observations,
    workers: Workers,
) -> Known:
    """Return what a recipe lets be known of rows and columns: the pattern of these answers, features."""
    hierarchy = recipe.hierarchy(observations.shape)
    sides = recipe.pattern_sides(hierarchy)
    if not any(sides) and observations.features == (None, None):
        return NOTHING
    return workers.known(observations, hierarchy, recipe.full, sides)


def _with_spreads(posterior: Posterior, known: Known) -> Posterior:
    """Return a posterior that says how sure it is of slopes, and of members without answers."""
    for side, silent in enumerate(known.silent):
        posterior = posterior.with_silent(side, silent)
    spreads: list[NDArray[np.float64] | None] = [None, None]
    for side, regression in enumerate(posterior.hierarchy.regressions):
        if regression is None or "features" not in regression.groups:
            continue
        if posterior.hierarchy.has_effect(side):
            values = known.told(side)
            spreads[side] = slope_covariance(posterior, side, values)
    return replace(posterior, spreads=(spreads[0], spreads[1]))


def descend(
    recipe: Recipe,
    observations: Observations,
    workers: Workers,
    rng: np.random.Generator,
    start: Posterior | None = None,
    callback: Callback | None = None,
    known: Known = NOTHING,
) -> tuple[Fit, ApproximateBound | None]:
    """Descend from each of the recipe's starts, and return what reached the lowest objective."""
    hierarchy = replace(recipe.hierarchy(observations.shape), regressions=known.regressions)
    runs = []
    begin: Start | Posterior | None
    for k in range(recipe.n_init):
        begin = (start or _begun(recipe, observations, hierarchy, workers, rng)) if k == 0 else None
        if begin is None:
            begin = workers.start(observations, hierarchy, rng, JITTER if k else 0.0, recipe.full)
        runs.append(_from(begin, recipe, observations, hierarchy, workers, callback, known))
    return min(runs, key=lambda run: run[0].objective)


def _begun(
    recipe: Recipe,
    observations: Observations,
    hierarchy: Hierarchy,
    workers: Workers,
    rng: np.random.Generator,
) -> Posterior | None:
    """Return where a fit to part of the answers ends, if one is worth its while."""
    # A GPU's rounds are cheap, and a loss without a majoriser may end elsewhere.
    if not isinstance(workers, Cpu) or recipe.paper or recipe.sparse or recipe.loss.step < 1.0:
        return None
    part = part_of(observations, hierarchy.rank, rng, workers.pool)
    if part is None:
        return None
    alone = Cpu(workers.pool)  # without a checkpoint: it is found again in less time than a round takes
    short, prior = part_recipe(recipe), recipe.hierarchy(part.shape)
    first = alone.start(part, prior, rng)
    return start_from(run(short, part, prior, first, alone).posterior, hierarchy)


def _from(
    start: Start | Posterior,
    recipe: Recipe,
    observations: Observations,
    hierarchy: Hierarchy,
    workers: Workers,
    callback: Callback | None,
    known: Known,
) -> tuple[Fit, ApproximateBound | None]:
    if recipe.paper:
        assert isinstance(start, Start)
        assert isinstance(workers, Cpu)
        return minimise_avb(
            observations,
            hierarchy,
            start,
            temperature=recipe.temperature,
            schedule=recipe.schedule,
            pool=workers.pool,
            callback=callback,
        )
    if hierarchy.sparse is not None and isinstance(start, Start):
        # Which axes to be sparse along shows only once the factors are there.
        dense = replace(hierarchy, sparse=None)
        start = run(recipe, observations, dense, start, workers, callback, known).posterior
    return run(recipe, observations, hierarchy, start, workers, callback, known), None


def run(
    recipe: Recipe,
    observations: Observations,
    hierarchy: Hierarchy,
    start: Start | Posterior,
    workers: Workers,
    callback: Callback | None = None,
    known: Known = NOTHING,
) -> Fit:
    """Run the engine once, from one start under one prior."""
    return minimise(
        observations,
        hierarchy,
        recipe.loss,
        start,
        full=recipe.full,
        temperature=recipe.temperature,
        schedule=recipe.schedule,
        workers=workers,
        callback=callback,
        known=known,
    )


def calibration_share(n: int) -> float:
    """Return the share of ``n`` answers to calibrate by."""
    return min(max(_CALIBRATION_SHARE, _FEW / max(n, 1)), _LARGEST_SHARE)


def held_for_calibration(
    observations: Observations, rng: np.random.Generator
) -> NDArray[np.bool_] | None:
    """Mark answers to calibrate by, whole entries, in row order; None where there are too few."""
    held = observations.by_entry(rng.random(observations.n) < calibration_share(observations.n))
    return None if held.sum() < SMALLEST_CALIBRATION or held.all() else held


def _calibrated(
    recipe: Recipe,
    observations: Observations,
    workers: Workers,
    rng: np.random.Generator,
    callback: Callback | None,
) -> tuple[Calibration, Posterior | None]:
    """Return the curve of the hinge loss's probabilities, and the posterior that gave it, if any did."""
    held = held_for_calibration(observations, rng)
    if not recipe.calibrate or held is None:
        return natural_calibration(recipe.temperature), None
    others = observations.take(~held)
    workers.sort(others)
    known = known_of(recipe, others, workers)
    first = descend(recipe, others, workers, rng, None, callback, known)[0].posterior
    rows, columns, sign, weight = observations.entries(held)
    if recipe.sampling is not None:
        short = replace(recipe, sampling=replace(recipe.sampling, n_chains=1, keep_bytes=0))
        asked = (rows, columns)
        found = _sampled(short, others, first, workers, rng, callback, asked, known).averages
        mean, variance = found.mean, found.variance
    else:
        mean, variance = scoring.score_moments(first, rows, columns, workers.count)
    return fit_calibration(mean, variance, sign, weight), first


def _sampled(
    recipe: Recipe,
    observations: Observations,
    posterior: Posterior,
    workers: Workers,
    rng: np.random.Generator,
    callback: Callback | None,
    pairs: tuple[Codes, Codes] | None,
    known: Known,
) -> Sampled:
    """Sample from where a variational posterior is."""
    assert recipe.sampling is not None
    return workers.sample(
        observations,
        replace(posterior, hierarchy=recipe.sampled_hierarchy(posterior.hierarchy)),
        recipe.loss,
        recipe.temperature,
        recipe.sampling,
        int(rng.integers(2**31 - 1)),
        pairs,
        callback,
        known,
    )
