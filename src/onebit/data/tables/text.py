"""Text: CSV and its kin, and JSON lines."""

from __future__ import annotations

import codecs
import csv
import io
import json
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
import pyarrow.csv

from onebit.data.tables.cells import LONG_LINE, Cells, record_cells, wide_lines
from onebit.data.tables.lines import LONGEST_LINE, LONGEST_OBJECT, LONGEST_RECORD, Bounded, lines
from onebit.data.tables.problems import NOT_UTF8, Problems, TableError
from onebit.data.tables.sources import LINES, SAMPLE, Batch, Choose, Source

_DELIMITERS = ",\t;|"
_BLOCK = 8 << 20
# Bytes of the first lines, for guessing, and of JSON lines that are held at a time.
_SAMPLE_BYTES = 1 << 20
_HELD = 16 << 20
# Seconds that a parser may take to let go of a file.
_LONGEST_WAIT = 5.0
_LONG_RECORD = "a line of a long table is one answer: look for line ends that are missing there"


def read_csv(
    source: Source, choose: Choose, problems: Problems, header: bool, delimiter: str | None
) -> Iterator[Batch | Cells]:
    """Read CSV, whose delimiter is guessed where it is None."""
    stream = source.stream
    first = _first_record(stream, source.name)
    delimiter = delimiter or max(_DELIMITERS, key=lambda mark: first.count(mark))
    if len(delimiter) != 1 or ord(delimiter) > 127 or delimiter in '"\r\n':
        raise ValueError(f"a delimiter is one plain character, got {delimiter!r}")
    fields = (_records(first, delimiter) or [[""]])[0]
    names = [field.strip() for field in fields] if header else [str(k + 1) for k in range(len(fields))]
    known = [] if header else io.BytesIO(first.encode("utf-8") + b"\n").readlines()
    begin = first.count("\n") + 2 if header else 1
    sample = _sampled(lines(stream, source.name, begin + len(known), LONGEST_LINE, LONG_LINE))
    known += sample  # for guessing; they are read again below
    if not b"".join(known).strip():
        raise TableError(f"{source.name} holds a line of names and nothing else")
    beginning = b"".join(known).decode("utf-8", "replace")
    records = [record for record in _records(beginning, delimiter) if len(record) == len(names)]
    wanted = choose(names, list(zip(*records, strict=True)) if records else [()] * len(names))
    del records, beginning
    if choose.wide:
        count, ids = len(names), choose.ids
        yield from wide_lines(known, stream, begin, source.name, delimiter, count, wanted, ids, problems)
        return
    bounded = io.BufferedReader(
        Bounded(stream, source.name, begin + len(known), LONGEST_RECORD, _LONG_RECORD), 1 << 20
    )
    for _ in lines(io.BytesIO(b"".join(known)), source.name, begin, LONGEST_RECORD, _LONG_RECORD):
        pass
    left_out: list[int] = []
    failure: list[TableError] = []
    # An empty line in place of the names: without it, a byte order mark of the first id would go.
    text = _Text(b"\n" + b"".join(known), bounded)

    def invalid(row: pa.csv.InvalidRow) -> str:
        if text.ended:
            return "skip"
        left_out.append(row.number)
        reason = f"{row.actual_columns} fields where there should be {row.expected_columns}"
        try:
            problems.add(f"line {row.number - (not header)}", row.text, reason)
        except TableError as error:  # an exception would not come through the parser
            failure.append(error)
            return "error"
        return "skip"

    columns = [str(k) for k in range(len(names))]
    options = pa.csv.ReadOptions(
        column_names=columns, use_threads=False, block_size=max(_BLOCK, 16 * len(first))
    )
    parse = pa.csv.ParseOptions(
        delimiter=delimiter,
        newlines_in_values=True,
        ignore_empty_lines=False,
        invalid_row_handler=invalid,
    )
    convert = pa.csv.ConvertOptions(
        column_types={name: pa.binary() for name in columns},
        include_columns=[columns[k] for k in wanted],
        strings_can_be_null=False,
    )
    data: Any = io.BufferedReader(text, 1 << 20)
    used, done, reader = weakref.ref(data), 0, None
    try:
        reader = pa.csv.open_csv(data, options, parse, convert)
        for record in reader:
            yield Batch(list(record.columns), _line_numbers(done, left_out, header))
            done += record.num_rows
    except pa.ArrowException as error:
        if failure:
            raise failure[0] from None
        if "straddling" in str(error):
            after = _line_numbers(done, left_out, header)(-1)
            raise TableError(
                f"a record of {source.name} after {after} goes on for more than "
                f"{options.block_size >> 20} MiB; it may open a quote and never close it"
            ) from None
        raise
    finally:
        # The parser reads ahead on a thread of its own: should that need Python when it ends, all aborts.
        text.ended = True
        with suppress(Exception):  # what was read ahead may be wrong in its own way; nobody asked for it
            for _ in reader or ():
                pass
        reader = data = None
        failure.clear()  # the parser, which this frame holds, holds it too
        last = time.monotonic() + _LONGEST_WAIT
        while used() is not None and time.monotonic() < last:
            time.sleep(0.001)


def _sampled(found: Iterator[bytes]) -> list[bytes]:
    """Take the first lines: a few, and not much beyond the first one where they are long."""
    sample: list[bytes] = []
    size = 0
    for line in islice(found, SAMPLE):
        sample.append(line)
        size += len(line)
        if size > _SAMPLE_BYTES:
            break
    return sample


def _records(text: str, delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error:  # for guessing only: what is wrong, the reader will say
        return []


def _line_numbers(begin: int, left_out: list[int], header: bool) -> Callable[[int], str]:
    def place(k: int) -> str:
        wanted = begin + k + 1
        line = wanted
        while (found := wanted + bisect_right(left_out, line)) != line:
            line = found
        return f"line {line - (not header)}"

    return place


class _Text(io.RawIOBase):
    """Some bytes, then the rest of a stream, as UTF-8 in which a mark stands for what is not.

    The parser cannot pass a line on that is not UTF-8, and the mark is found again in the fields. Once it
    has ``ended``, there is nothing more to read.
    """

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._rest, self._ready = rest, memoryview(b"")
        self._decoder = codecs.getincrementaldecoder("utf-8")("onebit-mark")
        self._first: bytes | None = first
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.ended:
            return 0
        while not self._ready:
            data = self._rest.read(1 << 20) if self._first is None else self._first
            ended = self._first is None and not data
            self._first = None
            self._ready = memoryview(self._decoder.decode(data, ended).encode())
            if ended and not self._ready:
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return NOT_UTF8, error.end


codecs.register_error("onebit-mark", _mark)


def _first_record(stream: BinaryIO, name: str) -> str:
    """Read the first record of a text file: a line, or more where a quoted field holds line ends."""
    found = lines(stream, name, 1, LONGEST_LINE, LONG_LINE)
    record = next(found, b"")
    if record.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(f"{name} is written in UTF-16; save it as UTF-8")
    parts, size, quotes = [record], len(record), record.count(b'"')
    while quotes % 2:
        more = next(found, b"")
        size += len(more)
        if not more or size > LONGEST_LINE:
            raise TableError(f"the first line of {name} opens a quote and never closes it")
        parts.append(more)
        quotes += more.count(b'"')
    record = b"".join(parts)
    record = record.removeprefix(b"\xef\xbb\xbf")
    if not record.strip():
        rest = stream.read(1)
        what = "begins with an empty line" if rest else "is empty"
        raise TableError(f"{name} {what}; the first line should hold the names of the columns")
    try:
        text = record.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise TableError(f"the first line of {name} is not UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        raise TableError(f"{name} is no text file: its first line holds a zero byte")
    if "\r" in text:
        raise TableError(f"{name} ends its lines in the way of old Macs; save it with usual line ends")
    return text


def read_json_lines(source: Source, choose: Choose, problems: Problems) -> Iterator[Batch | Cells]:
    """Read one JSON object a line; values become text."""
    found = enumerate(lines(source.stream, source.name, 1, LONGEST_OBJECT, LONG_LINE), start=1)
    names: list[str] = []
    wanted: list[str] | None = None
    while chunk := _chunk(found):
        records, numbers = _objects(chunk, problems)
        if not records:
            continue
        if wanted is None:
            names = list(dict.fromkeys(name for record in records[:SAMPLE] for name in record))
            sample = [[_field(record.get(name)) or "" for record in records[:SAMPLE]] for name in names]
            wanted = [names[k] for k in choose(names, sample)]
        if choose.wide:
            _refuse_new_columns(records, numbers, set(names), source.name)
        records, numbers = _flat(records, numbers, wanted, problems)

        def place(k: int, numbers: list[int] = numbers) -> str:
            return f"line {numbers[k]}"

        if not choose.wide:
            columns = [
                pa.array([_bytes(record.get(name)) for record in records], pa.binary()) for name in wanted
            ]
            yield Batch(columns, place)
        elif records:
            texts = [[_field(record.get(name)) or "" for name in wanted] for record in records]
            yield record_cells(texts, place, choose.ids)
    if wanted is None:
        raise TableError(f"{source.name} is empty")


def _chunk(found: Iterator[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Take some lines, by their number and their length."""
    chunk: list[tuple[int, bytes]] = []
    size = 0
    for number, line in islice(found, LINES):
        chunk.append((number, line))
        size += len(line)
        if size > _HELD:
            break
    return chunk


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose names are all different."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a name is there twice")
    return record


def _objects(
    chunk: list[tuple[int, bytes]], problems: Problems
) -> tuple[list[dict[str, Any]], list[int]]:
    """Parse lines, one object each; also return their numbers."""
    records, numbers = [], []
    for number, line in chunk:
        if not line.strip(b" \t\r\n\xef\xbb\xbf"):
            continue
        try:
            record = json.loads(
                line.removeprefix(b"\xef\xbb\xbf"), parse_constant=_no_number, object_pairs_hook=_once
            )
            if not isinstance(record, dict):
                raise TypeError
        except (ValueError, TypeError, RecursionError):
            hint = ""
            if number == 1 and line.lstrip().startswith(b"["):
                hint = "write one object a line, without the brackets around them"
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            problems.add(f"line {number}", text, "this is not a JSON object", hint)
            continue
        records.append(record)
        numbers.append(number)
    return records, numbers


def _refuse_new_columns(
    records: list[dict[str, Any]], numbers: list[int], known: set[str], name: str
) -> None:
    """Refuse a wide table whose later records have columns that the first ones did not show."""
    for record, number in zip(records, numbers, strict=True):
        if not known.issuperset(record):
            new = next(column for column in record if column not in known)
            raise TableError(
                f"line {number} of {name} has a column {new!r} that none of the first {SAMPLE} records "
                "has; write it there too, as null, or write a long table"
            )


def _flat(
    records: list[dict[str, Any]], numbers: list[int], wanted: list[str], problems: Problems
) -> tuple[list[dict[str, Any]], list[int]]:
    """Leave out, as problems, records in which a wanted field holds a list or an object."""
    kept, places = [], []
    for record, number in zip(records, numbers, strict=True):
        if any(isinstance(record.get(name), (list, dict)) for name in wanted):
            problems.add(f"line {number}", json.dumps(record), "a field holds a list or an object", "")
        else:
            kept.append(record)
            places.append(number)
    return kept, places


def _field(value: Any) -> str | None:
    """Write a JSON value as text."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _bytes(value: Any) -> bytes | None:
    text = _field(value)
    return None if text is None else text.encode("utf-8", "surrogatepass")
