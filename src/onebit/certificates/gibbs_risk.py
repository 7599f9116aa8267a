"""The error rate of a predictor drawn from the posterior (the Gibbs predictor), with its own confidence.

Given a draw of the row's coordinates, a score is Gaussian in the column's: the chance that its sign is
wrong is exact. Only the rows are drawn, and rows are drawn independently, so that the average over ``N``
draws is a sum of independent terms, the one of row ``i`` between 0 and ``n_i / (n N)``. Its expectation
is bounded in two ways, each at half of ``delta``: by Hoeffding's inequality,
``estimate + sqrt(log(2 / delta) sum_i (n_i / n)^2 / (2 N))``, and, better for small risks and rows of
like length, by Chernoff's, with the terms divided by the largest of their ranges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from onebit.certificates.bounds import kl_inverse
from onebit.data.kernels import kernel
from onebit.data.observations import Observations
from onebit.data.sorting import View
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]

# Draws are taken until Hoeffding's term is this small, or this many answers have been scored.
TARGET = 0.001
LARGEST_WORK = 50_000_000


@kernel(nogil=True, error_model="numpy")
def _wrong(
    start, index, sign, mean, root, other_mean, other_covariance, rank, has_effect, other_effect, full,
    draws, rng, out,
):  # fmt: skip
    """Add to ``out[i]`` the expected number of wrong signs of row ``i``'s answers, over all draws."""
    n_free = mean.shape[1]
    n_other = other_mean.shape[1]
    value = np.empty(n_free)
    noise = np.empty(n_free)
    facing = np.empty(n_other)
    for i in range(mean.shape[0]):
        if start[i] == start[i + 1]:
            continue
        for _ in range(draws):
            for a in range(n_free):
                noise[a] = rng.standard_normal()
            for a in range(n_free):
                value[a] = mean[i, a]
                for b in range(a + 1):
                    value[a] += root[i, a, b] * noise[b]
            for a in range(rank):
                facing[a] = value[a]
            if other_effect:
                facing[rank] = 1.0
            for t in range(start[i], start[i + 1]):
                j = index[t]
                score = value[rank] if has_effect else 0.0
                for a in range(n_other):
                    score += facing[a] * other_mean[j, a]
                variance = 0.0
                if full:
                    k = 0
                    for a in range(n_other):
                        for b in range(a):
                            variance += 2.0 * other_covariance[j, k] * facing[a] * facing[b]
                            k += 1
                        variance += other_covariance[j, k] * facing[a] * facing[a]
                        k += 1
                else:
                    for a in range(n_other):
                        variance += other_covariance[j, a] * facing[a] * facing[a]
                margin = sign[t] * score
                if variance > 0.0:
                    out[i] += 0.5 * math.erfc(margin / math.sqrt(2.0 * variance))
                elif margin <= 0.0:
                    out[i] += 1.0


@dataclass(frozen=True)
class GibbsRisk:
    """The expected error rate of a drawn predictor on the training answers.

    With probability ``1 - delta`` over the draws it is at most ``upper``.
    """

    estimate: float
    upper: float
    draws: int
    delta: float


def _exact_risk(posterior: Posterior, view: View) -> float:
    """Return the risk where scores are Gaussian: effects alone."""
    mean, variance = posterior.score_moments(view.owners(), view.index)
    margin, deviation = mean * view.sign, np.sqrt(variance)
    certain = np.where(margin > 0, np.inf, -np.inf)  # a tie counts as wrong
    standardised = np.divide(margin, deviation, out=certain, where=deviation > 0)
    return float(ndtr(-standardised).mean())


def gibbs_risk(
    posterior: Posterior, observations: Observations, delta: float, rng: np.random.Generator
) -> GibbsRisk:
    """Estimate the error rate of a predictor drawn from the posterior, on these answers."""
    view: View = observations.by_row
    n = observations.n
    if posterior.shape != observations.shape:
        raise ValueError(
            f"the posterior has shape {posterior.shape} and the answers {observations.shape}: rows or "
            "columns were folded in since the fit"
        )
    if posterior.hierarchy.rank == 0:  # then scores are Gaussian, and nothing needs to be drawn
        exact = _exact_risk(posterior, view)
        return GibbsRisk(exact, exact, 0, delta)
    share = float(((view.counts / n) ** 2).sum())
    log_term = math.log(2.0 / delta)
    wanted = math.ceil(log_term * share / (2.0 * TARGET**2))
    draws = max(1, min(wanted, LARGEST_WORK // n))
    hierarchy = posterior.hierarchy
    wrong = np.zeros(view.size)
    _wrong(
        view.start, view.index, view.sign, posterior.rows.mean, posterior.rows.roots,
        posterior.columns.mean, posterior.columns.covariance, hierarchy.rank, hierarchy.has_effect(0),
        hierarchy.has_effect(1), posterior.columns.full, draws, rng, wrong,
    )  # fmt: skip
    estimate = float(wrong.sum()) / (n * draws)
    hoeffding = estimate + math.sqrt(log_term * share / (2.0 * draws))
    scale = float(view.counts.max()) * view.size / n  # of the terms, when each ranges up to one
    chernoff = scale * kl_inverse(estimate / scale, log_term / (draws * view.size))
    return GibbsRisk(estimate, min(hoeffding, chernoff, 1.0), draws, delta)
