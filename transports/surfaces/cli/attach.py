"""``--attach``: the address of a browser of this user that runs already."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .output import print_note
from .questions import at_terminal

__all__ = ["Attach", "attached_to"]

Attach = Annotated[
    bool,
    typer.Option("--attach", help="Attach to a Chromium of yours that runs with remote debugging; asks if several do."),
]


def attached_to(attach: bool, cdp_url: str | None) -> str | None:
    """Return the address of the browser that ``--attach`` finds, without it ``cdp_url``.

    Raises :class:`~transports.errors.UsageError` if there is none, and if there are several and nobody can be asked."""
    if not attach:
        return cdp_url
    from ...browser.process.running import find_running
    from ...errors import UsageError

    if cdp_url is not None:
        raise UsageError("--attach finds a browser and --cdp-url names one; give one of them")
    found = asyncio.run(find_running())
    if not found:
        raise UsageError(
            "--attach: no browser of yours runs with remote debugging; start one with --remote-debugging-port=9222 and "
            "a --user-data-dir of its own, or allow it at chrome://inspect/#remote-debugging"
        )
    if len(found) == 1:
        print_note(f"attaching to {found[0].where}")
        return found[0].url
    listed = [f"{number}  {one.where} ({one.url})" for number, one in enumerate(found, 1)]
    if not at_terminal():
        raise UsageError("--attach: several browsers run; name one with --cdp-url: " + "; ".join(listed))
    for line in listed:
        print_note(line, always=True)
    while True:
        answer = typer.prompt("Attach to which one", err=True)
        if str(answer).isdigit() and 1 <= int(answer) <= len(found):
            return found[int(answer) - 1].url
