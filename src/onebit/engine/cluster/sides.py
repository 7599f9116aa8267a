"""The working states of both sides on a cluster; see ``engine.crew.WorkingSide``.

Tasks are pure: each makes a new state of an old one, so that Dask can run any of them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onebit.data.sides import SIDES
from onebit.engine.cluster.blocks import ALONE, Blocks, plus, view_of
from onebit.engine.cluster.client import run_threads
from onebit.engine.cluster.reading import Block
from onebit.engine.cpu import tall
from onebit.engine.cpu.apart import Natural, accumulated
from onebit.engine.cpu.layout import layout_of
from onebit.engine.cpu.side import Side, gather_table
from onebit.engine.cpu.threads import Threads, threads
from onebit.engine.gpu import device as gpus
from onebit.engine.rotation import Change, second_moment
from onebit.engine.start import START_VARIANCE
from onebit.model.gaussians import Gaussians, independent_gaussians
from onebit.model.hierarchy import Hierarchy, HyperPosterior, SideSums
from onebit.model.losses import Loss

Array = NDArray[np.float64]


class State(NamedTuple):
    """The posterior of some rows or columns, and sums over them."""

    mean: Array
    covariance: Array
    log_determinant: Array
    sums: Sums


class Sums(NamedTuple):
    """What adds up over parts of a side: its prior's sums, the second moment, the loss before a step."""

    side: SideSums
    second: Array
    loss: float

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        mine, theirs = self.side, other.side
        projections = None
        if mine.projections is not None and theirs.projections is not None:
            projections = mine.projections + theirs.projections
        together = SideSums(
            mine.size + theirs.size,
            mine.first_moment + theirs.first_moment,
            mine.second_moment + theirs.second_moment,
            mine.log_determinant + theirs.log_determinant,
            projections=projections,
        )
        return Sums(together, self.second + other.second, self.loss + other.loss)


@dataclass(frozen=True)
class States:
    """A posterior on a cluster: the states of rows and of columns (futures), and what is above them."""

    sides: tuple[list[Any], list[Any]]
    hyper: HyperPosterior
    hierarchy: Hierarchy


@dataclass(frozen=True)
class Setting:
    """What every task of one side is told: the prior, which side it is, and where workers work."""

    hierarchy: Hierarchy
    side: int
    device: str = "cpu"

    @property
    def has_effect(self) -> bool:
        """Whether the side has effects."""
        return self.hierarchy.has_effect(self.side)

    def gpu(self) -> Any | None:
        """Return the GPU that a worker is to work on, None for its CPU."""
        if self.device == "cpu":
            return None
        try:
            return gpus.find("cuda" if self.device == "auto" else self.device)
        except gpus.DeviceError:
            if self.device == "auto":
                return None
            raise

    def pass_over(
        self, side: Side, table: Any, prior: Any, temperature: float, loss: Loss, solve: bool,
        relaxation: float,
    ) -> float:  # fmt: skip
        """Move a side, or look at its loss, on the GPU of a worker or on its CPU."""
        gpu = self.gpu()
        if gpu is None:
            return side.pass_over(table, prior, temperature, loss, solve, relaxation)
        from onebit.engine.gpu import apart

        return apart.pass_over(side, table, prior, temperature, loss, solve, relaxation, gpu)

    def working(self, state: State, view: Any, known: Any, pool: Threads = ALONE) -> Side:
        """Return the state as the engine of one machine works on it: a copy."""
        gaussians = Gaussians.trusted(state.mean, state.covariance, True)
        made = Side(gaussians, self.hierarchy, self.side, view, pool, known, state.log_determinant)
        made.remember(state.sums.side)
        return made


def _state(side: Side, loss: float = 0.0) -> State:
    moment = second_moment(side.covariance.sum(axis=0), tall.inner(side.mean, side.mean, ALONE))
    return State(side.mean, side.covariance, side.log_determinant, Sums(side.sums(), moment, loss))


def begun(setting: Setting, mean: Array, known: Any) -> State:
    """Return the state of a start."""
    gaussians = independent_gaussians(mean, np.full_like(mean, START_VARIANCE), True)
    return taken_up(setting, gaussians.mean, gaussians.covariance, None, known)


def taken_up(setting: Setting, mean: Array, covariance: Array, determinant: Any, known: Any) -> State:
    """Return the state of given means and covariances."""
    gaussians = Gaussians(mean, covariance, True)
    nowhere: Any = None  # the answers are not needed
    side = Side(gaussians, setting.hierarchy, setting.side, nowhere, ALONE, known, determinant)
    return _state(side)


def summed_again(setting: Setting, state: State, known: Any) -> State:
    """Return a state whose sums are those of another prior."""
    return taken_up(setting, state.mean, state.covariance, state.log_determinant, known)


def moved(
    block: Block, state: State, known: Any, setting: Setting, table: Any, hyper: HyperPosterior,
    temperature: float, loss: Loss, relaxation: float,
) -> State:  # fmt: skip
    """Move the rows of a block against the other side's table."""
    side = setting.working(state, view_of(block, setting.side), known)
    before = setting.pass_over(side, table, side.prior(hyper), temperature, loss, True, relaxation)
    return _state(side, before)


def loss_of(block: Block, state: State, setting: Setting, table: Any, loss: Loss) -> float:
    """Return the loss of a block."""
    side = setting.working(state, view_of(block, setting.side), None)
    nothing = np.zeros((1, side.mean.shape[1]))
    return setting.pass_over(side, table, (nothing, nothing), 1.0, loss, False, 1.0)


def said(block: Block, state: State, setting: Setting, table: Any, loss: Loss) -> Natural:
    """Return what a block's answers say of the side that is not divided, in single precision."""
    other = Setting(setting.hierarchy, 1 - setting.side)
    lines = gather_table(state.mean, state.covariance, True, other.has_effect)
    layout = layout_of(setting.hierarchy.rank, setting.has_effect, True)
    view = view_of(block, setting.side)
    gpu = setting.gpu()
    if gpu is not None:
        from onebit.engine.gpu import apart

        return apart.accumulated(view, lines, table, setting.hierarchy.rank, loss, layout, gpu)
    found = accumulated(view, lines, table, loss.code, layout, ALONE, np.float32)
    return found._replace(loss=found.loss.sum(keepdims=True))


def solved(
    state: State, parts: list[Natural], known: Any, setting: Setting, hyper: HyperPosterior,
    temperature: float, relaxation: float,
) -> State:  # fmt: skip
    """Move the side that is not divided to what all blocks say."""
    natural = plus(*parts)
    with threads(run_threads()) as pool:
        side = setting.working(state, None, known, pool)
        side.solve(natural, side.prior(hyper), temperature, relaxation)
        return _state(side, float(natural.loss[0]))


def changed(state: State, known: Any, setting: Setting, change: Change) -> State:
    """Replace rows by what a change of coordinates makes of them."""
    side = setting.working(state, None, known)
    side.change_coordinates(change)
    return _state(side, state.sums.loss)


def sums_of(state: State) -> Sums:
    """Return what adds up of a state."""
    return state.sums


def total(parts: list[Sums]) -> Sums:
    """Add up the sums of all parts, in their order."""
    return plus(*parts)


def loss_said(parts: list[Natural]) -> float:
    """Return the loss that comes with natural parameters."""
    return float(plus(*(part.loss for part in parts))[0])


def table_of(state: State, setting: Setting) -> NDArray[np.float32]:
    """Return the table that the other side gathers from."""
    return gather_table(state.mean, state.covariance, True, setting.has_effect)


class _Side:
    """What both sides have in common: states in parts, and their sums."""

    def __init__(self, blocks: Blocks, setting: Setting, states: Sequence[Any], known: Any) -> None:
        self.blocks, self.cluster, self.setting = blocks, blocks.cluster, setting
        self.known = [None] * len(states) if known is None else known.futures
        self.word = SIDES[setting.side]
        self.take(list(states))

    def take(self, states: list[Any]) -> None:
        """Take up new states (futures); their sums are on their way."""
        self.states = states
        parts = self.cluster.each(sums_of, states, what=f"sums-of-{self.word}")
        self._coming = self.cluster.submit(total, parts, what=f"add-sums-of-{self.word}", priority=1)
        self._found: Sums | None = None

    def _sums(self) -> Sums:
        if self._found is None:
            self._found = self.cluster.result(self._coming, f"moving the {self.word}")
        return self._found

    def sums(self) -> SideSums:
        """Return the sums that the prior needs."""
        return self._sums().side

    def prior(self, hyper: HyperPosterior) -> HyperPosterior:
        """Return what tasks make the prior from."""
        return hyper

    def second_moment(self) -> Array:
        """Return the second moment of all coordinates, summed over this side."""
        return self._sums().second

    def gather_whole(self) -> None:
        """Nothing: workers always do."""

    def change_coordinates(self, change: Change) -> None:
        """Replace every row by what ``change`` makes of it."""
        count = len(self.states)
        fixed = [self.setting] * count, [change] * count
        self.take(self.cluster.each(changed, self.states, self.known, *fixed, what=f"turn-{self.word}"))


class DividedSide(_Side):
    """The side whose states lie with its answers, a part for each block."""

    # The other side, where what is said of it can be summed up while this side's sums travel.
    _next: WholeSide | None = None

    @property
    def table(self) -> DividedSide:
        """What the other side's answers are to be gathered from: this side itself."""
        return self

    def lead_to(self, other: WholeSide | None) -> None:
        """Have what is said of the other side summed up right after the next pass; None: wait."""
        self._next = other

    def pass_over(
        self, table: Any, prior: HyperPosterior, temperature: float, loss: Loss, solve: bool,
        relaxation: float,
    ) -> float:  # fmt: skip
        """Move every row against the other side's table; return the loss before."""
        count = len(self.states)
        if not solve:
            more = [self.setting] * count, [table] * count, [loss] * count
            parts = self.blocks.each(loss_of, self.states, *more, what="loss")
            return float(self.cluster.result(self.cluster.added(parts, plus, "add-loss"), "the loss"))
        steps = (self.setting, table, prior, temperature, loss, relaxation)
        self.take(
            self.blocks.each(
                moved, self.states, self.known, *([step] * count for step in steps),
                what=f"move-{self.word}",
            )
        )  # fmt: skip
        following, self._next = self._next, None
        if following is not None:
            following.listen(self, loss)
        return self._sums().loss


class WholeSide(_Side):
    """The side whose states are in one part, and are sent to the blocks as a table."""

    # What was said of this side, and at which states of both.
    _heard: tuple[list[Any], Any, Any] | None = None

    def listen(self, other: DividedSide, loss: Loss) -> tuple[list[Any], Any, Any]:
        """Have what the blocks say of this side added up, at the present states."""
        count = len(other.states)
        more = [self.setting] * count, [self.table] * count, [loss] * count
        parts = self.blocks.each(said, other.states, *more, what=f"natural-{self.word}")
        natural = self.cluster.last_two(parts, plus, f"add-natural-{self.word}")
        self._heard = other.states, self.table, natural
        return self._heard

    def take(self, states: list[Any]) -> None:
        """Take up new states (futures), and make the table of them."""
        super().take(states)
        self.table = self.cluster.submit(table_of, states[0], self.setting, what=f"table-of-{self.word}")

    def lead_to(self, other: DividedSide | None) -> None:
        """Nothing: the other side's pass needs its prior from the start."""

    def pass_over(
        self, table: DividedSide, prior: HyperPosterior, temperature: float, loss: Loss, solve: bool,
        relaxation: float,
    ) -> float:  # fmt: skip
        """Add up what the blocks say of every row, and move it; return the loss before."""
        heard, self._heard = self._heard, None
        if heard is None or heard[0] is not table.states or heard[1] is not self.table:
            heard = self.listen(table, loss)
        natural, self._heard = heard[2], None
        if not solve:
            return float(
                self.cluster.result(self.cluster.submit(loss_said, natural, what="loss"), "the loss")
            )
        self.take(
            [
                self.cluster.submit(
                    solved, self.states[0], natural, self.known[0], self.setting, prior, temperature,
                    relaxation, what=f"solve-{self.word}",
                )
            ]
        )  # fmt: skip
        return self._sums().loss
