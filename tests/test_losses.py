"""The losses: their bounds are upper bounds, their majorisers majorise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss

from onebit.model.losses import HINGE, LOGISTIC

LOSSES = (LOGISTIC, HINGE)

BOTH = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
NODES, WEIGHTS = hermegauss(80)
WEIGHTS = WEIGHTS / WEIGHTS.sum()

means = st.floats(-30, 30)
deviations = st.floats(0, 20)
signs = st.sampled_from([-1, 1])


@BOTH
@given(sign=signs, mean=means, deviation=deviations)
def test_the_bound_is_above_the_expected_loss_of_gaussian_scores(loss, sign, mean, deviation):
    expected = (WEIGHTS * loss.value(sign * (mean + deviation * NODES))).sum()
    bound = loss.bound(sign, mean, mean**2 + deviation**2)
    # The hinge has a kink, which the quadrature smooths by up to its spacing.
    slack = 0.02 * deviation if loss is HINGE else 0.0
    assert bound >= expected - slack - 1e-9 * (1 + abs(expected))


@BOTH
@given(sign=signs, low=means, high=means, share=st.floats(0, 1))
def test_the_bound_is_above_the_expected_loss_of_any_two_point_score(loss, sign, low, high, share):
    expected = share * loss.value(sign * low) + (1 - share) * loss.value(sign * high)
    mean = share * low + (1 - share) * high
    second = share * low**2 + (1 - share) * high**2
    assert loss.bound(sign, mean, second) >= expected - 1e-8 * (1 + abs(expected))


@BOTH
@settings(max_examples=200)
@given(sign=signs, mean=means, deviation=deviations, other_mean=means, other_deviation=deviations)
def test_the_majoriser_touches_and_dominates(loss, sign, mean, deviation, other_mean, other_deviation):
    second, other_second = mean**2 + deviation**2, other_mean**2 + other_deviation**2
    slope, weight = loss.majoriser(sign, mean, second)
    assert weight > 0
    at_other = (
        loss.bound(sign, mean, second)
        - slope * sign * (other_mean - mean)
        + 0.5 * weight * (other_second - second)
    )
    truth = loss.bound(sign, other_mean, other_second)
    assert at_other >= truth - 1e-7 * (1 + abs(truth) + abs(at_other))


@BOTH
@pytest.mark.parametrize("mean", [-3.0, -0.4, 0.0, 0.9, 5.0])
def test_slope_and_weight_are_the_derivatives_of_the_bound(loss, mean):
    second, step, sign = mean**2 + 0.3, 1e-6, -1
    slope, weight = loss.majoriser(sign, mean, second)
    by_mean = (loss.bound(sign, mean + step, second) - loss.bound(sign, mean - step, second)) / (2 * step)
    by_second = (loss.bound(sign, mean, second + step) - loss.bound(sign, mean, second - step)) / (
        2 * step
    )
    assert by_mean == pytest.approx(-slope * sign, rel=1e-6)
    assert by_second == pytest.approx(0.5 * weight, rel=1e-6)


@given(
    sign=signs,
    mean=means,
    v_left=st.floats(1e-6, 5),
    v_right=st.floats(1e-6, 5),
    left=means,
    right=means,
)
def test_the_hinge_bound_is_at_most_the_papers(sign, mean, v_left, v_right, left, right):
    """For one column: score variance v_L v_R + v_L R^2 + v_R L^2 against Proposition 1's sum."""
    mean = left * right
    variance = v_left * v_right + v_left * right**2 + v_right * left**2
    s_left, s_right = np.sqrt(2 * v_left / np.pi), np.sqrt(2 * v_right / np.pi)
    papers = max(0.0, 1 - sign * mean) + s_left * s_right + abs(right) * s_left + abs(left) * s_right
    assert HINGE.bound(sign, mean, mean**2 + variance) <= papers + 1e-4


def test_without_variance_the_bounds_are_the_losses():
    margin = np.linspace(-5, 5, 41)
    np.testing.assert_allclose(LOGISTIC.bound(1, margin, margin**2), LOGISTIC.value(margin), atol=0.2)
    np.testing.assert_allclose(HINGE.bound(1, margin, margin**2), HINGE.value(margin), atol=1e-4)


def test_large_scores_stay_finite():
    for loss in LOSSES:
        for value in (*loss.majoriser(1, -1e6, 1e12), loss.bound(1, -1e6, 1e12)):
            assert np.isfinite(value)
