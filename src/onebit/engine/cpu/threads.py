"""Running a kernel over ranges of rows on several threads.

The kernels release the interpreter lock, so plain threads suffice: no compiled threading layer that
could clash with forks, with BLAS or with other libraries, and no effect on the results. While they work,
the linear algebra library keeps to one thread: its own would wait for each other on cores that are taken,
on matrices that are too small to gain from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from threading import Lock, get_ident

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

# Below this much work, in answers, a range is not worth handing to a thread: about half a millisecond.
SMALLEST_TASK = 10_000
# From this much work on, whoever has the turn lets others have it meanwhile.
_WORTH_LEAVING = 1_000


def thread_count(n_jobs: int | None) -> int:
    """Turn scikit-learn's ``n_jobs`` into a number of threads (-1: all cores that we may use)."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise ValueError(f"n_jobs must be a non-zero integer or None, got {n_jobs!r}")
    cores = joblib.cpu_count()
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))


class Turn:
    """What one of several threads has at a time, but while it waits for a long kernel.

    Each of them works with small arrays in between. They would hand the interpreter over to each other
    in every small call of a library that lets go of it, which takes longer than the call.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: int | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = get_ident()

    def __exit__(self, *error: object) -> None:
        self._owner = None
        self._lock.release()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Let others have it within the block, if this thread has it."""
        if self._owner != get_ident():
            yield
            return
        try:
            self.__exit__()
            yield
        finally:
            self.__enter__()


class Threads:
    """A pool that runs ``task(begin, end)`` over consecutive ranges.

    While these are long, whoever has the ``turn`` leaves it to others.
    """

    def __init__(self, count: int, pool: ThreadPoolExecutor | None, turn: Turn | None = None) -> None:
        self.count = count
        self._pool = pool
        self._turn = turn

    def in_turns(self, turn: Turn) -> Threads:
        """Return the same threads for one of several that take turns."""
        return Threads(self.count, self._pool, turn)

    def ranges(self, task: Callable[[int, int], object], work: NDArray[np.int64]) -> None:
        """Run ``task`` over all rows; ``work[i]`` is the work of the rows before ``i``."""
        if self._turn is None or work[-1] < _WORTH_LEAVING:
            self._ranges(task, work)
            return
        with self._turn.left():
            self._ranges(task, work)

    def _ranges(self, task: Callable[[int, int], object], work: NDArray[np.int64]) -> None:
        rows, total = len(work) - 1, int(work[-1])
        pieces = min(4 * self.count, total // SMALLEST_TASK + 1) if self._pool else 1
        if pieces <= 1:
            task(0, rows)
            return
        assert self._pool is not None
        cuts = np.searchsorted(work, np.linspace(0, total, pieces + 1))
        cuts[0], cuts[-1] = 0, rows
        pending = [
            self._pool.submit(task, int(begin), int(end)) for begin, end in pairwise(cuts) if end > begin
        ]
        for future in pending:
            future.result()

    def each(self, task: Callable[[int], object], count: int) -> None:
        """Run ``task`` for every number below ``count``, each on a thread of its own."""
        if self._pool is None:
            for number in range(count):
                task(number)
            return
        for future in [self._pool.submit(task, number) for number in range(count)]:
            future.result()

    def even(self, task: Callable[[int, int], object], size: int, work_each: int = 1) -> None:
        """Run ``task`` over ``size`` items of equal work."""
        self.ranges(task, np.arange(size + 1, dtype=np.int64) * work_each)


@cache
def _libraries() -> ThreadpoolController:
    """Return the libraries with threads of their own that are loaded: numpy's and scipy's among them."""
    return ThreadpoolController()


class _OneThread:
    """Keeps linear algebra to one thread from the first of several blocks to the end of the last."""

    def __init__(self) -> None:
        self._lock, self._blocks = Lock(), 0

    @contextmanager
    def block(self) -> Iterator[None]:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                self._limited = _libraries().limit(limits=1, user_api="blas")
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if self._blocks == 0:
                    self._limited.restore_original_limits()


# A limit holds for the whole process, and fits may overlap.
one_blas_thread = _OneThread().block


@contextmanager
def threads(n_jobs: int | None) -> Iterator[Threads]:
    """Open a pool of ``n_jobs`` threads for the length of a ``with`` block."""
    count = thread_count(n_jobs)
    with one_blas_thread():
        if count == 1:
            yield Threads(1, None)
            return
        with ThreadPoolExecutor(count, thread_name_prefix="onebit") as pool:
            yield Threads(count, pool)
