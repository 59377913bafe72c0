"""The text index of a local store, ``.abp/text.sqlite``: the words of text artifacts, for searches.

It is an option, and holds a copy of each text. Like the index of metadata it may be deleted at any time: the next
search makes it again. Any number of processes and threads may use it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence, Set
from contextlib import closing, contextmanager, suppress

from ...errors import StoreError
from .tree import Tree

__all__ = ["TextIndex"]

_FILE = "text.sqlite"
_FILES = (_FILE, f"{_FILE}-wal", f"{_FILE}-shm")
_WAIT = 10.0  # seconds for another process that writes
_SCHEMA = """
CREATE TABLE IF NOT EXISTS artifacts (number INTEGER PRIMARY KEY, id TEXT UNIQUE);
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(text, tokenize='unicode61 remove_diacritics 0');
"""


class TextIndex:
    """The index file of one store, opened for each question. Every method blocks.

    Raises :class:`~transports.errors.StoreError` if the file cannot be used, or SQLite has no full-text search.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def missing(self, keys: Set[str]) -> list[str]:
        """Drop the texts of other artifacts than ``keys``, and return those of ``keys`` that are not in the index."""
        with self._open() as db:
            known = dict(db.execute("SELECT id, number FROM artifacts"))
            gone = [(known[key],) for key in known.keys() - keys]
            db.executemany("DELETE FROM texts WHERE rowid = ?", gone)
            db.executemany("DELETE FROM artifacts WHERE number = ?", gone)
        return sorted(keys - known.keys())

    def add(self, texts: Sequence[tuple[str, str]]) -> None:
        """Add texts, each with the id of its artifact. One that is there already stays."""
        with self._open() as db:
            for key, text in texts:
                added = db.execute("INSERT OR IGNORE INTO artifacts (id) VALUES (?)", (key,))
                if added.rowcount:
                    db.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (added.lastrowid, text))

    def find(self, words: Sequence[str]) -> set[str]:
        """Return the ids of the texts with all of ``words``, of which the last may be the beginning of a word."""
        query = " AND ".join(f'"{word}"' for word in words) + "*"
        with self._open() as db:
            rows = db.execute(
                "SELECT id FROM artifacts JOIN texts ON texts.rowid = number WHERE texts MATCH ?", (query,)
            )
            return {key for (key,) in rows}

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction. One that is damaged is removed, and made anew."""
        try:
            try:
                db = self._connect()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                self._remove()
                db = self._connect()
            with closing(db), db:
                db.execute("BEGIN IMMEDIATE")
                yield db
        except sqlite3.DatabaseError as error:
            path = self._tree.root / ".abp" / _FILE
            raise StoreError(f"the text index cannot be used ({error}); delete {path} and search again") from error

    def _connect(self) -> sqlite3.Connection:
        with self._tree.folder(".abp", create=True) as folder:
            with suppress(FileExistsError):
                # made here, with our mode and never through a symlink
                os.close(folder.create(_FILE))
            if not folder.lstat(_FILE):
                raise sqlite3.OperationalError(f"{_FILE} is not a regular file")
        db = sqlite3.connect(self._tree.root / ".abp" / _FILE, timeout=_WAIT, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL").fetchone()
            db.execute("PRAGMA secure_delete=ON").fetchone()
            db.executescript(_SCHEMA)
        except BaseException:
            db.close()
            raise
        return db

    def _remove(self) -> None:
        with self._tree.folder(".abp") as folder:
            for name in _FILES:
                folder.unlink(name)
