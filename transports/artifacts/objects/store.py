"""The store in a bucket: Amazon S3 and compatible servers, Google Cloud Storage, Azure."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

from ...errors import Corrupt, StoreUnavailable
from ..audit import AuditLog
from ..base import DEFAULT_MAX_BYTES, ArtifactStore
from ..clock import stamp
from ..content import Description, Meter
from ..metadata import ID, Metadata, candidate_ids, damaged_metadata, not_found
from ..os_errors import map_os_errors, write_all
from ..ref import ArtifactRef, CheckReport, Scope
from ..retention import Entry, Removal, Retention
from ..spool import SpooledFile
from ..staged import StagedFile
from .bucket import Bucket, ListedObject
from .maintenance import Maintenance

__all__ = ["ObjectStore"]

logger = logging.getLogger("transports.artifacts")

_IN_MEMORY = 1 << 20  # bytes that are kept in memory before a temporary file is made
_CONCURRENCY = 16  # requests for metadata at once


@dataclass(slots=True)
class _State:
    """The state that all views of one store share.

    ``metadata`` caches what was read, with its ETag; ``used`` is when artifacts were read last. ``reading`` counts the
    readers of each content, and ``delete_after_read`` is the content to be removed when the last of them is done.
    """

    metadata: dict[str, tuple[str, Metadata]] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    reading: Counter[str] = field(default_factory=Counter)
    delete_after_read: set[str] = field(default_factory=set)


class ObjectStore(ArtifactStore):
    """Keeps below ``s3://bucket/prefix``::

        meta/<id>.json                an artifact exists if and only if this does
        content/<sha256>-<random>     its content, never shared with another artifact
        quarantine/…                  damaged content

    Content is staged and verified on this machine, then uploaded, then named by its metadata in a single request, which
    is the commit. A failure before that leaves at most content that no metadata names; :meth:`gc` removes it an hour
    later. The parts of an upload whose process was killed are not listed as content: give the bucket a lifecycle rule
    that aborts incomplete multipart uploads (``docs/stores.md``).

    ``timeout`` in seconds limits a request with its retries, and a pause in a download; after that every method raises
    :class:`~transports.errors.StoreUnavailable`. Any number of machines may use one prefix.
    """

    def __init__(
        self,
        url: str,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retention: Retention | None = None,
        audit: AuditLog | None = None,
        timeout: float = 60.0,
    ) -> None:
        super().__init__(max_bytes=max_bytes, retention=retention, audit=audit)
        self.url = url.rstrip("/")
        self._bucket = Bucket(self.url, timeout)
        self._state = _State()
        self._maintenance = Maintenance(self._bucket, partial(self._all, Scope()), self._state.reading)

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    async def _new_staged(self) -> StagedFile:
        return _Staged(self)

    async def publish(
        self, meter: Meter, description: Description, data: bytes | Path, blob: str, check: Callable[[], None]
    ) -> ArtifactRef:
        """Make measured content an artifact of this view's scope. ``check`` is called after the upload, before the
        artifact is visible."""
        digest, scope = meter.sha256, self.scope
        for key in candidate_ids(description.namespace, digest, scope):
            try:
                old = await self._load(key)
            except Corrupt:  # metadata that cannot be read is replaced
                old = None
            if old is None or old.sha256 == digest:
                break
        await self._bucket.put(blob, data, description.mime_type)
        check()
        metadata = Metadata.new(key, meter, description, scope, old=old, blob=blob)
        await self._bucket.put(f"meta/{key}.json", metadata.encode(), "application/json")
        self._state.metadata[key] = ("", metadata)
        self._state.used[key] = metadata.stored
        if old and old.blob != blob:
            await self._delete_content(old.blob)
        return metadata.ref()

    async def _load(self, key: str) -> Metadata | None:
        try:
            data = await self._bucket.get(f"meta/{key}.json")
            metadata = Metadata.decode(data, key)
        except FileNotFoundError:
            self._state.metadata.pop(key, None)
            return None
        except ValueError as error:
            raise damaged_metadata(key, error) from error
        self._state.metadata[key] = ("", metadata)
        return metadata

    async def _stat(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        metadata = await self._load(artifact_id) if ID.fullmatch(artifact_id) else None
        if metadata is None:
            raise not_found(artifact_id)
        return metadata.ref(), metadata.stored

    async def _all(self, scope: Scope, unreadable: list[str] | None = None) -> list[Metadata]:
        """Return the metadata that ``scope`` covers. A file is read again only if its ETag has changed. The ids of
        those that cannot be read are added to ``unreadable``."""
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def read(listed: ListedObject, key: str) -> Metadata | None:
            e_tag, metadata = self._state.metadata.get(key, ("", None))
            if metadata is None or e_tag != listed.e_tag or not e_tag:
                async with slots:
                    try:
                        metadata = await self._load(key)
                    except Corrupt as error:
                        logger.warning("%s", error.message)
                        if unreadable is not None:
                            unreadable.append(key)
                        return None
                if metadata:
                    self._state.metadata[key] = (listed.e_tag, metadata)
            return metadata

        listed = [one async for one in self._bucket.list("meta/")]
        keys = [one.key.rpartition("/")[2].removesuffix(".json") for one in listed]
        wanted = [(one, key) for one, key in zip(listed, keys, strict=True) if ID.fullmatch(key)]
        found = await asyncio.gather(*(read(one, key) for one, key in wanted))
        return [metadata for metadata in found if metadata and scope.covers(metadata.scope)]

    async def _list(self, scope: Scope) -> list[ArtifactRef]:
        return [one.ref() for one in sorted(await self._all(scope), key=lambda one: one.age_key)]

    async def _entries(self, scope: Scope) -> list[Entry]:
        used = self._state.used
        return [
            Entry(one.id, one.size_bytes, one.stored, max(one.stored, used.get(one.id, 0.0)), one.scope)
            for one in await self._all(scope)
        ]

    async def _touch(self, artifact_id: str) -> None:
        self._state.used[artifact_id] = stamp()

    async def _read(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        blob = self._state.metadata[ref.id][1].blob
        self._state.reading[blob] += 1
        digest, position = hashlib.sha256(), start
        try:
            while position < end:
                try:
                    async for chunk in self._bucket.stream(blob, position, end, chunk_size):
                        position += len(chunk)
                        digest.update(chunk)
                        yield chunk
                    if position < end:
                        raise self._corrupt(ref, "it is too short")
                except FileNotFoundError:
                    current = await self._load(ref.id)
                    if current is None:
                        raise not_found(ref.id) from None
                    if current.blob == blob:
                        raise self._corrupt(ref, "its content is missing") from None
                    self._state.reading[current.blob] += 1  # it was stored again meanwhile
                    await self._release_content(blob)
                    blob = current.blob
            if end - start == ref.size_bytes and digest.hexdigest() != ref.sha256:
                await self._raise_mismatch(ref, blob)
        finally:
            await self._release_content(blob)

    async def _raise_mismatch(self, ref: ArtifactRef, blob: str) -> None:
        """Read again content that did not match its hash, to tell damage in the store from damage on the way."""
        digest = hashlib.sha256()
        async for chunk in self._bucket.stream(blob, 0, ref.size_bytes, 1 << 20):
            digest.update(chunk)
        if digest.hexdigest() == ref.sha256:
            raise StoreUnavailable(
                f"artifact {ref.id} was damaged on its way from {self.url}; what is stored is intact: read it again",
                retryable=True,
                details={"id": ref.id},
            )
        await self._bucket.move(blob, blob.replace("content/", "quarantine/", 1))
        raise self._corrupt(ref, "its content no longer matches its hash and was put into quarantine")

    def _corrupt(self, ref: ArtifactRef, what: str) -> Corrupt:
        return Corrupt(f"artifact {ref.id} is damaged: {what}; store it again", details={"id": ref.id})

    async def presigned(self, artifact_id: str, seconds: float) -> str | None:
        """Return a signed URL, valid for ``seconds``. S3 allows seven days at most."""
        await self._require_visible(artifact_id, "read")
        return await self._bucket.sign(self._state.metadata[artifact_id][1].blob, seconds)

    async def _delete(self, artifact_id: str, stored: float | None = None) -> bool:
        if not ID.fullmatch(artifact_id):
            return False
        try:
            metadata = await self._load(artifact_id)
            if metadata is None or stored not in (None, metadata.stored):
                return False
        except Corrupt:
            metadata = None  # it does not tell where its content is; gc finds that
        await self._bucket.delete(f"meta/{artifact_id}.json")
        self._state.metadata.pop(artifact_id, None)
        self._state.used.pop(artifact_id, None)
        if metadata:
            await self._delete_content(metadata.blob)
        return True

    async def _delete_content(self, blob: str) -> None:
        """Remove content when the last reader in this process is done."""
        if self._state.reading[blob]:
            self._state.delete_after_read.add(blob)
        else:
            await self._bucket.delete(blob)

    async def _release_content(self, blob: str) -> None:
        self._state.reading[blob] -= 1
        if not self._state.reading[blob]:
            del self._state.reading[blob]
            if blob in self._state.delete_after_read:
                self._state.delete_after_read.discard(blob)
                await self._bucket.delete(blob)

    async def _sweep(self, *, dry_run: bool) -> list[Removal]:
        return await self._maintenance.sweep(dry_run=dry_run)

    async def fsck(self, *, repair: bool = False) -> CheckReport:
        """Check the content, and without a scope also the metadata; ``repair`` moves what cannot be read to quarantine,
        with its content."""
        problems = [] if self.scope else await self._maintenance.check(repair=repair)
        found = await super().fsck()
        return replace(found, problems=(*found.problems, *problems))


class _Staged(SpooledFile):
    """A staged file in memory while it is small, then in a temporary file.

    It is uploaded when all of it is verified, and may be committed again if the upload failed.
    """

    _store: ObjectStore

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
