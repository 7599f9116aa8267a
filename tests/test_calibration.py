"""Probabilities: the integral over the score's posterior, and the curve of the hinge."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from onebit import HingeCompleter, LogisticCompleter, simulate
from onebit.model.calibration import expected_sigmoid, fit_calibration, natural_calibration


@pytest.mark.parametrize("mean", [-6.0, -1.0, 0.0, 0.3, 4.0])
@pytest.mark.parametrize("variance", [0.0, 0.1, 1.0, 9.0, 400.0])
def test_the_logistic_probability_integrates_the_score(mean, variance):
    deviation = np.sqrt(variance)
    if variance:
        exact = quad(
            lambda x: expit(x) * norm.pdf(x, mean, deviation),
            mean - 9 * deviation,
            mean + 9 * deviation,
        )[0]
    else:
        exact = expit(mean)
    assert expected_sigmoid([mean], [variance])[0] == pytest.approx(exact, abs=3e-6)


def test_extreme_scores_give_probabilities_off_zero_and_one():
    found = expected_sigmoid(np.array([-1e8, 1e8]), np.array([0.0, 1e4]))
    assert (found > 0).all()
    assert (found < 1).all()


def test_the_curve_of_scores_with_known_odds_is_found(rng):
    mean = rng.normal(0, 2, 20_000)
    sign = np.where(rng.random(20_000) < expit(0.7 * mean), 1, -1)
    assert fit_calibration(mean, np.zeros(20_000), sign).slope == pytest.approx(0.7, abs=0.05)
    # Weights count, and answers of weight zero do not.
    both = np.concatenate([sign, -sign])
    weight = np.concatenate([np.full(20_000, 3.0), np.zeros(20_000)])
    twice = fit_calibration(np.tile(mean, 2), np.zeros(40_000), both, weight)
    assert twice.slope == pytest.approx(0.7, abs=0.05)


def test_scores_that_separate_the_held_out_answers_do_not_ask_for_certainty():
    mean = np.linspace(-1, 1, 40)
    curve = fit_calibration(mean, np.zeros(40), np.where(mean > 0, 1, -1))
    assert 2 < curve.slope < 50


def test_scores_that_mislead_get_a_flat_curve_not_a_reversed_one(rng):
    mean = rng.normal(0, 1, 500)
    curve = fit_calibration(mean, np.zeros(500), np.where(mean > 0, -1, 1))
    assert curve.slope == 0.0


@pytest.mark.parametrize("completer", [LogisticCompleter, HingeCompleter])
def test_probabilities_are_calibrated_on_blank_entries(completer):
    """World B3: the true probabilities are known. In each bin their mean is near the predicted one."""
    world = simulate.world("B3", rank=2, shape=(200, 200), density=0.4, seed=0)
    model = completer(5, effects=False, random_state=0).fit(world.pairs, world.answers)
    blank = np.ones((200, 200), dtype=bool)
    blank[tuple(world.pairs.T)] = False
    probability = model.complete("probability").to_numpy()[blank]
    truth = expit(world.truth[blank])
    bins = np.digitize(probability, np.linspace(0, 1, 11))
    gaps = [
        (bins == b).sum() * abs(probability[bins == b].mean() - truth[bins == b].mean())
        for b in np.unique(bins)
    ]
    assert sum(gaps) / len(probability) < 0.04
    # A predictor that knows nothing is calibrated too, so ask that it separates.
    assert probability.std() > 0.15


def test_of_few_answers_the_hinge_is_calibrated_by_a_larger_share_of_them():
    gaps = []
    for seed in range(12):
        world = simulate.world("B3", rank=2, shape=(20, 20), density=0.4, seed=seed)
        model = HingeCompleter(3, random_state=seed).fit(world.pairs, world.answers)
        assert model.probability_note is None
        blank = np.ones((20, 20), dtype=bool)
        blank[tuple(world.pairs.T)] = False
        probability = model.complete("probability").to_numpy()[blank]
        truth = expit(world.truth[blank])
        said = np.maximum(probability, 1.0 - probability).mean()
        gaps.append(said - np.where(probability > 0.5, truth, 1.0 - truth).mean())
    assert np.mean(gaps) < 0.06  # with the curve of the pseudo-likelihood 0.16


def test_answers_too_few_to_calibrate_by_are_said_to_be():
    world = simulate.world("B3", rank=1, shape=(10, 10), density=0.5, seed=0)
    with pytest.warns(ConvergenceWarning, match="its answers are too few to calibrate by"):
        model = HingeCompleter(2, random_state=0).fit(world.pairs, world.answers)
    assert model.calibration_ == natural_calibration(model.temperature)
    assert "too few to calibrate by" in model.probability_note


def test_the_hinge_without_calibration_uses_its_own_curve(small_world):
    model = HingeCompleter(3, calibrate=False, temperature=1.5).fit(
        small_world.pairs, small_world.answers
    )
    assert model.calibration_ == natural_calibration(1.5)


def test_a_table_pasted_below_itself_is_not_taken_for_evidence():
    """An answer that was fitted too would tell a curve that everything is known."""
    gaps = []
    for seed in range(3):
        world = simulate.world("B3", rank=2, shape=(60, 40), density=0.4, seed=seed)
        twice = np.vstack([world.pairs] * 2), np.tile(world.answers, 2)
        curves = [
            HingeCompleter(random_state=0).fit(*given).calibration_
            for given in ((world.pairs, world.answers), twice)
        ]
        gaps.append([curve.probability(np.array([1.0]), np.array([0.5]))[0] for curve in curves])
    once, pasted = np.mean(gaps, axis=0)
    assert pasted < once + 0.05
