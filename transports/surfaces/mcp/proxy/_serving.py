"""A proxy over streamable HTTP: each session of a client, and each user of newer clients, has a relay and a server."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from itertools import chain
from typing import TypeAlias

import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend, RequireAuthMiddleware
from mcp.server.transport_security import TransportSecurityMiddleware
from mcp_types import INVALID_REQUEST, PARSE_ERROR
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope as HttpScope, Send

from ....artifacts import Scope
from ....errors import ABPError
from ....tasks import cancel_and_wait, finished, spawn
from .._access import BearerVerifier
from .._http import PATH, local_security, serve_app
from .._request_limits import SlowReply, TooLargeReply
from ._lines import Line, LineReader
from ._relay import Relay, Write

_SESSION, _VERSION = "mcp-session-id", "mcp-protocol-version"
#: Largest request in bytes, and minutes without a request after which a session ends.
_MAX_REQUEST, _IDLE_MINUTES = 137 << 20, 30
#: Most bytes of messages that wait for a client to listen.
_MAX_WAITING = 1 << 20
#: Seconds between two comments on a silent stream.
_PING = 15.0

#: Makes the relay of a client, given its scope and the way to it.
MakeRelay: TypeAlias = Callable[[Scope, Write], Relay]


class _Message(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    method: str = ""


_MESSAGE = msgspec.json.Decoder(_Message)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Stream:
    """Messages for one response, piece by piece, as fast as the client reads them. ``tokens`` are replaced."""

    def __init__(self, tokens: Mapping[bytes, bytes] | None = None) -> None:
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._tokens = tokens or {}
        self._ended = asyncio.Event()

    async def write(self, pieces: Iterable[bytes]) -> None:
        """Write a message. Nothing happens if the client has gone."""
        for piece in _event(_replaced(pieces, self._tokens)):
            if not await self._put(piece):
                return

    async def end(self) -> None:
        """End the response."""
        await self._put(None)

    async def _put(self, piece: bytes | None) -> bool:
        put = asyncio.ensure_future(self._pieces.put(piece))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((put, ended), return_when=asyncio.FIRST_COMPLETED)
            return not self._ended.is_set()
        finally:
            await cancel_and_wait((put, ended))

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body of the response, with a comment now and then."""
        try:
            while True:
                try:
                    async with asyncio.timeout(_PING):
                        piece = await self._pieces.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if piece is None:
                    return
                yield piece
        finally:
            self._ended.set()


def _event(pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield b"event: message\ndata: "
    yield from pieces
    yield b"\n\n"


def _replaced(pieces: Iterable[bytes], tokens: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Yield pieces with other texts in the place of the tokens, which are equally long."""
    if not tokens:
        yield from pieces
        return
    length = max(map(len, tokens))
    held = b""
    for piece in pieces:
        held += piece
        for token, text in tokens.items():
            held = held.replace(token, text)
        if len(held) > length:
            yield held[: 1 - length]
            held = held[1 - length :]
    yield held


class _Client:
    """One client, or one user of newer clients: its relay, and the responses to which its messages go.

    If the clients of a user share it, a message that belongs to no request reaches none of them: it may be about the
    call of any."""

    def __init__(self, make: MakeRelay, scope: Scope, *, shared: bool = False) -> None:
        self._shared = shared
        self.used = time.monotonic()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(4)
        self._sending = asyncio.Lock()
        self._streams: dict[bytes, _Stream] = {}
        self._listener: _Stream | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_size = 0
        self.failure = ""
        self._task = asyncio.ensure_future(self._run(make(scope, self._write)))

    async def _run(self, relay: Relay) -> None:
        try:
            await relay.run(self._received())
        except ABPError as error:
            self.failure = error.message

    async def _received(self) -> AsyncIterator[bytes]:
        while chunk := await self._chunks.get():
            yield chunk

    @property
    def is_alive(self) -> bool:
        """True until the server has ended for good."""
        return not self._task.done()

    @property
    def is_idle(self) -> bool:
        """True if nothing is open."""
        return not self._streams and self._listener is None

    async def send(self, pieces: Iterable[bytes]) -> None:
        """Send a message to the server. It is sent as a whole, also if this is cancelled meanwhile."""
        self.used = time.monotonic()
        await finished(asyncio.ensure_future(self._send(pieces)))

    async def _send(self, pieces: Iterable[bytes]) -> None:
        async with self._sending:
            for piece in chain(pieces, (b"\n",)):
                if not await self._put(piece):
                    return

    async def _put(self, piece: bytes) -> bool:
        put = asyncio.ensure_future(self._chunks.put(piece))
        try:
            await asyncio.wait((put, self._task), return_when=asyncio.FIRST_COMPLETED)
            return put.done()
        finally:
            await cancel_and_wait((put,))

    async def request(
        self, key: bytes, pieces: Iterable[bytes], tokens: Mapping[bytes, bytes] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the body of its response: the messages that belong to it, and its answer."""
        stream = self._streams[key] = _Stream(tokens)
        failing = asyncio.ensure_future(self._fail_with_server(stream, key, tokens or {}))
        try:
            await self.send(pieces)
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            if self._streams.get(key) is stream:
                del self._streams[key]
            await cancel_and_wait((failing,))
            self.used = time.monotonic()

    async def _fail_with_server(self, stream: _Stream, key: bytes, tokens: Mapping[bytes, bytes]) -> None:
        await asyncio.wait((self._task,))
        reason = msgspec.json.encode(self.failure or "the server has ended")
        await stream.write([b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%s}}' % (key, reason)])
        await stream.end()

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield the messages that belong to no request."""
        stream = self._listener = _Stream()
        try:
            yield b": listening\n\n"
            while self._waiting:
                message = self._waiting.popleft()
                self._waiting_size -= len(message)
                yield b"event: message\ndata: " + message + b"\n\n"
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            if self._listener is stream:
                self._listener = None
            self.used = time.monotonic()

    async def _write(self, pieces: Iterable[bytes], key: bytes, answers: bool) -> None:
        """Pass on a message: to the response of its request, else to the stream of all others, else to any response of
        the same client."""
        own = self._streams.get(key) if key else None
        if own is not None:
            await own.write(pieces)
            if answers:
                self._streams.pop(key, None)
                await own.end()
            return
        stream = self._listener or next(iter(self._streams.values()), None)
        if answers or self._shared:  # of a request whose client has gone, or of a client that nothing names
            return
        if stream is not None:
            await stream.write(pieces)
            return
        whole = b"".join(pieces)
        if self._waiting_size + len(whole) <= _MAX_WAITING:
            self._waiting.append(whole)
            self._waiting_size += len(whole)

    async def aclose(self) -> None:
        """End the server and all responses."""
        self._task.cancel()
        await asyncio.wait((self._task,))  # bounded: a server ends within three seconds


class ProxyServer:
    """The clients of a proxy over HTTP, apart from each other by user and session."""

    def __init__(self, make: MakeRelay) -> None:
        self._make = make
        #: Clients with a handshake by their session and user, and users of clients without one.
        self._sessions: dict[tuple[str, str], _Client] = {}
        self._users: dict[str, _Client] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End idle sessions for the length of a block, and all at its end."""
        ending = asyncio.ensure_future(self._end_idle())
        try:
            yield
        finally:
            await cancel_and_wait((ending,))
            for client in (*self._sessions.values(), *self._users.values()):
                spawn(client.aclose(), self._closing)
            if self._closing:
                await asyncio.wait(self._closing)

    async def _end_idle(self) -> None:
        while True:
            await asyncio.sleep(60)
            before = time.monotonic() - 60 * _IDLE_MINUTES
            for clients in (self._sessions, self._users):
                for key, client in [*clients.items()]:
                    if not client.is_alive or (client.is_idle and client.used < before):
                        clients.pop(key, None)
                        spawn(client.aclose(), self._closing)

    async def serve(self, request: Request) -> Response:
        """Answer one request."""
        holder = request.scope["user"]
        assert isinstance(holder, AuthenticatedUser)
        user = holder.access_token.subject or holder.access_token.client_id
        if request.headers.get(_VERSION) in MODERN_PROTOCOL_VERSIONS:
            return await self._modern(request, user)
        session = request.headers.get(_SESSION, "")
        client = self._sessions.get((user, session))
        if session and client is None:
            return _refusal(404, "this session has ended; initialize again")
        if request.method == "DELETE":
            if client is not None:
                del self._sessions[user, session]
                spawn(client.aclose(), self._closing)
            return Response(status_code=200)
        if request.method == "GET":
            if client is None:
                return _refusal(400, "initialize first")
            return _stream_response(client.listen())
        line = await _read(request)
        if isinstance(line, Response):
            return line
        message = _MESSAGE.decode(line.short)
        headers = {}
        if client is None:
            if message.method != "initialize":
                line.close()
                return _refusal(400, "initialize first, or name the session")
            session = secrets.token_urlsafe(24)
            client = self._sessions[user, session] = _Client(self._make, Scope(user=user, session=session))
            headers = {_SESSION: session}
        if not message.method or not bytes(message.id):
            try:
                await client.send(line.pieces())
            finally:
                line.close()
            return Response(status_code=202)
        return _stream_response(_closing(client.request(bytes(message.id), line.pieces()), line), headers)

    async def _modern(self, request: Request, user: str) -> Response:
        """Answer a request of a client without sessions. Ids are replaced, since clients may use the same."""
        if request.method != "POST":
            return _refusal(405, "only POST")
        line = await _read(request)
        if isinstance(line, Response):
            return line
        message = _MESSAGE.decode(line.short)
        if not message.method or not bytes(message.id):
            line.close()
            return Response(status_code=202)
        client = self._users.get(user)
        if client is None or not client.is_alive:
            client = self._users[user] = _Client(self._make, Scope(user=user), shared=True)
        key, sent, tokens = _with_own_id(line)
        body = _cancelling(client, key, client.request(key, line.whole(sent), tokens))
        return _stream_response(_closing(body, line))


def _with_own_id(line: Line) -> tuple[bytes, bytes, dict[bytes, bytes]]:
    """Return a request with an id and a token for progress of our own, this id, and the client's by ours."""
    fields = _FIELDS.decode(line.short)
    key = b'"abp-%s"' % secrets.token_hex(16).encode()
    tokens = {key: bytes(fields["id"])}
    fields["id"] = msgspec.Raw(key)
    with suppress(msgspec.MsgspecError, KeyError):
        params = _FIELDS.decode(fields["params"])
        meta = _FIELDS.decode(params["_meta"])
        own = b'"abp-%s"' % secrets.token_hex(16).encode()
        tokens[own] = bytes(meta["progressToken"])
        meta["progressToken"] = msgspec.Raw(own)
        params["_meta"] = msgspec.Raw(msgspec.json.encode(meta))
        fields["params"] = msgspec.Raw(msgspec.json.encode(params))
    return key, msgspec.json.encode(fields), tokens


async def _closing(body: AsyncGenerator[bytes, None], line: Line) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(body):
            async for chunk in body:
                yield chunk
    finally:
        line.close()


async def _cancelling(client: _Client, key: bytes, body: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the body of a response. A client that goes before its end has cancelled its request."""
    ended = False
    try:
        async with aclosing(body):
            async for chunk in body:
                yield chunk
        ended = True
    finally:
        if not ended and client.is_alive:
            cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}' % key
            with suppress(asyncio.CancelledError):
                await asyncio.shield(client.send([cancelled]))


async def _read(request: Request) -> Line | Response:
    """Return the message of a request, or the response to one that is not a message."""
    reader, size = LineReader(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _MAX_REQUEST:  # counted here: the SDK's middleware keeps the whole body in memory
            reader.close()
            return _refusal(413, "the request is too large")
        reader.add(chunk.replace(b"\n", b" ").replace(b"\r", b" "))
    line = reader.finish()
    try:
        if line is not None:
            _MESSAGE.decode(line.short)
            return line
    except msgspec.MsgspecError:
        pass
    if line is not None:
        line.close()
    return _refusal(400, "the request is not a JSON-RPC message", PARSE_ERROR)


def _stream_response(body: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None) -> Response:
    own = {"Cache-Control": "no-cache, no-transform", **(headers or {})}
    return StreamingResponse(body, media_type="text/event-stream", headers=own)


def _refusal(status: int, message: str, code: int = INVALID_REQUEST) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}, status)


async def proxy_http(
    make: MakeRelay, address: tuple[str, int], users: Mapping[str, str], on_started: Callable[[str], object]
) -> None:
    """Serve clients over HTTP until cancelled. Each needs a bearer token of ``users`` (token to user), and a ``Host``
    and ``Origin`` of this machine or of ``address``.

    Raises :class:`~transports.errors.UsageError` (``ADDRESS_UNAVAILABLE``) if the address cannot be listened on."""
    server = ProxyServer(make)
    security = TransportSecurityMiddleware(local_security(address[0]))

    async def endpoint(scope: HttpScope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        refused = await security.validate_request(request, is_post=request.method == "POST")
        await (refused or await server.serve(request))(scope, receive, send)

    def app(_: str) -> Starlette:
        return Starlette(
            routes=[Route(PATH, endpoint=RequireAuthMiddleware(endpoint, []))],
            middleware=[
                Middleware(SlowReply),
                Middleware(TooLargeReply, max_bytes=_MAX_REQUEST, max_file_bytes=_MAX_REQUEST * 3 // 4),
                Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(BearerVerifier(users, None))),
            ],
        )

    await serve_app(app, *address, on_started, server.running())
