"""Carrying out a retention: which artifacts of a store go, when they go, and the line in the audit log about it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from ..errors import StoreUnavailable
from .clock import Ages, now
from .ref import ArtifactRef, Scope
from .retention import Entry, Incoming, Removal, Retention

__all__ = ["Evictable", "Evictor"]

_INTERVAL = 60.0  # seconds between two searches for expired artifacts


class Evictable(Protocol):
    """The part of a store that an :class:`Evictor` uses."""

    @property
    def retention(self) -> Retention | None:
        """The limits of the store; ``None`` keeps everything."""

    @property
    def scope(self) -> Scope:
        """The scope of the view."""

    async def _entries(self, scope: Scope) -> Sequence[Entry]:
        """Return what ``scope`` covers."""

    async def _candidates(self, scope: Scope, policy: Retention) -> Sequence[Entry]:
        """Return at least what ``policy`` may remove of what ``scope`` covers."""

    async def _delete(self, artifact_id: str, stored: float | None = None) -> bool:
        """Remove an artifact; ``False`` if it was gone, or if ``stored`` is not when it was stored last."""

    def _write_audit(self, action: str, **facts: object) -> None:
        """Write a line to the audit log."""


class Evictor:
    """Removes artifacts as the retention of a store says. All views of one store share one."""

    def __init__(self) -> None:
        self._last_search = time.monotonic()
        self._ages = Ages()

    def is_expired(self, policy: Retention, artifact_id: str, stored: float, scope: Scope) -> bool:
        """Return whether an artifact is past its time. ``stored`` is in seconds since 1970."""
        at = now()
        return policy.expired(at - self._ages.of(artifact_id, stored), at, scope)

    def expired(self, policy: Retention, entries: Sequence[Entry]) -> set[str]:
        """Return the ids of those that are past their time."""
        return {one.id for one in entries if self.is_expired(policy, one.id, one.stored, one.scope)}

    async def without_expired(self, store: Evictable, refs: list[ArtifactRef]) -> list[ArtifactRef]:
        """Return those of a view's artifacts that are not past their time."""
        policy = store.retention
        if policy is None or policy.ttl_seconds is None:
            return refs
        expired = self.expired(policy, await store._candidates(store.scope, policy.expiry))
        return [ref for ref in refs if ref.id not in expired]

    def _plan(self, policy: Retention, entries: Sequence[Entry], incoming: Incoming | None = None) -> Sequence[Removal]:
        """Return what :meth:`.Retention.plan` says, by the ages of the artifacts."""
        at = now()
        aged = [one._replace(stored=at - self._ages.of(one.id, one.stored)) for one in entries]
        return policy.plan(aged, at, incoming)

    async def make_room(self, store: Evictable, key: str, size: int) -> None:
        """Remove what must go before an artifact of ``size`` bytes is stored as ``key``.

        Expired artifacts are looked for once a minute at most. Raises :class:`~transports.errors.TooLarge` and
        :class:`~transports.errors.StoreFull` as :meth:`.Retention.plan` does.
        """
        policy = store.retention
        if policy is None:
            return
        if policy.ttl_seconds is not None and time.monotonic() - self._last_search > _INTERVAL:
            self._last_search = time.monotonic()
            with suppress(StoreUnavailable):  # the next put looks again
                entries = await store._candidates(Scope(), policy.expiry)
                expired = self.expired(policy, entries) - {key}
                plan = [Removal("artifact", one.id, one.size, "expired") for one in entries if one.id in expired]
                await self._evict(store, plan, entries)
        if store.scope.session or store.scope.trace:
            around = Scope(store.scope.tenant, store.scope.user, store.scope.session)
            incoming = Incoming(key, size, store.scope)
            entries = await store._entries(around)
            await self._evict(store, self._plan(policy, entries, incoming), entries)

    async def collect(self, store: Evictable, *, dry_run: bool) -> Sequence[Removal]:
        """Remove what is expired or over a limit in the view; ``dry_run`` only returns it."""
        if store.retention is None:
            return []
        entries = await store._candidates(store.scope, store.retention)
        plan = self._plan(store.retention, entries)
        return plan if dry_run else await self._evict(store, plan, entries)

    async def remove_all(self, store: Evictable, reason: str) -> Sequence[Removal]:
        """Remove everything in the view."""
        entries = await store._entries(store.scope)
        return await self._evict(store, [Removal("artifact", one.id, one.size, reason) for one in entries], entries)

    async def _evict(self, store: Evictable, plan: Sequence[Removal], entries: Sequence[Entry]) -> Sequence[Removal]:
        """Remove the planned artifacts and return those that were still what they were in ``entries``.

        One that was stored again since then is another one: nobody planned to remove it.
        """
        stored = {one.id: one.stored for one in entries}
        removed = []
        for one in plan:
            if await store._delete(one.id, stored[one.id]):
                store._write_audit("evict", id=one.id, bytes=one.size_bytes, reason=one.reason)
                removed.append(one)
        return removed
