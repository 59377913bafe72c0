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
from ._index import Catalog, read_metadata
from ._tree import Folder, StoreFolders, Tree

logger = logging.getLogger("transports.artifacts")

#: Intent files: with the process id of the writer of a name; without one, for a name that was open at its removal.
_INTENT = re.compile(r"(\d*)-[0-9a-f]+\.name")
_BLOB = re.compile(r"[0-9a-f]{64}")
_MAX_AGE = 3600.0  # seconds that a writer may take from its staged file to the metadata


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

    def __init__(self, tree: Tree, catalog: Catalog) -> None:
        self._tree = tree
        self._catalog = catalog

    def find(self) -> list[Stray]:
        """Return the names of the store that no metadata has."""
        named: set[str] = set()
        used: set[str] = set()
        for metadata in self._catalog.all_metadata():
            named.update(name.name for name in metadata.names)
            used.add(metadata.sha256)
        links, copies = self._list_contents(used)
        strays: dict[str, Stray] = {}
        for stray in self._list_intended():
            # several writers may have intended a name that one of them made
            if stray.name not in named and self._has_no_artifact(stray):
                strays[stray.name] = stray
        if not links and not strays:
            return []  # also if there is no store yet
        with self._tree.folder() as root:
            for name in root.names():
                if name in named or name in strays:
                    continue
                status = root.file_status(name)
                if status is None:
                    continue
                digest = links.get((status.st_dev, status.st_ino))
                if digest is None and status.st_nlink == 1:
                    digest = copies.get((status.st_size, status.st_mtime_ns))
                if digest:
                    strays[name] = Stray(name, digest, status.st_size, root.changed(status))
        return [stray for stray in strays.values() if stray.intent or self._has_no_artifact(stray)]

    def _has_no_artifact(self, stray: Stray) -> bool:
        with self._tree.locked(stray.digest) as folders:
            return _is_stray(stray, folders)

    def remove(self, stray: Stray) -> bool:
        """Remove a name. Return ``False`` if it is gone, has an artifact by now, or is open on Windows."""
        with self._tree.locked(stray.digest) as folders:
            return _is_stray(stray, folders) and folders.root.discard(stray.name)

    def forget_intents(self, max_changed: float, remaining: Iterable[Stray]) -> None:
        """Remove the intent files of dead writers from before ``max_changed``, except those of ``remaining`` names."""
        needed = {stray.intent for stray in remaining}
        for staging, name, status in _list_files(self._tree, "staging"):
            if not _INTENT.fullmatch(name) or name in needed or status.st_mtime >= max_changed:
                continue
            if not _is_alive(name, status.st_mtime):
                staging.discard(name)

    def _list_contents(self, used: set[str]) -> tuple[dict[tuple[int, int], str], dict[tuple[int, int], str]]:
        """Return the hash of all content by its inode, and of unused content without links by its size and time."""
        links: dict[tuple[int, int], str] = {}
        copies: dict[tuple[int, int], str] = {}
        for part in ("blobs", "quarantine"):
            for _, digest, status in _list_files(self._tree, part):
                if not _BLOB.fullmatch(digest):
                    continue
                links[status.st_dev, status.st_ino] = digest
                if digest not in used and status.st_nlink == 1:
                    copies[status.st_size, status.st_mtime_ns] = digest
        return links, copies

    def _list_intended(self) -> list[Stray]:
        strays = []
        try:
            with self._tree.folder() as root:
                for staging, intent, status in _list_files(self._tree, "staging"):
                    if not _INTENT.fullmatch(intent) or _is_alive(intent, status.st_mtime):
                        continue
                    with os.fdopen(staging.open(intent), "rb") as file:
                        text = file.read(1024).decode(errors="replace")  # a hash and a file name are shorter
                    digest, _, name = text.partition("\n")
                    if not _BLOB.fullmatch(digest) or name in ("", ".", "..") or "/" in name or "\0" in name:
                        continue
                    named = root.file_status(name)
                    if named:
                        strays.append(Stray(name, digest, named.st_size, root.changed(named), intent))
        except FileNotFoundError:
            pass
        return strays


def _is_stray(stray: Stray, folders: StoreFolders) -> bool:
    for key in keys_of(folders, stray.digest):
        try:
            metadata = read_metadata(folders.meta, key)
        except (FileNotFoundError, ValueError):
            return False  # unreadable metadata may have this name
        if any(name.name == stray.name for name in metadata.names):
            return False
    status = folders.root.file_status(stray.name)
    if status is None:
        return False
    if stray.intent and status.st_size == 0 and status.st_nlink == 1:
        return True  # reserved for a copy that was never made
    return is_name_of(folders, stray.name, stray.digest)


def _is_alive(intent: str, modified: float) -> bool:
    writer = intent.partition("-")[0]
    return bool(writer) and may_be_running(int(writer), modified)


def _list_files(tree: Tree, part: str) -> Iterator[tuple[Folder, str, os.stat_result]]:
    """Yield the regular files of a folder of the store: open folder, name, status. Yield none if it does not exist."""
    try:
        with tree.folder(".abp", part) as folder:
            for name in folder.names():
                status = folder.file_status(name)
                if status:
                    yield folder, name, status
    except FileNotFoundError:
        return


class Maintenance:
    """Sweep and check of one store. Every method blocks."""

    def __init__(self, tree: Tree, blobs: BlobStore, catalog: Catalog) -> None:
        self._tree = tree
        self._blobs = blobs
        self._catalog = catalog
        self._strays = Strays(tree, catalog)
        self._ages = Ages()
        self._swept = False

    def sweep_once(self) -> None:
        """Remove the staged files of dead writers at the first call. Errors are logged."""
        if not self._swept:
            self._swept = True
            try:
                self._sweep_staged(dry_run=False)
            except OSError as error:
                logger.warning("staged files of earlier runs could not be removed from %s: %s", self._tree.root, error)

    def sweep(self, *, dry_run: bool) -> list[Removal]:
        """Remove staged files of dead writers, names and content without metadata (all after an hour), and quarantined
        content after a day. Return the removals; ``dry_run`` only returns them."""
        removals = self._sweep_staged(dry_run=dry_run)
        orphans = self._list_orphans()  # first, because removing a name changes the time of its content
        remaining = []
        for stray in self._strays.find():
            if self._ages.of(stray.name, stray.changed) > _MAX_AGE and (dry_run or self._strays.remove(stray)):
                removals.append(Removal("name", stray.name, stray.size, "orphan"))
            else:
                remaining.append(stray)
        if not dry_run:
            self._strays.forget_intents(now() - _MAX_AGE, remaining)
        needed = {stray.digest for stray in remaining}  # a copy is recognised by its content
        for digest, size, age in orphans:
            if age > _MAX_AGE and digest not in needed and (dry_run or self._blobs.remove_orphan(digest)):
                removals.append(Removal("content", digest, size, "orphan"))
        day = 86400.0  # in which damaged content can be inspected
        for folder, name, status in _list_files(self._tree, "quarantine"):
            if self._ages.of(name, folder.changed(status)) > day and (dry_run or folder.discard(name)):
                removals.append(Removal("quarantine", name, status.st_size, "expired"))
        return removals

    def _sweep_staged(self, *, dry_run: bool) -> list[Removal]:
        removals = []
        for folder, name, status in _list_files(self._tree, "staging"):
            # :mod:`transports.playwright._content` puts slices of a file beside it
            match = re.fullmatch(r"(\d+)-[0-9a-f]+(?:\.slice\d)?", name)
            if match is None or self._ages.of(name, status.st_mtime) <= _MAX_AGE:
                continue
            if may_be_running(int(match[1]), status.st_mtime):
                continue
            if dry_run or folder.discard(name):
                removals.append(Removal("staged", name, status.st_size, "orphan"))
        return removals

    def _list_orphans(self) -> list[tuple[str, int, float]]:
        """Return the content without readable metadata: hash, size in bytes, age in seconds."""
        blobs = [
            (digest, status.st_size, self._ages.of(digest, folder.changed(status)))
            for folder, digest, status in _list_files(self._tree, "blobs")
            if _BLOB.fullmatch(digest)
        ]
        if not blobs:
            return []
        used = {metadata.sha256 for metadata in self._catalog.all_metadata()}
        return [blob for blob in blobs if blob[0] not in used]

    def check(self, *, repair: bool) -> list[Problem]:
        """Return all problems except damaged content. Rows of the index that differ from the metadata are repaired;
        with ``repair``, unreadable metadata is moved to quarantine."""
        problems = list(self._find_symlinks())
        keys = self._catalog.keys()
        readable = list(self._catalog.read_all(keys)) if keys else []
        readable_ids = {metadata.id for metadata, _ in readable}
        for key in keys:
            if key in readable_ids or not ID.fullmatch(key):
                continue
            if not repair:
                detail = "; delete the artifact, store it again, or --repair"
            elif self._blobs.quarantine_metadata(key):
                detail = "; it was put into quarantine"
            else:
                detail = ", nor moved to quarantine: it changed meanwhile, is open, or its folder is read-only"
            problems.append(Problem("metadata", key, f"its metadata cannot be read{detail}"))
        for digest, size, _ in self._list_orphans():
            detail = f"content of {size:,} bytes that no metadata names; `gc` removes it after an hour"
            problems.append(Problem("orphan", digest, detail))
        for stray in self._strays.find():
            detail = "a name of content that no artifact has; `gc` removes it after an hour"
            problems.append(Problem("name", stray.name, detail))
        wrong = self._catalog.index.differences(readable, keys) or []
        self._catalog.index.forget(wrong)  # even if empty: the next list then compares all rows
        if wrong:
            self._catalog.index.put([(metadata, inode) for metadata, inode in readable if metadata.id in set(wrong)])
        for key in wrong:
            problems.append(Problem("index", key, "the index differed from the metadata; it is repaired"))
        return problems

    def _find_symlinks(self) -> Iterator[Problem]:
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
