"""Fits of large tables start from a fit to some of their rows."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from onebit import HingeCompleter, LogisticCompleter, Observations, simulate
from onebit.engine import checkpoint, fitting, part, workers
from onebit.engine.cpu.presence import CpuPresence, CpuTall
from onebit.engine.cpu.threads import Threads
from onebit.engine.known import known_of
from onebit.engine.recipe import Recipe
from onebit.engine.workers import Cpu
from onebit.model.gaussians import Gaussians, independent_gaussians
from onebit.model.losses import GIBBS


@pytest.fixture
def eager(monkeypatch):
    """Small tables count as large."""
    monkeypatch.setattr(part, "_FEWEST_ANSWERS", 1000)


@pytest.fixture(scope="module")
def seen():
    world = simulate.world("B2", rank=2, shape=(600, 50), density=0.5, seed=0)
    return Observations.from_pairs(world.pairs, world.answers)


def rows_and_answers(observations):
    view = observations.by_row
    return {
        label: (view.index[begin:end].tolist(), view.sign[begin:end].tolist())
        for label, begin, end in zip(
            observations.rows.values, view.start[:-1], view.start[1:], strict=True
        )
    }


def test_a_part_has_all_answers_of_an_eighth_of_the_rows(eager, seen):
    found = part.part_of(seen, 2, np.random.default_rng(0))
    assert 40 < found.shape[0] < 110
    assert found.shape[1] == seen.shape[1]
    everything = rows_and_answers(seen)
    for label, answers in rows_and_answers(found).items():
        assert everything[label] == answers


def test_a_part_has_its_weights(eager, seen):
    entries = seen.entries(np.arange(seen.n))
    weight = 1.0 + entries.rows.astype(np.float32)
    weighted = Observations.from_codes(
        seen.rows, seen.columns, entries.rows, entries.columns, entries.sign, weight
    )
    found = part.part_of(weighted, 2, np.random.default_rng(0))
    own = found.rows.values[found.by_row.owners()]
    np.testing.assert_array_equal(found.by_row.weight, 1.0 + own)


@pytest.mark.parametrize(
    ("shape", "density", "rank"),
    [
        pytest.param((600, 50), 0.5, 0, id="no factors"),
        pytest.param((600, 50), 0.5, 30, id="few answers a coordinate of the columns' part"),
        pytest.param((2000, 50), 0.1, 2, id="few answers a row"),
        pytest.param((30, 20), 0.9, 2, id="few answers"),
    ],
)
def test_thin_tables_have_no_part(eager, shape, density, rank):
    world = simulate.world("B2", rank=2, shape=shape, density=density, seed=0)
    observations = Observations.from_pairs(world.pairs, world.answers)
    assert part.part_of(observations, rank, np.random.default_rng(0)) is None


@pytest.mark.parametrize("kind", [LogisticCompleter, functools.partial(HingeCompleter, calibrate=False)])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_fit_that_starts_from_a_part_begins_lower_and_ends_at_the_same_objective(
    seen, monkeypatch, kind, covariance
):
    cold = kind(3, covariance=covariance, random_state=0).fit(seen)
    monkeypatch.setattr(part, "_FEWEST_ANSWERS", 1000)
    warm = kind(3, covariance=covariance, random_state=0).fit(seen)
    # Before the first pass over the columns, when the rows were found.
    assert warm.objective_path_[1] < cold.objective_path_[1] - 0.01
    assert warm.objective_ == pytest.approx(cold.objective_, rel=5e-4)
    assert np.diff(warm.objective_path_).max() <= 1e-6
    assert warm.rank_ == cold.rank_


def test_a_part_does_not_hang_on_threads(eager, seen):
    one, two = (LogisticCompleter(3, n_jobs=jobs, random_state=0).fit(seen) for jobs in (1, 2))
    np.testing.assert_array_equal(one.objective_path_, two.objective_path_)


def test_a_stopped_fit_that_started_from_a_part_goes_on_to_the_same(eager, seen, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    expected = LogisticCompleter(3, max_iter=6, random_state=0).fit(seen)

    def killed(progress):
        if progress.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LogisticCompleter(3, max_iter=6, random_state=0).fit(seen, checkpoint=tmp_path, callback=killed)
    done = []
    again = LogisticCompleter(3, max_iter=6, random_state=0)
    again.fit(seen, checkpoint=tmp_path, callback=done.append)
    assert done[0].round > 1
    np.testing.assert_array_equal(again.objective_path_, expected.objective_path_)


@pytest.mark.parametrize("full", [True, False])
def test_gaussians_that_are_alike_are_so_many_of_one(full):
    mean, variance = np.array([1.0, -2.0, 0.5]), np.array([0.1, 2.0, 0.3])
    alike = Gaussians.alike(mean, variance, 4, full)
    apart = independent_gaussians(np.tile(mean, (4, 1)), np.tile(variance, (4, 1)), full)
    np.testing.assert_array_equal(alike.mean, apart.mean)
    np.testing.assert_array_equal(alike.covariance, apart.covariance)
    np.testing.assert_allclose(alike.log_determinants(), apart.log_determinants(), rtol=1e-14)
    assert alike.covariance.base.nbytes < apart.covariance.nbytes


def test_directions_of_the_pattern_are_found_in_a_part(monkeypatch):
    # Rows of two kinds answer mostly the columns of their own half.
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 800)
    likely = np.where(np.arange(60) // 30 == kind[:, None], 0.9, 0.3)
    pairs = np.argwhere(rng.random((800, 60)) < likely)
    observations = Observations.from_pairs(pairs, rng.choice([-1, 1], len(pairs)))
    hierarchy = Recipe(rank=2).hierarchy(observations.shape)
    everything = Cpu().known(observations, hierarchy, True, (True, True))
    walked, times = [], CpuPresence.times

    def spied(self, side, vectors):
        walked.append(self.shape[0])
        return times(self, side, vectors)

    monkeypatch.setattr(CpuPresence, "times", spied)
    monkeypatch.setattr(part, "_FEWEST_ANSWERS", 1000)
    Cpu().known(observations, hierarchy, True, (True, True))
    assert walked == [800] * 6  # some hundred rows are too few for as many directions
    monkeypatch.setattr(workers, "ENOUGH_ROWS", 64)
    few = Cpu().known(observations, hierarchy, True, (True, True))
    assert walked[-2:] == [800, 800]
    assert max(walked[6:-2]) < 150
    for side, members in enumerate((kind, np.arange(60) // 30)):
        leading = [known.values[side][:, 0] for known in (everything, few)]
        assert abs(np.corrcoef(*leading)[0, 1]) > 0.99
        assert abs(np.corrcoef(leading[1], members)[0, 1]) > 0.95


@pytest.mark.parametrize("rows", [5, 20, 60])
def test_a_few_rows_that_are_asked_again_and_again_are_fitted_without_a_part(eager, rows):
    rng = np.random.default_rng(0)
    pairs = np.column_stack([rng.integers(rows, size=6000), rng.integers(40, size=6000)])
    model = LogisticCompleter(10, max_iter=5, random_state=0).fit(pairs, rng.choice([-1, 1], 6000))
    assert np.isfinite(model.objective_)


def test_with_a_checkpoint_directions_are_found_in_all_rows_as_on_a_gpu(eager, monkeypatch, tmp_path):
    """Else neither device could go on from what the other has left."""
    monkeypatch.setattr(workers, "ENOUGH_ROWS", 64)
    world = simulate.world("B2", rank=2, shape=(800, 100), density=0.4, seed=0)
    seen = Observations.from_pairs(world.pairs, world.answers)
    hierarchy = Recipe(rank=2).hierarchy(seen.shape)
    pool = Threads(1, None)
    on_any_device = known_of(CpuTall(pool), seen.shape, CpuPresence(seen, pool), (True, True))
    kept = checkpoint.Checkpoint(tmp_path, made=False)
    for where, same in ((Cpu(pool, kept), True), (Cpu(pool), False)):
        found = where.known(seen, hierarchy, True, (True, True))
        for side in (0, 1):
            assert np.array_equal(found.values[side], on_any_device.values[side]) == same


def test_what_a_part_would_harm_starts_without_one(eager, seen):
    rng, plain = np.random.default_rng(0), Recipe(rank=2)
    hierarchy = plain.hierarchy(seen.shape)
    assert fitting._begun(plain, seen, hierarchy, Cpu(), rng) is not None
    for other in (replace(plain, sparse="rows"), replace(plain, loss=GIBBS), replace(plain, paper=True)):
        assert fitting._begun(other, seen, hierarchy, Cpu(), rng) is None


def test_a_given_start_is_not_left_for_a_part_nor_are_further_starts(eager, seen, monkeypatch):
    first = LogisticCompleter(2, random_state=0).fit(seen)
    asked, begun = [], fitting._begun
    monkeypatch.setattr(fitting, "_begun", lambda *given: asked.append(1) or begun(*given))
    again = LogisticCompleter(2, random_state=0, max_iter=1).fit(seen, start=first)
    assert asked == []
    assert again.objective_path_[0] == pytest.approx(first.objective_, abs=1e-3)
    LogisticCompleter(2, random_state=0, n_init=3, max_iter=2).fit(seen)
    assert asked == [1]
