"""Files of every kind as batches of columns.

Each reader yields ``Batch`` records: some columns of some lines, and where each line stands. Which
columns are wanted is settled by a callback, as soon as their names and the first fields are known.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import sys
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import scipy.sparse

from onebit.tables.problems import NOT_UTF8, Problems, TableError, shown

FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow", "npz", "mtx")
SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".npz": "npz", ".mtx": "mtx",
}  # fmt: skip
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_MAGIC = ((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"PK\x03\x04", "npz"), (b"%%MatrixMarket", "mtx"))
_PACKED = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))
_DELIMITERS = ",\t;|"
_BLOCK = 8 << 20
_LINES = 1 << 16
_SAMPLE = 50
_LONGEST_HEADER = 256 << 20

# What parsers raise on bytes that are not theirs.
_BROKEN = (
    ValueError, OSError, OverflowError, IndexError, KeyError, TypeError, EOFError, MemoryError,
    NotImplementedError, AttributeError, zipfile.BadZipFile, zlib.error, RuntimeError,
)  # fmt: skip
_ARROW = (pa.ArrowException, OSError)

Choose = Callable[[Sequence[str], Sequence[Sequence[str]]], list[int]]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Batch:
    """Some lines of a table: the wanted columns, and where each line stands in the file."""

    columns: list[pa.Array]
    place: Callable[[int], str]


@dataclass(frozen=True)
class Source:
    """An open file and what is known of it."""

    name: str
    stream: BinaryIO
    format: str
    path: Path | None  # where the file can be read at any place: it is one, and not packed


class _Counted(io.RawIOBase):
    """A stream that tells how many bytes were taken from it."""

    def __init__(self, stream: BinaryIO, advance: Advance) -> None:
        self._stream, self._advance = stream, advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._advance(len(data))
        return len(data)


@contextmanager
def opened(path: str, kind: str | None, advance: Advance | None = None) -> Iterator[Source]:
    """Open a file or standard input (``-``), unpack it, and find out what it is."""
    if path == "-":
        raw: BinaryIO = sys.stdin.buffer
        name = "standard input"
    else:
        file = Path(path)
        if file.is_dir():
            raise IsADirectoryError(f"{path} is a folder, not a file")
        if not file.exists():
            raise FileNotFoundError(f"no such file: {path}")
        raw, name = file.open("rb"), file.name
    try:
        stream: Any = io.BufferedReader(_Counted(raw, advance or (lambda _: None)), 1 << 20)
        start = stream.peek(4)[:4]
        packed = next((codec for magic, codec in _PACKED if start.startswith(magic)), None)
        if packed:
            stream = io.BufferedReader(_Unpacked(stream, packed, name), 1 << 20)
        head = stream.peek(64)[:64]
        plain = None if packed or path == "-" or not file.is_file() else file
        yield Source(name, stream, _format(path, kind, head, name), plain)
    finally:
        if path != "-":
            raw.close()


class _Unpacked(io.RawIOBase):
    """A compressed stream, whose damage is named."""

    def __init__(self, stream: BinaryIO, codec: str, name: str) -> None:
        self._stream = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), codec)
        self._codec, self._name = codec, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (OSError, pa.ArrowException) as error:
            raise TableError(
                f"{self._name} is damaged: it does not unpack ({self._codec}: {error})"
            ) from None
        buffer[: len(data)] = data
        return len(data)


def _format(path: str, kind: str | None, head: bytes, name: str) -> str:
    if kind is not None:
        if kind not in FORMATS:
            raise ValueError(f"unknown format {kind!r}; choose one of {', '.join(FORMATS)}")
        return kind
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    for magic, found in _MAGIC:
        if head.startswith(magic):
            return found
    if head.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"{"):
        return "jsonl"
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(f"{name} is none of the formats that are read: {', '.join(FORMATS)}")
    return "csv"


def batches(
    source: Source,
    choose: Choose,
    problems: Problems,
    *,
    header: bool = True,
    delimiter: str | None = None,
) -> Iterator[Batch]:
    """Read a source batch by batch; ``choose`` names the wanted columns by their places."""
    try:
        if source.format in ("csv", "tsv"):
            delimiter = delimiter or ("\t" if source.format == "tsv" else None)
            yield from _csv(source, choose, problems, header, delimiter)
        elif source.format == "jsonl":
            yield from _json_lines(source, choose, problems)
        elif source.format == "parquet":
            yield from _parquet(source, choose)
        elif source.format == "arrow":
            yield from _arrow(source, choose)
        elif source.format == "npz":
            yield from _npz(source, choose)
        else:
            yield from _mtx(source, choose)
    except UnicodeDecodeError:
        raise TableError(f"{source.name} holds text that is not UTF-8") from None
    except _ARROW as error:
        what = str(error).split("\n")[0]
        raise TableError(f"{source.name} cannot be read as {source.format}: {what}") from None


def _csv(
    source: Source, choose: Choose, problems: Problems, header: bool, delimiter: str | None
) -> Iterator[Batch]:
    stream = source.stream
    first = _first_record(stream, source.name)
    delimiter = delimiter or max(_DELIMITERS, key=lambda mark: first.count(mark))
    if len(delimiter) != 1 or ord(delimiter) > 127 or delimiter in '"\r\n':
        raise ValueError(f"a delimiter is one plain character, got {delimiter!r}")
    fields = (_records(first, delimiter) or [[""]])[0]
    names = [field.strip() for field in fields] if header else [str(k + 1) for k in range(len(fields))]
    lines = [] if header else [first.encode("utf-8") + b"\n"]
    lines += islice(iter(stream.readline, b""), _SAMPLE)  # for guessing; they are read again below
    if not b"".join(lines).strip():
        raise TableError(f"{source.name} holds a line of names and nothing else")
    text = b"".join(lines).decode("utf-8", "replace")
    records = [record for record in _records(text, delimiter) if len(record) == len(names)]
    wanted = choose(names, list(zip(*records, strict=True)) if records else [()] * len(names))
    left_out: list[int] = []
    failure: list[TableError] = []

    def invalid(row: pa.csv.InvalidRow) -> str:
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
    # An empty line in place of the names: without it, a byte order mark of the first id would go.
    data = io.BufferedReader(_Text(b"\n" + b"".join(lines), stream), 1 << 20)
    begin = 0
    try:
        for record in pa.csv.open_csv(data, options, parse, convert):
            yield Batch(list(record.columns), _line_numbers(begin, left_out, header))
            begin += record.num_rows
    except pa.ArrowException:
        if failure:
            raise failure[0] from None
        raise


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

    The parser cannot pass a line on that is not UTF-8, and the mark is found again in the fields.
    """

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._rest, self._ready = rest, memoryview(b"")
        self._decoder = codecs.getincrementaldecoder("utf-8")("onebit-mark")
        self._first: bytes | None = first

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
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
    record = stream.readline(_LONGEST_HEADER)
    if record.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(f"{name} is written in UTF-16; save it as UTF-8")
    while record.count(b'"') % 2 and len(record) < _LONGEST_HEADER:
        more = stream.readline()
        if not more:
            raise TableError(f"the first line of {name} opens a quote and never closes it")
        record += more
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


def _json_lines(source: Source, choose: Choose, problems: Problems) -> Iterator[Batch]:
    lines = enumerate(iter(source.stream.readline, b""), start=1)
    wanted: list[str] | None = None
    while chunk := list(islice(lines, _LINES)):
        records, numbers = [], []
        for number, line in chunk:
            if not line.strip(b" \t\r\n\xef\xbb\xbf"):
                continue
            try:
                record = json.loads(line.removeprefix(b"\xef\xbb\xbf"))
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
        if not records:
            continue
        if wanted is None:
            names = list(dict.fromkeys(name for record in records[:_SAMPLE] for name in record))
            sample = [[_field(record.get(name)) or "" for record in records[:_SAMPLE]] for name in names]
            wanted = [names[k] for k in choose(names, sample)]
        columns = [
            pa.array([_bytes(record.get(name)) for record in records], pa.binary()) for name in wanted
        ]
        yield Batch(columns, lambda k, numbers=numbers: f"line {numbers[k]}")  # type: ignore[misc]
    if wanted is None:
        raise TableError(f"{source.name} is empty")


def _field(value: Any) -> str | None:
    """Write a JSON value as text; lists and objects become what no id and no answer can be."""
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


def _whole(source: Source) -> Any:
    """Return what can be read at any place: the file itself, or all of a stream."""
    return pa.memory_map(str(source.path)) if source.path else pa.BufferReader(source.stream.read())


def _texts(column: pa.Array) -> list[str]:
    try:
        return [text or "" for text in column.slice(0, _SAMPLE).cast(pa.string()).to_pylist()]
    except (pa.ArrowException, UnicodeDecodeError):  # lists, structures: neither ids nor answers
        return ["(nested)"] * len(column)


def _numbered(begin: int) -> Callable[[int], str]:
    return lambda k: f"row {begin + k + 1}"


def _parquet(source: Source, choose: Choose) -> Iterator[Batch]:
    with pa.parquet.ParquetFile(_whole(source)) as file:
        names = file.schema_arrow.names
        first = next(file.iter_batches(batch_size=_SAMPLE), None)
        if first is None or first.num_rows == 0:
            raise _no_lines(source.name, names)
        wanted = [names[k] for k in choose(names, [_texts(column) for column in first.columns])]
        begin = 0
        for record in file.iter_batches(batch_size=_LINES, columns=list(dict.fromkeys(wanted))):
            yield Batch([record.column(name) for name in wanted], _numbered(begin))
            begin += record.num_rows


def _arrow(source: Source, choose: Choose) -> Iterator[Batch]:
    data = _whole(source)
    is_file = data.read(6) == b"ARROW1"
    data.seek(0)
    reader = pa.ipc.open_file(data) if is_file else pa.ipc.open_stream(data)
    records = (reader.get_batch(k) for k in range(reader.num_record_batches)) if is_file else iter(reader)
    names, begin, wanted = reader.schema.names, 0, None
    for record in records:
        record.validate(full=True)
        if wanted is None:
            wanted = choose(names, [_texts(column) for column in record.columns])
        yield Batch([record.column(k) for k in wanted], _numbered(begin))
        begin += record.num_rows
    if begin == 0:
        raise _no_lines(source.name, names)


def _no_lines(name: str, names: Sequence[str]) -> TableError:
    return TableError(f"{name} has the columns {', '.join(map(shown, names[:12]))} and not one line")


def _npz(source: Source, choose: Choose) -> Iterator[Batch]:
    data = io.BytesIO(source.stream.read())
    try:
        with zipfile.ZipFile(data) as archive:
            needed = sum(entry.file_size for entry in archive.infolist())
        if needed > 0.8 * psutil.virtual_memory().available:
            raise TableError(
                f"{source.name} unpacks to {needed / 2**30:.1f} GiB, which memory cannot hold"
            )
        data.seek(0)
        with np.load(data, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if {"format", "shape", "data"} <= set(arrays):
            data.seek(0)
            matrix = scipy.sparse.load_npz(data)
            if matrix.format in ("csr", "csc"):
                matrix.check_format(full_check=True)
            yield from _matrix(matrix, choose)
            return
    except TableError:
        raise
    except _BROKEN as error:
        raise TableError(f"{source.name} cannot be read as npz: {error}") from None
    if not arrays:
        raise TableError(f"{source.name} holds no arrays")
    if len(arrays) == 1 and next(iter(arrays.values())).ndim == 2:
        yield from _matrix(next(iter(arrays.values())), choose)
        return
    flat = {name: array for name, array in arrays.items() if array.ndim == 1}
    lengths = {len(array) for array in flat.values()}
    if len(lengths) != 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:8])
        raise TableError(
            f"{source.name} should hold one matrix with NaN for blanks, or arrays of one length for "
            f"rows, columns and answers; it holds {shapes}"
        )
    yield from _arrays(flat, choose, source.name)


def _mtx(source: Source, choose: Choose) -> Iterator[Batch]:
    # Not by scipy.io.mmread, which a damaged line can crash.
    wanted = None
    begin = 0
    try:
        for columns in _market(source):
            arrays = {name: pa.array(values) for name, values in columns.items()}
            if wanted is None:
                wanted = choose(list(arrays), [_texts(array) for array in arrays.values()])
            chosen = list(arrays.values())
            yield Batch([chosen[k] for k in wanted], _numbered(begin))
            begin += len(chosen[0])
    except TableError:
        raise
    except _BROKEN as error:
        raise TableError(f"{source.name} cannot be read as Matrix Market: {error}") from None
    if wanted is None:
        raise TableError(f"{source.name} holds no answers")


def _market(source: Source) -> Iterator[dict[str, Any]]:
    """Read a Matrix Market file: ids from one, and the stored values."""
    words = source.stream.readline(1000).decode("ascii", "replace").lower().split()
    known = len(words) == 5 and words[:2] == ["%%matrixmarket", "matrix"]
    if not known or words[2] not in ("coordinate", "array"):
        raise TableError(
            f"{source.name} is no Matrix Market file: it begins with {shown(' '.join(words))}"
        )
    kind, numbers, symmetry = words[2:]
    if numbers not in ("real", "double", "integer", "unsigned-integer"):
        raise TableError(f"{source.name} holds no yes/no values: its numbers are {shown(numbers)}")
    if symmetry not in ("general", "symmetric") or (kind == "array" and symmetry != "general"):
        raise TableError(f"{source.name} is {shown(symmetry)}; write the whole matrix, as general")
    line = source.stream.readline(1000)
    while line.startswith(b"%") or (line and not line.strip()):
        line = source.stream.readline(1000)
    sizes = [int(word) for word in line.split()]
    if len(sizes) != (3 if kind == "coordinate" else 2) or min(sizes) < 0:
        raise TableError(f"{source.name}: {shown(line.decode('ascii', 'replace').strip())} are no sizes")
    rows, columns = sizes[:2]
    expected = sizes[2] if kind == "coordinate" else rows * columns
    names = {"row": np.int64, "column": np.int64} if kind == "coordinate" else {}
    done = 0
    for chunk in pd.read_csv(
        source.stream, sep=r"\s+", header=None, names=[*names, "answer"], dtype=names | {"answer": float},
        chunksize=_LINES, index_col=False,
    ):  # fmt: skip
        if kind == "coordinate":
            row, column = chunk["row"].to_numpy(), chunk["column"].to_numpy()
        else:  # column by column
            column, row = np.divmod(np.arange(done, done + len(chunk)), rows)
            row, column = row + 1, column + 1
        done += len(chunk)
        value = chunk["answer"].to_numpy()
        if done > expected or ((row < 1) | (row > rows) | (column < 1) | (column > columns)).any():
            raise TableError(f"{source.name} holds entries beyond its size, {rows} x {columns}")
        if symmetry == "symmetric":
            mirror = row != column
            row, column = np.append(row, column[mirror]), np.append(column, row[mirror])
            value = np.append(value, value[mirror])
        yield {"row": row, "column": column, "answer": value}
    if done != expected:
        raise TableError(f"{source.name} ends after {done} of {expected} entries")


def _matrix(matrix: Any, choose: Choose) -> Iterator[Batch]:
    """Take a matrix apart: of a sparse one what is stored, of a dense one what is not NaN."""
    if scipy.sparse.issparse(matrix):
        stored = matrix.tocoo()
        row, column, value = stored.row, stored.col, stored.data
    else:
        seen = ~np.isnan(matrix) if matrix.dtype.kind == "f" else np.ones(matrix.shape, dtype=bool)
        row, column = np.nonzero(seen)
        value = matrix[row, column]
    arrays = {
        "row": row.astype(np.int64),
        "column": column.astype(np.int64),
        "answer": value,
    }
    yield from _arrays(arrays, choose, "the matrix")


def _arrays(arrays: dict[str, Any], choose: Choose, source: str) -> Iterator[Batch]:
    if len(next(iter(arrays.values()))) == 0:
        raise TableError(f"{source} holds no answers")
    columns = [pa.array(array) for array in arrays.values()]
    wanted = choose(list(arrays), [_texts(column) for column in columns])
    yield Batch([columns[k] for k in wanted], _numbered(0))
