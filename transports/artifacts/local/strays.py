"""Readable names in the root of a local store that no artifact has, of writers and deleters that died."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from ..os_errors import may_be_running
from .blobs import BlobStore, ContentFolders, keys_of
from .catalog import Catalog, read_metadata
from .names import same_file
from .tree import Tree

__all__ = ["Stray", "Strays"]

_BLOB = re.compile(r"[0-9a-f]{64}")
#: With the process that writes the name; without one, of a name that was open when it was removed.
_INTENT = re.compile(r"(\d*)-[0-9a-f]+\.name")
_LONGEST_INTENT = 1024  # bytes: a hash and a file name


class Stray(NamedTuple):
    """A name in the root: ``size`` in bytes, ``changed`` in seconds since 1970. ``intent`` is the file in ``staging/``
    that tells of it, if there is one."""

    name: str
    digest: str
    size: int
    changed: float
    intent: str = ""


class Strays:
    """The stray names of one store. Every method blocks.

    A file in the root belongs to the store if it is a hard link to content. A copy, made where the file system has no
    hard links, belongs to it if a dead writer left word of it, or if it is the untouched copy of content without
    metadata. Everything else is the user's.
    """

    def __init__(self, tree: Tree, blobs: BlobStore, catalog: Catalog) -> None:
        self._tree = tree
        self._blobs = blobs
        self._catalog = catalog

    def find(self) -> list[Stray]:
        """Return the names that no metadata has."""
        metadata = self._catalog.all_metadata()
        owned = {name.name for one in metadata for name in one.names}
        used = {one.sha256 for one in metadata}
        files, copies = self._contents(used)
        # several writers may have wanted a name, and one of them has made it
        out = {stray.name: stray for stray in self._intended() if stray.name not in owned and self._is_stray(stray)}
        if not files and not out:
            return []  # perhaps there is no store yet
        with self._tree.folder() as root:
            for name in root.names():
                if name in owned or name in out or not (found := root.lstat(name)):
                    continue
                digest = files.get((found.st_dev, found.st_ino))
                if digest is None and found.st_nlink == 1:
                    digest = copies.get((found.st_size, found.st_mtime_ns))
                if digest:
                    out[name] = Stray(name, digest, found.st_size, root.changed(found))
        return [one for one in out.values() if one.intent or self._is_stray(one)]

    def _is_stray(self, stray: Stray) -> bool:
        with self._blobs.locked(stray.digest) as at:
            return _is_stray(stray, at)

    def remove(self, stray: Stray) -> bool:
        """Remove a name. Returns ``False`` if it is gone, has an owner by now, or is open on Windows."""
        with self._blobs.locked(stray.digest) as at:
            return _is_stray(stray, at) and at.root.discard(stray.name)

    def forget_intents(self, max_changed: float, kept: Iterable[Stray]) -> None:
        """Remove what was written of stray names before ``max_changed``, except of those that are ``kept``."""
        needed = {stray.intent for stray in kept}
        try:
            with self._tree.folder(".abp", "staging") as staging:
                for name in staging.names():
                    found = staging.lstat(name) if _INTENT.fullmatch(name) and name not in needed else None
                    if found and found.st_mtime < max_changed and not _alive(name, found.st_mtime):
                        staging.discard(name)
        except FileNotFoundError:
            return

    def _contents(self, used: set[str]) -> tuple[dict[tuple[int, int], str], dict[tuple[int, int], str]]:
        """Return the hash of each content by its inode, and of unused content without links by its size and time."""
        files: dict[tuple[int, int], str] = {}
        copies: dict[tuple[int, int], str] = {}
        for part in ("blobs", "quarantine"):
            try:
                with self._tree.folder(".abp", part) as folder:
                    for name in folder.names():
                        if _BLOB.fullmatch(name) and (found := folder.lstat(name)):
                            files[found.st_dev, found.st_ino] = name
                            if name not in used and found.st_nlink == 1:
                                copies[found.st_size, found.st_mtime_ns] = name
            except FileNotFoundError:
                continue
        return files, copies

    def _intended(self) -> list[Stray]:
        out = []
        try:
            with self._tree.folder(".abp", "staging") as staging, self._tree.folder() as root:
                for intent in staging.names():
                    status = staging.lstat(intent) if _INTENT.fullmatch(intent) else None
                    if status is None or _alive(intent, status.st_mtime):
                        continue
                    with os.fdopen(staging.open(intent), "rb") as file:
                        text = file.read(_LONGEST_INTENT).decode(errors="replace")
                    digest, _, name = text.partition("\n")
                    if not _BLOB.fullmatch(digest) or name in ("", ".", "..") or "/" in name or "\0" in name:
                        continue
                    if found := root.lstat(name):
                        out.append(Stray(name, digest, found.st_size, root.changed(found), intent))
        except FileNotFoundError:
            pass
        return out


def _is_stray(stray: Stray, at: ContentFolders) -> bool:
    for key in keys_of(at, stray.digest):
        try:
            if any(one.name == stray.name for one in read_metadata(at.meta, key).names):
                return False
        except (FileNotFoundError, ValueError):
            return False  # metadata that cannot be read does not tell what it names
    found = at.root.lstat(stray.name)
    if found is None:
        return False
    if stray.intent and found.st_size == 0 and found.st_nlink == 1:
        return True  # reserved for a copy that was never made
    return any(same_file(stray.name, at.root, stray.digest, folder) for folder in (at.blobs, at.quarantine))


def _alive(intent: str, modified: float) -> bool:
    writer = intent.partition("-")[0]
    return bool(writer) and may_be_running(int(writer), modified)
