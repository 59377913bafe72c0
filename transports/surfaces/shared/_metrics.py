"""Server of the metrics of a program, at ``/metrics``, for commands that have no web server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from ..._internal.telemetry._prometheus import CONTENT_TYPE, Exposition
from ...protocol._plain_text import is_loopback
from ...protocol.messages import package_version
from ._listening import Connections, hostname, listening, url_host


@asynccontextmanager
async def serve_metrics(host: str, port: int, option: str) -> AsyncIterator[str]:
    """Serve the metrics and yield their URL. ``host`` is a loopback address. Requests for other host names are refused,
    so that foreign web pages cannot read the metrics (DNS rebinding). ``option`` is the option for the address."""
    exposition = Exposition(package_version())
    connections = Connections()
    no_log = logging.Logger("aiohttp", logging.CRITICAL)
    runner = web.AppRunner(_metrics_app(exposition, connections), access_log=None, logger=no_log, shutdown_timeout=1.0)
    await runner.setup()
    try:
        assert runner.server is not None
        protocol_factory = connections.protocol_factory(runner.server)
        async with listening(host, port, option, protocol_factory) as actual_port:
            with exposition.recording():
                yield f"http://{url_host(host)}:{actual_port}/metrics"
    finally:
        await runner.cleanup()


def _metrics_app(exposition: Exposition, connections: Connections) -> web.Application:
    @web.middleware
    async def refuse_web_pages(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        with connections.serving():
            if not is_loopback(hostname(request.host)) or "Origin" in request.headers:
                raise web.HTTPForbidden(text="use an address of this machine, and not from a web page\n")
            return await handler(request)

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=exposition.render(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application(middlewares=[refuse_web_pages])
    app.add_routes([web.get("/metrics", show)])
    return app
