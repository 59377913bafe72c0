"""The store in a bucket: Amazon S3 and compatible servers, Google Cloud Storage, Azure."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Container
from pathlib import Path

from ..._internal.tasks import in_thread
from ...errors import Corrupt, StoreUnavailable, UsageError
from .._base import DEFAULT_MAX_BYTES, ArtifactStore, AuditLog
from .._content import Description
from .._files import map_os_errors
from .._memory import SpooledFile
from .._ref import (
    ID,
    ArtifactRef,
    Metadata,
    Page,
    Problem,
    Query,
    ReindexReport,
    Scope,
    candidate_ids,
    damaged,
    digest_prefix,
    not_found,
)
from .._retention import Entry, Removal, Retention
from ._catalog import Bucket, Catalog, IndexedCatalog
from ._index import StoreIndex, open_index


class ObjectStaged(SpooledFile):
    """A staged file in memory while it has at most a MiB, then in a temporary file."""

    _store: ObjectStore

    def _clear_content(self) -> None:
        self._suffix = f"-{secrets.token_hex(8)}"
        self._file: Path | None = None
        #: Content that is not in the file.
        self._collected = bytearray()

    def _store_chunk(self, chunk: memoryview) -> None:
        self._collected += chunk
        max_collected = 1 << 20
        if len(self._collected) > max_collected:
            self._file = self.path.with_name(f"written{self._suffix}")
            self._append_collected(self._file)

    def _append_collected(self, path: Path) -> None:
        with map_os_errors("write a temporary file", path.parent), path.open("ab") as file:
            file.write(self._collected)
        self._collected.clear()

    async def _publish(self, description: Description) -> ArtifactRef:
        content: bytes | Path = bytes(self._collected)
        if self._file:
            # Until everything is written, the file is unusable: half of it must never be committed.
            self._usable = False
            await in_thread(self._append_collected, self._file)
            self._usable = True
            content = self._file
        blob = f"content/{description.sha256}{self._suffix}"
        return await self._store.publish(description, content, blob)


def _content_prefix(key: str) -> str:
    """Return the beginning of the keys of all content that an artifact may have."""
    return f"content/{digest_prefix(key)}"


class ObjectStore(ArtifactStore):
    """A store in a bucket. Objects below ``s3://bucket/prefix``::

        meta/<id>.json                an artifact exists if and only if this does
        content/<sha256>-<random>     its content, never shared with another artifact
        quarantine/…                  damaged content

    Content is staged and verified on this machine, then uploaded, then named by its metadata in a single request, which
    is the commit. A failure before that leaves at most content without metadata; :meth:`gc` removes it an hour later.
    The parts of an upload whose process was killed are not listed as content: give the bucket a lifecycle rule that
    aborts incomplete multipart uploads (``docs/stores.md``).

    ``timeout`` in seconds limits a request with its retries, and a pause in a download; after that every method raises
    :class:`~transports.errors.StoreUnavailable`. Any number of machines may use one prefix.
    """

    _staged_class = ObjectStaged

    def __init__(
        self,
        url: str,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retention: Retention | None = None,
        audit: AuditLog | None = None,
        timeout: float = 60.0,
        index: str | None = None,
    ) -> None:
        """``index`` is the URL of an index: ``postgresql://…`` or ``sqlite:///…``."""
        super().__init__(max_bytes=max_bytes, retention=retention, audit=audit)
        self.url = url.rstrip("/")
        self._bucket = Bucket(self.url, timeout)
        self._catalog = Catalog(self._bucket)
        if index is not None:
            database, displayed = open_index(index)
            self._catalog = IndexedCatalog(self._bucket, StoreIndex(database, self.url))
            self.url += f"?index={displayed}"
        # All views share these: the readers of each content, and the content to remove after its last reader.
        self._reading = Counter[str]()
        self._delete_after_read: set[str] = set()

    async def aclose(self) -> None:
        await self._catalog.aclose()

    async def publish(self, description: Description, content: bytes | Path, blob: str) -> ArtifactRef:
        digest = description.sha256
        # Take the shortest id that is free: the hash of other content may begin with the same digits.
        for key in candidate_ids(description.namespace, digest, self.scope):
            try:
                old = await self._catalog.load(key)
            except Corrupt:
                # Damaged metadata is replaced.
                old = None
            if old is None or old.sha256 == digest:
                break

        await self._bucket.put(blob, content, description.mime_type)
        metadata = Metadata.new(key, description, self.scope, old=old, blob=blob)
        await self._catalog.write(metadata)
        if old and old.blob != blob:
            await self._delete_content(old.blob)
        return metadata.ref()

    async def _stat_artifact(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        if not ID.fullmatch(artifact_id):
            raise not_found(artifact_id)
        metadata = await self._catalog.load(artifact_id)
        if metadata is None:
            raise not_found(artifact_id)
        return metadata.ref(), metadata.stored

    async def _list_artifacts(self, scope: Scope) -> list[tuple[ArtifactRef, float]]:
        return [(metadata.ref(), metadata.stored) for metadata in await self._catalog.all_metadata(scope)]

    async def _find_page(self, query: Query) -> Page:
        result = await self._catalog.find_page(self.scope, query)
        if result is None:
            return await super()._find_page(query)
        page, cursor = result
        unexpired = [metadata for metadata in page if not self._is_expired(metadata.stored, metadata.scope)]
        return Page([metadata.ref() for metadata in unexpired], cursor)

    async def _list_entries(self, scope: Scope) -> list[Entry]:
        return await self._catalog.entries(scope)

    async def _list_candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        return await self._catalog.candidates(scope, policy)

    async def change_token(self) -> object:
        return await self._catalog.change_token()

    async def _record_use(self, artifact_id: str) -> None:
        await self._catalog.touch(artifact_id)

    async def _read_range(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        """Stream a range. Content that is replaced meanwhile stays until its last reader is done."""
        blob = await self._content_of(ref.id)
        self._reading[blob] += 1
        digest = hashlib.sha256()
        position = start
        try:
            while position < end:
                try:
                    async for chunk in self._bucket.stream(blob, position, end, chunk_size):
                        position += len(chunk)
                        digest.update(chunk)
                        yield chunk
                    if position < end:
                        raise damaged(ref, "it is too short")
                except FileNotFoundError:
                    # The artifact may have been stored again meanwhile: go on with the new content.
                    new_blob = await self._find_newer_content(ref, blob)
                    self._reading[new_blob] += 1
                    await self._release_content(blob)
                    blob = new_blob

            reads_whole = end - start == ref.size_bytes
            if reads_whole and digest.hexdigest() != ref.sha256:
                await self._raise_mismatch(ref, blob)
        finally:
            await self._release_content(blob)

    async def _find_newer_content(self, ref: ArtifactRef, missing_blob: str) -> str:
        """Return the key of content that has replaced missing content. Raises :class:`~transports.errors.Corrupt` if
        nothing did, and :func:`not_found` if the artifact is gone."""
        metadata = await self._catalog.load(ref.id)
        if metadata is None:
            raise not_found(ref.id) from None
        if metadata.blob == missing_blob:
            raise damaged(ref, "its content is missing") from None
        return metadata.blob

    async def _content_of(self, artifact_id: str) -> str:
        blob = await self._catalog.content_of(artifact_id)
        if blob is None:
            raise not_found(artifact_id)
        return blob

    async def _raise_mismatch(self, ref: ArtifactRef, blob: str) -> None:
        """Read content that did not match its hash again, and raise an error for damage in transit or in the store."""
        digest = hashlib.sha256()
        async for chunk in self._bucket.stream(blob, 0, ref.size_bytes, 1 << 20):
            digest.update(chunk)
        if digest.hexdigest() == ref.sha256:
            raise StoreUnavailable(
                f"artifact {ref.id} was damaged in transit from {self.url}; the stored copy is intact: read it again",
                retryable=True,
                details={"id": ref.id},
            )
        await self._bucket.move(blob, blob.replace("content/", "quarantine/", 1))
        raise damaged(ref, "its content no longer matches its hash and was put into quarantine")

    async def presigned(self, artifact_id: str, seconds: float) -> str | None:
        """Return a signed URL, valid for ``seconds``. S3 allows seven days at most."""
        await self._require_visible(artifact_id, "read")
        return await self._bucket.sign(await self._content_of(artifact_id), seconds)

    async def _delete_artifact(self, artifact_id: str, stored: float | None = None) -> bool:
        if not ID.fullmatch(artifact_id):
            return False
        try:
            metadata = await self._catalog.load(artifact_id)
        except Corrupt:
            # The artifact's content is unknown, and is removed by gc().
            await self._catalog.remove(artifact_id)
            return True

        if metadata is None or stored not in (None, metadata.stored):
            if stored is not None:
                await self._catalog.repair_entry(artifact_id)
            return False
        await self._catalog.remove(artifact_id)
        await self._delete_content(metadata.blob)
        return True

    async def _delete_content(self, blob: str) -> None:
        if self._reading[blob]:
            self._delete_after_read.add(blob)
        else:
            await self._bucket.delete(blob)

    async def _release_content(self, blob: str) -> None:
        self._reading[blob] -= 1
        if not self._reading[blob]:
            del self._reading[blob]
            if blob in self._delete_after_read:
                self._delete_after_read.discard(blob)
                await self._bucket.delete(blob)

    async def _sweep_leftovers(self, *, dry_run: bool) -> list[Removal]:
        removals = await self._find_orphans()
        day = 86400.0
        async for quarantined in self._bucket.list("quarantine/"):
            if time.time() - quarantined.modified.timestamp() > day:
                removals.append(Removal("quarantine", quarantined.key, quarantined.size, "expired"))

        if not dry_run:
            for removal in removals:
                await self._bucket.delete(removal.id)
        return removals

    async def _find_orphans(self) -> list[Removal]:
        now = time.time()
        hour = 3600.0
        old_blobs = [blob async for blob in self._bucket.list("content/") if now - blob.modified.timestamp() > hour]
        report = await self._catalog.compare()
        used_keys = await self._catalog.contents() if old_blobs else set()
        # Unreadable metadata may name any content that begins with the digits of its id.
        perhaps_used = tuple(_content_prefix(key) for key in report.unreadable)
        unused = [blob for blob in old_blobs if blob.key not in used_keys and not blob.key.startswith(perhaps_used)]
        return [Removal("content", blob.key, blob.size, "orphan") for blob in unused if not self._reading[blob.key]]

    async def reindex(self) -> ReindexReport:
        if not isinstance(self._catalog, IndexedCatalog):
            raise UsageError(f"{self.url} has no index; its URL may end in ?index=postgresql://host/database")
        return await self._catalog.compare()

    async def _check_own_files(self, *, repair: bool) -> list[Problem]:
        report = await self._catalog.compare()
        difference = "the index differed from the metadata; it is repaired"
        problems = [Problem("index", key, difference) for key in report.corrected]

        used_keys = await self._catalog.contents() if repair and report.unreadable else set()
        for key in report.unreadable:
            outcome = "delete the artifact, store it again, or --repair"
            if repair:
                await self._quarantine(key, used_keys)
                outcome = "it was put into quarantine"
            problems.append(Problem("metadata", key, f"its metadata cannot be read; {outcome}"))
        return problems

    async def _quarantine(self, key: str, used: Container[str]) -> None:
        """Move unreadable metadata to quarantine, and the content that no other metadata may name."""
        await self._bucket.move(f"meta/{key}.json", f"quarantine/{key}.json")
        blobs = [blob.key async for blob in self._bucket.list("content/")]
        for blob in blobs:
            if blob.startswith(_content_prefix(key)) and blob not in used:
                await self._bucket.move(blob, blob.replace("content/", "quarantine/", 1))
