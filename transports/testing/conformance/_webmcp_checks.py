"""Checks of a page with WebMCP tools (docs/webmcp.md, "What makes a good tool")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ._evidence import Evidence, NotApplicable, Rules

RULES = Rules()
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SOURCE = "docs/webmcp.md, What makes a good tool"
#: Minimum characters of a meaningful description.
_MIN_DESCRIPTION = 10


def _require_facts(app: Evidence, part: str) -> list[Mapping[str, Any]]:
    """Return the facts about the ``tools`` or the ``forms`` of the page. Without any, the rule does not apply."""
    if not app.tool_facts:
        if app.open_error:
            raise NotApplicable(f"the tools could not be inspected: {app.open_error}")
        raise NotApplicable("no tools")
    facts = app.tool_facts[part]
    assert isinstance(facts, list)
    if not facts:
        kind = "forms that are tools" if part == "forms" else "tools of scripts"
        raise NotApplicable(f"the page has no {kind}")
    return facts


@RULES(
    "webmcp.reached",
    "MUST",
    "The page registers tools",
    source="docs/webmcp.md, What is found",
    fix="register tools with document.modelContext.registerTool() while the page loads, over https or on localhost",
)
def _judge_reached(app: Evidence) -> Iterator[str]:
    if app.open_error is not None:
        yield app.open_error.message


@RULES(
    "webmcp.name",
    "MUST",
    "A tool's name is 1 to 128 letters, digits, dots, dashes and underscores",
    source="WebMCP, registerTool(); " + _SOURCE,
    fix="use a name such as export_pdf or export.pdf",
)
def _judge_name(app: Evidence) -> Iterator[str]:
    for trial in app.trials:
        if not _NAME.fullmatch(trial.name.partition("@")[0]):
            yield f"{trial.name!r}"


@RULES(
    "webmcp.described",
    "MUST",
    "A tool has a description",
    source="WebMCP, ModelContextTool.description; " + _SOURCE,
    fix="describe the purpose of the tool in a sentence: a model reads nothing else",
)
def _judge_tool_described(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        description = tool.get("description")
        if not isinstance(description, str) or len(description.strip()) < _MIN_DESCRIPTION:
            yield f"{tool['name']}: described as {description!r}"


@RULES(
    "webmcp.parameters",
    "SHOULD",
    "Each parameter has a description",
    source=_SOURCE,
    fix="describe each parameter in its schema",
)
def _judge_parameters(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        if tool["undescribed"]:
            yield f"{tool['name']}: no description of {', '.join(tool['undescribed'])}"


@RULES(
    "webmcp.schema",
    "MUST",
    "inputSchema is an object",
    source="WebMCP, ModelContextTool.inputSchema; " + _SOURCE,
    fix="give the schema itself, not its JSON text: that was the form before Chromium 154",
)
def _judge_schema(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        if tool["schema"] not in ("object", "undefined"):
            yield f"{tool['name']}: inputSchema is {tool['schema']}"


@RULES(
    "webmcp.hints",
    "MUST",
    "Annotations are true or false",
    source="WebMCP, ToolAnnotations; " + _SOURCE,
    fix="write readOnlyHint: true, not a text",
)
def _judge_hints(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        for hint in tool["hints"]:
            yield f"{tool['name']}: {hint}"


@RULES(
    "webmcp.read_only",
    "SHOULD",
    "A tool with readOnlyHint changes nothing: no download, window, dialog or print",
    source="WebMCP, ToolAnnotations.readOnlyHint; " + _SOURCE,
    fix="leave the hint out, or the side effect",
)
def _judge_read_only(app: Evidence) -> Iterator[str]:
    for trial, call in app.called:
        if trial.capability.annotations.get("readOnlyHint") is True and call.effects:
            yield f"{trial.name}: {', '.join(sorted({effect.kind for effect in call.effects}))}"


@RULES(
    "webmcp.dialect",
    "SHOULD",
    "The tools are registered in the current way, with document.modelContext.registerTool()",
    source="docs/webmcp.md, Dialects",
    fix="use document.modelContext.registerTool(); navigator.modelContext and provideContext() are older",
)
def _judge_dialect(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        if tool["via"] != "registerTool":
            yield f"{tool['name']}: {tool['via']}()"
    if app.tool_facts["api"] == "navigator":
        yield "the page has navigator.modelContext only"


@RULES(
    "webmcp.answer",
    "SHOULD",
    "A tool answers values, not JSON inside a text",
    source="docs/webmcp.md, Answers",
    fix="return the object itself: the platform makes JSON of it, and files in it can be whole",
)
def _judge_tool_answer(app: Evidence) -> Iterator[str]:
    for tool in _require_facts(app, "tools"):
        if tool.get("dialect") == "JSON in text":
            yield f"{tool['name']}"


@RULES(
    "webmcp.cancel",
    "SHOULD",
    "A tool ends when its signal is aborted",
    source="WebMCP, executeTool() with a signal; " + _SOURCE,
    fix="pass signal on to fetch(), or reject when it is aborted",
)
def _judge_tool_cancel(app: Evidence) -> Iterator[str]:
    tried = [tool for tool in _require_facts(app, "tools") if tool.get("ended") is not None]
    if not tried:
        raise NotApplicable("no tool ran long enough to be cancelled")
    for tool in tried:
        if tool["ended"] is False:
            yield f"{tool['name']}: it keeps running"


@RULES(
    "webmcp.form",
    "MUST",
    "A form that is a tool has a name, a description, and a name for each control",
    source="WebMCP, declarative tools; " + _SOURCE,
    fix="give the form toolname and tooldescription, and each control a name",
)
def _judge_form(app: Evidence) -> Iterator[str]:
    for form in _require_facts(app, "forms"):
        label = form["name"] or "a form without toolname"
        if not form["name"]:
            yield f"{label}: toolname is missing"
        elif not form["description"]:
            yield f"{label}: tooldescription is missing"
        if form["nameless"]:
            yield f"{label}: {form['nameless']} controls without a name"


@RULES(
    "webmcp.submit",
    "SHOULD",
    "A form can be sent: it has toolautosubmit, or a button for a person",
    source="WebMCP, toolautosubmit; " + _SOURCE,
    fix="add <button>, or toolautosubmit if no person needs to check the form first",
)
def _judge_submit(app: Evidence) -> Iterator[str]:
    for form in _require_facts(app, "forms"):
        if not form["autosubmit"] and not form["submitter"]:
            yield f"{form['name']}: it waits for a person and has no button"
