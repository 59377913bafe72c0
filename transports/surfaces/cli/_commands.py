"""Command line of ``abp``: subcommands, shell completion, and errors of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import UsageError, replaced_arguments
from . import (
    _artifacts as artifacts,
    _batch as batch,
    _bench as bench,
    _calls as calls,
    _calls as discover,
    _conformance as conformance,
    _demo as demo,
    _demo as fixture,
    _detached as detached,
    _doctor as doctor,
    _init as init,
    _mcp as mcp,
    _proxy as proxy,
    _resources as resources,
    _serve as serve,
    _shell as shell,
    _views as views,
)
from ._login import login
from ._output import OPTIONS, add_options, print_text, report_error, require_output, start_output, version_of

#: Variable of the shells' completion scripts: ``complete_bash``, ``complete_zsh`` … More variables describe the line.
_VARIABLE = "_ABP_COMPLETE"


def complete(command: Callable[[], Any]) -> int | None:
    """Print the completions for the line that a shell describes in the environment, and return an exit status; ``None``
    if no shell asks. ``command`` returns the command line as Typer makes it."""
    instruction = os.environ.get(_VARIABLE)
    if not instruction:
        return None
    from typer.completion import shell_complete

    return shell_complete(command(), {}, "abp", _VARIABLE, instruction)


def take_plain_values(command: Any) -> None:
    """Install fast readers for plain values in the parameters of a command of Typer and its subcommands.

    Values and messages stay the same. Typer's own readers import pydantic, which would delay the start of a browser."""
    made_late = command.get_help_option

    def get_help_option(ctx: object) -> Any:
        return _with_reader(made_late(ctx))

    command.get_help_option = get_help_option
    for param in command.params:
        _with_reader(param)
    for one in getattr(command, "commands", {}).values():
        take_plain_values(one)


def _with_reader(param: Any) -> Any:
    reading = getattr(param, "get_runtime_param", None)  # internal to Typer; without it, Typer reads all values itself
    if reading is not None and not isinstance(getattr(reading, "__self__", None), _Reader):
        param.get_runtime_param = _Reader(reading).get
    return param


class _Reader:
    """Reader of the values of one parameter: plain values directly, all others through Typer."""

    def __init__(self, typers: Callable[[], Any]) -> None:
        self._typers = typers

    def get(self) -> _Reader:
        return self

    def coerce(self, value: Any, param: Any, ctx: object) -> object:
        """Convert a value from the command line to that of ``param``, as Typer's own readers do."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        for plain in _plain(value, param.type_descriptor):
            return plain
        return self._typers().coerce(value, param=param, ctx=ctx)


#: Most digits of a number that is read without Typer.
_MAX_DIGITS = 18


def _plain(value: Any, kind: Any) -> Iterator[object]:
    """Yield the converted value if it needs no other validation: texts, whole numbers, and paths without conditions."""
    given, wanted, info = type(value), kind.annotation, kind.parameter_info
    if info.parser is not None or info.path_type is not None:
        return
    if wanted is int and given is str and value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        value, given = int(value), int
    if given is wanted and (wanted is str or (wanted is int and _is_between(value, info.min, info.max))):
        yield value
    elif wanted == list[str] and given in (list, tuple) and all(type(one) is str for one in value):
        yield [*value]
    elif wanted is Path and given is str and not (info.exists or info.resolve_path or info.writable or info.allow_dash):
        path = Path(value)
        if "\0" in value or not (info.file_okay and info.dir_okay):
            return
        if os.access(path, os.R_OK) or not os.path.exists(value):  # noqa: PTH110 - unlike that of Path it never raises
            yield path


def _is_between(number: int, least: float | None, most: float | None) -> bool:
    return (least is None or number >= least) and (most is None or number <= most)


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
app.command(cls=views.OrderedCommand)(views.view)
app.command()(discover.discover)
app.command()(conformance.conformance)
app.command()(bench.bench)
app.command()(doctor.doctor)
app.command()(fixture.fixture)
app.command()(demo.demo)
app.command()(mcp.mcp)
app.command()(proxy.proxy)
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
            *("-V", "--version"),
            is_eager=True,
            callback=_version,
            help="Show the version, and the browser's, and exit.",
        ),
    ] = False,
) -> None:
    pass


def command_for(args: Sequence[str]) -> Any:
    """Return the command line as Typer makes it, with only the command that is called. The help of ``abp`` itself lists
    all commands without their parameters. If it is unclear what is called, it has all commands, which takes 20 ms
    longer."""
    return _listing() if [*args] in ([], ["--help"], ["-h"]) else _command(args[0])


@cache
def _command(name: str) -> Any:  # a command of the click that Typer vendors
    wanted = copy(app)
    wanted.registered_commands = [
        info for info in app.registered_commands if info.callback and name == (info.name or info.callback.__name__)
    ]
    wanted.registered_groups = []
    return _made(wanted if wanted.registered_commands else app)


@cache
def _listing() -> Any:
    listed = copy(app)
    listed.registered_commands = [copy(info) for info in app.registered_commands]
    for command in listed.registered_commands:
        command.callback = _without_parameters(command.callback)
    listed.registered_groups = [copy(info) for info in app.registered_groups]
    for group in listed.registered_groups:
        group.typer_instance = empty = copy(group.typer_instance) or typer.Typer()
        empty.registered_commands = []
    return _made(listed)


def _without_parameters(callback: Any) -> Callable[[], None]:
    def command() -> None: ...

    command.__name__, command.__doc__ = callback.__name__, callback.__doc__
    return command


def _made(wanted: typer.Typer) -> Any:
    made: Any = typer.main.get_command(wanted)
    add_options(made)
    take_plain_values(made)
    return made


def _require_utf8(args: Sequence[str]) -> None:
    """Raise :class:`~transports.errors.UsageError` for an argument that cannot be sent or printed as it is."""
    for number, arg in enumerate(args, 1):
        try:
            arg.encode()
        except UnicodeEncodeError:
            shown, locale = ascii(arg[:40]), sys.getfilesystemencoding()
            fix = "write it in UTF-8" if locale == "utf-8" else f"the locale is {locale}: set PYTHONUTF8=1"
            raise UsageError(f"argument {number} is not UTF-8 ({shown}); {fix}") from None


def run(args: Sequence[str]) -> int:
    """Run one command and return its exit status. An error is one line on stderr and, with ``--json``, a document."""
    start_output()
    with replaced_arguments(OPTIONS):
        return _run([*args[1:], "--help"] if [*args[:1]] == ["help"] else args)


def _run(args: Sequence[str]) -> int:
    try:
        if (completed := complete(partial(_command, ""))) is not None:
            return completed
        _require_utf8(args)
        command = command_for(args)
        with command.make_context("abp", list(args) or ["--help"]) as context:
            status = command.invoke(context)
        if not status:
            require_output()
        return status if isinstance(status, int) else 0
    except typer.Exit as end:
        return end.exit_code if args else 2  # without arguments the help is printed, which is bad usage
    except Exception as error:  # noqa: BLE001 - the edge of the program: every error becomes a message
        return report_error(error, as_json="--json" in args)
