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
    """The requests of all users for one server behind an address."""

    def __init__(self, server: HttpServer, shared: Shared) -> None:
        self._server = server
        self._shared = shared
        self._bodies = Bodies()
        self._client = http_client(server)
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))  # they would pass between users
        self._not_sent = _NOT_SENT | {name.lower() for name in server.headers}
        #: Exchanges by user and session, users by the sessions that they opened, and what is known of the server to
        #: users whose clients have no session.
        self._exchanges: defaultdict[str, OrderedDict[str, Exchange]] = defaultdict(OrderedDict)
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._facts: dict[str, Facts] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._client:
            yield

    async def serve(self, request: Request, user: str) -> Response:
        body = await self._bodies.read(request, user)
        if isinstance(body, Response):
            return body
        if any(self._owners.get(session, user) != user for session in request.headers.getlist(SESSION)):
            return refusal(404, "this session has ended; initialize again")
        exchange = self._exchange_of(request, user)
        message: Message | None = None
        try:
            message = await read_message(body)
        except TooLarge as error:
            return refusal(413, error.message, code=error.code)
        except ProtocolError:  # no body, a batch, or something that the server refuses
            if body[:1] == b"[":
                await exchange.add_batch(body)
        if message is not None:
            if message.is_answer and exchange.roots.take_answer(message):
                return Response(status_code=202)
            if message.method == "notifications/roots/list_changed":
                exchange.roots.forget()
        if message is not None and message.is_request:
            if exchange.is_ours(message):
                return stream_response(_own_answer(exchange, message))
            files = exchange.files_in(message)
            if files:
                return stream_response(self._call_with_files(request, exchange, message, files))
            exchange.add_request(message)
        forwarding = asyncio.ensure_future(self._forward(request, body, user, exchange, message))
        gone = asyncio.ensure_future(_disconnection(request))
        try:
            if request.method == "GET" or (message is not None and message.is_request):
                await asyncio.wait((forwarding, gone), return_when=asyncio.FIRST_COMPLETED)
                if not forwarding.done():
                    return Response(status_code=408)  # the client has gone
            return await forwarding
        finally:
            await cancel_and_wait((forwarding, gone))

    async def _forward(
        self, request: Request, body: bytes, user: str, exchange: Exchange, message: Message | None
    ) -> Response:
        try:
            response = await self._send(request, body)
            return await self._response(response, request, user, exchange, message)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if message is not None and message.key is not None:
                exchange.answered(message.key)
            reason = unreachable(self._server, error).message
            return _json_response(error_message(_identity_of(message), UNAVAILABLE, reason), 502)

    def _exchange_of(self, request: Request, user: str) -> Exchange:
        session = request.headers.get(SESSION, "")
        if request.headers.get(VERSION) in STATELESS_VERSIONS:  # clients of a user may use the same ids
            return self._shared.exchange(Scope(user=user), self._facts.setdefault(user, Facts()))
        exchange = self._exchanges[user].get(session)
        if exchange is None:
            exchange = self._shared.exchange(Scope(user=user, session=session or None))
            self._remember(user, session, exchange)
        return exchange

    def _remember(self, user: str, session: str, exchange: Exchange) -> None:
        exchanges = self._exchanges[user]
        exchanges[session] = exchange
        exchanges.move_to_end(session)
        while len(exchanges) > _MAX_SESSIONS:
            exchanges.popitem(last=False)

    async def _send(self, request: Request, body: bytes) -> httpx2.Response:
        headers = [(name, value) for name, value in request.headers.raw if name.decode("latin-1") not in self._not_sent]
        sent = self._client.build_request(request.method, self._server.url, headers=headers, content=body or None)
        return await self._client.send(sent, stream=True)

    async def _response(
        self, response: httpx2.Response, request: Request, user: str, exchange: Exchange, message: Message | None
    ) -> Response:
        headers = {name: value for name, value in response.headers.items() if name.lower() not in _NOT_RETURNED}
        opened = response.headers.get(SESSION)
        if message is not None and message.method == "initialize" and opened:
            self._exchanges[user].pop(request.headers.get(SESSION, ""), None)
            self._remember(user, opened, exchange)
            self._owners[opened] = user
            while len(self._owners) > _MAX_SESSIONS:
                self._owners.popitem(last=False)
        if request.method == "DELETE":
            self._exchanges[user].pop(request.headers.get(SESSION, ""), None)
        if response.status_code < 300 and is_event_stream(response):
            headers.pop("content-type")  # it may name another encoding, and events are in UTF-8
            return stream_response(_events(response, exchange, message), headers, response.status_code)
        identity = _identity_of(message)
        async with aclosing(response):
            status = response.status_code
            if status >= 300:
                if message is not None and message.key is not None:
                    exchange.answered(message.key)
                if status < 400 or status >= 600 or status in (401, 407):  # not about the client's request
                    status = 502
                return _json_response(await refusal_of(self._server, response, identity), status)
            try:
                body = await read_body(response)
            except TooLarge as error:
                return _json_response(error_message(identity, UNAVAILABLE, error.message, {"code": error.code}))
        if body.strip():
            body = await _rewritten(body, exchange, message)
        return Response(body, response.status_code, headers)

    async def _call_with_files(
        self, request: Request, exchange: Exchange, message: Message, files: Mapping[Place, str]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a call with files: perhaps a question about the client's roots, then the answers."""
        questions: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def prepare() -> Message:
            try:
                return await exchange.with_files(message, files, questions.put)
            finally:
                questions.put_nowait(None)

        preparing = asyncio.ensure_future(prepare())
        identity = bytes(message.envelope.id)
        try:
            while (question := await questions.get()) is not None:
                yield event(question)
            filled = await preparing
            exchange.add_request(filled)
            response = await self._send(request, filled.raw)
            async with aclosing(response):
                if response.status_code >= 300:
                    yield event(await refusal_of(self._server, response, identity))
                elif is_event_stream(response):
                    async with aclosing(_events(response, exchange, filled)) as events:
                        async for chunk in events:
                            yield chunk
                else:
                    yield event(await _rewritten(await read_body(response), exchange, filled))
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            yield event(request_refusal(identity, unreachable(self._server, error)))
        except Exception as error:  # noqa: BLE001 - a request has one answer
            yield event(request_refusal(identity, error))
        finally:
            preparing.cancel()


async def _disconnection(request: Request) -> None:
    """Return when the client of a request that was read has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _own_answer(exchange: Exchange, message: Message) -> AsyncGenerator[bytes, None]:
    try:
        yield event(await exchange.answer(message))
    except Exception as error:  # noqa: BLE001 - a request has one answer
        yield event(request_refusal(bytes(message.envelope.id), error))


async def _events(
    response: httpx2.Response, exchange: Exchange, message: Message | None
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a response, their messages as the client gets them."""
    try:
        async with aclosing(response), aclosing(events_of(response)) as events:
            async for item in events:
                raw = b""
                if item.event == "message" and item.data:
                    raw = await _rewritten(item.data.encode().replace(b"\n", b" "), exchange, message)
                yield event(raw, identity=item.id, retry=item.retry)
    except httpx2.SSEError as error:
        if message is not None and message.key is not None:
            yield event(error_message(bytes(message.envelope.id), UNAVAILABLE, str(error)))
    except (httpx2.HTTPError, httpx2.StreamError) as error:  # the client sees the end, and may resume
        logger.info("a stream broke: %s", type(error).__name__)


async def _rewritten(raw: bytes, exchange: Exchange, message: Message | None) -> bytes:
    try:
        passed = await exchange.to_client(raw)
    except ABPError as error:
        return error_message(_identity_of(message), UNAVAILABLE, error.message, {"code": error.code})
    return raw if passed is None else passed.raw


def _identity_of(message: Message | None) -> bytes:
    return b"" if message is None else bytes(message.envelope.id)


def _json_response(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


# --- requests and responses -------------------------------------------------------------------------------------------


def refusal(status: int, message: str, *, number: int = INVALID_REQUEST, code: str | None = None) -> Response:
    data = None if code is None else {"code": code}
    return _json_response(error_message(b"", number, message, data), status)


class Bodies:
    """Reader of the bodies of requests, with a limit for those of a user that arrive at the same time."""

    def __init__(self) -> None:
        self._arriving: Counter[str] = Counter()

    async def read(self, request: Request, user: str) -> bytes | Response:
        """Return the body of a request as one line, or the response to one that is too large or too slow."""
        chunks: list[bytes] = []
        size = received = 0
        refused: Response | None = None
        try:
            async for chunk in in_time(request.stream()):
                received += len(chunk)
                if refused is not None:  # it is read and dropped: a client reads no response before it has sent all
                    if received > 8 * MAX_BYTES:
                        break
                    continue
                size += len(chunk)
                self._arriving[user] += len(chunk)
                chunks.append(chunk)
                if size > MAX_BYTES:
                    message = f"the request has more than {MAX_BYTES:,} bytes, which is the limit; send less at once"
                    refused = refusal(413, message, code=TooLarge.code)
                elif self._arriving[user] > _MAX_ARRIVING:
                    message = f"requests of this user with more than {_MAX_ARRIVING:,} bytes arrive at the same time"
                    refused = refusal(429, f"{message}; wait for one to end", code="LIMIT_REACHED")
                if refused is not None:
                    chunks.clear()
        except TimeoutError:
            refused = slow_response()
        finally:
            self._arriving[user] -= size
            if not self._arriving[user]:
                del self._arriving[user]
        return refused or b"".join(chunks).replace(b"\n", b" ").replace(b"\r", b" ").strip()


def event(raw: bytes, *, identity: str = "", retry: int | None = None) -> bytes:
    """Return a message as an event. A line break between two of its values would end the field."""
    head = b"event: message\n"
    if identity:
        head += b"id: %s\n" % identity.encode()
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
    async with aclosing(events):
        following = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait((following,), timeout=15)
                if not following.done():
                    yield b": still here\n\n"
                    continue
                chunk = following.result()
                if chunk is None:
                    return
                yield chunk
                following = asyncio.ensure_future(anext(events, None))
        finally:
            await cancel_and_wait((following,))
