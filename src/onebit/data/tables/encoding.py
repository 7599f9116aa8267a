"""Ids to codes, batch by batch.

An id is its text. Each batch is encoded by itself; its few distinct ids are joined to the known ones when
there are as many new as old, so that the work grows with the file and not with its square.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onebit.data.ids import PLAIN_NUMBER, IdIndex
from onebit.data.tables.problems import NOT_UTF8

Codes = NDArray[np.int32]

_JOIN_FROM = 1 << 18


def as_text(values: pa.Array) -> pa.Array:
    """Return distinct values of any type as the bytes of their text, missing ones as missing."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return values.cast(pa.large_binary())
    return values.cast(pa.large_string()).cast(pa.large_binary())


def distinct(column: pa.Array) -> tuple[pa.Array, Codes]:
    """Return the distinct values of a column as bytes, and each one's place; -1 for a missing one."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_null(column.type):
        return pa.array([], pa.large_binary()), np.full(len(column), -1, dtype=np.int32)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    encoded = column.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32)
    return as_text(encoded.dictionary), codes


def not_utf8(values: pa.Array) -> NDArray[np.bool_]:
    """Return which values (bytes) are no text: not UTF-8, or marked so when they were read."""
    try:
        texts = values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return np.array([_undecodable(value) for value in values.to_pylist()], dtype=bool)
    return pc.match_substring(texts, NOT_UTF8).to_numpy(zero_copy_only=False).astype(bool)


def _undecodable(value: bytes) -> bool:
    try:
        return NOT_UTF8 in value.decode("utf-8")
    except UnicodeDecodeError:
        return True


class GrowingIds:
    """The ids of one side of the table while it is read."""

    def __init__(self, side: str, name: str | None) -> None:
        self.side = side
        self.name = name
        self.text_type = False
        self._known = pa.array([], pa.large_binary())
        self._pending: list[tuple[pa.Array, Codes]] = []
        self._codes: list[Codes] = []

    def add(self, values: pa.Array, codes: Codes) -> None:
        """Take up a batch: its distinct ids as bytes, and the place of each answer's id among them."""
        self._pending.append((values, codes))
        if sum(len(values) for values, _ in self._pending) > max(_JOIN_FROM, len(self._known)):
            self._join()

    def _join(self) -> None:
        together = pa.concat_arrays([self._known, *(values for values, _ in self._pending)])
        encoded = together.dictionary_encode()
        code = encoded.indices.to_numpy().astype(np.int32)
        begin = len(self._known)
        for values, codes in self._pending:
            self._codes.append(code[begin : begin + len(values)][codes])
            begin += len(values)
        self._known, self._pending = encoded.dictionary, []

    def finish(self, listed: bool = True) -> tuple[IdIndex, Codes]:
        """Return the sorted index of all ids, and the code of each answer's id.

        The index is ``listed`` in the order in which ids came, unless they have one of their own.
        """
        self._join()
        texts = self._known.cast(pa.large_string())
        numbers = None if self.text_type else whole_numbers(texts)
        order = pc.sort_indices(texts if numbers is None else numbers).to_numpy()
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        taken = (texts if numbers is None else numbers).take(pa.array(order))
        labels = pd.Index(taken.to_pandas(), name=self.name)
        codes = np.concatenate(self._codes) if self._codes else np.empty(0, dtype=np.int32)
        self._codes = []
        return IdIndex(labels, self.side, rank if listed else None), rank[codes]


def whole_numbers(texts: pa.Array) -> pa.Array | None:
    """Return ids as integers if every one of them is written as a plain whole number, else None.

    "007", "+7" and "7.0" are not: as numbers they would be the same id as "7".
    """
    plain = pc.match_substring_regex(texts, PLAIN_NUMBER)
    if len(texts) == 0 or not pc.all(plain).as_py():
        return None
    return texts.cast(pa.int64())


class TextLookup:
    """Finds ids in a model by their text, whatever type the model knows them by."""

    def __init__(self, index: IdIndex) -> None:
        labels = index.labels
        self._numbers = labels.dtype.kind == "i"
        self._index = (
            labels if self._numbers else pd.Index([str(label) for label in labels], dtype=object)
        )
        if not self._index.is_unique:
            twice = self._index[self._index.duplicated()][0]
            raise ValueError(
                f"the model knows two {index.side} ids that are both written {twice!r}; "
                "in a file they cannot be told apart: predict in Python instead"
            )

    def codes(self, values: pa.Array) -> Codes:
        """Return the code of each id given as bytes, -1 for one that the model does not know."""
        texts = values.cast(pa.large_string())
        codes = np.full(len(texts), -1, dtype=np.int32)
        if self._numbers:
            place = pc.match_substring_regex(texts, PLAIN_NUMBER).to_numpy(zero_copy_only=False)
            asked = texts.filter(pa.array(place)).cast(pa.int64()).to_numpy()
        else:
            place = np.ones(len(texts), dtype=bool)
            asked = np.array(texts.to_pylist(), dtype=object)
        if len(asked):
            codes[place] = self._index.get_indexer(pd.Index(asked)).astype(np.int32)
        return codes
