"""A row's length along its density, against quadrature."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from onebit.engine.sampling import lengths
from onebit.engine.sampling.room import margins_room
from onebit.model.losses import HINGE, LOGISTIC

LOSSES = pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)
WEIGHTED = pytest.mark.parametrize("weighted", [False, True])


@pytest.fixture
def row():
    """Parts of 150 scores that go with the row and that do not, with the answers to them."""
    rng = np.random.default_rng(0)
    own, fixed = rng.normal(size=(2, 150)).astype(np.float32)
    sign = np.where(rng.random(150) < 1 / (1 + np.exp(-own - fixed)), 1, -1).astype(np.int8)
    return own, fixed, sign


def weights(weighted):
    return np.resize([1.0, 3.0, 2.0], 150 if weighted else 0).astype(np.float32)


def reference(log_length, own, fixed, sign, times, loss):
    g = np.exp(log_length)
    margin = sign[:, None] * (np.outer(own, g) + fixed[:, None]).astype(float)
    times = times if len(times) else np.ones(len(own))
    return 5 * log_length - 1.5 * g * g + 4.0 * g - times @ loss.value(margin)


@WEIGHTED
@LOSSES
def test_the_density_and_its_slope_are_what_they_say(row, loss, weighted):
    times = weights(weighted)
    points, room = np.array([-1.5, -0.2, 0.0, 0.9]), margins_room()
    answers = 150, *row, times
    found = np.array([lengths.log_density(s, 5, 3.0, 4.0, answers, loss.code, room) for s in points])
    np.testing.assert_allclose(found[:, 0], reference(points, *row, times, loss), rtol=1e-6)
    ends = [reference(points + step, *row, times, loss) for step in (-1e-6, 1e-6)]
    np.testing.assert_allclose(found[:, 1], (ends[1] - ends[0]) / 2e-6, rtol=1e-4, atol=2e-3)
    assert (found[:, 2] > 0).all()


@WEIGHTED
@LOSSES
@pytest.mark.parametrize("separated", [False, True])
def test_lengths_follow_their_density(row, loss, weighted, separated):
    own, fixed, sign = row
    if separated:  # then nothing but the prior ends the length
        sign, fixed = np.sign(own).astype(np.int8), np.zeros_like(fixed)
    times, draws, room = weights(weighted), np.empty(20_000), margins_room()
    lengths.draw_lengths(5, 3.0, 4.0, own, fixed, sign, times, loss.code, (1, 2), 0, room, draws)
    grid = np.linspace(-6.0, 3.0, 9001)
    weight = reference(grid, own, fixed, sign, times, loss)
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    mean = weight @ np.exp(grid)
    deviation = np.sqrt(weight @ (np.exp(grid) - mean) ** 2)
    draws = draws[100:]  # from one to where the density is
    size = float(array_stats.ess(draws[None], chain_axis=0, draw_axis=1, method="mean"))
    assert abs(draws.mean() - mean) < 4 * deviation / np.sqrt(size)
    assert draws.std() == pytest.approx(deviation, rel=0.05)
    assert size > 3000  # most proposals are accepted
    levels = np.searchsorted(np.cumsum(weight), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(
        np.quantile(draws, [0.1, 0.5, 0.9]), np.exp(grid[levels]), atol=0.1 * deviation
    )


def test_a_row_at_zero_stays():
    draws, zero = np.empty(3), np.zeros(4, np.float32)
    signs, room = np.ones(4, np.int8), margins_room()
    lengths.draw_lengths(5, 0.0, 0.0, zero, zero, signs, weights(False), 0, (1, 2), 0, room, draws)
    np.testing.assert_array_equal(draws, 1.0)
