"""From files to ``Observations``, and to pairs that want a prediction."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from onebit.data.observations import Observations
from onebit.data.tables.answers import Vocabulary
from onebit.data.tables.cells import Cells, typed_cells
from onebit.data.tables.columns import Chosen, Layout, choose
from onebit.data.tables.encoding import Codes
from onebit.data.tables.formats import batches
from onebit.data.tables.growing import Growing, Repeats, Texts, bad_ids
from onebit.data.tables.problems import Problems, TableError
from onebit.data.tables.sources import Advance, Batch, opened
from onebit.data.tables.times import After

logger = logging.getLogger("onebit")


# What advice about options means to whoever calls the library.
IN_PYTHON = "options are parameters here: --col is column, --no-ids ids=False, --no-header header=False"


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
    repeats : Repeats, optional
        The row ids of a wide table that stand in more than one line.
    divided : str
        Which numbers a threshold has made yes and no.
    one_sided : two str, optional
        Both numbers, where they are answers by themselves (0 and 1) and a threshold is beside them.
    held_out : Observations, optional
        Answers after a moment that the layout names, over the same ids; they are not among the others.
    """

    observations: Observations
    source: str
    format: str
    chosen: Chosen
    bad: int
    first_bad: tuple[str, ...]
    blank: int
    repeats: Repeats | None = None
    divided: str = ""
    one_sided: tuple[str, str] | None = None
    held_out: Observations | None = None

    def notes(self) -> list[str]:
        """Return what a user should know of how the file was read."""
        said = []
        if self.chosen.guessed:
            said.append(f"{self.source}: taking {self.chosen}")
        if self.bad:
            said.append(f"{self.source}: {self.bad:,} bad lines left out, the first: {self.first_bad[0]}")
        if self.repeats is not None:
            said.append(f"{self.source}: {self.repeats}")
        if self.divided:
            said.append(f"{self.source}: {self.divided}")
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
    drop: Sequence[str] = (),
    ids: bool = True,
    blank: Sequence[str] | None = None,
    after: tuple[str, str] | None = None,
) -> Any:
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
    drop : sequence of str
        Columns to leave out, by name or by number.
    ids : bool
        Whether a wide table has row ids; if not, its rows are called 1, 2, 3, ...
    blank : sequence of str, optional
        Words or numbers that mean that there is no answer, beside the usual ones: pass, 99.
    after : (str, str), optional
        A column of times and a moment, a number or a date: the answers after it are returned apart, for
        ``fit(observations, certify=later)``.

    Returns
    -------
    Observations, or two of them with ``after``
        Rows and columns are listed in the order of the file: of a wide table that of its lines and of
        its columns, also of those without an answer, of a long one that in which they first appear.
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
    if isinstance(drop, str):
        raise TypeError(f"drop is a list of columns, not {drop!r}; write drop=[{drop!r}]")
    layout = Layout(
        row, column, answer, wide, header, format, delimiter, drop=[str(name) for name in drop], ids=ids,
        after=None if after is None else After(*map(str, after)),
    )  # fmt: skip
    try:
        reading = read_table(path, layout, Vocabulary(threshold, yes, no, blank), skip_bad=skip_bad)
    except TableError as error:
        if " --" not in str(error):
            raise
        raise TableError(f"{error} ({IN_PYTHON})") from None
    for note in reading.notes():
        logger.info("%s", note)
    if after is not None:
        return reading.observations, reading.held_out
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
        table = Growing(vocabulary, problems, layout.after)
        found = batches(source, pick, problems, header=layout.header, delimiter=layout.delimiter)
        with closing(found):
            for batch in found:
                if isinstance(batch, Cells):
                    table.add_wide(batch, pick.columns)
                elif pick.wide:
                    cells = typed_cells(batch.columns, batch.place, pick.ids, source.name)
                    table.add_wide(cells, pick.columns)
                else:
                    table.add_long(batch)
        if pick.chosen is None:
            raise TableError(f"{source.name} holds no answers")
        named = layout.header or source.format not in ("csv", "tsv")
        seen, held_out, repeats = table.finish(source.name, pick.chosen, named)
        first = tuple(problems.first)
        return Reading(
            seen, source.name, source.format, pick.chosen, problems.count, first, table.blank, repeats,
            vocabulary.divided(), vocabulary.one_sided(), held_out,
        )  # fmt: skip


class _Pick:
    """Settles on the columns once their names are known, and remembers them."""

    def __init__(self, layout: Layout, source: str, answers: bool) -> None:
        self.layout, self.source, self.answers = layout, source, answers
        self.chosen: Chosen | None = None
        self.columns: list[str] = []

    @property
    def wide(self) -> bool:
        """Whether every chosen column but that of the ids is one of the matrix."""
        return self.chosen is not None and self.chosen.wide

    @property
    def ids(self) -> bool:
        """Whether the first of the chosen columns holds the row ids."""
        return self.chosen is not None and self.chosen.row is not None

    def __call__(self, names: Sequence[str], sample: Sequence[Sequence[str]]) -> list[int]:
        self.chosen = choose(names, sample, self.layout, self.source, self.answers)
        if self.chosen.wide:
            self.columns = self.chosen.columns
        return self.chosen.places


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
        good = 0
        found = batches(source, pick, problems, header=layout.header, delimiter=layout.delimiter)
        with closing(found):
            for number, batch in enumerate(found):
                if tell is not None and number == 0:
                    assert pick.chosen is not None
                    tell(pick.chosen, problems)
                assert not isinstance(batch, Cells)
                pairs = _pairs(batch, source.name, problems)
                good += len(pairs)
                if len(pairs):
                    yield pairs
        if problems.count:
            problems.check(good)
        if good == 0:
            raise TableError(f"{source.name} holds no pairs")


def _pairs(batch: Batch, name: str, problems: Problems) -> PairBatch:
    """Return the pairs of a batch; lines without ids are left out, and those with one told of."""
    row, column = (Texts.of(column, "ids", name) for column in batch.columns[:2])
    blank_line = row.missing() & column.missing()
    wrong = np.zeros(len(row.codes), dtype=bool)
    for reason, which in bad_ids({"row": row, "column": column}, blank_line).items():
        for k in np.flatnonzero(which & ~wrong).tolist():
            problems.add(batch.place(k), f"{row.field(k)},{column.field(k)}", reason)
        wrong |= which
    keep = ~wrong & ~blank_line
    return PairBatch(row.take(keep), column.take(keep))
