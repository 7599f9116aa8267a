"""The sampler on a GPU against the CPU's, against quadrature and against itself."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate

from onebit import LogisticCompleter, load
from onebit.data.observations import Observations
from onebit.engine.cpu.presence import CpuTall
from onebit.engine.gpu import data as gpu_data
from onebit.engine.gpu import device as gpus
from onebit.engine.gpu import lines as gpu_lines
from onebit.engine.gpu.data import uploaded
from onebit.engine.gpu.lines import GpuLines
from onebit.engine.gpu.transfer import to_device
from onebit.engine.known import Known
from onebit.engine.sampling import whole
from onebit.engine.sampling.lines import ALONE, Change, on_one_thread
from onebit.engine.sampling.target import Target, filled_table
from onebit.engine.sampling.trends import FIXED, Evidence, Trend, move_along
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import HINGE, LOGISTIC
from onebit.model.priors import InverseGamma

LOSSES = pytest.mark.parametrize("loss", [LOGISTIC, HINGE], ids=lambda loss: loss.name)


def world(shape, rank, loss, device, temperature=1.0, weight=None, seed=0, density=0.7):
    """Return both kinds of lines of one made table, and what they sample."""
    rng = np.random.default_rng(seed)
    pairs = np.argwhere(rng.random(shape) < density)
    signs = rng.choice([-1, 1], size=len(pairs))
    weight = None if weight is None else np.resize(weight, len(pairs))
    seen = Observations.from_pairs(pairs, signs, weight)
    prior = InverseGamma(3.0, 2.0)
    hierarchy = Hierarchy(seen.shape, rank, True, True, prior, prior, 0.7, factor_means=True)
    target = Target.of(seen, hierarchy, loss, temperature)
    values = [rng.normal(size=(size, rank + 1)) for size in seen.shape]
    views = tuple(uploaded(view, device, False) for view in (seen.by_row, seen.by_column))
    return GpuLines(target, values, views), on_one_thread(target, values), target


@LOSSES
@pytest.mark.parametrize(("rank", "weight"), [(0, None), (2, None), (3, [1.0, 3.0])])
def test_the_log_likelihood_along_the_whole_is_the_cpus(loss, rank, weight, device, small, monkeypatch):
    monkeypatch.setattr(whole, "_ENOUGH", 10**9)  # else some of many answers tell of the curvature
    here, there, _ = world(small, rank, loss, device, 1.0 if loss is LOGISTIC else 1.7, weight)
    scale = np.exp(0.1 * np.arange(rank + 2.0))
    one, two = (lines.along(scale, 0.3, (0.2, 0.0)) for lines in (here, there))
    assert one.value == pytest.approx(two.value, rel=1e-5)
    np.testing.assert_allclose(one.slope, two.slope, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(one.curvature, two.curvature, rtol=1e-4, atol=1e-3)


def test_of_many_answers_some_chunks_tell_of_the_curvature_along_the_whole(device, small, monkeypatch):
    """Every third row, here; they stand for all, while value and slope are of all."""
    here, there, _ = world(small, 2, LOGISTIC, device)
    look = np.ones(4), 0.3, (0.2, 0.0)
    monkeypatch.setattr(whole, "_ENOUGH", 10**9)
    known = there.along(*look)
    counts = np.diff(there.target.views[0].start)
    assert (counts > 0).all()  # a chunk each
    curvature = np.zeros_like(known.curvature)
    for row in range(0, len(counts), 3):
        there.target.__dict__["blocks"] = np.array([row, row + 1])
        curvature += there.along(*look).curvature
    monkeypatch.setattr(gpu_lines, "stride_of", lambda answers: 3)
    found = here.along(*look)
    np.testing.assert_allclose(
        found.curvature, curvature * counts.sum() / counts[::3].sum(), rtol=1e-4, atol=1e-3
    )
    np.testing.assert_allclose(found.slope, known.slope, rtol=1e-4, atol=1e-3)
    assert found.value == pytest.approx(known.value, rel=1e-5)


@pytest.mark.parametrize("rank", [3, 70])
def test_lines_are_summed_changed_and_kept_as_on_the_cpu(rank, device, small):
    here, there, target = world(small, rank, LOGISTIC, device)
    rng, free = np.random.default_rng(3), rank + 1
    for side in (0, 1):
        matrix = np.eye(free) + 0.1 * rng.normal(size=(free, free)) / np.sqrt(free)
        change = Change(matrix, rng.normal(size=free))
        for lines in (here, there):
            lines.change(side, change)
        one, two = here.moments()[side], there.moments()[side]
        np.testing.assert_allclose(one.total, two.total, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(one.gram, two.gram, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(here.table(side), there.table(side), rtol=1e-5, atol=1e-5)
        here.put(side, there.table(side))
        np.testing.assert_array_equal(here.table(side), there.table(side))
    rows, columns = (rng.integers(size, size=20) for size in target.hierarchy.shape)
    np.testing.assert_allclose(here.scores(rows, columns), there.scores(rows, columns), atol=1e-5)
    places = np.arange(0, 20, 3)
    for one, two in zip(here.answers(places), there.answers(places), strict=True):
        np.testing.assert_array_equal(one, two)


def rows_of(loss, device, signs, scores, copies, temperature=1.0, weight=None):
    """Return lines of many equal rows that gave the same answers to columns of known effects."""
    pairs = np.argwhere(np.ones((copies, len(signs)), bool))
    told = None if weight is None else np.tile(weight, copies)
    seen = Observations.from_pairs(pairs, np.tile(signs, copies), told)
    prior = InverseGamma(3.0, 2.0)
    hierarchy = Hierarchy(seen.shape, 0, True, True, prior, prior, 0.7)
    target = Target.of(seen, hierarchy, loss, temperature)
    views = tuple(uploaded(view, device, False) for view in (seen.by_row, seen.by_column))
    return GpuLines(target, [np.zeros((copies, 1)), np.asarray(scores)[:, None]], views)


@LOSSES
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 1.0, 3.0]])
def test_rows_given_the_columns_have_the_moments_of_quadrature(loss, weight, device):
    """Rows with an effect alone: its density given the columns is one-dimensional."""
    signs, fixed = np.array([1, 1, -1, 1]), np.array([0.5, -1.0, 26.0, 2.0])
    copies, burn, keep = (24, 4, 4) if gpus.interpreted() else (20_000, 10, 10)
    lines = rows_of(loss, device, signs, fixed, copies, weight=weight)
    lines._walk_ahead = lambda *draw: None  # columns are not drawn
    times = np.ones(4) if weight is None else np.array(weight)
    found = []
    for sweep in range(burn + keep):
        lines.draw(0, (7, 9), sweep + 1, np.array([0.5]), np.array([0.2]), None)
        if sweep >= burn:
            found.append(lines.table(0)[:, 1].astype(float))
    grid = np.linspace(-40.0, 15.0, 20_001)
    loss_there = loss.value(signs * (grid[:, None] + fixed))
    log = 0.2 * grid - 0.25 * grid**2 - (times * loss_there).sum(axis=1)
    density = np.exp(log - log.max())
    density /= integrate.simpson(density, x=grid)
    mean = integrate.simpson(density * grid, x=grid)
    spread = integrate.simpson(density * (grid - mean) ** 2, x=grid)
    found = np.array(found)
    error = np.sqrt(found.mean(axis=0).var(ddof=1) / copies)
    assert abs(found.mean() - mean) < 4.5 * error
    squares = ((found - mean) ** 2).mean(axis=0)
    assert abs(squares.mean() - spread) < 4.5 * np.sqrt(squares.var(ddof=1) / copies)


@LOSSES
@pytest.mark.parametrize("wide", [16, 32, 40])
def test_columns_of_factors_that_are_zero_change_no_other_draw(loss, wide, device, small):
    """A walk takes wide lines in two parts: both must say what one part says of narrow lines."""
    narrow = 3
    here, _, target = world(small, narrow, loss, device)
    hierarchy = replace(target.hierarchy, rank=wide)
    values = [np.zeros((size, wide + 1)) for size in hierarchy.shape]
    for side, table in enumerate(values):
        lines = here.table(side)
        table[:, :narrow], table[:, wide] = lines[:, :narrow], lines[:, narrow + 1]
    same = Target(hierarchy, loss, target.temperature, target.views)
    there = GpuLines(same, values, here.views)
    for side in (0, 1):
        scales = []
        for lines, rank in ((here, narrow), (there, wide)):
            # The noise of an effect's prior is numbered by the rank: nearly no prior, nearly no noise.
            precision, linear = np.append(np.ones(rank), 1e-12), np.append(np.full(rank, 0.1), 0.0)
            found, _ = lines.draw(side, (5, 6), 1, precision, linear, None)
            square = found[: rank * rank].reshape(rank, rank)[:narrow, :narrow]
            scales.append(np.append(square, found[rank * rank :][:narrow]))
        one, two = here.table(side), there.table(side)
        np.testing.assert_allclose(two[:, :narrow], one[:, :narrow], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(two[:, wide + 1], one[:, narrow + 1], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(scales[1], scales[0], rtol=2e-3, atol=2e-2)
        there.put(side, filled_table(values[side], wide, True))
        here.put(side, filled_table(values[side][:, [0, 1, 2, wide]], narrow, True))


def test_a_row_is_drawn_by_the_precision_of_its_factors_and_its_effect_together(device):
    """Draws under other linear terms differ by the covariance, and its inverse is a sum over answers."""
    here, _, _ = world((8, 5), 3, LOGISTIC, device, density=1.1)
    begin, precision = here.table(0).copy(), np.array([1.0, 2.0, 0.5, 0.7])

    def drawn(linear):
        here.put(0, begin.copy())
        here.draw(0, (1, 2), 1, precision, linear, None)
        return here.table(0)[:, [0, 1, 2, 4]].astype(float)

    plain = drawn(np.zeros(4))
    covariance = np.stack([(drawn(90.0 * unit) - plain) / (1.8 * 90.0) for unit in np.eye(4)], axis=-1)
    facing = here.table(1)[:, :4].astype(float)  # factors, then the 1 that faces an effect
    products = np.stack([np.outer(line, line).ravel() for line in facing], axis=1)
    for each in covariance:
        np.testing.assert_allclose(each, each.T, rtol=1e-4, atol=1e-5)
        told = (np.linalg.inv(each) - np.diag(precision)).ravel()
        curvature = np.linalg.lstsq(products, told, rcond=None)[0]
        np.testing.assert_allclose(products @ curvature, told, rtol=1e-3, atol=2e-3)
        assert (curvature > 0).all()


@LOSSES
def test_rows_move_along_their_trend_as_on_a_cpu(loss, device, small, monkeypatch):
    here, _, target = world(small, 3, loss, device)
    start, seen, rng = here.table(0).copy(), [], np.random.default_rng(8)
    known = rng.normal(size=(len(start), 2)).astype(np.float32)
    target.known = Known((to_device(known, device), None))
    known_too = np.full((2, 4), 0.1), np.arange(2)
    slopes, freedom = np.full((3, 4), 0.1), np.vstack([np.ones((2, 4)), [1.0, 2.0, 0.5, FIXED]])
    spread, noise = np.full(4, 1e-3), rng.standard_normal((4, 3))

    def drawn(noise):
        here.put(0, start.copy())
        trend = Trend(*known_too, slopes, freedom, spread, noise)
        scales, _ = here.draw(0, (5, 6), 1, np.ones(4), np.zeros(4), trend)
        return scales, here.table(0)[:, [0, 1, 2, 4]]

    kernels, still = drawn(None)
    monkeypatch.setattr(gpu_lines, "move_along", lambda *parts: seen.append(parts[3]))
    scales, unmoved = drawn(noise)
    np.testing.assert_array_equal(unmoved, still)
    lower = np.r_[np.flatnonzero(np.tri(3).ravel()), 9:12]
    np.testing.assert_allclose(scales[lower], kernels[lower], rtol=2e-3, atol=1e-3)
    monkeypatch.undo()
    _, moved = drawn(noise)
    evidence = Evidence(*(part.cpu().numpy() for part in (seen[0].precision, seen[0].linear)))
    expected = still.T.astype(float)
    lines = np.hstack([known, np.ones((len(still), 1), np.float32)])
    move_along(
        CpuTall(ALONE), lines, expected, evidence, Trend(*known_too, slopes, freedom, spread, noise)
    )
    assert np.abs(expected - still.T).max() > 1e-2
    np.testing.assert_allclose(moved, expected.T, rtol=1e-4, atol=1e-4)


def test_draws_depend_on_their_key_alone(device, small):
    here, there, _ = world(small, 2, LOGISTIC, device)
    tables = []
    for key in ((1, 2), (1, 2), (3, 2)):
        for side in (0, 1):
            here.put(side, there.table(side))
        for sweep in (1, 2):
            for side in (0, 1):
                here.draw(side, key, sweep, np.ones(3), np.zeros(3), None)
        tables.append(here.table(0))
    np.testing.assert_array_equal(tables[0], tables[1])
    assert not np.allclose(tables[0], tables[2])


def test_a_walk_ahead_changes_no_draw_and_does_not_outlive_a_change(device, small):
    here, there, _ = world(small, 2, LOGISTIC, device)
    half = Change(0.5 * np.eye(3), np.zeros(3))

    def swept(changes, forget):
        for side in (0, 1):
            here.put(side, there.table(side))
        for sweep in (1, 2):
            for side in (0, 1):
                if forget:
                    here._walked = None
                else:
                    assert here._walked is None or here._walked == (side, (1, 2), sweep)
                _, moments = here.draw(side, (1, 2), sweep, np.ones(3), np.zeros(3), None)
                if changes:
                    here.change(0, half)
            if not changes:
                np.testing.assert_array_equal(moments.gram, here.moments()[1].gram)
            here.expect((1, 2), sweep + 1)
            assert here._walked == (0, (1, 2), sweep + 1)
        return here.table(0)

    plain = swept(False, False)
    np.testing.assert_array_equal(plain, swept(False, True))
    changed = swept(True, False)
    np.testing.assert_array_equal(changed, swept(True, True))
    assert not np.allclose(plain, changed)


@pytest.mark.parametrize("rank", [2, 14])
def test_answers_taken_at_once_change_no_draw_but_for_rounding(rank, device, small, monkeypatch):
    """Lines are asked for a block ahead, and codes two: rows of one block, and of several."""
    least = 2 if gpus.interpreted() else 16  # of a product on a GPU
    found, looks, free = [], [], rank + 1
    for at_once in (32, least):
        here, _, _ = world(small, rank, LOGISTIC, device)
        options = {"BLOCK": at_once, "num_warps": 1}
        monkeypatch.setattr(GpuLines, "_block", property(lambda _, options=options: options))
        monkeypatch.setattr(gpu_lines, "_LOOKED_AT", at_once)
        here.draw(0, (1, 2), 1, np.ones(free), np.zeros(free), None)
        found.append(here.table(0))
        looks.append(here.along(np.ones(rank + 2), 0.3, (0.2, 0.0)))
    assert small[1] > 2 * least
    np.testing.assert_allclose(found[1], found[0], atol=2e-4)
    np.testing.assert_allclose(looks[1].curvature, looks[0].curvature, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("rows_at_once", [2, 5])
def test_batches_change_no_draw(rows_at_once, device, small, monkeypatch):
    tables = []
    for lines_of_sums in (None, rows_at_once):
        if lines_of_sums is not None:
            monkeypatch.setattr(gpu_data, "SCRATCH", lines_of_sums * 4 * 16**2)
        here, _, _ = world(small, 2, LOGISTIC, device)
        batches = len(here.views[0].batches(here._line_bytes))
        assert batches == 1 if lines_of_sums is None else batches > 1
        for sweep in (1, 2):
            for side in (0, 1):
                here.draw(side, (1, 2), sweep, np.ones(3), np.zeros(3), None)
            here.expect((1, 2), sweep + 1)
        tables.append([here.table(side) for side in (0, 1)])
    for one, two in zip(*tables, strict=True):
        np.testing.assert_array_equal(one, two)


def test_lines_that_are_not_finite_are_named_before_a_trend_moves_them(device, small):
    here, _, target = world(small, 2, LOGISTIC, device)
    size = len(here.table(0))
    known = np.random.default_rng(0).normal(size=(size, 1)).astype(np.float32)
    target.known = Known((to_device(known, device), None))
    table = here.table(1).copy()
    table[0, 0] = np.inf
    here.put(1, table)
    trend = Trend(
        np.zeros((1, 3)), np.arange(1), np.zeros((2, 3)), np.ones((2, 3)), np.full(3, 1e-3),
        np.zeros((3, 2)),
    )  # fmt: skip
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="diverged in sweep 4"):
        here.draw(0, (1, 2), 4, np.ones(3), np.zeros(3), trend)


def test_a_sampled_fit_runs_on_the_gpu_from_end_to_end(small, tmp_path):
    rng = np.random.default_rng(1)
    pairs = np.argwhere(rng.random(small) < 0.8)
    answers = rng.random(len(pairs)) < 0.6
    draws = 2 if gpus.interpreted() else 60
    settings = {"inference": "sampling", "n_samples": draws, "n_chains": 2, "n_burn_in": 1, "max_iter": 2}
    models = [
        LogisticCompleter(2, random_state=0, device="cuda", **settings).fit(pairs, answers)
        for _ in range(2)
    ]
    chances = [model.predict_proba(pairs[:9]) for model in models]
    np.testing.assert_array_equal(*chances)
    models[0].save(tmp_path / "gpu.onebit")
    np.testing.assert_array_equal(load(tmp_path / "gpu.onebit").predict_proba(pairs[:9]), chances[0])


@pytest.mark.skipif(gpus.interpreted(), reason="long chains need a GPU")
@pytest.mark.parametrize("kind", ["plain", "patterned"])
def test_long_chains_of_both_devices_agree(kind):
    rng = np.random.default_rng(2)
    shape = (200, 150)
    truth = rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1])) + rng.normal(size=shape[1])
    pairs = np.argwhere(rng.random(shape) < 0.3)
    answers = rng.random(len(pairs)) < 1 / (1 + np.exp(-truth[tuple(pairs.T)]))
    settings = {"inference": "sampling", "n_samples": 800, "n_chains": 4, "n_burn_in": 100}
    settings["pattern"] = None if kind == "plain" else "both"
    here, there = (
        LogisticCompleter(4, random_state=0, device=place, **settings).fit(pairs, answers)
        for place in ("cuda", "cpu")
    )
    asked = np.argwhere(rng.random(shape) < 0.05)
    one, two = (model.predict_proba(asked)[:, 1] for model in (here, there))
    assert np.abs(one - two).mean() < 0.01
    shared = ["loss", "mean score", "norm of the row effects", "norm of the column effects"]
    for name in shared:
        first, second = here.diagnostics_.loc[name], there.diagnostics_.loc[name]
        error = np.hypot(
            first["sd"] / np.sqrt(first["ess_bulk"]), second["sd"] / np.sqrt(second["ess_bulk"])
        )
        assert abs(first["mean"] - second["mean"]) < 4.5 * error
