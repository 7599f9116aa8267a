"""The coordinate loop: rows, variances, columns, variances, until the objective settles.

Every few rounds the factors are turned, rescaled and shifted (see ``onebit.engine.rotation``).

With ``T = lambda / n`` (``temperature``) and the answers' weights ``u``, the objective is the paper's
``sum u E[loss] / n + KL(rho, pi) / lambda``, with the expected loss replaced by the bound of
``onebit.model.losses``. Each step minimises it exactly over one block of coordinates of a majoriser that
touches it, so it never rises, but for rounding: the kernels gather in single precision. The loss of the
Gibbs classifier has no majoriser. There a full step can overshoot, so that steps are shorter from the
start and each rise halves them; a round of the shortest steps that ends higher than it began is the last.
Single steps have been seen to raise the objective by a thousandth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onebit.data import checked
from onebit.data.observations import Observations
from onebit.data.storage import Tensors
from onebit.engine import checkpoint
from onebit.engine.crew import Callback, Prior, Progress, Workers
from onebit.engine.known import NOTHING, Known
from onebit.engine.rotation import Change, best_coordinates, simple_structure
from onebit.engine.start import Start
from onebit.model.hierarchy import Hierarchy
from onebit.model.losses import Loss
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]

# The variances are held for the first rounds: from a rough start they would prune live columns.
HELD_ROUNDS = 3
# The strengths of regressions are held longer: rows and slopes need some rounds to find each other, and a
# regression that was let go before does not come back.
STRENGTHS_HELD = 12
# Less long from a start whose rows and columns have found each other without them.
WARM_HELD = 2
# Unless a round gains less than this (relative): then they have.
HELD_TOL = 1e-3
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
# ``tol="auto"``: predictions have settled when rounds gain less than this an answer (in nats, where the
# objective is in them), on average from one change of coordinates to the next. That is a rule that was
# measured, not proved: see docs/accuracy.md.
AUTO_GAIN = 5e-5
# Tables with so many answers are large: their rounds take long enough to reckon what more of them would
# gain.
LARGE_TABLE = 500_000
# A large table's descent has settled also where less than so many times ``tol`` is still to be gained, by
# the slowest of its last rates: a fast one is soon followed by the slower one that it hid.
STILL_TO_GAIN = 10.0
RATES = 3


@dataclass(frozen=True)
class Schedule:
    """How long to iterate: at most ``max_iter`` rounds, until one gains less than ``tol`` (relative).

    With "auto", until a round gains less than ``AUTO_GAIN`` an answer. Of a large table, also until all
    further rounds would gain little, by the rates at which gains fall; such a descent may end in the
    middle of a round, when its rows have moved.
    """

    max_iter: int = 200
    tol: float | Literal["auto"] = 1e-5
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


@dataclass(frozen=True)
class Unfinished:
    """What an earlier run has left of a descent that it had not finished.

    ``posterior`` has ``sides`` and ``hyper``; log determinants are there where the sides have none.
    """

    posterior: Any
    path: Array
    step: float
    n_iter: int
    log_determinants: tuple[Array, Array] | tuple[()] = ()


def minimise(
    observations: Observations,
    hierarchy: Prior,
    loss: Loss,
    start: Start | Posterior,
    *,
    full: bool,
    temperature: float,
    schedule: Schedule,
    workers: Workers,
    callback: Callback | None = None,
    known: Known = NOTHING,
) -> Fit:
    """Descend from ``start`` (a spectral start, or the posterior of a similar fit) to a posterior."""
    journal = workers.journal()
    saved = None
    if journal is not None:
        assert isinstance(hierarchy, Hierarchy)
        saved = journal.found(partial(_saved_descent, hierarchy, full, schedule))
    if isinstance(saved, Fit):
        return saved
    descent = Descent(observations, hierarchy, loss, full, temperature, schedule, known)
    offer = None if journal is None else partial(journal.offer, descent.state)
    where = None if journal is None else journal.path
    final, divergence = descent.run(workers, start, saved, callback, offer, where)
    posterior, path = descent.posterior(), np.array(descent.path)
    fit = Fit(posterior, final, path, descent.n_iter, descent.settled, divergence)
    if journal is not None:
        outcome = {"objective": fit.objective, "converged": fit.converged, "divergence": fit.divergence}
        journal.keep(descent.state(done=True, **outcome))
    return fit


class _NotFinite(Exception):
    """The objective is not finite."""

    def __init__(self, value: float, round: int) -> None:
        super().__init__(value, round)
        self.value, self.round = value, round


class Descent:
    """One descent: the working state of both sides, what stands above them, and the course so far."""

    def __init__(
        self,
        observations: Any,
        hierarchy: Prior,
        loss: Loss,
        full: bool,
        temperature: float,
        schedule: Schedule,
        known: Known,
    ) -> None:
        self.observations, self.hierarchy, self.loss = observations, hierarchy, loss
        self.full, self.temperature, self.schedule, self.known = full, temperature, schedule, known
        self.path: list[float] = []
        self.step, self.n_iter, self.settled = loss.step, 0, False

    def run(
        self,
        workers: Any,
        start: Any,
        saved: Unfinished | None,
        callback: Callback | None,
        offer: Callable[[], None] | None,
        where: Path | None,
    ) -> tuple[float, float]:
        """Descend until it settles, and return the objective and the divergence there.

        ``offer`` may keep the state after a round, and ``where`` says to users where a state was kept.
        """
        schedule = self.schedule
        try:
            self.begin(workers, start, saved)
            while self.n_iter < schedule.max_iter and not self.settled:
                self.round()
                if callback is not None:
                    callback(Progress(self.n_iter, schedule.max_iter, self.path[-1]))
                if offer is not None and not self.settled:
                    offer()
            return self.finish()
        except _NotFinite as found:
            if saved is not None and found.round == saved.n_iter + 1:  # it was finite when it was written
                raise checked.FileError(
                    f"{where}: the objective is {found.value} where it goes on; {checkpoint.ADVICE}"
                ) from None
            raise FloatingPointError(
                f"the objective is {found.value} in round {found.round}; lower the temperature "
                f"({self.temperature}), the weights of the answers or prior_scale"
            ) from None

    def begin(self, workers: Any, start: Any, saved: Unfinished | None) -> None:
        """Take up the start, or where an earlier run has stopped.

        A start is spectral, or a posterior: of this machine, or with sides that only ``workers`` know.
        """
        hierarchy, warm = self.hierarchy, not isinstance(start, Start)
        origin = start if saved is None else saved.posterior
        begin = origin if isinstance(origin, Start) else origin.sides
        self.sides = workers.sides(self.observations, begin, hierarchy, self.full, self.known)
        # Variances and strengths are held while a rough start finds its shape.
        self.held = 0 if warm else self.schedule.held_rounds
        self.told = STRENGTHS_HELD if any(self.known.widths) else 0
        if warm:
            self.told = min(self.told, WARM_HELD if start.hyper.slopes == (None, None) else 0)
        if saved is None:
            if warm:
                self._make_simple(start)
            before = start.hyper if warm else hierarchy.update(self._sums(), None)
            self.hyper = hierarchy.update(self._sums(), before, self.told > 0)
            return
        self.hyper = saved.posterior.hyper
        self.path, self.step, self.n_iter = saved.path.tolist(), saved.step, saved.n_iter
        self._release()
        if _rises(self.path):
            self._gather_whole()
        for side, log_determinant in zip(self.sides, saved.log_determinants, strict=False):
            side.restore_log_determinant(log_determinant.copy())

    def _make_simple(self, start: Posterior) -> None:
        """Turn the factors of a start to simple structure where a side is to become sparse."""
        sparse, rank = self.hierarchy.sparse, self.hierarchy.rank
        if sparse is None or sparse == start.hierarchy.sparse:
            return
        turn = simple_structure(start.sides[sparse].mean[:, :rank])
        for side, gaussians in zip(self.sides, start.sides, strict=True):
            side.change_coordinates(Change.of_factors(turn, gaussians.mean.shape[1]))

    def _sums(self) -> tuple[Any, Any]:
        return self.sides[0].sums(), self.sides[1].sums()

    def _release(self) -> None:
        """Let the strengths go early, once rounds with them held gain little."""
        for number in range(self.held + 2, min(len(self.path) // 2, self.told) + 1):
            before, after = self.path[2 * number - 3], self.path[2 * number - 1]
            if before - after <= HELD_TOL * abs(after):
                self.told = number
                return

    def _objective(self, k: int, solve: bool) -> float:
        """Return the objective and, if ``solve``, move one side."""
        divergence = self.hierarchy.kl(self._sums(), self.hyper)
        prior = self.sides[k].prior(self.hyper)
        far = OVER_RELAXATION if self.loss.step == 1.0 and self.n_iter > self.held + 1 else 1.0
        table = self.sides[1 - k].table
        loss = self.sides[k].pass_over(table, prior, self.temperature, self.loss, solve, far)
        lam = self.temperature * self.observations.total_weight
        value = (self.temperature * loss + divergence) / lam
        if not np.isfinite(value):
            raise _NotFinite(value, self.n_iter)
        return value

    def round(self) -> None:
        """Move rows, then columns, the variances after each; now and then change the coordinates."""
        self.n_iter += 1
        hold = self.n_iter <= self.told
        for k in (0, 1):
            before = self.sides[k].snapshot() if self.step < 1.0 else None
            straight = before is None and not (k == 1 and self._turns_now())
            self.sides[k].lead_to(self.sides[1 - k] if straight else None)
            self.path.append(self._objective(k, solve=True))
            rose = _rises(self.path[-2:])
            if rose:
                self._gather_whole()
            if before is not None:
                if rose:
                    self.step = max(0.5 * self.step, SMALLEST_STEP)
                self.sides[k].hold_back(before, self.step)
                before = None  # before the other side's is taken: there may be room for one
            if self.n_iter > self.held:
                self.hyper = self.hierarchy.update(self._sums(), self.hyper, hold)
            if self._gains_little_more():
                self.settled = True
                return
        if self._turns_now():
            self._change_coordinates(hold)
        self._release()
        self.settled = self._has_settled()

    def _gather_whole(self) -> None:
        """Gather lines as they are from now on: in fewer bytes they let the objective rise."""
        for side in self.sides:
            side.gather_whole()

    def _turns_now(self) -> bool:
        """Say whether coordinates change at the end of this round."""
        due = self.n_iter > self.held and self.n_iter % ROTATE_EVERY == 0
        return due and self.full and self.hierarchy.rotates

    def _change_coordinates(self, hold: bool) -> None:
        assert isinstance(self.hierarchy, Hierarchy)
        moments = (self.sides[0].second_moment(), self.sides[1].second_moment())
        better = best_coordinates(self.hierarchy, moments, self._sums(), self.hyper, hold)
        if better is not None:
            for side, change in zip(self.sides, better.changes, strict=True):
                side.change_coordinates(change)
            self.hyper = better.hyper

    def _has_settled(self) -> bool:
        if self.n_iter <= max(self.held, self.told) + 1 or len(self.path) < 3:
            return False
        # One round is two half steps; compare the states before this round's and the last one's.
        gain = self.path[-3] - self.path[-1]
        # Nothing lower is within reach, and the objective would creep up from here.
        if self.step == SMALLEST_STEP and gain < 0.0:
            return True
        size = max(abs(self.path[-1]), 1e-12)
        tol = self.schedule.tol
        if isinstance(tol, str):
            if self.n_iter <= max(self.held, self.told) + ROTATE_EVERY:
                return False
            gain = (self.path[-1 - 2 * ROTATE_EVERY] - self.path[-1]) / ROTATE_EVERY
            tol = AUTO_GAIN / size
        # A rise beyond rounding is not convergence.
        return bool(-ROUNDING <= gain / size <= tol)

    def _gains_little_more(self) -> bool:
        """Say whether all further rounds would gain little, of a large table."""
        if self.observations.n < LARGE_TABLE:
            return False
        tol = self.schedule.tol
        little = AUTO_GAIN if isinstance(tol, str) else STILL_TO_GAIN * tol * abs(self.path[-1])
        return self._still_to_gain() <= little

    def _still_to_gain(self) -> float:
        """Return what all further rounds would gain, if gains fell as slowly as in the last few at worst.

        From the states before this half of this round and of the last ones. Infinite where gains do not
        fall, or where steps of this loss may rise.
        """
        if self.loss.step < 1.0 or self.n_iter < max(self.held, self.told, 1) + RATES + 1:
            return np.inf
        gains = -np.diff(self.path[-1 - 2 * (RATES + 1) :: 2])
        if gains.min() <= 0.0:
            return np.inf
        rate = float((gains[1:] / gains[:-1]).max())
        return float(gains[-1]) * rate / (1.0 - rate) if rate < 1.0 else np.inf

    def posterior(self) -> Posterior:
        """Return the present posterior."""
        prior = self.hierarchy
        model = prior if isinstance(prior, Hierarchy) else prior.hierarchy
        rows, columns = self.sides
        return Posterior(rows.gaussians(), columns.gaussians(), self.hyper, model, self.known.placings)

    def state(self, **more: Any) -> checkpoint.State:
        """Return everything that the descent needs to go on, as arrays and JSON."""
        tensors, content = self.posterior().state()
        tensors |= {f"log_determinant.{k}": side.log_determinant for k, side in enumerate(self.sides)}
        content |= {"n_iter": self.n_iter, "step": self.step, "done": False} | more
        return tensors | {"path": np.array(self.path)}, content

    def finish(self) -> tuple[float, float]:
        """Take the objective once more, where the descent ended; return it and the divergence."""
        final = self._objective(0, solve=False)
        self.path.append(final)
        return final, self.hierarchy.kl(self._sums(), self.hyper)


def _rises(path: list[float]) -> bool:
    """Say whether an objective rises anywhere by more than rounding."""
    return any(after > before * (1.0 + ROUNDING) for before, after in pairwise(path))


def _saved_descent(
    hierarchy: Hierarchy, full: bool, schedule: Schedule, tensors: Tensors, content: dict[str, Any]
) -> Fit | Unfinished:
    """Return the result of a descent that an earlier run had finished, or how far it had come."""
    posterior = Posterior.from_state(tensors, content)
    if not posterior.hierarchy.close_to(hierarchy) or posterior.rows.full != full:
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
    return Unfinished(posterior, path, step, n_iter, (rows, columns))
