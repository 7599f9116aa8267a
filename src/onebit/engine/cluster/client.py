"""Handing tasks to a Dask cluster, and waiting for them no longer than makes sense."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Tasks that fail are tried again so often: a file system may stumble.
RETRIES = 2
# Parts that are added up at once, of many.
FAN_IN = 4
# Seconds between two looks at what is being waited for.
_LOOK = 1.0
# Seconds without any task done after which waiting makes no sense.
PATIENCE = 600.0


class ClusterError(RuntimeError):
    """A cluster did not do its work; the message says what is lost and what to do."""


class Cluster:
    """A Dask client for one fit.

    Parameters
    ----------
    client : distributed.Client
        Who knows the workers.
    folder : Path
        Where files lie that the client and all workers see.
    patience : float
        Seconds without any task done after which a fit gives up.
    advice : str
        What to do about a cluster that was lost.
    """

    def __init__(self, client: Any, folder: Path, patience: float = PATIENCE, advice: str = "") -> None:
        self.client = client
        self.folder = folder
        self.patience = patience
        self.advice = advice
        self._name = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()
        self._open: list[Any] = []

    def submit(self, task: Callable[..., Any], *arguments: Any, what: str) -> Any:
        """Hand a task over, under a name that Dask's dashboard shows; return its future."""
        key = f"{what}-{self._name}-{next(self._numbers)}"
        future = self.client.submit(task, *arguments, key=key, pure=False, retries=RETRIES)
        self._open.append(future)
        return future

    def each(self, task: Callable[..., Any], *lists: Sequence[Any], what: str) -> list[Any]:
        """Hand over one task for each of several arguments."""
        count = len(lists[0])
        keys = [f"{what}-{self._name}-{next(self._numbers)}" for _ in range(count)]
        futures = self.client.map(task, *lists, key=keys, pure=False, retries=RETRIES)
        self._open += futures
        return list(futures)

    def added(self, parts: Sequence[Any], task: Callable[..., Any], what: str) -> Any:
        """Return the future of what ``task`` adds parts up to, few at a time and in a fixed order."""
        parts = list(parts)
        while len(parts) > 1:
            parts = [
                parts[k] if k + 1 == len(parts) else self.submit(task, *parts[k : k + FAN_IN], what=what)
                for k in range(0, len(parts), FAN_IN)
            ]
        return parts[0]

    def result(self, future: Any, what: str) -> Any:
        """Wait for one task, and return what it found."""
        return self.results([future], what)[0]

    def results(self, futures: Sequence[Any], what: str) -> list[Any]:
        """Wait for tasks as long as some task is done now and then; return what they found."""
        from distributed import wait
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        done, last = -1, time.monotonic()
        try:
            while True:
                try:
                    wait(list(futures), timeout=_LOOK)
                    break
                except TimeoutError:
                    now = sum(future.done() for future in self._open)
                    if now != done:
                        done, last = now, time.monotonic()
                    self._check(what, last)
            found = [future.result(timeout=self.patience) for future in futures]
            self._open = []
            return found
        except KilledWorker as error:
            raise ClusterError(
                f"{what}: several workers died one after the other on the same task, most likely for "
                f"want of memory; give workers more memory or fewer threads ({error})"
            ) from None
        except (FutureCancelledError, CommClosedError, TimeoutError) as error:
            raise self._lost(what, str(error) or type(error).__name__) from None
        finally:
            if self._open:
                self._let_go()

    def _check(self, what: str, last: float) -> None:
        """Give up where nobody works, or nothing has moved for too long."""
        if self.client.status not in ("running", "connecting"):
            raise self._lost(what, f"the client is {self.client.status}")
        silence = time.monotonic() - last
        if silence < self.patience:
            return
        workers = len(self.client.scheduler_info(n_workers=-1)["workers"])
        waited = sum(not future.done() for future in self._open)
        raise ClusterError(
            f"{what}: no task was done for {silence:.0f} s ({waited} wait, {workers} workers are there); "
            f"start workers, or raise patience. {self.advice}".strip()
        )

    def _lost(self, what: str, why: str) -> ClusterError:
        return ClusterError(f"{what}: the cluster was lost ({why}). {self.advice}".strip())

    def _let_go(self) -> None:
        """Ask for nothing any more of what was handed over."""
        opened, self._open = self._open, []
        if self.client.status == "running":
            self.client.cancel(opened, force=False)


def run_threads() -> int:
    """Return the threads that a task may use which runs alone."""
    from distributed import get_worker

    try:
        return int(get_worker().state.nthreads)
    except ValueError:  # not on a worker
        return 1


def same(value: Any) -> Any:
    """Return what was given: a task that places it on a worker."""
    return value
