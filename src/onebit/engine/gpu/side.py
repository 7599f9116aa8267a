"""The working state of all rows, or of all columns, on a GPU: what ``engine.cpu.side`` is on a CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from onebit.engine.gpu import kernels, system_kernels, tall
from onebit.engine.gpu.data import GROUP, Batch, DeviceView
from onebit.engine.gpu.halving import halved, pays
from onebit.engine.gpu.layout import LineLayout
from onebit.engine.gpu.transfer import on_its_way, to_device, to_host
from onebit.engine.gpu.walks import Table, Walk
from onebit.engine.rotation import Change, packed_change, second_moment
from onebit.model.gaussians import Gaussians, packed_diagonal, packed_size
from onebit.model.hierarchy import Hierarchy, HyperPosterior, SideSums
from onebit.model.learnt_prior import LearntPrior
from onebit.model.losses import Loss

Array = NDArray[np.float64]

# Unknowns of the largest system that one thread solves; systems of a program: the fastest on an H200.
MOST_UNKNOWNS = 12
SYSTEMS = 64
# Rows whose covariances change coordinates at once.
ROWS_AT_ONCE = 2**17


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
        self.lines = torch.zeros((len(mean), self.shape.stride), dtype=torch.float32, device=self.device)
        self._table: Table | None = None
        self._whole = False
        self.walk = Walk(view, self.shape, self.has_effect)
        self._sums: Any = None
        self._moments: tuple[torch.Tensor, torch.Tensor] | None = None
        self._diagonal = to_device(packed_diagonal(self._n_free), self.device)
        self._settle(with_determinant=True)
        self._next: DeviceSide | None = None

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
    def table(self) -> Table:
        """What the other side's walks gather: the lines, in half the bytes where that pays."""
        if self._table is None:
            self._table = self.lines
            if not self._whole and pays(self.lines, self.shape):
                second = torch.zeros(self.rank + 1, dtype=torch.float64, device=self.device)
                second[: self._n_free] = self._moments_here()[1] / len(self.mean)
                self._table = halved(self.lines, self.shape, second)
        return self._table

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

    @property
    def _needs_host(self) -> bool:
        """Whether the sums look at every row: then they are left to the host."""
        return not isinstance(self.hierarchy, Hierarchy) or self.hierarchy.sparse == self.side

    def _fresh_sums(self) -> Any:
        hierarchy, side = self.hierarchy, self.side
        if self._needs_host:
            moments = to_host(self.mean), to_host(self._variance())
            projections = () if self.known is None else (to_host(tall.inner(self.known, self.mean)),)
            log_determinant = float(self._log_determinant.sum())
            return hierarchy.side_sums(side, *moments, log_determinant, *projections)
        return self._taken_apart(to_host(self._sums_here()))

    def _moments_here(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sums of first and second moments: nothing as long as the rows is stored."""
        if self._moments is None:
            variance = self.covariance.sum(0)
            if self.full:
                variance = variance[self._diagonal]
            square = torch.linalg.vector_norm(self.mean, dim=0).square()
            self._moments = self.mean.sum(0), square + variance
        return self._moments

    def _sums_here(self) -> torch.Tensor:
        """Return the sums of whole columns in one piece."""
        parts = [self._log_determinant.sum()[None], *self._moments_here()]
        if self.known is not None:
            parts.append(tall.inner(self.known, self.mean).flatten())
        return torch.cat(parts)

    def _taken_apart(self, found: Array) -> SideSums:
        """Return sums that have come to the host as what the prior needs."""
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

    def gather_whole(self) -> None:
        """Have the other side gather these lines as they are from now on."""
        self._whole = True
        self._table = None

    def lead_to(self, other: DeviceSide | None) -> None:
        """Have the other side walk while the host waits for this one's sums; None: it is not to."""
        self._next = other

    def pass_over(
        self,
        table: Table,
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
        for batch in self.walk.over(table, self.lines, loss.code, solve):
            if solve and self._n_free:
                self._solve(batch, precision, linear, factors)
        if solve:
            self._sums = None
            self._rename()
        told = solve and not self._needs_host
        said = self.walk.loss()[None]
        found = on_its_way(torch.cat([said, self._sums_here()]) if told else said)
        following, self._next = self._next, None
        if following is not None:
            following.walk.begin(self.table, following.lines, loss.code)
        arrived = found()
        if told:
            self._sums = self._taken_apart(arrived[1:])
        return float(arrived[0])

    def _solve(
        self, batch: Batch, precision: torch.Tensor, linear: torch.Tensor, factors: torch.Tensor
    ) -> None:
        """Bring the rows of a batch to the minimum of their majorisers, whose sums have been taken."""
        first, end = batch.rows
        given = (
            self.walk.partial, self.view.row_chunk, precision, linear, self.mean, self.covariance,
            self._log_determinant, self.lines, factors,
        )  # fmt: skip
        layout = {"STRIDE": self.shape.stride, "PARTIAL": self.shape.partial, "GROUP": GROUP}
        if self._n_free <= MOST_UNKNOWNS:
            strides = (self._n_free if len(part) > 1 else 0 for part in (precision, linear))
            system_kernels.solve[(triton.cdiv(end - first, SYSTEMS),)](
                *given, *strides, batch.chunks[0], first, end,
                FULL=self.full, RANK=self.rank, FREE=self._n_free, **layout, BLOCK=SYSTEMS,
                num_warps=SYSTEMS // 32,
            )  # fmt: skip
            return
        kernels.solve[(end - first,)](
            *given, batch.chunks[0], first,
            FULL=self.full, OWN_PRECISION=len(precision) > 1, OWN_LINEAR=len(linear) > 1, **self._square,
            **layout,
        )  # fmt: skip

    def _rename(self) -> None:
        """Give the lines another name: a walk over lines that were there before does not count."""
        self.lines = self.lines.view_as(self.lines)
        self._table = self._moments = None

    def _settle(self, with_determinant: bool) -> None:
        """Write the table, and the log determinants, of the present means and covariances."""
        self._rename()
        if len(self.mean):
            kernels.settle[(len(self.mean),)](
                self.mean, self.covariance, self._log_determinant, self.lines,
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
