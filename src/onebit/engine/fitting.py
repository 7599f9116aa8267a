"""The procedure of a fit, from answers to a posterior, and on to draws.

A hinge fit that is to have calibrated probabilities begins with a fit to nine tenths of the answers. Its
errors on the others give the curve, and its posterior is where the engine's last fit starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onebit.data.observations import Observations
from onebit.engine import scoring
from onebit.engine.algorithm_1 import ApproximateBound, minimise_avb
from onebit.engine.descent import Callback, Fit, Workers, minimise
from onebit.engine.recipe import Recipe
from onebit.engine.sampling.chain import Target
from onebit.engine.sampling.sampler import Sampled
from onebit.engine.start import Start
from onebit.engine.workers import Cpu
from onebit.model.calibration import Calibration, fit_calibration, natural_calibration
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import HINGE
from onebit.model.posterior import Posterior

Codes = NDArray[np.int32]

# Relative size of the noise added to the spectral start of the second and later starts.
JITTER = 0.5
# Hinge scores are calibrated on this share of the answers, held out of a first fit.
CALIBRATION_SHARE = 0.1
SMALLEST_CALIBRATION = 30


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
    """
    if recipe.sampling is not None:
        # What cannot be sampled is said before the work begins.
        hierarchy = recipe.sampled_hierarchy(recipe.hierarchy(observations.shape))
        Target.of(observations, hierarchy, recipe.loss, recipe.temperature)
    calibration = None
    if recipe.loss is HINGE:
        calibration, first = _calibrated(recipe, observations, workers, rng, callback)
        start = start if first is None else first
        if recipe.paper:
            start = None  # Algorithm 1 has a start of its own
    descent, avb = descend(recipe, observations, workers, rng, start, callback)
    sampled = None
    if recipe.sampling is not None:
        sampled = _sampled(recipe, observations, descent.posterior, workers, rng, callback, pairs)
    return Fitted(descent, calibration, avb, sampled)


def descend(
    recipe: Recipe,
    observations: Observations,
    workers: Workers,
    rng: np.random.Generator,
    start: Posterior | None = None,
    callback: Callback | None = None,
) -> tuple[Fit, ApproximateBound | None]:
    """Descend from each of the recipe's starts, and return what reached the lowest objective."""
    hierarchy = recipe.hierarchy(observations.shape)
    runs = []
    for k in range(recipe.n_init):
        begin: Start | Posterior | None = start if k == 0 else None
        if begin is None:
            begin = workers.start(observations, hierarchy, rng, JITTER if k else 0.0, recipe.full)
        runs.append(_from(begin, recipe, observations, hierarchy, workers, callback))
    return min(runs, key=lambda run: run[0].objective)


def _from(
    start: Start | Posterior,
    recipe: Recipe,
    observations: Observations,
    hierarchy: Hierarchy,
    workers: Workers,
    callback: Callback | None,
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
        start = run(recipe, observations, dense, start, workers, callback).posterior
    return run(recipe, observations, hierarchy, start, workers, callback), None


def run(
    recipe: Recipe,
    observations: Observations,
    hierarchy: Hierarchy,
    start: Start | Posterior,
    workers: Workers,
    callback: Callback | None = None,
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
    )


def _calibrated(
    recipe: Recipe,
    observations: Observations,
    workers: Workers,
    rng: np.random.Generator,
    callback: Callback | None,
) -> tuple[Calibration, Posterior | None]:
    """Return the curve of the hinge loss's probabilities, and the posterior that gave it, if any did."""
    held = rng.random(observations.n) < CALIBRATION_SHARE
    if not recipe.calibrate or held.sum() < SMALLEST_CALIBRATION or held.all():
        return natural_calibration(recipe.temperature), None
    others = observations.take(~held)
    first = descend(recipe, others, workers, rng, None, callback)[0].posterior
    rows, columns, sign, weight = observations.entries(held)
    if recipe.sampling is not None:
        short = replace(recipe, sampling=replace(recipe.sampling, n_chains=1, keep_bytes=0))
        found = _sampled(short, others, first, workers, rng, callback, (rows, columns)).averages
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
    )
