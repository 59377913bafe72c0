"""Server of the app on 127.0.0.1, on two ports: its own, and another as a second origin."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from webapp_fixture import downloads, fault_downloads, pages, websocket
from webapp_fixture.state import STATE, RequestRecord, State, record_request

HOST = "127.0.0.1"
STOP_WITHIN = 0.2  # seconds that running answers get when the server stops


@dataclass(frozen=True, slots=True)
class Fixture:
    """Addresses and records of a running server."""

    url: str
    """The app, ``http://127.0.0.1:PORT/``."""
    strict_url: str
    """The app under a Content-Security-Policy that allows only its own scripts."""
    other_origin: str
    """The same app on another port, for requests that cross origins."""
    token: str
    """The credential of the ``bearer``, ``bearerLine``, ``bearerToken`` and ``query`` downloads."""
    requests: Sequence[RequestRecord]
    """Requests to ``/downloads`` and ``/faults`` so far, on both ports, in order. The list grows."""
    ws_url: str
    """The app over WebSocket, ``ws://127.0.0.1:PORT/abp``; its query takes options (see ``websocket.py``)."""
    handshakes: Sequence[RequestRecord]
    """Requests for a WebSocket so far, refused or not. The list grows."""
    sockets: Collection[object]
    """The WebSocket connections that are open now."""
    embed_url: str
    """The app for an iframe. Below it: ``/strict``, and for faults ``/denied``, ``/ancestors``, ``/silent``,
    ``/shouting`` (see ``pages.py``)."""
    webmcp_url: str
    """The app that offers itself as WebMCP tools too. Below it: ``/cases``, a page with tools and forms of its own."""


async def _headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.setdefault("Cache-Control", "no-cache")
    response.headers["X-Content-Type-Options"] = "nosniff"


def build_app(state: State) -> web.Application:
    """Return the aiohttp application for a state."""
    app = web.Application(middlewares=[record_request])
    app[STATE] = state
    app.on_response_prepare.append(_headers)
    app.on_shutdown.append(websocket.stop_sockets)
    for table in (pages.routes, downloads.routes, fault_downloads.routes, websocket.routes):
        app.add_routes(table)
    app.router.add_static("/static", pages.STATIC)
    return app


@asynccontextmanager
async def serve(port: int = 0, *, interface: bool = True) -> AsyncIterator[Fixture]:
    """Serve the app while the context lasts. Port 0 takes a free one; the other origin always does.

    Without the ``interface`` for people, a page opens in two thirds of the processor time.
    """
    state = State(interface)
    runner = web.AppRunner(build_app(state), access_log=None, shutdown_timeout=STOP_WITHIN, handle_signals=False)
    await runner.setup()
    try:
        for listen_on in (port, 0):
            await web.TCPSite(runner, HOST, listen_on).start()
        state.origin, state.other_origin = (f"http://{HOST}:{address[1]}/" for address in runner.addresses)
        yield Fixture(
            url=state.origin,
            strict_url=f"{state.origin}strict",
            other_origin=state.other_origin,
            token=state.token,
            requests=state.requests,
            ws_url=f"{state.origin.replace('http', 'ws', 1)}abp",
            handshakes=state.handshakes,
            sockets=state.sockets,
            embed_url=f"{state.origin}embed",
            webmcp_url=f"{state.origin}webmcp",
        )
    finally:
        await runner.cleanup()
