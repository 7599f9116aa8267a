"""The model that a server answers from, and how another one takes its place."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

from onebit.completers.loading import load
from onebit.serve import replies
from onebit.serve.requests import Refused

logger = logging.getLogger("onebit.serve")


class Held:
    """A model, and the file that it came from, if it came from one.

    A request takes the model once and keeps it to its end, so that a new one can take its place at any
    moment without a request noticing.
    """

    def __init__(self, model: Any, n_jobs: int | None = None) -> None:
        from_file = isinstance(model, (str, os.PathLike))
        self.path = Path(model) if from_file else None
        self.name = "model" if self.path is None else self.path.name
        self.n_jobs = n_jobs
        # Before it is read: a file that is replaced in between is noticed then.
        self.version = self._stamp()
        self.model = self._prepared(load(model) if from_file else model)

    def _prepared(self, model: Any) -> Any:
        if self.n_jobs is not None and hasattr(model, "n_jobs"):
            model.n_jobs = self.n_jobs
        prepare(model)
        return model

    def _stamp(self) -> str:
        """Return what changes when the file does."""
        if self.path is None:
            return "in memory"
        found = os.stat(self.path)
        return f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"

    @property
    def token(self) -> str:
        """A name for this version of the model, which says nothing of the file."""
        return hashlib.sha256(self.version.encode()).hexdigest()[:16]

    def changed(self) -> bool:
        """Say whether the file is another one than the model was read from."""
        try:
            return self._stamp() != self.version
        except OSError:
            return False

    def reload(self) -> bool:
        """Read the file again, and let its model take over; say whether it did.

        A file that cannot be read leaves the model that is there.
        """
        if self.path is None:
            return False
        try:
            version = self._stamp()
            model = self._prepared(load(self.path))
        except Exception as error:
            logger.warning("%s: %s; the model of before goes on", self.path.name, error)
            return False
        self.model, self.version = model, version
        return True


def prepare(model: Any) -> None:
    """Make what every request needs beforehand: compiled code, the population, the map."""
    model.predictions(*(index.encode([index.labels[0]]) for index in (model.rows_, model.columns_)))
    why = replies.can_ask(model)
    if why is not None:
        logger.warning("this model predicts and recommends, and does not ask: %s", why)
        return
    try:
        column = replies.plain(model.columns_.labels[0])
        replies.fold_in(model, [(column, 1)], None, 1, 0.9, 1)
        replies.search(model, 1, None, 1, 0)
    except Refused:
        logger.warning("this model cannot be asked about new rows")
