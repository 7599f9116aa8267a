"""The sampler: chains side by side, sweep after sweep, and what is kept of them.

Memory does not grow with the number of draws. Pairs that are asked for beforehand have their averages
accumulated over every draw; of the factors, as many draws are kept, evenly spaced, as fit a stated number
of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from onebit.data import checked
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS, SIDES
from onebit.engine import checkpoint
from onebit.engine.cpu.threads import Threads
from onebit.engine.crew import Progress
from onebit.engine.known import NOTHING, Known
from onebit.engine.sampling.chain import Chain
from onebit.engine.sampling.philox import sweep_generator
from onebit.engine.sampling.target import Target
from onebit.model.diagnostics import Diagnostics
from onebit.model.draws import Draws, checked_draws
from onebit.model.losses import Loss
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

# Answers whose loss is one of the functionals, and pairs whose scores are.
_WATCHED_ANSWERS, _WATCHED_PAIRS = 2000, 8
# Draws between two looks at whether the chains have settled.
_LOOK_EVERY = 20
# A stream of its own for the choice of what is watched.
_OF_WATCHED = 5
# Slopes that are kept are drawn from numbers of their own: sweeps are fewer.
OF_KEPT_SLOPES = 2**31


@dataclass(frozen=True)
class Plan:
    """How long to sample and what to keep.

    Attributes
    ----------
    n_samples, n_burn_in, n_chains : int
        Draws of each chain, the sweeps before them, and chains.
    n_thin : int
        Sweeps between two draws.
    settle : float or None
        Stop before ``n_samples`` once the Monte Carlo error of every functional is below this share of
        its posterior standard deviation.
    n_least : int
        Draws of each chain before it may stop so.
    keep_bytes : int
        The most that the kept draws of the factors may take.
    """

    n_samples: int = 200
    n_burn_in: int = 20
    n_chains: int = 1
    n_thin: int = 1
    settle: float | None = None
    keep_bytes: int = 2**28
    n_least: int = 0

    @property
    def total(self) -> int:
        """The number of draws of all chains."""
        return self.n_samples * self.n_chains

    @property
    def sweeps(self) -> int:
        """The sweeps of one chain."""
        return self.n_burn_in + self.n_samples * self.n_thin


@dataclass(frozen=True)
class SweepProgress(Progress):
    """What a callback is told after each sweep; the objective is the present loss."""

    words: ClassVar[str] = "sweeps, loss"


@dataclass(frozen=True)
class Averages:
    """Averages over every draw for the pairs asked for: of the score, its square and its sigmoid."""

    mean: Array
    variance: Array
    chance: Array


@dataclass(frozen=True)
class Sampled:
    """What a sampler returns.

    ``settled`` says whether it stopped because the functionals had settled.
    """

    draws: Draws
    diagnostics: Diagnostics
    averages: Averages
    n_sweeps: int
    settled: bool


class _Watched:
    """The functionals: fixed answers and pairs, and norms that no rotation changes."""

    def __init__(self, observations: Observations, loss: Loss, seed: int) -> None:
        rng = np.random.default_rng([_OF_WATCHED, seed])
        view, n = observations.by_row, observations.n
        places = np.sort(rng.choice(n, size=min(n, _WATCHED_ANSWERS), replace=False))
        self.loss = loss
        self.rows = (np.searchsorted(view.start, places, side="right") - 1).astype(np.int32)
        self.columns, self.sign = view.index[places], view.sign[places]
        # Of rows and columns at random: entries that nobody answered among them.
        self.pairs = tuple(
            rng.integers(size, size=_WATCHED_PAIRS).astype(np.int32) for size in observations.shape
        )
        self.names = (
            "loss", "mean score", "norm of the factors", "norm of the row effects",
            "norm of the column effects", *(f"score {k + 1}" for k in range(_WATCHED_PAIRS)),
        )  # fmt: skip

    def values(self, chain: Chain) -> Array:
        """Return the functionals of a chain's present state."""
        factors = [chain.factors(side) for side in (0, 1)]
        effects = [chain.effect(side) for side in (0, 1)]
        loss = self.loss.value(self.sign * chain.scores(self.rows, self.columns)).mean()
        averages = [part.mean(axis=0) for part in factors]
        mean = effects[0].mean() + effects[1].mean() + (averages[0] * averages[1]).sum()
        # Effects as users see them, on a typical column (or row), and what the factors add to them.
        share, shape = chain.target.hierarchy.mean_share, chain.target.hierarchy.shape
        centres = [share(side) * shape[side] * averages[side] for side in (0, 1)]
        main = [effects[side] + (factors[side] * centres[1 - side]).sum(axis=1) for side in (0, 1)]
        beyond = [part - centre for part, centre in zip(factors, centres, strict=True)]
        squares = [np.einsum("mi,mj->ij", part, part) / len(part) for part in beyond]
        return np.array(
            [
                loss,
                mean,
                np.sqrt((squares[0] * squares[1]).sum()),
                main[0].std(),
                main[1].std(),
                *chain.scores(*self.pairs),
            ]
        )


class _Kept:
    """Room for the draws that are kept, and which they are."""

    def __init__(self, plan: Plan, posterior: Posterior) -> None:
        hierarchy = posterior.hierarchy
        widths = [hierarchy.n_free(side) for side in (0, 1)]
        numbers = sum(size * width for size, width in zip(posterior.shape, widths, strict=True))
        each = 4 * numbers + 8 * (hierarchy.rank + 3)
        self.total = plan.total
        self.room = max(1, min(plan.total, plan.keep_bytes // each))
        self.sides = [
            np.empty((size, self.room, width), np.float32)
            for size, width in zip(posterior.shape, widths, strict=True)
        ]
        self.factors = np.empty((self.room, hierarchy.rank))
        self.effects = np.empty((self.room, 2))
        self.intercept = np.empty(self.room)
        self.regressed = [
            0 if regression is None else regression.width for regression in hierarchy.regressions
        ]
        self.slopes = [
            np.empty((self.room, width, free), np.float32)
            for width, free in zip(self.regressed, widths, strict=True)
        ]
        self.typical = [np.empty((self.room, free)) for free in widths]
        self.spread = [np.empty((self.room, free)) for free in widths]
        self.count = 0

    def offer(self, number: int, chain: Chain, pool: Threads) -> None:
        """Keep draw ``number`` if it is its turn: the last of each of ``room`` equal stretches."""
        if (number + 1) * self.room // self.total == number * self.room // self.total:
            return
        for side, kept in enumerate(self.sides):
            kept[:, self.count] = chain.free(side)
        self.factors[self.count] = chain.hyper.factors
        self.effects[self.count] = chain.hyper.effects
        self.intercept[self.count] = chain.hyper.intercept
        rng = sweep_generator(chain.key, OF_KEPT_SLOPES + chain.sweep)
        for side, slopes in enumerate(self.slopes):
            if self.regressed[side]:
                drawn = chain.drawn_slopes(side, pool, rng)
                slopes[self.count] = drawn
                typical, spread, pattern = chain.target.unknown(side, drawn)
                self.typical[side][self.count], self.spread[side][self.count] = typical, spread
                silent = chain.target.silent[side]
                noise = rng.standard_normal((len(silent), drawn.shape[1]))
                more = typical + noise * np.sqrt(pattern)
                self.sides[side][silent, self.count] += more.astype(np.float32)
        self.count += 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is kept so far, by name."""
        arrays: dict[str, NDArray[Any]] = {
            "rows": self.sides[0][:, : self.count],
            "columns": self.sides[1][:, : self.count],
            "factors": self.factors[: self.count],
            "effects": self.effects[: self.count],
            "intercept": self.intercept[: self.count],
        }
        for side, name in enumerate(MEMBERS):
            if self.regressed[side]:
                arrays[f"{name}_slopes"] = self.slopes[side][: self.count]
                arrays[f"{name}_typical"] = self.typical[side][: self.count]
                arrays[f"{name}_spread"] = self.spread[side][: self.count]
        return arrays

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take up what ``arrays`` returned."""
        self.count = len(arrays["intercept"])
        for side, name in enumerate(SIDES):
            self.sides[side][:, : self.count] = arrays[name]
        for name in ("factors", "effects", "intercept"):
            getattr(self, name)[: self.count] = arrays[name]
        for side, name in enumerate(MEMBERS):
            if self.regressed[side]:
                self.slopes[side][: self.count] = arrays[f"{name}_slopes"]
                self.typical[side][: self.count] = arrays[f"{name}_typical"]
                self.spread[side][: self.count] = arrays[f"{name}_spread"]


class Sampler:
    """The state of a run: chains, what is kept, accumulated and watched."""

    def __init__(
        self,
        observations: Observations,
        posterior: Posterior,
        loss: Loss,
        temperature: float,
        plan: Plan,
        seed: int,
        pairs: tuple[Codes, Codes] | None = None,
        known: Known = NOTHING,
    ) -> None:
        self.plan = plan
        self.seed = seed
        self.target = Target.of(observations, posterior.hierarchy, loss, temperature, known)
        self.chains = [
            Chain.begin(self.target, posterior, seed, number) for number in range(plan.n_chains)
        ]
        self.pairs = pairs or (np.empty(0, np.int32), np.empty(0, np.int32))
        self.sums = np.zeros((3, len(self.pairs[0])))
        self.kept = _Kept(plan, posterior)
        self.watched = _Watched(observations, loss, seed)
        self.values = np.empty((plan.n_chains, plan.n_samples, len(self.watched.names)))
        self.sweep = 0
        self.draws = 0
        self.settled = False

    def run(
        self,
        pool: Threads,
        callback: Callable[[Progress], None] | None = None,
        journal: checkpoint.Descent | None = None,
    ) -> Sampled:
        """Sample until the plan is fulfilled or the functionals have settled."""
        plan = self.plan
        while self.sweep < plan.sweeps and not self.settled:
            self.sweep += 1
            for chain in self.chains:
                chain.step(pool)
            since = self.sweep - plan.n_burn_in
            if since > 0 and since % plan.n_thin == 0:
                self._record(pool)
                look = plan.settle is not None and self.draws % _LOOK_EVERY == 0
                look = look and self.draws >= plan.n_least
                self.settled = look and self.diagnostics().settled(plan.settle or 0.0)
            if callback is not None:
                loss = float(self.watched.values(self.chains[0])[0])
                callback(SweepProgress(self.sweep, plan.sweeps, loss))
            if journal is not None:
                journal.offer(self.state)
        # The draws hold the slopes themselves: what the prior of the slopes is, nobody asks any more.
        plain = replace(self.target.hierarchy, regressions=(None, None))
        return Sampled(
            Draws(**self.kept.arrays(), hierarchy=plain, seed=self.seed),
            self.diagnostics(),
            self._averages(),
            self.sweep,
            self.settled,
        )

    def diagnostics(self) -> Diagnostics:
        """Return the functionals so far."""
        return Diagnostics(self.watched.names, self.values[:, : self.draws])

    def _record(self, pool: Threads) -> None:
        for number, chain in enumerate(self.chains):
            self.kept.offer(self.draws * self.plan.n_chains + number, chain, pool)
            self.values[number, self.draws] = self.watched.values(chain)
            if len(self.pairs[0]):
                scores = chain.scores(*self.pairs)
                self.sums += scores, scores**2, expit(scores)
        self.draws += 1

    def _averages(self) -> Averages:
        mean, square, chance = self.sums / max(self.draws * self.plan.n_chains, 1)
        return Averages(mean, np.maximum(square - mean**2, 0.0), chance)

    def state(self) -> checkpoint.State:
        """Return everything that the chains need to go on, as arrays and JSON."""
        tensors = {f"kept.{name}": array for name, array in self.kept.arrays().items()}
        tensors |= {"sums": self.sums, "values": self.values[:, : self.draws]}
        tensors["pairs"] = np.stack(self.pairs)
        for number, chain in enumerate(self.chains):
            tensors |= chain.state(f"chain.{number}")
        return tensors, {"sweep": self.sweep, "draws": self.draws, "settled": self.settled}

    def restore(self, tensors: dict[str, NDArray[Any]], content: dict[str, Any]) -> None:
        """Take up what ``state`` returned, checked."""
        if not np.array_equal(tensors["pairs"], np.stack(self.pairs)):
            raise checked.FileError(
                "the checkpoint is of a fit that was asked to predict other pairs (predict_for); delete "
                "it to start anew, or ask for the same"
            )
        plan, array = self.plan, checked.checked_array
        self.sweep = checked.whole(content, "sweep", 0, plan.sweeps)
        draws = max(self.sweep - plan.n_burn_in, 0) // plan.n_thin
        self.draws = checked.whole(content, "draws", draws, draws)
        self.settled = checked.flag(content, "settled")
        self.sums = array(tensors, "sums", np.float64, self.sums.shape).copy()
        shape = (plan.n_chains, self.draws, len(self.watched.names))
        self.values[:, : self.draws] = array(tensors, "values", np.float64, shape)
        count = self.draws * plan.n_chains * self.kept.room // self.kept.total
        hierarchy = self.target.hierarchy
        self.kept.restore(checked_draws(tensors, "kept", hierarchy, self.kept.regressed, count))
        for number, chain in enumerate(self.chains):
            chain.restore(tensors, f"chain.{number}", self.sweep)


def sample(
    observations: Observations,
    posterior: Posterior,
    loss: Loss,
    temperature: float,
    plan: Plan,
    seed: int,
    pool: Threads,
    pairs: tuple[Codes, Codes] | None = None,
    callback: Callable[[Progress], None] | None = None,
    known: Known = NOTHING,
    journal: checkpoint.Descent | None = None,
) -> Sampled:
    """Sample the exact posterior, starting from a variational one.

    Parameters
    ----------
    observations : Observations
        The answers.
    posterior : Posterior
        Where the chains start, and the prior.
    loss : Loss
        The logistic or the hinge loss.
    temperature : float
        ``lambda / n``.
    plan : Plan
        How long, and what to keep.
    seed : int
        The chains depend on it and on nothing else: not on threads, not on interruptions.
    pool : Threads
        Where rows are shared out.
    pairs : two arrays of codes, optional
        Pairs whose averages are accumulated over every draw.
    callback : callable, optional
        Called with a ``Progress`` record after every sweep; its objective is the present loss.
    known : Known
        What is known of rows and columns.
    journal : checkpoint.Descent, optional
        Where the chains leave their state, and an earlier run may have left it.
    """
    sampler = Sampler(observations, posterior, loss, temperature, plan, seed, pairs, known)
    if journal is not None:
        journal.found(sampler.restore)
    sampled = sampler.run(pool, callback, journal)
    if journal is not None:
        journal.keep(sampler.state())
    return sampled
