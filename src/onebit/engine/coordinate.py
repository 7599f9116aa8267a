"""The coordinate loop: rows, variances, columns, variances, until the objective settles.

Every few rounds the factors are rotated and rescaled (see ``onebit.engine.rotation``).

With ``T = lambda / n`` (``temperature``) and the answers' weights ``u``, the objective is the paper's
``sum u E[loss] / n + KL(rho, pi) / lambda``, with the expected loss replaced by the bound of
``onebit.losses``. Each step minimises it exactly over one block of coordinates of a majoriser that
touches it, so it never rises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onebit.engine import checkpoint, kernels
from onebit.engine.rotation import best_rotation, simple_structure
from onebit.engine.start import START_VARIANCE, Start
from onebit.hierarchy import Hierarchy, HyperPosterior
from onebit.learnt import LearntPrior
from onebit.losses import Loss
from onebit.observations import Observations, View
from onebit.posterior import (
    Gaussians,
    Posterior,
    independent_gaussians,
    packed_diagonal,
    packed_size,
)
from onebit.storage import Tensors
from onebit.threads import Threads

Array = NDArray[np.float64]

# The variances are held for the first rounds: from a rough start they would prune live columns.
HELD_ROUNDS = 3
# A change of coordinates costs some tenth of a round.
ROTATE_EVERY = 4
# How far means go, relative to the minimum of their majoriser. Below two the objective cannot rise, and
# what two sides would approach in turns, zigzag, they approach directly.
OVER_RELAXATION = 1.6
# Where a loss has no majoriser, full steps can overshoot; each rise of the objective halves them, down to
# this share.
SMALLEST_STEP = 1.0 / 16.0
# Covariances that are moved to other coordinates at once: some ten megabytes.
ROWS_AT_ONCE = 16384
# Relative: the kernels gather in single precision.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Progress:
    """What a callback is told after each round."""

    round: int
    max_rounds: int
    objective: float


Callback = Callable[[Progress], None]
Prior = Hierarchy | LearntPrior


@dataclass(frozen=True)
class Schedule:
    """How long to iterate: at most ``max_iter`` rounds, until one gains less than ``tol`` (relative)."""

    max_iter: int = 200
    tol: float = 1e-5
    held_rounds: int = HELD_ROUNDS


@dataclass(frozen=True)
class Fit:
    """A posterior and how it was reached.

    ``path`` holds the objective before every half round, ``divergence`` the KL from the prior of the fit.
    """

    posterior: Posterior
    objective: float
    path: Array
    n_iter: int
    converged: bool
    divergence: float = float("nan")


class Side:
    """The working state of all rows, or of all columns."""

    def __init__(self, gaussians: Gaussians, hierarchy: Prior, side: int) -> None:
        self.mean = gaussians.mean.copy()
        self.covariance = gaussians.covariance.copy()
        self.full = gaussians.full
        self.hierarchy = hierarchy
        self.side = side
        self.has_effect = hierarchy.has_effect(side)
        self.rank = hierarchy.rank
        self.log_determinant = gaussians.log_determinants()
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
            self._sums = self.hierarchy.side_sums(self.side, self.mean, self.variance(), log_determinant)
        return self._sums

    def pass_over(
        self,
        view: View,
        other: NDArray[np.float32],
        prior: tuple[Array, Array],
        temperature: float,
        loss: Loss,
        pool: Threads,
        solve: bool = True,
        relaxation: float = 1.0,
    ) -> float:
        """Update every row of this side (unless ``solve`` is off); return the loss before.

        Means go ``relaxation`` times as far as the minimum of their majoriser.
        """
        update = kernels.update_full if self.full else kernels.update_diagonal
        layout = kernels.layout(self.rank, self.has_effect, self.full)

        def task(begin: int, end: int) -> None:
            update(
                begin, end, view.start, view.index, view.sign, view.weight, other, self.table,
                self.mean, self.covariance, self.log_determinant, self.loss, *prior, temperature,
                loss.code, self.has_effect, layout, solve, relaxation,
            )  # fmt: skip

        pool.ranges(task, view.start)
        if solve:
            self._sums = None
        return float(self.loss.sum())

    def hold_back(self, before: Gaussians, step: float) -> None:
        """Go only a share ``step`` of the way from ``before``: means and covariances are averaged."""
        self.mean = (1.0 - step) * before.mean + step * self.mean
        self.covariance = (1.0 - step) * before.covariance + step * self.covariance
        averaged = Gaussians(self.mean, self.covariance, self.full)
        self.log_determinant = averaged.log_determinants()
        self._sums = None
        self.fill_table()

    def restore_log_determinant(self, log_determinant: Array) -> None:
        """Take up the log determinants that an earlier run had summed in its own order."""
        self.log_determinant = log_determinant
        self._sums = None

    def factor_moment(self) -> Array:
        """Return the second moment of the factors, summed over this side (full covariances)."""
        n_free = self.mean.shape[1]
        total = np.zeros((n_free, n_free))
        total[np.tril_indices(n_free)] = self.covariance.sum(axis=0)
        total += np.tril(total, -1).T + self.mean.T @ self.mean
        return total[: self.rank, : self.rank]

    def change_coordinates(self, change: Array) -> None:
        """Replace the factors ``F`` of every row by ``F change`` (full covariances)."""
        n_free = self.mean.shape[1]
        whole = np.eye(n_free)
        whole[: self.rank, : self.rank] = change
        self.mean = self.mean @ whole
        packed = _packed_change(whole)
        for begin in range(0, len(self.mean), ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            self.covariance[rows] = self.covariance[rows] @ packed
        self._sums = None
        self.log_determinant += 2.0 * float(np.linalg.slogdet(change)[1])
        self.fill_table()

    def fill_table(self) -> None:
        """Write the table that the other side gathers from."""
        kernels.fill_table(
            0, len(self.mean), self.mean, self.covariance, self.has_effect, self.full, self.table
        )

    def gaussians(self) -> Gaussians:
        """Return the present state, frozen."""
        return Gaussians(self.mean.copy(), self.covariance.copy(), self.full)


def _packed_change(change: Array) -> Array:
    """Return the matrix that takes packed triangles of ``V`` to those of ``change' V change``."""
    a, b = np.tril_indices(len(change))
    matrix = change[a][:, a] * change[b][:, b]
    other = change[b][:, a] * change[a][:, b]
    return matrix + np.where(a == b, 0.0, 1.0)[:, None] * other


def gather_table(mean: Array, covariance: Array, full: bool, has_effect: bool) -> NDArray[np.float32]:
    """Return the table that the other side gathers from (see ``onebit.engine.kernels``)."""
    slots = mean.shape[1] - has_effect + 2
    whole = kernels.whole_blocks
    width = whole(packed_size(slots)) if full else 3 * whole(slots)
    table = np.zeros((len(mean), width), dtype=np.float32)
    kernels.fill_table(0, len(mean), mean, covariance, has_effect, full, table)
    return table


def minimise(
    observations: Observations,
    hierarchy: Prior,
    loss: Loss,
    start: Start | Posterior,
    *,
    full: bool,
    temperature: float,
    schedule: Schedule,
    pool: Threads,
    callback: Callback | None = None,
) -> Fit:
    """Descend from ``start`` (a spectral start, or the posterior of a similar fit) to a posterior."""
    kept = checkpoint.present() if isinstance(hierarchy, Hierarchy) else None
    descent = None if kept is None else kept.next()
    left = None if descent is None else descent.found()
    if left is not None and left[1]["done"]:
        return _left_fit(*left)
    known: HyperPosterior | None = None
    resumed = None if left is None else Posterior.from_state(*left)
    if resumed is not None:
        begin, known = resumed.sides, resumed.hyper
    elif isinstance(start, Posterior):
        begin, known = start.sides, start.hyper
    else:
        rows, columns = (
            independent_gaussians(mean, np.full_like(mean, START_VARIANCE), full)
            for mean in (start.rows, start.columns)
        )
        begin = rows, columns
    sides = tuple(Side(gaussians, hierarchy, k) for k, gaussians in enumerate(begin))
    sparse = hierarchy.sparse
    turns = isinstance(start, Posterior) and sparse is not None and sparse != start.hierarchy.sparse
    if turns and left is None:
        assert sparse is not None
        change = simple_structure(begin[sparse].mean[:, : hierarchy.rank])
        for side in sides:
            side.change_coordinates(change)
    views = (observations.by_row, observations.by_column)
    held = 0 if isinstance(start, Posterior) else schedule.held_rounds
    lam = temperature * observations.total_weight
    rotates = full and hierarchy.rotates

    def sums() -> tuple[Any, Any]:
        return sides[0].sums(), sides[1].sums()

    path: list[float] = []
    step = loss.step
    relaxation = OVER_RELAXATION if step == 1.0 else 1.0
    converged = False
    n_iter = 0
    if left is None:
        hyper = hierarchy.update(sums(), known or hierarchy.update(sums(), None))
    else:
        tensors, content = left
        assert known is not None
        hyper = known
        path, step, n_iter = tensors["path"].tolist(), content["step"], content["n_iter"]
        for k, side in enumerate(sides):
            side.restore_log_determinant(tensors[f"log_determinant.{k}"].copy())

    def state(**more: Any) -> checkpoint.State:
        tensors, content = present_posterior().state()
        tensors |= {f"log_determinant.{k}": side.log_determinant for k, side in enumerate(sides)}
        content |= {"n_iter": n_iter, "step": step, "done": False} | more
        return tensors | {"path": np.array(path)}, content

    def present_posterior() -> Posterior:
        model = hierarchy if isinstance(hierarchy, Hierarchy) else hierarchy.hierarchy
        return Posterior(sides[0].gaussians(), sides[1].gaussians(), hyper, model)

    def objective_of(k: int, solve: bool) -> float:
        present = sums()
        divergence = hierarchy.kl(present, hyper)
        prior = hierarchy.precision_and_linear(k, hyper, present[k])
        far = relaxation if n_iter > held + 1 else 1.0
        loss_sum = sides[k].pass_over(
            views[k], sides[1 - k].table, prior, temperature, loss, pool, solve, far
        )
        value = (temperature * loss_sum + divergence) / lam
        if not np.isfinite(value):
            raise FloatingPointError(
                f"the objective is {value} in round {n_iter}; lower the temperature ({temperature})"
            )
        return value

    first = n_iter + 1
    for n_iter in range(first, schedule.max_iter + 1):
        for k in (0, 1):
            before = sides[k].gaussians() if step < 1.0 else None
            path.append(objective_of(k, solve=True))
            if before is not None:
                if len(path) > 1 and path[-1] > path[-2] * (1.0 + ROUNDING):
                    step = max(0.5 * step, SMALLEST_STEP)
                sides[k].hold_back(before, step)
            if n_iter > held:
                hyper = hierarchy.update(sums(), hyper)
        if rotates and n_iter > held and n_iter % ROTATE_EVERY == 0:
            moments = (sides[0].factor_moment(), sides[1].factor_moment())
            assert isinstance(hierarchy, Hierarchy)
            rotation = best_rotation(hierarchy, moments, sums(), hyper)
            if rotation is not None:
                sides[0].change_coordinates(rotation.rows)
                sides[1].change_coordinates(rotation.columns)
                hyper = rotation.hyper
        if callback is not None:
            callback(Progress(n_iter, schedule.max_iter, path[-1]))
        # One round is two half steps; compare the states before this round's and the last one's.
        gain = path[-3] - path[-1] if len(path) > 2 else np.inf
        # A rise beyond rounding is not convergence.
        if n_iter > held + 1 and -ROUNDING <= gain / max(abs(path[-1]), 1e-12) <= schedule.tol:
            converged = True
            break
        if descent is not None:
            descent.offer(state)
    final = objective_of(0, solve=False)
    path.append(final)
    divergence = hierarchy.kl(sums(), hyper)
    if descent is not None:
        descent.keep(state(done=True, objective=final, converged=converged, divergence=divergence))
    return Fit(present_posterior(), final, np.array(path), n_iter, converged, divergence)


def _left_fit(tensors: Tensors, content: dict[str, Any]) -> Fit:
    """Return the result of a descent that an earlier run had finished."""
    return Fit(
        Posterior.from_state(tensors, content),
        content["objective"],
        tensors["path"],
        content["n_iter"],
        content["converged"],
        content["divergence"],
    )
