"""New rows: where one stands, and what its answers would tell, against quadrature and brute force."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal
from sklearn.base import clone

from onebit import LogisticCompleter, simulate
from onebit.model.left_out import without_row
from onebit.model.population import LOYALTY, Goal, Population, Standing, widening


@pytest.fixture(scope="module")
def population():
    world = simulate.world("B3", rank=1, shape=(80, 50), density=0.7, seed=1)
    model = LogisticCompleter(1, random_state=0, pattern=None).fit(world.pairs, world.answers)
    return Population.of(model.posterior_)


def exactly(population, columns, signs):
    """Return mean and covariance of the posterior by quadrature, the columns taken as known."""
    line = np.linspace(-6.0, 6.0, 241)
    noise = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    points = population.mean + noise @ np.linalg.cholesky(population.wide).T
    odds = len(columns) / LOYALTY
    usual = multivariate_normal.logpdf(points, population.mean, population.covariance)
    strange = multivariate_normal.logpdf(points, population.mean, population.wide)
    log_density = np.logaddexp(usual, np.log(odds) + strange)
    scores = points @ population.design[columns].T + population.offset[columns]
    log_density = log_density - np.logaddexp(0.0, -signs * scores).sum(axis=1)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ points
    return mean, (weight[:, None] * (points - mean)).T @ (points - mean), weight, points


def sure(population):
    """The same, with columns that are known exactly."""
    return Population(
        population.design, population.offset, 0.0 * population.spread, population.full, population.rank,
        population.column_effect, population.mean, population.covariance, population.rows,
    )  # fmt: skip


def test_a_row_stands_where_quadrature_puts_it(population):
    known = sure(population)
    rng = np.random.default_rng(0)
    columns = rng.choice(known.size, 40, replace=False)
    signs = np.where(rng.random(40) < 0.6, 1, -1)
    found = known.standing(columns, signs)
    mean, covariance, _, _ = exactly(known, columns, signs)
    scale = np.sqrt(np.diag(covariance))
    assert np.abs(found.mean - mean).max() < 0.35 * scale.max()
    assert np.sqrt(np.diag(found.covariance)) == pytest.approx(scale, rel=0.25)


def test_a_row_that_contradicts_the_population_is_believed(population):
    known = sure(population)
    columns = np.arange(40)
    found = known.standing(columns, np.ones(40, np.int64))
    mean, *_ = exactly(known, columns, np.ones(40, np.int64))
    bound = known._standing(columns, np.ones(40, np.int64), known.covariance)[0]
    assert known._level(bound.mean) < known._level(found.mean)
    assert known._level(found.mean) == pytest.approx(known._level(mean), abs=0.02)


def test_without_answers_a_row_is_one_of_the_population(population):
    found = population.standing(np.empty(0, np.int64), np.empty(0, np.int64))
    assert np.array_equal(found.mean, population.mean)
    assert np.array_equal(found.covariance, population.covariance)


def test_a_column_that_is_uncertain_tells_less(population):
    vague = Population(
        population.design, population.offset, 50.0 * population.spread, population.full,
        population.rank, population.column_effect, population.mean, population.covariance,
        population.rows,
    )  # fmt: skip
    columns, signs = np.arange(20), np.ones(20, np.int64)
    narrow, wide = sure(population).standing(columns, signs), vague.standing(columns, signs)
    assert np.trace(wide.covariance) > np.trace(narrow.covariance)


@pytest.mark.parametrize("kind", ["mean", "row", "answers"])
def test_gains_are_what_an_answer_takes_off_the_goals_variance(population, kind):
    # By the linear model behind them: one more observation with precision w, in closed form.
    standing = population.standing(np.array([3, 8]), np.array([1, -1]))
    forecast = population.forecast(standing)
    wanted = np.arange(population.size) % 3 == 0
    goal = population.goal(kind, forecast, wanted)
    gains = population.gains(standing, forecast, goal)
    for column in (0, 7, 30):
        after = population.after(standing, forecast, column)
        precision = np.linalg.inv(standing.covariance) + forecast.variance[column] * np.outer(
            forecast.faced[column], forecast.faced[column]
        )
        assert after.covariance == pytest.approx(np.linalg.inv(precision))
        left = wanted.copy()
        left[column] = False
        lost = goal.variance(standing, wanted) - goal.variance(after, left)
        assert gains[column] == pytest.approx(lost, rel=1e-6)


def test_the_slope_of_the_share_is_its_derivative(population):
    known = sure(population)
    tight = Standing(known.mean, 1e-12 * np.eye(2))
    slope = known.forecast(tight).slope.mean(axis=0)
    for axis in range(2):
        step = np.zeros(2)
        step[axis] = 1e-5
        ahead, behind = (
            known.forecast(Standing(known.mean + way * step, tight.covariance)).probability.mean()
            for way in (1, -1)
        )
        assert slope[axis] == pytest.approx((ahead - behind) / 2e-5, rel=1e-4)


def test_the_share_and_its_variance_are_those_of_quadrature(population):
    known = sure(population)
    columns, signs = np.arange(0, 40, 2), np.where(np.arange(20) % 3 == 0, -1, 1)
    answers = np.full(known.size, np.nan)
    answers[columns] = signs > 0
    wanted = np.ones(known.size, dtype=bool)
    standing = known.standing(columns, signs)
    mean, variance = known.share(standing, known.forecast(standing), answers, wanted)
    _, _, weight, points = exactly(known, columns, signs)
    chance = expit(points @ known.design.T + known.offset)
    chance[:, columns] = signs > 0
    shares = chance.mean(axis=1)
    noise = (chance * (1 - chance)).sum(axis=1) / known.size**2
    expected = weight @ shares
    exact = weight @ (shares - expected) ** 2 + weight @ noise
    assert mean == pytest.approx(expected, abs=0.3 * exact**0.5)
    assert variance**0.5 == pytest.approx(exact**0.5, rel=0.25)


def test_a_fixed_set_tells_more_than_a_random_one(population):
    everything = np.ones(population.size, dtype=bool)
    standing = population.unknown
    forecast = population.forecast(standing)
    goal = population.goal("mean", forecast, everything)

    def left(columns):
        after, open_ones = standing, everything.copy()
        for column in columns:
            after = population.after(after, forecast, column)
            open_ones[column] = False
        return goal.variance(after, open_ones)

    chosen = population.fixed_set(8, "mean", everything, everything)
    assert len(set(chosen)) == 8
    rng = np.random.default_rng(0)
    others = [left(rng.choice(population.size, 8, replace=False)) for _ in range(20)]
    assert left(chosen) < np.quantile(others, 0.2)


def test_errors_that_are_too_large_for_the_model_are_noticed(population):
    rng = np.random.default_rng(0)
    rows = [
        (rng.random(population.size) < expit(population.design @ row + population.offset)).astype(float)
        for row in population.rows[:20]
    ]
    assert widening([population.surprises(row)[40] for row in rows]) < 1.5
    narrow = replace(population, covariance=1e-3 * population.covariance)
    noise = [(rng.random(population.size) < share).astype(float) for share in np.linspace(0.02, 0.98, 20)]
    assert widening([narrow.surprises(row)[40] for row in noise]) > 2.0


@pytest.mark.parametrize("count", [9, 24, 200])
def test_widened_intervals_hold_for_nine_in_ten_rows_more(count):
    """Whatever the surprises are drawn from, if they are not smaller than those of a right model."""
    rng = np.random.default_rng(count)
    held = []
    for _ in range(4000):
        drawn = 2.0 * np.abs(rng.standard_t(3, count + 1)) + 0.5
        held.append(drawn[-1] <= widening(drawn[:-1]) * 1.645)
    assert np.mean(held) > 0.9 - 3 * 0.005
    assert widening([]) == 1.0
    assert widening([0.1] * count) == 1.0


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_columns_without_a_row_are_those_of_a_fit_without_it(covariance):
    """Means move as they do in a fit to the other rows; precisions lose the row's part."""
    rng = np.random.default_rng(3)
    score = rng.normal(0, 1, (40, 1)) + rng.normal(0, 1, 30)
    score = score + np.outer(rng.normal(0, 1, 40), rng.normal(0, 1, 30))
    answers = (rng.random(score.shape) < expit(score)).astype(int)
    pairs, every = np.argwhere(np.ones(score.shape)), np.arange(30, dtype=np.int32)
    model = LogisticCompleter(
        1, covariance=covariance, pattern=None, random_state=0, tol=1e-9, max_iter=3000
    )
    fitted = clone(model).fit(pairs, answers.ravel())
    posterior = fitted.posterior_
    found, expected = [], []
    for row in (7, 20, 33):
        others = pairs[:, 0] != row
        again = clone(model).fit(pairs[others], answers.ravel()[others], start=fitted)
        left = without_row(posterior, row, every, answers[row], 1.0)
        found.append(left.columns.mean - posterior.columns.mean)
        expected.append(again.posterior_.columns.mean - posterior.columns.mean)
        before, after = (np.linalg.inv(part.columns.dense_covariance()) for part in (posterior, left))
        mean, variance = posterior.score_moments(np.full(30, row), every)
        root = np.sqrt(mean**2 + variance)
        line = np.append(posterior.rows.mean[row, :1], 1.0)
        lost = (np.tanh(root / 2) / (2 * root))[:, None, None] * np.outer(line, line)
        if covariance == "diagonal":
            lost *= np.eye(2)
        np.testing.assert_allclose(before - after, lost, atol=1e-6)
    found, expected = (np.concatenate(part) for part in (found, expected))
    for k, least in enumerate((0.85, 0.95)):  # the factor's scale changes with the rows, too
        assert np.corrcoef(found[:, k], expected[:, k])[0, 1] > least


def test_a_goal_counts_only_what_is_not_answered_yet():
    goal = Goal(np.eye(2), np.array([0.5, 0.25, 0.0]))
    standing = Standing(np.zeros(2), np.diag([1.0, 2.0]))
    assert goal.variance(standing, np.array([True, True, True])) == pytest.approx(3.75)
    assert goal.variance(standing, np.array([False, True, True])) == pytest.approx(3.25)
