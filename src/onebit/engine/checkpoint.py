"""Long fits that survive being killed.

A fit is a sequence of descents (``minimise``), one or a few dozen. While a checkpoint is in force, each
leaves its state in a folder from time to time and its result at the end. The same fit started again finds
its finished descents there, takes up the unfinished one where it was left, and comes to the same result,
bit for bit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onebit.storage import Tensors, read, write, written_whole

# Seconds between two writes of an unfinished descent.
INTERVAL = 20.0
_IDENTITY = "checkpoint.json"

State = tuple[Tensors, dict[str, Any]]


class Descent:
    """One descent of a fit under a checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = time.monotonic()

    def found(self) -> State | None:
        """Return what an earlier run left of this descent."""
        return read(self.path, "descent") if self.path.is_file() else None

    def offer(self, state: Callable[[], State]) -> None:
        """Write the state if the last time is long enough ago."""
        if time.monotonic() - self.last >= INTERVAL:
            self.keep(state())

    def keep(self, state: State) -> None:
        """Write a state."""
        write(self.path, "descent", *state)
        self.last = time.monotonic()


@dataclass
class Checkpoint:
    """The folder of one fit, and how many of its descents have begun."""

    folder: Path
    descents: int = 0

    def next(self) -> Descent:
        """Return the next descent of the fit."""
        self.descents += 1
        return Descent(self.folder / f"descent-{self.descents:04d}.onebit")

    def clear(self) -> None:
        """Remove what was written; the folder too, unless somebody put something else there."""
        for path in [*self.folder.glob("descent-*.onebit"), self.folder / _IDENTITY]:
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


_PRESENT: ContextVar[Checkpoint | None] = ContextVar("checkpoint", default=None)


def present() -> Checkpoint | None:
    """Return the checkpoint in force, if any."""
    return _PRESENT.get()


@contextmanager
def checkpoint(folder: Path, identity: Mapping[str, Any]) -> Iterator[None]:
    """Keep the descents within the block in ``folder``; all of it is removed once the block is done.

    ``identity`` says which fit it is: a folder that another one has left is refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = json.loads(json.dumps(identity))
    if (folder / _IDENTITY).is_file():
        try:
            kept = json.loads((folder / _IDENTITY).read_text(encoding="utf-8"))
        except ValueError:
            raise ValueError(
                f"{folder / _IDENTITY} is damaged; delete the folder to start anew"
            ) from None
        differing = [name for name in wanted if kept.get(name) != wanted[name]]
        if differing:
            raise ValueError(
                f"the checkpoint in {folder} is of another fit (other {', '.join(differing)}); "
                "delete it to start anew, or name another folder"
            )
    else:
        with written_whole(folder / _IDENTITY) as temporary:
            temporary.write_text(json.dumps(wanted), encoding="utf-8")
    own = Checkpoint(folder)
    token = _PRESENT.set(own)
    try:
        yield
    finally:
        _PRESENT.reset(token)
    own.clear()
