"""``abp conformance``: checks of an app against the protocol, with JUnit and badge output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol._plain_text import plain_line, plain_text
from ...protocol._strict_json import encode_json
from ._options import (
    AdapterFile,
    BrowserName,
    Headed,
    Headers,
    Json,
    StorageState,
    Target,
    Token,
    TransportName,
    headers_of,
    seconds_between,
)
from ._output import print_json, print_text, shows_progress
from ._params import require_folder
from ._running import asynchronous

if TYPE_CHECKING:
    from ...testing.conformance._evidence import Report

_Patterns = list[str] | None
_STYLES = {"passed": "green", "failed": "bold red", "warning": "yellow", "not-applicable": "dim"}


@asynchronous
async def conformance(
    target: Target,
    transport: TransportName = "auto",
    only: Annotated[
        _Patterns, typer.Option("--only", metavar="PATTERN", help="Call these capabilities only, such as 'export.*'.")
    ] = None,
    skip: Annotated[
        _Patterns, typer.Option("--skip", metavar="PATTERN", help="Do not call these capabilities.")
    ] = None,
    no_calls: Annotated[bool, typer.Option("--no-calls", help="Call no capability at all.")] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="TIME",
            parser=seconds_between(0.1, 3600),
            help="Time that each call is given: seconds, or 5s, 2m.",
        ),
    ] = 5.0,
    browser: BrowserName = None,
    headed: Headed = False,
    storage_state: StorageState = None,
    adapter: AdapterFile = None,
    token: Token = None,
    header: Headers = None,
    as_json: Json = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")] = None,
    badge: Annotated[
        Path | None, typer.Option("--badge", metavar="FILE", help="Also write the JSON of a badge.")
    ] = None,
) -> int:
    """Check an app against every MUST and SHOULD of the protocol. Exit status 0 if it conforms, 1 if not, or if it does
    not answer.

    Capabilities are really called, with small parameters made from their inputSchema (or its `examples`): exclude with
    --skip those that must not run.
    """
    from ...testing.conformance import check_app
    from ...testing.conformance._evidence import Plan

    for file in (junit, badge):
        require_folder(file)
    with _status_line() as show:
        plan = Plan(timeout=timeout, only=only or (), skip=skip or (), calls=not no_calls, on_step=show)
        report = await check_app(
            target,
            plan,
            transport=transport,
            browser=browser,
            storage_state=storage_state,
            adapter=adapter,
            headless=False if headed else None,
            headers=headers_of(token, header or ()),
        )
    if junit is not None:
        junit.write_bytes(report.junit())
    if badge is not None:
        badge.write_bytes(encode_json(report.badge()) + b"\n")
    if as_json:
        print_json(report.as_dict())
    else:
        _print_report(report)
    return 0 if report.conformant else 1


def _print_report(report: Report) -> None:
    if not sys.stdout.isatty():
        print_text("\n".join(text for text, _ in report.lines()))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    for text, status in report.lines():
        console.print(Text(plain_text(text), style=_STYLES[status] if status else ""))


@contextmanager
def _status_line() -> Iterator[Callable[[str], None]]:
    """Show the running check on the last line of a terminal. Yields the function that sets it."""
    if not shows_progress():
        yield lambda check: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("looking at the app …") as status:
        yield lambda check: status.update(f"looking at {escape(plain_line(check))} …")
