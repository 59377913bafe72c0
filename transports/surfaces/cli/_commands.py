"""Command line of ``abp``: its commands, each imported when it is called, and errors of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
import typer.core
from typer.completion import shell_complete

from ...errors import ABPError, UsageError, replaced_arguments
from ._output import OPTIONS, add_options, installed_version, print_text, report_error, require_output, start_output


class _Listed(NamedTuple):
    place: str
    help: str


#: Commands in the order of the help of ``abp``, which imports none of them.
COMMANDS = {
    "call": _Listed("_calls:call", "Call one capability; every result becomes a file."),
    "capabilities": _Listed("_calls:capabilities", "List the capabilities of an app, or show one of them."),
    "login": _Listed("_calls:login", "Sign in to an app in a visible browser, for later calls."),
    "shell": _Listed("_shell:shell", "Call capabilities line by line, over one connection."),
    "resources": _Listed("_mcp_targets:resources", "List the resources of an MCP server, or read some."),
    "view": _Listed("_mcp_targets:app", "Open the view of an MCP server's tool, and call its tools."),
    "discover": _Listed("_calls:discover", "Read an app's manifest without a browser."),
    "conformance": _Listed("_doctor:conformance", "Check an app against every MUST and SHOULD of the protocol."),
    "doctor": _Listed("_doctor:doctor", "Check the installation, from versions to a self-test."),
    "fixture": _Listed("_first_steps:fixture", "Serve the reference app, Workbench, until Ctrl-C."),
    "demo": _Listed("_first_steps:demo", "Drive the reference app and show the resulting files."),
    "mcp": _Listed("_serve:mcp", "Serve apps as tools of MCP, on stdin and stdout."),
    "proxy": _Listed("_serve:proxy", "Run another MCP server, with its large content as links."),
    "serve": _Listed("_serve:serve", "Serve artifacts and the gallery over HTTP, until Ctrl-C."),
    "artifacts": _Listed("_artifacts:app", "Look at, fetch and remove stored artifacts."),
    "batch": _Listed("_batch:app", "Run many jobs, and resume interrupted runs."),
    "calls": _Listed("_detached:app", "List, wait for or cancel detached calls."),
    "init": _Listed("_first_steps:init", "Write a first app, view, adapter, test or settings file."),
}


@cache
def load_command(name: str) -> Any:  # a command of the click that Typer vendors
    """Import the module of a command, and return the command."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    group_or_function = getattr(import_module(f".{module}", __package__), attribute)
    group = group_or_function
    if not isinstance(group_or_function, typer.Typer):
        group = typer.Typer(add_completion=False, rich_markup_mode=None)
        group.command(name)(group_or_function)
    command = typer.main.get_command(group)
    add_options(command)
    return command


class _LazyGroup(typer.core.TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return load_command(cmd_name)
        # The error for an unknown name suggests similar names of these commands.
        self.commands = _group_of_names().commands
        return None

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete an option, or the name of a command without importing it."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        listing = _group_of_names()
        return listing.shell_complete(typer.Context(listing), incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


def _group_of_names() -> typer.core.TyperGroup:
    """Return a group with the names and the help of all commands, and nothing to run."""
    return typer.core.TyperGroup(
        commands=[typer.core.TyperCommand(name, help=command.help) for name, command in COMMANDS.items()]
    )


app = typer.Typer(
    name="abp",
    cls=_LazyGroup,
    help="Drive browser apps that speak ABP, and keep every binary result as a verified file.",
    epilog="Files go to ABP_OUTPUT_DIR (default: abp-mcp-bridge in the temp folder). Exit status: 0 success, "
    "1 the work failed, 2 bad usage, 130 interrupted. To try it: abp demo",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        # Only a source tree that is not installed has no version.
        print_text(f"abp {installed_version('abp-transports') or 'unknown'}")
        print_text(_browser_version())
        raise typer.Exit


def _browser_version() -> str:
    from ...playwright._find import HOW_TO_INSTALL, find_browser

    try:
        choice = find_browser()
    except ABPError as error:
        return f"browser: {error.message}"
    if choice is None:
        return f"browser: none; {HOW_TO_INSTALL}"
    version = ""
    # On Windows, --version opens a window instead of printing.
    if sys.platform != "win32":
        with suppress(OSError, subprocess.SubprocessError):
            command = [choice.path, "--version"]
            version = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    if version:
        return f"browser: {version} ({choice.path})"
    return f"browser: {choice.path}"


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            *("-V", "--version"),
            is_eager=True,
            callback=_print_version,
            help="Show the version, and the browser's, and exit.",
        ),
    ] = False,
) -> None:
    """Declare ``--version``; Typer reads it from this signature."""


def _require_utf8(args: Sequence[str]) -> None:
    for number, arg in enumerate(args, 1):
        try:
            arg.encode()
        except UnicodeEncodeError:
            locale = sys.getfilesystemencoding()
            fix = "write it in UTF-8" if locale == "utf-8" else f"the locale is {locale}: set PYTHONUTF8=1"
            raise UsageError(f"argument {number} is not UTF-8 ({arg[:40]!a}); {fix}") from None


def run(args: Sequence[str]) -> int:
    """Run one command and return its exit status. An error is one line on stderr and, with ``--json``, a document."""
    start_output()
    if args and args[0] == "help":
        args = [*args[1:], "--help"]
    with replaced_arguments(OPTIONS):
        return _run_command(args)


def _run_command(args: Sequence[str]) -> int:
    try:
        command: Any = typer.main.get_command(app)
        add_options(command)
        # The completion scripts of the shells set this variable, and other variables, which Typer reads.
        instruction = os.environ.get("_ABP_COMPLETE")
        if instruction:
            return shell_complete(command, {}, "abp", "_ABP_COMPLETE", instruction)

        _require_utf8(args)
        with command.make_context("abp", list(args) or ["--help"]) as context:
            status = command.invoke(context)
        if not status:
            require_output()
        return status if isinstance(status, int) else 0
    except typer.Exit as end:
        # Without arguments the help is printed, which is bad usage.
        return end.exit_code if args else 2
    except Exception as error:  # noqa: BLE001 - the edge of the program: every error becomes a message
        return report_error(error, as_json="--json" in args)
