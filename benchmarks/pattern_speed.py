"""What the pattern costs: whole fits with it and without it, side by side.

    python -m benchmarks.pattern_speed --answers 1e6 2e7 --device cpu

Matrices come from ``benchmarks.peers.matrices``, with the shape of MovieLens 20M at every size. A time is
the least of ``--repeats`` fits from observations that lie in memory; the decomposition of the pattern is
in it. ``rounds`` are what the descents took.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from benchmarks.peers.matrices import make
from onebit import LogisticCompleter

# Rows and columns of MovieLens 20M, and its answers.
ROWS, COLUMNS, ANSWERS = 138_493, 26_744, 20_000_263


def shape_of(n: int) -> tuple[int, int]:
    """Return rows and columns for so many answers, as dense as MovieLens 20M."""
    factor = (n / ANSWERS) ** 0.5
    return max(int(ROWS * factor), 20), max(int(COLUMNS * factor), 20)


def measured(n: int, device: str, repeats: int, threads: int) -> dict[str, float]:
    """Return seconds and rounds with the pattern and without it."""
    entries, _ = make(shape_of(n), n, seed=n)
    rows, columns, sign = (np.asarray(part) for part in entries[:3])
    pairs = pd.DataFrame({"row": rows, "column": columns})
    answers = (sign > 0).astype(np.int8)
    found: dict[str, float] = {"answers": float(n)}
    for name, pattern in (("without", None), ("with", "both")):
        seconds = []
        for _ in range(repeats):
            model = LogisticCompleter(pattern=pattern, random_state=0, n_jobs=threads, device=device)
            begin = time.perf_counter()
            model.fit(pairs, answers)
            seconds.append(time.perf_counter() - begin)
        found[f"{name}_s"], found[f"{name}_rounds"] = min(seconds), float(model.n_iter_)
    return found | {"ratio": found["with_s"] / found["without_s"]}


def main(argv: Sequence[str] | None = None) -> list[dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=float, nargs="+", default=[1e6])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = []
    for n in arguments.answers:
        found.append(measured(int(n), arguments.device, arguments.repeats, arguments.threads))
        print({name: round(value, 3) for name, value in found[-1].items()}, flush=True)
    return found


if __name__ == "__main__":
    main()
