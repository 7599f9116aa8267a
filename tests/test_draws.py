"""The random numbers of the sampler: known answers, moments and distribution functions."""

import math

import numba
import numpy as np
import pytest
from scipy import integrate, stats

from onebit.engine.sampling.philox import chain_key, random_words
from onebit.engine.sampling.room import proposals_room
from onebit.engine.sampling.variates import (
    _is_taken,
    draw_inverse_gaussian,
    draw_normal,
    draw_polya_gamma,
    polya_gamma_hats,
    polya_gammas,
)
from onebit.model.gig import generalised_inverse_gaussian
from onebit.model.priors import Gamma, InverseGamma

ONE_EACH = np.empty(0, np.int64)
N = 200_000


@numba.njit
def _words(key, a, b, c, d):
    return random_words(key, a, b, c, d)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF, 0xFFFFFFFF),
            (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_generator_gives_the_published_answers(key, counter, words):
    assert _words(key, *counter) == words


def polya_gamma(score: float, copies: int = 1, n: int = N, sweep: int = 1) -> np.ndarray:
    out = np.empty(n)
    repeated = ONE_EACH if copies == 1 else np.full(n, copies)
    scores, key = np.full(n, score, np.float32), chain_key(7, 0)
    draw_polya_gamma(polya_gamma_hats(), scores, repeated, key, sweep, proposals_room(), out)
    return out


def moments(score: float) -> tuple[float, float]:
    """Return mean and variance of PG(1, score)."""
    if score == 0:
        return 0.25, 1 / 24
    mean = np.tanh(score / 2) / (2 * score)
    return mean, (np.tanh(score / 2) - score / (2 * np.cosh(score / 2) ** 2)) / (2 * score**3)


def density(x: np.ndarray, score: float) -> np.ndarray:
    """Return the density of PG(1, score) from its series, as Polson, Scott and Windle print it."""
    n = np.arange(60)[:, None]
    terms = (-1.0) ** n * (2 * n + 1) / np.sqrt(2 * np.pi * x**3) * np.exp(-((2 * n + 1) ** 2) / (8 * x))
    return np.cosh(score / 2) * np.exp(-(score**2) * x / 2) * terms.sum(axis=0)


@pytest.mark.parametrize("score", [0.0, 0.06, -0.7, 2.3, 5.0, 11.9, 19.9, 25.0, -140.0, 600.0])
def test_polya_gamma_draws_have_their_moments(score):
    drawn = polya_gamma(score)
    mean, variance = moments(abs(score))
    assert drawn.min() > 0
    assert abs(drawn.mean() - mean) < 4 * np.sqrt(variance / N)
    fourth = ((drawn - drawn.mean()) ** 4).mean()
    assert abs(drawn.var() - variance) < 4 * np.sqrt((fourth - variance**2) / N)


@pytest.mark.parametrize("score", [0.0, 0.9, 3.04, 8.0, 21.0, 33.0])
def test_polya_gamma_draws_have_their_distribution_function(score):
    mean, variance = moments(score)
    grid = np.linspace(1e-6, mean + 25 * np.sqrt(variance), 40_001)
    below = integrate.cumulative_simpson(density(grid, score), x=grid, initial=0)
    assert below[-1] == pytest.approx(1, abs=1e-6)
    drawn = polya_gamma(score, sweep=2)
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, below)).pvalue > 1e-3


@pytest.mark.parametrize("score", [1.3, 25.0])
def test_a_whole_weight_is_a_sum_of_polya_gamma_draws(score):
    drawn, (mean, variance) = polya_gamma(score, copies=3), moments(score)
    assert abs(drawn.mean() - 3 * mean) < 4 * np.sqrt(3 * variance / N)
    assert drawn.var() == pytest.approx(3 * variance, rel=0.03)


def test_draws_of_near_and_far_scores_side_by_side_have_their_moments_and_are_independent():
    scores = np.resize(np.array([2.0, 24.0, 30.0, 0.5, 21.0], np.float32), N)
    out, none = np.empty(len(scores)), np.empty(0, np.int64)
    draw_polya_gamma(polya_gamma_hats(), scores, none, chain_key(9, 0), 1, proposals_room(), out)
    drawn = out.reshape(-1, 5)
    for column, score in zip(drawn.T, scores[:5], strict=True):
        mean, variance = moments(float(score))
        assert abs(column.mean() - mean) < 4 * np.sqrt(variance / len(drawn))
        assert column.var() == pytest.approx(variance, rel=0.06)
    # By normal scores, so that no heavy tail hides anything. Two near answers share a call of the
    # generator, numbered by their pair: that of a far answer with this number is for something else.
    normal = stats.norm.ppf(stats.rankdata(drawn, axis=0) / (len(drawn) + 1)).ravel()
    for other in (0, 1):
        number = np.arange(len(out) // 2)
        number = number[(scores[number] > 20) & (scores[2 * number + other] < 20)]
        found = np.corrcoef(normal[number], normal[2 * number + other])[0, 1]
        assert abs(found) < 4 / np.sqrt(len(number))


def test_far_proposals_are_taken_as_often_as_the_density_is_below_their_hat():
    """Devroye's density over the first term of its series; below a certain place it is one."""

    @numba.njit
    def taken(x, words, out):
        for k in range(len(words)):
            out[k] = _is_taken(x, words[k])

    words, out = np.linspace(0, 2**32 - 1, 4096).astype(np.uint32), np.empty(4096)
    n = np.arange(40)[:, None]
    for x in (0.1, 0.3, 0.6, 0.7, 1.5):
        terms = (-1.0) ** n * (2 * n + 1) * np.exp(-((2 * n + 1) ** 2 - 1) / (2 * x))
        taken(x, words, out)
        assert out.mean() == pytest.approx(terms.sum(), abs=1e-3)
        assert (np.diff(out) <= 0).all()


@pytest.mark.parametrize("inverse_mean", [0.01, 0.4, 3.0, 40.0])
def test_inverse_gaussian_draws_have_their_distribution_function(inverse_mean):
    out = np.empty(N)
    draw_inverse_gaussian(np.full(N, inverse_mean), chain_key(3, 0), 1, out)
    # SciPy's mean is relative to its scale, which is the shape.
    assert stats.kstest(out, stats.invgauss(1 / inverse_mean).cdf).pvalue > 1e-3


def test_an_inverse_gaussian_of_infinite_mean_is_one_over_a_squared_normal():
    out = np.empty(N)
    draw_inverse_gaussian(np.zeros(N), chain_key(3, 1), 1, out)
    assert stats.kstest(1 / out, stats.chi2(1).cdf).pvalue > 1e-3


def test_normal_draws_are_normal_and_independent():
    out = np.empty(N)
    draw_normal(chain_key(5, 0), 1, out)
    assert stats.kstest(out, "norm").pvalue > 1e-3
    for lag in (1, 2, 3):
        assert abs(np.mean(out[lag:] * out[:-lag])) < 4 / np.sqrt(N)


@pytest.mark.parametrize(
    ("order", "a", "b"), [(-0.5, 1, 1), (3, 0.1, 2), (-20, 1, 1e-6), (0, 1, 1), (0.2, 0.01, 0.01)]
)
def test_generalised_inverse_gaussian_draws_have_their_distribution_function(order, a, b):
    rng = np.random.default_rng(1)
    drawn = generalised_inverse_gaussian(np.full(4000, order), a, b, rng)
    known = stats.geninvgauss(order, np.sqrt(a * b)).cdf
    assert stats.kstest(drawn / np.sqrt(b / a), known).pvalue > 1e-3


@pytest.mark.parametrize(("count", "energy"), [(2000, 800.0), (100_000, 3e4), (400, 1e-8)])
@pytest.mark.parametrize("prior", [Gamma(1.5, 2.0), InverseGamma(1.0, 0.3)])
def test_drawn_variances_have_the_moments_of_their_posterior(prior, count, energy):
    known = prior.posterior(count, [energy])
    rng = np.random.default_rng(2)
    drawn = prior.draw(count, np.full(3000, energy), rng)
    for values, mean in (
        (drawn, known.mean[0]),
        (1 / drawn, known.inverse[0]),
        (np.log(drawn), known.log[0]),
    ):
        assert abs(values.mean() - mean) < 4.5 * values.std() / np.sqrt(3000)


@pytest.mark.parametrize("prior", [Gamma(1.5, 2.0), InverseGamma(2.0, 0.3)])
def test_the_terms_of_a_log_density_are_those_of_the_prior(prior):
    known = stats.gamma(1.5, scale=0.5) if prior.name == "gamma" else stats.invgamma(2.0, scale=0.3)
    points = [0.05, 0.4, 2.0]
    power, inverse, rate = prior.terms
    difference = [power * np.log(x) - inverse / x - rate * x - known.logpdf(x) for x in points]
    assert np.ptp(difference) < 1e-9


class Stubborn:
    """Uniform numbers under which nothing is ever accepted."""

    def random(self, shape):
        self.asked = getattr(self, "asked", 0) + 1
        assert self.asked < 1e5, "the rejections go on for ever"
        return np.full(shape, math.nan)


def test_rejections_without_end_end_in_a_finite_draw():
    assert generalised_inverse_gaussian(2.0, 1.0, 3.0, Stubborn()) > 0


@pytest.mark.parametrize("order", [0.0, 1e-3, 1.0, -1e4])
def test_arguments_whose_product_vanishes_still_give_a_draw(order):
    draw = generalised_inverse_gaussian(order, 1e-290, 1e-290, np.random.default_rng(0))
    assert 0 < draw < math.inf


def test_a_score_that_is_no_number_picks_no_place_outside_of_the_tables():
    """As plain Python, which refuses to make a whole number of it; what machines make of it differs."""
    scores, out = np.array([np.nan, 1.0, 1e6, 2.0], np.float32), np.zeros(4, np.float32)
    none = np.empty(0, np.int64)
    polya_gammas.py_func(
        polya_gamma_hats(), 4, scores, none, chain_key(7, 0), 0, 0, 1, 0, proposals_room(), out
    )
    assert np.isnan(out[0])  # a diverged chain is to be seen
    assert 0.0 < out[2] < 1e-6
    assert 0.0 < out[3] < 10.0
