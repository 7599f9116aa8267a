"""The harness that compares onebit with other libraries: its matrices and its arithmetic."""

import json

import numpy as np
import pytest

from benchmarks.peers import matrices, runner, summary, worker
from benchmarks.peers.contestants import CONTESTANTS, Prediction, inner, one_hot, sparse
from benchmarks.peers.matrices import Entries, Matrix

SMALL = Matrix("made-small", "small", (90, 60), 900, 100, seed=3)


def test_a_made_matrix_has_distinct_entries_in_range_and_a_heavy_tail():
    entries, truth = matrices.make((2000, 1000), 60_000, seed=0)
    assert len(np.unique(entries.rows * np.int64(1000) + entries.columns)) == 60_000
    assert entries.columns.min() >= 0
    assert entries.columns.max() < 1000
    for codes, size in ((entries.rows, 2000), (entries.columns, 1000)):
        counts = np.bincount(codes, minlength=size)
        assert counts.max() > 8 * np.median(counts)
    assert np.bincount(entries.rows, minlength=2000).min() >= 1
    assert set(np.unique(entries.signs)) == {-1, 1}
    # The answers follow the probabilities that are told as the truth.
    surest = truth > 0.9
    assert (entries.signs[surest] > 0).mean() == pytest.approx(truth[surest].mean(), abs=0.02)


def test_a_seed_repeats_a_matrix_and_another_seed_does_not():
    first, second, other = (matrices.make((100, 80), 2_000, seed)[0] for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert (first.columns != other.columns).any()


@pytest.mark.parametrize(("n", "largest"), [(500, 400), (5_000, 60), (5_999, 60), (100, 60)])
def test_answers_are_shared_out_completely_within_the_limits(n, largest):
    weight = matrices.power_law(100, 2.0, 0.01, np.random.default_rng(0))
    counts = matrices.row_counts(weight, n, largest)
    assert counts.sum() == n
    assert counts.min() >= 1
    assert counts.max() <= largest


def test_more_answers_than_fit_are_refused():
    with pytest.raises(ValueError, match="900 answers cannot be shared out among 60 rows of at most 14"):
        matrices.make((60, 40), 900, seed=0)


def test_splits_do_not_overlap_and_the_validation_split_lies_inside_the_first_training_set(tmp_path):
    SMALL.store(tmp_path, tmp_path)

    def keys(entries):
        return set((entries.rows * 1000 + entries.columns).tolist())

    first, inside = SMALL.split(tmp_path, 0), SMALL.split(tmp_path, "validation")
    assert len(first.test.rows) == len(inside.test.rows) == 100
    assert not keys(first.train) & keys(first.test)
    assert len(keys(first.train) | keys(first.test)) == 900
    assert keys(inside.train) | keys(inside.test) == keys(first.train)
    assert not keys(inside.train) & keys(inside.test)


def test_a_worker_measures_onebit_and_stops_at_the_accuracy_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(worker.MATRICES, SMALL.name, SMALL)
    SMALL.store(tmp_path, tmp_path)
    task = {
        "matrix": SMALL.name, "contestant": "onebit", "threads": 1, "settings": {}, "curve": None,
        "ladder": [1, 2, 3], "until": 0.0,
    }  # fmt: skip
    result = worker.run(task, tmp_path)
    (point,) = result["points"]
    assert point["iterations"] == [1]
    assert point["seconds"][0] > 0
    assert 0.4 < point["accuracy"][0] < 1
    assert len(worker.run(task | {"until": 2.0}, tmp_path)["points"]) == 3


def test_scores_are_judged_at_zero_or_at_the_curves_threshold():
    signs = np.array([1, 1, -1, -1], dtype=np.int8)
    found = Prediction(np.array([3.0, 2.0, 1.0, -1.0]), None)
    assert worker.judged(found, signs, None, needs_curve=False) == {"accuracy": 0.75}
    shifted = worker.judged(found, signs, [1.0, -1.5], needs_curve=True)
    assert shifted["accuracy"] == 1.0
    expected = np.log1p(np.exp(-np.array([1.5, 0.5, 0.5, 2.5]))).mean()
    assert shifted["scaled_log_loss"] == pytest.approx(expected)
    with pytest.raises(FloatingPointError, match="not finite"):
        worker.judged(Prediction(np.array([np.nan]), None), signs[:1], None, needs_curve=False)


def test_a_fitted_curve_recovers_the_one_that_made_the_answers():
    rng = np.random.default_rng(0)
    scores = 0.1 * rng.standard_normal(200_000)
    yes = rng.random(len(scores)) < 1 / (1 + np.exp(-(12.0 * scores + 0.5)))
    assert worker.fitted_curve(scores, np.where(yes, 1, -1)) == pytest.approx([12.0, 0.5], rel=0.05)


def test_the_quickest_of_equally_good_settings_is_chosen():
    def fit(loss, seconds):
        return {"log_loss": loss, "scaled_log_loss": 0.0, "seconds": seconds}

    tried = [({"a": 1}, fit(0.5, 9.0)), ({"a": 2}, fit(0.5015, 1.0)), ({"a": 3}, fit(0.51, 0.1))]
    assert runner.chosen(tried)[0] == {"a": 2}


def course(points):
    seconds, accuracy = points[-1]
    return summary.Course(accuracy, seconds, 10, 100.0, 50.0, 0.5, 0.5, points)


def line(name, points):
    return summary.Line(name, {1: course(points)}, None)


def test_the_time_to_an_accuracy_is_that_of_the_shortest_fit_that_reaches_it():
    here = course([(1.0, 0.60), (2.0, 0.72), (3.0, 0.71), (5.0, 0.75)])
    assert here.time_to(0.71) == 2.0
    assert here.time_to(0.74) == 5.0
    assert here.time_to(0.76) is None


def test_where_a_peer_wins_is_said():
    own = line("onebit", [(1.0, 0.73), (4.0, 0.74)])
    libmf = line("libmf", [(2.0, 0.71), (3.0, 0.72)])
    said = "\n".join(summary.winners([own, libmf]))
    assert "whole fit, 1 thread: LIBMF 3.00 (onebit 4.00)" in said
    assert "accuracy" not in said
    quick = line("torch", [(0.5, 0.73)])
    said = "\n".join(summary.winners([own, libmf, quick]))
    assert "LIBMF's accuracy, 1 thread: torch, Adam 0.50 (onebit 1.00)" in said
    first, *_ = summary.ratios([own, libmf, line("smurff", [(9.0, 0.8)])])
    assert first.startswith(
        "LIBMF's final accuracy, 0.7200, 1 thread: onebit after 1.00 s, LIBMF after 3.00 s"
    )
    assert "(3 times" in first


def test_results_survive_an_interruption_and_are_not_computed_again(tmp_path, monkeypatch):
    started = []

    def start(self, task):
        started.append(task["contestant"])
        point = {"seconds": [1.0], "accuracy": [0.7], "log_loss": [0.5], "iterations": [3]}
        return {"points": [point], "peak_mb": 1.0, "before_mb": 1.0}

    monkeypatch.setattr(runner.Runner, "_start", start)
    monkeypatch.setattr(runner, "SETTINGS", tmp_path / "settings.json")
    chosen = {name: {"settings": {"iterations": 3}} for name in CONTESTANTS}
    runner.SETTINGS.write_text(json.dumps({"made-1m": chosen}))

    def run():
        here = runner.Runner(tmp_path, 10.0, lambda text: None)
        here.versions = dict.fromkeys(CONTESTANTS, "1")
        here.finals("made-1m", ["onebit", "libmf", "surprise"], [1, 2], repeats=2, patience=20.0)
        return here

    run()
    # In turn, not one after the other; a library without threads is not run with two.
    assert started == ["onebit", "libmf", "surprise", "onebit", "libmf"] * 2
    path = tmp_path / runner.RESULTS
    whole = path.read_text()
    assert all(json.loads(text)["result"]["points"] for text in whole.splitlines())
    path.write_text(whole + '{"task": {"matr')
    started.clear()
    here = run()
    assert started == []
    assert path.read_text() == whole
    assert here.accuracy("made-1m", "libmf", 1) == pytest.approx(0.7)


def test_a_contestant_without_settings_is_tuned_first_and_what_is_chosen_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "SETTINGS", tmp_path / "settings.json")
    asked = []

    def start(self, task):
        asked.append((task.get("validation", False), task["settings"], task["curve"]))
        loss = 0.5 if task["settings"]["penalty"] == 10.0 else 0.6
        point = {"seconds": [1.0], "accuracy": [0.7], "scaled_log_loss": [loss], "iterations": [3]}
        point |= {"curve": [[2.0, -1.0]]} if task.get("validation") else {}
        return {"points": [point], "peak_mb": 1.0, "before_mb": 1.0}

    monkeypatch.setattr(runner.Runner, "_start", start)
    here = runner.Runner(tmp_path, 10.0, lambda text: None)
    here.versions = dict.fromkeys(CONTESTANTS, "1")
    here.finals("made-1m", ["cmfrec"], [1], repeats=1, patience=20.0)
    candidates = CONTESTANTS["cmfrec"].candidates("made-1m")
    assert [settings for validation, settings, _ in asked if validation] == candidates
    validation, settings, curve = asked[-1]
    assert (validation, settings["penalty"], curve) == (False, 10.0, [2.0, -1.0])
    asked.clear()
    again = runner.Runner(tmp_path, 10.0, lambda text: None)
    again.versions = here.versions
    again.finals("made-1m", ["cmfrec"], [1], repeats=1, patience=20.0)
    assert asked == []


def test_long_fits_are_not_repeated(tmp_path, monkeypatch):
    point = {"seconds": [15.0], "accuracy": [0.7], "iterations": [3]}
    result = {"points": [point], "peak_mb": 1.0, "before_mb": 1.0}
    here = runner.Runner(tmp_path, 10.0, lambda text: None)
    monkeypatch.setattr(here, "_start", lambda task: result)
    here.finals("made-1m", ["onebit"], [1], repeats=3, patience=20.0)
    assert len(here.known) == 1


def test_sparse_one_hot_and_inner_products_place_entries_where_they_belong():
    entries = Entries(np.array([0, 2], np.int32), np.array([1, 0], np.int32), np.array([1, -1], np.int8))
    assert sparse(entries, (3, 2), float).toarray().tolist() == [[0, 1], [0, 0], [-1, 0]]
    assert one_hot(entries, (3, 2)).toarray().tolist() == [[1, 0, 0, 0, 1], [0, 0, 1, 1, 0]]
    left, right = np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[3.0, 4.0], [5.0, 6.0]])
    assert inner(left, right, entries).tolist() == [17.0, 0.0]  # row 2 has no factors


def test_a_library_that_is_not_installed_is_told_as_absent(tmp_path):
    here = runner.Runner(tmp_path, 10.0, lambda text: None)
    here.versions = dict.fromkeys(CONTESTANTS, None)
    found = summary.lines(here, "ml-100k")
    assert {part.name for part in found} == set(CONTESTANTS)
    assert all("did not install" in part.absence for part in found)
