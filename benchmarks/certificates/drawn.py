"""Certificates of other predictors than the model itself: drawn ones, and one of several fits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone

import onebit.certificates.directions
import onebit.certificates.gibbs_risk
from benchmarks.certificates import worlds
from benchmarks.certificates.lines import DELTAS, Line, Lines
from benchmarks.certificates.worlds import AGAIN, ONCE, Known, fitted_codes, rate
from onebit import GibbsCompleter, HingeCompleter, LogisticCompleter, Observations
from onebit.certificates import procedures
from onebit.certificates.bounds import kl_inverse
from onebit.engine.workers import Machine

SETTINGS = tuple(product(("B1", "A2", "B2"), (ONCE, AGAIN), (True, False)))
RANK = 3
# Overfitted on purpose: what a missing term hides is then large.
GREEDY_RANK, GREEDY_TEMPERATURE = 6, 30.0
GIBBS_TEMPERATURE = 2.0
DRAWS = 40  # predictors drawn to find the true risk of a randomised one
# Fewer draws than by default where there are hundreds of worlds; the certificates pay for it.
MONTE_CARLO_TARGET = 0.01

METHODS = ("theorem-1", "catoni", "pac-bayes-kl")
OVERFITTED = "pac-bayes-kl, overfitted posterior"
NO_DETERMINANTS = "pac-bayes-kl, overfitted posterior, KL without its log determinants"
ONE_DRAW = "one draw, disintegrated"
PROGRESSIVE = "progressive validation"
LEARNT = "prior learnt on a part"


@contextmanager
def fewer_draws() -> Iterator[None]:
    """Let certificates take fewer draws than by default."""
    modules = (onebit.certificates.gibbs_risk, onebit.certificates.directions)
    usual = [module.TARGET for module in modules]
    try:
        for module in modules:
            module.TARGET = MONTE_CARLO_TARGET
        yield
    finally:
        for module, target in zip(modules, usual, strict=True):
            module.TARGET = target


def drawn(number: int) -> list[Line]:
    """Issue the certificates of other predictors in one world."""
    name, how, effects = SETTINGS[number % len(SETTINGS)]
    with fewer_draws():
        return _drawn(worlds.papers(name, number, how), effects, number)


def _drawn(world: Known, effects: bool, seed: int) -> list[Line]:
    fit = {"effects": effects, "random_state": seed, "n_jobs": 1}
    lines = Lines()
    gibbs = GibbsCompleter(RANK, temperature=GIBBS_TEMPERATURE, **fit)
    greedy = HingeCompleter(
        GREEDY_RANK, temperature=GREEDY_TEMPERATURE, calibrate=False, pattern=None, **fit
    )
    for model in (gibbs, greedy):
        model.fit(world.pairs, world.answers, certify=0)
    if min(codes.min() for codes in world.codes(gibbs)) < 0:
        return []  # a drawn predictor knows no row or column that was never seen
    randomised, overfitted = (mean_risk(model, model.posterior_, world) for model in (gibbs, greedy))
    one = gibbs.draw(0)
    of_one = rate(world.wrong(one.decision_function(world.every)), world.weight)
    model = LogisticCompleter(RANK, pattern=None, **fit)
    everything = Observations.from_pairs(world.pairs, world.answers)
    learnt = [Learnt(model, everything, world, share, seed) for share in procedures.LEARNT_SHARES]
    for delta in DELTAS:
        for method in METHODS:
            lines.add(
                f"{method} (GibbsCompleter)", delta, gibbs.certify(delta, method=method).bound, randomised
            )
        lines.add(ONE_DRAW, delta, one.certify(delta).bound, of_one)
        whole = greedy.certify(delta, method="pac-bayes-kl")
        lines.add(OVERFITTED, delta, whole.bound, overfitted)
        lines.add(NO_DETERMINANTS, delta, without_determinants(greedy, whole), overfitted, broken=True)
        lines.add(PROGRESSIVE, delta, *progressive(model, everything, world, delta, seed))
        for part in learnt:
            lines.add(f"{LEARNT} ({part.share:.0%})", delta, part.bound(delta), part.risk)
    return lines.found


def mean_risk(model: Any, posterior: Any, world: Known, weight: Any = None) -> float:
    """Return the mean error rate of predictors drawn from a posterior."""
    rng = np.random.default_rng(0)
    codes = world.codes(model)
    weight = world.weight if weight is None else weight
    risks = [rate(world.wrong(posterior.sample(rng).scores(*codes)), weight) for _ in range(DRAWS)]
    return float(np.mean(risks))


def without_determinants(model: Any, certificate: Any) -> float:
    """Return the bound of a certificate whose KL forgets what narrow posteriors cost."""
    posterior, terms = model.posterior_, certificate.terms
    sums = tuple(
        replace(side.sums(posterior.hierarchy, k), log_determinant=0.0)
        for k, side in enumerate(posterior.sides)
    )
    divergence = max(posterior.hierarchy.kl(sums, posterior.hyper), 0.0)
    n = terms["answers"]
    budget = divergence + math.log(2 * math.sqrt(n) / terms["delta of the bound"])
    return kl_inverse(terms["at most"], budget / n)


def progressive(
    model: Any, everything: Observations, world: Known, delta: float, seed: int
) -> tuple[float, float]:
    """Return the certificate, and the mean risk of the five predictors that it speaks of."""
    fits: list[tuple[Any, Observations]] = []

    def refit(past: Observations) -> Any:
        fitted = clone(model).fit(past)
        fits.append((fitted, past))
        return lambda rows, columns: fitted.predictions(rows, columns).decision

    rng = np.random.default_rng(seed)
    certificate = procedures.progressive_certificate(refit, everything, delta, rng)
    risks = [
        rate(world.wrong(world.predictions(fit).decision), without(world, everything, past))
        for fit, past in fits
    ]
    return certificate.bound, float(np.mean(risks))


class Learnt:
    """A posterior around a prior that a share of the answers has taught, and its true risk."""

    def __init__(
        self, model: Any, everything: Observations, world: Known, share: float, seed: int
    ) -> None:
        self.share = share
        self.rng = np.random.default_rng(seed)
        self.fit = procedures.learnt_prior_fit(
            lambda part: clone(model).fit(part).posterior_, everything, share, self.rng, Machine(1)
        )
        taught = without(world, everything, everything.take(self.fit.first))
        self.risk = mean_risk(_Ids(everything), self.fit.posterior, world, taught)

    def bound(self, delta: float) -> float:
        """Return the bound on it."""
        return self.fit.certificate(delta, self.rng).bound


class _Ids:
    """The ids of answers, as a fitted model has them."""

    def __init__(self, seen: Observations) -> None:
        self.rows_, self.columns_ = seen.rows, seen.columns


def without(world: Known, everything: Observations, part: Observations) -> Any:
    """Return the weights of the entries, those of a part left out where entries come once."""
    if not world.once:
        return world.weight
    sides = (everything.rows, everything.columns)
    rows, columns = (
        index.labels.to_numpy()[codes] for index, codes in zip(sides, fitted_codes(part), strict=True)
    )
    weight = world.weight.copy()
    weight[rows * world.shape[1] + columns] = 0.0
    return weight
