"""The hierarchical prior: its divergence, term by term."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from onebit.model.gaussians import Gaussians
from onebit.model.hierarchy import Hierarchy
from onebit.model.priors import Gamma, InverseGamma


def gaussian_kl(mean, variance, prior_mean_moments, inverse, log):
    """E over the prior's mean and variance of KL(N(mean, variance), N(prior mean, prior variance))."""
    centre, spread = prior_mean_moments
    square = (mean - centre) ** 2 + variance + spread
    return 0.5 * (inverse * square + log - np.log(variance) - 1.0)


@pytest.mark.parametrize("means", [False, True])
@pytest.mark.parametrize("effects", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("prior", [InverseGamma(2.0, 0.7), Gamma(2.0, 3.0)], ids=repr)
def test_the_divergence_is_the_sum_of_its_parts(effects, prior, means, rng):
    shape, rank = (6, 4), 2
    hierarchy = Hierarchy(shape, rank, *effects, prior, InverseGamma(1.5, 0.4), 3.0, factor_means=means)
    sides = [
        Gaussians(rng.standard_normal((m, rank + e)), rng.random((m, rank + e)) + 0.1, full=False)
        for m, e in zip(shape, effects, strict=True)
    ]
    sums = tuple(side.sums(hierarchy, k) for k, side in enumerate(sides))
    found = hierarchy.update(sums, hierarchy.update(sums, None))
    # Any intercept will do for the identity; a large one makes its terms visible.
    hyper = replace(found, intercept_mean=1.7, intercept_variance=0.6)
    if hierarchy.intercept_side is None:
        hyper = found
    total = float(hyper.factors.kl.sum())
    for k, side in enumerate(sides):
        for column in range(rank):
            inverse, log = hyper.factors.inverse[column], hyper.factors.log[column]
            mean, centre = 0.0, (0.0, 0.0)
            if means and effects[1 - k]:
                # The mean has the variance gamma / (m + 1): over gamma that is one number.
                mean = side.mean[:, column].sum() / (shape[k] + 1)
                share = 1.0 / (shape[k] + 1)
                centre = mean, share / inverse
                total += 0.5 * (inverse * mean**2 + share - 1.0 - np.log(share))
            total += gaussian_kl(
                side.mean[:, column], side.covariance[:, column], centre, inverse, log
            ).sum()
        if effects[k]:
            effect = hyper.effect(k)
            centre = (1.7, 0.6) if k == hierarchy.intercept_side else (0.0, 0.0)
            terms = gaussian_kl(
                side.mean[:, rank], side.covariance[:, rank], centre, effect.inverse[0], effect.log[0]
            )
            total += terms.sum() + effect.kl[0]
    if hierarchy.intercept_side is not None:
        total += 0.5 * ((1.7**2 + 0.6) / 3.0 - 1.0 - np.log(0.6 / 3.0))
    assert hierarchy.kl(sums, hyper) == pytest.approx(total, rel=1e-10)


def test_the_intercept_is_the_best_one_for_the_effects(rng):
    hierarchy = Hierarchy((8, 5), 1, True, True, InverseGamma(1.0, 1.0), InverseGamma(1.0, 1.0), 3.0)
    sides = [Gaussians(rng.standard_normal((m, 2)) + 1, np.full((m, 2), 0.2), full=False) for m in (8, 5)]
    sums = tuple(side.sums(hierarchy, k) for k, side in enumerate(sides))
    hyper = hierarchy.update(sums, None)
    for _ in range(200):
        hyper = hierarchy.update(sums, hyper)
    best = hierarchy.kl(sums, hyper)

    def moved(mean, variance):
        return hierarchy.kl(sums, replace(hyper, intercept_mean=mean, intercept_variance=variance))

    for shift in (-0.05, 0.05):
        assert moved(hyper.intercept_mean + shift, hyper.intercept_variance) > best
    for factor in (0.9, 1.1):
        assert moved(hyper.intercept_mean, hyper.intercept_variance * factor) > best


@pytest.fixture
def with_means():
    priors = InverseGamma(2.0, 0.7), InverseGamma(1.5, 0.4)
    return Hierarchy((6, 4), 2, True, True, *priors, 3.0, factor_means=True)


def test_the_means_are_the_best_ones_for_the_factors(with_means, rng):
    sides = [Gaussians(rng.standard_normal((m, 3)) + 1, np.full((m, 3), 0.2), full=False) for m in (6, 4)]
    sums = tuple(side.sums(with_means, k) for k, side in enumerate(sides))
    hyper = with_means.update(sums, with_means.update(sums, None))
    best = with_means.kl(sums, hyper)
    for side in (0, 1):
        for change in (-0.05, 0.05):
            means = hyper.means.copy()
            means[side, 1] += change
            assert with_means.kl(sums, replace(hyper, means=means)) > best


def test_the_prior_of_the_factors_has_their_means_and_variances_integrated_out(with_means, rng):
    """Against one-dimensional quadrature over the variance of the joint normal density."""
    values = tuple(rng.standard_normal((m, 3)) for m in with_means.shape)
    total = stats.norm(0, np.sqrt(3.0)).logpdf(0.3)
    for k, (part, centre) in enumerate(zip(values, (0.3, 0.0), strict=True)):
        grid = np.exp(np.linspace(-8, 8, 4001))
        density = stats.norm(centre, np.sqrt(grid)).logpdf(part[:, 2:3]).sum(axis=0)
        total += _log_integral(density + stats.invgamma(1.5, scale=0.4).logpdf(grid), grid)
        assert part.shape[0] == with_means.shape[k]
    for column in range(2):
        grid = np.exp(np.linspace(-8, 8, 4001))
        density = stats.invgamma(2.0, scale=0.7).logpdf(grid)
        for part in values:
            correlated = stats.multivariate_normal(cov=np.eye(len(part)) + 1.0)
            for at, variance in enumerate(grid):
                density[at] += correlated.logpdf(part[:, column] / np.sqrt(variance))
            density -= 0.5 * len(part) * np.log(grid)
        total += _log_integral(density, grid)
    assert with_means.log_prior(values, 0.3) == pytest.approx(total, rel=1e-6)


def _log_integral(log_density, grid):
    return float(np.log(np.trapezoid(np.exp(log_density) * grid, np.log(grid))))
