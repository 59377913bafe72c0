"""A server behind an address (streamable HTTP), for a client that sends its messages one by one."""

from __future__ import annotations

import asyncio
import logging
from codecs import BOM_UTF8
from collections.abc import Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

import httpx2
import msgspec
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value, mcp_param_headers, x_mcp_header_map

from ...._internal.tasks import backoff_delay, cancel_and_wait, start_task
from ....errors import ABPError, ConnectFailed, ProtocolError, TooLarge, first_line
from ....mcp._events import events_of, is_event_stream, message_of
from ....mcp._servers import HttpServer, has_forgotten_session, http_client
from ....protocol._plain_text import plain_line
from ._exchange import Described, fail_connection, failure_message, listed_tools
from ._messages import (
    FIELDS_DECODER,
    MAX_BYTES,
    UNAVAILABLE,
    Deliver,
    Key,
    Message,
    error_message,
    key_or_none,
    over_limit,
    read_batch,
    read_message,
    require_limits,
)

logger = logging.getLogger("transports")

SESSION, VERSION = "mcp-session-id", "mcp-protocol-version"
#: Maximum number of characters of a server's text in a message.
_MAX_TEXT = 500
#: Maximum number of bytes that are read of a refusal, or of a page that comes in place of an answer.
_MAX_REFUSAL = 64 * 1024
#: Parameter that becomes a header, by method: those of the protocol, and those of its extension for tasks.
_NAME_FIELDS = {**NAME_BEARING_METHODS, **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")}


class _Call(msgspec.Struct):
    arguments: dict[str, object] = {}


def upstream_client(server: HttpServer) -> httpx2.AsyncClient:
    """Make a client that waits for answers without a limit: a call may take an hour."""
    return http_client(server, timeout=httpx2.Timeout(30, read=None), limits=httpx2.Limits(max_connections=None))


async def read_body(response: httpx2.Response, limit: int = MAX_BYTES) -> bytes:
    """Return the body of a response as one line, without a byte order mark. Raises
    :class:`~transports.errors.TooLarge`."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise over_limit(limit, "bytes")
    return b"".join(chunks).removeprefix(BOM_UTF8).replace(b"\n", b" ").replace(b"\r", b" ")


def unreachable(server: HttpServer, error: Exception) -> ConnectFailed:
    reason = first_line(server.redact(str(error)))[:_MAX_TEXT] or type(error).__name__
    return ConnectFailed(f"{server} cannot be reached: {reason}")


async def refusal_of(server: HttpServer, response: httpx2.Response, raw_id: bytes) -> bytes:
    """Return the JSON-RPC error for a request that the server has refused with an HTTP status."""
    return _refusal_from(server, response, raw_id, await _read_refusal(response))


async def _read_refusal(response: httpx2.Response) -> bytes:
    """Return the body of a refusal; a very long one is empty."""
    try:
        return await read_body(response, _MAX_REFUSAL)
    except TooLarge:
        return b""


def _refusal_from(server: HttpServer, response: httpx2.Response, raw_id: bytes, body: bytes) -> bytes:
    """Return the JSON-RPC error in ``body``, or one made from the status."""
    error = _error_in(body)
    if error:
        return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (raw_id or b"null", error)

    reason = first_line(server.redact(body.decode("utf-8", "replace")))[:_MAX_TEXT]
    if response.has_redirect_location:
        reason = f"the server has moved to {server.redact(response.headers['location'])[:_MAX_TEXT]}; use that address"
    text = f"{server} answered with status {response.status_code}"
    if reason:
        text += f": {reason}"
    return error_message(raw_id, UNAVAILABLE, text)


def _error_in(body: bytes) -> bytes:
    """Return the error object of a JSON-RPC message in ``body``, as it is written; empty if it has none."""
    try:
        require_limits(body)
        error = bytes(FIELDS_DECODER.decode(body).get("error", b""))
    except (TooLarge, ValueError, RecursionError):
        return b""
    return error if error[:1] == b"{" else b""


@dataclass(slots=True)
class _Posted:
    """A message or a batch that was posted. ``unanswered`` has those of its requests that have no answer yet: their ids
    in JSON, by their keys. ``method`` is the method of a single message."""

    unanswered: dict[Key, bytes]
    method: str = ""
    is_batch: bool = False
    has_requests: bool = field(init=False)

    def __post_init__(self) -> None:
        self.has_requests = bool(self.unanswered)

    @property
    def is_answered(self) -> bool:
        return self.has_requests and not self.unanswered


class AddressServer:
    """A server at an address. Each message is one POST, whose answers are delivered as they arrive."""

    grace = 0.0
    #: 1, since the connection only ends by itself if the server has forgotten the session.
    status = 1

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._client = upstream_client(server)
        self._deliver: Deliver
        self._delivering = asyncio.Lock()
        #: Posts under way, by the key of their request.
        self._posts: WeakValueDictionary[Key, asyncio.Task[None]] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_listening = False
        #: Headers of the session: its id, and the protocol version of the handshake.
        self._session: dict[str, str] = {}
        self._parameter_headers: dict[str, Mapping[tuple[str, ...], str]] = {}
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, deliver: Deliver) -> None:
        """Return when the server has forgotten the session."""
        self._deliver = deliver
        await self._ended

    def close_input(self) -> None:
        pass  # each message was one request

    async def send(self, line: bytes) -> None:
        """Send a message of the client. Requests and answers are sent in the background; a notification is sent before
        this returns, and so before the next message."""
        try:
            message = await read_message(line)
        except ABPError:
            # The line is a batch, or not a message. The server reports what is wrong with such a line.
            batch = _Posted(await _requests_in(line), is_batch=True)
            self._begin_task(None, self._post_and_answer(line, batch, self._session))
            return

        has_handshake = VERSION in self._session
        if message.method == "notifications/cancelled" and not has_handshake:
            # Without a handshake, a request is cancelled by closing its stream.
            self._cancel_post(message)
            return

        headers = {**self._session, **self._message_headers(message)}
        if message.is_request and message.key is not None:
            posted = _Posted({message.key: bytes(message.envelope.id)}, message.method)
            self._begin_task(message.key, self._post_and_answer(line, posted, headers))
        elif message.is_answer:
            self._begin_task(None, self._post_and_answer(line, _Posted({}), headers))
        else:
            await self._post_and_answer(line, _Posted({}, message.method), headers)
            if message.method == "notifications/initialized" and not self._is_listening:
                self._is_listening = True
                self._begin_task(None, self._keep_stream_open())

    async def aclose(self) -> None:
        await cancel_and_wait(self._tasks)
        if SESSION in self._session:
            with suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._client.delete(self._server.url, headers=self._session)
        await self._client.aclose()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _begin_task(self, key: Key | None, work: Coroutine[object, object, None]) -> None:
        """Start a task, whose failure ends the connection. With the ``key`` of a request, :meth:`_cancel_post` can
        cancel it."""
        task = start_task(work, partial(fail_connection, self._ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if key is not None:
            self._posts[key] = task

    async def _post_and_answer(self, line: bytes, posted: _Posted, headers: Mapping[str, str]) -> None:
        """Post a message. A request that the server does not answer is answered here, with an error that says why."""
        reason = ""
        try:
            await self._post(line, posted, headers)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            reason = unreachable(self._server, error).message
        except ABPError as error:
            reason = error.message
        except Exception as error:
            logger.exception("a message to %s failed", self._server)
            reason = failure_message(error)

        if posted.unanswered:
            await self._answer_with_error(posted, reason or "the server sent no answer")
        elif reason:
            logger.warning("%s", reason)

    def _cancel_post(self, message: Message) -> None:
        key = key_or_none(message.params.request_id)
        post = self._posts.get(key) if key is not None else None
        if post is not None:
            post.cancel()

    def _message_headers(self, message: Message) -> dict[str, str]:
        """Return the headers that repeat parts of a message, as protocol 2026-07-28 asks; none for older protocols."""
        params = message.params
        if not params.version:
            return {}

        headers = {VERSION: encode_header_value(params.version), "mcp-method": encode_header_value(message.method)}
        names = {"name": params.name, "uri": params.uri, "taskId": params.task_id}
        name = names.get(_NAME_FIELDS.get(message.method, ""))
        if name is not None:
            headers["mcp-name"] = encode_header_value(name)

        # Tools may declare that some of their parameters become headers.
        places = self._parameter_headers.get(params.name)
        if places and message.method == "tools/call":
            with suppress(ValueError, RecursionError):
                call = msgspec.json.decode(message.envelope.params, type=_Call)
                headers |= mcp_param_headers(places, call.arguments)
        return headers

    async def _post(self, line: bytes, posted: _Posted, headers: Mapping[str, str]) -> None:
        """Post a message, and deliver the messages of the response. Requests that stay unanswered are left to the
        caller."""
        all_headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
        async with self._client.stream("POST", self._server.url, content=line, headers=all_headers) as response:
            if posted.method == "initialize":
                self._learn_session(response)

            if response.status_code >= 300:
                await self._answer_refused(response, posted, has_session=SESSION in all_headers)
                return
            if is_event_stream(response):
                await self._read_stream(response, posted)
                return
            body = await read_body(response)
            if body.strip():
                await self._deliver_message(body, posted)
                if posted.unanswered:
                    raise ProtocolError(self._no_answer_in(body))

    async def _answer_refused(self, response: httpx2.Response, posted: _Posted, *, has_session: bool) -> None:
        """Answer each request that the server refused, or log the refusal of other messages. If the server has
        forgotten the session, the connection ends."""
        body = await _read_refusal(response)
        if has_session and has_forgotten_session(response.status_code, body):
            await self._end_session(posted)
        elif posted.has_requests:
            for raw_id in list(posted.unanswered.values()):
                refusal = _refusal_from(self._server, response, raw_id, body)
                await self._deliver_message(refusal, posted)
        else:
            refusal = _refusal_from(self._server, response, b"", body)
            logger.warning("a message was refused: %s", refusal.decode("utf-8", "replace"))

    def _no_answer_in(self, body: bytes) -> str:
        text = self._server.redact(body[:_MAX_REFUSAL].decode("utf-8", "replace"))
        return f"{self._server} sent no answer, but: {plain_line(text, _MAX_TEXT)}"

    def _learn_session(self, response: httpx2.Response) -> None:
        session = response.headers.get(SESSION)
        if session is None:
            return
        if not session.isascii():
            raise ProtocolError(f"{self._server} gave a session id that is not ASCII")
        self._session[SESSION] = session

    async def _end_session(self, posted: _Posted) -> None:
        await self._answer_with_error(posted, f"{self._server} has forgotten the session")
        if not self._ended.done():
            self._ended.set_result(None)

    async def _read_stream(self, response: httpx2.Response, posted: _Posted) -> None:
        """Deliver the events of a response. If the stream ends before all requests are answered, resume it."""
        position = _StreamPosition()
        try:
            await self._read_events(response, position, posted)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if not position.last_id or isinstance(error, httpx2.SSEError):
                raise
            logger.info("a stream of %s broke: %s", self._server, unreachable(self._server, error).message)

        if posted.has_requests:
            await self._resume_stream(position, posted)

    async def _resume_stream(self, position: _StreamPosition, posted: _Posted) -> None:
        """Open the stream again and again, until all requests are answered. Give up after five attempts in a row
        without an event."""
        max_failures = 5
        while position.last_id and not posted.is_answered and position.failures < max_failures:
            await asyncio.sleep(position.delay())
            if not await self._get_events(position, posted):
                return

    async def _keep_stream_open(self) -> None:
        """Keep a stream open for messages of the server's own, if it has such a stream."""
        position = _StreamPosition()
        while await self._get_events(position, _Posted({})):
            await asyncio.sleep(position.delay())

    async def _get_events(self, position: _StreamPosition, posted: _Posted) -> bool:
        """Open a stream and deliver its events. Return whether the stream may be opened again: it may not if the server
        refuses it, unless the stream was open before and the server fails only now."""
        headers = self._resume_headers(position.last_id)
        try:
            async with self._client.stream("GET", self._server.url, headers=headers) as response:
                if response.status_code >= 300 or not is_event_stream(response):
                    return response.status_code >= 500 and position.was_open
                await self._read_events(response, position, posted)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            logger.info("%s", unreachable(self._server, error).message)
        return True

    def _resume_headers(self, last_id: str) -> list[tuple[bytes, bytes]]:
        """Return the headers to open a stream after the event ``last_id``. They are bytes, since ids need not be
        ASCII."""
        headers = [(name.encode(), value.encode()) for name, value in self._session.items()]
        headers.append((b"accept", b"text/event-stream"))
        if last_id:
            headers.append((b"last-event-id", last_id.encode()))
        return headers

    async def _read_events(self, response: httpx2.Response, position: _StreamPosition, posted: _Posted) -> None:
        """Deliver events until the stream ends, or until the requests of ``posted`` are answered."""
        position.was_open = True
        async with aclosing(events_of(response, MAX_BYTES)) as events:
            async for event in events:
                position.failures = 0
                position.last_id = event.id
                if event.retry is not None:
                    milliseconds = min(max(event.retry, 100), 60_000)
                    position.retry = milliseconds / 1000
                raw = message_of(event)
                if raw:
                    await self._deliver_message(raw, posted)
                if posted.is_answered:
                    return

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _deliver_message(self, raw: bytes, posted: _Posted) -> None:
        """Deliver a message, or a list of messages, with which a server of protocol 2025-03-26 may answer."""
        is_list = raw.lstrip()[:1] == b"["
        try:
            if is_list and posted.has_requests:
                await self._deliver_list(raw, posted)
                return
            message = await read_message(raw)
        except TooLarge as error:
            if posted.has_requests:
                await self._answer_with_error(posted, error.message, {"code": error.code})
            else:
                logger.warning("a message of %s is dropped: %s", self._server, error.message)
            return
        except ABPError:
            # The message cannot be read, which the client reports.
            await self._deliver_in_turn(raw)
            return

        if _take_answered(message, posted):
            self._learn_from_answer(posted.method, message)
        await self._deliver_in_turn(raw)

    async def _deliver_list(self, raw: bytes, posted: _Posted) -> None:
        """Deliver a list of messages. The answer to a batch stays a list; any other list is delivered item by item."""
        items = await read_batch(raw)
        if not posted.is_batch:
            for item in items:
                await self._deliver_message(item, posted)
            return
        for item in items:
            # If an item is not a message, the client reports that.
            with suppress(ProtocolError):
                _take_answered(await read_message(item), posted)
        await self._deliver_in_turn(raw)

    async def _answer_with_error(self, posted: _Posted, reason: str, data: Mapping[str, object] | None = None) -> None:
        raw_ids = list(posted.unanswered.values())
        posted.unanswered.clear()
        for raw_id in raw_ids:
            await self._deliver_in_turn(error_message(raw_id, UNAVAILABLE, reason, data))

    async def _deliver_in_turn(self, raw: bytes) -> None:
        async with self._delivering:
            await self._deliver(raw)

    def _learn_from_answer(self, method: str, message: Message) -> None:
        """Note what later headers need: the protocol version, and the parameters of tools that become headers."""
        result = message.envelope.result
        try:
            if method == "initialize" and result:
                version = msgspec.json.decode(result, type=Described).protocol_version
                self._session[VERSION] = encode_header_value(version)
            elif method == "tools/list" and result:
                for tool in listed_tools(result):
                    places = x_mcp_header_map(tool.input_schema)
                    if places:
                        self._parameter_headers[tool.name] = places
        except (ValueError, RecursionError):
            pass  # the answer has another form, which the client reports


async def _requests_in(line: bytes) -> dict[Key, bytes]:
    """Return the ids of the requests in a batch, as JSON, by their keys; none if the line is not a batch."""
    requests: dict[Key, bytes] = {}
    with suppress(ABPError):
        for item in await read_batch(line):
            message = await read_message(item)
            if message.key is not None and message.is_request:
                requests[message.key] = bytes(message.envelope.id)
    return requests


def _take_answered(message: Message, posted: _Posted) -> bool:
    """Remove the request that ``message`` answers from the unanswered ones. Return whether it was among them."""
    if not message.is_answer or message.key is None:
        return False
    return posted.unanswered.pop(message.key, None) is not None


@dataclass(slots=True)
class _StreamPosition:
    """Where to resume a stream: after the event ``last_id``. ``retry`` is the delay in seconds that the server wants
    before that. ``failures`` counts how often in a row the stream ended without an event."""

    last_id: str = ""
    retry: float | None = None
    failures: int = 0
    was_open: bool = False

    def delay(self) -> float:
        """Count a failure, and return the seconds to wait before the next attempt."""
        self.failures += 1
        return backoff_delay(self.failures) if self.retry is None else self.retry
