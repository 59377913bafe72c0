"""Connection to an MCP server, from the handshake to its end.

* :class:`Aside`, :func:`repair_tools` — keep large results and faulty tool lists away from the SDK.
* :func:`http_streams`, :func:`stdio_streams` — the two ways to a server.
* :class:`Connection` — the initialized server, with its subscriptions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import anyio
import httpx2
from anyio.abc import ObjectReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.client.extension import ClientExtension
from mcp.client.session import IncomingMessage
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    Implementation,
    JSONRPCError,
    JSONRPCResponse,
    LoggingMessageNotification,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from .._internal.tasks import begin, cancel_and_wait
from ..errors import ABPError, ConnectFailed, TransportError, first_line, format_seconds
from ..protocol._strict_json import PARSED_ON_LOOP, is_deeper, is_larger, without_half_pairs
from ..protocol.messages import Message, package_version
from ._process import CHUNK_BYTES, GRACE, end_process, end_stdout, exit_reason, start_process
from ._servers import HttpServer, Server, StdioServer
from ._wire import MessageReader, Questions, encode_line, encode_message, parse_message, unreadable, unsent_error

logger = logging.getLogger("transports.mcp")

#: Values of a result from which on it is put aside and processed in threads.
MANY = 3000
#: MIME type of the document of a view.
VIEW_TYPE = "text/html;profile=mcp-app"
#: Levels of nesting: pydantic can write 255, and a schema is inside other levels.
_MAX_DEPTH = 200

Streams: TypeAlias = "AbstractAsyncContextManager[tuple[Any, Any]]"
#: Empty line after an event. Lines may end in CRLF, LF or CR, also mixed (HTML "Server-sent events").
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")
_OVER_LIMIT = "over the limit of"
#: Bytes of stderr that are kept, and characters of stderr in a message.
_STDERR_BYTES, _STDERR_CHARS = 8192, 500
#: Seconds to find out which transport an address has that cannot be connected.
_PROBE_TIMEOUT = 3.0


class _Views(ClientExtension):
    """The extension by which this client says that it shows views (MCP Apps)."""

    identifier = "io.modelcontextprotocol/ui"

    def settings(self) -> dict[str, Any]:
        return {"mimeTypes": [VIEW_TYPE]}


class Aside:
    """Store of the results of one connection that the SDK does not see, the last 64, kept until they are taken."""

    def __init__(self) -> None:
        self._results: dict[str, dict[str, Any]] = {}

    def put(self, result: dict[str, Any]) -> dict[str, Any]:
        """Keep a result and return a placeholder for it."""
        mark = secrets.token_urlsafe(16)  # not to be guessed, so no server can write one itself
        self._results[mark] = result
        if len(self._results) > 64:  # each is taken at once, but for late answers, which nobody takes
            del self._results[next(iter(self._results))]
        return {"_meta": {"abp-transports/aside": mark}}

    def take(self, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result behind a placeholder, once; ``None`` if ``result`` is not a placeholder."""
        match result.get("_meta"):
            case {"abp-transports/aside": str(mark)}:
                return self._results.pop(mark, None)
        return None


@asynccontextmanager
async def repair_tools(streams: Streams, aside: Aside) -> AsyncIterator[tuple[Any, Any]]:
    """Wrap the streams of a server: repair tool lists for the SDK, and put large results ``aside``.

    The SDK would refuse a whole list because of one bad entry. A schema without a type gets one. A schema that is
    nested too deeply is dropped, as is a tool that is still invalid then. Each drop is logged as a warning. The tools
    of a list that is put aside are :class:`~mcp_types.Tool`.
    """
    async with streams as (incoming, outgoing):
        yield _RepairedStream(incoming, aside), outgoing


class _RepairedStream(ObjectReceiveStream["SessionMessage | Exception"]):
    """Stream of incoming messages, each repaired."""

    def __init__(self, stream: Any, aside: Aside) -> None:
        self._stream = stream
        self._aside = aside

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        message = None
        while message is None:
            message = await self._repaired(await self._stream.receive())
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _repaired(self, message: SessionMessage | Exception) -> SessionMessage | Exception | None:
        """Return the message for the SDK; ``None`` if the message is dropped."""
        if not isinstance(message, SessionMessage) or isinstance(message.message, JSONRPCError):
            return message
        if not isinstance(message.message, JSONRPCResponse):
            if not is_larger(message.message.params, 20_000):  # the SDK validates it in the event loop
                return message
            logger.warning("left out %.80r of the server: it has very many values", message.message.method)
            return None
        result = message.message.result
        whole = self._aside.take(result) or result
        _repair_handshake(whole)
        is_large = is_larger(whole, MANY)
        lists = _LISTS & whole.keys()
        if not (is_large or lists or "structuredContent" in whole):
            message.message.result = whole
            return message
        shown: dict[str, Any] = {key: _emptied(value) for key, value in whole.items() if key not in _NOT_SHOWN}
        shown |= {key: [] for key in lists}
        if "structuredContent" in whole:
            shown["content"] = []
        cursor = _cursor(whole.pop("nextCursor", None))
        shown.pop("nextCursor", None)
        if cursor is not None:
            whole["nextCursor"] = shown["nextCursor"] = cursor
        if "tools" in whole:
            tools = whole["tools"] if isinstance(whole["tools"], list) else []
            if is_large:
                usable, headed = await asyncio.to_thread(_usable_and_headed, tools)
            else:
                usable, headed = _usable_and_headed(tools)
            whole["tools"] = usable
            shown["tools"] = headed
        message.message.result = {**shown, **self._aside.put(whole)}
        return message


#: Lists at the top of results: of `tools/list`, `tools/call`, and of resources. The SDK would refuse the whole result
#: for one bad item, so it sees none.
_LISTS = frozenset({"tools", "content", "resources", "resourceTemplates", "contents"})
#: Members of results that the SDK would refuse in some forms, and does not need.
_NOT_SHOWN = frozenset({"_meta", "structuredContent", "isError"})


def _repair_handshake(result: dict[str, Any]) -> None:
    """Replace ``[]``, which PHP writes for an empty object, in the capabilities of a server."""
    if "serverInfo" not in result and "protocolVersion" not in result:
        return
    capabilities = result.get("capabilities")
    if capabilities == []:
        result["capabilities"] = {}
    elif isinstance(capabilities, dict):
        empty: dict[str, object] = {name: {} for name, value in capabilities.items() if value == []}
        result["capabilities"] = capabilities | empty


def _cursor(value: object) -> str | None:
    """Return the cursor of the next page. Some servers count pages by a number, or end with an empty text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value:
        return value
    return None


def _emptied(value: object) -> object:
    if isinstance(value, dict | list):
        return type(value)()
    return value


def _usable_and_headed(tools: list[object]) -> tuple[list[Tool], list[Mapping[str, Any]]]:
    """Return the usable tools, and for the SDK those with arguments that become headers."""
    usable: list[Tool] = []
    headed: list[Mapping[str, Any]] = []
    for plain, tool in filter(None, map(_tool, tools)):
        if find_invalid_x_mcp_header(tool.input_schema) is None:  # clients must not use a tool with an invalid one
            usable.append(tool)
            if x_mcp_header_map(tool.input_schema) and not is_larger(tool.input_schema, MANY):
                headed.append(plain)
    return usable, headed[:200]  # the SDK reads each in the event loop


def _tool(tool: object) -> tuple[Mapping[str, Any], Tool] | None:
    if not isinstance(tool, dict):
        logger.warning("left out a tool that is not an object: %.80r", tool)
        return None
    # the SDK refuses a list with a schema of another type: inputSchema always, outputSchema through 2025-11-25
    good = {**tool, "inputSchema": {**_schema(tool, "inputSchema"), "type": "object"}}
    output = _schema(tool, "outputSchema")
    if output.get("type") == "object":
        good["outputSchema"] = output
    else:
        good.pop("outputSchema", None)
    try:
        return good, Tool.model_validate(good, by_name=False)
    except ValidationError as error:
        logger.warning("left out the tool %.80r, which is not valid MCP: %.200s", tool.get("name"), _invalid(error))
        return None


#: Types of members at the top of a schema.
_MEMBERS: Mapping[str, type] = {"properties": dict, "required": list, "$schema": str}


def _schema(tool: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a tool's schema without members of the wrong type at its top, such as the ``[]`` that PHP writes for no
    properties; an empty one if it is nested more deeply than the SDK can handle."""
    declared = tool.get(key)
    if not isinstance(declared, dict):
        return {}
    schema: dict[str, Any] = {
        name: value for name, value in declared.items() if isinstance(value, _MEMBERS.get(name, object))
    }
    if not all(isinstance(name, str) for name in schema.get("required", ())):
        del schema["required"]
    if not is_deeper(schema, _MAX_DEPTH):
        return schema
    logger.warning(
        "left out %s of the tool %.80r: it is nested deeper than %d levels", key, tool.get("name"), _MAX_DEPTH
    )
    return {}


def is_size_error(message: str) -> bool:
    """Return whether an SDK error reports an answer that was too large. The SDK passes causes on as text only."""
    return _OVER_LIMIT in message or "Server-sent event exceeded" in message


@asynccontextmanager
async def http_streams(
    server: HttpServer, auth: httpx2.Auth | None, aside: Aside, *, max_bytes: int
) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of an HTTP server for the SDK's session.

    ``max_bytes`` limits one message, counted in decoded bytes of content. Answers must come uncompressed, since a small
    body could inflate to any size. Results of long messages are put ``aside``.
    """
    limit = max_bytes * 4 // 3 + (1 << 20)  # base64 is a third longer; 1 MiB for the rest of the message

    async def limited(response: httpx2.Response) -> None:
        response.headers["content-encoding"] = "identity"  # as requested: a compressed answer is not inflated
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").lower()
        if kind.startswith("text/event-stream"):
            response.stream = _Events(response.stream, limit, aside)
        else:
            response.stream = _Body(response.stream, limit, max_bytes, aside)

    async with (
        httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity", **server.headers},
            auth=auth,
            timeout=httpx2.Timeout(30.0, read=None),  # each call has its own limit for the answer
            event_hooks={"response": [limited]},
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


class _Body(httpx2.AsyncByteStream):
    """Response body that raises once it is too large. The SDK limits the size of events, but not of bodies."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, display_bytes: int, aside: Aside) -> None:
        self._stream = stream
        self._limit = limit
        self._display_bytes = display_bytes
        self._aside = aside

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: list[bytes] = []
        size = 0
        async for chunk in self._stream:
            parts.append(chunk)
            size += len(chunk)
            if size > self._limit:
                raise httpx2.StreamError(f"the answer is {_OVER_LIMIT} {self._display_bytes:,} bytes")
        body = b"".join(parts).removeprefix(BOM_UTF8)
        if len(body) > PARSED_ON_LOOP:
            body = await asyncio.to_thread(_short_message, body, self._aside)
        elif without_half_pairs(body) != body:
            body = _short_message(body, self._aside)
        yield body

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Events(httpx2.AsyncByteStream):
    """Stream of server-sent events, each passed on whole. Events over ``limit`` bytes are left to the SDK."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, aside: Aside) -> None:
        self._stream = stream
        self._limit = limit
        self._aside = aside

    async def __aiter__(self) -> AsyncIterator[bytes]:
        buffer = bytearray()
        searched = 0
        async for chunk in self._stream:
            buffer += chunk
            while (end := _EVENT_END.search(buffer, searched)) is not None:
                event = bytes(buffer[: end.end()]).removeprefix(BOM_UTF8)
                del buffer[: end.end()]
                searched = 0
                if len(event) > PARSED_ON_LOOP:
                    event = await asyncio.to_thread(self._short_event, event)
                elif without_half_pairs(event) != event:
                    event = self._short_event(event)
                yield event
            searched = max(len(buffer) - 3, 0)  # a chunk may end within the 4 bytes of an empty line
            if len(buffer) > self._limit:
                yield bytes(buffer)
                buffer.clear()
                searched = 0
        if buffer:
            yield bytes(buffer)

    def _short_event(self, event: bytes) -> bytes:
        lines = event.splitlines()
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
        others = [line for line in lines if line and not line.startswith(b"data:")]
        return b"\n".join([*others, b"data: " + _short_message(data, self._aside), b"", b""])

    async def aclose(self) -> None:
        await self._stream.aclose()


def _short_message(body: bytes, aside: Aside) -> bytes:
    """Return a short message in place of a long one: its result put aside, or the error of an unreadable answer.

    Anything else becomes ``null``, which the SDK reports as unreadable.
    """
    try:
        message = parse_message(body)
        if isinstance(message, JSONRPCResponse):
            message.result = aside.put(message.result)
        return encode_message(message)
    except Exception as error:  # noqa: BLE001 - the SDK would answer nobody
        failure = unreadable(body, error)
        if failure is None:
            return b"null"
        return encode_message(failure)


ServerStreams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class Stderr:
    """Tail of a server's stderr (8 KiB), for error messages."""

    def __init__(self, server: StdioServer) -> None:
        self._server = server
        self._tail = b""

    def add(self, chunk: bytes) -> None:
        """Append a chunk."""
        self._tail = (self._tail + chunk)[-_STDERR_BYTES:]

    def summary(self) -> str:
        """Return ``"; it said: …"`` with up to 500 characters and no secrets, or an empty text."""
        text = self._server.redact(self._tail.decode(errors="replace"))
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        if not text:
            return ""
        if len(text) > _STDERR_CHARS:
            text = f"…{text[-_STDERR_CHARS:]}"
        return f"; it said: {text}"


@asynccontextmanager
async def stdio_streams(
    server: StdioServer, stderr: Stderr, *, max_bytes: int, on_exit: Callable[[str], None]
) -> AsyncIterator[ServerStreams]:
    """Start the server and yield its streams for the SDK's session.

    ``on_exit`` is called with the reason if the server ends by itself. When the block ends, the server and everything
    it started are ended, which takes three seconds at most. ``max_bytes`` limits one message, counted in decoded bytes.

    Raises :class:`~transports.errors.ConnectFailed` if the server cannot be started.
    """
    process = await start_process(server, get_default_environment() | dict(server.env))
    closing = False

    def lose() -> None:
        if not closing:  # a server that ends because it was asked to is not lost
            on_exit(exit_reason(server, process, stderr.summary()))

    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    outgoing, waiting = anyio.create_memory_object_stream[SessionMessage](float("inf"))
    with received, incoming, outgoing, waiting:  # closed however the block ends, a second cancellation included
        tasks = [
            begin(work, lambda error: on_exit(f"the connection to {server} broke: {server.redact(repr(error))}"))
            for work in (
                _read_stdout(process, MessageReader(max_bytes), received, lose),
                _write_stdin(process, waiting, received),
                _read_stderr(process, stderr),
                end_stdout(process),
            )
        ]
        try:
            yield incoming, outgoing
        finally:
            closing = True
            with anyio.CancelScope(shield=True):
                try:
                    await end_process(process)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.wait(tasks)


async def _read_stdout(
    process: asyncio.subprocess.Process,
    lines: MessageReader,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    on_exit: Callable[[], None],
) -> None:
    assert process.stdout is not None
    try:
        with received:
            while chunk := await process.stdout.read(CHUNK_BYTES):
                for line in lines.split(chunk):
                    for message in await lines.parse(line):
                        await received.send(message)
            with contextlib.suppress(TimeoutError):  # a closed stdout means that the server is about to exit
                async with asyncio.timeout(GRACE):
                    await process.wait()
            on_exit()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the session has closed its stream


async def _write_stdin(
    process: asyncio.subprocess.Process,
    waiting: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    assert process.stdin is not None
    # the end of stdout already reports the loss
    with contextlib.suppress(ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for message in waiting:
            try:
                line = encode_line(message)
            except Exception as error:  # noqa: BLE001 - fails only its own request; later messages are still sent
                failure = unsent_error(message, error)
                if failure is not None:
                    await received.send(failure)
                continue
            process.stdin.write(line)
            await process.stdin.drain()


async def _read_stderr(process: asyncio.subprocess.Process, stderr: Stderr) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(_STDERR_BYTES):
        stderr.add(chunk)


class Connection:
    """Initialized MCP server, as long as it is reachable.

    ``lost`` is done once the server is lost, with the reason as text. ``emit`` passes messages to the session.
    ``sampling`` allows the server to request messages of a model. ``max_bytes`` limits one message.
    """

    def __init__(
        self,
        server: Server,
        auth: httpx2.Auth | None,
        questions: Questions,
        emit: Callable[[Message], None],
        *,
        sampling: bool,
        max_bytes: int,
    ) -> None:
        self.client: Client
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.server = server
        self.max_bytes = max_bytes
        #: Large results, withheld from the SDK.
        self.aside = Aside()
        self._auth = auth
        self._questions = questions
        self._sampling = sampling
        self._emit = emit
        self._listening: dict[str, asyncio.Task[None]] = {}

    def mark_lost(self, reason: str) -> None:
        """Mark the connection as lost. Only the first reason is kept."""
        if not self.lost.done():
            self.lost.set_result(reason)

    @property
    def is_modern(self) -> bool:
        """True if the server speaks 2026-07-28 or later, where the client opens streams to receive changes."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @asynccontextmanager
    async def open(self, timeout: float) -> AsyncIterator[None]:
        """Start or reach the server and initialize it within ``timeout`` seconds. Closes when the block ends.

        Raises :class:`~transports.errors.ConnectFailed`, with the end of the server's stderr in its message.
        """
        stderr = Stderr(self.server) if isinstance(self.server, StdioServer) else None
        streams: Streams
        if isinstance(self.server, StdioServer):
            assert stderr is not None
            streams = stdio_streams(self.server, stderr, max_bytes=self.max_bytes, on_exit=self.mark_lost)
        else:
            streams = http_streams(self.server, self._auth, self.aside, max_bytes=self.max_bytes)
        self.client = Client(
            repair_tools(streams, self.aside),
            elicitation_callback=self._questions.elicit,
            sampling_callback=self._questions.sample if self._sampling else None,
            message_handler=self._on_message,
            client_info=Implementation(name="abp-transports", version=package_version()),
            log_level="info",
            extensions=[_Views()],
            cache=None,
        )
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timeout):
                    await stack.enter_async_context(self.client)
            except (
                MCPError,
                OSError,
                RuntimeError,
                ValidationError,
                ABPError,
                httpx2.HTTPError,
                TimeoutError,
            ) as error:
                raise await self._connect_error(error, timeout, stderr.summary() if stderr else "") from None
            except ExceptionGroup as group:
                raise await self._connect_error(root_cause(group), timeout, "") from None
            stack.push_async_callback(lambda: cancel_and_wait(self._listening.values()))
            self._listen_to_lists()
            yield

    async def _connect_error(self, error: BaseException, timeout: float, stderr: str) -> ABPError:
        if isinstance(error, ABPError):
            return error
        if await self._is_of_the_old_transport():
            return ConnectFailed(
                f"{self.server} speaks the HTTP+SSE transport of MCP 2024-11-05, which was replaced; "
                "give its address for streamable HTTP, often …/mcp"
            )
        if isinstance(error, TimeoutError):
            within = f"within {format_seconds(timeout)}"
            return ConnectFailed(f"{self.server} did not answer {within}{stderr}; is it an MCP server?")
        if self.lost.done():
            return ConnectFailed(f"{self.lost.result()}; it must speak MCP over stdin and stdout")
        reason = first_line(self.server.redact(str(error)))[:200] or type(error).__name__
        if isinstance(error, ValidationError):
            reason = f"its handshake is not valid MCP: {_invalid(error)}"
        if isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND:
            reason = f"it refuses the handshake ({reason}); is it an MCP server?"
        if isinstance(error, httpx2.ConnectError):
            reason = f"{reason}; start the server or correct the address"
        return ConnectFailed(f"{self.server} cannot be connected: {reason}{stderr}")

    async def _is_of_the_old_transport(self) -> bool:
        """Return whether an address speaks the HTTP+SSE transport of protocol 2024-11-05: its stream begins with
        an event ``endpoint``."""
        if not isinstance(self.server, HttpServer):
            return False
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", **self.server.headers}
        try:
            async with (
                asyncio.timeout(_PROBE_TIMEOUT),
                httpx2.AsyncClient(headers=headers, auth=self._auth, timeout=_PROBE_TIMEOUT) as client,
                client.stream("GET", self.server.url) as response,
            ):
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    return False
                async for event in httpx2.EventSource(response, max_event_size=CHUNK_BYTES):
                    return event.event == "endpoint"
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, TimeoutError, ValueError):
            pass
        return False

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _on_message(self, message: IncomingMessage) -> None:
        match message:
            case ToolListChangedNotification():
                self._emit(Message("capabilities/changed", {}))
            case ResourceUpdatedNotification():
                self._notify("notifications/resources/updated", {"uri": str(message.params.uri)})
            case ResourceListChangedNotification():
                self._notify("notifications/resources/list_changed", None)
            case PromptListChangedNotification():
                self._notify("notifications/prompts/list_changed", None)
            case LoggingMessageNotification():
                params = message.params.model_dump(by_alias=True, mode="json", exclude_none=True)
                params.pop("_meta", None)
                self._notify("notifications/message", params)
            case _:
                pass  # progress goes to its call

    def _notify(self, event: str, data: object) -> None:
        self._emit(Message("notification", {"event": event, "data": data}))

    def _listen_to_lists(self) -> None:
        capabilities = self.client.server_capabilities
        if self.is_modern and (capabilities.tools or capabilities.resources):
            opened = self._keep_listening(
                "", (), tools=bool(capabilities.tools), resources=bool(capabilities.resources)
            )
            # a server may refuse the stream; retrieving the exception keeps asyncio from logging it
            opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())

    async def listen(self, uri: str) -> None:
        """Subscribe to the changes of one resource. Raises :class:`mcp.MCPError` if the server does not report them."""
        opened = self._keep_listening(uri, (uri,))
        try:
            await asyncio.shield(opened)
        except BaseException:
            await self.stop_listening(uri)
            raise

    async def stop_listening(self, uri: str) -> None:
        """End the subscription to one resource."""
        task = self._listening.pop(uri, None)
        if task is not None:
            await cancel_and_wait((task,))

    def _keep_listening(
        self, key: str, uris: Iterable[str], *, tools: bool = False, resources: bool = False
    ) -> asyncio.Future[None]:
        """Keep a stream of changes open until :meth:`stop_listening`. The future is done once it is first open."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def listening() -> None:
            while not self.lost.done():
                try:
                    async with self.client.listen(
                        tools_list_changed=tools, resources_list_changed=resources, resource_subscriptions=tuple(uris)
                    ) as changes:
                        if not opened.done():
                            opened.set_result(None)
                        async for _ in changes:  # `_on_message` gets them too, as in the older protocol
                            pass
                except MCPError as error:
                    logger.info("%s does not report changes: %s", self.server, error.error.message)
                    if not opened.done():
                        opened.set_exception(error)
                    return
                except SubscriptionLost:
                    pass
                except Exception as error:  # of the SDK
                    logger.warning("%s: a stream of changes failed", self.server, exc_info=error)
                    if not opened.done():
                        opened.set_exception(TransportError(f"changes are not reported: {first_line(error)}"))
                        return
                await asyncio.sleep(1.0)  # before the broken stream is opened again

        if key not in self._listening:
            self._listening[key] = begin(listening())
        else:
            opened.set_result(None)
        return opened


def _invalid(error: ValidationError) -> str:
    """Return the first fault, with its place as on the wire."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{place} is missing"
    return f"{place}: {first['msg']}"


def root_cause(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
