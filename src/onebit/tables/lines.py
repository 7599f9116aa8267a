"""Lines and whole files read within bounds: a few packed bytes may unpack to more than memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import psutil

from onebit.tables.problems import TableError

# A line of a wide table: some five million columns with names of a dozen bytes. Taken apart into
# fields, a line takes about ten times its length in memory.
LONGEST_LINE = 64 << 20
# A record of a long table, which must fit into one block of the parser (8 MiB) beside others.
LONGEST_RECORD = 4 << 20
# An object of JSON lines: parsed, it takes up to twenty times its length.
LONGEST_OBJECT = 16 << 20
# Beyond this a line that is too long is not read on to tell its length.
_COUNTED = 1 << 30
_STEP = 1 << 20

# The share of the free memory that a packed file may unpack to where it is needed as a whole.
_SHARE = 0.4


def lines(stream: BinaryIO, source: str, number: int, longest: int, advice: str) -> Iterator[bytes]:
    """Yield the lines of a stream, the first of which is number ``number``."""
    while line := stream.readline(longest + 1):
        if len(line) > longest:
            length = len(line) if line.endswith(b"\n") else _rest(stream, len(line))
            raise _too_long(source, number, length, longest, advice)
        yield line
        number += 1


def _rest(stream: BinaryIO, length: int) -> int:
    """Return the length of a line of which so much was read, as far as it is counted."""
    while length < _COUNTED and (part := stream.readline(_STEP)):
        length += len(part)
        if part.endswith(b"\n"):
            break
    return length


def _too_long(source: str, number: int, length: int, longest: int, advice: str) -> TableError:
    more = "at least " if length >= _COUNTED else ""
    return TableError(
        f"line {number} of {source} is {more}{length:,} bytes long, and at most {longest:,} are read; "
        f"{advice}"
    )


class Bounded(io.RawIOBase):
    """A stream whose lines are counted, and refused where one is too long."""

    def __init__(self, stream: BinaryIO, source: str, number: int, longest: int, advice: str) -> None:
        self._stream, self._source, self._advice = stream, source, advice
        self._number, self._longest, self._length = number, longest, 0

    def readable(self) -> bool:
        """Say that this is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read on; lines are looked at as they pass."""
        data = self._stream.read(min(len(buffer), self._longest))
        buffer[: len(data)] = data
        first = data.find(b"\n")
        self._length += len(data) if first < 0 else first + 1
        if self._length > self._longest:
            length = self._length if first >= 0 else _rest(self._stream, self._length)
            raise _too_long(self._source, self._number, length, self._longest, self._advice)
        if first >= 0:
            # What was just read is no longer than a line may be: only the last one can still grow.
            self._number += data.count(b"\n")
            self._length = len(data) - 1 - data.rfind(b"\n")
        return len(data)


def whole(stream: BinaryIO, source: str) -> io.BytesIO:
    """Return all of a stream, where memory can hold it."""
    most = int(_SHARE * psutil.virtual_memory().available)
    data = io.BytesIO()
    while part := stream.read(_STEP):
        if data.tell() + len(part) > most:
            raise TableError(
                f"{source} unpacks to more than {most / 2**30:.1f} GiB, which memory cannot hold; unpack "
                "it to a file, and read that one"
            )
        data.write(part)
    data.seek(0)
    return data
