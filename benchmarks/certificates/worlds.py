"""Small worlds in which the error of any prediction is known.

Where entries come with repeats, the next answer is a fresh one to an entry drawn like the others. Where
every entry is answered at most once, all entries have their answer from the beginning, and some of them
are shown: errors are then counted and not expected, and the blanks have an error of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from onebit import LogisticCompleter, simulate
from onebit.completers.predictions import Predictions

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]

SHAPE, LARGER = (30, 30), (60, 50)
RANK = 2
# Of the entries, how many are answered: in most worlds, and where few blanks are left.
ANSWERED, NEARLY_ALL = 0.6, 0.92
# So many answers are wrong that the surest predictions err too: where nothing is wrong every bound holds.
# A bound on few blanks is tried where more are.
FLIP, MANY_FLIPPED = 0.2, 0.3
# Where entries come up again and again, each so often on average; how many of the answers are "yes".
TIMES, HEADS = 4, 0.4
ONCE, AGAIN, SKEWED = "once", "again", "skewed"
# Size of the effects and factors, and the average score, of a world in which some 6 % say "yes".
RARE_SPREAD, RARE = 2.0, -6.7
# Where people answer what they are sure of: the size of the scores, and the power of |score| with which
# an entry is answered.
CHOSEN_SPREAD, CHOOSINESS = 3.0, 1.5


@dataclass(frozen=True)
class Known:
    """What is seen of a world, and what is true of it; arrays have one value an entry, row by row.

    Attributes
    ----------
    pairs, answers : ndarray
        What is seen.
    weight : ndarray of float
        How likely each entry is to come next.
    yes : ndarray of float
        How likely the next answer to it is "yes": 0 or 1 where entries come once.
    once : bool
        Whether they do.
    shape : (int, int)
        Rows and columns.
    """

    pairs: NDArray[np.int64]
    answers: NDArray[np.int8]
    weight: Array
    yes: Array
    once: bool
    shape: tuple[int, int] = SHAPE

    @property
    def every(self) -> NDArray[np.int64]:
        """The pairs of all entries."""
        return np.stack(np.divmod(np.arange(len(self.weight)), self.shape[1]), axis=1)

    def wrong(self, decision: Array) -> Array:
        """Return how likely each prediction is wrong; one that is undecided is."""
        return np.where(decision == 0, 1.0, np.where(decision > 0, 1.0 - self.yes, self.yes))

    def blank(self) -> Marks:
        """Say which entries have no answer."""
        blank = np.ones(len(self.weight), dtype=bool)
        blank[self.pairs[:, 0] * self.shape[1] + self.pairs[:, 1]] = False
        return blank

    def outside(self, model: LogisticCompleter) -> Array:
        """Return the weights of the entries that a held-out certificate speaks of."""
        if not self.once:
            return self.weight
        fitted = model.kept_answers().fitted
        labels = [index.labels.to_numpy() for index in (model.rows_, model.columns_)]
        rows, columns = (side[codes] for side, codes in zip(labels, fitted_codes(fitted), strict=True))
        weight = self.weight.copy()
        weight[rows * self.shape[1] + columns] = 0.0
        return weight

    def predictions(self, model: LogisticCompleter) -> Predictions:
        """Return what a model predicts of every entry."""
        return model.predictions(*self.codes(model))

    def codes(self, model: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the codes that a model gives to the rows and the columns of every entry."""
        rows, columns = self.every.T
        return model.rows_.encode(rows), model.columns_.encode(columns)


def fitted_codes(seen: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row codes and column codes of answers."""
    return np.divmod(seen.entry_numbers(), seen.shape[1])


def rate(wrong: Array, weight: Array) -> float:
    """Return the error rate among the entries with these weights; none where there are none."""
    total = weight.sum()
    return float((weight * wrong).sum() / total) if total > 0 else 0.0


def papers(name: str, seed: int, how: str, answered: float = ANSWERED, flip: float = FLIP) -> Known:
    """Draw one of the paper's worlds."""
    once = how == ONCE
    world = simulate.world(
        name, RANK, SHAPE, density=1.0 if once else answered, seed=seed, flip=flip, repeats=not once,
        skew=1.0 if how == SKEWED else 0.0,
    )  # fmt: skip
    if once:
        # All answers come in random order; the first ones are seen.
        return _first(world.pairs, world.answers, answered, SHAPE)
    yes = world.chance_of_error(np.full(SHAPE, -1.0))
    return Known(world.pairs, world.answers, world.sampling.ravel(), yes.ravel(), once)


def rare(seed: int, how: str) -> Known:
    """Draw a world in which few answers are "yes"."""
    rng = np.random.default_rng(seed)
    rows, columns = LARGER
    effects = rng.standard_normal((rows, 1)) + rng.standard_normal(columns)
    return _logistic(RARE_SPREAD * (effects + _scores(rng, LARGER)) + RARE, None, how == ONCE, rng)


def coins(seed: int) -> Known:
    """Toss a coin for every answer to entries that come up again and again, and for the next one."""
    rng = np.random.default_rng(seed)
    size = SHAPE[0] * SHAPE[1]
    entries = rng.integers(size, size=TIMES * size)
    answers = np.where(rng.random(len(entries)) < HEADS, 1, -1).astype(np.int8)
    following = (rng.random(size) < HEADS).astype(float)
    pairs = np.stack(np.divmod(entries, SHAPE[1]), axis=1)
    return Known(pairs, answers, np.full(size, 1.0 / size), following, once=False)


def chosen(seed: int) -> Known:
    """Draw a world in which people answer what they are sure of."""
    rng = np.random.default_rng(seed)
    scores = CHOSEN_SPREAD * _scores(rng, SHAPE)
    weight = np.abs(scores).ravel() ** CHOOSINESS
    return _logistic(scores, weight / weight.sum(), False, rng)


def _scores(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.standard_normal((shape[0], RANK)) @ rng.standard_normal((RANK, shape[1]))


def _logistic(scores: Array, weight: Array | None, once: bool, rng: np.random.Generator) -> Known:
    """Answer entries with the probabilities that their scores are log-odds of."""
    yes, size, shape = expit(scores).ravel(), scores.size, scores.shape
    entries = rng.choice(size, size if once else round(ANSWERED * size), replace=not once, p=weight)
    pairs = np.stack(np.divmod(entries, shape[1]), axis=1)
    answers = np.where(rng.random(len(entries)) < yes[entries], 1, -1).astype(np.int8)
    if once:
        return _first(pairs, answers, ANSWERED, shape)
    weight = np.full(size, 1.0 / size) if weight is None else weight
    return Known(pairs, answers, weight, yes, once, shape)


def _first(
    pairs: NDArray[np.int64], answers: NDArray[np.int8], answered: float, shape: tuple[int, int]
) -> Known:
    """Show the first of all answers, which are in random order."""
    size = len(answers)
    yes = np.empty(size)
    yes[pairs[:, 0] * shape[1] + pairs[:, 1]] = answers > 0
    seen = slice(round(answered * size))
    return Known(pairs[seen], answers[seen], np.full(size, 1.0 / size), yes, True, shape)
