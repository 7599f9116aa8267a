"""The school: a world whose truth is known, and the evaluation that is tried on it."""

import numpy as np
import pytest
from scipy.stats import norm

from onebit import LogisticCompleter, Observations
from onebit.completers.evaluation import calibration_error, evaluate
from onebit.data.school import TOPICS, school


def test_the_answers_come_from_the_truth():
    drawn = school(60, 20, 60_000, seed=0)
    student, exercise = drawn.pairs.T
    expected = drawn.chance[student, exercise]
    # The sum of independent answers: a deviation of five standard errors is no accident.
    error = np.sqrt((expected * (1 - expected)).sum())
    assert abs(drawn.solved.sum() - expected.sum()) < 5 * error
    counts = np.bincount(exercise, minlength=20)
    share = drawn.sampling.sum(axis=0)
    chi = ((counts - 60_000 * share) ** 2 / (60_000 * share)).sum()
    assert chi < 19 + 5 * np.sqrt(2 * 19) * norm.ppf(0.99)


def test_names_are_readable_and_distinct():
    drawn = school(2000, 40, 100, seed=1)
    assert len(set(drawn.students)) == 2000
    assert len(set(drawn.exercises)) == 40
    assert {name.split()[0] for name in drawn.exercises} <= set(TOPICS)
    assert school(2000, 40, 100, seed=1).frame().equals(drawn.frame())
    with pytest.raises(ValueError, match="a school needs"):
        school(0, 1, 1)


def test_the_risk_is_least_for_who_knows_the_chances():
    drawn = school(30, 20, 100, seed=2)
    best = drawn.risk(drawn.chance - 0.5)
    assert best == pytest.approx((drawn.sampling * np.minimum(drawn.chance, 1 - drawn.chance)).sum())
    assert best < drawn.risk(np.ones_like(drawn.chance))
    assert drawn.risk(np.zeros_like(drawn.chance)) == pytest.approx(1.0)


def test_every_fold_is_predicted_from_the_others():
    drawn = school(60, 40, 6000, seed=5)
    frame = drawn.frame()
    seen = Observations.from_pairs(frame[["student", "exercise"]], frame["solved"] == "yes")
    seen = seen.take(np.flatnonzero(~seen.again())[:1500])  # so that folds are of one size
    told = []
    result = evaluate(LogisticCompleter(2, random_state=0), seen, 3, tell=lambda *step: told.append(step))
    assert told[-1][:2] == (9, 9)
    assert len(result.folds) == 9
    majority = result.folds[result.folds["method"] == "commoner answer"]
    yes = (seen.by_row.sign > 0).mean()
    assert majority["accuracy"].mean() == pytest.approx(max(yes, 1 - yes), abs=1e-9)
    assert majority["log_loss"].mean() == pytest.approx(
        -(yes * np.log(yes) + (1 - yes) * np.log(1 - yes)), abs=2e-3
    )
    with pytest.raises(ValueError, match="can be cut into 2 to 750 folds"):
        evaluate(LogisticCompleter(), seen, 1)


def test_noise_is_not_predicted(rng):
    pairs = np.stack(np.divmod(np.arange(1200), 30), axis=1)
    seen = Observations.from_pairs(pairs, rng.integers(0, 2, 1200))
    model = LogisticCompleter(8, temperature=4.0, random_state=0)
    assert model.fit(seen).score(pairs, (rng.random(1200) < 0.5).astype(int)) < 0.6
    view = seen.by_row
    right = model.predictions(view.owners(), view.index).score * view.sign > 0
    assert right.mean() > 0.8  # it fits what it sees, so that a fold which it saw would show
    accuracy = evaluate(model, seen, 3).table().loc["LogisticCompleter", "accuracy"]
    assert abs(accuracy - 0.5) < 5 * np.sqrt(0.25 / 1200)


def test_calibration_error_is_zero_for_the_truth_and_large_for_lies(rng):
    chance = rng.random(200_000)
    happened = rng.random(200_000) < chance
    assert calibration_error(chance, happened) < 0.01
    assert calibration_error(np.full(200_000, 0.9), happened) == pytest.approx(0.4, abs=0.01)


def test_equal_probabilities_share_a_bin_of_the_calibration_error():
    yes = np.array([True, False] * 50)
    for happened in (yes, np.sort(yes)):
        assert calibration_error(np.full(100, 0.5), happened) == 0.0
    stated = np.repeat([0.2, 0.9], 50)
    assert calibration_error(stated, yes) == pytest.approx(0.35)  # gaps of 0.3 and 0.4
