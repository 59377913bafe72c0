"""The proxy over streamable HTTP, for clients with tokens: a server for each session, or one behind an address."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Protocol

import msgspec
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
from ....protocol._strict_json import encode_json
from .._access import BearerVerifier
from .._http import PATH, local_security, serve_app
from ._address import SESSION, VERSION
from ._duplex import Duplex
from ._exchange import Exchange, Passed, Shared
from ._messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    STATELESS_VERSIONS,
    SUBSCRIPTION_ID,
    UNAVAILABLE,
    Key,
    Message,
    error_message,
    key_of,
    read_message,
)
from ._reverse import Bodies, ReverseProxy, event, refusal, stream_response
from ._rewriting import FIELDS, fields_of
from ._upstream import ProcessServer

logger = logging.getLogger("transports")


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
        #: Sessions of users whose clients have none, which may still be starting.
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


# --- sessions ---------------------------------------------------------------------------------------------------------


class _Stream:
    """Messages for one response. A client that takes none for a minute is cut off."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._ended = False

    async def write(self, raw: bytes) -> None:
        """Add a message, once there is room for it. Nothing happens if the client has gone."""
        try:
            async with asyncio.timeout(60):
                await self._has_room.wait()
        except TimeoutError:
            self.end()
        if self._ended:
            return
        self._messages.put_nowait(raw)
        if self._messages.qsize() >= 4:
            self._has_room.clear()

    def end(self) -> None:
        """End the response after the messages that wait."""
        self._ended = True
        self._has_room.set()
        self._messages.put_nowait(None)

    async def messages(self) -> AsyncGenerator[bytes, None]:
        try:
            while (raw := await self._messages.get()) is not None:
                self._has_room.set()
                yield raw
        finally:
            self._ended = True
            self._has_room.set()


class Session:
    """A server with its client, or with the clients of one user that have no session (``is_shared``).

    If clients share it, a message that belongs to no request reaches none of them: it may be about the call of any."""

    def __init__(self, process: ProcessServer, exchange: Exchange, *, is_shared: bool = False) -> None:
        self.used = time.monotonic()
        self._process = process
        self._is_shared = is_shared
        self._streams: dict[Key, _Stream] = {}
        self._listener: _Stream | None = None
        #: Messages that wait for a client to listen, at most 1 MiB together.
        self._unheard: deque[bytes] = deque()
        self._identities = itertools.count(1)
        self._duplex = Duplex(exchange, process.send, self._write_message)
        self._exchange = exchange
        self._running = begin(self._relay())

    @classmethod
    async def start(cls, server: StdioServer, exchange: Exchange, *, is_shared: bool = False) -> Session:
        return cls(await ProcessServer.start(server), exchange, is_shared=is_shared)

    @property
    def is_alive(self) -> bool:
        return not self._running.done()

    @property
    def is_idle(self) -> bool:
        return not self._streams and self._listener is None

    async def send(self, message: Message) -> None:
        self.used = time.monotonic()
        await self._duplex.pass_on(message)

    async def request(self, message: Message) -> AsyncGenerator[bytes, None]:
        """Send a request, and yield the messages that belong to it and its answer.

        Without a session, it is sent with an id and a token for progress that no other client has."""
        restored: Mapping[Key, msgspec.Raw] = {}
        if self._is_shared:
            message, restored = await self._with_own_ids(message)
        assert message.key is not None
        if message.key in self._streams:
            reason = "a request with this id is still running; use another id"
            yield error_message(bytes(message.envelope.id), INVALID_REQUEST, reason)
            return
        stream = self._streams[message.key] = _Stream()
        answered = False
        try:
            if not self.is_alive:
                stream.end()
            await self._duplex.pass_on(message)
            async with aclosing(stream.messages()) as messages:
                async for raw in messages:
                    answered = message.key not in self._streams
                    if restored:
                        raw = _with_ids(raw, restored)
                    yield raw
            if not answered and not self.is_alive:
                identity = restored.get(message.key, message.envelope.id)
                yield error_message(bytes(identity), UNAVAILABLE, self._process.reason())
                answered = True
        finally:
            if self._streams.get(message.key) is stream:
                del self._streams[message.key]
                if self._is_shared and not answered:  # the client has gone, which is how it cancels
                    self._exchange.answered(message.key)
                    cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}'
                    await self._duplex.from_client(cancelled % bytes(message.envelope.id))
            self.used = time.monotonic()

    async def listen(self) -> AsyncGenerator[bytes, None]:
        if self._listener is not None:
            self._listener.end()
        stream = self._listener = _Stream()
        try:
            while self._unheard:
                yield self._unheard.popleft()
            async with aclosing(stream.messages()) as messages:
                async for raw in messages:
                    yield raw
        finally:
            if self._listener is stream:
                self._listener = None
            self.used = time.monotonic()

    async def aclose(self) -> None:
        await cancel_and_wait((self._running,))
        await self._duplex.aclose()
        await self._process.aclose()

    async def _relay(self) -> None:
        reading = asyncio.ensure_future(self._process.run(self._duplex.from_server))
        try:
            await asyncio.wait((reading, self._duplex.failed), return_when=asyncio.FIRST_COMPLETED)
            for ended in (reading, self._duplex.failed):
                if ended.done():
                    ended.result()
        except ProtocolError as error:
            logger.warning("%s", error.message)
        except Exception:
            logger.exception("a session has ended")
        finally:
            await cancel_and_wait((reading,))
            asyncio.get_running_loop().call_soon(self._end_streams)  # when `is_alive` is false

    def _end_streams(self) -> None:
        for stream in (*self._streams.values(), *filter(None, [self._listener])):
            stream.end()

    async def _write_message(self, message: Passed) -> None:
        """Pass on a message: to the response of its request, else to the stream of all others, else to any response of
        the same client."""
        if message.request is not None and message.request in self._streams:
            stream = self._streams[message.request]
            if message.answers:
                del self._streams[message.request]
            if message.raw:
                await stream.write(message.raw)
            if message.answers:
                stream.end()
            return
        if message.answers or self._is_shared:  # of a request whose client has gone, or of no client that is known
            return
        listener = self._listener or next(iter(self._streams.values()), None)
        if listener is not None:
            await listener.write(message.raw)
        elif sum(map(len, self._unheard)) + len(message.raw) <= 1 << 20:
            self._unheard.append(message.raw)

    async def _with_own_ids(self, message: Message) -> tuple[Message, Mapping[Key, msgspec.Raw]]:
        """Return a request with an id and a token of progress of the proxy, and the client's by the proxy's."""
        fields = fields_of(message.raw)
        identity = next(self._identities)
        restored: dict[Key, msgspec.Raw] = {identity: fields["id"]}
        fields["id"] = msgspec.Raw(b"%d" % identity)
        with suppress(ValueError, KeyError):
            params = FIELDS.decode(fields["params"])
            meta = FIELDS.decode(params["_meta"])
            token = next(self._identities)
            restored[token] = meta["progressToken"]
            meta["progressToken"] = msgspec.Raw(b"%d" % token)
            params["_meta"] = msgspec.Raw(encode_json(meta))
            fields["params"] = msgspec.Raw(encode_json(params))
        return await read_message(encode_json(fields)), restored


def _with_ids(raw: bytes, restored: Mapping[Key, msgspec.Raw]) -> bytes:
    """Return a message with the client's ids in the place of the proxy's. The first of these is that of the request,
    which gets an error if its answer cannot be read: the client would not know the answer."""
    try:
        fields = fields_of(raw)
        _restore(fields, ("id",), restored)
        for name in ("params", "result"):
            if name in fields:
                fields[name] = _with_ids_inside(fields[name], restored)
        return encode_json(fields)
    except (ValueError, RecursionError):
        identity = bytes(next(iter(restored.values())))
        return error_message(identity, INTERNAL_ERROR, "the server's answer is not valid JSON")


def _with_ids_inside(value: msgspec.Raw, restored: Mapping[Key, msgspec.Raw]) -> msgspec.Raw:
    try:
        fields = FIELDS.decode(value)
        _restore(fields, ("progressToken", "requestId"), restored)
        if "_meta" in fields:
            meta = FIELDS.decode(fields["_meta"])
            _restore(meta, (SUBSCRIPTION_ID,), restored)
            fields["_meta"] = msgspec.Raw(encode_json(meta))
        return msgspec.Raw(encode_json(fields))
    except ValueError:  # parameters or a result of another form
        return value


def _restore(fields: dict[str, msgspec.Raw], names: Sequence[str], restored: Mapping[Key, msgspec.Raw]) -> None:
    for name in names:
        if name in fields:
            key = key_of(fields[name])
            if key is not None and key in restored:
                fields[name] = restored[key]
