"""Search in the artifacts of a store: by metadata, by file name, and by the words of texts."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence, Set
from contextlib import aclosing, closing, contextmanager, suppress
from operator import itemgetter

from .._internal.database import open_sqlite, sqlite_transaction
from .._internal.tasks import in_thread
from ..errors import ArtifactNotFound, Corrupt, StoreError, UsageError
from ..protocol._media import is_binary_mime
from ..protocol._strict_json import items_of
from ._base import ArtifactStore
from ._files import map_os_errors
from ._ref import ArtifactRef, Page, Query, Scope
from .local._store import LocalStore
from .local._tree import Tree, remove_files


async def find(store: ArtifactStore, query: Query) -> Page:
    """Return one page of the artifacts of a view that match a query, the newest first.

    An object store with an index uses it; every other store lists all of its artifacts for each page. Raises
    :class:`~transports.errors.StoreError`, and :class:`~transports.errors.StoreUnavailable` for an index that cannot be
    reached.
    """
    return await store._find_page(query)


def is_named(ref: ArtifactRef, name: str) -> bool:
    """Return whether an artifact was stored under this file name, as suggested or as it is now."""
    return name == ref.filename or name in items_of(ref.source.get("requested_names"))


async def versions(store: ArtifactStore, name: str) -> list[ArtifactRef]:
    """Return the artifacts of a view that were stored under the file name ``name``, the latest last.

    Each artifact is a version. An id stands for its content, so storing other content under a name makes another
    artifact; the older one stays until it is deleted or the retention removes it. Content that is stored again becomes
    the latest version.
    """
    matches = [(ref, stored) for ref, stored in await store._list_unexpired() if is_named(ref, name)]
    matches.sort(key=itemgetter(1))
    return [ref for ref, _ in matches]


def words_of(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


async def search(store: ArtifactStore, words: str) -> list[ArtifactRef]:
    """Return the text artifacts of a view that contain all of ``words``, oldest first.

    A word is a run of letters and digits, in upper or lower case; the last one may be the beginning of a word. The
    first MiB of each text is searched. A local store with ``search_index`` uses its index, brought up to date first;
    every other store reads its texts.

    Raises :class:`~transports.errors.UsageError` if there is no word in ``words``.
    """
    searched = words_of(words)
    if not searched:
        raise UsageError("search for at least one word of letters or digits")

    refs = [ref for ref in await store.list() if not is_binary_mime(ref.mime_type)]
    if isinstance(store, LocalStore) and store.search_index:
        matching = await _search_index(store, searched)
        return [ref for ref in refs if ref.id in matching]
    return [ref for ref in refs if _contains_words(await _read_text(store, ref), searched)]


def _contains_words(text: str, searched: list[str]) -> bool:
    *whole_words, beginning = searched
    words = set(words_of(text))
    return words.issuperset(whole_words) and any(word.startswith(beginning) for word in words)


async def _read_text(store: ArtifactStore, ref: ArtifactRef) -> str:
    """Read the beginning of a text. The audit log gets no line, because it records only reads for a caller."""
    max_bytes = 1 << 20
    end = min(ref.size_bytes, max_bytes)
    try:
        async with aclosing(store._read_range(ref, 0, end, max_bytes)) as chunks:
            data = b"".join([chunk async for chunk in chunks])
    except (ArtifactNotFound, Corrupt):
        return ""
    return data.decode("utf-8", "replace")


async def _search_index(store: LocalStore, searched: list[str]) -> set[str]:
    """Bring the index up to date with the store, and return the ids of the texts of any scope that match."""
    index = TextIndex(store._tree)
    refs = {ref.id: ref for ref, _ in await store._list_artifacts(Scope()) if not is_binary_mime(ref.mime_type)}
    missing = await in_thread(index.keep_only, refs.keys())
    batch_size = 50
    for start in range(0, len(missing), batch_size):
        batch = missing[start : start + batch_size]
        texts = [(key, await _read_text(store, refs[key])) for key in batch]
        await in_thread(index.add, texts)
    return await in_thread(index.find, searched)


class TextIndex:
    """The full-text index of a local store, ``.abp/text.sqlite``, opened for each query. Every method blocks."""

    _FILE = "text.sqlite"
    _SCHEMA = """
        CREATE TABLE IF NOT EXISTS artifacts (number INTEGER PRIMARY KEY, id TEXT UNIQUE);
        CREATE VIRTUAL TABLE IF NOT EXISTS texts
            USING fts5(text, tokenize='unicode61 remove_diacritics 0');
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def keep_only(self, keys: Set[str]) -> list[str]:
        """Drop the texts of all artifacts but ``keys``. Return the ``keys`` that have no text in the index yet."""
        with self._transaction() as db:
            numbers = dict(db.execute("SELECT id, number FROM artifacts"))
            gone = [(numbers[key],) for key in numbers.keys() - keys]
            db.executemany("DELETE FROM texts WHERE rowid = ?", gone)
            db.executemany("DELETE FROM artifacts WHERE number = ?", gone)
        return sorted(keys - numbers.keys())

    def add(self, texts: Sequence[tuple[str, str]]) -> None:
        with self._transaction() as db:
            for key, text in texts:
                insertion = db.execute("INSERT OR IGNORE INTO artifacts (id) VALUES (?)", (key,))
                if insertion.rowcount:
                    db.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (insertion.lastrowid, text))

    def find(self, words: Sequence[str]) -> set[str]:
        # In FTS5, a star after a word makes it match words that begin so.
        query = " AND ".join(f'"{word}"' for word in words) + "*"
        with self._transaction() as db:
            rows = db.execute(
                "SELECT id FROM artifacts JOIN texts ON texts.rowid = number WHERE texts MATCH ?", (query,)
            )
            return {key for (key,) in rows}

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with (
                map_os_errors("use the text index", self._tree.root),
                closing(self._connect_or_replace()) as db,
                sqlite_transaction(db),
            ):
                yield db
        except sqlite3.DatabaseError as error:
            path = self._tree.root / ".abp" / self._FILE
            raise StoreError(f"the text index cannot be used ({error}); delete {path} and search again") from error

    def _connect_or_replace(self) -> sqlite3.Connection:
        try:
            return self._open_database()
        except sqlite3.OperationalError:
            # The file is busy or not accessible, but not damaged.
            raise
        except sqlite3.DatabaseError:
            remove_files(self._tree, [self._FILE, f"{self._FILE}-wal", f"{self._FILE}-shm"])
            return self._open_database()

    def _open_database(self) -> sqlite3.Connection:
        with self._tree.folder(".abp", create=True) as folder:
            # SQLite would create the file with another mode, and through a symlink.
            with suppress(FileExistsError):
                os.close(folder.create(self._FILE))
            if not folder.file_status(self._FILE):
                raise sqlite3.OperationalError(f"{self._FILE} is not a regular file")

        db = open_sqlite(self._tree.root / ".abp" / self._FILE, wait=10.0)
        try:
            db.execute("PRAGMA journal_mode=WAL").fetchone()
            # Erase the texts of removed artifacts from the file.
            db.execute("PRAGMA secure_delete=ON").fetchone()
            db.executescript(self._SCHEMA)
        except BaseException:
            db.close()
            raise
        return db
