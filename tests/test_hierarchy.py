"""The hierarchical prior: its divergence, term by term."""

import numpy as np
import pytest

from onebit.hierarchy import Hierarchy, HyperPosterior
from onebit.posterior import Gaussians
from onebit.priors import Gamma, InverseGamma


def gaussian_kl(mean, variance, prior_mean_moments, inverse, log):
    """E over the prior's mean and variance of KL(N(mean, variance), N(prior mean, prior variance))."""
    centre, spread = prior_mean_moments
    square = (mean - centre) ** 2 + variance + spread
    return 0.5 * (inverse * square + log - np.log(variance) - 1.0)


@pytest.mark.parametrize("effects", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("prior", [InverseGamma(2.0, 0.7), Gamma(2.0, 3.0)], ids=repr)
def test_the_divergence_is_the_sum_of_its_parts(effects, prior, rng):
    shape, rank = (6, 4), 2
    hierarchy = Hierarchy(shape, rank, *effects, prior, InverseGamma(1.5, 0.4), 3.0)
    sides = [
        Gaussians(rng.standard_normal((m, rank + e)), rng.random((m, rank + e)) + 0.1, full=False)
        for m, e in zip(shape, effects, strict=True)
    ]
    sums = tuple(side.sums(hierarchy, k) for k, side in enumerate(sides))
    found = hierarchy.update(sums, hierarchy.update(sums, None))
    # Any intercept will do for the identity; a large one makes its terms visible.
    hyper = HyperPosterior(found.factors, found.row_effect, found.column_effect, 1.7, 0.6)
    if hierarchy.intercept_side is None:
        hyper = found
    total = float(hyper.factors.kl.sum())
    for k, side in enumerate(sides):
        for column in range(rank):
            inverse, log = hyper.factors.inverse[column], hyper.factors.log[column]
            total += gaussian_kl(
                side.mean[:, column], side.covariance[:, column], (0.0, 0.0), inverse, log
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
        return hierarchy.kl(
            sums, HyperPosterior(hyper.factors, hyper.row_effect, hyper.column_effect, mean, variance)
        )

    for shift in (-0.05, 0.05):
        assert moved(hyper.intercept_mean + shift, hyper.intercept_variance) > best
    for factor in (0.9, 1.1):
        assert moved(hyper.intercept_mean, hyper.intercept_variance * factor) > best
