"""Results of reading resources, cached until the server says that a resource changed (docs/requirements.md R2-7.3)."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..artifacts import ArtifactStore
from ..routing import Result

if TYPE_CHECKING:
    from ..protocol.payloads import Notification

__all__ = ["ResourceCache"]

#: Results that are cached; the one used longest ago goes first.
_SIZE = 1000
_UPDATED = "notifications/resources/updated"


class ResourceCache:
    """Results by the URI that was read. A result counts only while all its artifacts are in the store.

    ``changes`` counts the changes that the server reported: a result that was read while one came is not cached.
    """

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._results: OrderedDict[str, tuple[Result, float]] = OrderedDict()
        self.changes = 0

    async def get(self, uri: str) -> Result | None:
        """Return the cached result for ``uri``, or ``None``."""
        if uri not in self._results:
            return None
        result, expires = self._results[uri]
        if time.monotonic() < expires and all([await self._store.exists(ref.id) for ref in result.artifacts.values()]):
            self._results.move_to_end(uri)
            return result
        self._results.pop(uri, None)
        return None

    def put(self, uri: str, result: Result, *, ttl: object, changes: int) -> None:
        """Cache a result for ``ttl`` seconds (MCP 2026-07-28; anything but a number: until it changes).

        ``changes`` is :attr:`changes` as it was before the reading began.
        """
        self._results.pop(uri, None)
        seconds = float(ttl) if isinstance(ttl, int | float) else math.inf
        if seconds > 0 and changes == self.changes:
            self._results[uri] = result, time.monotonic() + seconds
            if len(self._results) > _SIZE:
                self._results.popitem(last=False)

    def discard(self, uri: str) -> None:
        """Drop the result for ``uri``."""
        self._results.pop(uri, None)

    def on_notification(self, notification: Notification) -> None:
        """Drop what ``notifications/resources/updated`` names, and the resources below it."""
        data = notification.data
        if notification.event == _UPDATED and isinstance(data, Mapping):
            self.changes += 1
            uri = str(data.get("uri", ""))
            below = uri.rstrip("/") + "/"
            for cached in [cached for cached in self._results if cached == uri or cached.startswith(below)]:
                del self._results[cached]

    def clear(self) -> None:
        """Drop everything: changes may have been missed."""
        self.changes += 1
        self._results.clear()
