"""Artifacts in the memory of this process: for tests, and for programs that leave nothing behind."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from ..errors import Corrupt
from ..tasks import in_thread
from .audit import AuditLog
from .base import DEFAULT_MAX_BYTES, ArtifactStore
from .content import Description, Meter
from .metadata import Metadata, candidate_ids, not_found
from .ref import ArtifactRef, Scope
from .retention import Entry, Retention
from .spool import SpooledFile
from .staged import StagedFile

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _Contents:
    """What all views of one store share. Content is kept once, by its hash; whoever reads it holds it."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    records: dict[str, Metadata] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)


class MemoryStore(ArtifactStore):
    """Keeps artifacts until the store is dropped. Each ``open_store("memory:")`` is a store of its own."""

    url = "memory:"

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
        return f"MemoryStore({len(self._contents.records)} artifacts)"

    async def _new_staged(self) -> StagedFile:
        return _Staged(self)

    def publish(self, meter: Meter, description: Description, data: bytes, scope: Scope) -> ArtifactRef:
        """Make measured content an artifact."""
        at, digest = self._contents, meter.sha256
        for key in candidate_ids(description.namespace, digest, scope):
            old = at.records.get(key)
            if old is None or old.sha256 == digest:
                break
        record = Metadata.new(key, meter, description, scope, old=old)
        at.blobs.setdefault(digest, data)
        at.records[key] = record
        at.used[key] = record.stored
        return record.ref()

    async def _stat(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        record = self._contents.records.get(artifact_id)
        if record is None:
            raise not_found(artifact_id)
        return record.ref(), record.stored

    async def _list(self, scope: Scope) -> list[ArtifactRef]:
        records = [record for record in self._contents.records.values() if scope.covers(record.scope)]
        return [record.ref() for record in sorted(records, key=lambda record: record.age_key)]

    async def _entries(self, scope: Scope) -> list[Entry]:
        at = self._contents
        return [
            Entry(key, one.size_bytes, one.stored, at.used[key], one.scope)
            for key, one in at.records.items()
            if scope.covers(one.scope)
        ]

    async def _touch(self, artifact_id: str) -> None:
        self._contents.used[artifact_id] = time.time()

    async def _read(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        data = self._contents.blobs.get(ref.sha256)
        if data is None:
            raise not_found(ref.id)
        if len(data) != ref.size_bytes:
            raise Corrupt(f"artifact {ref.id} is damaged: it has {len(data)} bytes", details={"id": ref.id})
        for at in range(start, end, chunk_size):
            yield data[at : min(at + chunk_size, end)]

    async def _delete(self, artifact_id: str) -> bool:
        at = self._contents
        record = at.records.pop(artifact_id, None)
        if record is None:
            return False
        at.used.pop(artifact_id)
        if not any(other.sha256 == record.sha256 for other in at.records.values()):
            del at.blobs[record.sha256]
        return True


class _Staged(SpooledFile):
    _store: MemoryStore

    def _start(self) -> None:
        super()._start()
        self._chunks: list[bytes] = []

    def _store_chunk(self, chunk: memoryview) -> None:
        self._chunks.append(bytes(chunk))

    async def _publish(self, meter: Meter, description: Description) -> ArtifactRef:
        data = await in_thread(self.external_file.read_bytes) if self.external_file else b"".join(self._chunks)
        self.check_external_file()
        return self._store.publish(meter, description, data, self._store.scope)
