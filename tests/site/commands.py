"""The reference of the ``abp`` command, made from its own parser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import typer.main

from transports.surfaces.cli._commands import app
from transports.surfaces.cli._options import ConnectionOptions

_HEAD = """# Commands

All commands and options of `abp`; [The command line](../command-line.md) has examples.
Every command has `-h`, `-v`, `-vv` and `-q`. `abp --install-completion` adds completion to bash, zsh and fish.
"""
_TYPE = re.compile(r" <(?:str|path|list\[str\])>")
#: Typer's note of a variable, which the text of the parameter names too.
_VARIABLE = re.compile(r"\[env var: [^\]]*\]")
_NUMBER = re.compile(r"<(?:int|float)(?: range)?>")
#: A parameter that means the same in this many commands is explained once, at the top of the page.
_SHARED_BY = 2
#: Options for the connection to an app, which the commands that have all of them name as a group.
_CONNECTION = frozenset(f"`--{field.name.replace('_', '-')}`" for field in fields(ConnectionOptions))


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its whole name, how deep it stands, its text, its usage, and its parameters with theirs."""

    path: str
    level: int
    paragraphs: tuple[str, ...]
    usage: str
    parameters: tuple[tuple[str, str], ...]


def commands() -> Iterator[Command]:
    """Yield ``abp`` itself, then every command, each group before what is in it."""
    root = typer.main.get_command(app)
    context: Any = root.make_context("abp", [], resilient_parsing=True)
    yield _command(root, context, 0)
    yield from _below(context, 1)


def _below(context: Any, level: int) -> Iterator[Command]:  # a class of the click that Typer brings along
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        below: Any = type(context)(command, info_name=name, parent=context, resilient_parsing=True)
        yield _command(command, below, level)
        if hasattr(command, "list_commands"):
            yield from _below(below, level + 1)


def _command(command: Any, context: Any, level: int) -> Command:
    parameters = [
        _parameter(parameter, context)
        for parameter in command.params
        if not getattr(parameter, "hidden", False) and parameter.name not in ("help", "verbose", "quiet")
    ]
    return Command(
        path=context.command_path,
        level=level,
        paragraphs=tuple(" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")),
        usage=" ".join(command.get_usage(context).removeprefix("Usage:").split()),
        parameters=tuple(parameters),
    )


def _parameter(parameter: Any, context: Any) -> tuple[str, str]:
    """Return the name and the text of a parameter, without the types that only a program reads, such as ``<str>``."""
    name, text = parameter.get_help_record(context) or (parameter.name, "")
    if parameter.param_type_name == "argument":
        name, text = _TYPE.sub("", name), text.replace("[required]", "")
    return _NUMBER.sub("N", name).strip(), " ".join(_VARIABLE.sub("", text).split())


def commands_page() -> str:
    """Return the page: the parameters that several commands share, then every command with its other parameters."""
    every = [command for command in commands() if command.level]
    shared = _shared_parameters(every)
    common = {name: text for name, text in shared.items() if _option(name) not in _CONNECTION}
    connection = {name: text for name, text in shared.items() if _option(name) in _CONNECTION}
    sections = "".join(_section(command, shared) for command in every)
    tables = f"## Common parameters\n\n{_table(common)}\n## Connection options\n\n{_table(connection)}"
    return f"{_HEAD}\n{tables}{sections}"


def _table(parameters: Mapping[str, str]) -> str:
    rows = "".join(f"| `{_cell(name)}` | {_cell(text)} |\n" for name, text in parameters.items())
    return f"| parameter | |\n|---|---|\n{rows}"


def _shared_parameters(every: Iterable[Command]) -> dict[str, str]:
    """Return the parameters that mean the same in several commands. A name is in it once, with its most usual text."""
    uses = Counter(parameter for command in every for parameter in command.parameters)
    shared: dict[str, tuple[str, str]] = {}
    for parameter, count in uses.most_common():
        if count >= _SHARED_BY:
            shared.setdefault(_option(parameter[0]), parameter)
    return dict(parameter for parameter in uses if parameter in shared.values())


def _section(command: Command, shared: Mapping[str, str]) -> str:
    lines = [f"{'#' * (command.level + 1)} {command.path}", *command.paragraphs]
    arguments = [name for name, _ in command.parameters if not name.startswith("-")]
    if len(arguments) > 1:
        lines.append(f"`{command.path} {' '.join(arguments)}`")
    if specific := [(name, text) for name, text in command.parameters if shared.get(name) != text]:
        lines.append("\n".join(f"- `{name}`: {text}" for name, text in specific))
    common = [_option(name) for name, text in command.parameters if shared.get(name) == text]
    if set(common) >= _CONNECTION:
        common = [name for name in common if name not in _CONNECTION] + ["[connection options](#connection-options)"]
    if common:
        lines.append(f"Common: {', '.join(common)}")
    return "\n" + "\n\n".join(lines) + "\n"


def _option(name: str) -> str:
    """Return a parameter without the form of its value: `--out` of ``--out, --store STORE``."""
    return f"`{name.replace(',', ' ').split()[0]}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
