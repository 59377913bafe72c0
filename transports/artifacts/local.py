"""Artifacts as files on this machine: the default store."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ..errors import ArtifactNotFound, Corrupt
from .base import ArtifactRef, ArtifactStore, Staged
from .disk import Tree, in_thread, reporting
from .record import ID, Record
from .shelf import Shelf
from .staging import LocalStaged, sweep

__all__ = ["DEFAULT_MAX_BYTES", "LocalStore", "default_root"]

DEFAULT_MAX_BYTES = 1 << 30


def default_root() -> Path:
    """``<temp folder>/abp-mcp-bridge``, where a store without a root keeps its files."""
    return Path(tempfile.gettempdir()) / "abp-mcp-bridge"


class LocalStore(ArtifactStore):
    """Keeps every artifact as a readable file directly in ``root``, and what belongs to it under ``root/.abp/``::

        report.pdf, export_pdf_1732160000000.pdf     readable names, hard links to
        .abp/blobs/ab/<sha256>                       the content, once
        .abp/meta/<id>.json                          an artifact exists if and only if this does
        .abp/staging, locks, quarantine              files on their way in; locks; content that was damaged

    Nothing is made before the first :meth:`stage` or :meth:`put_bytes`; a root that does not exist gets mode 0700,
    files get 0600. Several processes, threads and event loops may use one folder at once. ``max_bytes`` limits each
    artifact. A readable name *is* the content: a program that edits it in place damages the artifact, and :meth:`open`
    says so.

    Every method raises :class:`~transports.errors.StoreError` if the disk refuses, if the root or a folder of ours in
    it is a symlink, or if the default root (``None``) belongs to another user.
    """

    def __init__(self, root: Path | None = None, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        default = default_root()
        self.root = (root or default).expanduser().absolute()
        self.max_bytes = max_bytes
        self.url = self.root.as_uri()
        # a folder below a shared temp folder may have been made by anybody before us
        self._tree = Tree(self.root, own=self.root == default.absolute())
        self._shelf = Shelf(self._tree)
        self._swept = False

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    @asynccontextmanager
    async def stage(self) -> AsyncIterator[Staged]:
        await in_thread(self._prepare)
        staged = LocalStaged(self._tree, self._shelf, self.max_bytes)
        try:
            yield staged
        finally:
            await staged.aclose()

    def _prepare(self) -> None:
        with reporting("make the artifact folder", self.root), self._tree.folder(".abp", "staging", create=True):
            pass
        if not self._swept:
            self._swept = True
            sweep(self._tree)

    async def open(self, artifact_id: str, *, chunk_size: int = 1 << 20) -> AsyncIterator[bytes]:
        """Stream the bytes in pieces of at most ``chunk_size`` bytes. A reader that has begun finishes, also if the
        artifact is deleted. Raises :class:`~transports.errors.ArtifactNotFound` at the first step and, **after** the
        last piece, :class:`~transports.errors.Corrupt` if the whole did not match its hash; the content is then moved
        to ``.abp/quarantine``."""
        reader = _Reader(self._shelf, self.root)
        try:
            await in_thread(reader.open, artifact_id)
            while chunk := await in_thread(reader.read, chunk_size):
                yield chunk
        finally:
            reader.close()

    async def stat(self, artifact_id: str) -> ArtifactRef:
        def work() -> ArtifactRef:
            with reporting("read an artifact", self.root):
                record = _load(self._shelf, artifact_id)
                return record.ref(self._shelf.path(record))

        return await in_thread(work)

    async def list(self) -> list[ArtifactRef]:
        """All artifacts, oldest first. Metadata that cannot be read is logged and left out."""

        def work() -> list[ArtifactRef]:
            with reporting("list artifacts", self.root):
                return [record.ref(self._shelf.path(record)) for record in self._shelf.records()]

        return await in_thread(work)

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact with all its readable names; ``False`` if there was none."""
        if not ID.fullmatch(artifact_id):
            return False

        def work() -> bool:
            with reporting("delete an artifact", self.root):
                return self._shelf.remove(artifact_id)

        return await in_thread(work)


def _load(shelf: Shelf, artifact_id: str) -> Record:
    if not ID.fullmatch(artifact_id):
        raise _not_found(artifact_id)
    try:
        return shelf.load(artifact_id)
    except FileNotFoundError:
        raise _not_found(artifact_id) from None
    except ValueError as error:
        raise Corrupt(
            f"the metadata of artifact {artifact_id} is damaged ({error}); delete the artifact or store it again",
            details={"id": artifact_id},
        ) from error


def _not_found(artifact_id: str) -> ArtifactNotFound:
    shown = artifact_id if len(artifact_id) <= 200 else artifact_id[:200] + "…"
    return ArtifactNotFound(f"there is no artifact {shown!r} in this store", details={"id": shown})


class _Reader:
    """One pass over a blob, checked at its end. Blocking; :meth:`close` may be called at any time."""

    def __init__(self, shelf: Shelf, root: Path) -> None:
        self._shelf = shelf
        self._root = root
        self._fd = -1
        self._size = 0
        self._digest = hashlib.sha256()

    def open(self, artifact_id: str) -> None:
        with reporting("read an artifact", self._root):
            self._record = _load(self._shelf, artifact_id)
            try:
                self._fd = self._shelf.open(self._record.sha256)
            except FileNotFoundError:
                _load(self._shelf, artifact_id)  # not found, if it was deleted just now
                raise self._corrupt("its content is missing") from None

    def read(self, size: int) -> bytes:
        with reporting("read an artifact", self._root):
            chunk = os.read(self._fd, size)
            self._digest.update(chunk)
            self._size += len(chunk)
            if self._size > self._record.size_bytes or (not chunk and self._digest.hexdigest() != self._record.sha256):
                self._shelf.quarantine(self._record.sha256, self._fd)
                raise self._corrupt("its content no longer matches its hash and was put into quarantine")
        return chunk

    def _corrupt(self, what: str) -> Corrupt:
        key = self._record.id
        return Corrupt(f"artifact {key} is damaged: {what}; store it again", details={"id": key})

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
