"""The reference of the ``abp`` command, made from its own parser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer.main

from transports.surfaces.cli._commands import app

__all__ = ["Command", "commands", "commands_page"]

_HEAD = """# Commands

Made from the commands themselves. [The command line](../command-line.md) explains them by examples.
Every command has `-h`, `-v`, `-vv` and `-q`. `abp --install-completion` completes them in bash, zsh and fish.
"""


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
    name, text = parameter.get_help_record(context) or (parameter.name, "")
    return name.strip(), " ".join(text.split())


def commands_page() -> str:
    """Return the page: every command with its arguments and options."""
    return _HEAD + "".join(_section(command) for command in commands() if command.level)


def _section(command: Command) -> str:
    text = "\n\n".join(command.paragraphs)
    section = f"\n{'#' * (command.level + 1)} {command.path}\n\n{text}\n\n```text\n{command.usage}\n```\n"
    if not command.parameters:
        return section
    rows = "\n".join(f"| `{_cell(name)}` | {_cell(text)} |" for name, text in command.parameters)
    return f"{section}\n| parameter | |\n|---|---|\n{rows}\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
