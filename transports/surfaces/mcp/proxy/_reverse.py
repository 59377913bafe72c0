"""A reverse proxy before a server behind an address: requests and headers pass, results get links.

Its requests and responses (:class:`Bodies`, :func:`stream_response`) serve :mod:`._serving` too."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from http.cookiejar import DefaultCookiePolicy

import httpx2
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...._internal.tasks import cancel_and_wait
from ....artifacts._ref import Scope
from ....errors import ABPError, ProtocolError, TooLarge
from ....mcp._servers import HttpServer
from ....protocol._find_content import Place
from ...shared._listening import in_time
from .._messages import slow_response
from ._address import SESSION, VERSION, events_of, http_client, is_event_stream, read_body, refusal_of, unreachable
from ._exchange import Exchange, Facts, Shared, refusal as request_refusal
from ._messages import INVALID_REQUEST, MAX_BYTES, STATELESS_VERSIONS, UNAVAILABLE, Message, error_message, read_message

logger = logging.getLogger("transports")

#: Most bytes of a user's requests while they arrive.
_MAX_ARRIVING = 2 * MAX_BYTES
#: Sessions of a user whose facts are remembered, and of all users whose owners are. A forgotten one goes on; its tools
#: are learned again.
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


class ReverseProxy:
    """Reverse proxy of all users for one server behind an address."""

    def __init__(self, server: HttpServer, shared: Shared) -> None:
        self._server = server
        self._shared = shared
        self._bodies = Bodies()
        self._client = http_client(server)
        # The server's cookies would pass between users.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self._not_sent = _NOT_SENT | {name.lower() for name in server.headers}
        #: Exchanges by user and session.
        self._exchanges: defaultdict[str, OrderedDict[str, Exchange]] = defaultdict(OrderedDict)
        #: Users by the sessions that they opened.
        self._owners: OrderedDict[str, str] = OrderedDict()
        #: Facts about the server for users whose clients have no session.
        self._facts: dict[str, Facts] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._client:
            yield

    async def serve(self, request: Request, user: str) -> Response:
        """Answer a request in the proxy, or forward it to the server."""
        body = await self._bodies.read(request, user)
        if isinstance(body, Response):
            return body
        is_of_other_user = any(self._owners.get(name, user) != user for name in request.headers.getlist(SESSION))
        if is_of_other_user:
            return refusal(404, "this session has ended; initialize again")

        exchange = self._exchange_of(request, user)
        message: Message | None = None
        try:
            message = await read_message(body)
        except TooLarge as error:
            return refusal(413, error.message, code=error.code)
        except ProtocolError:
            # No body, a batch, or something that the server refuses.
            if body[:1] == b"[":
                await exchange.add_batch(body)

        if message is not None:
            if message.is_answer and exchange.roots.take_answer(message):
                return Response(status_code=202)
            if message.method == "notifications/roots/list_changed":
                exchange.roots.forget()

        if message is not None and message.is_request:
            if exchange.is_for_proxy(message):
                return stream_response(_answer_event(exchange, message))
            files = exchange.files_in(message)
            if files:
                return stream_response(self._call_with_files(request, exchange, message, files))
            exchange.add_request(message)

        return await self._forward_while_connected(request, body, user, exchange, message)

    async def _forward_while_connected(
        self, request: Request, body: bytes, user: str, exchange: Exchange, message: Message | None
    ) -> Response:
        """Forward a request. If the client disconnects while it waits for an answer, cancel the request."""
        forwarding = asyncio.ensure_future(self._forward(request, body, user, exchange, message))
        disconnection = asyncio.ensure_future(_wait_for_disconnection(request))
        expects_answer = request.method == "GET" or (message is not None and message.is_request)
        try:
            if expects_answer:
                await asyncio.wait((forwarding, disconnection), return_when=asyncio.FIRST_COMPLETED)
                if not forwarding.done():
                    return Response(status_code=408)
            return await forwarding
        finally:
            await cancel_and_wait((forwarding, disconnection))

    async def _forward(
        self, request: Request, body: bytes, user: str, exchange: Exchange, message: Message | None
    ) -> Response:
        """Send a request to the server and return its response; 502 if the server cannot be reached."""
        try:
            response = await self._send_upstream(request, body)
            return await self._pass_response(response, request, user, exchange, message)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if message is not None and message.key is not None:
                exchange.forget_request(message.key)
            reason = unreachable(self._server, error).message
            return _json_response(error_message(_raw_id_of(message), UNAVAILABLE, reason), 502)

    def _exchange_of(self, request: Request, user: str) -> Exchange:
        """Return the exchange of a request's session, or a new one for a request without a session."""
        session = request.headers.get(SESSION, "")
        if request.headers.get(VERSION) in STATELESS_VERSIONS:
            # These clients have no sessions, and several of them may use the same ids at the same time.
            return self._shared.exchange(Scope(user=user), self._facts.setdefault(user, Facts()))

        exchange = self._exchanges[user].get(session)
        if exchange is None:
            exchange = self._shared.exchange(Scope(user=user, session=session or None))
            self._remember_exchange(user, session, exchange)
        return exchange

    def _remember_exchange(self, user: str, session: str, exchange: Exchange) -> None:
        exchanges = self._exchanges[user]
        exchanges[session] = exchange
        exchanges.move_to_end(session)
        while len(exchanges) > _MAX_SESSIONS:
            exchanges.popitem(last=False)

    async def _send_upstream(self, request: Request, body: bytes) -> httpx2.Response:
        """Send a request with this body to the server, without the headers that are for the proxy."""
        headers = [(name, value) for name, value in request.headers.raw if name.decode("latin-1") not in self._not_sent]
        upstream = self._client.build_request(request.method, self._server.url, headers=headers, content=body or None)
        return await self._client.send(upstream, stream=True)

    async def _pass_response(
        self, response: httpx2.Response, request: Request, user: str, exchange: Exchange, message: Message | None
    ) -> Response:
        """Return the server's response as it goes to the client: its messages rewritten, without the headers that are
        for the proxy."""
        self._track_session(response, request, user, exchange, message)
        headers = {name: value for name, value in response.headers.items() if name.lower() not in _NOT_RETURNED}

        if response.status_code < 300 and is_event_stream(response):
            # The type may name another encoding, but events are UTF-8. The stream's response sets its own.
            headers.pop("content-type")
            return stream_response(_rewrite_events(response, exchange, message), headers, response.status_code)

        raw_id = _raw_id_of(message)
        async with aclosing(response):
            status = response.status_code
            if status >= 300:
                if message is not None and message.key is not None:
                    exchange.forget_request(message.key)
                is_about_client = 400 <= status < 600 and status not in (401, 407)
                if not is_about_client:
                    status = 502
                return _json_response(await refusal_of(self._server, response, raw_id), status)
            try:
                body = await read_body(response)
            except TooLarge as error:
                return _json_response(error_message(raw_id, UNAVAILABLE, error.message, {"code": error.code}))

        if body.strip():
            body = await _rewrite_message(body, exchange, message)
        return Response(body, response.status_code, headers)

    def _track_session(
        self, response: httpx2.Response, request: Request, user: str, exchange: Exchange, message: Message | None
    ) -> None:
        """Remember the session that a handshake has opened, and its owner; forget one that the client ends."""
        session = request.headers.get(SESSION, "")
        opened = response.headers.get(SESSION)
        if message is not None and message.method == "initialize" and opened:
            self._exchanges[user].pop(session, None)
            self._remember_exchange(user, opened, exchange)
            self._owners[opened] = user
            while len(self._owners) > _MAX_SESSIONS:
                self._owners.popitem(last=False)
        if request.method == "DELETE":
            self._exchanges[user].pop(session, None)

    async def _call_with_files(
        self, request: Request, exchange: Exchange, message: Message, files: Mapping[Place, str]
    ) -> AsyncGenerator[bytes, None]:
        """Read the files of a call and send it. Yield the events of the response: a question for the client's roots if
        they are not known yet, then the messages of the server."""
        questions: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def read_files() -> Message:
            try:
                return await exchange.with_files(message, files, questions.put)
            finally:
                questions.put_nowait(None)

        reading = asyncio.ensure_future(read_files())
        raw_id = bytes(message.envelope.id)
        try:
            while (question := await questions.get()) is not None:
                yield event(question)
            filled = await reading
            exchange.add_request(filled)

            response = await self._send_upstream(request, filled.raw)
            async with aclosing(response):
                if response.status_code >= 300:
                    yield event(await refusal_of(self._server, response, raw_id))
                elif is_event_stream(response):
                    async with aclosing(_rewrite_events(response, exchange, filled)) as events:
                        async for chunk in events:
                            yield chunk
                else:
                    body = await read_body(response)
                    yield event(await _rewrite_message(body, exchange, filled))
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            yield event(request_refusal(raw_id, unreachable(self._server, error)))
        except Exception as error:  # noqa: BLE001 - a request has one answer
            yield event(request_refusal(raw_id, error))
        finally:
            reading.cancel()


async def _wait_for_disconnection(request: Request) -> None:
    """Return when the client has disconnected. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _answer_event(exchange: Exchange, message: Message) -> AsyncGenerator[bytes, None]:
    """Yield the proxy's own answer to a request, as an event."""
    try:
        yield event(await exchange.answer(message))
    except Exception as error:  # noqa: BLE001 - a request has one answer
        yield event(request_refusal(bytes(message.envelope.id), error))


async def _rewrite_events(
    response: httpx2.Response, exchange: Exchange, message: Message | None
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a response, with their messages as they go to the client."""
    try:
        async with aclosing(response), aclosing(events_of(response)) as events:
            async for item in events:
                raw = b""
                if item.event == "message" and item.data:
                    raw = await _rewrite_message(item.data.encode().replace(b"\n", b" "), exchange, message)
                yield event(raw, event_id=item.id, retry=item.retry)
    except httpx2.SSEError as error:
        if message is not None and message.key is not None:
            yield event(error_message(bytes(message.envelope.id), UNAVAILABLE, str(error)))
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        # The client sees the end of the stream, and may resume it.
        logger.info("a stream broke: %s", type(error).__name__)


async def _rewrite_message(raw: bytes, exchange: Exchange, message: Message | None) -> bytes:
    """Return a message of the server, in the response to ``message``, as it goes to the client."""
    try:
        passed = await exchange.to_client(raw)
    except ABPError as error:
        return error_message(_raw_id_of(message), UNAVAILABLE, error.message, {"code": error.code})
    return raw if passed is None else passed.raw


def _raw_id_of(message: Message | None) -> bytes:
    return b"" if message is None else bytes(message.envelope.id)


def _json_response(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


# --- requests and responses -------------------------------------------------------------------------------------------


def refusal(status: int, message: str, *, number: int = INVALID_REQUEST, code: str | None = None) -> Response:
    """Return a response of this status with a JSON-RPC error for an unknown request."""
    data = None
    if code is not None:
        data = {"code": code}
    return _json_response(error_message(b"", number, message, data), status)


class Bodies:
    """Reader of the bodies of requests, which limits the bytes of each user's requests that arrive at the same time."""

    def __init__(self) -> None:
        self._arriving: Counter[str] = Counter()

    async def read(self, request: Request, user: str) -> bytes | Response:
        """Return the body of a request as one line, or the response to one that is too large or too slow."""
        chunks: list[bytes] = []
        received_bytes = counted_bytes = 0
        refused: Response | None = None
        try:
            async for chunk in in_time(request.stream()):
                received_bytes += len(chunk)
                if refused is not None:
                    # Read on and drop the rest: a client reads no response before it has sent its request.
                    if received_bytes > 8 * MAX_BYTES:
                        break
                    continue

                counted_bytes += len(chunk)
                self._arriving[user] += len(chunk)
                chunks.append(chunk)
                refused = self._refuse_oversized(user, counted_bytes)
                if refused is not None:
                    chunks.clear()
        except TimeoutError:
            refused = slow_response()
        finally:
            self._arriving[user] -= counted_bytes
            if not self._arriving[user]:
                del self._arriving[user]

        if refused is not None:
            return refused
        return b"".join(chunks).replace(b"\n", b" ").replace(b"\r", b" ").strip()

    def _refuse_oversized(self, user: str, size: int) -> Response | None:
        """Return the response to a request of so many bytes so far if it is over a limit."""
        if size > MAX_BYTES:
            message = f"the request has more than {MAX_BYTES:,} bytes, which is the limit; send less at once"
            return refusal(413, message, code=TooLarge.code)
        if self._arriving[user] > _MAX_ARRIVING:
            message = f"requests of this user with more than {_MAX_ARRIVING:,} bytes arrive at the same time"
            return refusal(429, f"{message}; wait for one to end", code="LIMIT_REACHED")
        return None


def event(raw: bytes, *, event_id: str = "", retry: int | None = None) -> bytes:
    """Return a message as an event. Line breaks between its values become spaces, since they would end the field."""
    head = b"event: message\n"
    if event_id:
        head += b"id: %s\n" % event_id.encode()
    if retry is not None:
        head += b"retry: %d\n" % retry
    return b"%sdata: %s\n\n" % (head, raw.replace(b"\n", b" ").replace(b"\r", b" "))


def stream_response(
    events: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """Return a stream of events as a response, with a comment after each 15 seconds of silence."""
    sent = {"Cache-Control": "no-cache, no-transform", **(headers or {})}
    return StreamingResponse(_with_comments(events), status, media_type="text/event-stream", headers=sent)


async def _with_comments(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield events, and a comment after each 15 seconds of silence, so that no one closes the connection as idle."""
    async with aclosing(events):
        next_event = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait((next_event,), timeout=15)
                if not next_event.done():
                    yield b": still here\n\n"
                    continue
                chunk = next_event.result()
                if chunk is None:
                    return
                yield chunk
                next_event = asyncio.ensure_future(anext(events, None))
        finally:
            await cancel_and_wait((next_event,))
