"""Prompts, one for each connected app, and the completion of arguments (MCP, server/prompts and utilities/completion).
No I/O except looking into the user's store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)

from ...protocol.plain_text import plain_line
from ..shared.apps import App, Apps
from .app_document import app_name
from .user import User

__all__ = ["complete", "get_prompt", "list_prompts"]

#: Capabilities that a prompt describes, characters of each, and values of one completion (the most that MCP allows).
_MAX_CAPABILITIES, _MAX_LINE, _MAX_VALUES = 100, 300, 100
#: Characters of an argument.
_MAX_ARGUMENT = 1000
_UNSAFE = re.compile(r"[^a-z0-9]+")
_ARGUMENTS = [
    PromptArgument(name="capability", description="What the app should do: one of its capabilities."),
    PromptArgument(name="parameter", description="A parameter of the capability, whose value is given."),
    PromptArgument(name="value", description="The value of that parameter."),
    PromptArgument(name="artifact", description="Id of an artifact to hand over as a file."),
]


def list_prompts(apps: Apps, *, files: bool) -> ListPromptsResult:
    """Return a prompt for each connected app; ``files`` says whether calls take files."""
    arguments = _ARGUMENTS if files else _ARGUMENTS[:-1]
    prompts = [
        Prompt(
            name=name,
            title=f"Use {app_name(app)}",
            description=f"What {app_name(app)} can do, and how to ask for it.",
            arguments=arguments,
        )
        for name, app in _by_name(apps).items()
    ]
    return ListPromptsResult(prompts=prompts, ttl_ms=0)


def get_prompt(apps: Apps, name: str, arguments: Mapping[str, str], *, files: bool) -> GetPromptResult:
    """Return the text of a prompt. Raises :class:`MCPError` for one that is not there (any more)."""
    app = _by_name(apps).get(name)
    if app is None:
        raise MCPError(INVALID_PARAMS, f"there is no prompt {name[:100]!r} (any more); list the prompts again")
    known = app.session.capabilities
    listed = [
        f"- {plain_line(one.name)}: {plain_line(one.description, _MAX_LINE)}"
        for one in (known[key] for key in islice(known, _MAX_CAPABILITIES))
    ]
    if len(known) > len(listed):
        listed.append(f"- and {len(known) - len(listed)} more, which abp_status lists")
    lines = [
        f"Use the app {app_name(app)}, which is connected as session {app.key}. It can do this:",
        *listed,
        "Each capability is a tool; abp_call calls any of them, and abp_status with `capability` has its parameters. "
        "What a call produces is kept as artifacts, and the answer says where.",
    ]
    if files:
        lines.append(
            "Hand a file over in `files` of the call: `param` says where it belongs, and `artifact` is the id of an "
            "artifact, so that its content need not be read."
        )
    lines += _task({key: plain_line(text, _MAX_ARGUMENT) for key, text in arguments.items() if text})
    message = PromptMessage(role="user", content=TextContent(text="\n".join(lines)))
    return GetPromptResult(description=f"What {app_name(app)} can do", messages=[message])


def _task(given: Mapping[str, str]) -> list[str]:
    if "capability" not in given:
        return []
    task = f"Call {given['capability']} now"
    if "parameter" in given and "value" in given:
        task += f", with {given['parameter']} = {given['value']}"
    if "artifact" in given:
        task += f", and hand over the artifact {given['artifact']}"
    return [f"{task}."]


async def complete(user: User, params: CompleteRequestParams) -> CompleteResult:
    """Return values for an argument of a prompt or of the template of artifacts: names of capabilities and of their
    parameters, values that a parameter may have, sessions, ids of artifacts. An argument of anything else has none."""
    name, typed = params.argument.name, params.argument.value.lower()
    before = (params.context.arguments if params.context else None) or {}
    prompt = params.ref.name if params.ref.type == "ref/prompt" else ""
    apps = [app for key, app in _by_name(user.apps).items() if not prompt or key == prompt]
    match name:
        case "capability":
            found: Iterable[str] = (plain_line(one) for app in apps for one in app.session.capabilities)
        case "parameter":
            found = _parameters(apps, before)
        case "value":
            schema = _parameters(apps, before).get(before.get("parameter", ""), {})
            found = [str(value) for value in _values(schema)]
        case "session":
            found = [app.key for app in apps]
        case "artifact" | "id":
            found = [ref.id for ref in reversed(await user.store.list())]
        case _:
            found = ()
    fitting = [value for value in dict.fromkeys(found) if value.lower().startswith(typed)]
    values = fitting[:_MAX_VALUES]
    return CompleteResult(completion=Completion(values=values, total=len(fitting), has_more=len(fitting) > len(values)))


def _parameters(apps: Iterable[App], before: Mapping[str, str]) -> Mapping[str, object]:
    """The parameters of the capability that was chosen before, with their schemas."""
    wanted = before.get("capability", "")
    for app in apps:
        if (declared := app.session.capabilities.get(wanted)) is not None:
            properties = declared.input_schema.get("properties")
            return (
                {plain_line(str(key)): one for key, one in properties.items()}
                if isinstance(properties, Mapping)
                else {}
            )
    return {}


def _values(schema: object) -> list[object]:
    """The values that a schema of one parameter allows, where it lists them."""
    if not isinstance(schema, Mapping):
        return []
    if schema.get("type") == "boolean":
        return ["true", "false"]
    choices = schema.get("enum")
    return [one for one in choices if isinstance(one, str | int | float)] if isinstance(choices, list) else []


def _by_name(apps: Apps) -> dict[str, App]:
    """The connected apps by the names of their prompts, oldest first; of two with one name, the later has a number."""
    named: dict[str, App] = {}
    for app in apps.values():
        base = f"use_{_UNSAFE.sub('_', app_name(app).lower()).strip('_')[:50] or 'app'}"
        name, number = base, 2
        while name in named:
            name, number = f"{base}_{number}", number + 1
        named[name] = app
    return named
