"""Running the tasks: in parallel, each result kept as it comes, going on where an earlier run stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import joblib

from onebit.data.datasets import load_movielens_100k
from onebit.engine.cpu.threads import thread_count
from onebit.study.plan import MOVIELENS, Plan, Task, as_json, task_from

Found = TypeVar("Found")

RESULTS = "study-results.jsonl"
FORMAT = "onebit-study"
# Raised whenever a method, a grid or a world changes: results of another version are not comparable.
VERSION = 1

Results = dict[Task, dict[str, Any]]
Told = Callable[[int, int, Task], None]


class StudyError(ValueError):
    """The study cannot start: a results file that it must not touch, or a folder it cannot use."""


def run(
    plan: Plan,
    folder: str | os.PathLike[str],
    *,
    movielens: str | None = None,
    n_jobs: int = -1,
    tell: Told | None = None,
) -> Results:
    """Compute what is missing of the plan in ``folder``; return the results of its tasks.

    Parameters
    ----------
    plan : Plan
        What to compute.
    folder : path
        Where ``study-results.jsonl`` grows, a line a task. Stop it at any time: the same call goes on.
    movielens : str, optional
        Folder of MovieLens 100k; without it, the cache folder or a download.
    n_jobs : int
        Processes; each works on one task with one thread.
    tell : callable, optional
        Called with (done, total, task) after every task.
    """
    header = {"format": FORMAT, "version": VERSION}
    path, results = begun(Path(folder), RESULTS, header, read_results)
    tasks = plan.tasks()
    missing = [task for task in tasks if task not in results]
    if any(task.data == MOVIELENS for task in missing):
        load_movielens_100k(movielens)  # once, here: the processes then find it
    done = len(tasks) - len(missing)
    failed: list[str] = []
    with (
        path.open("a", encoding="utf-8") as file,
        joblib.parallel_config("loky", inner_max_num_threads=1),
    ):
        work = joblib.Parallel(n_jobs=thread_count(n_jobs), return_as="generator_unordered")
        for task, result in work(joblib.delayed(_run)(task, movielens) for task in missing):
            if isinstance(result, str):
                failed.append(f"{task}: {result}")
                continue
            file.write(json.dumps({"task": as_json(task), "result": result}) + "\n")
            file.flush()
            results[task] = result
            done += 1
            if tell is not None:
                tell(done, len(tasks), task)
    if failed:
        raise StudyError(
            f"{len(failed)} of {len(tasks)} tasks failed; the others are kept. The first: {failed[0]}"
        )
    return {task: results[task] for task in tasks}


def _run(task: Task, movielens: str | None) -> tuple[Task, dict[str, Any] | str]:
    """Run a task; one that fails is no reason to lose the others, so its error is returned."""
    try:
        return task, task.run(movielens)
    except Exception as error:
        return task, f"{type(error).__name__}: {error}"


def read_results(path: Path) -> Results:
    """Read a results file; an unfinished last line, left by a kill, does not count."""
    if not path.exists() or path.stat().st_size == 0:
        return {}
    head, *lines = path.read_text(encoding="utf-8").split("\n")
    advice = "move it away or choose another folder; nothing was changed"
    try:
        header = json.loads(head)
        if header["format"] != FORMAT:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise StudyError(f"{path} does not hold results of a study; {advice}") from None
    if header["version"] != VERSION:
        raise StudyError(
            f"{path} was written by version {header['version']} of the study, this is version {VERSION}, "
            f"and their figures do not compare; {advice}"
        )
    results: Results = {}
    for number, line in enumerate(lines[:-1], start=2):
        try:
            entry = json.loads(line)
            results[task_from(entry["task"])] = entry["result"]
        except (ValueError, KeyError, TypeError):
            raise StudyError(f"line {number} of {path} is damaged: {line[:80]!r}; {advice}") from None
    return results


def begun(
    folder: Path, name: str, header: dict[str, Any], read: Callable[[Path], Found]
) -> tuple[Path, Found]:
    """Return the results file of a folder, with its first line at least, and what it holds."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        mend(path)
        results = read(path)
        if not path.exists() or path.stat().st_size == 0:
            path.write_text(json.dumps(header) + "\n", encoding="utf-8")
    except OSError as error:
        raise StudyError(f"cannot write to {folder}: {error}") from error
    return path, results


def mend(path: Path) -> None:
    """Cut an unfinished last line off, so that the next one starts on a line of its own."""
    if not path.exists():
        return
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        with path.open("r+b") as file:
            file.truncate(end)
