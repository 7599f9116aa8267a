"""The bounds: each against its definition, by root finding, quadrature or simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from onebit.certificates.bounds import (
    Problem,
    answers_needed,
    binary_kl,
    binomial_upper_bound,
    catoni,
    corollary_1,
    corollary_2,
    interval_divergence,
    kl_inverse,
    pac_bayes_kl,
    rank_lemma,
    theorem_1,
    theorem_1_over_grid,
    theorem_2,
)
from onebit.model.priors import Gamma, InverseGamma

SHARE = st.floats(0.0, 1.0)


@given(SHARE, st.floats(1e-6, 1.0))
def test_the_inverse_of_kl_is_the_largest_risk_within_the_budget(risk, budget):
    bound = kl_inverse(risk, budget)
    assert risk <= bound <= 1.0
    assert binary_kl(risk, min(bound, 1 - 1e-12)) <= budget * (1 + 1e-4) + 1e-9
    if bound < 1 - 1e-6:
        assert binary_kl(risk, bound + 1e-6) > budget - 1e-9


def test_kl_of_two_coins():
    assert binary_kl(0.3, 0.3) == pytest.approx(0.0)
    assert binary_kl(0.0, 0.25) == pytest.approx(-math.log(0.75))
    assert binary_kl(0.2, 0.0) == math.inf
    expected = 0.2 * math.log(0.2 / 0.5) + 0.8 * math.log(0.8 / 0.5)
    assert binary_kl(0.2, 0.5) == pytest.approx(expected)


@given(st.integers(0, 40), st.integers(1, 40), st.floats(0.001, 0.5))
def test_clopper_pearson_solves_its_equation(errors, trials, delta):
    bound = binomial_upper_bound(errors, trials, delta)
    if errors >= trials:
        assert bound == 1.0
    else:
        assert stats.binom.cdf(errors, trials, bound) == pytest.approx(delta, rel=1e-6)


def test_maurers_moment_is_below_two_roots_of_n():
    """The inequality under PAC-Bayes-kl, E[exp(n kl(r, R))] <= 2 sqrt(n), summed exactly."""
    for n in (8, 50, 400):
        for p in (0.01, 0.2, 0.5):
            k = np.arange(n + 1)
            moment = sum(math.exp(stats.binom.logpmf(j, n, p) + n * binary_kl(j / n, p)) for j in k)
            assert moment <= 2 * math.sqrt(n)


def test_catonis_moment_is_below_one():
    """E[exp(-lam r - n log(1 - R (1 - exp(-lam / n))))] = 1 for a binomial risk."""
    n, lam, p = 60, 25.0, 0.3
    k = np.arange(n + 1)
    log_phi = n * math.log(1 - p * (1 - math.exp(-lam / n)))
    moment = (stats.binom.pmf(k, n, p) * np.exp(-lam * k / n - log_phi)).sum()
    assert moment == pytest.approx(1.0)
    # Its inversion: at the bound, the exponent equals what was paid.
    bound = catoni(0.2, 3.0, n, lam, 0.05)
    assert -n * math.log(1 - bound * (1 - math.exp(-lam / n))) == pytest.approx(
        lam * 0.2 + 3.0 + math.log(20)
    )


def test_hoeffdings_constant_is_an_eighth():
    """E[exp(lam (R - r))] <= exp(lam^2 / (8 n)): the sharp constant of Theorem 1; a ninth fails."""
    n, lam = 100, 10.0
    k = np.arange(n + 1)
    moment = (stats.binom.pmf(k, n, 0.5) * np.exp(lam * (0.5 - k / n))).sum()
    assert math.exp(lam**2 / (9 * n)) < moment <= math.exp(lam**2 / (8 * n))


def test_theorem_1_as_printed_and_sharp():
    sharp = theorem_1(0.2, 30.0, 1000, 400.0, 0.05)
    printed = theorem_1(0.2, 30.0, 1000, 400.0, 0.05, printed=True)
    assert sharp == pytest.approx(0.2 + 30 / 400 + 400 / 8000 + math.log(20) / 400)
    assert printed - sharp == pytest.approx(400 / 2000 - 400 / 8000)
    lams = [200.0, 400.0]
    grid = theorem_1_over_grid([0.2, 0.2], [30.0, 30.0], 1000, lams, 0.05)
    assert grid == pytest.approx(min(theorem_1(0.2, 30.0, 1000, lam, 0.025) for lam in lams))
    with pytest.raises(ValueError, match="lam must be positive"):
        theorem_1(0.2, 1.0, 10, 0.0, 0.05)


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        (Gamma(0.5, 2.0), stats.gamma(0.5, scale=1 / 2.0)),
        (Gamma(1.0, 1.0), stats.gamma(1.0)),
        (Gamma(2.5, 0.7), stats.gamma(2.5, scale=1 / 0.7)),
        (InverseGamma(1.3, 0.01), stats.invgamma(1.3, scale=0.01)),
    ],
    ids=["gamma below one", "gamma one", "gamma above one", "inverse gamma"],
)
def test_the_divergence_of_a_cut_prior_is_bounded_and_nearly_reached(prior, law):
    for begin, width in ((1.0, 1e-3), (0.01, 0.002)):
        exact = -(law.logsf(begin) + np.log1p(-law.sf(begin + width) / law.sf(begin)))
        bound = interval_divergence(prior, begin, width)
        assert exact <= bound + 1e-9
        assert bound <= exact + 1.5


@pytest.mark.parametrize("prior", [Gamma(0.5, 1.0), Gamma(2.0, 1.0), InverseGamma(1.0, 0.05)])
def test_the_rank_lemma_bounds_the_very_posterior_of_its_proof(prior):
    """R(rho, lam) of the rho in the proof, with the exact divergence of the cut priors."""
    n, lam, k, r, m1, m2, size = 400, 200.0, 5, 2, 20, 30, 1.5
    rng = np.random.default_rng(0)
    law = (
        stats.invgamma(prior.shape, scale=prior.scale)
        if isinstance(prior, InverseGamma)
        else stats.gamma(prior.shape, scale=1 / prior.rate)
    )
    width, v0, v1 = r / (k * n), 1 / n**2, 1 / n
    left, right = (np.where(np.arange(k) < r, rng.uniform(-size, size, (m, k)), 0.0) for m in (m1, m2))
    variance = np.where(np.arange(k) < r, v0, v1)
    rows, columns = rng.integers(m1, size=n), rng.integers(m2, size=n)
    s = np.sqrt(2 * variance / np.pi)
    spread = (s * s + np.abs(right[columns]) * s + np.abs(left[rows]) * s).sum(axis=1).mean()
    total = 0.0
    for column in range(k):
        begin = 1.0 if column < r else v1
        grid = np.linspace(begin, begin + width, 4001)
        weight = law.pdf(grid)
        mass = np.trapezoid(weight, grid)
        inverse = np.trapezoid(weight / grid, grid) / mass
        log = np.trapezoid(weight * np.log(grid), grid) / mass
        energy = (
            (left[:, column] ** 2).sum() + (right[:, column] ** 2).sum() + (m1 + m2) * variance[column]
        )
        total += 0.5 * inverse * energy - 0.5 * (m1 + m2) * np.log(variance[column])
        total += -np.log(mass) + 0.5 * (m1 + m2) * (log - 1)
    exact = spread + total / lam
    problem = Problem(m1, m2, r, k, size, prior)
    assert exact <= rank_lemma(problem, n, lam)


def test_theorem_2_falls_with_answers_and_planning_inverts_it():
    problem = Problem(50, 40, 2)
    values = [theorem_2(problem, 0.05, n, 0.05, margin=1.25) for n in (10**4, 10**5, 10**6, 10**7)]
    assert all(a > b for a, b in itertools.pairwise(values))
    # Its limit is a little above twice the Bayes risk, more for a larger s.
    assert 0.1 < values[-1] < 0.16
    needed = answers_needed(problem, 0.2, 0.05)
    best = min(theorem_2(problem, 0.0, needed, 0.05, s=s) for s in np.linspace(0.05, 0.95, 19))
    assert best <= 0.2
    fewer = int(0.98 * needed)
    assert min(theorem_2(problem, 0.0, fewer, 0.05, s=s) for s in np.linspace(0.05, 0.95, 19)) > 0.2
    assert corollary_2(problem, 10**6, 0.05) == theorem_2(problem, 0.0, 10**6, 0.05, s=0.5)


def test_impossible_plans_are_refused():
    problem = Problem(50, 40, 2)
    with pytest.raises(ValueError, match="no number of answers"):
        answers_needed(problem, 0.1, 0.05, bayes_risk=0.1, margin=1.25)
    with pytest.raises(ValueError, match="lam <= n"):
        corollary_1(problem, 0.1, 100, 200.0, 0.05)
    with pytest.raises(ValueError, match="margin"):
        theorem_2(problem, 0.6, 100, 0.05)
    with pytest.raises(ValueError, match="rank 0"):
        Problem(5, 5, 0)
    for delta in (0.0, 1.0, -0.1, True):
        with pytest.raises(ValueError, match="delta must lie"):
            pac_bayes_kl(0.1, 1.0, 100, delta)


def test_corollary_1_is_theorem_1_with_the_rank_lemma():
    problem = Problem(50, 40, 2)
    value = corollary_1(problem, 0.3, 10**5, 10**4, 0.05)
    assert value == pytest.approx(theorem_1(0.3 + rank_lemma(problem, 10**5, 1e4), 0.0, 10**5, 1e4, 0.05))
