"""Handing tasks to a Dask cluster, and waiting for them no longer than makes sense."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

from onebit.engine.cluster.aligned import aligned, on_aligned

# Tasks that fail are tried again so often: a file system may stumble.
RETRIES = 2
# Seconds between two looks at what is being waited for.
_LOOK = 2.0
# Seconds within which a scheduler answers, if it does.
_ANSWER = 20.0
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
    device : str
        Where workers work: "cpu", "cuda", or "auto", each on its GPU where it has one.
    """

    def __init__(
        self,
        client: Any,
        folder: Path,
        patience: float = PATIENCE,
        advice: str = "",
        device: str = "cpu",
    ) -> None:
        self.client = client
        self.folder = folder
        self.patience = patience
        self.advice = advice
        self.device = device
        self._name = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()
        self._open: list[Any] = []
        self.homes: list[str | None] = []

    def submit(self, task: Callable[..., Any], *arguments: Any, what: str, priority: int = 0) -> Any:
        """Hand a task over, under a name that Dask's dashboard shows; return its future."""
        key = f"{what}-{self._name}-{next(self._numbers):09d}"
        future = self.client.submit(
            on_aligned, task, *arguments, key=key, pure=False, retries=RETRIES, priority=priority
        )
        self._open.append(future)
        return future

    def each(
        self, task: Callable[..., Any], *lists: Sequence[Any], what: str, retries: int = RETRIES
    ) -> list[Any]:
        """Hand over one task for each of several arguments.

        Tasks of all blocks go where their blocks lie, as long as somebody is there: Dask would weigh
        moving a block against waiting for its worker, and move it.
        """
        count = len(lists[0])
        homes = self.homes if len(self.homes) == count else [None] * count
        futures: list[Any] = [None] * count
        for home in dict.fromkeys(homes):
            places = [k for k in range(count) if homes[k] == home]
            some = [[part[k] for k in places] for part in lists]
            keys = [f"{what}-{self._name}-{next(self._numbers):09d}" for _ in places]
            wish = {} if home is None else {"workers": [home], "allow_other_workers": True}
            run = partial(on_aligned, task)
            found = self.client.map(run, *some, key=keys, pure=False, retries=retries, **wish)
            self._open += found
            for k, future in zip(places, found, strict=True):
                futures[k] = future
        return futures

    def ask(self, call: Callable[[], Any], what: str) -> Any:
        """Ask the scheduler something, and give up where it does not answer."""
        found: list[Any] = []

        def run() -> None:
            try:
                found.append((call(), None))
            except BaseException as error:  # it belongs to whoever asked
                found.append((None, error))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(_ANSWER)
        if not found:
            raise self._lost(what, "the scheduler does not answer")
        value, error = found[0]
        if error is not None:
            raise error
        return value

    @property
    def workers(self) -> list[str]:
        """The addresses of the workers that are there."""
        info = self.ask(lambda: self.client.scheduler_info(n_workers=-1), "looking at the workers")
        return sorted(info.get("workers", ()))

    def settle(self, futures: Sequence[Any]) -> None:
        """Remember where each block lies."""
        who = self.ask(lambda: self.client.who_has(list(futures)), "looking for blocks")
        self.homes = [min(who.get(future.key) or [None]) for future in futures]

    def neighbours(self, task: Callable[..., Any], *lists: Sequence[Any], what: str) -> list[Any]:
        """Hand over tasks so that those that follow each other are likely to run on one worker.

        What they leave there is then added up there first. As many at once as there are workers: were
        they handed over one by one, idle workers would take them out of their order.
        """
        workers = max(len(self.workers), 1)
        futures: list[Any] = []
        for places in np.array_split(np.arange(len(lists[0])), workers):
            if len(places):
                some = [[part[k] for part in lists] for k in places]
                together = self.submit(all_of, task, some, what=f"{what}s")
                # Each in a group of its own: Dask spreads groups of many tasks, wherever their data lies.
                for place in range(len(places)):
                    key = (f"{what}-{self._name}-{next(self._numbers):09d}", 0)
                    futures.append(self.client.submit(getitem, together, place, key=key, pure=False))
        self._open += futures
        return futures

    def added(self, parts: Sequence[Any], task: Callable[..., Any], what: str) -> Any:
        """Return the future of what ``task`` adds parts up to, two at a time and in a fixed order."""
        return self.submit(task, *self.last_two(parts, task, what), what=what, priority=1)

    def last_two(self, parts: Sequence[Any], task: Callable[..., Any], what: str) -> list[Any]:
        """Add parts up until two are left, for whoever adds these where he needs them."""
        left = list(parts)
        while len(left) > 2:
            # At once when they can: what waits is taken by idle workers, and its parts with it.
            pairs = [left[k : k + 2] for k in range(0, len(left), 2)]
            left = [
                pair[0] if len(pair) == 1 else self.submit(task, *pair, what=what, priority=1)
                for pair in pairs
            ]
        return left

    def result(self, future: Any, what: str) -> Any:
        """Wait for one task, and return what it found."""
        return self.results([future], what)[0]

    def small(self, futures: Sequence[Any], what: str) -> list[Any]:
        """Wait for tasks that find little: it is brought together there, and fetched at once."""
        return list(self.result(self.submit(same, list(futures), what="collect", priority=1), what))

    def results(self, futures: Sequence[Any], what: str) -> list[Any]:
        """Wait for tasks as long as some task is done now and then; return what they found."""
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        from distributed import wait

        done, last = -1, time.monotonic()
        try:
            while True:
                try:
                    if len(futures) == 1:
                        found = [futures[0].result(timeout=_LOOK)]
                    else:
                        wait(list(futures), timeout=_LOOK)
                        found = [future.result(timeout=self.patience) for future in futures]
                    break
                # distributed gives back an unbound name where its waiting is cancelled as it ends.
                except (TimeoutError, UnboundLocalError):
                    now = sum(future.done() for future in self._open)
                    if now != done:
                        done, last = now, time.monotonic()
                    self._check(what, last)
            self._open = []
            return [aligned(part) for part in found]
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
        if self.client.status != "running":  # a scheduler forgets what a client wanted that it loses
            raise self._lost(what, f"the client is {self.client.status}")
        silence = time.monotonic() - last
        if silence < self.patience:
            return
        waited, workers = sum(not future.done() for future in self._open), len(self.workers)
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
            with suppress(ClusterError):
                self.ask(lambda: self.client.cancel(opened, force=False), "letting go")


def run_threads() -> int:
    """Return the threads that a task may use which runs alone."""
    from distributed import get_worker

    try:
        return int(get_worker().state.nthreads)
    except ValueError:  # not on a worker
        return 1


def all_of(task: Callable[..., Any], lists: Sequence[Sequence[Any]]) -> list[Any]:
    """Run a task for several arguments, on all threads of a worker."""
    with ThreadPoolExecutor(run_threads()) as pool:
        return list(pool.map(lambda arguments: task(*arguments), lists))


def same(value: Any) -> Any:
    """Return what was given: a task that places it on a worker."""
    return value
