"""A GPU as the place where a fit's work is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onebit.engine.start import START_VARIANCE, Start
from onebit.gpu.data import SCRATCH, STREAMED, DeviceView, uploaded
from onebit.gpu.device import DeviceError, interpreted
from onebit.gpu.side import ROWS_AT_ONCE, DeviceSide, Shape
from onebit.gpu.sorting import AT_ONCE, sorted_views
from onebit.gpu.start import spectral_start
from onebit.gpu.transfer import placed
from onebit.hierarchy import Hierarchy
from onebit.learnt import LearntPrior
from onebit.observations import Observations
from onebit.posterior import Gaussians, packed_size

# Of the memory that is free, what a fit may plan with; sums and sorts need some beside it.
_SHARE = 0.9


class Gpu:
    """One GPU: keeps the answers of the fit at hand and makes the two sides' working states.

    Parameters
    ----------
    device : torch.device
        Where.
    count : int
        Threads for what is left to the host.
    memory : int, optional
        Bytes to plan with, instead of what is free.
    """

    def __init__(self, device: torch.device, count: int, memory: int | None = None) -> None:
        self.device = device
        self.count = count
        self.memory = memory
        self._kept: tuple[Observations, tuple[DeviceView, DeviceView]] | None = None

    def start(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        rng: np.random.Generator,
        jitter: float = 0.0,
    ) -> Start:
        """Return the spectral start."""
        views = self._views(observations, hierarchy, full=True)
        mean_weight = observations.total_weight / observations.n
        return spectral_start(views, hierarchy, rng, jitter, mean_weight)

    def sides(
        self,
        observations: Observations,
        begin: Start | tuple[Gaussians, Gaussians],
        hierarchy: Hierarchy | LearntPrior,
        full: bool,
    ) -> tuple[DeviceSide, DeviceSide]:
        """Return the working states of rows and columns."""
        views = self._views(observations, hierarchy, full)
        made = []
        for side, view in enumerate(views):
            if isinstance(begin, Start):
                mean: Any = (begin.rows, begin.columns)[side]
                made.append(DeviceSide.independent(mean, START_VARIANCE, full, hierarchy, side, view))
            else:
                made.append(DeviceSide.from_gaussians(begin[side], hierarchy, side, view))
        return made[0], made[1]

    def hold(self, observations: Observations, views: tuple[DeviceView, DeviceView]) -> None:
        """Take up the views of some observations that are here already."""
        self._kept = observations, views

    def _views(
        self, observations: Observations, hierarchy: Hierarchy | LearntPrior, full: bool
    ) -> tuple[DeviceView, DeviceView]:
        if self._kept is None or self._kept[0] is not observations:
            self._kept = None
            self._kept = observations, self._brought(observations, hierarchy, full)
        return self._kept[1]

    def _brought(
        self, observations: Observations, hierarchy: Hierarchy | LearntPrior, full: bool
    ) -> tuple[DeviceView, DeviceView]:
        """Bring the answers here: sorted here, or on the host, or left there to be streamed."""
        usable = self._usable_bytes()
        state = state_bytes(observations.shape, hierarchy, full)
        number = 8 if observations.weighted else 4
        answers = 2 * number * observations.n
        # Beside the views, a sort holds the loose answers and its own scratch space.
        loose = (number + 5) * observations.n + 64 * min(observations.n, AT_ONCE)
        at_least = min(answers, 4 * STREAMED * number)
        if state + at_least > usable:
            rows, columns = observations.shape
            raise DeviceError(
                f"a model of {rows} rows and {columns} columns with rank {hierarchy.rank} needs "
                f"{_gigabytes(state)} of the GPU's memory beside its answers, and {_gigabytes(usable)} "
                'are usable; lower rank, take covariance="diagonal" or device="cpu"'
            )
        entries = observations.loose
        if entries is not None and answers + max(state, loose) <= usable:
            weight = np.empty(0, np.float32) if entries.weight is None else entries.weight
            rows, columns, sign, weight = (
                placed(part, self.device)
                for part in (entries.rows, entries.columns, entries.sign, weight)
            )
            return sorted_views(rows, columns, sign, weight, observations.shape)
        streamed = state + answers > usable
        by_row, by_column = observations.by_row, observations.by_column
        return uploaded(by_row, self.device, streamed), uploaded(by_column, self.device, streamed)

    def _usable_bytes(self) -> int:
        if self.memory is not None:
            return self.memory
        if interpreted():
            return 2**62
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(_SHARE * (torch.cuda.mem_get_info(self.device)[0] + kept))


def state_bytes(shape: tuple[int, int], hierarchy: Hierarchy | LearntPrior, full: bool) -> int:
    """Return the bytes that a model's working state takes on a GPU, its answers not counted."""
    layout = Shape(hierarchy.rank)
    total, moved = SCRATCH, 0
    for side, rows in enumerate(shape):
        n_free = hierarchy.rank + hierarchy.has_effect(side)
        spread = packed_size(n_free) if full else n_free
        # The state in double precision, the table in single, the start and the bounds of rows and chunks.
        total += rows * (8 * (n_free + spread + 1) + 4 * layout.stride + 8 * (hierarchy.rank + 8) + 24)
        # A change of coordinates writes new means, and new covariances a few rows at a time.
        moved = max(moved, 8 * (rows * n_free + min(rows, ROWS_AT_ONCE) * spread))
    return total + moved


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
