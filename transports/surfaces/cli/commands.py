"""The ``abp`` command as a whole: its subcommands, and its errors."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache, partial
from typing import Annotated, Any

import typer

from . import (
    artifacts,
    batch,
    bench,
    calls,
    conformance,
    demo,
    detached,
    discover,
    doctor,
    fixture,
    init,
    mcp,
    resources,
    serve,
    shell,
)
from .completion import complete
from .login import login
from .output import print_text, report_error, start_output, version_of
from .plain_values import take_plain_values
from .verbosity import add_options

__all__ = ["app", "command_for", "run"]

app = typer.Typer(
    name="abp",
    help="Drive browser apps that speak ABP, and keep every binary result as a verified file.",
    epilog="Files go to ABP_OUTPUT_DIR (default: abp-mcp-bridge in the temp folder). Exit status: 0 success, "
    "1 the work failed, 2 bad usage, 130 interrupted. To try it: abp demo",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command()(calls.call)
app.command()(calls.capabilities)
app.command()(login)
app.command()(shell.shell)
app.command()(resources.resources)
app.command()(discover.discover)
app.command()(conformance.conformance)
app.command()(bench.bench)
app.command()(doctor.doctor)
app.command()(fixture.fixture)
app.command()(demo.demo)
app.command()(mcp.mcp)
app.command()(serve.serve)
artifacts.app.command("link")(serve.link)
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(batch.app, name="batch")
app.add_typer(detached.app, name="calls")
app.add_typer(init.app, name="init")


def _version(wanted: bool) -> None:
    if wanted:
        print_text(f"abp {version_of('abp-transports')}")
        print_text(doctor.browser_version())
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_version, help="Show the version, and the browser's, and exit."
        ),
    ] = False,
) -> None:
    pass


def command_for(args: Sequence[str]) -> Any:
    """Return the command line as Typer makes it: with the one command that is called, or with all if that is unclear,
    which takes 20 ms longer."""
    return _command(args[0] if args else "")


@cache
def _command(name: str) -> Any:  # a class of the click that Typer brings along
    wanted = copy(app)
    wanted.registered_commands = [
        info for info in app.registered_commands if info.callback and name == (info.name or info.callback.__name__)
    ]
    wanted.registered_groups = []
    made: Any = typer.main.get_command(wanted if wanted.registered_commands else app)
    add_options(made)
    take_plain_values(made)
    return made


def run(args: Sequence[str]) -> int:
    """Run one command and return its exit status. An error is one line on stderr and, with ``--json``, a document."""
    start_output()
    try:
        if (completed := complete(partial(_command, ""))) is not None:
            return completed
        command = command_for(args)
        with command.make_context("abp", list(args) or ["--help"]) as context:
            status = command.invoke(context)
        return status if isinstance(status, int) else 0
    except typer.Exit as end:
        return end.exit_code if args else 2
    except Exception as error:  # noqa: BLE001 - the edge of the program: every error becomes a message
        return report_error(error, as_json="--json" in args)
