"""Slices of how large columns of factors are, against known distributions and quadrature."""

import math

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import stats

from onebit.engine.sampling.slices import drawn_balances, drawn_stretches, slice_draw
from onebit.model.priors import Gamma, InverseGamma


@pytest.mark.parametrize(
    ("terms", "known"),
    [
        ((2.5, 0.0, -1.0, 0.0), stats.gamma(2.5)),
        ((-2.5, 1.0, 0.0, 0.0), stats.invgamma(2.5)),
        ((1.0, 0.0, 3.0, 2.0), stats.truncnorm(-1.5, np.inf, 0.75, 0.5)),  # of e^t, which is positive
    ],
    ids=["gamma", "inverse gamma", "normal"],
)
def test_a_slice_draw_leaves_its_density_as_it_is(terms, known):
    (a, b, c, d), x, found = terms, 0.3, []
    for sweep in range(8000):
        g = np.exp(x)  # the present value is the origin
        x += slice_draw(a, b / g, c * g, d * g * g, 1.0, (1, 2), 3, sweep)
        found.append(x)
    sample = np.exp(np.array(found))
    size = float(array_stats.ess(sample[None], chain_axis=0, draw_axis=1, method="mean"))
    assert abs(sample.mean() - known.mean()) < 4 * known.std() / np.sqrt(size)
    assert stats.kstest(sample[::8], known.cdf).pvalue > 1e-3


def test_stretches_are_drawn_given_each_other():
    """With two columns that pull at each other, long runs have the moments of quadrature."""
    curvature, pull = np.array([[9.0, np.nan], [5.0, 8.0]]), np.array([6.0, 5.0])
    prior, present, found = InverseGamma(2.0, 1.0), np.ones(2), []
    for sweep in range(6000):
        told = curvature * np.outer(present, present), pull * present, 0.7 * present
        present = present * drawn_stretches(*told, *prior.terms, (3, 4), sweep)
        found.append(present)
    t = np.linspace(-3.0, 1.5, 900)
    g, h = np.exp(t)[:, None], np.exp(t)[None, :]
    log = 6.0 * g + 5.0 * h - 4.5 * g**2 - 4.0 * h**2 - 5.0 * g * h
    log = log + sum(stats.invgamma(2.0).logpdf(0.7 * x) + np.log(x) for x in (g, h))
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    sample = np.array(found)
    for k, expected in enumerate(((weight * g).sum(), (weight * h).sum())):
        size = float(array_stats.ess(sample[None, :, k], chain_axis=0, draw_axis=1, method="mean"))
        assert abs(sample[:, k].mean() - expected) < 4 * sample[:, k].std() / np.sqrt(size)


@pytest.mark.parametrize("prior", [InverseGamma(2.0, 1.0), Gamma(3.0, 0.5)], ids=lambda prior: prior.name)
def test_balances_of_both_sides_are_drawn_given_each_other(prior):
    """Of few lines on one side and many on the other, long runs have the moments of quadrature."""
    lines, v, energies, found = (4, 30), 0.7, np.array([3.0, 50.0]), []
    first, second = np.linspace(-3.0, 3.5, 800)[:, None], np.linspace(-1.5, 1.5, 800)[None, :]
    power, inverse, rate = prior.terms
    log = (power + 1.0) * (first + second) - inverse / (v * np.exp(first + second))
    log = log - rate * v * np.exp(first + second)
    for size, energy, t in zip(lines, energies, (first, second), strict=True):
        log = log - size * t - 0.5 * energy / v * np.exp(-2.0 * t)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    expected = [(weight * np.log(v * np.exp(first + second))).sum(), (weight * first).sum()]
    expected += [(weight * second).sum()]
    at = np.zeros(2)
    for sweep in range(6000):
        present = energies * np.exp(at[::-1] - at), np.array([v * np.exp(at.sum())])
        drawn = drawn_balances(lines, present[0][:, None], present[1], *prior.terms, (3, 4), sweep)
        at += np.log(drawn[:, 0])
        found.append([np.log(v) + at.sum(), *at])
    sample = np.array(found)
    for k, moment in enumerate(expected):
        size = float(array_stats.ess(sample[None, :, k], chain_axis=0, draw_axis=1, method="mean"))
        assert size > 1000
        assert abs(sample[:, k].mean() - moment) < 4 * sample[:, k].std() / np.sqrt(size)


def test_balances_of_equal_columns_and_sides_are_draws_of_their_own():
    alike = np.full((2, 3), 5.0), np.full(3, 0.7)
    drawn = drawn_balances(np.array([6.0, 6.0]), *alike, -3.0, 1e-9, 0.0, (3, 4), 0)
    assert len(set(drawn.ravel().round(6))) == 6
    again = drawn_balances(np.array([6.0, 6.0]), *alike, -3.0, 1e-9, 0.0, (3, 4), 1)
    assert not np.intersect1d(drawn.round(6), again.round(6)).size


@pytest.mark.parametrize(
    "terms",
    [
        (0.0, 0.0, 2e20, 1e20),  # a needle: its one point within reach of doubles is the present one
        (math.nan, 0.0, 0.0, 0.0),
        (0.0, math.inf, 0.0, 0.0),
    ],
    ids=["a needle", "not a number", "nothing"],
)
def test_a_slice_that_cannot_be_drawn_from_keeps_its_value(terms):
    assert slice_draw(*terms, 1.0, (1, 2), 0, 0) == 0.0


def test_a_slice_ends_at_a_wall_and_where_the_variance_is_no_double():
    assert 1.0 < slice_draw(1e300, 0.0, 0.0, 0.0, 1.0, (1, 2), 0, 0) < 32.0
    flat = [slice_draw(0.0, 0.0, 0.0, 0.0, 1e308, (1, 2), 0, sweep) for sweep in range(200)]
    assert max(flat) < np.log(np.finfo(float).max) - np.log(1e308)
    assert min(flat) < -10.0
