"""Rows that move together with the slopes that they follow, against the regression that this is."""

import numpy as np
import pytest

from onebit import simulate
from onebit.data.observations import Observations
from onebit.engine.cpu.presence import CpuTall
from onebit.engine.sampling import lines as lines_module
from onebit.engine.sampling import trends
from onebit.engine.sampling.lines import ALONE, on_one_thread
from onebit.engine.sampling.target import Target
from onebit.engine.sampling.trends import FIXED, Evidence, Trend, leading, move_along
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import HINGE, LOGISTIC
from onebit.model.priors import InverseGamma


def moved_along(known, values, evidence, trend):
    """Return what some values become."""
    ones = np.ones((values.shape[1], 1), np.float32)
    values = values.copy()
    lines = ones if known is None else np.hstack([known, ones])
    move_along(CpuTall(ALONE), lines, values, evidence, trend)
    return values


def trend_of(present, variances, spread, noise):
    """A trend all of whose slopes are drawn once more."""
    columns = len(present) - 1
    return Trend(present[:columns], np.arange(columns), present, variances, spread, noise)


def evidence_of(rows, coordinates, rng):
    """Positive definite precisions and linear terms of some rows."""
    spread = rng.normal(size=(coordinates, coordinates + 2, rows))
    return Evidence(np.einsum("acm,bcm->abm", spread, spread), rng.normal(size=(coordinates, rows)))


def test_without_noise_each_coordinate_goes_to_the_best_step_given_those_before_it():
    rng = np.random.default_rng(0)
    known, told = rng.normal(size=(40, 3)).astype(np.float32), evidence_of(40, 2, rng)
    slopes, variances = rng.normal(size=(4, 2)), rng.uniform(0.5, 2.0, (4, 2))
    before = rng.normal(size=(2, 40))
    after = moved_along(
        known, before, told, trend_of(slopes, variances, np.full(2, 0.01), np.zeros((2, 4)))
    )
    lines = np.column_stack([known, np.ones(40)])
    steps = np.linalg.lstsq(lines, (after - before).T, rcond=None)[0]
    np.testing.assert_allclose(lines @ steps, (after - before).T, atol=1e-5)  # nothing else has moved
    half = np.stack([after[0], before[1]])  # the first coordinate has moved, the second not yet
    for k, values in enumerate((half, after)):
        pull = told.linear[k] - np.einsum("bm,bm->m", told.precision[k], values)
        slope = lines.T @ pull - (slopes[:, k] + steps[:, k]) / variances[:, k]
        np.testing.assert_allclose(slope, 0.0, atol=1e-3)


def test_steps_have_the_covariance_of_the_regression_and_what_is_fixed_stays():
    rng = np.random.default_rng(1)
    told, before = evidence_of(30, 1, rng), np.zeros((1, 30))
    variances = np.array([[0.7], [FIXED]])
    known = rng.normal(size=(30, 1)).astype(np.float32)
    draws = [
        moved_along(known, before, told, trend_of(np.zeros((2, 1)), variances, np.full(1, 0.01), noise))[
            0
        ]
        for noise in rng.standard_normal((4000, 1, 2))
    ]
    steps = np.linalg.lstsq(np.column_stack([known, np.ones(30)]), np.array(draws).T, rcond=None)[0]
    precision = float(told.precision[0, 0] @ known[:, 0].astype(float) ** 2) + 1.0 / 0.7
    assert steps[0].var() == pytest.approx(1.0 / precision, rel=0.08)
    assert steps[0].mean() == pytest.approx(
        float(told.linear[0] @ known[:, 0]) / precision, abs=4.0 / np.sqrt(4000 * precision)
    )
    assert np.abs(steps[1]).max() < 1e-4


def test_coordinates_that_the_answers_say_enough_of_stay():
    rng = np.random.default_rng(4)
    told, before = evidence_of(30, 2, rng), rng.normal(size=(2, 30))
    trend = trend_of(np.zeros((1, 2)), np.ones((1, 2)), np.array([100.0, 0.01]), np.ones((2, 1)))
    after = moved_along(None, before, told, trend)
    np.testing.assert_array_equal(after[0], before[0])
    assert np.abs(after[1] - before[1]).min() > 1e-3


def test_a_coordinate_whose_regression_has_no_root_stays():
    rng = np.random.default_rng(2)
    told, before = evidence_of(30, 2, rng), rng.normal(size=(2, 30))
    told.precision[0, 0, 0], told.precision[0, 0, 1:] = np.inf, 1e-3
    trend = trend_of(np.zeros((1, 2)), np.ones((1, 2)), np.full(2, 0.01), np.ones((2, 1)))
    with np.errstate(invalid="ignore"):
        after = moved_along(None, before, told, trend)
    np.testing.assert_array_equal(after[0], before[0])


@pytest.fixture(params=[LOGISTIC, HINGE], ids=lambda loss: loss.name)
def lines(request):
    world = simulate.world("B1", rank=2, shape=(30, 20), density=0.5, seed=0)
    answers = Observations.from_pairs(world.pairs, world.answers)
    priors = InverseGamma(3.0, 1.5), InverseGamma(3.0, 1.0)
    hierarchy = Hierarchy(answers.shape, 2, True, True, *priors, factor_means=True)
    target = Target.of(answers, hierarchy, request.param, 1.0)
    rng = np.random.default_rng(3)
    return on_one_thread(target, [rng.normal(size=(size, 3)) for size in answers.shape])


def drawn(lines, noise):
    centre, freedom = np.zeros((1, 3)), np.array([[1.0, 1.0, FIXED]])
    trend = trend_of(centre, freedom, np.full(3, 0.01), noise)
    return lines.draw(0, (1, 2), 1, np.ones(3), np.zeros(3), trend)[0]


def test_what_rows_say_of_scales_is_the_same_from_the_kernel_and_from_what_answers_told(
    lines, monkeypatch
):
    start = lines.table(0).copy()
    kernels = drawn(lines, None)
    monkeypatch.setattr(lines_module, "move_along", lambda *_: None)
    lines.put(0, start.copy())
    square, told = kernels[:4].reshape(2, 2), drawn(lines, np.zeros((3, 1)))
    np.testing.assert_allclose(
        told[:4].reshape(2, 2)[np.tril_indices(2)], square[np.tril_indices(2)], rtol=1e-3
    )
    np.testing.assert_allclose(told[4:], kernels[4:], rtol=1e-3)


def test_rows_that_have_moved_say_something_else_of_scales_and_large_sides_stay(lines, monkeypatch):
    start = lines.table(0).copy()
    still, rows = drawn(lines, None), lines.table(0).copy()
    lines.put(0, start.copy())
    moved = drawn(lines, np.ones((3, 1)))
    shift = lines.table(0)[:, :2] - rows[:, :2]
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0], shift.shape), atol=1e-5)
    assert np.abs(shift[0]).min() > 1e-3
    assert np.abs(moved - still).max() > 1e-3
    monkeypatch.setattr(trends, "_MOST_BYTES", 100)
    lines.put(0, start.copy())
    np.testing.assert_array_equal(drawn(lines, np.ones((3, 1))), still)
    np.testing.assert_array_equal(lines.table(0), rows)


def test_the_longest_columns_lead():
    squares = np.arange(40.0)[np.random.default_rng(0).permutation(40)]
    assert sorted(squares[leading(squares)]) == list(range(24, 40))
    assert leading(np.ones(3)).tolist() == [0, 1, 2]
