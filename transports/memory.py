"""In-process app for tests: no browser, no socket, the same session.

>>> async def shout(params: Mapping[str, object], call: Call) -> object:
...     await call.progress(percentage=50)
...     return {"text": str(params["text"]).upper()}
>>> transport = MemoryTransport({"text.shout": shout})
>>> async with connect("memory:", transport=transport) as app:  # doctest: +SKIP
...     result = await app.call("text.shout", {"text": "hi"})
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ._internal.tasks import cancel_and_wait
from .artifacts._base import ArtifactStore
from .base import Features, Transport
from .errors import (
    ABPError,
    CallTimeout,
    CapabilityError,
    Disconnected,
    ProtocolError,
    UnsupportedBinary,
    UsageError,
    no_answer,
)
from .protocol._find_content import Place, find_values, replace_values
from .protocol.binary import BinaryData, Handle
from .protocol.messages import PROTOCOL_VERSION, Message, new_id

__all__ = ["Call", "Handler", "MemoryTransport"]

Handler: TypeAlias = Callable[[Mapping[str, object], "Call"], Awaitable[object]]


@dataclass(slots=True)
class Call:
    """Call in progress, for its handler: ids, the store, and messages to the client during the call."""

    id: str
    capability: str
    _transport: MemoryTransport = field(repr=False)

    @property
    def artifacts(self) -> ArtifactStore:
        """Store of the session, for content that the handler stores itself. Its references may stand anywhere in the
        answer. Raises :class:`~transports.errors.UsageError` if the transport is used without a session."""
        return self._transport.store

    async def progress(self, **fields: object) -> None:
        """Report progress. Fields as in docs/protocol.md 4.4 (``progress``, ``total``, ``percentage``, ``stage`` …)."""
        self._transport.emit(Message("progress", {"operationId": self.id, **fields}))

    async def notify(self, event: str, data: object = None) -> None:
        """Send a notification."""
        self._transport.emit(Message("notification", {"event": event, "data": data}))

    async def elicit(self, method: str, params: Mapping[str, object]) -> Mapping[str, Any]:
        """Ask the client a question and return its answer, ``{success, data?, cancelled?}``. Waits without a limit."""
        return await self._transport.ask(Message("elicitation/request", {"method": method, "params": dict(params)}))


class MemoryTransport(Transport):
    """Transport to an ABP app made of coroutine functions.

    A handler returns the answer's ``data`` (content as ``bytes``, :class:`~transports.BinaryData`, or a reference to
    content stored with ``call.artifacts``), or raises :class:`~transports.errors.CapabilityError`. A handler that
    raises :class:`~transports.errors.CallTimeout` or :class:`~transports.errors.Disconnected` simulates a failure of
    the transport. ``answers`` maps capabilities to raw answers, for simulating apps that break the rules.
    """

    name = "memory"
    features = Features(listing=True)

    def __init__(self, handlers: Mapping[str, Handler], *, answers: Mapping[str, object] | None = None) -> None:
        self._handlers = handlers
        self._answers = answers or {}
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._running: dict[str, asyncio.Task[object]] = {}
        self._elicitations: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._held: dict[str, bytes] = {}
        self._handle_ids = itertools.count()
        self._closed = True
        self._store: ArtifactStore | None = None
        #: Ids of cancelled calls, with the reason.
        self.cancelled: dict[str, str] = {}

    def use_store(self, store: ArtifactStore) -> None:
        """Give handlers the store of a session, as :attr:`Call.artifacts`."""
        self._store = store

    @property
    def store(self) -> ArtifactStore:
        """Store of the session. Raises :class:`~transports.errors.UsageError` without a session."""
        if self._store is None:
            raise UsageError("this transport has no session and so no store; connect with it")
        return self._store

    async def open(self) -> None:
        """Start accepting requests."""
        self._closed = False

    async def aclose(self) -> None:
        """Cancel the running handlers, and wait one second at most for them to end."""
        self._closed = True
        self._events.put_nowait(None)
        await cancel_and_wait(self._running.values())

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Answer a request as an app would: ``initialize``, ``capabilities/list``, ``…/call`` or ``…/cancel``."""
        if self._closed:
            raise Disconnected("the transport is closed; connect again", sent=False)
        payload: Any = message.payload
        match message.type:
            case "initialize":
                result: object = {
                    "sessionId": new_id(),
                    "protocolVersion": PROTOCOL_VERSION,
                    "app": {"id": "memory", "name": "In-process app", "version": "1"},
                    "capabilities": [{"name": name, "available": True} for name in self._handlers],
                }
            case "capabilities/list":
                result = [
                    {"name": name, "description": (handler.__doc__ or "").strip()}
                    for name, handler in self._handlers.items()
                ]
            case "capabilities/call":
                result = await self._call_handler(payload, timeout)
            case "capabilities/cancel":
                result = {"callId": payload["callId"], "cancelled": self._cancel_handler(payload)}
            case _:
                raise ProtocolError(f"this transport has no request {message.type!r}")
        return Message(f"{message.type}-result", self._hold_large_content(result), id=message.id)

    async def _call_handler(self, payload: Any, timeout: float) -> object:
        """Return the app's answer to a call, or raise the failure that its handler simulates."""
        name = payload["capability"]
        call_id = payload["options"]["callId"]
        if name in self._answers:
            return self._answers[name]
        if name not in self._handlers:
            return _error_answer(CapabilityError("no such capability", code="UNKNOWN_CAPABILITY"))

        call = Call(call_id, name, self)
        task = asyncio.ensure_future(_run_handler(self._handlers[name], payload["params"], call))
        self._running[call_id] = task
        task.add_done_callback(lambda _: self._running.pop(call_id, None))

        # A handler goes on after the timeout, as an app does, until its call is cancelled.
        await asyncio.wait((task,), timeout=timeout)
        if not task.done():
            raise no_answer("", timeout)
        if self._closed:
            raise Disconnected("the transport was closed during the call")
        if task.cancelled():
            return {"success": False, "cancelled": True}
        answer = task.result()
        if isinstance(answer, ABPError):
            raise answer
        return answer

    def _cancel_handler(self, payload: Any) -> bool:
        task = self._running.get(payload["callId"])
        if task is None:
            return False
        self.cancelled[payload["callId"]] = payload.get("reason", "")
        return task.cancel()

    def _hold_large_content(self, result: object) -> object:
        """Replace content over 256 KiB by handles, as pages do."""
        replacements: dict[Place, object] = {}
        with contextlib.suppress(ProtocolError):  # nested too deeply: the session reports that
            for item in find_values(result):
                binary = item.binary
                if not isinstance(binary, BinaryData) or not isinstance(binary.content, bytes):
                    continue
                size = len(binary.content)
                if size > 256 << 10:
                    handle = Handle(str(next(self._handle_ids)), size)
                    self._held[handle.id] = binary.content
                    replacements[item.path] = dataclasses.replace(binary, content=handle)
        return replace_values(result, replacements)

    async def notify(self, message: Message) -> None:
        """Resolve an elicitation with its ``elicitation/response``. Other messages are ignored."""
        if message.type != "elicitation/response":
            return
        elicitation = self._elicitations.get(message.id or "")
        if elicitation is not None and not elicitation.done():
            payload: Any = message.payload
            elicitation.set_result(payload)

    def emit(self, message: Message) -> None:
        """Send an event to the client."""
        self._events.put_nowait(message)

    async def ask(self, message: Message) -> Mapping[str, Any]:
        """Send an elicitation request to the client and wait for its answer."""
        message.id = new_id()
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._elicitations[message.id] = answer
        self.emit(message)
        try:
            return await answer
        finally:
            del self._elicitations[message.id]

    async def events(self) -> AsyncIterator[Message]:
        """Yield the messages of handlers, in order, until the transport is closed."""
        while (message := await self._events.get()) is not None:
            yield message

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Write held content to ``path``. Raises :class:`~transports.errors.UnsupportedBinary` if it was released."""
        if handle.id not in self._held:
            raise UnsupportedBinary("the content is no longer there")
        await asyncio.to_thread(path.write_bytes, self._held[handle.id])

    async def release(self, handle: Handle) -> None:
        """Drop held content."""
        self._held.pop(handle.id, None)


async def _run_handler(handler: Handler, params: Mapping[str, object], call: Call) -> object:
    """Run a handler. Return its answer in an app's form, or the transport failure that it simulates."""
    try:
        answer = handler(params, call)
        if not inspect.isawaitable(answer):
            raise UsageError(f"the handler of {call.capability} must be a coroutine function: define it with async def")
        return {"success": True, "data": await answer}
    except (CallTimeout, Disconnected) as error:
        return error
    except ABPError as error:
        return _error_answer(error)
    except Exception as error:  # noqa: BLE001 - any exception of a handler is an error answer of the app
        return _error_answer(CapabilityError(f"the app threw {type(error).__name__}: {error}"))


def _error_answer(error: ABPError) -> dict[str, object]:
    info: dict[str, object] = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.retry_after is not None:
        info["retryAfter"] = error.retry_after * 1000
    if error.details:
        info["details"] = error.details
    if error.alternatives:
        info["alternatives"] = list(error.alternatives)
    return {"success": False, "error": info, "cancelled": getattr(error, "cancelled", False)}
