"""The ``memory:`` store, in the memory of this process: for tests and for programs that leave nothing behind."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from .._internal.arguments import checked
from ..errors import Corrupt
from ._audit import AuditLog
from ._base import DEFAULT_MAX_BYTES, ArtifactStore, StagedFile
from ._content import Description, Meter
from ._ref import ArtifactRef, Metadata, Scope, candidate_ids, not_found, stamp
from ._retention import Entry, Retention
from ._spool import BufferedFile


@dataclass(slots=True)
class _Contents:
    """State that all views of one store share. Content is kept once, under its SHA-256."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    metadata: dict[str, Metadata] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)


class MemoryStore(ArtifactStore):
    """A store that keeps artifacts while the object lives. Each ``open_store("memory:")`` is a new, empty store."""

    url = "memory:"

    @checked
    def __init__(
        self,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retention: Retention | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        super().__init__(max_bytes=max_bytes, retention=retention, audit=audit)
        self._contents = _Contents()

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._contents.metadata)} artifacts)"

    async def _new_staged(self) -> StagedFile:
        return _Staged(self)

    def publish(self, meter: Meter, description: Description, data: bytes, scope: Scope) -> ArtifactRef:
        """Publish measured content as an artifact of ``scope``."""
        contents = self._contents
        digest = meter.sha256
        for key in candidate_ids(description.namespace, digest, scope):
            old = contents.metadata.get(key)
            if old is None or old.sha256 == digest:
                break
        metadata = Metadata.new(key, meter, description, scope, old=old)
        contents.blobs.setdefault(digest, data)
        contents.metadata[key] = metadata
        contents.used[key] = metadata.stored
        return metadata.ref()

    async def _stat_artifact(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        metadata = self._contents.metadata.get(artifact_id)
        if metadata is None:
            raise not_found(artifact_id)
        return metadata.ref(), metadata.stored

    async def _list_artifacts(self, scope: Scope) -> list[ArtifactRef]:
        covered = [metadata for metadata in self._contents.metadata.values() if scope.covers(metadata.scope)]
        covered.sort(key=lambda metadata: metadata.age_key)
        return [metadata.ref() for metadata in covered]

    async def _list_entries(self, scope: Scope) -> list[Entry]:
        contents = self._contents
        return [
            Entry(key, metadata.size_bytes, metadata.stored, contents.used[key], metadata.scope)
            for key, metadata in contents.metadata.items()
            if scope.covers(metadata.scope)
        ]

    async def _record_use(self, artifact_id: str) -> None:
        self._contents.used[artifact_id] = stamp()

    async def _read_range(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        data = self._contents.blobs.get(ref.sha256)
        if data is None:
            raise not_found(ref.id)
        if len(data) != ref.size_bytes:
            raise Corrupt(f"artifact {ref.id} is damaged: it has {len(data)} bytes", details={"id": ref.id})
        for position in range(start, end, chunk_size):
            yield data[position : min(position + chunk_size, end)]

    async def _delete_artifact(self, artifact_id: str, stored: float | None = None) -> bool:
        contents = self._contents
        removed = contents.metadata.get(artifact_id)
        if removed is None or stored not in (None, removed.stored):
            return False
        del contents.metadata[artifact_id]
        contents.used.pop(artifact_id)
        if not any(other.sha256 == removed.sha256 for other in contents.metadata.values()):
            del contents.blobs[removed.sha256]
        return True


class _Staged(BufferedFile):
    _store: MemoryStore

    async def _publish(self, meter: Meter, description: Description) -> ArtifactRef:
        return self._store.publish(meter, description, await self.read_all(), self._store.scope)
