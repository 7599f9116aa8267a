"""Tables written batch by batch, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from onebit.files import written_whole
from onebit.tables.sources import COMPRESSED, SUFFIXES

WRITTEN = ("csv", "tsv", "jsonl", "parquet", "arrow")

Write = Callable[[pa.Table], None]


def output_format(path: str, kind: str | None = None) -> tuple[str, str | None]:
    """Return format and compression of a file to be written, by its name."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packed = COMPRESSED[suffixes.pop()] if suffixes and suffixes[-1] in COMPRESSED else None
    if kind is None:
        kind = "csv" if path == "-" else SUFFIXES.get(suffixes[-1] if suffixes else "", "")
    if kind not in WRITTEN:
        raise ValueError(
            f"{path}: a table is written as {', '.join(WRITTEN)}; end its name with one of these, or say "
            "which with --output-format"
        )
    return kind, packed


@contextmanager
def table_writer(path: str | os.PathLike[str], kind: str | None = None) -> Iterator[Write]:
    """Yield a function that appends a table to a file, which appears at the end; ``-`` is stdout."""
    path = os.fspath(path)
    kind, packed = output_format(path, kind)
    if path == "-":
        if kind in ("parquet", "arrow") and sys.stdout.isatty():
            raise ValueError(f"{kind} is not for a terminal; write it to a file with -o")
        with _unclosed(sys.stdout.buffer) as stream, _appending(stream, kind) as write:
            yield write
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {target.parent} does not exist")
    with written_whole(target) as temporary, temporary.open("wb") as file:
        if packed:
            out = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), packed)
            with out, _appending(out, kind) as write:
                yield write
        else:
            with _appending(file, kind) as write:
                yield write


@contextmanager
def _unclosed(stream: Any) -> Iterator[io.BufferedWriter]:
    """Yield a stream that survives the writer which closes it."""
    copy = open(os.dup(stream.fileno()), "wb") if _has_number(stream) else stream  # noqa: SIM115
    stream.flush()
    try:
        yield copy
    finally:
        copy.flush()
        if copy is not stream:
            copy.close()


def _has_number(stream: Any) -> bool:
    try:
        stream.fileno()
    except (OSError, AttributeError):
        return False
    return True


@contextmanager
def _appending(stream: Any, kind: str) -> Iterator[Write]:
    if kind == "jsonl":
        yield lambda table: stream.write(_json_lines(table))
        return
    writer: Any = None

    def write(table: pa.Table) -> None:
        nonlocal writer
        if writer is None:
            writer = _opened(stream, kind, table.schema)
        writer.write_table(table)

    yield write
    if writer is not None:
        writer.close()


def _opened(stream: Any, kind: str, schema: pa.Schema) -> Any:
    if kind == "parquet":
        return pa.parquet.ParquetWriter(stream, schema, compression="zstd")
    if kind == "arrow":
        return pa.ipc.new_file(stream, schema)
    return _TextWriter(stream, "\t" if kind == "tsv" else ",", schema.names)


class _TextWriter:
    """Writes CSV with quotes only where they are needed."""

    def __init__(self, stream: Any, delimiter: str, names: list[str]) -> None:
        self._stream, self._delimiter = stream, delimiter
        head = io.StringIO()
        csv.writer(head, delimiter=delimiter, lineterminator="\n").writerow(names)
        stream.write(head.getvalue().encode("utf-8"))

    def write_table(self, table: pa.Table) -> None:
        special = re.escape(self._delimiter) + r'|"|\r|\n'
        quotes = any(
            pc.any(pc.match_substring_regex(column, special)).as_py()
            for column in table.columns
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        )
        options = pa.csv.WriteOptions(
            include_header=False,
            delimiter=self._delimiter,
            quoting_style="needed" if quotes else "none",
        )
        pa.csv.write_csv(table, self._stream, options)

    def close(self) -> None:
        """Leave the stream to whoever opened it."""


def _json_lines(table: pa.Table) -> bytes:
    lines = (json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in table.to_pylist())
    return "".join(lines).encode("utf-8", "surrogatepass")
