"""What happens in a session beside answers: typed, and handed to whoever listens."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..errors import ABPError
from ..protocol.messages import Effect
from ..protocol.payloads import ElicitationRequest, Notification, Progress
from ..routing import Result

if TYPE_CHECKING:
    from ..artifacts import ArtifactRef

from ..protocol.capabilities import CapabilitiesChanged

__all__ = [
    "CallFinished",
    "CallStarted",
    "ConnectionChanged",
    "Event",
    "Listeners",
    "Retrying",
]

logger = logging.getLogger("transports")

#: Events that a listener may be behind before it loses the oldest.
_BEHIND = 10_000


@dataclass(frozen=True, slots=True)
class ConnectionChanged:
    """The connection was lost, or is there again and the app has been greeted anew."""

    connected: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A call will be sent again in ``delay`` seconds; ``attempt`` counts those that failed so far."""

    capability: str
    attempt: int
    delay: float
    error: ABPError


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call begins, or a page's tool (``render_to_pdf``). Its ``call`` is the one of its progress too."""

    call: str
    capability: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call is over: it gave ``result`` or failed with ``error``, whose code is ``CANCELLED`` if it was cancelled."""

    call: str
    capability: str
    duration_ms: float
    result: Result | None = None
    error: ABPError | None = None

    @property
    def artifacts(self) -> tuple[ArtifactRef, ...]:
        """What it stored; after an error that is what was stored all the same."""
        result = self.result or (self.error.result if self.error else None)
        return tuple(result.artifacts.values()) if isinstance(result, Result) else ()


#: An effect is told here if no call's result can have it: it began outside any call, or ended the page.
Event: TypeAlias = (
    CallStarted
    | CallFinished
    | Progress
    | Notification
    | ElicitationRequest
    | CapabilitiesChanged
    | ConnectionChanged
    | Retrying
    | Effect
)


class Listeners:
    """Gives each listener every event from its beginning on, in order. One that is slow delays nobody."""

    def __init__(self) -> None:
        self._queues: list[tuple[deque[Event], asyncio.Event]] = []
        self._closed = False

    def put(self, event: Event) -> None:
        for queue, awake in self._queues:
            if len(queue) == _BEHIND:
                queue.popleft()
                logger.warning("a listener is %d events behind and has lost one; take them faster", _BEHIND)
            queue.append(event)
            awake.set()

    def close(self) -> None:
        """End every iteration once it has given what it holds."""
        self._closed = True
        for _, awake in self._queues:
            awake.set()

    def listen(self) -> AsyncIterator[Event]:
        """Listens from this call on, not from the first step of the iteration."""
        mine: tuple[deque[Event], asyncio.Event] = deque(), asyncio.Event()
        self._queues.append(mine)
        return self._events(*mine)

    async def _events(self, queue: deque[Event], awake: asyncio.Event) -> AsyncIterator[Event]:
        try:
            while True:
                while queue:
                    yield queue.popleft()
                if self._closed:
                    return
                awake.clear()
                await awake.wait()
        finally:
            self._queues[:] = [pair for pair in self._queues if pair[0] is not queue]
