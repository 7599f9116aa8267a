"""The change of coordinates: no score moves, the divergence falls."""

import numpy as np
import pytest

from onebit import LogisticCompleter, Observations
from onebit.data.sorting import View
from onebit.engine.cpu.side import Side
from onebit.engine.cpu.threads import Threads
from onebit.engine.rotation import Change, _column_scales, best_coordinates
from onebit.model.priors import Gamma, InverseGamma


@pytest.fixture(params=["inverse-gamma", "gamma"])
def posterior(request, small_world):
    """A posterior after a few rounds only: there is still something to gain."""
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    return LogisticCompleter(4, pattern=None, prior=request.param, max_iter=3).fit(seen).posterior_


def sides_of(posterior):
    none = View(*(np.zeros(0, kind) for kind in (np.int64, np.int32, np.int8, np.float32)))
    return tuple(
        Side(g, posterior.hierarchy, k, none, Threads(1, None)) for k, g in enumerate(posterior.sides)
    )


def skewed(sides, rng):
    """Turn the factors away from the best coordinates."""
    turn = rng.standard_normal((4, 4)) + 2 * np.eye(4)
    sides[0].change_coordinates(Change.of_factors(turn, 5))
    sides[1].change_coordinates(Change.of_factors(np.linalg.inv(turn).T, 5))
    for side in (0, 1):
        shift, shear = 0.3 * rng.standard_normal(4), np.eye(5)
        shear[:4, 4] = -shift
        sides[side].change_coordinates(Change(np.eye(5), np.append(shift, 0.0)))
        sides[1 - side].change_coordinates(Change(shear, np.zeros(5)))
    return sides


def coordinates_of(posterior, sides):
    moments = tuple(side.second_moment() for side in sides)
    sums = tuple(side.sums() for side in sides)
    return best_coordinates(posterior.hierarchy, moments, sums, posterior.hyper), sums


def test_no_score_notices_a_change_of_coordinates(posterior, rng):
    from onebit.model.posterior import Posterior

    sides = skewed(sides_of(posterior), rng)
    moved = Posterior(sides[0].gaussians(), sides[1].gaussians(), posterior.hyper, posterior.hierarchy)
    rows, columns = rng.integers(50, size=30), rng.integers(40, size=30)
    for before, after in zip(
        posterior.score_moments(rows, columns), moved.score_moments(rows, columns), strict=True
    ):
        np.testing.assert_allclose(after, before, rtol=1e-9)
    np.testing.assert_allclose(
        sides[0].sums().log_determinant, moved.rows.sums(moved.hierarchy, 0).log_determinant, rtol=1e-9
    )


def test_the_step_lowers_the_divergence_to_what_it_says(posterior, rng):
    sides = skewed(sides_of(posterior), rng)
    better, sums = coordinates_of(posterior, sides)
    before = posterior.hierarchy.kl(sums, posterior.hyper)
    for side, change in zip(sides, better.changes, strict=True):
        side.change_coordinates(change)
    after = tuple(side.sums() for side in sides)
    for found, said in zip(after, better.sums, strict=True):
        np.testing.assert_allclose(found.first_moment, said.first_moment, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.second_moment, said.second_moment, rtol=1e-8)
    reached = posterior.hierarchy.kl(after, better.hyper)
    assert reached == pytest.approx(posterior.hierarchy.kl(better.sums, better.hyper), rel=1e-9)
    assert reached < before
    # Both second moments around the means are diagonal now.
    for k, side in enumerate(sides):
        mean = side.sums().first_moment[:4]
        moment = side.second_moment()[:4, :4] - posterior.hierarchy.mean_share(k) * np.outer(mean, mean)
        off = moment - np.diag(np.diag(moment))
        assert np.abs(off).max() < 1e-6 * np.abs(moment).max()


@pytest.mark.parametrize("prior", [InverseGamma(1.0, 2.0), Gamma(3.0, 20.0)], ids=repr)
def test_the_scales_of_the_columns_are_the_best_ones(posterior, prior):
    from dataclasses import replace

    hierarchy = replace(posterior.hierarchy, shape=(300, 20), factor_prior=prior)
    energy = np.array([40.0, 3.0, 0.2])
    scale = _column_scales(hierarchy, energy)

    def objective(s):
        total = s + energy / s
        divergence = prior.posterior(320, total).gaussian_kl(320, total)
        return (divergence - 0.5 * (300 - 20) * np.log(s)).sum()

    for factor in (0.9, 0.98, 1.02, 1.1):
        assert objective(scale * factor) > objective(scale) - 1e-4
