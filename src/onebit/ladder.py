"""The ladder of certificates: from bounds that spend no data to those that spend some.

Every rung is a statement about one predictor: the model itself, one that is drawn anew for every
prediction (randomised), one that is drawn once, or one of several fits. A ``Ladder`` keeps them apart:
the rung about the model itself holds by itself at the whole ``delta``; those about other predictors share
a ``delta`` of their own, so that all of these hold at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from onebit import directions
from onebit.bounds import catoni, check_delta, pac_bayes_kl, theorem_1, theorem_1_over_grid
from onebit.certificates import (
    COMMONER,
    IID,
    LIKE_THE_ANSWERED,
    OUTSIDE,
    TIES,
    WHOLE,
    Certificate,
    at_most,
    confidence,
)
from onebit.engine.coordinate import Fit, Schedule, minimise
from onebit.engine.paper import ApproximateBound
from onebit.engine.workers import workers
from onebit.gibbs import gibbs_risk
from onebit.ids import IdIndex, pair_columns
from onebit.learnt import LearntPrior
from onebit.losses import GIBBS, HINGE
from onebit.observations import Observations
from onebit.posterior import Draw, Gaussians, Posterior

if TYPE_CHECKING:
    from onebit.estimator import PairClassifier
    from onebit.variational import VariationalCompleter

Array = NDArray[np.float64]

# Share of delta for the Monte Carlo estimate of a randomised predictor's risk.
MONTE_CARLO = 0.1
# lambda / n: fixed in advance, each paying its share of delta.
LAMBDAS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
# The same where the divergence is small or none: there the best lambda depends on the error rate alone.
TILTS = (0.1, 0.2, 0.4, 0.8, 2.0, 10.0)
# Progressive validation: learn on the first half, then on ever more, each time predicting the next block.
BLOCKS = 5
# The parts that may teach a prior, how much narrower than what was learnt it may be, and lambda / n of
# the posterior.
LEARNT_SHARES = (0.5, 0.8)
NARROWER = (1.0, 0.1, 0.01)
LEARNT_TEMPERATURES = (0.5, 2.0)

RANDOMISED = f"the predictions of a predictor drawn anew from the posterior, {LIKE_THE_ANSWERED},"
LEARNT = (
    "the predictions of a predictor drawn anew from a posterior around a fit to a part of the answers, "
    f"{LIKE_THE_ANSWERED},"
)
# The rung that speaks of the model itself.
OWN = "hold-out"
# Rungs that divide the answers, and how many they need.
DIVIDING = ("learnt-prior", "progressive")
LEAST_TO_DIVIDE = 20 * BLOCKS
FIXED = (
    "the prior (rank, effects, prior, prior_scale, the numbers of rows and columns) was fixed before the "
    "answers were seen"
)
UNTUNED = "the model's settings, and which rows and columns there are, were known without these answers"


@dataclass(frozen=True)
class Ladder:
    """Certificates from one set of answers: of the model itself, and of other predictors.

    Attributes
    ----------
    own : Certificate or None
        The one that speaks of the model itself. It holds with probability ``1 - delta``.
    certificates : tuple of Certificate
        Those that speak of other predictors. They all hold at once with probability ``1 - delta``.
    delta : float
        The probability with which ``own``, and with which any of the others, may fail.
    """

    certificates: tuple[Certificate, ...]
    delta: float
    own: Certificate | None = None

    @property
    def rungs(self) -> tuple[Certificate, ...]:
        """All of them, the model's own first."""
        return self.certificates if self.own is None else (self.own, *self.certificates)

    def table(self) -> pd.DataFrame:
        """Return one line a rung: method, bound, predictor, whether of this model, answers held out."""
        return pd.DataFrame(
            {
                "method": [c.method for c in self.rungs],
                "at_most": [c.bound for c in self.rungs],
                "predictor": [c.whose for c in self.rungs],
                "of_this_model": [c.of_this_model for c in self.rungs],
                "held_out": [int(c.terms.get("held-out answers", 0)) for c in self.rungs],
            }
        )

    @property
    def best(self) -> Certificate:
        """The certificate of the model itself; a lower bound of another predictor is not its own."""
        if self.own is None:
            raise ValueError(
                "none of these certificates speaks of the model itself: fit with certify=0.1, and ask "
                'for "hold-out"'
            )
        return self.own

    def __str__(self) -> str:
        lines = []
        if self.own is not None:
            lines += [self.own.sentence(), f"  method: {self.own.method}"]
        if self.certificates:
            width = max(len(certificate.method) for certificate in self.certificates)
            lines.append(
                f"Of other predictors than this model, with probability {confidence(self.delta)}, all of "
                "these at once:"
            )
            lines += [
                f"  {c.method:<{width}}  {said:<19} of {c.whose}"
                for c in self.certificates
                for said in ("nothing" if c.bound >= 1 else f"at most {at_most(c.bound)} wrong",)
            ]
        return "\n".join(lines)


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
        min(bound, 1.0), delta, title or names[method], predictor, terms, (IID, WHOLE, FIXED, TIES)
    )


def commoner_error(seen: Observations) -> float:
    """Return the share of answers that always the commoner one gets wrong."""
    yes = float((seen.by_row.sign > 0).mean())
    return min(yes, 1.0 - yes)


def _hinge_risk(posterior: Posterior, seen: Observations) -> float:
    """Return an upper bound on the expected hinge risk (see ``onebit.losses``)."""
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
        bound, delta, "one draw, disintegrated PAC-Bayes-kl", who, terms, (IID, WHOLE, FIXED, TIES)
    )


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
    model: VariationalCompleter, seen: Observations, share: float, rng: np.random.Generator
) -> LearntFit:
    """Learn a prior on a ``share`` of the answers, and optimise the posterior on the rest.

    The model is fitted to the share; a Gaussian around it, narrowed by one of a few factors, is the
    prior.
    """
    first = rng.random(seen.n) < share
    rest = seen.take(~first)
    start = clone(model).fit(seen.take(first)).posterior_
    hierarchy = replace(start.hierarchy, sparse=None)
    found: list[tuple[float, Fit]] = []
    with workers(model.device, model.n_jobs, rest.n) as pool:
        for factor in NARROWER:
            rows, columns = (
                Gaussians(side.mean, factor * side.covariance, side.full) for side in start.sides
            )
            prior = LearntPrior(hierarchy, (rows.mean, columns.mean), (rows.variance, columns.variance))
            begin = replace(start, rows=rows, columns=columns, hierarchy=hierarchy)
            for temperature in LEARNT_TEMPERATURES:
                fit = minimise(
                    rest, prior, GIBBS, begin, full=rows.full, temperature=temperature,
                    schedule=Schedule(30, 1e-5), pool=pool,
                )  # fmt: skip
                risk = min(max(fit.objective - fit.divergence / (temperature * rest.n), 0.0), 1.0)
                found.append((pac_bayes_kl(risk, fit.divergence, rest.n, 0.05), fit))
    best = min(found, key=lambda pair: pair[0])[1]
    return LearntFit(best.posterior, best.divergence, first, rest)


def learnt_prior_certificate(
    model: VariationalCompleter, seen: Observations, delta: float, rng: np.random.Generator
) -> Certificate:
    """Certify a randomised predictor by a prior learnt from a part of the answers, and the others.

    Two parts are tried, each at half of ``delta``.
    """
    check_delta(delta)
    _check_size(seen)
    fits = [learnt_prior_fit(model, seen, share, rng) for share in LEARNT_SHARES]
    rungs = [fit.certificate(delta / len(fits), rng) for fit in fits]
    best = min(rungs, key=lambda certificate: certificate.bound)
    return replace(best, delta=delta, terms={**best.terms, "shares tried": float(len(fits))})


@dataclass(frozen=True)
class DrawnPredictor:
    """One predictor, drawn once from a posterior: it predicts, and certifies itself."""

    predictor: Draw
    rows: IdIndex
    columns: IdIndex
    classes: NDArray[Any]
    certificate_of: Callable[..., Certificate]

    def decision_function(self, X: Any) -> Array:
        """Return the score of each pair; ids must be among the fitted ones."""
        row_values, column_values = pair_columns(X)
        return self.predictor.scores(
            self._known(self.rows, row_values), self._known(self.columns, column_values)
        )

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted answers, written as in the training answers."""
        return self.classes[(self.decision_function(X) > 0).astype(int)]

    def certify(self, delta: float = 0.05) -> Certificate:
        """Bound the error rate of this predictor, with probability ``1 - delta``."""
        return self.certificate_of(delta=delta)

    @staticmethod
    def _known(index: IdIndex, values: Any) -> NDArray[np.int32]:
        codes = index.encode(values)
        if (codes < 0).any():
            place = int(np.flatnonzero(codes < 0)[0])
            value = np.asarray(values)[place]
            raise ValueError(
                f"the {index.side} id {value!r} was not fitted: a drawn predictor cannot know it"
            )
        return codes


def progressive_certificate(
    model: PairClassifier, seen: Observations, delta: float, rng: np.random.Generator
) -> Certificate:
    """Certify by progressive validation: learn on a growing part, predict the next block.

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
        follower = clone(model).fit(seen.take(past))
        rows, columns, sign, _ = seen.entries(block)
        mean, _ = follower._score_moments(rows, columns)
        errors += int((mean * sign <= 0).sum())
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


def share_delta(
    makers: Mapping[str, Callable[[float], Certificate]],
    delta: float,
    tell: Callable[[int, int, str], None] | None = None,
) -> Ladder:
    """Make the rungs: the model's own at ``delta``, each of the others at its share of another ``delta``.

    ``tell`` is called with the number of rungs made, of all, and the name of the next.
    """
    check_delta(delta)
    others = max(len(makers) - (OWN in makers), 1)
    own, made = None, []
    for number, (name, make) in enumerate(makers.items()):
        if tell is not None:
            tell(number, len(makers), name)
        if name == OWN:
            own = make(delta)
        else:
            made.append(replace(make(delta / others), of_this_model=False))
    return Ladder(tuple(made), delta, own)
