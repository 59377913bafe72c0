"""Secrets in the content of files: what a staged file holds is masked before it is committed."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from ..artifacts import ArtifactRef, PutOptions, Staged
from ..artifacts.os_errors import map_os_errors
from ..protocol.secrets import MAX_MASKED_BYTES, KnownSecrets
from ..tasks import in_thread

__all__ = ["masked"]


def masked(staged: Staged, known: KnownSecrets) -> Staged:
    """Return a staged file that becomes ``staged`` with ``known`` values masked (:meth:`.KnownSecrets.mask`); as
    long as none is known, that is ``staged`` itself."""
    return _MaskedStaged(staged, known) if known else staged


class _MaskedStaged(Staged):
    """Keeps what is written until it is more than a file that is masked, or is committed."""

    def __init__(self, staged: Staged, known: KnownSecrets) -> None:
        self._known = known
        self._staged = staged
        self._kept: bytearray | None = bytearray()

    @property
    def path(self) -> Path:
        return self._staged.path

    @property
    def size(self) -> int:
        return self._staged.size + len(self._kept or b"")

    async def write(self, chunk: bytes | memoryview) -> None:
        if self._kept is None:
            await self._staged.write(chunk)
            return
        self._kept += chunk
        if len(self._kept) > MAX_MASKED_BYTES:
            kept, self._kept = bytes(self._kept), None
            await self._staged.write(kept)

    async def reset(self) -> None:
        self._kept = bytearray()
        await self._staged.reset()

    def follow(self) -> None:
        """Measure a large file meanwhile: it is not masked, and a small one is not followed."""
        self._staged.follow()

    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        if self._kept:
            kept, self._kept = bytes(self._kept), None
            await self._staged.write(await in_thread(self._known.mask, kept))
        elif self._kept is not None:
            with map_os_errors("mask a file", self.path.parent):
                await in_thread(_mask_file, self.path, self._known)
        return await self._staged.commit(**options)


def _mask_file(path: Path, known: KnownSecrets) -> None:
    """Mask a file that another program wrote, in its place."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_MASKED_BYTES:
        return
    content = path.read_bytes()
    found = known.mask(content)
    if found != content:
        with path.open("r+b") as file:
            file.write(found)
