"""Names of rows and columns: any hashable ids in, dense integer codes out, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Codes = NDArray[np.int32]

# Integers whose range is at most this, or a few times their number, are coded by counting.
SMALL_RANGE = 1_000_000
BLOCK = 1_000_000

# What pandas infers of a column of ids, as kinds that a person would tell apart.
_KINDS = {
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "boolean": "boolean",
    "string": "string",
    "bytes": "byte string",
    "datetime64": "date",
    "datetime": "date",
}


def pair_columns(pairs: Any) -> tuple[Any, Any]:
    """Split a two-column table of ids into its two columns, without changing their types.

    Accepts arrays of shape (n, 2), pandas, polars and pyarrow tables, structured arrays with two
    fields, and sequences of pairs.
    """
    if hasattr(pairs, "to_delayed"):
        raise TypeError(
            "pairs are a Dask collection; call pairs.compute(), or for predictions "
            "pairs.map_partitions(lambda part: model.predict_proba(part)[:, 1])"
        )
    if isinstance(pairs, pd.DataFrame):
        _require_two_columns(pairs.shape, list(pairs.columns))
        return pairs.iloc[:, 0], pairs.iloc[:, 1]
    if hasattr(pairs, "column_names") and hasattr(pairs, "column"):  # pyarrow Table, RecordBatch
        _require_two_columns((pairs.num_rows, pairs.num_columns), list(pairs.column_names))
        return _from_arrow(pairs.column(0), "row"), _from_arrow(pairs.column(1), "column")
    if hasattr(pairs, "get_columns"):  # polars
        _require_two_columns(pairs.shape, list(pairs.columns))
        return _from_polars(pairs[:, 0], "row"), _from_polars(pairs[:, 1], "column")
    if not isinstance(pairs, np.ndarray):
        pairs = _sequence_of_pairs(pairs)
    if pairs.dtype.names is not None:
        _require_two_columns((len(pairs), len(pairs.dtype.names)), list(pairs.dtype.names))
        first, second = pairs.dtype.names
        return pairs[first], pairs[second]
    _require_two_columns(pairs.shape, None)
    return pairs[:, 0], pairs[:, 1]


def _from_arrow(column: Any, side: str) -> Any:
    if column.null_count:  # integers would become floats, and large ones other integers
        raise _missing(side, column.is_null().to_pylist().index(True))
    return column.to_pandas()


def _from_polars(column: Any, side: str) -> Any:
    if column.null_count():
        raise _missing(side, column.is_null().to_list().index(True))
    return column.to_list() if column.dtype.is_temporal() else column.to_numpy()


def _missing(side: str, position: int) -> ValueError:
    return ValueError(
        f"{side} id at position {position} is missing; drop those answers or name the {side}"
    )


def _no_text(values: Any, side: str) -> ValueError:
    """Return an error about the first text that no file could hold: half of a character of two parts."""
    position, value = next(
        (k, v)
        for k, v in enumerate(values)
        if isinstance(v, str) and v.encode("utf-8", "ignore").decode() != v
    )
    return ValueError(f"{side} id {value!r} at position {position} is no text (a lone surrogate)")


def _sequence_of_pairs(pairs: Any) -> NDArray[Any]:
    try:
        pairs = list(pairs)
        items = [tuple(pair) for pair in pairs]
    except TypeError:
        raise TypeError(
            "pairs must be a two-column table of (row id, column id): an array of shape (n, 2), a "
            f"data frame or a list of pairs; got {type(pairs).__name__}"
        ) from None
    for position, item in enumerate(items):
        if isinstance(pairs[position], (str, bytes)):
            raise ValueError(f"pair {position} is {pairs[position]!r}; wrap a single pair in a list")
        if len(item) != 2:
            raise ValueError(
                f"pair {position} has {len(item)} values, {item!r}; each pair is (row id, column id)"
            )
    table = np.empty((len(items), 2), dtype=object)
    for position, item in enumerate(items):
        table[position, 0], table[position, 1] = item
    return table


def _require_two_columns(shape: tuple[int, ...], names: list[Any] | None) -> None:
    if len(shape) != 2 or shape[1] != 2:
        named = f" ({', '.join(map(str, names[:8]))})" if names else ""
        raise ValueError(
            f"pairs must have two columns, row ids and column ids; got shape {tuple(shape)}{named}"
        )


# A whole number as it is written in one way only: "007" is not 7.
PLAIN_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"


class IdIndex:
    """The distinct ids of one side, in sorted order where they can be sorted.

    Parameters
    ----------
    values : index or array_like
        The ids, in the order of their codes.
    side : {"row", "column"}
        For messages.
    order : array_like of int, optional
        The codes in the order in which the ids are to be listed, where it is another: codes are sorted
        so that a fit does not depend on the order of its input, which outputs may want back.

    Examples
    --------
    >>> from onebit.data.ids import IdIndex
    >>> index, codes = IdIndex.from_values(["b", "a", "b"], "row")
    >>> codes.tolist(), index.values.tolist()
    ([1, 0, 1], ['a', 'b'])
    >>> index.encode(["a", "z"]).tolist()  # -1: never seen
    [0, -1]
    """

    def __init__(self, values: Any, side: str, order: Any = None) -> None:
        self._index = values if isinstance(values, pd.Index) else pd.Index(values)
        self.side = side
        self._order = None if order is None else _permutation(order, len(self._index), side)

    @classmethod
    def from_values(cls, values: Any, side: str) -> tuple[IdIndex, Codes]:
        """Return the index of the distinct ids in ``values`` and the code of each value."""
        name = getattr(values, "name", None)
        values = _plain(values, side)
        dense = _dense_codes(values)
        if dense is not None:
            return cls(dense[0].rename(name), side), dense[1]
        try:
            codes, uniques = pd.factorize(values)
        except TypeError:
            position, value = next(
                (k, v) for k, v in enumerate(np.asarray(values, dtype=object)) if not _hashable(v)
            )
            raise TypeError(
                f"{side} id {value!r} at position {position} cannot be hashed; use strings or numbers"
            ) from None
        if len(codes) and codes.min() < 0:
            raise _missing(side, int(np.argmax(codes < 0)))
        index = pd.Index(uniques)
        if index.inferred_type == "floating" and not np.isfinite(index.to_numpy()).all():
            raise ValueError(f"a {side} id is infinite; ids must be finite numbers, strings or dates")
        try:
            order = np.argsort(index.to_numpy(), kind="stable")
        except TypeError:  # ids of mixed kinds keep the order in which they came
            order = np.arange(len(index))
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return cls(index[order].rename(name), side), rank[codes]

    def __len__(self) -> int:
        return len(self._index)

    @property
    def values(self) -> NDArray[Any]:
        """The ids themselves, in code order."""
        return self._index.to_numpy()

    @property
    def labels(self) -> pd.Index:
        """The ids as a pandas index, for labelled frames."""
        return self._index

    @property
    def listed(self) -> Codes:
        """The codes in the order in which the ids are to be listed."""
        return np.arange(len(self), dtype=np.int32) if self._order is None else self._order

    @property
    def listed_labels(self) -> pd.Index:
        """The ids in the order in which they are to be listed."""
        return self._index if self._order is None else self._index.take(self._order)

    @property
    def sorted(self) -> bool:
        """Whether ids are listed in the order of their codes."""
        return self._order is None

    def encode(self, values: Any) -> Codes:
        """Return the code of each id, ``-1`` for an id that was never seen.

        Ids of another kind than the known ones (strings where integers were fitted) are an error:
        every one of them would count as unknown, which nobody means.
        """
        asked = pd.Index(_plain(values, self.side))
        if asked.hasnans:
            raise _missing(self.side, int(np.argmax(asked.isna())))
        known_kind, asked_kind = _kind(self._index), _kind(asked)
        if len(asked) and len(self) and known_kind and asked_kind and known_kind != asked_kind:
            raise TypeError(
                f"{self.side} ids here are {asked_kind}s (such as {_shown(asked[0])}) but the model was "
                f"fitted on {known_kind}s (such as {_shown(self._index[0])}); convert one to the other"
            )
        if asked.inferred_type == "floating" and self._index.inferred_type == "integer":
            large = np.abs(asked.to_numpy()) >= 2.0**53
            if large.any():
                raise ValueError(
                    f"{self.side} id {asked[int(np.argmax(large))]!r} is a float too large to stand for "
                    "one integer; pass integer ids as integers"
                )
        try:
            return self._index.get_indexer(asked).astype(np.int32)
        except TypeError:
            raise TypeError(f"some {self.side} ids cannot be hashed; use strings or numbers") from None

    def misfit(self, values: Sequence[Any]) -> tuple[str, Any] | None:
        """Return the first of some plain values that is no id of this kind, and what ids here are.

        Whole numbers where the ids are, numbers, or text; of at most 63 bits.
        """
        kinds: dict[str, tuple[Any, str]] = {
            "integer": (int, "whole numbers"),
            "floating": ((int, float), "numbers"),
        }
        wanted, words = kinds.get(self._index.inferred_type, (str, "text"))
        for value in values:
            if not isinstance(value, wanted) or (wanted is not str and abs(value) >= 2**63):
                return words, value
        return None

    def written_like(self, other: IdIndex) -> IdIndex:
        """Return the same ids as whole numbers, or as text, if the other's are."""
        kinds = _kind(self._index), _kind(other.labels)
        values: Any = None
        if kinds == ("number", "string"):
            values = [str(label) for label in self._index]
        elif kinds == ("string", "number") and all(
            re.fullmatch(PLAIN_NUMBER, label) for label in self._index
        ):
            values = np.array([int(label) for label in self._index])
        if values is None:
            return self
        return IdIndex(pd.Index(values, name=self._index.name), self.side, self._order)

    def joined(self, other: IdIndex) -> tuple[IdIndex, Codes]:
        """Return an index that also knows another's ids, appended as they are listed; and their codes."""
        codes = self.encode(other.values)
        fresh = other.listed[codes[other.listed] < 0]
        codes[fresh] = np.arange(len(self), len(self) + len(fresh), dtype=np.int32)
        return (self.extended(other.labels[fresh]) if len(fresh) else self), codes

    def extended(self, new: pd.Index) -> IdIndex:
        """Return an index with ``new`` ids appended after the known ones, also where they are listed."""
        if self._index.inferred_type == "integer" and new.inferred_type == "floating":
            # Together they would all be floats, and large ids no longer themselves.
            broken = new[new != new.astype("int64")] if np.isfinite(new.to_numpy()).all() else new
            if len(broken):
                raise TypeError(
                    f"{self.side} ids here are whole numbers, and {_shown(broken[0])} is none; convert it"
                )
            new = new.astype("int64")
        last = np.arange(len(self), len(self) + len(new), dtype=np.int32)
        order = None if self._order is None else np.append(self._order, last)
        return IdIndex(self._index.append(new).rename(self._index.name), self.side, order)

    def first(self, count: int) -> IdIndex:
        """Return the index of the first so many ids, by code."""
        order = None if self._order is None else self._order[self._order < count]
        return IdIndex(self._index[:count], self.side, order)


def _permutation(order: Any, size: int, side: str) -> Codes | None:
    """Check an order of codes; None where it is the order of the codes themselves."""
    found = np.asarray(order)
    if found.dtype.kind not in "iu" or found.shape != (size,):
        raise ValueError(
            f"the order of {size} {side} ids is of type {found.dtype} and shape {found.shape}"
        )
    codes = np.arange(size, dtype=np.int32)
    if np.array_equal(found, codes):
        return None
    if not np.array_equal(np.sort(found), codes):
        raise ValueError(f"the order of {size} {side} ids does not name each of them once")
    found = found.astype(np.int32)
    found.setflags(write=False)
    return found


def in_small_range(low: int, high: int, count: int) -> bool:
    """Say whether so many integers lie close enough together to be coded by counting."""
    return high - low < max(4 * count, SMALL_RANGE)


def _dense_codes(values: Any) -> tuple[pd.Index, Codes] | None:
    """Return index and codes of integers that lie close together, by counting; None for other ids."""
    if isinstance(values, pd.Series):
        values = values.array
    if not isinstance(getattr(values, "dtype", None), np.dtype) or values.dtype.kind not in "iu":
        return None
    array = np.asarray(values)
    if len(array) == 0:
        return None
    low, high = int(array.min()), int(array.max())
    if not in_small_range(low, high, len(array)):
        return None
    wide = np.uint64 if array.dtype == np.uint64 else np.int64  # narrow types would overflow
    present = np.zeros(high - low + 1, dtype=bool)
    codes = np.empty(len(array), dtype=np.int32)
    blocks = [slice(begin, begin + BLOCK) for begin in range(0, len(array), BLOCK)]
    for block in blocks:
        present[array[block].astype(wide) - wide(low)] = True
    rank = np.cumsum(present, dtype=np.int32) - np.int32(1)
    for block in blocks:
        codes[block] = rank[array[block].astype(wide) - wide(low)]
    distinct = (np.flatnonzero(present).astype(wide) + wide(low)).astype(array.dtype)
    return pd.Index(distinct), codes


def _kind(index: pd.Index) -> str | None:
    """Name the kind of the ids; None for mixed and exotic ones, which are compared as they are."""
    kind = _KINDS.get(index.inferred_type)
    if kind == "date" and getattr(index, "tz", None) is not None:
        return "date with time zone"
    return kind


def _plain(values: Any, side: str) -> Any:
    """Undo categories and object arrays, so that equal ids have one representation.

    Python dates become timestamps.
    """
    if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
        values = np.asarray(values.astype(object), dtype=object)
    if isinstance(values, (list, tuple)):
        array = np.empty(len(values), dtype=object)
        for position, value in enumerate(values):
            array[position] = value
        values = array
    if getattr(values, "dtype", None) == np.dtype(object):
        try:
            plain = pd.Series(np.asarray(values, dtype=object)).infer_objects()
        except UnicodeEncodeError:
            raise _no_text(values, side) from None
        if pd.api.types.infer_dtype(plain, skipna=True) == "date":
            plain = pd.to_datetime(plain)
        return plain.array
    return values


def _shown(value: Any) -> str:
    """Return an id as a user would write it."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
