"""The working state of all rows, or of all columns, on a GPU: what ``engine.side`` is on a CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from onebit.engine.cpu.passes import layout
from onebit.engine.gpu import kernels, tall
from onebit.engine.gpu.data import CHUNK, GROUP, Batch, DeviceView
from onebit.engine.gpu.transfer import to_device, to_host
from onebit.engine.rotation import Change, packed_change, second_moment
from onebit.model.gaussians import Gaussians, packed_diagonal, packed_size
from onebit.model.hierarchy import Hierarchy, HyperPosterior, SideSums
from onebit.model.learnt_prior import LearntPrior
from onebit.model.losses import Loss

Array = NDArray[np.float64]

# Answers at once and warps of a walk, by the largest width of a line that they are for.
_FASTEST = {128: (8, 1), 256: (4, 2), 2048: (2, 2), math.inf: (4, 8)}
# Rows whose covariances change coordinates at once.
ROWS_AT_ONCE = 2**17


@dataclass(frozen=True)
class LineLayout:
    """How the lines of a model of some rank are laid out, and how the kernels are launched for it."""

    rank: int

    @property
    def slots(self) -> int:
        """The length of a row's vector: factors, effect and the 1."""
        return self.rank + 2

    @property
    def size(self) -> int:
        """The numbers of a line."""
        return packed_size(self.slots)

    @property
    def last(self) -> int:
        """Where the last line of the triangle begins, which holds the mean."""
        return self.size - self.slots

    @property
    def low(self) -> int:
        """The width of a line's first part: all before the mean, as far as a power of two goes."""
        return 1 << (self.last.bit_length() - 1)

    @property
    def high(self) -> int:
        """The width of a line's second part."""
        return triton.next_power_of_2(self.size - self.low)

    @property
    def stride(self) -> int:
        """The numbers from one line to the next, whole sectors of memory."""
        return -(-self.size // 8) * 8

    @property
    def partial(self) -> int:
        """The numbers of a chunk's sums: a line, then the linear terms."""
        return self.stride + -(-self.slots // 8) * 8

    @property
    def tile(self) -> int:
        """The edge of the square that holds the factors' part of a row's system."""
        return triton.next_power_of_2(max(self.rank, 2))

    @property
    def walk_options(self) -> dict[str, int]:
        """Answers that a program takes at once, and its warps: what was fastest on an H200."""
        width = self.low + self.high
        block, warps = next(setting for most, setting in _FASTEST.items() if width <= most)
        return {"BLOCK": block, "num_warps": warps}

    @property
    def solve_warps(self) -> int:
        """Warps of a program that solves one system: what was fastest on an H200."""
        return max(1, self.tile**2 // 2048)


class Walk:
    """Sums up what the answers of a view say of its rows, a batch at a time, in a scratch space."""

    def __init__(self, view: DeviceView, shape: LineLayout, has_effect: bool) -> None:
        self.view, self.shape = view, shape
        self._loss = torch.zeros(max(view.n_chunks, 1), dtype=torch.float64, device=view.device)
        self.batches: list[Batch] = view.batches(4 * shape.partial)
        longest = max((b.chunks[1] - b.chunks[0] for b in self.batches), default=0)
        # Zeros: between the parts of a line is room that nobody writes, and sums run over all of it.
        self.partial = torch.zeros(
            (max(longest, 1), shape.partial), dtype=torch.float32, device=view.device
        )
        places = layout(shape.rank, has_effect, True)
        self._own_place, self._own_factor, self._mean_place = (
            to_device(array, view.device)
            for array in (
                places.own.astype(np.int32),
                places.times,
                places.own_mean[places.own_mean >= 0].astype(np.int32),
            )
        )

    def over(self, table: torch.Tensor, own: torch.Tensor, code: int, keep: bool) -> Iterator[Batch]:
        """Walk over all answers; if ``keep``, a batch's sums are in ``partial`` when it is yielded."""
        shape, view = self.shape, self.view
        for piece in view.pieces(self.batches):
            batch = piece.batch
            first, last = batch.chunks
            if last > first:
                kernels.walk[(last - first,)](
                    piece.answers, piece.weight, view.start, view.chunk_row, view.row_chunk, table,
                    own, self._own_place, self._own_factor, self._mean_place, self.partial,
                    self._loss, first, piece.first,
                    CODE=code, WEIGHTED=len(view.weight) > 0, KEEP=keep, CHUNK=CHUNK,
                    LOW=shape.low, HIGH=shape.high, SIZE=shape.size, LAST=shape.last,
                    STRIDE=shape.stride, PARTIAL=shape.partial, **shape.walk_options,
                )  # fmt: skip
            if keep:
                fold_groups(self.partial, batch)
            yield batch

    def total(self) -> float:
        """Return the loss of all answers, after a walk over them."""
        return float(self._loss.sum())


class DeviceSide:
    """The means, covariances and table of one side, in the GPU's memory."""

    def __init__(
        self,
        mean: torch.Tensor,
        covariance: torch.Tensor,
        full: bool,
        hierarchy: Hierarchy | LearntPrior,
        side: int,
        view: DeviceView,
        known: torch.Tensor | None = None,
    ) -> None:
        self.known = known
        self.mean = mean
        self.covariance = covariance
        self.full = full
        self.hierarchy = hierarchy
        self.side = side
        self.view = view
        self.device = mean.device
        self.has_effect = hierarchy.has_effect(side)
        self.rank = hierarchy.rank
        self.shape = LineLayout(self.rank)
        self._log_determinant = self._zeros(len(mean))
        self.table = torch.zeros((len(mean), self.shape.stride), dtype=torch.float32, device=self.device)
        self._sums: Any = None
        self._diagonal = to_device(packed_diagonal(self._n_free), self.device)
        self._settle(with_determinant=True)
        self.walk = Walk(view, self.shape, self.has_effect)

    @classmethod
    def from_gaussians(
        cls,
        gaussians: Gaussians,
        hierarchy: Hierarchy | LearntPrior,
        side: int,
        view: DeviceView,
        known: torch.Tensor | None = None,
    ) -> DeviceSide:
        """Bring a posterior's rows (or columns) to the device of ``view``."""
        mean, covariance = (to_device(a, view.device) for a in (gaussians.mean, gaussians.covariance))
        return cls(mean, covariance, gaussians.full, hierarchy, side, view, known)

    @classmethod
    def independent(
        cls,
        mean: torch.Tensor,
        variance: float,
        full: bool,
        hierarchy: Hierarchy | LearntPrior,
        side: int,
        view: DeviceView,
        known: torch.Tensor | None = None,
    ) -> DeviceSide:
        """Return a state with these means whose coordinates are independent."""
        mean = mean.clone()  # which the passes write to
        if not full:
            return cls(mean, torch.full_like(mean, variance), full, hierarchy, side, view, known)
        rows, n_free = mean.shape
        covariance = torch.zeros((rows, packed_size(n_free)), dtype=mean.dtype, device=mean.device)
        covariance[:, packed_diagonal(n_free)] = variance
        return cls(mean, covariance, full, hierarchy, side, view, known)

    @property
    def _square(self) -> dict[str, int]:
        """How a row's system is laid out: a square, and the effect beside it where it does not fit."""
        tile = self.shape.tile
        border = self.has_effect and self.rank == tile
        return {
            "RANK": self.rank, "N": self._n_free - border, "BORDER": int(border), "D": tile,
            "num_warps": self.shape.solve_warps,
        }  # fmt: skip

    def _zeros(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.float64, device=self.device)

    @property
    def _n_free(self) -> int:
        return self.mean.shape[1]

    @property
    def log_determinant(self) -> Array:
        """The log determinants of the covariances."""
        return to_host(self._log_determinant)

    def restore_log_determinant(self, log_determinant: Array) -> None:
        """Take up the log determinants that an earlier run had summed in its own order."""
        self._log_determinant = to_device(log_determinant, self.device)
        self._sums = None

    def _variance(self) -> torch.Tensor:
        return self.covariance[:, self._diagonal] if self.full else self.covariance

    def sums(self) -> Any:
        """Return the sums that the prior needs."""
        if self._sums is None:
            self._sums = self._fresh_sums()
        return self._sums

    def _fresh_sums(self) -> Any:
        hierarchy, side = self.hierarchy, self.side
        if not isinstance(hierarchy, Hierarchy) or hierarchy.sparse == side:
            # These look at every row: they are left to the host.
            moments = to_host(self.mean), to_host(self._variance())
            projections = () if self.known is None else (to_host(tall.inner(self.known, self.mean)),)
            log_determinant = float(self._log_determinant.sum())
            return hierarchy.side_sums(side, *moments, log_determinant, *projections)
        # Sums of whole columns: nothing as long as the rows is stored.
        variance = self.covariance.sum(0)
        if self.full:
            variance = variance[self._diagonal]
        square = torch.linalg.vector_norm(self.mean, dim=0).square()
        parts = [self._log_determinant.sum()[None], self.mean.sum(0), square + variance]
        if self.known is not None:
            parts.append(tall.inner(self.known, self.mean).flatten())
        found = to_host(torch.cat(parts))
        first, second = found[1 : 1 + 2 * self._n_free].reshape(2, self._n_free)
        sums = SideSums(len(self.mean), first, second, float(found[0]))
        if self.known is None:
            return sums
        return replace(sums, projections=found[1 + 2 * self._n_free :].reshape(-1, self._n_free))

    def prior(self, hyper: HyperPosterior) -> tuple[Any, Any]:
        """Return the prior's precision and linear term, on the device where there is a line a row."""
        precision, linear = self.hierarchy.precision_and_linear(self.side, hyper, self.sums())
        slopes = hyper.slopes[self.side]
        if self.known is None or slopes is None:
            return precision, linear
        centre = tall.times(self.known, to_device(slopes.mean, self.device))
        return precision, centre.mul_(to_device(precision, self.device)).add_(
            to_device(linear, self.device)
        )

    def pass_over(
        self,
        table: torch.Tensor,
        prior: tuple[Any, Any],
        temperature: float,
        loss: Loss,
        solve: bool = True,
        relaxation: float = 1.0,
    ) -> float:
        """Update every row against the other side's table (unless ``solve`` is off).

        Returns the loss before.
        """
        precision, linear = (
            part if isinstance(part, torch.Tensor) else to_device(part, self.device) for part in prior
        )
        # In memory: a number handed to a kernel would go in single precision.
        factors = to_device(np.array([temperature, relaxation]), self.device)
        shape = self.shape
        for batch in self.walk.over(table, self.table, loss.code, solve):
            if solve and self._n_free:
                kernels.solve[(batch.rows[1] - batch.rows[0],)](
                    self.walk.partial, self.view.row_chunk, precision, linear, self.mean, self.covariance,
                    self._log_determinant, self.table, factors, batch.rows[0], batch.chunks[0],
                    FULL=self.full, OWN_PRECISION=len(precision) > 1,
                    OWN_LINEAR=len(linear) > 1, **self._square,
                    STRIDE=shape.stride, PARTIAL=shape.partial, GROUP=GROUP,
                )  # fmt: skip
        if solve:
            self._sums = None
        return self.walk.total()

    def _settle(self, with_determinant: bool) -> None:
        """Write the table, and the log determinants, of the present means and covariances."""
        if len(self.mean):
            kernels.settle[(len(self.mean),)](
                self.mean, self.covariance, self._log_determinant, self.table,
                FULL=self.full, WITH_DETERMINANT=with_determinant, **self._square,
                STRIDE=self.shape.stride,
            )  # fmt: skip
        self._sums = None

    def snapshot(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies of means and covariances, for ``hold_back``."""
        return self.mean.clone(), self.covariance.clone()

    def hold_back(self, before: tuple[torch.Tensor, torch.Tensor], step: float) -> None:
        """Go only a share ``step`` of the way from ``before``: means and covariances are averaged."""
        self.mean.lerp_(before[0], 1.0 - step)
        self.covariance.lerp_(before[1], 1.0 - step)
        self._settle(with_determinant=True)

    def second_moment(self) -> Array:
        """Return the second moment of all coordinates, summed over this side (full covariances)."""
        return second_moment(to_host(self.covariance.sum(0)), to_host(self.mean.T @ self.mean))

    def change_coordinates(self, change: Change) -> None:
        """Replace every row by what ``change`` makes of it (full covariances)."""
        self.mean = self.mean @ to_device(change.matrix, self.device)
        self.mean += to_device(change.shift, self.device)
        packed = to_device(packed_change(change.matrix), self.device)
        for begin in range(0, len(self.mean), ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            self.covariance[rows] = self.covariance[rows] @ packed
        self._log_determinant += change.log_determinant
        self._settle(with_determinant=False)

    def gaussians(self) -> Gaussians:
        """Return the present state, in the host's memory."""
        for name, tensor in (("mean", self.mean), ("covariance", self.covariance)):
            # A sum is finite where all its terms are, and takes no memory.
            if not bool(torch.isfinite(tensor.sum())):
                raise ValueError(f"the posterior's {name} holds a value that is not finite")
        return Gaussians.trusted(to_host(self.mean), to_host(self.covariance), self.full)


def fold_groups(partial: torch.Tensor, batch: Batch) -> None:
    """Add up the lines of long rows in groups, so that no row is left with thousands of lines."""
    if len(batch.group_begin):
        kernels.fold[(len(batch.group_begin),)](
            partial, batch.group_begin, batch.group_end, PARTIAL=partial.shape[1],
            WIDTH=triton.next_power_of_2(partial.shape[1]),
        )  # fmt: skip
