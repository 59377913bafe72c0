"""``abp shell``: interactive calls over one connection, with history and completion."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..._internal.tasks import cancel_and_wait
from ...errors import UsageError
from ...protocol._capabilities import find_capability
from ...protocol._strict_json import decode_user_json, parser_limits
from . import on_interrupt
from ._calls import params_for, print_capabilities, print_capability
from ._options import (
    ConnectionOptions,
    Output,
    Params,
    Target,
    Timeout,
    open_app,
    read_file,
    spread_groups,
)
from ._output import ProgressBar, at_terminal, print_note, print_result, print_text, report_error
from ._running import run_async

if TYPE_CHECKING:
    from ...routing._result import Result
    from ...session._session import Session

_HELP = """\
CAPABILITY KEY=VALUE KEY@FILE …   call it: export.pdf html="<h1>Hi</h1>" options.landscape=true
CAPABILITY {"key": "value"}       the same, with parameters as JSON
help CAPABILITY                   its parameters
exit, quit                        end; as Ctrl-D. Ctrl-C cancels a call. Tab completes, ↑ goes back."""


@spread_groups
def shell(target: Target, *, output: Output = None, timeout: Timeout = None, options: ConnectionOptions) -> int:
    """Call capabilities line by line, over one connection.

    Without a terminal the lines come from stdin, and the exit status is 1 if any of them failed.
    """
    connection = options.connection()

    def read_and_run() -> Coroutine[object, object, int]:
        if sys.stdin is None:
            raise UsageError("stdin is closed; pipe lines to the shell, or start it at a terminal")
        if at_terminal():
            return run_lines(None)
        # splitlines() would also split a text at characters such as U+2028. PowerShell sends a byte order mark first.
        return run_lines(sys.stdin.read().removeprefix("\ufeff").split("\n"))

    async def run_lines(piped: list[str] | None) -> int:
        bar = ProgressBar("")
        async with open_app(target, connection, store=output, pause=bar.pause) as app:
            lines = _typed_lines(app) if piped is None else _piped_lines(piped)
            return await _Shell(app, timeout, bar, interactive=piped is None).run(lines)

    return run_async(read_and_run)


async def _piped_lines(lines: list[str]) -> AsyncIterator[str]:
    for line in lines:
        yield line


async def _typed_lines(app: Session) -> AsyncIterator[str]:
    from ._terminal import LineCompleter, LineReader, open_history  # an import that only a terminal needs

    count = len(app.capabilities)
    print_note(f"{app.info.name} has {count} capabilities; Tab completes, `help` says more, Ctrl-D ends")
    reader = LineReader(LineCompleter(lambda: app.capabilities, COMMANDS), open_history())
    while True:
        try:
            yield await reader.read("abp> ")
        except reader.Interrupted:
            continue
        except EOFError:
            return


class _Shell:
    """Runs lines in one session. If ``interactive``, Ctrl-C cancels the call instead of ending the command."""

    def __init__(self, app: Session, timeout: float | None, bar: ProgressBar, *, interactive: bool) -> None:
        self._app = app
        self._timeout = timeout
        self._bar = bar
        self._interactive = interactive
        self._call: asyncio.Task[Result] | None = None

    async def run(self, lines: AsyncIterator[str]) -> int:
        loop = asyncio.get_running_loop()
        failed = False
        with ExitStack() as stack:
            if self._interactive:
                stack.enter_context(on_interrupt(lambda: loop.call_soon_threadsafe(self._cancel_call)))
            async for line in lines:
                word = line.strip()
                if word in ("exit", "quit") and word not in self._app.capabilities:
                    break
                try:
                    await self._run_line(line)
                except BrokenPipeError:
                    raise
                except Exception as error:  # noqa: BLE001 - an error ends the line, not the shell
                    report_error(error, as_json=False)
                    failed = True
        return 1 if failed and not self._interactive else 0

    def _cancel_call(self) -> None:
        if self._call is not None:
            self._call.cancel()

    async def _run_line(self, line: str) -> None:
        name, _, rest = line.strip().partition(" ")
        if name == "help" and name not in self._app.capabilities:
            self._print_help(rest.strip())
            return
        name, params = parse_line(line)
        if name:
            await self._run_call(name, params)

    def _print_help(self, name: str) -> None:
        if not name:
            print_capabilities(self._app.info, self._app.capabilities.values())
            print_text(_HELP)
        else:
            print_capability(find_capability(self._app.info.name, name, self._app.capabilities))

    async def _run_call(self, name: str, params: Params) -> None:
        self._bar.set_label(name)
        with self._bar:
            values = params_for(params, self._app, name)
            work = self._app.call(name, values, timeout=self._timeout, on_progress=self._bar.on_progress)
            self._call = asyncio.ensure_future(work)
            try:
                await asyncio.wait((self._call,))
            finally:
                await cancel_and_wait((self._call,))
        if self._call.cancelled():
            print_note(f"{name}: cancelled", always=True)
        else:
            print_result(self._call.result())


#: The shell's own commands; a capability with the same name takes precedence.
COMMANDS = {
    "help": "list capabilities and commands; help CAPABILITY: its parameters",
    "exit": "end the shell, as Ctrl-D does",
    "quit": "end the shell, as exit does",
}
_KEY = re.compile(r"\s*(?P<key>[^\s=@'\"{}\[\]]+)(?P<sign>[=@])")


def parse_line(line: str) -> tuple[str, Params]:
    """Return the capability and the parameters of a line. The parameters are one JSON object, or any number of
    ``KEY=VALUE`` and ``KEY@PATH`` (a file); a dot in KEY leads into an object. VALUE is JSON, ``@FILE``, or text up to
    the next space; text with spaces needs quotes."""
    name, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if rest.startswith("{"):
        return name, Params(cast("dict[str, object]", decode_user_json(rest, "this")))

    params = Params()
    while rest:
        match = _KEY.match(rest)
        if match is None or not all(match["key"].split(".")):
            word = rest.split()[0]
            raise UsageError(f"{word!r} is not of the form KEY=VALUE or KEY@FILE, such as title=Report or image@a.png")

        key = match["key"]
        path = key.split(".")
        is_file = match["sign"] == "@"
        value = _read_value(rest[match.end() :], key, is_file=is_file)
        if is_file:
            params.set_value(path, read_file(value.text, f"{key}@{value.text}"))
        elif value.is_verbatim:
            params.set_value(path, value.text)
        else:
            params.set_text(path, value.text, f"{key}={value.text}")
        rest = value.rest_of_line
    return name, params


@dataclass(frozen=True, slots=True)
class _TypedValue:
    """Value at the beginning of a text. If it ``is_verbatim``, the text is not decoded as JSON or ``@FILE``."""

    text: str
    is_verbatim: bool
    rest_of_line: str


def _read_value(line: str, key: str, *, is_file: bool) -> _TypedValue:
    """Read the value of ``key`` at the beginning of ``line``: a text in single quotes, JSON, or a word."""
    if line[:1] == "'":
        text, quote, after = line[1:].partition("'")
        is_followed_by_text = after[:1].strip() != ""
        if not quote or is_followed_by_text:
            raise UsageError(f"{key}: the quote ' does not end, or something follows it without a space")
        return _TypedValue(text, is_verbatim=True, rest_of_line=after.strip())

    if line[:1] in ('"', "{", "["):
        try:
            with parser_limits(line):
                decoded, end = json.JSONDecoder().raw_decode(line)
        except ValueError as error:
            # The text is not JSON, or it has an integer of too many digits.
            raise UsageError(f"{key}: {line} is not JSON ({error}); for text as it is: {key}='…'") from None
        after = line[end:]
        is_followed_by_text = after[:1].strip() != ""
        if is_followed_by_text:
            raise UsageError(f"{key}: {after.split()[0]!r} follows the value without a space")
        text = str(decoded) if is_file else line[:end]
        return _TypedValue(text, is_verbatim=False, rest_of_line=after.strip())

    text, _, after = line.partition(" ")
    return _TypedValue(text, is_verbatim=False, rest_of_line=after.strip())
