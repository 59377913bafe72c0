"""Limits of one request over HTTP, as ASGI middleware: its size, its values and its time. A client reads a typed error,
where it would see a reset connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from mcp_types import INVALID_REQUEST
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import CallTimeout, TooLarge
from ...protocol.strict_json import MAX_REQUESTED, ValueCounter
from ..shared.body_deadline import SLOW_BODY, BodyDeadline
from ..shared.connections import Connections

__all__ = ["TOO_MANY", "ServedConnection", "SlowReply", "TooLargeReply", "error_body"]

#: Bytes of a request that are read to its end and dropped, as a multiple of the limit, and seconds that this may take.
_MAX_DRAIN, _DRAIN_TIMEOUT = 8, 60.0


class TooLargeReply:
    """ASGI middleware that replaces a reply of status 413 by a JSON-RPC error whose ``data`` has the code ``TOO_LARGE``
    and the ``limit``, and gives it for a request of more than 50,000 values and names, too. These are counted as they
    come: to the application such a client is gone.

    The rest of the request is read first, and dropped: a client reads no reply before it has sent its request."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, max_file_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        message = (
            f"the request has more than {max_bytes:,} bytes; files in it may have {max_file_bytes:,} together "
            "(max_file_bytes): send fewer at once, name an artifact, or have the user raise the limit"
        )
        self._error = error_body(message, code=TooLarge.code, limit=max_file_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        complete = refused = over = False
        counter = ValueCounter()

        async def tracked_receive() -> Message:
            nonlocal complete, over
            message = await receive()
            complete = complete or not message.get("more_body", False)
            over = over or counter.add(message.get("body", b"")) > MAX_REQUESTED
            return {"type": "http.disconnect"} if over else message

        async def tracked_send(message: Message) -> None:
            nonlocal refused
            refused = refused or over or (message["type"] == "http.response.start" and message["status"] == 413)
            if not refused:
                await send(message)

        try:
            await self._app(scope, tracked_receive, tracked_send)
        except Exception:
            if not over:
                raise
        if not (refused or over):
            return
        left = _MAX_DRAIN * self._max_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_TIMEOUT):
                while not complete and left > 0:
                    message = await receive()
                    complete = not message.get("more_body", False)
                    left -= len(message.get("body", b""))
        await JSONResponse(TOO_MANY if over else self._error, 413)(scope, receive, send)


class SlowReply:
    """ASGI middleware that ends a request whose body takes too long, with the status 408 and a JSON-RPC error whose
    ``data`` has the code ``TIMEOUT``. To the application it is a client that is gone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        deadline, complete, late, started = BodyDeadline(), False, False, False

        async def timed_receive() -> Message:
            nonlocal complete, late
            if complete:  # it ends with the connection, whenever that is
                return await receive()
            try:
                message = await deadline.wait(receive())
            except TimeoutError:
                complete = late = True
                return {"type": "http.disconnect"}
            deadline.count(len(message.get("body", b"")))
            complete = not message.get("more_body", False)
            return message

        async def timed_send(message: Message) -> None:
            nonlocal started
            if not late or started:
                started = True
                await send(message)

        try:
            await self._app(scope, timed_receive, timed_send)
        except Exception:
            if not late or started:
                raise
        if late and not started:
            error = error_body(SLOW_BODY, code=CallTimeout.code)
            await JSONResponse(error, 408, headers={"Connection": "close"})(scope, receive, send)


class ServedConnection:
    """ASGI middleware that counts the connection of a request as one that is served."""

    def __init__(self, app: ASGIApp, *, connections: Connections) -> None:
        self._app = app
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._connections.serving():
            await self._app(scope, receive, send)


def error_body(message: str, **data: object) -> dict[str, object]:
    """Return the JSON-RPC error of a request that is refused before it is read."""
    return {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": INVALID_REQUEST, "message": message, "data": data},
    }


#: The error of a message with more than :data:`~transports.protocol.strict_json.MAX_REQUESTED`, as JSON-RPC has it.
TOO_MANY: Mapping[str, object] = error_body(
    f"the request has more than {MAX_REQUESTED:,} values and names; send fewer at once, or send them as a file",
    code=TooLarge.code,
    limit=MAX_REQUESTED,
)
