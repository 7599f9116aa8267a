"""What is done about compilation, which takes long the first time.

The kernels are compiled on their first use in a new environment and kept on disk. While that lasts, one
line on standard error says so, and Python does not look for garbage: a compiler makes millions of small
objects that it still needs, and looking through them again and again only takes time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

MESSAGE = "onebit: compiling kernels for this machine, ten seconds or more, once for each kind of model\n"


class _Watch(event.Listener):
    """Hears when a function begins to be compiled, and when that ends; those it calls come in between."""

    def __init__(self) -> None:
        self.announced = False
        self._outermost: Any = None  # while the collector rests: what is being compiled

    def on_start(self, occasion: Any) -> None:
        dispatcher = occasion.data.get("dispatcher")
        if dispatcher is not None and self._outermost is None and gc.isenabled():
            gc.disable()
            self._outermost = dispatcher
        function = getattr(dispatcher, "py_func", None)
        if not self.announced and getattr(function, "__module__", "").startswith("onebit."):
            self.announced = True
            if sys.stderr is not None:  # a program without a terminal may have none
                sys.stderr.write(MESSAGE)
                sys.stderr.flush()

    def on_end(self, occasion: Any) -> None:
        if occasion.data.get("dispatcher") is self._outermost:
            self.collect_again()

    def collect_again(self) -> None:
        """Let the collector go on, if it rests for a compilation."""
        if self._outermost is not None:
            self._outermost = None
            gc.enable()


_WATCH = _Watch()


@contextmanager
def announced() -> Iterator[None]:
    """Announce compilations within the block, once a process, and let them run undisturbed."""
    try:
        with event.install_listener("numba:compile", _WATCH):
            yield
    finally:
        _WATCH.collect_again()  # whatever another thread is compiling
