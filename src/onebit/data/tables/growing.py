"""The answers of a file while it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onebit.data.observations import MAX_SIZE, Observations
from onebit.data.tables.answers import (
    BAD,
    BLANK,
    Vocabulary,
    counted,
    kinds_of,
    looks_like_ratings,
    option,
)
from onebit.data.tables.cells import Cells
from onebit.data.tables.columns import Chosen
from onebit.data.tables.encoding import Codes, GrowingIds, as_text, distinct, not_utf8
from onebit.data.tables.problems import Problems, TableError, shown
from onebit.data.tables.sources import Batch
from onebit.data.tables.times import After

Flags = NDArray[np.bool_]

# Kinds of answer that are counted: a message names a few, and a column of numbers may hold millions.
_MOST_KINDS = 1000
# Where more than this share of a column is no answer, the column is not one of answers.
_NO_ANSWERS = 0.25
# Beside answers, so few other words may stand for blanks.
_FEW_WORDS = 3
# What is wrong with a line whose answer has no moment; the message says more.
NO_TIME = "the time cannot be compared"


@dataclass(frozen=True)
class Texts:
    """A column of a batch: its distinct fields as bytes, and where each line's is among them."""

    values: pa.Array
    codes: Codes
    typed_text: bool

    @classmethod
    def of(cls, column: pa.Array, what: str, source: str) -> Texts:
        """Take a column of any type."""
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        try:
            values, codes = distinct(column)
        except pa.ArrowException:
            raise TableError(f"a column of {source} of type {kind} cannot hold {what}") from None
        return cls(values, codes, text)

    def strings(self) -> list[str]:
        """Return the distinct fields as text."""
        return [value.decode("utf-8", "replace") for value in self.values.to_pylist()]

    def missing(self) -> Flags:
        """Return which lines have no id here: none, or an empty one."""
        empty = pc.equal(pc.binary_length(self.values), 0).to_numpy(zero_copy_only=False)
        return np.append(empty.astype(bool), True)[self.codes]

    def undecodable(self) -> Flags:
        """Return which lines hold what is not UTF-8 here."""
        return np.append(not_utf8(self.values), False)[self.codes]

    def field(self, k: int) -> str:
        """Return the field of a line."""
        code = self.codes[k]
        return "" if code < 0 else self.values[int(code)].as_py().decode("utf-8", "replace")

    def take(self, keep: Flags) -> tuple[pa.Array, Codes]:
        """Return the ids of some lines: their distinct values, and the place of each."""
        used, codes = np.unique(self.codes[keep], return_inverse=True)
        if len(used) == len(self.values):
            return self.values, self.codes[keep]
        return self.values.take(pa.array(used)), codes.astype(np.int32)


def bad_ids(sides: dict[str, Texts], blank_line: Flags) -> dict[str, Flags]:
    """Return what is wrong with the ids of a batch, and with which of its lines."""
    found = {}
    for side, column in sides.items():
        found[f"the {side} id is missing"] = column.missing() & ~blank_line
        found[f"the {side} id is not UTF-8"] = column.undecodable()
    return {reason: which for reason, which in found.items() if which.any()}


def _any(flags: Sequence[Flags], size: int) -> Flags:
    return np.logical_or.reduce(flags) if flags else np.zeros(size, dtype=bool)


@dataclass(frozen=True)
class Repeats:
    """Row ids that stand in more than one line of a wide table."""

    count: int
    first: str
    places: tuple[str, str]

    def __str__(self) -> str:
        word, line = self.places[0].split(" ")
        where = f"({word}s {line} and {self.places[1].split(' ')[1]})"
        if self.count == 1:
            return (
                f"the row id {shown(self.first)} stands more than once {where}; its answers are taken "
                "together"
            )
        return (
            f"{self.count:,} row ids stand more than once, the first is {shown(self.first)} {where}; "
            "their answers are taken together"
        )


class Growing:
    """Ids, signs and problems of the batches so far."""

    def __init__(self, vocabulary: Vocabulary, problems: Problems, after: After | None = None) -> None:
        self.vocabulary, self.problems, self.after = vocabulary, problems, after
        self.rows, self.columns = GrowingIds("row", None), GrowingIds("column", None)
        self.signs: list[NDArray[np.int8]] = []
        self._late: list[Flags] = []  # of each answer, where some are to be held out
        self.good = self.blank = 0
        self.matrix = False
        self._found: Counter[str] = Counter()
        self._cells: list[tuple[Codes, Codes]] = []  # of a wide table: line and column of each answer
        self._lines: list[tuple[NDArray[np.int64], Callable[[int], str]]] = []
        self._n_lines = self._numbered = 0

    def add_long(self, batch: Batch) -> None:
        """Take up a batch of rows, columns and answers."""
        source = self.problems.source
        self.matrix |= batch.matrix
        for ids, size in zip((self.rows, self.columns), batch.shape or (), strict=False):
            ids.add(as_text(pa.array(np.arange(size))), np.empty(0, dtype=np.int32))
        row, column = (Texts.of(batch.columns[k], "ids", source) for k in (0, 1))
        answer = Texts.of(batch.columns[2], "answers", source)
        texts = answer.strings()
        self._count(texts, np.bincount(answer.codes[answer.codes >= 0], minlength=len(texts)))
        sign = np.append(self.vocabulary.signs(texts), np.int8(BLANK))[answer.codes]
        blank_line = row.missing() & column.missing() & (sign == BLANK)
        bad = bad_ids({"row": row, "column": column}, blank_line)
        moment = None
        if self.after is not None:
            moment = Texts.of(batch.columns[3], "times", source)
            late, unknown = (
                np.append(part, last)[moment.codes]
                for part, last in zip(self.after.later(moment.strings()), (False, True), strict=True)
            )
            bad[NO_TIME] = unknown & ~blank_line & (sign != BLANK)
        wrong = _any(list(bad.values()), len(sign))
        for k in self._told(wrong | (sign == BAD)):
            content = ",".join(field.field(k) for field in (row, column, answer))
            reason = next((reason for reason, which in bad.items() if which[k]), None)
            hint = ""
            if reason is None:
                text = answer.field(k)
                reason = self.vocabulary.reason(text, self._found)
                hint = self.vocabulary.hint(self._found, text)
            elif reason == NO_TIME and self.after is not None and moment is not None:
                reason, hint = self.after.reason(moment.field(k)), self.after.hint
            self.problems.add(batch.place(k), content, reason, hint)
        self.blank += int(((sign == BLANK) & ~blank_line & ~wrong).sum())
        keep = ~wrong & (np.abs(sign) == 1)
        for ids, side in ((self.rows, row), (self.columns, column)):
            ids.text_type |= side.typed_text
            ids.add(*side.take(keep))
        if moment is not None:
            self._late.append(late[keep])
        self.signs.append(sign[keep])
        self.good += int(keep.sum())

    def add_wide(self, cells: Cells, names: Sequence[str]) -> None:
        """Take up some lines of a wide table, whose columns have these names."""
        lines = len(cells.codes)
        row = self._row_ids(cells)
        if not self._lines:
            encoded = pa.array([name.encode() for name in names], pa.large_binary())
            self.columns.add(encoded, np.arange(len(names), dtype=np.int32))
            self.vocabulary.settle(cells.values, cells.codes)
        self._count(cells.values, np.bincount(cells.codes.ravel(), minlength=len(cells.values)))
        signs = self.vocabulary.signs(cells.values)[cells.codes]
        blank_line = row.missing() & (signs == BLANK).all(axis=1)
        reasons = bad_ids({"row": row}, blank_line)
        wrong = _any([*reasons.values(), (signs == BAD).any(axis=1)], lines)
        for k in self._told(wrong):
            reason = next((reason for reason, which in reasons.items() if which[k]), None)
            hint = ""
            if reason is None:
                reason, hint = self._bad_cell(cells, signs, k, names)
            content = ",".join([row.field(k), *cells.line(k, 8)])
            self.problems.add(cells.place(k), content, reason, hint)
        keep = ~wrong & ~blank_line
        kept = np.flatnonzero(keep)
        signs = signs[kept]
        line, column = np.nonzero(signs)
        self.blank += int(signs.size - len(line))
        self.rows.text_type |= row.typed_text
        self.rows.add(*row.take(keep))
        self._cells.append(((line + self._n_lines).astype(np.int32), column.astype(np.int32)))
        self._lines.append((kept, cells.place))
        self._n_lines += len(kept)
        self.signs.append(signs[line, column])
        self.good += len(line)

    def _told(self, bad: Flags) -> Iterator[int]:
        """Yield the bad lines that are told of, and count the others."""
        places = np.flatnonzero(bad).tolist()
        for done, k in enumerate(places):
            if self.problems.enough:
                self.problems.count += len(places) - done
                return
            yield k

    def _row_ids(self, cells: Cells) -> Texts:
        if cells.ids is not None:
            return Texts.of(cells.ids, "ids", self.problems.source)
        begin, lines = self._numbered, len(cells.codes)
        self._numbered += lines
        numbers = [str(begin + k + 1).encode() for k in range(lines)]
        return Texts(pa.array(numbers, pa.large_binary()), np.arange(lines, dtype=np.int32), False)

    def _count(self, texts: Sequence[str], counts: NDArray[np.int64]) -> None:
        """Count the kinds of answer, for messages."""
        if self.vocabulary.threshold is None and len(self._found) < _MOST_KINDS:
            self._found.update(dict(zip(texts[:_MOST_KINDS], counts.tolist(), strict=False)))

    def _bad_cell(
        self, cells: Cells, signs: NDArray[np.int8], k: int, names: Sequence[str]
    ) -> tuple[str, str]:
        """Say what is wrong with the first bad field of a line, and what to do."""
        bad = signs == BAD
        j = int(np.argmax(bad[k]))
        text = cells.values[cells.codes[k, j]]
        columns = np.flatnonzero(bad.any(axis=0))
        if self.vocabulary.threshold is not None or 2 * len(columns) > max(len(names), 2):
            reason = self.vocabulary.reason(text, self._found)
            return f"in column {shown(names[j])}, {reason}", self.vocabulary.hint(self._found, text)
        share = bad[:, columns].sum(axis=0) / np.maximum((signs[:, columns] != BLANK).sum(axis=0), 1)
        others = columns[share > _NO_ANSWERS]
        drop = " ".join(option("--drop", names[i]) for i in (others if j in others else [j])[:5])
        found = np.bincount(cells.codes[:, j], minlength=len(cells.values)).tolist()
        kinds = kinds_of(dict(zip(cells.values, found, strict=True)))
        one_word = (
            f"in column {shown(names[j])}, which holds {counted(kinds)}, {shown(text)} is no answer"
        )
        if j not in others:
            return one_word, (
                f"{self.vocabulary.taken_for(text)}, mend it, leave such lines out with --skip-bad, or "
                f"the column with {drop}"
            )
        words = [cells.values[code] for code in np.unique(cells.codes[bad[:, j], j])]
        answered, rated = not np.isin(signs[:, j], (BAD, BLANK)).all(), looks_like_ratings(kinds)
        if answered and not rated and len(words) <= _FEW_WORDS:
            blank = " ".join(option("--blank", word) for word in words)
            taken = f"take it for a blank with {blank}"
            if len(words) == 1:
                taken = self.vocabulary.taken_for(words[0])
            return one_word, f"{taken}, or leave the column out with {drop}"
        hint = f"leave it out with {drop}" if len(others) == 1 else f"leave such columns out with {drop}"
        if rated:
            hint += f"; or, if every column holds ratings, {self.vocabulary.hint(kinds)}"
        return f"the column {shown(names[j])} holds {counted(kinds)}, which are no answers", hint

    def finish(
        self, source: str, chosen: Chosen, named: bool
    ) -> tuple[Observations, Observations | None, Repeats | None]:
        """Return the answers, those to hold out, and which row ids of a wide table stand twice."""
        if self.problems.count:
            self.problems.check(self._n_lines or self.good)
        if self.good == 0:
            raise TableError(f"{source} holds no answers: every one of its {self.blank} entries is blank")
        if named:
            self.rows.name = None if chosen.row is None else chosen.names[chosen.row] or None
            self.columns.name = None if chosen.column is None else chosen.names[chosen.column] or None
        rows, row_codes = self.rows.finish(listed=not self.matrix)
        columns, column_codes = self.columns.finish(listed=not self.matrix)
        if max(len(rows), len(columns)) > MAX_SIZE:
            raise TableError(f"more than {MAX_SIZE} rows or columns are not supported")
        repeats = None
        if chosen.wide:
            repeats = self._repeats(row_codes, rows.labels)
            line, column = (np.concatenate(parts) for parts in zip(*self._cells, strict=True))
            self._cells = []
            row_codes, column_codes = row_codes[line], column_codes[column]
        signs, classes = np.concatenate(self.signs), self.vocabulary.classes
        held_out = None
        if self.after is not None:
            late = self._checked_late(source)
            held_out = Observations.from_codes(
                rows, columns, row_codes[late], column_codes[late], signs[late], None, classes
            )
            row_codes, column_codes, signs = row_codes[~late], column_codes[~late], signs[~late]
        seen = Observations.from_codes(rows, columns, row_codes, column_codes, signs, None, classes)
        return seen, held_out, repeats

    def _checked_late(self, source: str) -> Flags:
        """Return which answers are to be held out: some, not all."""
        assert self.after is not None
        late = np.concatenate(self._late)
        if late.all() or not late.any():
            which = "every answer" if late.all() else "no answer"
            raise TableError(
                f"{which} of {source} is after {self.after.value} in column {shown(self.after.column)}; "
                "some must be, and some not"
            )
        return late

    def _repeats(self, codes: Codes, labels: pd.Index) -> Repeats | None:
        """Find the ids of several lines, given the id of each line."""
        again = np.bincount(codes) > 1
        if not again.any():
            return None
        first = int(np.argmax(again[codes]))
        second = int(np.flatnonzero(codes == codes[first])[1])
        return Repeats(
            int(again.sum()), str(labels[codes[first]]), (self._place(first), self._place(second))
        )

    def _place(self, line: int) -> str:
        for kept, place in self._lines:
            if line < len(kept):
                return place(int(kept[line]))
            line -= len(kept)
        raise IndexError(line)
