"""The change of coordinates: no score moves, the divergence falls."""

import numpy as np
import pytest

from onebit import LogisticCompleter, Observations
from onebit.engine.rotation import _column_scales, best_rotation
from onebit.engine.side import Side
from onebit.observations import View
from onebit.priors import Gamma, InverseGamma
from onebit.threads import Threads


@pytest.fixture(params=["inverse-gamma", "gamma"])
def posterior(request, small_world):
    """A posterior after a few rounds only: there is still something to gain."""
    seen = Observations.from_pairs(small_world.pairs, small_world.answers)
    return LogisticCompleter(4, prior=request.param, max_iter=3).fit(seen).posterior_


def sides_of(posterior):
    none = View(*(np.zeros(0, kind) for kind in (np.int64, np.int32, np.int8, np.float32)))
    return tuple(
        Side(g, posterior.hierarchy, k, none, Threads(1, None)) for k, g in enumerate(posterior.sides)
    )


def skewed(sides, rng):
    """Turn the factors away from the best coordinates."""
    change = rng.standard_normal((4, 4)) + 2 * np.eye(4)
    sides[0].change_coordinates(change)
    sides[1].change_coordinates(np.linalg.inv(change).T)
    return sides


def rotation_of(posterior, sides):
    moments = tuple(side.factor_moment() for side in sides)
    sums = tuple(side.sums() for side in sides)
    return best_rotation(posterior.hierarchy, moments, sums, posterior.hyper), sums


def test_no_score_notices_a_change_of_coordinates(posterior, rng):
    from onebit.posterior import Posterior

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
    rotation, sums = rotation_of(posterior, sides)
    before = posterior.hierarchy.kl(sums, posterior.hyper)
    sides[0].change_coordinates(rotation.rows)
    sides[1].change_coordinates(rotation.columns)
    after = tuple(side.sums() for side in sides)
    np.testing.assert_allclose(after[0].second_moment, rotation.sums[0].second_moment, rtol=1e-8)
    np.testing.assert_allclose(after[1].second_moment, rotation.sums[1].second_moment, rtol=1e-8)
    reached = posterior.hierarchy.kl(after, rotation.hyper)
    assert reached == pytest.approx(posterior.hierarchy.kl(rotation.sums, rotation.hyper), rel=1e-9)
    assert reached < before
    # Both second moments are diagonal now, and there is nothing more to gain.
    moments = tuple(side.factor_moment() for side in sides)
    assert best_rotation(posterior.hierarchy, moments, after, rotation.hyper) is None
    for side in sides:
        moment = side.factor_moment()
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
