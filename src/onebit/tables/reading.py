"""From files to ``Observations``, and to pairs that want a prediction."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onebit.observations import MAX_SIZE, Observations
from onebit.tables.answers import BAD, BLANK, Vocabulary
from onebit.tables.columns import Chosen, Layout, choose
from onebit.tables.encoding import Codes, GrowingIds, distinct, not_utf8
from onebit.tables.formats import batches
from onebit.tables.problems import Problems, TableError
from onebit.tables.sources import Advance, Batch, Source, opened

logger = logging.getLogger("onebit")


@dataclass(frozen=True)
class Reading:
    """What was read from a file, and how.

    Attributes
    ----------
    observations : Observations
        The answers.
    source, format : str
        The file's name, and what it was read as.
    chosen : Chosen
        Which columns were taken, and whether they were guessed.
    bad, first_bad
        How many lines were left out as bad, and the first few of them.
    blank : int
        How many lines (entries, of a wide table) had no answer.
    """

    observations: Observations
    source: str
    format: str
    chosen: Chosen
    bad: int
    first_bad: tuple[str, ...]
    blank: int

    def notes(self) -> list[str]:
        """Return what a user should know of how the file was read."""
        said = []
        if self.chosen.guessed:
            said.append(f"{self.source}: taking {self.chosen}")
        if self.bad:
            said.append(f"{self.source}: {self.bad:,} bad lines left out, the first: {self.first_bad[0]}")
        if self.blank and not self.chosen.wide:
            said.append(f"{self.source}: {self.blank:,} lines without an answer left out")
        return said


def read_answers(
    path: str | os.PathLike[str],
    *,
    row: str | None = None,
    column: str | None = None,
    answer: str | None = None,
    wide: bool | None = None,
    threshold: float | None = None,
    yes: Sequence[str] | None = None,
    no: Sequence[str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
    skip_bad: bool = False,
) -> Observations:
    r"""Read a file of answers, for ``fit(observations)``.

    Parameters
    ----------
    path : path
        CSV, TSV, JSON lines, Parquet, Arrow, NPZ or Matrix Market, also packed by gzip or zstd; ``-`` is
        standard input.
    row, column, answer : str, optional
        The columns of a long table, by name or by number (the first is 1). Guessed where left out.
    wide : bool, optional
        One row a line, ids in the first column (or in ``row``), answers or blanks in all others.
    threshold : float, optional
        Answers are numbers, and those above it mean yes.
    yes, no : sequence of str, optional
        The words for yes and no, where they are none of the usual ones.
    format, delimiter : str, optional
        Where the name and the first bytes of the file do not tell.
    header : bool
        Whether a text file begins with the names of its columns.
    skip_bad : bool
        Leave bad lines out and log how many, in place of an error at the first one.

    Returns
    -------
    Observations
        An id is its text. Ids of text files are integers where every id of their side is written as a
        plain whole number, else strings ("007" is not 7); typed files keep integers and strings.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import onebit
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "likes.csv"
    ...     _ = path.write_text("user,film,liked\nann,Alien,yes\nbob,Alien,no\nann,Heat,yes\n")
    ...     seen = onebit.read_answers(path)
    >>> seen
    Observations(2 rows, 2 columns, 3 answers, 66.7 % yes)
    """
    layout = Layout(row, column, answer, wide, header, format, delimiter)
    reading = read_table(path, layout, Vocabulary(threshold, yes, no), skip_bad=skip_bad)
    for note in reading.notes():
        logger.info("%s", note)
    return reading.observations


def read_table(
    path: str | os.PathLike[str],
    layout: Layout | None = None,
    vocabulary: Vocabulary | None = None,
    *,
    skip_bad: bool = False,
    advance: Advance | None = None,
) -> Reading:
    """Read a file of answers, and say how; ``advance`` is told of every byte taken from the file."""
    layout, vocabulary = layout or Layout(), vocabulary or Vocabulary()
    with opened(os.fspath(path), layout.format, advance) as source:
        problems = Problems(source.name, skip_bad)
        pick = _Pick(layout, source.name, answers=True)
        table = _Growing(vocabulary, problems)
        found = batches(source, pick, problems, header=layout.header, delimiter=layout.delimiter)
        for batch in found:
            assert pick.chosen is not None
            if pick.chosen.wide:
                table.add_wide(batch, pick.chosen)
            else:
                table.add_long(batch)
        assert pick.chosen is not None
        named = layout.header or source.format not in ("csv", "tsv")
        return table.finish(source, pick.chosen, named)


class _Pick:
    """Settles on the columns once their names are known, and remembers them."""

    def __init__(self, layout: Layout, source: str, answers: bool) -> None:
        self.layout, self.source, self.answers = layout, source, answers
        self.chosen: Chosen | None = None

    @property
    def wide(self) -> bool:
        """Whether every column of the file is one of the matrix."""
        return self.chosen is not None and self.chosen.wide

    def __call__(self, names: Sequence[str], sample: Sequence[Sequence[str]]) -> list[int]:
        self.chosen = choose(names, sample, self.layout, self.source, self.answers)
        return self.chosen.places


@dataclass(frozen=True)
class _Texts:
    """A column of a batch: its distinct fields as bytes, and where each line's is among them."""

    values: pa.Array
    codes: Codes
    typed_text: bool

    @classmethod
    def of(cls, column: pa.Array, what: str, source: str) -> _Texts:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        try:
            values, codes = distinct(column)
        except pa.ArrowException:
            raise TableError(f"a column of {source} of type {kind} cannot hold {what}") from None
        return cls(values, codes, text)

    def strings(self) -> list[str]:
        return [value.decode("utf-8", "replace") for value in self.values.to_pylist()]

    def missing(self) -> NDArray[np.bool_]:
        """Return which lines have no id here: none, or an empty one."""
        empty = pc.equal(pc.binary_length(self.values), 0).to_numpy(zero_copy_only=False)
        return np.append(empty.astype(bool), True)[self.codes]

    def undecodable(self) -> NDArray[np.bool_]:
        """Return which lines hold what is not UTF-8 here."""
        return np.append(not_utf8(self.values), False)[self.codes]

    def field(self, k: int) -> str:
        code = self.codes[k]
        return "" if code < 0 else self.values[int(code)].as_py().decode("utf-8", "replace")

    def take(self, keep: NDArray[np.bool_]) -> tuple[pa.Array, Codes]:
        """Return the ids of some lines: their distinct values, and the place of each."""
        if keep.all():
            return self.values, self.codes
        used, codes = np.unique(self.codes[keep], return_inverse=True)
        return self.values.take(pa.array(used)), codes.astype(np.int32)


def _bad_ids(sides: dict[str, _Texts], blank_line: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    """Return what is wrong with the ids of a batch, and with which of its lines."""
    found = {}
    for side, column in sides.items():
        found[f"the {side} id is missing"] = column.missing() & ~blank_line
        found[f"the {side} id is not UTF-8"] = column.undecodable()
    return {reason: which for reason, which in found.items() if which.any()}


class _Growing:
    """The answers of a file while it is read."""

    def __init__(self, vocabulary: Vocabulary, problems: Problems) -> None:
        self.vocabulary, self.problems = vocabulary, problems
        self.rows, self.columns = GrowingIds("row", None), GrowingIds("column", None)
        self.signs: list[NDArray[np.int8]] = []
        self.good = self.blank = 0

    def add_long(self, batch: Batch) -> None:
        source = self.problems.source
        row, column = (_Texts.of(batch.columns[k], "ids", source) for k in (0, 1))
        answer = _Texts.of(batch.columns[2], "answers", source)
        sign = self._signs(answer)
        blank_line = row.missing() & column.missing() & (sign == BLANK)
        bad = _bad_ids({"row": row, "column": column}, blank_line)
        fields = (row, column, answer)
        wrong = np.zeros(len(sign), dtype=bool)
        for which in bad.values():
            wrong |= which
        for k in np.flatnonzero(wrong | (sign == BAD)).tolist():
            content = ",".join(field.field(k) for field in fields)
            reason = next((reason for reason, which in bad.items() if which[k]), None)
            if reason is None:
                text = answer.field(k)
                self.problems.add(
                    batch.place(k), content, self.vocabulary.reason(text), self.vocabulary.hint(text)
                )
            else:
                self.problems.add(batch.place(k), content, reason)
        self.blank += int(((sign == BLANK) & ~blank_line & ~wrong).sum())
        keep = ~wrong & (np.abs(sign) == 1)
        self._take(row, column, sign, keep)

    def add_wide(self, batch: Batch, chosen: Chosen) -> None:
        source = self.problems.source
        row = _Texts.of(batch.columns[0], "ids", source)
        names = [chosen.names[k] for k in chosen.places[1:]]
        lines = len(row.codes)
        signs = np.empty((lines, len(names)), dtype=np.int8)
        wrong = np.zeros(lines, dtype=bool)
        cells = [_Texts.of(column, "answers", source) for column in batch.columns[1:]]
        for j, cell in enumerate(cells):
            signs[:, j] = self._signs(cell)
        blank_line = row.missing() & (signs == BLANK).all(axis=1)
        reasons = _bad_ids({"row": row}, blank_line)
        for which in reasons.values():
            wrong |= which
        for k in np.flatnonzero(wrong | (signs == BAD).any(axis=1)).tolist():
            reason = next((reason for reason, which in reasons.items() if which[k]), None)
            hint = ""
            if reason is None:
                j = int(np.argmax(signs[k] == BAD))
                text = cells[j].field(k)
                reason = f"in column {names[j]!r}, {self.vocabulary.reason(text)}"
                hint = self.vocabulary.hint(text)
            content = ",".join(field.field(k) for field in (row, *cells[:8]))
            self.problems.add(batch.place(k), content, reason, hint)
            wrong[k] = True
        signs[wrong] = BLANK
        line, column = np.nonzero(np.abs(signs) == 1)
        self.blank += int((signs[~wrong & ~blank_line] == BLANK).sum())
        columns = _Texts(
            pa.array([n.encode() for n in names], pa.large_binary()), column.astype(np.int32), False
        )
        rows = _Texts(row.values, row.codes[line], row.typed_text)
        self._take(rows, columns, signs[line, column], np.ones(len(line), dtype=bool))

    def _signs(self, answer: _Texts) -> NDArray[np.int8]:
        of_distinct = np.append(self.vocabulary.signs(answer.strings()), np.int8(BLANK))
        return of_distinct[answer.codes]

    def _take(self, row: _Texts, column: _Texts, sign: NDArray[np.int8], keep: NDArray[np.bool_]) -> None:
        for ids, side in ((self.rows, row), (self.columns, column)):
            ids.text_type |= side.typed_text
            ids.add(*side.take(keep))
        self.signs.append(sign[keep])
        self.good += int(keep.sum())

    def finish(self, source: Source, chosen: Chosen, named: bool) -> Reading:
        if self.problems.count:
            self.problems.check(self.good)
        if self.good == 0:
            raise TableError(
                f"{source.name} holds no answers: every one of its {self.blank} entries is blank"
            )
        if named:
            self.rows.name = chosen.names[chosen.row] or None
            self.columns.name = None if chosen.column is None else chosen.names[chosen.column] or None
        rows, row_codes = self.rows.finish()
        columns, column_codes = self.columns.finish()
        if max(len(rows), len(columns)) > MAX_SIZE:
            raise TableError(f"more than {MAX_SIZE} rows or columns are not supported")
        observations = Observations.from_codes(
            rows,
            columns,
            row_codes,
            column_codes,
            np.concatenate(self.signs),
            None,
            self.vocabulary.classes,
        )
        first = tuple(self.problems.first)
        return Reading(
            observations, source.name, source.format, chosen, self.problems.count, first, self.blank
        )


@dataclass(frozen=True)
class PairBatch:
    """Some pairs of a file: the distinct ids of each side as bytes, and where each pair's are."""

    rows: tuple[pa.Array, Codes]
    columns: tuple[pa.Array, Codes]

    def __len__(self) -> int:
        return len(self.rows[1])


def read_pairs(
    path: str | os.PathLike[str],
    layout: Layout | None = None,
    *,
    skip_bad: bool = False,
    advance: Advance | None = None,
    tell: Callable[[Chosen, Problems], None] | None = None,
) -> Iterator[PairBatch]:
    """Read a file of pairs batch by batch; ``tell`` is told of the columns taken, at the beginning."""
    layout = layout or Layout()
    with opened(os.fspath(path), layout.format, advance) as source:
        problems = Problems(source.name, skip_bad)
        pick = _Pick(layout, source.name, answers=False)
        told = False
        good = 0
        for batch in batches(source, pick, problems, header=layout.header, delimiter=layout.delimiter):
            if tell is not None and not told:
                assert pick.chosen is not None
                tell(pick.chosen, problems)
                told = True
            row, column = (_Texts.of(column, "ids", source.name) for column in batch.columns[:2])
            blank_line = row.missing() & column.missing()
            wrong = np.zeros(len(row.codes), dtype=bool)
            for reason, which in _bad_ids({"row": row, "column": column}, blank_line).items():
                for k in np.flatnonzero(which & ~wrong).tolist():
                    problems.add(batch.place(k), f"{row.field(k)},{column.field(k)}", reason)
                wrong |= which
            keep = ~wrong & ~blank_line
            good += int(keep.sum())
            if keep.any():
                yield PairBatch(row.take(keep), column.take(keep))
        if problems.count:
            problems.check(good)
        if good == 0:
            raise TableError(f"{source.name} holds no pairs")
