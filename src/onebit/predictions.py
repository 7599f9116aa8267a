"""What is predicted of pairs, and the answers that stand behind a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from onebit.observations import Observations

Array = NDArray[np.float64]
Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Answers:
    """The answers of a fit that may be certified: all, which of them were held out, and the others."""

    everything: Observations
    held: NDArray[np.bool_]
    fitted: Observations


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


def entry_numbers(seen: Observations) -> NDArray[np.int64]:
    """Return one number for the entry of each answer, in the order of the view by rows."""
    return seen.by_row.owners() * np.int64(seen.shape[1]) + seen.by_row.index


def table_blocks(rows: Codes, columns: Codes) -> Iterator[tuple[Codes, tuple[Codes, Codes]]]:
    """Walk over a whole table: some row codes, and the pairs of codes of all their entries."""
    size = max(1, 2_000_000 // max(len(columns), 1))
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        yield block, (np.repeat(block, len(columns)), np.tile(columns, len(block)))
