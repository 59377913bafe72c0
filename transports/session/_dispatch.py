"""Delivery of messages that an app sends on its own: progress, notifications, elicitation requests, effects."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar, cast

from .. import protocol
from .._internal.tasks import Owner, cancel_and_wait, spawn, start_task
from ..base import Transport
from ..errors import ABPError, TransportError, UsageError, spelled
from ..protocol._elicitation import DECLINED, answer_fault, default_answer, refused_answer
from ..protocol.messages import Effect, Message
from ._call import Call, OnProgress
from ._connection import Connection
from ._events import CallFinished, CallStarted, ConnectionChanged, EventStreams

if TYPE_CHECKING:
    from ..protocol._payloads import ElicitationRequest, Notification, Progress
    from ._events import Event

logger = logging.getLogger("transports")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what an app sends on its own, times in seconds."""

    #: Values that wait for one callback; each further value drops the oldest.
    values: int = 100_000
    #: For a callback with one value. The end of a call or session does not wait any longer for it.
    callback: float = 0.5
    #: For all callbacks together at the end of a call or session.
    callbacks: float = 5.0
    #: Questions that a handler answers at the same time: a plain function needs a thread for each.
    questions: int = 32
    #: Questions that wait for the handler; further questions are declined.
    waiting_questions: int = 256
    #: Refused answers of the elicitation handler that one call reports.
    refused: int = 5
    #: Ended attempts that are remembered, so that their late progress is not attributed to another call.
    ended_attempts: int = 1000
    #: Within this time, the same change of capabilities in the protocol's other form is the same event.
    duplicate: float = 1.0


LIMITS = Limits()

#: The queue whose callback runs in this context: a callback must not wait for its own queue, which would never end.
_current_queue: contextvars.ContextVar[_Queue | None] = contextvars.ContextVar("abp_callback_queue", default=None)


class Callbacks:
    """Queues of values for callbacks, one queue each, in order. A slow callback delays only itself. If it is
    ``Limits.values`` behind, it loses the oldest, and a warning is logged. An exception of a callback is logged, and
    the next value is delivered."""

    def __init__(self) -> None:
        # by id(): a callable need not be hashable; its queue holds it, so that the id is not reused meanwhile
        self._queues: dict[int, _Queue] = {}

    def submit(self, callback: Callable[..., object], value: object) -> None:
        queue = self._queues.get(id(callback))
        if queue is None:
            queue = self._queues[id(callback)] = _Queue(callback)
            queue.add(value)
            queue.task = start_task(self._deliver_all(queue))
        else:
            queue.add(value)

    async def wait(
        self, callbacks: Iterable[Callable[..., object] | None] | None = None, *, stalled: float, timeout: float
    ) -> None:
        """Wait until these callbacks, or all, have received the values submitted so far.

        Gives up after ``timeout`` seconds, and on a callback that spends more than ``stalled`` seconds on one value. A
        callback does not wait for itself."""
        if not self._queues:
            return
        queues = list(self._queues.values())
        if callbacks is not None:
            ids = {id(callback) for callback in callbacks}
            queues = [queue for queue in queues if id(queue.callback) in ids]
        queues = [queue for queue in queues if queue is not _current_queue.get()]
        if queues:
            deadline = time.monotonic() + timeout
            await asyncio.gather(*(queue.wait(stalled, deadline) for queue in queues))

    async def aclose(self) -> None:
        """Drop all queues and cancel coroutine callbacks. A plain function that runs in a thread continues."""
        queues = tuple(self._queues.values())
        for queue in queues:
            if queue.values:
                logger.warning("the callback %r loses %d values: the session closes", queue.callback, len(queue.values))
            queue.values.clear()
        await cancel_and_wait(queue.task for queue in queues)

    async def _deliver_all(self, queue: _Queue) -> None:
        _current_queue.set(queue)
        deliver = queue.deliver_in_thread
        if inspect.iscoroutinefunction(queue.callback):
            deliver = queue.deliver_awaiting

        try:
            while queue.values:
                try:
                    await deliver()
                except asyncio.CancelledError:
                    # A callback may raise this itself; only a cancellation of this task ends the delivery.
                    if _is_being_cancelled():
                        raise
                    logger.exception("a callback failed; the call goes on")
                except Exception:
                    logger.exception("a callback failed; the call goes on")
        finally:
            del self._queues[id(queue.callback)]


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Queue:
    """Queue of values for one callback; it exists from the first value until all are delivered."""

    task: asyncio.Task[None]

    def __init__(self, callback: Callable[..., object]) -> None:
        self.callback = callback
        self.values: deque[object] = deque(maxlen=LIMITS.values)
        self._submitted = self._dropped = 0  # counted in the event loop
        self._delivered = 0  # counted where the callback runs
        self._value_started = time.monotonic()

    def add(self, value: object) -> None:
        if len(self.values) == self.values.maxlen:
            # One warning until the callback has caught up, not one for each value.
            if not self._dropped:
                logger.warning(
                    "the callback %r is %d values behind and loses the oldest; let it return sooner",
                    self.callback,
                    len(self.values),
                )
            self._dropped += 1
        self._submitted += 1
        self.values.append(value)

    async def wait(self, stalled: float, deadline: float) -> None:
        """Wait until the values submitted so far are delivered, as :meth:`Callbacks.wait` does."""
        target = self._submitted
        while self._delivered + self._dropped < target:
            poll_interval = min(0.05, stalled, max(deadline - time.monotonic(), 0))
            await asyncio.wait((self.task,), timeout=poll_interval)

            now = time.monotonic()
            is_stalled = now - self._value_started >= stalled
            if self.task.done() or now >= deadline or is_stalled:
                return

    async def deliver_awaiting(self) -> None:
        self._value_started = time.monotonic()
        try:
            await invoke(self.callback, self.values.popleft())
        finally:
            self._delivered += 1

    async def deliver_in_thread(self) -> None:
        """Deliver all waiting values to a plain function in one thread: a thread for each value would be slow."""
        awaitable = await _in_thread(self._deliver_plain)
        if awaitable is not None:
            try:
                await awaitable
            finally:
                self._delivered += 1

    def _deliver_plain(self) -> Awaitable[object] | None:
        """Call the plain function until no value waits, or until it returns an awaitable."""
        while True:
            try:
                value = self.values.popleft()
            except IndexError:
                return None
            self._value_started = time.monotonic()
            try:
                result = self.callback(value)
            except Exception:
                logger.exception("a callback failed; the call goes on")
            else:
                if result is not None and inspect.isawaitable(result):
                    return result
            self._delivered += 1


async def invoke(callback: Callable[..., object], value: object) -> object:
    """Return ``callback(value)``: await a coroutine function, run a plain function in a thread of its own."""
    if inspect.iscoroutinefunction(callback):
        result: Awaitable[object] = callback(value)
        return await result
    plain_result = await _in_thread(callback, value)
    return await plain_result if inspect.isawaitable(plain_result) else plain_result


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function of the user in a daemon thread of its own. It may wait for a person, or for ever: in a thread of
    :func:`asyncio.to_thread`, it would take a worker from the artifact store, and keep the program from ending."""
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    future: Future[tuple[T | None, BaseException | None]] = Future()
    # Cancelling the task that waits must not cancel this future.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised again in the task that waits
            future.set_result((None, error))

    threading.Thread(target=run, name="abp-callback", daemon=True).start()
    result, error = await asyncio.wrap_future(future)
    if error is not None:
        raise error
    return cast(T, result)


OnElicitation: TypeAlias = Callable[["ElicitationRequest"], "Mapping[str, object] | Awaitable[Mapping[str, object]]"]


class Questions:
    """Answers to elicitation requests, by the user's handler or, without one, by default.

    Questions over the limits are declined at once. The timeout of a question includes its waiting. ``on_refused`` gets
    the reason if an answer of the handler does not fit its question; it returns whether a call will report the reason,
    which is logged otherwise. ``on_unanswered`` gets a question that was declined for lack of a handler."""

    def __init__(
        self,
        handler: OnElicitation | None,
        on_refused: Callable[[str], bool],
        on_unanswered: Callable[[ElicitationRequest], None],
    ) -> None:
        self._handler = handler
        self._on_refused = on_refused
        self._on_unanswered = on_unanswered
        self._slots = asyncio.Semaphore(LIMITS.questions)
        self._waiting = 0

    async def answer(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Return the answer of the handler, which may decline by raising, or the default without a handler.

        An answer that does not fit the question is an error for the app and for the caller."""
        if self._handler is None:
            answer = default_answer(request)
            if answer.get("success") is not True:
                self._on_unanswered(request)
            return answer

        if self._waiting >= LIMITS.waiting_questions:
            logger.warning("declined %s: %d questions wait already", request.method, self._waiting)
            return DECLINED

        seconds = request.timeout / 1000 if request.timeout else None
        try:
            async with asyncio.timeout(seconds):
                await self._wait_for_slot()
                handlers_answer = await self._run_handler(self._handler, request)
            fault = answer_fault(request, handlers_answer)
        except Exception as error:  # noqa: BLE001 - raising is how a handler declines
            reason = "too late" if isinstance(error, TimeoutError) else repr(error)
            logger.warning("the elicitation handler declined %s: %s", request.method, reason)
            return DECLINED

        if not fault and isinstance(handlers_answer, Mapping):
            return handlers_answer
        reason = f"the elicitation handler's answer to {request.method} is refused: {fault}"
        if not self._on_refused(reason):
            logger.warning("%s", reason)
        return refused_answer(reason)

    async def _wait_for_slot(self) -> None:
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1

    async def _run_handler(self, handler: OnElicitation, request: ElicitationRequest) -> object:
        """Run the handler, and release its slot. A plain function holds the slot until its thread ends, perhaps long
        after the timeout."""
        if inspect.iscoroutinefunction(handler):
            try:
                return await invoke(handler, request)
            finally:
                self._slots.release()

        loop = asyncio.get_running_loop()

        def run_plain_handler(request: ElicitationRequest) -> object:
            try:
                return handler(request)
            finally:
                # RuntimeError: the loop is closed.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._slots.release)

        return await invoke(run_plain_handler, request)


class DownloadProgress:
    """Callback that reports the downloads of one call as its progress (docs/protocol.md 10.6). ``status`` is the place
    of the file in the answer; ``progress`` and ``total`` count bytes. ``report`` is called at the beginning and the end
    of each file, and at most ten times a second between them. Never raises."""

    def __init__(self, report: Callable[[Progress], None], call: str) -> None:
        self._report = report
        self._call = call
        self._place: str | None = None
        self._last_report = 0.0

    def __call__(self, place: str, received: int, expected: int | None) -> None:
        now = time.monotonic()
        is_new_file = place != self._place
        is_complete = received == expected
        min_interval = 0.1
        if not is_new_file and not is_complete and now - self._last_report < min_interval:
            return

        self._place = place
        self._last_report = now
        progress = protocol.Progress(
            call=self._call,
            stage="download",
            status=place or None,
            progress=received,
            total=expected,
        )
        self._report(progress)


OnNotification: TypeAlias = Callable[["Notification"], object]

_LIST_CHANGED = "notifications/capabilities/list_changed"


class EventDispatcher:
    """Dispatcher of a transport's events to their call, its callback and the streams. ``connection`` gets losses,
    reconnections and changes of capabilities; ``notified`` gets each notification before the callbacks and streams."""

    def __init__(
        self,
        transport: Transport,
        owner: Owner,
        *,
        on_progress: OnProgress | None,
        on_notification: OnNotification | None,
        on_elicitation: OnElicitation | None,
        connection: Connection,
        notified: Callable[[Notification], None],
    ) -> None:
        self.streams = EventStreams(owner)
        self._transport = transport
        self._on_progress = on_progress
        self._on_notification = on_notification
        self._questions = Questions(on_elicitation, self._note_refused, self._note_unanswered)
        self._connection = connection
        self._notified = notified
        self._callbacks = Callbacks()
        self._calls: dict[str, Call] = {}
        self._attempts: dict[str, Call] = {}
        self._ended: deque[str] = deque(maxlen=LIMITS.ended_attempts)
        self._open_questions = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_change: tuple[str, object, float] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> EventDispatcher:
        self._loop = asyncio.get_running_loop()
        spawn(self._read_events(), self._tasks, self._stop_reading)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Deliver pending events to callbacks and streams, within five seconds; then cancel running callbacks."""
        try:
            await asyncio.sleep(0)  # for events that arrived in this turn of the loop
            await cancel_and_wait(self._tasks)
            self.streams.close()
            await self._callbacks.wait(stalled=LIMITS.callback, timeout=LIMITS.callbacks)
        finally:
            # Closing may have been cancelled at any of these steps.
            self.streams.close()
            await cancel_and_wait(self._tasks)
            await self._callbacks.aclose()

    def begin_call(self, call: Call) -> None:
        if call.id in self._calls:
            raise UsageError(f"a call with the id {call.id[:80]!r} is running; call_id= must be unique")
        self._calls[call.id] = call
        if self.streams.open:  # without a stream, making an event is a waste
            self.emit(CallStarted(call.id, call.capability))

    def end_call(self, call: Call) -> None:
        del self._calls[call.id]
        if self.streams.open:
            self.emit(CallFinished(call.id, call.capability, call.duration * 1000, call.result, call.error))

    def begin_attempt(self, attempt: str, call: Call) -> None:
        self._attempts[attempt] = call

    def end_attempt(self, attempt: str) -> None:
        """Forget an attempt, so that progress which arrives later belongs to no call."""
        del self._attempts[attempt]
        self._ended.append(attempt)

    def has_open_question(self, call: str) -> bool:
        """Return whether the app waits for the answer to a question, and ``call`` is the latest running call."""
        if not self._open_questions or not self._attempts:
            return False
        latest = next(reversed(self._attempts.values()))
        return latest.id == call

    def _lone_call(self) -> Call | None:
        """Return the only call with a request under way, or ``None``: an ABP question does not name its call."""
        calls = {call.id: call for call in self._attempts.values()}
        if len(calls) != 1:
            return None
        return next(iter(calls.values()))

    def _note_refused(self, reason: str) -> bool:
        """Add the reason why an answer was refused to the call that it belongs to. Return whether a call took it."""
        call = self._lone_call()
        if call is None or len(call.refused) == LIMITS.refused:
            return False
        call.refused.append(reason)
        return True

    def _note_unanswered(self, request: ElicitationRequest) -> None:
        if (call := self._lone_call()) is not None:
            remedy = spelled("give on_elicitation=")
            call.unanswered = f"the app asked ({request.method}), but there is no handler for questions: {remedy}"

    async def wait_for_callbacks(self, on_progress: OnProgress | None) -> None:
        """Wait until the callbacks of the call and of the session have the events that came before the answer."""
        callbacks = (on_progress, self._on_progress, self._on_notification)
        await self._callbacks.wait(callbacks, stalled=LIMITS.callback, timeout=LIMITS.callbacks)

    def emit(self, event: Event) -> None:
        self.streams.emit(event)
        if isinstance(event, ConnectionChanged):
            name = "connection/restored" if event.connected else "connection/lost"
            self._call_on_notification(protocol.Notification(event=name, data={"reason": event.reason}))

    def emit_threadsafe(self, event: Event) -> None:
        """Add an event to every stream, from any thread; nothing happens once the session's loop is closed."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self.emit(event)
        elif self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.emit, event)

    async def _read_events(self) -> None:
        """Dispatch the events of the transport until they end. An event that cannot be handled is left out."""
        async for message in self._transport.events():
            try:
                self._dispatch(message)
            except Exception as error:
                # Later events must still arrive, losses of the connection among them.
                if isinstance(error, ABPError):
                    logger.warning("ignored an event of the app: %s", error.message)
                else:
                    logger.exception("ignored an event of the app (%.80s), which could not be handled", message.type)
                if message.type == "elicitation/request":
                    self._refuse_question(message.id, error)

    def _stop_reading(self, error: BaseException) -> None:
        self.emit(ConnectionChanged(False, f"events of the app can no longer be read: {error!r}"))

    def _dispatch(self, message: Message) -> None:
        """Pass an event on by its type; whatever takes time runs in a task."""
        payload = message.payload
        match message.type:
            case "progress":
                self._dispatch_progress(protocol.parse(protocol.Progress, payload, "a progress event"))
            case "elicitation/request":
                request = protocol.parse(protocol.ElicitationRequest, payload, "an elicitation request")
                self.streams.emit(request)
                spawn(
                    self._answer_question(message.id, request), self._tasks, partial(self._refuse_question, message.id)
                )
            case "connection/lost":
                self._connection.on_lost(_reason_in(payload))
            case "connection/waiting":
                self._connection.obstacle = _reason_in(payload)
            case "connection/restored":
                spawn(self._connection.on_restored(_reason_in(payload)), self._tasks)
            case "effect":
                if isinstance(payload, Effect):
                    self.streams.emit(payload)
            case "capabilities/changed":
                self._dispatch_capabilities(message.type, protocol.Notification(event=_LIST_CHANGED, data=payload))
            case _:
                notification = protocol.parse(protocol.Notification, payload, "a notification")
                if notification.event == _LIST_CHANGED:
                    self._dispatch_capabilities(message.type, notification)
                else:
                    self._dispatch_notification(notification)

    def _dispatch_capabilities(self, message_type: str, notification: Notification) -> None:
        """Deliver a change of the capabilities once: many apps send it in both forms (docs/protocol.md 4.6)."""
        now = time.monotonic()
        if self._last_change is not None:
            last_type, last_data, last_time = self._last_change
            is_other_type = message_type != last_type and notification.data == last_data
            if is_other_type and now - last_time < LIMITS.duplicate:
                self._last_change = None
                return

        self._last_change = (message_type, notification.data, now)
        self._dispatch_notification(notification)
        spawn(self._connection.on_capabilities_changed(notification.data), self._tasks)

    def _dispatch_notification(self, notification: Notification) -> None:
        self._notified(notification)
        self.streams.emit(notification)
        self._call_on_notification(notification)

    def _dispatch_progress(self, progress: Progress) -> None:
        """Deliver progress to its call, or to the session alone if it belongs to no running call."""
        attempt = progress.operation_id
        call = self._attempts.get(attempt)
        if len(self._attempts) == 1 and attempt not in self._ended:
            # Many apps leave operationId out or invent one: the progress must belong to the only attempt under way.
            (call,) = self._attempts.values()

        if call is None:
            # Without a call, an id that the app itself put there must not pass for one.
            self._deliver_progress(progress.model_copy(update={"call": ""}), None)
        else:
            self._deliver_progress(progress.model_copy(update={"call": call.id}), call.on_progress)

    def download_progress(self, call: Call) -> DownloadProgress:
        return DownloadProgress(lambda progress: self._deliver_progress(progress, call.on_progress), call.id)

    def _deliver_progress(self, progress: Progress, on_progress: OnProgress | None) -> None:
        for callback in (on_progress, self._on_progress):
            if callback is not None:
                self._callbacks.submit(callback, progress)
        self.streams.emit(progress)

    def _call_on_notification(self, notification: Notification) -> None:
        if self._on_notification is not None:
            self._callbacks.submit(self._on_notification, notification)

    async def _answer_question(self, request_id: str | None, request: ElicitationRequest) -> None:
        self._open_questions += 1
        try:
            answer = await self._questions.answer(request)
        finally:
            self._open_questions -= 1
        await self._send_answer(request_id, answer)

    async def _send_answer(self, request_id: str | None, answer: Mapping[str, object]) -> None:
        with suppress(TransportError):
            await self._transport.notify(Message("elicitation/response", answer, id=request_id))

    def _refuse_question(self, request_id: str | None, error: BaseException) -> None:
        """Send the app an error for a question that could not be answered, since it waits for an answer."""
        reason = error.message if isinstance(error, ABPError) else type(error).__name__
        spawn(self._send_answer(request_id, refused_answer(f"the client could not answer: {reason}")), self._tasks)


def _reason_in(payload: object) -> str:
    return str(payload.get("reason", "")) if isinstance(payload, Mapping) else ""
