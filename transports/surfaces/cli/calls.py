"""``abp call`` and ``abp capabilities``."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .answers import print_result
from .output import print_json, print_text, printable, run_async
from .params import read_params, require_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from ...protocol.declarations import AppInfo, Capability
    from ...protocol.payloads import Progress

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The app: http://127.0.0.1:8000/, ws://127.0.0.1:8000/abp, extension:FOLDER, mcp+stdio:COMMAND, "
        "replay:FILE",
    ),
]
TransportName = Annotated[
    str,
    typer.Option(
        "--transport", metavar="NAME", help="How to reach it: auto, playwright, webmcp, postmessage, websocket, mcp."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")]
BrowserName = Annotated[
    str | None, typer.Option("--browser", metavar="NAME", help="chromium, chrome, msedge, firefox or webkit.")
]
Profile = Annotated[
    Path | None, typer.Option("--profile", metavar="DIR", help="Browser profile to use and keep: stays signed in.")
]
StorageState = Annotated[
    Path | None, typer.Option("--storage-state", metavar="FILE", help="Cookies and storage to begin with (Playwright).")
]
CdpUrl = Annotated[
    str | None, typer.Option("--cdp-url", metavar="URL", help="Attach to a running Chromium: http://127.0.0.1:9222")
]
AdapterFile = Annotated[
    Path | None,
    typer.Option("--adapter", metavar="FILE", help="Script that makes an app of a page without a protocol."),
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="S", min=0.001, max=1e6, help="Seconds to wait for an answer.")
]


def call(
    target: Target,
    capability: Annotated[str, typer.Argument(metavar="CAPABILITY", help="Its name, such as export.pdf")],
    params: Annotated[
        str | None, typer.Option("--params", metavar="JSON|@FILE|-", help="Parameters: JSON, a file, or stdin.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("-p", metavar="KEY=VALUE", help="One parameter; JSON if it is valid JSON, else text."),
    ] = None,
    file: Annotated[list[str] | None, typer.Option("--file", metavar="KEY=PATH", help="A file as a parameter.")] = None,
    transport: TransportName = "auto",
    output: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for the files (default: ABP_OUTPUT_DIR).")
    ] = None,
    timeout: Timeout = None,
    browser: BrowserName = None,
    profile: Profile = None,
    storage_state: StorageState = None,
    cdp_url: CdpUrl = None,
    adapter: AdapterFile = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record it, to be called again as replay:FILE.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help="How answers are read: tableau, github, one that is installed."),
    ] = None,
    as_json: Json = False,
    insecure_private_addresses: Annotated[
        bool, typer.Option("--insecure-private-addresses", help="Let downloadUrls lead to private addresses.")
    ] = False,
) -> int:
    """Call one capability; every result becomes a file."""

    def work() -> Coroutine[object, object, int]:
        if insecure_private_addresses:
            os.environ["ABP_ALLOW_PRIVATE_ADDRESSES"] = "1"
        require_folder(record)
        return answer(read_params(params, param or [], file or []))

    async def answer(values: dict[str, object]) -> int:
        from ...session.connect import connect

        with ExitStack() as stack:
            on_progress = stack.enter_context(_Bar(capability)) if sys.stderr.isatty() else None
            session = connect(
                target,
                transport=transport,
                store=output,
                browser=browser,
                profile=profile,
                storage_state=storage_state,
                cdp_url=cdp_url,
                adapter=adapter,
                record=record,
                routing=preset,
            )
            async with session as app:
                result = await app.call(capability, values, timeout=timeout, on_progress=on_progress)
        if as_json:
            print_json(result.as_dict())
        else:
            print_result(result)
        return 0

    return run_async(work)


def capabilities(
    target: Target,
    transport: TransportName = "auto",
    browser: BrowserName = None,
    profile: Profile = None,
    storage_state: StorageState = None,
    cdp_url: CdpUrl = None,
    adapter: AdapterFile = None,
    as_json: Json = False,
) -> int:
    """List what an app can do."""

    async def work() -> int:
        from ...session.connect import connect

        session = connect(
            target,
            transport=transport,
            store="none:",
            browser=browser,
            profile=profile,
            storage_state=storage_state,
            cdp_url=cdp_url,
            adapter=adapter,
        )
        async with session as app:
            if as_json:
                listed = [capability.model_dump(by_alias=True) for capability in app.capabilities.values()]
                print_json(
                    {
                        "success": True,
                        "app": app.info.model_dump(),
                        "transport": app.transport.name,
                        "capabilities": listed,
                    }
                )
                return 0
            print_capabilities(app.info, app.capabilities.values())
        return 0

    return run_async(work)


class _Bar:
    """A progress bar on the terminal. Entering it gives the callback for progress."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[stage]}", markup=False),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(printable(label), total=None, stage="")

    def __enter__(self) -> Callable[[Progress], None]:
        self._progress.start()
        return self._move

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _move(self, progress: Progress) -> None:
        stage = " ".join(printable(progress.stage or progress.status or "").split())
        if progress.fraction is None:
            self._progress.update(self._task, stage=stage)
        else:
            self._progress.update(self._task, total=1.0, completed=progress.fraction, stage=stage)


def print_capabilities(app: AppInfo, capabilities: Collection[Capability]) -> None:
    """Print one line for the app and one for each capability."""
    print_text(f"{app.name} {app.version} ({app.id})")
    width = max((len(capability.name) for capability in capabilities), default=0)
    for capability in capabilities:
        flags = "" if capability.available else " [unavailable]"
        flags += " [experimental]" * capability.experimental + " [deprecated]" * capability.deprecated
        print_text(f"  {capability.name:<{width}}  {capability.description}{flags}")
