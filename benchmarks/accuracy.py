"""How accurate the completers are: the paper's simulated worlds and real matrices.

    make bench-accuracy                  # everything, about an hour on two cores
    python -m benchmarks.accuracy --data FOLDER --seeds 5 --splits 3

Every figure is a mean over seeds or splits with its standard error. Real data is read from FOLDER
(``ml-100k/u.data`` and ``*.parquet`` files with columns row, col, y); what is not there is left out.
Every fit has a core to itself. ``--results`` keeps what was measured, and a run that was stopped goes on;
``--output`` writes the page; ``make bench-accuracy`` writes ``docs/accuracy.md``.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from benchmarks.kept import Kept
from onebit import AutoCompleter, HingeCompleter, LogisticCompleter, simulate
from onebit.data.datasets import load_movielens_100k
from onebit.engine.cpu.threads import thread_count
from onebit.study.page import markdown

Makers = dict[str, Callable[[int], object]]

# Settings as the paper's simulations have them: no effects, K = 10. All else is the default.
WORLDS: Makers = {
    "engine hinge": lambda seed: HingeCompleter(10, effects=False, calibrate=False, random_state=seed),
    "engine logistic": lambda seed: LogisticCompleter(10, effects=False, random_state=seed),
}
TARGETS = {
    ("A2", "engine hinge"): 0.3,
    ("B1", "engine hinge"): 4.0,
    ("B2", "engine hinge"): 9.6,
    ("B3", "engine logistic"): 19.5,
}
REAL: Makers = {
    "effects only": lambda seed: LogisticCompleter(0, random_state=seed),
    "LogisticCompleter()": lambda seed: LogisticCompleter(random_state=seed),
    'LogisticCompleter(tol="auto")': lambda seed: LogisticCompleter(tol="auto", random_state=seed),
    "HingeCompleter()": lambda seed: HingeCompleter(random_state=seed),
    'HingeCompleter(tol="auto")': lambda seed: HingeCompleter(tol="auto", random_state=seed),
    "AutoCompleter()": lambda seed: AutoCompleter(random_state=seed),
}
MOVIELENS, HELD_OUT = "ml-100k", 5000
WITHOUT_EFFECTS: Makers = {
    "LogisticCompleter(effects=False)": lambda seed: LogisticCompleter(effects=False, random_state=seed),
}
# Splits of the other tables at most.
FEW = 3


def summary(values: Iterable[float], scale: float = 1.0, digits: int = 2) -> str:
    values = np.asarray(list(values)) * scale
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


class Task(NamedTuple):
    """One fit: of a world or a table, by a method, under a seed."""

    data: str
    method: str
    seed: int
    size: int = 0


def makers(data: str) -> Makers:
    """Return the methods that are tried on a world or a table."""
    if data in simulate.WORLDS:
        return WORLDS
    return REAL | WITHOUT_EFFECTS if data == MOVIELENS else REAL


def table(folder: Path, name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Return pairs and answers of a real table."""
    if name == MOVIELENS:
        data = load_movielens_100k(folder)
        return pd.DataFrame(data.pairs), data.answers
    frame = pd.read_parquet(folder / f"{name}.parquet")
    return frame[["row", "col"]], frame["y"].to_numpy()


def tables(folder: Path | None) -> list[str]:
    """Return the names of the real tables in a folder."""
    if folder is None:
        return []
    movielens = [MOVIELENS] if (folder / MOVIELENS / "u.data").is_file() else []
    return movielens + sorted(path.stem for path in folder.glob("*.parquet"))


def measured(task: Task, tried: Makers, folder: Path | None) -> tuple[Task, dict[str, float]]:
    """Fit on one core; return what the fit scores."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    model: Any = tried[task.method](task.seed)
    model.set_params(n_jobs=1)
    if task.size:
        world = simulate.world(task.data, rank=3, shape=(task.size, task.size), seed=task.seed)
        model.fit(world.pairs, world.answers)
        error = world.error(model.complete("score").to_numpy())
        return task, {"error": float(error), "rank": int(model.rank_)}
    assert folder is not None
    pairs, answers = table(folder, task.data)
    order = np.random.default_rng(task.seed).permutation(len(answers))
    count = HELD_OUT if task.data == MOVIELENS else len(answers) // 10
    test, train = order[:count], order[count:]
    begin = time.perf_counter()
    model.fit(pairs.iloc[train], answers[train])
    seconds = time.perf_counter() - begin
    return task, {
        "accuracy": float(model.score(pairs.iloc[test], answers[test])),
        "log_loss": float(log_loss(answers[test], model.predict_proba(pairs.iloc[test]))),
        "rank": int(model.rank_),
        "rounds": getattr(model, "n_iter_", 0),  # AutoCompleter has many descents
        "seconds": seconds,
    }


def planned(folder: Path | None, seeds: int, size: int, splits: int) -> list[Task]:
    """Return all fits, the longest first: cores are then busy to the end."""
    real = [
        Task(name, method, split)
        for name in tables(folder)
        for method in makers(name)
        for split in range(splits if name == MOVIELENS else min(splits, FEW))
    ]
    made = [
        Task(name, method, seed, size)
        for name in simulate.WORLDS
        for method in WORLDS
        for seed in range(seeds)
    ]
    return sorted(real, key=lambda task: "Auto" not in task.method) + made


Results = dict[Task, dict[str, float]]


def run(tasks: list[Task], folder: Path | None, jobs: int, kept: Kept) -> Results:
    """Do what is missing of some tasks, each on a core."""
    missing = [task for task in tasks if task not in kept]
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
        calls = (joblib.delayed(measured)(task, makers(task.data), folder) for task in missing)
        for number, (task, result) in enumerate(work(calls), start=1):
            kept.keep(task, result)
            told = ", ".join(f"{name} {value:.4g}" for name, value in result.items())
            what = f"{task.data} {task.method} {task.seed}"
            print(f"{number} of {len(missing)}: {what}: {told}", flush=True)
    return {task: kept[task] for task in tasks}


def worlds_table(results: Results, seeds: int) -> str:
    """Return the table of the paper's worlds."""
    lines = []
    for name in simulate.WORLDS:
        for method in WORLDS:
            found = [
                result
                for task, result in results.items()
                if task.size and (task.data, task.method) == (name, method)
            ]
            goal = TARGETS.get((name, method))
            right = sum(result["rank"] == 3 for result in found)
            errors = summary((result["error"] for result in found), 100)
            lines.append([name, method, errors, f"<= {goal}" if goal else "", f"{right} of {seeds}"])
    return markdown(["world (rank 3)", "method", "error %", "goal", "rank 3 found"], lines)


def real_table(results: Results, name: str) -> tuple[str, int]:
    """Return the table of a real table, and the number of its splits."""
    lines, splits = [], 0
    for method in makers(name):
        found = [
            result
            for task, result in results.items()
            if not task.size and (task.data, task.method) == (name, method)
        ]
        splits = len(found)
        lines.append(
            [
                method,
                summary((result["accuracy"] for result in found), 100),
                summary((result["log_loss"] for result in found), digits=4),
                f"{np.median([result['rank'] for result in found]):g}",
                "" if "Auto" in method else f"{np.mean([result['rounds'] for result in found]):.0f}",
                f"{np.mean([result['seconds'] for result in found]):.1f}",
            ]
        )
    return markdown(
        ["model", "accuracy %", "log-loss", "rank (median)", "rounds", "seconds"], lines
    ), splits


def page(results: Results, names: list[str], seeds: int, size: int, where: str) -> str:
    """Return the page."""
    parts = [
        "# Accuracy",
        f"Made by `make bench-accuracy` ({where}). Means and standard errors. Seconds are of a whole fit "
        "on one core, with other fits on the cores beside it.",
        f"## The paper's worlds: {size} x {size}, 20 % seen, {seeds} seeds\n\n"
        "Error against sign(M), ties counted as errors; K = 10, no effects, all else by default. "
        "AutoCompleter and tuned settings are in [the study](study.md).",
        worlds_table(results, seeds),
    ]
    for name in names:
        text, splits = real_table(results, name)
        title = "10 % held out at random"
        if name == MOVIELENS:
            title = "like = rating > 3.5, 95,000 / 5,000"
        parts += [f"## {name}: {title}, {splits} splits", text]
    return "\n\n".join(parts) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=None, help="folder with the real data")
    parser.add_argument("--seeds", type=int, default=60, help="simulated worlds of each kind")
    parser.add_argument("--size", type=int, default=200, help="their rows and columns")
    parser.add_argument("--splits", type=int, default=10, help="random splits of MovieLens 100k")
    parser.add_argument("--jobs", type=int, default=-1, help="fits at a time; -1: as many as cores")
    parser.add_argument("--results", type=Path, help="keep what was measured here, and go on from it")
    parser.add_argument("--output", type=Path, default=None, help="write the page here as well")
    arguments = parser.parse_args(argv)
    jobs = thread_count(arguments.jobs)
    tasks = planned(arguments.data, arguments.seeds, arguments.size, arguments.splits)
    results = run(tasks, arguments.data, jobs, Kept(arguments.results))
    where = f"{platform.machine()}, {jobs} fits at a time"
    text = page(results, tables(arguments.data), arguments.seeds, arguments.size, where)
    print("\n" + text)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
