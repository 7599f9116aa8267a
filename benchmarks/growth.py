"""How the time of a round grows with the answers, the rank and the threads.

    make bench-growth                                 # up to ten million answers
    python -m benchmarks.growth --largest 1e8 --output docs/growth.md

A round's time is taken between the callbacks of a fit with a fixed number of rounds, so set-up and the
end of a fit are not in it; each is the least of ``--repeats`` fits. Matrices come from
``benchmarks.peers.matrices``: power-law rows and columns, 80 answers a row and 160 a column on average,
so that the rows and columns grow with the answers.
"""

from __future__ import annotations

import argparse
import datetime
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.parts import kept_part
from benchmarks.peers.machine import machine
from benchmarks.peers.matrices import make
from onebit import LogisticCompleter, Observations
from onebit.data.files import written_whole
from onebit.study.page import markdown

PER_ROW, PER_COLUMN = 80, 160
RANK = 10
RANKS = (2, 4, 8, 16, 32, 64)
SIZES = tuple(int(10 ** (power / 2)) for power in range(10, 17))
FAMILIES = ("full", "diagonal")
# Enough for the ranks to show, few enough for 64 of them.
ANSWERS_FOR_RANKS = 200_000
ANSWERS_FOR_THREADS = (1_000_000, 10_000_000)
ROUNDS = 9
# The part of the page that ``benchmarks.whole_fits`` writes.
WHOLE_FITS = "whole fits"


@dataclass(frozen=True)
class Measured:
    """One setting and its time a round."""

    n: int
    rank: int
    family: str
    threads: int
    seconds: float

    @property
    def nanoseconds(self) -> float:
        """Nanoseconds for each answer and side."""
        return 1e9 * self.seconds / (2 * self.n)


def observations(n: int) -> Observations:
    """Return a made matrix with ``n`` answers."""
    entries, _ = make((n // PER_ROW, n // PER_COLUMN), n, seed=n)
    return Observations.from_pairs(np.column_stack(entries[:2]), entries.signs)


def stamp(stamps: list[float], _: object) -> None:
    """Note the time; the callback of every round."""
    stamps.append(time.perf_counter())


def measure(seen: Observations, rank: int, family: str, threads: int, repeats: int) -> Measured:
    """Return the time of a round, over all rounds but the first."""
    best = np.inf
    # The last rounds of a long fit are like the first ones, so large matrices need only a few.
    rounds = ROUNDS if seen.n * rank <= 3e7 else 5
    for _ in range(repeats):
        stamps: list[float] = []
        LogisticCompleter(
            rank, covariance=family, max_iter=rounds, tol=1e-12, n_jobs=threads, random_state=0
        ).fit(seen, callback=partial(stamp, stamps))
        best = min(best, (stamps[-1] - stamps[0]) / (len(stamps) - 1))
    return Measured(seen.n, rank, family, threads, best)


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Return the slope of log seconds against log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def run(largest: float, threads: list[int], repeats: int, say: Callable[[str], None]) -> list[Measured]:
    """Measure everything."""
    results: list[Measured] = []

    def add(seen: Observations, rank: int, family: str, count: int) -> None:
        key = (seen.n, rank, family, count)
        if key not in {(m.n, m.rank, m.family, m.threads) for m in results}:
            results.append(measure(seen, *key[1:], repeats))
            say(
                f"n {seen.n}, K {rank}, {family}, threads {count}: {results[-1].seconds:.4f} s a round, "
                f"{results[-1].nanoseconds:.0f} ns"
            )

    for family in FAMILIES:
        measure(observations(SIZES[0]), 3, family, max(threads), 1)  # load the kernels
    seen = observations(ANSWERS_FOR_RANKS)
    for family in FAMILIES:
        for rank in RANKS:
            add(seen, rank, family, 1)
    for n in SIZES:
        if n > 1.01 * largest:
            break
        seen = observations(n)
        for family in FAMILIES:
            for count in threads if n in ANSWERS_FOR_THREADS else threads[:1]:
                add(seen, RANK, family, count)
    return results


def page(results: list[Measured], figure: str) -> str:
    """Return the page."""
    parts = [
        "# How the time of a round grows",
        f"Made by `make bench-growth` on {datetime.datetime.now(datetime.UTC).date()}: {machine()}. "
        f"LogisticCompleter with effects; matrices with {PER_ROW} answers a row and {PER_COLUMN} a "
        "column on average; set-up and the end of a fit are left out. An exponent is the slope of a "
        "straight line through the logarithms.",
        f"![Seconds a round against answers and against the rank]({figure})",
    ]
    for title, key, chosen in (
        (f"Answers, K = {RANK}, one thread", "n", by_answers(results)),
        (f"Rank, {ANSWERS_FOR_RANKS:,} answers, one thread", "rank", by_rank(results)),
    ):
        body, said = [], []
        for family, found in chosen.items():
            body += [
                [family, f"{getattr(m, key):,}", f"{m.seconds:.4f}", f"{m.nanoseconds:.0f}"]
                for m in found
            ]
            if len(found) > 1:
                sizes, seconds = [getattr(m, key) for m in found], [m.seconds for m in found]
                half = len(found) // 2
                said.append(
                    f"{family} covariances: exponent {exponent(sizes, seconds):.2f} over all sizes, "
                    f"{exponent(sizes[half - 1 :], seconds[half - 1 :]):.2f} over the upper half"
                )
        head = [
            "covariance",
            "answers" if key == "n" else "K",
            "seconds a round",
            "ns per answer and side",
        ]
        parts += [f"## {title}", "\n".join(f"- {text}" for text in said), markdown(head, body)]
    body = []
    for m in results:
        one = next(
            (o for o in results if (o.n, o.rank, o.family, o.threads) == (m.n, m.rank, m.family, 1)), None
        )
        if m.threads > 1 and one:
            speed = f"{one.seconds / m.seconds:.2f}"
            body.append([m.family, f"{m.n:,}", str(m.threads), f"{m.seconds:.4f}", speed])
    if body:
        head = ["covariance", "answers", "threads", "seconds a round", "times as fast as one thread"]
        parts += [f"## Threads, K = {RANK}", markdown(head, body)]
    return "\n\n".join(parts) + "\n"


def by_answers(results: list[Measured]) -> dict[str, list[Measured]]:
    """Return the measurements against the number of answers, for each family."""
    return {
        family: [
            m for m in results if (m.family, m.rank, m.threads) == (family, RANK, 1) and m.n in SIZES
        ]
        for family in FAMILIES
    }


def by_rank(results: list[Measured]) -> dict[str, list[Measured]]:
    """Return the measurements against the rank, for each family."""
    return {
        family: [m for m in results if (m.family, m.n, m.threads) == (family, ANSWERS_FOR_RANKS, 1)]
        for family in FAMILIES
    }


def draw(results: list[Measured], path: Path) -> None:
    """Draw seconds a round against answers and against the rank; write SVG and PNG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "onebit", "font.size": 11}):
        figure = Figure(figsize=(10.0, 4.4), layout="constrained")
        panels = ((by_answers(results), "n", "answers"), (by_rank(results), "rank", "K"))
        for axis, (chosen, key, label) in zip(figure.subplots(1, 2), panels, strict=True):
            for (family, found), colour in zip(chosen.items(), ("#D55E00", "#0072B2"), strict=True):
                if len(found) < 2:
                    continue
                sizes, seconds = [getattr(m, key) for m in found], [m.seconds for m in found]
                name = f"{family}, exponent {exponent(sizes, seconds):.2f}"
                axis.loglog(sizes, seconds, marker="o", color=colour, label=name)
            axis.set_xlabel(label)
            if key == "rank":  # few numbers, each with its own mark
                ranks = sorted({m.rank for found in chosen.values() for m in found})
                axis.set_xticks(ranks, [str(rank) for rank in ranks])
                axis.minorticks_off()
            axis.set_ylabel("seconds a round, one thread")
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False)
        figure.savefig(path.with_suffix(".png"), format="png", dpi=130)
        figure.savefig(path.with_suffix(".svg"), format="svg", metadata={"Date": None})


def main(argv: Sequence[str] | None = None) -> None:
    """Read the options, measure and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--largest", type=float, default=1e7, help="most answers (1e7; 1e8 takes long)")
    parser.add_argument("--threads", type=int, action="append", help="numbers of threads (1 and 2)")
    parser.add_argument("--repeats", type=int, default=2, help="fits of which the quickest counts (2)")
    parser.add_argument("--output", type=Path, default=None, help="write the page here (with its figure)")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # all fits are cut short on purpose, and say so
    results = run(options.largest, options.threads or [1, 2], options.repeats, print)
    figure = (options.output or Path("growth.md")).with_suffix(".svg")
    text = page(results, figure.name)
    print("\n" + text)
    if options.output:
        text = "\n\n".join([text.rstrip("\n"), *kept_part(options.output, WHOLE_FITS)]) + "\n"
        draw(results, options.output)
        with written_whole(options.output) as temporary:
            temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
