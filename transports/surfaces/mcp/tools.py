"""The tools of one request, and what each does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult

from ...artifacts import ArtifactRef, Scope
from ...errors import ABPError, UsageError
from ...protocol.capabilities import unknown_capability
from ...protocol.plain_text import plain_line, plain_tree
from ...protocol.schema import check_params
from ...routing import Result
from ...routing.guard import json_size
from ..shared.apps import App, PendingCall
from .app_document import app_document, app_name, capability_names
from .artifact_view import ArtifactView
from .capability_tools import CapabilityTool, capability_tools, tool_name
from .export import export_artifact
from .files import with_files
from .fixed_tools import FIXED_TOOLS
from .hosts import check_host
from .options import Options, is_address
from .pending_call import Context, Question, ToolCall
from .resources import read_slice
from .screenshot import screenshot_url
from .texts import document_text
from .tool_results import call_result, text_result
from .user import User

__all__ = ["Tools"]

#: Artifacts in one page of `abp_artifacts`, and the bytes of a page besides them.
_PAGE, _HEADER_BYTES = 20, 1024
#: The key of the one question in an :class:`InputRequiredResult`.
_QUESTION = "question"


class Tools:
    """The tools for one request of one user. Each raises :class:`~transports.errors.ABPError`, which becomes a
    result."""

    def __init__(
        self, user: User, options: Options, ctx: Context, params: CallToolRequestParams, view: ArtifactView
    ) -> None:
        self._user = user
        self._options = options
        self._ctx = ctx
        self._params = params
        self._view = view

    async def fixed(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult | InputRequiredResult:
        """Call one of :data:`~.fixed_tools.FIXED_TOOLS`; ``arguments`` must fit its schema."""
        match name:
            case "abp_connect":
                return await self._connect(dict(arguments))
            case "abp_call":
                capability = arguments["capability"]
                made = capability_tools(self._user.apps, files=self._options.enable_file_tools).values()
                numbered = [tool.name for tool in made if tool.capability == capability]
                if not self._options.shows(tool_name(capability), *numbered):
                    raise UsageError(f"{capability} may not be called; ask the user, who can allow it (hide_tools)")
                app = self._user.apps.select(arguments.get("session"), capability)
                return await self._call(app, capability, arguments.get("params", {}), arguments)
            case "abp_status":
                return self._status(arguments)
            case "abp_disconnect":
                return await self._disconnect(arguments)
            case "abp_render_to_pdf":
                return await self._render(arguments)
            case "abp_screenshot":
                return await self._screenshot(arguments)
            case "abp_artifacts":
                return await self._artifacts(arguments)
            case "abp_read_artifact":
                return await self._read(arguments)
            case _:
                raise AssertionError(name)

    async def capability(self, tool: CapabilityTool, arguments: dict[str, Any]) -> CallToolResult | InputRequiredResult:
        """Call the tool of a capability. The app's schema is checked by the session."""
        params = dict(arguments)
        key, files = params.pop(tool.session, None), params.pop(tool.files, []) if tool.files else []
        own = {"capability": tool.capability, "session": key, "files": files}
        check_params(tool.name, FIXED_TOOLS["abp_call"].input_schema, {k: v for k, v in own.items() if v is not None})
        return await self._call(self._user.apps.select(key, tool.capability), tool.capability, params, own)

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _call(
        self, app: App, capability: str, params: Mapping[str, object], arguments: Mapping[str, Any]
    ) -> CallToolResult | InputRequiredResult:
        async def work(call: ToolCall) -> Result:
            known = app.session.capabilities
            if capability not in known:
                raise unknown_capability(app.session.info.name, capability, known)
            files, store = arguments.get("files", []), self._user.store
            filled = await with_files(params, files, store, self._options, capability)
            timeout = arguments.get("timeout")
            return await app.session.call(capability, filled, timeout=timeout, on_progress=call.progress)

        return await self._run(app, work)

    async def _render(self, arguments: Mapping[str, Any]) -> CallToolResult | InputRequiredResult:
        app = self._user.apps.select(arguments.get("session"))
        options = {**arguments.get("options", {}), "timeout": arguments.get("timeout")}

        async def work(_: ToolCall) -> Result:
            return await app.session.render_to_pdf(arguments["html"], **options)

        return await self._run(app, work)

    async def _screenshot(self, arguments: Mapping[str, Any]) -> CallToolResult | InputRequiredResult:
        view = {key: arguments[key] for key in ("width", "height") if key in arguments}
        options: dict[str, Any] = {**arguments.get("options", {}), **view}
        url, timeout = arguments.get("url"), arguments.get("timeout")
        if url is not None and "session" in arguments:
            raise UsageError("give url for a picture of any page, or session for one of an app, not both")
        app = None if url is not None else self._user.apps.select(arguments.get("session"))

        async def work(_: ToolCall) -> Result:
            if app is not None:
                return await app.session.screenshot(timeout=timeout, **options)
            return await screenshot_url(
                str(url),
                options,
                options=self._options,
                store=self._user.store,
                known_urls=[app.target for app in self._user.apps.values()],
                timeout=timeout,
            )

        return await self._run(app, work)

    async def _run(
        self, app: App | None, work: Callable[[ToolCall], Coroutine[object, object, Result]]
    ) -> CallToolResult | InputRequiredResult:
        """Start a call, or resume it with the client's answer to a question; return its result, or its next question.
        ``app`` is ``None`` for a call that concerns no app."""
        if self._params.request_state is not None:
            call = self._user.resume(self._params.request_state)
            call.answer((self._params.input_responses or {}).get(_QUESTION))
        else:
            call = ToolCall(self._ctx)
            call.start(_listed_in(app.pending_calls if app else self._user.pending_calls, call, work))
        try:
            outcome = await call.next(self._ctx)
        except ABPError:
            self._user.subscribers.resources_changed()  # files of the call, and parts of the answer, may be stored
            raise
        if isinstance(outcome, Question):
            return InputRequiredResult(
                input_requests={_QUESTION: outcome.request()}, request_state=self._user.suspend(call)
            )
        self._user.subscribers.resources_changed()
        return await call_result(
            outcome,
            session=app.key if app else None,
            store=app.session.store if app else self._user.store,
            max_bytes=self._options.max_answer_bytes,
            max_image_bytes=self._options.max_image_bytes,
            view=self._view,
        )

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def _connect(self, options: dict[str, object]) -> CallToolResult:
        name = options.pop("name", None)
        if (name is None) == ("url" not in options):
            raise UsageError("give url, or the name of an app that abp_status lists")
        target = str(options.pop("url", name))
        if name is None:
            if not is_address(target):
                raise UsageError("url must begin with http://, https://, ws:// or wss://; other targets are for --app")
            check_host(target, self._options.allowed_hosts, self._options.blocked_hosts)
        app = await (self._user.connect if name is None else self._user.connect_named)(target, options)
        names = capability_names(app)
        more = len(app.session.capabilities) - len(names)
        text = (
            f"Connected: {app_name(app)} (session {app.key}, {app.session.transport.name})\n"
            f"Capabilities: {', '.join(names)}{f' and {more} more' if more else ''}\n"
            "Each is a tool of its own now; abp_call calls any of them."
        )
        return text_result(text, {"success": True, **app_document(app)}, self._options.max_answer_bytes)

    def _status(self, arguments: Mapping[str, Any]) -> CallToolResult:
        apps, capability = self._user.apps, arguments.get("capability")
        if capability is not None:
            app = apps.select(arguments.get("session"), capability)
            known = app.session.capabilities
            if capability not in known:
                raise unknown_capability(app.session.info.name, capability, known)
            one = known[capability]
            document = {"success": True, "session": app.key, "capability": plain_tree(one.model_dump(by_alias=True))}
            return text_result(f"{plain_line(one.name)}: {one.description}", document, self._options.max_answer_bytes)
        chosen = [apps.select(key)] if (key := arguments.get("session")) else list(apps.values())
        lines = [f"{app.key}: {app_name(app)} at {app.shown_target}" for app in chosen]
        lines += [f"  {', '.join(capability_names(app))}" for app in chosen[:1]]
        lines = lines or ["No app is connected; call abp_connect with the address of one."]
        document = {"success": True, "sessions": [app_document(app) for app in chosen]}
        if named := sorted(self._user.named):
            document["apps"] = named
            lines.append(f"Apps to connect by name: {', '.join(named)}.")
        if retention := self._user.store.retention:
            document["retention"] = f"each artifact is {retention}"
            lines.append(f"Each artifact is {retention}.")
        return text_result("\n".join(lines), document, self._options.max_answer_bytes)

    async def _disconnect(self, arguments: Mapping[str, Any]) -> CallToolResult:
        app = self._user.apps.select(arguments.get("session"))
        await self._user.disconnect(app)
        text = f"Disconnected {app_name(app)} (session {app.key}); its artifacts are kept."
        return text_result(text, {"success": True, "session": app.key}, self._options.max_answer_bytes)

    async def _artifacts(self, arguments: Mapping[str, Any]) -> CallToolResult:
        store = self._user.store
        if key := arguments.get("session"):
            store = store.scoped(Scope(session=key))
        refs = (await store.list())[::-1]
        start = arguments.get("offset", 0)
        lines, room = list[str](), self._options.max_answer_bytes - _HEADER_BYTES
        entries: list[dict[str, object]] = []
        for ref in refs[start : start + arguments.get("limit", _PAGE)]:
            line, entry = self._line(ref), self._view.entry(ref)
            room -= len(line.encode()) + json_size(entry) + 3  # a line break in JSON, and a comma
            if room < 0 and entries:
                break  # a page that is cut to the limit later would not say where to go on
            lines.append(line)
            entries.append(entry)
        end = start + len(entries)
        lines.append(f"{len(refs)} in all" + (f"; go on with offset {end}" if end < len(refs) else ""))
        document = {
            "success": True,
            "total": len(refs),
            "next_offset": end if end < len(refs) else None,
            "artifacts": entries,
        }
        return text_result("\n".join(lines), document, self._options.max_answer_bytes)

    def _line(self, ref: ArtifactRef) -> str:
        large = "  large" if self._view.is_large(ref) else ""
        return f"{ref.id}  {ref.size_bytes:,} bytes  {ref.mime_type}  {ref.filename}{large}"

    async def _read(self, arguments: Mapping[str, Any]) -> CallToolResult:
        store = self._user.store
        ref = await store.stat(arguments["id"].removeprefix("artifact://"))
        if (path := arguments.get("path")) is not None:
            written = await export_artifact(store, ref, path, self._options.export_roots)
            document = {"success": True, **self._view.entry(ref), "exported": str(written)}
            return text_result(
                f"Written: {written} ({ref.size_bytes:,} bytes)", document, self._options.max_answer_bytes
            )
        whole = (await document_text(ref, store)).encode() if arguments.get("text") else None
        if whole is not None:
            ref = dataclasses.replace(ref, mime_type="text/plain", size_bytes=len(whole))

        async def read(offset: int, length: int) -> bytes:
            return await store.get(ref.id, offset=offset, length=length) if whole is None else whole[offset:][:length]

        offset, length = arguments.get("offset", 0), arguments.get("length")
        return await read_slice(ref, read, offset, length, self._options.max_answer_bytes, self._view)


async def _listed_in(
    pending: list[PendingCall], call: ToolCall, work: Callable[[ToolCall], Coroutine[object, object, Result]]
) -> Result:
    pending.append(call)
    try:
        return await work(call)
    finally:
        pending.remove(call)
