"""The engine on a GPU: the same updates, the same fits, whatever way the data is cut."""

import numpy as np
import pytest
import torch
from gpu_worlds import needs_gpu, random_answers

from onebit import (
    AutoCompleter,
    GibbsCompleter,
    HingeCompleter,
    LogisticCompleter,
    Observations,
    simulate,
)
from onebit.engine.descent import Schedule, minimise
from onebit.engine.gpu import data, side, start, walks
from onebit.engine.gpu import device as gpus
from onebit.engine.gpu.device import DeviceError
from onebit.engine.gpu.layout import LineLayout
from onebit.engine.gpu.memory import LARGEST_RANK, answer_bytes, sort_bytes, state_bytes
from onebit.engine.gpu.transfer import to_host
from onebit.engine.gpu.workers import Gpu
from onebit.engine.rotation import Change
from onebit.model.gaussians import Gaussians, packed_size
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import GIBBS, HINGE, LOGISTIC
from onebit.model.priors import Gamma, InverseGamma


def hierarchy_of(seen, rank, effects=(True, True), prior=None):
    prior = prior or InverseGamma(1.0, 1.5)
    return Hierarchy(seen.shape, rank, *effects, prior, InverseGamma(1.0, 1.0), factor_means=True)


def gaussians(size, n_free, full, seed):
    """Gaussians with correlated coordinates."""
    rng = np.random.default_rng(seed)
    mean = rng.standard_normal((size, n_free)) / np.sqrt(n_free + 1)
    if not full:
        return Gaussians(mean, rng.random((size, n_free)) + 0.1, full)
    root = rng.standard_normal((size, n_free, n_free)) / (3 * np.sqrt(n_free + 1))
    dense = np.einsum("mab,mcb->mac", root, root) + 0.1 * np.eye(n_free)
    lower = np.tril_indices(n_free)
    return Gaussians(mean, dense[:, lower[0], lower[1]].reshape(size, packed_size(n_free)), full)


def both_sides(seen, hierarchy, full, *workers):
    """The same state on each of some workers."""
    begin = tuple(gaussians(size, hierarchy.n_free(k), full, k) for k, size in enumerate(seen.shape))
    return [each.sides(seen, begin, hierarchy, full) for each in workers]


def one_pass(sides, hierarchy, k, loss, relaxation=1.0):
    hyper = hierarchy.update((sides[0].sums(), sides[1].sums()), None)
    prior = hierarchy.precision_and_linear(k, hyper, sides[k].sums())
    return sides[k].pass_over(sides[1 - k].table, prior, 1.3, loss, True, relaxation)


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 5, 8, 10, 14, 16, 32, 64, 100])
def test_one_update_of_every_rank_is_the_cpus(rank, cpu, gpu):
    seen = random_answers((3, 5), 0.7, rank)
    hierarchy = hierarchy_of(seen, rank)
    theirs, ours = both_sides(seen, hierarchy, True, cpu, gpu)
    for k in (0, 1):
        expected, found = (one_pass(each, hierarchy, k, LOGISTIC, 1.6) for each in (theirs, ours))
        assert found == pytest.approx(expected, rel=1e-6)
        after, reference = ours[k].gaussians(), theirs[k].gaussians()
        np.testing.assert_allclose(after.mean, reference.mean, atol=3e-5)
        np.testing.assert_allclose(after.covariance, reference.covariance, atol=3e-6)
        np.testing.assert_allclose(ours[k].log_determinant, theirs[k].log_determinant, atol=1e-4)


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE, GIBBS], ids=lambda loss: loss.name)
@pytest.mark.parametrize("effects", [(True, True), (False, False), (True, False), (False, True)])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_one_update_is_the_cpus_for_every_loss(loss, effects, weighted, cpu, gpu):
    seen = random_answers((4, 5), 0.6, 1, weighted)
    hierarchy = hierarchy_of(seen, 2, effects, Gamma(3.0, 20.0))
    theirs, ours = both_sides(seen, hierarchy, True, cpu, gpu)
    for k in (0, 1):
        expected, found = (one_pass(each, hierarchy, k, loss) for each in (theirs, ours))
        assert found == pytest.approx(expected, rel=1e-6)
        np.testing.assert_allclose(ours[k].gaussians().mean, theirs[k].gaussians().mean, atol=1e-5)
        np.testing.assert_allclose(
            ours[k].gaussians().covariance, theirs[k].gaussians().covariance, atol=1e-5
        )


@pytest.mark.parametrize("rank", [1, 3, 10, 14])
def test_independent_coordinates_go_to_the_minimum_of_their_majoriser(rank, cpu, gpu):
    """The variances are the CPU's; the mean, which the CPU approaches, solves the full system."""
    seen = random_answers((3, 4), 0.8, rank)
    hierarchy = hierarchy_of(seen, rank)
    theirs, ours = both_sides(seen, hierarchy, False, cpu, gpu)
    hyper = hierarchy.update((theirs[0].sums(), theirs[1].sums()), None)
    precision, linear = (p[0] for p in hierarchy.precision_and_linear(0, hyper, theirs[0].sums()))
    rows, columns = (each.gaussians() for each in theirs)
    one_pass(theirs, hierarchy, 0, HINGE)
    one_pass(ours, hierarchy, 0, HINGE)
    np.testing.assert_allclose(
        ours[0].gaussians().covariance, theirs[0].gaussians().covariance, atol=1e-5
    )
    view = seen.by_row
    for i in range(view.size):
        system, pull = np.diag(precision), linear.copy()
        for k in range(view.start[i], view.start[i + 1]):
            j, y = view.index[k], view.sign[k]
            faced = np.append(columns.mean[j, :rank], 1.0)
            offset = columns.mean[j, rank]
            mean = faced @ rows.mean[i] + offset
            spread = np.append(columns.covariance[j, :rank], 0.0)
            moment = mean**2 + columns.covariance[j, rank]
            moment += (rows.covariance[i] * (faced**2 + spread)).sum() + (
                rows.mean[i] ** 2 * spread
            ).sum()
            slope, weight = HINGE.majoriser(y, mean, moment)
            system += 1.3 * weight * (np.outer(faced, faced) + np.diag(spread))
            pull += 1.3 * (slope * y * faced - weight * offset * faced)
        np.testing.assert_allclose(ours[0].gaussians().mean[i], np.linalg.solve(system, pull), atol=1e-5)


@pytest.mark.parametrize("loss", [LOGISTIC, GIBBS], ids=lambda loss: loss.name)
def test_a_side_that_walks_ahead_changes_no_round(loss, gpu, monkeypatch):
    """Nor does it walk where something changes first: steps that are held back, other coordinates."""
    seen = random_answers((6, 5), 0.8, 1)
    hierarchy = hierarchy_of(seen, 2)
    begin, begun = gpu.start(seen, hierarchy, np.random.default_rng(0)), []
    begins = walks.Walk.begin

    def noted(walk, *arguments):
        begun.append(walk)
        begins(walk, *arguments)

    def descended():
        settings = {"full": True, "temperature": 1.0, "schedule": Schedule(5, 1e-12), "workers": gpu}
        return minimise(seen, hierarchy, loss, begin, **settings).path

    monkeypatch.setattr(walks.Walk, "begin", noted)
    ahead = descended()
    # Two a round, but for the columns of the fourth, which coordinates follow.
    assert len(begun) == (9 if loss is LOGISTIC else 0)
    monkeypatch.setattr(side.DeviceSide, "lead_to", lambda *_: None)
    np.testing.assert_array_equal(descended(), ahead)


def test_a_walk_that_was_begun_does_not_outlive_the_table_that_it_gathered(gpu, monkeypatch):
    seen = random_answers((6, 5), 0.8, 1)
    hierarchy = hierarchy_of(seen, 2)
    monkeypatch.setattr(side, "pays", lambda *_: True)
    losses = []
    for ahead in (False, True):
        (sides,) = both_sides(seen, hierarchy, True, gpu)
        sides[0].lead_to(sides[1] if ahead else None)
        one_pass(sides, hierarchy, 0, LOGISTIC)
        sides[0].gather_whole()
        losses.append(one_pass(sides, hierarchy, 1, LOGISTIC))
    assert losses[0] == losses[1]


def test_the_memory_that_is_planned_holds_the_halved_tables(gpu, monkeypatch):
    monkeypatch.setattr(side, "pays", lambda *_: True)
    planned, held = [], []
    for rows in (5, 7):
        seen = random_answers((rows, 4), 1.0, 1)
        hierarchy = hierarchy_of(seen, 10)
        planned.append(state_bytes(seen.shape, 10**4, hierarchy, True))
        (sides,) = both_sides(seen, hierarchy, True, gpu)
        parts = [sides[0].mean, sides[0].covariance, sides[0].lines, sides[0].table.lines]
        held.append(sum(part.nbytes for part in parts))
    before = 8 * (11 + packed_size(11))  # of a half step, which is planned for besides
    scratch = 4 * LineLayout(10).partial
    assert planned[1] - planned[0] >= held[1] - held[0] + 2 * (before + scratch)


@pytest.mark.parametrize("changed", [0, 1])
def test_a_walk_that_was_begun_does_not_outlive_a_change_of_lines(changed, gpu):
    seen = random_answers((6, 5), 0.8, 1)
    hierarchy = hierarchy_of(seen, 2)
    losses = []
    for ahead in (False, True):
        (sides,) = both_sides(seen, hierarchy, True, gpu)
        sides[0].lead_to(sides[1] if ahead else None)
        one_pass(sides, hierarchy, 0, LOGISTIC)
        assert (sides[1].walk._walked is not None) == ahead
        sides[changed].change_coordinates(Change(2.0 * np.eye(3), np.ones(3)))
        losses.append(one_pass(sides, hierarchy, 1, LOGISTIC))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_answers_taken_at_once_change_no_update_but_for_rounding(at_once, gpu, monkeypatch):
    """Lines are asked for a block ahead: rows of one block, of several, and of some and a part."""
    seen = random_answers((7, 9), 0.8, 1, weighted=True)
    hierarchy = hierarchy_of(seen, 2)
    whole, cut_up = both_sides(seen, hierarchy, True, gpu, gpu)
    expected = one_pass(whole, hierarchy, 0, LOGISTIC)
    options = {"BLOCK": at_once, "num_warps": 1}
    monkeypatch.setattr(LineLayout, "walk_options", property(lambda _: options))
    assert one_pass(cut_up, hierarchy, 0, LOGISTIC) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(cut_up[0].gaussians().mean, whole[0].gaussians().mean, atol=1e-5)


def cut(monkeypatch, chunk, group, scratch):
    """Cut the data into other chunks, groups and batches."""
    for module in (data, side, start, walks):
        if hasattr(module, "CHUNK"):
            monkeypatch.setattr(module, "CHUNK", chunk)
        if hasattr(module, "GROUP"):
            monkeypatch.setattr(module, "GROUP", group)
    monkeypatch.setattr(data, "SCRATCH", scratch)


@pytest.mark.parametrize(("rank", "halve"), [(2, False), (2, True), (14, False)])
def test_rows_of_many_chunks_and_batches_give_the_same(rank, halve, monkeypatch, cpu, gpu):
    """A row of 60 answers beside rows of one: in chunks of 8, three chunks a group, two a batch.

    Systems of a thread each, from whole and from halved tables, and of a warp each.
    """
    monkeypatch.setattr(side, "pays", lambda *_: halve)
    rng = np.random.default_rng(0)
    pairs = np.array([(0, j % 5) for j in range(60)] + [(i, i % 5) for i in range(1, 6)])
    seen = Observations.from_pairs(pairs, rng.choice([-1, 1], len(pairs)))
    hierarchy = hierarchy_of(seen, rank)
    cut(monkeypatch, 8, 3, 2 * 4 * LineLayout(rank).partial)
    theirs, ours = both_sides(seen, hierarchy, True, cpu, gpu)
    assert len(ours[0].walk.batches) > 2
    assert max(len(batch.group_begin) for batch in ours[0].walk.batches) == 3
    for k in (0, 1):
        expected, found = (one_pass(each, hierarchy, k, LOGISTIC) for each in (theirs, ours))
        assert found == pytest.approx(expected, rel=3e-5 if halve else 1e-6)
        near = 2e-4 if halve else 1e-5
        np.testing.assert_allclose(ours[k].gaussians().mean, theirs[k].gaussians().mean, atol=near)
    if rank > 2:  # more factors than the table has: their directions are anybody's
        return
    expected, found = (each.start(seen, hierarchy, np.random.default_rng(0)) for each in (cpu, gpu))
    np.testing.assert_allclose(to_host(found.rows), expected.rows, atol=1e-4)


@pytest.mark.parametrize("effects", [(True, True), (False, False), (False, True)])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_the_start_is_the_cpus(effects, weighted, cpu, gpu, small):
    seen = random_answers(small, 0.5, 2, weighted)
    hierarchy = hierarchy_of(seen, 2, effects)
    expected, found = (each.start(seen, hierarchy, np.random.default_rng(3), 0.5) for each in (cpu, gpu))
    np.testing.assert_allclose(to_host(found.rows), expected.rows, atol=1e-4)
    np.testing.assert_allclose(to_host(found.columns), expected.columns, atol=1e-4)


COMPLETERS = {
    "logistic": (LogisticCompleter, {}),
    "logistic, Gamma prior": (LogisticCompleter, {"prior": "gamma"}),
    "logistic, no effects": (LogisticCompleter, {"effects": False}),
    "logistic, sparse": (LogisticCompleter, {"sparse": "columns"}),
    "hinge": (HingeCompleter, {"calibrate": False}),
    "hinge, row effects": (HingeCompleter, {"calibrate": False, "effects": "rows"}),
    "gibbs": (GibbsCompleter, {"temperature": 1.0, "effects": False}),
    "gibbs, diagonal": (GibbsCompleter, {"temperature": 1.0, "effects": False, "covariance": "diagonal"}),
}


@pytest.mark.parametrize("name", COMPLETERS)
def test_a_fit_agrees_with_the_cpus_round_by_round(name, small):
    """Stated tolerance: the objective to 1e-6, relative, and scores to 1e-4."""
    kind, settings = COMPLETERS[name]
    rng = np.random.default_rng(5)
    scores = np.outer(rng.standard_normal(small[0]), rng.standard_normal(small[1]))
    pairs = np.argwhere(rng.random(small) < 0.7)
    signs = np.where(scores[pairs[:, 0], pairs[:, 1]] > 0, 1, -1)
    expected, found = (
        kind(2, random_state=0, max_iter=4, device=device, **settings).fit(pairs, signs)
        for device in ("cpu", "cuda")
    )
    assert found.n_iter_ == expected.n_iter_
    np.testing.assert_allclose(found.objective_path_, expected.objective_path_, rtol=1e-6)
    np.testing.assert_allclose(
        found.decision_function(pairs), expected.decision_function(pairs), atol=1e-4
    )
    assert found.posterior_.kl == pytest.approx(expected.posterior_.kl, rel=1e-5)


@needs_gpu
@pytest.mark.parametrize("kind", [LogisticCompleter, HingeCompleter, GibbsCompleter])
@pytest.mark.parametrize("name", ["A1", "A2", "A3", "B1", "B2", "B3"])
def test_the_papers_worlds_agree(name, kind):
    """A whole fit: the objective to 1e-5, and the errors to a thousandth."""
    world = simulate.world(name, rank=3, shape=(200, 200), density=0.2, seed=0)
    expected, found = (
        kind(10, random_state=0, effects=False, device=device).fit(world.pairs, world.answers)
        for device in ("cpu", "cuda")
    )
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-5)
    errors = [
        world.error(model.decision_function(world.all_pairs).reshape(200, 200))
        for model in (expected, found)
    ]
    assert errors[1] == pytest.approx(errors[0], abs=1e-3)


@needs_gpu
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("kind", [LogisticCompleter, HingeCompleter])
def test_movielens_agrees(kind, covariance, movielens):
    """A whole fit: the objective to 1e-4, and the same predictions but for a few close to a tie.

    Independent coordinates take other steps on the way: there a few more.
    """
    pairs, answers = movielens
    expected, found = (
        kind(10, random_state=0, covariance=covariance, device=device).fit(pairs, answers)
        for device in ("cpu", "cuda")
    )
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-4)
    same = (found.predict(pairs) == expected.predict(pairs)).mean()
    assert same > (0.999 if covariance == "full" else 0.997)


def test_the_same_fit_twice_is_the_same_bit_for_bit(small):
    seen = random_answers(small, 0.6, 3)
    first, second = (
        LogisticCompleter(2, random_state=0, max_iter=3, device="cuda").fit(seen) for _ in range(2)
    )
    np.testing.assert_array_equal(first.objective_path_, second.objective_path_)
    np.testing.assert_array_equal(first.posterior_.rows.covariance, second.posterior_.rows.covariance)


@needs_gpu
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_streamed_answers_give_the_same_bit_for_bit(weighted, device, monkeypatch):
    seen = random_answers((400, 300), 0.4, 4, weighted)
    hierarchy = hierarchy_of(seen, 3)
    assert seen.by_row.size == 400  # sorted on the host, as data larger than the GPU's memory is
    monkeypatch.setattr(data, "STREAMED", 5000)
    monkeypatch.setattr("onebit.engine.gpu.memory.STREAMED", 5000)
    needed = state_bytes(seen.shape, seen.n, hierarchy, True)
    fits = []
    for memory in (None, needed + answer_bytes(10_000, weighted)):
        worker = Gpu(device, 1, memory)
        begin = worker.start(seen, hierarchy, np.random.default_rng(0))
        assert worker._views(seen, hierarchy, True)[0].streamed == (memory is not None)
        fit = minimise(
            seen,
            hierarchy,
            LOGISTIC,
            begin,
            full=True,
            temperature=1.0,
            schedule=Schedule(8, 1e-9),
            workers=worker,
        )
        fits.append(fit)
    np.testing.assert_array_equal(fits[0].path, fits[1].path)


def test_too_little_memory_is_said_before_anything_is_done(device):
    seen = random_answers((20, 10), 0.5)
    worker = Gpu(device, 1, memory=10_000)
    with pytest.raises(DeviceError, match=r"20 rows and 10 columns with rank 4 needs .* MB .* 0\.01 MB"):
        worker.start(seen, hierarchy_of(seen, 4), np.random.default_rng(0))


def test_independent_coordinates_fit_where_full_covariances_do_not(device):
    seen = random_answers((20, 10), 0.5)
    hierarchy = hierarchy_of(seen, 9)
    needed = state_bytes(seen.shape, seen.n, hierarchy, False) + answer_bytes(seen.n, False)
    worker = Gpu(device, 1, memory=needed)
    with pytest.raises(DeviceError, match='set covariance="diagonal"'):
        worker.start(seen, hierarchy, np.random.default_rng(0))
    if not gpus.interpreted():  # to stream, which the next would, takes a GPU
        begin = worker.start(seen, hierarchy, np.random.default_rng(0), full=False)
        worker.sides(seen, begin, hierarchy, False)
    # A larger model of the same answers is planned for anew.
    with pytest.raises(DeviceError, match="rank 10 needs"):
        worker.start(seen, hierarchy_of(seen, 10), np.random.default_rng(0), full=False)


def test_auto_takes_the_cpu_where_the_gpu_is_too_small(monkeypatch, small):
    monkeypatch.setattr(gpus, "SMALLEST_FIT", 0)
    monkeypatch.setattr("onebit.engine.gpu.workers.usable_bytes", lambda device: 1000)
    seen = random_answers(small, 0.6, 3)
    expected, found = (
        LogisticCompleter(2, random_state=0, max_iter=3, device=device).fit(seen)
        for device in ("cpu", "auto")
    )
    np.testing.assert_array_equal(found.objective_path_, expected.objective_path_)
    assert found.device == "auto"
    with pytest.raises(DeviceError, match="needs"):
        LogisticCompleter(2, device="cuda").fit(seen)


def test_a_rank_beyond_the_kernels_is_refused(gpu):
    seen = random_answers((4, 5), 0.9)
    with pytest.raises(ValueError, match=f"ranks up to {LARGEST_RANK}, got 130"):
        gpu.start(seen, hierarchy_of(seen, 130), np.random.default_rng(0))


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1)])
def test_a_single_row_or_column_is_fitted(shape):
    pairs = np.argwhere(np.ones(shape))
    signs = np.where(np.arange(len(pairs)) % 2, 1, -1)
    expected, found = (
        LogisticCompleter(2, random_state=0, max_iter=2, device=device).fit(pairs, signs)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(found.objective_path_, expected.objective_path_, rtol=1e-6)


@needs_gpu
def test_a_search_runs_on_a_gpu(movielens):
    pairs, answers = (part[::5] for part in movielens)
    expected, found = (
        AutoCompleter(random_state=0, device=device).fit(pairs, answers) for device in ("cpu", "cuda")
    )
    assert found.best_params_ == expected.best_params_
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-4)


@needs_gpu
@pytest.mark.parametrize("loss", [LOGISTIC, GIBBS], ids=lambda loss: loss.name)
def test_the_state_takes_no_more_memory_than_was_said(device, loss):
    rng = np.random.default_rng(0)
    shape, n = (400_000, 50_000), 2_000_000
    pairs = np.column_stack([rng.integers(0, size, n) for size in shape])
    seen = Observations.from_pairs(pairs, rng.choice([-1, 1], n))
    for full in (True, False):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        hierarchy = hierarchy_of(seen, 20)
        worker = Gpu(device, 1)
        begin = worker.start(seen, hierarchy, rng, full=full)
        minimise(
            seen, hierarchy, loss, begin, full=full, temperature=1.0, schedule=Schedule(5, 1e-9),
            workers=worker,
        )  # fmt: skip
        said = max(state_bytes(seen.shape, n, hierarchy, full), sort_bytes(n, False))
        assert torch.cuda.max_memory_allocated() <= answer_bytes(n, False) + said
