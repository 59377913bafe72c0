"""Copies the content of a staged file on its way in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Unpack

from ...artifacts import ArtifactRef, PutOptions, Staged

__all__ = ["TeeStaged"]


class TeeStaged(Staged):
    """Writes to ``staged`` and to the file ``copy``. For downloads, which only write and reset."""

    def __init__(self, staged: Staged, copy: Path) -> None:
        self.copy = copy
        self._staged = staged
        copy.touch()

    @property
    def path(self) -> Path:
        """The path of the staged file."""
        return self._staged.path

    @property
    def size(self) -> int:
        """The size of the staged file in bytes."""
        return self._staged.size

    async def write(self, chunk: bytes | memoryview) -> None:
        """Append a chunk to both files."""
        await self._staged.write(chunk)
        await asyncio.to_thread(self._append, chunk)

    def _append(self, chunk: bytes | memoryview) -> None:
        with self.copy.open("ab") as file:
            file.write(chunk)

    async def reset(self) -> None:
        """Empty both files."""
        await self._staged.reset()
        self.copy.write_bytes(b"")

    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        """Commit the staged file; the copy stays."""
        return await self._staged.commit(**options)
