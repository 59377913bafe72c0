"""Watcher of a store for changes, also those made by other processes. The gallery and the MCP bridge share it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ..._internal.tasks import begin, cancel_and_wait
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef, Scope
from ...errors import ABPError

logger = logging.getLogger("transports")

#: Seconds between two checks: of a store with a change token, of a store that has to be listed, and after a failure.
_INTERVAL, _LISTING_INTERVAL, _RETRY_INTERVAL = 0.5, 1.0, 5.0


@dataclass(frozen=True, slots=True)
class StoreChange:
    """Difference between two checks of a store.

    ``updated`` are artifacts stored again with another file name, MIME type or scope. ``removed`` are ids with the
    scopes of the artifacts."""

    stored: tuple[ArtifactRef, ...]
    updated: tuple[ArtifactRef, ...]
    removed: tuple[tuple[str, Scope], ...]


class _Seen(NamedTuple):
    filename: str
    mime_type: str
    scope: Scope


class StoreWatcher:
    """Watcher that calls ``on_change`` at most about a second after artifacts were stored or removed.

    ``on_change`` may not block. The store is listed only when its change token differs, which is cheap to read; a store
    without a token is listed every second. An artifact stored and removed between two checks goes unnoticed. For one
    event loop.
    """

    def __init__(self, store: ArtifactStore, on_change: Callable[[StoreChange], object]) -> None:
        self._store = store
        self._on_change = on_change
        self._check_wanted = asyncio.Event()
        self._change_token: object = None
        self._seen: dict[str, _Seen] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """List the store, and report every change from now on. Does nothing while the watcher runs.

        Raises :class:`~transports.errors.StoreError` if the store cannot be listed."""
        if self._task is None:
            self._change_token = await self._read_token()
            self._seen = {ref.id: _seen(ref) for ref in await self._store.list()}
            self._task = begin(self._watch())

    async def aclose(self) -> None:
        """Stop watching. :meth:`start` may be called again. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait((task,))

    def check_now(self) -> None:
        self._check_wanted.set()

    async def _watch(self) -> None:
        """Check the store after each pause, and at once after :meth:`check_now`."""
        pause = _INTERVAL
        last_check_failed = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._check_wanted.wait()
            self._check_wanted.clear()

            try:
                pause = await self._check_store()
                last_check_failed = False
            except Exception as error:
                # Of several failures in a row only the first is logged.
                if not last_check_failed:
                    logger.warning("cannot watch the store: %s", error, exc_info=not isinstance(error, ABPError))
                pause = _RETRY_INTERVAL
                last_check_failed = True

    async def _check_store(self) -> float:
        """Check for changes, and return the seconds until the next check."""
        token = await self._read_token()
        if token is not None and token == self._change_token:
            return _INTERVAL

        started = time.monotonic()
        self._report_changes(await self._store.list())
        self._change_token = token
        elapsed = time.monotonic() - started

        # Listing takes at most a tenth of the time.
        interval = _LISTING_INTERVAL if token is None else _INTERVAL
        return max(interval, 10 * elapsed)

    async def _read_token(self) -> object:
        """Return the change token, if any. With a retention there is none, since artifacts expire without a change."""
        if self._store.retention:
            return None
        return await self._store.change_token()

    def _report_changes(self, refs: list[ArtifactRef]) -> None:
        """Compare the listed artifacts with those of the last check, and report the difference, if any."""
        previous = self._seen
        current = {ref.id: _seen(ref) for ref in refs}
        self._seen = current

        stored = tuple(ref for ref in refs if ref.id not in previous)
        updated = tuple(ref for ref in refs if ref.id in previous and previous[ref.id] != current[ref.id])
        removed = tuple((artifact_id, old.scope) for artifact_id, old in previous.items() if artifact_id not in current)
        if stored or updated or removed:
            self._on_change(StoreChange(stored, updated, removed))


def _seen(ref: ArtifactRef) -> _Seen:
    return _Seen(ref.filename, ref.mime_type, ref.scope)
