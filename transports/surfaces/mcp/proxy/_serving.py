"""The proxy over streamable HTTP, for clients with tokens: a server for each session, or one behind an address."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial

import anyio
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

from ...._internal.tasks import cancel_and_wait, spawn, start_task
from ....artifacts._ref import Scope
from ....errors import ConnectFailed, ProtocolError, TooLarge
from ....mcp._events import encode_event
from ....mcp._servers import HttpServer, Server, StdioServer
from ....protocol._strict_json import encode_json
from .._http import PATH, BearerVerifier, security_for, serve_app
from ._address import SESSION, VERSION
from ._duplex import Duplex
from ._exchange import ClientMessage, Exchange, ProxyContext
from ._messages import (
    FIELDS_DECODER,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    STATELESS_VERSIONS,
    SUBSCRIPTION_ID,
    UNAVAILABLE,
    Key,
    Message,
    error_message,
    fields_in,
    fields_of,
    key_or_none,
    read_message,
    to_raw,
)
from ._reverse import Bodies, ReverseProxy, error_response, stream_response
from ._upstream import ProcessServer

logger = logging.getLogger("transports")


async def serve_proxy(
    server: Server,
    context: ProxyContext,
    address: tuple[str, int],
    users: Mapping[str, str],
    on_started: Callable[[str], object],
) -> None:
    """Serve the proxy over HTTP at ``address``. Each client needs a bearer token of ``users`` (token to user), and a
    ``Host`` and ``Origin`` of this machine or of ``address``. ``on_started`` is called with the URL."""
    proxy: ReverseProxy | _Sessions
    if isinstance(server, HttpServer):
        proxy = ReverseProxy(server, context)
    else:
        proxy = _Sessions(server, context)
    security = TransportSecurityMiddleware(security_for(address[0]))

    async def endpoint(scope: HttpScope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await security.validate_request(request, is_post=request.method == "POST")
        if response is None:
            authenticated = request.scope["user"]
            assert isinstance(authenticated, AuthenticatedUser)
            token = authenticated.access_token
            response = await proxy.serve(request, token.subject or token.client_id)
        await response(scope, receive, send)

    def app(_: str) -> Starlette:
        return Starlette(
            routes=[Route(PATH, endpoint=RequireAuthMiddleware(endpoint, []))],
            middleware=[
                Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(BearerVerifier(users, None))),
            ],
        )

    try:
        # The limit is low, since each session has a process.
        await serve_app(app, *address, on_started, proxy.running(), max_sessions=20)
    finally:
        context.stats.flush()


class _Sessions:
    """The servers behind the proxy. Each client with a handshake has a server of its own; all others of a user share
    one."""

    def __init__(self, server: StdioServer, context: ProxyContext) -> None:
        self._server = server
        self._context = context
        self._bodies = Bodies()
        #: Sessions by user and name. The name is ``None`` for the session of all clients without a handshake.
        self._sessions: dict[tuple[str, str | None], Session] = {}
        #: Held while the session of a user's clients without a handshake is started.
        self._starting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the block runs, end sessions that had no request for half an hour. At its end, end all sessions."""
        ending = start_task(self._end_idle())
        try:
            yield
        finally:
            await cancel_and_wait((ending,))
            for user, name in list(self._sessions):
                self._end_session(user, name)
            if self._closing:
                await asyncio.wait(self._closing)

    async def _end_idle(self) -> None:
        max_idle_seconds = 30 * 60
        while True:
            await asyncio.sleep(60)
            for (user, name), session in list(self._sessions.items()):
                idle_seconds = time.monotonic() - session.last_used
                is_unused = session.is_idle and idle_seconds > max_idle_seconds
                if is_unused or not session.is_alive:
                    self._end_session(user, name)

    def _live_session(self, user: str, name: str | None) -> Session | None:
        """Return a session, or ``None`` if it does not exist or its server has ended."""
        session = self._sessions.get((user, name))
        if session is not None and not session.is_alive:
            self._end_session(user, name)
            return None
        return session

    async def _start_session(self, user: str, name: str | None) -> Session:
        exchange = Exchange(self._context, Scope(user=user, session=name))
        session = Session(await ProcessServer.start(self._server), exchange, is_shared=name is None)
        self._sessions[user, name] = session
        return session

    def _end_session(self, user: str, name: str | None) -> None:
        spawn(self._sessions.pop((user, name)).aclose(), self._closing)

    async def serve(self, request: Request, user: str) -> Response:
        """Answer a request: open, use or end a session, or use the shared one for a client without a handshake."""
        if request.headers.get(VERSION) in STATELESS_VERSIONS:
            if request.method != "POST":
                return error_response(405, "only POST")
            return await self._answer_post(request, user, partial(self._post_without_session, user))

        name = request.headers.get(SESSION, "")
        session = self._live_session(user, name)
        if name and session is None:
            return error_response(404, "this session has ended; initialize again")
        if request.method == "DELETE":
            if session is not None:
                self._end_session(user, name)
            return Response(status_code=200)
        if request.method == "GET":
            if session is None:
                return error_response(400, "initialize first")
            return stream_response(_as_events(session.listen(), b": listening\n\n"))
        return await self._answer_post(request, user, partial(self._post_in_session, user, session))

    async def _answer_post(
        self, request: Request, user: str, answer: Callable[[Message], Awaitable[Response]]
    ) -> Response:
        """Read the message of a POST and let ``answer`` answer it. Refuse a body that is not a message."""
        body = await self._bodies.read(request, user)
        if isinstance(body, Response):
            return body
        try:
            message = await read_message(body)
        except TooLarge as error:
            return error_response(413, error.message, code=error.code)
        except ProtocolError:
            return error_response(400, "the request is not a JSON-RPC message", number=PARSE_ERROR)

        try:
            return await answer(message)
        except ConnectFailed as error:
            return error_response(502, error.message, number=UNAVAILABLE, code=error.code)

    async def _post_in_session(self, user: str, session: Session | None, message: Message) -> Response:
        """Handle a message of a client with a handshake. If ``session`` is ``None``, the message must open a
        session."""
        headers: dict[str, str] = {}
        if session is None:
            if message.method != "initialize" or not message.is_request:
                return error_response(400, "initialize first, or name the session")
            name = secrets.token_urlsafe(24)
            session = await self._start_session(user, name)
            headers = {SESSION: name}
        if not message.is_request:
            await session.send(message)
            return Response(status_code=202)
        return stream_response(_as_events(session.request(message)), headers)

    async def _post_without_session(self, user: str, message: Message) -> Response:
        """Handle a message of a client without a handshake. Only requests are passed on: other messages could be about
        a request of another client of the user."""
        if not message.is_request:
            return Response(status_code=202)

        async with self._starting[user]:
            session = self._live_session(user, None) or await self._start_session(user, None)
        return stream_response(_as_events(session.request(message)))


async def _as_events(messages: AsyncGenerator[bytes, None], first: bytes = b"") -> AsyncGenerator[bytes, None]:
    async with aclosing(messages):
        if first:
            yield first
        async for raw in messages:
            yield encode_event(raw)


# --- sessions ---------------------------------------------------------------------------------------------------------


class _Stream:
    """Messages for one response. A client that does not take the next message within a minute is cut off."""

    def __init__(self) -> None:
        max_waiting = 4
        self._sender, self.messages = anyio.create_memory_object_stream[bytes](max_waiting)

    async def write(self, raw: bytes) -> None:
        """Add a message, and wait while too many are waiting. Do nothing if the client has gone."""
        try:
            with anyio.fail_after(60):
                await self._sender.send(raw)
        except (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.end()

    def end(self) -> None:
        """End the stream once the messages that were added are sent."""
        self._sender.close()

    def close(self) -> None:
        """Drop the messages that were not taken, since the client has gone."""
        self._sender.close()
        self.messages.close()


class Session:
    """A server and its streams to clients. If it ``is_shared``, it serves all clients of a user without a handshake.
    Then a message that belongs to no request is dropped, since it may be about the call of any of them."""

    def __init__(self, process: ProcessServer, exchange: Exchange, *, is_shared: bool = False) -> None:
        self.last_used = time.monotonic()
        self._process = process
        self._is_shared = is_shared
        self._streams: dict[Key, _Stream] = {}
        self._listener: _Stream | None = None
        #: Messages that wait for a client to listen.
        self._unheard: deque[bytes] = deque()
        self._proxy_ids = itertools.count(1)
        self._duplex = Duplex(exchange, process.send, self._write_message)
        self._exchange = exchange
        self._running = start_task(self._relay())

    @property
    def is_alive(self) -> bool:
        return not self._running.done()

    @property
    def is_idle(self) -> bool:
        return not self._streams and self._listener is None

    async def send(self, message: Message) -> None:
        self.last_used = time.monotonic()
        await self._duplex.handle_client_message(message)
        if message.method == "notifications/cancelled":
            key = key_or_none(message.params.request_id)
            # Servers do not answer a cancelled request, and clients may wait for the end of its response.
            if key is not None and key in self._streams:
                self._streams.pop(key).end()

    async def request(self, message: Message) -> AsyncGenerator[bytes, None]:
        """Yield the messages that belong to the request, and its answer. If clients share the session, the request is
        sent with ids that no other client uses."""
        client_ids: Mapping[Key, msgspec.Raw] = {}
        if self._is_shared:
            message, client_ids = await self._with_proxy_ids(message)
        key = message.key
        assert key is not None
        if key in self._streams:
            reason = "a request with this id is still running; use another id"
            yield error_message(bytes(message.envelope.id), INVALID_REQUEST, reason)
            return

        stream = self._streams[key] = _Stream()
        is_answered = False
        try:
            if not self.is_alive:
                # The server has ended, so nothing else would end the stream.
                stream.end()
            await self._duplex.handle_client_message(message)
            async for raw in stream.messages:
                # `_write_message` removes the stream before it writes the answer.
                is_answered = key not in self._streams
                yield _with_client_ids(raw, client_ids) if client_ids else raw

            if not is_answered and not self.is_alive:
                raw_id = client_ids.get(key, message.envelope.id)
                yield error_message(bytes(raw_id), UNAVAILABLE, self._process.reason())
                is_answered = True
        finally:
            stream.close()
            if self._streams.get(key) is stream:
                del self._streams[key]
                if self._is_shared and not is_answered:
                    # The client has disconnected, which is how it cancels a request.
                    await self._cancel_request(message)
            self.last_used = time.monotonic()

    async def _cancel_request(self, message: Message) -> None:
        assert message.key is not None
        self._exchange.forget_request(message.key)
        cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}'
        await self._duplex.handle_client_line(cancelled % bytes(message.envelope.id))

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield the messages that belong to no request, first those that came while nobody was listening. A second
        listener replaces the first."""
        if self._listener is not None:
            self._listener.end()
        stream = self._listener = _Stream()
        try:
            while self._unheard:
                yield self._unheard.popleft()
            async for raw in stream.messages:
                yield raw
        finally:
            stream.close()
            if self._listener is stream:
                self._listener = None
            self.last_used = time.monotonic()

    async def aclose(self) -> None:
        await cancel_and_wait((self._running,))
        await self._duplex.aclose()
        await self._process.aclose()

    async def _relay(self) -> None:
        """Pass on the server's messages until the server ends or a write to the client fails. Then end all
        responses."""
        try:
            await self._duplex.read_server(self._process.run)
        except ProtocolError as error:
            logger.warning("%s", error.message)
        except Exception:
            logger.exception("a session has ended")
        finally:
            # The responses are ended after this task, so that `is_alive` is false by then.
            asyncio.get_running_loop().call_soon(self._end_streams)

    def _end_streams(self) -> None:
        for stream in self._streams.values():
            stream.end()
        if self._listener is not None:
            self._listener.end()

    async def _write_message(self, message: ClientMessage) -> None:
        """Write to the response of the request, otherwise to the client that listens, or to any response."""
        if message.request is not None and message.request in self._streams:
            stream = self._streams[message.request]
            if message.is_answer:
                # This comes before the writing, so that `request` sees that the message is the answer.
                del self._streams[message.request]
            if message.raw:
                await stream.write(message.raw)
            if message.is_answer:
                stream.end()
            return

        if message.is_answer or self._is_shared:
            # The client of the answered request has gone, or it is unknown which client the message is for.
            return

        max_unheard_bytes = 1 << 20
        any_stream = self._listener or next(iter(self._streams.values()), None)
        if any_stream is not None:
            await any_stream.write(message.raw)
        elif sum(map(len, self._unheard)) + len(message.raw) <= max_unheard_bytes:
            self._unheard.append(message.raw)

    async def _with_proxy_ids(self, message: Message) -> tuple[Message, Mapping[Key, msgspec.Raw]]:
        """Replace the ids of a request by new ones. Return the new request, and the client's ids by the new ones; the
        id of the request is the first of them."""
        fields = fields_of(message.raw)
        proxy_id = next(self._proxy_ids)
        client_ids: dict[Key, msgspec.Raw] = {proxy_id: fields["id"]}
        fields["id"] = msgspec.Raw(b"%d" % proxy_id)

        params = fields_in(fields, "params")
        meta = fields_in(params, "_meta")
        if "progressToken" in meta:
            proxy_token = next(self._proxy_ids)
            client_ids[proxy_token] = meta["progressToken"]
            meta["progressToken"] = msgspec.Raw(b"%d" % proxy_token)
            params["_meta"] = to_raw(meta)
            fields["params"] = to_raw(params)

        return await read_message(encode_json(fields)), client_ids


def _with_client_ids(raw: bytes, client_ids: Mapping[Key, msgspec.Raw]) -> bytes:
    """Put the client's ids back. A message that cannot be read becomes an error with the first of ``client_ids``: the
    client would not recognise an answer with the proxy's id."""
    try:
        fields = fields_of(raw)
        _replace_ids(fields, ("id",), client_ids)
        for name in ("params", "result"):
            if name in fields:
                fields[name] = _with_client_ids_inside(fields[name], client_ids)
        return encode_json(fields)
    except (ValueError, RecursionError):
        request_id = bytes(next(iter(client_ids.values())))
        return error_message(request_id, INTERNAL_ERROR, "the server's answer is not valid JSON")


def _with_client_ids_inside(value: msgspec.Raw, client_ids: Mapping[Key, msgspec.Raw]) -> msgspec.Raw:
    """Put the client's ids back inside of the parameters or the result of a message."""
    try:
        fields = FIELDS_DECODER.decode(value)
    except ValueError:
        return value  # not an object, so it has no ids

    _replace_ids(fields, ("progressToken", "requestId"), client_ids)
    meta = fields_in(fields, "_meta")
    if meta:
        _replace_ids(meta, (SUBSCRIPTION_ID,), client_ids)
        fields["_meta"] = to_raw(meta)
    return to_raw(fields)


def _replace_ids(fields: dict[str, msgspec.Raw], names: Sequence[str], client_ids: Mapping[Key, msgspec.Raw]) -> None:
    for name in names:
        if name in fields:
            # The field may only look like an id: a number that is out of range, for instance, has no key.
            key = key_or_none(fields[name])
            if key is not None and key in client_ids:
                fields[name] = client_ids[key]
