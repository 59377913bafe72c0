"""The MCP transport: an MCP server as an app whose capabilities are its tools (docs/requirements.md R2).

* :class:`Reconnector` — replaces a lost connection.
* :func:`send_request`, :func:`list_tools`, :func:`map_errors` — requests of the SDK, with its errors as ABP errors.
* :class:`MCPTransport` — both behind the Transport contract.

Use: ``async with connect("mcp+stdio:npx -y some-server") as app``, or with options of the transport::

    transport = MCPTransport("mcp+https://mcp.example/mcp", auth=OAuthClientProvider(…))
    async with connect("mcp:", transport=transport) as app: ...
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import httpx2
from mcp.client.session import ClientRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequest,
    CallToolRequestParams,
    ErrorData,
    InputRequiredResult,
    InputResponses,
    ListPromptsRequest,
    ListResourcesRequest,
    ListResourceTemplatesRequest,
    PaginatedRequestParams,
    ReadResourceRequest,
    ReadResourceRequestParams,
    Request,
    SubscribeRequest,
    SubscribeRequestParams,
    Tool,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)
from pydantic import RootModel, ValidationError

from .._internal.tasks import MAX_DELAY, backoff_delay, in_thread
from ..base import Features, Transport
from ..errors import ABPError, CapabilityError, Disconnected, ProtocolError, TooLarge, UsageError, first_line, no_answer
from ..protocol._capabilities import MAX_CAPABILITIES
from ..protocol._strict_json import MAX_VALUES, is_larger, parser_limits
from ..protocol._times import checked_timeout
from ..protocol.messages import PROTOCOL_VERSION, Message, ServerCall
from ._connection import MANY, Connection, is_size_error, root_cause
from ._offered import Offered
from ._servers import HttpServer, Server, parse_server
from ._wire import (
    HALF_PAIR,
    OVER_LIMIT,
    REPAIRED,
    TOO_MANY,
    UNREADABLE,
    Questions,
    as_json,
    error_answer,
    is_visible,
    result_warnings,
    to_answer,
    to_arguments,
    to_capability,
    view_of,
    with_content,
)

if TYPE_CHECKING:
    from ..playwright._source import PageSource

logger = logging.getLogger("transports.mcp")


class Reconnector:
    """Connection to one server that is replaced when it is lost.

    ``make`` creates a connection. With ``reconnect`` a lost connection is replaced, with growing, jittered delays, and
    ``emit`` gets ``connection/lost`` and ``connection/restored`` events. ``timeout`` in seconds limits each opening.

    A separate task opens and closes the connections, since the SDK requires one task for both.
    """

    def __init__(
        self, make: Callable[[], Connection], emit: Callable[[Message], None], *, timeout: float, reconnect: bool
    ) -> None:
        self._make = make
        self._emit = emit
        self._timeout = timeout
        self._reconnect = reconnect
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """True if there is a connection now."""
        return self._connection is not None and not self._connection.lost.done()

    def connection(self) -> Connection:
        """Return the connection. Raises :class:`~transports.errors.Disconnected` if there is none now."""
        if self._connection is None or self._connection.lost.done():
            advice = "the transport is reconnecting" if self._reconnect else "connect again"
            raise Disconnected(f"the MCP server is not connected now; {advice}", sent=False)
        return self._connection

    async def open(self) -> None:
        """Open the first connection. Raises :class:`~transports.errors.ConnectFailed`."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._keep_open(opened))
        await asyncio.wait((self._task, opened), return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            await self._task  # raises the reason

    async def aclose(self) -> None:
        """Close the connection and stop reconnecting."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()  # retrieved so that asyncio does not log it; open() may have raised it
        self._connection = None

    async def _keep_open(self, opened: asyncio.Future[None]) -> None:
        attempt = 1
        reason = ""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            connection = self._make()
            try:
                async with connection.open(self._timeout):
                    self._connection = connection
                    if opened.done():
                        self._emit(Message("connection/restored", {"reason": reason}))
                    else:
                        opened.set_result(None)
                    await asyncio.shield(connection.lost)
            except Exception as error:  # any failure of the SDK's tasks ends the connection
                if not opened.done():
                    raise
                connection.mark_lost(_loss_reason(connection, error))
            if self._connection is connection:  # it had been opened
                self._connection = None
                reason = connection.lost.result()
                self._emit(Message("connection/lost", {"reason": reason}))
                if not self._reconnect:
                    return
                if clock() - began > MAX_DELAY:  # a connection that held resets the back-off
                    attempt = 1
            logger.info("%s; reconnecting", reason)
            await asyncio.sleep(backoff_delay(attempt))
            attempt += 1


def _loss_reason(connection: Connection, error: Exception) -> str:
    inner = root_cause(error)
    if isinstance(inner, ABPError):
        return inner.message
    detail = first_line(connection.server.redact(str(inner)))[:200]
    return f"the connection to {connection.server} broke: {detail or type(inner).__name__}"


#: Rounds of questions that a server may ask before it answers (protocol 2026-07-28).
_MAX_ROUNDS = 20
#: Maximum pages of a list: the list of a faulty server may never end.
_MAX_PAGES = 100
#: Characters of a server's message that an error repeats.
_MAX_TEXT = 2000
_ERROR_CODES = {INVALID_PARAMS: "INVALID_PARAMS", METHOD_NOT_FOUND: "NOT_SUPPORTED", -32002: "RESOURCE_NOT_FOUND"}
#: The SDK's message when an HTTP server has forgotten the session. The request did not run then.
_SESSION_EXPIRED = "Session terminated"

#: Builds the request again, with the answers to the server's questions and its state.
MakeRequest: TypeAlias = "Callable[[InputResponses | None, str | None], Request[Any, Any]]"

#: Methods that a view may ask of its server.
_RELAYED: Mapping[str, type[Request[Any, Any]]] = {
    "tools/call": CallToolRequest,
    "resources/read": ReadResourceRequest,
    "resources/list": ListResourcesRequest,
    "resources/templates/list": ListResourceTemplatesRequest,
    "prompts/list": ListPromptsRequest,
}

_T = TypeVar("_T")


class _Raw(RootModel[dict[str, Any]]):
    """Result as received. The SDK has already validated it against the protocol's schema."""


async def send_request(
    connection: Connection, make: MakeRequest, progress: ProgressFnT | None = None
) -> dict[str, Any]:
    """Send a request and return its result, with content in the place of its long base64.

    ``make`` builds the request, once more after each round of questions that the server asks before it answers
    (protocol 2026-07-28). ``progress`` is called for each progress notification. Raises as :func:`map_errors`, and
    :class:`~transports.errors.ProtocolError` after 20 rounds of questions.
    """
    result = await map_errors(connection, _exchange(connection, make, progress))
    return await _in_thread_if_large(with_content, result)


async def _in_thread_if_large(work: Callable[[dict[str, Any]], _T], result: dict[str, Any]) -> _T:
    """Return the outcome of ``work`` on a result, done in a thread where it may take long."""
    if is_larger(result, MANY):
        return await in_thread(work, result)
    return work(result)


async def _exchange(connection: Connection, make: MakeRequest, progress: ProgressFnT | None) -> dict[str, Any]:
    session = connection.client.session
    responses: InputResponses | None = None
    state: str | None = None
    for _ in range(_MAX_ROUNDS):
        request = make(responses, state)
        try:
            raw = await session.send_request(request, _Raw, progress_callback=progress)
        except MCPError as error:
            if error.code != HEADER_MISMATCH:
                raise
            await connection.client.list_tools()  # the SDK makes headers of the tool's schema, which has changed
            raw = await session.send_request(request, _Raw, progress_callback=progress)
        result = connection.aside.take(raw.root) or raw.root
        if result.get("resultType") != "input_required":
            return result
        if is_larger(result, MANY):
            raise ProtocolError("the server asked a question of very many values; nothing was answered")
        required = InputRequiredResult.model_validate(result, by_name=False)
        responses, state = {}, required.request_state
        for key, question in (required.input_requests or {}).items():
            context = ClientRequestContext(session=session, request_id=key)
            response = await session.dispatch_input_request(context, question)
            if isinstance(response, ErrorData):
                raise MCPError.from_error_data(response)
            responses[key] = response
    raise ProtocolError(f"the server asked {_MAX_ROUNDS} times and never answered")


async def list_tools(connection: Connection) -> dict[str, Tool]:
    """Return the server's tools by name, from at most 100 pages of the list and at most 150,000 tools.

    Raises as :func:`map_errors`.
    """
    tools: dict[str, Tool] = {}
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await map_errors(connection, connection.client.list_tools(cursor=cursor))
        whole = connection.aside.take({"_meta": page.meta})
        if whole is None:
            tools |= _by_name(page.tools)
        else:
            tools |= await in_thread(_by_name, whole["tools"][: MAX_CAPABILITIES - len(tools)])
        cursor = page.next_cursor
        if cursor is None:
            return tools
        if len(tools) >= MAX_CAPABILITIES:
            break
    logger.warning("%s has more than %s tools; the rest is left out", connection.server, f"{len(tools):,}")
    return tools


def _by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


async def map_errors(connection: Connection, work: Awaitable[_T]) -> _T:
    """Await work of the SDK and raise its errors as ABP errors.

    Raises :class:`~transports.errors.CapabilityError` if the server refuses (``details["code"]`` is JSON-RPC's),
    :class:`~transports.errors.Disconnected`, :class:`~transports.errors.TooLarge` and
    :class:`~transports.errors.ProtocolError`.
    """
    try:
        with parser_limits():
            return await work
    except MCPError as error:
        raise _abp_error(connection, error) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProtocolError(f"the server's answer is not valid MCP: {where}: {first['msg']}") from None
    except ValueError as error:
        raise ProtocolError(f"the server's answer cannot be read: {error}") from None


def _abp_error(connection: Connection, error: MCPError) -> ABPError:
    code, text, data = error.error.code, error.error.message, error.error.data
    if code == OVER_LIMIT or is_size_error(text):
        return TooLarge(
            f"the server sent a message over the limit of {connection.max_bytes:,} bytes; raise "
            "ABP_MAX_MESSAGE_BYTES, or ask it for less",
            details={"limit": connection.max_bytes},
        )
    if code == UNREADABLE:
        return ProtocolError(text)
    if code == TOO_MANY:
        return ProtocolError(text, code=TooLarge.code, details={"limit": MAX_VALUES})
    text = connection.server.redact(text)[:_MAX_TEXT]
    if code == CONNECTION_CLOSED or text == _SESSION_EXPIRED:
        connection.mark_lost(f"{connection.server} is gone ({text})")
        sent = False if text == _SESSION_EXPIRED else None
        return Disconnected(connection.lost.result(), sent=sent)
    details: dict[str, object] = {"code": code}
    if data is not None:
        details["data"] = data
    return CapabilityError(text, code=_ERROR_CODES.get(code), details=details)


class MCPTransport(Transport):
    """Transport to one MCP server.

    ``target`` is a server, or a text as for :func:`~._servers.parse_server`. ``headers`` and ``auth`` (an
    ``httpx2.Auth``, such as the SDK's ``OAuthClientProvider``) are for servers behind an address and never shown.
    ``sampling`` allows the server to request messages of a model from the session's elicitation handler
    (``sampling/create``). ``timeout`` in seconds limits starting or reaching the server. ``max_bytes`` limits one
    message, counted in decoded bytes of content. With ``reconnect`` a lost server is started or reached again, with
    growing, jittered delays. Calls in progress at the loss fail with ``DISCONNECTED``. ``views`` is the source of the
    pages in which views are shown; without it each view has a browser of its own.

    Raises :class:`~transports.errors.UsageError` if ``target`` does not name a server.
    """

    name = "mcp"

    def __init__(
        self,
        target: str | Server,
        *,
        headers: Mapping[str, str] | None = None,
        auth: httpx2.Auth | None = None,
        sampling: bool = False,
        timeout: float = 30.0,
        max_bytes: int = 100_000_000,
        reconnect: bool = True,
        views: PageSource | None = None,
    ) -> None:
        #: The source of pages for views, a browser of its own by default.
        self.views = views
        self.features = Features(listing=True, reconnects=reconnect, presets=True, views=True)
        self._server: Server = parse_server(target, headers) if isinstance(target, str) else target
        if auth is not None and not isinstance(self._server, HttpServer):
            raise UsageError("auth= is for servers behind an address; give this one environment variables (env)")
        self._tools: dict[str, Tool] = {}
        self._offered = Offered(self._list_page)
        self._initial_tools: list[dict[str, object]] | None = None  # reused when the session lists after initialize
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._questions = Questions(self._events.put_nowait)
        self._reconnector = Reconnector(
            lambda: Connection(
                self._server,
                auth,
                self._questions,
                self._events.put_nowait,
                sampling=sampling,
                max_bytes=max_bytes,
            ),
            self._events.put_nowait,
            timeout=checked_timeout(timeout),
            reconnect=reconnect,
        )

    @property
    def url(self) -> str | None:
        """The server's address, or ``None`` if it is a process."""
        return self._server.url if isinstance(self._server, HttpServer) else None

    async def open(self) -> None:
        """Start or reach the server. Raises :class:`~transports.errors.ConnectFailed`."""
        await self._reconnector.open()

    async def aclose(self) -> None:
        """Disconnect, and end a server that this transport started. Takes a few seconds at most."""
        await self._reconnector.aclose()
        self._questions.close()
        self._events.put_nowait(None)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request as its MCP counterpart: ``tools/list`` for the capabilities, ``tools/call`` for a call.

        A server without tools, or with an unreadable list, has no capabilities.
        """
        if message.type.startswith(("resources/", "view/")):
            return Message(f"{message.type}-result", await self._ask_server(message, timeout), id=message.id)
        payload: Any = message.payload
        warnings: list[str] = []
        server_call: ServerCall | None = None
        async with _deadline(message.type, timeout):
            match message.type:
                case "initialize":
                    result: object = await self._initialize()
                case "capabilities/list":
                    result = self._initial_tools
                    self._initial_tools = None
                    if result is None:
                        result = await self._list_capabilities()
                case "capabilities/call":
                    result, server_call = await self._call(message, payload, warnings)
                case "capabilities/cancel":
                    running = self._pending.get(payload["callId"])
                    result = {"callId": payload["callId"], "cancelled": running is not None and running.cancel()}
                case _:
                    raise ProtocolError(f"this transport has no request {message.type!r}")
        return Message(
            f"{message.type}-result",
            result,
            id=message.id,
            warnings=warnings,
            is_checked=True,
            server_call=server_call,
        )

    async def _initialize(self) -> dict[str, object]:
        client = self._reconnector.connection().client
        self.features = replace(self.features, resources=client.server_capabilities.resources is not None)
        app = {"id": str(self._server), "name": str(self._server), "version": ""}
        info = client.server_info
        if info:
            app = {"id": info.name, "name": info.title or info.name, "version": info.version}
        self._initial_tools = await self._list_capabilities()
        return {
            "sessionId": str(uuid.uuid4()),
            "protocolVersion": PROTOCOL_VERSION,
            "app": app,
            "capabilities": self._initial_tools,
        }

    async def _list_capabilities(self) -> list[dict[str, object]]:
        connection = self._reconnector.connection()
        if not connection.client.server_capabilities.tools:
            return []
        try:
            self._tools = await list_tools(connection)
        except (CapabilityError, ProtocolError, TooLarge) as error:  # it may still have resources
            logger.warning("%s could not list its tools: %s", self._server, error.message)
        tools = [tool for tool in self._tools.values() if is_visible(tool, "model")]
        if len(tools) > 500:  # describing them may take long
            return await in_thread(lambda: [to_capability(tool) for tool in tools])
        return [to_capability(tool) for tool in tools]

    async def _call(self, message: Message, payload: Any, warnings: list[str]) -> tuple[object, ServerCall | None]:
        connection = self._reconnector.connection()
        name = payload["capability"]
        call_id = payload["options"]["callId"]
        if name in self._tools and not is_visible(self._tools[name], "model"):
            hidden = CapabilityError("this tool is for the views of its server only", code="UNKNOWN_CAPABILITY")
            return error_answer(hidden), None
        arguments = payload["params"]
        if message.content:
            schema = self._tools[name].input_schema if name in self._tools else {}
            arguments = await asyncio.to_thread(to_arguments, arguments, message.content, schema)

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            report: dict[str, object] = {"operationId": call_id, "progress": progress, "total": total, "stage": message}
            if total:
                report["percentage"] = round(progress / total * 100, 1)
            self._events.put_nowait(Message("progress", report))

        def make(responses: InputResponses | None, state: str | None) -> CallToolRequest:
            params = CallToolRequestParams(
                name=name, arguments=arguments, input_responses=responses, request_state=state
            )
            return CallToolRequest(params=params)

        server_call: ServerCall | None = None
        self._pending[call_id] = sending = asyncio.ensure_future(send_request(connection, make, progress))
        try:
            result = await sending
            if result.pop(REPAIRED, False):
                warnings.append(HALF_PAIR)
            if message.opens_view:
                shown = await _in_thread_if_large(as_json, result)
                listed = self.tool(name) if name in self._tools else {"name": name}
                server_call = ServerCall(listed, arguments, shown)
                self._offered.add_links(shown)
            answer, faults = await _in_thread_if_large(partial(self._read_result, name), result)
            warnings += faults
        except CapabilityError as error:
            answer = error_answer(error)
        except asyncio.CancelledError:  # the SDK notifies the server
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            return {"success": False, "cancelled": True}, None
        finally:
            del self._pending[call_id]
        # MCP has no error code for an unknown tool: servers use INVALID_PARAMS or an error in the result
        refused = answer.get("error")
        if name not in self._tools and isinstance(refused, dict):
            answer["error"] = {**refused, "code": "UNKNOWN_CAPABILITY"}
        return answer, server_call

    def _read_result(self, name: str, result: dict[str, Any]) -> tuple[dict[str, object], list[str]]:
        """Return a tool's result as an answer, and what is wrong with it."""
        schema = self._tools[name].output_schema if name in self._tools else None
        return to_answer(result), result_warnings(result, schema)

    # --- views --------------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> Mapping[str, Mapping[str, object]]:
        """All tools as the server lists them, by name, also those for views only."""
        return {name: self.tool(name) for name in self._tools}

    def tool(self, name: str) -> Mapping[str, object]:
        """Return a tool as the server lists it. Raises :class:`~transports.errors.UsageError` for an unknown one."""
        if name not in self._tools:
            raise UsageError(f"{self._server} has no tool {name!r}")
        return self._tools[name].model_dump(mode="json", by_alias=True, exclude_none=True)

    async def _ask_server(self, message: Message, timeout: float) -> object:
        """Answer a request about resources, or one of a view."""
        payload: Any = message.payload
        match message.type:
            case "resources/list" | "resources/templates/list":
                return await self._list_page(message.type, payload.get("cursor"), timeout=timeout)
            case "resources/read":
                return await self._read_resource(payload["uri"], timeout=timeout)
            case "resources/subscribe":
                await self._subscribe(payload["uri"], timeout=timeout)
                return {}
            case "resources/unsubscribe":
                await self._unsubscribe(payload["uri"], timeout=timeout)
                return {}
            case "view/request":
                return await self._relay(payload["method"], payload["params"], timeout=timeout)
            case "view/listed":
                return {"listed": await self._listed_view(payload["uri"], payload["read"], timeout=timeout)}
        raise ProtocolError(f"this transport has no request {message.type!r}")

    async def _listed_view(
        self, uri: str, read: Mapping[str, object], *, timeout: float
    ) -> Mapping[str, object] | None:
        """Return a view's entry in the list of resources, if its document (``read``) declares nothing itself.

        Servers may leave views out of their list, so an error of the list is ``None``, too."""
        contents = read.get("contents")
        match contents:
            case [{"_meta": {"ui": _}}, *_]:
                return None
        if not self.features.resources:
            return None
        return await self._offered.entry(uri, timeout=timeout)

    async def _relay(self, method: str, params: Mapping[str, object], *, timeout: float) -> Mapping[str, object]:
        """Send a request of a view to the server, and return the result as JSON values.

        Raises :class:`~transports.errors.CapabilityError` for a method or a tool that is not for views, for a resource
        that the server does not offer, and if the server refuses."""
        kind = _RELAYED.get(method)
        if kind is None:
            raise CapabilityError(f"a view may not ask for {method[:100]}", details={"code": METHOD_NOT_FOUND})
        connection = self._reconnector.connection()
        name = params.get("name")
        if kind is CallToolRequest and not (
            isinstance(name, str) and name in self._tools and is_visible(self._tools[name], "app")
        ):
            raise CapabilityError(
                f"the server has no tool {str(name)[:100]!r} for its views", details={"code": INVALID_PARAMS}
            )
        uri = params.get("uri")
        if kind is ReadResourceRequest and not any(uri == view_of(tool) for tool in self._tools.values() if tool.meta):
            await self._offered.require(uri, timeout=timeout)
        try:
            request = kind.model_validate({"method": method, "params": dict(params)}, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise CapabilityError(
                f"{method}: {'.'.join(map(str, first['loc']))}: {first['msg']}", details={"code": INVALID_PARAMS}
            ) from None
        async with _deadline(method, timeout):
            result = await send_request(connection, lambda *_: request)
        if result.pop(REPAIRED, False):
            logger.warning("%s: %s", method, HALF_PAIR)
        shown: Mapping[str, object] = await _in_thread_if_large(as_json, result)
        if kind is CallToolRequest:
            self._offered.add_links(shown)
        return shown

    # --- resources ----------------------------------------------------------------------------------------------------

    async def _list_page(self, method: str, cursor: str | None, *, timeout: float) -> Mapping[str, object]:
        """Return one page of a list, with ``cursor`` for the next."""
        params = PaginatedRequestParams(cursor=cursor)
        if method == "resources/list":
            return await self._send_resource_request(ListResourcesRequest(params=params), timeout)
        return await self._send_resource_request(ListResourceTemplatesRequest(params=params), timeout)

    async def _read_resource(self, uri: str, *, timeout: float) -> Mapping[str, object]:
        """Return ``{contents, ttl?}`` of a resource."""
        connection = self._reconnector.connection()

        def make(responses: InputResponses | None, state: str | None) -> ReadResourceRequest:
            params = ReadResourceRequestParams(uri=uri, input_responses=responses, request_state=state)
            return ReadResourceRequest(params=params)

        async with _deadline("resources/read", timeout):
            result = await send_request(connection, make)
        if result.pop(REPAIRED, False):
            logger.warning("resources/read: %s", HALF_PAIR)
        contents = result.get("contents")
        resource: dict[str, object] = {"contents": contents if isinstance(contents, list) else []}
        if connection.is_modern:
            lifetime = result.get("ttlMs")
            resource["ttl"] = lifetime / 1000 if isinstance(lifetime, int | float) else 0
        return resource

    async def _subscribe(self, uri: str, *, timeout: float) -> None:
        """Subscribe to changes of a resource.

        Raises :class:`~transports.errors.UsageError` with the code ``NOT_SUPPORTED`` if the server does not report
        them.
        """
        connection = self._reconnector.connection()
        resources = connection.client.server_capabilities.resources
        if resources is None or not (resources.subscribe or connection.is_modern):
            raise UsageError(f"{self._server} does not report changes of resources", code="NOT_SUPPORTED")
        if not connection.is_modern:
            await self._send_resource_request(SubscribeRequest(params=SubscribeRequestParams(uri=uri)), timeout)
            return
        async with _deadline("resources/subscribe", timeout):
            await map_errors(connection, connection.listen(uri))

    async def _unsubscribe(self, uri: str, *, timeout: float) -> None:
        """End the subscription to a resource."""
        connection = self._reconnector.connection()
        if connection.is_modern:
            await connection.stop_listening(uri)
        else:
            await self._send_resource_request(UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri)), timeout)

    async def _send_resource_request(self, request: Request[Any, Any], timeout: float) -> Mapping[str, Any]:
        connection = self._reconnector.connection()
        async with _deadline(request.method, timeout):
            return await send_request(connection, lambda *_: request)

    # --- events -------------------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[Message]:
        """Yield progress, notifications, questions and connection changes, in order, until closed."""
        while (message := await self._events.get()) is not None:
            yield message

    async def notify(self, message: Message) -> None:
        """Answer a question of the server with an ``elicitation/response``; other messages are ignored."""
        if message.type == "elicitation/response":
            self._questions.answer(message)


@contextlib.asynccontextmanager
async def _deadline(request: str, timeout: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        raise no_answer(request, timeout) from None
