"""The bridge itself: the requests of MCP, and what each does with apps and artifacts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    InputRequiredResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from ...artifacts import ArtifactStore, Scope
from ...errors import ABPError, UsageError
from ...protocol.initialize import package_version
from ...protocol.schema import check_params
from ...session.connect import connect
from ..shared.activity import Activity
from ..shared.apps import Connect
from .about import Link
from .answers import failure, for_version
from .definitions import FIXED, capability_tools
from .options import Options
from .reading import TEMPLATE, list_resources, read_resource
from .running import Context
from .tools import Tools
from .user import Desk

__all__ = ["Bridge"]

logger = logging.getLogger("transports")

_INSTRUCTIONS = (
    "Web apps that speak ABP, as tools. Connect one with abp_connect; its capabilities become tools of their own. "
    "Whatever a call produces is stored, and the answer has links: read an artifact only if you need its content, in "
    "slices with abp_read_artifact. Pass artifacts on to other calls by their id, in `files`."
)
_PAGE = 100
#: Seconds that a list of tools waits for the apps that are connected from the start; later it is told as a change.
_PATIENCE = 10.0
#: Seconds between two looks for users who do nothing, at most.
_LOOK = 30.0
#: Whose things they are where there is nobody to tell apart: over stdio.
_LOCAL = "local"


class _Server(Server[None]):
    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **more: Any
    ) -> InitializationOptions:
        """The SDK leaves it to each transport to say that lists change; they do over all of them."""
        changing = NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(notification_options or changing, *args, **more)


class Bridge:
    """An MCP server in front of apps. ``server`` is to be run over a transport of the SDK; when it ends, all sessions
    are closed. ``connect`` stands for :func:`transports.connect`; ``activity`` is told what happens. ``link`` gives an
    address where anybody who has it can fetch an artifact, or ``None``; answers carry it."""

    def __init__(
        self,
        options: Options,
        store: ArtifactStore,
        *,
        connect: Connect = connect,
        activity: Activity | None = None,
        link: Link | None = None,
    ) -> None:
        self.options = options
        self._activity = activity
        self._store = store
        self._connect = connect
        self._link = link
        self._desks: dict[str, Desk] = {}
        self.server: Server[None] = _Server(
            "abp",
            version=package_version(),
            title="Web apps that speak ABP",
            instructions=_INSTRUCTIONS,
            lifespan=self._lifespan,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
        )
        self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        self.server.middleware.append(
            RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=self.server.name)
        )

    @asynccontextmanager
    async def _lifespan(self, _: Server[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.aclose()

    def begin(self) -> None:
        """Connect the apps of the options now, not only when the first request comes: for one user, over stdio."""
        self._desk()

    async def aclose(self) -> None:
        """Close all sessions of everybody; idempotent."""
        desks, self._desks = list(self._desks.values()), {}
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*(desk.aclose() for desk in desks))

    async def retire_idle(self) -> None:
        """Disconnect the apps of users who do nothing, for ever; their artifacts stay, and whoever listens hears."""
        limit = self.options.idle_minutes * 60
        while True:
            await asyncio.sleep(min(limit / 4, _LOOK))
            for user, desk in list(self._desks.items()):
                if desk.idle() > limit and self._desks.get(user) is desk:
                    if desk.audience.empty:
                        del self._desks[user]
                    await desk.rest()

    def _desk(self) -> Desk:
        token = get_access_token()
        user = (token.subject or token.client_id) if token else _LOCAL
        if user not in self._desks:
            store = self._store.scoped(Scope(user=user))
            self._desks[user] = Desk(store, self._connect, self.options, self._activity)
        self._desks[user].used()
        return self._desks[user]

    def _heard(self, ctx: Context) -> Desk:
        desk = self._desk()
        desk.audience.hears(ctx)
        return desk

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        desk = self._heard(ctx)
        await desk.ready(_PATIENCE)
        every = [*FIXED.values(), *(tool.tool() for tool in capability_tools(desk.apps).values())]
        tools = [tool for tool in every if self.options.shows(tool.name)]
        cursor = params.cursor if params else None
        if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
            raise MCPError(INVALID_PARAMS, "this cursor is none of ours; list the tools from the beginning")
        start = int(cursor or 0)
        more = str(start + _PAGE) if len(tools) > start + _PAGE else None
        return ListToolsResult(tools=tools[start : start + _PAGE], next_cursor=more, ttl_ms=0)

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        answer = await self._answer(ctx, params)
        return for_version(answer, ctx.protocol_version) if isinstance(answer, CallToolResult) else answer

    async def _answer(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        desk = self._heard(ctx)
        trouble = await desk.ready()
        arguments: dict[str, Any] = params.arguments or {}
        own = None if params.name in FIXED else capability_tools(desk.apps).get(params.name)
        if (params.name not in FIXED and own is None) or not self.options.shows(params.name):
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:100]!r} (any more); list the tools again")
        tools = Tools(desk, self.options, ctx, params, self._link)
        try:
            if own is not None:
                return await tools.capability(own, arguments)
            check_params(params.name, FIXED[params.name].input_schema, arguments)
            if trouble and not desk.apps and params.name in ("abp_call", "abp_status"):
                raise UsageError(trouble, code="NOT_INITIALIZED")
            return await tools.fixed(params.name, arguments)
        except ABPError as error:
            return failure(error, self.options.max_answer_bytes, self._link)
        except MCPError:
            raise
        except Exception as error:  # an answer, or the client would see a fault of the protocol
            logger.exception("%s failed", params.name)
            unforeseen = ABPError(f"this should not have happened ({type(error).__name__}); the bridge's log has more")
            return failure(unforeseen, self.options.max_answer_bytes, self._link)
        finally:
            desk.used()

    async def _list_resources(self, ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        return await list_resources(self._heard(ctx).store, params.cursor if params else None, self._link)

    async def _list_templates(self, _: Context, __: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=[TEMPLATE])

    async def _read_resource(self, ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        return await read_resource(self._heard(ctx).store, params.uri, self.options.max_resource_bytes)

    async def _subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        await self._heard(ctx).audience.subscribe(ctx, params.uri)
        return EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        self._heard(ctx).audience.unsubscribe(ctx, params.uri)
        return EmptyResult()

    async def _listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        return await self._desk().audience.listen(ctx, params)

    async def _set_level(self, ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
        self._heard(ctx).audience.set_level(ctx, params.level)
        return EmptyResult()
