"""Typed events of a session, and the streams that deliver them to listeners."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from .. import protocol
from .._internal.tasks import Owner
from ..errors import ABPError, StoredFile, UsageError
from ..protocol._capabilities import CapabilitiesChanged
from ..protocol.messages import Effect
from ..routing._policy import CustomEvent, ObservationClamped
from ..routing._result import Result

if TYPE_CHECKING:
    from ..artifacts._ref import ArtifactRef
    from ..protocol._payloads import ElicitationRequest, Notification, Progress

    #: An event of :meth:`Session.events <transports.Session.events>`. An :class:`Effect` is an event only if no call's
    #: result can list it: it began outside any call, or it ended the page. An :class:`ObservationClamped` is sent
    #: when a result is read for an agent, after its call.
    Event: TypeAlias = (
        "CallStarted | CallFinished | Progress | Notification | ElicitationRequest | CapabilitiesChanged | "
        "ConnectionChanged | Retrying | Effect | ObservationClamped | CustomEvent"
    )

logger = logging.getLogger("transports")

#: Events that a stream holds for a slow listener at most; each further event drops the oldest.
MAX_EVENTS_BEHIND = 10_000


@dataclass(frozen=True, slots=True)
class ConnectionChanged:
    """Loss of the connection, or its restoration with a new handshake (``connected``)."""

    connected: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Retrying:
    """Retry of a failed call in ``delay`` seconds; ``attempt`` counts the failed attempts, from 1."""

    capability: str
    attempt: int
    delay: float
    error: ABPError


@dataclass(frozen=True, slots=True)
class CallStarted:
    """Start of a call, or of a page tool such as ``render_to_pdf``. Its progress events carry the same ``call`` id."""

    call: str
    capability: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """End of a call, with its ``result`` or ``error``; the error's code is ``CANCELLED`` if the caller cancelled it."""

    call: str
    capability: str
    duration_ms: float
    result: Result | None = None
    error: ABPError | None = None

    @property
    def artifacts(self) -> tuple[ArtifactRef, ...]:
        """Artifacts that the call stored; a failed call may have stored some before it failed."""
        result = self.result or (self.error.result if self.error else None)
        return tuple(result.artifacts.values()) if isinstance(result, Result) else ()

    @property
    def evidence(self) -> Mapping[str, StoredFile]:
        """Evidence of the call, by kind (docs/evidence.md)."""
        outcome = self.result or self.error
        return outcome.evidence if outcome else {}


def __getattr__(name: str) -> object:
    """Make :data:`Event` when it is first used: its models load pydantic."""
    if name != "Event":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    events_of_sessions = CallStarted | CallFinished | CapabilitiesChanged | ConnectionChanged | Retrying
    messages_of_apps = protocol.Progress | protocol.Notification | protocol.ElicitationRequest
    event_types = events_of_sessions | messages_of_apps | Effect | ObservationClamped | CustomEvent
    globals()[name] = event_types
    return event_types


class Listener(Protocol):
    """Receiver of a session's events."""

    def add(self, event: Event) -> None:
        """Receive one event, without waiting."""

    def wake(self) -> None:
        """Notice that the session has closed, or that there is a new event."""


class EventStreams:
    """Open event streams of one session. Each gets every event in order; a slow stream delays only its listener."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.open: list[Listener] = []
        self.closed = False

    def emit(self, event: Event) -> None:
        for stream in self.open:
            stream.add(event)

    def close(self) -> None:
        """End every stream after its listener has read the queued events."""
        self.closed = True
        for stream in self.open:
            stream.wake()


class EventStream:
    """Stream of a session's events for one listener.

    Leaving it drops the queue, so a forgotten stream holds no events. It can be entered once, iterated inside the block
    only, and ends when the session closes. A listener may be :data:`MAX_EVENTS_BEHIND` events behind; then the oldest
    are dropped, and a warning is logged."""

    def __init__(self, streams: EventStreams) -> None:
        self._streams = streams
        self._queue: deque[Event] = deque(maxlen=MAX_EVENTS_BEHIND)
        self._changed = asyncio.Event()
        self._entered = False
        self._losing = False

    async def __aenter__(self) -> Self:
        if self._entered:
            raise UsageError("a stream of events is entered once; call events() again for another")
        self._streams.owner.require_same_loop()
        self._entered = True
        self._streams.open.append(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._streams.open.remove(self)
        self._queue.clear()
        self.wake()

    def __aiter__(self) -> Self:
        if not self._entered:
            raise UsageError(
                "read events inside a block: `async with app.events() as events: async for event in events`"
            )
        return self

    async def __anext__(self) -> Event:
        while not self._queue:
            self._losing = False
            if self._streams.closed or self not in self._streams.open:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._queue.popleft()

    def add(self, event: Event) -> None:
        if len(self._queue) == MAX_EVENTS_BEHIND and not self._losing:
            self._losing = True  # until the listener has caught up: not every event causes a warning
            logger.warning("a listener is %d events behind and loses the oldest; read them faster", MAX_EVENTS_BEHIND)
        self._queue.append(event)
        self.wake()

    def wake(self) -> None:
        self._changed.set()
