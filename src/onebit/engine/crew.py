"""What a fit asks of those who do its work: the threads of a CPU, a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onebit.data.observations import Observations
from onebit.engine.checkpoint import Descent
from onebit.engine.known import NOTHING, Known
from onebit.engine.rotation import Change
from onebit.engine.start import Start
from onebit.model.gaussians import Gaussians
from onebit.model.hierarchy import Hierarchy, HyperPosterior
from onebit.model.learnt_prior import LearntPrior
from onebit.model.losses import Loss
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Progress:
    """What a callback is told after each round."""

    round: int
    max_rounds: int
    objective: float


Callback = Callable[[Progress], None]
Prior = Hierarchy | LearntPrior


class WorkingSide(Protocol):
    """The state of all rows (or columns) where the work is done; ``engine.cpu.side`` has the CPU's."""

    @property
    def table(self) -> Any:
        """What the other side's passes gather."""
        ...

    @property
    def log_determinant(self) -> Array:
        """The log determinants of the covariances."""
        ...

    def sums(self) -> Any:
        """Return the sums that the prior needs."""
        ...

    def prior(self, hyper: HyperPosterior) -> Any:
        """Return the prior's precision and linear term, for ``pass_over``.

        A line for all rows, or one a row: of a sparse side, and of the linear term where the prior mean
        depends on what is known of each row.
        """
        ...

    def gather_whole(self) -> None:
        """Have the other side gather lines as they are, if it gathered them in fewer bytes."""
        ...

    def lead_to(self, other: Any) -> None:
        """Learn which side passes right after the next pass of this one; None: something changes before.

        That pass may begin before its prior is known.
        """
        ...

    def pass_over(
        self,
        table: Any,
        prior: Any,
        temperature: float,
        loss: Loss,
        solve: bool,
        relaxation: float,
    ) -> float:
        """Update every row against the other side's table (unless ``solve`` is off).

        Returns the loss before. Means go ``relaxation`` times as far as the minimum of their majoriser.
        """
        ...

    def snapshot(self) -> Any:
        """Return copies of means and covariances, for ``hold_back``."""
        ...

    def hold_back(self, before: Any, step: float) -> None:
        """Go only a share ``step`` of the way from ``before``."""
        ...

    def restore_log_determinant(self, log_determinant: Array) -> None:
        """Take up the log determinants that an earlier run had summed in its own order."""
        ...

    def second_moment(self) -> Array:
        """Return the second moment of all coordinates, summed over this side (full covariances)."""
        ...

    def change_coordinates(self, change: Change) -> None:
        """Replace every row by what ``change`` makes of it (full covariances)."""
        ...

    def gaussians(self) -> Gaussians:
        """Return the present state, frozen, in this machine's own memory."""
        ...


class Workers(Protocol):
    """Those who do the work of a fit: see ``engine.workers``."""

    @property
    def count(self) -> int:
        """Threads for what is left to the CPU."""
        ...

    @property
    def on_gpu(self) -> bool:
        """Whether the work is done on a GPU."""
        ...

    def journal(self) -> Descent | None:
        """Return where the next descent, or sampling run, leaves its state; None without a checkpoint."""
        ...

    def sort(self, observations: Observations) -> None:
        """Sort answers by row and by column, if that is done on this machine's cores."""
        ...

    def start(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        rng: np.random.Generator,
        jitter: float = 0.0,
        full: bool = True,
    ) -> Start:
        """Return the spectral start, in arrays of the workers' own; ``full`` says what comes after it."""
        ...

    def sides(
        self,
        observations: Observations,
        begin: Start | tuple[Gaussians, Gaussians],
        hierarchy: Prior,
        full: bool,
        known: Known = NOTHING,
    ) -> tuple[WorkingSide, WorkingSide]:
        """Return the working states of rows and columns."""
        ...

    def known(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        full: bool,
        pattern: tuple[bool, bool],
    ) -> Known:
        """Return what is known of rows and columns; see ``engine.known``."""
        ...

    def sample(
        self,
        observations: Observations,
        posterior: Posterior,
        loss: Loss,
        temperature: float,
        plan: Any,
        seed: int,
        pairs: Any,
        callback: Callback | None,
        known: Known = NOTHING,
    ) -> Any:
        """Sample the exact posterior; see ``engine.sampling.sampler.sample``."""
        ...
