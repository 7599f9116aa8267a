"""Bounds on error rates as plain functions: numbers in, a number out.

Notation: ``n`` answers, ``risk`` an empirical error rate, ``divergence`` a KL from posterior to prior,
``delta`` the probability with which the bound may fail. A bound above one says nothing; it is returned
as it is.

For any prior fixed before the data and for *every* posterior at once:

* ``pac_bayes_kl`` (Maurer, 2004): ``kl(risk, R) <= (KL + log(2 sqrt(n) / delta)) / n``;
* ``catoni`` (2007), for a ``lam`` fixed in advance;
* ``theorem_1`` of the paper, through a convex loss: linear in the risk, so weaker.

Corollary 1, Theorem 2 and its corollary say what to expect before there is any data; they are here for
planning, with the paper's slips mended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, gammaln, xlogy

from onebit.data.numbers import is_number
from onebit.model.priors import Gamma, InverseGamma

# Below it a confidence cannot be told from certainty in double precision.
LEAST_DELTA = 1e-15


def check_delta(delta: float) -> None:
    """Refuse a ``delta`` that is no probability of failure."""
    if not is_number(delta) or not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta!r}")
    if delta < LEAST_DELTA:
        raise ValueError(f"delta must be at least {LEAST_DELTA:g}, got {delta!r}: nothing is surer")


def binomial_upper_bound(errors: int, trials: int, delta: float) -> float:
    """Return the Clopper-Pearson upper bound on an error probability.

    The largest ``R`` with ``P(Binomial(trials, R) <= errors) >= delta``; 1 without trials.

    Examples
    --------
    >>> from onebit.certificates.bounds import binomial_upper_bound
    >>> round(binomial_upper_bound(0, 100, 0.05), 4)  # 1 - 0.05 ** (1 / 100)
    0.0295
    """
    if errors >= trials:
        return 1.0
    return float(betaincinv(errors + 1.0, float(trials - errors), 1.0 - delta))


def binary_kl(q: float, p: float) -> float:
    """Return ``kl(q, p)`` between two coins."""
    if (p <= 0 < q) or (p >= 1 > q):
        return math.inf
    return float(xlogy(q, q / p if q else 1.0) + xlogy(1 - q, (1 - q) / (1 - p) if q < 1 else 1.0))


def kl_inverse(risk: float, budget: float) -> float:
    """Return the largest ``R`` with ``kl(risk, R) <= budget``.

    Examples
    --------
    >>> from onebit.certificates.bounds import kl_inverse
    >>> round(kl_inverse(0.0, 0.1), 4)  # 1 - exp(-0.1)
    0.0952
    """
    if not (0 <= risk <= 1 and budget >= 0):
        raise ValueError(f"need a risk in [0, 1] and a budget >= 0, got {risk!r} and {budget!r}")
    top = 1.0 - 1e-15
    if risk >= top or binary_kl(risk, top) <= budget:
        return 1.0
    return float(brentq(lambda p: binary_kl(risk, p) - budget, risk, top, xtol=1e-16, rtol=1e-14))


def pac_bayes_kl(risk: float, divergence: float, n: int, delta: float) -> float:
    """Return Maurer's bound on the mean risk of a posterior with this mean empirical risk."""
    check_delta(delta)
    return kl_inverse(risk, (divergence + math.log(2.0 * math.sqrt(n) / delta)) / n)


def catoni(risk: float, divergence: float, n: int, lam: float, delta: float) -> float:
    """Return Catoni's bound: ``(1 - exp(-(lam risk + KL + log(1/delta)) / n)) / (1 - exp(-lam / n))``."""
    check_delta(delta)
    exponent = (lam * risk + divergence + math.log(1.0 / delta)) / n
    return -math.expm1(-exponent) / -math.expm1(-lam / n)


def theorem_1(
    convex_risk: float, divergence: float, n: int, lam: float, delta: float, *, printed: bool = False
) -> float:
    """Return Theorem 1 for a convex risk that is above the 0-1 risk.

    ``convex_risk + KL / lam + lam / (8 n) + log(1 / delta) / lam``. The AVB without its ``KL / lam`` may
    stand for ``convex_risk``. ``printed`` gives the paper's ``lam / (2 n)``: Hoeffding's lemma for a loss
    in [0, 1] needs only an eighth.

    Examples
    --------
    >>> from onebit.certificates.bounds import theorem_1
    >>> round(theorem_1(0.3, 50.0, 1000, 500.0, 0.05), 4)
    0.4685
    """
    check_delta(delta)
    if lam <= 0:
        raise ValueError(f"lam must be positive, got {lam!r}")
    spread = lam / (2.0 * n) if printed else lam / (8.0 * n)
    return convex_risk + divergence / lam + spread + math.log(1.0 / delta) / lam


def theorem_1_over_grid(
    convex_risks: Sequence[float],
    divergences: Sequence[float],
    n: int,
    lams: Sequence[float],
    delta: float,
) -> float:
    """Return the best of Theorem 1 over a grid of ``lam`` fixed in advance; each gets a part of delta."""
    share = delta / len(lams)
    return min(
        theorem_1(risk, divergence, n, lam, share)
        for risk, divergence, lam in zip(convex_risks, divergences, lams, strict=True)
    )


@dataclass(frozen=True)
class Problem:
    """What planning has to be told: the matrix, the model and its prior.

    ``size`` bounds the entries of factors ``L`` and ``R`` with ``M = L R'`` (``l(M)`` in the paper).
    """

    rows: int
    columns: int
    rank: int
    largest_rank: int = 10
    size: float = 1.0
    prior: Gamma | InverseGamma = field(default_factory=lambda: Gamma(1.0, 1.0))

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= self.largest_rank:
            raise ValueError(f"rank {self.rank} must lie between 1 and {self.largest_rank}")


def interval_divergence(prior: Gamma | InverseGamma, begin: float, width: float) -> float:
    """Return an upper bound on the divergence from ``prior`` of the prior cut to an interval.

    It is ``-log prior([begin, begin + width])``, bounded through the least density there, as in the proof
    of the rank lemma.
    """
    end = begin + width
    if isinstance(prior, InverseGamma):
        a, b = prior.shape, prior.scale
        least = (a + 1.0) * math.log(end) + b / begin
    else:
        a, b = prior.shape, prior.rate
        # The density falls in gamma for shapes up to one, and its power part rises beyond.
        least = (1.0 - a) * math.log(end if a < 1.0 else begin) + b * end
    return least + float(gammaln(a)) - a * math.log(b) - math.log(width)


def rank_lemma(problem: Problem, n: int, lam: float) -> float:
    """Return the rank lemma's bound on ``R(rho, lam)`` at the best ``rho`` centred at a given matrix.

    With ``v0 = 1 / n^2``, ``v1 = 1 / n`` and intervals of width ``r / (K n)`` as in the paper, and its
    explicit constants in all three cases of the prior. Two slips are mended: the printed labels of the
    cases are interchanged, and the inverse-Gamma case counts the ``K - r`` empty columns as ``K``, which
    makes a negative term too large.
    """
    r, k = problem.rank, problem.largest_rank
    sides = problem.rows + problem.columns
    width, v1, v0 = r / (k * n), 1.0 / n, 1.0 / n**2
    spread = (2.0 / math.pi) * ((k - r) * v1 + r * v0)
    spread += 2.0 * r * problem.size * math.sqrt(2.0 * v0 / math.pi)
    used = v0 + problem.size**2 + width - math.log(v0)
    empty = width / v1
    divergence = r * interval_divergence(problem.prior, 1.0, width)
    divergence += (k - r) * interval_divergence(problem.prior, v1, width)
    return spread + (0.5 * sides * (r * used + (k - r) * empty) + divergence) / lam


def corollary_1(
    problem: Problem, hinge_risk: float, n: int, lam: float, delta: float, *, printed: bool = False
) -> float:
    """Return Corollary 1: the risk of the estimator from the hinge risk of one matrix of known rank."""
    check_delta(delta)
    if lam > n:
        raise ValueError(f"Corollary 1 needs lam <= n, got lam={lam!r} and n={n!r}")
    return theorem_1(hinge_risk + rank_lemma(problem, n, lam), 0.0, n, lam, delta, printed=printed)


def theorem_2(
    problem: Problem, bayes_risk: float, n: int, delta: float, *, margin: float = 1.0, s: float = 0.5
) -> float:
    """Return Theorem 2: the risk to expect of ``n`` answers, with probability ``1 - delta``.

    ``problem`` describes the Bayes classifier, a matrix of signs. With ``lam = s n / C`` and ``C`` the
    margin constant (1 without noise; 1 / (1 - 2 p) for answers flipped with probability ``p``), the
    proof, its slips mended, gives::

        R <= R* + ((1 + s) R* + log(2/delta) / (n s) + rank_lemma + log(2/delta) / lam) / (1 - s / 2)

    Examples
    --------
    >>> from onebit.certificates.bounds import Problem, theorem_2
    >>> theorem_2(Problem(200, 200, 3), 0.0, 10**6, 0.05) < 0.1
    True
    """
    check_delta(delta)
    if not 0 < s < 1:
        raise ValueError(f"s must lie between 0 and 1, got {s!r}")
    if margin < 1 or not 0 <= bayes_risk < 0.5:
        raise ValueError(
            f"need a margin constant >= 1 and a Bayes risk in [0, 0.5), got {margin!r} and {bayes_risk!r}"
        )
    lam = s * n / margin
    log_term = math.log(2.0 / delta)
    inside = (1.0 + s) * bayes_risk + log_term / (n * s) + rank_lemma(problem, n, lam) + log_term / lam
    return bayes_risk + inside / (1.0 - 0.5 * s)


def corollary_2(problem: Problem, n: int, delta: float) -> float:
    """Return the corollary of Theorem 2 without noise, at the paper's own constant (``lam = n / 2``).

    The printed ``lam = 2 n`` makes the factor before the brackets infinite.
    """
    return theorem_2(problem, 0.0, n, delta, s=0.5)


def answers_needed(
    problem: Problem, target: float, delta: float, *, bayes_risk: float = 0.0, margin: float = 1.0
) -> int:
    """Return how many answers Theorem 2 asks for before it promises a risk of at most ``target``.

    The best ``s`` of a grid is used. Such promises are pessimistic, by orders of magnitude.

    Examples
    --------
    >>> from onebit.certificates.bounds import Problem, answers_needed
    >>> answers_needed(Problem(200, 200, 3), 0.1, 0.05) > 200 * 200
    True
    """
    grid = np.linspace(0.05, 0.95, 19)

    def promise(n: int) -> float:
        return min(theorem_2(problem, bayes_risk, n, delta, margin=margin, s=float(s)) for s in grid)

    high = 2
    while promise(high) > target:
        high *= 2
        if high > 10**18:
            raise ValueError(
                f"no number of answers promises a risk of {target!r}: Theorem 2 ends above twice the "
                f"Bayes risk, here {bayes_risk!r}"
            )
    low = high // 2
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if promise(middle) <= target else (middle, high)
    return high


def hypergeometric_upper_bound(errors: int, trials: int, population: int, delta: float) -> int:
    """Return an upper bound on how many of a population are wrong, from those found in a part of it.

    The part was drawn evenly without replacement. The largest ``T`` with ``P(H <= errors) >= delta`` for
    the number ``H`` of wrong ones in the part.

    Examples
    --------
    >>> from onebit.certificates.bounds import hypergeometric_upper_bound
    >>> hypergeometric_upper_bound(0, 50, 60, 0.05)  # 50 of 60 were looked at
    1
    """
    if not 0 <= errors <= trials <= population:
        raise ValueError(f"need errors <= trials <= population, got {errors}, {trials} and {population}")
    from scipy.stats import hypergeom  # slow to import

    low, high = errors, population - (trials - errors)
    while low < high:
        middle = (low + high + 1) // 2
        if hypergeom.cdf(errors, population, middle, trials) >= delta:
            low = middle
        else:
            high = middle - 1
    return low


def rest_upper_bound(errors: int, trials: int, rest: int, delta: float) -> float:
    """Return an upper bound on the share of wrong ones in the ``rest`` of a population.

    Of all so many are wrong at most (``hypergeometric_upper_bound``); the part that was looked at has had
    its errors counted.
    """
    return (hypergeometric_upper_bound(errors, trials, trials + rest, delta) - errors) / rest
