"""Content on its way into a bucket: in memory while it is small, then in a temporary file."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

from ..content import Description, Meter
from ..os_errors import map_os_errors, write_all
from ..ref import ArtifactRef
from ..spool import SpooledFile
from ..staged import Publisher

__all__ = ["ObjectStaged"]

_IN_MEMORY = 1 << 20  # bytes that are kept in memory before a temporary file is made


class ContentPublisher(Publisher, Protocol):
    """The part of a store in a bucket that its staged files use."""

    async def publish(
        self, meter: Meter, description: Description, data: bytes | Path, blob: str, check: Callable[[], None]
    ) -> ArtifactRef:
        """Make measured content an artifact."""


class ObjectStaged(SpooledFile):
    """A staged file in memory while it is small, then in a temporary file.

    It is uploaded when all of it is verified, and may be committed again if the upload failed.
    """

    _store: ContentPublisher

    def _start(self) -> None:
        super()._start()
        self._chunks: list[bytes] = []
        self._in_memory = 0
        self._file: IO[bytes] | None = None
        self._blob = f"-{secrets.token_hex(8)}"

    def _store_chunk(self, chunk: memoryview) -> None:
        if self._file is None:
            self._chunks.append(bytes(chunk))
            self._in_memory += len(chunk)
            if self._in_memory <= _IN_MEMORY:
                return
            chunk = memoryview(b"".join(self._chunks))
            with map_os_errors("make a temporary file", self._scratch()):
                self._file = (self._scratch() / "written").open("xb", buffering=0)
            self._chunks = []
        with map_os_errors("write a temporary file", self._scratch()):
            write_all(self._file.fileno(), chunk)

    async def _publish(self, meter: Meter, description: Description) -> ArtifactRef:
        data = self.external_file or (self._scratch() / "written" if self._file else b"".join(self._chunks))
        return await self._store.publish(
            meter, description, data, f"content/{meter.sha256}{self._blob}", self.check_external_file
        )

    async def aclose(self) -> None:
        if self._file:
            self._file.close()
            self._file = None
        await super().aclose()
