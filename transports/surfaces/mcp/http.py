"""The bridge over streamable HTTP, for clients of a server that runs already."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import uvicorn
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...protocol.initialize import package_version
from ...tasks import cancel_and_wait
from ...telemetry.prometheus import Exposition
from ..shared.connections import Connections
from ..shared.listening import cannot_listen
from .bridge import Bridge
from .metrics_route import metrics_route
from .request_limit import ServedConnection, SlowReply, TooLargeReply
from .tokens import BearerVerifier, JwtVerifier

__all__ = ["http_app", "serve_http"]

_PATH = "/mcp"
#: Seconds for requests under way when the server ends.
_SHUTDOWN_TIMEOUT = 1


def http_app(bridge: Bridge, users: Mapping[str, str], host: str, exposition: Exposition) -> Starlette:
    """Return the ASGI application. ``exposition`` is shown at ``/metrics``, behind the same checks.

    Every request needs a bearer token of ``users`` (token to user), or a signed one, and a ``Host`` and ``Origin`` of
    this machine or ``host``: a web page elsewhere must not get in (DNS rebinding). Raises
    :class:`~transports.errors.UsageError` for keys of signed tokens that cannot be used."""
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
    security = TransportSecuritySettings(
        allowed_hosts=[*(f"{name}:*" for name in names), *names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )
    options = bridge.options
    app = bridge.server.streamable_http_app(
        streamable_http_path=_PATH,
        host=host,
        transport_security=security,
        max_request_body_size=options.max_request_bytes,
        token_verifier=BearerVerifier(users, JwtVerifier(options) if options.jwt_issuer else None),
        auth=AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None),
        custom_starlette_routes=[metrics_route(exposition, security)],
    )
    app.add_middleware(TooLargeReply, max_bytes=options.max_request_bytes, max_file_bytes=options.max_file_bytes)
    app.add_middleware(SlowReply)
    return app


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the command line handles them


async def serve_http(
    bridge: Bridge,
    host: str,
    port: int,
    users: Mapping[str, str],
    on_started: Callable[[str], object],
    *,
    connections: Connections | None = None,
) -> None:
    """Serve until cancelled, then close all sessions. ``on_started`` is called with the URL; ``connections`` are those
    of another server of this process, which share its limits.

    Raises :class:`~transports.errors.UsageError` (``ADDRESS_UNAVAILABLE``) if the address cannot be listened on; port 0
    takes a free one."""
    connections = connections or Connections()
    exposition = Exposition(package_version())
    app = http_app(bridge, users, host, exposition)
    app.add_middleware(ServedConnection, connections=connections)

    def protocol(**options: Any) -> asyncio.Protocol:
        return connections.protocol_factory(lambda: H11Protocol(**options))()

    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", protocol),  # it is only called
        ws="none",
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
    )
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise cannot_listen(host, port, error, f"--http {host}:PORT") from error
    server = _Uvicorn(config)
    display_host = f"[{host}]" if ":" in host else host
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    retiring = asyncio.ensure_future(bridge.retire_idle())
    try:
        with exposition.recording():
            on_started(f"http://{display_host}:{listening.getsockname()[1]}{_PATH}")
            await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await cancel_and_wait((retiring,))
        await bridge.aclose()  # first: calls under way would hold the server up
        await asyncio.wait((serving,), timeout=2 * _SHUTDOWN_TIMEOUT)
        listening.close()
