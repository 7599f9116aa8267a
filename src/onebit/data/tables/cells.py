"""Wide tables: one row a line, a field for every column, whatever the format."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onebit.data.tables.encoding import distinct
from onebit.data.tables.lines import LONGEST_LINE, lines
from onebit.data.tables.problems import Problems, TableError

# Fields of a wide table that are taken up at a time: what is held of each is a few bytes.
CELLS = 1 << 21
LONG_LINE = (
    "look for line ends that are missing there; a table of so many columns is better written long, one "
    "(row, column, answer) a line"
)


@dataclass(frozen=True)
class Cells:
    """Some lines of a wide table.

    Attributes
    ----------
    ids : array, optional
        The row ids; None where the table has none.
    values : list of str
        The distinct fields.
    codes : array of shape (lines, columns)
        Which of them stands where.
    place : callable
        Says where a line stands in the file.
    """

    ids: pa.Array | None
    values: list[str]
    codes: NDArray[np.int32]
    place: Callable[[int], str]

    def line(self, k: int, count: int) -> list[str]:
        """Return the first few fields of a line."""
        return [self.values[code] for code in self.codes[k, :count]]


class _Codes(dict[str, int]):
    """Numbers texts in the order in which they come."""

    def __missing__(self, text: str) -> int:
        self[text] = code = len(self)
        return code


def wide_lines(
    known: Sequence[bytes],
    stream: BinaryIO,
    line: int,
    source: str,
    delimiter: str,
    count: int,
    wanted: Sequence[int],
    ids: bool,
    problems: Problems,
) -> Iterator[Cells]:
    """Read a wide text file: lines that were read already, then the rest of a stream.

    Parameters
    ----------
    known, stream : sequence of bytes, stream
        Lines, and where they go on.
    line : int
        The number of the first line.
    source, delimiter : str
        The file, for messages, and what stands between its fields.
    count : int
        How many fields a line has.
    wanted : sequence of int
        Which of them to take, ids first if there are any.
    ids : bool
        Whether there is a column of row ids.
    problems : Problems
        Is told of lines with another number of fields.
    """
    # Not by the parser of long tables, which spends kilobytes on every column.
    rest = lines(stream, source, line + len(known), LONGEST_LINE, LONG_LINE)
    texts = (raw.decode("utf-8", "onebit-mark") for raw in chain(known, rest))
    reader = csv.reader(texts, delimiter=delimiter)
    row, places = (wanted[0], list(wanted[1:])) if ids else (None, list(wanted))
    take = _taker(places, count)
    names: list[str] = []
    numbers: list[int] = []
    held: list[NDArray[np.int32]] = []
    codes = _Codes()

    def batch() -> Cells:
        found = np.concatenate(held).reshape(len(held), len(places))
        of_rows = pa.array([name.encode() for name in names], pa.large_binary()) if ids else None
        at = np.array(numbers)
        return Cells(of_rows, list(codes), found, lambda k: f"line {at[k]}")

    while True:
        number = line + reader.line_num
        try:
            fields = next(reader, None)
        except csv.Error as error:
            if "limit" in str(error):
                raise TableError(
                    f"line {number} of {source} holds a field of more than {csv.field_size_limit():,} "
                    "characters; it may open a quote and never close it"
                ) from None
            problems.add(f"line {number}", "", f"the line cannot be taken apart: {error}")
            continue
        if fields is None:
            break
        if not fields or (len(fields) == 1 < count and not fields[0].strip()):
            continue
        if len(fields) != count:
            reason = f"{len(fields)} fields where there should be {count}"
            problems.add(f"line {number}", delimiter.join(fields[:20]), reason)
            continue
        if row is not None:
            names.append(fields[row])
        numbers.append(number)
        held.append(np.fromiter(map(codes.__getitem__, take(fields)), np.int32, len(places)))
        if len(held) * len(places) >= CELLS:
            yield batch()
            names, numbers, held, codes = [], [], [], _Codes()
    if held:
        yield batch()


def _taker(places: list[int], count: int) -> Callable[[list[str]], Sequence[str]]:
    """Return a function that takes some fields of a line."""
    if places == list(range(places[0], count)):
        return itemgetter(slice(places[0], None))
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


def record_cells(records: Sequence[Sequence[str]], place: Callable[[int], str], ids: bool) -> Cells:
    """Return the cells of some records of texts, the ids first if there are ``ids``."""
    codes = _Codes()
    skip = int(ids)
    width = len(records[0]) - skip
    found = np.empty((len(records), width), dtype=np.int32)
    for k, record in enumerate(records):
        found[k] = np.fromiter(map(codes.__getitem__, record[skip:]), np.int32, width)
    names = [record[0].encode("utf-8", "surrogatepass") for record in records] if ids else None
    of_rows = None if names is None else pa.array(names, pa.large_binary())
    return Cells(of_rows, list(codes), found, place)


def typed_cells(columns: Sequence[Any], place: Callable[[int], str], ids: bool, source: str) -> Cells:
    """Return the cells of a batch of columns, the ids first if there are ``ids``."""
    of_rows = columns[0] if ids else None
    columns = columns[1:] if ids else columns
    codes = _Codes()
    found = np.empty((len(columns[0]), len(columns)), dtype=np.int32)
    for j, column in enumerate(columns):
        try:
            values, own = distinct(column)
        except pa.ArrowException:
            raise TableError(f"a column of {source} of type {column.type} cannot hold answers") from None
        texts = [value.decode("utf-8", "replace") for value in values.to_pylist()]
        found[:, j] = np.array([*map(codes.__getitem__, texts), codes[""]], dtype=np.int32)[own]
    return Cells(of_rows, list(codes), found, place)
