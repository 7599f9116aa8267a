"""A GPU as the place where a fit's work is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onebit.data.observations import Observations
from onebit.engine.checkpoint import Checkpoint, Descent
from onebit.engine.cpu.threads import threads
from onebit.engine.crew import Callback
from onebit.engine.gpu import predict
from onebit.engine.gpu.data import DeviceView, uploaded
from onebit.engine.gpu.intake import DeviceEntries, SortedEntries
from onebit.engine.gpu.lines import on_gpu
from onebit.engine.gpu.memory import (
    answer_bytes,
    refuse_what_does_not_fit,
    sort_bytes,
    state_bytes,
    usable_bytes,
)
from onebit.engine.gpu.presence import GpuPresence, GpuTall
from onebit.engine.gpu.side import DeviceSide
from onebit.engine.gpu.sorting import sorted_views
from onebit.engine.gpu.start import spectral_start
from onebit.engine.gpu.transfer import placed
from onebit.engine.known import DIRECTIONS, NOTHING, Known, known_of
from onebit.engine.sampling.plan import Plan
from onebit.engine.sampling.sampler import Sampled, sample
from onebit.engine.start import START_VARIANCE, Start
from onebit.model.gaussians import Gaussians
from onebit.model.hierarchy import Hierarchy
from onebit.model.learnt_prior import LearntPrior
from onebit.model.losses import Loss
from onebit.model.posterior import Posterior

Views = tuple[DeviceView, DeviceView]


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
    checkpoint : Checkpoint, optional
        Where descents leave their state.
    """

    def __init__(
        self,
        device: torch.device,
        count: int,
        memory: int | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.device = device
        self.count = count
        self.memory = memory
        self.checkpoint = checkpoint
        self._kept: tuple[Observations, Views] | None = None
        self._planned = 0  # the state that the views at hand leave room for
        predict.forget()

    @property
    def on_gpu(self) -> bool:
        """Yes."""
        return True

    def journal(self) -> Descent | None:
        """Return where the next descent, or sampling run, leaves its state."""
        return None if self.checkpoint is None else self.checkpoint.next()

    def sort(self, observations: Observations) -> None:
        """Do nothing: the device sorts its own."""

    def start(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        rng: np.random.Generator,
        jitter: float = 0.0,
        full: bool = True,
    ) -> Start:
        """Return the spectral start."""
        views = self._views(observations, hierarchy, full)
        mean_weight = observations.total_weight / observations.n
        return spectral_start(views, hierarchy, rng, jitter, mean_weight)

    def sides(
        self,
        observations: Observations,
        begin: Start | tuple[Gaussians, Gaussians],
        hierarchy: Hierarchy | LearntPrior,
        full: bool,
        known: Known = NOTHING,
    ) -> tuple[DeviceSide, DeviceSide]:
        """Return the working states of rows and columns."""
        views = self._views(observations, hierarchy, full, known.widths)
        made = []
        for side, view in enumerate(views):
            place = hierarchy, side, view, known.values[side]
            if isinstance(begin, Start):
                mean: Any = (begin.rows, begin.columns)[side]
                made.append(DeviceSide.independent(mean, START_VARIANCE, full, *place))
            else:
                made.append(DeviceSide.from_gaussians(begin[side], *place))
        return made[0], made[1]

    def known(
        self,
        observations: Observations,
        hierarchy: Hierarchy,
        full: bool,
        pattern: tuple[bool, bool],
    ) -> Known:
        """Return what is known of rows and columns, on the device."""
        features = observations.features
        widths = tuple(
            DIRECTIONS * wanted + (0 if told is None else min(DIRECTIONS, told.shape[1]))
            for wanted, told in zip(pattern, features, strict=True)
        )
        views = self._views(observations, hierarchy, full, (widths[0], widths[1]))
        presence = GpuPresence(views) if any(pattern) else None
        return known_of(GpuTall(self.device), observations.shape, presence, pattern, features)

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
        """Sample the exact posterior, here."""
        views = self._views(observations, posterior.hierarchy, True, known.widths)
        with threads(self.count) as pool:
            return sample(
                observations, posterior, loss, temperature, plan, seed, pool, pairs, callback, known,
                self.journal(), on_gpu(views),
            )  # fmt: skip

    def hold(self, observations: Observations, views: Views) -> None:
        """Take up the views of some observations that are here already, whatever comes to them."""
        self._kept, self._planned = (observations, views), 2**62

    def _views(
        self,
        observations: Observations,
        hierarchy: Hierarchy | LearntPrior,
        full: bool,
        widths: tuple[int, int] = (0, 0),
    ) -> Views:
        state = state_bytes(observations.shape, observations.n, hierarchy, full, widths)
        if self._kept is None or self._kept[0] is not observations or state > self._planned:
            self._kept = None
            refuse_what_does_not_fit(observations, hierarchy, full, self._usable(), widths)
            self._kept, self._planned = (observations, self._brought(observations, state)), state
        return self._kept[1]

    def _brought(self, observations: Observations, state: int) -> Views:
        """Bring the answers here: sorted here, or on the host, or left there to be streamed."""
        n, weighted, entries = observations.n, observations.weighted, observations.loose
        answers = answer_bytes(n, weighted)
        if entries is not None:
            here = 9 * n if isinstance(entries, DeviceEntries) else 0  # which is not free any more
            if answers + max(state, sort_bytes(n, weighted) - here) <= self._usable():
                return self._sorted(observations, entries)
        by_row, by_column = observations.by_row, observations.by_column
        streamed = state + answers > self._usable()
        return uploaded(by_row, self.device, streamed), uploaded(by_column, self.device, streamed)

    def _sorted(self, observations: Observations, entries: Any) -> Views:
        weight = np.empty(0, np.float32) if entries.weight is None else entries.weight
        rows, columns, sign, weights = (
            placed(part, self.device) for part in (entries.rows, entries.columns, entries.sign, weight)
        )
        views = sorted_views(rows, columns, sign, weights, observations.shape)
        if isinstance(entries, DeviceEntries):  # sorted they say the same, and take less
            observations.hold(SortedEntries(views[0]))
        return views

    def _usable(self) -> int:
        return usable_bytes(self.device) if self.memory is None else self.memory
