"""The sampler: chains side by side, sweep after sweep, and what is kept of them.

Memory does not grow with the number of draws. Pairs that are asked for beforehand have their averages
accumulated over every draw; of the factors, draws are kept evenly spaced, as many as averages and tails
need and as fit a stated number of bytes.

A run that may settle goes in stretches, each twice as long as the one before; the last takes what is
left. Only that one counts: where chains are still on their way, what they passed through is left behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from onebit.data import checked
from onebit.data.observations import Observations
from onebit.engine import checkpoint
from onebit.engine.cpu.threads import Threads, Turn, threads
from onebit.engine.crew import Progress
from onebit.engine.known import NOTHING, Known
from onebit.engine.sampling.chain import Chain
from onebit.engine.sampling.kept import Kept
from onebit.engine.sampling.lines import ALONE, Place, on_threads
from onebit.engine.sampling.plan import Plan
from onebit.engine.sampling.target import Target
from onebit.engine.sampling.watched import Watched
from onebit.model.calibration import CERTAINTY
from onebit.model.diagnostics import LOSS_ERROR, Diagnostics
from onebit.model.draws import Draws, checked_draws
from onebit.model.losses import LOGISTIC, Loss
from onebit.model.posterior import Posterior

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

# Looks at whether chains have settled are taken after every eighth of the second half of a stretch, and
# not before so many draws of a chain.
_QUARTERS, _LOOKS, _FEWEST_BEFORE_LOOK = 4, 8, 40


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

    ``settled`` says whether it stopped because it had settled; ``loss_error`` is the Monte Carlo error of
    the log-loss of its answers, and ``n_draws`` the number of draws of all chains that averages are over.
    """

    draws: Draws
    diagnostics: Diagnostics
    averages: Averages
    n_sweeps: int
    n_draws: int
    settled: bool
    loss_error: float


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
        pool: Threads | None = None,
        place: Place | None = None,
        own: Sequence[Threads] = (),
    ) -> None:
        self.plan = plan
        pool = pool or ALONE
        # Chains side by side, each on one thread of the pool or, where these are more, on its own share
        # of threads, in turns but for the long passes. On another device they go one after the other.
        abreast = place is None and plan.n_chains > 1
        self.pool = pool if abreast else ALONE
        self.turn = Turn()
        parts = [part.in_turns(self.turn) for part in own or [ALONE] * plan.n_chains if abreast]
        places = [on_threads(part) for part in parts] or [place or on_threads(pool)] * plan.n_chains
        self.seed = seed
        self.target = Target.of(observations, posterior.hierarchy, loss, temperature, known)
        self.chains = [
            Chain.begin(self.target, posterior, seed, number, places[number], pool)
            for number in range(plan.n_chains)
        ]
        self.watched = Watched(self.chains[0].lines, observations.shape, observations.n, loss, seed)
        self.pairs = pairs or (np.empty(0, np.int32), np.empty(0, np.int32))
        self.sums = np.zeros((3, len(self.pairs[0])))
        self.chances = np.zeros((plan.n_chains, _QUARTERS, len(self.watched.sign)))
        self.kept = Kept(plan, posterior, self.chains[0].lines)
        self.kept_chances = np.zeros(len(self.watched.sign))
        # The chances of what is watched in the present draw of each chain.
        self._seen = np.zeros((plan.n_chains, len(self.watched.sign)))
        self.values = np.empty((plan.n_chains, plan.n_samples, len(self.watched.names)))
        self.sweep = 0
        self.draws = 0
        self.settled = False

    def run(
        self,
        callback: Callable[[Progress], None] | None = None,
        journal: checkpoint.Descent | None = None,
    ) -> Sampled:
        """Sample until the plan is fulfilled or the functionals have settled."""
        plan = self.plan
        while self.sweep < plan.sweeps and not self.settled:
            self.sweep += 1
            since = self.sweep - plan.n_burn_in
            drawn = since > 0 and since % plan.n_thin == 0
            step = self._step_and_look if drawn else self._step
            self.pool.each(step, plan.n_chains)
            if drawn:
                self._record()
                self.settled = self._has_settled()
            if callback is not None:
                loss = self.watched.mean_loss(self.watched.margins(self.chains[0])[0])
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
            (self.draws - self.stretch[0]) * plan.n_chains,
            self.settled,
            self.loss_error() + self._lost_by_keeping_few(),
        )

    @property
    def stretch(self) -> tuple[int, int]:
        """The stretch that the last draw is in."""
        return self.plan.stretch(max(self.draws - 1, 0))

    def diagnostics(self) -> Diagnostics:
        """Return the functionals of the present stretch."""
        return Diagnostics(self.watched.names, self.values[:, self.stretch[0] : self.draws])

    def _quarter(self, draw: int) -> int:
        """Return the quarter of its stretch that a draw is in."""
        begin, end = self.plan.stretch(draw)
        return (draw - begin) * _QUARTERS // (end - begin)

    def loss_error(self) -> float:
        """Return by how much endlessly many draws would lower the expected log-loss of all these.

        From batch means: chains and quarters of the stretch make batches, and chains alone, since the
        quarters of a chain that has not mixed resemble each other. The mean probability of an answer is
        closer to the limit than those of the batches, by their number less one: what these lose against
        it (a divergence, averaged over the places of the watched answers) says how close.
        """
        quarters = self.chances[:, : self._quarter(max(self.draws - 1, 0)) + 1]
        few = quarters.shape[0] * quarters.shape[1] < 2
        few |= self.draws - self.stretch[0] < _FEWEST_BEFORE_LOOK
        if few or self.watched.loss is not LOGISTIC:  # others have no probabilities yet
            return math.nan
        sizes = self._batch_sizes().reshape(quarters.shape[:2])
        found = [_lost_by_batches((quarters / sizes[..., None]).reshape(-1, quarters.shape[-1]))]
        if len(quarters) > 1:
            found.append(_lost_by_batches(quarters.sum(axis=1) / sizes.sum(axis=1)[:, None]))
        return max(found)

    def _lost_by_keeping_few(self) -> float:
        """Return what predictions from the kept draws lose against those from all."""
        if not self.kept.count or self.watched.loss is not LOGISTIC:
            return 0.0
        every = self.chances.sum(axis=(0, 1)) / self._batch_sizes().sum()
        return _divergence(every, self.kept_chances / self.kept.count)

    def _batch_sizes(self) -> Array:
        begin = self.stretch[0]
        quarters = [self._quarter(draw) for draw in range(begin, self.draws)]
        return np.tile(np.bincount(quarters), self.plan.n_chains).astype(float)

    def _has_settled(self) -> bool:
        """Look at whether the chains have settled, if it is time to."""
        plan, (begin, end) = self.plan, self.stretch
        done, length = self.draws - begin, end - begin
        if plan.settle is None or done < min(_FEWEST_BEFORE_LOOK, length):
            return False
        looks, before = done * _LOOKS // length, (done - 1) * _LOOKS // length
        if looks == before or 2 * looks < _LOOKS:
            return False
        if plan.settle == "auto":
            # Other losses have no probabilities yet.
            precise = self.watched.loss is not LOGISTIC or self.loss_error() <= LOSS_ERROR
            return precise and self.diagnostics().mixed()
        return self.diagnostics().settled(float(plan.settle))

    def _step(self, number: int) -> None:
        with self.turn:
            self.chains[number].step()

    def _step_and_look(self, number: int) -> None:
        """Make a sweep of one chain, and write what is watched of its draw into places of its own."""
        chain = self.chains[number]
        with self.turn:
            chain.step()
            margins, scores = self.watched.margins(chain)
            self.values[number, self.draws] = self.watched.values(chain, margins, scores)
            self._seen[number] = expit(margins)

    def _record(self) -> None:
        """Sum up and keep the draws of all chains, in order."""
        begin, end = self.plan.stretch(self.draws)
        if self.draws == begin:
            self.sums[:], self.chances[:], self.kept.count = 0.0, 0.0, 0
            self.kept_chances[:] = 0.0
        self.chances[:, self._quarter(self.draws)] += self._seen
        for number, chain in enumerate(self.chains):
            if self.kept.offer(number, self.draws - begin, end - begin, chain):
                self.kept_chances += self._seen[number]
            if len(self.pairs[0]):
                scores = chain.scores(*self.pairs)
                self.sums += scores, scores**2, expit(scores)
        self.draws += 1

    def _averages(self) -> Averages:
        mean, square, chance = self.sums / max((self.draws - self.stretch[0]) * self.plan.n_chains, 1)
        return Averages(mean, np.maximum(square - mean**2, 0.0), chance)

    def state(self) -> checkpoint.State:
        """Return everything that the chains need to go on, as arrays and JSON."""
        tensors = {f"kept.{name}": array for name, array in self.kept.arrays().items()}
        tensors |= {"sums": self.sums, "values": self.values[:, : self.draws]}
        tensors |= {"chances": self.chances, "kept_chances": self.kept_chances}
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
        self.chances = array(tensors, "chances", np.float64, self.chances.shape, least=0).copy()
        self.kept_chances = array(
            tensors, "kept_chances", np.float64, self.kept_chances.shape, least=0
        ).copy()
        shape = (plan.n_chains, self.draws, len(self.watched.names))
        self.values[:, : self.draws] = array(tensors, "values", np.float64, shape)
        begin, end = self.stretch
        count = self.kept.kept_of_all(self.draws - begin, end - begin)
        hierarchy = self.target.hierarchy
        self.kept.restore(checked_draws(tensors, "kept", hierarchy, self.kept.regressed, count))
        for number, chain in enumerate(self.chains):
            chain.restore(tensors, f"chain.{number}", self.sweep)


def _divergence(mean: Array, chances: Array) -> float:
    """Return what the log-loss of some probabilities has above that of ``mean``, if this is right."""
    mean, chances = (np.clip(part, CERTAINTY, 1.0 - CERTAINTY) for part in (mean, chances))
    lost = mean * np.log(mean / chances) + (1.0 - mean) * np.log((1.0 - mean) / (1.0 - chances))
    return float(lost.mean())


def _lost_by_batches(chances: Array) -> float:
    """Return what the mean of batches has above its limit, by what the batches have above their mean."""
    return _divergence(chances.mean(axis=0), chances) / (len(chances) - 1)


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
    place: Place | None = None,
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
    place : callable, optional
        Where lines are walked, if not on the threads of the pool; see ``sampling.lines``.
    """
    chains = plan.n_chains
    shared = place is None and 1 < chains < pool.count
    shares = [pool.count // chains + (number < pool.count % chains) for number in range(chains)]
    with ExitStack() as stack:
        own = [stack.enter_context(threads(share)) for share in shares if shared]
        sampler = Sampler(
            observations, posterior, loss, temperature, plan, seed, pairs, known, pool, place, own
        )
        if journal is not None:
            journal.found(sampler.restore)
        sampled = sampler.run(callback, journal)
    if journal is not None:
        journal.keep(sampler.state())
    return sampled
