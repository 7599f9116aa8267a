"""Predictions as tables, a block at a time: given pairs, the best blanks, the whole matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from onebit.certificates.statements import Kept
from onebit.completers.base import PairClassifier
from onebit.completers.filling import (
    BLOCK,
    best_columns,
    best_rows,
    block_values,
    candidates,
    fill,
    id_names,
    known_answers,
    known_places,
)
from onebit.completers.lists import kept_of_lists
from onebit.completers.predictions import Codes, Predictions
from onebit.data.ids import IdIndex
from onebit.data.tables import PairBatch
from onebit.data.tables.encoding import TextLookup

_DIGITS = 6


@dataclass
class Tally:
    """How many pairs were predicted, and how many of them had ids that the model does not know."""

    pairs: int = 0
    unknown_rows: int = 0
    unknown_columns: int = 0
    certified: int = 0


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
        table = _table(model, dict(zip(names, texts, strict=True)), found)
        if kept is not None:
            marked = model.marked(kept, codes[0], codes[1], found)
            table = table.append_column("certified", pa.array(marked))
            tally.certified += int(marked.sum())
        words = pa.array(["neither", names[0], names[1], "both"]).take(pa.array(known))
        tally.pairs += len(known)
        tally.unknown_rows += int((codes[0] < 0).sum())
        tally.unknown_columns += int((codes[1] < 0).sum())
        yield table.append_column("known", words)


def _table(model: PairClassifier, ids: dict[str, pa.Array], found: Predictions) -> pa.Table:
    columns = ids | {
        "answer": pa.array(model.classes_[found.yes.astype(int)]),
        "probability": pa.array(found.probability.round(_DIGITS)),
        "score": pa.array(found.score.round(_DIGITS)),
        "uncertainty": pa.array(found.uncertainty.round(_DIGITS)),
    }
    return pa.table(columns)


def summary_table(model: PairClassifier, side: int, summary: pd.DataFrame) -> pa.Table:
    """Return a summary of rows or columns as a table, the id first."""
    index = (model.rows_, model.columns_)[side]
    ids = ids_of(index).take(pa.array(index.labels.get_indexer(summary.index)))
    parts = {id_names(model)[side]: ids}
    for name in summary.columns:
        values = summary[name].to_numpy()
        # What could not be said is blank.
        parts[name] = pa.array(
            values.round(_DIGITS) if values.dtype.kind == "f" else values, from_pandas=True
        )
    return pa.table(parts)


def block_rows(model: PairClassifier, top: int | None = None, side: int = 0) -> int:
    """Return how many rows of the matrix (or columns that lists are made for) go into one table."""
    entries = len(model.columns_) if top is None else candidates(model, top)
    if side == 1:
        entries = len(model.rows_)
    return max(1, BLOCK // max(entries, 1))


def best_blanks(
    model: PairClassifier,
    count: int,
    codes: Codes,
    *,
    side: int = 0,
    answered: bool = False,
    least: float | None = None,
) -> Iterator[pa.Table]:
    """Yield the ``count`` columns that each row most likely says yes to, best first.

    With ``side`` 1: the rows that most likely say yes to each column.

    No line is marked as certified: the best of each row are a selection, of which a certificate of all
    predictions does not speak. With ``least``, the threshold of a certificate of lists, only lines with a
    probability of at least this are kept, and marked. Lists are then those of the certificate: entries
    with a held-out answer, which they may hold, are left out of what is written.
    """
    ids_there = ids_of(model.rows_), ids_of(model.columns_)
    names = id_names(model)
    lists = (best_columns, best_rows)[side](model, count, codes, answered)
    if least is not None:
        lists = kept_of_lists(model, count, codes, least)
    for row, rank, column, found in lists:
        own, other = (
            ids.take(pa.array(there)) for ids, there in zip(ids_there, (row, column), strict=True)
        )
        if side == 1:
            own, other = other, own
        ids = {names[side]: own, "rank": pa.array(rank), names[1 - side]: other}
        table = _table(model, ids, found)
        if least is not None:
            table = table.append_column("certified", pa.array(np.ones(table.num_rows, dtype=bool)))
        yield table


def whole_matrix(
    model: PairClassifier,
    rows: Codes,
    output: str,
    *,
    wide: bool,
    kept: Kept | None = None,
    everywhere: bool = False,
) -> Iterator[pa.Table]:
    """Yield the filled matrix: one row a line when ``wide``, else one entry a line.

    Known answers stay as they are unless ``everywhere`` asks for the model's own values. Columns stand in
    the order in which the model lists them, rows in the order given.
    """
    row_ids, column_ids = ids_of(model.rows_), ids_of(model.columns_)
    row_name, column_name = id_names(model)
    every = model.columns_.listed
    names = [str(name) for name in column_ids.take(pa.array(every)).to_pylist()]
    known = None if everywhere or (wide and output == "score") else known_answers(model)
    size = block_rows(model)
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        pair = np.repeat(block, len(every)), np.tile(every, len(block))
        if wide:
            values = block_values(model, output, block, pair, known)
            if values.dtype.kind == "f":
                values = values.round(_DIGITS)
            matrix = np.ascontiguousarray(values.reshape(len(block), -1).T)
            arrays = [row_ids.take(pa.array(block)), *(pa.array(line) for line in matrix)]
            yield pa.Table.from_arrays(arrays, names=[row_name, *names])
        else:
            ids = {
                row_name: row_ids.take(pa.array(pair[0])),
                column_name: column_ids.take(pa.array(pair[1])),
            }
            yield _long(
                model, ids, pair, model.predictions(*pair), known_places(model, block, known), kept
            )


def _long(
    model: PairClassifier,
    ids: dict[str, pa.Array],
    pair: tuple[Codes, Codes],
    found: Predictions,
    known: tuple[NDArray[np.int64], NDArray[np.float64]],
    kept: Kept | None,
) -> pa.Table:
    """Return one line an entry; known answers stand in place of predicted ones."""
    table = _table(model, ids, found)
    at, share = known
    for name in ("answer", "probability"):
        values = fill(model, name, found, at, share)
        column = pa.array(values.round(_DIGITS) if name == "probability" else values)
        table = table.set_column(table.column_names.index(name), name, column)
    answered = np.zeros(len(pair[0]), dtype=bool)
    answered[at] = True
    table = table.append_column("answered", pa.array(answered))
    if kept is not None:
        table = table.append_column("certified", pa.array(model.marked(kept, *pair, found) & ~answered))
    return table
