"""Answers that are held out: which, what is left, and how the two overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onebit.data.observations import Observations

Codes = NDArray[np.int32]
Marks = NDArray[np.bool_]


class Cut(NamedTuple):
    """What was held out, in two numbers: those whose hashes with this key are at most ``last``."""

    key: int
    last: np.uint64


class Taken(NamedTuple):
    """Answers that were taken out of others, one by one.

    Their codes and signs, whether their entry has another answer left, and whether no entry was answered
    twice before.
    """

    rows: Codes
    columns: Codes
    sign: NDArray[np.int8]
    fitted_too: Marks
    distinct: bool


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
    distinct : bool
        Whether no entry is answered twice, in all.
    commoner : int
        The commoner of the fitted answers, -1 or 1.
    cut : Cut
        From which the choice can be made again.
    """

    fitted: Observations
    held: Held
    distinct: bool
    commoner: int
    cut: Cut


def divided(observations: Observations, size: int, key: int) -> Division:
    """Hold the ``size`` answers with the smallest hashes out."""
    hashes = observations.hashes(key)
    last = np.partition(hashes, size - 1)[size - 1]
    fitted, taken = taken_out(observations, hashes <= last)
    rows, columns, sign, fitted_too, distinct = taken
    known = (fitted.by_row.counts > 0)[rows] & (fitted.by_column.counts > 0)[columns]
    yes = int((fitted.by_row.sign > 0).sum())
    return Division(
        fitted,
        Held(rows, columns, sign, fitted_too, known & ~fitted_too),
        distinct,
        1 if 2 * yes > fitted.n else -1,
        Cut(key, last),
    )


def taken_out(observations: Observations, held: Marks) -> tuple[Observations, Taken]:
    """Take marked answers (in row order) out of all: return what is left, and those."""
    fitted = observations.take(~held)
    rows, columns, sign, _ = observations.entries(held)
    entry = observations.entry_numbers()  # in order, so that repeats stand side by side
    first = np.ones(len(entry), dtype=bool)
    first[1:] = entry[1:] != entry[:-1]
    group = np.cumsum(first) - 1
    fitted_too = (np.bincount(group[~held], minlength=int(first.sum())) > 0)[group[held]]
    return fitted, Taken(rows, columns, sign, fitted_too, bool(first.all()))
