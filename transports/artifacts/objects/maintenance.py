"""Maintenance of a store in a bucket: removing what failed uploads left, and metadata that cannot be read."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..metadata import digest_prefix
from ..ref import Problem
from ..retention import Removal
from .bucket import Bucket
from .catalog import Catalog

__all__ = ["Maintenance"]

_MAX_AGE = 3600.0  # seconds that content may wait for its metadata
_QUARANTINE = 86400.0  # seconds that what is damaged is kept for a look at it


class Maintenance:
    """The sweep and the check of one store. ``reading`` counts the readers of each content in this process."""

    def __init__(self, bucket: Bucket, catalog: Catalog, reading: Mapping[str, int]) -> None:
        self._bucket = bucket
        self._catalog = catalog
        self._reading = reading

    async def sweep(self, *, dry_run: bool) -> list[Removal]:
        """Remove content that no metadata names, an hour after it came, and what is in quarantine after a day."""
        now = time.time()
        found = [one async for one in self._bucket.list("content/") if now - one.modified.timestamp() > _MAX_AGE]
        compared = await self._catalog.compare()
        used = await self._catalog.contents() if found else set()
        # metadata that cannot be read does not tell what it names
        perhaps = tuple(_content(key) for key in compared.unreadable)
        out = [
            Removal("content", one.key, one.size, "orphan")
            for one in found
            if one.key not in used and not one.key.startswith(perhaps) and not self._reading[one.key]
        ]
        async for one in self._bucket.list("quarantine/"):
            if now - one.modified.timestamp() > _QUARANTINE:
                out.append(Removal("quarantine", one.key, one.size, "expired"))
        if not dry_run:
            for swept in out:
                await self._bucket.delete(swept.id)
        return out

    async def check(self, *, repair: bool) -> list[Problem]:
        """Return which metadata cannot be read, and what was wrong in the index, which is corrected. ``repair`` moves
        the metadata to quarantine, with its content."""
        compared = await self._catalog.compare()
        used = await self._catalog.contents() if repair and compared.unreadable else set()
        detail = "the index differed from the metadata; it is repaired"
        problems = [Problem("index", key, detail) for key in compared.wrong]
        for key in compared.unreadable:
            detail = "; delete the artifact, store it again, or --repair"
            if repair:
                await self._bucket.move(f"meta/{key}.json", f"quarantine/{key}.json")
                for one in [one async for one in self._bucket.list("content/") if one.key.startswith(_content(key))]:
                    if one.key not in used:
                        await self._bucket.move(one.key, one.key.replace("content/", "quarantine/", 1))
                detail = "; it was put into quarantine"
            problems.append(Problem("metadata", key, f"its metadata cannot be read{detail}"))
        return problems


def _content(key: str) -> str:
    """The beginning of the keys that content of an id has."""
    return f"content/{digest_prefix(key)}"
