"""Definitions of MCP tools: the fixed tools, and a tool for each capability of connected apps. No I/O.

After them the scopes that calls of tools need (:func:`require_scopes`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp_types import Tool, ToolAnnotations

from ...errors import UsageError
from ...playwright._scripts import EXTENSION_PAGE
from ...protocol._declarations import Capability
from ...protocol._plain_text import plain_line
from ...protocol._strict_json import MAX_INTEGER, items_of, members_of
from ..shared._apps import App, Apps
from ..shared._capability_tools import (
    MAX_TOOLS,
    ModelSchema,
    free_tool_name,
    model_schema,
    tool_description,
    tool_hints,
    tool_name,
    tool_schema,
)
from ._options import Options

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken

    from ._users import User


def _string(description: str) -> dict[str, object]:
    return {"type": "string", "description": description}


def _boolean(description: str) -> dict[str, object]:
    return {"type": "boolean", "description": description}


_SESSION = _string("Session of the app, as abp_connect named it; not needed with a single app.")
#: Schema of `files` of abp_call.
_FILES = {
    "type": "array",
    "description": "Files to send. `param` says where in the parameters each belongs (a dot leads into an object); "
    "without it, a file is the one parameter for a file, else an item of the list `files`.",
    "items": {
        "type": "object",
        "properties": {
            "param": {"type": "string"},
            "name": _string("File name that the app sees."),
            "mime_type": {"type": "string"},
            "content": _string("The bytes as base64."),
            "artifact": _string("Id of an artifact, instead of content."),
            "path": _string("A file on the bridge's machine, if it allows that."),
        },
        "oneOf": [{"required": ["content"]}, {"required": ["artifact"]}, {"required": ["path"]}],
        "additionalProperties": False,
    },
}
#: Schema of `files` for the tool of each capability. It is short, since a model reads it once for each tool; the calls
#: themselves are checked against :data:`_FILES`.
_BRIEF_FILES = {
    "type": "array",
    "description": "Files to send, each as one of content (base64), artifact (id), path (of the bridge's machine). "
    "param: its place, such as a.b; by default the only file.",
    "items": {
        "type": "object",
        "properties": {
            key: {"type": "string"} for key in ("param", "content", "artifact", "path", "name", "mime_type")
        },
        "additionalProperties": False,
    },
}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 3600, "description": "Seconds to wait."}
_CALL = _string("Id of the call, as abp_call or abp_status named it.")

_LENGTH = {
    "anyOf": [{"type": "string"}, {"type": "number"}],
    "description": "With a unit, such as 2cm; a number is pixels.",
}


def _options(**properties: object) -> dict[str, object]:
    """Return the schema of an object of Playwright's options. The option ``path`` must never be among them, since with
    it a model could write files."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


_PDF_OPTIONS = _options(
    format=_string("A4 (the default), Letter, …"),
    landscape={"type": "boolean"},
    scale={"type": "number"},
    print_background={"type": "boolean"},
    page_ranges={"type": "string"},
    prefer_css_page_size={"type": "boolean"},
    width=_LENGTH,
    height=_LENGTH,
    margin=_options(top=_LENGTH, right=_LENGTH, bottom=_LENGTH, left=_LENGTH),
)
_NUMBER = {"type": "number"}
_SIDE = {"type": "integer", "minimum": 1}
_OFFSET = {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}
_SCREENSHOT_OPTIONS = _options(
    full_page=_boolean("All of the page, not only what is in view."),
    clip={
        **_options(x=_NUMBER, y=_NUMBER, width=_NUMBER, height=_NUMBER),
        "required": ["x", "y", "width", "height"],
        "description": "A part of the page, in CSS pixels.",
    },
    scale={"type": "string", "enum": ["css", "device"], "description": "Pixels of the picture for a CSS pixel."},
    type={"type": "string", "enum": ["png", "jpeg"]},
    quality={"type": "integer", "minimum": 0, "maximum": 100},
    omit_background={"type": "boolean"},
)


def _annotations(*, read_only: bool = False, idempotent: bool = False, open_world: bool = False) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=read_only,
        destructive_hint=False,
        idempotent_hint=idempotent,
        open_world_hint=open_world,
    )


def _tool(
    name: str,
    description: str,
    properties: Mapping[str, object],
    *required: str,
    hints: ToolAnnotations | None = None,
) -> Tool:
    schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return Tool(name=name, description=description, input_schema=schema, annotations=hints)


#: Hints of read-only tools of the bridge.
_LOOKUP = _annotations(read_only=True, idempotent=True)
_TOOLS = (
    _tool(
        "abp_connect",
        "Connect a web app that speaks ABP. Returns its session and capabilities, each of which becomes a tool. Of an "
        "app that is open already, the open session.",
        {
            "url": _string("http(s):// address of the app's page, or ws(s):// of its socket."),
            "name": _string("Instead of url: an app that the operator has described; abp_status lists them."),
            "extensionPath": _string(
                "Instead of url: folder of an unpacked Chrome extension that the user has allowed."
            ),
            "extensionId": _string("Instead of url: id of a Chrome extension that the user has allowed."),
            "abpPage": _string(f"Page of the extension that speaks ABP ({EXTENSION_PAGE})."),
            "transport": {"type": "string", "enum": ["auto", "playwright", "webmcp", "postmessage", "websocket"]},
            "browser": {"type": "string", "enum": ["chromium", "chrome", "msedge", "firefox", "webkit"]},
            "headless": {"type": "boolean"},
            "new": _boolean("Open another session of an app that is open already (false)."),
            "timeout": _SECONDS,
        },
        hints=_annotations(open_world=True),
    ),
    _tool(
        "abp_call",
        "Call a capability of a connected app. Whatever it produces is kept as artifacts; the answer says where.",
        {
            "capability": _string("Its name, such as export.pdf."),
            "params": {"type": "object", "description": "Its parameters; abp_status has their schema."},
            "files": _FILES,
            "session": _SESSION,
            "timeout": _SECONDS,
            "detach": _boolean("For a long call: return its id at once; abp_result has its result."),
        },
        "capability",
    ),
    _tool(
        "abp_result",
        "Result of a call that was made with `detach`, or its status while it is running. A call that was running when "
        "the bridge ended is `unknown`.",
        {
            "call": _CALL,
            "wait": {
                "type": "number",
                "minimum": 0,
                "maximum": 300,
                "description": "Seconds to wait for its end (20).",
            },
        },
        "call",
        hints=_LOOKUP,
    ),
    _tool(
        "abp_cancel",
        "Cancel a call that was made with `detach`.",
        {"call": _CALL},
        "call",
        hints=_annotations(idempotent=True),
    ),
    _tool(
        "abp_status",
        "List connected apps and their capabilities; with `capability`, the schema of its parameters.",
        {"session": _SESSION, "capability": {"type": "string"}},
        hints=_LOOKUP,
    ),
    _tool(
        "abp_disconnect",
        "Disconnect an app. Its artifacts stay.",
        {"session": _SESSION},
        hints=_annotations(idempotent=True),
    ),
    _tool(
        "abp_render_to_pdf",
        "Print HTML as a PDF with the browser of a connected app. It has no network: use `data:` URLs.",
        {"html": {"type": "string"}, "options": _PDF_OPTIONS, "session": _SESSION, "timeout": _SECONDS},
        "html",
        hints=_annotations(),
    ),
    _tool(
        "abp_screenshot",
        "A picture of a connected app's page, or of any page on the web with `url`.",
        {
            "url": _string("http(s):// address of a page, instead of an app's."),
            "width": {**_SIDE, "maximum": 1920, "description": "Width of the view (1280 with `url`)."},
            "height": {**_SIDE, "maximum": 1080, "description": "Height of the view (800 with `url`)."},
            "options": _SCREENSHOT_OPTIONS,
            "session": _SESSION,
            "timeout": _SECONDS,
        },
        hints=_annotations(read_only=True, open_world=True),
    ),
    _tool(
        "abp_open_view",
        "Call a capability that has a view (a page of the app for its result), and show the view in a browser. The "
        "tools that the view registers become tools; the answer has its session. abp_screenshot with that session is "
        "a picture of it, abp_status says what it asked of its user, abp_disconnect closes it.",
        {
            "capability": _string("Its name; abp_status marks those with a view."),
            "params": {"type": "object", "description": "Its parameters; abp_status has their schema."},
            "picture": _boolean("Add a picture of the view to the answer (false)."),
            "theme": {"type": "string", "enum": ["light", "dark"]},
            "width": {**_SIDE, "maximum": 1920, "description": "Width of the view (900)."},
            "height": {**_SIDE, "maximum": 1080, "description": "Height of the view (700)."},
            "session": _SESSION,
            "timeout": _SECONDS,
        },
        "capability",
    ),
    _tool(
        "abp_artifacts",
        "List the artifacts of calls, newest first, with flags: `large_file_warning` (large for a context) and "
        "`auto_read_safe` (may be read without asking).",
        {
            "session": _string("Only those of this session."),
            "offset": _OFFSET,
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        },
        hints=_LOOKUP,
    ),
    _tool(
        "abp_read_artifact",
        "Read a slice of an artifact: text without hidden and control characters, anything else as base64. The first "
        "part of the answer is JSON with the range of bytes in the second, and the `next_offset` to continue at.",
        {
            "id": _string("Id of the artifact, with or without artifact:// before it."),
            "offset": {**_OFFSET, "description": "Byte to begin with (0)."},
            "length": {**_OFFSET, "minimum": 1, "description": "Most bytes to read; the answer may hold less."},
            "text": _boolean("Of a PDF: its text instead of its bytes."),
            "path": _string("Write all of it to this new file on the bridge's machine instead, if it allows that."),
        },
        "id",
        hints=_LOOKUP,
    ),
)
#: Fixed tools by name, with the default options.
FIXED_TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in _TOOLS}
#: Tool that is listed while a connected app has a capability with a view.
OPEN_VIEW = "abp_open_view"


def fixed_tools(options: Options) -> dict[str, Tool]:
    """Return the tools of the bridge by name. Without ``enable_file_tools`` the tools for artifacts are left out, and
    `abp_call` has no ``files``. With ``export_roots`` `abp_read_artifact` may write a file, so it is not marked as
    read-only."""
    tools = dict(FIXED_TOOLS)
    if options.export_roots:
        tools["abp_read_artifact"] = tools["abp_read_artifact"].model_copy(
            update={"annotations": _annotations(idempotent=True)}
        )
    if not options.enable_file_tools:
        call_schema = dict(tools["abp_call"].input_schema)
        call_schema["properties"] = dict(call_schema["properties"])
        del call_schema["properties"]["files"]
        tools["abp_call"] = tools["abp_call"].model_copy(update={"input_schema": call_schema})
        del tools["abp_artifacts"]
        del tools["abp_read_artifact"]
    return tools


@dataclass
class CapabilityTool:
    """The tool for a capability, which the apps of ``sessions`` share. ``first`` is the capability as the first app
    declares it, and ``differs`` is true if another app has a different schema. ``hints`` are unverified claims of the
    apps."""

    name: str
    first: Capability = field(repr=False)
    schema: dict[str, object] = field(repr=False)
    takes_files: bool
    hints: dict[str, bool] = field(default_factory=dict)
    sessions: list[str] = field(default_factory=list)
    differs: bool = False

    @property
    def capability(self) -> str:
        return self.first.name

    @cached_property
    def _first_schema(self) -> ModelSchema:
        """Schema of the first app for a model. It is made only for tools that are listed or called: if all 200 tools
        had one, each call would take 13 ms instead of 5 ms."""
        return model_schema(self.schema)

    @property
    def declared(self) -> ModelSchema:
        """Schema of the parameters for a model. If the apps differ, it allows any object; each call is still checked by
        the schema of its app."""
        if self.differs:
            return model_schema({})
        return self._first_schema

    @cached_property
    def session_argument(self) -> str:
        """Name of the argument for the app: ``abp_session`` if the capability has a parameter ``session``."""
        return "abp_session" if "session" in self._properties else "session"

    @cached_property
    def files_argument(self) -> str | None:
        """Name of the argument for files: ``files`` or ``abp_files``; ``None`` if calls take no files."""
        if not self.takes_files:
            return None
        return "abp_files" if "files" in self._properties else "files"

    @property
    def _properties(self) -> Mapping[str, object]:
        return members_of(self._first_schema.schema.get("properties"))

    def share_with(self, capability: Capability) -> None:
        """Note that another app has this capability, declared as ``capability``."""
        schema = tool_schema(capability)
        if schema != self.schema and model_schema(schema) != self.declared:
            self.differs = True
        # A missing hint means the more dangerous value, so only hints common to all apps are kept.
        self.hints = dict(self.hints.items() & tool_hints(capability).items())

    @property
    def names(self) -> tuple[str, str]:
        """Two names: the one that settings use, without a number, and the actual one."""
        return tool_name(self.capability), self.name

    def definition(self) -> Tool:
        marks = [f"{OPEN_VIEW} shows its view"] if self.first.view is not None else []
        return Tool(
            name=self.name,
            title=plain_line(self.capability, 200),
            description=tool_description(self.first, self.declared.rules, *marks),
            input_schema=self._input_schema(),
            annotations=ToolAnnotations.model_validate(self.hints) if self.hints else None,
        )

    def _input_schema(self) -> dict[str, object]:
        schema = self.declared.schema
        properties = dict(members_of(schema.get("properties")))
        if self.files_argument is not None:
            properties[self.files_argument] = _BRIEF_FILES
        if len(self.sessions) == 1:
            return {**schema, "properties": properties}

        properties[self.session_argument] = {**_SESSION, "enum": list(self.sessions)}
        required = [*items_of(schema.get("required")), self.session_argument]
        return {**schema, "properties": properties, "required": required}


def capability_tools(apps: Apps, *, files: bool) -> dict[str, CapabilityTool]:
    """Make the tools for the capabilities of all apps, 200 at most. Apps with the same capability share its tool, which
    has only the hints that all these apps give."""
    tools: dict[str, CapabilityTool] = {}
    by_capability: dict[str, CapabilityTool] = {}
    for key, app in apps.items():
        for name in islice(app.session.capabilities, MAX_TOOLS):
            capability = app.session.capabilities[name]
            tool = by_capability.get(name)
            if tool is not None:
                tool.share_with(capability)
            elif len(tools) < MAX_TOOLS:
                tool = CapabilityTool(
                    free_tool_name(capability.name, {*FIXED_TOOLS, *tools}),
                    capability,
                    tool_schema(capability),
                    takes_files=files,
                    hints=tool_hints(capability),
                )
                tools[tool.name] = by_capability[name] = tool
            else:
                continue
            tool.sessions.append(key)
    return tools


def has_views(apps: Apps) -> bool:
    for app in apps.values():
        capabilities = app.session.capabilities
        if any(capabilities[name].view is not None for name in islice(capabilities, MAX_TOOLS)):
            return True
    return False


def _scopes_for(user: User, tool: str, arguments: Mapping[str, Any]) -> set[str]:
    """Return the scopes that a call of a tool needs: those of the tool, and those of the app that it selects."""
    capability_tool = capability_tools(user.apps, files=True).get(tool)
    if capability_tool is None:
        return _scopes_for_fixed(user, tool, arguments)
    session = arguments.get(capability_tool.session_argument)
    app_scopes = _scopes_of_selected(user, session, capability_tool.capability)
    return _scopes_of_tools(user.options, {tool, *capability_tool.names}) | app_scopes


def _scopes_for_fixed(user: User, tool: str, arguments: Mapping[str, Any]) -> set[str]:
    capability = arguments.get("capability")
    if not isinstance(capability, str):
        capability = None
    calls_capability = tool in ("abp_call", "abp_open_view")
    tool_names = {tool}
    if calls_capability and capability is not None:
        tool_names.add(tool_name(capability))
    scopes = _scopes_of_tools(user.options, tool_names)

    if tool == "abp_connect":
        entry = user.named.get(str(arguments.get("name")))
        return scopes.union(entry.scopes) if entry else scopes
    acts_on_app = calls_capability or tool in ("abp_render_to_pdf", "abp_screenshot")
    if acts_on_app and "url" not in arguments:
        return scopes | _scopes_of_selected(user, arguments.get("session"), capability)
    return scopes


def _scopes_of_tools(options: Options, tool_names: set[str]) -> set[str]:
    needed: set[str] = set()
    for pattern, scopes in options.tool_scopes.items():
        if any(fnmatchcase(name, pattern) for name in tool_names):
            needed.update(scopes)
    return needed


def _scopes_of_selected(user: User, session: object, capability: str | None) -> set[str]:
    """Return the scopes of the app that a call selects. If it selects no app, return an empty set: the tool itself
    reports that."""
    try:
        app = user.apps.select(session, capability)
    except UsageError:
        return set()
    return _scopes_of_app(user, app)


def app_is_in_scope(user: User, app: App) -> bool:
    token = get_access_token()
    return token is None or _scopes_of_app(user, app) <= set(token.scopes)


def require_scopes(user: User, tool: str, arguments: Mapping[str, Any]) -> None:
    """Check the scopes of this request's token. Without a token, over stdio, everything may be called."""
    token = get_access_token()
    if token is not None:
        _require_granted(token, tool, _scopes_for(user, tool, arguments))


def require_app_scopes(user: User, tool: str, app: App) -> None:
    """Check the scopes of an app that may have been opened only after :func:`require_scopes` was called."""
    token = get_access_token()
    if token is not None:
        _require_granted(token, tool, _scopes_of_app(user, app))


def _require_granted(token: AccessToken, tool: str, needed: set[str]) -> None:
    missing = sorted(needed - set(token.scopes))
    if missing:
        raise UsageError(
            f"{tool} needs a token with the scope {' '.join(missing)}; sign in again and grant it",
            code="INSUFFICIENT_SCOPE",
            details={"scopes": sorted(needed)},
        )


def _scopes_of_app(user: User, app: App) -> set[str]:
    """Return the scopes that calls of an app need. A view needs those of the app that opened it."""
    entry = user.named.get((app.opened_by or app).target)
    return set(entry.scopes) if entry else set()
