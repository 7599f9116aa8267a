"""Where a fit on a cluster leaves its states, so that nothing before them is needed any more.

Every few rounds each part writes its states to a file of its own, and a journal says which round they are
of. From then on states come from these files: a worker that is lost costs the rounds since then, and the
same fit started again, by another client, goes on from there.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onebit.data import checked
from onebit.data.sides import SIDES
from onebit.data.storage import read, write
from onebit.engine.checkpoint import ADVICE
from onebit.engine.cluster.blocks import Blocks
from onebit.engine.cluster.reading import Block
from onebit.engine.cluster.sides import Setting, State, States, taken_up
from onebit.engine.descent import Descent, Unfinished
from onebit.engine.known import Known
from onebit.model.hierarchy import Hierarchy
from onebit.model.hyper_state import hyper_state, restored_hyper
from onebit.model.posterior import restored_gaussians
from onebit.model.regression import restored_regression

# Rounds between two checkpoints.
EVERY = 10
_JOURNAL = "journal.onebit"


def write_part(state: State, path: str, number: int, n_iter: int) -> int:
    """Write the states of a part after a round to a file; return how many."""
    tensors = {
        "part.mean": state.mean,
        "part.covariance": state.covariance,
        "log_determinant": state.log_determinant,
    }
    write(path, "part", tensors, {"part": number, "round": n_iter})
    return len(state.mean)


def read_part(
    path: str, number: int, n_iter: int, setting: Setting, known: Any, block: Block | None
) -> State:
    """Read what ``write_part`` wrote, checked; of the divided side with the block that it belongs to."""
    if not Path(path).is_file():
        raise checked.FileError(f"{path} is missing; {ADVICE}")
    tensors, content = read(path, "part")
    with checked.taken_apart(Path(path), ADVICE):
        checked.whole(content, "part", number, number)
        checked.whole(content, "round", n_iter, n_iter)
        size = setting.hierarchy.shape[setting.side] if block is None else len(block.labels)
        alone = replace(setting.hierarchy, shape=(size, size), regressions=(None, None))
        gaussians = restored_gaussians(tensors, "part", alone, setting.side, True)
        determinant = checked.checked_array(tensors, "log_determinant", np.float64, (size,))
    return taken_up(setting, gaussians.mean, gaussians.covariance, determinant, known)


class Journal:
    """The checkpoints of one descent on a cluster.

    Parameters
    ----------
    blocks : Blocks
        The answers of the descent.
    name : str
        The folder of this descent, within that of the fit.
    """

    def __init__(self, blocks: Blocks, name: str) -> None:
        self.cluster, self.folder = blocks.cluster, blocks.cluster.folder / name
        self.near: list[list[Any]] = [[None], [None]]
        self.near[blocks.side] = blocks.futures

    def found(self, hierarchy: Hierarchy, known: Known) -> Unfinished | None:
        """Return what an earlier run has left of this descent."""
        path = self.folder / _JOURNAL
        if not path.is_file():
            return None
        tensors, content = read(path, "journal")
        with checked.taken_apart(path, ADVICE):
            n_iter = checked.whole(content, "n_iter", 0)
            step = checked.number(content, "step", least=1.0, most=1.0)  # a loss with a majoriser
            course = checked.checked_array(tensors, "path", np.float64, (2 * n_iter,))
            hyper = restored_hyper(tensors, content, hierarchy)
            slopes: list[Any] = [None, None]
            for side, name in enumerate(SIDES):
                if hierarchy.regressions[side] is not None:
                    told = checked.section(content, name)
                    width = hierarchy.n_free(side)
                    slopes[side] = restored_regression(tensors, f"known.{name}", told, width)[1]
            hyper = replace(hyper, slopes=(slopes[0], slopes[1]))
        states = States(self._states(n_iter, hierarchy, known), hyper, hierarchy)
        return Unfinished(states, course, step, n_iter)

    def _states(self, n_iter: int, hierarchy: Hierarchy, known: Known) -> tuple[list[Any], list[Any]]:
        """Return the futures of states that lie in files."""
        sides = []
        for side, near in enumerate(self.near):
            setting, values, count = Setting(hierarchy, side), known.values[side], len(near)
            told = [None] * count if values is None else values.futures
            paths = [str(self._path(n_iter, side, k)) for k in range(count)]
            given = paths, range(count), [n_iter] * count, [setting] * count, told, near
            sides.append(self.cluster.each(read_part, *given, what="read-checkpoint", retries=0))
        return sides[0], sides[1]

    def _path(self, n_iter: int, side: int, part: int) -> Path:
        return self.folder / f"round-{n_iter:05d}" / f"{SIDES[side]}-{part:05d}.onebit"

    def offer(self, descent: Descent) -> None:
        """Write the states if enough rounds have passed, and let go of everything before them."""
        if descent.n_iter % EVERY:
            return
        sides: tuple[Any, Any] = descent.sides
        hierarchy: Any = descent.hierarchy
        place = self._path(descent.n_iter, 0, 0).parent
        place.mkdir(parents=True, exist_ok=True)
        written = []
        for number, side in enumerate(sides):
            count = len(side.states)
            paths = [str(self._path(descent.n_iter, number, k)) for k in range(count)]
            given = side.states, paths, range(count), [descent.n_iter] * count
            written += self.cluster.each(write_part, *given, what="checkpoint")
        self.cluster.small(written, f"writing the checkpoint of round {descent.n_iter}")
        tensors, content = hyper_state(descent.hyper)
        for number, name in enumerate(SIDES):
            regression = hierarchy.regressions[number]
            slopes = descent.hyper.slopes[number]
            if regression is not None and slopes is not None:
                more, content[name] = regression.state(f"known.{name}", slopes)
                tensors |= more
        tensors["path"] = np.array(descent.path)
        content |= {"n_iter": descent.n_iter, "step": descent.step}
        write(self.folder / _JOURNAL, "journal", tensors, content)
        again = self._states(descent.n_iter, hierarchy, descent.known)
        for side, states in zip(sides, again, strict=True):
            side.take(states)
            side.sums()  # nothing waits for the files of earlier rounds from here on
        for old in self.folder.glob("round-*"):
            if old != place:
                shutil.rmtree(old, ignore_errors=True)
