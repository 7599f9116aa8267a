"""Long fits that survive being killed.

A fit is a sequence of descents (``minimise``), one or a few dozen. Where the workers of a fit have a
checkpoint, each descent leaves its state in a folder from time to time and its result at the end. The
same fit started again finds its finished descents there, takes up the unfinished one where it was left,
and comes to the same result, bit for bit.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from onebit.data import checked, files
from onebit.data.storage import Tensors, read, write

# Seconds between two writes of an unfinished descent.
INTERVAL = 20.0
_IDENTITY = "checkpoint.json"
_LOCK = "checkpoint.lock"
# Beside the identity of the fit: whether the folder was made for it.
_MADE = "folder made"
# What a fit writes into its folder, and what a killed one leaves of that.
_OWN = re.compile(
    r"descent-\d{4,}\.onebit|\.(descent-\d{4,}\.onebit|checkpoint\.json)\.[0-9a-f]{32}\.part"
)
ADVICE = "delete the folder to start anew"

State = tuple[Tensors, dict[str, Any]]
Restored = TypeVar("Restored")


class Descent:
    """One descent of a fit under a checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = time.monotonic()

    def found(self, restore: Callable[[Tensors, dict[str, Any]], Restored]) -> Restored | None:
        """Return what ``restore`` makes of that which an earlier run left of this descent."""
        if not self.path.is_file():
            return None
        state = read(self.path, "descent")
        with checked.taken_apart(self.path, ADVICE):
            return restore(*state)

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
    made: bool
    descents: int = 0

    def next(self) -> Descent:
        """Return the next descent of the fit."""
        self.descents += 1
        return Descent(self.folder / f"descent-{self.descents:04d}.onebit")

    def clear(self, unfinished: bool = False) -> None:
        """Remove what was written, or what a killed fit has left ``unfinished`` only."""
        for path in list(self.folder.iterdir()):
            if _OWN.fullmatch(path.name) and (not unfinished or path.suffix == ".part"):
                path.unlink(missing_ok=True)
        if not unfinished:
            (self.folder / _IDENTITY).unlink(missing_ok=True)


def is_kept(folder: Path) -> bool:
    """Say whether a fit that was stopped has left its checkpoint in a folder."""
    return (folder / _IDENTITY).is_file()


def own_name(path: Path) -> bool:
    """Say whether a fit that keeps its checkpoints beside ``path`` would write, or remove, this file."""
    return path.name in (_IDENTITY, _LOCK) or _OWN.fullmatch(path.name) is not None


@contextmanager
def checkpoint(folder: Path, identity: Mapping[str, Any]) -> Iterator[Checkpoint]:
    """Yield what keeps descents in ``folder``; all of it is removed once the block is done.

    The folder goes too if it was made for this fit and nobody put anything else there. ``identity`` says
    which fit it is: a folder that another one has left is refused, and so is one in which another process
    is at work.
    """
    try:
        folder.mkdir(parents=True)
        made = True
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is a file; name a folder for the checkpoint") from None
        made = False
    with files.lock(folder / _LOCK, str(folder)):
        made = _identified(folder, identity, made)
        own = Checkpoint(folder, made)
        own.clear(unfinished=True)
        yield own
        own.clear()
    if made:
        with suppress(OSError):  # somebody else's files, or another fit that begins
            folder.rmdir()


def _identified(folder: Path, identity: Mapping[str, Any], made: bool) -> bool:
    """Leave the identity of the fit in its folder, or compare it; say whether a fit made the folder."""
    path = folder / _IDENTITY
    wanted = json.loads(json.dumps(identity))
    if not path.is_file():
        with files.written_whole(path) as temporary:
            temporary.write_text(json.dumps(wanted | {_MADE: made}), encoding="utf-8")
        return made
    try:
        kept = checked.parsed(path.read_bytes())
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        raise checked.FileError(f"{path} is damaged; {ADVICE}")
    differing = [name for name in wanted if kept.get(name) != wanted[name]]
    if differing:
        raise ValueError(
            f"the checkpoint in {folder} is of another fit (other {', '.join(differing)}); "
            "delete it to start anew, or name another folder"
        )
    return kept.get(_MADE) is True
