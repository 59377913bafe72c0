"""Definitions of the tools: the fixed ones, and one for each capability of the connected apps. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from mcp_types import Tool, ToolAnnotations

from ...protocol.declarations import Capability
from ...protocol.strict_json import encode_json
from ..shared.apps import Apps

__all__ = ["FIXED_TOOLS", "CapabilityTool", "capability_tools", "tool_name"]

#: Capabilities that get a tool of their own; the others are called with ``abp_call``.
_MAX_TOOLS = 200
#: Characters of a tool's name and of its description, and bytes of its schema.
_MAX_NAME, _MAX_DESCRIPTION, _MAX_SCHEMA = 64, 1000, 16 * 1024
_HEADER = "x-mcp-header"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")

_SESSION = {"type": "string", "description": "Which app, as abp_connect named it; not needed while there is only one."}
_FILES = {
    "type": "array",
    "description": "Files to send. `param` says where in the parameters each belongs (a dot leads into an object).",
    "items": {
        "type": "object",
        "properties": {
            "param": {"type": "string"},
            "name": {"type": "string", "description": "File name that the app sees."},
            "mime_type": {"type": "string"},
            "content": {"type": "string", "description": "The bytes as base64."},
            "artifact": {"type": "string", "description": "Id of an artifact, instead of content."},
            "path": {"type": "string", "description": "A file of the machine of the bridge, where it allows that."},
        },
        "required": ["param"],
        "oneOf": [{"required": ["content"]}, {"required": ["artifact"]}, {"required": ["path"]}],
        "additionalProperties": False,
    },
}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 3600, "description": "Seconds to wait."}
_ID = {"type": "string", "description": "Id of the artifact, with or without artifact:// before it."}

_LENGTH = {
    "anyOf": [{"type": "string"}, {"type": "number"}],
    "description": "With a unit, such as 2cm; a number is pixels.",
}


def _options(**properties: object) -> dict[str, object]:
    """An object of Playwright's options. ``path`` is never among them: it would write where a model says."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


_PDF_OPTIONS = _options(
    format={"type": "string", "description": "A4, Letter, …"},
    landscape={"type": "boolean"},
    scale={"type": "number"},
    print_background={"type": "boolean"},
    page_ranges={"type": "string"},
    prefer_css_page_size={"type": "boolean"},
    width=_LENGTH,
    height=_LENGTH,
    margin=_options(top=_LENGTH, right=_LENGTH, bottom=_LENGTH, left=_LENGTH),
)
_SCREENSHOT_OPTIONS = _options(
    full_page={"type": "boolean"},
    type={"type": "string", "enum": ["png", "jpeg"]},
    quality={"type": "integer", "minimum": 0, "maximum": 100},
    omit_background={"type": "boolean"},
)


def _tool(
    name: str, description: str, properties: Mapping[str, object], *required: str, read_only: bool = False
) -> Tool:
    schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    hints = ToolAnnotations(read_only_hint=read_only, open_world_hint=False if read_only else None)
    return Tool(name=name, description=description, input_schema=schema, annotations=hints)


_TOOLS = (
    _tool(
        "abp_connect",
        "Connect a web app that speaks ABP. Returns its session and capabilities, each of which becomes a tool.",
        {
            "url": {
                "type": "string",
                "description": "http(s):// address of the app's page, or ws(s):// of its socket.",
            },
            "transport": {"type": "string", "enum": ["auto", "playwright", "webmcp", "postmessage", "websocket"]},
            "browser": {"type": "string", "enum": ["chromium", "chrome", "msedge", "firefox", "webkit"]},
            "headless": {"type": "boolean"},
            "timeout": _SECONDS,
        },
        "url",
    ),
    _tool(
        "abp_call",
        "Call a capability of a connected app. Whatever it produces is kept as artifacts; the answer says where.",
        {
            "capability": {"type": "string", "description": "Its name, such as export.pdf."},
            "params": {"type": "object", "description": "Its parameters; abp_status has their schema."},
            "files": _FILES,
            "session": _SESSION,
            "timeout": _SECONDS,
        },
        "capability",
    ),
    _tool(
        "abp_status",
        "Which apps are connected and what they can do; with `capability`, the schema of its parameters.",
        {"session": _SESSION, "capability": {"type": "string"}},
        read_only=True,
    ),
    _tool("abp_disconnect", "Disconnect an app. Its artifacts stay.", {"session": _SESSION}),
    _tool(
        "abp_render_to_pdf",
        "Print HTML as a PDF with the browser of a connected app.",
        {"html": {"type": "string"}, "options": _PDF_OPTIONS, "session": _SESSION, "timeout": _SECONDS},
        "html",
    ),
    _tool(
        "abp_screenshot",
        "A picture of what a connected app shows.",
        {"options": _SCREENSHOT_OPTIONS, "session": _SESSION, "timeout": _SECONDS},
        read_only=True,
    ),
    _tool(
        "abp_artifacts",
        "List the artifacts that calls have produced, newest first.",
        {
            "session": {"type": "string", "description": "Only those of this session."},
            "offset": {"type": "integer", "minimum": 0},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        },
        read_only=True,
    ),
    _tool(
        "abp_read_artifact",
        "Read a slice of an artifact: text as it is, anything else as base64. The first part of the answer is JSON "
        "that says which bytes follow in the second, and the `next_offset` to go on with.",
        {
            "id": _ID,
            "offset": {"type": "integer", "minimum": 0, "description": "Byte to begin with (0)."},
            "length": {"type": "integer", "minimum": 1, "description": "Most bytes to read; the answer may hold less."},
            "path": {
                "type": "string",
                "description": "Write all of it to this new file of the machine of the bridge instead, where it allows "
                "that.",
            },
        },
        "id",
        read_only=True,
    ),
)
#: The tools that every user has, by name.
FIXED_TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in _TOOLS}


@dataclass(slots=True)
class CapabilityTool:
    """The tool of a capability, shared by the apps of ``sessions``.

    ``session`` and ``files`` are the names of the bridge's own arguments: ``abp_session`` and ``abp_files`` where the
    capability has parameters of those names."""

    name: str
    capability: str
    session: str
    files: str
    schema: dict[str, object] = field(repr=False)
    description: str = ""
    sessions: list[str] = field(default_factory=list)

    def definition(self) -> Tool:
        """Return the tool as MCP lists it."""
        return Tool(
            name=self.name, title=self.capability, description=self.description, input_schema=self._input_schema()
        )

    def _input_schema(self) -> dict[str, object]:
        known = self.schema.get("properties")
        properties = dict(known) if isinstance(known, Mapping) else {}
        properties[self.files] = _FILES
        if len(self.sessions) > 1:
            properties[self.session] = {**_SESSION, "enum": list(self.sessions)}
        schema = {**self.schema, "type": "object", "properties": properties}
        needed = self.schema.get("required")
        if len(self.sessions) > 1:
            schema["required"] = [*(needed if isinstance(needed, list) else []), self.session]
        return schema


def capability_tools(apps: Apps) -> dict[str, CapabilityTool]:
    """Return one tool for each capability, by the name of the tool. Apps with the same capability share its tool; at
    most 200 capabilities have one."""
    tools: dict[str, CapabilityTool] = {}
    by_capability: dict[str, CapabilityTool] = {}
    for key, app in apps.items():
        for name in islice(app.session.capabilities, _MAX_TOOLS):
            shared = by_capability.get(name)
            if shared is None and len(tools) < _MAX_TOOLS:
                shared = _capability_tool(app.session.capabilities[name], {*FIXED_TOOLS, *tools})
                tools[shared.name] = by_capability[name] = shared
            elif shared is not None and _schema(app.session.capabilities[name]) != shared.schema:
                shared.schema = {"type": "object"}  # they differ: abp_status has each, and each call is checked
            if shared is not None:
                shared.sessions.append(key)
    return tools


def tool_name(capability: str) -> str:
    """Return the name of a capability's tool: ``abp_`` and the name of the capability with ``_`` for other characters
    than letters, digits, ``_`` and ``-``. A second tool of that name gets a number."""
    return f"abp_{_UNSAFE.sub('_', capability)}"[:_MAX_NAME]


def _capability_tool(capability: Capability, taken: set[str]) -> CapabilityTool:
    base = tool_name(capability.name)
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base[: _MAX_NAME - 5]}_{count}"
    schema = _schema(capability)
    known = schema.get("properties")
    own = known if isinstance(known, Mapping) else {}
    description = capability.description or f"The capability {capability.name}."
    marks = [word for word in ("experimental", "deprecated") if getattr(capability, word)]
    marks += [] if capability.available else ["not available now"]
    text = description[:_MAX_DESCRIPTION] + (f" ({', '.join(marks)})" if marks else "")
    return CapabilityTool(
        name,
        capability.name,
        "abp_session" if "session" in own else "session",
        "abp_files" if "files" in own else "files",
        schema,
        text,
    )


def _schema(capability: Capability) -> dict[str, object]:
    if len(encode_json(capability.input_schema)) > _MAX_SCHEMA:
        return {"type": "object"}
    return {key: _without_headers(value) for key, value in capability.input_schema.items()}


def _without_headers(schema: object) -> object:
    """``schema`` without ``x-mcp-header``, which has clients copy parameters into headers and promises to compare them
    (SEP-2243): an app cannot promise that for the bridge."""
    if isinstance(schema, Mapping):
        allowed = {key: value for key, value in schema.items() if key != _HEADER or not isinstance(value, str)}
        return {key: _without_headers(value) for key, value in allowed.items()}
    return [_without_headers(one) for one in schema] if isinstance(schema, list) else schema
