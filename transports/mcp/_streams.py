"""The two ways to a server, stdio and HTTP, as streams for the SDK's session.

Large results and faulty tool lists are kept away from the SDK, which validates messages in the event loop and would
refuse a whole list because of one bad entry.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias, get_args

import anyio
import httpx2
import mcp_types as types
from anyio.abc import ObjectReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp.shared.message import SessionMessage
from mcp_types.methods import parse_server_notification
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from .._internal.tasks import backoff_delay, start_task
from ..errors import ProtocolError, first_line, spelled
from ..protocol._http_dates import retry_after
from ..protocol._plain_text import plain_line, refusal_words
from ..protocol._strict_json import (
    decode_json,
    in_thread_if_long,
    is_deeper,
    is_larger,
    items_of,
)
from ._events import encode_event, events_of, is_event_stream, message_of
from ._servers import HttpServer, StdioServer, has_forgotten_session, http_client, network_variables
from ._stdio import GRACE, ServerProcess, end_process, ends_of_message, exit_reason, lines_of, start_process
from ._wire import (
    BROKEN,
    BUSY,
    LIMITS,
    SESSION_EXPIRED,
    UNREACHED,
    UNREADABLE,
    MessageReader,
    encode_message,
    error_of_request,
    first_fault,
    max_message_bytes,
    parse_message,
    unreadable,
    unreadable_answer,
    unsent_error,
)

logger = logging.getLogger("transports.mcp")

Streams: TypeAlias = "AbstractAsyncContextManager[tuple[Any, Any]]"
ServerStreams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

_OVER_LIMIT = "over the limit of"
#: Beginning of a JSON object, or of a list of objects.
_OBJECTS = re.compile(rb"\s*(?:\[\s*)?\{")
#: Encodings of content that compress it. Some servers name an encoding of characters in their place.
_COMPRESSIONS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress"})
_SESSION_HEADER = "mcp-session-id"
#: Status of a gateway that lost the server or stopped waiting for it (520 and 524 are Cloudflare's). The server may
#: have done what was asked.
_GATEWAY_FAULTS = frozenset({502, 504, 520, 524})
#: Errors of a connection that breaks while a message is sent or answered.
_BREAKS = (httpx2.ReadError, httpx2.WriteError, httpx2.WriteTimeout, httpx2.RemoteProtocolError)


class WithheldResults:
    """Results that are kept from the SDK, which gets a placeholder for each. As many are kept as requests are
    ``waiting``, and 64 more."""

    def __init__(self) -> None:
        self.waiting = 0
        self._results: dict[str, dict[str, Any]] = {}

    def replace_by_placeholder(self, result: dict[str, Any]) -> dict[str, Any]:
        # The mark cannot be guessed, so no server can write a placeholder itself.
        mark = secrets.token_urlsafe(16)
        self._results[mark] = result
        # An answer after the end of its request is never fetched; the oldest of these are dropped.
        max_late = 64
        if len(self._results) > self.waiting + max_late:
            del self._results[next(iter(self._results))]
        return {"_meta": {"abp-transports/aside": mark}}

    def pop_original(self, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result that a placeholder stands for. Return ``None`` if ``result`` is not a placeholder, or if
        its original was fetched before."""
        match result.get("_meta"):
            case {"abp-transports/aside": str(mark)}:
                return self._results.pop(mark, None)
        return None


# --- repair -----------------------------------------------------------------------------------------------------------

#: Lists at the top of results: of tools, content blocks, resources and prompts. The SDK would refuse the whole result
#: for one bad item, so it gets empty lists.
_LISTS = frozenset({"tools", "content", "resources", "resourceTemplates", "contents", "prompts"})
#: Members of results that the SDK would refuse in some forms, and does not need.
_NOT_SHOWN = frozenset({"_meta", "structuredContent", "isError"})
#: Levels of log messages, and the usual names of some in logging libraries.
_LEVELS = frozenset(get_args(types.LoggingLevel))
_OTHER_LEVELS = {"trace": "debug", "verbose": "debug", "warn": "warning", "err": "error", "fatal": "critical"}
#: Types of members at the top of a schema.
_SCHEMA_MEMBERS: Mapping[str, type] = {"properties": dict, "required": list, "$schema": str}


@asynccontextmanager
async def repair_tools(streams: Streams, withheld: WithheldResults) -> AsyncIterator[tuple[Any, Any]]:
    """Repair results before the SDK reads them. A schema without a type gets its type. A schema that is nested too
    deeply, and a tool that is still invalid, are dropped with a warning. In a ``withheld`` list, the tools are objects
    of :class:`~mcp_types.Tool`."""
    async with streams as (incoming, outgoing):
        yield _RepairedStream(incoming, withheld), outgoing


class _RepairedStream(ObjectReceiveStream["SessionMessage | Exception"]):
    def __init__(self, stream: Any, withheld: WithheldResults) -> None:
        self._stream = stream
        self._withheld = withheld
        #: Methods of notifications that could not be read.
        self._unreadable: set[str] = set()

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        message = None
        while message is None:
            message = await self._repair_message(await self._stream.receive())
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _repair_message(self, message: SessionMessage | Exception) -> SessionMessage | Exception | None:
        """Return the repaired message, or ``None`` for a message that the SDK must not see."""
        if not isinstance(message, SessionMessage):
            return message

        if isinstance(message.message, types.JSONRPCError):
            if message.message.id is None:
                logger.warning(
                    "the server reports an error that belongs to no request: %.200s", message.message.error.message
                )
            return message
        if isinstance(message.message, types.JSONRPCResponse):
            message.message.result = await self._repair_result(message.message.result)
            return message

        if is_larger(message.message.params, LIMITS.values_of_notification):
            logger.warning("left out %.80r of the server: it has very many values", message.message.method)
            return None
        if isinstance(message.message, types.JSONRPCNotification):
            if message.message.method == "notifications/message" and message.message.params is not None:
                _repair_log(message.message.params)
            if not self._is_readable(message.message):
                return None
        return message

    def _is_readable(self, notification: types.JSONRPCNotification) -> bool:
        try:
            parse_server_notification(notification.method, LATEST_HANDSHAKE_VERSION, notification.params)
        except KeyError:
            # A method of another version of MCP, or of the server's own: the SDK passes it on unread.
            pass
        except ValidationError as error:
            # The SDK would log a traceback.
            if notification.method not in self._unreadable:
                fault = first_fault(error)
                logger.warning("left out %s of the server, and more such: %.200s", notification.method, fault)
            self._unreadable.add(notification.method)
            return False
        return True

    async def _repair_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result for the SDK. If it is large, or has parts that the SDK might refuse, the whole result is
        withheld, and the returned one has a placeholder and no items."""
        whole = self._withheld.pop_original(result) or result
        _repair_handshake(whole)
        is_large = is_larger(whole, LIMITS.values_on_loop)
        lists = _LISTS & whole.keys()
        if not (is_large or lists or "structuredContent" in whole):
            return whole

        _repair_cursor(whole)
        for_sdk: dict[str, Any] = {key: _without_items(value) for key, value in whole.items() if key not in _NOT_SHOWN}
        for_sdk |= {key: [] for key in lists}
        _complete_result(for_sdk)
        if "structuredContent" in whole:
            # The SDK requires this list, which some servers leave out.
            for_sdk["content"] = []

        if "tools" in whole:
            tools = items_of(whole["tools"])
            if is_large:
                whole["tools"], for_sdk["tools"] = await asyncio.to_thread(_sort_tools, tools)
            else:
                whole["tools"], for_sdk["tools"] = _sort_tools(tools)
        return {**for_sdk, **self._withheld.replace_by_placeholder(whole)}


def _repair_handshake(result: dict[str, Any]) -> None:
    """Repair capabilities: PHP writes ``[]`` for ``{}``, other servers ``null``, or ``true`` for a member."""
    if "serverInfo" not in result and "protocolVersion" not in result:
        return
    capabilities = result.get("capabilities")
    if capabilities in ([], None):
        result["capabilities"] = {}
    elif isinstance(capabilities, dict):
        repaired: dict[str, object] = {}
        for name, value in capabilities.items():
            if value is True or value == []:
                repaired[name] = {}
            elif value is not None and value is not False:
                repaired[name] = value
        result["capabilities"] = repaired


def _repair_log(log: MutableMapping[str, Any]) -> None:
    """Repair a log message in place: a level such as ``warn`` or ``INFO``, and a text that is in ``message``."""
    level = str(log.get("level")).lower()
    if level not in _LEVELS:
        level = _OTHER_LEVELS.get(level, "info")
    log["level"] = level
    log.setdefault("data", log.get("message"))


def _repair_cursor(result: dict[str, Any]) -> None:
    """Repair the cursor in place: some servers write a number, or an empty text after the last page.

    Since 2026-07-28, whose results have a ``resultType``, an empty text is a valid cursor and stays."""
    cursor = result.pop("nextCursor", None)
    if isinstance(cursor, int | float) and not isinstance(cursor, bool):
        cursor = str(cursor)
    if isinstance(cursor, str) and (cursor or "resultType" in result):
        result["nextCursor"] = cursor


def _complete_result(result: dict[str, Any]) -> None:
    """Add members that results of 2026-07-28 must have and many servers lack. Other versions allow for any members."""
    result.setdefault("resultType", "complete")
    lifetime = result.get("ttlMs")
    if not (isinstance(lifetime, int) and lifetime >= 0):
        result["ttlMs"] = 0
    if result.get("cacheScope") not in ("public", "private"):
        result["cacheScope"] = "private"


def _without_items(value: object) -> object:
    if isinstance(value, dict | list):
        return type(value)()
    return value


def _sort_tools(tools: list[object]) -> tuple[list[types.Tool], list[Mapping[str, Any]]]:
    """Return the usable tools. The second list has, as JSON for the SDK, those with arguments that become headers."""
    usable: list[types.Tool] = []
    tools_with_headers: list[Mapping[str, Any]] = []
    for entry in tools:
        repaired = _repair_tool(entry)
        if repaired is None:
            continue
        tool = _validate_tool(repaired)
        # Clients must not use a tool with an invalid header.
        if tool is None or find_invalid_x_mcp_header(tool.input_schema) is not None:
            continue
        usable.append(tool)
        if x_mcp_header_map(tool.input_schema) and not is_larger(tool.input_schema, LIMITS.values_on_loop):
            tools_with_headers.append(repaired)
    return usable, tools_with_headers[: LIMITS.headed_tools]


def _repair_tool(tool: object) -> Mapping[str, Any] | None:
    if not isinstance(tool, dict):
        logger.warning("left out a tool that is not an object: %.80r", tool)
        return None
    # The SDK refuses a list with a schema of another type: inputSchema always, outputSchema through 2025-11-25.
    repaired = {**tool, "inputSchema": {**_repair_schema(tool, "inputSchema"), "type": "object"}}
    output_schema = _repair_schema(tool, "outputSchema")
    if output_schema.get("type") == "object":
        repaired["outputSchema"] = output_schema
    else:
        repaired.pop("outputSchema", None)
    return repaired


def _validate_tool(tool: Mapping[str, Any]) -> types.Tool | None:
    try:
        return types.Tool.model_validate(tool, by_name=False)
    except ValidationError as error:
        logger.warning("left out the tool %.80r, which is not valid MCP: %.200s", tool.get("name"), first_fault(error))
        return None


def _repair_schema(tool: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the schema under ``key``, without members of a wrong type: PHP writes ``[]`` for no properties. A missing
    schema, and a schema that is too deep for the SDK, becomes empty."""
    declared_schema = tool.get(key)
    if not isinstance(declared_schema, dict):
        return {}

    schema: dict[str, Any] = {}
    for name, value in declared_schema.items():
        expected_type = _SCHEMA_MEMBERS.get(name, object)
        if isinstance(value, expected_type):
            schema[name] = value
    if not all(isinstance(name, str) for name in schema.get("required", ())):
        del schema["required"]

    if is_deeper(schema, LIMITS.schema_depth):
        logger.warning(
            "left out %s of the tool %.80r: it is nested deeper than %d levels",
            key,
            tool.get("name"),
            LIMITS.schema_depth,
        )
        return {}
    return schema


# --- HTTP -------------------------------------------------------------------------------------------------------------


def is_size_error(message: str) -> bool:
    """Whether an error of the SDK means that a message was too large. The SDK passes the cause on only as text."""
    return _OVER_LIMIT in message or "Server-sent event exceeded" in message


@asynccontextmanager
async def http_streams(
    server: HttpServer, auth: httpx2.Auth | None, withheld: WithheldResults, *, max_bytes: int
) -> AsyncIterator[tuple[Any, Any]]:
    """Open streams to a server over HTTP. ``max_bytes`` is the limit of a message, in decoded bytes of content."""
    async with (
        http_client(
            server,
            _Client,
            auth=auth,
            # Each call has its own limit for the answer, and its own connection.
            timeout=httpx2.Timeout(30.0, read=None),
            limits=httpx2.Limits(max_connections=None),
            event_hooks={"response": [partial(_limit_response, server, withheld, max_bytes)]},
        ) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=max_message_bytes(max_bytes)
        ) as streams,
    ):
        yield streams


class _Client(httpx2.AsyncClient):
    """HTTP client of the SDK. If the connection of one message breaks, the client answers that message with an error:
    otherwise the SDK would end the connections of all other messages, too."""

    _has_reached_server = False
    _has_opened_stream = False

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "DELETE":
            return await self._send_delete(request, **options)
        if request.method == "GET":
            return await self._open_stream(request, **options)
        try:
            response = await super().send(request, **options)
            self._has_reached_server = True
            return response
        except (*_BREAKS, httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            # If the server was never reached, opening the connection must fail.
            was_never_reached = not self._has_reached_server and not isinstance(error, _BREAKS)
            if was_never_reached:
                raise
            request_id = await _request_id(request)
            if request_id is None:
                return httpx2.Response(202, request=request)  # a notification has no answer
            return httpx2.Response(
                200,
                headers={"content-type": "application/json"},
                content=_broken_answer(request_id, error),
                request=request,
            )

    async def _open_stream(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Open a stream of events. If it was open before, try until the server is back: the SDK would give up after two
        attempts."""
        was_open = self._has_opened_stream or "last-event-id" in request.headers
        failures = 0
        while True:
            try:
                response = await super().send(request, **options)
                if response.status_code < 500 or not was_open:
                    self._has_opened_stream = was_open or (response.is_success and is_event_stream(response))
                    return response
                await response.aclose()
            except (*_BREAKS, httpx2.ConnectError, httpx2.ConnectTimeout):
                if not was_open:
                    raise
            failures += 1
            await asyncio.sleep(backoff_delay(failures))

    async def _send_delete(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """End the session, but wait only briefly for the server, so that closing does not hang."""
        try:
            async with asyncio.timeout(GRACE):
                return await super().send(request, **options)
        except TimeoutError:
            return httpx2.Response(204, request=request)


def _broken_answer(request_id: int, error: Exception) -> bytes:
    problem = BROKEN if isinstance(error, _BREAKS) else UNREACHED
    text = f"{problem}: {first_line(error) or type(error).__name__}"
    return encode_message(error_of_request(request_id, types.CONNECTION_CLOSED, text))


async def _limit_response(
    server: HttpServer, withheld: WithheldResults, max_bytes: int, response: httpx2.Response
) -> None:
    """Replace the response's stream by one that limits its size and withholds large results from the SDK."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    limit = max_message_bytes(max_bytes)
    coding = response.headers.get("content-encoding", "identity").lower()
    is_compressed = not _COMPRESSIONS.isdisjoint(coding.replace(" ", "").split(","))
    # The client must not inflate a compressed answer, which was not asked for.
    response.headers["content-encoding"] = "identity"

    request_id = await _request_id(response.request)
    if response.is_success and is_event_stream(response) and not is_compressed:
        response.stream = _Events(response, limit, request_id, withheld)
        # Without a charset, which some servers name: the SDK would decode the events with it.
        response.headers["content-type"] = "text/event-stream"
        return

    convert: Callable[[bytes], bytes] | None = None
    if request_id is not None and is_compressed:
        convert = partial(_refuse_coding, request_id, coding)
    elif request_id is not None:
        convert = _converter_for(server, response, request_id, withheld)
    if convert is not None:
        response.headers["content-type"] = "application/json"
    response.stream = _Body(response.stream, limit, max_bytes, request_id, convert)


def _converter_for(
    server: HttpServer, response: httpx2.Response, request_id: int, withheld: WithheldResults
) -> Callable[[bytes], bytes] | None:
    """Return the function that converts the body of an answer. It is ``None`` if the SDK gets the body unchanged."""
    # The SDK reports an answer without a body itself.
    if response.is_success and response.status_code != 202:
        content_type = response.headers.get("content-type", "").lower()
        return partial(_convert_answer, server, request_id, content_type, withheld)
    # The SDK reports a 404 without a session itself, as an unknown method.
    has_session = _SESSION_HEADER in response.request.headers
    if response.is_error and (has_session or response.status_code != 404):
        return partial(_convert_error, server, request_id, response)
    return None


class _Body(httpx2.AsyncByteStream):
    """Body of a response, read whole, limited to ``limit`` bytes, and converted: the SDK limits only events.
    ``display_bytes`` is the limit that the error names."""

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        limit: int,
        display_bytes: int,
        request_id: int | None,
        convert: Callable[[bytes], bytes] | None,
    ) -> None:
        self._stream = stream
        self._limit = limit
        self._display_bytes = display_bytes
        self._request_id = request_id
        self._convert = convert

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: list[bytes] = []
        size = 0
        try:
            async for chunk in self._stream:
                parts.append(chunk)
                size += len(chunk)
                if size > self._limit:
                    raise httpx2.StreamError(f"the answer is {_OVER_LIMIT} {self._display_bytes:,} bytes")
        except _BREAKS as error:
            if self._request_id is None or self._convert is None:
                raise
            yield _broken_answer(self._request_id, error)
            return
        body = b"".join(parts)
        if self._convert is None:
            yield body
        else:
            yield await in_thread_if_long(self._convert, body)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _request_id(request: httpx2.Request) -> int | None:
    """Return the JSON-RPC id of the request in a POST; ``None`` for a notification and for other methods."""
    if request.method != "POST":
        return None
    # aread() is needed for a redirected request. The content may hold a large file, so only its ends are decoded.
    content = await request.aread()
    ends = ends_of_message(content)
    # The ids of the SDK's requests are numbers.
    if not ends.has_method or not ends.identity.isdigit():
        return None
    return int(ends.identity)


def _convert_answer(
    server: HttpServer, request_id: int, content_type: str, withheld: WithheldResults, body: bytes
) -> bytes:
    """Return the message in a body for the SDK, or an error in place of a body that cannot be read."""
    try:
        return _encode_with_placeholder(parse_message(body.removeprefix(BOM_UTF8), request_id), withheld)
    except Exception as error:  # noqa: BLE001 - otherwise the SDK would show the text of pydantic
        code, text = unreadable(error)
        text += refusal_words(body, server.redact)
        if not content_type.startswith("application/json"):
            text += f"; its type is {content_type[:80]}" if content_type else "; it has no type"
        return encode_message(error_of_request(request_id, code, text))


def _convert_event(request_id: int | None, withheld: WithheldResults, message: bytes) -> bytes:
    """Return a message for the SDK, with a placeholder for its result. An unreadable answer becomes an error. Anything
    else that cannot be read becomes empty, since the SDK would let the whole request fail."""
    try:
        return _encode_with_placeholder(parse_message(message, request_id), withheld)
    except Exception as error:  # noqa: BLE001 - otherwise the request would stay without an answer
        if not _may_be_answer(message):
            return b""
        failure = unreadable_answer(message, error, request_id)
        return b"" if failure is None else encode_message(failure)


def _encode_with_placeholder(message: types.JSONRPCMessage, withheld: WithheldResults) -> bytes:
    if isinstance(message, types.JSONRPCResponse):
        message.result = withheld.replace_by_placeholder(message.result)
    return encode_message(message)


def _may_be_answer(message: bytes) -> bool:
    """Whether an unreadable message may be an answer. Some servers also send words such as ``ping`` or ``[DONE]``."""
    try:
        tree = decode_json(message)
    except ProtocolError:
        return _OBJECTS.match(message) is not None
    match tree:
        case {"method": _}:
            return False
        case {"result": _} | {"error": _} | {"jsonrpc": _, "id": _} | [{"jsonrpc": _}, *_]:
            return True
    return False


def _convert_error(server: HttpServer, request_id: int, response: httpx2.Response, body: bytes) -> bytes:
    """Return the JSON-RPC error for an HTTP error: the one in its body, or one made from its status and words."""
    if _SESSION_HEADER in response.request.headers and has_forgotten_session(response.status_code, body):
        return encode_message(error_of_request(request_id, types.INVALID_REQUEST, SESSION_EXPIRED))
    with contextlib.suppress(Exception):
        message = parse_message(body, request_id)
        if isinstance(message, types.JSONRPCError):
            return encode_message(message)

    text = f"the server answered HTTP {response.status_code} {response.reason_phrase}".strip()
    text += refusal_words(body, server.redact)
    if response.status_code in _GATEWAY_FAULTS:
        return encode_message(error_of_request(request_id, types.CONNECTION_CLOSED, f"{BROKEN}: {text}"))
    if response.status_code in (401, 403):
        text += f"; give {spelled('headers=')} that it accepts"
    if response.status_code in (429, 503):
        return encode_message(_busy_error(request_id, response, text))
    return encode_message(error_of_request(request_id, types.INTERNAL_ERROR, text))


def _busy_error(request_id: int, response: httpx2.Response, text: str) -> types.JSONRPCError:
    error = error_of_request(request_id, BUSY, text)
    error.error.data = {
        "code": "RATE_LIMITED" if response.status_code == 429 else "OPERATION_FAILED",
        "retryAfter": retry_after(response.headers.get("retry-after"), time.time()),
    }
    return error


def _refuse_coding(request_id: int, coding: str, _: bytes) -> bytes:
    text = f"the server compressed its answer ({coding:.20s}), although that was not asked for"
    return encode_message(error_of_request(request_id, UNREADABLE, text))


class _Events(httpx2.AsyncByteStream):
    """Events of a response, written anew: each message is converted by :func:`_convert_event`."""

    def __init__(
        self, response: httpx2.Response, limit: int, request_id: int | None, withheld: WithheldResults
    ) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._source = httpx2.Response(
            response.status_code, headers=response.headers, stream=response.stream, request=response.request
        )
        self._limit = limit
        self._convert = partial(_convert_event, request_id, withheld)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # A break must look like an end: the SDK reopens a stream that ends, but gives up after two that break.
        with contextlib.suppress(*_BREAKS):
            async for event in events_of(self._source, self._limit):
                raw = await in_thread_if_long(self._convert, message_of(event))
                # A server may send 0 or -1, with which the SDK would reconnect without a pause.
                min_retry_ms = 100
                retry = None if event.retry is None else max(event.retry, min_retry_ms)
                yield encode_event(raw, event_id=event.id, retry=retry)

    async def aclose(self) -> None:
        await self._source.aclose()


# --- stdio ------------------------------------------------------------------------------------------------------------


class Stderr:
    """The last 8 KiB that a server writes to its stderr, or to its stdout in place of messages."""

    def __init__(self, server: StdioServer) -> None:
        self._server = server
        self._max_bytes = 8192
        self._tail = b""

    async def read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(self._max_bytes):
            self.add(chunk)

    def add(self, text: bytes) -> None:
        self._tail = (self._tail + text[-self._max_bytes :])[-self._max_bytes :]

    def summary(self) -> str:
        """Return ``"; it said: …"`` with the last 500 characters, without secrets. The text is empty if the server
        wrote nothing."""
        max_chars = 500
        text = plain_line(self._server.redact(self._tail.decode(errors="replace")))
        if not text:
            return ""
        if len(text) > max_chars:
            text = f"…{text[-max_chars:]}"
        return f"; it said: {text}"


@asynccontextmanager
async def stdio_streams(
    server: StdioServer, stderr: Stderr, *, max_bytes: int, on_exit: Callable[[str], None]
) -> AsyncIterator[ServerStreams]:
    """Start a server and yield its streams. When the block ends, the server and all processes that it started are
    ended, which takes three seconds at most. If the server ends before, ``on_exit`` is called with the reason.
    ``max_bytes`` is in decoded bytes of content."""
    process = await start_process(server, get_default_environment() | network_variables() | dict(server.env))
    assert process.stderr is not None
    closing = False

    async def report_exit() -> None:
        # The last lines may not be read yet. The wait is short, since a child of the server may hold the pipe open.
        await asyncio.wait((reading_stderr,), timeout=0.5)
        # A server that ends because it was asked to is not lost.
        if not closing:
            on_exit(exit_reason(server, process, stderr.summary()))

    def report_break(error: BaseException) -> None:
        on_exit(f"the connection to {server} broke: {server.redact(repr(error))}")

    # The first stream of each pair is for writing, the second one for reading.
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    outgoing, waiting = anyio.create_memory_object_stream[SessionMessage](float("inf"))
    # This closes the streams in any case, even after a second cancellation.
    with received, incoming, outgoing, waiting:
        reading_stderr = start_task(stderr.read(process.stderr), report_break)
        tasks = [
            reading_stderr,
            start_task(_read_stdout(process, max_bytes, received, stderr, report_exit), report_break),
            start_task(_write_stdin(process, waiting, received), report_break),
        ]
        try:
            yield incoming, outgoing
        finally:
            closing = True
            with anyio.CancelScope(shield=True):
                await _end_server(process, tasks)


async def _end_server(process: ServerProcess, tasks: Sequence[asyncio.Task[None]]) -> None:
    try:
        await end_process(process)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _read_stdout(
    process: asyncio.subprocess.Process,
    max_bytes: int,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    stderr: Stderr,
    on_exit: Callable[[], Awaitable[None]],
) -> None:
    """Send the messages that the server writes to ``received``. Other lines are added to ``stderr``."""
    stdout = process.stdout
    assert stdout is not None
    reader = MessageReader(max_bytes)
    # The session may close its stream first.
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError), received:
        async with contextlib.aclosing(lines_of(process, max_message_bytes(max_bytes))) as lines:
            async for line in lines:
                message = await reader.parse(line, may_be_cut=stdout.at_eof())
                if message is not None:
                    await received.send(message)
                elif isinstance(line, bytes):
                    stderr.add(line + b"\n")
                # Without references, a large message is freed now and not when the next line arrives.
                del line, message
        await on_exit()


async def _write_stdin(
    process: asyncio.subprocess.Process,
    waiting: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Write the messages that are ``waiting`` to the server. If a request cannot be encoded, its error is the answer on
    ``received``."""
    assert process.stdin is not None
    # Errors of writing are ignored: if the server is lost, the reader of its stdout reports that.
    with contextlib.suppress(ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for message in waiting:
            try:
                line = encode_message(message.message) + b"\n"
            except Exception as error:  # noqa: BLE001 - fails only its own request; later messages are still sent
                failure = unsent_error(message, error)
                if failure is not None:
                    await received.send(failure)
                continue
            process.stdin.write(line)
            await process.stdin.drain()
            # Without references, a large message is freed now and not when the next one arrives.
            del line, message
