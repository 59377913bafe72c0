"""Maintenance of a local store: sweeping the leftovers of killed writers, and checking the folders."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .._files import may_be_running
from .._ref import ID, Ages, Problem, now
from .._retention import Removal
from ._blobs import BlobStore, is_name_of, keys_of
from ._catalog import Catalog, read_metadata
from ._tree import Folder, StoreFolders, Tree

logger = logging.getLogger("transports.artifacts")

#: Intent files: with the process id of the writer of a name; without one, for a name that was open at its removal.
_INTENT = re.compile(r"(\d*)-[0-9a-f]+\.name")
_LONGEST_INTENT = 1024  # bytes: a hash and a file name
_MAX_AGE = 3600.0  # seconds that a staged file or content without metadata may be on its way
_QUARANTINE = 86400.0  # seconds that damaged content is kept for inspection
#: Staged files; :mod:`transports.playwright._content` puts slices of a file beside them.
_STAGED = re.compile(r"(\d+)-[0-9a-f]+(?:\.slice\d)?")
_BLOB = re.compile(r"[0-9a-f]{64}")


class Stray(NamedTuple):
    """A readable name in the root without an artifact: ``size`` in bytes, ``changed`` in seconds since 1970. ``intent``
    is the file in ``staging/`` that records the name, if there is one."""

    name: str
    digest: str
    size: int
    changed: float
    intent: str = ""


class Strays:
    """The stray names of one store. Every method blocks.

    A file in the root belongs to the store if it is a hard link to content. A copy, made on a file system without hard
    links, belongs to the store if a dead writer left an intent file, or if it is the untouched copy of content without
    metadata. Every other file is the user's.
    """

    def __init__(self, tree: Tree, blobs: BlobStore, catalog: Catalog) -> None:
        self._tree = tree
        self._blobs = blobs
        self._catalog = catalog

    def find(self) -> list[Stray]:
        """Return the names of the store that no metadata has."""
        metadata = self._catalog.all_metadata()
        owned = {name.name for one in metadata for name in one.names}
        used = {one.sha256 for one in metadata}
        files, copies = self._contents(used)
        # several writers may have intended a name that one of them made
        out = {stray.name: stray for stray in self._intended() if stray.name not in owned and self._is_stray(stray)}
        if not files and not out:
            return []  # also if there is no store yet
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
        with self._blobs.locked(stray.digest) as folders:
            return _is_stray(stray, folders)

    def remove(self, stray: Stray) -> bool:
        """Remove a name. Return ``False`` if it is gone, has an artifact by now, or is open on Windows."""
        with self._blobs.locked(stray.digest) as folders:
            return _is_stray(stray, folders) and folders.root.discard(stray.name)

    def forget_intents(self, max_changed: float, kept: Iterable[Stray]) -> None:
        """Remove the intent files of dead writers from before ``max_changed``, except those of ``kept`` names."""
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
        """Return the hash of all content by its inode, and of unused content without links by its size and time."""
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


def _is_stray(stray: Stray, folders: StoreFolders) -> bool:
    for key in keys_of(folders, stray.digest):
        try:
            if any(one.name == stray.name for one in read_metadata(folders.meta, key).names):
                return False
        except (FileNotFoundError, ValueError):
            return False  # unreadable metadata may have this name
    found = folders.root.lstat(stray.name)
    if found is None:
        return False
    if stray.intent and found.st_size == 0 and found.st_nlink == 1:
        return True  # reserved for a copy that was never made
    return is_name_of(folders, stray.name, stray.digest)


def _alive(intent: str, modified: float) -> bool:
    writer = intent.partition("-")[0]
    return bool(writer) and may_be_running(int(writer), modified)


class Maintenance:
    """Sweep and check of one store. Every method blocks."""

    def __init__(self, tree: Tree, blobs: BlobStore, catalog: Catalog) -> None:
        self._tree = tree
        self._blobs = blobs
        self._catalog = catalog
        self._strays = Strays(tree, blobs, catalog)
        self._ages = Ages()
        self._swept = False

    def sweep_once(self) -> None:
        """Remove the staged files of dead writers at the first call. Errors are logged."""
        if not self._swept:
            self._swept = True
            try:
                self._staged(dry_run=False)
            except OSError as error:
                logger.warning("staged files of earlier runs could not be removed from %s: %s", self._tree.root, error)

    def sweep(self, *, dry_run: bool) -> list[Removal]:
        """Remove staged files of dead writers, names and content without metadata (all after an hour), and quarantined
        content after a day. Return the removals; ``dry_run`` only returns them."""
        out = self._staged(dry_run=dry_run)
        orphans = self._orphans()  # first, because removing a name changes the time of its content
        kept = []
        for stray in self._strays.find():
            if self._ages.of(stray.name, stray.changed) > _MAX_AGE and (dry_run or self._strays.remove(stray)):
                out.append(Removal("name", stray.name, stray.size, "orphan"))
            else:
                kept.append(stray)
        if not dry_run:
            self._strays.forget_intents(now() - _MAX_AGE, kept)
        needed = {stray.digest for stray in kept}  # a copy is recognised by its content
        for digest, size, age in orphans:
            if age > _MAX_AGE and digest not in needed and (dry_run or self._blobs.remove_orphan(digest)):
                out.append(Removal("content", digest, size, "orphan"))
        for folder, name, status in self._files("quarantine"):
            if self._ages.of(name, folder.changed(status)) > _QUARANTINE and (dry_run or folder.discard(name)):
                out.append(Removal("quarantine", name, status.st_size, "expired"))
        return out

    def _staged(self, *, dry_run: bool) -> list[Removal]:
        out = []
        for folder, name, status in self._files("staging"):
            match = _STAGED.fullmatch(name)
            old = self._ages.of(name, status.st_mtime) > _MAX_AGE
            if (
                match
                and old
                and not may_be_running(int(match[1]), status.st_mtime)
                and (dry_run or folder.discard(name))
            ):
                out.append(Removal("staged", name, status.st_size, "orphan"))
        return out

    def _orphans(self) -> list[tuple[str, int, float]]:
        """Return the content without readable metadata: hash, size in bytes, age in seconds."""
        blobs = [
            (name, status.st_size, self._ages.of(name, folder.changed(status)))
            for folder, name, status in self._files("blobs")
            if _BLOB.fullmatch(name)
        ]
        if not blobs:
            return []
        used = {metadata.sha256 for metadata in self._catalog.all_metadata()}
        return [blob for blob in blobs if blob[0] not in used]

    def check(self, *, repair: bool) -> list[Problem]:
        """Return all problems except damaged content. Rows of the index that differ from the metadata are repaired;
        with ``repair``, unreadable metadata is moved to quarantine."""
        problems = list(self._symlinks())
        keys = self._catalog.keys()
        found = list(self._catalog.read_all(keys)) if keys else []
        readable = {metadata.id for metadata, _ in found}
        for key in keys:
            if key not in readable and ID.fullmatch(key):
                if not repair:
                    detail = "; delete the artifact, store it again, or --repair"
                elif self._blobs.quarantine_metadata(key):
                    detail = "; it was put into quarantine"
                else:
                    detail = ", nor moved to quarantine: it changed meanwhile, is open, or its folder is read-only"
                problems.append(Problem("metadata", key, f"its metadata cannot be read{detail}"))
        problems += [
            Problem(
                "orphan", digest, f"content of {size:,} bytes that no metadata names; `gc` removes it after an hour"
            )
            for digest, size, _ in self._orphans()
        ]
        problems += [
            Problem("name", stray.name, "a name of content that no artifact has; `gc` removes it after an hour")
            for stray in self._strays.find()
        ]
        wrong = self._catalog.index.differences(found, keys) or []
        self._catalog.index.forget(wrong)  # even if empty: the next list then compares all rows
        if wrong:
            self._catalog.index.put([(metadata, inode) for metadata, inode in found if metadata.id in set(wrong)])
        problems += [Problem("index", key, "the index differed from the metadata; it is repaired") for key in wrong]
        return problems

    def _symlinks(self) -> Iterator[Problem]:
        """Yield the symlinks in the store's own folders, which are never followed and do not belong there."""
        folders: list[tuple[str, ...]] = [(), ("locks",), ("staging",), ("meta",), ("quarantine",), ("blobs",)]
        for parts in folders:
            try:
                with self._tree.folder(".abp", *parts) as folder:
                    for name in folder.names():
                        if stat.S_ISLNK(folder.stat(name).st_mode):
                            path = "/".join((".abp", *parts, name))
                            yield Problem("symlink", path, "a symlink that is not followed; remove it")
            except FileNotFoundError:
                continue

    def _files(self, *parts: str) -> Iterator[tuple[Folder, str, os.stat_result]]:
        """Yield the regular files of a folder: open folder, name, status."""
        try:
            with self._tree.folder(".abp", *parts) as folder:
                for name in folder.names():
                    if status := folder.lstat(name):
                        yield folder, name, status
        except FileNotFoundError:
            return
