"""The MCP transport: an MCP server as an app whose capabilities are its tools (seed 002).

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
from ...errors import CallTimeout, CapabilityError, ProtocolError, TooLarge, UsageError
from ...protocol.messages import PROTOCOL_VERSION, Message
from .connection import Connection
from .questions import Questions
from .reconnect import Keeper
from .requests import sent, told
from .servers import HttpServer, Server, server_of
from .translation import answer_of, arguments_of, capability_of, refusal

__all__ = ["MCPTransport"]

logger = logging.getLogger("transports.mcp")

#: Pages of a list that are read; a server may have no last one.
_PAGES = 100


class MCPTransport(Transport):
    """One connection to one MCP server.

    ``target`` is as :func:`~.servers.server_of` has it, or a server. ``headers`` and ``auth`` (an ``httpx2.Auth``, such
    as the SDK's ``OAuthClientProvider``) are for servers behind an address, and never shown. ``sampling`` says whether
    the server may ask for a model's words, which the session's elicitation handler then answers (``sampling/create``).
    ``timeout`` in seconds is for starting or reaching the server; ``max_bytes`` limits one message, counted in decoded
    bytes of content. With ``reconnect`` a server that ended or went away is started or reached again, with growing,
    jittered delays; calls that were under way fail with ``DISCONNECTED``.

    Raises :class:`~transports.errors.UsageError` for a target that makes no sense.
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
        self._server = server_of(target, headers) if isinstance(target, str) else target
        if auth is not None and not isinstance(self._server, HttpServer):
            raise UsageError("auth= is for servers behind an address; give this one environment variables (env)")
        self._tools: dict[str, Tool] = {}
        self._greeted: list[dict[str, object]] | None = None  # what was told the greeting; a session asks again at once
        self._running: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._questions = Questions(self._events.put_nowait)
        self._keeper = Keeper(
            lambda: Connection(
                self._server,
                auth,
                self._questions,
                self._events.put_nowait,
                sampling=sampling,
                max_bytes=max_bytes,
            ),
            self._events.put_nowait,
            timeout=timeout,
            again=reconnect,
        )

    @property
    def url(self) -> str | None:
        """The server's address, if it has one."""
        return self._server.url if isinstance(self._server, HttpServer) else None

    async def open(self) -> None:
        await self._keeper.open()

    async def aclose(self) -> None:
        await self._keeper.aclose()
        self._questions.close()
        self._events.put_nowait(None)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        payload: Any = message.payload
        async with _within(timeout):
            match message.type:
                case "initialize":
                    result: object = await self._greeting()
                case "capabilities/list":
                    greeted, self._greeted = self._greeted, None
                    result = await self._list() if greeted is None else greeted
                case "capabilities/call":
                    result = await self._call(message, payload)
                case "capabilities/cancel":
                    running = self._running.get(payload["callId"])
                    result = {"callId": payload["callId"], "cancelled": running is not None and running.cancel()}
                case _:
                    raise ProtocolError(f"this transport has no request {message.type!r}")
        return Message(f"{message.type}-result", result, id=message.id)

    async def _greeting(self) -> dict[str, object]:
        info = self._keeper.connected().client.server_info
        name = info.name if info else str(self._server)
        title = (info.title if info else None) or name
        self._greeted = await self._list()
        return {
            "sessionId": str(uuid.uuid4()),
            "protocolVersion": PROTOCOL_VERSION,
            "app": {"id": name, "name": title, "version": info.version if info else ""},
            "capabilities": self._greeted,
        }

    async def _list(self) -> list[dict[str, object]]:
        connection = self._keeper.connected()
        if not connection.client.server_capabilities.tools:
            return []
        tools: dict[str, Tool] = {}
        cursor: str | None = None
        try:
            for _ in range(_PAGES):
                page = await told(connection, connection.client.list_tools(cursor=cursor))
                tools.update((tool.name, tool) for tool in page.tools)
                cursor = page.next_cursor
                if cursor is None:
                    break
            else:
                logger.warning("%s lists its tools on more than %d pages; the rest is left out", self._server, _PAGES)
            self._tools = tools
        except (CapabilityError, ProtocolError, TooLarge) as error:  # it may have resources all the same
            logger.warning("%s could not list its tools: %s", self._server, error.message)
        return [capability_of(tool) for tool in self._tools.values()]

    async def _call(self, message: Message, payload: Any) -> object:
        connection, name, call = self._keeper.connected(), payload["capability"], payload["options"]["callId"]
        schema = self._tools[name].input_schema if name in self._tools else {}
        arguments = payload["params"]
        if message.content:
            arguments = await asyncio.to_thread(arguments_of, arguments, message.content, schema)

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

        self._running[call] = asking = asyncio.ensure_future(sent(connection, make, progress))
        try:
            answer = answer_of(await asking)
        except CapabilityError as error:
            answer = refusal(error)
        except asyncio.CancelledError:  # the SDK tells the server
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            return {"success": False, "cancelled": True}
        finally:
            del self._running[call]
        if name not in self._tools and isinstance(error_said := answer.get("error"), dict):
            answer["error"] = {**error_said, "code": "UNKNOWN_CAPABILITY"}
        return answer

    # --- resources ----------------------------------------------------------------------------------------------------

    @property
    def has_resources(self) -> bool:
        """Whether the server says that it has resources."""
        return self._keeper.is_there and self._keeper.connected().client.server_capabilities.resources is not None

    async def list_resources(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        request = ListResourcesRequest(params=PaginatedRequestParams(cursor=cursor))
        return _page(await self._resource(request, timeout), "resources")

    async def list_templates(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        request = ListResourceTemplatesRequest(params=PaginatedRequestParams(cursor=cursor))
        return _page(await self._resource(request, timeout), "resourceTemplates")

    async def read_resource(self, uri: str, *, timeout: float) -> Mapping[str, object]:
        connection = self._keeper.connected()

        def make(responses: InputResponses | None, state: str | None) -> ReadResourceRequest:
            params = ReadResourceRequestParams(uri=uri, input_responses=responses, request_state=state)
            return ReadResourceRequest(params=params)

        async with _within(timeout):
            result = await sent(connection, make)
        read: dict[str, object] = {"contents": result.get("contents", [])}
        if connection.is_modern:
            read["ttl"] = result.get("ttlMs", 0) / 1000
        return read

    async def subscribe_resource(self, uri: str, *, timeout: float) -> None:
        connection = self._keeper.connected()
        able = connection.client.server_capabilities.resources
        if able is None or not (able.subscribe or connection.is_modern):
            raise UsageError(f"{self._server} does not tell of changes of resources", code="NOT_SUPPORTED")
        if not connection.is_modern:
            await self._resource(SubscribeRequest(params=SubscribeRequestParams(uri=uri)), timeout)
            return
        async with _within(timeout):
            await told(connection, connection.listen(uri))

    async def unsubscribe_resource(self, uri: str, *, timeout: float) -> None:
        connection = self._keeper.connected()
        if connection.is_modern:
            await connection.deaf(uri)
        else:
            await self._resource(UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri)), timeout)

    async def _resource(self, request: Request[Any, Any], timeout: float) -> Mapping[str, Any]:
        connection = self._keeper.connected()
        async with _within(timeout):
            return await sent(connection, lambda *_: request)

    # --- events -------------------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[Message]:
        while (message := await self._events.get()) is not None:
            yield message

    async def notify(self, message: Message) -> None:
        if message.type == "elicitation/response":
            self._questions.answer(message)


@contextlib.asynccontextmanager
async def _within(timeout: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError as error:
        raise CallTimeout(f"no answer within {timeout:g} s") from error


def _page(result: Mapping[str, Any], key: str) -> ResourcePage:
    return ResourcePage(result.get(key) or [], result.get("nextCursor"))
