"""The pieces of the moves that no score notices, each against what numpy says of lines written out."""

import numpy as np
import pytest

from onebit.engine.sampling.orbits import _drawn, _shear, _trade

RANK, SIZES = 2, (5, 4)
VARIANCES, SPREADS = np.array([0.7, 1.3]), np.array([0.8, 0.5])
INTERCEPT, INTERCEPT_VARIANCE, RESISTANCE = 0.4, 10.0, 0.3


def drawn(precision, linear, noise):
    place = linear.copy()
    return _drawn(precision.copy(), place, noise), place


def test_a_draw_has_the_mean_and_the_covariance_of_its_precision():
    rng = np.random.default_rng(0)
    roots, linear = rng.normal(size=(4, 6)), rng.normal(size=4)
    precision = roots @ roots.T
    there, mean = drawn(precision, linear, np.zeros(4))
    assert there
    np.testing.assert_allclose(mean, np.linalg.solve(precision, linear), rtol=1e-10)
    steps = np.array([drawn(precision, linear, unit)[1] - mean for unit in np.eye(4)])
    np.testing.assert_allclose(steps.T @ steps, np.linalg.inv(precision), rtol=1e-10)


def test_what_has_vanished_is_not_drawn():
    assert not drawn(np.diag([1.0, 0.0]), np.ones(2), np.ones(2))[0]


def traded(lines, s, both, centred, noise):
    """Return both sides' lines and the intercept after a trade."""
    sides = tuple(
        (part.sum(axis=0), part.T @ part, np.zeros((0, part.shape[1])), np.zeros((0, part.shape[1])),
         np.eye(part.shape[1]), np.zeros(part.shape[1]))
        for part in lines
    )  # fmt: skip
    intercept = _trade(
        sides, np.array(SIZES, float), s, RESISTANCE, VARIANCES, SPREADS, both, centred, INTERCEPT,
        INTERCEPT_VARIANCE, noise,
    )  # fmt: skip
    after = [part @ side[4] + side[5] for part, side in zip(lines, sides, strict=True)]
    for part, side in zip(after, sides, strict=True):
        np.testing.assert_allclose(side[0], part.sum(axis=0), atol=1e-12)
        np.testing.assert_allclose(side[1], part.T @ part, atol=1e-12)
    return after, intercept


def energy(lines, intercept, s, centred):
    """Return the energy of what a trade moves: factors, effects around their centre, the intercept."""
    total = 0.5 * intercept**2 / INTERCEPT_VARIANCE
    total += 0.5 * RESISTANCE * (lines[s][:, :RANK] ** 2 / VARIANCES).sum()
    for side in (0, 1):
        effects = lines[side][:, RANK:] - (intercept if side == centred else 0.0)
        total += 0.5 * (effects**2).sum() / SPREADS[side]
    return total


@pytest.mark.parametrize(
    ("s", "both", "centred"), [(0, True, 0), (1, True, 0), (1, False, 0), (0, False, 1)]
)
def test_a_trade_is_a_draw_along_all_that_no_score_notices(s, both, centred):
    """Where it goes without noise is the mode of the energy, and what noise adds has its curvature."""
    rng = np.random.default_rng(3)
    lines = [rng.normal(1.0, 1.0, (size, RANK + 1)) for size in SIZES]
    if not both:
        lines[s] = lines[s][:, :RANK]
    free = RANK + 2 if both else RANK + 1

    def moved(steps):
        """Return the lines, written out, that differ by these steps."""
        after = [part.copy() for part in lines]
        after[1 - s][:, RANK] -= lines[1 - s][:, :RANK] @ steps[:RANK]
        after[s][:, :RANK] += steps[:RANK]
        if both:
            after[1 - s][:, RANK] += steps[RANK + 1]
            after[s][:, RANK] -= steps[RANK + 1]
        return energy(after, INTERCEPT + steps[RANK], s, centred)

    nowhere, units = np.zeros(free), np.eye(free)
    curvature = np.array(
        [[moved(a + b) - moved(a) - moved(b) + moved(nowhere) for b in units] for a in units]
    )
    slope = np.array([0.5 * (moved(a) - moved(-a)) for a in units])

    def steps_of(noise):
        after, intercept = traded(lines, s, both, centred, noise)
        scores = [part[0][:, :RANK] @ part[1][:, :RANK].T for part in (lines, after)]
        for side in (0, 1):
            for score, part in zip(scores, (lines, after), strict=True):
                if part[side].shape[1] > RANK:
                    score += part[side][:, RANK][:, None] if side == 0 else part[side][:, RANK]
        np.testing.assert_allclose(scores[1], scores[0], atol=1e-12)
        level = [lines[s][0, RANK] - after[s][0, RANK]] if both else []
        return np.array([*(after[s][0, :RANK] - lines[s][0, :RANK]), intercept - INTERCEPT, *level])

    mode = steps_of(nowhere)
    np.testing.assert_allclose(mode, -np.linalg.solve(curvature, slope), atol=1e-10)
    spread = np.array([steps_of(unit) - mode for unit in units])
    np.testing.assert_allclose(spread.T @ spread, np.linalg.inv(curvature), atol=1e-10)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_shear_is_a_draw_between_two_columns_whose_means_and_slopes_are_integrated_out(noise):
    """The slopes of a column have priors of its own, of whichever column is added to it."""
    rng = np.random.default_rng(4)
    lines = [rng.normal(1.0, 1.0, (size, RANK)) for size in SIZES]
    told = [rng.normal(size=(size, 3)) for size in SIZES]
    told = [part - part.mean(axis=0) for part in told]
    shares = [rng.uniform(0.0, 0.1, (3, RANK)) for _ in SIZES]
    means = np.array([0.1, 0.15])
    sides = tuple(
        (part.sum(axis=0), part.T @ part, known.T @ part, share, np.eye(RANK), np.zeros(RANK))
        for part, known, share in zip(lines, told, shares, strict=True)
    )
    j, k = 0, 1
    _shear(sides, means, np.array(SIZES, float), VARIANCES, np.array([[j, k]]), np.array([noise]))
    change = sides[0][4][j, k]
    assert sides[1][4][k, j] == pytest.approx(-change)

    def energy_at(c):
        total = 0.0
        for side, taker, column in ((0, k, lines[0][:, k] + c * lines[0][:, j]),
                                    (1, j, lines[1][:, j] - c * lines[1][:, k])):  # fmt: skip
            left = (column**2).sum() - means[side] * column.sum() ** 2
            left -= (shares[side][:, taker] * (told[side].T @ column) ** 2).sum()
            total += 0.5 * left / VARIANCES[taker]
        return total

    curvature = energy_at(1.0) - 2.0 * energy_at(0.0) + energy_at(-1.0)
    mode = -0.5 * (energy_at(1.0) - energy_at(-1.0)) / curvature
    assert change == pytest.approx(mode + noise / np.sqrt(curvature))
    for side, part, known in zip(sides, lines, told, strict=True):
        after = part @ side[4]
        np.testing.assert_allclose(side[0], after.sum(axis=0), atol=1e-12)
        np.testing.assert_allclose(side[1], after.T @ after, atol=1e-12)
        np.testing.assert_allclose(side[2], known.T @ after, atol=1e-12)
