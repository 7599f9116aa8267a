"""The filled matrix, and lists of the likeliest blanks.

Known answers stay as they are; blanks get what the model predicts. An entry that was answered several
times counts with the share of "yes" among its answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pandas as pd
import psutil
from numpy.typing import NDArray

from onebit.completers.predictions import Answers, Codes, Predictions, table_blocks
from onebit.data.ids import IdIndex
from onebit.data.observations import Observations
from onebit.data.sides import MEMBERS
from onebit.data.sorting import View

OUTPUTS = ("probability", "answer", "score")
# Entries that are predicted at a time.
BLOCK = 500_000


# Names that a table of predictions has for other things.
TAKEN = (
    "rank", "answer", "probability", "score", "uncertainty", "confidence", "certified", "known",
    "answered",
)  # fmt: skip


class Filled(Protocol):
    """What filling a matrix asks of a fitted model."""

    rows_: IdIndex
    columns_: IdIndex
    classes_: NDArray[Any]
    _folded: list[tuple[Codes, Codes, NDArray[np.int8]]]

    def kept_answers(self) -> Answers:
        """Return the answers of the fit."""
        ...

    def predictions(self, rows: Codes, columns: Codes) -> Predictions:
        """Return everything predicted of pairs of codes."""
        ...

    def _scores(self, rows: Codes, columns: Codes) -> NDArray[np.float64]: ...

    def _decisions(self, rows: Codes, columns: Codes) -> NDArray[np.float64]: ...

    def _top_columns(self, rows: Codes, count: int, seen: View | None = None) -> Codes: ...


def id_names(model: Filled) -> tuple[str, str]:
    """Return what the two columns of ids are called in a table of predictions."""
    names = [index.labels.name for index in (model.rows_, model.columns_)]
    row, column = (
        name if isinstance(name, str) and name and name not in TAKEN else side
        for name, side in zip(names, ("row", "column"), strict=True)
    )
    return (row, column) if row != column else ("row", "column")


def check_output(output: str) -> None:
    """Refuse what a matrix cannot be filled with."""
    if output not in OUTPUTS:
        raise ValueError(f'output must be "probability", "answer" or "score", got {output!r}')


def known_observations(model: Filled) -> Observations:
    """Return the answers that a model knows: those it was fitted with, held out or folded in."""
    return with_later(model, model.kept_answers().everything)


def with_later(model: Filled, seen: Observations) -> Observations:
    """Return answers of the fit with those that came after it."""
    if not model._folded:
        return seen
    parts = [(seen.by_row.owners(), seen.by_row.index, seen.by_row.sign), *model._folded]
    rows, columns, sign = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    weight = None
    if seen.weighted:  # the later ones count once each
        weight = np.append(seen.by_row.weight, np.ones(len(sign) - seen.n, np.float32))
    return Observations.from_codes(model.rows_, model.columns_, rows, columns, sign, weight)


def known_answers(model: Filled) -> View:
    """Return the answers that a model knows, by row."""
    return known_observations(model).by_row


def known_shares(known: View, rows: Codes) -> tuple[NDArray[np.int64], Codes, NDArray[np.float64]]:
    """Return the answered entries of some rows: place among the rows, column, weighted share of "yes"."""
    inside = np.flatnonzero(rows < known.size)
    begin, end = known.start[rows[inside]], known.start[rows[inside] + 1]
    counts = end - begin
    line = np.repeat(inside, counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.repeat(begin, counts) + offset
    columns, yes = known.index[place], (known.sign[place] > 0).astype(float)
    first = np.ones(len(line), dtype=bool)  # repeats of an entry stand side by side
    first[1:] = (line[1:] != line[:-1]) | (columns[1:] != columns[:-1])
    group = np.cumsum(first) - 1
    times = known.weight[place].astype(float) if len(known.weight) else np.ones(len(group))
    share = np.bincount(group, times * yes) / np.bincount(group, times) if len(group) else yes
    return line[first], columns[first], share


def fill(
    model: Filled, output: str, found: Predictions, at: NDArray[np.int64], share: Any
) -> NDArray[Any]:
    """Return values of entries: the known ones (``at``, with their share of "yes"), else predicted."""
    if output == "score":
        return found.score
    if output == "probability":
        values = found.probability.copy()
        values[at] = share
        return values
    yes = found.yes.copy()
    yes[at] = np.where(share == 0.5, yes[at], share > 0.5)
    return model.classes_[yes.astype(int)]


def filled_matrix(model: Filled, output: str, everywhere: bool) -> pd.DataFrame:
    """Return the whole matrix as a labelled frame; see ``PairClassifier.complete``."""
    check_output(output)
    rows, columns = len(model.rows_), len(model.columns_)
    kind = model.classes_.dtype if output == "answer" else np.dtype(float)
    needed = float(rows) * columns * kind.itemsize
    available = psutil.virtual_memory().available
    if needed > 0.8 * available:
        raise MemoryError(
            f"the filled matrix of {rows} x {columns} needs {needed / 2**30:.1f} GiB and "
            f"{available / 2**30:.1f} GiB are free; predict the pairs that you need instead"
        )
    known = None if everywhere or output == "score" else known_answers(model)
    matrix = np.empty((rows, columns), dtype=kind)
    done = 0
    for codes, pair in table_blocks(model.rows_.listed, model.columns_.listed):
        block = block_values(model, output, codes, pair, known).reshape(len(codes), columns)
        matrix[done : done + len(codes)] = block
        done += len(codes)
    return pd.DataFrame(matrix, index=model.rows_.listed_labels, columns=model.columns_.listed_labels)


def block_values(
    model: Filled, output: str, rows: Codes, pair: tuple[Codes, Codes], known: View | None
) -> NDArray[Any]:
    """Return the values of all entries of some rows, row after row."""
    if output == "score":
        return model._scores(*pair)
    if output == "answer" and known is None:
        return model.classes_[(model._decisions(*pair) > 0).astype(int)]
    found = model.predictions(*pair)
    at, share = known_places(model, rows, known)
    return fill(model, output, found, at, share)


def known_places(
    model: Filled, rows: Codes, known: View | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return where, among all entries of some rows, the known answers are, and their share of "yes".

    Entries are counted row after row, columns in the order in which they are listed.
    """
    if known is None:
        return np.empty(0, dtype=np.int64), np.empty(0)
    line, column, share = known_shares(known, rows)
    place = np.argsort(model.columns_.listed)
    return line * np.int64(len(place)) + place[column], share


def candidates(model: Filled, count: int) -> int:
    """Return how many of the highest scores of a row are looked at for its most probable ones."""
    return min(max(4 * count, count + 50), len(model.columns_))


def best_columns(
    model: Filled, count: int, rows: Codes, answered: bool = False
) -> Iterator[tuple[Codes, NDArray[np.int64], Codes, Predictions]]:
    """Yield the columns that rows most likely say yes to: rows, ranks from 1, columns, predictions.

    They are the most probable among a few times as many with the highest scores. Entries that have an
    answer already are left out unless ``answered``.
    """
    yield from listed_columns(model, count, rows, None if answered else known_answers(model))


def listed_columns(
    model: Filled, count: int, rows: Codes, seen: View | None
) -> Iterator[tuple[Codes, NDArray[np.int64], Codes, Predictions]]:
    """Yield the same, where the entries that are left out are given."""
    width = candidates(model, count)
    size = max(1, BLOCK // max(width, 1))
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        column = model._top_columns(block, width, seen).ravel()
        line = np.repeat(np.arange(len(block)), width)[column >= 0]
        column = column[column >= 0]
        found = model.predictions(block[line], column)
        order = np.lexsort((-found.probability, line))
        first = np.searchsorted(line, np.arange(len(block)))  # `line` is sorted, before and after
        rank = np.arange(len(line)) - first[line] + 1
        order, rank = order[rank <= count], rank[rank <= count]
        yield block[line[order]], rank, column[order], found.at(order)


def best_rows(
    model: Filled, count: int, columns: Codes, answered: bool = False
) -> Iterator[tuple[Codes, NDArray[np.int64], Codes, Predictions]]:
    """Yield the rows that most likely say yes to columns: rows, ranks from 1, columns, predictions.

    Of rows with equal probabilities the first listed comes first. Entries that have an answer already
    are left out unless ``answered``.
    """
    every = model.rows_.listed
    place = np.argsort(every)
    seen = None if answered else known_observations(model).by_column
    size = max(1, BLOCK // max(len(every), 1))
    for begin in range(0, len(columns), size):
        block = columns[begin : begin + size]
        row, column = np.tile(every, len(block)), np.repeat(block, len(every))
        found = model.predictions(row, column)
        chance = found.probability.copy()
        if seen is not None:
            line, member, _ = known_shares(seen, block)
            chance[line * len(every) + place[member]] = -1.0
        best = np.argsort(-chance.reshape(len(block), -1), axis=1, kind="stable")[:, :count]
        rank = np.tile(np.arange(1, best.shape[1] + 1), len(block))
        best = (best + np.arange(len(block))[:, None] * len(every)).ravel()
        blank = chance[best] >= 0.0
        best, rank = best[blank], rank[blank]
        yield row[best], rank, column[best], found.at(best)


def recommendations(
    model: Filled, rows: Any, n: int, answered: bool, columns: Any = None, by: str = "row"
) -> pd.DataFrame:
    """Return the likeliest columns of rows, or rows of columns; see ``PairClassifier.recommend``."""
    if by not in MEMBERS:
        raise ValueError(f'by is "row" (a list for each row) or "column", got {by!r}')
    side = MEMBERS.index(by)
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(
            f"n is the number of {MEMBERS[1 - side]}s for each {by}, at least one; got {n!r}"
        )
    asked, others = (rows, columns) if side == 0 else (columns, rows)
    if others is not None:
        raise ValueError(
            f"lists are made for {by}s, and {MEMBERS[1 - side]}s were named: "
            f'by="{MEMBERS[1 - side]}" makes them for those'
        )
    index = (model.rows_, model.columns_)[side]
    codes = index.listed if asked is None else _known_codes(index, asked, by)
    best = (best_columns, best_rows)[side]
    names = id_names(model)
    parts = [
        pd.DataFrame(
            {
                names[side]: index.labels[(row, column)[side]],
                "rank": rank,
                names[1 - side]: (model.rows_, model.columns_)[1 - side].labels[(row, column)[1 - side]],
                "probability": found.probability,
            }
        )
        for row, rank, column, found in best(model, int(n), codes, answered)
    ]
    if not parts:
        return pd.DataFrame(columns=[names[side], "rank", names[1 - side], "probability"])
    return pd.concat(parts, ignore_index=True)


def _known_codes(index: IdIndex, ids: Any, what: str) -> Codes:
    asked = [ids] if np.ndim(ids) == 0 else ids
    codes = index.encode(asked)
    if (codes < 0).any():
        missing = np.asarray(asked, dtype=object)[codes < 0]
        more = f", nor are {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise ValueError(
            f"the {what} {missing[0]!r} is not known{more}; fold_in adds a {what} from its answers"
        )
    return codes
