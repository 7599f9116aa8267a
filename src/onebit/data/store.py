"""Answers that come in while a model is served, kept in one SQLite file until an update takes them up.

An answer is acknowledged once it is on the disk: the file has a write-ahead log, and every commit waits
for the disk. A batch has a key of the sender's choice, and the same batch sent twice is stored once.
Nothing is ever changed or deleted; a model that takes answers up remembers how far it got.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from onebit.data.checked import FileError

# "1bit", as SQLite files say whose they are.
_OURS = 0x31626974
_LAYOUT = """
CREATE TABLE IF NOT EXISTS store (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS batches (key TEXT PRIMARY KEY, digest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  row TEXT NOT NULL,
  "column" TEXT NOT NULL,
  answer INTEGER NOT NULL CHECK (answer IN (-1, 1)),
  at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
"""
# Seconds to wait for another process that writes.
_PATIENCE = 3.0
# Beyond it a number is not the same in every language.
_LARGEST = 2**53


class StoreError(RuntimeError):
    """Answers that could not be stored: a full disk, a file that another process holds."""


_FIELDS = 'id, row, "column", answer'


class Conflict(ValueError):
    """A key that was used before, for other answers."""


class Stored(NamedTuple):
    """Answers of a store: ids, signs, the number of the last of them, and its fingerprint."""

    rows: list[Any]
    columns: list[Any]
    signs: list[int]
    last: int
    mark: str


class Store:
    """A file of answers, one of them open in each process that adds to it."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self.path = Path(path)
        if not create and not self.path.is_file():
            raise FileNotFoundError(f"{path}: there is no such file of answers")
        if self.path.exists() and not self.path.is_file():
            raise FileError(f"{path} is no plain file; name one for the answers")
        new = not self.path.exists()
        if new:
            # People's answers: for nobody else to read.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(
                self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise FileError(f"{path} cannot be opened as a file of answers: {error}") from None
        try:
            self._prepare()
        except sqlite3.Error as error:
            self.close()
            raise FileError(f"{path} is not a file of answers: {error}") from None
        except FileError:
            self.close()
            raise

    def _prepare(self) -> None:
        run = self._connection.execute
        owner = run("PRAGMA application_id").fetchone()[0]
        empty = run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if owner != _OURS and not empty:
            raise FileError(f"{self.path} is a database of another program; name a file of its own")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("BEGIN IMMEDIATE")
        run(f"PRAGMA application_id = {_OURS}")
        for statement in _LAYOUT.split(";"):
            run(statement)
        if run("SELECT count(*) FROM store").fetchone()[0] == 0:
            run("INSERT INTO store VALUES (?)", (uuid.uuid4().hex,))
        run("COMMIT")
        self.id: str = str(run("SELECT id FROM store").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(self, key: str, row: Any, answers: Iterable[tuple[Any, int]]) -> bool:
        """Store the answers of a row, all or none; say whether they are new.

        The same key with the same answers stores nothing; with others it is a ``Conflict``.
        """
        lines = [(json.dumps(row), json.dumps(column), int(sign)) for column, sign in answers]
        digest = hashlib.sha256(json.dumps(lines).encode()).hexdigest()
        try:
            with self._lock, closing(self._connection.cursor()) as cursor:
                before = self._added(cursor, key, digest, lines)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None
        if before is not None and before[0] != digest:
            raise Conflict(f"the key {key!r} was used before, for other answers; use a new key")
        return before is None

    def _added(self, cursor: sqlite3.Cursor, key: str, digest: str, lines: list[Any]) -> Any:
        """Add a batch in one transaction, unless its key is there; return what was there."""
        cursor.execute("BEGIN IMMEDIATE")
        try:
            before = cursor.execute("SELECT digest FROM batches WHERE key = ?", (key,)).fetchone()
            if before is None:
                cursor.execute("INSERT INTO batches VALUES (?, ?)", (key, digest))
                cursor.executemany('INSERT INTO answers (row, "column", answer) VALUES (?, ?, ?)', lines)
            cursor.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # else SQLite has rolled back by itself
                cursor.execute("ROLLBACK")
            raise
        return before

    def after(self, last: int = 0, mark: str = "") -> Stored:
        """Return the answers after one of them, in the order in which they came.

        ``mark`` is what was returned with that one. Another answer in its place means that this is not
        the file that was read before, or an older copy of it.
        """
        try:
            with self._lock:
                run = self._connection.execute
                there = run(f"SELECT {_FIELDS} FROM answers WHERE id = ?", (last,)).fetchone()
                lines = run(f"SELECT {_FIELDS} FROM answers WHERE id > ? ORDER BY id", (last,)).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise FileError(f"{self.path} cannot be read: {error}") from None
        if last and (there is None or (mark and _mark(there) != mark)):
            raise FileError(
                f"{self.path} does not hold the answer up to which it was taken up: it is an older copy, "
                "or another file; take its answers up from a table of them"
            )
        found = [_read(self.path, line) for line in lines]
        if lines and lines[-1][0] > _LARGEST:
            raise FileError(f"{self.path} holds an answer with the number {lines[-1][0]}")
        rows, columns, signs = ([line[place] for line in found] for place in range(3))
        final = lines[-1] if lines else there
        return Stored(rows, columns, signs, final[0] if final else 0, _mark(final) if final else "")


def _mark(line: Any) -> str:
    """Return a fingerprint of a line."""
    return hashlib.sha256(repr(tuple(line)).encode()).hexdigest()[:32]


def _read(path: Path, line: Any) -> tuple[Any, Any, int]:
    """Return row, column and sign of a line, checked."""
    number, row, column, sign = line
    try:
        ids = json.loads(row), json.loads(column)
    except (TypeError, ValueError, RecursionError):
        raise FileError(f"{path}: the ids of answer {number} cannot be read") from None
    for value in ids:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise FileError(f"{path}: answer {number} has an id that is neither text nor a number")
    if sign not in (-1, 1):
        raise FileError(f"{path}: answer {number} is neither yes nor no")
    return *ids, int(sign)
