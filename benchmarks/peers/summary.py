"""What the raw results come to: one line a contestant, and who wins what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.runner import REFERENCE, Result, Runner


@dataclass(frozen=True)
class Course:
    """A contestant on one matrix at one number of threads.

    ``points`` holds (seconds, accuracy) for growing numbers of iterations; the last is the whole fit.
    """

    accuracy: float
    seconds: float
    iterations: int
    peak_mb: float
    before_mb: float
    log_loss: float | None
    scaled_log_loss: float | None
    points: list[tuple[float, float]] = field(default_factory=list)

    def time_to(self, accuracy: float) -> float | None:
        """Return the least time of a fit that reaches an accuracy."""
        return min((seconds for seconds, reached in self.points if reached >= accuracy), default=None)


@dataclass(frozen=True)
class Line:
    """A contestant on one matrix: its course at each number of threads, or why there is none."""

    name: str
    courses: dict[int, Course]
    absence: str | None

    @property
    def title(self) -> str:
        """The contestant's name on the page."""
        return CONTESTANTS[self.name].title

    @property
    def first(self) -> Course | None:
        """The course at the fewest threads, which speaks for accuracy and memory."""
        return self.courses[min(self.courses)] if self.courses else None


def course(finals: list[Result], traces: list[Result]) -> Course | None:
    """Put a contestant's results together: means of what is predicted, the least of the times."""
    finals = [result for result in finals if "points" in result]
    if not finals:
        return None
    ends = [result["points"][-1] for result in finals]

    def mean(name: str) -> float | None:
        return float(np.mean([end[name] for end in ends])) if name in ends[0] else None

    accuracy = mean("accuracy")
    assert accuracy is not None
    seconds = min(min(end["seconds"]) for end in ends)
    steps: dict[int, list[dict[str, Any]]] = {}
    for result in traces:
        for point in result.get("points", []):
            steps.setdefault(point["iterations"][0], []).append(point)
    points = [
        (min(min(p["seconds"]) for p in same), float(np.mean([p["accuracy"] for p in same])))
        for _, same in sorted(steps.items())
    ]
    return Course(
        accuracy,
        seconds,
        int(np.median(ends[0]["iterations"])),
        max(result["peak_mb"] for result in finals),
        max(result["before_mb"] for result in finals),
        mean("log_loss"),
        mean("scaled_log_loss"),
        [*points, (seconds, accuracy)],
    )


def lines(runner: Runner, matrix: str) -> list[Line]:
    """Return every contestant's line on a matrix, those that were run first."""
    found = []
    for name, kind in CONTESTANTS.items():
        courses, absence = {}, None
        threads = {
            task["threads"]
            for task in runner.tasks()
            if task["matrix"] == matrix and task["contestant"] == name
        }
        for count in sorted(threads):
            finals = runner.results(matrix, name, count)
            here = course(finals, runner.results(matrix, name, count, trace=True))
            if here is not None:
                courses[count] = here
            elif finals:
                absence = f"failed: {finals[-1]['error']}"
        if runner.versions[name] is None:
            absence = f"left out: {kind.package} did not install here"
        elif matrix not in kind.matrices:
            absence = "left out: too slow for this size"
        elif not courses and absence is None:
            absence = "not run"
        found.append(Line(name, courses, None if courses else absence))
    return sorted(found, key=lambda line: not line.courses)


def targets(found: list[Line]) -> dict[int, float]:
    """Return the accuracy that the reference ends with, for each number of threads."""
    reference = next((line for line in found if line.name == REFERENCE), None)
    return {count: here.accuracy for count, here in reference.courses.items()} if reference else {}


def winners(found: list[Line]) -> list[str]:
    """Say in which measures a peer is ahead of onebit, and by how much."""
    own = next(line for line in found if line.name == "onebit")
    peers = [line for line in found if CONTESTANTS[line.name].package != "onebit" and line.courses]
    if own.first is None or not peers:
        return []
    said = []

    def compare(
        label: str, mine: float | None, theirs: dict[str, float | None], sign: int, form: str
    ) -> None:
        known = {title: value for title, value in theirs.items() if value is not None}
        if not known:
            return
        ahead = sorted(
            (title for title, value in known.items() if mine is None or sign * value > sign * mine),
            key=lambda title: -sign * known[title],
        )
        if ahead:
            values = ", ".join(f"{title} {known[title]:{form}}" for title in ahead)
            said.append(f"{label}: {values} (onebit {'never' if mine is None else format(mine, form)})")

    compare("accuracy", own.first.accuracy, {p.title: p.first.accuracy for p in peers}, 1, ".4f")
    compare("log-loss", own.first.log_loss, {p.title: p.first.log_loss for p in peers}, -1, ".4f")
    compare("peak memory, MB", own.first.peak_mb, {p.title: p.first.peak_mb for p in peers}, -1, ".0f")
    for count, mine in own.courses.items():
        here = {p.title: p.courses[count] for p in peers if count in p.courses}
        label = f"{count} thread{'s' if count > 1 else ''}"
        times = {title: theirs.seconds for title, theirs in here.items()}
        compare(f"seconds of the whole fit, {label}", mine.seconds, times, -1, ".2f")
        target = targets(found).get(count)
        if target is not None:
            times = {title: theirs.time_to(target) for title, theirs in here.items()}
            compare(f"seconds to LIBMF's accuracy, {label}", mine.time_to(target), times, -1, ".2f")
    return said


def ratios(found: list[Line]) -> list[str]:
    """Return how many times sooner onebit is there than LIBMF and SMURFF, and what threads bring."""
    by_name = {line.name: line for line in found}
    own = by_name["onebit"].courses
    said = []
    for name in (REFERENCE, "smurff"):
        for count, theirs in by_name[name].courses.items():
            mine = own[count].time_to(theirs.accuracy) if count in own else None
            if mine is None:
                continue
            title = by_name[name].title
            least = theirs.time_to(theirs.accuracy)
            threads = f"{count} thread{'s' if count > 1 else ''}"
            said.append(
                f"{title}'s final accuracy, {theirs.accuracy:.4f}, {threads}: onebit after {mine:.2f} s, "
                f"{title} after {least:.2f} s ({least / mine:.2g} times onebit's)"
            )
    if 1 in own and 2 in own:
        said.append(
            f"onebit on two threads: {own[1].seconds / own[2].seconds:.2f} times as fast as on one"
        )
    return said
