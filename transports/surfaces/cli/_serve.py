"""``abp serve``: the artifacts and the gallery over HTTP."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ...session._settings import read_config
from ._options import AdapterFile, Limits, Output, SharedBrowsers, State, Ttl, open_limited_store
from ._output import asynchronous, print_json, print_text
from ._signals import expect_signal


def variables() -> set[str]:
    """Return the names of the variables that the web server reads."""
    from ..web._options import Options

    return {f"ABP_SERVE_{name.upper()}" for name in Options.model_fields}


@asynchronous
async def serve(
    targets: Annotated[
        list[str] | None, typer.Option("--app", metavar="TARGET", help="Connect this app; may be given several times.")
    ] = None,
    adapter: AdapterFile = None,
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    host: Annotated[
        str, typer.Option("--host", metavar="H", help="Address to listen on; a token is needed unless it is local.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="T", help="The operator's token (default: ABP_SERVE_TOKEN, or a new one)."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="File with a table [retention] (default: abp.toml here)."),
    ] = None,
    browsers: SharedBrowsers = None,
    runs: Annotated[
        list[str] | None,
        typer.Option("--batch", metavar="RUN", help="Show this run, or the runs in this folder (repeatable)."),
    ] = None,
    output: Output = None,
    ttl: Ttl = None,
    limits: Limits = None,
    state: State = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print address and token as one line of JSON.")] = False,
) -> None:
    """Serve artifacts and the gallery over HTTP, until Ctrl-C."""
    from ...artifacts._sweeping import sweeping
    from ...session._connect import connect
    from ...session._named_apps import app_entries
    from ..shared._apps import adapter_options, pooled
    from ..shared._detached import CallLedger
    from ..web._options import Options
    from ..web._server import serve as serve_web

    connect_options = adapter_options(targets or (), adapter)
    options = Options.load(token=token, browsers=browsers)
    named = app_entries(read_config(config))
    async with (
        open_limited_store(output, ttl, limits, config=config) as store,
        sweeping(store),
        pooled(partial(connect, config=config), options.browsers, store, config=config) as connect_app,
        CallLedger(state) as ledger,
        serve_web(
            store,
            options,
            host=host,
            port=port,
            connect=connect_app,
            runs=runs or (),
            ledger=ledger,
            named=named,
        ) as served,
    ):
        for target in targets or ():
            await served.apps.connect(target, connect_options)
        if as_json:
            print_json({"url": served.url, "token": served.token})
        else:
            print_text(f"Open {served.page}")
            print_text("Ctrl-C ends it.")
        expect_signal()
        await asyncio.Event().wait()
