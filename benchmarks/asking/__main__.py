"""How well a row is known after some questions, and which questions those should be.

    make bench-ask                       # everything, about forty minutes on two cores
    python -m benchmarks.asking --data FOLDER --output docs/asking.md

Tables are read from FOLDER (``llm-*.parquet`` and ``polis*.parquet`` with columns row, col, y); what is
not there is left out. A quarter of the rows are new: chosen at random, or the best of all. What was
measured stays in ``--results``, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.asking.contestants import Estimate, Ours, TwoParameter, question_time, ridge
from benchmarks.asking.page import write_page
from benchmarks.asking.scales import (
    CLASS_SEEDS,
    CLASSES,
    YEAR_SEEDS,
    YEARS,
    scales,
    small_class,
    two_years,
)
from benchmarks.asking.scales import SEEDS as SCALE_SEEDS
from benchmarks.asking.scales import SIZES as SCALE_SIZES
from benchmarks.asking.survey import survey

TABLES = {"arc_challenge": 3, "musr": 2, "gsm": 6, "med_qa": 6, "mmlu-pro": 6}
SIZES = (30, 50, 100, 200)
RANK = 10
EXPLORE = 0.1
# New rows of a split that are interviewed.
MOST_ROWS = 54
SPLITS = ("iid", "better")
SURVEYS = 3

Array = NDArray[np.float64]


def matrix(path: Path) -> Array:
    """Return the rows of a table that have no blanks as a matrix of -1 and +1."""
    frame = pd.read_parquet(path)
    return frame.pivot(index="row", columns="col", values="y").dropna().to_numpy(dtype=float)


def divided(table: Array, kind: str, seed: int) -> tuple[Array, Array]:
    """Return the rows that are known, and those that are new."""
    rng = np.random.default_rng(seed)
    count = len(table) // 4
    if kind == "better":
        order = np.argsort(table.mean(axis=1), kind="stable")
    else:
        order = rng.permutation(len(table))
    new = rng.permutation(order[-count:])[:MOST_ROWS]
    return table[order[:-count]], table[new]


def contest(path: str, kind: str, seed: int, sizes: tuple[int, ...], rank: int) -> list[dict[str, Any]]:
    """Interview the new rows of one split by every contestant."""
    warnings.simplefilter("ignore")
    train, new = divided(matrix(Path(path)), kind, seed)
    ours, two = Ours(train, rank), TwoParameter(train)
    longest = max(sizes)
    fixed = np.array(ours.model.choose_columns(longest))
    lines = []
    for number, row in enumerate(new):
        truth = float((row.mean() + 1) / 2)
        rng = np.random.default_rng([seed, number])
        order = rng.permutation(len(row))
        informed = two.most_informative(row, longest)
        greedy, _ = ours.asked(row, longest, 0.0, number)
        drawn, chances = ours.asked(row, longest, EXPLORE, number)

        def add(method: str, n: int, found: Estimate, row: Array = row, truth: float = truth) -> None:
            lines.append(
                {
                    "table": Path(path).stem.removeprefix("llm-"), "split": kind, "seed": seed,
                    "method": method, "n": n, "size": len(row), "truth": truth,
                    "share": found.share, "low": found.low, "high": found.high,
                }
            )  # fmt: skip

        for n in sizes:
            some = order[:n]
            add("mean of random items", n, Estimate(float((row[some].mean() + 1) / 2)))
            add("ridge, random items", n, ridge(train, some, row[some]))
            add("2PL, random items", n, two.estimate(some, row[some]))
            add("2PL, maximum information", n, two.estimate(informed[:n], row[informed[:n]]))
            add("ours, random items", n, ours.credible(some, row[some]))
            add("ours, fixed set", n, ours.credible(fixed[:n], row[fixed[:n]]))
            add("ours, adaptive", n, ours.credible(greedy[:n], row[greedy[:n]]))
            add("row_mean, random items", n, ours.confident(some, row[some]))
            add("row_mean, policy", n, ours.confident(drawn[:n], row[drawn[:n]], chances[:n]))
    return lines


def jobs(data: Path, splits: int | None) -> Iterator[tuple[str, str, int]]:
    """Yield what is to be measured: file, kind of split, seed."""
    for name, count in TABLES.items():
        path = data / f"llm-{name}.parquet"
        if path.is_file():
            for seed in range(count if splits is None else splits):
                yield str(path), "iid", seed
            yield str(path), "better", 0
    for path in sorted(data.glob("polis*.parquet")):
        for seed in range(SURVEYS if splits is None else splits):
            yield str(path), "survey", seed
    for persons, items in SCALE_SIZES:
        for seed in range(SCALE_SEEDS if splits is None else splits):
            yield f"{persons}x{items}", "scale", seed
    for persons, items, strength in CLASSES:
        for seed in range(CLASS_SEEDS if splits is None else splits):
            yield f"{persons}x{items}x{strength:g}", "class", seed
    for persons, items, common in YEARS:
        for seed in range(YEAR_SEEDS if splits is None else splits):
            yield f"{persons}x{items}x{common}", "years", seed


def measure(job: tuple[str, str, int], sizes: tuple[int, ...], rank: int) -> list[dict[str, Any]]:
    path, kind, seed = job
    if kind == "scale":
        persons, items = path.split("x")
        return scales(int(persons), int(items), seed)
    if kind == "class":
        persons, items, strength = path.split("x")
        return small_class(int(persons), int(items), float(strength), seed)
    if kind == "years":
        persons, items, common = path.split("x")
        return two_years(int(persons), int(items), int(common), seed)
    if kind == "survey":
        return survey(Path(path), seed, rank)
    return contest(path, kind, seed, sizes, rank)


def run(todo: Iterable[tuple[str, str, int]], results: Path, sizes: tuple[int, ...], rank: int) -> None:
    """Measure what is not in the results yet."""
    done = set()
    if results.is_file():
        for line in results.read_text().splitlines():
            done.add(tuple(json.loads(line)["job"]))
    left = [job for job in todo if (Path(job[0]).stem, *job[1:]) not in done]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        pending = [(job, pool.submit(measure, job, sizes, rank)) for job in left]
        for job, future in pending:
            found = future.result()
            with results.open("a") as file:
                file.write(json.dumps({"job": [Path(job[0]).stem, *job[1:]], "lines": found}) + "\n")
            print(f"{Path(job[0]).stem}, {job[1]}, seed {job[2]}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--output", type=Path, default=Path("docs/asking.md"))
    parser.add_argument("--results", type=Path, default=Path("build/bench-ask.jsonl"))
    parser.add_argument("--splits", type=int, help="Random splits of each table.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--speed", type=int, nargs=3, default=(10_000, 20, 50))
    parser.add_argument("--only-page", action="store_true")
    options = parser.parse_args(arguments)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if not options.only_page:
        run(jobs(options.data, options.splits), options.results, tuple(options.sizes), options.rank)
    lines = [
        line for text in options.results.read_text().splitlines() for line in json.loads(text)["lines"]
    ]
    if not lines:
        raise SystemExit(f"no table was found in {options.data}")
    seconds = question_time(*options.speed, 20)
    write_page(lines, options.output, f"{os.cpu_count()} cores, {platform.machine()}", seconds)


if __name__ == "__main__":
    main()
