"""Results that are kept as they come, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import joblib
import pandas as pd

import onebit
from onebit.data.files import written_whole

Task = Callable[[], pd.DataFrame]

# The modules that make results.
MAKERS = ("worlds", "held_out", "drawn", "tightness", "asked", "arriving", "real")


def folder_of_this_version(folder: Path) -> Path:
    """Return the place for results of the library and the worlds as they are now.

    What only writes the page does not count.
    """
    here = Path(__file__).parent
    makers = [here / f"{name}.py" for name in MAKERS]
    digest = hashlib.sha256()
    for path in (*sorted(Path(onebit.__file__).parent.rglob("*.py")), *makers):
        digest.update(path.read_bytes())
    return folder / digest.hexdigest()[:8]


def done(tasks: dict[str, Task], folder: Path | None, jobs: int) -> pd.DataFrame:
    """Do the tasks, and return all their results; those that the folder has are not done again."""
    if folder is not None:
        folder = folder_of_this_version(folder)
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        work = joblib.Parallel(n_jobs=jobs, verbose=1 if len(tasks) > 1 else 0)
        found = work(joblib.delayed(_kept)(task, folder, name) for name, task in tasks.items())
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _kept(task: Task, folder: Path | None, name: str) -> pd.DataFrame:
    if folder is None:
        return task()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.csv"
    if not path.is_file():
        with written_whole(path) as temporary:
            task().to_csv(temporary, index=False)
    # What was made just now is read back too: the page does not depend on when a run was stopped.
    return pd.read_csv(path)
