"""Typed tables and matrices: Parquet, Arrow, NPZ and Matrix Market."""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet
import scipy.sparse

from onebit.data.tables.cells import CELLS
from onebit.data.tables.lines import LONGEST_RECORD, Bounded, whole
from onebit.data.tables.problems import TableError, shown
from onebit.data.tables.sources import LINES, SAMPLE, Batch, Choose, Source

# How programs write a value that is not there.
_NO_NUMBER = ["NaN", "nan", "NAN", "-NaN", "-nan", "NA"]
# What parsers raise on bytes that are not theirs.
_BROKEN = (
    ValueError, OSError, OverflowError, IndexError, KeyError, TypeError, EOFError, MemoryError,
    NotImplementedError, AttributeError, zipfile.BadZipFile, zlib.error, RuntimeError,
    tokenize.TokenError,
)  # fmt: skip


def _whole(source: Source) -> Any:
    """Return what can be read at any place: the file itself, or all of a stream."""
    if source.path:
        return pa.memory_map(str(source.path))
    return pa.BufferReader(whole(source.stream, source.name).getbuffer())


def _texts(column: pa.Array) -> list[str]:
    try:
        return [text or "" for text in column.slice(0, SAMPLE).cast(pa.string()).to_pylist()]
    except (pa.ArrowException, UnicodeDecodeError):  # lists, structures: neither ids nor answers
        return ["(nested)"] * len(column)


def _numbered(begin: int) -> Callable[[int], str]:
    return lambda k: f"row {begin + k + 1}"


def read_parquet(source: Source, choose: Choose) -> Iterator[Batch]:
    """Read Parquet, row group by row group."""
    with pa.parquet.ParquetFile(_whole(source)) as file:
        names = file.schema_arrow.names
        first = next(file.iter_batches(batch_size=SAMPLE), None)
        if first is None or first.num_rows == 0:
            raise _no_lines(source.name, names)
        wanted = choose(names, [_texts(column) for column in first.columns])
        # Columns are read by name: where a name stands twice, all of them.
        unique = len(set(names)) == len(names)
        read = [names[k] for k in wanted] if unique else None
        begin = 0
        for record in file.iter_batches(batch_size=_lines_a_batch(wanted, choose), columns=read):
            found = [record.column(names[k] if unique else k) for k in wanted]
            _refuse_long(source.name, found, begin)
            yield Batch(found, _numbered(begin))
            begin += record.num_rows


def _refuse_long(name: str, columns: Sequence[pa.Array], begin: int) -> None:
    """Refuse text that is longer than a line of a text file may be: a few bytes can stand for much."""
    for column in columns:
        values = column.dictionary if isinstance(column, pa.DictionaryArray) else column
        if not _is_text(values.type) or len(values) == 0:
            continue
        longest = pc.max(pc.binary_length(values)).as_py() or 0
        if longest > LONGEST_RECORD:
            raise TableError(
                f"{name} holds a text of {longest / 2**20:,.0f} MB after row {begin:,}; ids and answers "
                "are shorter"
            )


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _lines_a_batch(wanted: Sequence[int], choose: Choose) -> int:
    return max(1, min(LINES, CELLS // len(wanted))) if choose.wide else LINES


def read_arrow(source: Source, choose: Choose) -> Iterator[Batch]:
    """Read Arrow IPC, a file (Feather) or a stream."""
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
        step = _lines_a_batch(wanted, choose)
        for part in (record.slice(k, step) for k in range(0, record.num_rows, step)):
            found = [part.column(k) for k in wanted]
            _refuse_long(source.name, found, begin)
            yield Batch(found, _numbered(begin))
            begin += part.num_rows
    if begin == 0:
        raise _no_lines(source.name, names)


def _no_lines(name: str, names: Sequence[str]) -> TableError:
    return TableError(f"{name} has the columns {', '.join(map(shown, names[:12]))} and not one line")


def read_npz(source: Source, choose: Choose) -> Iterator[Batch]:
    """Read arrays of one length, one matrix with NaN for blanks, or a sparse matrix."""
    data = whole(source.stream, source.name)
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
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise TableError(
                f"{source.name} is an archive, but not of numpy's arrays; save a spreadsheet as CSV"
            )
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


def read_mtx(source: Source, choose: Choose) -> Iterator[Batch]:
    """Read a Matrix Market file."""
    # Not by scipy.io.mmread, which a damaged line can crash.
    wanted = None
    begin = 0
    try:
        for columns in _market(source):
            arrays = {name: pa.array(values) for name, values in columns.items()}
            if wanted is None:
                wanted = choose(list(arrays), [_texts(array) for array in arrays.values()])
            chosen = list(arrays.values())
            yield Batch([chosen[k] for k in wanted], _numbered(begin), matrix=True)
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
    entries, advice = f"the entries of {source.name}", "a line holds one entry: row, column and value"
    data = io.BufferedReader(Bounded(source.stream, entries, 1, LONGEST_RECORD, advice))
    chunks = pd.read_csv(
        data, sep=r"\s+", header=None, names=[*names, "answer"], dtype=names | {"answer": float},
        chunksize=LINES, index_col=False, keep_default_na=False, na_values={"answer": _NO_NUMBER},
    )  # fmt: skip
    while True:
        try:
            chunk = next(chunks)
        except StopIteration:
            break
        except ValueError as error:
            if "string to float: ''" not in str(error):
                raise
            where = f"entries {done + 1} to {min(done + LINES, expected)} of {source.name}"
            raise TableError(f"one of {where} has no value; {advice}") from None
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
    # Not of a sparse one, which may claim more rows than memory holds.
    shape = None if scipy.sparse.issparse(matrix) else matrix.shape
    for batch in _arrays(arrays, choose, "the matrix"):
        yield replace(batch, matrix=True, shape=shape)


def _arrays(arrays: dict[str, Any], choose: Choose, source: str) -> Iterator[Batch]:
    if len(next(iter(arrays.values()))) == 0:
        raise TableError(f"{source} holds no answers")
    columns = [pa.array(array) for array in arrays.values()]
    wanted = choose(list(arrays), [_texts(column) for column in columns])
    yield Batch([columns[k] for k in wanted], _numbered(0))
