"""Catalogs of the artifacts in a bucket, by listing the metadata objects or by an index.

The metadata objects stay the truth. :class:`Catalog` lists them for every query; :class:`IndexedCatalog` answers
queries from a :class:`~._index.StoreIndex`, which it builds, keeps up to date and repairs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from ...errors import Corrupt, StoreUnavailable
from .._query import Query
from .._ref import ID, Metadata, ReindexReport, Scope, damaged_metadata, stamp
from .._retention import Entry, Retention
from ._bucket import Bucket
from ._index import Indexed, NotBuilt, StoreIndex

logger = logging.getLogger("transports.artifacts")

T = TypeVar("T")
_UNINDEXED = "unindexed/"


@dataclass(frozen=True, slots=True)
class Limits:
    """Times of an index in seconds, and the size of its pages."""

    #: Between two searches for changes that the index lacks; also the age of a change that is looked up.
    interval: float = 60.0
    #: After which the writer of an announced change is certain to have ended.
    given_up: float = 900.0
    #: Artifacts of a full listing that are read at once.
    page: int = 5000


LIMITS = Limits()


class Catalog:
    """The metadata objects of one store. They are the truth: writing or removing one is the commit.

    Every method raises :class:`~transports.errors.StoreUnavailable`.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        #: Metadata that was read, with its ETag; and the time of the last use of each artifact.
        self._metadata: dict[str, Indexed] = {}
        self._used: dict[str, float] = {}

    async def aclose(self) -> None: ...

    # --- one artifact -------------------------------------------------------------------------------------------------

    async def load(self, key: str) -> Metadata | None:
        """Return the metadata of an artifact; ``None`` if there is none. Raises :class:`~transports.errors.Corrupt`."""
        record = await self._read_object(key)
        if record is None:
            self._metadata.pop(key, None)
            return None
        self._remember(record)
        return record.metadata

    async def content_of(self, key: str) -> str | None:
        """Return the key of the content of an artifact, as it was when the metadata was read last."""
        if key in self._metadata:
            return self._metadata[key].metadata.blob
        metadata = await self.load(key)
        return metadata.blob if metadata else None

    async def write(self, metadata: Metadata) -> None:
        """Make an artifact visible."""
        self._remember(await self._write_object(metadata))
        self._used[metadata.id] = metadata.stored

    async def remove(self, key: str) -> None:
        """Make an artifact invisible."""
        await self._bucket.delete(f"meta/{key}.json")
        self._metadata.pop(key, None)
        self._used.pop(key, None)

    async def repair_entry(self, key: str) -> None:
        """Repair the entry of an artifact that turned out to differ from the result of a query."""

    async def touch(self, key: str) -> None:
        """Record the use of an artifact, in memory."""
        self._used[key] = stamp()

    async def _write_object(self, metadata: Metadata) -> Indexed:
        e_tag = await self._bucket.put(f"meta/{metadata.id}.json", metadata.encode(), "application/json")
        return Indexed(metadata, e_tag)

    async def _read_object(self, key: str) -> Indexed | None:
        """Return the metadata object of an id and its ETag, ``None`` if there is none. Raises
        :class:`~transports.errors.Corrupt`."""
        try:
            data, e_tag = await self._bucket.get(f"meta/{key}.json")
            return Indexed(Metadata.decode(data, key), e_tag)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise damaged_metadata(key, error) from error

    def _remember(self, record: Indexed) -> None:
        self._metadata[record.metadata.id] = record

    # --- all artifacts ------------------------------------------------------------------------------------------------

    async def all(self, scope: Scope, unreadable: list[str] | None = None) -> list[Metadata]:
        """Return the metadata that ``scope`` covers, oldest first. Ids of unreadable metadata are added to
        ``unreadable``."""
        covered: list[Metadata] = []
        async for page in self._listing():
            # An object is read again only if its ETag has changed.
            changed = [key for key, e_tag in page.items() if not self._is_current(key, e_tag)]
            records = await self._read_all(changed, unreadable)
            for key in changed:
                self._metadata.pop(key, None)
            for record in records:
                self._remember(record)

            for key in page:
                current = self._metadata.get(key)
                if current and scope.covers(current.metadata.scope):
                    covered.append(current.metadata)
        return sorted(covered, key=lambda metadata: metadata.age_key)

    def _is_current(self, key: str, e_tag: str) -> bool:
        """Return whether the remembered metadata has this ETag. Some servers have none."""
        record = self._metadata.get(key)
        return record is not None and e_tag != "" and record.e_tag == e_tag

    async def entries(self, scope: Scope) -> list[Entry]:
        entries = []
        for metadata in await self.all(scope):
            used = max(metadata.stored, self._used.get(metadata.id, 0.0))
            entries.append(Entry(metadata.id, metadata.size_bytes, metadata.stored, used, metadata.scope))
        return entries

    async def candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        """Return the entries of ``scope`` that ``policy`` may remove, perhaps with others."""
        return await self.entries(scope)

    async def find(self, scope: Scope, query: Query) -> tuple[Sequence[Metadata], str | None] | None:
        """Return the artifacts of one page, the newest first, and the cursor of the next one; ``None`` without an
        index."""
        return None

    async def change_token(self) -> int | None:
        """Return a number that differs after every change; ``None`` without an index."""
        return None

    async def compare(self) -> ReindexReport:
        """Compare the index, if there is one, with all metadata objects, and correct it."""
        unreadable: list[str] = []
        readable = await self.all(Scope(), unreadable)
        return ReindexReport(len(readable), (), tuple(unreadable))

    async def contents(self) -> set[str]:
        return {metadata.blob for metadata in await self.all(Scope())}

    async def _listing(self) -> AsyncIterator[dict[str, str]]:
        """Yield the ETags of the metadata objects in the bucket by their ids, a page at a time."""
        page_size = 1000
        page: dict[str, str] = {}
        async for item in self._bucket.list("meta/"):
            key = item.key.rpartition("/")[2].removesuffix(".json")
            if ID.fullmatch(key):
                page[key] = item.e_tag
            if len(page) == page_size:
                yield page
                page = {}
        yield page

    async def _read_all(self, keys: Iterable[str], unreadable: list[str] | None = None) -> list[Indexed]:
        """Return the readable metadata of these ids, read 16 at a time. Ids of unreadable metadata are added to
        ``unreadable``."""
        slots = asyncio.Semaphore(16)

        async def read_if_valid(key: str) -> Indexed | None:
            async with slots:
                try:
                    return await self._read_object(key)
                except Corrupt as error:
                    logger.warning("%s", error.message)
                    if unreadable is not None:
                        unreadable.append(key)
                    return None

        records = await asyncio.gather(*map(read_if_valid, keys))
        return [record for record in records if record]


class IndexedCatalog(Catalog):
    """A catalog with an index. The metadata objects stay the truth: reading, storing and removing one artifact
    depends on them alone.

    A change is announced in the index before it is made and settled after it. A change that was announced but not
    settled, because its writer died or the index could not be reached, is looked up in the bucket by the next query
    over all artifacts, a minute later at most. A change that could not even be announced is noted in the bucket as
    ``unindexed/<id>``. The index may therefore be lost at any time: the first query builds a new one.
    """

    def __init__(self, bucket: Bucket, index: StoreIndex) -> None:
        super().__init__(bucket)
        self._index = index
        #: Time of the last search for changes that the index lacks (monotonic).
        self._caught_up = -LIMITS.interval
        self._catching_up = asyncio.Lock()
        #: Ids of changes that did not reach the index.
        self._missed: set[str] = set()

    async def aclose(self) -> None:
        await self._index.aclose()

    # --- one artifact -------------------------------------------------------------------------------------------------

    async def write(self, metadata: Metadata) -> None:
        """Make an artifact visible, with or without the index."""
        announced = await self._announce(metadata.id)
        record = await self._write_object(metadata)
        self._remember(record)
        await self._update_index(metadata.id, self._index.put(record, announced))

    async def remove(self, key: str) -> None:
        """Make an artifact invisible, with or without the index."""
        announced = await self._announce(key)
        await super().remove(key)
        await self._update_index(key, self._index.remove(key, announced))

    async def repair_entry(self, key: str) -> None:
        await self._correct([key], always=True)

    async def touch(self, key: str) -> None:
        with suppress(StoreUnavailable):
            await self._index.touch(key)

    async def _announce(self, key: str) -> int:
        """Announce a change and return the number of the announcement; 0 if the index could not be reached."""
        announced = await self._update_index(key, self._index.announce(key))
        if announced is None:
            await self._bucket.put(f"{_UNINDEXED}{key}", b"", "text/plain")
        return announced or 0

    async def _update_index(self, key: str, work: Awaitable[T]) -> T | None:
        """Await ``work`` on the index; return ``None`` and remember ``key`` if the index cannot be reached."""
        try:
            return await work
        except StoreUnavailable as error:
            # This is logged once, not with every artifact.
            if not self._missed:
                logger.warning("%s. Artifacts are still stored, and are listed once it is back", error.message)
            self._missed.add(key)
            return None

    def _remember(self, record: Indexed) -> None:
        super()._remember(record)
        max_remembered = 10_000
        if len(self._metadata) > max_remembered:
            del self._metadata[next(iter(self._metadata))]

    # --- all artifacts ------------------------------------------------------------------------------------------------

    async def all(self, scope: Scope, unreadable: list[str] | None = None) -> list[Metadata]:
        newest_first: list[Metadata] = []
        cursor: str | None = None
        while True:
            page, cursor = await self.find(scope, Query(limit=LIMITS.page, cursor=cursor))
            newest_first += page
            if cursor is None:
                return newest_first[::-1]

    async def find(self, scope: Scope, query: Query) -> tuple[Sequence[Metadata], str | None]:
        return await self._query_index(lambda: self._index.find(scope, query))

    async def entries(self, scope: Scope) -> list[Entry]:
        return await self._query_index(lambda: self._index.entries(scope))

    async def candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        """Return the entries of ``scope`` that ``policy`` may remove, and whole sessions and traces over a limit."""
        return await self._query_index(lambda: self._index.candidates(scope, policy))

    async def change_token(self) -> int:
        return await self._query_index(self._index.change_token)

    async def compare(self) -> ReindexReport:
        """Compare the index with all metadata objects, and correct it. An object is read only if its ETag differs or
        its row cannot be read."""
        number, was_built = await self._index.state()
        listed: set[str] = set()
        wrong: list[str] = []
        unreadable: list[str] = []
        async for page in self._listing():
            e_tags = await self._index.e_tags(page.keys())
            changed = [key for key, e_tag in page.items() if not e_tag or e_tags.get(key) != e_tag]
            records = await self._read_all(changed, unreadable)
            read = {record.metadata.id for record in records}
            missing = [key for key in changed if key not in read]
            await self._index.correct(records, missing, e_tags)
            wrong += [record.metadata.id for record in records if e_tags.get(record.metadata.id) != record.e_tag]
            listed.update(page)

        async for rows in self._index.keys():
            unlisted = [key for key in rows if key not in listed]
            wrong += await self._correct(unlisted)
            # A row that lost its metadata may have kept its ETag.
            damaged = [key for key, is_readable in rows.items() if key in listed and not is_readable]
            await self._correct(damaged, always=True, unreadable=unreadable)
            wrong += damaged

        await self._index.mark_built(number)
        corrected = wrong if was_built else []
        return ReindexReport(len(listed), tuple(corrected), tuple(unreadable))

    async def _correct(
        self, keys: Sequence[str], *, always: bool = False, unreadable: list[str] | None = None
    ) -> list[str]:
        """Correct the rows of these ids whose ETags differ from those of their objects, or all with ``always``.

        Returns the ids without an object. Ids whose object cannot be read are added to ``unreadable``.
        """
        gone: list[str] = []
        for start in range(0, len(keys), LIMITS.page):
            part = keys[start : start + LIMITS.page]
            e_tags = await self._index.e_tags(part)
            records = await self._read_all(part, unreadable)
            read = {record.metadata.id for record in records}
            missing = [key for key in part if key not in read]
            gone += missing

            changed = records
            if not always:
                # Without an ETag of the object, nothing can be compared.
                changed = [
                    record for record in records if not record.e_tag or e_tags.get(record.metadata.id) != record.e_tag
                ]
            await self._index.correct(changed, missing, e_tags)
        return gone

    async def _query_index(self, query: Callable[[], Awaitable[T]]) -> T:
        """Bring the index up to date and answer a query from it. An index that was lost meanwhile is rebuilt."""
        for _ in range(3):
            await self._catch_up()
            try:
                return await query()
            except NotBuilt:
                self._caught_up = -LIMITS.interval
        raise StoreUnavailable("the index keeps disappearing; find out what deletes it, and try again", retryable=True)

    async def _catch_up(self) -> None:
        """Add the changes that the index may lack: every minute, and at once after a failed change. Build a new index
        from all metadata."""
        if not self._is_due():
            return
        async with self._catching_up:
            if not self._is_due():
                return
            started = time.monotonic()
            missed = list(self._missed)
            _, is_built = await self._index.state()
            if not is_built:
                logger.info("the index of %s is built from its metadata, which takes a while", self._bucket.url)
                await self.compare()

            unsettled = await self._index.announced(LIMITS.interval)
            await self._correct([*missed, *unsettled])
            await self._index.give_up(LIMITS.given_up)
            await self._correct_noted_changes()
            self._caught_up = started
            self._missed.difference_update(missed)

    async def _correct_noted_changes(self) -> None:
        """Correct the rows of changes that other machines noted in the bucket, and remove the old notes."""
        notes = [note async for note in self._bucket.list(_UNINDEXED)]
        await self._correct([note.key.removeprefix(_UNINDEXED) for note in notes])
        for note in notes:
            if time.time() - note.modified.timestamp() > LIMITS.given_up:
                await self._bucket.delete(note.key)

    def _is_due(self) -> bool:
        return bool(self._missed) or time.monotonic() - self._caught_up >= LIMITS.interval
