"""The MCP transport: an MCP server as an app whose capabilities are its tools (docs/requirements.md R2).

Use: ``async with connect("mcp+stdio:npx -y some-server") as app``, or with options of the transport::

    transport = MCPTransport("mcp+https://mcp.example/mcp", auth=OAuthClientProvider(…))
    async with connect("mcp:", transport=transport) as app: ...
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx2
import mcp_types as types
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from pydantic import ValidationError

from .._internal.recent import Recent
from .._internal.tasks import in_thread
from ..base import Features, Transport
from ..errors import CapabilityError, ProtocolError, TooLarge, UsageError, no_answer
from ..protocol._strict_json import items_of
from ..protocol._times import checked_timeout
from ..protocol.messages import PROTOCOL_VERSION, Message, ServerCall
from ._connection import Connection, Reconnector, in_thread_if_large, list_tools, map_errors, send_request
from ._servers import HttpServer, Server, parse_server
from ._wire import (
    HALF_PAIR,
    LIMITS,
    REPAIRED,
    Questions,
    as_json,
    error_answer,
    first_fault,
    is_visible,
    result_warnings,
    to_answer,
    to_arguments,
    to_capability,
    view_of,
)

if TYPE_CHECKING:
    from ..playwright._source import PageSource

logger = logging.getLogger("transports.mcp")

#: Methods that a view may call at its server, with their requests.
_RELAYED: Mapping[str, type[types.Request[Any, Any]]] = {
    "tools/call": types.CallToolRequest,
    "resources/read": types.ReadResourceRequest,
    "resources/list": types.ListResourcesRequest,
    "resources/templates/list": types.ListResourceTemplatesRequest,
    "prompts/list": types.ListPromptsRequest,
}

ListPage: TypeAlias = Callable[[str, str | None], Awaitable[Mapping[str, object]]]


class MCPTransport(Transport):
    """Transport to one MCP server.

    ``target`` is a server, or a text as for :func:`~._servers.parse_server`. ``headers`` and ``auth`` (an
    ``httpx2.Auth``, such as the SDK's ``OAuthClientProvider``) are for servers behind an address and never shown.
    ``sampling`` allows the server to request messages of a model from the session's elicitation handler
    (``sampling/create``). ``timeout`` in seconds limits starting or reaching the server. ``max_bytes`` limits one
    message, counted in decoded bytes of content. With ``reconnect`` a lost server is started or reached again, with
    growing, jittered delays. Calls in progress at the loss fail with ``DISCONNECTED``. ``views`` is the source of the
    pages in which views are shown; without it each view has a browser of its own.

    Raises :class:`~transports.errors.UsageError` if ``target`` does not name a server."""

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

        self._tools: dict[str, types.Tool] = {}
        self._offered = OfferedResources(self._list_page)
        # Used again when the session lists the capabilities after initialize.
        self._initial_tools: list[dict[str, object]] | None = None
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
        """Address of the server; ``None`` if the server is a process."""
        return self._server.url if isinstance(self._server, HttpServer) else None

    async def open(self) -> None:
        await self._reconnector.open()

    async def aclose(self) -> None:
        """Close the connection, and end the server if this transport started it. Takes a few seconds at most."""
        try:
            await self._reconnector.aclose()
        finally:
            # This must happen even if closing is cancelled.
            self._questions.close()
            self._events.put_nowait(None)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Answer a request of the session. A server without tools, or with an unreadable list, has no capabilities."""
        payload: Any = message.payload
        try:
            async with asyncio.timeout(timeout):
                if message.type == "capabilities/call":
                    return await self._call_tool(message)
                answer = await self._answer(message.type, payload)
        except TimeoutError:
            request = payload["method"] if message.type == "view/request" else message.type
            raise no_answer(request, timeout) from None
        return Message(f"{message.type}-result", answer, id=message.id)

    async def _answer(self, request: str, payload: Any) -> object:
        match request:
            case "initialize":
                return await self._initialize()
            case "capabilities/list":
                tools = self._initial_tools
                self._initial_tools = None
                if tools is None:
                    tools = await self._list_capabilities()
                return tools
            case "capabilities/cancel":
                running = self._pending.get(payload["callId"])
                return {"callId": payload["callId"], "cancelled": running is not None and running.cancel()}
            case "resources/list" | "resources/templates/list":
                return await self._list_page(request, payload.get("cursor"))
            case "resources/read":
                return await self._request_resource(payload["uri"])
            case "resources/subscribe":
                await self._subscribe(payload["uri"])
                return {}
            case "resources/unsubscribe":
                await self._unsubscribe(payload["uri"])
                return {}
            case "view/request":
                return await self._relay(payload["method"], payload["params"])
            case "view/listed":
                return {"listed": await self._listed_view(payload["uri"], payload["read"])}
        raise ProtocolError(f"this transport has no request {request!r}")

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
        """List the tools that a model may see. If the server fails to list them, the last list stays in use."""
        connection = self._reconnector.connection()
        if not connection.client.server_capabilities.tools:
            return []
        try:
            self._tools = await list_tools(connection)
        except (CapabilityError, ProtocolError, TooLarge) as error:
            # Not an error of the session: the server may still have resources.
            logger.warning("%s could not list its tools: %s", self._server, error.message)

        tools = [tool for tool in self._tools.values() if is_visible(tool, "model")]
        # Describing a tool takes up to a tenth of a millisecond, so many are described off the event loop.
        max_on_loop = 500
        if len(tools) > max_on_loop:
            return await in_thread(lambda: [to_capability(tool) for tool in tools])
        return [to_capability(tool) for tool in tools]

    async def _call_tool(self, message: Message) -> Message:
        """Call a tool of the server, and return the reply for the session. An error of the server becomes an answer."""
        payload: Any = message.payload
        connection = self._reconnector.connection()
        name = payload["capability"]
        call_id = payload["options"]["callId"]
        tool = self._tools.get(name)
        reply = Message("capabilities/call-result", id=message.id, is_checked=True)
        if tool is not None and not is_visible(tool, "model"):
            hidden = CapabilityError("this tool is for the views of its server only", code="UNKNOWN_CAPABILITY")
            reply.payload = error_answer(hidden)
            return reply

        arguments = await _arguments_of(message, tool)
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        try:
            result = await self._send_cancellable(connection, request, call_id)
            if result is None:
                reply.payload = {"success": False, "cancelled": True}
                return reply
            is_repaired = result.pop(REPAIRED, False)
            if message.opens_view:
                reply.server_call = await self._server_call(name, arguments, result)
            answer, warnings = await in_thread_if_large(partial(_read_result, tool), result)
            reply.warnings = [HALF_PAIR, *warnings] if is_repaired else warnings
        except CapabilityError as error:
            answer = error_answer(error)

        if tool is None:
            answer = _with_unknown_tool(answer)
        reply.payload = answer
        return reply

    async def _send_cancellable(
        self, connection: Connection, request: types.CallToolRequest, call_id: str
    ) -> dict[str, Any] | None:
        """Send a call, and return its result, or ``None`` if ``capabilities/cancel`` has cancelled the call."""
        sending = asyncio.ensure_future(send_request(connection, request, partial(self._report_progress, call_id)))
        self._pending[call_id] = sending
        try:
            return await sending
        except asyncio.CancelledError:
            # Either the caller itself was cancelled, or only the request. The SDK notifies the server in both cases.
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            return None
        finally:
            del self._pending[call_id]

    async def _server_call(self, name: str, arguments: Mapping[str, object], result: dict[str, Any]) -> ServerCall:
        """Return the call as MCP's JSON, for a view, and remember the resources that its result offers to views."""
        result_json: Mapping[str, object] = await in_thread_if_large(as_json, result)
        self._offered.add_links(result_json)
        listed_tool = _as_listed(self._tools[name]) if name in self._tools else {"name": name}
        return ServerCall(listed_tool, arguments, result_json)

    async def _report_progress(self, call_id: str, progress: float, total: float | None, message: str | None) -> None:
        report: dict[str, object] = {"operationId": call_id, "progress": progress, "total": total, "stage": message}
        if total:
            report["percentage"] = round(progress / total * 100, 1)
        self._events.put_nowait(Message("progress", report))

    # --- views --------------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> Mapping[str, Mapping[str, object]]:
        """Tools by name, as the server lists them. Tools that only views may call are included."""
        return {name: _as_listed(tool) for name, tool in self._tools.items()}

    async def _listed_view(self, uri: str, read: Mapping[str, object]) -> Mapping[str, object] | None:
        """Return the entry for a view in the server's list of resources. Return ``None`` if it is not listed, or if the
        view's document, which ``read`` is, declares its settings itself."""
        match read.get("contents"):
            case [{"_meta": {"ui": _}}, *_]:
                return None
        if not self.features.resources:
            return None
        return await self._offered.entry(uri)

    async def _relay(self, method: str, params: Mapping[str, object]) -> Mapping[str, object]:
        """Pass a request of a view on to the server, and return the result. Raises
        :class:`~transports.errors.CapabilityError` if views may not make this request, and if the server refuses it."""
        await self._require_allowed(method, params)
        request = _validated_request(method, params)

        result = await self._request(request)
        _warn_if_repaired(method, result)
        result_json: Mapping[str, object] = await in_thread_if_large(as_json, result)
        if method == "tools/call":
            self._offered.add_links(result_json)
        return result_json

    async def _require_allowed(self, method: str, params: Mapping[str, object]) -> None:
        """Refuse a request that views may not make: another method, a tool not for views, a resource not offered."""
        if method not in _RELAYED:
            raise CapabilityError(f"a view may not ask for {method[:100]}", details={"code": types.METHOD_NOT_FOUND})

        if method == "tools/call":
            name = params.get("name")
            if not isinstance(name, str) or name not in self._tools or not is_visible(self._tools[name], "app"):
                raise _invalid_params(f"the server has no tool {str(name)[:100]!r} for its views")

        if method == "resources/read":
            uri = params.get("uri")
            is_view = any(uri == view_of(tool) for tool in self._tools.values() if tool.meta)
            if not is_view:
                await self._offered.require(uri)

    # --- resources ----------------------------------------------------------------------------------------------------

    async def _list_page(self, method: str, cursor: str | None) -> Mapping[str, object]:
        params = types.PaginatedRequestParams(cursor=cursor)
        if method == "resources/list":
            page = await self._request(types.ListResourcesRequest(params=params))
        else:
            page = await self._request(types.ListResourceTemplatesRequest(params=params))
        if page.get("nextCursor") == cursor:
            # Some servers repeat the cursor of their only page.
            page.pop("nextCursor", None)
        return page

    async def _request_resource(self, uri: str) -> Mapping[str, object]:
        connection = self._reconnector.connection()
        request = types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=uri))
        result = await send_request(connection, request)
        _warn_if_repaired("resources/read", result)

        resource: dict[str, object] = {"contents": items_of(result.get("contents"))}
        if connection.is_modern:
            lifetime = result.get("ttlMs")
            resource["ttl"] = lifetime / 1000 if isinstance(lifetime, int | float) else 0
        return resource

    async def _subscribe(self, uri: str) -> None:
        """Receive changes of a resource. Raises :class:`~transports.errors.UsageError` (``NOT_SUPPORTED``) if the
        server does not report changes."""
        connection = self._reconnector.connection()
        resources = connection.client.server_capabilities.resources
        if resources is None or not (resources.subscribe or connection.is_modern):
            raise UsageError(f"{self._server} does not report changes of resources", code="NOT_SUPPORTED")
        if connection.is_modern:
            await map_errors(connection, connection.listen(uri))
        else:
            await self._request(types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri)))

    async def _unsubscribe(self, uri: str) -> None:
        connection = self._reconnector.connection()
        if connection.is_modern:
            await connection.stop_listening(uri)
        else:
            await self._request(types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri)))

    async def _request(self, request: types.Request[Any, Any]) -> dict[str, Any]:
        return await send_request(self._reconnector.connection(), request)

    # --- events -------------------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[Message]:
        while (message := await self._events.get()) is not None:
            yield message

    async def notify(self, message: Message) -> None:
        if message.type == "elicitation/response":
            self._questions.answer(message)


async def _arguments_of(message: Message, tool: types.Tool | None) -> Any:
    payload: Any = message.payload
    if not message.content:
        return payload["params"]
    schema = tool.input_schema if tool is not None else {}
    return await asyncio.to_thread(to_arguments, payload["params"], message.content, schema)


def _as_listed(tool: types.Tool) -> Mapping[str, object]:
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)


def _validated_request(method: str, params: Mapping[str, object]) -> types.Request[Any, Any]:
    try:
        return _RELAYED[method].model_validate({"method": method, "params": dict(params)}, by_name=False)
    except ValidationError as error:
        raise _invalid_params(f"{method}: {first_fault(error)}") from None


def _warn_if_repaired(method: str, result: dict[str, Any]) -> None:
    if result.pop(REPAIRED, False):
        logger.warning("%s: %s", method, HALF_PAIR)


def _with_unknown_tool(answer: dict[str, object]) -> dict[str, object]:
    """Give the error of an answer ABP's code for an unknown tool. MCP has no such code: servers use INVALID_PARAMS, or
    an error in the result."""
    error = answer.get("error")
    if not isinstance(error, dict):
        return answer
    return {**answer, "error": {**error, "code": "UNKNOWN_CAPABILITY"}}


def _read_result(tool: types.Tool | None, result: dict[str, Any]) -> tuple[dict[str, object], list[str]]:
    """Return the answer for the session, and the warnings about the result."""
    output_schema = tool.output_schema if tool is not None else None
    return to_answer(result), result_warnings(result, output_schema)


def _invalid_params(text: str) -> CapabilityError:
    return CapabilityError(text, details={"code": types.INVALID_PARAMS})


class OfferedResources:
    """Resources that the server offers to views: those in its lists, and links in results. The lists are read when a
    view asks for an address that is not remembered."""

    def __init__(self, list_page: ListPage) -> None:
        self._list_page = list_page
        self._remembered: Recent[str, None] = Recent(LIMITS.resource_uris)

    def add_links(self, result: Mapping[str, object]) -> None:
        for block in items_of(result.get("content")):
            match block:
                case {"type": "resource_link", "uri": uri} | {"type": "resource", "resource": {"uri": uri}}:
                    self._remember_uri(uri)

    async def require(self, uri: object) -> None:
        """Raises :class:`~transports.errors.CapabilityError` unless the server offers the resource."""
        if not isinstance(uri, str) or len(uri) > LIMITS.resource_uri_chars or not await self._offers_resource(uri):
            raise _invalid_params(f"the server does not offer the resource {str(uri)[:200]!r}")

    async def entry(self, uri: str) -> Mapping[str, object] | None:
        """Return the entry of a resource in the server's list, or ``None`` if the list lacks it."""
        async for entry in self._list_entries("resources/list", "resources"):
            if entry.get("uri") == uri:
                return entry
        return None

    async def _offers_resource(self, uri: str) -> bool:
        if uri in self._remembered:
            return True
        async for entry in self._list_entries("resources/list", "resources"):
            self._remember_uri(entry.get("uri"))
            if uri == entry.get("uri"):
                return True
        async for entry in self._list_entries("resources/templates/list", "resourceTemplates"):
            if _template_matches(entry.get("uriTemplate"), uri):
                return True
        return False

    async def _list_entries(self, method: str, key: str) -> AsyncIterator[Mapping[str, object]]:
        cursor: str | None = None
        for _ in range(LIMITS.pages):
            try:
                page = await self._list_page(method, cursor)
            except CapabilityError:
                # Many servers have only one of the two lists.
                return

            for item in items_of(page.get(key)):
                if isinstance(item, Mapping):
                    yield item
            next_cursor = page.get("nextCursor")
            if not isinstance(next_cursor, str):
                return
            cursor = next_cursor

    def _remember_uri(self, uri: object) -> None:
        if isinstance(uri, str) and len(uri) <= LIMITS.resource_uri_chars:
            self._remembered[uri] = None


def _template_matches(template: object, uri: str) -> bool:
    try:
        return isinstance(template, str) and UriTemplate.parse(template).match(uri) is not None
    except InvalidUriTemplate:
        return False
