"""MCP server of the bridge: handlers of requests, pages of tools, prompts and completions, traces and metrics, and the
server over stdin and stdout, for a client that starts the bridge."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import Any, Self, cast

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from ..._internal.telemetry import (
    MCP_OPERATION_DURATION,
    OTHER,
    annotate,
    continue_trace,
    error_type,
    is_tracing,
    mark_span_failed,
    record,
    use_global_providers,
)
from ...artifacts._base import ArtifactStore
from ...errors import ABPError, ArtifactNotFound, CapabilityError, UsageError
from ...mcp._stdio import LineSplitter, Stdin, exit_soon
from ...protocol._plain_text import plain_line
from ...protocol._strict_json import in_thread_if_long, members_of
from ...protocol.messages import package_version
from ...protocol.schema import tool_arguments
from ...session._app_tables import AppEntry
from ...session._named_apps import is_app_name
from ..shared._activity import Activity
from ..shared._apps import App, Apps, Connect, connect
from ..shared._capability_tools import free_name, tool_name
from ..shared._detached import DetachedCalls
from ._artifacts import TEMPLATE, ArtifactDescriber, Link, list_artifacts
from ._calls import Context, ProgressReporter
from ._files import read_app_resource, read_resource
from ._messages import Refused, parse_message
from ._options import Options
from ._results import adapt_to_version, add_tasks, error_result
from ._tool_list import (
    OPEN_VIEW,
    CapabilityTool,
    app_is_in_scope,
    capability_tools,
    fixed_tools,
    has_views,
    require_scopes,
)
from ._tools import Answer, Tools, app_name
from ._users import NO_APPS, User, Users, connection_key

logger = logging.getLogger("transports")

#: Seconds that a list of tools waits for the apps of the options. Apps that connect later are announced as a change.
_READY_TIMEOUT = 10.0


class _SdkServer(Server[None]):
    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **more: Any
    ) -> InitializationOptions:
        """Declare changing lists for every transport; the SDK leaves that to each transport."""
        changing = NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True)
        return super().create_initialization_options(notification_options or changing, *args, **more)


class Bridge:
    """The bridge: its MCP ``server``, and the users with their apps. All sessions are closed when ``server`` ends.
    ``connect`` replaces :func:`transports.connect`, and ``activity`` is a log of events. ``link`` returns a URL that
    opens an artifact for anyone who has the URL, or ``None``. ``calls`` are the detached calls, which the caller
    closes; by default they are kept in memory. ``named`` are the apps of the settings file."""

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
        for target in options.apps:
            if is_app_name(target) and target not in named:
                raise UsageError(
                    f"--app {target} is not an address, and no app of the settings file has this name; give an "
                    f"address, such as http://127.0.0.1:8000/, or add [apps.{target}]",
                    code="NOT_FOUND",
                )
        self._describer = ArtifactDescriber(options.files, link, options.enable_artifact_resources)
        self._fixed_tools = fixed_tools(options)
        self._calls = calls or DetachedCalls()
        self._owns_calls = calls is None
        self._users = Users(store, connect, options, self._calls, activity, named, self._describer)
        self.server: Server[None] = _SdkServer(
            "abp",
            version=package_version(),
            instructions=_instructions(files=options.enable_file_tools, retention=store.retention),
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
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        self.server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        add_tasks(self.server, self._user_of)
        _add_telemetry(self.server)
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
        """Connect the apps of the options now, not only with the first request. Over stdio the single user is known."""
        self._users.get("")

    async def aclose(self) -> None:
        """Close all sessions of all users. Idempotent, and not interrupted by cancellation."""
        with anyio.CancelScope(shield=True):
            await self._users.aclose()
            if self._owns_calls:
                await self._calls.aclose()

    async def retire_idle(self) -> None:
        await self._users.retire_idle()

    def scopes(self) -> list[str]:
        """Return all scopes that some call may need."""
        scopes = set(self.options.required_scopes)
        scopes.update(*self.options.tool_scopes.values())
        scopes.update(*(entry.scopes for entry in self._users.named.values()))
        return sorted(scopes)

    def require_scopes(self, tool: str, arguments: Mapping[str, Any], connection: str) -> None:
        """Refuse a call whose token lacks scopes. ``connection`` is the session id in the request's header."""
        user = self._users.find(connection)
        if user is not None:
            require_scopes(user, tool, arguments)

    def _user_of(self, ctx: Context) -> User:
        """Return the user of a request, after registering the client for notifications of changes."""
        user = self._users.get(connection_key(ctx))
        user.subscribers.register(ctx)
        return user

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        user = self._user_of(ctx)
        await user.wait_until_connected(_READY_TIMEOUT)

        fixed = {name: tool for name, tool in self._fixed_tools.items() if self.options.shows(name)}
        if not has_views(user.apps):
            fixed.pop(OPEN_VIEW, None)
        tools = list(fixed.values())
        for tool in capability_tools(user.apps, files=self.options.enable_file_tools).values():
            if self.options.shows(*tool.names):
                tools.append(tool.definition())
        return _tool_page(tools, params.cursor if params else None)

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        reporter = ProgressReporter(ctx, self.options.heartbeat_seconds)
        async with reporter.heartbeats():
            answer = await self._answer_call(ctx, params, reporter)
        if isinstance(answer, types.CallToolResult):
            answer = adapt_to_version(answer, ctx.protocol_version)
        return answer

    async def _answer_call(
        self, ctx: Context, params: types.CallToolRequestParams, reporter: ProgressReporter
    ) -> Answer:
        """Call a tool. Any error of the call is returned as a result, so that the model reads it."""
        user = self._user_of(ctx)
        connect_problem = await user.wait_until_connected()
        arguments: dict[str, Any] = params.arguments or {}
        tool = self._find_tool(user, params.name)
        tools = Tools(user, ctx, params, reporter)

        try:
            require_scopes(user, params.name, arguments)
            if isinstance(tool, CapabilityTool):
                return await tools.call_capability(tool, arguments)
            arguments = tool_arguments(params.name, tool.input_schema, arguments)
            needs_app = params.name in ("abp_call", "abp_status")
            if connect_problem and needs_app and not user.apps:
                raise UsageError(connect_problem, code="NOT_INITIALIZED")
            return await tools.call_fixed(params.name, arguments)
        except ABPError as error:
            return error_result(error, self.options.max_answer_bytes, self._describer)
        except MCPError:
            raise
        except Exception as error:
            logger.exception("%s failed", params.name)
            shown_error = ABPError(f"this should not have happened ({type(error).__name__}); the bridge's log has more")
            return error_result(shown_error, self.options.max_answer_bytes, self._describer)
        finally:
            user.mark_used()

    def _find_tool(self, user: User, name: str) -> types.Tool | CapabilityTool:
        fixed_tool = self._fixed_tools.get(name)
        if fixed_tool is not None and self.options.shows(name):
            return fixed_tool
        tool = capability_tools(user.apps, files=self.options.enable_file_tools).get(name)
        if tool is not None and self.options.shows(*tool.names):
            return tool
        raise MCPError(types.INVALID_PARAMS, f"unknown tool {name[:100]!r}; list the tools again")

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        user = self._user_of(ctx)
        if not self._describer.as_resources:
            return types.ListResourcesResult(resources=[])
        try:
            fields = await list_artifacts(user.store, params.cursor if params else None, self._describer)
        except UsageError as error:
            raise MCPError(types.INVALID_PARAMS, error.message) from error
        return types.ListResourcesResult.model_validate(fields)

    async def _list_templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        templates = [TEMPLATE] if self._describer.as_resources else []
        return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": templates})

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        user = self._user_of(ctx)
        may_read_from_apps = self.options.shows(tool_name("resources.read"))
        if not params.uri.startswith("artifact:"):
            if not may_read_from_apps:
                raise MCPError(
                    types.INVALID_PARAMS, "only artifact://ID may be read; ask the user to allow it (hide_tools)"
                )
            return await self._read_from_apps(user, params.uri)

        if not self._describer.as_resources:
            raise MCPError(types.INVALID_PARAMS, "artifacts are not resources here (enable_artifact_resources)")
        try:
            return await read_resource(user.store, params.uri, self.options.max_resource_bytes, self._describer)
        except MCPError as error:
            # A connected server may have artifacts as well, for instance if it is another bridge.
            may_be_elsewhere = may_read_from_apps and any(
                app.session.resources.available for app in _apps_in_scope(user)
            )
            if error.data["code"] != ArtifactNotFound.code or not may_be_elsewhere:
                raise
            not_found = error
        try:
            return await self._read_from_apps(user, params.uri)
        except MCPError as error:
            if _says_only_not_found(error.__cause__):
                # Each server words this differently, so the client gets the bridge's own error.
                raise not_found from error
            raise

    async def _read_from_apps(self, user: User, uri: str) -> types.ReadResourceResult:
        await user.wait_until_connected()
        try:
            return await read_app_resource(_apps_in_scope(user), uri, self.options.max_resource_bytes, self._describer)
        finally:
            user.subscribers.resources_changed()

    async def _list_prompts(self, ctx: Context, _: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        user = self._user_of(ctx)
        await user.wait_until_connected(_READY_TIMEOUT)
        descriptions = {
            "capability": "What the app should do: one of its capabilities.",
            "parameter": "A parameter of the capability, whose value is given.",
            "value": "The value of that parameter.",
        }
        if self.options.enable_file_tools:
            descriptions["artifact"] = "Id of an artifact to hand over as a file."
        arguments = [types.PromptArgument(name=name, description=text) for name, text in descriptions.items()]
        prompts = [
            types.Prompt(
                name=name,
                title=f"Use {app_name(app)}",
                description=f"What {app_name(app)} can do, and how to ask for it.",
                arguments=arguments,
            )
            for name, app in _apps_by_prompt(user.apps).items()
        ]
        return types.ListPromptsResult(prompts=prompts, ttl_ms=0)

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        user = self._user_of(ctx)
        await user.wait_until_connected()
        return _write_prompt(user.apps, params.name, params.arguments or {}, files=self.options.enable_file_tools)

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        user = self._user_of(ctx)
        candidates: Iterable[str]
        if params.argument.name in ("artifact", "id"):
            candidates = [ref.id for ref in reversed(await user.store.list())]
        else:
            candidates = _prompt_values(user.apps, params)

        typed = params.argument.value.lower()
        values = [value for value in dict.fromkeys(candidates) if value.lower().startswith(typed)]
        # MCP allows 100 values.
        max_values = 100
        completion = types.Completion(values=values[:max_values], total=len(values), has_more=len(values) > max_values)
        return types.CompleteResult(completion=completion)

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        await self._user_of(ctx).subscribers.subscribe(ctx, params.uri)
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        await self._user_of(ctx).subscribers.unsubscribe(ctx, params.uri)
        return types.EmptyResult()

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        return await self._user_of(ctx).subscribers.listen(ctx, params)

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self._user_of(ctx).subscribers.set_level(ctx, params.level)
        return types.EmptyResult()


def _instructions(*, files: bool, retention: object) -> str:
    """``retention`` is how long artifacts are kept, in words, if there is a limit."""
    text = (
        "Web apps that speak ABP, as tools. Connect one with abp_connect; its capabilities become tools of their own. "
        "Whatever a call produces is stored, and the answer says where."
    )
    if files:
        text += (
            " Read an artifact only if you need its content, in slices with abp_read_artifact. Pass artifacts on to "
            "other calls by their id, in `files`."
        )
    if retention:
        text += f" Each artifact is {retention}."
    return text


def _tool_page(tools: Sequence[types.Tool], cursor: str | None) -> types.ListToolsResult:
    """Return a page of 100 tools. The cursor is the index of its first tool."""
    start = 0
    if cursor is not None:
        is_number = cursor.isascii() and cursor.isdigit()
        if not is_number or len(cursor) > 9:
            raise MCPError(types.INVALID_PARAMS, "invalid cursor; list the tools from the beginning")
        start = int(cursor)
    end = start + 100
    next_cursor = str(end) if end < len(tools) else None
    return types.ListToolsResult(tools=list(tools[start:end]), next_cursor=next_cursor, ttl_ms=0)


# --- prompts ----------------------------------------------------------------------------------------------------------


def _write_prompt(apps: Apps, name: str, arguments: Mapping[str, str], *, files: bool) -> types.GetPromptResult:
    """Tell the model what the app of a prompt can do, and with ``arguments`` which capability to call. ``files`` says
    whether calls take files."""
    app = _apps_by_prompt(apps).get(name)
    if app is None:
        raise MCPError(types.INVALID_PARAMS, f"unknown prompt {name[:100]!r}; list the prompts again")

    lines = [f"Use the app {app_name(app)}, which is connected as session {app.key}. It can do this:"]
    capabilities = app.session.capabilities
    max_capabilities = 100
    for key in islice(capabilities, max_capabilities):
        capability = capabilities[key]
        lines.append(f"- {plain_line(capability.name)}: {plain_line(capability.description, 300)}")
    if len(capabilities) > max_capabilities:
        lines.append(f"- and {len(capabilities) - max_capabilities} more, which abp_status lists")

    lines.append(
        "Each capability is a tool; abp_call calls any of them, and abp_status with `capability` has its parameters. "
        "What a call produces is kept as artifacts, and the answer says where."
    )
    if files:
        lines.append(
            "Pass a file in `files` of the call: `param` is its place, and `artifact` is the id of an artifact, "
            "so that its content need not be read."
        )

    if arguments.get("capability"):
        lines.append(_describe_call(arguments))
    message = types.PromptMessage(role="user", content=types.TextContent(text="\n".join(lines)))
    return types.GetPromptResult(description=f"What {app_name(app)} can do", messages=[message])


def _describe_call(arguments: Mapping[str, str]) -> str:
    values = {key: plain_line(text, 1000) for key, text in arguments.items() if text}
    task = f"Call {values['capability']} now"
    if "parameter" in values and "value" in values:
        task += f", with {values['parameter']} = {values['value']}"
    if "artifact" in values:
        task += f", and hand over the artifact {values['artifact']}"
    return f"{task}."


def _apps_by_prompt(apps: Apps) -> dict[str, App]:
    """Return the apps by the names of their prompts, such as ``use_photo_editor``."""
    by_prompt: dict[str, App] = {}
    for app in apps.values():
        words = re.sub(r"[^a-z0-9]+", "_", app_name(app).lower()).strip("_")[:50]
        by_prompt[free_name(f"use_{words or 'app'}", by_prompt)] = app
    return by_prompt


# --- completions ------------------------------------------------------------------------------------------------------


def _prompt_values(all_apps: Apps, params: types.CompleteRequestParams) -> Iterable[str]:
    """Return possible values for an argument of a prompt. They depend on the arguments that the user has filled in."""
    by_prompt = _apps_by_prompt(all_apps)
    apps = list(by_prompt.values())
    if params.ref.type == "ref/prompt" and params.ref.name:
        apps = [app for prompt, app in by_prompt.items() if prompt == params.ref.name]
    other_arguments: Mapping[str, str] = {}
    if params.context is not None and params.context.arguments:
        other_arguments = params.context.arguments

    capability = other_arguments.get("capability", "")
    match params.argument.name:
        case "capability":
            return [plain_line(name) for app in apps for name in app.session.capabilities]
        case "parameter":
            return _parameters_of(apps, capability)
        case "value":
            parameter = other_arguments.get("parameter", "")
            return _listed_values(_parameters_of(apps, capability).get(parameter))
        case _:
            return ()


def _parameters_of(apps: Iterable[App], capability: str) -> Mapping[str, object]:
    for app in apps:
        declaration = app.session.capabilities.get(capability)
        if declaration is not None:
            properties = members_of(declaration.input_schema.get("properties"))
            return {plain_line(str(name)): schema for name, schema in properties.items()}
    return {}


def _listed_values(schema: object) -> list[str]:
    if not isinstance(schema, Mapping):
        return []
    if schema.get("type") == "boolean":
        return ["true", "false"]
    choices = schema.get("enum")
    if not isinstance(choices, list):
        return []
    return [str(choice) for choice in choices if isinstance(choice, str | int | float)]


# --- traces and metrics -----------------------------------------------------------------------------------------------


class _Failed(dict[str, Any]):
    """An exception as a result. In this form it passes the SDK's span, which records the messages of exceptions: such a
    message may quote a text of an app."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _add_telemetry(server: Server[None]) -> None:
    use_global_providers()
    # The SDK's own middleware begins a span. The first function is called outside of it, the second one inside.
    server.middleware.insert(0, _continue_client_trace)
    server.middleware.insert(2, partial(_measure_request, server))


async def _continue_client_trace(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Continue the trace that the request's headers name. A trace in ``_meta`` has precedence, since the SDK's span,
    which is inside of this one, continues it."""
    headers: Mapping[str, str] = {}
    if ctx.request is not None and is_tracing():
        headers = ctx.request.headers
    with continue_trace(headers):
        result = await call_next(ctx)
    if isinstance(result, _Failed):
        raise result.error
    return result


async def _measure_request(
    server: Server[None], ctx: ServerRequestContext[Any, Any], call_next: CallNext
) -> HandlerResult:
    """Measure the duration and the outcome of a request. With tracing, an exception is returned as :class:`_Failed`,
    and :func:`_continue_client_trace` raises it again: the SDK's span, which is between the two, must not see it."""
    attributes = {"network.transport": "pipe" if ctx.request is None else "tcp"}
    labels = {**attributes, "mcp.method.name": _recorded_method(server, ctx)}
    session = connection_key(ctx)
    if session:
        attributes["mcp.session.id"] = session
    annotate(attributes)

    started = time.perf_counter()
    result: HandlerResult = None
    try:
        result = await call_next(ctx)
        match result:
            case types.CallToolResult(is_error=True) | {"isError": True}:
                labels["error.type"] = "tool_error"
        return result
    except asyncio.CancelledError as error:
        labels["error.type"] = error_type(error)
        raise
    except Exception as error:
        labels["error.type"] = str(error.error.code) if isinstance(error, MCPError) else error_type(error)
        if not is_tracing():
            raise
        mark_span_failed(labels["error.type"])
        return _Failed(error)
    finally:
        if ctx.method == "tools/call":
            labels["gen_ai.tool.name"] = _recorded_tool(ctx, result)
        record(MCP_OPERATION_DURATION, time.perf_counter() - started, labels)


def _recorded_method(server: Server[None], ctx: ServerRequestContext[Any, Any]) -> str:
    """Return the name of the method for the metrics. The name of an unknown method may be any text, so it becomes
    :data:`OTHER`."""
    if ctx.request_id is None:
        handler = server.get_notification_handler(ctx.method)
    else:
        handler = server.get_request_handler(ctx.method)
    is_handled_by_sdk = ctx.method in ("initialize", "notifications/initialized")
    if handler is None and not is_handled_by_sdk:
        return OTHER
    return ctx.method


def _recorded_tool(ctx: ServerRequestContext[Any, Any], result: HandlerResult) -> str:
    """Return the name of the tool for the metrics. A call without a result may be of an unknown tool, whose name may be
    any text, so it becomes :data:`OTHER`."""
    name = (ctx.params or {}).get("name")
    if result is None or not isinstance(name, str):
        return OTHER
    return name


def _apps_in_scope(user: User) -> list[App]:
    return [app for app in user.apps.values() if app_is_in_scope(user, app)]


def _says_only_not_found(error: BaseException | None) -> bool:
    """Whether an app's error only says that it does not have a resource, and not, say, that the resource is too
    large."""
    if not isinstance(error, CapabilityError):
        return error is None
    code: object = members_of(error.details.get("data")).get("code")
    return code in (None, ArtifactNotFound.code)


# --- over stdin and stdout --------------------------------------------------------------------------------------------


class _Output:
    """The SDK's stream of messages to stdout, which also notes the requests that are not answered yet."""

    def __init__(
        self, send: Callable[[SessionMessage], Awaitable[None]], aclose: Callable[[], Awaitable[None]]
    ) -> None:
        self._send = send
        self._aclose = aclose
        #: Ids of the requests that are not answered yet.
        self._unanswered: set[str] = set()
        self._answered = asyncio.Event()

    def note_request(self, message: types.JSONRPCMessage) -> None:
        """Remember a request until it is answered, or until the client cancels it."""
        match message:
            case types.JSONRPCRequest(method="subscriptions/listen"):
                pass  # answered when the connection ends
            case types.JSONRPCRequest():
                self._unanswered.add(str(message.id))
            case types.JSONRPCNotification(method="notifications/cancelled"):
                self._unanswered.discard(str((message.params or {}).get("requestId")))

    async def wait_until_answered(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._unanswered:
                    self._answered.clear()
                    await self._answered.wait()

    async def send(self, item: SessionMessage, /) -> None:
        await self._send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._unanswered.discard(str(item.message.id))
            self._answered.set()

    async def aclose(self) -> None:
        await self._aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


async def serve_stdio(bridge: Bridge) -> None:
    """Serve one client until stdin ends or the parent process dies. Whatever else writes to stdout meanwhile is
    redirected to stderr. If closing takes longer than four seconds, the process exits."""
    chunks = Stdin()
    opened: asyncio.Future[_Output] = asyncio.get_running_loop().create_future()
    bridge.begin()
    try:
        # The SDK asks for a file, but only iterates over it.
        stdin = cast("anyio.AsyncFile[str]", _valid_lines(chunks, opened))
        async with stdio_server(stdin=stdin) as (reading, writing):
            output = _Output(writing.send, writing.aclose)
            opened.set_result(output)
            await bridge.server.run(reading, output, bridge.server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client is gone: the normal end
    finally:
        exit_soon()
        await bridge.aclose()


async def _valid_lines(chunks: Stdin, opened: asyncio.Future[_Output]) -> AsyncIterator[str]:
    """Yield the lines of stdin that are messages. Any other line, and a message of more than 50,000 values and names,
    is answered with an error. The answers go to the output, which is the result of ``opened``.

    When stdin ends, wait up to a second until all requests are answered, since the client may still read. Then the SDK
    cancels the rest. The wait is short, since clients kill a server two seconds after they have closed its stdin."""
    async for lines in _lines(chunks):
        output = await opened
        for index, line in enumerate(lines):
            try:
                message = await in_thread_if_long(parse_message, line)
            except Refused as refused:
                await output.send(SessionMessage(refused.error))
                continue
            refusal = _refuse_superseded_discovery(message, lines[index + 1 :])
            if refusal is not None:
                await output.send(SessionMessage(refusal))
                continue
            output.note_request(message)
            yield line.decode()
    exit_soon()
    await (await opened).wait_until_answered(1)


async def _lines(chunks: Stdin) -> AsyncIterator[list[bytes]]:
    """Yield the lines that arrive together. The very last line may have no line break."""
    # Without a limit, the splitter yields whole lines only, so the casts are right.
    reader = LineSplitter()
    async for chunk in chunks:
        yield cast("list[bytes]", [*reader.feed(chunk)])
    yield cast("list[bytes]", [*reader.flush()])


def _refuse_superseded_discovery(
    message: types.JSONRPCMessage, later_lines: Sequence[bytes]
) -> types.JSONRPCError | None:
    """Return the refusal of a discovery that the client has given up, otherwise ``None``. A client that waits only
    briefly sends ``initialize``, which is among the ``later_lines``, before this process has read the discovery. If the
    discovery were answered, the SDK would refuse ``initialize``."""
    if not isinstance(message, types.JSONRPCRequest) or message.method != "server/discover":
        return None
    if not any(re.search(rb'"method"\s*:\s*"initialize"', line) for line in later_lines):
        return None
    error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="the older handshake followed")
    return types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
