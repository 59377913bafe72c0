"""The reference of the ``abp`` command, made from its own parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from transports.surfaces.cli.commands import app

__all__ = ["commands_page"]

_HEAD = """# Commands

Made from the commands themselves. [The command line](../command-line.md) explains them by examples.
Every command has `-h`, `-v`, `-vv` and `-q`.
"""


def commands_page() -> str:
    """Return the page: every command with its arguments and options."""
    root = typer.main.get_command(app)
    context: Any = root.make_context("abp", [], resilient_parsing=True)
    return _HEAD + "".join(_sections(context, 2))


def _sections(context: Any, level: int) -> Iterator[str]:
    """Yield a section for each command below ``context``. Its type is that of the click that Typer brings along."""
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        below: Any = type(context)(command, info_name=name, parent=context, resilient_parsing=True)
        usage = " ".join(command.get_usage(below).removeprefix("Usage:").split())
        yield f"\n{'#' * level} {below.command_path}\n\n{_paragraphs(command.help)}\n\n```text\n{usage}\n```\n"
        parameters = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        rows = [_row(parameter, below) for parameter in parameters if parameter.name != "help"]
        if rows:
            yield "\n| parameter | |\n|---|---|\n" + "\n".join(rows) + "\n"
        if hasattr(command, "list_commands"):
            yield from _sections(below, level + 1)


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))


def _row(parameter: Any, context: Any) -> str:
    name, text = parameter.get_help_record(context) or (parameter.name, "")
    cells = (f"`{name.strip()}`", " ".join(text.split()))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
