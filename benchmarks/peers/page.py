"""The page: versions, a table a matrix, where a peer wins, and the figure."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np

from benchmarks.gpu.page import PART
from benchmarks.parts import kept_part
from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.figure import draw
from benchmarks.peers.machine import machine
from benchmarks.peers.matrices import MATRICES, Matrix
from benchmarks.peers.runner import Runner
from benchmarks.peers.summary import Course, Line, lines, ratios, targets, winners
from benchmarks.peers.worker import log_loss
from onebit.data.files import written_whole
from onebit.study.page import markdown

INTRODUCTION = """Every contestant runs in a process of its own, one process at a time, all in turn and
then all again (a changed onebit alone again, after the others); a time is the least of its repeats
(two or three; one for fits beyond some seconds) and, on
MovieLens, of its splits. Timed is the fit alone: not imports, not compilation, not the making of a
library's own input (onebit's fit starts from pairs of ids, and its time includes encoding and sorting
them). Memory is the largest resident size of the process up to the end of the fit, with the
interpreter, the libraries and the answers; in brackets what was resident just before the fit. Accuracy
and log-loss are on the same test answers for all, means over the splits of MovieLens.

onebit runs as it comes, at rank 10. Every peer was tuned a little on a validation split inside the
first training set: of a small grid, the quickest of the settings whose log-loss is within 0.002 of the
best. The chosen ones are in `benchmarks/peers/settings.json`. A log-loss with a star is of a library
without probabilities: its scores went through a logistic curve fitted to the validation answers.

The time to LIBMF's accuracy is that of the shortest fit that reaches the accuracy with which LIBMF ends
(at the same number of threads): every contestant that gets there is run with 1, 2, 3, 5, 8, ...
iterations (1, 2, 4, 8, ... where fits are long), afresh each time."""


def write_page(runner: Runner, output: Path) -> None:
    """Write the page to ``output`` and the figure beside it."""
    versions = [
        f"{kind.package} {runner.versions[name] or 'not installed'}"
        for name, kind in CONTESTANTS.items()
        if name != "effects"
    ]
    found = {name: lines(runner, name) for name in MATRICES}
    found = {name: here for name, here in found.items() if any(line.courses for line in here)}
    parts = [
        "# onebit and its peers",
        f"Made by `make bench-peers` on {datetime.datetime.now(datetime.UTC).date()}: {machine()}. "
        f"Versions: {', '.join(versions)}.",
        INTRODUCTION,
        f"![Accuracy against time]({output.stem}.svg)",
    ]
    panels = {}
    for name, here in found.items():
        matrix = MATRICES[name]
        best = best_possible(matrix, runner.cache)
        panels[matrix.title] = (here, best[0] if best else None)
        parts += section(matrix, here, best)
    counts = {count for here in found.values() for line in here for count in line.courses}
    if panels:
        draw(panels, min(counts), output)
    parts += kept_part(output, PART)
    with written_whole(output) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def best_possible(matrix: Matrix, cache: Path) -> tuple[float, float] | None:
    """Return accuracy and log-loss of the true probabilities on the test, where known."""
    split = matrix.split(cache, 0)
    if split.truth is None:
        return None
    accuracy = float(((split.truth > 0.5) == (split.test.signs > 0)).mean())
    return accuracy, log_loss(split.truth.astype(float), split.test.signs)


def section(matrix: Matrix, found: list[Line], best: tuple[float, float] | None) -> list[str]:
    """Return the parts of the page on one matrix."""
    rows, columns = matrix.shape
    accuracy = max(line.first.accuracy for line in found if line.first)
    error = np.sqrt(accuracy * (1 - accuracy) / (matrix.n_test * matrix.splits))
    about = (
        f"{rows:,} x {columns:,}, {matrix.n:,} answers, {matrix.n_test:,} of them for the test"
        f"{f', {matrix.splits} splits' if matrix.splits > 1 else ''}. "
    )
    if best is None:
        about += "A rating above 3.5 is a like. "
    else:
        about += (
            "Generated under a seed: power-law rows and columns, distinct entries, rank 10 plus row and "
            f"column effects, logistic answers. The true probabilities reach accuracy {best[0]:.4f} and "
            f"log-loss {best[1]:.4f}. "
        )
    about += f"The standard error of an accuracy is about {error:.4f}."
    counts = sorted({count for line in found for count in line.courses})
    head = ["contestant", "accuracy", "log-loss", *(f"seconds, {k} thr." for k in counts)]
    head += [*(f"to LIBMF's accuracy, {k} thr." for k in counts), "peak MB (before)", "iterations"]
    goal = targets(found)
    body = [row(line, counts, goal) for line in found if line.courses]
    parts = [f"## {matrix.title}", about, markdown(head, body)]
    absent = [f"- {line.title}: {line.absence}" for line in found if line.absence]
    if absent:
        parts.append("\n".join(absent))
    ahead, compared = winners(found), ratios(found)
    if compared:
        parts.append("\n".join(f"- {text}" for text in compared))
    if ahead:
        parts.append("Where a peer is ahead of onebit:\n\n" + "\n".join(f"- {text}" for text in ahead))
    elif any(line.name == "onebit" and line.courses for line in found) and len(body) > 2:
        parts.append("No peer is ahead of onebit in any of these.")
    return parts


def row(line: Line, counts: list[int], goal: dict[int, float]) -> list[str]:
    """Return a contestant's row of the table."""
    first = line.first
    assert first is not None

    def at(count: int) -> str:
        return f"{line.courses[count].seconds:.2f}" if count in line.courses else "-"

    def to_goal(count: int) -> str:
        if count not in line.courses or count not in goal:
            return "-"
        seconds = line.courses[count].time_to(goal[count])
        return "never" if seconds is None else f"{seconds:.2f}"

    return [
        line.title,
        f"{first.accuracy:.4f}",
        shown_loss(first),
        *(at(count) for count in counts),
        *(to_goal(count) for count in counts),
        f"{first.peak_mb:.0f} ({first.before_mb:.0f})",
        str(first.iterations),
    ]


def shown_loss(here: Course) -> str:
    """Return the log-loss; with a star, that of scores through a fitted curve."""
    if here.log_loss is not None:
        return f"{here.log_loss:.4f}"
    return "-" if here.scaled_log_loss is None else f"{here.scaled_log_loss:.4f}*"
