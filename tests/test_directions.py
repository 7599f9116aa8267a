"""Directions: their density, its bound, and a divergence below the Gaussian one."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from onebit import GibbsCompleter, HingeCompleter, Observations
from onebit.certificates.directions import (
    Directions,
    apply_to,
    divergence,
    draw_log_ratio,
    log_radial_integral,
)
from onebit.model.gaussians import Gaussians


@pytest.fixture(scope="module")
def posterior(small_world):
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    return HingeCompleter(3, effects=False, calibrate=False, random_state=0).fit(seen).posterior_


@pytest.mark.parametrize("rank", [1, 2, 5, 20, 200])
@pytest.mark.parametrize("shift", [-25.0, -3.0, -0.2, 0.0, 0.7, 8.0, 60.0])
def test_the_radial_integral_agrees_with_high_precision(rank, shift):
    def integrand(s):
        return s ** (rank - 1) * mpmath.e ** (-((s - shift) ** 2) / 2)

    mode = (shift + math.sqrt(shift**2 + 4 * (rank - 1))) / 2
    steps = (-12, -6, -3, -1, -0.3, -0.1, -0.03, 0, 0.03, 0.1, 0.3, 1, 3, 6, 12, 30)
    points = sorted({0.0, *(max(mode + step, 0.0) for step in steps)})
    expected = float(mpmath.log(mpmath.quad(integrand, points)))
    assert log_radial_integral(rank, np.array([shift]))[0] == pytest.approx(expected, abs=1e-6)


def one(mean, covariance):
    size = len(mean)
    packed = np.asarray(covariance, dtype=float)[np.tril_indices(size)]
    return Gaussians(np.array([mean]), packed[None], True)


def test_the_density_on_the_circle_is_that_of_drawn_directions():
    gaussians = one([1.0, -0.5], [[0.8, 0.3], [0.3, 0.5]])
    directions = Directions.of(gaussians)
    angles = np.linspace(-np.pi, np.pi, 721)[:-1]
    units = np.column_stack([np.cos(angles), np.sin(angles)])
    density = np.exp([directions.log_ratio(unit[None, None])[0, 0] for unit in units]) / (2 * np.pi)
    assert density.sum() * (angles[1] - angles[0]) == pytest.approx(1.0, abs=1e-9)
    drawn = directions.sample(20_000, np.random.default_rng(0))[:, 0]
    cumulative = np.cumsum(density) * (angles[1] - angles[0])
    found = np.interp(np.arctan2(drawn[:, 1], drawn[:, 0]), angles, cumulative)
    assert stats.kstest(found, "uniform").pvalue > 1e-3
    assert np.exp(directions.largest()[0]) / (2 * np.pi) >= density.max()


def test_an_isotropic_gaussian_around_zero_has_uniform_directions():
    directions = Directions.of(one([0.0] * 4, 2.5 * np.eye(4)))
    values = np.random.default_rng(0).standard_normal((6, 1, 4))
    assert directions.log_ratio(values) == pytest.approx(0.0, abs=1e-12)


def test_one_coordinate_has_two_directions():
    directions = Directions.of(one([0.7], [[0.49]]))
    chance = stats.norm.cdf(1.0)
    ratio = directions.log_ratio(np.array([[[3.0]], [[-0.2]]]))[:, 0]
    assert np.exp(ratio) / 2 == pytest.approx([chance, 1 - chance])


def test_the_bound_on_the_divergence_holds_as_often_as_it_says(posterior, monkeypatch):
    monkeypatch.setattr("onebit.certificates.directions.TARGET", 1.0)  # a single draw
    assert apply_to(posterior)
    rng = np.random.default_rng(0)
    few = [divergence(posterior, 100, 0.2, rng) for _ in range(40)]
    monkeypatch.setattr("onebit.certificates.directions.TARGET", 0.02)
    many = divergence(posterior, 100, 0.2, rng)
    assert few[0].draws < many.draws
    assert np.mean([found.upper >= many.estimate for found in few]) >= 0.8
    assert np.mean([found.estimate for found in few]) == pytest.approx(many.estimate, rel=0.05)


def test_fewer_draws_are_a_rougher_estimate_with_a_wider_bound(posterior):
    fine = divergence(posterior, 1000, 0.05, np.random.default_rng(0))
    rough = divergence(posterior, 1000, 0.05, np.random.default_rng(1), 9)
    assert rough.draws == 9 < fine.draws
    term, more = (found.upper - found.estimate for found in (fine, rough))
    assert more == pytest.approx(term * math.sqrt(fine.draws / rough.draws))
    assert abs(rough.estimate - fine.estimate) < more


def test_directions_cost_less_than_factors_with_their_lengths(small_world):
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    model = GibbsCompleter(3, effects=False, temperature=2.0, random_state=0).fit(seen, certify=0)
    found = divergence(model.posterior_, seen.n, 0.01, np.random.default_rng(0))
    assert found.estimate < found.upper < model.posterior_.kl
    rng = np.random.default_rng(1)
    ratios = []
    for _ in range(200):
        draw = model.posterior_.sample(rng)
        ratios.append(draw_log_ratio(model.posterior_, draw.rows, draw.columns))
    assert np.mean(ratios) == pytest.approx(found.estimate, abs=5 * np.std(ratios) / math.sqrt(200))


def test_effects_have_no_directions(small_world):
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    model = HingeCompleter(2, effects=True, calibrate=False, max_iter=3).fit(seen)
    assert not apply_to(model.posterior_)
