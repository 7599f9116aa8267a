"""Certificates for rows that are not in the table yet, by how many answers they give.

``fit(..., certify_rows=0.1)`` holds whole rows out. Of each, ``n`` answers drawn at random are folded
into the fitted model, which then predicts the others; the share of these that is wrong is a number
between 0 and 1. Rows are independent draws of the people (or things) that will come, so these shares are
too, whatever goes on inside a row, and their mean is bounded by betting. The answers of one row are not
independent of each other, and are not counted as if they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from onebit.certificates.betting import betting_upper_bound, shuffled
from onebit.certificates.hold_out import check_hold_out_delta
from onebit.certificates.statements import TIES, at_most, confidence

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# How many answers new rows give.
GIVEN = (0, 1, 2, 5, 10, 20, 50)
# One of each for every held-out row.
ROW_COUNTS = ("judged", "wrong", "commoner")
ASSUMPTIONS = (
    "new rows are independent draws of those that the held-out rows were drawn from, and answer in the "
    "same way",
    "a new row gives so many answers drawn at random from its own, and has more than these: each line "
    "speaks of rows that have, and of entries that they have not answered before",
    "what else is known of a new row, its features, is known as it was of the held-out rows",
    "the held-out rows were chosen at random and used for nothing but this count",
    TIES,
)


@dataclass(frozen=True)
class NewRow:
    """What is certified of new rows that give ``given`` answers.

    Attributes
    ----------
    given : int
        Answers that a new row gives.
    rows : int
        Held-out rows that had more.
    bound : float
        Of the other answers of a new row, the share that is predicted wrong is at most this on average
        over such rows; one where there are too few rows.
    observed, commoner : float
        That share, on average over the held-out rows; and with always the commoner answer.
    """

    given: int
    rows: int
    bound: float
    observed: float
    commoner: float

    @property
    def said(self) -> str:
        """What is certified, in words."""
        if self.bound >= 1.0:
            return "nothing can be said"
        more = "" if self.bound < self.commoner else ", no lower than always the commoner answer"
        return f"at most {at_most(self.bound)} wrong{more}"


@dataclass(frozen=True)
class NewRowsCertificate:
    """Bounds for new rows, by how many answers they give, which all hold at once."""

    lines: tuple[NewRow, ...]
    delta: float
    assumptions: tuple[str, ...] = ASSUMPTIONS

    def table(self) -> pd.DataFrame:
        """Return one line for each number of answers given."""
        return pd.DataFrame([vars(line) for line in self.lines]).rename(
            columns={"bound": "error_at_most"}
        )

    @property
    def heading(self) -> str:
        """What holds of all lines."""
        return (
            f"With probability {confidence(self.delta)}, on average over new rows that come like the "
            "held-out ones and have more answers than they give, of the predictions of their other "
            "answers, all of these at once:"
        )

    def brief(self) -> str:
        """Return the lines without what they assume."""
        lines = [self.heading]
        for line in self.lines:
            many = f"{line.given} answer{'s' if line.given != 1 else ''}"
            lines.append(
                f"  after {many}: {line.said} (observed {line.observed:.1%} in {line.rows:,} held-out "
                f"rows with more; always the commoner answer {line.commoner:.1%})"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join([self.brief(), *(f"  assumes: {text}" for text in self.assumptions)])


@dataclass(frozen=True)
class HeldRows:
    """What became of rows that were held out, one line a row, one column for each of ``given``.

    Attributes
    ----------
    given : tuple of int
        How many answers were folded in.
    judged, wrong, commoner : ndarray of int
        The other answers of each row, to entries that are not among those given (zero where it has no
        more than ``given``), those that were predicted wrong, and those that differ from the commoner
        answer.
    """

    given: tuple[int, ...]
    judged: Counts
    wrong: Counts
    commoner: Counts

    def observed(self) -> dict[int, float]:
        """Return the mean share of wrong predictions for each number of answers given, over the rows."""
        there = [k for k in range(len(self.given)) if self.judged[:, k].any()]
        return {self.given[k]: float(self._shares(self.wrong, k).mean()) for k in there}

    def _shares(self, counts: Counts, k: int, order: Any = slice(None)) -> Array:
        """Return the shares of what was counted, of the rows that have other answers."""
        judged = self.judged[order, k]
        return counts[order, k][judged > 0] / judged[judged > 0]

    def certify(self, delta: float, given: int | None = None) -> NewRowsCertificate:
        """Bound the mean share of wrong predictions for each number of answers given, all at once.

        ``given``: for one number alone, chosen before looking, which then has the whole ``delta``.
        """
        check_hold_out_delta(delta)
        if given is not None and given not in self.given:
            raise ValueError(
                f"given is a number of answers that was tried, one of {list(self.given)}; got {given!r}"
            )
        wanted = [k for k, number in enumerate(self.given) if given in (None, number)]
        order = shuffled(self.judged, self.wrong, self.commoner)
        lines = []
        for k in wanted:
            if not self.judged[:, k].any():
                continue
            wrong, other = (self._shares(part, k, order) for part in (self.wrong, self.commoner))
            bound = betting_upper_bound(wrong, delta / len(wanted))
            lines.append(
                NewRow(self.given[k], len(wrong), bound, float(wrong.mean()), float(other.mean()))
            )
        return NewRowsCertificate(tuple(lines), delta)
