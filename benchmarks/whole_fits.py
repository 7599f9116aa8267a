"""Time and memory of whole default fits of a million, ten million and a hundred million answers.

    make bench-growth
    python -m benchmarks.whole_fits --answers 1e8 --tables growing --output docs/growth.md

Each fit has a process of its own, which loads arrays of ids and answers in random order, so that its
largest memory is that of the fit and what it was given. Matrices come from ``benchmarks.peers.matrices``,
of two sizes: rows and columns that grow with the answers, and those of MovieLens 20M. What was measured
is kept in a file where one is named, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.growth import PER_COLUMN, PER_ROW, RANK, WHOLE_FITS
from benchmarks.kept import Kept
from benchmarks.parts import write_part
from benchmarks.peers.machine import machine
from benchmarks.peers.matrices import MATRICES, make
from benchmarks.peers.worker import log_loss, peak_megabytes
from onebit import LogisticCompleter
from onebit.study.page import markdown

ANSWERS = (1_000_000, 10_000_000, 100_000_000)
TABLES = ("growing", "fixed")
# Answers that are left out of a fit, to see what it is worth: this share, and at most so many.
LEFT_OUT, MOST_LEFT_OUT = 0.05, 1_000_000
_NAMES = ("pairs", "signs", "test_pairs", "test_signs", "truth")


def shape_of(table: str, n: int) -> tuple[int, int]:
    """Return the rows and columns of a matrix with so many answers."""
    return MATRICES["made-20m"].shape if table == "fixed" else (n // PER_ROW, n // PER_COLUMN)


def store(table: str, n: int, folder: Path) -> None:
    """Make a matrix, and leave its answers in a folder: in random order, a few apart."""
    entries, truth = make(shape_of(table, n), n, seed=n)
    order = np.random.default_rng(0).permutation(n)
    test, train = np.split(order, [min(int(LEFT_OUT * n), MOST_LEFT_OUT)])
    for begin, part in (("", train), ("test_", test)):
        taken = entries.take(part)
        np.save(folder / f"{begin}pairs.npy", np.column_stack(taken[:2]))
        np.save(folder / f"{begin}signs.npy", taken.signs)
    np.save(folder / "truth.npy", truth[test])


def fit(folder: Path, rank: int, threads: int) -> dict[str, Any]:
    """Fit what a folder holds, in this process; return what that took and what it is worth."""
    pairs, signs, test_pairs, test_signs, truth = (np.load(folder / f"{name}.npy") for name in _NAMES)
    warm = LogisticCompleter(rank, n_jobs=threads, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm.fit(pairs[:5000], signs[:5000])  # kernels are loaded
        before, begin = peak_megabytes(), time.perf_counter()
        model = LogisticCompleter(rank, n_jobs=threads, random_state=0).fit(pairs, signs)
        seconds, peak = time.perf_counter() - begin, peak_megabytes()
    return {
        "seconds": seconds,
        "rounds": int(model.n_iter_),
        "gib_before": before * 1e6 / 2**30,
        "gib": peak * 1e6 / 2**30,
        "log_loss": log_loss(model.predict_proba(test_pairs)[:, 1], test_signs),
        "truth": log_loss(truth, test_signs),
    }


def measure(table: str, n: int, threads: int) -> dict[str, Any]:
    """Make a matrix and fit it in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        store(table, n, Path(folder))
        command = [sys.executable, "-m", "benchmarks.whole_fits", "--fit", folder]
        command += ["--threads", str(threads), "--rank", str(RANK)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run(
    tables: Sequence[str], answers: Sequence[int], threads: int, kept: Kept, say: Callable[[str], None]
) -> None:
    """Measure what is not there yet."""
    for n in answers:
        for table in tables:
            if (table, n, threads) not in kept:
                kept.keep((table, n, threads), measure(table, n, threads))
            found = kept[table, n, threads]
            say(
                f"{n:,} answers, {table} table: {found['seconds']:.1f} s, {found['rounds']} rounds, "
                f"{found['gib']:.2f} GiB"
            )


def part(kept: Kept) -> list[str]:
    """Return what the page says."""
    body = []
    for (table, n, threads), found in sorted(kept.items(), key=lambda item: (item[0][1], item[0][0])):
        rows, columns = shape_of(table, n)
        body.append(
            [
                f"{n:,}", f"{rows:,} x {columns:,}", str(threads), f"{found['seconds']:.1f}",
                str(found["rounds"]), f"{found['gib_before']:.2f}", f"{found['gib']:.2f}",
                f"{found['log_loss']:.4f}", f"{found['truth']:.4f}",
            ]
        )  # fmt: skip
    head = [
        "answers", "rows x columns", "threads", "seconds", "rounds", "GiB before", "GiB at most",
        "log-loss", "of the truth",
    ]  # fmt: skip
    return [
        "## Whole fits: time and memory",
        f"Made by `python -m benchmarks.whole_fits` on {datetime.datetime.now(datetime.UTC).date()}: "
        f"{machine()}. `LogisticCompleter({RANK}).fit(pairs, answers)` with its defaults, from arrays of "
        "ids in random order to a model, kernels compiled before; one fit each. Memory is the most that "
        "the process held before the fit (Python, the libraries and the arrays) and at its end. The "
        "log-loss is of answers that were left out (a twentieth, at most a million), beside that of the "
        "probabilities they were drawn with.",
        markdown(head, body),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Read the options, measure and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.whole_fits", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--answers", type=float, action="append", help="numbers of answers (1e6, 1e7, 1e8)"
    )
    parser.add_argument("--tables", choices=TABLES, action="append", help="which tables (both)")
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--rank", type=int, default=RANK, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help="keep what was measured here, and go on from it")
    parser.add_argument("--output", type=Path, help="the page to write the part into")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    answers = [int(n) for n in options.answers or ANSWERS]
    if options.fit:
        print(json.dumps(fit(options.fit, options.rank, options.threads)))
        return
    kept = Kept(options.results)
    run(options.tables or TABLES, answers, options.threads, kept, print)
    if options.output:
        write_part(options.output, WHOLE_FITS, part(kept))


if __name__ == "__main__":
    main()
