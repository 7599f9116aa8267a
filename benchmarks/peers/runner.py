"""Which processes to start, in which order, and the file in which every result is kept."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import onebit
from benchmarks.peers.contestants import CONTESTANTS, Contestant
from benchmarks.peers.matrices import MATRICES

SETTINGS = Path(__file__).with_name("settings.json")
RESULTS = "results.jsonl"
# Among settings whose validation log-losses differ by less than this, the quickest is taken.
INDIFFERENCE = 2e-3
# A ladder of iterations grows by one factor where the whole fit (on all splits) takes at most so many
# seconds, and by the other where it takes longer.
FINE_STEPS, COARSE_STEPS, QUICK = 1.5, 2.0, 5.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
REFERENCE = "libmf"
# onebit's course is followed until it passes this contestant too.
SECOND_REFERENCE = "smurff"

Task = dict[str, Any]
Result = dict[str, Any]


def version(kind: type[Contestant]) -> str | None:
    """Return the installed version of a contestant's library; of onebit, with a digest of its sources."""
    try:
        found = metadata.version(kind.package)
    except metadata.PackageNotFoundError:
        return None
    if kind.package != "onebit":
        return found
    digest = hashlib.sha256()
    for path in sorted(Path(onebit.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{found} ({digest.hexdigest()[:8]})"


class Runner:
    """Starts one process a task, and none for a task whose result is in the file already."""

    def __init__(self, cache: Path, limit: float, tell: Callable[[str], None]) -> None:
        self.cache = cache
        self.limit = limit
        self.tell = tell
        self.versions = {name: version(kind) for name, kind in CONTESTANTS.items()}
        self.settings = json.loads(SETTINGS.read_text(encoding="utf-8")) if SETTINGS.is_file() else {}
        cache.mkdir(parents=True, exist_ok=True)
        self.path = cache / RESULTS
        self.known = {_key(task): result for task, result in read(self.path)}

    def task(self, matrix: str, contestant: str, threads: int, **more: Any) -> Task:
        """Return a task with the chosen settings."""
        chosen = self.settings.get(matrix, {}).get(contestant, {})
        task = {
            "matrix": matrix,
            "contestant": contestant,
            "threads": threads,
            "settings": chosen.get("settings", CONTESTANTS[contestant].candidates(matrix)[0]),
            "curve": chosen.get("curve"),
            "version": self.versions[contestant],
            "ladder": None,
            "repeat": 0,
        }
        return task | more

    def result(self, task: Task) -> Result | None:
        """Return a task's result if it is there."""
        return self.known.get(_key(task))

    def run(self, task: Task) -> Result:
        """Return a task's result, from the file or from a new process."""
        key = _key(task)
        if key not in self.known:
            self.known[key] = result = self._start(task)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"task": task, "result": result}) + "\n")
            self.tell(_line(task, result))
        return self.known[key]

    def _start(self, task: Task) -> Result:
        files = [self.cache / name for name in ("task.json", "result.json")]
        files[0].write_text(json.dumps(task), encoding="utf-8")
        files[1].unlink(missing_ok=True)
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(task["threads"]))
        command = [sys.executable, "-m", "benchmarks.peers.worker", *map(str, files)]
        with (self.cache / "output.log").open("wb") as log:
            try:
                status = subprocess.run(
                    command, env=environment, stdout=log, stderr=log, timeout=self.limit, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                return {"error": f"stopped after {self.limit:g} s"}
        if status or not files[1].is_file():
            return {"error": f"the process ended with status {status}"}
        return json.loads(files[1].read_text(encoding="utf-8"))

    def repeated(self, task: Task, repeats: int, patience: float) -> Iterable[Task]:
        """Yield the task's repeats, as many as fit ``patience`` seconds of fitting, at least one."""
        spent = 0.0
        for repeat in range(repeats):
            yield task | {"repeat": repeat}
            result = self.result(task | {"repeat": repeat})
            last = sum(sum(point["seconds"]) for point in (result or {}).get("points", []))
            spent += last
            if not last or spent + last > patience:
                return

    def finals(
        self, matrix: str, contestants: list[str], threads: list[int], repeats: int, patience: float
    ) -> None:
        """Run every contestant to its end: all in turn, then all again.

        One without settings for this matrix is tuned first.
        """
        new = [name for name in contestants if name not in self.settings.get(matrix, {})]
        self.tune(matrix, new, threads[-1])
        turns = [
            iter(self.repeated(self.task(matrix, name, count), repeats, patience))
            for count in threads
            for name in contestants
            if self.takes_part(matrix, name, count)
        ]
        self._alternate(turns)

    def traces(
        self, matrix: str, contestants: list[str], threads: list[int], repeats: int, patience: float
    ) -> None:
        """Run with few iterations, then more, until the reference's accuracy is reached.

        Contestants that do not reach it at their end are left out.
        """
        turns = []
        for count in threads:
            target = self.accuracy(matrix, REFERENCE, count)
            for name in contestants:
                reached = self.accuracy(matrix, name, count)
                if target is None or reached is None or reached < target:
                    continue
                until = target
                second = self.accuracy(matrix, SECOND_REFERENCE, count)
                if name == "onebit" and second is not None:
                    until = max(target, second)
                task = self.task(
                    matrix, name, count, ladder=self.ladder(matrix, name, count), until=round(until, 6)
                )
                turns.append(iter(self.repeated(task, repeats, patience)))
        self._alternate(turns)

    def _alternate(self, turns: list[Any]) -> None:
        while turns:
            for turn in list(turns):
                task = next(turn, None)
                if task is None:
                    turns.remove(turn)
                else:
                    self.run(task)

    def takes_part(self, matrix: str, name: str, threads: int) -> bool:
        """Return whether a contestant is there, takes the matrix and can use the threads."""
        kind = CONTESTANTS[name]
        if self.versions[name] is None or matrix not in kind.matrices:
            return False
        return kind.threaded or threads == 1

    def tasks(self) -> list[Task]:
        """Return every task that has a result."""
        return [json.loads(key) for key in self.known]

    def results(self, matrix: str, name: str, threads: int, trace: bool = False) -> list[Result]:
        """Return all results of a contestant with its present settings and version: final or traced."""
        task = self.task(matrix, name, threads)
        same = ("matrix", "contestant", "threads", "settings", "curve", "version")
        return [
            result
            for key, result in self.known.items()
            for other in [json.loads(key)]
            if not other.get("validation")
            and (other["ladder"] is not None) == trace
            and all(other[name] == task[name] for name in same)
        ]

    def accuracy(self, matrix: str, name: str, threads: int) -> float | None:
        """Return the mean accuracy at the end."""
        found = [
            np.mean(result["points"][-1]["accuracy"])
            for result in self.results(matrix, name, threads)
            if "points" in result
        ]
        return float(np.mean(found)) if found else None

    def ladder(self, matrix: str, name: str, threads: int) -> list[int]:
        """Return growing numbers of iterations below the final one."""
        final = next(result for result in self.results(matrix, name, threads) if "points" in result)[
            "points"
        ][-1]
        factor = FINE_STEPS if sum(final["seconds"]) <= QUICK else COARSE_STEPS
        steps, last = [1], int(np.median(final["iterations"]))
        while steps[-1] * factor < last:
            steps.append(int(np.ceil(steps[-1] * factor)))
        return [step for step in steps if step < last] or [1]

    def tune(self, matrix: str, contestants: list[str], threads: int) -> None:
        """Choose settings on the validation split, and keep them with the curve fitted there."""
        for name in contestants:
            candidates = CONTESTANTS[name].candidates(matrix)
            if not self.takes_part(matrix, name, 1) or candidates == [{}]:
                continue
            tried = []
            for settings in candidates:
                task = self.task(matrix, name, threads, settings=settings, curve=None, validation=True)
                result = self.run(task)
                if "points" in result:
                    tried.append(
                        (settings, {key: value[0] for key, value in result["points"][0].items()})
                    )
            if not tried:
                continue
            settings, fit = chosen(tried)
            entry = {
                "settings": settings,
                "curve": [round(number, 6) for number in fit["curve"]],
                "validation": {
                    key: round(fit[key], 4)
                    for key in ("accuracy", "log_loss", "scaled_log_loss")
                    if key in fit
                },
                "candidates": len(tried),
            }
            self.settings.setdefault(matrix, {})[name] = entry
            SETTINGS.write_text(json.dumps(self.settings, indent=1) + "\n", encoding="utf-8")
            self.tell(f"{matrix} {name}: {settings}")


def chosen(tried: list[tuple[dict, dict]]) -> tuple[dict, dict]:
    """Return the quickest of the best settings, by log-loss.

    Where some candidates have no probabilities, all are judged after scaling.
    """
    measure = "log_loss" if all("log_loss" in fit for _, fit in tried) else "scaled_log_loss"
    best = min(fit[measure] for _, fit in tried)
    good = [(settings, fit) for settings, fit in tried if fit[measure] <= best + INDIFFERENCE]
    return min(good, key=lambda pair: pair[1]["seconds"])


def read(path: Path) -> list[tuple[Task, Result]]:
    """Read a results file; a last line without an end, left by a kill, is cut off."""
    if not path.is_file():
        return []
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        path.write_bytes(content[:end])
    lines = [json.loads(line) for line in content[:end].decode("utf-8").splitlines()]
    return [(line["task"], line["result"]) for line in lines]


def _key(task: Task) -> str:
    return json.dumps(task, sort_keys=True)


def _line(task: Task, result: Result) -> str:
    head = f"{task['matrix']} {task['contestant']}, threads {task['threads']}"
    if "error" in result:
        return f"{head}: {result['error']}"
    parts = []
    for point in result["points"]:
        loss = point.get("log_loss", point.get("scaled_log_loss", [np.nan]))
        parts.append(
            f"{point['iterations'][0]} iterations {min(point['seconds']):.2f} s, "
            f"accuracy {np.mean(point['accuracy']):.4f}, log-loss {np.mean(loss):.4f}"
        )
    kind = "validation" if task.get("validation") else f"repeat {task['repeat']}"
    return f"{head}, {kind}: {'; '.join(parts)}; {result['peak_mb']:.0f} MB"


def stored(matrices: Iterable[str], data: Path, cache: Path) -> list[str]:
    """Write the splits of the matrices; return those that are there."""
    found = []
    for name in matrices:
        try:
            MATRICES[name].store(data, cache)
        except OSError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        found.append(name)
    return found
