"""The store that keeps nothing: verified references without content (seed 002 §7.4)."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from ..errors import ArtifactNotFound, UsageError
from .base import ArtifactRef, ArtifactStore, Staged, artifact_id
from .content import Meter, as_bytes, describe, measure_file, nothing_written
from .disk import in_thread, reporting

__all__ = ["NoneStore"]

logger = logging.getLogger("transports.artifacts")

_WARNING = "Content not stored (no ArtifactStore configured)"
_INLINE = 256 << 10  # bytes that are hashed faster than a thread is reached


class NoneStore(ArtifactStore):
    """Verifies, measures and describes content, then lets go of it. References have ``path`` ``None``, an id
    ``truncated_<12 hex digits>`` and say so in ``source`` (``truncated``, ``warning``, ``original_size`` in bytes)."""

    url = "none:"

    def __init__(self, *, max_bytes: int = 1 << 30) -> None:
        self.max_bytes = max_bytes
        self._warned = False

    def __repr__(self) -> str:
        return "NoneStore()"

    @asynccontextmanager
    async def stage(self) -> AsyncIterator[Staged]:
        staged = _Staged(self)
        try:
            yield staged
        finally:
            await staged.aclose()

    async def put_bytes(
        self,
        data: bytes | memoryview,
        *,
        size: int | None = None,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str = "artifact",
        source: Mapping[str, object] | None = None,
    ) -> ArtifactRef:
        meter = Meter(self.max_bytes)
        await _add(meter, as_bytes(data))
        return self.finish(meter, size=size, mime_type=mime_type, filename=filename, namespace=namespace, source=source)

    def finish(
        self,
        meter: Meter,
        *,
        size: int | None,
        mime_type: str | None,
        filename: str | None,
        namespace: str,
        source: Mapping[str, object] | None,
    ) -> ArtifactRef:
        """The reference of measured content; arguments and errors as :meth:`Staged.commit`."""
        described = describe(
            meter, size=size, mime_type=mime_type, filename=filename, namespace=namespace, source=source
        )
        if not self._warned:
            self._warned = True
            logger.warning("no artifact store is configured: binary content is checked and not kept; set ABP_STORE")
        digest = meter.sha256
        key = artifact_id("truncated", digest)
        notes: dict[str, object] = {"truncated": True, "warning": _WARNING, "original_size": meter.size}
        return ArtifactRef(
            id=key,
            uri=f"artifact://{key}",
            path=None,
            filename=described.name,
            mime_type=described.mime_type,
            size_bytes=meter.size,
            sha256=digest,
            source=described.source | notes,
        )

    async def open(self, artifact_id: str, *, chunk_size: int = 1 << 20) -> AsyncIterator[bytes]:
        raise _not_found(artifact_id)
        yield b""  # makes this a generator, so that the error comes at the first step

    async def stat(self, artifact_id: str) -> ArtifactRef:
        raise _not_found(artifact_id)

    async def list(self) -> list[ArtifactRef]:
        return []

    async def delete(self, artifact_id: str) -> bool:
        return False


def _not_found(artifact_id: str) -> ArtifactNotFound:
    return ArtifactNotFound(
        f"artifact {artifact_id[:200]!r} was not kept: there is no artifact store; set ABP_STORE (store=) to a folder"
    )


async def _add(meter: Meter, chunk: memoryview) -> None:
    if len(chunk) <= _INLINE:
        meter.add(chunk)
    else:
        await in_thread(meter.add, chunk)


class _Staged(Staged):
    """Bytes that are written are measured only; a temporary folder is made when somebody asks for ``path``."""

    def __init__(self, store: NoneStore) -> None:
        self._store = store
        self._folder: Path | None = None
        self._committed = False
        self._start()

    def _start(self) -> None:
        self._meter = Meter(self._store.max_bytes)
        self._written = False
        self._usable = True

    @property
    def path(self) -> Path:
        if self._folder is None:
            place = Path(tempfile.gettempdir())
            with reporting("make a temporary folder", place):
                self._folder = Path(tempfile.mkdtemp(prefix="abp-"))
        return self._folder / "content"

    @property
    def size(self) -> int:
        return self._meter.size

    async def write(self, chunk: bytes | memoryview) -> None:
        self._check()
        self._usable = False
        await _add(self._meter, as_bytes(chunk))
        self._written = self._usable = True

    async def reset(self) -> None:
        self._check(usable=False)
        await self.aclose()
        self._start()

    async def commit(
        self,
        *,
        size: int | None = None,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str = "artifact",
        source: Mapping[str, object] | None = None,
    ) -> ArtifactRef:
        self._check()
        if not self._written and self._folder is not None and await in_thread(self._measure, self._folder):
            pass
        elif not self._written and size != 0:
            raise nothing_written()
        ref = self._store.finish(
            self._meter, size=size, mime_type=mime_type, filename=filename, namespace=namespace, source=source
        )
        self._committed = True
        return ref

    def _measure(self, folder: Path) -> bool:
        with reporting("read the staged file", folder):
            try:
                fd = os.open(folder / "content", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                self._meter = measure_file(fd, self._store.max_bytes)
            finally:
                os.close(fd)
        return True

    def _check(self, *, usable: bool = True) -> None:
        if self._committed:
            raise UsageError("this staged file was committed; stage another one")
        if usable and not self._usable:
            raise UsageError("a write to this staged file failed; reset() it first")

    async def aclose(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._folder is not None:
            await in_thread(shutil.rmtree, self._folder, ignore_errors=True)
