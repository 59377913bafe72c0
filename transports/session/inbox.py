"""What comes in from an app unasked, and whom it concerns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from ..base import Transport
from ..errors import ABPError, TransportError
from ..protocol.declarations import parse
from ..protocol.elicitation import DECLINED, default_answer
from ..protocol.messages import Effect, Message
from ..protocol.payloads import ElicitationRequest, Notification, Progress
from ..protocol.strict_json import encode_json
from ..tasks import cancel_and_wait, spawn
from .callbacks import Callbacks, run
from .events import ConnectionChanged, Event, Listeners

__all__ = ["Inbox", "OnElicitation", "OnNotification", "OnProgress"]

logger = logging.getLogger("transports")

OnProgress: TypeAlias = Callable[[Progress], object]
OnNotification: TypeAlias = Callable[[Notification], object]
OnElicitation: TypeAlias = Callable[[ElicitationRequest], "Mapping[str, object] | Awaitable[Mapping[str, object]]"]

#: Seconds for progress callbacks to finish after the answer has come.
_SETTLE = 0.5
#: Calls that have ended and are remembered, to know their late events from another call's.
_REMEMBERED = 1000
#: Seconds within which the same change, told another way, is the same event.
_TWIN = 1.0
_LIST_CHANGED = "notifications/capabilities/list_changed"


class Inbox:
    """Takes in the events of one transport: hands progress to the call it belongs to, answers questions, and tells the
    session what changes it: the app's capabilities (``changed``), the connection (``lost``, ``restored``), and each
    notification before anybody else hears of it (``noticed``).
    """

    def __init__(
        self,
        transport: Transport,
        *,
        on_progress: OnProgress | None,
        on_notification: OnNotification | None,
        on_elicitation: OnElicitation | None,
        changed: Callable[[object], Awaitable[None]],
        lost: Callable[[str], None],
        restored: Callable[[str], Awaitable[None]],
        noticed: Callable[[Notification], None],
    ) -> None:
        self.listeners = Listeners()
        self._transport = transport
        self._on_progress = on_progress
        self._on_notification = on_notification
        self._on_elicitation = on_elicitation
        self._changed = changed
        self._lost = lost
        self._restored = restored
        self._noticed = noticed
        self._callbacks = Callbacks()
        self._calls: dict[str, tuple[str, OnProgress | None]] = {}
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)
        self._tasks: set[asyncio.Task[None]] = set()
        self._change: tuple[str, object, float] | None = None

    async def __aenter__(self) -> Inbox:
        spawn(self._pump(), self._tasks)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what still runs; wait for it, but not for ever."""
        await cancel_and_wait(self._tasks)
        self.listeners.close()
        await self._callbacks.aclose()

    def begin(self, attempt: str, call: str, on_progress: OnProgress | None) -> None:
        """An attempt of a call is under way: its progress goes to ``on_progress`` too."""
        self._calls[attempt] = call, on_progress

    def end(self, attempt: str) -> None:
        del self._calls[attempt]
        self._ended.append(attempt)

    async def settle(self, on_progress: OnProgress | None) -> None:
        """Let the progress callbacks of a call that has ended finish, for a moment."""
        if on_progress is not None or self._on_progress is not None:
            await self._callbacks.settle((on_progress, self._on_progress), _SETTLE)

    def tell(self, event: Event) -> None:
        """Give an event of the session to whoever listens; the notification callback hears of connections too."""
        self.listeners.put(event)
        if isinstance(event, ConnectionChanged):
            name = "connection/restored" if event.connected else "connection/lost"
            self._notify(Notification(event=name, data={"reason": event.reason}))

    async def _pump(self) -> None:
        async for message in self._transport.events():
            try:
                self._take(message)
            except ABPError as error:
                logger.warning("ignored an event of the app: %s", error.message)

    def _take(self, message: Message) -> None:
        payload = message.payload
        match message.type:
            case "progress":
                self._progress(parse(Progress, payload, "a progress event"))
            case "elicitation/request":
                request = parse(ElicitationRequest, payload, "an elicitation request")
                self.listeners.put(request)
                spawn(self._answer(message.id, request), self._tasks)
            case "connection/lost":
                self._lost(_reason(payload))
            case "connection/restored":
                spawn(self._restored(_reason(payload)), self._tasks)
            case "effect":
                if isinstance(payload, Effect):
                    self.listeners.put(payload)
            case "capabilities/changed":
                self._capabilities(message.type, Notification(event=_LIST_CHANGED, data=payload))
            case _:
                notification = parse(Notification, payload, "a notification")
                if notification.event == _LIST_CHANGED:
                    self._capabilities(message.type, notification)
                else:
                    self._notification(notification)

    def _capabilities(self, way: str, notification: Notification) -> None:
        """Many apps say it both ways (PROTOCOL "App → client"): an event is delivered once."""
        twin, self._change = self._change, (way, notification.data, time.monotonic())
        if twin and twin[0] != way and twin[1] == notification.data and time.monotonic() - twin[2] < _TWIN:
            self._change = None
            return
        self._notification(notification)
        spawn(self._changed(notification.data), self._tasks)

    def _notification(self, notification: Notification) -> None:
        self._noticed(notification)
        self.listeners.put(notification)
        self._notify(notification)

    def _progress(self, progress: Progress) -> None:
        attempt = progress.operation_id
        call, mine = self._calls.get(attempt, ("", None))
        if len(self._calls) == 1 and attempt not in self._ended:  # many apps leave operationId out or make their own
            ((call, mine),) = self._calls.values()
        progress = progress.model_copy(update={"call": call})
        for callback in (mine, self._on_progress):
            if callback is not None:
                self._callbacks.put(callback, progress)
        self.listeners.put(progress)

    def _notify(self, notification: Notification) -> None:
        if self._on_notification is not None:
            self._callbacks.put(self._on_notification, notification)

    async def _answer(self, request_id: str | None, request: ElicitationRequest) -> None:
        answer = default_answer(request) if self._on_elicitation is None else DECLINED
        if self._on_elicitation is not None:
            try:
                seconds = request.timeout / 1000 if request.timeout else None
                answered = await asyncio.wait_for(run(self._on_elicitation, request), seconds)
                if not isinstance(answered, Mapping):
                    raise TypeError(f"it returned {type(answered).__name__}, not {{'success': True, 'data': …}}")
                encode_json(answered)
                answer = answered
            except Exception as error:  # noqa: BLE001 - raising is how a handler declines
                reason = "too late" if isinstance(error, TimeoutError) else repr(error)
                logger.warning("the elicitation handler declined %s: %s", request.method, reason)
        with contextlib.suppress(TransportError):
            await self._transport.notify(Message("elicitation/response", answer, id=request_id))


def _reason(payload: object) -> str:
    return str(payload.get("reason", "")) if isinstance(payload, Mapping) else ""
