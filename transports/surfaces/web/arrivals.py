"""Watching the store, so that what anybody stores or removes, also another process, is told to who listens."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import NamedTuple

from ...artifacts import ArtifactRef, ArtifactStore, Scope
from ...errors import ABPError
from ..shared.activity import Activity

__all__ = ["Arrivals"]

logger = logging.getLogger("transports")

#: Seconds between two looks, and how many times as long as a listing takes it pauses after it.
_EVERY, _SHARE = 0.5, 10
#: Seconds between two looks at a store that cannot tell whether anything changed, and after one that failed.
_BLIND, _FAILED = 1.0, 5.0


class _Known(NamedTuple):
    filename: str
    mime_type: str
    scope: Scope


class Arrivals:
    """Tells ``activity`` what comes into ``store`` and goes from it, about a second later at most. :meth:`look` makes
    it look at once."""

    def __init__(self, store: ArtifactStore, activity: Activity) -> None:
        self._store = store
        self._activity = activity
        self._wanted = asyncio.Event()
        self._known: dict[str, _Known] | None = None

    def look(self) -> None:
        """Something changed just now."""
        self._wanted.set()

    async def first(self) -> None:
        """Learn what is there already. Raises :class:`~transports.errors.StoreError`."""
        self._mark = await self._store.change_token()
        self._compare(await self._store.list())

    async def run(self) -> None:
        """Until cancelled."""
        pause, failed = _EVERY, False
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), pause)
            self._wanted.clear()
            try:
                pause = await self._look()
                failed = False
            except Exception as error:
                if not failed:
                    known = isinstance(error, ABPError)
                    logger.warning("cannot see what is stored: %s", error, exc_info=None if known else error)
                pause, failed = _FAILED, True

    async def _look(self) -> float:
        mark = await self._store.change_token()
        if mark is not None and mark == self._mark:
            return _EVERY
        began = time.monotonic()
        self._compare(await self._store.list())
        self._mark = mark
        took = time.monotonic() - began
        return max(_EVERY if mark is not None else _BLIND, took * _SHARE)

    def _compare(self, refs: list[ArtifactRef]) -> None:
        before, self._known = self._known, {}
        for ref in refs:
            now = self._known[ref.id] = _Known(ref.filename, ref.mime_type, ref.scope)
            if before is not None and (then := before.pop(ref.id, None)) != now:
                if then is None:
                    self._activity.stored(ref)
                else:
                    self._activity.updated(ref)
        for gone, then in (before or {}).items():
            self._activity.removed(gone, then.scope)
