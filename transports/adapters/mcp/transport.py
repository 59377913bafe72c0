"""The MCP transport: an MCP server as an app whose capabilities are its tools (docs/requirements.md R2).

Use it alone as well: ``async with connect("mcp+stdio:npx -y some-server") as app``, or with options of its own::

    transport = MCPTransport("mcp+https://mcp.example/mcp", auth=OAuthClientProvider(…))
    async with connect("mcp:", transport=transport) as app: ...
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    InputResponses,
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

from ...base import Features, ResourcePage, Transport
from ...errors import CapabilityError, ProtocolError, TooLarge, UsageError, no_answer
from ...protocol.durations import checked_timeout
from ...protocol.messages import PROTOCOL_VERSION, Message
from ...protocol.strict_json import is_larger
from ...tasks import in_thread
from .connection import Connection
from .questions import Questions
from .reconnect import Reconnector
from .requests import list_tools, map_errors, send_request
from .servers import HttpServer, Server, parse_server
from .tool_repair import MANY
from .translation import error_answer, to_answer, to_arguments, to_capability

__all__ = ["MCPTransport"]

#: Tools that take so long to describe that it is for a thread.
MANY_TOOLS = 500

logger = logging.getLogger("transports.mcp")


class MCPTransport(Transport):
    """One connection to one MCP server.

    ``target`` is a server, or a text as for :func:`~.servers.parse_server`. ``headers`` and ``auth`` (an
    ``httpx2.Auth``, such as the SDK's ``OAuthClientProvider``) are for servers behind an address, and never shown.
    ``sampling`` allows the server to ask for messages of a model, which the session's elicitation handler answers
    (``sampling/create``). ``timeout`` in seconds is for starting or reaching the server; ``max_bytes`` limits one
    message, counted in decoded bytes of content. With ``reconnect`` a server that ended or went away is started or
    reached again, with growing, jittered delays; calls that were under way fail with ``DISCONNECTED``.

    Raises :class:`~transports.errors.UsageError` for a target that names no server.
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
    ) -> None:
        self.features = Features(listing=True, reconnects=reconnect, presets=True)
        self._server = parse_server(target, headers) if isinstance(target, str) else target
        if auth is not None and not isinstance(self._server, HttpServer):
            raise UsageError("auth= is for servers behind an address; give this one environment variables (env)")
        self._tools: dict[str, Tool] = {}
        self._initial_tools: list[dict[str, object]] | None = None  # a session lists right after initialize
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
        """Disconnect, and end a server that was started here. Takes a few seconds at most."""
        await self._reconnector.aclose()
        self._questions.close()
        self._events.put_nowait(None)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request as MCP has it: ``tools/list`` for the capabilities, ``tools/call`` for a call.

        A server without tools, or whose list cannot be read, has no capabilities.
        """
        payload: Any = message.payload
        async with _deadline(message.type, timeout):
            match message.type:
                case "initialize":
                    result: object = await self._initialize()
                case "capabilities/list":
                    tools, self._initial_tools = self._initial_tools, None
                    result = await self._list() if tools is None else tools
                case "capabilities/call":
                    result = await self._call(message, payload)
                case "capabilities/cancel":
                    running = self._pending.get(payload["callId"])
                    result = {"callId": payload["callId"], "cancelled": running is not None and running.cancel()}
                case _:
                    raise ProtocolError(f"this transport has no request {message.type!r}")
        return Message(f"{message.type}-result", result, id=message.id)

    async def _initialize(self) -> dict[str, object]:
        info = self._reconnector.connection().client.server_info
        name = info.name if info else str(self._server)
        title = (info.title if info else None) or name
        self._initial_tools = await self._list()
        return {
            "sessionId": str(uuid.uuid4()),
            "protocolVersion": PROTOCOL_VERSION,
            "app": {"id": name, "name": title, "version": info.version if info else ""},
            "capabilities": self._initial_tools,
        }

    async def _list(self) -> list[dict[str, object]]:
        connection = self._reconnector.connection()
        if not connection.client.server_capabilities.tools:
            return []
        try:
            self._tools = await list_tools(connection)
        except (CapabilityError, ProtocolError, TooLarge) as error:  # it may have resources all the same
            logger.warning("%s could not list its tools: %s", self._server, error.message)
        tools = self._tools.values()
        if len(tools) > MANY_TOOLS:
            return await in_thread(lambda: [to_capability(tool) for tool in tools])
        return [to_capability(tool) for tool in tools]

    async def _call(self, message: Message, payload: Any) -> object:
        connection, name, call = self._reconnector.connection(), payload["capability"], payload["options"]["callId"]
        schema = self._tools[name].input_schema if name in self._tools else {}
        arguments = payload["params"]
        if message.content:
            arguments = await asyncio.to_thread(to_arguments, arguments, message.content, schema)

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            report: dict[str, object] = {"operationId": call, "progress": progress, "total": total, "stage": message}
            if total:
                report["percentage"] = round(progress / total * 100, 1)
            self._events.put_nowait(Message("progress", report))

        def make(responses: InputResponses | None, state: str | None) -> CallToolRequest:
            params = CallToolRequestParams(
                name=name, arguments=arguments, input_responses=responses, request_state=state
            )
            return CallToolRequest(params=params)

        self._pending[call] = sending = asyncio.ensure_future(send_request(connection, make, progress))
        try:
            result = await sending
            answer = await in_thread(to_answer, result) if is_larger(result, MANY) else to_answer(result)
        except CapabilityError as error:
            answer = error_answer(error)
        except asyncio.CancelledError:  # the SDK tells the server
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            return {"success": False, "cancelled": True}
        finally:
            del self._pending[call]
        if name not in self._tools and isinstance(refused := answer.get("error"), dict):
            answer["error"] = {**refused, "code": "UNKNOWN_CAPABILITY"}
        return answer

    # --- resources ----------------------------------------------------------------------------------------------------

    @property
    def has_resources(self) -> bool:
        """Whether the server says that it has resources."""
        return (
            self._reconnector.is_connected
            and self._reconnector.connection().client.server_capabilities.resources is not None
        )

    async def list_resources(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """Return one page of ``resources/list``."""
        request = ListResourcesRequest(params=PaginatedRequestParams(cursor=cursor))
        return _resource_page(await self._resource(request, timeout), "resources")

    async def list_templates(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """Return one page of ``resources/templates/list``."""
        request = ListResourceTemplatesRequest(params=PaginatedRequestParams(cursor=cursor))
        return _resource_page(await self._resource(request, timeout), "resourceTemplates")

    async def read_resource(self, uri: str, *, timeout: float) -> Mapping[str, object]:
        """Return ``{contents, ttl?}`` of a resource; see :class:`~transports.base.ResourceTools`."""
        connection = self._reconnector.connection()

        def make(responses: InputResponses | None, state: str | None) -> ReadResourceRequest:
            params = ReadResourceRequestParams(uri=uri, input_responses=responses, request_state=state)
            return ReadResourceRequest(params=params)

        async with _deadline("resources/read", timeout):
            result = await send_request(connection, make)
        read: dict[str, object] = {"contents": result.get("contents", [])}
        if connection.is_modern:
            read["ttl"] = result.get("ttlMs", 0) / 1000
        return read

    async def subscribe_resource(self, uri: str, *, timeout: float) -> None:
        """Ask for notifications of changes of a resource.

        Raises :class:`~transports.errors.UsageError` with the code ``NOT_SUPPORTED`` if the server has none.
        """
        connection = self._reconnector.connection()
        able = connection.client.server_capabilities.resources
        if able is None or not (able.subscribe or connection.is_modern):
            raise UsageError(f"{self._server} does not tell of changes of resources", code="NOT_SUPPORTED")
        if not connection.is_modern:
            await self._resource(SubscribeRequest(params=SubscribeRequestParams(uri=uri)), timeout)
            return
        async with _deadline("resources/subscribe", timeout):
            await map_errors(connection, connection.listen(uri))

    async def unsubscribe_resource(self, uri: str, *, timeout: float) -> None:
        """End the notifications of changes of a resource."""
        connection = self._reconnector.connection()
        if connection.is_modern:
            await connection.stop_listening(uri)
        else:
            await self._resource(UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri)), timeout)

    async def _resource(self, request: Request[Any, Any], timeout: float) -> Mapping[str, Any]:
        connection = self._reconnector.connection()
        async with _deadline(request.method, timeout):
            return await send_request(connection, lambda *_: request)

    # --- events -------------------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[Message]:
        """Yield progress, notifications, questions and changes of the connection, in order, until closed."""
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


def _resource_page(result: Mapping[str, Any], key: str) -> ResourcePage:
    return ResourcePage(result.get(key) or [], result.get("nextCursor"))
