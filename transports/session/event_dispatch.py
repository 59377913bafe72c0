"""Delivery of the messages that an app sends on its own: progress, notifications, elicitation requests, effects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ..base import Transport
from ..errors import ABPError, TransportError
from ..protocol.messages import Effect, Message
from ..tasks import cancel_and_wait, spawn
from .callbacks import Callbacks
from .connection import Connection
from .download_progress import DownloadProgress
from .events import ConnectionChanged, EventStreams
from .questions import OnElicitation, Questions

if TYPE_CHECKING:
    from ..protocol.payloads import ElicitationRequest, Notification, Progress
    from .events import Event

__all__ = ["EventDispatcher", "OnElicitation", "OnNotification", "OnProgress"]

logger = logging.getLogger("transports")

OnProgress: TypeAlias = Callable[["Progress"], object]
OnNotification: TypeAlias = Callable[["Notification"], object]

#: Seconds that a callback may spend on one value before the end of a call or of the session waits no longer for it.
_CALLBACK_GRACE = 0.5
#: Seconds that the end of a call or of the session waits for callbacks at most.
_CALLBACK_LIMIT = 5.0
#: Ended attempts that are remembered, so that their late progress is not taken for that of another call.
_ENDED_ATTEMPTS = 1000
#: Refused answers of the elicitation handler that a call is told of.
_MAX_REFUSED = 5
#: Seconds within which the same change of capabilities, sent in the protocol's other form, is the same event.
_DUPLICATE_WINDOW = 1.0
_LIST_CHANGED = "notifications/capabilities/list_changed"


class EventDispatcher:
    """Reads the events of one transport and hands each to the call, the callback and the streams that it belongs to.

    ``connection`` follows losses, reconnections and changes of capabilities. ``notified`` sees each notification before
    any callback or stream does.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        on_progress: OnProgress | None,
        on_notification: OnNotification | None,
        on_elicitation: OnElicitation | None,
        connection: Connection,
        notified: Callable[[Notification], None],
    ) -> None:
        self.streams = EventStreams()
        self._transport = transport
        self._on_progress = on_progress
        self._on_notification = on_notification
        self._questions = Questions(on_elicitation, self._note_refused, self._note_unanswered)
        self._connection = connection
        self._notified = notified
        self._callbacks = Callbacks()
        self._attempts: dict[str, tuple[str, OnProgress | None]] = {}
        self._ended: deque[str] = deque(maxlen=_ENDED_ATTEMPTS)
        self._refused: dict[str, list[str]] = {}
        self._unanswered: dict[str, str] = {}
        self._asking = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_change: tuple[str, object, float] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> EventDispatcher:
        self._loop = asyncio.get_running_loop()
        spawn(self._read_events(), self._tasks)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Deliver what has arrived to the callbacks and streams, within five seconds; then cancel what still runs."""
        await asyncio.sleep(0)  # for events that arrived in this turn of the loop
        await cancel_and_wait(self._tasks)
        self.streams.close()
        await self._callbacks.wait(stalled=_CALLBACK_GRACE, timeout=_CALLBACK_LIMIT)
        await self._callbacks.aclose()

    def begin_attempt(self, attempt: str, call: str, on_progress: OnProgress | None) -> None:
        """Register an attempt of ``call``: progress with the id ``attempt`` goes to ``on_progress`` too."""
        self._attempts[attempt] = call, on_progress

    def end_attempt(self, attempt: str) -> None:
        """Forget an attempt; progress that comes for it later belongs to no call."""
        del self._attempts[attempt]
        self._ended.append(attempt)

    def asks(self, call: str) -> bool:
        """Whether a question of the app waits for its answer, and ``call`` is the latest one under way."""
        return self._asking > 0 and bool(self._attempts) and next(reversed(self._attempts.values()))[0] == call

    def take_refused(self, call: str) -> list[str]:
        """Return why answers of the elicitation handler were refused during a call, and forget it."""
        return self._refused.pop(call, [])

    def take_unanswered(self, call: str) -> str:
        """Return which question was declined during a call since nobody answers them, in words, and forget it."""
        return self._unanswered.pop(call, "")

    def _lone_call(self) -> str | None:
        """ABP does not say which call a question belongs to: only a call that runs alone is told."""
        calls = {call for call, _ in self._attempts.values()}
        return calls.pop() if len(calls) == 1 else None

    def _note_refused(self, reason: str) -> bool:
        call = self._lone_call()
        if call is None or len(reasons := self._refused.setdefault(call, [])) == _MAX_REFUSED:
            return False
        reasons.append(reason)
        return True

    def _note_unanswered(self, request: ElicitationRequest) -> None:
        if (call := self._lone_call()) is not None:
            self._unanswered[call] = f"the app asked ({request.method}), which nobody answered: give on_elicitation="

    async def wait_for_callbacks(self, on_progress: OnProgress | None) -> None:
        """Let the callbacks of an ended call and of the session get the events that came before its answer: within five
        seconds, and without one that spends more than half a second on one event."""
        callbacks = (on_progress, self._on_progress, self._on_notification)
        await self._callbacks.wait(callbacks, stalled=_CALLBACK_GRACE, timeout=_CALLBACK_LIMIT)

    @property
    def has_listeners(self) -> bool:
        """Whether a stream is open, so that an event is worth making."""
        return bool(self.streams.open)

    @property
    def has_callbacks_waiting(self) -> bool:
        """Whether any callback has events that it has not had yet."""
        return self._callbacks.busy

    def emit(self, event: Event) -> None:
        """Add an event to every stream; a change of the connection goes to the notification callback as well."""
        self.streams.emit(event)
        if isinstance(event, ConnectionChanged):
            from ..protocol.payloads import Notification

            name = "connection/restored" if event.connected else "connection/lost"
            self._call_on_notification(Notification(event=name, data={"reason": event.reason}))

    def emit_threadsafe(self, event: Event) -> None:
        """Add an event to every stream, from any thread; nothing happens once the session's loop is closed."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self.emit(event)
        elif self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.emit, event)

    async def _read_events(self) -> None:
        async for message in self._transport.events():
            try:
                self._dispatch(message)
            except ABPError as error:
                logger.warning("ignored an event of the app: %s", error.message)
            except Exception:  # the events after it, losses of the connection among them, must still arrive
                logger.exception("ignored an event of the app (%.80s), which could not be handled", message.type)

    def _dispatch(self, message: Message) -> None:
        from ..protocol.declarations import parse  # late, as they load pydantic
        from ..protocol.payloads import ElicitationRequest, Notification, Progress

        payload = message.payload
        match message.type:
            case "progress":
                self._dispatch_progress(parse(Progress, payload, "a progress event"))
            case "elicitation/request":
                request = parse(ElicitationRequest, payload, "an elicitation request")
                self.streams.emit(request)
                spawn(self._answer(message.id, request), self._tasks)
            case "connection/lost":
                self._connection.lost(_reason(payload))
            case "connection/restored":
                spawn(self._connection.restored(_reason(payload)), self._tasks)
            case "effect":
                if isinstance(payload, Effect):
                    self.streams.emit(payload)
            case "capabilities/changed":
                self._dispatch_capabilities(message.type, Notification(event=_LIST_CHANGED, data=payload))
            case _:
                notification = parse(Notification, payload, "a notification")
                if notification.event == _LIST_CHANGED:
                    self._dispatch_capabilities(message.type, notification)
                else:
                    self._dispatch_notification(notification)

    def _dispatch_capabilities(self, form: str, notification: Notification) -> None:
        """Many apps send the change in both forms (docs/protocol.md 4.6): it is delivered once."""
        last, self._last_change = self._last_change, (form, notification.data, time.monotonic())
        if last and last[0] != form and last[1] == notification.data and time.monotonic() - last[2] < _DUPLICATE_WINDOW:
            self._last_change = None
            return
        self._dispatch_notification(notification)
        spawn(self._connection.capabilities_changed(notification.data), self._tasks)

    def _dispatch_notification(self, notification: Notification) -> None:
        self._notified(notification)
        self.streams.emit(notification)
        self._call_on_notification(notification)

    def _dispatch_progress(self, progress: Progress) -> None:
        attempt = progress.operation_id
        call, on_progress = self._attempts.get(attempt, ("", None))
        if len(self._attempts) == 1 and attempt not in self._ended:  # many apps leave operationId out or invent one
            ((call, on_progress),) = self._attempts.values()
        self._deliver_progress(progress.model_copy(update={"call": call}), on_progress)

    def download_progress(self, call: str, on_progress: OnProgress | None) -> DownloadProgress:
        """Return what makes progress of ``call``, as an app's own, out of the bytes of its downloads."""
        return DownloadProgress(lambda progress: self._deliver_progress(progress, on_progress), call)

    def _deliver_progress(self, progress: Progress, on_progress: OnProgress | None) -> None:
        for callback in (on_progress, self._on_progress):
            if callback is not None:
                self._callbacks.submit(callback, progress)
        self.streams.emit(progress)

    def _call_on_notification(self, notification: Notification) -> None:
        if self._on_notification is not None:
            self._callbacks.submit(self._on_notification, notification)

    async def _answer(self, request_id: str | None, request: ElicitationRequest) -> None:
        self._asking += 1
        try:
            answer = await self._questions.answer(request)
        finally:
            self._asking -= 1
        with contextlib.suppress(TransportError):
            await self._transport.notify(Message("elicitation/response", answer, id=request_id))


def _reason(payload: object) -> str:
    return str(payload.get("reason", "")) if isinstance(payload, Mapping) else ""
