"""Compiling in processes of their own what takes long, while this one does what comes before it.

numba compiles one function at a time in a process. What other processes have compiled is kept on disk,
where this one finds it. They are started once in the life of a process, and nothing depends on them: what
they have not compiled is compiled here.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Lock
from typing import Any

from onebit.data.kernels import worth_compiling

# Beyond this something is wrong with another process.
LONGEST_WAIT = 120.0
LONGEST_WAIT_FOR_ONE = 10.0
# In the environment of the other processes, so that they start none themselves.
MARK = "ONEBIT_COMPILING_AHEAD"

_lock = Lock()


class Rehearsal:
    """Functions of a module that use kernels once, so that they are compiled: a process for each.

    Parameters
    ----------
    module : str
        The module.
    parts : tuple of str
        The names of its functions.
    *kernels : compiled functions
        The kernels that take long: without one that is still to be compiled, nothing is started.
    """

    running = 0  # processes of all rehearsals

    def __init__(self, module: str, parts: tuple[str, ...], *kernels: Any) -> None:
        self.module = module
        self.parts = parts
        self.kernels = kernels
        self._tried = False
        self._others: list[subprocess.Popen[bytes]] = []

    def begin(self, threads: int) -> bool:
        """Start compiling, and say whether that was done: once, and for a fit with threads for it."""
        with _lock:
            room = threads > 1 and (
                not Rehearsal.running or Rehearsal.running + len(self.parts) <= threads
            )
            if self._tried or not room or not _may_start() or not self._worth_compiling():
                return False
            self._tried = True
            folders = [part for part in sys.path if isinstance(part, str) and part]
            environment = os.environ | {MARK: "1"}
            atexit.register(self._end)
            for part in self.parts:
                try:
                    other = subprocess.Popen(
                        [sys.executable, "-P", "-c", _program(folders, self.module, part)],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                    )
                except (OSError, ValueError):
                    break
                self._others.append(other)
                Rehearsal.running += 1
            return bool(self._others)

    def wait(self) -> None:
        """Wait until its processes, if there are any, have compiled what they are there for."""
        with _lock:
            others = list(self._others)
        if not others:
            return
        last = time.monotonic() + LONGEST_WAIT
        try:
            for other in others:
                other.wait(max(last - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            pass
        self.give_up()

    def give_up(self) -> None:
        """End its processes: what they compile cannot be kept."""
        with _lock:
            self._end()
            atexit.unregister(self._end)

    def _end(self) -> None:
        """End its processes."""
        for other in self._others:
            other.kill()
            other.wait()
            Rehearsal.running -= 1
        self._others.clear()

    def _worth_compiling(self) -> bool:
        """Say whether there is something to compile that others can leave on disk."""
        try:
            return any(worth_compiling(kernel) for kernel in self.kernels)
        except AttributeError:  # numba's own business, which may change, or is switched off
            return False


def wait_for(kernel: Any) -> None:
    """Wait until the process that began a rehearsal has compiled a kernel, which this one would else."""
    last = time.monotonic() + LONGEST_WAIT_FOR_ONE
    while worth_compiling(kernel) and time.monotonic() < last:
        time.sleep(0.02)
    time.sleep(0.05)  # numba says that a kernel is there and then writes it


def _program(folders: list[str], module: str, part: str) -> str:
    """Return what another process does.

    Without a collector: a compiler makes many small objects, and the process ends when it is done.
    Modules are found where this one finds them; whatever else lies there is not run when Python starts.
    """
    begin = f"import gc, sys; gc.disable(); sys.path[:] = {folders!r}"
    return f"{begin}; from {module} import {part}; {part}()"


def _may_start() -> bool:
    """Say whether this is Python itself, and not a program that has it inside, or the other process."""
    frozen = getattr(sys, "frozen", False) or MARK in os.environ
    return not frozen and "python" in Path(os.fsdecode(sys.executable or "")).name.lower()


def _forked() -> None:
    """Let a forked process not wait for what another one does."""
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
