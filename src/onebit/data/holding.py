"""Answers that are held out: which, what is left, and how the two overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onebit.data.observations import Observations
from onebit.data.signs import check_same_way
from onebit.data.sorting import Entries

Codes = NDArray[np.int32]
Marks = NDArray[np.bool_]


class Cut(NamedTuple):
    """What was held out: those whose hashes with this key are at most ``last``.

    With ``whole``, all answers of the entries whose first answer is such.
    """

    key: int
    last: np.uint64
    whole: bool = False

    def marks(self, observations: Observations) -> Marks:
        """Mark what was held out of some answers, in row order."""
        held = observations.hashes(self.key) <= self.last
        return observations.by_entry(held) if self.whole else held


class Taken(NamedTuple):
    """Answers that were taken out of others, one by one.

    Their codes, signs and weights, whether their entry has another answer left, and how many entries were
    answered before.
    """

    rows: Codes
    columns: Codes
    sign: NDArray[np.int8]
    weight: NDArray[np.float32] | None
    fitted_too: Marks
    entries: int


@dataclass(frozen=True)
class Held:
    """Held-out answers one by one.

    Attributes
    ----------
    rows, columns, sign : ndarray
        Codes of the entry, and the answer.
    fitted_too : ndarray of bool
        Whether the same entry has a fitted answer as well.
    open : ndarray of bool
        Whether it has none, and its row and its column have fitted answers elsewhere.
    """

    rows: Codes
    columns: Codes
    sign: NDArray[np.int8]
    fitted_too: Marks
    open: Marks


@dataclass(frozen=True)
class Division:
    """Answers cut in two.

    Attributes
    ----------
    fitted : Observations
        Those that a model may see.
    held : Held
        The others.
    entries : int
        How many entries are answered, in all.
    commoner : int
        The commoner of the fitted answers, -1 or 1.
    cut : Cut or None
        From which the choice can be made again; None where the user has made it.
    """

    fitted: Observations
    held: Held
    entries: int
    commoner: int
    cut: Cut | None


def divided(observations: Observations, size: int, key: int) -> Division:
    """Hold the ``size`` answers with the smallest hashes out."""
    hashes = observations.hashes(key)
    last = np.partition(hashes, size - 1)[size - 1]
    return divided_by(observations, hashes <= last, Cut(key, last))


def divided_by(observations: Observations, marks: Marks, cut: Cut | None = None) -> Division:
    """Hold marked answers (in row order) out."""
    fitted, taken = taken_out(observations, marks)
    known = (fitted.by_row.counts > 0)[taken.rows] & (fitted.by_column.counts > 0)[taken.columns]
    held = Held(taken.rows, taken.columns, taken.sign, taken.fitted_too, known & ~taken.fitted_too)
    return Division(fitted, held, taken.entries, commoner(fitted), cut)


def commoner(observations: Observations) -> int:
    """Return the commoner answer, -1 or 1."""
    return 1 if 2 * int((observations.by_row.sign > 0).sum()) > observations.n else -1


def marked(loose: Observations, marks: Marks) -> tuple[Observations, Marks]:
    """Return unsorted answers, and the marks that each of them has in row order."""
    entries = loose.loose
    assert entries is not None
    # Weights take part in the sorting, so that repeats of an entry keep their own marks.
    heavy = entries._replace(weight=np.where(marks, 2.0, 1.0).astype(np.float32))
    view = Observations.from_loose(loose.rows, loose.columns, heavy).by_row
    return loose, view.weight > 1.5


def joined(observations: Observations, others: Observations) -> tuple[Observations, Marks]:
    """Return all of two tables' answers, and marks of the second one's, in row order.

    Ids that the first does not know are appended to its own.
    """
    rows, of_rows = observations.rows.joined(others.rows)
    columns, of_columns = observations.columns.joined(others.columns)
    if (of_rows >= len(observations.rows)).all() and (of_columns >= len(observations.columns)).all():
        raise ValueError(
            "the answers to hold out share no row and no column with the others (theirs are such as "
            f"{others.rows.labels[0]!r} and {others.columns.labels[0]!r}); are the two sides exchanged?"
        )
    check_same_way(observations.classes, others.classes, "the answers to hold out")
    first, second = (seen.in_any_order().on_host() for seen in (observations, others))
    both = Entries(
        np.concatenate([first.rows, of_rows[second.rows]]),
        np.concatenate([first.columns, of_columns[second.columns]]),
        np.concatenate([first.sign, second.sign]),
        None,
    )
    everything = Observations.from_loose(rows, columns, both, observations.classes)
    _refuse_what_is_there(first, both, observations.n, len(columns))
    told = [
        None if part is None else part.for_more(len(index))
        for part, index in zip(observations.features, (rows, columns), strict=True)
    ]
    return marked(everything.told((told[0], told[1])), np.arange(len(both.sign)) >= observations.n)


def _refuse_what_is_there(first: Entries, both: Entries, n: int, width: int) -> None:
    """Refuse to hold answers out that all stand among the others as well."""
    known, new = (
        (part.rows.astype(np.int64) * width + part.columns) * 2 + (part.sign > 0)
        for part in (first, Entries(both.rows[n:], both.columns[n:], both.sign[n:], None))
    )
    if np.isin(new, known).all():
        raise ValueError(
            f"each of the {len(new):,} answers to hold out stands among the answers to fit as well, and "
            "what was fitted certifies nothing; leave them out of the fit"
        )


def taken_out(observations: Observations, held: Marks) -> tuple[Observations, Taken]:
    """Take marked answers (in row order) out of all: return what is left, and those."""
    fitted = observations.take(~held)
    first = ~observations.again()
    entries, group = int(first.sum()), np.cumsum(first) - 1
    fitted_too = (np.bincount(group[~held], minlength=entries) > 0)[group[held]]
    return fitted, Taken(*observations.entries(held), fitted_too, entries)
