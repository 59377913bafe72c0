"""Catalog of a local store: its artifacts by the metadata files, accelerated by the index. Everything here blocks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

from ...protocol._strict_json import without_collection
from .._ref import ID, ArtifactRef, Metadata, Scope
from .._retention import Entry
from ._blobs import read_metadata, read_with_inode
from ._index import Index, Row, ref_from_row
from ._tree import Tree

logger = logging.getLogger("transports.artifacts")

_INTERVAL = 60.0  # seconds between two comparisons of index and metadata for answers that need not be exact
_SETTLED = 2_500_000_000  # nanoseconds, more than the time resolution of any file system
_FEW = 1000  # up to this number, looking names up one by one is faster than reading the whole folder


def _mark(times: os.stat_result) -> str:
    """Return a mark of the state of a folder. It uses ``ctime``, which programs cannot set."""
    return f"{times.st_dev}:{times.st_ino}:{times.st_ctime_ns}"


class Catalog:
    """The artifacts of one store. Methods raise :class:`OSError`."""

    def __init__(self, tree: Tree, index: Index) -> None:
        self._tree = tree
        self.index = index
        self._compared = -_INTERVAL  # when the index was compared with the metadata (monotonic)

    def load(self, key: str) -> Metadata:
        """Return the metadata of an artifact. Raises :class:`FileNotFoundError`, or :class:`ValueError` if it is
        damaged."""
        with self._tree.folder(".abp", "meta") as meta:
            return read_metadata(meta, key)

    def keys(self) -> dict[str, int]:
        """Return the ids of all metadata files, readable or not, and the inode of each."""
        return self._list_files()[1]

    def _list_files(self) -> tuple[str | None, dict[str, int]]:
        """Return the mark of the metadata folder (``None`` if it changed within seconds), and :meth:`keys`."""
        try:
            with self._tree.folder(".abp", "meta") as meta:
                times = meta.times()  # before the names are read: a later change must not look compared
                mark = None
                if times and time.time_ns() - times.st_ctime_ns > _SETTLED:
                    mark = _mark(times)
                with meta.scan() as files:
                    return mark, {file.name[:-5]: file.inode() for file in files if file.name.endswith(".json")}
        except FileNotFoundError:
            return None, {}

    def read_all(self, keys: Iterable[str]) -> Iterator[tuple[Metadata, int]]:
        """Yield the readable metadata of these ids with the inode of each file. Unreadable files are logged."""
        with self._tree.folder(".abp", "meta") as meta:
            for key in keys:
                if not ID.fullmatch(key):
                    continue
                try:
                    yield read_with_inode(meta, key)
                except FileNotFoundError:
                    continue  # deleted meanwhile
                except (OSError, ValueError) as error:
                    logger.warning("the metadata of artifact %s is skipped: %s", key, error)

    def all_metadata(self) -> list[Metadata]:
        """Return all readable metadata, read file by file."""
        keys = self.keys()
        if not keys:
            return []
        return [metadata for metadata, _ in self.read_all(keys)]

    def refs(self, scope: Scope) -> list[ArtifactRef]:
        """Return the references that ``scope`` covers, oldest first."""
        rows = self._unchanged_rows(scope)
        if rows is None:
            mark, keys = self._list_files()
            if not keys:
                return []
            with self.index.kept_open():
                if self._sync_index(keys, mark):
                    rows = self.index.rows(scope)
            if rows is None:
                covered = [metadata for metadata in self.all_metadata() if scope.covers(metadata.scope)]
                covered.sort(key=lambda metadata: metadata.age_key)
                return [metadata.ref(self.path(metadata)) for metadata in covered]
            rows = [row for row in rows if row[0] in keys]
        with without_collection() if len(rows) > _FEW else nullcontext():
            return self._refs_from_rows(rows)

    def _unchanged_rows(self, scope: Scope) -> list[Row] | None:
        """Return the rows of ``scope``, each compared with its file, if nothing was stored or removed since the index
        was compared with the metadata; ``None`` otherwise."""
        try:
            with self._tree.folder(".abp", "meta") as meta:
                times = meta.times()
                if times is None:
                    return None
                rows = self.index.rows(scope, _mark(times))
                if rows is None:
                    return None
                if len(rows) > _FEW:
                    inodes = self.keys()
                else:
                    files = ((row[0], meta.file_status(f"{row[0]}.json")) for row in rows)
                    inodes = {key: status.st_ino for key, status in files if status}
        except FileNotFoundError:
            return None
        if any(inodes.get(row[0]) != row[6] for row in rows):
            return None
        return rows

    def _refs_from_rows(self, rows: list[Row]) -> list[ArtifactRef]:
        scopes: dict[tuple[str | None, ...], Scope] = {}
        with self._tree.folder() as root:
            names = set(root.names()) if len(rows) > _FEW else None

            def exists(name: str) -> bool:
                return root.file_status(name) is not None if names is None else name in names

            return [ref_from_row(row, f"{self._tree.root}/", exists, scopes) for row in rows]

    def entries(self, scope: Scope) -> list[Entry]:
        """Return the entries of ``scope``, the input of a retention. They may be a minute old."""
        is_current = not self.index.incomplete and time.monotonic() - self._compared < _INTERVAL
        if is_current or self._sync_index(self.keys(), None):
            entries = self.index.entries(scope)
            if entries is not None:
                return entries
        return [
            Entry(metadata.id, metadata.size_bytes, metadata.stored, metadata.stored, metadata.scope)
            for metadata in self.all_metadata()
            if scope.covers(metadata.scope)
        ]

    def _sync_index(self, keys: dict[str, int], mark: str | None) -> bool:
        """Bring the index up to date with the metadata files, and write the ``mark`` of their folder to it. Return
        ``False`` if the index cannot be used, or there are no files."""
        if not keys:
            return False
        state = self.index.inodes()
        if state is None:
            return False
        indexed, changes = state
        self.index.incomplete = False
        missing = [key for key, inode in keys.items() if indexed.get(key) != inode]
        if len(indexed) + len(missing) != len(keys):
            gone = indexed.keys() - keys.keys()
            if gone:
                self.index.forget(gone)
                changes += 1
        read = 0
        unread = self.read_all(sorted(missing)) if missing else iter(())  # sorted as the table is
        with without_collection() if len(missing) > _FEW else nullcontext():
            while batch := list(islice(unread, 5000)):  # a longer transaction would hold up other writers
                read += self.index.put(batch)
                changes += 1
        if mark is not None and read == len(missing):  # otherwise the next call tries unreadable files again
            self.index.agree(mark, changes)
        self._compared = time.monotonic()
        return True

    def path(self, metadata: Metadata) -> Path | None:
        """Return the readable file of an artifact: the newest name that still exists, or ``None``."""
        with self._tree.folder() as root:
            for name in reversed(metadata.names):
                if root.file_status(name.name):
                    return self._tree.root / name.name
        return None
