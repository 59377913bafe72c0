"""Connection to an MCP server, from the handshake to its end, and requests over it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.extension import ClientExtension
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from .._internal.masking import map_texts
from .._internal.tasks import MAX_DELAY, backoff_delay, cancel_and_wait, in_thread, mark_retrieved, start_task
from ..errors import (
    ABPError,
    CapabilityError,
    ConnectFailed,
    Disconnected,
    ProtocolError,
    TooLarge,
    TransportError,
    first_line,
    format_seconds,
)
from ..protocol._capabilities import MAX_CAPABILITIES
from ..protocol._plain_text import proxy_advice
from ..protocol._strict_json import MAX_VALUES, encode_json, is_larger, parser_limits
from ..protocol.messages import Message, package_version
from ._events import is_event_stream
from ._servers import HttpServer, Server, StdioServer, http_client
from ._stdio import CHUNK_BYTES
from ._streams import Stderr, Streams, WithheldResults, http_streams, is_size_error, repair_tools, stdio_streams
from ._wire import (
    BREAKS,
    BUSY,
    CLOSED,
    LIMITS,
    OVER_LIMIT,
    SESSION_EXPIRED,
    TOO_MANY,
    UNREACHED,
    UNREADABLE,
    Questions,
    first_fault,
    with_content,
)

logger = logging.getLogger("transports.mcp")

VIEW_TYPE = "text/html;profile=mcp-app"
_ERROR_CODES = {
    types.INVALID_PARAMS: "INVALID_PARAMS",
    types.METHOD_NOT_FOUND: "NOT_SUPPORTED",
    -32002: "RESOURCE_NOT_FOUND",
}
#: Errors of the SDK, of its HTTP client and of ours while a connection is opened.
_OPENING_ERRORS = (
    MCPError,
    OSError,
    RuntimeError,
    ValidationError,
    ABPError,
    httpx2.HTTPError,
    TimeoutError,
    ExceptionGroup,
)

_T = TypeVar("_T")


class _Views(ClientExtension):
    identifier = "io.modelcontextprotocol/ui"

    def settings(self) -> dict[str, Any]:
        return {"mimeTypes": [VIEW_TYPE]}


class Connection:
    """Connection to one server. The future ``lost`` is done once the server is lost; its result is the reason."""

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
        self.withheld = WithheldResults()
        self._auth = auth
        self._questions = questions
        self._sampling = sampling
        self._emit = emit
        self._stderr: Stderr | None = None
        self._refusal: MCPError | None = None
        self._listening: dict[str, asyncio.Task[None]] = {}

    def mark_lost(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    @property
    def is_modern(self) -> bool:
        """True for 2026-07-28 or later, where the client opens streams to receive changes."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @asynccontextmanager
    async def open(self, timeout: float) -> AsyncIterator[None]:
        """Keep the connection open inside the ``async with`` block. If it cannot be opened, this raises
        :class:`~transports.errors.ConnectFailed`, whose message has the end of the server's stderr."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timeout):
                    await self._initialize(stack)
            except _OPENING_ERRORS as error:
                output = self._stderr.summary() if self._stderr else ""
                cause = root_cause(error)
                if isinstance(cause, TimeoutError) and self._refusal is not None:
                    # The refusal of the first handshake says more than the timeout of the second.
                    cause = self._refusal
                raise await self._connect_error(cause, timeout, output) from None
            stack.push_async_callback(lambda: cancel_and_wait(self._listening.values()))
            self._listen_to_lists()
            yield

    async def _initialize(self, stack: contextlib.AsyncExitStack) -> None:
        """Connect a client. If the server ends or refuses the handshake, try again with the older handshake only."""
        self.client = self._new_client("auto")
        try:
            await stack.enter_async_context(self.client)
        except _OPENING_ERRORS as error:
            cause = root_cause(error)
            if isinstance(self.server, StdioServer) and isinstance(cause, MCPError):
                self._refusal = cause
            if not self.lost.done() and self._refusal is None:
                raise
            # Some older servers end if the first message is not `initialize`. Some gateways have initialized their
            # server by now, and refuse a second `initialize` on the same connection.
            self.lost = asyncio.get_running_loop().create_future()
            self.client = self._new_client("legacy")
            await stack.enter_async_context(self.client)

    def _new_client(self, mode: str) -> Client:
        streams: Streams
        if isinstance(self.server, StdioServer):
            self._stderr = Stderr(self.server)
            streams = stdio_streams(self.server, self._stderr, max_bytes=self.max_bytes, on_exit=self.mark_lost)
        else:
            streams = http_streams(self.server, self._auth, self.withheld, max_bytes=self.max_bytes)

        return Client(
            repair_tools(streams, self.withheld),
            mode=mode,
            elicitation_callback=self._questions.elicit,
            sampling_callback=self._questions.sample if self._sampling else None,
            message_handler=self._on_message,
            client_info=types.Implementation(name="abp-transports", version=package_version()),
            log_level="info",
            extensions=[_Views()],
            cache=None,
        )

    async def _connect_error(self, error: BaseException, timeout: float, stderr: str) -> ABPError:
        """Return the error to raise for a failed opening. ``stderr`` is a part of its message, and may be empty."""
        if isinstance(error, ABPError):
            return error
        if isinstance(error, TimeoutError):
            within = f"within {format_seconds(timeout)}"
            return ConnectFailed(f"{self.server} did not answer {within}{stderr}; is it an MCP server?")
        if await self._is_of_the_old_transport():
            return ConnectFailed(
                f"{self.server} speaks the HTTP+SSE transport of MCP 2024-11-05, which was replaced; "
                "give its address for streamable HTTP, often …/mcp"
            )
        if self.lost.done():
            return ConnectFailed(f"{self.lost.result()}; it must speak MCP over stdin and stdout")

        advice = proxy_advice(self.server.url) if isinstance(self.server, HttpServer) else ""
        return ConnectFailed(f"{self.server} cannot be connected: {self._reason_of(error)}{advice}{stderr}")

    def _reason_of(self, error: BaseException) -> str:
        reason = first_line(self.server.redact(str(error)))[:200] or type(error).__name__
        match error:
            case ValidationError():
                return f"its handshake is not valid MCP: {first_fault(error)}"
            case MCPError(code=types.METHOD_NOT_FOUND):
                return f"it refuses the handshake ({reason}); is it an MCP server?"
            case MCPError(data={"supported": list() as versions}):
                return f"{reason}; it supports {', '.join(map(str, versions))[:100]} only"
            case httpx2.ConnectError():
                return f"{reason}; start the server or correct the address"
        return reason

    async def _is_of_the_old_transport(self) -> bool:
        """Whether the server speaks HTTP+SSE (protocol 2024-11-05): its stream begins with an event ``endpoint``."""
        if not isinstance(self.server, HttpServer):
            return False
        timeout = 3.0  # short, since this only improves an error message
        try:
            async with (
                asyncio.timeout(timeout),
                http_client(self.server, auth=self._auth, timeout=timeout) as client,
                client.stream("GET", self.server.url, headers={"Accept": "text/event-stream"}) as response,
            ):
                if not is_event_stream(response):
                    return False
                async for event in httpx2.EventSource(response, max_event_size=CHUNK_BYTES):
                    return event.event == "endpoint"
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, TimeoutError, ValueError):
            pass
        return False

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _on_message(self, message: IncomingMessage) -> None:
        match message:
            case types.ToolListChangedNotification():
                self._emit(Message("capabilities/changed", {}))
            case types.ResourceUpdatedNotification():
                self._notify("notifications/resources/updated", {"uri": str(message.params.uri)})
            case types.ResourceListChangedNotification():
                self._notify("notifications/resources/list_changed", None)
            case types.PromptListChangedNotification():
                self._notify("notifications/prompts/list_changed", None)
            case types.LoggingMessageNotification():
                params = message.params.model_dump(by_alias=True, mode="json", exclude_none=True)
                params.pop("_meta", None)
                self._notify("notifications/message", params)
            case _:
                # Progress goes to its call.
                pass

    def _notify(self, event: str, data: object) -> None:
        self._emit(Message("notification", {"event": event, "data": data}))

    def _listen_to_lists(self) -> None:
        """Open the stream in which a modern server reports changes of its lists of tools and resources."""
        capabilities = self.client.server_capabilities
        may_change = bool(capabilities.tools or capabilities.resources)
        if self.is_modern and may_change:
            opened = self._keep_listening(
                "",
                tools_list_changed=bool(capabilities.tools),
                resources_list_changed=bool(capabilities.resources),
            )
            # A server may refuse the stream; then its changes are not reported, which is no error.
            opened.add_done_callback(mark_retrieved)

    async def listen(self, uri: str) -> None:
        """Receive changes of a resource. Raises :class:`mcp.MCPError` if the server does not report them."""
        opened = self._keep_listening(uri, resource_subscriptions=(uri,))
        try:
            await asyncio.shield(opened)
        except BaseException:
            await self.stop_listening(uri)
            raise

    async def stop_listening(self, uri: str) -> None:
        task = self._listening.pop(uri, None)
        if task is not None:
            await cancel_and_wait((task,))

    def _keep_listening(self, key: str, **changes: Any) -> asyncio.Future[None]:
        """Open a stream of changes in the background, and return a future that is done once the stream is first open.
        ``key`` is the URI of a resource, or empty for the stream of changed lists."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if key in self._listening:
            opened.set_result(None)
            return opened

        open_stream = partial(self.client.listen, **changes)
        self._listening[key] = start_task(self._listen_until_lost(open_stream, opened))
        return opened

    async def _listen_until_lost(
        self,
        open_stream: Callable[[], AbstractAsyncContextManager[AsyncIterable[object]]],
        opened: asyncio.Future[None],
    ) -> None:
        """Read a stream of changes until the server is lost. ``opened`` gets the outcome of the first opening. A stream
        that was open once is opened again whenever it ends, even if the server then refuses it."""
        failures = 0
        while not self.lost.done():
            try:
                async with open_stream() as changes:
                    failures = 0
                    if not opened.done():
                        opened.set_result(None)
                    # `_on_message` gets the changes too, as in the older protocol.
                    async for _ in changes:
                        pass
            except MCPError as error:
                logger.info("%s does not report changes: %s", self.server, error.error.message)
                if not opened.done():
                    opened.set_exception(error)
                    return
            except SubscriptionLost:
                pass
            except Exception as error:  # any error of the SDK
                logger.warning("%s: a stream of changes failed", self.server, exc_info=error)
                if not opened.done():
                    opened.set_exception(TransportError(f"changes are not reported: {first_line(error)}"))
                    return

            failures += 1
            min_delay = 1.0
            await asyncio.sleep(max(min_delay, backoff_delay(failures)))


def root_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Reconnector:
    """Keeps a connection to an MCP server open. With ``reconnect`` a lost connection is replaced, with growing,
    jittered delays, and ``emit`` gets ``connection/lost`` and ``connection/restored`` events. ``timeout`` in seconds
    limits each opening.

    A separate task opens and closes the connections, since the SDK requires one task for both."""

    def __init__(
        self, make: Callable[[], Connection], emit: Callable[[Message], None], *, timeout: float, reconnect: bool
    ) -> None:
        self._make = make
        self._emit = emit
        self._timeout = timeout
        self._reconnect = reconnect
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def connection(self) -> Connection:
        """Return the open connection. Raises :class:`~transports.errors.Disconnected` if it is lost or not open yet."""
        if self._connection is None or self._connection.lost.done():
            advice = "the transport is reconnecting" if self._reconnect else "connect again"
            raise Disconnected(f"the MCP server is not connected now; {advice}", sent=False)
        return self._connection

    async def open(self) -> None:
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._keep_open(opened))
        await asyncio.wait((self._task, opened), return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            await self._task  # raises the reason

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            # An exception of the task was raised by open() already.
            mark_retrieved(self._task)
        self._connection = None

    async def _keep_open(self, opened: asyncio.Future[None]) -> None:
        """Open a connection and wait until it is lost; repeat this with ``reconnect``. ``opened`` is done once the
        first connection is open."""
        attempt = 1
        last_loss = ""
        clock = asyncio.get_running_loop().time
        task = asyncio.current_task()
        assert task is not None
        while True:
            started = clock()
            connection = self._make()
            try:
                async with connection.open(self._timeout):
                    self._connection = connection
                    if opened.done():
                        self._emit(Message("connection/restored", {"reason": last_loss}))
                    else:
                        opened.set_result(None)
                    await asyncio.shield(connection.lost)
            except Exception as error:  # any failure of the SDK's tasks ends the connection
                if not opened.done():
                    raise  # to open()
                if task.cancelling():
                    # The connection is being closed. An answer that arrived meanwhile may raise an error of the SDK,
                    # which replaces the cancellation.
                    return
                connection.mark_lost(_loss_reason(connection, error))

            reason = connection.lost.result()
            had_opened = self._connection is connection
            if had_opened:
                self._connection = None
                last_loss = reason
                self._emit(Message("connection/lost", {"reason": reason}))
                if not self._reconnect:
                    return
                # A connection that held for a while resets the back-off.
                if clock() - started > MAX_DELAY:
                    attempt = 1
            else:
                self._emit(Message("connection/waiting", {"reason": reason}))

            logger.info("%s; reconnecting", reason)
            await asyncio.sleep(backoff_delay(attempt))
            attempt += 1


def _loss_reason(connection: Connection, error: Exception) -> str:
    inner = root_cause(error)
    if isinstance(inner, ABPError):
        return inner.message
    detail = first_line(connection.server.redact(str(inner)))[:200]
    return f"the connection to {connection.server} broke: {detail or type(inner).__name__}"


class _Raw(RootModel[dict[str, Any]]): ...


async def send_request(
    connection: Connection, request: types.Request[Any, Any], progress: ProgressFnT | None = None
) -> dict[str, Any]:
    """Send a request and return its result, in which long base64 is replaced by content.

    The request is sent again after each round of questions of the server (protocol 2026-07-28). Raises the errors of
    :func:`map_errors`, and :class:`~transports.errors.ProtocolError` after 20 rounds."""
    connection.withheld.waiting += 1
    try:
        result = await map_errors(connection, _exchange(connection, request, progress))
    finally:
        connection.withheld.waiting -= 1
    return await in_thread_if_large(with_content, result)


async def in_thread_if_large(work: Callable[[dict[str, Any]], _T], result: dict[str, Any]) -> _T:
    if is_larger(result, LIMITS.values_on_loop):
        return await in_thread(work, result)
    return work(result)


async def _exchange(
    connection: Connection, request: types.Request[Any, Any], progress: ProgressFnT | None
) -> dict[str, Any]:
    # The session is read from the client once: when the server is gone, the client has no session any more, but this
    # one still reports that the connection is closed. The server may end while a person answers a question.
    session = connection.client.session
    for _ in range(LIMITS.rounds):
        result = await _send_once(connection, session, request, progress)
        if result.get("resultType") != "input_required":
            return result

        if not isinstance(request.params, types.InputResponseRequestParams):
            raise ProtocolError(f"the server asked a question about {request.method}, which has none")
        if is_larger(result, LIMITS.values_on_loop):
            raise ProtocolError("the server asked a question of very many values; nothing was answered")

        questions = types.InputRequiredResult.model_validate(result, by_name=False)
        responses: types.InputResponses | None = None
        if questions.input_requests:
            responses = await _answer_questions(session, questions.input_requests)
        else:
            # The server is still working, and expects the request again a little later.
            seconds_between_rounds = 0.25
            await asyncio.sleep(seconds_between_rounds)

        answers = {"input_responses": responses, "request_state": questions.request_state}
        request = request.model_copy(update={"params": request.params.model_copy(update=answers)})
    raise ProtocolError(f"the server asked {LIMITS.rounds} times and never answered")


async def _send_once(
    connection: Connection,
    session: ClientSession,
    request: types.Request[Any, Any],
    progress: ProgressFnT | None,
) -> dict[str, Any]:
    """Send a request and return its result. If the headers do not fit the tool's schema, list the tools and retry."""
    try:
        raw = await session.send_request(request, _Raw, progress_callback=progress)
    except MCPError as error:
        if error.code != types.HEADER_MISMATCH:
            raise
        # The SDK makes headers from the tool's schema, which has changed. Listing the tools updates it.
        await connection.client.list_tools()
        raw = await session.send_request(request, _Raw, progress_callback=progress)
    # The session sees a placeholder in place of a result that it would refuse or need long for.
    original = connection.withheld.pop_original(raw.root)
    if original is not None:
        return original
    return raw.root


async def _answer_questions(session: ClientSession, questions: types.InputRequests) -> types.InputResponses:
    responses: types.InputResponses = {}
    for key, question in questions.items():
        context = ClientRequestContext(session=session, request_id=key)
        response = await session.dispatch_input_request(context, question)
        if isinstance(response, types.ErrorData):
            raise MCPError.from_error_data(response)
        responses[key] = response
    return responses


async def list_tools(connection: Connection) -> dict[str, types.Tool]:
    """Return the server's tools by name, from at most 100 pages and at most 150,000 tools. Raises the errors of
    :func:`map_errors`."""
    tools: dict[str, types.Tool] = {}
    cursor: str | None = None
    for _ in range(LIMITS.pages):
        page = await map_errors(connection, connection.client.list_tools(cursor=cursor))
        whole_page = connection.withheld.pop_original({"_meta": page.meta})
        assert whole_page is not None  # each list of tools is withheld
        tools |= await in_thread(_by_name, whole_page["tools"][: MAX_CAPABILITIES - len(tools)])
        # Some servers repeat the cursor of their only page.
        if page.next_cursor in (None, cursor):
            return tools
        cursor = page.next_cursor
        if len(tools) >= MAX_CAPABILITIES:
            break
    logger.warning("%s has more than %s tools; the rest is left out", connection.server, f"{len(tools):,}")
    return tools


def _by_name(tools: Sequence[types.Tool]) -> dict[str, types.Tool]:
    return {tool.name: tool for tool in tools}


async def map_errors(connection: Connection, work: Awaitable[_T]) -> _T:
    """Await ``work``, and raise errors of the kit in place of those of the SDK.

    An error that the server answers becomes a :class:`~transports.errors.CapabilityError`, whose ``details["code"]`` is
    the code of JSON-RPC."""
    try:
        with parser_limits():
            return await work
    except MCPError as error:
        raise _abp_error(connection, error) from None
    except ValidationError as error:
        raise ProtocolError(f"the server's answer is not valid MCP: {first_fault(error)}") from None
    except ValueError as error:
        raise ProtocolError(f"the server's answer cannot be read: {error}") from None


def _abp_error(connection: Connection, error: MCPError) -> ABPError:
    code = error.error.code
    text = error.error.message
    data = error.error.data

    if code == OVER_LIMIT or is_size_error(text):
        return TooLarge(
            f"the server sent a message over the limit of {connection.max_bytes:,} bytes; raise "
            "ABP_MAX_MESSAGE_BYTES, or ask it for less",
            details={"limit": connection.max_bytes},
        )

    text = connection.server.redact(text)[: LIMITS.message_chars]
    if code == UNREADABLE:
        return ProtocolError(text)
    if code == TOO_MANY:
        return ProtocolError(text, code=TooLarge.code, details={"limit": MAX_VALUES})
    if code == BUSY:
        match data:
            case {"code": str(reason), "retryAfter": float() | None as seconds_to_wait}:
                return CapabilityError(text, code=reason, retryable=True, retry_after=seconds_to_wait)

    disconnected = _disconnection(connection, code, text)
    if disconnected is not None:
        return disconnected
    details: dict[str, object] = {"code": code}
    if data is not None:
        redacted_data = map_texts(data, connection.server.redact)
        details["data"] = redacted_data
        reason = redacted_data if isinstance(redacted_data, str) else encode_json(redacted_data).decode()
        if reason not in text:
            # The message of many servers is only "Internal error", and the data have the reason.
            text = f"{text or 'the server failed'}: {reason}"[: LIMITS.message_chars]
    return CapabilityError(text, code=_ERROR_CODES.get(code), details=details)


def _disconnection(connection: Connection, code: int, text: str) -> Disconnected | None:
    """Return the error for a request that met a broken connection, and ``None`` for any other error. If the whole
    connection has ended, it is also marked as lost."""
    # Servers use this code for other errors, too, so the text is compared as well.
    has_close_code = code == types.CONNECTION_CLOSED
    if has_close_code and text.startswith(BREAKS):
        # The session and its other requests go on.
        return Disconnected(f"{connection.server}: {text}")

    is_closed = has_close_code and text.startswith(CLOSED)
    # A server that refused the request did not run it.
    is_unsent = text == SESSION_EXPIRED or (has_close_code and text.startswith(UNREACHED))
    if not (is_closed or is_unsent):
        return None
    connection.mark_lost(f"the connection to {connection.server} was lost ({text})")
    return Disconnected(connection.lost.result(), sent=False if is_unsent else None)
