"""Limits of one user over HTTP, as ASGI middleware: concurrent requests, and sessions."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._messages import error_body

#: Maximum number of sessions (of clients with a handshake) of one user.
MAX_SESSIONS = 100
_SESSION = "mcp-session-id"


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
        sessions = self._sessions[user]
        headers = Headers(scope=scope)
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
            await self._open_session(user, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _open_session(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        sessions = self._sessions[user]
        if sum(map(bool, sessions.values())) + self._opening[user] >= self._max_sessions:
            message = (
                f"{self._max_sessions} sessions of this user are in use, which is the limit; end one of them first"
            )
            await _refusal(message)(scope, receive, send)
            return

        async def noting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened = Headers(raw=message["headers"]).get(_SESSION)
                if opened:
                    sessions[opened] = 0
            await send(message)

        self._opening[user] += 1
        try:
            await self._app(scope, receive, noting_send)
        finally:
            self._opening[user] -= 1
        while len(sessions) > self._max_sessions:
            idle = [session for session, requests in sessions.items() if not requests]
            if not idle:
                break
            del sessions[idle[0]]
            await self._end_session(idle[0], scope)

    async def _end_session(self, session: str, scope: Scope) -> None:
        """End a session of the user of ``scope``, as its client would (DELETE)."""
        headers = [(name, value) for name, value in scope["headers"] if name in (b"host", b"origin")]
        headers.append((_SESSION.encode(), session.encode()))
        request = {**scope, "method": "DELETE", "headers": headers}

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
