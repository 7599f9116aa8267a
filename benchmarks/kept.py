"""Results that are kept in a file as they come, so that a run that was stopped goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Kept(dict[tuple[Any, ...], Any]):
    """What was measured, by its key; a line of a file for each, if there is a file.

    >>> kept = Kept(None)
    >>> kept.keep(("ml-100k", 0), 0.5)
    >>> kept["ml-100k", 0]
    0.5
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self.path = path
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                key, value = json.loads(line)
                self[tuple(key)] = value

    def keep(self, key: tuple[Any, ...], value: Any) -> None:
        """Keep one more result."""
        self[key] = value
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, value]) + "\n")
