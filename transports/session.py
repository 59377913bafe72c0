"""One connection to one app: initialize, call, events, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import importlib.metadata
import logging
import math
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

from .artifacts import ArtifactStore
from .base import Transport
from .callbacks import Callbacks, run
from .detect import Found
from .errors import (
    ABPError,
    CallTimeout,
    CapabilityError,
    Disconnected,
    ProtocolError,
    TransportError,
    UsageError,
)
from .messages import (
    PROTOCOL_VERSION,
    Answer,
    AppInfo,
    Capability,
    ElicitationRequest,
    Initialized,
    Message,
    Notification,
    Progress,
    encode_json,
    parse,
)
from .params import outgoing
from .routing import Fetcher, Result, Router
from .settings import Settings

__all__ = ["OnElicitation", "OnNotification", "OnProgress", "Session", "seconds_of"]

logger = logging.getLogger("transports")

OnProgress: TypeAlias = Callable[[Progress], object]
OnNotification: TypeAlias = Callable[[Notification], object]
OnElicitation: TypeAlias = Callable[[ElicitationRequest], "Mapping[str, object] | Awaitable[Mapping[str, object]]"]

#: Seconds for telling an app that its call is not wanted any more.
_CANCEL = 1.0
#: Seconds for progress callbacks to finish after the answer has come.
_SETTLE = 0.5
#: Seconds for elicitation handlers to end once they are cancelled.
_END = 1.0
#: Calls that have ended and are remembered, to know their late events from another call's.
_REMEMBERED = 1000


def seconds_of(timeout: float | None, default: float) -> float:
    """A caller's ``timeout``, or ``default`` in milliseconds."""
    if timeout is None:
        return default / 1000
    if not (math.isfinite(timeout) and timeout > 0):
        raise UsageError(f"timeout must be a positive number of seconds, not {timeout!r}")
    return timeout


class Session:
    """An app that is connected. ``info`` and ``capabilities`` (by name) are what it said of itself; both are there once
    the session is open."""

    info: AppInfo
    capabilities: Mapping[str, Capability]

    def __init__(
        self,
        transport: Transport,
        *,
        store: ArtifactStore,
        settings: Settings,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        on_elicitation: OnElicitation | None = None,
    ) -> None:
        self.transport = transport
        self.store = store
        self._settings = settings
        self._connect_timeout = seconds_of(timeout, settings.browser_timeout)
        self._call_timeout = seconds_of(timeout, settings.call_timeout)
        self._on_progress = on_progress
        self._on_notification = on_notification
        self._on_elicitation = on_elicitation
        self._state: Literal["new", "open", "closed"] = "new"
        self._ready = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self._callbacks = Callbacks()
        self._calls: dict[str, OnProgress | None] = {}
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)
        self._questions: set[asyncio.Task[None]] = set()
        self._router = Router(
            store,
            fetcher=Fetcher(
                transport,
                timeout=settings.download_timeout / 1000,
                limit=store.max_bytes,
                allow_private=settings.allow_private_addresses,
            ),
        )

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise UsageError("a session is opened once; make another with connect()")
        self._state = "closed"
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.transport)
            stack.push_async_callback(self._callbacks.aclose)
            stack.push_async_callback(_ended, self._questions)
            stack.push_async_callback(_ended, {asyncio.ensure_future(self._pump())})
            await self._initialize()
            self._ready.set()
            stack.push_async_callback(self._shutdown)
            self._stack = stack.pop_all()
        self._state = "open"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Say goodbye to the app and close the transport; idempotent."""
        self._state = "closed"
        await self._stack.aclose()

    async def _initialize(self) -> None:
        params: dict[str, object] = {
            "agent": {"name": "abp-transports", "version": _version()},
            "protocolVersion": PROTOCOL_VERSION,
            "features": {"notifications": True, "progress": True, "elicitation": self._on_elicitation is not None},
        }
        reply = await self.transport.request(Message("initialize", params), timeout=self._connect_timeout)
        payload = reply.payload
        if isinstance(payload, dict) and payload.get("success") is False:
            parse(Answer, payload, "the app's answer to initialize").raise_for_error("initialize")
        if isinstance(payload, dict) and isinstance(payload.get("data"), dict) and "sessionId" not in payload:
            payload = payload["data"]  # some apps wrap it like a call's answer
        initialized = parse(Initialized, payload, "the app's answer to initialize")
        self.info = initialized.app
        self.session_id = initialized.session_id
        listed = {capability.name: capability for capability in initialized.capabilities}
        if self.transport.features.listing:
            for capability in await self._list():
                known = listed.get(capability.name)
                said = {field: getattr(capability, field) for field in capability.model_fields_set}
                listed[capability.name] = known.model_copy(update=said) if known else capability
        self.capabilities = listed

    async def _list(self) -> list[Capability]:
        """What ``listCapabilities`` says; an app without it, or whose list is wrapped or empty, is not refused."""
        try:
            reply = await self.transport.request(Message("capabilities/list"), timeout=self._connect_timeout)
        except ProtocolError as error:
            logger.warning("the app could not list its capabilities: %s", error.message)
            return []
        payload = reply.payload
        if isinstance(payload, dict):
            payload = payload.get("data", payload.get("capabilities"))
            if isinstance(payload, dict):
                payload = payload.get("capabilities")
        listed: list[Capability] = []
        for item in payload if isinstance(payload, list) else []:
            try:
                listed.append(parse(Capability, item, "a capability in the app's list"))
            except ProtocolError as error:
                logger.warning("left out: %s", error.message)
        return listed

    async def _shutdown(self) -> None:
        with contextlib.suppress(ABPError, TimeoutError):
            async with asyncio.timeout(_CANCEL):
                await self.transport.notify(Message("shutdown", {"reason": "the client is done"}))

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        capability: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        idempotent: bool = False,
    ) -> Result:
        """Call a capability and store what it answers.

        ``params`` are JSON values; ``bytes``, :class:`pathlib.Path` and :class:`~transports.binary.BinaryData` may
        stand anywhere in them. ``timeout`` in seconds is for the app's answer. Cancelling the awaiting task cancels the
        call in the app.

        Where the transport reconnects by itself, a call waits for that, within its ``timeout``. One that was under way
        when the connection broke may have run: it fails with ``DISCONNECTED``, and is sent again only if the caller
        says that it is ``idempotent``.

        Raises :class:`~transports.errors.CapabilityError` if the app says no, :class:`~transports.errors.CallTimeout`,
        :class:`~transports.errors.BinaryError` if content is not what it was said to be (its ``result`` holds what was
        stored all the same), and other :class:`~transports.errors.ABPError`.
        """
        if self._state != "open":
            raise (
                Disconnected("the session is closed; connect again")
                if self._state == "closed"
                else UsageError("the session is not open; use it as `async with connect(…) as app`")
            )
        started = time.perf_counter()
        seconds = self._call_timeout if timeout is None else seconds_of(timeout, 0)
        prepared, content = outgoing(dict(params or {}))
        payload = {"capability": capability, "params": prepared}
        reply = await self._answered(capability, payload, content, seconds, on_progress, idempotent)
        try:
            return await self._taken(reply, capability, started)
        finally:
            if on_progress is not None or self._on_progress is not None:
                await self._callbacks.settle((on_progress, self._on_progress), _SETTLE)

    async def _answered(
        self,
        capability: str,
        payload: dict[str, object],
        content: Sequence[Found],
        seconds: float,
        on_progress: OnProgress | None,
        idempotent: bool,
    ) -> Message:
        """The reply to a call; over a transport that reconnects it may take more than one attempt."""
        deadline = time.monotonic() + seconds
        while True:
            if not self._ready.is_set():
                await self._reconnected(deadline)
                seconds = max(deadline - time.monotonic(), 0.001)
            try:
                return await self._attempt(capability, payload, content, seconds, on_progress)
            except Disconnected as error:
                unsent = error.details.get("sent") is False
                if not (self.transport.features.reconnects and (idempotent or unsent)):
                    raise
                logger.info("%s: %s; it is sent again", capability, error.message)
                self._ready.clear()  # until the transport says that it is back

    async def _reconnected(self, deadline: float) -> None:
        try:
            await asyncio.wait_for(self._ready.wait(), max(deadline - time.monotonic(), 0))
        except TimeoutError as error:
            raise Disconnected("the connection was not there again in time; call again later") from error

    async def _attempt(
        self,
        capability: str,
        payload: dict[str, object],
        content: Sequence[Found],
        seconds: float,
        on_progress: OnProgress | None,
    ) -> Message:
        call_id = str(uuid.uuid4())
        options = {"timeout": math.ceil(seconds * 1000), "progressToken": call_id, "callId": call_id}
        message = Message("capabilities/call", {**payload, "options": options}, id=call_id, content=content)
        self._calls[call_id] = on_progress
        try:
            return await self.transport.request(message, timeout=seconds)
        except CallTimeout as error:
            await self._cancel(call_id, "timeout")
            raise CallTimeout(f"{capability}: {error.message}") from error
        except asyncio.CancelledError:
            await self._cancel(call_id, "cancelled by the client")
            raise
        finally:
            del self._calls[call_id]
            self._ended.append(call_id)

    async def _taken(self, reply: Message, capability: str, started: float) -> Result:
        """What the app answered, stored."""
        answer = parse(Answer, reply.payload, f"the app's answer to {capability}")
        try:
            answer.raise_for_error(capability)
        except CapabilityError as error:
            raise self._explained(error, capability) from None
        return await self._router.route(
            answer.data,
            capability=capability,
            outputs=reply.outputs,
            source={"app": self.info.id or self.info.name},
            warnings=reply.warnings,
            effects=reply.effects,
            transport=self.transport.name,
            started=started,
        )

    def _explained(self, error: CapabilityError, capability: str) -> CapabilityError:
        if error.code == "UNKNOWN_CAPABILITY" and not error.alternatives:
            close = difflib.get_close_matches(capability, self.capabilities, n=3, cutoff=0.5)
            known = close or sorted(self.capabilities)[:8]
            error.alternatives = tuple(known)
            hint = "did you mean " if close else "the app has "
            error.message += f"; {hint}{', '.join(known)}?" if close else f"; {hint}{', '.join(known) or 'none'}"
            error.args = (error.message,)
        return error

    async def _cancel(self, call_id: str, reason: str) -> None:
        message = Message("capabilities/cancel", {"callId": call_id, "reason": reason})
        with contextlib.suppress(TransportError):
            await self.transport.request(message, timeout=_CANCEL)

    # --- events -------------------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        async for message in self.transport.events():
            try:
                self._dispatch(message)
            except ABPError as error:
                logger.warning("ignored an event of the app: %s", error.message)

    def _dispatch(self, message: Message) -> None:
        payload: Any = message.payload
        if message.type == "progress":
            progress = parse(Progress, payload, "a progress event")
            call = progress.operation_id
            mine = self._calls.get(call)
            if len(self._calls) == 1 and call not in self._ended:  # many apps leave operationId out or make their own
                (mine,) = self._calls.values()
            for callback in (mine, self._on_progress):
                if callback is not None:
                    self._callbacks.put(callback, progress)
        elif message.type == "elicitation/request":
            request = parse(ElicitationRequest, payload, "an elicitation request")
            task = asyncio.ensure_future(self._answer(message.id, request))
            self._questions.add(task)
            task.add_done_callback(self._questions.discard)
        elif message.type == "connection/lost":
            self._ready.clear()
            self._notify(message.type, payload)
        elif message.type == "connection/restored":
            task = asyncio.ensure_future(self._restore(payload))
            self._questions.add(task)
            task.add_done_callback(self._questions.discard)
        elif self._on_notification is not None and message.type != "effect":
            if message.type == "capabilities/changed":
                payload = {"event": "notifications/capabilities/list_changed", "data": payload}
            self._callbacks.put(self._on_notification, parse(Notification, payload, "a notification"))

    async def _restore(self, payload: object) -> None:
        """After a reconnection the app knows nothing of us: say hello again, then let calls through."""
        try:
            await self._initialize()
        except ABPError as error:
            logger.warning("reconnected, but the app refused to begin again: %s", error.message)
            return
        self._ready.set()
        self._notify("connection/restored", payload)

    def _notify(self, event: str, data: object) -> None:
        if self._on_notification is not None:
            self._callbacks.put(self._on_notification, Notification(event=event, data=data))

    async def _answer(self, request_id: str | None, request: ElicitationRequest) -> None:
        answer: Mapping[str, object] = {"success": False, "cancelled": True}
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
            await self.transport.notify(Message("elicitation/response", answer, id=request_id))


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for them, but not for ever."""
    tasks = tuple(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END)


def _version() -> str:
    try:
        return importlib.metadata.version("abp-transports")
    except importlib.metadata.PackageNotFoundError:
        return "0"
