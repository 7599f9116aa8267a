"""The Gibbs predictor: its loss, its risk, a draw and what the draw costs."""

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.exceptions import ConvergenceWarning

from onebit import (
    GibbsCompleter,
    HingeCompleter,
    LogisticCompleter,
    Observations,
    load,
    simulate,
)
from onebit.certificates.gibbs_risk import gibbs_risk
from onebit.model.calibration import Calibration, fit_calibration
from onebit.model.losses import GIBBS
from onebit.model.priors import Gamma, InverseGamma


@pytest.fixture(scope="module")
def seen(small_world):
    return Observations.from_pairs(small_world.pairs, small_world.answers)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("effects", [True, False, "rows", "columns"])
def test_the_risk_agrees_with_plain_draws_of_whole_predictors(seen, covariance, effects, monkeypatch):
    monkeypatch.setattr("onebit.certificates.gibbs_risk.TARGET", 0.002)
    model = LogisticCompleter(2, covariance=covariance, effects=effects, max_iter=10).fit(seen)
    risk = gibbs_risk(model.posterior_, seen, 0.01, np.random.default_rng(0))
    view, rng = seen.by_row, np.random.default_rng(1)
    plain = [
        np.mean(model.posterior_.sample(rng).scores(view.owners(), view.index) * view.sign <= 0)
        for _ in range(400)
    ]
    spread = 5 * np.std(plain) / np.sqrt(len(plain))
    assert abs(risk.estimate - np.mean(plain)) < spread + (risk.upper - risk.estimate)
    assert risk.estimate < risk.upper <= risk.estimate + 0.0021


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_the_risk_of_effects_alone_is_exact(seen, covariance):
    model = LogisticCompleter(0, covariance=covariance, max_iter=10).fit(seen)
    risk = gibbs_risk(model.posterior_, seen, 0.01, np.random.default_rng(0))
    view, rng = seen.by_row, np.random.default_rng(1)
    plain = [
        np.mean(model.posterior_.sample(rng).scores(view.owners(), view.index) * view.sign <= 0)
        for _ in range(400)
    ]
    assert abs(risk.estimate - np.mean(plain)) < 5 * np.std(plain) / np.sqrt(len(plain))
    assert risk.upper == risk.estimate
    assert risk.draws == 0


def test_the_confidence_of_the_risk_holds(seen):
    """Its upper end is above the expectation at least as often as it says, here nearly always."""
    posterior = HingeCompleter(2, effects=False, max_iter=5, calibrate=False).fit(seen).posterior_
    risks = [gibbs_risk(posterior, seen, 0.3, np.random.default_rng(s)) for s in range(20)]
    truth = np.mean([risk.estimate for risk in risks])
    assert np.mean([risk.upper >= truth for risk in risks]) >= 0.7


@pytest.mark.parametrize(
    ("prior", "count", "energy"),
    [(InverseGamma(0.8, 0.3), 5, 2.0), (InverseGamma(1.0, 6.0), 1, 0.4), (Gamma(1.5, 0.7), 4, 3.0)],
)
def test_the_density_without_variances_agrees_with_quadrature(prior, count, energy):
    from scipy import stats

    law = (
        stats.invgamma(prior.shape, scale=prior.scale)
        if isinstance(prior, InverseGamma)
        else stats.gamma(prior.shape, scale=1 / prior.rate)
    )

    def integrand(log_gamma):
        gamma = np.exp(log_gamma)
        return (
            (2 * np.pi * gamma) ** (-count / 2) * np.exp(-energy / (2 * gamma)) * law.pdf(gamma) * gamma
        )

    expected = np.log(quad(integrand, -20, 20, limit=400)[0])
    assert prior.log_marginal(count, energy) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("prior", ["inverse-gamma", "gamma"])
@pytest.mark.parametrize("effects", [True, False])
def test_the_mean_log_ratio_of_draws_is_just_below_the_divergence(seen, prior, effects):
    """Integrating the variances out can only lower the divergence, and here by little."""
    posterior = LogisticCompleter(2, pattern=None, prior=prior, effects=effects).fit(seen).posterior_
    rng = np.random.default_rng(0)
    ratios = np.array([posterior.sample(rng).log_ratio for _ in range(3000)])
    error = ratios.std() / np.sqrt(len(ratios))
    assert ratios.mean() < posterior.kl + 4 * error
    assert ratios.mean() > posterior.kl - 6 - 4 * error


def test_slope_and_weight_are_the_derivatives_of_the_loss():
    step = 1e-5
    for mean, second in ((0.7, 1.2), (2.0, 4.5), (0.05, 0.3)):

        def loss(m, q):
            return float(GIBBS.bound(1, m, q))

        slope, weight = (float(part) for part in GIBBS.majoriser(1, mean, second))
        by_mean = (loss(mean + step, second) - loss(mean - step, second)) / (2 * step)
        by_second = (loss(mean, second + step) - loss(mean, second - step)) / (2 * step)
        assert slope == pytest.approx(-by_mean, rel=1e-5)
        assert weight == pytest.approx(2 * by_second, rel=1e-5)
        # A wrong answer: the derivative along the mean at a fixed variance, and no weight.
        slope, weight = (float(part) for part in GIBBS.majoriser(-1, mean, second))
        variance = second - mean**2
        along = loss(-mean - step, (mean + step) ** 2 + variance) - loss(
            -mean + step, (mean - step) ** 2 + variance
        )
        assert slope == pytest.approx(abs(along) / (2 * step), rel=1e-5)
        assert weight == 0.0
    assert GIBBS.value([1.0, 0.0, -2.0]).tolist() == [0.0, 1.0, 1.0]


def test_draws_of_a_sparse_model_have_no_known_ratio():
    world = simulate.world("A2", rank=2, shape=(40, 30), density=0.5, seed=0)
    posterior = (
        HingeCompleter(3, sparse="columns", calibrate=False).fit(world.pairs, world.answers).posterior_
    )
    assert np.isnan(posterior.sample(np.random.default_rng(0)).log_ratio)


@pytest.mark.filterwarnings("ignore")
def test_single_steps_raise_the_objective_by_a_thousandth_at_most():
    for seed in range(2):
        world = simulate.world("B3", rank=2, shape=(60, 50), density=0.3, seed=seed)
        model = GibbsCompleter(2, random_state=0, temperature=1.0).fit(world.pairs, world.answers)
        path = model.objective_path_
        assert (np.diff(path) / path[:-1]).max() < 2e-3
        assert path[-1] < 1.003 * path.min()  # and does not creep up at the end


def test_a_curve_without_a_scale_does_not_see_one():
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=400), rng.uniform(0.2, 2.0, size=400)
    sign = np.where(rng.random(400) < 0.8, np.sign(mean), -np.sign(mean)).astype(np.int8)
    curves = [fit_calibration(c * mean, c**2 * variance, sign, scale_free=True) for c in (1.0, 30.0)]
    assert curves[1].slope == pytest.approx(curves[0].slope, rel=1e-3)
    np.testing.assert_allclose(
        curves[0].probability(30.0 * mean, 900.0 * variance), curves[0].probability(mean, variance)
    )
    assert curves[0].probability(np.array([3.0]), np.array([0.0])) == 0.5
    told = Calibration.from_settings({"slope": 1.5, "scale_free": True})
    assert told == Calibration(1.5, True)
    assert Calibration.from_settings({"slope": 1.5}) == Calibration(1.5)


def test_calibrated_probabilities_forecast_better_than_shares_of_draws(tmp_path):
    world = simulate.world("B2", rank=2, shape=(60, 60), density=0.6, seed=3)
    held = np.arange(len(world.answers)) % 4 == 0
    losses = []
    for calibrate in (True, False):
        model = GibbsCompleter(3, temperature=2.0, effects=False, calibrate=calibrate, random_state=0)
        model.fit(world.pairs[~held], world.answers[~held])
        chance = model.predict_proba(world.pairs[held])
        assert (model.probability_note is None) == calibrate
        right = np.where(world.answers[held] > 0, chance[:, 1], chance[:, 0])
        losses.append(-np.log(right).mean())
        model.save(tmp_path / "model.onebit")
        again = load(tmp_path / "model.onebit")
        np.testing.assert_array_equal(again.predict_proba(world.pairs), model.predict_proba(world.pairs))
        assert again.probability_note == model.probability_note
    assert losses[0] < losses[1]


def test_too_few_answers_to_calibrate_by_are_spoken_of():
    world = simulate.world("B1", rank=1, shape=(12, 12), density=0.5, seed=0)
    model = GibbsCompleter(1, temperature=1.0, effects=False, calibrate=True, random_state=0)
    with pytest.warns(ConvergenceWarning, match="too few to calibrate by"):
        model.fit(world.pairs, world.answers)
    assert model.probability_note == "they are shares of drawn predictors that say yes"
