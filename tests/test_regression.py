"""The regression of prior means: its divergence, its strengths, its slopes."""

from dataclasses import replace

import numpy as np
import pytest

from onebit import LogisticCompleter, Observations, simulate
from onebit.engine.cpu.presence import CpuPresence, CpuTall
from onebit.engine.cpu.threads import Threads
from onebit.engine.known import DIRECTIONS, known_of
from onebit.engine.workers import Cpu
from onebit.model.placing import DAMPING
from onebit.model.regression import STRENGTHS, Regression

POOL = Threads(1, None)


def lines_of(size, width, rng):
    """Lines whose columns are orthogonal and have mean zero."""
    basis = np.linalg.qr(np.column_stack([np.ones(size), rng.normal(size=(size, width))]))[0][:, 1:]
    return basis * np.sqrt(size * rng.uniform(0.2, 1.0, width))


@pytest.fixture
def setting(rng):
    lines = lines_of(40, 5, rng)
    regression = Regression((lines**2).sum(axis=0), {"features": 2, "pattern": 3}, np.zeros(5))
    coordinates = rng.normal(size=(40, 2)) + lines @ rng.normal(size=(5, 2)) * [0.8, 0.05]
    return lines, regression, coordinates


def test_the_divergence_of_slopes_and_strengths_agrees_with_monte_carlo(setting, rng):
    lines, regression, coordinates = setting
    gamma = np.array([0.7, 1.3])
    projections = lines.T @ coordinates
    # Slopes that are best for other coordinates than the present ones: the bound holds for any.
    slopes = regression.fitted(0.9 * projections, 1.0 / gamma)
    draws = 40_000
    total = np.zeros(draws)
    begin = 0
    residual = np.repeat(coordinates[None], draws, axis=0)
    for number, (name, width) in enumerate(regression.groups.items()):
        squares = regression.squares[regression.places(name)]
        for k in range(2):
            weights = slopes.weights[number, k]
            place = rng.choice(len(STRENGTHS), p=weights / weights.sum(), size=draws)
            omega = STRENGTHS[place][:, None]
            share = 1.0 / (squares + 1.0 / omega)
            mean = share * 0.9 * projections[begin : begin + width, k]
            deviation = np.sqrt(gamma[k] * share)
            noise = rng.normal(size=(draws, width))
            slope = mean + deviation * noise
            total += np.log(weights[place] * len(STRENGTHS))
            total += (-0.5 * noise**2 - np.log(deviation)).sum(axis=1)
            prior = np.sqrt(gamma[k] * omega)
            total += (0.5 * (slope / prior) ** 2 + np.log(prior)).sum(axis=1)
            residual[:, :, k] -= slope @ lines[:, begin : begin + width].T
        begin += width
    energy = (residual**2).sum(axis=1) - (coordinates**2).sum(axis=0)
    total += 0.5 * (energy / gamma).sum(axis=1)
    said = regression.kl(slopes) - 0.5 * (regression.relief(slopes, projections) / gamma).sum()
    assert abs(total.mean() - said) < 4.0 * total.std() / np.sqrt(draws)


def test_fitted_slopes_are_the_best_ones(setting):
    _, regression, coordinates = setting
    lines = setting[0]
    projections, inverse = lines.T @ coordinates, np.array([1.4, 0.8])

    def cost(slopes):
        relief = regression.relief(slopes, projections)
        return regression.kl(slopes) - 0.5 * (relief * inverse).sum()

    best = regression.fitted(projections, inverse)
    for factor in (0.8, 0.99, 1.01, 1.2):
        assert cost(best) < cost(replace(best, mean=factor * best.mean))
    for other in np.eye(len(STRENGTHS)):
        weights = 0.9 * best.weights + 0.1 * other
        shares = np.vstack(
            [
                (weights[number] @ regression.shares(STRENGTHS)[:, regression.places(name)]).T
                for number, name in enumerate(regression.groups)
            ]
        )
        assert cost(best) < cost(replace(best, weights=weights, shares=shares, mean=shares * projections))


def test_a_strength_is_found_where_there_is_one_and_pruned_where_there_is_none(rng):
    strengths = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        lines = lines_of(400, 6, rng)
        lines /= np.sqrt((lines**2).sum() / len(lines))
        regression = Regression((lines**2).sum(axis=0), {"pattern": 6}, np.zeros(6))
        omega = 0.5
        explained = lines @ rng.normal(size=6) * np.sqrt(omega)
        coordinates = np.column_stack([explained, np.zeros(400)]) + rng.normal(size=(400, 2))
        strengths.append(regression.fitted(lines.T @ coordinates, np.ones(2)).strength[0])
    told, silent = np.array(strengths).T
    assert 0.2 < np.median(told) < 1.2
    assert np.median(silent) < 0.02


def test_directions_are_those_of_the_divided_pattern_and_new_rows_land_on_their_own(rng):
    """Each entry counts once however often it is answered, and the order of answers does not matter."""
    rows, columns = rng.integers(0, 60, 900), rng.integers(0, 40, 900)
    seen = Observations.from_pairs(np.stack([rows, columns], axis=1), rng.integers(0, 2, 900))
    known = known_of(CpuTall(POOL), seen.shape, CpuPresence(seen, POOL), (True, True))
    pattern = np.zeros(seen.shape)
    pattern[seen.rows.encode(rows), seen.columns.encode(columns)] = 1.0
    for side, view in enumerate((seen.by_row, seen.by_column)):
        own = pattern if side == 0 else pattern.T
        divided = own / np.sqrt(own.sum(axis=1, keepdims=True) + DAMPING)
        divided = divided / np.sqrt(own.sum(axis=0) + DAMPING)
        lines, regression = known.values[side].astype(float), known.regressions[side]
        np.testing.assert_allclose(lines.mean(axis=0), 0.0, atol=1e-5)
        gram = lines.T @ lines
        np.testing.assert_allclose(gram, np.diag(regression.squares), atol=1e-3 * gram.max())
        assert np.trace(gram) == pytest.approx(len(lines), rel=1e-5)
        # With as many directions as the matrix has, inner products are those of the centred pattern.
        assert regression.width <= min(DIRECTIONS, *seen.shape)
        centred = divided - divided.mean(axis=0)
        kernel = centred @ centred.T
        np.testing.assert_allclose(lines @ lines.T, kernel * len(lines) / np.trace(kernel), atol=2e-3)
        placed = known.placings[side].coordinates(view)
        np.testing.assert_allclose(placed, lines, atol=1e-4)


def test_threads_do_not_change_what_is_known(rng):
    seen = Observations.from_pairs(rng.integers(0, 3000, (60_000, 2)), rng.integers(0, 2, 60_000))
    from concurrent.futures import ThreadPoolExecutor

    alone = known_of(CpuTall(POOL), seen.shape, CpuPresence(seen, POOL), (True, True))
    with ThreadPoolExecutor(2) as executor:
        pool = Threads(2, executor)
        shared = known_of(CpuTall(pool), seen.shape, CpuPresence(seen, pool), (True, True))
    for side in (0, 1):
        np.testing.assert_array_equal(alone.values[side], shared.values[side])


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_the_objective_never_rises_with_the_pattern(covariance):
    world = simulate.world("B2", rank=2, shape=(80, 60), density=0.3, seed=1)
    model = LogisticCompleter(4, pattern="both", covariance=covariance, max_iter=60)
    path = model.fit(world.pairs, world.answers).objective_path_
    assert (np.diff(path) <= 1e-6 * np.abs(path[1:])).all()


def test_a_full_table_has_no_pattern():
    answers = np.random.default_rng(0).integers(0, 2, (12, 9))
    with_it, without = (
        LogisticCompleter(2, pattern=pattern, random_state=0).fit(answers) for pattern in ("both", None)
    )
    assert with_it.posterior_.hierarchy.regressions == (None, None)
    assert with_it.objective_ == without.objective_


def test_regressions_of_another_device_are_the_same_but_for_rounding():
    squares = np.array([300.0, 40.0, 2e-3])
    here = Regression(squares, {"pattern": 3}, np.zeros(3))
    rounded = Regression(squares + np.array([0.02, -0.02, 0.02]), {"pattern": 3}, np.zeros(3))
    assert here.close_to(rounded)
    assert rounded.close_to(here)
    assert here != rounded
    for other in (squares + np.array([0.0, 0.04, 0.0]), squares[:2]):
        assert not here.close_to(Regression(other, {"pattern": len(other)}, np.zeros(len(other))))


def test_variances_are_the_best_ones_beside_what_the_pattern_explains():
    """Of factors and of effects: what an update leaves lowers the divergence most."""
    world = simulate.world("B2", rank=2, shape=(60, 40), density=0.4, seed=0)
    model = LogisticCompleter(2, random_state=0).fit(world.pairs, world.answers)
    posterior = model.posterior_
    hierarchy, hyper = posterior.hierarchy, posterior.hyper
    known = Cpu().known(model.kept_answers().fitted, hierarchy, True, (True, True))
    sums = []
    for side, part in enumerate(posterior.sides):
        lines = np.asarray(known.values[side], float)
        mean = part.mean + 0.5 * lines[:, :1]  # which the pattern explains
        sums.append(hierarchy.side_sums(side, mean, part.variance, 0.0, lines.T @ mean))
    for _ in range(300):
        hyper = hierarchy.update(sums, hyper)
    least = hierarchy.kl(sums, hyper)
    for name, prior in (("factors", hierarchy.factor_prior), ("row_effect", hierarchy.effect_prior)):
        present = getattr(hyper, name)
        count = sum(hierarchy.shape) if name == "factors" else hierarchy.shape[0]
        energy = 2.0 * ((prior.shape + 0.5 * count) / present.inverse - prior.scale)
        for factor in (0.97, 1.03):
            other = replace(hyper, **{name: prior.posterior(count, factor * energy)})
            assert hierarchy.kl(sums, other) > least
