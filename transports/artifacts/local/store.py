"""The default store: artifacts as files in a folder on this machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ...errors import Corrupt
from ...tasks import in_thread
from ..audit import AuditLog
from ..base import DEFAULT_MAX_BYTES, ArtifactStore
from ..metadata import ID, Metadata, damaged_metadata, not_found
from ..os_errors import map_os_errors
from ..ref import ArtifactRef, CheckReport, Problem, Scope
from ..retention import Entry, Removal, Retention
from ..staged import StagedFile
from ..system import read_at
from .blobs import BlobStore
from .catalog import Catalog
from .index import Index
from .maintenance import Maintenance
from .staging import LocalStaged
from .text_index import TextIndex
from .tree import Tree
from .writer import Writer

__all__ = ["LocalStore", "default_root"]

#: Seconds, longer than the resolution of the times that a file system keeps.
_TICK = 0.1


def default_root() -> Path:
    """Return ``<temp folder>/abp-mcp-bridge``, the folder of a store without a root."""
    return Path(tempfile.gettempdir()) / "abp-mcp-bridge"


class LocalStore(ArtifactStore):
    """Keeps every artifact as a readable file directly in ``root``, and what belongs to it under ``root/.abp/``::

        report.pdf, export_pdf_1732160000000.pdf     readable names, hard links to
        .abp/blobs/<sha256>                          the content, once
        .abp/meta/<id>.json                          an artifact exists if and only if this does
        .abp/index.sqlite                            a searchable copy of the metadata; may be deleted at any time
        .abp/text.sqlite                             the words of texts, with ``search_index``; the same
        .abp/staging, locks, quarantine              files on their way in; locks; damaged content

    Nothing is made before something is stored; a root that does not exist gets mode 0700, files get 0600. Several
    processes, threads and event loops may use one folder at once. A readable name *is* the content: a program that
    edits it in place damages the artifact, and :meth:`open` raises :class:`~transports.errors.Corrupt`.

    Every method raises :class:`~transports.errors.StoreError` if the disk refuses, if the root or a folder of the store
    in it is a symlink, or if the default root (``None``) belongs to another user.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retention: Retention | None = None,
        audit: AuditLog | None = None,
        search_index: bool = False,
        min_free_bytes: int = 0,
    ) -> None:
        """``search_index`` makes an index of the words of text artifacts at the first search; ``min_free_bytes`` of the
        disk stay free: what would take them is a :class:`~transports.errors.StoreFull`. The others are as in
        :class:`~transports.ArtifactStore`."""
        super().__init__(max_bytes=max_bytes, retention=retention, audit=audit)
        default = default_root()
        self.root = (root or default).expanduser().absolute()
        self.url = self.root.as_uri()
        # another user may have made a folder of this name in the shared temp folder
        self._min_free = min_free_bytes
        self._tree = Tree(self.root, own=self.root == default.absolute())
        index = Index(self._tree, live=retention is not None)
        self._blobs = BlobStore(self._tree, index)
        self._catalog = Catalog(self._tree, index)
        self._writer = Writer(self._tree)
        self._maintenance = Maintenance(self._tree, self._blobs, self._catalog)
        #: The index that :func:`transports.artifacts.search` looks into, if there is one.
        self.text_index = TextIndex(self._tree) if search_index else None

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    async def aclose(self) -> None:
        """Close the SQLite index, which a store with a retention keeps open, and let the thread end that stores."""
        self._writer.close()
        await in_thread(self._catalog.index.close)

    async def _new_staged(self) -> StagedFile:
        return LocalStaged(self, self._tree, self._blobs, self._writer, self._maintenance, self._min_free)

    async def _stat(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        def work() -> tuple[ArtifactRef, float]:
            with map_os_errors("read an artifact", self.root):
                metadata = _load(self._catalog, artifact_id)
                return metadata.ref(self._catalog.path(metadata)), metadata.stored

        return await in_thread(work)

    async def _list(self, scope: Scope) -> list[ArtifactRef]:
        """Metadata that cannot be read is logged and left out."""

        def work() -> list[ArtifactRef]:
            with map_os_errors("list artifacts", self.root):
                return self._catalog.refs(scope)

        return await in_thread(work)

    async def _entries(self, scope: Scope) -> list[Entry]:
        def work() -> list[Entry]:
            with map_os_errors("list artifacts", self.root):
                return self._catalog.entries(scope)

        return await in_thread(work)

    async def change_token(self) -> object:
        """Return a token made of the time of the metadata folder, which every commit and every removal changes, or
        ``None`` where it does not."""

        def work() -> object:
            with map_os_errors("look at the store", self.root):
                try:
                    with self._tree.folder(".abp", "meta") as meta:
                        now = meta.times()
                except FileNotFoundError:
                    return 0
                if now is None:
                    return None
                # a second change within the resolution of the folder's time would not be seen
                ticking = time.time() - now.st_mtime < _TICK
                return (now.st_ino, now.st_mtime_ns, time.monotonic_ns() if ticking else 0)

        return await in_thread(work)

    async def _touch(self, artifact_id: str) -> None:
        await in_thread(self._catalog.index.touch, artifact_id)

    async def _read(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        reader = _Reader(self._blobs, self._catalog, self.root, ref, start, end)
        try:
            while chunk := await in_thread(reader.read, chunk_size):
                yield chunk
                if reader.done:
                    break
            if reader.damaged:
                await in_thread(reader.quarantine)
        finally:
            reader.close()

    async def _delete(self, artifact_id: str, stored: float | None = None) -> bool:
        """With all its readable names."""
        if not ID.fullmatch(artifact_id):
            return False

        def work() -> bool:
            with map_os_errors("delete an artifact", self.root):
                return self._blobs.remove(artifact_id, stored)

        return await in_thread(work)

    async def _sweep(self, *, dry_run: bool) -> list[Removal]:
        def work() -> list[Removal]:
            with map_os_errors("clean up", self.root):
                return self._maintenance.sweep(dry_run=dry_run)

        return await in_thread(work)

    async def fsck(self, *, repair: bool = False) -> CheckReport:
        """Check the content, and without a scope also the store itself: metadata that cannot be read (``repair`` moves
        it to quarantine with its content), rows of the index that differ from it (they are repaired), content that no
        metadata names, symlinks in the store's folders."""

        def work() -> list[Problem]:
            with map_os_errors("check the store", self.root):
                return self._maintenance.check(repair=repair)

        # the index first: a wrong row must not make content look damaged
        problems = [] if self.scope else await in_thread(work)
        found = await super().fsck()
        return replace(found, problems=(*found.problems, *problems))


def _load(catalog: Catalog, artifact_id: str) -> Metadata:
    if not ID.fullmatch(artifact_id):
        raise not_found(artifact_id)
    try:
        return catalog.load(artifact_id)
    except FileNotFoundError:
        raise not_found(artifact_id) from None
    except ValueError as error:
        raise damaged_metadata(artifact_id, error) from error


class _Reader:
    """One pass over a blob, whose hash is checked at the end of a whole read. Every method blocks."""

    def __init__(self, blobs: BlobStore, catalog: Catalog, root: Path, ref: ArtifactRef, start: int, end: int) -> None:
        self._blobs = blobs
        self._catalog = catalog
        self._root = root
        self._ref = ref
        self._position = start
        self._end = end
        self._whole = end - start == ref.size_bytes
        self._fd = -1
        self._digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Return the next bytes, or ``b""`` at the end."""
        with map_os_errors("read an artifact", self._root):
            if self._fd < 0:
                self._open()
            wanted = min(size, self._end - self._position)
            chunk = read_at(self._fd, wanted, self._position)
            self._position += len(chunk)
            if self._whole:
                self._digest.update(chunk)
            if wanted and not chunk:
                self.quarantine()
        return chunk

    def _open(self) -> None:
        try:
            self._fd = self._blobs.open(self._ref.sha256)
        except FileNotFoundError:
            _load(self._catalog, self._ref.id)  # not found, if it was deleted just now
            raise self._corrupt("its content is missing") from None
        if os.fstat(self._fd).st_size != self._ref.size_bytes:
            self.quarantine()

    @property
    def done(self) -> bool:
        """Whether the end of the range was reached."""
        return self._position >= self._end

    @property
    def damaged(self) -> bool:
        """Whether the bytes differ from what was stored. It can be told only of a whole read."""
        return self._whole and self._digest.hexdigest() != self._ref.sha256

    def quarantine(self) -> NoReturn:
        """Move the content to quarantine, if it is damaged still, and raise :class:`~transports.errors.Corrupt`."""
        with map_os_errors("read an artifact", self._root):
            self.close()  # an open file cannot be renamed on Windows
            moved = self._blobs.quarantine(self._ref.sha256)
        if moved:
            raise self._corrupt("its content no longer matches its hash and was put into quarantine")
        raise self._corrupt("what was read does not match its hash; the content was replaced since, or cannot be moved")

    def _corrupt(self, what: str) -> Corrupt:
        key = self._ref.id
        return Corrupt(f"artifact {key} is damaged: {what}; store it again", details={"id": key})

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
