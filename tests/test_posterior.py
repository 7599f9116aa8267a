"""The posterior: exact moments, divergence and samples, against Monte Carlo."""

import numpy as np
import pytest
from scipy import stats

from onebit import HingeCompleter, LogisticCompleter, Posterior

FAMILIES = pytest.mark.parametrize("covariance", ["full", "diagonal"])


@pytest.fixture(scope="module", params=["full", "diagonal"])
def posterior(request, small_world):
    model = LogisticCompleter(3, pattern=None, covariance=request.param, max_iter=30)
    return model.fit(small_world.pairs, small_world.answers).posterior_


def test_score_moments_agree_with_samples(posterior):
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(50, size=40), rng.integers(40, size=40)
    draws = np.array([posterior.sample(rng).scores(rows, columns) for _ in range(3000)])
    mean, variance = posterior.score_moments(rows, columns)
    error = np.sqrt(variance / len(draws))
    assert np.abs(draws.mean(axis=0) - mean).max() < 4.5 * error.max()
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.2)


def test_an_unknown_row_has_the_moments_of_its_prior(posterior):
    """Monte Carlo over a new row drawn from the hierarchy, at its posterior mean variances."""
    rng = np.random.default_rng(0)
    hyper, rank = posterior.hyper, posterior.hierarchy.rank
    n = 40_000
    share = 1 / (posterior.shape[0] + 1)  # what is not known of the factors' mean
    factors = rng.normal(hyper.means[0], np.sqrt(hyper.factors.mean * (1 + share)), (n, rank))
    effect = rng.normal(
        hyper.intercept_mean, np.sqrt(hyper.row_effect.mean[0] + hyper.intercept_variance), n
    )
    column = 4
    cholesky = np.linalg.cholesky(posterior.columns.dense_covariance()[column])
    draws = posterior.columns.mean[column] + rng.standard_normal((n, rank + 1)) @ cholesky.T
    scores = (factors * draws[:, :rank]).sum(axis=1) + effect + draws[:, rank]
    mean, variance = posterior.score_moments([-1], [column])
    assert scores.mean() == pytest.approx(mean[0], abs=5 * np.sqrt(variance[0] / n))
    assert scores.var() == pytest.approx(variance[0], rel=0.05)


def test_both_unknown_is_the_prior_alone(posterior):
    mean, variance = posterior.score_moments([-1], [-1])
    hyper = posterior.hyper
    assert mean[0] == pytest.approx(hyper.intercept_mean + hyper.means[0] @ hyper.means[1])
    known = posterior.score_moments([3], [5])[1]
    assert variance[0] > known[0]


@pytest.mark.parametrize("prior", ["inverse-gamma", "gamma"])
@FAMILIES
def test_the_divergence_agrees_with_monte_carlo(small_world, covariance, prior):
    """KL(rho, pi) = E_rho[log rho - log pi], over factors, effects, variances, intercept and means."""
    model = LogisticCompleter(2, pattern=None, covariance=covariance, prior=prior, max_iter=20)
    posterior = model.fit(small_world.pairs, small_world.answers).posterior_
    hierarchy, hyper = posterior.hierarchy, posterior.hyper
    rng = np.random.default_rng(1)
    m1, m2 = posterior.shape
    sums = [side.sums(hierarchy, k) for k, side in enumerate(posterior.sides)]
    energy = sum(s.second_moment[:2] - s.first_moment[:2] ** 2 / (s.size + 1) for s in sums)

    def variance_law(prior, count, energy):
        """The optimal rho^gamma and the prior as scipy distributions."""
        if prior.name == "gamma":
            a, b = 2 * prior.rate, energy
            law = stats.geninvgauss(prior.shape - count / 2, np.sqrt(a * b), scale=np.sqrt(b / a))
            return law, stats.gamma(prior.shape, scale=1 / prior.rate)
        return (
            stats.invgamma(prior.shape + count / 2, scale=prior.scale + energy / 2),
            stats.invgamma(prior.shape, scale=prior.scale),
        )

    draws = 1000
    total = np.zeros(draws)
    # The stored hyper-posterior belongs to the final factors: the last step of a round updates it.
    laws = [variance_law(hierarchy.factor_prior, m1 + m2, e) for e in energy]
    mu, mu_var = hyper.intercept_mean, hyper.intercept_variance
    row_energy = sums[0].second_moment[2] + m1 * (mu**2 + mu_var) - 2 * mu * sums[0].first_moment[2]
    laws.append(variance_law(hierarchy.effect_prior, m1, row_energy))
    laws.append(variance_law(hierarchy.effect_prior, m2, sums[1].second_moment[2]))
    gammas = []
    for law, prior_law in laws:
        gamma = law.rvs(draws, random_state=rng)
        total += law.logpdf(gamma) - prior_law.logpdf(gamma)
        gammas.append(gamma)
    intercept = rng.normal(mu, np.sqrt(mu_var), draws)
    total += stats.norm.logpdf(intercept, mu, np.sqrt(mu_var))
    total -= stats.norm.logpdf(intercept, 0, np.sqrt(hierarchy.intercept_variance))
    for side, gaussians in enumerate(posterior.sides):
        deviation = np.sqrt(np.array(gammas[:2]).T)
        share = 1 / (len(gaussians.mean) + 1)
        means = rng.normal(hyper.means[side], deviation * np.sqrt(share))
        total += stats.norm.logpdf(means, hyper.means[side], deviation * np.sqrt(share)).sum(axis=1)
        total -= stats.norm.logpdf(means, 0, deviation).sum(axis=1)
        dense = gaussians.dense_covariance()
        cholesky = np.linalg.cholesky(dense)
        half_log_det = np.log(np.diagonal(cholesky, axis1=1, axis2=2)).sum()
        for d in range(draws):
            noise = rng.standard_normal(gaussians.mean.shape)
            value = gaussians.mean + np.einsum("mab,mb->ma", cholesky, noise)
            spread = np.array([gammas[0][d], gammas[1][d], gammas[2 + side][d]])
            centre = np.array([*means[d], intercept[d] if side == 0 else 0.0])
            total[d] += -0.5 * (noise**2).sum() - half_log_det
            total[d] += 0.5 * (((value - centre) ** 2) / spread).sum()
            total[d] += 0.5 * len(value) * np.log(spread).sum()
    error = total.std() / np.sqrt(draws)
    assert posterior.kl == pytest.approx(total.mean(), abs=5 * error)
    assert error < 0.03 * posterior.kl


def test_the_objective_is_above_the_expected_loss_plus_divergence(small_world):
    """The chain of bounds: E[loss] + KL / lambda <= objective, by Monte Carlo."""
    rng = np.random.default_rng(2)
    for completer in (LogisticCompleter, HingeCompleter):
        model = completer(3).fit(small_world.pairs, small_world.answers)
        rows, columns = model._codes(small_world.pairs)
        losses = [
            model._loss.value(
                small_world.answers * model.posterior_.sample(rng).scores(rows, columns)
            ).mean()
            for _ in range(300)
        ]
        lower = np.mean(losses) + model.posterior_.kl / len(small_world.answers)
        assert lower <= model.objective_ + 3 * np.std(losses) / np.sqrt(300)


def test_arrays_cannot_be_written(posterior):
    with pytest.raises(ValueError, match="read-only"):
        posterior.rows.mean[0, 0] = 1.0


def test_a_saved_posterior_comes_back_the_same(posterior, tmp_path):
    posterior.save(tmp_path / "p.onebit")
    again = Posterior.load(tmp_path / "p.onebit")
    assert again.kl == posterior.kl
    np.testing.assert_array_equal(again.rows.covariance, posterior.rows.covariance)
    for ours, theirs in zip(
        posterior.score_moments([0, -1], [1, 2]), again.score_moments([0, -1], [1, 2]), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_codes_outside_the_matrix_are_refused(posterior):
    with pytest.raises(ValueError, match=r"row code 50 is outside -1\.\.49"):
        posterior.score_moments([0, 50], [0, 0])
    with pytest.raises(ValueError, match=r"column code -2 is outside"):
        posterior.score_moments([0], [-2])
    with pytest.raises(ValueError, match=r"of one length, got shapes \(2,\) and \(1,\)"):
        posterior.score_moments([0, 1], [0])
    draw = posterior.sample(np.random.default_rng(0))
    with pytest.raises(ValueError, match="row code -1 is outside 0"):
        draw.scores(np.array([-1]), np.array([0]))


def test_scores_are_main_effects_and_what_centred_factors_add(posterior):
    rows, columns = np.divmod(np.arange(50 * 40), 40)
    main = posterior.main_effects(0)[rows] + posterior.main_effects(1)[columns]
    beyond = posterior.centred_factors(0) @ posterior.centred_factors(1).T
    np.testing.assert_allclose(
        main + beyond[rows, columns], posterior.score_moments(rows, columns)[0], atol=1e-9
    )
    assert np.abs(posterior.hyper.means).max() > 0.01
