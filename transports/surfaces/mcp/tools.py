"""The tools of one request, and what each does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult

from ...errors import ABPError, UsageError
from ...protocol.capabilities import find_capability
from ...protocol.plain_text import plain_line, plain_tree
from ...protocol.schema import check_params
from ...routing import Result
from ..shared.apps import App
from .app_document import app_document, app_name, capability_names
from .artifact_tools import ArtifactTools
from .artifact_view import ArtifactView
from .capability_tools import CapabilityTool, capability_tools, tool_name
from .detached_tools import DetachedTools, listed_in
from .files import with_files
from .fixed_tools import FIXED_TOOLS
from .hosts import check_host
from .options import Options, is_address
from .pending_call import Context, Question, ToolCall
from .progress import ProgressReporter
from .scopes import require_app_scopes, require_scopes
from .screenshot import screenshot_url
from .tasks import TASK_AFTER, new_task, takes_tasks
from .tool_results import text_result
from .user import User

__all__ = ["Answer", "Tools"]

#: What a tool answers: its result, a question, or a task.
Answer: TypeAlias = CallToolResult | InputRequiredResult | dict[str, object]


class Tools:
    """The tools for one request of one user. Each raises :class:`~transports.errors.ABPError`, which becomes a
    result."""

    def __init__(
        self,
        user: User,
        options: Options,
        ctx: Context,
        params: CallToolRequestParams,
        view: ArtifactView,
        reporter: ProgressReporter,
    ) -> None:
        self._user = user
        self._options = options
        self._ctx = ctx
        self._params = params
        self._view = view
        self._reporter = reporter
        self._artifacts = ArtifactTools(user.store, options, view)
        self._detached = DetachedTools(user, options, view)

    async def fixed(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Call one of :data:`~.fixed_tools.FIXED_TOOLS`; ``arguments`` must fit its schema."""
        match name:
            case "abp_connect":
                return await self._connect(arguments)
            case "abp_call":
                capability = arguments["capability"]
                app = await self._select(arguments.get("session"), capability)  # first, as it may bring tools along
                made = capability_tools(self._user.apps, files=self._options.enable_file_tools).values()
                numbered = [tool.name for tool in made if tool.capability == capability]
                if not self._options.shows(tool_name(capability), *numbered):
                    raise UsageError(f"{capability} may not be called; ask the user, who can allow it (hide_tools)")
                return await self._call(app, capability, arguments.get("params", {}), arguments)
            case "abp_status":
                return await self._status(arguments)
            case "abp_disconnect":
                return await self._disconnect(arguments)
            case "abp_render_to_pdf":
                return await self._render(arguments)
            case "abp_screenshot":
                return await self._screenshot(arguments)
            case "abp_artifacts":
                return await self._artifacts.list(arguments)
            case "abp_read_artifact":
                return await self._artifacts.read(arguments)
            case "abp_result":
                return await self._detached.result(arguments, self._ctx, self._reporter, self._params)
            case "abp_cancel":
                return await self._detached.cancel(arguments)
            case _:
                raise AssertionError(name)

    async def capability(self, tool: CapabilityTool, arguments: dict[str, Any]) -> Answer:
        """Call the tool of a capability. The app's schema is checked by the session."""
        params = dict(arguments)
        key, files = params.pop(tool.session, None), params.pop(tool.files, []) if tool.files else []
        own = {"capability": tool.capability, "session": key, "files": files}
        check_params(tool.name, FIXED_TOOLS["abp_call"].input_schema, {k: v for k, v in own.items() if v is not None})
        return await self._call(await self._select(key, tool.capability), tool.capability, params, own)

    async def _find(self, key: object, capability: str | None = None) -> App:
        return await self._user.connections.select(key, self._open, capability)

    async def _select(self, key: object, capability: str | None = None) -> App:
        """Return the app that a call is for. The token must have its scopes: it may have been closed until now."""
        app = await self._find(key, capability)
        require_app_scopes(self._user, self._params.name, app)
        return app

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _call(
        self, app: App, capability: str, params: Mapping[str, object], arguments: Mapping[str, Any]
    ) -> Answer:
        async def work(call: ToolCall) -> Result:
            find_capability(app.session.info.name, capability, app.session.capabilities)
            files, store = arguments.get("files", []), self._user.store
            filled = await with_files(params, files, store, self._options, capability)
            timeout = arguments.get("timeout")
            result = await app.session.call(
                capability, filled, timeout=timeout, on_progress=call.progress, call_id=call.id
            )
            return self._user.connections.noted(app, result)

        if arguments.get("detach"):
            return await self._detached.start(ToolCall(self._ctx, detached=True), app, capability, work)
        return await self._run(app, work, capability)

    async def _render(self, arguments: Mapping[str, Any]) -> Answer:
        app = await self._select(arguments.get("session"))
        options = {**arguments.get("options", {}), "timeout": arguments.get("timeout")}

        async def work(_: ToolCall) -> Result:
            return await app.session.render_to_pdf(arguments["html"], **options)

        return await self._run(app, work)

    async def _screenshot(self, arguments: Mapping[str, Any]) -> Answer:
        view = {key: arguments[key] for key in ("width", "height") if key in arguments}
        options: dict[str, Any] = {**arguments.get("options", {}), **view}
        url, timeout = arguments.get("url"), arguments.get("timeout")
        if url is not None and "session" in arguments:
            raise UsageError("give url for a picture of any page, or session for one of an app, not both")
        app = None if url is not None else await self._select(arguments.get("session"))

        async def work(_: ToolCall) -> Result:
            if app is not None:
                return await app.session.screenshot(timeout=timeout, **options)
            return await screenshot_url(
                str(url),
                options,
                options=self._options,
                store=self._user.store,
                apps=[(app.target, app.session.transport.server_address) for app in self._user.apps.values()],
                timeout=timeout,
            )

        return await self._run(app, work)

    async def _run(
        self, app: App | None, work: Callable[[ToolCall], Coroutine[object, object, Result]], capability: str = ""
    ) -> Answer:
        """Start a call, or resume it with the client's answer to a question; return its result, or its next question.
        ``app`` is ``None`` for a call that concerns no app. The call of a ``capability`` that takes long becomes a task
        where the client has tasks."""
        if self._params.request_state is not None:
            call = self._user.resume(self._params.request_state)
            call.answer_with(self._params.input_responses)
        else:
            call = ToolCall(self._ctx)
            call.start(listed_in(app.pending_calls if app else self._user.pending_calls, call, work))
        patience = TASK_AFTER if app and capability and takes_tasks(self._ctx) else None
        try:
            outcome = await call.next(self._ctx, self._reporter, patience)
        except ABPError:
            self._user.subscribers.resources_changed()  # files of the call, and parts of the answer, may be stored
            raise
        if outcome is None:
            assert app is not None
            return new_task(await self._detached.adopt(call, app, capability))
        if isinstance(outcome, Question):
            return InputRequiredResult(
                input_requests={outcome.key: outcome.request()}, request_state=self._user.suspend(call)
            )
        self._user.subscribers.resources_changed()
        return await self._detached.shown(outcome, app)

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def _open(self, arguments: Mapping[str, object], key: str | None = None) -> App:
        """Connect an app with the arguments of `abp_connect`, under the session's name ``key`` where it had one; then
        the tool is another one, and the token must be enough for this as well."""
        require_scopes(self._user, self._options, "abp_connect", arguments)
        options = dict(arguments)
        name = options.pop("name", None)
        if (name is None) == ("url" not in options):
            raise UsageError("give url, or the name of an app that abp_status lists")
        if name is not None:
            return await self._user.connect_named(str(name), options, key)
        target = str(options.pop("url"))
        if not is_address(target):
            raise UsageError(
                "url must begin with http://, https://, ws:// or wss://; others are for the user (abp mcp --app)",
                details={"argument": "url"},
            )
        check_host(target, self._options.allowed_hosts, self._options.blocked_hosts)
        return await self._user.connect(target, options, key)

    async def _connect(self, arguments: Mapping[str, object]) -> CallToolResult:
        app = await self._open(arguments)
        await self._user.connections.keep(app, arguments)
        names = capability_names(app)
        more = len(app.session.capabilities) - len(names)
        text = (
            f"Connected: {app_name(app)} (session {app.key}, {app.session.transport.name})\n"
            f"Capabilities: {', '.join(names)}{f' and {more} more' if more else ''}\n"
            "Each is a tool of its own now; abp_call calls any of them."
        )
        return text_result(text, {"success": True, **app_document(app)}, self._options.max_answer_bytes)

    async def _status(self, arguments: Mapping[str, Any]) -> CallToolResult:
        apps, capability = self._user.apps, arguments.get("capability")
        if capability is not None:
            app = await self._find(arguments.get("session"), capability)
            one = find_capability(app.session.info.name, capability, app.session.capabilities)
            document = {"success": True, "session": app.key, "capability": plain_tree(one.model_dump(by_alias=True))}
            return text_result(f"{plain_line(one.name)}: {one.description}", document, self._options.max_answer_bytes)
        closed = await self._user.connections.closed()
        chosen = [await self._find(key)] if (key := arguments.get("session")) else list(apps.values())
        lines = [f"{app.key}: {app_name(app)} at {app.shown_target}" for app in chosen]
        lines += [f"  {', '.join(capability_names(app))}" for app in chosen[:1]]
        lines += [f"{one.session}: was connected before, opened again by its first call" for one in closed]
        lines = lines or ["No app is connected; call abp_connect with the address of one."]
        sessions: list[dict[str, object]] = [app_document(app) for app in chosen]
        sessions += [{"session": one.session, "connected": False} for one in closed if not key]
        calls = await self._detached.documents()
        document = {"success": True, "sessions": sessions, "calls": calls}
        lines += [f"call {one['call']}: {one['capability']} {one['status']}" for one in calls]
        if named := sorted(self._user.named):
            document["apps"] = named
            lines.append(f"Apps to connect by name: {', '.join(named)}.")
        if retention := self._user.store.retention:
            document["retention"] = f"each artifact is {retention}"
            lines.append(f"Each artifact is {retention}.")
        return text_result("\n".join(lines), document, self._options.max_answer_bytes)

    async def _disconnect(self, arguments: Mapping[str, Any]) -> CallToolResult:
        closed = [one.session for one in await self._user.connections.closed()]
        if (key := arguments.get("session")) in closed:
            self._user.connections.forget(key)
            text = f"Disconnected session {key}, which was not open; its artifacts are kept."
            return text_result(text, {"success": True, "session": key}, self._options.max_answer_bytes)
        app = self._user.apps.select(key)
        await self._user.apps.disconnect(app)
        text = f"Disconnected {app_name(app)} (session {app.key}); its artifacts are kept."
        return text_result(text, {"success": True, "session": app.key}, self._options.max_answer_bytes)
