"""The bridge as an MCP server: its requests, and the user that each belongs to."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
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

from ...artifacts import ArtifactStore
from ...errors import ABPError, UsageError
from ...protocol.initialize import package_version
from ...protocol.schema import check_params
from ...protocol.spelling import similar_names
from ...session.app_tables import AppEntry
from ...session.connect import connect
from ...session.named_apps import is_app_name
from ..shared.activity import Activity
from ..shared.apps import Connect
from ..shared.detached import DetachedCalls
from .artifact_view import ArtifactView, Link
from .capability_tools import capability_tools, tool_name
from .fixed_tools import fixed_tools
from .options import Options
from .pending_call import Context
from .progress import ProgressReporter
from .prompts import complete, get_prompt, list_prompts
from .resources import TEMPLATE, list_resources, read_app_resource, read_resource
from .scopes import all_scopes, app_is_in_scope, require_scopes
from .sdk_server import SdkServer, instructions
from .subscribers import connection_key
from .tasks import add_tasks
from .telemetry import observe
from .tool_page import tool_page
from .tool_results import error_result, for_version
from .tools import Answer, Tools
from .user import NO_APPS, User
from .users import Users

__all__ = ["Bridge"]

logger = logging.getLogger("transports")

#: Seconds that a list of tools waits for the apps of the options; those that come later are announced as a change.
_READY_TIMEOUT = 10.0


class Bridge:
    """An MCP server in front of apps.

    ``server`` is run over a transport of the SDK; when it ends, all sessions are closed. ``connect`` stands for
    :func:`transports.connect`; ``activity`` is a log of what happens. ``link`` returns a URL that opens an artifact for
    anyone who has it, or ``None``; results carry it. ``calls`` are the detached calls, which the caller closes; without
    them they are kept in memory. ``named`` are the apps that may be connected by their names.
    """

    def __init__(
        self,
        options: Options,
        store: ArtifactStore,
        *,
        connect: Connect = connect,
        activity: Activity | None = None,
        link: Link | None = None,
        calls: DetachedCalls | None = None,
        named: Mapping[str, AppEntry] = NO_APPS,
    ) -> None:
        self.options = options
        self._named = named
        for target in options.apps:
            if is_app_name(target) and target not in named:
                raise UsageError(f"--app {target}: the settings file has no table [apps.{target}]", code="NOT_FOUND")
        self._view = ArtifactView(options.files, link, options.enable_artifact_resources)
        self._fixed_tools = fixed_tools(options)
        self._calls = calls or DetachedCalls()
        self._owns_calls = calls is None
        self._users = Users(store, connect, options, self._calls, activity, named)
        self.server: Server[None] = SdkServer(
            "abp",
            version=package_version(),
            title="Web apps that speak ABP",
            instructions=instructions(files=options.enable_file_tools, retention=store.retention),
            lifespan=self._lifespan,
            on_list_tools=self._list_tools,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        self.server.add_request_handler("tools/call", CallToolRequestParams, self._call_tool)
        add_tasks(self.server, self._registered, options, self._view)
        observe(self.server)
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
        """Connect the apps of the options now and not with the first request; for one user, over stdio."""
        self._users.get("")

    async def aclose(self) -> None:
        """Close all sessions of all users. Idempotent, and not interrupted by cancellation."""
        with anyio.CancelScope(shield=True):
            await self._users.aclose()
            if self._owns_calls:
                await self._calls.aclose()

    async def retire_idle(self) -> None:
        """Disconnect the apps of users without a request for ``idle_minutes``, until cancelled. Their artifacts stay,
        and their clients are told."""
        await self._users.retire_idle()

    def _user(self, ctx: Context) -> User:
        return self._users.get(connection_key(ctx))

    def scopes(self) -> list[str]:
        """Return every scope that the options and the described apps name, sorted."""
        return all_scopes(self.options, self._named)

    def require_scopes(self, tool: str, arguments: Mapping[str, Any], connection: str) -> None:
        """Raise :class:`~transports.errors.UsageError` (``INSUFFICIENT_SCOPE``) if the token of this request, in the
        session ``connection`` of its header, has too few scopes for a call of a tool."""
        if user := self._users.find(connection):
            require_scopes(user, self.options, tool, arguments)

    def _registered(self, ctx: Context) -> User:
        """The user, whose client is told of changes from now on."""
        user = self._user(ctx)
        user.subscribers.register(ctx)
        return user

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        user = self._registered(ctx)
        await user.ready(_READY_TIMEOUT)
        own = capability_tools(user.apps, files=self.options.enable_file_tools)
        tools = [tool for name, tool in self._fixed_tools.items() if self.options.shows(name)]
        tools += [tool.definition() for tool in own.values() if self.options.shows(*tool.names)]
        return tool_page(tools, params.cursor if params else None)

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> Answer:
        reporter = ProgressReporter(ctx, self.options.heartbeat_seconds)
        async with reporter.beating():
            answer = await self._answer(ctx, params, reporter)
        return for_version(answer, ctx.protocol_version) if isinstance(answer, CallToolResult) else answer

    async def _answer(self, ctx: Context, params: CallToolRequestParams, reporter: ProgressReporter) -> Answer:
        user = self._registered(ctx)
        problem = await user.ready()
        arguments: dict[str, Any] = params.arguments or {}
        fixed = self._fixed_tools.get(params.name)
        made = {} if fixed else capability_tools(user.apps, files=self.options.enable_file_tools)
        own = made.get(params.name)
        names = own.names if own else (params.name,)
        if (fixed is None and own is None) or not self.options.shows(*names):
            there = [name for name in self._fixed_tools if self.options.shows(name)]
            there += [name for name, tool in made.items() if self.options.shows(*tool.names)]
            # all names have the same beginning, which is no likeness
            meant = similar_names(params.name.removeprefix("abp_"), [name.removeprefix("abp_") for name in there])
            did = f"did you mean {' or '.join(f'abp_{name}' for name in meant)}? Else " if meant else ""
            raise MCPError(
                INVALID_PARAMS, f"there is no tool {params.name[:100]!r} (any more); {did}list the tools again"
            )
        tools = Tools(user, self.options, ctx, params, self._view, reporter)
        try:
            require_scopes(user, self.options, params.name, arguments)
            if own is not None:
                return await tools.capability(own, arguments)
            assert fixed is not None
            check_params(params.name, fixed.input_schema, arguments)
            if problem and not user.apps and params.name in ("abp_call", "abp_status"):
                raise UsageError(problem, code="NOT_INITIALIZED")
            return await tools.fixed(params.name, arguments)
        except ABPError as error:
            return error_result(error, self.options.max_answer_bytes, self._view)
        except MCPError:
            raise
        except Exception as error:  # as a result: the client would take it for an error of the protocol
            logger.exception("%s failed", params.name)
            unexpected = ABPError(f"this should not have happened ({type(error).__name__}); the bridge's log has more")
            return error_result(unexpected, self.options.max_answer_bytes, self._view)
        finally:
            user.touch()

    async def _list_resources(self, ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        user = self._registered(ctx)
        if not self._view.as_resources:
            return ListResourcesResult(resources=[])
        return await list_resources(user.store, params.cursor if params else None, self._view)

    async def _list_templates(self, _: Context, __: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=[TEMPLATE] if self._view.as_resources else [])

    async def _read_resource(self, ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        user, limit = self._registered(ctx), self.options.max_resource_bytes
        if not params.uri.startswith("artifact:"):
            if not self.options.shows(tool_name("resources.read")):
                raise MCPError(INVALID_PARAMS, "only artifact://ID may be read here; ask the user (hide_tools)")
            await user.ready()
            try:
                apps = [app for app in user.apps.values() if app_is_in_scope(user, app)]
                return await read_app_resource(apps, params.uri, limit, self._view)
            finally:
                user.subscribers.resources_changed()
        if not self._view.as_resources:
            raise MCPError(INVALID_PARAMS, "artifacts are no resources here (enable_artifact_resources)")
        return await read_resource(user.store, params.uri, limit, self._view)

    async def _list_prompts(self, ctx: Context, _: PaginatedRequestParams | None) -> ListPromptsResult:
        user = self._registered(ctx)
        await user.ready(_READY_TIMEOUT)
        return list_prompts(user.apps, files=self.options.enable_file_tools)

    async def _get_prompt(self, ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        user = self._registered(ctx)
        await user.ready()
        return get_prompt(user.apps, params.name, params.arguments or {}, files=self.options.enable_file_tools)

    async def _complete(self, ctx: Context, params: CompleteRequestParams) -> CompleteResult:
        return await complete(self._registered(ctx), params)

    async def _subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        await self._registered(ctx).subscribers.subscribe(ctx, params.uri)
        return EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        await self._registered(ctx).subscribers.unsubscribe(ctx, params.uri)
        return EmptyResult()

    async def _listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        return await self._user(ctx).subscribers.listen(ctx, params)

    async def _set_level(self, ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
        self._registered(ctx).subscribers.set_level(ctx, params.level)
        return EmptyResult()
