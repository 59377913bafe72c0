"""Maintenance of a local store: removing what killed writers left, and checking what lies in its folders."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator

from ..clock import Ages, now
from ..metadata import ID
from ..os_errors import may_be_running
from ..ref import Problem
from ..retention import Removal
from .blobs import BlobStore
from .catalog import Catalog
from .folder import Folder
from .strays import Strays
from .tree import Tree

__all__ = ["Maintenance"]

logger = logging.getLogger("transports.artifacts")

_MAX_AGE = 3600.0  # seconds that a staged file or content without metadata may be on its way
_QUARANTINE = 86400.0  # seconds that damaged content is kept for a look at it
_STAGED = re.compile(r"(\d+)-[0-9a-f]+(?:\.slice\d)?")
_BLOB = re.compile(r"[0-9a-f]{64}")


class Maintenance:
    """The sweep and the check of one store. Every method blocks."""

    def __init__(self, tree: Tree, blobs: BlobStore, catalog: Catalog) -> None:
        self._tree = tree
        self._blobs = blobs
        self._catalog = catalog
        self._strays = Strays(tree, blobs, catalog)
        self._ages = Ages()
        self._swept = False

    def sweep_once(self) -> None:
        """Remove the staged files of dead writers at the first call; problems are logged."""
        if not self._swept:
            self._swept = True
            try:
                self._staged(dry_run=False)
            except OSError as error:
                logger.warning("staged files of earlier runs could not be removed from %s: %s", self._tree.root, error)

    def sweep(self, *, dry_run: bool) -> list[Removal]:
        """Remove staged files whose writer is gone, names and content without metadata, and quarantined content after a
        day.

        Returns what was removed; ``dry_run`` only returns it.
        """
        out = self._staged(dry_run=dry_run)
        orphans = self._orphans()  # first: content counts as changed when one of its names is removed
        kept = []
        for stray in self._strays.find():
            if self._ages.of(stray.name, stray.changed) > _MAX_AGE and (dry_run or self._strays.remove(stray)):
                out.append(Removal("name", stray.name, stray.size, "orphan"))
            else:
                kept.append(stray)
        if not dry_run:
            self._strays.forget_intents(now() - _MAX_AGE, kept)
        needed = {stray.digest for stray in kept}  # by its content a copy is known to be the store's
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
        """Return the content that no readable metadata names: hash, size in bytes, age in seconds."""
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
        """Return what is wrong except damaged content. Rows of the index that differ from the metadata are repaired;
        with ``repair``, metadata that cannot be read goes to quarantine."""
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
        self._catalog.index.forget(wrong)  # of none, too: the next list compares all rows, as some may be missing
        if wrong:
            self._catalog.index.put([(metadata, inode) for metadata, inode in found if metadata.id in set(wrong)])
        problems += [Problem("index", key, "the index differed from the metadata; it is repaired") for key in wrong]
        return problems

    def _symlinks(self) -> Iterator[Problem]:
        """Find symlinks in the store's own folders. They are never followed, and nobody should have put one there."""
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
        """Yield the regular files of a folder: the folder, name, status."""
        try:
            with self._tree.folder(".abp", *parts) as folder:
                for name in folder.names():
                    if status := folder.lstat(name):
                        yield folder, name, status
        except FileNotFoundError:
            return
