"""A reverse proxy before a server behind an address: requests and headers pass, results get links.

Its requests and responses (:class:`Bodies`, :func:`stream_response`) serve :mod:`._serving` too."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from http.cookiejar import DefaultCookiePolicy
from typing import cast

import httpx2
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...._internal.recent import Recent
from ...._internal.tasks import cancel_and_wait
from ....artifacts._ref import Scope
from ....errors import ABPError, ProtocolError, TooLarge
from ....mcp._events import encode_event, events_of, is_event_stream, message_of
from ....mcp._servers import HttpServer
from ....protocol._find_content import Place
from .._messages import read_request_body
from ._address import SESSION, VERSION, read_body, refusal_of, unreachable, upstream_client
from ._exchange import Exchange, Facts, ProxyContext, error_answer as request_refusal
from ._messages import INVALID_REQUEST, MAX_BYTES, STATELESS_VERSIONS, UNAVAILABLE, Message, error_message, read_message

logger = logging.getLogger("transports")

#: Maximum number of a user's sessions whose exchanges are remembered, and of all sessions whose owners are. A forgotten
#: session goes on; its tools are learned again.
_MAX_SESSIONS = 1000
#: Headers of a request that are about the connection to the proxy, or are credentials for it.
_NOT_SENT = frozenset(
    {
        *("host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length"),
        *("accept-encoding", "authorization", "proxy-authorization", "cookie", "origin", "referer", "expect"),
    }
)
#: Headers of a response that are about the connection to the server, or about credentials for it.
_NOT_RETURNED = frozenset(
    {
        *("connection", "keep-alive", "trailer", "transfer-encoding", "upgrade", "content-length"),
        *("content-encoding", "set-cookie", "www-authenticate", "proxy-authenticate", "cache-control"),
    }
)


@dataclass(frozen=True, slots=True)
class _Received:
    """A request of a client. ``message`` is ``None`` if the body is empty, a batch, or something that the server
    refuses."""

    request: Request
    user: str
    exchange: Exchange
    body: bytes
    message: Message | None

    @property
    def session(self) -> str:
        return self.request.headers.get(SESSION, "")

    @property
    def raw_id(self) -> bytes:
        if self.message is None:
            return b""
        return bytes(self.message.envelope.id)

    def forget(self) -> None:
        """Forget a request that the server does not answer."""
        if self.message is not None and self.message.key is not None:
            self.exchange.forget_request(self.message.key)


class ReverseProxy:
    def __init__(self, server: HttpServer, context: ProxyContext) -> None:
        self._server = server
        self._context = context
        self._bodies = Bodies()
        self._client = upstream_client(server)
        # All users share this client. If it kept cookies, the server would see those of one user from another.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self._not_sent = _NOT_SENT | {name.lower() for name in server.headers}
        #: Exchanges by user and session.
        self._exchanges: defaultdict[str, Recent[str, Exchange]] = defaultdict(lambda: Recent(_MAX_SESSIONS))
        #: Users by the sessions that they opened.
        self._owners: Recent[str, str] = Recent(_MAX_SESSIONS)
        #: Facts about the server for users whose clients have no session.
        self._facts: dict[str, Facts] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._client:
            yield

    async def serve(self, request: Request, user: str) -> Response:
        """Answer a request of a client, mostly by passing it on to the server."""
        body = await self._bodies.read(request, user)
        if isinstance(body, Response):
            return body
        is_of_other_user = any(self._owners.get(name, user) != user for name in request.headers.getlist(SESSION))
        if is_of_other_user:
            return error_response(404, "this session has ended; initialize again")

        received = _Received(request, user, self._exchange_of(request, user), body, None)
        try:
            message = await read_message(body)
        except TooLarge as error:
            return error_response(413, error.message, code=error.code)
        except ProtocolError:
            return await self._forward_while_connected(received)
        return await self._serve_message(replace(received, message=message), message)

    async def _serve_message(self, received: _Received, message: Message) -> Response:
        """Handle a message: the proxy uses or answers it, fills in its files, or passes it on to the server."""
        exchange = received.exchange
        if exchange.roots.consume(message):
            return Response(status_code=202)
        if message.is_request:
            if exchange.is_for_proxy(message) and not await exchange.is_for_server(message):
                return stream_response(_answer_event(exchange, message))
            files = exchange.files_in(message)
            if files:
                return stream_response(self._call_with_files(received, message, files))
            exchange.add_request(message)
        return await self._forward_while_connected(received)

    async def _forward_while_connected(self, received: _Received) -> Response:
        """Forward a request, and cancel it if the client disconnects while it waits for the answer."""
        forwarding = asyncio.ensure_future(self._forward(received))
        disconnection = asyncio.ensure_future(_wait_for_disconnection(received.request))
        has_request = received.message is not None and received.message.is_request
        try:
            if has_request or received.request.method == "GET":
                await asyncio.wait((forwarding, disconnection), return_when=asyncio.FIRST_COMPLETED)
                if not forwarding.done():
                    return Response(status_code=408)
            return await forwarding
        finally:
            await cancel_and_wait((forwarding, disconnection))

    async def _forward(self, received: _Received) -> Response:
        try:
            response = await self._send_upstream(received.request, received.body)
            return await self._pass_response(response, received)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            received.forget()
            reason = unreachable(self._server, error).message
            return _json_response(error_message(received.raw_id, UNAVAILABLE, reason), 502)

    def _exchange_of(self, request: Request, user: str) -> Exchange:
        """Return the exchange of a session. A client without sessions gets a new one for each request."""
        if request.headers.get(VERSION) in STATELESS_VERSIONS:
            # Several of these clients may use the same ids at the same time.
            return Exchange(self._context, Scope(user=user), self._facts.setdefault(user, Facts()))

        session = request.headers.get(SESSION, "")
        exchange = self._exchanges[user].get(session)
        if exchange is None:
            exchange = Exchange(self._context, Scope(user=user, session=session or None))
            self._exchanges[user][session] = exchange
        return exchange

    async def _send_upstream(self, request: Request, body: bytes) -> httpx2.Response:
        headers = [(name, value) for name, value in request.headers.raw if name.decode("latin-1") not in self._not_sent]
        upstream = self._client.build_request(request.method, self._server.url, headers=headers, content=body)
        return await self._client.send(upstream, stream=True)

    async def _pass_response(self, response: httpx2.Response, received: _Received) -> Response:
        """Return the server's response for the client: with rewritten messages, and without headers for the proxy."""
        self._track_session(response, received)
        headers = {name: value for name, value in response.headers.items() if name.lower() not in _NOT_RETURNED}

        if response.status_code < 300 and is_event_stream(response):
            # The type may name another encoding, but events are UTF-8. stream_response() sets the right type.
            headers.pop("content-type")
            events = _rewrite_events(response, received)
            return stream_response(events, headers, response.status_code)

        async with aclosing(response):
            if response.status_code >= 300:
                received.forget()
                return await self._pass_refusal(response, received.raw_id)
            try:
                body = await read_body(response)
            except TooLarge as error:
                answer = error_message(received.raw_id, UNAVAILABLE, error.message, {"code": error.code})
                return _json_response(answer)

        if body.strip():
            body = await _rewrite_message(body, received)
        return Response(body, response.status_code, headers)

    async def _pass_refusal(self, response: httpx2.Response, raw_id: bytes) -> Response:
        """Return the response for a refusal of the server. If it is not about the client, for instance because the
        proxy's credentials are refused, its status becomes 502."""
        status = response.status_code
        is_about_client = 400 <= status < 600 and status not in (401, 407)
        if not is_about_client:
            status = 502
        return _json_response(await refusal_of(self._server, response, raw_id), status)

    def _track_session(self, response: httpx2.Response, received: _Received) -> None:
        """Remember the session that a handshake has opened, and its owner. Forget a session that the client ends."""
        user = received.user
        session = response.headers.get(SESSION)
        is_handshake = received.message is not None and received.message.method == "initialize"
        if is_handshake and session:
            self._exchanges[user].pop(received.session, None)
            self._exchanges[user][session] = received.exchange
            self._owners[session] = user
        if received.request.method == "DELETE":
            self._exchanges[user].pop(received.session, None)

    async def _call_with_files(
        self, received: _Received, message: Message, files: Mapping[Place, str]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of the response: a question for the client's roots if they are not known yet, then the
        messages of the server."""
        # None follows the last question.
        questions: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def read_files() -> Message:
            try:
                return await received.exchange.with_files(message, files, questions.put)
            finally:
                questions.put_nowait(None)

        reading = asyncio.ensure_future(read_files())
        try:
            while (question := await questions.get()) is not None:
                yield encode_event(question)
            call = await reading
            received.exchange.add_request(call)

            response = await self._forward(replace(received, message=call, body=call.raw))
            if isinstance(response, StreamingResponse):
                async with aclosing(cast("AsyncGenerator[bytes, None]", response.body_iterator)) as events:
                    async for event in events:
                        yield event
            else:
                yield encode_event(bytes(response.body))
        except Exception as error:  # noqa: BLE001 - a request has one answer
            yield encode_event(request_refusal(received.raw_id, error))
        finally:
            reading.cancel()


async def _wait_for_disconnection(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _answer_event(exchange: Exchange, message: Message) -> AsyncGenerator[bytes, None]:
    yield encode_event(await exchange.answer(message))


async def _rewrite_events(response: httpx2.Response, received: _Received) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(response), aclosing(events_of(response, MAX_BYTES)) as events:
            async for event in events:
                raw = message_of(event)
                if raw:
                    raw = await _rewrite_message(raw, received)
                yield encode_event(raw, event_id=event.id, retry=event.retry)
    except httpx2.SSEError as error:
        if received.message is not None and received.message.key is not None:
            yield encode_event(error_message(received.raw_id, UNAVAILABLE, str(error)))
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        # For the client the stream just ends, and it may resume the stream.
        logger.info("a stream broke: %s", type(error).__name__)


async def _rewrite_message(raw: bytes, received: _Received) -> bytes:
    """Return a message of the server as the client gets it, or an error that answers its request."""
    try:
        passed = await received.exchange.rewrite_for_client(raw)
    except ABPError as error:
        return error_message(received.raw_id, UNAVAILABLE, error.message, {"code": error.code})
    return raw if passed is None else passed.raw


def _json_response(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


# --- requests and responses -------------------------------------------------------------------------------------------


def error_response(status: int, message: str, *, number: int = INVALID_REQUEST, code: str | None = None) -> Response:
    """Make a response with a JSON-RPC error. ``number`` is the code of JSON-RPC, and ``code`` the one of ABP."""
    data = None
    if code is not None:
        data = {"code": code}
    return _json_response(error_message(b"", number, message, data), status)


class Bodies:
    """Reads the bodies of requests, and limits how many bytes of each user arrive at the same time."""

    def __init__(self) -> None:
        self._arriving: Counter[str] = Counter()

    async def read(self, request: Request, user: str) -> bytes | Response:
        """Return the body as one line, or the response that refuses a body which is too large or too slow."""
        bytes_of_request = 0

        def refuse(chunk: bytes, size: int) -> Response | None:
            nonlocal bytes_of_request
            bytes_of_request += len(chunk)
            self._arriving[user] += len(chunk)
            return self._refuse_oversized(user, size)

        try:
            body = await read_request_body(request, refuse, max_dropped=8 * MAX_BYTES)
        finally:
            self._arriving[user] -= bytes_of_request
            if not self._arriving[user]:
                del self._arriving[user]

        if isinstance(body, Response):
            return body
        return body.replace(b"\n", b" ").replace(b"\r", b" ").strip()

    def _refuse_oversized(self, user: str, size: int) -> Response | None:
        if size > MAX_BYTES:
            message = f"the request has more than {MAX_BYTES:,} bytes, which is the limit; send less at once"
            return error_response(413, message, code=TooLarge.code)
        max_arriving = 2 * MAX_BYTES
        if self._arriving[user] > max_arriving:
            message = f"requests of this user with more than {max_arriving:,} bytes arrive at the same time"
            return error_response(429, f"{message}; wait for one to end", code="LIMIT_REACHED")
        return None


def stream_response(
    events: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """Stream events, with comments that keep the connection from being closed as idle."""
    # The header x-accel-buffering keeps nginx and others from holding events back until the end of the stream.
    all_headers = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no", **(headers or {})}
    return StreamingResponse(_with_keepalives(events), status, media_type="text/event-stream", headers=all_headers)


async def _with_keepalives(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield events, and a comment after each 15 seconds without one."""
    async with aclosing(events):
        next_event = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait((next_event,), timeout=15)
                if not next_event.done():
                    yield b": still here\n\n"
                    continue
                event = next_event.result()
                if event is None:
                    return
                yield event
                next_event = asyncio.ensure_future(anext(events, None))
        finally:
            await cancel_and_wait((next_event,))
