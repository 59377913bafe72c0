"""The tools made of capabilities: one for each capability of the connected apps. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from mcp_types import Tool, ToolAnnotations

from ...protocol.declarations import Capability
from ...protocol.plain_text import plain_line, plain_schema
from ...protocol.strict_json import encode_json
from ..shared.apps import Apps
from .fixed_tools import BRIEF_FILES, FIXED_TOOLS, SESSION

__all__ = ["CapabilityTool", "capability_tools", "tool_name"]

#: Capabilities that get a tool of their own; the others are called with ``abp_call``.
_MAX_TOOLS = 200
#: Characters of a tool's name, its title and its description, and bytes of its schema.
_MAX_NAME, _MAX_TITLE, _MAX_DESCRIPTION, _MAX_SCHEMA = 64, 200, 1000, 16 * 1024
_HEADER = "x-mcp-header"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
#: Hints of behaviour that MCP knows.
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


@dataclass(slots=True)
class CapabilityTool:
    """The tool of a capability, shared by the apps of ``sessions``.

    ``session`` and ``files`` are the names of the bridge's own arguments: ``abp_session`` and ``abp_files`` where the
    capability has parameters of those names; ``files`` is ``None`` where calls take none. ``hints`` are what the apps
    say of its behaviour, as MCP has it: an app's claims, which nobody has checked."""

    name: str
    capability: str
    session: str
    files: str | None
    schema: dict[str, object] = field(repr=False)
    description: str = ""
    hints: dict[str, bool] = field(default_factory=dict)
    sessions: list[str] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, str]:
        """The name without a number, by which settings know the tool, and the name that it has."""
        return tool_name(self.capability), self.name

    def definition(self) -> Tool:
        """Return the tool as MCP lists it."""
        return Tool(
            name=self.name,
            title=plain_line(self.capability, _MAX_TITLE),
            description=self.description,
            input_schema=self._input_schema(),
            annotations=ToolAnnotations.model_validate(self.hints) if self.hints else None,
        )

    def _input_schema(self) -> dict[str, object]:
        known = self.schema.get("properties")
        properties = dict(known) if isinstance(known, Mapping) else {}
        if self.files is not None:
            properties[self.files] = BRIEF_FILES
        if len(self.sessions) > 1:
            properties[self.session] = {**SESSION, "enum": list(self.sessions)}
        schema = {**self.schema, "type": "object", "properties": properties}
        needed = self.schema.get("required")
        if len(self.sessions) > 1:
            schema["required"] = [*(needed if isinstance(needed, list) else []), self.session]
        return schema


def capability_tools(apps: Apps, *, files: bool) -> dict[str, CapabilityTool]:
    """Return one tool for each capability, by the name of the tool; ``files`` says whether calls may bring some.

    Apps with the same capability share its tool, which has the hints that all of them give. At most 200 capabilities
    have a tool."""
    tools: dict[str, CapabilityTool] = {}
    by_capability: dict[str, CapabilityTool] = {}
    for key, app in apps.items():
        for name in islice(app.session.capabilities, _MAX_TOOLS):
            shared, capability = by_capability.get(name), app.session.capabilities[name]
            if shared is None and len(tools) < _MAX_TOOLS:
                shared = _capability_tool(capability, {*FIXED_TOOLS, *tools}, files=files)
                tools[shared.name] = by_capability[name] = shared
            elif shared is not None:
                if _schema(capability) != shared.schema:
                    shared.schema = {"type": "object"}  # they differ: abp_status has each, and each call is checked
                # A hint that is missing stands for the more dangerous value, so only what all agree on is kept.
                shared.hints = dict(shared.hints.items() & _hints(capability).items())
            if shared is not None:
                shared.sessions.append(key)
    return tools


def tool_name(capability: str) -> str:
    """Return the name of a capability's tool: ``abp_`` and the name of the capability with ``_`` for other characters
    than letters, digits, ``_`` and ``-``. A second tool of that name gets a number."""
    return f"abp_{_UNSAFE.sub('_', capability)}"[:_MAX_NAME]


def _hints(capability: Capability) -> dict[str, bool]:
    given = capability.annotations
    return {name: value for name in _HINTS if isinstance(value := given.get(name), bool)}


def _capability_tool(capability: Capability, taken: set[str], *, files: bool) -> CapabilityTool:
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
    text = plain_line(description, _MAX_DESCRIPTION) + (f" ({', '.join(marks)})" if marks else "")
    return CapabilityTool(
        name,
        capability.name,
        "abp_session" if "session" in own else "session",
        ("abp_files" if "files" in own else "files") if files else None,
        schema,
        text,
        _hints(capability),
    )


def _schema(capability: Capability) -> dict[str, object]:
    if len(encode_json(capability.input_schema)) > _MAX_SCHEMA:
        return {"type": "object"}
    plain = plain_schema(capability.input_schema)
    return {"type": "object"} if plain is None else {key: _without_headers(value) for key, value in plain.items()}


def _without_headers(schema: object) -> object:
    """``schema`` without ``x-mcp-header``, which has clients copy parameters into headers and promises to compare them
    (SEP-2243): an app cannot promise that for the bridge."""
    if isinstance(schema, Mapping):
        allowed = {key: value for key, value in schema.items() if key != _HEADER or not isinstance(value, str)}
        return {key: _without_headers(value) for key, value in allowed.items()}
    return [_without_headers(one) for one in schema] if isinstance(schema, list) else schema
