"""Shares from questions drawn at random: what they cover, whatever the predictions are worth."""

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest

from onebit.certificates.row_means import (
    FEWEST,
    certain,
    exact_share,
    policy_share,
    uniform_share,
)

SIZE, ASKED = 120, 40


def wrong(asked, answers):
    """Predictions that are worse than none: the opposite of the truth."""
    return np.where(TRUTH > 0.5, 0.1, 0.9)


def good(asked, answers):
    """Predictions of which a quarter are wrong."""
    return np.where((TRUTH > 0.5) ^ (np.arange(SIZE) % 4 == 0), 0.8, 0.2)


TRUTH = (np.random.default_rng(5).random(SIZE) < 0.6).astype(float)


@pytest.mark.parametrize("size", [6, 9])
def test_exact_intervals_cover_by_counting_every_draw(size):
    for total, asked in itertools.product(range(size + 1), range(1, size + 1)):
        table = np.array([1] * total + [0] * (size - total))
        inside = [
            found.low <= total / size <= found.high
            for found in (
                exact_share(int(table[list(drawn)].sum()), asked, size, 0.8)
                for drawn in itertools.combinations(range(size), asked)
            )
        ]
        assert np.mean(inside) >= 0.8 - 1e-12


def test_who_has_answered_everything_is_known():
    found = exact_share(7, 10, 10, 0.9)
    assert (found.low, found.share, found.high) == (0.7, 0.7, 0.7)


@pytest.mark.parametrize("forecast", [wrong, good])
def test_uniform_draws_cover_whatever_predictions_are_worth(forecast):
    inside, errors = 0, []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        asked = rng.choice(SIZE, ASKED, replace=False)
        found = uniform_share(asked, TRUTH[asked], SIZE, forecast, 0.9, rng)
        inside += found.low <= TRUTH.mean() <= found.high
        errors.append(found.share - TRUTH.mean())
    assert binomtest(inside, 600, 0.9).pvalue > 0.001
    assert abs(np.mean(errors)) < 4 * np.std(errors) / 600**0.5


def policy(rng, count, forecast):
    """Draw questions with chances that depend on the answers before."""
    left, asked, chances = np.ones(SIZE, dtype=bool), [], []
    for _ in range(count):
        lean = 1.0 + 2.0 * TRUTH[asked].mean() if asked else 1.0
        weight = np.where(left, 1.0 + lean * (np.arange(SIZE) % 3 == 0), 0.0)
        chance = weight / weight.sum()
        one = int(rng.choice(SIZE, p=chance))
        asked.append(one)
        chances.append(chance[one])
        left[one] = False
    return np.array(asked), np.array(chances)


@pytest.mark.parametrize("forecast", [wrong, good])
def test_a_policy_that_looks_at_answers_covers_too(forecast):
    inside, errors = 0, []
    for seed in range(600):
        asked, chances = policy(np.random.default_rng(seed), ASKED, forecast)
        found = policy_share(asked, TRUTH[asked], chances, SIZE, forecast, 0.9)
        inside += found.low <= TRUTH.mean() <= found.high
        errors.append(found.share - TRUTH.mean())
    assert 0.86 <= inside / 600 <= 0.96
    assert abs(np.mean(errors)) < 4 * np.std(errors) / 600**0.5


def test_chances_that_are_wrong_are_what_makes_a_policy_fail():
    # The same draws, said to be uniform: the questions asked more often have another share of yes.
    table = np.where(np.arange(SIZE) % 3 == 0, 1.0, TRUTH)
    inside = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        weight = np.where(np.arange(SIZE) % 3 == 0, 9.0, 1.0)
        asked = rng.choice(SIZE, ASKED, replace=False, p=weight / weight.sum())
        found = uniform_share(asked, table[asked], SIZE, lambda a, y: np.full(SIZE, 0.5), 0.9, rng)
        inside += found.low <= table.mean() <= found.high
    assert inside < 50


def test_good_predictions_narrow_the_interval():
    asked = np.random.default_rng(0).choice(SIZE, ASKED, replace=False)
    widths = []
    for forecast in (lambda a, y: np.full(SIZE, 0.5), lambda a, y: np.where(TRUTH > 0.5, 0.45, 0.4)):
        found = uniform_share(asked, TRUTH[asked], SIZE, forecast, 0.9, np.random.default_rng(0))
        widths.append(found.high - found.low)
    assert widths[0] > 0
    better = np.where(np.arange(SIZE) % 5 == 0, 1.0 - TRUTH, TRUTH)
    found = uniform_share(
        asked, TRUTH[asked], SIZE, lambda a, y: 0.1 + 0.8 * better, 0.9, np.random.default_rng(0)
    )
    assert found.kind == "predictions"
    assert found.high - found.low < 0.9 * widths[0]


def test_few_answers_fall_back_on_what_is_exact():
    asked = np.arange(FEWEST - 1)
    found = uniform_share(asked, TRUTH[asked], SIZE, good, 0.9, np.random.default_rng(0))
    assert found.kind == "exact"
    found = policy_share(asked, TRUTH[asked], np.full(len(asked), 0.01), SIZE, good, 0.9)
    assert found.kind == "too few"
    assert (found.low, found.high) == certain(TRUTH[asked], SIZE)
    assert found.low <= TRUTH.mean() <= found.high


def test_predictions_that_foresaw_everything_are_not_believed():
    asked = np.arange(30)
    sure = uniform_share(
        asked, TRUTH[asked], SIZE, lambda a, y: 0.01 + 0.98 * TRUTH, 0.9, np.random.default_rng(0)
    )
    assert sure.kind == "exact"
