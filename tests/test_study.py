"""The study: what it computes, that it goes on where it stopped, and what its page says."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from onebit import simulate
from onebit.completers.evaluation import calibration_error
from onebit.study import Plan, run, write_page
from onebit.study.methods import METHODS, ORACLE, Method
from onebit.study.oracle import oracle_scores
from onebit.study.page import Cell, as_frame
from onebit.study.plan import MOVIELENS, Task
from onebit.study.printed import PAPER_METHODS, SIMULATED
from onebit.study.runner import RESULTS, StudyError, read_results

SMALL = Plan(
    seeds=2, figure_seeds=1, movielens_splits=0, shape=(30, 30), density=0.6, splits=1,
    worlds=("A2", "B3"), ranks=(2,), flips=(0.0, 0.1), methods=("Logit-IG", "freq. Logit"),
)  # fmt: skip


@pytest.fixture(scope="module")
def small_results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return folder, run(SMALL, folder, n_jobs=1)


def test_every_printed_cell_has_a_task():
    tasks = Plan().tasks()
    assert len(set(tasks)) == len(tasks)
    done = {(task.rank, task.data, task.method) for task in tasks}
    for rank, worlds in SIMULATED.items():
        assert {(rank, world, method) for world in worlds for method in PAPER_METHODS} <= done
    assert {(0, MOVIELENS, method) for method in METHODS} <= done
    assert {(rank, "B3", ORACLE) for rank in (3, 5)} <= done
    assert {task.flip for task in tasks if task.data == "A2"} >= {0.0, 0.25, 0.4}


def test_results_repeat_and_are_those_of_the_task_itself(small_results):
    _, results = small_results
    task = next(task for task in results if task.method == "freq. Logit" and task.data == "A2")
    again = task.run()
    assert again["error"] == results[task]["error"]
    assert again["choice"] == results[task]["choice"]


def test_a_second_run_computes_nothing_and_a_larger_one_only_what_is_new(small_results):
    folder, results = small_results
    told = []
    assert run(SMALL, folder, n_jobs=1, tell=lambda *a: told.append(a)) == results
    assert told == []
    lines = (folder / RESULTS).read_text().count("\n")
    larger = Plan(**{**SMALL.__dict__, "seeds": 3})
    run(larger, folder, n_jobs=1, tell=lambda *a: told.append(a))
    new = len(larger.tasks()) - len(SMALL.tasks())
    assert len(told) == new
    assert (folder / RESULTS).read_text().count("\n") == lines + new


def test_a_line_cut_short_by_a_kill_is_computed_again(small_results, tmp_path):
    folder, results = small_results
    whole = (folder / RESULTS).read_text().splitlines(keepends=True)[: len(results) + 1]
    (tmp_path / RESULTS).write_text("".join(whole)[:-25])
    told = []
    again = run(SMALL, tmp_path, n_jobs=1, tell=lambda *a: told.append(a))
    assert len(told) == 1
    assert {t: r["error"] for t, r in again.items()} == {t: r["error"] for t, r in results.items()}
    assert len(read_results(tmp_path / RESULTS)) == len(results)


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_a_killed_study_goes_on_where_it_stopped(tmp_path):
    code = (
        "from onebit.study import Plan, run;"
        "run(Plan(seeds=40, figure_seeds=0, movielens_splits=0, shape=(30, 30), density=0.6, splits=1,"
        f"worlds=('B3',), ranks=(2,), methods=('Logit-IG',)), {str(tmp_path)!r}, n_jobs=1)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    path = tmp_path / RESULTS
    deadline = time.monotonic() + 120
    while (not path.exists() or path.read_text().count("\n") < 4) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = len(read_results(path))
    assert kept >= 3
    plan = Plan(
        seeds=3, figure_seeds=0, movielens_splits=0, shape=(30, 30), density=0.6, splits=1,
        worlds=("B3",), ranks=(2,), methods=("Logit-IG",),
    )  # fmt: skip
    assert len(run(plan, tmp_path, n_jobs=1)) == len(plan.tasks())
    assert len(read_results(path)) >= kept


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": "onebit-study", "version": 0}\n', "version 0"),
        ("hello\n", "does not hold results"),
        ('{"format": "onebit-study", "version": 1}\n{"task": 3}\n', "line 2 .* is damaged"),
    ],
)
def test_a_results_file_that_is_not_ours_is_refused_and_left_alone(tmp_path, content, message):
    path = tmp_path / RESULTS
    path.write_text(content)
    with pytest.raises(StudyError, match=message):
        run(SMALL, tmp_path, n_jobs=1)
    assert path.read_text() == content


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StudyError, match="cannot write to"):
        run(SMALL, tmp_path / "taken", n_jobs=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 0}, "seeds must be a positive number, got 0"),
        ({"figure_seeds": -1}, "figure_seeds"),
        ({"worlds": ("A2", "C7")}, "unknown worlds: C7; choose from A1"),
        ({"methods": ("SVM",)}, "unknown methods: SVM"),
    ],
)
def test_an_impossible_plan_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Plan(**settings)


def test_settings_are_chosen_by_answers_held_out_of_the_training_data(small_world):
    chosen = []

    class Fake:
        rank_ = 0

        def __init__(self, knob, random_state):
            self.knob = knob

        def fit(self, pairs, answers):
            self.n = len(answers)
            chosen.append((self.knob, self.n))
            return self

        def decision_function(self, pairs):
            # Right only at knob 2; the truth is all ones below.
            return np.full(len(pairs), 1.0 if self.knob == 2 else -1.0)

    answers = np.ones(len(small_world.answers))
    model, choice = Method("fake", Fake, {"knob": (1, 2, 3)}).fit(
        small_world.pairs, answers, 0, splits=2, calibrate=False
    )
    assert choice == {"knob": 2}
    assert model.n == len(answers)
    assert all(n < len(answers) for _, n in chosen[:-1])


def test_the_oracle_errs_less_than_a_method_that_must_learn():
    for name in ("A2", "A3", "B3"):
        oracle, method = [], []
        for seed in range(3):
            world = simulate.world(name, rank=2, shape=(60, 60), density=0.3, seed=seed, flip=0.2)
            oracle.append(world.error(oracle_scores(world, 2, 0.2, seed, sweeps=200)))
            model, _ = METHODS["Logit-IG"].fit(world.pairs, world.answers, seed, 1, calibrate=False)
            method.append(world.error(model.decision_function(world.all_pairs).reshape(60, 60)))
        assert np.mean(oracle) < np.mean(method) + 0.005, name


def test_calibration_error_is_zero_for_right_chances_and_not_for_wrong_ones(rng):
    chance = rng.random(50_000)
    answers = np.where(rng.random(50_000) < chance, 1, -1)
    assert calibration_error(chance, answers > 0) < 0.01
    assert calibration_error(np.sqrt(chance), answers > 0) > 0.1


def test_a_cell_is_mean_and_standard_error():
    cell = Cell(np.array([0.01, 0.02, 0.03]))
    assert cell.text() == "2.00 ± 0.58"
    assert Cell(np.array([0.5])).text() == "50.00"
    assert Cell(np.array([])).text() == ""


def test_the_page_holds_every_figure_and_draws_the_noise(small_results, tmp_path):
    _, results = small_results
    page = write_page(SMALL, results, tmp_path, "onebit study").read_text()
    frame = as_frame(results)
    for name in SMALL.worlds:
        chosen = frame[(frame["data"] == name) & (frame["method"] == "Logit-IG") & (frame["rank"] == 2)]
        assert Cell(chosen["error"].to_numpy()).text() in page
    assert "`onebit study`" in page
    assert "study-noise.png" in page
    assert (tmp_path / "study-noise.png").read_bytes()[:4] == b"\x89PNG"
    assert "AutoCompleter" not in (tmp_path / "study-noise.svg").read_text()
    assert "oracle" in (tmp_path / "study-noise.svg").read_text()
    assert len(pd.read_csv(tmp_path / "study.csv")) == len(results)
    assert sorted(os.listdir(tmp_path)) == ["study-noise.png", "study-noise.svg", "study.csv", "study.md"]


def test_the_page_says_where_the_print_is_below_the_oracle_and_which_claims_hold(tmp_path):
    plan = Plan(seeds=2, figure_seeds=0, movielens_splits=0)
    results = {}
    for task in plan.tasks():
        printed = dict(zip(PAPER_METHODS, SIMULATED[task.rank][task.data], strict=True))
        error = printed.get(task.method, 0.0)
        if task.method == ORACLE:
            error = 0.19 if task.data == "B3" else 0.0
        if task.data == "B3" and task.method == "Logit-IG" and task.rank == 3:
            error = 0.20
        if task.data == "B1" and task.method == "AutoCompleter":
            error = 0.5
        results[task] = {"error": error + 2e-4 * task.seed, "rank_found": 3, "choice": {}}
    page = write_page(plan, results, tmp_path).read_text()
    assert "HL ahead of Logit on A2: yes" in page
    assert "Logit ahead of HL on B1: yes" in page
    assert "29 of 30 printed figures" in page
    assert "B3 Logit-IG: 20.01 % here, 16 % printed, which is below the oracle's 19.01 %" in page
    assert "in every world shown but B1 (50.01 ± 0.01 % against 4 %)" in page


def test_movielens_is_a_task_like_any_other(movielens_folder):
    result = Task(MOVIELENS, "Logit-IG", seed=0, splits=1).run(str(movielens_folder))
    assert result["error"] < 0.30
    assert result["log_loss"] < 0.56
    assert result["calibration_error"] < 0.04


def test_tasks_survive_the_file(small_results):
    folder, results = small_results
    assert set(results) <= set(read_results(folder / RESULTS))
    first = json.loads((folder / RESULTS).read_text().splitlines()[1])
    assert set(first) == {"task", "result"}
