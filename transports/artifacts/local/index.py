"""The index of a local store, ``.abp/index.sqlite``: a searchable copy of the metadata files.

The metadata files are the truth: which artifacts exist is always read from their folder, and the index only saves
reading each of them. A row is valid for the file that it was made of, identified by its inode: metadata is never
written in place. So the index may be lost, old or damaged at any time: missing rows are read again, superfluous ones
are dropped, and a file that SQLite cannot read is replaced. WAL mode; any number of processes and threads may use it.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias, TypeVar

import msgspec

from ..clock import stamp
from ..metadata import Metadata
from ..ref import ArtifactRef, Scope
from ..retention import Entry
from .tree import Tree, lstat, unlink
from .tree import create as new_file

__all__ = ["Index", "Row", "ref_from_row"]

T = TypeVar("T")
#: id, sha256, size, MIME type, names and source as JSON, tenant, user, session, trace.
Row: TypeAlias = tuple[str, str, int, str, str, str, str | None, str | None, str | None, str | None]

logger = logging.getLogger("transports.artifacts")

_FILES = ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm")
_WAIT = 2.0  # seconds for another process that writes
_PAUSE = 30.0  # seconds for which the index is left alone after it could not be used
_VERSION = 1  # an index of another version is replaced
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS artifacts (
    id TEXT PRIMARY KEY, sha256 TEXT, size INTEGER, mime TEXT, names TEXT, source TEXT, created TEXT, stored REAL,
    inode INTEGER, used REAL, tenant TEXT, user TEXT, session TEXT, trace TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_session ON artifacts (session, trace);
PRAGMA user_version={_VERSION};
"""
_COLUMNS, _INODE, _USED = 14, 8, 9


class Index:
    """The SQLite file. Every method blocks.

    No method fails because the index does: it then returns ``None``, and the caller reads the metadata files.

    A ``live`` index stays open and gets a row for every commit: a retention asks for all entries before each one.
    Otherwise the file is opened for each question and brought up to date then, so that a program that only stores and
    reads never opens it.
    """

    def __init__(self, tree: Tree, *, live: bool) -> None:
        self.live = live
        self._tree = tree
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._opened = (0, 0, 0)  # process, device, inode
        self._pause = 0.0  # not used until then (monotonic)
        #: Whether a change could not be written to it.
        self.incomplete = False

    def put(self, metadata: Iterable[tuple[Metadata, int]]) -> None:
        """Add or replace the rows of metadata, each with the inode of its file."""
        rows = [_row(one, inode) for one, inode in metadata]
        insert = f"INSERT OR REPLACE INTO artifacts VALUES ({','.join('?' * _COLUMNS)})"

        def work(db: sqlite3.Connection) -> None:
            with _transaction(db):
                db.executemany(insert, rows)

        self._try(work)

    def forget(self, keys: Iterable[str]) -> None:
        """Remove the rows of these ids, if there is an index."""
        parameters = [(key,) for key in keys]

        def work(db: sqlite3.Connection) -> None:
            with _transaction(db):
                db.executemany("DELETE FROM artifacts WHERE id = ?", parameters)

        self._try(work, create=False)

    def touch(self, key: str) -> None:
        """Note that an artifact was used now."""
        self._try(lambda db: db.execute("UPDATE artifacts SET used = ? WHERE id = ?", (stamp(), key)))

    def inodes(self) -> dict[str, int] | None:
        """Return the ids that have a row, and the inode of the file that each was made of."""
        return self._try(lambda db: dict(db.execute("SELECT id, inode FROM artifacts")))

    def rows(self, scope: Scope) -> list[Row] | None:
        """What ``scope`` covers, oldest first, for :func:`ref_of`."""
        where, values = _where(scope)
        query = (
            "SELECT id, sha256, size, mime, names, source, tenant, user, session, trace "
            f"FROM artifacts {where} ORDER BY created, id"
        )
        return self._try(lambda db: db.execute(query, values).fetchall())

    def entries(self, scope: Scope) -> list[Entry] | None:
        """Return what ``scope`` covers as a retention sees it."""
        where, values = _where(scope)
        query = f"SELECT id, size, stored, used, tenant, user, session, trace FROM artifacts {where}"
        return self._try(
            lambda db: [Entry(row[0], row[1], row[2], row[3], Scope(*row[4:])) for row in db.execute(query, values)]
        )

    def differences(self, metadata: Iterable[tuple[Metadata, int]], keys: Collection[str]) -> list[str] | None:
        """Return the ids whose row differs from the metadata, or that are not among ``keys``. A row that is missing or
        of an older file does not count: it is read again anyway."""

        def work(db: sqlite3.Connection) -> list[str]:
            known = {row[0]: row for row in db.execute("SELECT * FROM artifacts")}
            wrong = []
            for one, inode in metadata:
                row, found = _row(one, inode), known.pop(one.id, None)
                if (
                    found
                    and found[_INODE] == inode
                    and (*found[:_INODE], *found[_USED + 1 :])
                    != (
                        *row[:_INODE],
                        *row[_USED + 1 :],
                    )
                ):
                    wrong.append(one.id)
            return wrong + [key for key in known if key not in keys]

        return self._try(work, create=False)

    # --- the file -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection, if one is open; the next method that is called opens it again."""
        with self._lock:
            self._close()

    def _try(self, work: Callable[[sqlite3.Connection], T], *, create: bool = True) -> T | None:
        with self._lock:
            try:
                return self._use(work, create)
            except FileNotFoundError:  # there is no store yet, or no index
                return None
            except (OSError, sqlite3.Error) as error:  # busy, full, read-only, too many files
                self.incomplete = True
                self._pause = time.monotonic() + _PAUSE
                self._close()
                logger.warning("the index of %s is not used for a while (%s)", self._tree.root, error)
                return None
            finally:
                if not self.live:
                    self._close()

    def _use(self, work: Callable[[sqlite3.Connection], T], create: bool) -> T | None:
        if time.monotonic() < self._pause:
            self.incomplete = True
            return None
        try:
            return work(self._open(create))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            logger.warning("the index of %s is damaged (%s) and is replaced", self._tree.root, error)
            self._remove()
            return work(self._open(create=True))

    def _open(self, create: bool) -> sqlite3.Connection:
        path = self._tree.root / ".abp" / _FILES[0]
        if self._db:
            with suppress(FileNotFoundError):
                now = path.lstat()
                if now.st_size and self._opened == (os.getpid(), now.st_dev, now.st_ino):
                    return self._db
        with self._tree.folder(".abp") as folder:
            for name in _FILES:
                if os.path.lexists(path.with_name(name)) and not lstat(name, folder):
                    raise OSError(f"{path.with_name(name)} is not a regular file; remove it")
            if not create and not lstat(_FILES[0], folder):
                raise FileNotFoundError(path)
            with suppress(FileExistsError):
                os.close(new_file(_FILES[0], folder))  # with our mode, which SQLite's other files take over
            found = lstat(_FILES[0], folder)
            emptied = found is not None and found.st_size == 0 and lstat(_FILES[1], folder) is not None
        if emptied:  # SQLite never leaves this; it would wait for a lock that nobody frees
            raise sqlite3.DatabaseError("it is empty")
        self._close()
        db = sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != _VERSION:
                db.execute("PRAGMA journal_mode=WAL").fetchone()
                if version:
                    db.execute("DROP TABLE IF EXISTS artifacts")
                db.executescript(_SCHEMA)
            db.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            db.close()
            raise
        self._db, self._opened = db, (os.getpid(), found.st_dev, found.st_ino) if found else (0, 0, 0)
        if self.live:
            weakref.finalize(self, _close, db, os.getpid())
        return db

    def _remove(self) -> None:
        self._close()
        with self._tree.folder(".abp") as folder:
            for name in _FILES:
                unlink(name, folder)

    def _close(self) -> None:
        db, self._db = self._db, None
        if db:
            _close(db, self._opened[0])


def _close(db: sqlite3.Connection, process: int) -> None:
    if process == os.getpid():  # a forked process must not touch its parent's connection
        db.close()
    else:
        _inherited.append(db)


_inherited: list[sqlite3.Connection] = []


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")  # a writer waits at its start and not in its middle
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _row(metadata: Metadata, inode: int) -> tuple[object, ...]:
    names = json.dumps([name.name for name in reversed(metadata.names)])
    created = str(metadata.source.get("created", ""))
    scope = metadata.scope
    source = json.dumps(metadata.source)
    head = (metadata.id, metadata.sha256, metadata.size_bytes, metadata.mime_type, names, source, created)
    return (*head, metadata.stored, inode, metadata.stored, scope.tenant, scope.user, scope.session, scope.trace)


_names = msgspec.json.Decoder(list[str]).decode
_source = msgspec.json.Decoder(dict[str, object]).decode


def ref_from_row(
    row: Row, folder: str, exists: Callable[[str], object], scopes: dict[tuple[str | None, ...], Scope]
) -> ArtifactRef:
    """Return the reference of a row.

    Its file is the newest of its names for which ``exists`` is true; ``folder`` ends in a slash. ``scopes`` caches the
    scopes that were made before: a store has many artifacts and few scopes.
    """
    key, digest, size, mime, encoded, source = row[:6]
    owner = row[6:]
    scope = scopes.get(owner)
    if scope is None:
        scope = scopes[owner] = Scope(*owner)
    names = _names(encoded)
    name = next(filter(exists, names), None)
    path = None if name is None else folder + name
    return ArtifactRef(key, f"artifact://{key}", path, name or names[0], mime, size, digest, _source(source), scope)


def _where(scope: Scope) -> tuple[str, list[str]]:
    given = scope.items()
    conditions = " AND ".join(f"{name} = ?" for name, _ in given)
    return (f"WHERE {conditions}" if given else ""), [value for _, value in given]
