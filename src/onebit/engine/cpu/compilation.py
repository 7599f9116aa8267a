"""Saying what takes so long the first time.

The kernels are compiled on their first use in a new environment and kept on disk. While that lasts, one
line on standard error says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

MESSAGE = "onebit: compiling kernels for this machine, some ten seconds, once for each kind of model\n"


class _Herald(event.Listener):
    """Writes the message when the first of our functions is compiled."""

    def __init__(self) -> None:
        self.silent = False

    def on_start(self, occasion: Any) -> None:
        function = getattr(occasion.data.get("dispatcher"), "py_func", None)
        if not self.silent and getattr(function, "__module__", "").startswith("onebit."):
            self.silent = True
            sys.stderr.write(MESSAGE)
            sys.stderr.flush()

    def on_end(self, occasion: Any) -> None:
        """Nothing to do."""


_HERALD = _Herald()


@contextmanager
def announced() -> Iterator[None]:
    """Announce compilations within the block, once a process."""
    if _HERALD.silent:
        yield
        return
    with event.install_listener("numba:compile", _HERALD):
        yield
