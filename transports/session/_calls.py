"""Calls of a session, from the first attempt to the stored result.

* :class:`Calls` — attempts, retries with back-off, deadlines, cancellation in the app.
* :class:`CallHandle`, :class:`CallStatus` — a call that runs in the background.
* :class:`Results` — answers routed into the artifact store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Literal, TypeAlias

from .._internal.tasks import MAX_DELAY, Owner, backoff_delay, cancel_and_wait, drop, in_thread, spawn
from .._internal.telemetry._instruments import OTHER, annotate, is_observing, is_tracing, observed_call, traced
from ..artifacts._base import ArtifactStore
from ..artifacts._content import readable_copy
from ..artifacts._ref import MAX_SCOPE_CHARS, Scope
from ..base import Transport
from ..errors import (
    ABPError,
    CallTimeout,
    CapabilityError,
    Disconnected,
    OutcomeUnknown,
    ProtocolError,
    TooLarge,
    UsageError,
    format_seconds,
    may_have_run,
    no_answer,
    repeat_advice,
    short_traceback,
)
from ..protocol._capabilities import answered_data
from ..protocol._elicitation import INVALID_ANSWER
from ..protocol._find_content import Found, replace as replace_places
from ..protocol._strict_json import encode_json
from ..protocol._times import TIMER_TOLERANCE, checked_timeout
from ..protocol.messages import Message, ServerCall, new_id
from ..routing._layers import Fetcher, OnDownload
from ..routing._policy import ABP, OnRoutingEvent, RoutingConfig, RoutingPolicy
from ..routing._result import Result
from ..routing._router import Router
from ._connection import Connection, Handshake
from ._dispatch import EventDispatcher, OnProgress, RunningCall
from ._events import CallFinished, CallStarted, Retrying
from ._settings import Settings

if TYPE_CHECKING:
    from ..protocol._declarations import Capability

logger = logging.getLogger("transports")


_server_calls: ContextVar[list[ServerCall] | None] = ContextVar("_server_calls", default=None)


@contextlib.contextmanager
def keeping_server_calls() -> Iterator[list[ServerCall]]:
    """Collect the calls of MCP servers' tools that begin in this block, as the views of the tools are shown them."""
    calls: list[ServerCall] = []
    token = _server_calls.set(calls)
    try:
        yield calls
    finally:
        _server_calls.reset(token)


class CallStatus(StrEnum):
    """State of a call: the states of MCP's tasks, and ``unknown``. The first two change; the others are final."""

    #: The app has the call, or is about to get it.
    WORKING = "working"
    #: The app has asked a question and waits for the answer.
    INPUT_REQUIRED = "input_required"
    #: The call has a result.
    COMPLETED = "completed"
    #: The app refused, or its answer could not be used.
    FAILED = "failed"
    #: The call was cancelled, here or in the app.
    CANCELLED = "cancelled"
    #: It is not known whether the call has run: the connection or the server was lost, or the timeout expired. The call
    #: is never sent again.
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """True if the call has ended."""
        return self not in (CallStatus.WORKING, CallStatus.INPUT_REQUIRED)

    @classmethod
    def of_error(cls, error: ABPError) -> CallStatus:
        """Return the state of a call that ended with ``error``."""
        if isinstance(error, CapabilityError) and (error.cancelled or error.code == "CANCELLED"):
            return cls.CANCELLED
        return cls.UNKNOWN if may_have_run(error) else cls.FAILED


class CallHandle:
    """Handle of a running call, made by :meth:`Session.start <transports.session._session.Session.start>`.

    The call belongs to its session and ends with it. Any number of tasks may wait for :meth:`result`. Cancelling one of
    them does not cancel the call; :meth:`cancel` and closing the session do.
    """

    def __init__(
        self,
        call: str,
        capability: str,
        work: Coroutine[object, object, Result],
        asks: Callable[[str], bool],
        owner: Owner,
    ) -> None:
        #: The id of the call, in events and in the ``source`` of its artifacts.
        self.id = call
        #: The capability that is called.
        self.capability = capability
        self._asks = asks
        self._owner = owner
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(_mark_retrieved)

    def __repr__(self) -> str:
        return f"<call {self.id} of {self.capability}>"

    async def status(self) -> CallStatus:
        """Return the current state of the call.

        An ABP question does not name its call; with several running calls, it counts as a question of the latest."""
        if not self._task.done():
            return CallStatus.INPUT_REQUIRED if self._asks(self.id) else CallStatus.WORKING
        if self._task.cancelled():
            return CallStatus.CANCELLED
        error = self._task.exception()
        if error is None:
            return CallStatus.COMPLETED
        return CallStatus.of_error(error) if isinstance(error, ABPError) else CallStatus.FAILED

    @short_traceback
    async def result(self) -> Result:
        """Wait for the end of the call and return its result.

        Raises the errors of :meth:`Session.call <transports.session._session.Session.call>`, and
        :class:`~transports.errors.CapabilityError` (``CANCELLED``) if the call was cancelled. Cancelling ``result()``
        does not cancel the call."""
        self._owner.require()
        await asyncio.wait((self._task,))
        if self._task.cancelled():
            error = CapabilityError(f"{self.capability}: cancelled by the client", code="CANCELLED")
            error.cancelled = True
            raise error
        return self._task.result()

    async def cancel(self) -> None:
        """Cancel the call, in the app too, and wait for its end, for a second at most. No effect on an ended call."""
        self._owner.require()
        await cancel_and_wait((self._task,))


def _mark_retrieved(task: asyncio.Task[Result]) -> None:
    """Mark the task's error as retrieved: ``result()`` is optional, and asyncio logs errors that are not retrieved."""
    if not task.cancelled():
        task.exception()


def annotate_params(payload: Mapping[str, object], content: Sequence[Found]) -> None:
    """Add ``payload["params"]`` of a call to the current span, as JSON without secrets and with long texts cut.

    The rules are those for the ``source`` of an artifact (:func:`.readable_copy`). Each file in ``content`` becomes
    ``<content>``."""
    if not is_tracing():
        return
    params = replace_places(payload["params"], {item.path: "<content>" for item in content})
    try:
        text = encode_json(readable_copy({"params": params})["params"]).decode()
    except (UsageError, KeyError):
        return  # not JSON, or too large: the call itself reports the fault
    annotate({"gen_ai.tool.call.arguments": text})


def timeout_seconds(timeout: float | None, default: float) -> float:
    """Return ``timeout``, or ``default`` if it is ``None``, in seconds; ``default`` is in **milliseconds**.

    ``math.inf`` is no limit. Raises :class:`~transports.errors.UsageError` for zero, negative numbers, NaN, other
    types, and more than a million seconds (:data:`~transports.protocol._times.MAX_TIMEOUT`).
    """
    return default / 1000 if timeout is None else checked_timeout(timeout)


def seconds_left(deadline: float) -> float:
    """Return the seconds until ``deadline`` (of :func:`time.monotonic`), at least a millisecond."""
    return max(deadline - time.monotonic(), 0.001)


#: Seconds that the app gets to answer ``capabilities/cancel``.
_CANCEL_TIMEOUT = 1.0
#: Seconds that the app gets to answer it when the session ends.
_CANCEL_TIMEOUT_AT_CLOSE = 0.1
#: Seconds that sending ``shutdown`` may take.
_SHUTDOWN_TIMEOUT = 1.0
#: Attempts of one call that the app itself refuses, at most. Lost connections do not count: the deadline bounds those.
_MAX_ATTEMPTS = 4
#: Names of the kit's own calls on a page, beside an app's capabilities.
_PAGE_TOOLS = ("render_to_pdf", "screenshot")
#: Codes for a session that the app has forgotten: the handshake is repeated before the call is sent again.
SESSION_LOST = {"NOT_INITIALIZED", "SESSION_EXPIRED", "SESSION_INVALID"}
#: Codes of an app that refused before it ran anything. After any other error the call may have run.
NOT_RUN = SESSION_LOST | {"RATE_LIMITED"}
#: Retry policy of a call: never once it was sent; only if it cannot have run; even if it may have run. Not an enum:
#: making a member of its value takes 0.6 µs of each call.
Repeats: TypeAlias = Literal["never", "not run", "idempotent"]


class Calls:
    """Calls of one session: attempts, retries and cancellation.

    Calls wait while ``connection`` is not ready. With ``trace_params`` their spans have the parameters. ``clean``
    removes secrets from an error.
    """

    def __init__(
        self,
        transport: Transport,
        events: EventDispatcher,
        connection: Connection,
        handshake: Handshake,
        owner: Owner,
        trace_params: bool = False,
        clean: Callable[[ABPError], object] | None = None,
    ) -> None:
        self._connection = connection
        self._ready = connection.ready
        self._transport = transport
        self._events = events
        self._handshake = handshake
        self._owner = owner
        self._trace_params = trace_params
        self._clean = clean
        self._initializing = asyncio.Lock()
        self._handshakes = 0
        self._cancellations: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Give pending cancellations a moment (0.1 s) to be sent, then drop them."""
        if self._cancellations:
            await asyncio.wait(self._cancellations, timeout=_CANCEL_TIMEOUT_AT_CLOSE)
            await cancel_and_wait(self._cancellations)

    async def shutdown(self) -> None:
        """Send ``shutdown`` to the app, within a second. Never raises."""
        with contextlib.suppress(ABPError, TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_TIMEOUT):
                await self._transport.notify(Message("shutdown", {"reason": "the client is done"}))

    async def with_events(
        self, call: str, capability: str, work: Awaitable[Result], on_progress: OnProgress | None = None
    ) -> Result:
        """Return the result of ``work``; emit :class:`CallStarted` before it and :class:`CallFinished` after it.

        Before it returns, callbacks get all earlier events, except after a timeout. If answers of the elicitation
        handler were refused, the result has a warning, or the app's error becomes a
        :class:`~transports.errors.UsageError` that names the cause. The id of a running call raises
        :class:`~transports.errors.UsageError`, too.
        """
        try:
            self._owner.require()
        except UsageError:
            drop(work)
            raise
        events = self._events
        if call in events.calls:
            drop(work)
            raise UsageError(f"a call with the id {call[:80]!r} is under way; give each call a call_id= of its own")
        running = events.calls[call] = RunningCall()
        if events.has_listeners:
            events.emit(CallStarted(call, capability))
        started, result, error = time.perf_counter(), None, None
        if is_observing():
            known = capability in self._handshake.capabilities or capability in _PAGE_TOOLS
            name = capability if known else OTHER  # bounds the names in metrics: an unknown one is a caller's free text
            work = observed_call(work, call, name, self._transport.name)
        try:
            result = await work
            if running.refused:
                result = replace(result, warnings=(*result.warnings, *running.refused))
            if events.has_callbacks_waiting:
                await events.wait_for_callbacks(on_progress)
        except ABPError as raised:
            if self._clean is not None:
                self._clean(raised)
            error = _with_refused(raised, capability, running.refused)
            if isinstance(error, CapabilityError) and running.unanswered:
                error.followed_by(running.unanswered)
            if not isinstance(error, CallTimeout):
                await events.wait_for_callbacks(on_progress)
            if error is not raised:
                raise error from None
            raise
        except asyncio.CancelledError:
            error = CapabilityError(f"{capability}: cancelled by the client", code="CANCELLED")
            raise
        finally:
            del events.calls[call]
            if events.has_listeners:
                duration = (time.perf_counter() - started) * 1000
                events.emit(CallFinished(call, capability, duration, result, error))
        return result

    async def request(
        self,
        call: str,
        capability: str,
        payload: Mapping[str, object],
        content: Sequence[Found],
        *,
        timeout: float,
        on_progress: OnProgress | None,
        repeats: Repeats,
    ) -> tuple[Message, object]:
        """Return the transport's reply to a call, and the ``data`` of the app's answer.

        ``timeout`` in seconds covers all attempts and the pauses between them. Raises the errors of
        :meth:`Session.call <transports.session._session.Session.call>`.
        """
        deadline, seconds = time.monotonic() + timeout, timeout
        if self._trace_params:
            annotate_params(payload, content)
        for attempt in count(1):
            handshakes, attempt_id = self._handshakes, call if attempt == 1 else new_id()
            try:
                if self._cancellations and self._transport.features.page:
                    # a page that answers no cancellation hangs and is replaced; send nothing before that is known
                    await asyncio.wait(self._cancellations, timeout=min(seconds, MAX_DELAY))
                    seconds = seconds_left(deadline)
                if not self._ready.is_set():
                    await self._wait_until_ready(capability, deadline, timeout)
                    seconds = seconds_left(deadline)
                reply = await self._send(
                    attempt_id, call, capability, payload, content, seconds, on_progress, timeout=timeout
                )
                if reply.relists:
                    await self._connection.relist()
                return reply, answered_data(reply.payload, capability)
            except ABPError as error:
                if (
                    isinstance(error, CapabilityError)
                    and error.code == CallTimeout.code
                    and time.monotonic() >= deadline - TIMER_TOLERANCE
                ):
                    # Both sides keep the deadline: the error must not depend on which was first (docs/protocol.md 3.4).
                    await self._cancel_in_app(attempt_id, "timeout")
                    raise no_answer("", timeout).located(capability) from None
                if isinstance(error, OutcomeUnknown):  # often of a page that navigated: the next call needs its tools
                    await self._connection.relist()
                delay = self._retry_delay(error, attempt, repeats)
                if delay is None or time.monotonic() + delay >= deadline:
                    if isinstance(error, Disconnected) and (may_have_run(error) or self._transport.features.reconnects):
                        error.followed_by(repeat_advice(error))
                    raise
                logger.info("%s; it is sent again in %.1f s", error.message, delay)
                self._events.emit(Retrying(capability, attempt, delay, error))
                if isinstance(error, Disconnected):
                    self._ready.clear()  # until the transport reports that it has reconnected
                await asyncio.sleep(delay)
                if error.code in SESSION_LOST:
                    await self._initialize_once(handshakes, deadline)
                seconds = seconds_left(deadline)
        raise AssertionError("unreachable")

    def _retry_delay(self, error: ABPError, attempt: int, repeats: Repeats) -> float | None:
        """Return the seconds until the next attempt, or ``None`` if the call must not be sent again.

        After a lost connection a call is sent again if it is idempotent, or was not sent at all (``sent`` is false)."""
        idempotent = repeats == "idempotent"
        if isinstance(error, Disconnected):
            unsent = error.sent is False
            return 0.0 if self._transport.features.reconnects and (idempotent or unsent) else None
        if (
            repeats == "never"
            or not error.retryable
            or attempt >= _MAX_ATTEMPTS
            or not (idempotent or error.code in NOT_RUN)
        ):
            return None
        if error.retry_after is not None:
            return min(error.retry_after, MAX_DELAY)
        return 0.0 if error.code in SESSION_LOST else backoff_delay(attempt)

    async def _initialize_once(self, handshakes: int, deadline: float) -> None:
        """Repeat the handshake, unless another call has repeated it since the count was ``handshakes``."""
        async with self._initializing:
            if self._handshakes == handshakes:
                await self._handshake.initialize(seconds_left(deadline))
                self._handshakes += 1

    async def _wait_until_ready(self, capability: str, deadline: float, timeout: float) -> None:
        try:
            async with asyncio.timeout(seconds_left(deadline)):
                await self._ready.wait()
        except TimeoutError:
            lost = self._connection.reason.partition("; ")[0] or "the connection was lost"  # without its advice
            raise Disconnected(
                f"{capability}: {lost}, and the app was not back within {format_seconds(timeout)}",
                sent=False,
            ) from None

    async def _send(
        self,
        attempt: str,
        call: str,
        capability: str,
        payload: Mapping[str, object],
        content: Sequence[Found],
        seconds: float,
        on_progress: OnProgress | None,
        *,
        timeout: float,
    ) -> Message:
        """Make one attempt, within ``seconds``, the rest of the call's ``timeout``.

        After a timeout or a cancellation, ``capabilities/cancel`` is sent to the app in the background."""
        options: dict[str, object] = {"progressToken": attempt, "callId": attempt}
        if math.isfinite(seconds):  # JSON has no infinity: without the option there is no limit
            options["timeout"] = math.ceil(seconds * 1000)
        message = Message("capabilities/call", {**payload, "options": options}, id=attempt, content=content)
        server_calls = _server_calls.get()
        message.opens_view = server_calls is not None
        self._events.begin_attempt(attempt, call, on_progress)
        try:
            sending = self._transport.request(message, timeout=seconds)
            reply = await traced(sending, "abp.request", {"abp.transport": self._transport.name}, "client")
            if server_calls is not None and reply.server_call is not None:
                server_calls.append(reply.server_call)
            return reply
        except CallTimeout as error:
            await self._cancel_in_app(attempt, "timeout")
            if error.message == no_answer("", seconds).message:  # name the whole timeout, not this attempt's share
                error = no_answer("", timeout)
            raise error.located(capability) from None
        except (Disconnected, ProtocolError, TooLarge) as error:
            raise error.located(capability) from None
        except asyncio.CancelledError:
            await self._cancel_in_app(attempt, "cancelled by the client")
            raise
        finally:
            self._events.end_attempt(attempt)

    async def _cancel_in_app(self, attempt: str, reason: str) -> None:
        """Send ``capabilities/cancel``; its answer is awaited in the background."""
        message = Message("capabilities/cancel", {"callId": attempt, "reason": reason})
        spawn(self._request_cancellation(message), self._cancellations)
        await asyncio.sleep(0)  # lets the request start before the caller sees the end of the call

    async def _request_cancellation(self, message: Message) -> None:
        with contextlib.suppress(ABPError):
            await self._transport.request(message, timeout=_CANCEL_TIMEOUT)


def _with_refused(error: ABPError, capability: str, refused: Sequence[str]) -> ABPError:
    """Return the error of a call during which answers of the elicitation handler were refused.

    The refusal is the cause, so it is the message. The app's own error, often a cancellation, goes to the details."""
    if not refused:
        return error
    if isinstance(error, CapabilityError):
        message = f"{capability}: {refused[0]}; then the app said: {error.message.removeprefix(f'{capability}: ')}"
        explained = UsageError(message, code=INVALID_ANSWER, details={"app": error.as_dict()})
        explained.evidence = error.evidence
        return explained
    return error.followed_by(refused[0])


#: Files that a warning names at most.
_MAX_NAMED = 5
_OVER = "the answer is over the limits of the retention"


class Results:
    """Results of one session: answers routed into ``store``. ``app_id`` returns the app's name for their ``source``."""

    def __init__(
        self,
        transport: Transport,
        store: ArtifactStore,
        settings: Settings,
        routing: RoutingPolicy | RoutingConfig | None,
        app_id: Callable[[], str],
    ) -> None:
        self._transport = transport
        #: The store that results go to.
        self.store = store
        self._settings = settings
        self._app_id = app_id
        #: Callback for the events of the routing; it is called in any thread.
        self.on_event: OnRoutingEvent = lambda _: None
        self._config = RoutingConfig() if routing is None else routing
        # A policy from settings depends on the app's name, which the handshake brings: see policy_for().
        self._use_policy(self._config if isinstance(self._config, RoutingPolicy) else ABP)
        transport.use_store(store)

    def policy_for(self, server: str) -> RoutingPolicy:
        """Return the routing policy. If it depends on settings, it is from now on that for an app of this name."""
        if isinstance(self._config, RoutingConfig):
            self._use_policy(self._config.policy(server, presets=self._transport.features.presets))
        return self.policy

    def _use_policy(self, policy: RoutingPolicy) -> None:
        #: The routing policy for answers.
        self.policy = policy
        self._fetcher = Fetcher(
            self._transport,
            timeout=self._settings.download_timeout / 1000,
            limit=self.store.max_bytes,
            allow_private=self._settings.allow_private_addresses,
            propagate=self._settings.trace_downloads,
            accept_compression=self._settings.accept_compression,
        )
        self._router = self._new_router(self.store)

    def _new_router(self, store: ArtifactStore) -> Router:
        policy = self.policy if self.policy.inline_data else replace(self.policy, inline_data=True)  # see in_files()
        return Router(
            store,
            policy=policy,
            fetcher=self._fetcher,
            on_event=lambda event: self.on_event(event),  # looked up late: the session sets it after __init__
            durability=self._settings.durability,
        )

    async def in_files(self, result: Result) -> Result:
        """Return the result as a caller gets it: with its data in files alone if the policy has no ``inline_data``.

        What the session itself does with results, such as reading links, needs their data."""
        return result if self.policy.inline_data else await in_thread(result.by_reference)

    def from_data(self, data: object, capability: str, started: float, call: str = "") -> Awaitable[Result]:
        """Store ``data`` as the result of ``capability``, begun at ``started`` (of :func:`time.perf_counter`)."""
        routing = self._router_of(call).route(
            data, capability=capability, source=self.source(call), transport=self._transport.name, started=started
        )
        return self._with_evictions_of(routing) if self.store.retention else routing

    def from_answer(
        self,
        reply: Message,
        data: object,
        capability: str,
        declared: Capability | None,
        *,
        call: str,
        warnings: Sequence[str],
        started: float,
        on_download: OnDownload,
    ) -> Awaitable[Result]:
        """Store an app's answer, with the files and side effects that the transport captured beside it.

        ``on_download`` gets the progress of each file behind a ``downloadUrl``. Raises
        :class:`~transports.errors.BinaryError` and other errors of :meth:`.Router.route`; ``error.result`` has the
        parts that were stored.
        """
        routing = self._router_of(call).route(
            data,
            capability=capability,
            outputs=reply.outputs,
            effects=reply.effects,
            source=self.source(call),
            warnings=[*warnings, *reply.warnings],
            schema=declared.output_schema if declared and not reply.is_checked else None,
            transport=self._transport.name,
            started=started,
            on_download=on_download,
            sender=reply.sender,
        )
        return self._with_evictions_of(routing) if self.store.retention else routing

    async def _with_evictions_of(self, routing: Awaitable[Result]) -> Result:
        result = await routing
        # only a later file of the same result can have evicted one
        return await self.with_evictions(result) if len(result.artifacts) > 1 else result

    def _router_of(self, call: str) -> Router:
        """Return the router of one call.

        With a retention, each call stores to a trace of its own, since limits of a trace apply per scope; a trace that
        the store's owner chose is kept."""
        if not self.store.retention or self.store.scope.trace:
            return self._router
        fits = 0 < len(call) <= MAX_SCOPE_CHARS and call.isprintable()
        view = self.store.scoped(Scope(trace=call if fits else uuid.uuid4().hex))
        return self._new_router(view)

    async def with_evictions(self, result: Result) -> Result:
        """Return the result with a warning that names its files that the retention has already evicted."""
        gone = [field for field, ref in result.artifacts.items() if not await self.store.exists(ref.id)]
        if not gone:
            return result
        named = ", ".join(field or "the answer" for field in gone[:_MAX_NAMED])
        more = f" and {len(gone) - _MAX_NAMED} more" if len(gone) > _MAX_NAMED else ""
        earlier = [warning for warning in result.warnings if not warning.startswith(_OVER)]
        return replace(result, warnings=(*earlier, f"{_OVER}; removed again: {named}{more}"))

    def source(self, call: str) -> dict[str, object]:
        """Return the ``source`` of a call's artifacts: the app, and the id of the call."""
        return {"app": self._app_id(), "call": call} if call else {"app": self._app_id()}
