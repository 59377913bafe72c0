"""Catalog of a local store: its artifacts by the metadata files, accelerated by the index. Everything here blocks."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

from ...protocol._strict_json import without_collection
from .._ref import ID, LONGEST, ArtifactRef, Metadata, Scope
from .._retention import Entry
from ._index import Index, Row, ref_from_row
from ._tree import SYMLINK, Folder, Tree

logger = logging.getLogger("transports.artifacts")

_INTERVAL = 60.0  # seconds between two comparisons of index and metadata for answers that need not be exact
_PIECE = 1 << 14  # bytes, more than most metadata has
_SETTLED = 2_500_000_000  # nanoseconds, more than the time resolution of any file system
_FEW = 1000  # up to this number, looking names up one by one is faster than reading the whole folder


def read_metadata(meta: Folder, key: str) -> Metadata:
    """Return the metadata of an artifact; ``meta`` is its folder. Raises :class:`FileNotFoundError`, or
    :class:`ValueError` if the file is damaged."""
    return _read(meta, key)[0]


def _read(meta: Folder, key: str) -> tuple[Metadata, int]:
    try:
        fd = meta.open(f"{key}.json")
    except OSError as error:
        if error.errno in SYMLINK:
            raise ValueError("it is a symlink") from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        data = os.read(fd, _PIECE)
        if len(data) != status.st_size:
            with open(fd, "rb", closefd=False) as file:
                data += file.read(LONGEST + 1 - len(data))
        return Metadata.decode(data, key), status.st_ino
    finally:
        os.close(fd)


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
        return self._state()[1]

    def _state(self) -> tuple[str | None, dict[str, int]]:
        """Return the mark of the metadata folder (``None`` if it changed within seconds), and :meth:`keys`."""
        try:
            with self._tree.folder(".abp", "meta") as meta:
                times = meta.times()  # before the names are read: a later change must not look compared
                mark = _mark(times) if times and time.time_ns() - times.st_ctime_ns > _SETTLED else None
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
                    yield _read(meta, key)
                except FileNotFoundError:
                    continue  # deleted meanwhile
                except (OSError, ValueError) as error:
                    logger.warning("the metadata of artifact %s is skipped: %s", key, error)

    def all_metadata(self) -> list[Metadata]:
        """Return all readable metadata, read file by file."""
        keys = self.keys()
        return [metadata for metadata, _ in self.read_all(keys)] if keys else []

    def refs(self, scope: Scope) -> list[ArtifactRef]:
        """Return the references that ``scope`` covers, oldest first."""
        rows = self._unchanged(scope)
        if rows is None:
            folder, keys = self._state()
            if not keys:
                return []
            with self.index.kept_open():
                rows = self.index.rows(scope) if self._sync_index(keys, folder) else None
            if rows is None:
                found = [one for one in self.all_metadata() if scope.covers(one.scope)]
                return [one.ref(self.path(one)) for one in sorted(found, key=lambda one: one.age_key)]
            rows = [row for row in rows if row[0] in keys]
        with without_collection() if len(rows) > _FEW else nullcontext():
            return self._from_rows(rows)

    def _unchanged(self, scope: Scope) -> list[Row] | None:
        """Return the rows of ``scope``, each compared with its file, if nothing was stored or removed since the index
        was compared with the metadata; ``None`` otherwise."""
        try:
            with self._tree.folder(".abp", "meta") as meta:
                times = meta.times()
                rows = self.index.rows(scope, _mark(times)) if times else None
                if rows is None:
                    return None
                if len(rows) <= _FEW:
                    files = ((found := meta.lstat(f"{row[0]}.json")) and found.st_ino for row in rows)
                else:
                    keys = self.keys()
                    files = (keys.get(row[0]) for row in rows)
                return rows if all(inode == row[6] for row, inode in zip(rows, files, strict=True)) else None
        except FileNotFoundError:
            return None

    def _from_rows(self, rows: list[Row]) -> list[ArtifactRef]:
        scopes: dict[tuple[str | None, ...], Scope] = {}
        with self._tree.folder() as root:
            listed = set(root.names()) if len(rows) > _FEW else None
            exists = listed.__contains__ if listed else lambda name: root.lstat(name) is not None
            return [ref_from_row(row, f"{self._tree.root}/", exists, scopes) for row in rows]

    def entries(self, scope: Scope) -> list[Entry]:
        """Return the entries of ``scope``, the input of a retention. They may be a minute old."""
        current = not self.index.incomplete and time.monotonic() - self._compared < _INTERVAL
        found = self.index.entries(scope) if current or self._sync_index(self.keys(), None) else None
        if found is None:
            found = [
                Entry(one.id, one.size_bytes, one.stored, one.stored, one.scope)
                for one in self.all_metadata()
                if scope.covers(one.scope)
            ]
        return found

    def _sync_index(self, keys: dict[str, int], folder: str | None) -> bool:
        """Bring the index up to date with the metadata files, and write the mark of their ``folder`` to it. Return
        ``False`` if the index cannot be used, or there are no files."""
        before = self.index.inodes() if keys else None
        if before is None:
            return False
        known, changes = before
        self.index.incomplete = False
        missing = [key for key, inode in keys.items() if known.get(key) != inode]
        if len(known) + len(missing) != len(keys) and (gone := known.keys() - keys.keys()):
            self.index.forget(gone)
            changes += 1
        read = 0
        unknown = self.read_all(sorted(missing)) if missing else iter(())  # sorted as the table is
        with without_collection() if len(missing) > _FEW else nullcontext():
            while piece := list(islice(unknown, 5000)):  # a longer transaction would hold up other writers
                read += self.index.put(piece)
                changes += 1
        if folder is not None and read == len(missing):  # otherwise the next call tries unreadable files again
            self.index.agree(folder, changes)
        self._compared = time.monotonic()
        return True

    def path(self, metadata: Metadata) -> Path | None:
        """Return the readable file of an artifact: the newest name that still exists, or ``None``."""
        with self._tree.folder() as root:
            names = (name.name for name in reversed(metadata.names) if root.lstat(name.name))
            name = next(names, None)
        return self._tree.root / name if name else None
