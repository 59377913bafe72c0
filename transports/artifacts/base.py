"""The ArtifactStore contract (seed 002 §5.2): bytes go in verified, a small reference comes out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ArtifactRef", "ArtifactStore", "Staged"]


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """What stands for a stored file everywhere outside the store. It never holds content.

    ``path`` is a readable local path, or ``None`` where the store has none. ``source`` says where it comes from, in
    JSON values: ``capability``, ``app``, ``created`` (ISO 8601, UTC), ``declared_mime_type``, ``sniffed_mime_type``,
    ``verified`` (whether a declared size was compared), ``warnings``.
    """

    id: str
    uri: str
    path: str | None
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    source: Mapping[str, object] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """The reference as JSON, without ``source``."""
        return {
            "id": self.id,
            "uri": self.uri,
            "path": self.path,
            "filename": self.filename,
            "mime_type": self.mime_type,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
        }


class Staged(ABC):
    """A file that nobody sees yet. Write to it with :meth:`write`, or let somebody else write the file at ``path``
    (which does not exist until then); then :meth:`commit`. Leaving the ``async with store.stage()`` block removes
    what was not committed."""

    @property
    @abstractmethod
    def path(self) -> Path:
        """Where somebody else may write the whole content instead. Do not mix it with :meth:`write`."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes given to :meth:`write` so far."""

    @abstractmethod
    async def write(self, chunk: bytes | memoryview) -> None:
        """Append. Raises :class:`~transports.errors.TooLarge` at the store's limit and
        :class:`~transports.errors.StoreError` if the disk refuses."""

    @abstractmethod
    async def reset(self) -> None:
        """Start again from zero bytes (a download that could not be resumed)."""

    @abstractmethod
    async def commit(
        self,
        *,
        size: int | None = None,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str = "artifact",
        source: Mapping[str, object] | None = None,
    ) -> ArtifactRef:
        """Verify and make visible, once.

        ``size`` is what was declared, in bytes; ``mime_type`` likewise; ``filename`` is a suggestion from an untrusted
        side; ``namespace`` is usually the capability. Raises :class:`~transports.errors.SizeMismatch` (nothing becomes
        visible), :class:`~transports.errors.TooLarge`, :class:`~transports.errors.StoreError`.
        """


class ArtifactStore(ABC):
    """Where artifacts are kept. The id of an artifact is ``{namespace}_{first 12 hex digits of its SHA-256}``
    (seed 002 §5.3); the same content in one namespace is one artifact."""

    #: Address that :func:`transports.artifacts.open_store` would open again.
    url: str
    #: Largest artifact in bytes.
    max_bytes: int

    @abstractmethod
    def stage(self) -> AbstractAsyncContextManager[Staged]:
        """A new staged file; see :class:`Staged`."""

    @abstractmethod
    def open(self, artifact_id: str, *, chunk_size: int = 1 << 20) -> AsyncIterator[bytes]:
        """Stream the bytes. Raises :class:`~transports.errors.ArtifactNotFound` at the first step."""

    @abstractmethod
    async def stat(self, artifact_id: str) -> ArtifactRef:
        """The reference of an id. Raises :class:`~transports.errors.ArtifactNotFound`."""

    @abstractmethod
    async def list(self) -> list[ArtifactRef]:
        """All artifacts, oldest first."""

    @abstractmethod
    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact; ``False`` if there was none."""

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
        """Store bytes in hand; arguments and errors as :meth:`Staged.commit`."""
        async with self.stage() as staged:
            await staged.write(data)
            return await staged.commit(
                size=size, mime_type=mime_type, filename=filename, namespace=namespace, source=source
            )

    async def get(self, artifact_id: str) -> bytes:
        """All bytes of an artifact. Raises :class:`~transports.errors.ArtifactNotFound` and, if they no longer match
        their hash, :class:`~transports.errors.Corrupt`."""
        return b"".join([chunk async for chunk in self.open(artifact_id)])


def artifact_id(namespace: str, digest: str, length: int = 12) -> str:
    """Seed 002 §5.3. ``digest`` is a SHA-256 in hex; ``length`` grows where two contents share their first digits."""
    return f"{namespace}_{digest[:length]}"


def sha256_hex(data: bytes | memoryview) -> str:
    """SHA-256 of bytes in hand, in hex."""
    return hashlib.sha256(data).hexdigest()
