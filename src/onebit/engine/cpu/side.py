"""The working state of all rows, or of all columns, and the pass that moves them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.data.sorting import View
from onebit.engine.cpu import passes as kernels
from onebit.engine.cpu import tall
from onebit.engine.cpu.apart import Natural, accumulated, full_table, solve_diagonal, solve_full
from onebit.engine.cpu.layout import layout_of, lines_of_zeros, whole_blocks
from onebit.engine.cpu.room import diagonal_room, full_room, systems_room
from onebit.engine.cpu.threads import Threads
from onebit.engine.rotation import Change, packed_change, second_moment
from onebit.model.gaussians import Gaussians, packed_diagonal, packed_size
from onebit.model.hierarchy import Hierarchy, HyperPosterior
from onebit.model.learnt_prior import LearntPrior
from onebit.model.losses import Loss

Array = NDArray[np.float64]

# A row's system takes about as long as so many answers: the square of its size over this.
SOLVED = 3
# Covariances that are moved to other coordinates at once: some ten megabytes.
ROWS_AT_ONCE = 16384


class Side:
    """The working state of all rows, or of all columns."""

    def __init__(
        self,
        gaussians: Gaussians,
        hierarchy: Hierarchy | LearntPrior,
        side: int,
        view: View,
        pool: Threads,
        known: NDArray[np.float32] | None = None,
        log_determinant: Array | None = None,
    ) -> None:
        self.known = None if known is None else tall.ready(known)
        self.mean = gaussians.mean.copy()
        self.covariance = gaussians.covariance.copy()
        self.full = gaussians.full
        self.hierarchy = hierarchy
        self.side = side
        self.view = view
        self.pool = pool
        self.has_effect = hierarchy.has_effect(side)
        self.rank = hierarchy.rank
        if log_determinant is None:
            log_determinant = gaussians.log_determinants()
        self.log_determinant = log_determinant.copy()
        self.loss = np.zeros(len(self.mean))
        self._sums: Any = None  # of the present state
        self.table = gather_table(self.mean, self.covariance, self.full, self.has_effect)

    def variance(self) -> Array:
        """Return the variances of all coordinates."""
        return self.covariance[:, packed_diagonal(self.mean.shape[1])] if self.full else self.covariance

    def sums(self) -> Any:
        """Return the sums that the prior needs."""
        if self._sums is None:
            log_determinant = float(self.log_determinant.sum())
            projections = () if self.known is None else (tall.inner(self.known, self.mean, self.pool),)
            self._sums = self.hierarchy.side_sums(
                self.side, self.mean, self.variance(), log_determinant, *projections
            )
        return self._sums

    def prior(self, hyper: HyperPosterior) -> tuple[Array, Array]:
        """Return the prior's precision and linear term: one line for all rows, or one a row."""
        precision, linear = self.hierarchy.precision_and_linear(self.side, hyper, self.sums())
        slopes = hyper.slopes[self.side]
        if self.known is None or slopes is None:
            return precision, linear
        return precision, linear + precision * tall.times(self.known, slopes.mean, self.pool)

    def gather_whole(self) -> None:
        """Nothing: threads always do."""

    def lead_to(self, other: Side | None) -> None:
        """Threads have nothing to wait for: no pass begins before its time."""

    def pass_over(
        self,
        table: NDArray[np.float32],
        prior: tuple[Array, Array],
        temperature: float,
        loss: Loss,
        solve: bool = True,
        relaxation: float = 1.0,
    ) -> float:
        """Update every row against the other side's table (unless ``solve`` is off).

        Returns the loss before. Means go ``relaxation`` times as far as the minimum of their majoriser.
        """
        view = self.view
        update = kernels.update_full if self.full else kernels.update_diagonal
        layout = layout_of(self.rank, self.has_effect, self.full)
        n_free, width = self.mean.shape[1], self.table.shape[1]
        longest = 0 if self.full else int(view.counts.max(initial=0))

        def task(begin: int, end: int) -> None:
            if self.full:
                room = full_room(n_free, width, layout.mean_at)
            else:
                room = diagonal_room(n_free, layout.mean_at // 2, longest)
            update(
                begin, end, view.start, view.index, view.sign, view.weight, table, self.table,
                self.mean, self.covariance, self.log_determinant, self.loss, *prior, temperature,
                loss.code, self.has_effect, layout, solve, relaxation, room,
            )  # fmt: skip

        each = n_free**2 // SOLVED if self.full and solve else 0
        self.pool.ranges(task, view.start + each * np.arange(len(view.start)))
        if solve:
            self._sums = None
        return float(self.loss.sum())

    def accumulate(self, table: NDArray[np.float32], loss: Loss) -> Natural:
        """Return what the answers say of every row at its present state.

        With ``solve`` the two halves of ``pass_over``: natural parameters of parts of the answers add up.
        """
        own = self.table
        if not self.full:
            own, table = (full_table(part, self.rank + 2) for part in (own, table))
        layout = layout_of(self.rank, self.has_effect, True)
        return accumulated(self.view, table, own, loss.code, layout, self.pool)

    def solve(
        self,
        natural: Natural,
        prior: tuple[Array, Array],
        temperature: float,
        relaxation: float = 1.0,
    ) -> None:
        """Move every row to what its natural parameters and the prior say.

        Independent coordinates go all the way to their best mean, where ``pass_over`` takes a few steps.
        """
        self._sums = None
        if not self.full:
            moved = self.mean, self.covariance, self.log_determinant
            solve_diagonal(natural, *prior, temperature, relaxation, *moved)
            self.fill_table()
            return

        def task(begin: int, end: int) -> None:
            solve_full(
                begin, end, natural.precision, natural.linear, *prior, temperature, relaxation,
                self.mean, self.covariance, self.log_determinant, self.table, self.has_effect,
                systems_room(self.mean.shape[1]),
            )  # fmt: skip

        self.pool.even(task, len(self.mean), self.mean.shape[1] ** 2)

    def snapshot(self) -> tuple[Array, Array]:
        """Return copies of means and covariances, for ``hold_back``."""
        return self.mean.copy(), self.covariance.copy()

    def hold_back(self, before: tuple[Array, Array], step: float) -> None:
        """Go only a share ``step`` of the way from ``before``: means and covariances are averaged."""
        self.mean = (1.0 - step) * before[0] + step * self.mean
        self.covariance = (1.0 - step) * before[1] + step * self.covariance
        averaged = Gaussians(self.mean, self.covariance, self.full)
        self.log_determinant = averaged.log_determinants()
        self._sums = None
        self.fill_table()

    def take(self, mean: Array, covariance: Array, log_determinant: Array) -> None:
        """Take up a state that was found elsewhere."""
        self.mean, self.covariance, self.log_determinant = mean, covariance, log_determinant
        self._sums = None
        self.fill_table()

    def remember(self, sums: Any) -> None:
        """Take up sums of the present state that are known already."""
        self._sums = sums

    def restore_log_determinant(self, log_determinant: Array) -> None:
        """Take up the log determinants that an earlier run had summed in its own order."""
        self.log_determinant = log_determinant
        self._sums = None

    def second_moment(self) -> Array:
        """Return the second moment of all coordinates, summed over this side (full covariances)."""
        return second_moment(self.covariance.sum(axis=0), self.mean.T @ self.mean)

    def change_coordinates(self, change: Change) -> None:
        """Replace every row by what ``change`` makes of it (full covariances)."""
        self.mean = self.mean @ change.matrix + change.shift
        packed = packed_change(change.matrix)
        for begin in range(0, len(self.mean), ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            self.covariance[rows] = self.covariance[rows] @ packed
        self._sums = None
        self.log_determinant += change.log_determinant
        self.fill_table()

    def fill_table(self) -> None:
        """Write the table that the other side gathers from."""
        fill_lines(self.mean, self.covariance, self.full, self.has_effect, self.table)

    def gaussians(self) -> Gaussians:
        """Return the present state, frozen."""
        return Gaussians(self.mean.copy(), self.covariance.copy(), self.full)


def gather_table(mean: Array, covariance: Array, full: bool, has_effect: bool) -> NDArray[np.float32]:
    """Return the table that the other side gathers from (see ``onebit.engine.cpu.passes``)."""
    slots = mean.shape[1] - has_effect + 2
    width = whole_blocks(packed_size(slots)) if full else 3 * whole_blocks(slots)
    table = lines_of_zeros(len(mean), width)
    fill_lines(mean, covariance, full, has_effect, table)
    return table


def fill_lines(
    mean: Array, covariance: Array, full: bool, has_effect: bool, table: NDArray[np.float32]
) -> None:
    """Write all lines of a table."""
    vector = np.empty(mean.shape[1] + 2)
    kernels.fill_table(0, len(mean), mean, covariance, has_effect, full, vector, table)
