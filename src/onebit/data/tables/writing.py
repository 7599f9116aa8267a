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

from onebit.data.files import written_whole
from onebit.data.tables.problems import shown
from onebit.data.tables.sources import COMPRESSED, SUFFIXES

WRITTEN = ("csv", "tsv", "jsonl", "parquet", "arrow")

Write = Callable[[pa.Table], None]

# Spreadsheet programs run text that begins so, some of them in full width too. A number is no formula.
_FORMULA = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
_NUMBER = r"^[+\-]?[0-9]+([.][0-9]+)?$"


class Formulas:
    """Texts of a CSV or TSV file that a spreadsheet program would take for formulas.

    They are found and, if wanted, ``guarded`` by an apostrophe in front.

    Examples
    --------
    >>> from onebit.data.tables.writing import Formulas
    >>> formulas = Formulas(guarded=True)
    >>> formulas.checked(pa.array(["ann", "=1+1", "-3"])).to_pylist()
    ['ann', "'=1+1", '-3']
    >>> formulas.found
    ['=1+1']
    """

    def __init__(self, guarded: bool = False) -> None:
        self.guarded = guarded
        self._found: dict[str, None] = {}

    @property
    def found(self) -> list[str]:
        """The texts found so far, each once."""
        return list(self._found)

    def checked(self, column: Any) -> Any:
        """Take note of the formulas of a column of text, and return what to write."""
        risky = pc.and_not(
            pc.match_substring_regex(column, _FORMULA), pc.match_substring_regex(column, _NUMBER)
        )
        if not pc.any(risky).as_py():
            return column
        self._found.update(dict.fromkeys(column.filter(risky).to_pylist()))
        if not self.guarded:
            return column
        apostrophe, nothing = (pa.scalar(text, column.type) for text in ("'", ""))
        return pc.if_else(risky, pc.binary_join_element_wise(apostrophe, column, nothing), column)

    def checked_table(self, table: pa.Table) -> pa.Table:
        """Take note of the formulas of all columns of text."""
        for place, column in enumerate(table.columns):
            if _is_text(column.type):
                table = table.set_column(place, table.field(place).name, self.checked(column))
        return table

    def note(self) -> str | None:
        """Return what a user should know of the formulas found."""
        if not self._found:
            return None
        count = len(self._found)
        begin = f"{count:,} ids begin" if count > 1 else "1 id begins"
        said = f"{begin} as formulas of spreadsheet programs do, the first is {shown(self.found[0])}"
        if self.guarded:
            return f"{said}; an apostrophe stands before {'each' if count > 1 else 'it'}"
        return f"{said}; for such a program, put apostrophes before them with --spreadsheet"


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


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
def table_writer(
    path: str | os.PathLike[str], kind: str | None = None, formulas: Formulas | None = None
) -> Iterator[Write]:
    """Yield a function that appends a table to a file, which appears at the end; ``-`` is stdout.

    ``formulas`` takes note of what a spreadsheet program would run, in CSV and TSV.
    """
    formulas = formulas or Formulas()
    path = os.fspath(path)
    kind, packed = output_format(path, kind)
    if path == "-":
        if kind in ("parquet", "arrow") and sys.stdout.isatty():
            raise ValueError(f"{kind} is not for a terminal; write it to a file with -o")
        with _unclosed(sys.stdout.buffer) as stream, _appending(stream, kind, formulas) as write:
            yield write
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {target.parent} does not exist")
    with written_whole(target) as temporary, temporary.open("wb") as file:
        if packed:
            out = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), packed)
            with out, _appending(out, kind, formulas) as write:
                yield write
        else:
            with _appending(file, kind, formulas) as write:
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
def _appending(stream: Any, kind: str, formulas: Formulas) -> Iterator[Write]:
    if kind == "jsonl":
        yield lambda table: stream.write(_json_lines(table))
        return
    writer: Any = None

    def write(table: pa.Table) -> None:
        nonlocal writer
        if writer is None:
            writer = _opened(stream, kind, table.schema, formulas)
        writer.write_table(table)

    yield write
    if writer is not None:
        writer.close()


def _opened(stream: Any, kind: str, schema: pa.Schema, formulas: Formulas) -> Any:
    if kind == "parquet":
        return pa.parquet.ParquetWriter(stream, schema, compression="zstd")
    if kind == "arrow":
        return pa.ipc.new_file(stream, schema)
    return _TextWriter(stream, "\t" if kind == "tsv" else ",", schema.names, formulas)


class _TextWriter:
    """Writes CSV with quotes only where they are needed."""

    def __init__(self, stream: Any, delimiter: str, names: list[str], formulas: Formulas) -> None:
        self._stream, self._delimiter, self._formulas = stream, delimiter, formulas
        names = formulas.checked(pa.array(names, pa.large_string())).to_pylist()
        head = io.StringIO()
        writer = csv.writer(head, delimiter=delimiter, lineterminator="\n")
        if any("\r" in name for name in names):  # it quotes its own line end alone
            writer = csv.writer(head, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(names)
        stream.write(head.getvalue().encode("utf-8"))

    def write_table(self, table: pa.Table) -> None:
        table = self._formulas.checked_table(table)
        special = re.escape(self._delimiter) + r'|"|\r|\n'
        quotes = any(
            pc.any(pc.match_substring_regex(column, special)).as_py()
            for column in table.columns
            if _is_text(column.type)
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
