"""Tools of the bridge for one request of one user: connections, calls, pictures, and views of apps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult

from ..._internal.tasks import in_thread
from ...artifacts._ref import ArtifactRef
from ...errors import ABPError, UsageError
from ...protocol._capabilities import find_capability
from ...protocol._declarations import Capability
from ...protocol._plain_text import is_address, plain_line, plain_text, plain_tree
from ...protocol.messages import Message
from ...protocol.schema import repair_arguments, tool_arguments
from ...routing._result import Result
from ..shared._apps import App, Apps, run_as_pending
from ..shared._capability_tools import app_arguments, parameters_line, tool_name
from ._calls import Context, ProgressReporter, ToolCall, takes_tasks
from ._files import ArtifactTools, with_files
from ._hosts import allowed_extension, check_host, screenshot_url
from ._results import TASK_AFTER, DetachedTools, OpenedView, call_result, text_result
from ._tool_list import FIXED_TOOLS, CapabilityTool, capability_tools, require_app_scopes, require_scopes
from ._users import User

if TYPE_CHECKING:
    from ...mcp.views._host import ViewRequest
    from ...session._views import View

#: Maximum number of names in a text, and of characters of each name.
_MAX_NAMED = 40
_MAX_NAME = 200
#: Maximum number of characters of a line about a view.
_MAX_LINE = 300

#: Answer of a tool: its result, a question, or a task.
Answer: TypeAlias = CallToolResult | InputRequiredResult | dict[str, object]


class Tools:
    """Tools for one request of one user. Each raises :class:`~transports.errors.ABPError`, which becomes a result."""

    def __init__(self, user: User, ctx: Context, params: CallToolRequestParams, reporter: ProgressReporter) -> None:
        self._user = user
        self._options = user.options
        self._ctx = ctx
        self._params = params
        self._reporter = reporter
        self._artifacts = ArtifactTools(user)
        self._detached = DetachedTools(user)

    async def call_fixed(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Call one of :data:`~._tool_list.FIXED_TOOLS`; ``arguments`` must fit its schema."""
        tools: dict[str, Callable[[Mapping[str, Any]], Awaitable[Answer]]] = {
            "abp_connect": self._connect_app,
            "abp_call": self._call_selected,
            "abp_open_view": self._open_view,
            "abp_status": self._status,
            "abp_disconnect": self._disconnect,
            "abp_render_to_pdf": self._render,
            "abp_screenshot": self._screenshot,
            "abp_artifacts": self._artifacts.list,
            "abp_read_artifact": self._artifacts.read,
            "abp_result": partial(self._detached.result, self._ctx, self._reporter, self._params),
            "abp_cancel": self._detached.cancel,
        }
        return await tools[name](arguments)

    async def call_capability(self, tool: CapabilityTool, arguments: dict[str, Any]) -> Answer:
        """Call a capability's tool. ``arguments`` are the app's parameters, together with the session and the files,
        which are for the bridge."""
        params = dict(arguments)
        bridge_arguments: dict[str, Any] = {"capability": tool.capability, "files": []}
        session = params.pop(tool.session_argument, None)
        if session is not None:
            bridge_arguments["session"] = session
        if tool.files_argument is not None:
            bridge_arguments["files"] = params.pop(tool.files_argument, [])
        bridge_arguments = tool_arguments(tool.name, FIXED_TOOLS["abp_call"].input_schema, bridge_arguments)

        app = await self._select(session, tool.capability)
        return await self._call(app, tool.capability, app_arguments(tool.declared, params), bridge_arguments)

    async def _select(self, key: object, capability: str | None = None) -> App:
        """Return a connected app; one that was closed is opened again first. Then its scopes are known and checked."""
        app = await self._user.connections.select(key, self._reopen, capability)
        require_app_scopes(self._user, self._params.name, app)
        return app

    async def _select_callable(self, arguments: Mapping[str, Any]) -> App:
        """Return the app whose capability these arguments name. Refuse a capability whose tool is hidden."""
        capability = arguments["capability"]
        # The app must be open before its tools are listed below.
        app = await self._select(arguments.get("session"), capability)

        names = [tool_name(capability)]
        if self._options.hide_tools:
            # Listing hundreds of tools takes time, so it is done only if some are hidden.
            tools = capability_tools(self._user.apps, files=self._options.enable_file_tools).values()
            names += [tool.name for tool in tools if tool.capability == capability]
        if not self._options.shows(*names):
            raise UsageError(f"{capability} may not be called; ask the user, who can allow it (hide_tools)")
        return app

    def _text_result(self, text: str, **document: object) -> CallToolResult:
        return text_result(text, {"success": True, **document}, self._options.max_answer_bytes)

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _call_selected(self, arguments: Mapping[str, Any]) -> Answer:
        app = await self._select_callable(arguments)
        return await self._call(app, arguments["capability"], arguments.get("params", {}), arguments)

    async def _call(
        self, app: App, capability: str, params: Mapping[str, object], arguments: Mapping[str, Any]
    ) -> Answer:
        """Call ``capability`` with ``params``. ``arguments`` are for the bridge: files, timeout and so on."""

        async def call_app(call: ToolCall) -> Result:
            declaration = find_capability(app.session.info.name, capability, app.session.capabilities)
            app_params = repair_arguments(declaration.input_schema, params)
            files = arguments.get("files")
            if files:
                app_params = await with_files(app_params, files, self._user.store, self._options, declaration)
            result = await app.session.call(
                capability,
                app_params,
                timeout=arguments.get("timeout"),
                on_progress=call.progress,
                call_id=call.id,
            )
            return self._user.connections.with_warning_if_reopened(app, result)

        if arguments.get("detach"):
            return await self._detached.start(ToolCall(self._ctx, detached=True), app, capability, call_app)
        return await self._run_call(app, call_app, capability)

    async def _open_view(self, arguments: Mapping[str, Any]) -> Answer:
        app = await self._select_callable(arguments)
        capability = arguments["capability"]
        declaration = find_capability(app.session.info.name, capability, app.session.capabilities)
        params = repair_arguments(declaration.input_schema, arguments.get("params", {}))
        view_options = {name: arguments[name] for name in ("theme", "timeout") if name in arguments}
        view_options["size"] = (arguments.get("width", 900), arguments.get("height", 700))
        with_picture = arguments.get("picture") is True

        async def call_and_open(call: ToolCall) -> Result:
            view = app.session.open_view(capability, params, **view_options)
            uri = declaration.view or capability
            result, call.opened_view = await _open_and_read(self._user.apps, app, view, uri, with_picture=with_picture)
            return self._user.connections.with_warning_if_reopened(app, result)

        return await self._run_call(app, call_and_open)

    async def _render(self, arguments: Mapping[str, Any]) -> Answer:
        app = await self._select(arguments.get("session"))
        options = {**arguments.get("options", {}), "timeout": arguments.get("timeout")}
        return await self._run_call(app, lambda _: app.session.render_to_pdf(arguments["html"], **options))

    async def _screenshot(self, arguments: Mapping[str, Any]) -> Answer:
        sides = {name: arguments[name] for name in ("width", "height") if name in arguments}
        options: dict[str, Any] = {**arguments.get("options", {}), **sides}
        timeout = arguments.get("timeout")
        url = arguments.get("url")
        if url is None:
            app = await self._select(arguments.get("session"))
            return await self._run_call(app, lambda _: app.session.screenshot(timeout=timeout, **options))
        if "session" in arguments:
            raise UsageError("url and session are mutually exclusive: a picture of any page, or of an app")

        async def picture_url(_: ToolCall) -> Result:
            return await screenshot_url(
                str(url),
                options,
                options=self._options,
                store=self._user.store,
                apps=[(app.target, app.session.transport.server_address) for app in self._user.apps.values()],
                timeout=timeout,
            )

        return await self._run_call(None, picture_url)

    async def _run_call(
        self, app: App | None, work: Callable[[ToolCall], Coroutine[object, object, Result]], capability: str = ""
    ) -> Answer:
        """Start a call, or resume it with the client's answer to its question. Return its result, its next question, or
        a task, which a long call of a ``capability`` becomes if the client supports tasks. ``app`` is ``None`` for a
        call without an app."""
        call = self._begin_or_resume(app, work)
        may_become_task = app is not None and capability and takes_tasks(self._ctx)
        timeout = TASK_AFTER if may_become_task else None
        question = await call.wait(self._ctx, self._reporter, timeout)

        if call.task.done():
            return await self._finished_result(call, app)
        if question is not None:
            return InputRequiredResult(
                input_requests={question.key: question.client_request.request()},
                request_state=self._user.suspend(call),
            )
        # `wait` has reached its timeout, which only the call of an app has.
        assert app is not None
        return await self._detached.detach(call, app, capability)

    def _begin_or_resume(
        self, app: App | None, work: Callable[[ToolCall], Coroutine[object, object, Result]]
    ) -> ToolCall:
        if self._params.request_state is not None:
            call = self._user.resume(self._params.request_state)
            call.answer_with(self._params.input_responses)
            return call

        call = ToolCall(self._ctx)
        pending = self._user.pending_calls if app is None else app.pending_calls
        call.task = asyncio.ensure_future(run_as_pending(pending, call, work))
        return call

    async def _finished_result(self, call: ToolCall, app: App | None) -> CallToolResult:
        # This is announced before an error is raised below: a part of the answer may be stored even then.
        self._user.subscribers.resources_changed()
        return await call_result(
            call.task.result(),
            session=None if app is None else app.key,
            store=self._user.store,
            options=self._options,
            describer=self._user.describer,
            opened=_describe_opened_view(call.opened_view) if call.opened_view else None,
        )

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def _reopen(self, arguments: Mapping[str, object], key: str) -> App:
        """Open a closed app again, which needs the scopes of `abp_connect`, as a new app does."""
        connect, _ = await self._resolve_target(arguments)
        return await connect(key)

    async def _resolve_target(
        self, arguments: Mapping[str, object]
    ) -> tuple[Callable[[str | None], Awaitable[App]], str]:
        """Return the function that opens the app of these arguments of `abp_connect` (it takes the previous session
        name, or ``None``), and the app's target."""
        require_scopes(self._user, "abp_connect", arguments)
        options = {name: value for name, value in arguments.items() if name != "new"}
        target_arguments = [name for name in ("url", "name", "extensionPath", "extensionId") if name in options]
        if len(target_arguments) != 1:
            raise UsageError("give exactly one of url, extensionPath, extensionId and name; abp_status lists the names")

        (argument,) = target_arguments
        target = str(options.pop(argument))
        is_extension = argument in ("extensionPath", "extensionId")
        if "abpPage" in options:
            if not is_extension:
                raise UsageError("abpPage is only for extensions; omit it", details={"argument": "abpPage"})
            options["extension_page"] = options.pop("abpPage")

        if argument == "name":
            return partial(self._user.connect_named, target, options), target
        if is_extension:
            target = await in_thread(allowed_extension, self._options.apps, argument, target)
        elif not is_address(target):
            raise UsageError(
                "url must begin with http://, https://, ws:// or wss://; the user connects others (abp mcp --app)",
                details={"argument": "url"},
            )
        else:
            check_host(target, self._options.allowed_hosts, self._options.blocked_hosts)
        return partial(self._user.connect, target, options), target

    async def _connect_app(self, arguments: Mapping[str, object]) -> CallToolResult:
        connect, target = await self._resolve_target(arguments)
        open_app: App | None = None
        if arguments.get("new") is not True:
            open_app = await self._user.connections.find_open(target, arguments)
        if open_app is not None:
            return self._describe_connected(open_app, is_new=False)

        app = await connect(None)
        arguments_to_keep = {name: value for name, value in arguments.items() if name != "new"}
        await self._user.connections.keep(app, arguments_to_keep)
        return self._describe_connected(app, is_new=True)

    def _describe_connected(self, app: App, *, is_new: bool) -> CallToolResult:
        session = f"{app_name(app)} (session {app.key}, {app.session.transport.name})"
        if is_new:
            first_line = f"Connected: {session}"
        else:
            first_line = f"Already connected: {session}; `new`: true opens it once more"
        capabilities = _capability_signatures(app)
        signatures = ", ".join(capabilities)
        unlisted = len(app.session.capabilities) - len(capabilities)
        if unlisted:
            signatures += f" and {unlisted} more"
        text = f"{first_line}\nCapabilities: {signatures}\nEach is a tool now; abp_call calls any of them."
        return self._text_result(text, new=is_new, **_app_document(app))

    async def _status(self, arguments: Mapping[str, Any]) -> CallToolResult:
        key = arguments.get("session")
        name = arguments.get("capability")
        if name is not None:
            return await self._capability_status(key, name)

        lines, sessions = await self._describe_sessions(key)
        calls = await self._detached.newest_calls()
        lines += [f"call {call['call']}: {call['capability']} {call['status']}" for call in calls]
        document: dict[str, object] = {"sessions": sessions, "calls": calls}

        named_apps = sorted(self._user.named)
        if named_apps:
            document["apps"] = named_apps
            lines.append(f"Apps to connect by name: {', '.join(named_apps)}.")
        retention = self._user.store.retention
        if retention:
            document["retention"] = f"each artifact is {retention}"
            lines.append(f"Each artifact is {retention}.")

        return self._text_result("\n".join(lines), **document)

    async def _describe_sessions(self, key: object) -> tuple[list[str], list[dict[str, object]]]:
        """Describe sessions, as lines of text and as JSON. Without a key, describe all, also those that are not
        open."""
        closed_sessions = await self._user.connections.arguments_of_closed_apps()
        apps = list(self._user.apps.values())
        if key:
            apps = [await self._user.connections.select(key, self._reopen)]

        lines = [f"{app.key}: {app_name(app)} at {app.shown_target}" for app in apps]
        if apps:
            # Only the first app's capabilities are listed, to keep the text short.
            lines.append(f"  {', '.join(_capability_signatures(apps[0]))}")
        lines += [f"{session}: was connected before, opened again by its first call" for session in closed_sessions]
        if not lines:
            lines.append("No app is connected; call abp_connect with the address of one.")

        documents: list[dict[str, object]] = [_app_document(app) for app in apps]
        if not key:
            documents += [{"session": session, "connected": False} for session in closed_sessions]
        return lines, documents

    async def _capability_status(self, key: object, name: str) -> CallToolResult:
        app = await self._user.connections.select(key, self._reopen, name)
        capability = find_capability(app.session.info.name, name, app.session.capabilities)
        return self._text_result(
            f"{plain_line(capability.name)}: {capability.description}",
            session=app.key,
            capability=plain_tree(capability.model_dump(by_alias=True)),
        )

    async def _disconnect(self, arguments: Mapping[str, Any]) -> CallToolResult:
        key = arguments.get("session")
        if key in await self._user.connections.arguments_of_closed_apps():
            self._user.connections.forget(key)
            return self._text_result(
                f"Disconnected session {key}, which was not open; its artifacts are kept.", session=key
            )
        app = self._user.apps.select(key)
        await self._user.apps.disconnect(app)
        return self._text_result(
            f"Disconnected {app_name(app)} (session {app.key}); its artifacts are kept.", session=app.key
        )


def app_name(app: App) -> str:
    return plain_line(app.session.info.name, _MAX_NAME)


def _capability_signatures(app: App) -> list[str]:
    """Return the app's first 40 capabilities with their parameters: ``export.pdf(html: string, scale?: number)``."""
    capabilities = islice(app.session.capabilities.values(), _MAX_NAMED)
    return [f"{plain_line(capability.name, _MAX_NAME)}({parameters_line(capability)})" for capability in capabilities]


def _app_document(app: App) -> dict[str, object]:
    """Describe a connected app as JSON, with its first 300 capabilities."""
    session = app.session
    features = [name for name, is_supported in session.features.items() if is_supported]
    target_key = "name" if app.is_named else "url"
    document: dict[str, object] = {
        "session": app.key,
        "connected": True,
        target_key: app.shown_target,
        "app": {key: plain_line(text, _MAX_NAME) for key, text in session.info.model_dump(exclude_none=True).items()},
        "features": [plain_line(name, _MAX_NAME) for name in features[:_MAX_NAMED]],
        "transport": session.transport.name,
        "warnings": [plain_line(warning) for warning in session.warnings],
    }
    if app.view is not None:
        document["view"] = _view_document(app)
    names = islice(session.capabilities, 300)
    document["capabilities"] = [_capability_document(session.capabilities[name]) for name in names]
    return document


def _capability_document(capability: Capability) -> dict[str, object]:
    document: dict[str, object] = {
        "name": plain_line(capability.name),
        "description": plain_line(capability.description, 200),
        "available": capability.available,
    }
    parameters = parameters_line(capability)
    if parameters:
        document["parameters"] = parameters
    if capability.view:
        document["view"] = plain_line(capability.view, _MAX_NAME)
    return document


# --- views ------------------------------------------------------------------------------------------------------------


async def _open_and_read(
    apps: Apps, opener: App, view: View, uri: str, *, with_picture: bool
) -> tuple[Result, App | None]:
    """Open a view. Return the result of its tool, with the view's files and if wanted a picture, and the view as an
    app. If the tool succeeds but the view cannot be shown, return the result with a warning, and ``None``."""
    try:
        app = await apps.open_view(opener, view, uri)
    except ABPError as error:
        result = _result_of_call(view)
        if result is None:
            raise
        reason = f"the view is not shown: {error.message}"
        return replace(result, warnings=(*result.warnings, reason)), None

    files = {f"view.files.{number}": ref for number, ref in enumerate(view.files)}
    warnings = list(view.result.warnings)
    if with_picture:
        try:
            files["view.picture"] = await _picture_at_rest(view)
        except ABPError as error:
            warnings.append(f"the view cannot be pictured: {error.message}")
    artifacts = {**view.result.artifacts, **files}
    return replace(view.result, artifacts=artifacts, warnings=tuple(warnings)), app


def _result_of_call(view: View) -> Result | None:
    """Return the result of the tool of a view, or ``None`` if the tool has none."""
    try:
        return view.result
    except UsageError:
        return None


async def _picture_at_rest(view: View) -> ArtifactRef:
    """Return a picture of a view once two pictures in a row are the same, or after three seconds."""
    request = Message("page/screenshot", {"type": "png"})
    previous_picture: object = None
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        reply = await view.transport.request(request, timeout=10)
        if reply.payload == previous_picture:
            break
        previous_picture = reply.payload
        await asyncio.sleep(0.15)
    # The pictures before this one are not stored.
    result = await view.screenshot(timeout=10)
    return result.artifact()


def _describe_opened_view(app: App) -> OpenedView:
    view = app.view
    assert view is not None
    tool_names = [plain_line(name) for name in islice(view.capabilities, _MAX_NAMED)]
    tools = ", ".join(tool_names) or "none"
    unlisted = len(view.capabilities) - len(tool_names)
    if unlisted:
        tools += f" and {unlisted} more"
    lines = [
        f"View opened: {plain_line(view.info.name, _MAX_LINE)} (session {app.key}).",
        f"Its tools: {tools}",
    ]

    warnings = [*view.warnings, *(f"not allowed by the view's policy: {report}" for report in view.violations)]
    max_warnings = 5
    lines += [f"Warning: {plain_line(warning, _MAX_LINE)}" for warning in warnings[:max_warnings]]
    if len(warnings) > max_warnings:
        lines.append(f"{len(warnings) - max_warnings} more warnings: abp_status with this session")

    return OpenedView("\n".join(lines), {"session": app.key, "tools": tool_names, **_view_document(app)})


def _view_document(app: App) -> dict[str, object]:
    view = app.view
    assert view is not None and app.opened_by is not None
    newest = slice(-20, None)
    requests = list(view.requests)[newest]
    messages = [request.params for request in requests if request.kind == "message"]
    return {
        "uri": app.shown_target,
        "opened_by": app.opened_by.key,
        # A view may change its size very often, so these requests are left out.
        "requests": [_request_document(request) for request in requests if request.kind != "size"],
        "messages": plain_tree(messages),
        "model_context": plain_tree(view.model_context),
        "warnings": [plain_text(warning)[:_MAX_LINE] for warning in view.warnings[newest]],
        "violations": [plain_text(report)[:_MAX_LINE] for report in view.violations[newest]],
        "files": [ref.uri for ref in view.files[newest]],
    }


def _request_document(request: ViewRequest) -> dict[str, object]:
    document: dict[str, object] = {"kind": request.kind}
    if request.answer.get("isError"):
        document["refused"] = True
    url = request.params.get("url")
    if isinstance(url, str):
        document["url"] = plain_line(url, _MAX_LINE)
    return document
