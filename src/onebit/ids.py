"""Names of rows and columns: any hashable ids in, dense integer codes out, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Codes = NDArray[np.int32]

_NUMBERS = {"integer", "floating", "mixed-integer-float", "boolean", "decimal"}
_DATES = {"datetime64", "datetime", "date"}


def pair_columns(pairs: Any) -> tuple[Any, Any]:
    """Split a two-column table of ids into its two columns, without changing their types.

    Accepts arrays of shape (n, 2), pandas, polars and pyarrow tables, structured arrays with two
    fields, and sequences of pairs.
    """
    if isinstance(pairs, pd.DataFrame):
        _require_two_columns(pairs.shape, list(pairs.columns))
        return pairs.iloc[:, 0], pairs.iloc[:, 1]
    if hasattr(pairs, "column_names") and hasattr(pairs, "column"):  # pyarrow Table, RecordBatch
        _require_two_columns((pairs.num_rows, pairs.num_columns), list(pairs.column_names))
        return pairs.column(0).to_pandas(), pairs.column(1).to_pandas()
    if hasattr(pairs, "get_columns"):  # polars
        _require_two_columns(pairs.shape, list(pairs.columns))
        return _from_polars(pairs[:, 0]), _from_polars(pairs[:, 1])
    if not isinstance(pairs, np.ndarray):
        pairs = _sequence_of_pairs(pairs)
    if pairs.dtype.names is not None:
        _require_two_columns((len(pairs), len(pairs.dtype.names)), list(pairs.dtype.names))
        first, second = pairs.dtype.names
        return pairs[first], pairs[second]
    _require_two_columns(pairs.shape, None)
    return pairs[:, 0], pairs[:, 1]


def _from_polars(column: Any) -> NDArray[Any]:
    # Dates as Python dates: the same ids then match those of other tables.
    if column.dtype.is_temporal():
        return np.asarray(column.to_list(), dtype=object)
    return column.to_numpy()


def _sequence_of_pairs(pairs: Any) -> NDArray[Any]:
    try:
        items = [tuple(pair) for pair in pairs]
    except TypeError:
        raise TypeError(
            "pairs must be a two-column table of (row id, column id): an array of shape (n, 2), a "
            f"data frame or a list of pairs; got {type(pairs).__name__}"
        ) from None
    for position, item in enumerate(items):
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


class IdIndex:
    """The distinct ids of one side, in sorted order where they can be sorted.

    Examples
    --------
    >>> from onebit.ids import IdIndex
    >>> index, codes = IdIndex.from_values(["b", "a", "b"], "row")
    >>> codes.tolist(), index.values.tolist()
    ([1, 0, 1], ['a', 'b'])
    >>> index.encode(["a", "z"]).tolist()  # -1: never seen
    [0, -1]
    """

    def __init__(self, values: Any, side: str) -> None:
        self._index = values if isinstance(values, pd.Index) else pd.Index(values)
        self.side = side

    @classmethod
    def from_values(cls, values: Any, side: str) -> tuple[IdIndex, Codes]:
        """Return the index of the distinct ids in ``values`` and the code of each value."""
        values = _plain(values)
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
            position = int(np.argmax(codes < 0))
            raise ValueError(
                f"{side} id at position {position} is missing; drop those answers or name the {side}"
            )
        index = pd.Index(uniques)
        if index.inferred_type == "floating" and not np.isfinite(index.to_numpy()).all():
            raise ValueError(f"a {side} id is infinite; ids must be finite numbers, strings or dates")
        try:
            order = np.argsort(index.to_numpy(), kind="stable")
        except TypeError:  # ids of mixed kinds keep the order in which they came
            order = np.arange(len(index))
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return cls(index[order], side), rank[codes]

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

    def encode(self, values: Any) -> Codes:
        """Return the code of each id, ``-1`` for an id that was never seen.

        Ids of another kind than the known ones (strings where integers were fitted) are an error:
        every one of them would count as unknown, which nobody means.
        """
        asked = pd.Index(_plain(values))
        known_kind, asked_kind = _kind(self._index), _kind(asked)
        if len(asked) and len(self) and {known_kind, asked_kind} in _INCOMPATIBLE:
            raise TypeError(
                f"{self.side} ids here are {asked_kind}s (such as {asked[0]!r}) but the model was "
                f"fitted on {known_kind}s (such as {self._index[0]!r}); convert one to the other"
            )
        try:
            return self._index.get_indexer(asked).astype(np.int32)
        except TypeError:
            raise TypeError(f"some {self.side} ids cannot be hashed; use strings or numbers") from None

    def extended(self, new: pd.Index) -> IdIndex:
        """Return an index with ``new`` ids appended after the known ones."""
        return IdIndex(self._index.append(new), self.side)


_INCOMPATIBLE = [{"number", "string"}, {"number", "date"}]


def _kind(index: pd.Index) -> str:
    kind = index.inferred_type
    if kind in _NUMBERS:
        return "number"
    return "date" if kind in _DATES else kind


def _plain(values: Any) -> Any:
    """Undo categories and object arrays, so that equal ids have one representation."""
    if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
        values = values.astype(values.dtype.categories.dtype)
    if isinstance(values, (list, tuple)):
        array = np.empty(len(values), dtype=object)
        for position, value in enumerate(values):
            array[position] = value
        values = array
    if getattr(values, "dtype", None) == np.dtype(object):
        return pd.Series(np.asarray(values, dtype=object)).infer_objects().array
    return values


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
