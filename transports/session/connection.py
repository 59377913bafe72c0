"""The state of a session's connection: lost, restored, and what the app can do since."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING

from ..errors import ABPError
from ..protocol.capabilities import MANY, Capabilities
from ..tasks import backoff_delay
from .events import ConnectionChanged
from .handshake import Handshake

if TYPE_CHECKING:
    from .events import Event

__all__ = ["Connection"]

logger = logging.getLogger("transports")

#: Changes of the capabilities that wait while a list is read. Then the oldest are left to the list, which has them.
_MAX_CHANGES = 1000


class Connection:
    """Keeps the handshake valid while the transport loses and regains its connection.

    ``ready`` is set while the transport is connected and the app initialized; calls wait for it. ``timeout`` in seconds
    is for a new handshake, after which ``resubscribe`` renews what the app has forgotten.
    """

    def __init__(
        self,
        handshake: Handshake,
        *,
        timeout: float,
        resubscribe: Callable[[], Awaitable[None]],
        emit: Callable[[Event], None],
    ) -> None:
        self.ready = asyncio.Event()
        #: Why the connection was lost the last time.
        self.reason = ""
        self._losses = 0
        self._changes: deque[object] = deque(maxlen=_MAX_CHANGES)
        self._refreshing = False
        self._handshake = handshake
        self._timeout = timeout
        self._resubscribe = resubscribe
        self._emit = emit

    def lost(self, reason: str) -> None:
        """Hold calls back until the connection is restored."""
        self.reason = reason
        self._losses += 1
        self.ready.clear()
        self._emit(ConnectionChanged(False, reason))

    async def restored(self, reason: str) -> None:
        """Initialize the app, which knows nothing of this session any more, then let calls through.

        An app that refuses, as one that has just been started may do, is asked again with growing delays, until the
        connection is lost once more.
        """
        before, losses = self._handshake.capabilities, self._losses
        for attempt in count(1):
            try:
                await self._handshake.initialize(self._timeout)
                break
            except ABPError as error:
                logger.warning("reconnected, but the app refused to begin again: %s", error.message)
            await asyncio.sleep(backoff_delay(attempt))
            if self._losses != losses:
                return  # the next restoration begins anew
        await self._resubscribe()
        self.ready.set()
        self._emit(ConnectionChanged(True, reason))
        await self._emit_difference(before)

    async def capabilities_changed(self, change: object) -> None:
        """Update the capabilities after the app said that they changed. What comes while a list is read waits for the
        next one: a flood of changes is a few lists, in order."""
        if change or not self._changes:  # an empty change only asks for a new list, and one does for many
            self._changes.append(change)
        if self._refreshing:
            return
        self._refreshing = True
        try:
            while self._changes:
                changes, before = tuple(self._changes), self._handshake.capabilities
                self._changes.clear()
                await self._handshake.apply_changes(changes)
                await self._emit_difference(before)
        finally:
            self._refreshing = False

    async def _emit_difference(self, before: Capabilities) -> None:
        now = self._handshake.capabilities
        change = await asyncio.to_thread(now.diff, before) if len(now) > MANY else now.diff(before)
        if change.added or change.removed or change.changed:
            self._emit(change)
