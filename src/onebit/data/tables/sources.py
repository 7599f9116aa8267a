"""Files opened, unpacked and recognised, and what readers make of them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from onebit.data.tables.problems import TableError

FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow", "npz", "mtx")
SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".npz": "npz", ".mtx": "mtx",
}  # fmt: skip
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_MAGIC = ((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"PK\x03\x04", "npz"), (b"%%MatrixMarket", "mtx"))
_PACKED = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))

# Lines that are looked at to guess the columns, and lines (of formats that are not cut by size) a batch.
SAMPLE = 50
LINES = 1 << 16

Advance = Callable[[int], None]


class Choose(Protocol):
    """Settles on columns: given names and a sample of the fields, column by column, it names places."""

    @property
    def wide(self) -> bool:
        """Whether every chosen column but that of the ids is one of the matrix."""

    @property
    def ids(self) -> bool:
        """Whether the first of the chosen columns holds the row ids."""

    def __call__(self, names: Sequence[str], sample: Sequence[Sequence[str]]) -> list[int]:
        """Return the places of the wanted columns."""


@dataclass(frozen=True)
class Batch:
    """Some lines of a table: the wanted columns, and where each line stands in the file.

    Of a ``matrix``, ids are positions, which have an order of their own; a dense one has a ``shape``, and
    its rows and columns are there also without an answer.
    """

    columns: list[pa.Array]
    place: Callable[[int], str]
    matrix: bool = False
    shape: tuple[int, int] | None = None


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
        if sys.stdin is None:
            raise TableError("standard input is closed; name a file")
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
