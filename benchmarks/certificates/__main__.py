"""Issue certificates where the truth is known, and write the page.

    make bench-certificates              # everything, some twenty minutes on two cores
    python -m benchmarks.certificates --data FOLDER --output docs/coverage.md --keep build/certificates

*Coverage.* In thousands of small worlds whose errors are known every kind of certificate is compared with
the truth. Some are broken on purpose, and must be caught.

*Tightness.* Every rung of the ladder on the paper's worlds (200 x 200, rank 3) and on MovieLens 100k (if
FOLDER has it).

With ``--keep`` results are kept as they come: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from benchmarks.certificates import arriving, asked, drawn, held_out, page, real, tightness
from benchmarks.certificates.keeping import Task, done
from benchmarks.certificates.lines import COLUMNS, Line
from onebit.data.files import written_whole

# Of each family: one world, how many by default, and how many at a time. The hold-out kinds take some
# 30 ms a world and their broken ones differ little from the true ones, so that thousands are needed;
# a world of drawn predictors takes a second, and what is broken there fails nearly always.
FAMILIES: dict[str, tuple[Callable[[int], list[Line]], int, int]] = {
    "noisy": (held_out.noisy, 3000, 100),
    "rare": (held_out.rare, 1000, 100),
    "nearly-full": (held_out.nearly_full, 2000, 100),
    "repeated": (held_out.repeated, 2000, 100),
    "chosen": (held_out.chosen, 500, 100),
    "drawn": (drawn.drawn, 168, 8),
}
# What people ask about has a page of its own.
ASKED: dict[str, tuple[Callable[[int], list[Line]], int, int]] = {
    "asked": (asked.asked, 1200, 50),
    "selected": (asked.selected, 1000, 25),
    "arriving": (arriving.arriving, 1000, 25),
    "own": (arriving.own, 1000, 50),
}


def coverage_tasks(share: float, families: dict[str, Any] | None = None) -> dict[str, Task]:
    """Return the batches of worlds, by name; a ``share`` below one takes fewer of each family."""
    tasks: dict[str, Task] = {}
    for family, (_, count, batch) in (FAMILIES if families is None else families).items():
        total = max(1, round(share * count))
        for begin in range(0, total, batch):
            end = min(begin + batch, total)
            tasks[f"{family}-{begin}-{end}"] = partial(some_worlds, family, begin, end)
    return tasks


def some_worlds(family: str, begin: int, end: int) -> pd.DataFrame:
    """Issue the certificates of a family in some of its worlds."""
    one_world = (FAMILIES | ASKED)[family][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        lines = [
            {"family": family, "number": number} | line
            for number in range(begin, end)
            for line in one_world(number)
        ]
    return pd.DataFrame(lines, columns=["family", "number", *COLUMNS])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.certificates", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--share", type=float, default=1.0, help="share of the small worlds to try (1)")
    parser.add_argument("--seeds", type=int, default=5, help="large worlds of each kind (5)")
    parser.add_argument("--size", type=int, default=tightness.SIZE, help="their rows and columns (200)")
    parser.add_argument("--splits", type=int, default=5, help="splits of MovieLens 100k (5)")
    parser.add_argument("--data", type=Path, default=None, help="folder that holds ml-100k")
    parser.add_argument("--keep", type=Path, default=None, help="folder to keep, and find, results in")
    parser.add_argument("--output", type=Path, default=None, help="write the page here as well")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (all cores)")
    parser.add_argument("--asked", action="store_true", help="what people ask about, a page of its own")
    options = parser.parse_args(argv)
    there = options.data is not None and (options.data / "ml-100k").is_dir()
    folder = options.data if there else None
    if options.asked:
        lines = done(coverage_tasks(options.share, ASKED), options.keep, options.jobs)
        came = done(real.tasks(folder, options.seeds), options.keep, options.jobs)
        _write(page.asked_for(lines, came), options.output)
        return
    lines = done(coverage_tasks(options.share), options.keep, options.jobs)
    large = tightness.tasks(options.seeds, options.splits, folder, options.size)
    _write(page.whole(lines, done(large, options.keep, options.jobs), options.size), options.output)


def _write(text: str, output: Path | None) -> None:
    print(text)
    if output:
        with written_whole(output) as temporary:
            temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
