"""Predictions as tables, a block at a time: given pairs, the best blanks, the whole matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onebit.certificates import Kept
from onebit.estimator import PairClassifier, Predictions
from onebit.ids import IdIndex
from onebit.tables import PairBatch
from onebit.tables.encoding import TextLookup

Codes = NDArray[np.int32]

# Entries that are predicted at a time.
_BLOCK = 500_000
_DIGITS = 6
_TAKEN = ("rank", "answer", "probability", "score", "uncertainty", "confidence", "certified", "known")


@dataclass
class Tally:
    """How many pairs were predicted, and how many of them had ids that the model does not know."""

    pairs: int = 0
    unknown_rows: int = 0
    unknown_columns: int = 0
    certified: int = 0


def id_names(model: PairClassifier) -> tuple[str, str]:
    """Return what the two columns of ids are called in a table of predictions."""
    names = [index.labels.name for index in (model.rows_, model.columns_)]
    row, column = (
        name if isinstance(name, str) and name and name not in _TAKEN else side
        for name, side in zip(names, ("row", "column"), strict=True)
    )
    return (row, column) if row != column else ("row", "column")


def ids_of(index: IdIndex) -> pa.Array:
    """Return all ids of a side as a column: integers as they are, all others as text."""
    labels = index.labels
    if labels.dtype.kind in "iu":
        return pa.array(labels.to_numpy())
    return pa.array([str(label) for label in labels], pa.large_string())


def predicted_pairs(
    model: PairClassifier, batches: Iterable[PairBatch], kept: Kept | None, tally: Tally
) -> Iterator[pa.Table]:
    """Yield a table for each batch of pairs: ids as they were given, and what is predicted of them."""
    rows, columns = TextLookup(model.rows_), TextLookup(model.columns_)
    names = id_names(model)
    for batch in batches:
        codes = [
            lookup.codes(values)[place]
            for lookup, (values, place) in ((rows, batch.rows), (columns, batch.columns))
        ]
        texts = [
            values.cast(pa.large_string()).take(pa.array(place))
            for values, place in (batch.rows, batch.columns)
        ]
        known = np.where(codes[0] >= 0, np.where(codes[1] >= 0, 3, 1), np.where(codes[1] >= 0, 2, 0))
        found = model.predictions(*codes)
        table = _table(model, dict(zip(names, texts, strict=True)), found, kept, model.was_fitted(*codes))
        words = pa.array(["neither", names[0], names[1], "both"]).take(pa.array(known))
        tally.pairs += len(known)
        tally.unknown_rows += int((codes[0] < 0).sum())
        tally.unknown_columns += int((codes[1] < 0).sum())
        yield _counted(table.append_column("known", words), tally)


def _counted(table: pa.Table, tally: Tally) -> pa.Table:
    if "certified" in table.column_names:
        tally.certified += int(np.count_nonzero(table.column("certified").to_numpy()))
    return table


def _table(
    model: PairClassifier,
    ids: dict[str, pa.Array],
    found: Predictions,
    kept: Kept | None,
    fitted: NDArray[np.bool_],
) -> pa.Table:
    answer = model.classes_[(found.score > 0).astype(int)]
    columns = ids | {
        "answer": pa.array(answer),
        "probability": pa.array(found.probability.round(_DIGITS)),
        "score": pa.array(found.score.round(_DIGITS)),
        "uncertainty": pa.array(found.uncertainty.round(_DIGITS)),
    }
    if kept is not None:
        columns["certified"] = pa.array((found.confidence > kept.threshold) & fitted)
    return pa.table(columns)


def block_rows(model: PairClassifier, top: int | None = None) -> int:
    """Return how many rows of the matrix go into one table."""
    entries = len(model.columns_) if top is None else _candidates(model, top)
    return max(1, _BLOCK // max(entries, 1))


def _candidates(model: PairClassifier, top: int) -> int:
    """Return how many of the highest scores of a row are looked at for its most probable ones."""
    return min(max(4 * top, top + 50), len(model.columns_))


def _row_blocks(model: PairClassifier, rows: Codes) -> Iterator[tuple[Codes, Predictions]]:
    every = model.columns_.listed
    size = block_rows(model)
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        yield block, model.predictions(np.repeat(block, len(every)), np.tile(every, len(block)))


def best_blanks(
    model: PairClassifier, count: int, rows: Codes, kept: Kept | None, *, answered: bool = False
) -> Iterator[pa.Table]:
    """Yield the ``count`` columns that each row most likely says yes to, best first.

    They are the most probable among a few times as many with the highest scores. Entries that have an
    answer already are left out unless ``answered``; answers that were folded in are not known here.
    """
    seen = None if answered else model.kept_answers().everything.by_row
    row_ids, column_ids = ids_of(model.rows_), ids_of(model.columns_)
    row_name, column_name = id_names(model)
    candidates, size = _candidates(model, count), block_rows(model, count)
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        column = model.top_columns(block, candidates, seen).ravel()
        line = np.repeat(np.arange(len(block)), candidates)[column >= 0]
        column = column[column >= 0]
        found = model.predictions(block[line], column)
        order = np.lexsort((-found.probability, line))
        first = np.searchsorted(line, np.arange(len(block)))  # `line` is sorted, before and after
        rank = np.arange(len(line)) - first[line] + 1
        order, rank = order[rank <= count], rank[rank <= count]
        line, column = line[order], column[order]
        chosen = Predictions(found.score[order], found.uncertainty[order], found.probability[order])
        ids = {
            row_name: row_ids.take(pa.array(block[line])),
            "rank": pa.array(rank),
            column_name: column_ids.take(pa.array(column)),
        }
        yield _table(model, ids, chosen, kept, model.was_fitted(block[line], column))


def whole_matrix(
    model: PairClassifier, rows: Codes, output: str, *, wide: bool, kept: Kept | None = None
) -> Iterator[pa.Table]:
    """Yield the filled matrix: one row a line when ``wide``, else one entry a line.

    Columns stand in the order in which the model lists them, rows in the order given.
    """
    row_ids, column_ids = ids_of(model.rows_), ids_of(model.columns_)
    row_name, column_name = id_names(model)
    every = model.columns_.listed
    names = [str(name) for name in column_ids.take(pa.array(every)).to_pylist()]
    for block, found in _row_blocks(model, rows):
        if wide:
            values = {
                "answer": lambda found=found: model.classes_[(found.score > 0).astype(int)],
                "probability": lambda found=found: found.probability.round(_DIGITS),
                "score": lambda found=found: found.score.round(_DIGITS),
            }[output]()
            matrix = np.ascontiguousarray(values.reshape(len(block), -1).T)
            arrays = [row_ids.take(pa.array(block)), *(pa.array(line) for line in matrix)]
            yield pa.Table.from_arrays(arrays, names=[row_name, *names])
        else:
            line = np.repeat(block, len(names))
            column = np.tile(every, len(block))
            ids = {
                row_name: row_ids.take(pa.array(line)),
                column_name: column_ids.take(pa.array(column)),
            }
            yield _table(model, ids, found, kept, model.was_fitted(line, column))
