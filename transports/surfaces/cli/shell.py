"""``abp shell``: several calls over one connection, typed line by line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ...tasks import cancel_and_wait
from .answers import print_result
from .option_groups import spread_groups
from .options import ConnectionOptions, Output, Target, Timeout
from .output import print_note, print_text, report_error, run_async
from .progress import ProgressBar
from .questions import at_terminal
from .signals import on_interrupt

if TYPE_CHECKING:
    from ...routing import Result
    from ...session.session import Session

__all__ = ["shell"]

_HELP = """\
CAPABILITY KEY=VALUE KEY@FILE …   call it: export.pdf html="<h1>Hi</h1>" options.landscape=true
CAPABILITY {"key": "value"}       the same, with parameters as JSON
help CAPABILITY                   its parameters
exit                              end; as Ctrl-D. Ctrl-C cancels a call. Tab completes, ↑ goes back."""


@spread_groups
def shell(target: Target, *, output: Output = None, timeout: Timeout = None, options: ConnectionOptions) -> int:
    """Call capabilities line by line, over one connection.

    Without a terminal the lines come from stdin, and the exit status is 1 if any of them failed.
    """

    connection = options.connection()

    def work() -> Coroutine[object, object, int]:
        given = None if at_terminal() or sys.stdin is None else sys.stdin.read().splitlines()

        async def answer() -> int:
            bar = ProgressBar("")
            async with connection.open(target, store=output, pause=bar.pause) as app:
                lines = _typed(app) if given is None else _listed(given)
                return await _Shell(app, timeout, bar, interactive=given is None).run(lines)

        return answer()

    return run_async(work)


async def _listed(lines: list[str]) -> AsyncIterator[str]:
    for line in lines:
        yield line


async def _typed(app: Session) -> AsyncIterator[str]:
    """The lines that are typed, until Ctrl-D. Ctrl-C begins a line anew."""
    from .shell_history import open_history
    from .shell_line import LineCompleter
    from .terminal import LineReader

    count = len(app.capabilities)
    print_note(f"{app.info.name} has {count} capabilities; Tab completes, `help` says more, Ctrl-D ends")
    reader = LineReader(LineCompleter(lambda: app.capabilities), open_history())
    while True:
        try:
            yield await reader.read("abp> ")
        except reader.Interrupted:
            continue
        except EOFError:
            return


class _Shell:
    """Runs lines in one session. ``interactive`` makes Ctrl-C end the call, and not the command."""

    def __init__(self, app: Session, timeout: float | None, bar: ProgressBar, *, interactive: bool) -> None:
        self._app = app
        self._timeout = timeout
        self._bar = bar
        self._interactive = interactive
        self._call: asyncio.Task[Result] | None = None

    async def run(self, lines: AsyncIterator[str]) -> int:
        """Run lines until one says ``exit``, and return the exit status: at a terminal 0, else 1 if any failed."""
        loop = asyncio.get_running_loop()
        interrupts = (
            on_interrupt(lambda: loop.call_soon_threadsafe(self._cancel)) if self._interactive else nullcontext()
        )
        failed = False
        with interrupts:
            async for line in lines:
                if line.strip() == "exit" and "exit" not in self._app.capabilities:
                    break
                try:
                    await self._run(line)
                except BrokenPipeError:
                    raise
                except Exception as error:  # noqa: BLE001 - an error ends the line, not the shell
                    report_error(error, as_json=False)
                    failed = True
        return 1 if failed and not self._interactive else 0

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    async def _run(self, line: str) -> None:
        from .shell_line import parse_line

        name, _, rest = line.strip().partition(" ")
        if name == "help" and name not in self._app.capabilities:
            self._help(rest.strip())
            return
        name, params = parse_line(line)
        if name:
            await self._run_call(name, params)

    def _help(self, name: str) -> None:
        from ...protocol.capabilities import find_capability
        from .calls import print_capabilities
        from .describe import print_capability

        if not name:
            print_capabilities(self._app.info, self._app.capabilities.values())
            print_text(_HELP)
        else:
            print_capability(find_capability(self._app.info.name, name, self._app.capabilities))

    async def _run_call(self, name: str, params: Mapping[str, object]) -> None:
        self._bar.set_label(name)
        with self._bar:
            work = self._app.call(name, params, timeout=self._timeout, on_progress=self._bar.on_progress)
            self._call = asyncio.ensure_future(work)
            try:
                await asyncio.wait((self._call,))
            finally:
                await cancel_and_wait((self._call,))
        if self._call.cancelled():
            print_note(f"{name}: cancelled", always=True)
        else:
            print_result(self._call.result())
