"""What was seen: pairs of ids, one sign each, sorted once by row and once by column."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from onebit.data import hashing
from onebit.data.ids import IdIndex, pair_columns
from onebit.data.signs import dense_numbers, signs, signs_of_pairs
from onebit.data.sorting import Entries, Pool, View, sorted_views, views_of_rows
from onebit.data.weights import weights_of

MAX_SIZE = np.iinfo(np.int32).max


class _Held:
    """The answers of some observations and their copies: loose, then sorted. Threads may ask at once."""

    def __init__(self, loose: Any, views: tuple[View, View] | None = None) -> None:
        self.loose: Any | None = loose
        self._views = views

    @property
    def nbytes(self) -> int:
        """The bytes of the answers."""
        parts: list[Any] = (
            [self.loose] if self._views is None else [vars(view).values() for view in self._views]
        )
        return sum(array.nbytes for part in parts for array in part if array is not None)

    def sorted(self, shape: tuple[int, int], pool: Pool | None = None) -> tuple[View, View]:
        """Return the views by row and by column."""
        loose, views = self.loose, self._views
        if views is None and loose is not None:
            views = self._views = sorted_views(loose.on_host(), shape, pool)
            self.loose = None
        views = views or self._views
        assert views is not None
        return views


@dataclass(frozen=True)
class Observations:
    """A yes/no matrix with blanks: ids of its rows and columns and the two sorted views.

    Answers are sorted when a view is first asked for, or by ``sort``.

    One entry may be answered several times, also with contradicting answers: the paper's
    observations are drawn with repetition, and each answer counts.

    Examples
    --------
    >>> from onebit import Observations
    >>> seen = Observations.from_pairs([("ann", "x"), ("bob", "x"), ("ann", "y")], [1, 0, 1])
    >>> seen
    Observations(2 rows, 2 columns, 3 answers, 66.7 % yes)
    >>> Observations.from_matrix([[1, float("nan")], [-1, 1]]).n
    3
    """

    rows: IdIndex
    columns: IdIndex
    classes: NDArray[Any]
    n: int
    weighted: bool
    _held: _Held = field(repr=False)
    features: tuple[Any, Any] = field(default=(None, None), repr=False)

    @classmethod
    def from_pairs(cls, pairs: Any, answers: Any, sample_weight: ArrayLike | None = None) -> Observations:
        """Build from a two-column table of ids and one answer each.

        Parameters
        ----------
        pairs : array, data frame or sequence of pairs
            Row ids in the first column, column ids in the second.
        answers : array_like of shape (n,)
            Signs as {-1, 1}, {0, 1} or booleans.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights, not all zero.
        """
        row_values, column_values = pair_columns(pairs)
        sign, classes = signs_of_pairs(answers, len(row_values))
        if len(sign) == 0:
            raise ValueError("no observations: at least one answer is needed")
        rows, row_codes = IdIndex.from_values(row_values, "row")
        columns, column_codes = IdIndex.from_values(column_values, "column")
        weight = weights_of(sample_weight, len(sign))
        if weight is not None:  # an answer without weight is no answer, but its ids are known
            counts = weight > 0
            row_codes, column_codes = row_codes[counts], column_codes[counts]
            sign, weight = sign[counts], weight[counts]
        return cls.from_codes(rows, columns, row_codes, column_codes, sign, weight, classes)

    @classmethod
    def from_codes(
        cls,
        rows: IdIndex,
        columns: IdIndex,
        row_codes: NDArray[np.int32],
        column_codes: NDArray[np.int32],
        sign: NDArray[np.int8],
        weight: NDArray[np.float32] | None = None,
        classes: NDArray[Any] | None = None,
    ) -> Observations:
        """Build from codes into two indexes; nothing is checked."""
        if weight is not None and len(weight) == 0:
            weight = None
        return cls.from_loose(rows, columns, Entries(row_codes, column_codes, sign, weight), classes)

    @classmethod
    def from_loose(
        cls, rows: IdIndex, columns: IdIndex, entries: Any, classes: NDArray[Any] | None = None
    ) -> Observations:
        """Build from ``Entries``, or from something of their kind that a device holds."""
        if max(len(rows), len(columns)) > MAX_SIZE:
            raise ValueError(f"more than {MAX_SIZE} rows or columns are not supported")
        classes = np.array([-1, 1]) if classes is None else classes
        weighted = entries.weight is not None
        return cls(rows, columns, classes, len(entries.sign), weighted, _Held(entries))

    @property
    def by_row(self) -> View:
        """The answers of every row."""
        return self._held.sorted(self.shape)[0]

    @property
    def by_column(self) -> View:
        """The answers of every column."""
        return self._held.sorted(self.shape)[1]

    def sort(self, pool: Pool) -> None:
        """Sort the answers, if they are not sorted yet, on several threads (``data.sorting.Pool``)."""
        self._held.sorted(self.shape, pool)

    @property
    def loose(self) -> Any | None:
        """The answers one by one, as long as nobody has asked for a view."""
        return self._held.loose

    def come_home(self) -> None:
        """Hold the answers in this machine's own memory, wherever they lay."""
        if self._held.loose is not None:
            self._held.loose = self._held.loose.on_host()

    def hold(self, entries: Any) -> None:
        """Hold the same answers in another form, unless they are sorted by now."""
        if self._held.loose is not None:
            self._held.loose = entries

    @classmethod
    def from_matrix(cls, matrix: Any) -> Observations:
        """Build from a whole matrix: NaN marks a blank; of a sparse matrix, what is stored is seen.

        A stored zero of a sparse matrix is an answer ("no"), not a blank. A data frame keeps its
        labels as ids.
        """
        row_ids: Any = None
        column_ids: Any = None
        if scipy.sparse.issparse(matrix):
            stored = matrix.tocoo()
            shape, row, column, answers = stored.shape, stored.row, stored.col, stored.data
        else:
            if hasattr(matrix, "to_pandas"):  # polars, pyarrow
                matrix = matrix.to_pandas()
            if isinstance(matrix, pd.DataFrame):
                row_ids, column_ids = matrix.index, matrix.columns
            dense = dense_numbers(matrix)
            if dense.ndim != 2:
                raise ValueError(f"a matrix has two dimensions, got shape {dense.shape}")
            shape = dense.shape
            seen = ~np.isnan(dense) if dense.dtype.kind == "f" else np.ones(shape, dtype=bool)
            row, column = np.nonzero(seen)
            answers = dense[row, column]
        if len(answers) == 0:
            raise ValueError(f"no observations: the matrix of shape {shape} holds only blanks")
        sign, classes = signs(answers, where=lambda k: f"row {int(row[k])}, column {int(column[k])}")
        return cls.from_codes(
            _labels(row_ids, shape[0], "row"),
            _labels(column_ids, shape[1], "column"),
            row.astype(np.int32),
            column.astype(np.int32),
            sign,
            None,
            classes,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.rows), len(self.columns)

    @cached_property
    def total_weight(self) -> float:
        """The sum of the weights: the number of answers where none are given."""
        if not self.weighted:
            return float(self.n)
        loose = self.loose
        weight = self.by_row.weight if loose is None else loose.weight
        return float(np.sort(weight).sum(dtype=np.float64))  # whatever the order in which answers came

    def take(self, positions: NDArray[np.int64] | NDArray[np.bool_]) -> Observations:
        """Return some of the observations (positions in row order), over the same rows and columns."""
        taken = Observations.from_codes(self.rows, self.columns, *self.entries(positions), self.classes)
        return taken.told(self.features)

    def of_rows(self, rows: NDArray[np.int64], pool: Pool | None = None) -> Observations:
        """Return the answers of some rows (ascending codes), over all columns; features are left out."""
        by_row = self._held.sorted(self.shape, pool)[0]
        views = views_of_rows(by_row, rows, self.shape[1], pool)
        few, n = IdIndex(self.rows.labels[rows], self.rows.side), len(views[0].index)
        return Observations(few, self.columns, self.classes, n, self.weighted, _Held(None, views))

    def over(self, rows: IdIndex, columns: IdIndex) -> Observations:
        """Return the same answers over indexes that know more ids: those appended have none."""
        if len(rows) == len(self.rows) and len(columns) == len(self.columns):
            return self
        return Observations.from_loose(rows, columns, self.in_any_order(), self.classes)

    def in_any_order(self) -> Any:
        """Return all answers one by one, as they are at hand."""
        loose = self.loose
        return self.entries(np.arange(self.n)) if loose is None else loose

    def written_like(self, other: Observations) -> Observations:
        """Return the same answers with ids that are numbers, or text, as the other's are.

        An id in a file is its text, whatever type the file gives it. What cannot be converted stays.
        """
        rows, columns = (
            mine.written_like(theirs)
            for mine, theirs in ((self.rows, other.rows), (self.columns, other.columns))
        )
        return replace(self, rows=rows, columns=columns)

    def told(self, features: tuple[Any, Any]) -> Observations:
        """Return the same answers with features of rows and of columns, or None each."""
        return replace(self, features=features)

    def entries(self, positions: NDArray[np.int64] | NDArray[np.bool_]) -> Entries:
        """Return some of the observations (positions in row order) one by one."""
        view = self.by_row
        weight = view.weight[positions] if len(view.weight) else None
        return Entries(view.owners()[positions], view.index[positions], view.sign[positions], weight)

    def again(self) -> NDArray[np.bool_]:
        """Say of each answer, in row order, whether its entry was answered before."""
        view = self.by_row  # rows list their columns in order
        again = np.zeros(self.n, dtype=bool)
        again[1:] = view.index[1:] == view.index[:-1]
        again[view.start[:-1][view.counts > 0]] = False
        return again

    def by_entry(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of answers, in row order: further answers of an entry have its first one's."""
        again = self.again()
        return values if not again.any() else values[~again][np.cumsum(~again) - 1]

    def entry_numbers(self) -> NDArray[np.int64]:
        """Return one number for the entry of each answer, in row order."""
        return self.by_row.owners() * np.int64(self.shape[1]) + self.by_row.index

    def hashes(self, key: int) -> NDArray[np.uint64]:
        """Return a keyed hash of row id, column id and repeat of each answer, in row order."""
        rows, columns = (hashing.id_hashes(side.labels, key) for side in (self.rows, self.columns))
        view = self.by_row
        numbered = hashing.repeats(self.entry_numbers())
        return hashing.answer_hashes(rows[view.owners()], columns[view.index], numbered)

    def fingerprint(self) -> str:
        """Return the number of answers and 128 bits that depend on ids, answers and weights.

        Not on their order. Fingerprints of parts add up to that of the whole, where no entry is answered
        in two parts (see ``hashing.joined``).
        """
        view, sums = self.by_row, []
        for key in (1, 2):
            values = self.hashes(key) ^ view.sign.astype(np.int64).view(np.uint64)
            if len(view.weight):
                values ^= view.weight.view(np.uint32).astype(np.uint64) << np.uint64(32)
            sums.append(int(hashing.mixed(values).sum(dtype=np.uint64)))
        return hashing.fingerprint(self.n, sums)

    def __sizeof__(self) -> int:
        # Schedulers ask before they move something.
        return object.__sizeof__(self) + self._held.nbytes

    def __repr__(self) -> str:
        rows, columns = self.shape
        loose = self.loose
        sign = self.by_row.sign if loose is None else loose.sign
        share = 100.0 * float((sign > 0).sum()) / self.n
        return f"Observations({rows} rows, {columns} columns, {self.n} answers, {share:.1f} % yes)"


def _labels(ids: Any, size: int, side: str) -> IdIndex:
    if ids is None:
        return IdIndex(pd.RangeIndex(size), side)
    if not ids.is_unique:
        label = ids[ids.duplicated()][0]
        raise ValueError(f"the {side} label {label!r} stands twice; labels of a matrix are distinct")
    return IdIndex(ids, side)
