"""Limits of requests over HTTP, as ASGI middleware: size, number of values, time, and requests and sessions of a user.

A client gets a typed error instead of a reset connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp_types import INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import CallTimeout, TooLarge
from ...protocol._strict_json import MAX_REQUESTED, ValueCounter
from ..shared._connections import SLOW_BODY, BodyDeadline, Connections

#: Most bytes of a refused request that are read and dropped, as a multiple of the limit, and the timeout in seconds.
_MAX_DRAIN, _DRAIN_TIMEOUT = 8, 60.0
#: Most sessions (of clients with a handshake) of one user.
MAX_SESSIONS = 100
_SESSION = "mcp-session-id"


class TooLargeReply:
    """ASGI middleware for the size limit of requests. It replaces a reply of status 413 by a JSON-RPC error whose
    ``data`` has the code ``TOO_LARGE`` and the ``limit``. A request of more than 50,000 values and names gets this
    error too. The values are counted on arrival; above the limit, the application sees a disconnected client.

    The rest of the request is read and dropped first, since a client reads no reply before it has sent its request."""

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
    """ASGI middleware for the deadline of request bodies. A late request gets the status 408 and a JSON-RPC error whose
    ``data`` has the code ``TIMEOUT``; the application sees a disconnected client."""

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
            if complete:  # waits for the disconnection, which has no deadline
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
    """ASGI middleware that counts the connection of a request as being served."""

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
    """Return the JSON-RPC error for a request that is refused before it is parsed."""
    return {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": INVALID_REQUEST, "message": message, "data": data},
    }


#: JSON-RPC error for a message with more than :data:`~transports.protocol._strict_json.MAX_REQUESTED` values and names.
TOO_MANY: Mapping[str, object] = error_body(
    f"the request has more than {MAX_REQUESTED:,} values and names; send fewer at once, or send them as a file",
    code=TooLarge.code,
    limit=MAX_REQUESTED,
)


class UserLimits:
    """ASGI middleware that limits the concurrent requests of a user to ``max_requests``, and the user's sessions to
    ``max_sessions`` (:data:`MAX_SESSIONS`).

    A new session above the limit ends the user's least recently used session without running requests, as its client
    would end it. If all sessions are in use, and for requests above the limit, the reply has status 429 and a JSON-RPC
    error with the code ``LIMIT_REACHED``."""

    def __init__(self, app: ASGIApp, *, max_requests: int, max_sessions: int | None = None) -> None:
        self._app = app
        self._max_requests = max_requests
        self._max_sessions = MAX_SESSIONS if max_sessions is None else max_sessions
        self._requests: Counter[str] = Counter()
        self._opening: Counter[str] = Counter()
        #: Number of running requests of each session, by user, least recently used session first. Sessions that ended
        #: by themselves stay until they are the oldest; they are never in use.
        self._sessions: defaultdict[str, OrderedDict[str, int]] = defaultdict(OrderedDict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        holder = scope.get("user")
        if scope["type"] != "http" or not isinstance(holder, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        user = holder.access_token.subject or holder.access_token.client_id
        if self._requests[user] >= self._max_requests:
            await _refusal(
                f"{self._max_requests} requests of this user are under way, which is the limit; wait for one to end"
            )(scope, receive, send)
            return
        self._requests[user] += 1
        try:
            await self._serve(user, scope, receive, send)
        finally:
            self._requests[user] -= 1
            if not self._requests[user]:
                del self._requests[user]

    async def _serve(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers, sessions = Headers(scope=scope), self._sessions[user]
        session = headers.get(_SESSION)
        if session is not None and session in sessions:
            sessions[session] += 1
            sessions.move_to_end(session)
            try:
                await self._app(scope, receive, send)
            finally:
                if session in sessions:
                    sessions[session] -= 1
                    sessions.move_to_end(session)
        elif session is None and scope["method"] == "POST" and _has_handshake(headers):
            await self._open(user, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _open(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        sessions = self._sessions[user]
        if sum(map(bool, sessions.values())) + self._opening[user] >= self._max_sessions:
            message = (
                f"{self._max_sessions} sessions of this user are in use, which is the limit; end one of them first"
            )
            await _refusal(message)(scope, receive, send)
            return

        async def noting_send(message: Message) -> None:
            if message["type"] == "http.response.start" and (opened := Headers(raw=message["headers"]).get(_SESSION)):
                sessions[opened] = 0
            await send(message)

        self._opening[user] += 1
        try:
            await self._app(scope, receive, noting_send)
        finally:
            self._opening[user] -= 1
        while len(sessions) > self._max_sessions and (
            idle := next((one for one in sessions if not sessions[one]), None)
        ):
            del sessions[idle]
            await self._end(idle, scope)

    async def _end(self, session: str, scope: Scope) -> None:
        """End a session of the user of ``scope``, as its client would (DELETE)."""
        kept = [(name, value) for name, value in scope["headers"] if name in (b"host", b"origin")]
        request = {**scope, "method": "DELETE", "headers": [*kept, (_SESSION.encode(), session.encode())]}

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Message) -> None:
            pass

        await self._app(request, receive, send)


def _has_handshake(headers: Headers) -> bool:
    version = headers.get("mcp-protocol-version")
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _refusal(message: str) -> JSONResponse:
    return JSONResponse(error_body(message, code="LIMIT_REACHED", retryable=True), 429)
