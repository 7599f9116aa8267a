"""Certificates of a posterior from the answers that it was fitted to: no data is spent.

They speak of a predictor drawn from the posterior: anew for every entry, or once.
"""

from __future__ import annotations

import math

import numpy as np

from onebit.certificates import directions
from onebit.certificates.bounds import catoni, check_delta, pac_bayes_kl, theorem_1, theorem_1_over_grid
from onebit.certificates.gibbs_risk import gibbs_risk
from onebit.certificates.statements import (
    COMMONER,
    IID,
    LIKE_THE_ANSWERED,
    TIES,
    WHOLE,
    Certificate,
)
from onebit.data.observations import Observations
from onebit.engine.algorithm_1 import ApproximateBound
from onebit.model.losses import HINGE
from onebit.model.posterior import Draw, Posterior

# Share of delta for the Monte Carlo estimate of a randomised predictor's risk.
MONTE_CARLO = 0.1
# lambda / n: fixed in advance, each paying its share of delta.
LAMBDAS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)

RANDOMISED = f"the predictions of a predictor drawn anew from the posterior, {LIKE_THE_ANSWERED},"
FIXED = (
    "the prior (rank, effects, prior, prior_scale, the numbers of rows and columns) was fixed before the "
    "answers were seen"
)
CHOSEN = (
    "the list of priors (ranks up to the largest, with or without effects; prior, prior_scale, the "
    "numbers of rows and columns) was fixed before the answers were seen; the choice among them is "
    "paid for"
)


def posterior_certificate(
    method: str,
    posterior: Posterior,
    seen: Observations,
    delta: float,
    rng: np.random.Generator,
    prior_choices: int = 1,
    title: str | None = None,
    predictor: str = RANDOMISED,
    avb: ApproximateBound | None = None,
) -> Certificate:
    """Certify the randomised predictor of a posterior from the answers that it was fitted to.

    Parameters
    ----------
    method : {"pac-bayes-kl", "catoni", "theorem-1", "theorem-1-printed"}
        Which bound.
    posterior : Posterior
        Any posterior; the bounds hold for all at once.
    seen : Observations
        The answers.
    delta : float
        The probability with which the bound may fail, the Monte Carlo estimate included.
    rng : numpy.random.Generator
        Of the Monte Carlo estimate.
    prior_choices : int
        The number of priors that were chosen from with these answers.
    title : str, optional
        The certificate's method, if another name says it better.
    predictor : str
        Whose errors are bounded.
    avb : ApproximateBound, optional
        Of the paper's method: its bound on the hinge risk, in place of the engine's.
    """
    check_delta(delta)
    n, price = seen.n, posterior.kl
    terms = {"answers": float(n), "KL": posterior.kl, COMMONER: commoner_error(seen)}
    rest = delta
    if not method.startswith("theorem-1"):
        rest = (1.0 - MONTE_CARLO) * delta
        if directions.apply_to(posterior):
            # Signs know no lengths, the hinge does.
            prior_choices *= 2
            own = MONTE_CARLO * delta
            rest -= own
            of_directions = directions.divergence(posterior, n, own, rng)
            price = min(price, of_directions.upper)
            terms |= {"KL of the directions, at most": of_directions.upper, "delta of that KL": own}
    price += math.log(prior_choices)
    if prior_choices > 1:
        terms["log of the priors chosen from"] = math.log(prior_choices)
    if method.startswith("theorem-1"):
        hinge = _hinge_risk(posterior, seen) if avb is None else avb.hinge_risk + avb.spread
        terms["bound on the hinge risk"] = hinge
        if method == "theorem-1-printed":
            bound = theorem_1(hinge, price, n, float(n), delta, printed=True)
            terms |= {"lambda": float(n), "delta": delta}
        else:
            lams = [ratio * n for ratio in LAMBDAS]
            bound = theorem_1_over_grid([hinge] * len(lams), [price] * len(lams), n, lams, delta)
            terms |= {"lambdas tried": float(len(lams)), "delta each": delta / len(lams)}
    else:
        risk = gibbs_risk(posterior, seen, MONTE_CARLO * delta, rng)
        terms |= {
            "training error of a draw": risk.estimate,
            "at most": risk.upper,
            "draws": float(risk.draws),
            "delta of the draws": risk.delta,
        }
        if method == "catoni":
            share = rest / len(LAMBDAS)
            bound = min(catoni(risk.upper, price, n, ratio * n, share) for ratio in LAMBDAS)
            terms |= {"lambdas tried": float(len(LAMBDAS)), "delta each": share}
        else:
            bound = pac_bayes_kl(risk.upper, price, n, rest)
            terms["delta of the bound"] = rest
    names = {
        "theorem-1-printed": "Theorem 1 of the paper, as printed, lambda = n",
        "theorem-1": "Theorem 1, sharp constant, best lambda of a grid",
        "catoni": "PAC-Bayes, Catoni, best lambda of a grid",
        "pac-bayes-kl": "PAC-Bayes-kl",
    }
    return Certificate(
        min(bound, 1.0), delta, title or names[method], predictor, terms,
        (IID, WHOLE, CHOSEN if prior_choices > 1 else FIXED, TIES),
    )  # fmt: skip


def commoner_error(seen: Observations) -> float:
    """Return the share of answers that always the commoner one gets wrong."""
    yes = float((seen.by_row.sign > 0).mean())
    return min(yes, 1.0 - yes)


def _hinge_risk(posterior: Posterior, seen: Observations) -> float:
    """Return an upper bound on the expected hinge risk (see ``onebit.model.losses``)."""
    view = seen.by_row
    mean, variance = posterior.score_moments(view.owners(), view.index)
    return float(HINGE.bound(view.sign, mean, mean**2 + variance).mean())


def draw_certificate(
    draw: Draw,
    seen: Observations,
    delta: float,
    seed: int,
    prior_choices: int = 1,
    whose: str = "",
    direction_log_ratio: float | None = None,
) -> Certificate:
    """Certify one predictor drawn once from the posterior (disintegrated: no average over draws).

    ``direction_log_ratio`` is the one of its directions alone, where its signs depend on nothing else.

    With probability ``1 - delta`` over answers and draw, ``kl(risk, R) <= (log_ratio + log(2 sqrt(n) /
    delta)) / n`` (Rivasplata, Kuzborskij, Szepesvari and Shawe-Taylor, 2020). Draws are numbered by their
    seeds, and the one with seed ``s`` gets ``delta / ((s + 1)(s + 2))``. These add up to ``delta``, so
    that whichever is kept in the end, all of them are paid for.
    """
    check_delta(delta)
    share = delta / ((seed + 1) * (seed + 2))
    view = seen.by_row
    risk = float(np.mean(draw.scores(view.owners(), view.index) * view.sign <= 0))
    price = draw.log_ratio
    terms = {"answers": float(seen.n), "training error": risk, "log density ratio": price}
    fixed = CHOSEN if prior_choices > 1 else FIXED
    if direction_log_ratio is not None:
        price = min(price, direction_log_ratio)
        prior_choices *= 2
        terms["log density ratio of the directions"] = direction_log_ratio
    price += math.log(prior_choices)
    if prior_choices > 1:
        terms["log of the priors chosen from"] = math.log(prior_choices)
    n = seen.n
    budget = max(price + math.log(2.0 * math.sqrt(n) / share), 0.0)
    bound = pac_bayes_kl(risk, budget - math.log(2.0 * math.sqrt(n) / share), n, share)
    terms |= {
        "seed of the draw": float(seed),
        "delta of this draw": share,
        COMMONER: commoner_error(seen),
    }
    who = f"the predictions of one predictor, drawn once from the posterior{whose}, {LIKE_THE_ANSWERED},"
    return Certificate(
        bound, delta, "one draw, disintegrated PAC-Bayes-kl", who, terms, (IID, WHOLE, fixed, TIES)
    )
