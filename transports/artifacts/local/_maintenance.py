"""Maintenance of a local store: sweeping the leftovers of killed writers, and checking the folders."""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from .._files import MAX_WRITING, is_left_behind, may_be_running
from .._ref import ID, Metadata, Problem
from .._retention import Removal
from ._blobs import BlobStore, is_name_of, keys_of
from ._index import Catalog, read_metadata
from ._tree import Folder, StoreFolders, Tree

logger = logging.getLogger("transports.artifacts")

#: Name of an intent file: it begins with the process id of the writer of a readable name, or without an id if the name
#: was open when it should be removed.
_INTENT = re.compile(r"\d*-[0-9a-f]+\.name")
_BLOB = re.compile(r"[0-9a-f]{64}")
#: A file that a browser writes into ``staging/``.
_DOWNLOAD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.crdownload)?")


class Stray(NamedTuple):
    """A readable name without an artifact. ``intent`` is the file in ``staging/`` that records it, if there is one."""

    name: str
    digest: str
    size: int
    changed: float
    intent: str = ""


class Strays:
    """The readable names without an artifact. A file in the root belongs to the store if it is a hard link to content.
    A copy, made on a file system without hard links, belongs to the store if a dead writer left an intent file, or if
    it is the untouched copy of content without metadata. Every other file is the user's."""

    def __init__(self, tree: Tree, catalog: Catalog) -> None:
        self._tree = tree
        self._catalog = catalog

    def find(self) -> list[Stray]:
        known_names: set[str] = set()
        used_digests: set[str] = set()
        for metadata in self._catalog.all_metadata():
            known_names.update(name.name for name in metadata.names)
            used_digests.add(metadata.sha256)

        # By their names, since several writers may have intended a name that one of them made.
        intended = {
            stray.name: stray
            for stray in self._list_by_intent()
            if stray.name not in known_names and self._has_no_artifact(stray)
        }
        others = self._list_by_content(used_digests, known_names | intended.keys())
        return [*intended.values(), *filter(self._has_no_artifact, others)]

    def _list_by_content(self, used: Container[str], known_names: Container[str]) -> list[Stray]:
        """Find names of the store's content besides ``known_names``. ``used`` are the hashes that metadata has."""
        links: dict[tuple[int, int], str] = {}
        # Unused content without links, by its size and the time of its last change.
        copies: dict[tuple[int, int], str] = {}
        for part in ("blobs", "quarantine"):
            for _, digest, status in _list_files(self._tree, part):
                if not _BLOB.fullmatch(digest):
                    continue
                links[status.st_dev, status.st_ino] = digest
                if digest not in used and status.st_nlink == 1:
                    copies[status.st_size, status.st_mtime_ns] = digest
        if not links:
            return []  # perhaps no store exists yet

        strays = []
        with self._tree.folder() as root:
            for name in root.names():
                if name in known_names:
                    continue
                name_status = root.file_status(name)
                if name_status is None:
                    continue

                content = links.get((name_status.st_dev, name_status.st_ino))
                if content is None and name_status.st_nlink == 1:
                    content = copies.get((name_status.st_size, name_status.st_mtime_ns))
                if content:
                    strays.append(Stray(name, content, name_status.st_size, root.change_time(name_status)))
        return strays

    def _has_no_artifact(self, stray: Stray) -> bool:
        with self._tree.locked(stray.digest) as folders:
            return _is_stray(stray, folders)

    def remove(self, stray: Stray) -> bool:
        """Remove a name. Return ``False`` if it is gone, has an artifact by now, or is open on Windows."""
        with self._tree.locked(stray.digest) as folders:
            return _is_stray(stray, folders) and folders.root.discard(stray.name)

    def forget_intents(self, max_changed: float, remaining: Iterable[Stray]) -> None:
        """Remove the intent files of dead writers from before ``max_changed``, except those of ``remaining`` names."""
        needed_intents = {stray.intent for stray in remaining}
        for staging, name, status in _list_files(self._tree, "staging"):
            if not _INTENT.fullmatch(name) or name in needed_intents or status.st_mtime >= max_changed:
                continue
            if not _is_alive(name, status.st_mtime):
                staging.discard(name)

    def _list_by_intent(self) -> list[Stray]:
        """Return the files in the root whose names are in intent files of dead writers."""
        strays = []
        with suppress(FileNotFoundError), self._tree.folder() as root:
            for staging, intent, status in _list_files(self._tree, "staging"):
                if not _INTENT.fullmatch(intent) or _is_alive(intent, status.st_mtime):
                    continue

                digest, name = _read_intent(staging, intent)
                is_file_name = name not in ("", ".", "..") and "/" not in name and "\0" not in name
                if not _BLOB.fullmatch(digest) or not is_file_name:
                    continue

                name_status = root.file_status(name)
                if name_status:
                    strays.append(Stray(name, digest, name_status.st_size, root.change_time(name_status), intent))
        return strays


def _read_intent(staging: Folder, intent: str) -> tuple[str, str]:
    """Return the hash and the readable name in an intent file. They were not verified."""
    max_bytes = 1024  # more than a hash and a file name have
    with os.fdopen(staging.open(intent), "rb") as file:
        text = file.read(max_bytes).decode(errors="replace")
    digest, _, name = text.partition("\n")
    return digest, name


def _is_stray(stray: Stray, folders: StoreFolders) -> bool:
    """Return whether a name still exists, belongs to the store and has no artifact."""
    for key in keys_of(folders, stray.digest):
        try:
            metadata, _ = read_metadata(folders.meta, key)
        except (FileNotFoundError, ValueError):
            # Unreadable metadata may have this name.
            return False
        if any(name.name == stray.name for name in metadata.names):
            return False

    status = folders.root.file_status(stray.name)
    if status is None:
        return False
    # An empty file may reserve the name of a copy that was never made.
    is_reserved = bool(stray.intent) and status.st_size == 0 and status.st_nlink == 1
    return is_reserved or is_name_of(folders, stray.name, stray.digest)


def _is_alive(intent: str, modified: float) -> bool:
    pid = intent.partition("-")[0]
    return bool(pid) and may_be_running(int(pid), modified)


def _list_files(tree: Tree, part: str) -> Iterator[tuple[Folder, str, os.stat_result]]:
    with suppress(FileNotFoundError), tree.folder(".abp", part) as folder:
        for name in folder.names():
            status = folder.file_status(name)
            if status:
                yield folder, name, status


class _Orphan(NamedTuple):
    """Content without readable metadata: its hash, its size in bytes and its age in seconds."""

    digest: str
    size: int
    age: float


class Maintenance:
    """Sweep and check of one store. Every method blocks."""

    def __init__(self, tree: Tree, blobs: BlobStore, catalog: Catalog) -> None:
        self._tree = tree
        self._blobs = blobs
        self._catalog = catalog
        self._strays = Strays(tree, catalog)
        self._swept = False

    def sweep_once(self) -> None:
        if self._swept:
            return
        self._swept = True
        try:
            self._sweep_staged(dry_run=False)
        except OSError as error:
            logger.warning("staged files of earlier runs could not be removed from %s: %s", self._tree.root, error)

    def sweep(self, *, dry_run: bool) -> list[Removal]:
        """Remove what writers left behind after an hour, and quarantined content after a day."""
        removals = self._sweep_staged(dry_run=dry_run)
        # List orphans first, because removing a name changes the time of its content.
        orphans = self._list_orphans()
        remaining_names = self._sweep_names(removals, dry_run=dry_run)

        # Keep the content of names that remain: by it, the next sweep recognises a copy.
        needed_digests = {stray.digest for stray in remaining_names}
        for orphan in orphans:
            is_removable = orphan.age > MAX_WRITING and orphan.digest not in needed_digests
            if is_removable and (dry_run or self._blobs.remove_orphan(orphan.digest)):
                removals.append(Removal("content", orphan.digest, orphan.size, "orphan"))

        day = 86400.0  # in which quarantined content can be inspected
        for folder, name, status in _list_files(self._tree, "quarantine"):
            is_old = time.time() - folder.change_time(status) > day
            if is_old and (dry_run or folder.discard(name)):
                removals.append(Removal("quarantine", name, status.st_size, "expired"))
        return removals

    def _sweep_names(self, removals: list[Removal], *, dry_run: bool) -> list[Stray]:
        """Remove old names without metadata, add them to ``removals``, and return the names that remain."""
        remaining = []
        for stray in self._strays.find():
            is_old = time.time() - stray.changed > MAX_WRITING
            if is_old and (dry_run or self._strays.remove(stray)):
                removals.append(Removal("name", stray.name, stray.size, "orphan"))
            else:
                remaining.append(stray)
        if not dry_run:
            self._strays.forget_intents(time.time() - MAX_WRITING, remaining)
        return remaining

    def _sweep_staged(self, *, dry_run: bool) -> list[Removal]:
        removals = []
        for folder, name, status in _list_files(self._tree, "staging"):
            # :mod:`transports.playwright._content` puts slices of a file beside it.
            match = re.fullmatch(r"(?P<pid>\d+)-[0-9a-f]+(?:\.slice\d)?", name)
            if match is not None:
                is_left = is_left_behind(int(match["pid"]), status.st_mtime)
            else:
                # A browser that was killed leaves its download.
                is_left = bool(_DOWNLOAD.fullmatch(name)) and time.time() - status.st_mtime > MAX_WRITING
            if not is_left:
                continue
            if dry_run or folder.discard(name):
                removals.append(Removal("staged", name, status.st_size, "orphan"))
        return removals

    def _list_orphans(self) -> list[_Orphan]:
        orphans = [
            _Orphan(digest, status.st_size, time.time() - folder.change_time(status))
            for folder, digest, status in _list_files(self._tree, "blobs")
            if _BLOB.fullmatch(digest)
        ]
        if not orphans:
            return []
        used_digests = {metadata.sha256 for metadata in self._catalog.all_metadata()}
        return [orphan for orphan in orphans if orphan.digest not in used_digests]

    def check(self, *, repair: bool) -> list[Problem]:
        """Return all problems except damaged content. Rows of the index that differ are corrected; with ``repair``,
        unreadable metadata is moved to quarantine."""
        problems = list(self._find_symlinks())
        keys = self._catalog.keys()
        readable = list(self._catalog.read_all(keys)) if keys else []
        readable_ids = {metadata.id for metadata, _ in readable}
        for key in keys:
            if key not in readable_ids and ID.fullmatch(key) and self._is_unreadable(key):
                problems.append(self._report_unreadable(key, repair=repair))
        problems += self._find_leftovers()
        problems += self._repair_index(readable, keys)
        return problems

    def _find_leftovers(self) -> Iterator[Problem]:
        for orphan in self._list_orphans():
            if self._blobs.is_orphan(orphan.digest):
                detail = f"content of {orphan.size:,} bytes that no metadata names; `gc` removes it after an hour"
                yield Problem("orphan", orphan.digest, detail)
        for stray in self._strays.find():
            yield Problem("name", stray.name, "a name of content that no artifact has; `gc` removes it after an hour")

    def _repair_index(self, readable: Sequence[tuple[Metadata, int]], keys: Collection[str]) -> list[Problem]:
        index = self._catalog.index
        wrong, unknown = index.differences(readable, keys) or ([], [])
        # A row without a file is no problem: another process may delete the artifact at this moment. Call forget() even
        # with an empty list: it makes the next list() compare all rows.
        index.forget([*wrong, *self._catalog.without_file(unknown)])
        if wrong:
            index.put([(metadata, inode) for metadata, inode in readable if metadata.id in set(wrong)])
        return [Problem("index", key, "the index differed from the metadata; it is repaired") for key in wrong]

    def _is_unreadable(self, key: str) -> bool:
        """Return whether metadata cannot be read now. A file that was missing for a moment, or was deleted, can."""
        try:
            self._catalog.load(key)
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return True
        return False

    def _report_unreadable(self, key: str, *, repair: bool) -> Problem:
        if not repair:
            outcome = "; delete the artifact, store it again, or --repair"
        elif self._blobs.quarantine_metadata(key):
            outcome = "; it was put into quarantine"
        else:
            outcome = ", nor moved to quarantine: it changed meanwhile, is open, or its folder is read-only"
        return Problem("metadata", key, f"its metadata cannot be read{outcome}")

    def _find_symlinks(self) -> Iterator[Problem]:
        folders: list[tuple[str, ...]] = [(), ("locks",), ("staging",), ("meta",), ("quarantine",), ("blobs",)]
        for parts in folders:
            with suppress(FileNotFoundError), self._tree.folder(".abp", *parts) as folder:
                for name in folder.names():
                    try:
                        mode = folder.stat(name).st_mode
                    except FileNotFoundError:
                        # Another process removed it since.
                        continue
                    if stat.S_ISLNK(mode):
                        path = "/".join((".abp", *parts, name))
                        yield Problem("symlink", path, "a symlink that is not followed; remove it")
