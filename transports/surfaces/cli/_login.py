"""``abp login``: a manual sign-in to an app of ``abp.toml``, kept for later calls."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from ...errors import UsageError
from ...protocol._plain_text import redact_url
from ...session._settings import read_config
from ._options import Json
from ._output import print_json, print_note, print_text
from ._running import asynchronous


@asynchronous
async def login(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The app: its table [apps.NAME] in abp.toml.")],
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings (default: abp.toml here).")
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", hidden=True)] = False,
    as_json: Json = False,
) -> None:
    """Sign in to an app in a visible browser, for later calls."""
    from ...session._named_apps import find_app, is_app_name
    from ...session._sign_in import sign_in

    file = read_config(config)
    app = find_app(file, name, None)
    if app is None:
        if not is_app_name(name):
            raise UsageError(
                f"{redact_url(name)!r} is not the name of an app; `abp login` takes the name of a table [apps.NAME] in "
                "the settings file"
            )
        raise UsageError(f"no app is called {name!r} in {file.path or 'abp.toml'}; add it: [apps.{name}] with its url")
    place = await sign_in(app, _wait_for_enter, headless=headless)
    if as_json:
        print_json({"success": True, "app": app.name, "kept": str(place)})
    else:
        print_text(f"Signed in to {app.name}; kept in {place}")


async def _wait_for_enter() -> None:
    """Ask the user to sign in, and wait for a line on stdin; wait for ever if stdin ends without one. A daemon thread
    reads, so that it does not delay the end of the program."""
    print_note("sign in, then close the window or press Enter here", always=True)
    loop, entered = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        if sys.stdin is not None and sys.stdin.readline():
            loop.call_soon_threadsafe(entered.set)

    threading.Thread(target=read, daemon=True, name="abp-stdin").start()
    await entered.wait()
