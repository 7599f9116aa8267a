"""The coordinate loop: rows, variances, columns, variances, until the objective settles.

Every few rounds the factors are turned, rescaled and shifted (see ``onebit.engine.rotation``).

With ``T = lambda / n`` (``temperature``) and the answers' weights ``u``, the objective is the paper's
``sum u E[loss] / n + KL(rho, pi) / lambda``, with the expected loss replaced by the bound of
``onebit.losses``. Each step minimises it exactly over one block of coordinates of a majoriser that
touches it, so it never rises, but for rounding: the kernels gather in single precision. The loss of the
Gibbs classifier has no majoriser. There a full step can overshoot, so that steps are shorter from the
start and each rise halves them; a round of the shortest steps that ends higher than it began is the last.
Single steps have been seen to raise the objective by a thousandth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onebit import checked
from onebit.engine import checkpoint
from onebit.engine.rotation import Change, best_coordinates, simple_structure
from onebit.engine.start import Start
from onebit.hierarchy import Hierarchy, HyperPosterior
from onebit.learnt import LearntPrior
from onebit.losses import Loss
from onebit.observations import Observations
from onebit.posterior import Gaussians, Posterior
from onebit.storage import Tensors

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


class WorkingSide(Protocol):
    """The state of all rows (or columns) where the work is done; ``engine.side`` has the CPU's."""

    table: Any

    @property
    def log_determinant(self) -> Array:
        """The log determinants of the covariances."""
        ...

    def sums(self) -> Any:
        """Return the sums that the prior needs."""
        ...

    def pass_over(
        self,
        table: Any,
        prior: tuple[Array, Array],
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
    ) -> tuple[WorkingSide, WorkingSide]:
        """Return the working states of rows and columns."""
        ...


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


def minimise(
    observations: Observations,
    hierarchy: Prior,
    loss: Loss,
    start: Start | Posterior,
    *,
    full: bool,
    temperature: float,
    schedule: Schedule,
    pool: Workers,
    callback: Callback | None = None,
) -> Fit:
    """Descend from ``start`` (a spectral start, or the posterior of a similar fit) to a posterior."""
    kept = checkpoint.present() if isinstance(hierarchy, Hierarchy) else None
    descent = None if kept is None else kept.next()
    left = None
    if descent is not None:
        assert isinstance(hierarchy, Hierarchy)
        left = descent.found(partial(_left_descent, hierarchy, full, schedule))
    if isinstance(left, Fit):
        return left
    known: HyperPosterior | None = None
    begin: Start | tuple[Gaussians, Gaussians]
    if left is not None:
        begin, known = left.posterior.sides, left.posterior.hyper
    elif isinstance(start, Posterior):
        begin, known = start.sides, start.hyper
    else:
        begin = start
    sides = pool.sides(observations, begin, hierarchy, full)
    sparse = hierarchy.sparse
    turns = isinstance(start, Posterior) and sparse is not None and sparse != start.hierarchy.sparse
    if turns and left is None:
        assert sparse is not None
        assert not isinstance(begin, Start)
        turn = simple_structure(begin[sparse].mean[:, : hierarchy.rank])
        for side, gaussians in zip(sides, begin, strict=True):
            side.change_coordinates(Change.of_factors(turn, gaussians.mean.shape[1]))
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
        hyper = left.posterior.hyper
        path, step, n_iter = left.path.tolist(), left.step, left.n_iter
        for side, log_determinant in zip(sides, left.log_determinants, strict=True):
            side.restore_log_determinant(log_determinant.copy())

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
        loss_sum = sides[k].pass_over(sides[1 - k].table, prior, temperature, loss, solve, far)
        value = (temperature * loss_sum + divergence) / lam
        if not np.isfinite(value):
            if left is not None and n_iter == left.n_iter + 1:  # it was finite when it was written
                assert descent is not None
                raise checked.FileError(
                    f"{descent.path}: the objective is {value} where it goes on; {checkpoint.ADVICE}"
                )
            raise FloatingPointError(
                f"the objective is {value} in round {n_iter}; lower the temperature ({temperature})"
            )
        return value

    first = n_iter + 1
    for n_iter in range(first, schedule.max_iter + 1):
        for k in (0, 1):
            before = sides[k].snapshot() if step < 1.0 else None
            path.append(objective_of(k, solve=True))
            if before is not None:
                if len(path) > 1 and path[-1] > path[-2] * (1.0 + ROUNDING):
                    step = max(0.5 * step, SMALLEST_STEP)
                sides[k].hold_back(before, step)
                before = None  # before the other side's is taken: there may be room for one
            if n_iter > held:
                hyper = hierarchy.update(sums(), hyper)
        if rotates and n_iter > held and n_iter % ROTATE_EVERY == 0:
            moments = (sides[0].second_moment(), sides[1].second_moment())
            assert isinstance(hierarchy, Hierarchy)
            better = best_coordinates(hierarchy, moments, sums(), hyper)
            if better is not None:
                for side, change in zip(sides, better.changes, strict=True):
                    side.change_coordinates(change)
                hyper = better.hyper
        if callback is not None:
            callback(Progress(n_iter, schedule.max_iter, path[-1]))
        # One round is two half steps; compare the states before this round's and the last one's.
        gain = path[-3] - path[-1] if len(path) > 2 else np.inf
        # Nothing lower is within reach, and the objective would creep up from here.
        if n_iter > held + 1 and step == SMALLEST_STEP and gain < 0.0:
            converged = True
            break
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


@dataclass(frozen=True)
class _Unfinished:
    """What an earlier run has left of a descent that it had not finished."""

    posterior: Posterior
    path: Array
    step: float
    n_iter: int
    log_determinants: tuple[Array, Array]


def _left_descent(
    hierarchy: Hierarchy, full: bool, schedule: Schedule, tensors: Tensors, content: dict[str, Any]
) -> Fit | _Unfinished:
    """Return the result of a descent that an earlier run had finished, or how far it had come."""
    posterior = Posterior.from_state(tensors, content)
    if posterior.hierarchy != hierarchy or posterior.rows.full != full:
        raise checked.FileError("it is of a fit with another prior, or of another shape")
    path = checked.checked_array(tensors, "path", np.float64, (None,))
    n_iter = checked.whole(content, "n_iter", 0, schedule.max_iter)
    if checked.flag(content, "done"):
        objective, divergence = (checked.number(content, name) for name in ("objective", "divergence"))
        converged = checked.flag(content, "converged")
        return Fit(posterior, objective, path, n_iter, converged, divergence)
    step = checked.number(content, "step", least=SMALLEST_STEP, most=1.0)
    rows, columns = (
        checked.checked_array(tensors, f"log_determinant.{k}", np.float64, (size,))
        for k, size in enumerate(hierarchy.shape)
    )
    if len(path) != 2 * n_iter:
        raise checked.FileError(f"its path has {len(path)} steps after {n_iter} rounds")
    return _Unfinished(posterior, path, step, n_iter, (rows, columns))
