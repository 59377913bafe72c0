"""The proxy over streamable HTTP, for clients with tokens: a server for each session, or one behind an address."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Protocol

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend, RequireAuthMiddleware
from mcp.server.transport_security import TransportSecurityMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope as HttpScope, Send

from ...._internal.tasks import begin, cancel_and_wait, spawn
from ....artifacts._ref import Scope
from ....errors import ConnectFailed, ProtocolError, TooLarge
from ....mcp._servers import HttpServer, Server, StdioServer
from .._access import BearerVerifier
from .._http import PATH, local_security, serve_app
from ._address import SESSION, VERSION
from ._exchange import Shared
from ._messages import PARSE_ERROR, STATELESS_VERSIONS, UNAVAILABLE, Message, read_message
from ._responses import Bodies, event, refusal, stream_response
from ._reverse import ReverseProxy
from ._sessions import Session


class Endpoint(Protocol):
    """Protocol for the part that answers the requests of users."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return a block at whose end everything is released."""

    async def serve(self, request: Request, user: str) -> Response:
        """Answer one request."""


async def serve_proxy(
    server: Server,
    shared: Shared,
    address: tuple[str, int],
    users: Mapping[str, str],
    on_started: Callable[[str], object],
) -> None:
    """Serve clients over HTTP until cancelled. Each needs a bearer token of ``users`` (token to user), and a ``Host``
    and ``Origin`` of this machine or of ``address``.

    Raises :class:`~transports.errors.UsageError` (``ADDRESS_UNAVAILABLE``) if the address cannot be listened on."""
    served: Endpoint = ReverseProxy(server, shared) if isinstance(server, HttpServer) else _Sessions(server, shared)
    security = TransportSecurityMiddleware(local_security(address[0]))

    async def endpoint(scope: HttpScope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await security.validate_request(request, is_post=request.method == "POST")
        if response is None:
            holder = request.scope["user"]
            assert isinstance(holder, AuthenticatedUser)
            response = await served.serve(request, holder.access_token.subject or holder.access_token.client_id)
        await response(scope, receive, send)

    def app(_: str) -> Starlette:
        return Starlette(
            routes=[Route(PATH, endpoint=RequireAuthMiddleware(endpoint, []))],
            middleware=[
                Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(BearerVerifier(users, None))),
            ],
        )

    # each session has a process
    await serve_app(app, *address, on_started, served.running(), max_sessions=20)


class _Sessions:
    """Servers that are started: one for each session of a client with a handshake, and one for each user of clients
    without."""

    def __init__(self, server: StdioServer, shared: Shared) -> None:
        self._server = server
        self._shared = shared
        self._bodies = Bodies()
        self._sessions: dict[tuple[str, str], Session] = {}
        #: _Sessions of users whose clients have none, which may still be starting.
        self._by_user: dict[str, asyncio.Task[Session]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End sessions without a request for half an hour during a block, and all at its end."""
        ending = begin(self._end_idle())
        try:
            yield
        finally:
            await cancel_and_wait((ending, *self._by_user.values()))
            for session in (*self._sessions.values(), *self._user_sessions().values()):
                spawn(session.aclose(), self._closing)
            if self._closing:
                await asyncio.wait(self._closing)

    def _user_sessions(self) -> dict[str, Session]:
        started = {user: task for user, task in self._by_user.items() if task.done() and not task.cancelled()}
        return {user: task.result() for user, task in started.items() if task.exception() is None}

    async def _end_idle(self) -> None:
        while True:
            await asyncio.sleep(60)
            before = time.monotonic() - 30 * 60

            def is_over(session: Session, before: float = before) -> bool:
                return not session.is_alive or (session.is_idle and session.used < before)

            for key in [key for key, session in self._sessions.items() if is_over(session)]:
                spawn(self._sessions.pop(key).aclose(), self._closing)
            for user, session in self._user_sessions().items():
                if is_over(session):
                    del self._by_user[user]
                    spawn(session.aclose(), self._closing)

    async def serve(self, request: Request, user: str) -> Response:
        is_modern = request.headers.get(VERSION) in STATELESS_VERSIONS
        name = request.headers.get(SESSION, "")
        session = self._sessions.get((user, name))
        if session is not None and not session.is_alive:
            spawn(self._sessions.pop((user, name)).aclose(), self._closing)
            session = None
        if is_modern and request.method != "POST":
            return refusal(405, "only POST")
        if name and session is None and not is_modern:
            return refusal(404, "this session has ended; initialize again")
        if request.method == "DELETE":
            if session is not None:
                spawn(self._sessions.pop((user, name)).aclose(), self._closing)
            return Response(status_code=200)
        if request.method == "GET":
            if session is None:
                return refusal(400, "initialize first")
            return stream_response(_listening(session))
        body = await self._bodies.read(request, user)
        if isinstance(body, Response):
            return body
        try:
            message = await read_message(body)
        except TooLarge as error:
            return refusal(413, error.message, code=error.code)
        except ProtocolError:
            return refusal(400, "the request is not a JSON-RPC message", number=PARSE_ERROR)
        try:
            if is_modern:
                return await self._post_by_user(message, user)
            return await self._post(message, user, session)
        except ConnectFailed as error:
            return refusal(502, error.message, number=UNAVAILABLE, code=error.code)

    async def _post(self, message: Message, user: str, session: Session | None) -> Response:
        headers: dict[str, str] = {}
        if session is None:
            if message.method != "initialize" or not message.is_request:
                return refusal(400, "initialize first, or name the session")
            name = secrets.token_urlsafe(24)
            exchange = self._shared.exchange(Scope(user=user, session=name))
            session = self._sessions[user, name] = await Session.start(self._server, exchange)
            headers = {SESSION: name}
        if not message.is_request:
            await session.send(message)
            return Response(status_code=202)
        return stream_response(_answering(session, message), headers)

    async def _post_by_user(self, message: Message, user: str) -> Response:
        """Answer a client without a session. Only its requests are passed on: its notifications and answers could be
        about those of another client of the user."""
        if not message.is_request:
            return Response(status_code=202)
        task = self._by_user.get(user)
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().is_alive)):
            if task is not None and not task.cancelled() and not task.exception():
                spawn(task.result().aclose(), self._closing)
            exchange = self._shared.exchange(Scope(user=user))
            task = asyncio.ensure_future(Session.start(self._server, exchange, is_shared=True))
            self._by_user[user] = task
        return stream_response(_answering(await asyncio.shield(task), message))


async def _answering(session: Session, message: Message) -> AsyncGenerator[bytes, None]:
    async with aclosing(session.request(message)) as messages:
        async for raw in messages:
            yield event(raw)


async def _listening(session: Session) -> AsyncGenerator[bytes, None]:
    yield b": listening\n\n"
    async with aclosing(session.listen()) as messages:
        async for raw in messages:
            yield event(raw)
