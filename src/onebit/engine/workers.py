"""Where the work of a fit is done: on the threads of a CPU, or on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onebit.data.observations import Observations
from onebit.engine.checkpoint import Checkpoint, Descent
from onebit.engine.cpu.presence import CpuPresence, CpuTall
from onebit.engine.cpu.rehearsal import DESCENT
from onebit.engine.cpu.side import Side
from onebit.engine.cpu.threads import Threads, one_blas_thread, thread_count, threads
from onebit.engine.crew import Callback, Prior, Workers
from onebit.engine.gpu import device as gpus
from onebit.engine.known import ENOUGH_ROWS, NOTHING, Known, known_of
from onebit.engine.part import part_of
from onebit.engine.sampling.plan import Plan
from onebit.engine.sampling.rehearsal import SAMPLERS
from onebit.engine.sampling.sampler import Sampled, sample
from onebit.engine.start import START_VARIANCE, Start, spectral_start
from onebit.model.gaussians import Gaussians, independent_gaussians
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import Loss
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]


class Machine(NamedTuple):
    """Where work is to be done, and where it leaves its state.

    Threads; "cpu", "cuda", "cuda:1" or "auto"; a checkpoint.
    """

    n_jobs: int | None = None
    device: str = "cpu"
    checkpoint: Checkpoint | None = None


class Cpu:
    """The cores of this machine."""

    def __init__(self, pool: Threads | None = None, checkpoint: Checkpoint | None = None) -> None:
        self.pool = pool or Threads(1, None)
        self.checkpoint = checkpoint

    @property
    def count(self) -> int:
        """The number of threads."""
        return self.pool.count

    @property
    def on_gpu(self) -> bool:
        """Whether the work is done on a GPU: it is not."""
        return False

    def journal(self) -> Descent | None:
        """Return where the next descent, or sampling run, leaves its state."""
        return None if self.checkpoint is None else self.checkpoint.next()

    def sort(self, observations: Observations) -> None:
        """Sort answers by row and by column, on all threads."""
        observations.sort(self.pool)

    def start(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        rng: np.random.Generator,
        jitter: float = 0.0,
        full: bool = True,
    ) -> Start:
        """Return the spectral start."""
        return spectral_start(observations, hierarchy, rng, jitter, self.pool)

    def sides(
        self,
        observations: Observations,
        begin: Start | tuple[Gaussians, Gaussians],
        hierarchy: Prior,
        full: bool,
        known: Known = NOTHING,
    ) -> tuple[Side, Side]:
        """Return the working states of rows and columns."""
        log_determinants: list[Array | None] = [None, None]
        if isinstance(begin, Start):
            means = begin.rows, begin.columns
            rows, columns = (
                independent_gaussians(mean, np.full_like(mean, START_VARIANCE), full) for mean in means
            )
            begin = rows, columns
            log_determinants = [
                np.full(len(mean), mean.shape[1] * np.log(START_VARIANCE)) for mean in means
            ]
        views = observations.by_row, observations.by_column
        first, second = (
            Side(begin[k], hierarchy, k, views[k], self.pool, known.values[k], log_determinants[k])
            for k in (0, 1)
        )
        DESCENT.wait()
        return first, second

    def known(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        full: bool,
        pattern: tuple[bool, bool],
    ) -> Known:
        """Return what is known of rows and columns.

        Directions of the pattern are found in some of the rows of a large table, unless there is a
        checkpoint: a GPU, which takes all, may have to go on from it, or have left it.
        """
        presence = part = None
        if any(pattern):
            presence = CpuPresence(observations, self.pool)
            few = None
            if self.checkpoint is None:
                few = part_of(observations, hierarchy.rank, np.random.default_rng(0), self.pool)
            if few is not None and few.shape[0] >= ENOUGH_ROWS:
                part = CpuPresence(few, self.pool)
        features = observations.features
        return known_of(CpuTall(self.pool), observations.shape, presence, pattern, features, part)

    def sample(
        self,
        observations: Observations,
        posterior: Posterior,
        loss: Loss,
        temperature: float,
        plan: Plan,
        seed: int,
        pairs: Any,
        callback: Callback | None,
        known: Known = NOTHING,
    ) -> Sampled:
        """Sample the exact posterior on these threads."""
        SAMPLERS.wait()
        return sample(
            observations, posterior, loss, temperature, plan, seed, self.pool, pairs, callback, known,
            self.journal(),
        )  # fmt: skip


@contextmanager
def workers(machine: Machine, n_answers: int) -> Iterator[Workers]:
    """Yield the workers that a machine has, for the length of a ``with`` block.

    Parameters
    ----------
    machine : Machine
        Where, and where state is left.
    n_answers : int
        The size of the data: "auto" leaves small ones to the CPU.
    """
    found: Any = gpus.chosen(machine.device, n_answers)
    if found is None:
        with threads(machine.n_jobs) as pool:
            yield Cpu(pool, machine.checkpoint)
        return
    from onebit.engine.gpu.workers import Gpu

    with gpus.at_work(found), one_blas_thread():
        yield Gpu(found, thread_count(machine.n_jobs), checkpoint=machine.checkpoint)
