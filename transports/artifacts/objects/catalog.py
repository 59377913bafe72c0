"""The artifacts of a bucket, found by listing the metadata objects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from ...errors import Corrupt
from ..clock import stamp
from ..metadata import ID, Metadata, damaged_metadata
from ..query import Query
from ..ref import Scope
from ..retention import Entry, Retention
from .bucket import Bucket
from .index_rows import Indexed

__all__ = ["Catalog", "Compared", "Listed"]

logger = logging.getLogger("transports.artifacts")

_CONCURRENCY = 16  # requests for metadata at once
_PAGE = 1000  # objects that are looked at together


class Listed(NamedTuple):
    """A metadata object in a listing."""

    key: str
    e_tag: str


class Compared(NamedTuple):
    """What a comparison found: how many metadata objects there are, the ids that were wrong before it, and those whose
    metadata cannot be read."""

    artifacts: int
    wrong: Sequence[str]
    unreadable: Sequence[str]


class Catalog:
    """The metadata objects of one store. They are the truth: what is written or removed here is the commit.

    Every method raises :class:`~transports.errors.StoreUnavailable`."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        #: What was read, with its ETag, and when artifacts were read last.
        self._metadata: dict[str, Indexed] = {}
        self._used: dict[str, float] = {}

    async def aclose(self) -> None:
        """Close what is open."""

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
        """Take note that an artifact is not what a question about all of them said."""

    async def touch(self, key: str) -> None:
        """Remember that an artifact was used now."""
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
        """Return the metadata that ``scope`` covers, oldest first. The ids of what cannot be read are added to
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
        """Return what ``scope`` covers, as a retention sees it."""
        return [
            Entry(one.id, one.size_bytes, one.stored, max(one.stored, self._used.get(one.id, 0.0)), one.scope)
            for one in await self.all(scope)
        ]

    async def candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        """Return at least what ``policy`` may remove from what ``scope`` covers."""
        return await self.entries(scope)

    async def find(self, scope: Scope, query: Query) -> tuple[Sequence[Metadata], str | None] | None:
        """Return the artifacts of one page, the newest first, and the cursor of the next one; ``None`` if there is
        nothing faster than looking at all."""
        return None

    async def change_token(self) -> int | None:
        """Return a number that differs after every change; ``None`` if there is nothing faster than looking at all."""
        return None

    async def compare(self) -> Compared:
        """Compare what questions about all artifacts are answered from with the metadata objects, and correct it."""
        unreadable: list[str] = []
        found = await self.all(Scope(), unreadable)
        return Compared(len(found), [], unreadable)

    async def contents(self) -> set[str]:
        """Return the keys of all content that metadata names."""
        return {one.blob for one in await self.all(Scope())}

    async def _listing(self) -> AsyncIterator[list[Listed]]:
        """Yield what lies in the bucket, some at a time."""
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
        """Return the metadata of those ids that have some which can be read."""
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
