"""Certificates that fit models of their own: a prior learnt on a part, and progressive validation.

How a model is fitted is handed to them as a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from onebit.certificates.bounds import catoni, check_delta, pac_bayes_kl
from onebit.certificates.gibbs_risk import gibbs_risk
from onebit.certificates.pac_bayes import MONTE_CARLO, commoner_error
from onebit.certificates.statements import (
    COMMONER,
    IID,
    LIKE_THE_ANSWERED,
    OUTSIDE,
    TIES,
    Certificate,
)
from onebit.data.observations import Observations
from onebit.engine.descent import Fit, Schedule, minimise
from onebit.engine.workers import Machine, workers
from onebit.model.gaussians import Gaussians
from onebit.model.learnt_prior import LearntPrior
from onebit.model.losses import GIBBS
from onebit.model.posterior import Posterior

Codes = NDArray[np.int32]
Decides = Callable[[Codes, Codes], NDArray[np.float64]]

# lambda / n where the divergence is small or none: there the best one depends on the error rate alone.
TILTS = (0.1, 0.2, 0.4, 0.8, 2.0, 10.0)
# Progressive validation: learn on the first half, then on ever more, each time predicting the next block.
BLOCKS = 5
# The parts that may teach a prior, how much narrower than what was learnt it may be, and lambda / n of
# the posterior.
LEARNT_SHARES = (0.5, 0.8)
NARROWER = (1.0, 0.1, 0.01)
LEARNT_TEMPERATURES = (0.5, 2.0)
LEARNT = (
    "the predictions of a predictor drawn anew from a posterior around a fit to a part of the answers, "
    f"{LIKE_THE_ANSWERED},"
)
# Rungs that divide the answers, and how many they need.
DIVIDING = ("learnt-prior", "progressive")
LEAST_TO_DIVIDE = 20 * BLOCKS
UNTUNED = "the model's settings, and which rows and columns there are, were known without these answers"


def _check_size(seen: Observations) -> None:
    if seen.n < LEAST_TO_DIVIDE:
        raise ValueError(
            f"{seen.n} answers are too few to be divided; this certificate needs {LEAST_TO_DIVIDE}"
        )


@dataclass(frozen=True)
class LearntFit:
    """A posterior optimised on some answers, with its divergence from a prior learnt on the others."""

    posterior: Posterior
    divergence: float
    first: NDArray[np.bool_]
    rest: Observations

    def certificate(self, delta: float, rng: np.random.Generator) -> Certificate:
        """Certify by Catoni's bound, which only the rest of the answers enters.

        The choice among the narrower priors is paid for.
        """
        drawn = gibbs_risk(self.posterior, self.rest, MONTE_CARLO * delta, rng)
        share = (1.0 - MONTE_CARLO) * delta / len(TILTS)
        n, price = self.rest.n, self.divergence + math.log(len(NARROWER))
        bound = min(catoni(drawn.upper, price, n, tilt * n, share) for tilt in TILTS)
        terms = {
            "answers that taught the prior": float(self.first.sum()),
            "held-out answers": float(n),
            "KL": self.divergence,
            "log of the priors chosen from": math.log(len(NARROWER)),
            "error of a draw on the held-out answers": drawn.estimate,
            COMMONER: commoner_error(self.rest),
            "at most": drawn.upper,
            "lambdas tried": float(len(TILTS)),
            "delta of the draws": drawn.delta,
            "delta each": share,
        }
        assumptions = (IID, OUTSIDE, UNTUNED, "the part that taught the prior was chosen at random", TIES)
        title = "PAC-Bayes, prior learnt on a part"
        return Certificate(min(bound, 1.0), delta, title, LEARNT, terms, assumptions)


def learnt_prior_fit(
    refit: Callable[[Observations], Posterior],
    seen: Observations,
    share: float,
    rng: np.random.Generator,
    machine: Machine,
) -> LearntFit:
    """Learn a prior on a ``share`` of the answers, and optimise the posterior on the rest.

    ``refit`` fits the model to the share; a Gaussian around it, narrowed by one of a few factors, is the
    prior.
    """
    first = rng.random(seen.n) < share
    rest = seen.take(~first)
    start = refit(seen.take(first))
    # What taught the prior is done with: its sparsity, and what was known of rows and columns.
    hierarchy = replace(start.hierarchy, sparse=None, regressions=(None, None))
    hyper = replace(start.hyper, slopes=(None, None))
    found: list[tuple[float, Fit]] = []
    with workers(machine, rest.n) as crew:
        for factor in NARROWER:
            rows, columns = (
                Gaussians(side.mean, factor * side.covariance, side.full) for side in start.sides
            )
            prior = LearntPrior(hierarchy, (rows.mean, columns.mean), (rows.variance, columns.variance))
            begin = replace(start, rows=rows, columns=columns, hierarchy=hierarchy, hyper=hyper)
            for temperature in LEARNT_TEMPERATURES:
                fit = minimise(
                    rest, prior, GIBBS, begin, full=rows.full, temperature=temperature,
                    schedule=Schedule(30, 1e-5), workers=crew,
                )  # fmt: skip
                risk = min(max(fit.objective - fit.divergence / (temperature * rest.n), 0.0), 1.0)
                found.append((pac_bayes_kl(risk, fit.divergence, rest.n, 0.05), fit))
    best = min(found, key=lambda pair: pair[0])[1]
    return LearntFit(best.posterior, best.divergence, first, rest)


def learnt_prior_certificate(
    refit: Callable[[Observations], Posterior],
    seen: Observations,
    delta: float,
    rng: np.random.Generator,
    machine: Machine,
) -> Certificate:
    """Certify a randomised predictor by a prior learnt from a part of the answers, and the others.

    Two parts are tried, each at half of ``delta``.
    """
    check_delta(delta)
    _check_size(seen)
    fits = [learnt_prior_fit(refit, seen, share, rng, machine) for share in LEARNT_SHARES]
    rungs = [fit.certificate(delta / len(fits), rng) for fit in fits]
    best = min(rungs, key=lambda certificate: certificate.bound)
    return replace(best, delta=delta, terms={**best.terms, "shares tried": float(len(fits))})


def progressive_certificate(
    refit: Callable[[Observations], Decides], seen: Observations, delta: float, rng: np.random.Generator
) -> Certificate:
    """Certify by progressive validation: learn on a growing part, predict the next block.

    ``refit`` fits the model to some answers, and returns what decides pairs of codes by a sign.

    The errors of the five predictors on their next blocks bound the risk of one of the five picked at
    random: with ``t`` fixed, ``exp(-t errors - sum_b n_b log(1 - R_b (1 - exp(-t))))`` is a
    supermartingale, and the logarithm is concave, so Catoni's bound holds without a divergence.
    """
    check_delta(delta)
    _check_size(seen)
    order = rng.permutation(seen.n)
    # Blocks of one size, so that a fit picked evenly is one picked in proportion to its answers.
    size = seen.n // (2 * BLOCKS)
    edges = seen.n - size * np.arange(BLOCKS, -1, -1)
    errors = total = 0
    for begin, end in pairwise(edges):
        past, block = (np.zeros(seen.n, dtype=bool) for _ in range(2))
        past[order[:begin]], block[order[begin:end]] = True, True
        decide = refit(seen.take(past))
        rows, columns, sign, _ = seen.entries(block)
        errors += int((decide(rows, columns) * sign <= 0).sum())
        total += int(end - begin)
    share = delta / len(TILTS)
    bound = min(catoni(errors / total, 0.0, total, tilt * total, share) for tilt in TILTS)
    terms = {
        "predicted answers": float(total),
        "errors": float(errors),
        COMMONER: commoner_error(seen),
        "fits": float(BLOCKS),
        "tilts tried": float(len(TILTS)),
        "delta each": share,
    }
    who = f"the predictions of one of {BLOCKS} successive fits, picked at random, {LIKE_THE_ANSWERED},"
    assumptions = (IID, OUTSIDE, UNTUNED, "the order of the answers was drawn at random", TIES)
    return Certificate(min(bound, 1.0), delta, "progressive validation", who, terms, assumptions)
