"""A row's length along its density, against quadrature."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from onebit.engine.lengths import draw_lengths, log_density, scratch

NONE = np.empty(0, np.int64)


@pytest.fixture
def row():
    """Parts of 150 scores that go with the row and that do not, with the answers to them."""
    rng = np.random.default_rng(0)
    own, fixed = rng.normal(size=(2, 150)).astype(np.float32)
    sign = np.where(rng.random(150) < 1 / (1 + np.exp(-own - fixed)), 1, -1).astype(np.int8)
    return own, fixed, sign


def reference(log_length, own, fixed, sign, copies):
    g = np.exp(log_length)
    margin = sign[:, None] * (np.outer(own, g) + fixed[:, None]).astype(float)
    return 5 * log_length - 1.5 * g * g + 4.0 * g - copies @ np.logaddexp(0.0, -margin)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_density_and_its_slope_are_what_they_say(row, weighted):
    copies = np.resize([1, 3, 2], 150).astype(np.int64) if weighted else NONE
    weights = copies if weighted else np.ones(150)
    points = np.array([-1.5, -0.2, 0.0, 0.9])
    found = np.array([log_density(s, 5, 3.0, 4.0, 150, *row, copies, scratch()) for s in points])
    expected = reference(points, *row, weights)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)
    slope = (reference(points + 1e-5, *row, weights) - reference(points - 1e-5, *row, weights)) / 2e-5
    np.testing.assert_allclose(found[:, 1], slope, rtol=1e-4, atol=1e-3)
    assert (found[:, 2] > 0).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("separated", [False, True])
def test_lengths_follow_their_density(row, weighted, separated):
    own, fixed, sign = row
    if separated:  # then nothing but the prior ends the length
        sign, fixed = np.sign(own).astype(np.int8), np.zeros_like(fixed)
    copies = np.resize([1, 3, 2], 150).astype(np.int64) if weighted else NONE
    draws = np.empty(20_000)
    draw_lengths(5, 3.0, 4.0, own, fixed, sign, copies, (1, 2), 0, draws)
    grid = np.linspace(-6.0, 3.0, 9001)
    weight = reference(grid, own, fixed, sign, copies if weighted else np.ones(150))
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    mean = weight @ np.exp(grid)
    deviation = np.sqrt(weight @ (np.exp(grid) - mean) ** 2)
    size = float(array_stats.ess(draws[None], chain_axis=0, draw_axis=1, method="mean"))
    assert abs(draws.mean() - mean) < 4 * deviation / np.sqrt(size)
    assert draws.std() == pytest.approx(deviation, rel=0.05)
    assert size > 3000  # most proposals are accepted
    levels = np.searchsorted(np.cumsum(weight), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(
        np.quantile(draws, [0.1, 0.5, 0.9]), np.exp(grid[levels]), atol=0.08 * deviation
    )


def test_a_row_at_zero_stays():
    draws = np.empty(3)
    zero = np.zeros(4, np.float32)
    draw_lengths(5, 0.0, 0.0, zero, zero, np.ones(4, np.int8), NONE, (1, 2), 0, draws)
    np.testing.assert_array_equal(draws, 1.0)
