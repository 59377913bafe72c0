"""An app in the same process, for tests: no browser, no socket, the same session.

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
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ..base import Features, Transport
from ..binary import BinaryData, Handle
from ..binary.detect import Place, find, replace
from ..errors import ABPError, CallTimeout, CapabilityError, Disconnected, ProtocolError, UnsupportedBinary
from ..protocol.messages import PROTOCOL_VERSION, Message

__all__ = ["Call", "Handler", "MemoryTransport"]

#: Seconds for handlers to end once they are cancelled.
_CLOSE = 1.0

Handler: TypeAlias = Callable[[Mapping[str, object], "Call"], Awaitable[object]]


@dataclass(slots=True)
class Call:
    """What a handler knows of its call, and how it speaks to the client meanwhile."""

    id: str
    capability: str
    _transport: MemoryTransport = field(repr=False)

    async def progress(self, **fields: object) -> None:
        """Report progress; fields as in PROTOCOL (``progress``, ``total``, ``percentage``, ``stage`` …)."""
        self._transport.emit(Message("progress", {"operationId": self.id, **fields}))

    async def notify(self, event: str, data: object = None) -> None:
        """Send a notification."""
        self._transport.emit(Message("notification", {"event": event, "data": data}))

    async def elicit(self, method: str, params: Mapping[str, object]) -> Mapping[str, Any]:
        """Ask the client; returns ``{success, data?, cancelled?}``."""
        return await self._transport.ask(Message("elicitation/request", {"method": method, "params": dict(params)}))


class MemoryTransport(Transport):
    """An ABP app made of coroutine functions. A handler returns the answer's ``data`` (content as ``bytes`` or
    :class:`~transports.BinaryData`), or raises :class:`~transports.errors.CapabilityError`. ``answers`` maps
    capabilities to raw answers, for apps that break the rules."""

    name = "memory"
    features = Features(listing=True)

    def __init__(self, handlers: Mapping[str, Handler], *, answers: Mapping[str, object] | None = None) -> None:
        self._handlers = handlers
        self._answers = answers or {}
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._running: dict[str, asyncio.Task[object]] = {}
        self._asked: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._held: dict[str, bytes] = {}
        self._keys = itertools.count()
        self._closed = True
        #: Ids of calls that were cancelled, and why.
        self.cancelled: dict[str, str] = {}

    async def open(self) -> None:
        self._closed = False

    async def aclose(self) -> None:
        self._closed = True
        self._events.put_nowait(None)
        tasks = tuple(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE)

    async def request(self, message: Message, *, timeout: float) -> Message:
        if self._closed:
            raise Disconnected("the transport is closed; connect again")
        payload: Any = message.payload
        match message.type:
            case "initialize":
                app = {"id": "memory", "name": "In-process app", "version": "1"}
                names = [{"name": name, "available": True} for name in self._handlers]
                result: object = {
                    "sessionId": str(uuid.uuid4()),
                    "protocolVersion": PROTOCOL_VERSION,
                    "app": app,
                    "capabilities": names,
                }
            case "capabilities/list":
                result = [
                    {"name": name, "description": (h.__doc__ or "").strip()} for name, h in self._handlers.items()
                ]
            case "capabilities/call":
                result = await self._call(payload, timeout)
            case "capabilities/cancel":
                result = {"callId": payload["callId"], "cancelled": self._cancel(payload)}
            case _:
                raise ProtocolError(f"this transport has no request {message.type!r}")
        return Message(f"{message.type}-result", self._hold(result), id=message.id)

    async def _call(self, payload: Any, timeout: float) -> object:
        name, call_id = payload["capability"], payload["options"]["callId"]
        if name in self._answers:
            return self._answers[name]
        if name not in self._handlers:
            return _refusal(CapabilityError("no such capability", code="UNKNOWN_CAPABILITY"))
        task = asyncio.ensure_future(_perform(self._handlers[name], payload["params"], Call(call_id, name, self)))
        self._running[call_id] = task
        task.add_done_callback(lambda _: self._running.pop(call_id, None))
        done, _ = await asyncio.wait((task,), timeout=timeout)
        if not done:
            raise CallTimeout(f"no answer within {timeout:g} s")
        if self._closed:
            raise Disconnected("the transport was closed during the call")
        if task.cancelled():
            return {"success": False, "cancelled": True}
        answer = task.result()
        if isinstance(answer, ABPError):
            raise answer
        return answer

    def _cancel(self, payload: Any) -> bool:
        task = self._running.get(payload["callId"])
        if task is None:
            return False
        self.cancelled[payload["callId"]] = payload.get("reason", "")
        return task.cancel()

    def _hold(self, result: object) -> object:
        """Large content stays here, behind a handle, as in a page."""
        places: dict[Place, object] = {}
        with contextlib.suppress(ProtocolError):  # too deep: the session finds that out by itself
            for item in find(result):
                binary = item.binary
                if (
                    isinstance(binary, BinaryData)
                    and isinstance(binary.content, bytes)
                    and len(binary.content) > 1 << 18
                ):
                    key = str(next(self._keys))
                    self._held[key] = binary.content
                    places[item.path] = BinaryData(
                        Handle(key, len(binary.content)), binary.mime_type, binary.size, binary.filename, binary.extra
                    )
        return replace(result, places)

    async def notify(self, message: Message) -> None:
        if message.type == "elicitation/response" and (asked := self._asked.get(message.id or "")):
            payload: Any = message.payload
            if not asked.done():
                asked.set_result(payload)

    def emit(self, message: Message) -> None:
        """Send an event to the client."""
        self._events.put_nowait(message)

    async def ask(self, message: Message) -> Mapping[str, Any]:
        """Send an elicitation request and wait for its answer."""
        message.id = key = str(uuid.uuid4())
        self._asked[key] = asyncio.get_running_loop().create_future()
        self.emit(message)
        try:
            return await self._asked[key]
        finally:
            del self._asked[key]

    async def events(self) -> AsyncIterator[Message]:
        while (message := await self._events.get()) is not None:
            yield message

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        if handle.id not in self._held:
            raise UnsupportedBinary("the content is no longer there")
        await asyncio.to_thread(path.write_bytes, self._held[handle.id])

    async def release(self, handle: Handle) -> None:
        self._held.pop(handle.id, None)


async def _perform(handler: Handler, params: Mapping[str, object], call: Call) -> object:
    """The answer that an app would make of what its handler does, or a failure of the transport that it plays."""
    try:
        return {"success": True, "data": await handler(params, call)}
    except (CallTimeout, Disconnected) as error:
        return error
    except ABPError as error:
        return _refusal(error)
    except Exception as error:  # noqa: BLE001 - whatever an app throws is an answer
        return _refusal(CapabilityError(f"the app threw {type(error).__name__}: {error}"))


def _refusal(error: ABPError) -> dict[str, object]:
    described: dict[str, object] = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.retry_after is not None:
        described["retryAfter"] = error.retry_after * 1000
    if error.details:
        described["details"] = error.details
    if error.alternatives:
        described["alternatives"] = list(error.alternatives)
    return {"success": False, "error": described, "cancelled": getattr(error, "cancelled", False)}
