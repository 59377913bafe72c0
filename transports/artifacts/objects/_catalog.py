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
from typing import NamedTuple, TypeVar

from ...errors import Corrupt, StoreUnavailable
from .._query import Query
from .._ref import ID, Metadata, Scope, damaged_metadata, stamp
from .._retention import Entry, Retention
from ._bucket import Bucket
from ._index import Indexed, NotBuilt, StoreIndex

logger = logging.getLogger("transports.artifacts")

_CONCURRENCY = 16  # requests for metadata at once
_PAGE = 1000  # listed objects of one step
T = TypeVar("T")
#: Seconds between two searches for changes that the index lacks, and the age from which an announcement is followed up.
_INTERVAL = 60.0
#: Seconds after which the writer of an announced change is certain to have ended.
_GIVEN_UP = 900.0
#: Artifacts of one page of a full listing, and size of the cache of metadata for reading content.
_INDEX_PAGE, _MAX_REMEMBERED = 5000, 10_000
#: Times that an index is built for one query.
_ATTEMPTS = 3
_UNINDEXED = "unindexed/"


class Listed(NamedTuple):
    """A metadata object in a listing."""

    key: str
    e_tag: str


class Compared(NamedTuple):
    """Result of a comparison: the number of metadata objects, the ids whose rows were wrong, and the ids whose metadata
    cannot be read."""

    artifacts: int
    wrong: Sequence[str]
    unreadable: Sequence[str]


class Catalog:
    """The metadata objects of one store. They are the truth: writing or removing one is the commit.

    Every method raises :class:`~transports.errors.StoreUnavailable`.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        #: Metadata that was read, with its ETag; and the time of the last use of each artifact.
        self._metadata: dict[str, Indexed] = {}
        self._used: dict[str, float] = {}

    async def aclose(self) -> None:
        """Close open connections."""

    # --- one artifact -------------------------------------------------------------------------------------------------

    async def load(self, key: str) -> Metadata | None:
        """Return the metadata of an artifact; ``None`` if there is none. Raises :class:`~transports.errors.Corrupt`."""
        found = await self._read(key)
        if found is None:
            self._metadata.pop(key, None)
            return None
        self._remember(found)
        return found.metadata

    async def content_of(self, key: str) -> str | None:
        """Return the key of the content of an artifact, as it was when the metadata was read last."""
        if known := self._metadata.get(key):
            return known.metadata.blob
        metadata = await self.load(key)
        return metadata.blob if metadata else None

    async def write(self, metadata: Metadata) -> None:
        """Make an artifact visible."""
        self._remember(await self._put(metadata))
        self._used[metadata.id] = metadata.stored

    async def remove(self, key: str) -> None:
        """Make an artifact invisible."""
        await self._bucket.delete(f"meta/{key}.json")
        self._metadata.pop(key, None)
        self._used.pop(key, None)

    async def differs(self, key: str) -> None:
        """Repair the entry of an artifact that turned out to differ from the result of a query."""

    async def touch(self, key: str) -> None:
        """Record the use of an artifact, in memory."""
        self._used[key] = stamp()

    async def _put(self, metadata: Metadata) -> Indexed:
        e_tag = await self._bucket.put(f"meta/{metadata.id}.json", metadata.encode(), "application/json")
        return Indexed(metadata, e_tag)

    async def _read(self, key: str) -> Indexed | None:
        try:
            data, e_tag = await self._bucket.get(f"meta/{key}.json")
            return Indexed(Metadata.decode(data, key), e_tag)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise damaged_metadata(key, error) from error

    def _remember(self, found: Indexed) -> None:
        self._metadata[found.metadata.id] = found

    # --- all artifacts ------------------------------------------------------------------------------------------------

    async def all(self, scope: Scope, unreadable: list[str] | None = None) -> list[Metadata]:
        """Return the metadata that ``scope`` covers, oldest first. Ids of unreadable metadata are added to
        ``unreadable``."""
        found: list[Metadata] = []
        async for page in self._listing():
            # an object is read again only if its ETag has changed
            known = [self._metadata.get(one.key) for one in page]
            changed = [
                one.key
                for one, old in zip(page, known, strict=True)
                if not (one.e_tag and old and old.e_tag == one.e_tag)
            ]
            read = await self._read_all(changed, unreadable)
            for key in changed:
                self._metadata.pop(key, None)
            for fresh in read:
                self._remember(fresh)
            found += [one.metadata for key, _ in page if (one := self._metadata.get(key))]
        covered = [one for one in found if scope.covers(one.scope)]
        return sorted(covered, key=lambda one: one.age_key)

    async def entries(self, scope: Scope) -> list[Entry]:
        """Return the entries of ``scope``, the input of a retention."""
        return [
            Entry(one.id, one.size_bytes, one.stored, max(one.stored, self._used.get(one.id, 0.0)), one.scope)
            for one in await self.all(scope)
        ]

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

    async def compare(self) -> Compared:
        """Compare the index, if there is one, with all metadata objects, and correct it."""
        unreadable: list[str] = []
        found = await self.all(Scope(), unreadable)
        return Compared(len(found), [], unreadable)

    async def contents(self) -> set[str]:
        """Return the keys of all content with metadata."""
        return {one.blob for one in await self.all(Scope())}

    async def _listing(self) -> AsyncIterator[list[Listed]]:
        """Yield the metadata objects in the bucket, a page at a time."""
        page: list[Listed] = []
        async for one in self._bucket.list("meta/"):
            key = one.key.rpartition("/")[2].removesuffix(".json")
            if ID.fullmatch(key):
                page.append(Listed(key, one.e_tag))
            if len(page) == _PAGE:
                yield page
                page = []
        yield page

    async def _read_all(self, keys: Iterable[str], unreadable: list[str] | None = None) -> list[Indexed]:
        """Return the readable metadata of these ids."""
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def read(key: str) -> Indexed | None:
            async with slots:
                try:
                    return await self._read(key)
                except Corrupt as error:
                    logger.warning("%s", error.message)
                    if unreadable is not None:
                        unreadable.append(key)
                    return None

        return [one for one in await asyncio.gather(*map(read, keys)) if one]


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
        self._caught_up = -_INTERVAL  # monotonic
        self._catching_up = asyncio.Lock()
        self._untold: set[str] = set()

    async def aclose(self) -> None:
        """Close the connection to the index; the next query opens another one."""
        await self._index.aclose()

    # --- one artifact -------------------------------------------------------------------------------------------------

    async def write(self, metadata: Metadata) -> None:
        """Make an artifact visible, with or without the index."""
        announced = await self._announce(metadata.id)
        found = await self._put(metadata)
        self._remember(found)
        await self._tell(metadata.id, self._index.put(found, announced))

    async def remove(self, key: str) -> None:
        """Make an artifact invisible, with or without the index."""
        announced = await self._announce(key)
        await super().remove(key)
        await self._tell(key, self._index.remove(key, announced))

    async def differs(self, key: str) -> None:
        """Correct the row of an artifact."""
        await self._correct([key], always=True)

    async def touch(self, key: str) -> None:
        """Record the use of an artifact in the index, if the index can be reached."""
        with suppress(StoreUnavailable):
            await self._index.touch(key)

    async def _announce(self, key: str) -> int:
        """Announce a change and return the number of the announcement; 0 if the index could not be reached."""
        announced = await self._tell(key, self._index.announce(key))
        if announced is None:
            await self._bucket.put(f"{_UNINDEXED}{key}", b"", "text/plain")
        return announced or 0

    async def _tell(self, key: str, work: Awaitable[T]) -> T | None:
        """Await ``work`` on the index; return ``None`` and remember ``key`` if the index cannot be reached."""
        try:
            return await work
        except StoreUnavailable as error:
            if not self._untold:  # once, not with every artifact
                logger.warning("%s. Artifacts are stored all the same, and listed when it is back", error.message)
            self._untold.add(key)
            return None

    def _remember(self, found: Indexed) -> None:
        super()._remember(found)
        if len(self._metadata) > _MAX_REMEMBERED:
            del self._metadata[next(iter(self._metadata))]

    # --- all artifacts ------------------------------------------------------------------------------------------------

    async def all(self, scope: Scope, unreadable: list[str] | None = None) -> list[Metadata]:
        """Return the metadata that ``scope`` covers, oldest first."""
        found: list[Metadata] = []
        cursor: str | None = None
        while True:
            page, cursor = await self.find(scope, Query(limit=_INDEX_PAGE, cursor=cursor))
            found += page
            if cursor is None:
                found.reverse()
                return found

    async def find(self, scope: Scope, query: Query) -> tuple[Sequence[Metadata], str | None]:
        """Return the artifacts of one page, the newest first, and the cursor of the next one."""
        return await self._ask(lambda: self._index.find(scope, query))

    async def entries(self, scope: Scope) -> list[Entry]:
        """Return the entries of ``scope``, the input of a retention."""
        return await self._ask(lambda: self._index.entries(scope))

    async def candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        """Return the entries of ``scope`` that ``policy`` may remove, and whole sessions and traces over a limit."""
        return await self._ask(lambda: self._index.candidates(scope, policy))

    async def change_token(self) -> int:
        """Return the change counter of the index."""
        return await self._ask(self._index.change_token)

    async def compare(self) -> Compared:
        """Compare the index with all metadata objects, and correct it. An object is read only if its ETag differs or
        its row cannot be read."""
        number, built = await self._index.state()
        listed: set[str] = set()
        wrong: list[str] = []
        unreadable: list[str] = []
        async for page in self._listing():
            keys = [one.key for one in page]
            seen = await self._index.e_tags(keys)
            changed = [key for key, e_tag in page if not e_tag or seen.get(key) != e_tag]
            found = await self._read_all(changed, unreadable)
            there = {one.metadata.id for one in found}
            await self._index.correct(found, [key for key in changed if key not in there], seen)
            wrong += [one.metadata.id for one in found if seen.get(one.metadata.id) != one.e_tag]
            listed.update(keys)
        async for rows in self._index.keys():
            gone = [key for key in rows if key not in listed]
            wrong += await self._correct(gone)
            # a row that lost its metadata may have kept its ETag
            damaged = [key for key, readable in rows.items() if key in listed and not readable]
            await self._correct(damaged, always=True, unreadable=unreadable)
            wrong += damaged
        await self._index.mark_built(number)
        return Compared(len(listed), wrong if built else [], unreadable)

    async def contents(self) -> set[str]:
        """Return the keys of all content with metadata."""
        return {one.blob for one in await self.all(Scope())}

    async def _correct(
        self, keys: Sequence[str], *, always: bool = False, unreadable: list[str] | None = None
    ) -> list[str]:
        """Correct the rows of these ids whose ETags differ from those of their objects, or all with ``always``.

        Returns the ids without an object. Ids whose object cannot be read are added to ``unreadable``.
        """
        gone: list[str] = []
        for at in range(0, len(keys), _INDEX_PAGE):
            part = keys[at : at + _INDEX_PAGE]
            seen = await self._index.e_tags(part)
            found = await self._read_all(part, unreadable)
            there = {one.metadata.id for one in found}
            missing = [key for key in part if key not in there]
            changed = [one for one in found if always or not one.e_tag or seen.get(one.metadata.id) != one.e_tag]
            await self._index.correct(changed, missing, seen)
            gone += missing
        return gone

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Bring the index up to date and answer a query from it. An index that was lost meanwhile is rebuilt."""
        for _ in range(_ATTEMPTS):
            await self._catch_up()
            try:
                return await question()
            except NotBuilt:
                self._caught_up = -_INTERVAL
        raise StoreUnavailable("the index keeps disappearing; find out what deletes it, and try again", retryable=True)

    async def _catch_up(self) -> None:
        """Add the changes that the index may lack: every minute, and at once after a failed change. Build a new index
        from all metadata."""
        if not self._is_due():
            return
        async with self._catching_up:
            if not self._is_due():
                return
            began, untold = time.monotonic(), [*self._untold]
            if not (await self._index.state())[1]:
                logger.info("the index of %s is built from its metadata, which takes a while", self._bucket.url)
                await self.compare()
            await self._correct([*untold, *await self._index.announced(_INTERVAL)])
            await self._index.give_up(_GIVEN_UP)
            noted = [one async for one in self._bucket.list(_UNINDEXED)]
            await self._correct([one.key.removeprefix(_UNINDEXED) for one in noted])
            for one in noted:
                if time.time() - one.modified.timestamp() > _GIVEN_UP:
                    await self._bucket.delete(one.key)
            self._caught_up = began
            self._untold.difference_update(untold)

    def _is_due(self) -> bool:
        return bool(self._untold) or time.monotonic() - self._caught_up >= _INTERVAL
