"""A server behind an address (streamable HTTP), for a client that sends its messages one by one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass

import httpx2
import msgspec
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value, mcp_param_headers, x_mcp_header_map

from ...._internal.tasks import backoff_delay, begin, cancel_and_wait
from ....errors import ABPError, ConnectFailed, ProtocolError, TooLarge, first_line
from ....mcp._servers import HttpServer
from ._duplex import Deliver
from ._exchange import failure_message, failure_of
from ._messages import (
    MAX_BYTES,
    PROTOCOL_VERSION,
    UNAVAILABLE,
    Key,
    Message,
    error_message,
    key_or_none,
    over_limit,
    read_message,
    require_limits,
)

logger = logging.getLogger("transports")

SESSION, VERSION = "mcp-session-id", "mcp-protocol-version"
#: Most characters of a server's text in a message.
_MAX_TEXT = 500


class _Described(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion", default="")


class _Call(msgspec.Struct):
    name: str = ""
    arguments: dict[str, object] = {}


class _Listed(msgspec.Struct):
    name: str = ""
    input_schema: dict[str, object] = msgspec.field(name="inputSchema", default_factory=dict)


class _Tools(msgspec.Struct):
    tools: list[_Listed] = []


def http_client(server: HttpServer) -> httpx2.AsyncClient:
    """Return a client for a server. It waits for answers without a limit: a call may take an hour."""
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},
        timeout=httpx2.Timeout(30, read=None),
        limits=httpx2.Limits(max_connections=None),
    )


async def read_body(response: httpx2.Response, limit: int = MAX_BYTES) -> bytes:
    """Return the body of a response as one line. Raises :class:`~transports.errors.TooLarge`."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise over_limit(limit, "bytes")
    return b"".join(chunks).replace(b"\n", b" ").replace(b"\r", b" ")


def is_event_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("text/event-stream")


def unreachable(server: HttpServer, error: Exception) -> ConnectFailed:
    """Return the error for a request that did not arrive, or whose answer broke off."""
    reason = first_line(server.redact(str(error)))[:_MAX_TEXT] or type(error).__name__
    return ConnectFailed(f"{server} cannot be reached: {reason}")


async def refusal_of(server: HttpServer, response: httpx2.Response, identity: bytes) -> bytes:
    """Return the JSON-RPC error in the body of a refusal, or one made of its status."""
    try:
        body = await read_body(response, 64 * 1024)
        require_limits(body)
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        error = bytes(fields.get("error", b""))
        if error[:1] == b"{":
            return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (identity or b"null", error)
    except TooLarge:
        body = b""
    except (ValueError, RecursionError):
        pass
    reason = first_line(server.redact(body.decode("utf-8", "replace")))[:_MAX_TEXT]
    if response.has_redirect_location:
        reason = f"the server has moved to {server.redact(response.headers['location'])[:_MAX_TEXT]}; use that address"
    return error_message(identity, UNAVAILABLE, f"{server} answered with status {response.status_code}: {reason}")


@dataclass(slots=True)
class _Waiting:
    """A request that was sent: its id, also as it is written, and whether it has its answer."""

    key: Key | None
    identity: bytes
    method: str
    answered: bool = False


class AddressServer:
    """A server behind an address. Each message is one POST, whose answers are delivered as they arrive."""

    grace = 0.0
    #: It only ends by itself when it has forgotten the session.
    status = 1

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._client = http_client(server)
        self._deliver: Deliver = _drop
        self._delivering = asyncio.Lock()
        self._posts: dict[Key, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_listening = False
        #: Headers of the session: its id, and the protocol version of the handshake.
        self._session: dict[str, str] = {}
        self._parameter_headers: dict[str, Mapping[tuple[str, ...], str]] = {}
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, deliver: Deliver) -> None:
        """Deliver the server's messages, until it has forgotten the session."""
        self._deliver = deliver
        await self._ended

    def close_input(self) -> None:
        pass  # each message was one request

    async def send(self, line: bytes) -> None:
        """Send a message. A notification is sent before this returns, and so before the next message."""
        try:
            message = await read_message(line)
        except ABPError:  # a batch, or no message: the server says what is wrong with it
            self._start(None, self._answer(line, _Waiting(None, b"", ""), self._session))
            return
        key = message.key if message.is_request else None
        waiting = _Waiting(key, bytes(message.envelope.id), message.method)
        if message.method == "notifications/cancelled" and VERSION not in self._session:
            self._cancel(message)
            return
        headers = {**self._session, **self._headers(message)}
        if message.is_request or message.is_answer:
            self._start(waiting.key, self._answer(line, waiting, headers))
            return
        await self._answer(line, waiting, headers)
        if message.method == "notifications/initialized" and not self._is_listening:
            self._is_listening = True
            self._start(None, self._listen())

    async def aclose(self) -> None:
        await cancel_and_wait(self._tasks)
        if SESSION in self._session:
            with suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._client.delete(self._server.url, headers=self._session)
        await self._client.aclose()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _start(self, key: Key | None, work: Coroutine[object, object, None]) -> None:
        task = begin(work, self._fail)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if key is None:
            return

        def ended(task: asyncio.Task[None]) -> None:
            if self._posts.get(key) is task:
                del self._posts[key]

        self._posts[key] = task
        task.add_done_callback(ended)

    def _fail(self, error: BaseException) -> None:
        """End the connection: a request cannot get its answer."""
        if not self._ended.done():
            self._ended.set_exception(failure_of(error))

    async def _answer(self, line: bytes, waiting: _Waiting, headers: Mapping[str, str]) -> None:
        """Send a message whose request gets an answer whatever is raised."""
        reason = ""
        try:
            await self._post(line, waiting, headers)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            reason = unreachable(self._server, error).message
        except ABPError as error:
            reason = error.message
        except Exception as error:
            logger.exception("a message to %s failed", self._server)
            reason = failure_message(error)
        if waiting.key is not None and not waiting.answered:
            await self._pass_on(error_message(waiting.identity, UNAVAILABLE, reason or "the server sent no answer"))
        elif reason:
            logger.warning("%s", reason)

    def _cancel(self, message: Message) -> None:
        """Close the stream of a request, which is its cancellation where there was no handshake."""
        key = key_or_none(message.params.request_id)
        if key in self._posts:
            self._posts[key].cancel()

    def _headers(self, message: Message) -> dict[str, str]:
        """Return the headers of a message: those of protocol 2026-07-28 repeat parts of it."""
        params = message.params
        try:
            version = msgspec.json.decode(params.meta.get(PROTOCOL_VERSION, b'""'), type=str)
        except ValueError:
            return {}
        if not version:
            return {}
        headers = {VERSION: encode_header_value(version), "mcp-method": encode_header_value(message.method)}
        name_field = NAME_BEARING_METHODS.get(message.method)
        if name_field is not None:
            name = {"name": params.name, "uri": params.uri}.get(name_field, params.task_id)
            headers["mcp-name"] = encode_header_value(name)
        places = self._parameter_headers.get(params.name)
        if places and message.method == "tools/call":
            with suppress(ValueError, RecursionError):
                call = msgspec.json.decode(message.envelope.params, type=_Call)
                headers |= mcp_param_headers(places, call.arguments)
        return headers

    async def _post(self, line: bytes, waiting: _Waiting, headers: Mapping[str, str]) -> None:
        sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
        async with self._client.stream("POST", self._server.url, content=line, headers=sent) as response:
            if waiting.method == "initialize" and SESSION in response.headers:
                session = response.headers[SESSION]
                if not session.isascii():
                    raise ProtocolError(f"{self._server} gave a session id that is not ASCII")
                self._session[SESSION] = session
            if response.status_code == 404 and SESSION in headers:
                if waiting.key is not None:
                    waiting.answered = True
                    reason = f"{self._server} has forgotten the session"
                    await self._pass_on(error_message(waiting.identity, UNAVAILABLE, reason))
                if not self._ended.done():
                    self._ended.set_result(None)
            elif response.status_code >= 300:
                refusal = await refusal_of(self._server, response, waiting.identity)
                if waiting.key is None:
                    logger.warning("a message was refused: %s", refusal.decode("utf-8", "replace"))
                else:
                    await self._take(refusal, waiting)
            elif is_event_stream(response):
                await self._read_stream(response, waiting)
            else:
                body = await read_body(response)
                if body.strip():
                    await self._take(body, waiting)

    async def _read_stream(self, response: httpx2.Response, waiting: _Waiting) -> None:
        """Read a stream of events until its request is answered; a stream that breaks is resumed, if it has ids."""
        position = _Position()
        try:
            await self._read_events(response, position, waiting)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if not position.last_id or isinstance(error, httpx2.SSEError):
                raise
            logger.info("a stream of %s broke: %s", self._server, unreachable(self._server, error).message)
        attempt = 0
        while position.last_id and waiting.key is not None and not waiting.answered and attempt < 5:
            attempt += 1
            await asyncio.sleep(position.delay(attempt))
            last_id = position.last_id
            with suppress(httpx2.HTTPError, httpx2.StreamError):
                async with self._client.stream("GET", self._server.url, headers=self._resuming(last_id)) as resumed:
                    if resumed.status_code >= 300:
                        return
                    await self._read_events(resumed, position, waiting)
            if position.last_id != last_id:
                attempt = 0

    def _resuming(self, last_id: str) -> list[tuple[bytes, bytes]]:
        headers = [(name.encode(), value.encode()) for name, value in self._session.items()]
        headers.append((b"accept", b"text/event-stream"))
        if last_id:
            headers.append((b"last-event-id", last_id.encode()))  # as bytes: it need not be ASCII
        return headers

    async def _read_events(self, response: httpx2.Response, position: _Position, waiting: _Waiting | None) -> None:
        async with aclosing(events_of(response)) as events:
            async for event in events:
                position.last_id = event.id
                if event.retry is not None:
                    position.retry = min(max(event.retry, 100), 60_000) / 1000
                if event.event == "message" and event.data:
                    await self._take(event.data.encode().replace(b"\n", b" "), waiting)
                if waiting is not None and waiting.answered:
                    return

    async def _listen(self) -> None:
        """Keep the stream of messages open that answer nothing, if the server has one."""
        position, attempt = _Position(), 0
        while True:
            try:
                headers = self._resuming(position.last_id)
                async with self._client.stream("GET", self._server.url, headers=headers) as response:
                    if response.status_code in (404, 405) or not is_event_stream(response):
                        return
                    attempt = 0
                    await self._read_events(response, position, None)
            except (httpx2.HTTPError, httpx2.StreamError) as error:
                logger.info("%s", unreachable(self._server, error).message)
            attempt += 1
            await asyncio.sleep(position.delay(attempt))

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _take(self, raw: bytes, waiting: _Waiting | None) -> None:
        try:
            message = await read_message(raw)
        except TooLarge as error:
            if waiting is None or waiting.key is None:
                logger.warning("a message of %s is dropped: %s", self._server, error.message)
            else:
                waiting.answered = True
                await self._pass_on(error_message(waiting.identity, UNAVAILABLE, error.message, {"code": error.code}))
            return
        except ABPError:
            await self._pass_on(raw)
            return
        if waiting is not None and message.is_answer and message.key == waiting.key:
            waiting.answered = True
            self._learn(waiting.method, message)
        await self._pass_on(raw)

    async def _pass_on(self, raw: bytes) -> None:
        async with self._delivering:
            await self._deliver(raw)

    def _learn(self, method: str, message: Message) -> None:
        result = message.envelope.result
        try:
            if method == "initialize" and result:
                version = msgspec.json.decode(result, type=_Described).protocol_version
                self._session[VERSION] = encode_header_value(version)
            elif method == "tools/list" and result:
                for tool in msgspec.json.decode(result, type=_Tools).tools:
                    places = x_mcp_header_map(tool.input_schema)
                    if places:
                        self._parameter_headers[tool.name] = places
        except (ValueError, RecursionError):  # another form, of which the client says what is wrong with it
            pass


@dataclass(slots=True)
class _Position:
    """The last event of a stream, and the delay in seconds that its server asks for."""

    last_id: str = ""
    retry: float | None = None

    def delay(self, attempt: int) -> float:
        if self.retry is None:
            return backoff_delay(attempt)
        return self.retry


async def events_of(response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
    """Yield the events of a stream. Raises :class:`httpx2.SSEError` for one that is over the limit."""
    response.encoding = "utf-8-sig"  # whatever its Content-Type says; a mark at the beginning is not content
    async for event in httpx2.EventSource(response, max_event_size=MAX_BYTES):
        yield event


async def _drop(_: object) -> None:
    pass
