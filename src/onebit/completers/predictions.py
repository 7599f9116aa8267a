"""What is predicted of pairs, and the answers that stand behind a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from onebit.data.holding import Cut
from onebit.data.observations import Observations

Array = NDArray[np.float64]
Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Answers:
    """The answers of a fit: all of them, and which were held out.

    Attributes
    ----------
    everything : Observations
        All answers.
    n_held : int
        How many of them were held out.
    cut : Cut or None
        Which: those with the smallest hashes.
    mask : ndarray of bool, optional
        Which, in row order, where the user or a file has said so.
    """

    everything: Observations
    n_held: int = 0
    cut: Cut | None = None
    mask: NDArray[np.bool_] | None = None

    @cached_property
    def held(self) -> NDArray[np.bool_]:
        """Which were held out, in row order."""
        if self.mask is not None:
            return self.mask
        if self.cut is None:
            return np.zeros(self.everything.n, dtype=bool)
        return self.cut.marks(self.everything)

    @cached_property
    def fitted(self) -> Observations:
        """The others."""
        return self.everything.take(~self.held) if self.n_held else self.everything


@dataclass(frozen=True)
class Predictions:
    """What is predicted of some pairs, one value a pair.

    Attributes
    ----------
    score, uncertainty : ndarray of float
        Mean and standard deviation of the score under the posterior.
    probability : ndarray of float
        The probability of "yes".
    decision : ndarray of float
        Its sign is the predicted answer, as ``decision_function`` returns it; zero is undecided.
    """

    score: Array
    uncertainty: Array
    probability: Array
    decision: Array

    @property
    def yes(self) -> NDArray[np.bool_]:
        """Whether the predicted answer is "yes"."""
        return self.decision > 0

    @property
    def confidence(self) -> Array:
        """The probability of the predicted answer."""
        return np.where(self.yes, self.probability, 1.0 - self.probability)

    def at(self, places: NDArray[np.int64]) -> Predictions:
        """Return those at some places."""
        return Predictions(*(getattr(self, part.name)[places] for part in fields(self)))


def table_blocks(rows: Codes, columns: Codes) -> Iterator[tuple[Codes, tuple[Codes, Codes]]]:
    """Walk over a whole table: some row codes, and the pairs of codes of all their entries."""
    size = max(1, 2_000_000 // max(len(columns), 1))
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        yield block, (np.repeat(block, len(columns)), np.tile(columns, len(block)))
