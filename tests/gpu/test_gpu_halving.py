"""Tables in half the bytes: the same lines to half a step, the same fits, or whole lines again."""

import numpy as np
import pytest
import torch
from gpu_worlds import needs_gpu, random_answers
from test_gpu_engine import both_sides, gaussians, hierarchy_of, one_pass

from onebit.engine import descent, known
from onebit.engine.descent import Schedule, minimise
from onebit.engine.gpu import halving, side
from onebit.engine.gpu.halving import Halved, cache_bytes, pays
from onebit.engine.gpu.layout import LineLayout
from onebit.engine.gpu.transfer import to_host
from onebit.model.losses import GIBBS, HINGE, LOGISTIC


@pytest.fixture
def always(monkeypatch):
    """Halve all tables, however small they are."""
    monkeypatch.setattr(side, "pays", lambda *_: True)


def numbers_of(halved, shape):
    """What a walk takes the numbers of a halved table for, and the steps between them."""
    lines = to_host(halved.lines)
    bits = lines[:, shape.size].astype(np.int32) << 16
    far = bits.view(np.float32).astype(float)[:, None]
    step = np.where(np.arange(shape.size) < shape.last, far**2, far) / 32767
    step[:, -1] = 1.0
    step = step * to_host(halved.unit)
    return lines[:, : shape.size] * step, step


@pytest.mark.parametrize("effects", [(True, True), (False, False)])
@pytest.mark.parametrize("rank", [0, 1, 5, 13])
def test_a_halved_line_is_its_line_to_half_a_step(rank, effects, gpu, always):
    """No coordinate's step is larger than one in 32,767 of the furthest coordinate, in its own units."""
    seen = random_answers((20, 17), 0.5, rank)
    hierarchy = hierarchy_of(seen, rank, effects)
    begin = tuple(gaussians(size, hierarchy.n_free(k), True, k) for k, size in enumerate(seen.shape))
    for there in gpu.sides(seen, begin, hierarchy, True):
        shape = there.shape
        lines = to_host(there.lines).astype(float)[:, : shape.size]
        found, step = numbers_of(there.table, shape)
        assert (np.abs(found - lines) <= 0.501 * step + 1e-7 * np.abs(lines)).all()
        np.testing.assert_array_equal(found[:, -1], 1.0)
        squares = lines[:, np.cumsum(np.arange(1, shape.slots + 1)) - 1][:, :-1]
        units = np.maximum(np.sqrt(squares.mean(0)), 1e-12)
        far = np.sqrt((squares / units**2).max(1))
        means = step[:, shape.last : -1] * 32767 / units
        assert (means >= far[:, None] * (1 - 1e-6)).all()
        assert (means <= far[:, None] * 1.01 + 1e-5).all()


@pytest.mark.parametrize(
    ("rank", "weighted", "loss"),
    [(10, False, LOGISTIC), (1, True, LOGISTIC), (1, False, HINGE), (1, True, GIBBS)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_an_update_from_halved_tables_is_the_cpus(rank, weighted, loss, cpu, gpu, always):
    seen = random_answers((4, 6), 0.7, rank, weighted)
    hierarchy = hierarchy_of(seen, rank)
    theirs, ours = both_sides(seen, hierarchy, True, cpu, gpu)
    for k in (0, 1):
        assert isinstance(ours[1 - k].table, Halved)
        expected, found = (one_pass(each, hierarchy, k, loss) for each in (theirs, ours))
        assert found == pytest.approx(expected, rel=3e-5)
        after, reference = ours[k].gaussians(), theirs[k].gaussians()
        np.testing.assert_allclose(after.mean, reference.mean, atol=2e-4)
        np.testing.assert_allclose(after.covariance, reference.covariance, atol=2e-5)


def fitted(gpu, seen, rounds, rank=2):
    hierarchy = hierarchy_of(seen, rank)
    begin = gpu.start(seen, hierarchy, np.random.default_rng(0))
    settings = {"full": True, "temperature": 1.0, "schedule": Schedule(rounds, 1e-12), "workers": gpu}
    return minimise(seen, hierarchy, LOGISTIC, begin, **settings)


def test_scores_of_a_fit_move_by_less_than_a_thousandth_of_their_uncertainty(gpu, small, monkeypatch):
    seen = random_answers(small, 0.6, 3)
    fits = []
    for halve in (False, True):
        monkeypatch.setattr(side, "pays", lambda *_, halve=halve: halve)
        fits.append(fitted(gpu, seen, 6))
    assert not np.array_equal(fits[0].path, fits[1].path)
    assert fits[1].objective == pytest.approx(fits[0].objective, rel=1e-5)
    rows, columns = (np.arange(size).repeat(3)[: min(small)] for size in seen.shape)
    means, variances = zip(*(fit.posterior.score_moments(rows, columns) for fit in fits), strict=True)
    assert np.abs(means[1] - means[0]).max() < 1e-3 * np.sqrt(variances[0].min())
    np.testing.assert_allclose(variances[1], variances[0], rtol=1e-3)


def test_where_the_objective_rises_lines_are_gathered_whole_from_then_on(gpu, small, monkeypatch):
    seen = random_answers(small, 0.8, 1)
    whole = fitted(gpu, seen, 8)
    count = []

    def wrong(lines, shape, second):
        count.append(1)
        made = halving.halved(lines, shape, second)
        if len(count) > 4:  # all means have the wrong sign
            made.lines[:, shape.last : shape.size - 1] *= -1
        return made

    monkeypatch.setattr(side, "pays", lambda *_: True)
    monkeypatch.setattr(side, "halved", wrong)
    found = fitted(gpu, seen, 8)
    rises = np.flatnonzero(found.path[1:] > found.path[:-1] * (1 + descent.ROUNDING))
    assert len(rises)
    assert len(count) <= rises[0] + 3  # two tables a round, one of them a pass ahead
    assert found.objective < found.path[rises[0] + 1]
    assert (np.diff(found.path[rises[0] + 2 :]) <= 1e-6).all()
    assert found.objective == pytest.approx(whole.objective, rel=0.05)


@pytest.mark.parametrize("rose", [False, True])
def test_a_run_that_goes_on_knows_from_its_path_whether_lines_are_to_be_whole(rose, gpu, small, always):
    seen = random_answers(small, 0.8, 1)
    fit = fitted(gpu, seen, 2)
    path = np.append(fit.path[:3], fit.path[2] * (1.0 + 0.01 * rose))
    saved = descent.Unfinished(fit.posterior, path, 1.0, 2)
    model = fit.posterior.hierarchy
    again = descent.Descent(seen, model, LOGISTIC, True, 1.0, Schedule(5, 1e-12), known.NOTHING)
    again.begin(gpu, fit.posterior, saved)
    assert [isinstance(each.table, Halved) for each in again.sides] == [not rose] * 2


def test_small_tables_and_wide_lines_are_left_as_they_are(device):
    shape = LineLayout(10)
    lines = torch.zeros((4, shape.stride), device=device)
    assert not pays(lines, shape)
    assert not LineLayout(14).narrow
    assert LineLayout(13).narrow


@needs_gpu
def test_a_table_larger_than_the_cache_is_halved(device):
    shape = LineLayout(10)
    most = cache_bytes(device) // (4 * shape.stride)
    assert not pays(torch.zeros((most, shape.stride), device=device), shape)
    assert pays(torch.zeros((most + 1, shape.stride), device=device), shape)
    wide = LineLayout(20)
    assert not pays(torch.zeros((most, wide.stride), device=device), wide)
