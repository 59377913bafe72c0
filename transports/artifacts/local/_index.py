"""The SQLite indexes of a local store: :class:`Index` of the metadata files, :class:`TextIndex` of texts.

``.abp/index.sqlite`` is a searchable copy of the metadata files. The files are the truth: their folder defines the
existing artifacts, and the index only saves reading each file. A row is valid for the file that it was made of,
identified by its inode, because metadata is never written in place. So the index may be lost, old or damaged at any
time: missing rows are read again, superfluous ones are dropped, and a file that SQLite cannot read is replaced. The
names in the folder are read as well, unless its time of change is still that of the last full comparison: then nothing
was stored or removed since. WAL mode; any number of processes and threads may use the file.

``.abp/text.sqlite`` is the full-text index of a store with ``search_index``.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import closing, contextmanager, suppress
from typing import TypeAlias, TypeVar

import msgspec

from ..._internal.database._sqlite import open_sqlite, sqlite_transaction
from ...errors import StoreError
from ...protocol._strict_json import encode_json
from .._ref import ArtifactRef, Metadata, Scope, stamp
from .._retention import Entry
from ._tree import Tree

logger = logging.getLogger("transports.artifacts")

#: id, sha256, size, MIME type, names and source as JSON, inode, tenant, user, session, trace.
Row: TypeAlias = tuple[str, str, int, str, bytes, bytes, int, str | None, str | None, str | None, str | None]
T = TypeVar("T")
_FILES = ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm")
_WAIT = 2.0  # seconds of waiting for another process that writes
_PAUSE = 30.0  # seconds for which the index is not used after an error
_VERSION = 2  # an index of another version is replaced
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS artifacts (
    id TEXT PRIMARY KEY, sha256 TEXT, size INTEGER, mime TEXT, names BLOB, source BLOB, created TEXT, stored REAL,
    inode INTEGER, used REAL, tenant TEXT, user TEXT, session TEXT, trace TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_session ON artifacts (session, trace);
CREATE TABLE IF NOT EXISTS compared (one INTEGER PRIMARY KEY, changes INTEGER, folder TEXT, count INTEGER);
INSERT OR IGNORE INTO compared VALUES (1, 0, NULL, 0);
PRAGMA user_version={_VERSION};
"""
_CHECKPOINT = "PRAGMA wal_autocheckpoint=10000"  # pages, 40 MB: checkpoints wait for the disk
_CHANGED = "UPDATE compared SET changes = changes + 1, folder = NULL"
_COLUMNS, _INODE, _USED = 14, 8, 9
_FILE = "text.sqlite"
_TEXT_FILES = (_FILE, f"{_FILE}-wal", f"{_FILE}-shm")
_TEXT_WAIT = 10.0  # seconds of waiting for another process that writes
_TEXT_SCHEMA = """
CREATE TABLE IF NOT EXISTS artifacts (number INTEGER PRIMARY KEY, id TEXT UNIQUE);
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(text, tokenize='unicode61 remove_diacritics 0');
"""


def row_of(metadata: Metadata, inode: int) -> tuple[object, ...]:
    """Return the row of metadata whose file has that ``inode``."""
    names = encode_json([name.name for name in reversed(metadata.names)])
    created = str(metadata.source.get("created", ""))
    scope = metadata.scope
    source = encode_json(metadata.source)
    head = (metadata.id, metadata.sha256, metadata.size_bytes, metadata.mime_type, names, source, created)
    return (*head, metadata.stored, inode, metadata.stored, scope.tenant, scope.user, scope.session, scope.trace)


_names = msgspec.json.Decoder(list[str]).decode
_source = msgspec.json.Decoder(dict[str, object]).decode


def ref_from_row(
    row: Row, folder: str, exists: Callable[[str], object], scopes: dict[tuple[str | None, ...], Scope]
) -> ArtifactRef:
    """Return the reference of a row.

    Its file is the newest of its names for which ``exists`` is true; ``folder`` ends in a slash. ``scopes`` is a cache
    of scopes: a store has many artifacts and few scopes.
    """
    key, digest, size, mime, encoded, source = row[:6]
    owner = row[7:]
    scope = scopes.get(owner)
    if scope is None:
        scope = scopes[owner] = Scope(*owner)
    names = _names(encoded)
    name = next(filter(exists, names), None)
    path = None if name is None else folder + name
    return ArtifactRef(key, f"artifact://{key}", path, name or names[0], mime, size, digest, _source(source), scope)


def where(scope: Scope) -> tuple[str, list[str]]:
    """Return the SQL condition for the artifacts of ``scope``, and its values."""
    given = scope.items()
    conditions = " AND ".join(f'"{name}" = ?' for name, _ in given)  # quoted, because "user" is reserved in PostgreSQL
    return (f"WHERE {conditions}" if given else ""), [value for _, value in given]


class Index:
    """The index of the metadata files. Every method blocks.

    An error of the index is logged, not raised: the method returns ``None``, and the caller reads the metadata files.

    A ``live`` index stays open and gets a row for every commit, because a retention needs all entries before each one.
    Otherwise the file is opened and brought up to date for each query, so a program that only stores and reads never
    opens it.
    """

    def __init__(self, tree: Tree, *, live: bool) -> None:
        self.live = live
        self._tree = tree
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._opened = (0, 0, 0)  # process, device, inode
        self._pause = 0.0  # time until which the index is not used (monotonic)
        self._users = 0  # blocks of ``kept_open``
        #: True if a change could not be written to the index.
        self.incomplete = False
        # Ids whose rows could not be changed. A new file of such an id may get the inode of an old one, which is free
        # again, and its row would look valid: it is removed as soon as the index can be written.
        self._outdated: set[str] = set()

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep the file open for all queries of the block, because closing it writes the WAL to the disk."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self.live and not self._users:
                    self._close()

    def put(self, metadata: Iterable[tuple[Metadata, int]]) -> int:
        """Add or replace the rows of metadata, each with the inode of its file. Return the number of written rows."""
        rows = [row_of(one, inode) for one, inode in metadata]
        insert = f"INSERT OR REPLACE INTO artifacts VALUES ({','.join('?' * _COLUMNS)})"

        def work(db: sqlite3.Connection) -> int:
            with sqlite_transaction(db):
                db.executemany(insert, rows)
                db.execute(_CHANGED)
            return len(rows)

        return self._try(work, changed=[str(row[0]) for row in rows]) or 0

    def forget(self, keys: Iterable[str]) -> None:
        """Remove the rows of these ids, if there is an index."""
        gone = list(keys)
        self._try(lambda db: _delete(db, gone), create=False, changed=gone)

    def touch(self, key: str) -> None:
        """Record the use of an artifact."""
        self._try(lambda db: db.execute("UPDATE artifacts SET used = ? WHERE id = ?", (stamp(), key)))

    def inodes(self) -> tuple[dict[str, int], int] | None:
        """Return the ids with a row, each with the inode of the file that the row was made of, and the number of
        changes so far."""

        def work(db: sqlite3.Connection) -> tuple[dict[str, int], int]:
            (changes,) = _only_row(db.execute("SELECT changes FROM compared"))
            return dict(db.execute("SELECT id, inode FROM artifacts")), changes

        return self._try(work)

    def agree(self, folder: str, changes: int) -> None:
        """Mark the rows as complete for ``folder``, the mark of its state, if the number of changes is still
        ``changes``: another process may have dropped a row since the comparison."""
        count = "(SELECT count(*) FROM artifacts)"
        self._try(
            lambda db: db.execute(
                f"UPDATE compared SET folder = ?, count = {count} WHERE changes = ?", (folder, changes)
            )
        )

    def rows(self, scope: Scope, folder: str | None = None) -> list[Row] | None:
        """Return the rows of ``scope``, oldest first, for :func:`ref_from_row`. With ``folder``, return ``None`` unless
        the rows are marked as complete for this state of the folder (:meth:`agree`)."""
        condition, values = where(scope)
        query = (
            "SELECT id, sha256, size, mime, names, source, inode, tenant, user, session, trace "
            f"FROM artifacts {condition} ORDER BY created, id"
        )
        same = "SELECT folder = ? AND count = (SELECT count(*) FROM artifacts) FROM compared"

        def work(db: sqlite3.Connection) -> list[Row] | None:
            if folder is not None and not _only_row(db.execute(same, (folder,)))[0]:
                return None
            return db.execute(query, values).fetchall()

        return self._try(work, create=folder is None)

    def entries(self, scope: Scope) -> list[Entry] | None:
        """Return the entries of ``scope``, the input of a retention."""
        condition, values = where(scope)
        query = f"SELECT id, size, stored, used, tenant, user, session, trace FROM artifacts {condition}"
        return self._try(
            lambda db: [Entry(row[0], row[1], row[2], row[3], Scope(*row[4:])) for row in db.execute(query, values)]
        )

    def differences(self, metadata: Iterable[tuple[Metadata, int]], keys: Collection[str]) -> list[str] | None:
        """Return the ids whose row differs from the metadata, or that are not among ``keys``. Missing rows and rows of
        an older file do not count, because those files are read again anyway."""

        def work(db: sqlite3.Connection) -> list[str]:
            known = {row[0]: row for row in db.execute("SELECT * FROM artifacts")}
            wrong = []
            for one, inode in metadata:
                row, found = row_of(one, inode), known.pop(one.id, None)
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
        """Close the connection, if one is open; the next method call opens it again."""
        with self._lock:
            if self._outdated:
                with suppress(OSError, sqlite3.Error):  # the index is gone, or still cannot be written
                    self._delete_outdated(self._open(create=False))
            self._close()

    def _delete_outdated(self, db: sqlite3.Connection) -> None:
        _delete(db, self._outdated)
        self._outdated.clear()

    def _try(
        self, work: Callable[[sqlite3.Connection], T], *, create: bool = True, changed: Collection[str] = ()
    ) -> T | None:
        with self._lock:
            try:
                return self._use(work, create, changed)
            except FileNotFoundError:  # there is no store yet, or no index
                return None
            except (
                OSError,
                OverflowError,
                sqlite3.Error,
            ) as error:  # busy, full, read-only, a vast inode
                self.incomplete = True
                self._outdated.update(changed)
                self._pause = time.monotonic() + _PAUSE
                self._close()
                if isinstance(error, PermissionError):  # of another user, or read-only: nothing is wrong with it
                    logger.info("the store %s is read-only; listing reads every file", self._tree.root)
                else:
                    logger.warning("the index of %s is not used for a while (%s)", self._tree.root, error)
                return None
            finally:
                if not self.live and not self._users:
                    self._close()

    def _use(self, work: Callable[[sqlite3.Connection], T], create: bool, changed: Collection[str]) -> T | None:
        if time.monotonic() < self._pause:
            self.incomplete = True
            self._outdated.update(changed)
            return None
        try:
            db = self._open(create)
            if self._outdated:
                self._delete_outdated(db)
            return work(db)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            logger.warning("the index of %s is damaged (%s) and is replaced", self._tree.root, error)
            self._close()
            _remove(self._tree, _FILES)
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
                if os.path.lexists(path.with_name(name)) and not folder.lstat(name):
                    raise OSError(f"{path.with_name(name)} is not a regular file; remove it")
            if not create and not folder.lstat(_FILES[0]):
                raise FileNotFoundError(path)
            with suppress(FileExistsError):
                os.close(folder.create(_FILES[0]))  # with our mode, which SQLite copies to its other files
            found = folder.lstat(_FILES[0])
            emptied = found is not None and found.st_size == 0 and folder.lstat(_FILES[1]) is not None
        if emptied:  # SQLite never leaves this state; it would wait for a lock that is never freed
            raise sqlite3.DatabaseError("it is empty")
        self._close()
        db = open_sqlite(path, wait=_WAIT)
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != _VERSION:
                db.execute("PRAGMA journal_mode=WAL").fetchone()
                old = "DROP TABLE IF EXISTS artifacts; DROP TABLE IF EXISTS compared;" if version else ""
                # in one transaction, so that no process sees half of the schema
                db.executescript(f"BEGIN IMMEDIATE; {old} {_SCHEMA} COMMIT")
            db.executescript(f"PRAGMA synchronous=NORMAL; PRAGMA cache_size=-16384; {_CHECKPOINT}")  # KiB
        except BaseException:
            db.close()
            raise
        self._db, self._opened = db, (os.getpid(), found.st_dev, found.st_ino) if found else (0, 0, 0)
        if self.live:
            weakref.finalize(self, _close, db, os.getpid())
        return db

    def _close(self) -> None:
        db, self._db = self._db, None
        if db:
            _close(db, self._opened[0])


def _delete(db: sqlite3.Connection, keys: Iterable[str]) -> None:
    with sqlite_transaction(db):
        db.executemany("DELETE FROM artifacts WHERE id = ?", [(key,) for key in keys])
        db.execute(_CHANGED)


def _remove(tree: Tree, files: Iterable[str]) -> None:
    with tree.folder(".abp") as folder:
        for name in files:
            folder.unlink(name)


def _only_row(found: sqlite3.Cursor) -> tuple[int, ...]:
    row: tuple[int, ...] | None = found.fetchone()
    if row is None:
        raise sqlite3.DatabaseError("a row is missing")  # so that the index is replaced
    return row


def _close(db: sqlite3.Connection, process: int) -> None:
    if process == os.getpid():  # a forked process must not touch its parent's connection
        db.close()
    else:
        _inherited.append(db)


_inherited: list[sqlite3.Connection] = []


class TextIndex:
    """The full-text index of one store, opened for each query. Every method blocks.

    Methods raise :class:`~transports.errors.StoreError` if the file cannot be used, or SQLite has no full-text search.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def missing(self, keys: Set[str]) -> list[str]:
        """Drop the texts of all artifacts but ``keys``, and return those of ``keys`` that are not in the index."""
        with self._open() as db:
            known = dict(db.execute("SELECT id, number FROM artifacts"))
            gone = [(known[key],) for key in known.keys() - keys]
            db.executemany("DELETE FROM texts WHERE rowid = ?", gone)
            db.executemany("DELETE FROM artifacts WHERE number = ?", gone)
        return sorted(keys - known.keys())

    def add(self, texts: Sequence[tuple[str, str]]) -> None:
        """Add texts, each with the id of its artifact. A text that is already there stays."""
        with self._open() as db:
            for key, text in texts:
                added = db.execute("INSERT OR IGNORE INTO artifacts (id) VALUES (?)", (key,))
                if added.rowcount:
                    db.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (added.lastrowid, text))

    def find(self, words: Sequence[str]) -> set[str]:
        """Return the ids of the texts with all of ``words``; the last one may be the beginning of a word."""
        query = " AND ".join(f'"{word}"' for word in words) + "*"
        with self._open() as db:
            rows = db.execute(
                "SELECT id FROM artifacts JOIN texts ON texts.rowid = number WHERE texts MATCH ?", (query,)
            )
            return {key for (key,) in rows}

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction. A damaged file is replaced."""
        try:
            try:
                db = self._connect()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                _remove(self._tree, _TEXT_FILES)
                db = self._connect()
            with closing(db), sqlite_transaction(db):
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
        db = open_sqlite(self._tree.root / ".abp" / _FILE, wait=_TEXT_WAIT)
        try:
            db.execute("PRAGMA journal_mode=WAL").fetchone()
            db.execute("PRAGMA secure_delete=ON").fetchone()  # no text of a removed artifact stays in the file
            db.executescript(_TEXT_SCHEMA)
        except BaseException:
            db.close()
            raise
        return db
