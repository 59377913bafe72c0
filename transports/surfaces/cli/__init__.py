"""The ``abp`` command. Exit status: 0 success, 1 the work failed, 2 bad usage, 130 interrupted, 143 terminated."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from . import artifacts, calls, demo, doctor, fixture
from .outcome import bad_usage, interrupted

__all__ = ["app", "main"]

app = typer.Typer(
    name="abp",
    help="Drive browser apps that speak ABP, and keep every binary result as a verified file.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(calls.call)
app.command()(calls.capabilities)
app.command()(doctor.doctor)
app.command()(fixture.fixture)
app.command()(demo.demo)
app.add_typer(artifacts.app, name="artifacts")


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = list(sys.argv[1:] if args is None else args)
    try:
        status = typer.main.get_command(app)(args=given, prog_name="abp", standalone_mode=False)
    except KeyboardInterrupt:
        return interrupted(as_json="--json" in given)
    except Exception as error:
        describe = getattr(error, "format_message", None)
        if describe is None:
            raise
        return bad_usage(describe(), as_json="--json" in given)
    return status if isinstance(status, int) else 0
