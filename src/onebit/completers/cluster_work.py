"""One fit on a cluster, from blocks of answers to what a model keeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.certificates.hold_out import HeldOut
from onebit.completers.holding_out import held_size, hold_out_key
from onebit.completers.predictions import Codes
from onebit.data.holding import Cut
from onebit.data.holding import Taken as TakenOut
from onebit.data.ids import IdIndex
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS
from onebit.engine import scoring
from onebit.engine.cluster.blocks import Blocks
from onebit.engine.cluster.client import PATIENCE
from onebit.engine.cluster.fitting import ClusterFit, fit_on
from onebit.engine.cluster.intake import MOST_BLOCKS, Taken
from onebit.engine.cluster.journal import Journal
from onebit.engine.cluster.outcome import Outcome
from onebit.engine.crew import Callback
from onebit.engine.descent import Fit
from onebit.engine.fitting import SMALLEST_CALIBRATION, Fitted, calibration_share
from onebit.engine.recipe import Recipe
from onebit.engine.seeds import generator
from onebit.model.calibration import Calibration, fit_calibration, natural_calibration
from onebit.model.losses import HINGE
from onebit.model.posterior import Posterior

# AutoCompleter searches on about so many answers.
SAMPLE_ANSWERS = 1_000_000


@dataclass(frozen=True)
class Wanted:
    """What a fit on a cluster was asked for, besides the model."""

    certify: float | None = None
    callback: Callback | None = None
    checkpoint: str | os.PathLike[str] | None = None
    patience: float = PATIENCE
    blocks: int | None = None

    def check(self, weighted: bool) -> None:
        """Refuse what cannot be, before anything is read."""
        whole = isinstance(self.blocks, (int, np.integer)) and not isinstance(self.blocks, bool)
        if self.blocks is not None and not (whole and 1 <= self.blocks <= MOST_BLOCKS):
            raise ValueError(
                f"blocks must be a whole number from 1 to {MOST_BLOCKS}, or None; got {self.blocks!r}"
            )
        seconds = self.patience
        if not isinstance(seconds, (int, float)) or not 0 < seconds < 1e9:
            raise ValueError(f"patience must be a positive number of seconds, got {self.patience!r}")
        if self.certify is not None:
            held_size(10**12, weighted, self.certify)


def check_recipe(recipe: Recipe) -> None:
    """Refuse what does not run on a cluster, with the reason."""
    refused = {
        'inference="sampling"': recipe.sampling is not None,
        'covariance="diagonal"': not recipe.full and not recipe.paper,
        'method="paper"': recipe.paper,
        f"sparse={recipe.sparse!r}": recipe.sparse is not None,
        f"n_init={recipe.n_init}": recipe.n_init > 1,
    }
    reasons = {
        'inference="sampling"': "draws of all rows would have to be kept and moved",
        'covariance="diagonal"': "the states that travel are those of full covariances",
        'method="paper"': "Algorithm 1 walks through all answers in one place",
    }
    for name, found in refused.items():
        if found:
            why = reasons.get(name, "it needs all rows in one place")
            raise ValueError(f"{name} does not run on a cluster: {why}; leave it out")


class _Scores(NamedTuple):
    """Held-out answers of a block and what is predicted of them."""

    taken: TakenOut
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


def _moments(taken: TakenOut, posterior: Posterior) -> _Scores:
    return _Scores(taken, *scoring.score_moments(posterior, taken.rows, taken.columns, 1))


def named_indexes(
    side: int, names: tuple[str, ...], own: pd.Index, other: pd.Index
) -> tuple[IdIndex, IdIndex]:
    """Return the indexes of rows and columns, from the ids of the divided side and of the other one."""
    mine = IdIndex(own.rename(names[side]), MEMBERS[side])
    theirs = IdIndex(other.rename(names[1 - side]), MEMBERS[1 - side])
    return (mine, theirs) if side == 0 else (theirs, mine)


@dataclass(frozen=True)
class Done:
    """A fit on a cluster: what makes of it what a model keeps, and where everything is."""

    keep: Callable[[Fitted], Any]
    calibration: Calibration | None
    descent: ClusterFit
    outcome: Outcome
    fitted: Blocks
    held: list[Any] | None

    @property
    def course(self) -> tuple[float, NDArray[np.float64], int, bool, float]:
        """What a ``Fit`` has besides its posterior."""
        found = self.descent
        return found.objective, found.path, found.n_iter, found.converged, found.divergence


class Work:
    """One fit on a cluster, from blocks to a fitted model."""

    def __init__(self, model: Any, taken: Taken, wanted: Wanted) -> None:
        self.model, self.taken, self.wanted = model, taken, wanted
        self.blocks, self.cluster = taken.blocks, taken.blocks.cluster
        self.rng = generator(getattr(model, "random_state", None))

    def done(self) -> Done:
        """Hold out, and fit."""
        model, share, held = self.model, self.wanted.certify, None
        fitted = self.blocks
        if share is not None:
            size = held_size(self.blocks.n, self.blocks.weighted, share)
            if size:
                key = hold_out_key(getattr(model, "random_state", None))
                cut = self.blocks.cut(self.taken.labels, size, key)
                fitted, held = self.blocks.divided(self.taken.labels, cut)
        callback = model._reporting(self.wanted.callback)
        # A model that runs on clusters says by which recipe, and what makes what is kept of a fit. It may
        # ask for some of the answers, which are brought to this machine then.
        recipe, keep = model._on_cluster(lambda: self._sample(fitted), fitted.n, callback)
        check_recipe(recipe)
        calibration, descent = self._descended(recipe, fitted, callback)
        return Done(keep, calibration, descent, Outcome(descent, fitted), fitted, held)

    def bring_home(self) -> list[str]:
        """Fit, and make the model an ordinary one on this machine; return what to warn of."""
        done = self.done()
        labels, order, starts = done.outcome.labels()
        posterior = done.outcome.posterior(order)
        found = done.keep(Fitted(Fit(posterior, *done.course), done.calibration))
        side, names, others = self.blocks.side, self.taken.names, self.taken.others.labels
        indexes = named_indexes(side, names, labels[order], others)
        self.model._know_from_cluster(found, *indexes, self.taken.classes, self.blocks.n)
        if done.held is not None:
            place = np.empty(len(order), dtype=np.int32)
            place[order] = np.arange(len(order), dtype=np.int32)
            curve = self.model.predictor_.curve
            self.model.held_out_ = self.counted(done, curve, place, starts)
        return found.advice

    def _descended(
        self, recipe: Recipe, blocks: Blocks, callback: Callback | None
    ) -> tuple[Calibration | None, ClusterFit]:
        """Descend; a hinge fit that is to be calibrated, on nine tenths of the answers first."""
        if recipe.loss is not HINGE:
            return None, fit_on(recipe, blocks, self.rng, Journal(blocks, "fit"), None, callback)
        # A generator for each descent: one that goes on from a checkpoint draws no start.
        rngs, key = self.rng.spawn(2), int(self.rng.integers(2**31 - 1))
        start, calibration = None, natural_calibration(recipe.temperature)
        share = calibration_share(blocks.n)
        if recipe.calibrate and blocks.n * share >= SMALLEST_CALIBRATION:
            cut = Cut(key, np.uint64(int(share * 2.0**64)), whole=True)
            others, held = blocks.divided(self.taken.labels, cut)
            first = fit_on(recipe, others, rngs[0], Journal(others, "first"), None, callback)
            scores = Outcome(first, others).scored(held, _moments, "calibrate")
            mean = np.concatenate([part.mean for part in scores])
            variance = np.concatenate([part.variance for part in scores])
            sign = np.concatenate([part.taken.sign for part in scores])
            if len(sign) >= SMALLEST_CALIBRATION:
                weights = [part.taken.weight for part in scores]
                weight = np.concatenate(weights) if blocks.weighted else None
                calibration, start = fit_calibration(mean, variance, sign, weight), first.states
        fit = fit_on(recipe, blocks, rngs[1], Journal(blocks, "fit"), start, callback)
        return calibration, fit

    def counted(self, done: Done, curve: Any, place: Codes, starts: NDArray[np.int64]) -> HeldOut:
        """Count what became of the held-out answers; ``place`` is the code of each member of blocks."""
        outcome, fitted, held = done.outcome, done.fitted, done.held
        assert held is not None
        side = fitted.side
        scores = outcome.scored(held, _moments, "score-held-out")
        taken = [part.taken for part in scores]
        own = np.concatenate(
            [place[starts[k] + (part.columns if side else part.rows)] for k, part in enumerate(taken)]
        )
        other = np.concatenate([part.rows if side else part.columns for part in taken])
        rows, columns = (own, other) if side == 0 else (other, own)
        mean = np.concatenate([part.mean for part in scores])
        variance = np.concatenate([part.variance for part in scores])
        sign = np.concatenate([part.sign for part in taken])
        fitted_too = np.concatenate([part.fitted_too for part in taken])
        # Which rows and columns have fitted answers besides.
        counted = self.cluster.result(outcome.other_counts, "counting answers")
        answered = np.concatenate(
            [part > 0 for part in self.cluster.results(outcome.own_counts, "counting answers")]
        )
        by_code = np.empty(len(answered), dtype=bool)
        by_code[place] = answered
        still_open = by_code[own] & (counted > 0)[other] & ~fitted_too
        probability = scoring.probabilities(curve, mean, variance, "cpu")
        confidence = np.where(mean > 0, probability, 1.0 - probability)
        shape = self.blocks.shape
        return HeldOut.count(
            confidence, mean, sign, rows, columns, fitted_too, still_open,
            commoner=fitted.commoner,
            blanks=shape[0] * shape[1] - sum(part.entries for part in taken),
        )  # fmt: skip

    def _sample(self, blocks: Blocks) -> Observations:
        """Bring the answers of some rows to this machine, all of each: about a million."""
        side, chosen, n = blocks.side, [], 0
        for future, facts in zip(blocks.futures, blocks.facts, strict=True):
            if n and n + facts.n > SAMPLE_ANSWERS:
                break
            chosen.append(future)
            n += facts.n
        parts = self.cluster.results(chosen, "collecting a sample")
        labels = parts[0].labels.append([part.labels for part in parts[1:]])
        own = IdIndex(labels, MEMBERS[side])
        other = self.taken.others
        begin, codes = 0, []
        for part in parts:
            found = part.seen.entries(np.arange(part.seen.n))
            mine = (found.columns if side else found.rows) + np.int32(begin)
            codes.append((mine, found.rows if side else found.columns, found.sign, found.weight))
            begin += len(part.labels)
        mine, theirs, sign = (np.concatenate([part[k] for part in codes]) for k in range(3))
        weight = np.concatenate([part[3] for part in codes]) if blocks.weighted else None
        rows, columns = ((own, mine), (other, theirs))[:: -1 if side else 1]
        return Observations.from_codes(
            rows[0], columns[0], rows[1], columns[1], sign, weight, self.taken.classes
        )
