"""A staged file whose content is copied on its way in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from ...artifacts import ArtifactRef, Staged

__all__ = ["Copied"]


class Copied(Staged):
    """What is written to ``staged`` goes to the file ``copy`` too. For downloads, which only write."""

    def __init__(self, staged: Staged, copy: Path) -> None:
        self.copy = copy
        self._staged = staged
        copy.touch()

    @property
    def path(self) -> Path:
        return self._staged.path

    @property
    def size(self) -> int:
        return self._staged.size

    async def write(self, chunk: bytes | memoryview) -> None:
        await self._staged.write(chunk)
        await asyncio.to_thread(self._append, chunk)

    def _append(self, chunk: bytes | memoryview) -> None:
        with self.copy.open("ab") as file:
            file.write(chunk)

    async def reset(self) -> None:
        await self._staged.reset()
        self.copy.write_bytes(b"")

    async def commit(
        self,
        *,
        size: int | None = None,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> ArtifactRef:
        return await self._staged.commit(
            size=size, mime_type=mime_type, filename=filename, namespace=namespace, meta=meta
        )
