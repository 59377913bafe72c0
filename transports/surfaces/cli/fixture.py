"""``abp fixture``: serve the reference app."""

from __future__ import annotations

import asyncio
import errno
from typing import Annotated

import typer

from ..shared.listening import cannot_listen
from .output import asynchronous, print_json, print_text

#: The addresses of the reference app, by their names in the JSON document.
_ADDRESSES = {
    "url": "Workbench",
    "strict_url": "with a strict content policy",
    "embed_url": "for an iframe",
    "ws_url": "over a WebSocket",
    "other_origin": "on a second origin",
}


@asynchronous
async def fixture(
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as one line of JSON.")] = False,
) -> None:
    """Serve the reference app, Workbench, until Ctrl-C."""
    from webapp_fixture import serve

    try:
        async with serve(port=port) as served:
            if as_json:
                print_json({name: getattr(served, name) for name in _ADDRESSES})
            else:
                for name, label in _ADDRESSES.items():
                    print_text(f"{label + ':':<30} {getattr(served, name)}")
                print_text(f"{'with faults, for tests:':<30} {served.url}?faults")
                print_text("Ctrl-C ends it.")
            await asyncio.Event().wait()
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise cannot_listen("127.0.0.1", port, error, "--port") from error
