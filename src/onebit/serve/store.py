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

from onebit.data.storage import FileError

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
_PATIENCE = 10.0


class Conflict(ValueError):
    """A key that was used before, for other answers."""


class Stored(NamedTuple):
    """Answers of a store: ids, signs, and the number of the last of them."""

    rows: list[Any]
    columns: list[Any]
    signs: list[int]
    last: int


class Store:
    """A file of answers, one of them open in each process that adds to it."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self.path = Path(path)
        if not create and not self.path.is_file():
            raise FileNotFoundError(f"{path}: there is no such file of answers")
        new = not self.path.exists()
        if new:
            # People's answers: for nobody else to read.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
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
        with self._lock, closing(self._connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                before = cursor.execute("SELECT digest FROM batches WHERE key = ?", (key,)).fetchone()
                if before is None:
                    cursor.execute("INSERT INTO batches VALUES (?, ?)", (key, digest))
                    cursor.executemany(
                        'INSERT INTO answers (row, "column", answer) VALUES (?, ?, ?)', lines
                    )
                cursor.execute("COMMIT")
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
        if before is not None and before[0] != digest:
            raise Conflict(f"the key {key!r} was used before, for other answers; use a new key")
        return before is None

    def after(self, last: int = 0) -> Stored:
        """Return the answers after one of them, in the order in which they came."""
        with self._lock:
            lines = self._connection.execute(
                'SELECT id, row, "column", answer FROM answers WHERE id > ? ORDER BY id', (last,)
            ).fetchall()
        try:
            rows, columns = ([json.loads(line[place]) for line in lines] for place in (1, 2))
        except ValueError:
            raise FileError(f"{self.path} holds an id that cannot be read") from None
        return Stored(rows, columns, [line[3] for line in lines], lines[-1][0] if lines else last)
