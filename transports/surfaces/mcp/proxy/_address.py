"""A server behind an address (streamable HTTP), message by message."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass

import httpx2
import msgspec
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value, mcp_param_headers, x_mcp_header_map

from ....adapters.mcp import HttpServer
from ....errors import first_line
from ....protocol import encode_json
from ....tasks import backoff_delay, cancel_and_wait, spawn
from ._lines import Line, LineReader

logger = logging.getLogger("transports")

_SESSION, _VERSION, _LAST = "mcp-session-id", "mcp-protocol-version", "last-event-id"
_VERSION_META = "io.modelcontextprotocol/protocolVersion"
#: Seconds for connecting and sending.
_TIMEOUT = 30.0
#: Most bytes of the body of a refusal, and characters of it in a message.
_MAX_REFUSAL, _MAX_TEXT = 64 * 1024, 500
#: Attempts to resume a stream that broke, one after the other.
_ATTEMPTS = 5
#: Longest line of an event stream that is not data.
_MAX_FIELD = 16 * 1024
#: Error code of a request that did not arrive or was refused.
_FAILED = -32000
_ENDS = re.compile(rb"\r\n|\r")


class _Meta(msgspec.Struct):
    meta: dict[str, msgspec.Raw] = msgspec.field(name="_meta", default_factory=dict)
    name: str = ""
    uri: str = ""
    task_id: str = msgspec.field(name="taskId", default="")
    arguments: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    method: str = ""
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()


class _Cancelled(msgspec.Struct):
    request_id: msgspec.Raw = msgspec.field(name="requestId", default=msgspec.Raw())


class _Version(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion", default="")


_MESSAGE, _META = msgspec.json.Decoder(_Message), msgspec.json.Decoder(_Meta)


@dataclass(slots=True)
class _Sent:
    """Message that was sent. ``key`` is empty for one without an answer; ``answered`` is true once it has it."""

    key: bytes
    method: str
    answered: bool = False


class EventReader:
    """Reader of server-sent events whose data are messages, which it passes on while they arrive."""

    def __init__(self) -> None:
        #: Id of the last whole event, and the delay in seconds that the server asks for.
        self.last_id = ""
        self.retry: float | None = None
        self._line = LineReader()
        self._held = b""
        self._id: str | None = None
        self._in_data = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the messages that end in ``chunk``."""
        chunk = self._held + chunk
        self._held = b""
        if chunk.endswith(b"\r"):  # perhaps half of an end
            chunk, self._held = chunk[:-1], b"\r"
        *lines, rest = _ENDS.sub(b"\n", chunk).split(b"\n") if b"\r" in chunk else chunk.split(b"\n")
        for line in lines:
            if self._in_data:
                self._line.add(line)
                self._in_data = False
                self._line.add(b" ")  # data in several lines
            elif line:
                self._field(line)
            else:
                if self._id is not None:
                    self.last_id, self._id = self._id, None
                if (message := self._line.finish()) is not None:
                    yield message
        if self._in_data:
            self._line.add(rest)
        elif rest.startswith(b"data:") and len(rest) > 6:
            self._in_data = True
            self._line.add(rest[5:])
        else:
            self._held = rest[:_MAX_FIELD] + self._held

    def close(self) -> None:
        """Drop an event that has not ended."""
        self._line.close()

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._line.add(value)
            self._line.add(b" ")
        elif name == b"id" and b"\0" not in value:
            self._id = value.strip().decode("latin-1")[:_MAX_FIELD]
        elif name == b"retry" and value.strip().isdigit():
            self.retry = min(int(value.strip()[:9]) / 1000, 60.0)


class AddressServer:
    """A server behind an address: an :class:`~._relay.Upstream`. Each request is a POST of its own."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._client = httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity", **server.headers},
            timeout=httpx2.Timeout(_TIMEOUT, read=None),
        )
        # bounded: a client that does not read must slow the server
        self._lines: asyncio.Queue[tuple[Line, asyncio.Event] | None] = asyncio.Queue(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._posts: dict[bytes, asyncio.Task[None]] = {}
        self._session: dict[str, str] = {}
        self._headed: dict[str, Mapping[tuple[str, ...], str]] = {}
        self._listening = False
        self._refused: set[bytes] = set()

    async def lines(self) -> AsyncGenerator[Line, None]:
        """Yield the server's messages, until it has forgotten the session."""
        while (given := await self._lines.get()) is not None:
            line, done = given
            try:
                yield line
            finally:
                done.set()

    async def send(self, pieces: Iterable[bytes]) -> None:
        """Send a message; its answers arrive in :meth:`lines`. A handshake is answered first."""
        line = LineReader()
        for piece in pieces:
            line.add(piece)
        message = line.finish()
        if message is None:
            return
        with contextlib.suppress(msgspec.MsgspecError):
            sent = _MESSAGE.decode(message.short)
            if sent.method == "notifications/cancelled" and _VERSION not in self._session:
                self._cancel(sent.params)  # without a handshake, closing the stream is the cancellation
                message.close()
                return
            headers = {**self._session, **self._headers(sent, message)}
            work = self._post(message, _Sent(bytes(sent.id) if sent.method else b"", sent.method), headers)
            if sent.method.startswith("notifications/"):  # in order: the handshake ends with one
                await work
                if sent.method == "notifications/initialized" and not self._listening:
                    self._listening = True
                    spawn(self._listen(), self._tasks)
            else:
                self._spawn(work, bytes(sent.id))
            return
        message.close()

    def _spawn(self, work: Coroutine[object, object, None], key: bytes) -> None:
        task = self._posts[key] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._posts.pop(key, None))

    def _cancel(self, params: msgspec.Raw) -> None:
        task = self._posts.get(bytes(msgspec.json.decode(params, type=_Cancelled).request_id))
        if task is not None:
            task.cancel()

    def reason(self) -> str:
        """Return how the server ended."""
        return f"{self._server} has forgotten the session"

    def refused(self) -> frozenset[bytes]:
        """Return the ids of the requests that the server has certainly not run."""
        return frozenset(self._refused)

    async def aclose(self) -> None:
        """End all requests and the session."""
        await cancel_and_wait(self._tasks)
        if _SESSION in self._session:
            with contextlib.suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._client.delete(self._server.url, headers=self._session)
        await self._client.aclose()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _headers(self, sent: _Message, line: Line) -> dict[str, str]:
        """Return the headers of a message: those of protocol 2026-07-28 repeat parts of it."""
        params = _Meta()
        with contextlib.suppress(msgspec.MsgspecError):
            params = _META.decode(sent.params) if bytes(sent.params) else params
        version = ""
        with contextlib.suppress(msgspec.MsgspecError):
            version = msgspec.json.decode(params.meta.get(_VERSION_META, msgspec.Raw(b'""')), type=str)
        if not version:
            return {}
        headers = {_VERSION: version, "mcp-method": sent.method}
        if (key := NAME_BEARING_METHODS.get(sent.method)) is not None:
            headers["mcp-name"] = encode_header_value({"name": params.name, "uri": params.uri}.get(key, params.task_id))
        if (headed := self._headed.get(params.name)) and sent.method == "tools/call" and not line.is_long:
            with contextlib.suppress(msgspec.MsgspecError):
                headers |= mcp_param_headers(headed, msgspec.json.decode(params.arguments, type=dict[str, object]))
        return headers

    async def _post(self, line: Line, sent: _Sent, headers: Mapping[str, str]) -> None:
        async def body() -> AsyncIterator[bytes]:
            for piece in line.pieces():
                yield piece

        own = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
        own["Content-Length"] = str(line.size)
        try:
            async with self._client.stream("POST", self._server.url, content=body(), headers=own) as response:
                line.close()
                if sent.method == "initialize" and _SESSION in response.headers:
                    self._session[_SESSION] = response.headers[_SESSION]
                kind = response.headers.get("content-type", "").lower()
                if response.status_code == 404 and _SESSION in headers:
                    await self._forgotten(sent)
                    return
                if response.status_code >= 400:
                    await self._fail_with(response, sent)
                elif kind.startswith("text/event-stream"):
                    await self._events(response, sent)
                else:
                    await self._body(response, sent)
            if sent.key and not sent.answered:
                await self._fail(sent, "the server sent no answer")
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            await self._fail(sent, f"{self._server} cannot be reached: {_reason(self._server, error)}")
        finally:
            line.close()

    async def _forgotten(self, sent: _Sent) -> None:
        """End the messages: the server has forgotten the session, and needs another handshake."""
        if sent.key:
            self._refused.add(sent.key)
        if self._session.pop(_SESSION, None) is not None:
            await self._lines.put(None)

    async def _fail_with(self, response: httpx2.Response, sent: _Sent) -> None:
        """Pass on the JSON-RPC error of a refusal, or make one of its status."""
        parts, size = list[bytes](), 0
        async for chunk in response.aiter_raw():
            parts.append(chunk)
            size += len(chunk)
            if size > _MAX_REFUSAL:
                break
        body = b"".join(parts)[:_MAX_REFUSAL]
        with contextlib.suppress(msgspec.MsgspecError):
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            if "error" in fields and sent.key and bytes(fields["error"])[:1] == b"{":
                fields["id"] = msgspec.Raw(sent.key)
                await self._arrived(Line(msgspec.json.encode(fields)), sent)
                return
        text = first_line(self._server.redact(body.decode("utf-8", "replace")))[:_MAX_TEXT]
        await self._fail(sent, f"{self._server} answered with status {response.status_code}: {text}")

    async def _body(self, response: httpx2.Response, sent: _Sent) -> None:
        reader = LineReader()
        try:
            async for chunk in response.aiter_raw():
                reader.add(chunk.replace(b"\n", b" ").replace(b"\r", b" "))  # one line, as all messages
            if (line := reader.finish()) is not None:
                await self._arrived(line, sent)
        finally:
            reader.close()

    async def _events(self, response: httpx2.Response, sent: _Sent) -> None:
        """Read a stream of events until its request is answered; a stream that breaks is resumed, if it has ids."""
        reader, attempt = EventReader(), 0
        try:
            while True:
                try:
                    await self._read_events(reader, response, sent)
                except (httpx2.HTTPError, httpx2.StreamError) as error:
                    if not reader.last_id:
                        raise
                    logger.info("a stream of %s broke: %s", self._server, _reason(self._server, error))
                if sent.answered or not sent.key or not reader.last_id or attempt >= _ATTEMPTS:
                    return
                attempt += 1
                await asyncio.sleep(backoff_delay(attempt) if reader.retry is None else reader.retry)
                headers = {**self._session, "Accept": "text/event-stream", _LAST: reader.last_id}
                async with self._client.stream("GET", self._server.url, headers=headers) as resumed:
                    if resumed.status_code >= 400:
                        return
                    last = reader.last_id
                    with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError):
                        await self._read_events(reader, resumed, sent)
                    attempt = attempt if reader.last_id == last else 0
                if sent.answered:
                    return
        finally:
            reader.close()

    async def _read_events(self, reader: EventReader, response: httpx2.Response, sent: _Sent | None) -> None:
        async for chunk in response.aiter_raw():
            for line in reader.feed(chunk):
                await self._arrived(line, sent)
                if sent is not None and sent.answered:
                    return

    async def _listen(self) -> None:
        """Keep the stream of messages open that answer nothing, if the server has one."""
        reader, attempt = EventReader(), 0
        while True:
            headers = {**self._session, "Accept": "text/event-stream"}
            if reader.last_id:
                headers[_LAST] = reader.last_id
            with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError, OSError):
                async with self._client.stream("GET", self._server.url, headers=headers) as response:
                    kind = response.headers.get("content-type", "").lower()
                    if response.status_code in (404, 405) or not kind.startswith("text/event-stream"):
                        return
                    attempt = 0
                    await self._read_events(reader, response, None)
            attempt += 1
            await asyncio.sleep(backoff_delay(attempt) if reader.retry is None else reader.retry)

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _arrived(self, line: Line, sent: _Sent | None) -> None:
        """Hand a message to :meth:`lines`, and wait until it has been passed on."""
        if sent is not None and sent.key:
            with contextlib.suppress(msgspec.MsgspecError):
                message = _MESSAGE.decode(line.short)
                if not message.method and bytes(message.id) == sent.key:
                    sent.answered = True
                    self._learn(sent.method, bytes(message.result))
            if not line.short:  # too long to be parsed: it is the answer
                sent.answered = True
            line.related = sent.key
        done = asyncio.Event()
        await self._lines.put((line, done))
        await done.wait()

    def _learn(self, method: str, result: bytes) -> None:
        if not result:
            return
        if method == "initialize":
            self._session[_VERSION] = msgspec.json.decode(result, type=_Version).protocol_version
        elif method == "tools/list":
            for tool in msgspec.json.decode(result, type=dict[str, object]).get("tools", ()):  # type: ignore[attr-defined]
                if isinstance(tool, dict) and isinstance(schema := tool.get("inputSchema"), dict):
                    headed = x_mcp_header_map(schema)
                    if headed:
                        self._headed[str(tool.get("name"))] = headed

    async def _fail(self, sent: _Sent, reason: str) -> None:
        if sent.key and not sent.answered:
            sent.answered = True
            error = encode_json({"code": _FAILED, "message": reason})
            await self._arrived(Line(b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (sent.key, error)), None)
        else:
            logger.warning("%s", reason)


def _reason(server: HttpServer, error: Exception) -> str:
    return first_line(server.redact(str(error)))[:_MAX_TEXT] or type(error).__name__
