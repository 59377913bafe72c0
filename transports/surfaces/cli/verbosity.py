"""``-v`` and ``-q``, which every command takes: how much it says on stderr."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = ["add_options", "is_quiet", "log_level", "reset"]

_LEVELS = {-1: "ERROR", 1: "INFO", 2: "DEBUG"}

#: -1 for ``-q``, else how often ``-v`` was given.
_verbosity = 0


def reset() -> None:
    """Begin a new command, to which neither option was given."""
    global _verbosity
    _verbosity = 0


def is_quiet() -> bool:
    """Whether ``-q`` was given: no progress and no notes."""
    return _verbosity < 0


def log_level(configured: str) -> str:
    """Return the log level: that of the options, else the ``configured`` one."""
    return _LEVELS.get(_verbosity, configured).upper()


def _set_verbose(count: int) -> None:
    global _verbosity
    if count:
        _verbosity = min(count, 2)


def _set_quiet(quiet: bool) -> None:
    global _verbosity
    if quiet:
        _verbosity = -1


def _options(
    verbose: Annotated[
        int,
        typer.Option(
            *("-v", "--verbose"),
            count=True,
            expose_value=False,
            callback=_set_verbose,
            show_default=False,
            help="Log more on stderr; -vv logs everything.",
        ),
    ] = 0,
    quiet: Annotated[
        bool,
        typer.Option(
            *("-q", "--quiet"), expose_value=False, callback=_set_quiet, help="Only errors on stderr: no progress."
        ),
    ] = False,
) -> None:
    """The options, as Typer makes them of a function."""


def add_options(command: Any) -> None:
    """Add the options to a command and, if it is a group, to every command in it (commands as Typer makes them)."""
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    made: Any = typer.main.get_command(app)
    _add(command, made.params)


def _add(command: Any, params: list[Any]) -> None:
    command.params += params
    for one in getattr(command, "commands", {}).values():
        _add(one, params)
