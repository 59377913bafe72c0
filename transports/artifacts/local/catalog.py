"""The artifacts of a local store, found by the metadata files, with the help of the index. Everything here blocks."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ..metadata import ID, LONGEST, Metadata
from ..ref import ArtifactRef, Scope
from ..retention import Entry
from .index import Index, ref_from_row
from .tree import SYMLINK, Tree, lstat

__all__ = ["Catalog", "read_metadata"]

logger = logging.getLogger("transports.artifacts")

_INTERVAL = 60.0  # seconds between two comparisons of index and metadata where the answer need not be exact
_FEW = 1000  # up to so many names are looked up one by one, which is faster than reading the whole folder


def read_metadata(meta: int, key: str) -> Metadata:
    """Return the metadata of an artifact; ``meta`` is a descriptor of the folder. Raises :class:`FileNotFoundError`, or
    :class:`ValueError` if the file is damaged."""
    return _read(meta, key)[0]


def _read(meta: int, key: str) -> tuple[Metadata, int]:
    # opening a pipe must not block
    try:
        fd = os.open(f"{key}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=meta)
    except OSError as error:
        if error.errno in SYMLINK:
            raise ValueError("it is a symlink") from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        with open(fd, "rb", closefd=False) as file:
            return Metadata.decode(file.read(LONGEST + 1), key), status.st_ino
    finally:
        os.close(fd)


class Catalog:
    """The artifacts of one store. :class:`OSError` is left to the caller."""

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
        try:
            with self._tree.folder(".abp", "meta") as meta, os.scandir(meta) as files:
                return {file.name[:-5]: file.inode() for file in files if file.name.endswith(".json")}
        except FileNotFoundError:
            return {}

    def read_all(self, keys: Iterable[str]) -> Iterator[tuple[Metadata, int]]:
        """Yield the readable metadata of these ids with the inode of each file; unreadable files are logged."""
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
        keys = self.keys()
        if not keys:
            return []
        rows = self.index.rows(scope) if self._sync_index(keys) else None
        if rows is None:
            found = [one for one in self.all_metadata() if scope.covers(one.scope)]
            return [one.ref(self.path(one)) for one in sorted(found, key=lambda one: one.age_key)]
        scopes: dict[tuple[str | None, ...], Scope] = {}
        with self._tree.folder() as root:
            listed = set(os.listdir(root)) if len(rows) > _FEW else None  # noqa: PTH208 - a descriptor
            exists = listed.__contains__ if listed else lambda name: lstat(name, root) is not None
            return [ref_from_row(row, f"{self._tree.root}/", exists, scopes) for row in rows if row[0] in keys]

    def entries(self, scope: Scope) -> list[Entry]:
        """Return what ``scope`` covers as a retention sees it. It may be a minute old."""
        current = not self.index.incomplete and time.monotonic() - self._compared < _INTERVAL
        found = self.index.entries(scope) if current or self._sync_index(self.keys()) else None
        if found is None:
            found = [
                Entry(one.id, one.size_bytes, one.stored, one.stored, one.scope)
                for one in self.all_metadata()
                if scope.covers(one.scope)
            ]
        return found

    def _sync_index(self, keys: dict[str, int]) -> bool:
        """Bring the index up to date with the metadata files. ``False`` if it cannot be used, or there are no files."""
        known = self.index.inodes() if keys else None
        if known is None:
            return False
        self.index.incomplete = False
        missing = [key for key, inode in keys.items() if known.get(key) != inode]
        if len(known) + len(missing) != len(keys) and (gone := known.keys() - keys.keys()):
            self.index.forget(gone)
        if missing:
            unknown = self.read_all(sorted(missing))  # in the order of the table
            while piece := list(islice(unknown, 5000)):  # a longer transaction would hold up other writers
                self.index.put(piece)
        self._compared = time.monotonic()
        return True

    def path(self, metadata: Metadata) -> Path | None:
        """Return the readable file of an artifact: the newest name that still exists, or ``None``."""
        with self._tree.folder() as root:
            names = (name.name for name in reversed(metadata.names) if lstat(name.name, root))
            name = next(names, None)
        return self._tree.root / name if name else None
