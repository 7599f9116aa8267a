"""Every benchmark in a tiny setting, so that none breaks unseen: its own command writes its page."""

import json
import re
import sys
import warnings
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.exceptions import ConvergenceWarning

from benchmarks import accuracy, growth, known, sampling, whole_fits
from benchmarks.asking import __main__ as asking
from benchmarks.asking import scales as asking_scales
from benchmarks.asking import survey as asking_survey
from benchmarks.certificates import __main__ as certificates
from benchmarks.certificates import drawn, held_out, keeping, page, tightness, worlds
from benchmarks.certificates.lines import COLUMNS, NOTHING, Lines, judged
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import sampling as gpu_sampling
from benchmarks.peers import __main__ as peers
from benchmarks.peers import matrices, runner, worker
from onebit import simulate

DELTA = 0.05


def tables(text):
    """Return the tables of a page, each as a list of rows of cells; no figure may be missing."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            assert len({len(row) for row in rows}) == 1
            found.append([rows[0], *rows[2:]])
            rows = []
    assert not re.search(r"\b(nan|inf|None)\b", text)
    return found


def figures(rows, column):
    """Return a column's numbers, the errors behind them left off."""
    place = rows[0].index(column)
    return [float(row[place].split()[0].replace(",", "")) for row in rows[1:]]


@pytest.fixture
def answers_file(tmp_path):
    """A folder with a table of answers to read."""
    pytest.importorskip("pyarrow")
    world = simulate.world("B3", rank=2, shape=(40, 30), density=0.5, seed=0)
    frame = pd.DataFrame({"row": world.pairs[:, 0], "col": world.pairs[:, 1], "y": world.answers > 0})
    frame.astype({"y": int}).to_parquet(tmp_path / "small.parquet")
    return tmp_path


def test_the_accuracy_page_has_every_world_and_every_model(answers_file, monkeypatch):
    tried = {name: make for name, make in accuracy.REAL.items() if "Auto" not in name}
    monkeypatch.setattr(accuracy, "REAL", tried)
    output = answers_file / "page.md"
    options = ["--seeds", "2", "--size", "30", "--splits", "2", "--data", str(answers_file)]
    options += ["--jobs", "1", "--results", str(answers_file / "kept.jsonl"), "--output", str(output)]
    accuracy.main(options)
    simulated, real = tables(output.read_text())
    assert [row[0] for row in simulated[1:]] == np.repeat(simulate.WORLDS, 2).tolist()
    assert all(0 <= error <= 60 for error in figures(simulated, "error %"))
    assert [row[0] for row in real[1:]] == list(tried)
    assert all(40 < value <= 100 for value in figures(real, "accuracy %"))
    # What was kept is not measured again.
    written = output.read_text()
    monkeypatch.setattr(accuracy, "measured", None)
    accuracy.main(options)
    assert output.read_text() == written


def test_the_page_of_what_is_known_has_the_pattern_and_cold_starts(tmp_path, monkeypatch):
    world = simulate.world("B3", rank=2, shape=(60, 50), density=0.5, seed=0)
    rng = np.random.default_rng(0)
    users = pd.DataFrame(
        {"age": rng.normal(size=60), "sex": rng.choice(["F", "M"], 60)},
        index=pd.RangeIndex(60, name="user"),
    )
    films = pd.DataFrame(
        {"war": rng.random(50) < 0.5, "year": 1990.0}, index=pd.RangeIndex(50, name="film")
    )
    films["year"] += np.arange(50)
    films.loc[3, "year"] = np.nan
    table = known.Table(world.pairs, world.answers, (users, films))
    monkeypatch.setattr(known, "read", lambda folder: table)
    monkeypatch.setattr(known, "installed", lambda package: package not in known.PEERS)
    monkeypatch.setattr(known, "HELD_OUT", 300)
    for name in ("PATTERN", "COLD"):
        tried = {key: make for key, make in getattr(known, name).items() if "sampling" not in key}
        monkeypatch.setattr(known, name, tried)
    output = tmp_path / "known.md"
    options = ["--data", str(tmp_path), "--splits", "2", "--auto-splits", "0", "--cold-splits", "2"]
    known.main([*options, "--output", str(output)])
    text = output.read_text().replace("pattern=None", "no pattern")  # no figure that is missing
    assert "left out: myFM, SMURFF, cmfrec, LightFM." in text
    pattern, cold_films, cold_users, warm = tables(text)
    assert [row[0] for row in pattern[1:]] == ["LogisticCompleter(no pattern)", known.DEFAULT]
    for cold in (cold_films, cold_users):
        assert len(cold) == 5
        assert figures(cold, "AUC")[0] == 0.5
    assert all(
        0.3 < loss < 1 for part in (pattern, cold_films, warm) for loss in figures(part, "log-loss")
    )


def test_cold_ids_have_no_answer_to_learn_from():
    world = simulate.world("B3", rank=2, shape=(60, 50), density=0.5, seed=0)
    frames = (pd.DataFrame({"x": 0.0}, index=pd.Index(np.arange(size)[::-1])) for size in (60, 50))
    table = known.Table(world.pairs, world.answers, tuple(frames))
    for side in (0, 1):
        split = known.cold_split(table, side, seed=1)
        cold = set(world.pairs[split.test, side])
        assert len(cold) == (12, 10)[side]
        assert cold.isdisjoint(world.pairs[split.train, side])
        assert set(world.pairs[split.test, 1 - side]) <= set(world.pairs[split.train, 1 - side])
        assert len(split.train) + len(split.test) == len(world.answers)


def test_the_growth_page_has_sizes_ranks_and_threads(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    for name, value in {
        "SIZES": (40_000, 50_000), "RANKS": (2, 3), "RANK": 3, "ROUNDS": 3, "ANSWERS_FOR_RANKS": 40_000,
        "ANSWERS_FOR_THREADS": (50_000,),
    }.items():  # fmt: skip
        monkeypatch.setattr(growth, name, value)
    output = tmp_path / "growth.md"
    growth.main(["--largest", "5e4", "--repeats", "1", "--output", str(output)])
    answers, ranks, threads = tables(output.read_text())
    assert figures(answers, "answers") == [40_000, 50_000] * 2
    assert figures(ranks, "K") == [2, 3] * 2
    assert figures(threads, "threads") == [2, 2]
    assert min(figures(answers, "ns per answer and side")) > 0
    assert output.with_suffix(".svg").is_file()


def test_whole_fits_are_measured_once_and_outlive_the_rest_of_the_page(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(whole_fits, "RANK", 2)
    output, results = tmp_path / "growth.md", tmp_path / "results.jsonl"
    command = ["--answers", "4e4", "--tables", "growing", "--threads", "1", "--output", str(output)]
    for _ in range(2):  # the second time from the file
        whole_fits.main([*command, "--results", str(results)])
        monkeypatch.setattr(whole_fits, "measure", None)
    (found,) = tables(output.read_text())
    assert found[1][:3] == ["40,000", "500 x 250", "1"]
    (before,), (most,) = figures(found, "GiB before"), figures(found, "GiB at most")
    assert 0.05 < before <= most
    assert figures(found, "of the truth")[0] < figures(found, "log-loss")[0] < np.log(2)
    whole = output.read_text()
    monkeypatch.setattr(growth, "run", lambda *given: [growth.Measured(40_000, 2, "full", 1, 0.1)])
    growth.main(["--output", str(output)])
    assert output.read_text().startswith("# How the time of a round grows\n")
    assert output.read_text().endswith(whole)


class Session:
    """Stands in for SMURFF's session: a coin for every test cell."""

    def __init__(self, burnin, nsamples, **settings):
        self.left, self.nsamples = burnin + nsamples, nsamples

    def setTrain(self, train, noise):
        assert set(train.data) == {-1.0, 1.0}

    def setTest(self, test):
        self.test = test

    def init(self):
        pass

    def step(self):
        self.left -= 1
        return self.left if self.left >= 0 else None

    def getTestPredictions(self):
        cells = zip(self.test.row.tolist(), self.test.col.tolist(), strict=True)
        return [
            SimpleNamespace(coords=cell, pred_avg=0.1, var=1.0, nsamples=self.nsamples) for cell in cells
        ]


class Relation(NamedTuple):
    """Stands in for myFM's relation: the places of the answers in a matrix, and the matrix."""

    places: list[int]
    matrix: object


class Machine:
    """Stands in for myFM's classifier: half a chance for every pair."""

    def __init__(self, rank, random_seed):
        pass

    def fit(self, X, y, X_rel, n_iter, n_kept_samples, group_shapes):
        # Ids and the pattern, of both sides.
        assert len(group_shapes) == 4
        assert n_kept_samples == 8

    def predict_proba(self, X, X_rel):
        return np.full(len(X_rel[0].places), 0.5)


def test_the_sampling_page_compares_samplers_and_an_oracle(answers_file, monkeypatch):
    package = SimpleNamespace(TrainSession=Session, ProbitNoise=lambda threshold: None)
    monkeypatch.setitem(sys.modules, "smurff", package)
    monkeypatch.setitem(
        sys.modules, "myfm", SimpleNamespace(MyFMClassifier=Machine, RelationBlock=Relation)
    )
    for name, value in {
        "BURN_IN": 4, "SAMPLES": 8, "SWEEPS": 12, "SIZE": 40, "RANKS": (2,),
        "REAL": {"small": (2, 0.1, (2,))},
        "PEERS": {
            "SMURFF": ("smurff", ((2, 10), (3, 10)), sampling.smurff_score),
            "myFM": ("myfm", ((2, 10),), sampling.myfm_score),
        },
    }.items():  # fmt: skip
        monkeypatch.setattr(sampling, name, value)
    output, kept = answers_file / "page.md", answers_file / "kept.jsonl"
    options = ["--data", str(answers_file), "--seeds", "2", "--splits", "2", "--output", str(output)]
    sampling.main([*options, "--results", str(kept)])
    contest, real, oracle = tables(output.read_text())
    assert contest[1][0] == "small"
    assert 0.3 < figures(contest, "AutoCompleter")[0] < 1
    # A coin for every cell, told the same by every setting.
    assert figures(contest, "SMURFF's best")[0] == pytest.approx(np.log(2), abs=0.1)
    assert 0.3 < figures(contest, "quick")[0] < 1
    assert len(kept.read_text().splitlines()) == 2 * 5
    monkeypatch.setattr(sampling, "auto", None)  # what was scored is not scored again
    sampling.main([*options, "--results", str(kept), "--only-contest"])
    assert tables(output.read_text())[0] == contest
    assert real[1][:2] == ["small", "2"]
    assert 0.3 < figures(real, "log-loss")[0] < 1
    assert 0 <= figures(oracle, "sampling")[0] <= 60


def test_the_time_of_a_sweep_is_measured_and_written():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sweep, seconds = gpu_sampling.swept((30, 20), 300, 2, 8, "cpu", 1)
    assert 0 < sweep < 1e3 * seconds
    text = gpu_sampling.page([["2", "1.0"]], (9.0, 7.0), {"gpu": "a GPU", "torch": "2"})
    assert "9 ms a sweep" in text
    assert "in 7 s" in text
    assert tables(text)[0][1] == ["2", "1.0"]


def test_the_peers_page_has_a_contest_with_onebit(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    small = matrices.Matrix("made-1m", "small", (90, 60), 900, 100, seed=3)
    monkeypatch.setitem(matrices.MATRICES, small.name, small)
    monkeypatch.setattr(runner, "SETTINGS", tmp_path / "settings.json")

    def here(self, task):
        files = [self.cache / name for name in ("task.json", "result.json")]
        files[0].write_text(json.dumps(task))
        worker.main(list(map(str, files)))
        return json.loads(files[1].read_text())

    monkeypatch.setattr(runner.Runner, "_start", here)  # a process of its own takes seconds to start
    output = tmp_path / "page.md"
    who = ["--matrix", small.name, "--only", "onebit", "--only", "effects"]
    how = ["--threads", "1", "--repeats", "1", "--cache", str(tmp_path / "cache")]
    peers.main([*who, *how, "--output", str(output)])
    (contest,) = tables(output.read_text())
    assert [row[0] for row in contest[1:]] == ["onebit", "onebit, effects only"]
    assert all(0.4 < value < 1 for value in figures(contest, "accuracy"))
    assert all(0.3 < value < 1 for value in figures(contest, "log-loss"))


FIT = {
    "seconds": 2.0, "rounds": 20, "round_ms": 30.0, "accuracy": 0.75, "log_loss": 0.5, "peak_gb": 3.0,
    "first_round_after": 0.5, "last_round_after": 1.5, "best_accuracy": 0.8, "best_log_loss": 0.4,
    "start_s": 0.2,
}  # fmt: skip
MEASURED = {
    "machine": {"gpu": "a GPU", "cpu": "two cores", "torch": "2.6", "copy_tb_s": 4.0},
    "made-20m": {
        "whole": FIT, "cpu": FIT, "rounds": FIT, "to_libmf": FIT,
        "kernels": [
            {"rank": 10, "kernel": "walk", "side": "rows", "ms": 3.0, "gigabytes": 1.0, "floor_ms": 2.0}
        ],
        "ranks": [
            {"rank": 2, "round_ms": 1.0, "peak_gb": 1.0},
            {"rank": 10, "round_ms": 2.0, "peak_gb": 1.0, "diagonal_ms": 1.5},
        ],
    },
    "growth": [{"n": 100_000, "round_ms": 1.5, "start_s": 0.1}],
    "streamed": {"n": 1000, "shape": [10, 20], "resident": FIT, "streamed": FIT},
    "billion": {
        "whole": FIT,
        "prediction": {
            "pairs": 1000, "scores": {"ms": 2.0, "floor_ms": 1.0},
            "moments": {"ms": 4.0, "floor_ms": 3.0}, "from_host_s": 0.5, "top_ten_s": 9.0,
            "top_ten_floor_s": 20.0,
        },
    },
    "half-bytes": {
        "whole": FIT, "halved": FIT | {"rise": -1e-6}, "moved": 2e-5, "moved_most": 3e-4,
    },
    "ten-billion": FIT,
}  # fmt: skip


def test_the_gpu_part_of_the_page_is_written_from_what_was_measured(tmp_path):
    assert set(gpu.PARTS) < set(MEASURED)
    measured, output = tmp_path / "gpu.json", tmp_path / "page.md"
    measured.write_text(json.dumps(MEASURED))
    output.write_text("# A page\n\nIts text.\n")
    for _ in range(2):  # the second time in place of the first
        gpu.main(["--draw", str(measured), "--output", str(output)])
    text = output.read_text()
    assert text.startswith("# A page\n\nIts text.\n")
    assert text.count("## On a GPU") == 1
    whole, kernels, ranks, grown = tables(text)
    assert figures(whole, "accuracy") == [0.75, 0.75]
    assert figures(kernels, "times the floor") == [1.5]
    assert figures(ranks, "K") == [2, 10]
    assert figures(grown, "answers") == [100_000]


def test_what_is_measured_on_a_gpu_can_be_imported():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from benchmarks.gpu import measure

    names = [part.replace("-", "_") for part in gpu.PARTS]
    assert all(callable(getattr(measure, name)) for name in names)


def test_the_certificates_page_judges_every_kind_and_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    counts = {"noisy": 12, "rare": 2, "nearly-full": 2, "repeated": 2, "chosen": 2, "drawn": 2}
    for family, count in counts.items():
        one_world, _, batch = certificates.FAMILIES[family]
        monkeypatch.setitem(certificates.FAMILIES, family, (one_world, count, batch))
    monkeypatch.setattr(tightness, "WORLDS", ("A1",))
    monkeypatch.setattr(drawn, "MONTE_CARLO_TARGET", 0.05)
    output = tmp_path / "page.md"
    command = ["--seeds", "2", "--size", "30", "--jobs", "1", "--keep", str(tmp_path)]
    with drawn.fewer_draws():
        certificates.main([*command, "--output", str(output)])
    text = output.read_text()
    own, rare, full, repeated, others, broken, elsewhere, tight = tables(text)
    for table in (own, rare, full, repeated, others):
        assert "**caught**" not in [row[-1] for row in table[1:]]
        assert figures(table, "delta") == sorted(figures(table, "delta"))
    assert set(figures(own, "worlds")) == {12, 8}  # a refit has no certificate in skewed worlds
    assert {row[0] for row in full[1:]} == {held_out.HOLD_OUT, held_out.BLANKS_ALONE}
    assert {row[0] for row in repeated[1:]} == {held_out.BLANKS_ALONE}
    names = {held_out.UNSPLIT, held_out.ONE_FOR_ALL, held_out.LIST, held_out.OUTSIDE_FOR_BLANKS}
    assert {row[0] for row in broken[1:]} == names | {held_out.FIRST_ANSWER, drawn.NO_DETERMINANTS}
    like, blanks = figures(elsewhere, "mean error")[:2]
    assert blanks > 2 * like
    assert [row[0] for row in tight[1:]] == list(tightness.RUNGS)
    output.unlink()
    # Nothing may be made again.
    monkeypatch.setattr(certificates, "some_worlds", lambda *batch: pytest.fail(f"made again: {batch}"))
    monkeypatch.setattr(tightness, "world_rungs", lambda *world: pytest.fail(f"made again: {world}"))
    certificates.main([*command, "--output", str(output)])
    assert output.read_text() == text


def lines_of(failures, worlds, name="a bound", broken=False, family="noisy"):
    """Return lines of a bound that fails in some of the worlds."""
    risk = np.where(np.arange(worlds) < failures, 0.3, 0.1)
    rows = [(name, broken, DELTA, 0.2, value) for value in risk]
    return pd.DataFrame(rows, columns=COLUMNS).assign(family=family)


@pytest.mark.parametrize(("failures", "caught"), [(0, False), (50, False), (72, False), (80, True)])
def test_a_bound_is_caught_when_it_fails_more_often_than_chance_allows(failures, caught):
    (found,) = judged(lines_of(failures, 1000)).itertuples()
    assert (found.worlds, found.failures) == (1000, failures)
    assert found.p == pytest.approx(binomtest(failures, 1000, DELTA, alternative="greater").pvalue)
    assert found.caught == caught
    assert found.slack == pytest.approx(0.1 - 0.2 * failures / 1000)


def test_the_page_says_what_was_caught_among_the_broken_ones():
    both = pd.concat([lines_of(40, 1000), lines_of(90, 1000, "the same, broken", True)])
    true, broken = tables("\n\n".join(page.coverage(both)))
    assert [row[-1] for row in true[1:]] == ["holds"]
    assert [row[-1] for row in broken[1:]] == ["**caught**"]


def test_of_statements_that_hold_at_once_the_worst_counts_and_none_is_no_failure():
    lines = Lines()
    lines.add_all("three", DELTA, [(0.3, 0.1), (0.2, 0.25), (0.9, 0.8)])
    lines.add("nothing", DELTA, *NOTHING)
    worst, nothing = judged(pd.DataFrame(lines.found)).itertuples()
    assert (worst.bound, worst.risk, worst.failures) == (0.2, 0.25, 1)
    assert (nothing.worlds, nothing.failures) == (1, 0)


@pytest.mark.parametrize("how", [worlds.ONCE, worlds.AGAIN])
def test_rare_answers_are_some_six_per_cent(how):
    shares = [worlds.rare(seed, how).yes.mean() for seed in range(20)]
    assert 0.04 < np.mean(shares) < 0.08


def test_where_entries_come_once_the_errors_of_blanks_are_counted():
    world = worlds.papers("A2", 0, worlds.ONCE, worlds.NEARLY_ALL)
    assert set(world.yes) == {0.0, 1.0}
    assert world.blank().sum() == 72
    seen = world.pairs[:, 0] * world.shape[1] + world.pairs[:, 1]
    assert (world.yes[seen] == (world.answers > 0)).all()
    right = np.where(world.yes > 0, 1.0, -1.0)
    assert worlds.rate(world.wrong(right), world.weight) == 0
    assert worlds.rate(world.wrong(0 * right), world.weight) == 1


def test_results_belong_to_the_version_that_made_them(tmp_path, monkeypatch):
    before = keeping.folder_of_this_version(tmp_path)
    assert before == keeping.folder_of_this_version(tmp_path)
    (tmp_path / "changed.py").write_text("")
    monkeypatch.setattr(keeping, "onebit", SimpleNamespace(__file__=str(tmp_path / "changed.py")))
    assert keeping.folder_of_this_version(tmp_path) != before


def test_what_the_pattern_costs_is_measured_with_and_without_it(capsys):
    from benchmarks import pattern_speed

    (found,) = pattern_speed.main(["--answers", "3000", "--repeats", "1"])
    assert found["ratio"] == found["with_s"] / found["without_s"]
    assert "ratio" in capsys.readouterr().out


def test_the_distributed_page_compares_a_cluster_with_one_machine_and_goes_on(
    forks, tmp_path, monkeypatch
):
    pytest.importorskip("distributed")
    from benchmarks import distributed

    page, results = tmp_path / "distributed.md", tmp_path / "results.json"
    arguments = [
        "--answers",
        "30000",
        "--rounds",
        "2",
        "--repeats",
        "1",
        "--limited",
        "0",
        "--large",
        "40000",
    ]
    arguments += ["--results", str(results), "--data", str(tmp_path), "--output", str(page)]
    monkeypatch.setattr(distributed, "MEMORY_OF", (1,))
    distributed.main(arguments)
    text = page.read_text()
    assert "| one process, 2 threads |" in text
    assert "| Dask, 2 workers |" in text
    assert "| 40,000 |" in text
    kept = distributed.Results(results)
    assert [run.kind for run in kept.runs] == ["machine", "cluster", "memory", "large"]
    states = kept.runs[1].shape[1] * distributed.PER_COLUMN
    # The table goes out and the sums come back, once each, and little besides.
    assert kept.runs[1].moved < 1.5 * 2 * states

    def again(*_):
        raise AssertionError("it was measured before")

    monkeypatch.setattr(distributed, "on_cluster", again)
    distributed.main(arguments)


def test_a_round_on_paper_follows_its_formula():
    from benchmarks.distributed import on_paper

    line = on_paper(1e10, 10, 100.0)
    assert line["work (s)"] == "12.5"  # 2e10 * 100 ns on 160 cores
    assert line["travel (s)"] == "2.0"  # 308 MB out and back along four steps, at 1.25 GB a second
    assert line["moved a round (GB)"] == "5.5"


def test_the_page_of_questions_has_every_contestant_and_covers(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    score = rng.normal(0.5, 1.2, (40, 1)) + rng.normal(0, 1, 60)
    answers = np.where(rng.random(score.shape) < 1 / (1 + np.exp(-score)), 1, -1)
    rows, columns = np.indices(answers.shape)
    frame = pd.DataFrame({"row": rows.ravel(), "col": columns.ravel(), "y": answers.ravel()})
    frame.to_parquet(tmp_path / "llm-gsm.parquet")
    frame.sample(frac=0.9, random_state=0).to_parquet(tmp_path / "polis-small.parquet")
    monkeypatch.setattr(asking_survey, "LEAST_ANSWERS", 30)
    monkeypatch.setattr(asking_survey, "MOST_PEOPLE", 6)
    monkeypatch.setattr(asking_survey, "ASKED", (2, 5))
    monkeypatch.setattr(asking, "MOST_ROWS", 6)
    monkeypatch.setattr(asking, "SCALE_SIZES", ((60, 8),))
    monkeypatch.setattr(asking, "CLASSES", ((12, 5, 0.5),))
    monkeypatch.setattr(asking, "YEARS", ((80, 10, 8),))
    monkeypatch.setattr(asking_scales, "YEAR_CHAINS", {"n_samples": 20, "n_burn_in": 20, "n_chains": 2})
    monkeypatch.setattr(asking, "ProcessPoolExecutor", lambda _: HERE)
    page, results = tmp_path / "asking.md", tmp_path / "r.jsonl"
    arguments = ["--data", str(tmp_path), "--output", str(page), "--results", str(results)]
    arguments += ["--splits", "1", "--sizes", "20", "--rank", "1", "--speed", "200", "3", "10"]
    asking.main(arguments)
    text = page.read_text()
    for name in ("ridge, random items", "2PL, maximum information", "ours, adaptive", "policy"):
        assert name in text
    assert (tmp_path / "asking.png").stat().st_size > 10_000
    assert "| 12 x 5 | half | -m 2pl |" in text
    assert "| 12 x 5 | half | default |" in text
    assert "| Rasch | 80 x 10 | 8 |" in text
    assert "| 2PL | 80 x 10 | 8 |" in text
    lines = [line for part in results.read_text().splitlines() for line in json.loads(part)["lines"]]
    found = pd.DataFrame([line for line in lines if line["split"] == "iid"])
    errors = (found["share"] - found["truth"]).abs().groupby(found["method"]).mean()
    assert errors["ours, adaptive"] < errors["mean of random items"]
    before = results.read_text()
    asking.main(arguments)  # what was measured is not measured again
    assert results.read_text() == before


class _Here:
    """An executor that works at once, in this process."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def submit(self, function, *arguments):
        done = function(*arguments)
        return SimpleNamespace(result=lambda: done)


HERE = _Here()
