"""The bridge over streamable HTTP, for clients of a server that runs already."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping

import uvicorn
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

from ...errors import UsageError
from ...protocol.urls import is_loopback
from ...tasks import cancel_and_wait
from ..shared.listening import cannot_listen
from .bridge import Bridge
from .request_limit import TooLargeReply
from .tokens import BearerVerifier, JwtVerifier

__all__ = ["http_app", "parse_address", "serve_http"]

_PATH = "/mcp"
#: Seconds for requests under way when the server ends.
_SHUTDOWN_TIMEOUT = 1


def http_app(bridge: Bridge, users: Mapping[str, str], host: str) -> Starlette:
    """Return the ASGI application.

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
    )
    app.add_middleware(TooLargeReply, max_bytes=options.max_request_bytes, max_file_bytes=options.max_file_bytes)
    return app


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the command line handles them


async def serve_http(
    bridge: Bridge, host: str, port: int, users: Mapping[str, str], on_started: Callable[[str], object]
) -> None:
    """Serve until cancelled, then close all sessions. ``on_started`` is called with the URL.

    Raises :class:`~transports.errors.UsageError` (``ADDRESS_UNAVAILABLE``) if the address cannot be listened on; port 0
    takes a free one."""
    config = uvicorn.Config(
        http_app(bridge, users, host),
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
        on_started(f"http://{display_host}:{listening.getsockname()[1]}{_PATH}")
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await cancel_and_wait((retiring,))
        await bridge.aclose()  # first: calls under way would hold the server up
        await asyncio.wait((serving,), timeout=2 * _SHUTDOWN_TIMEOUT)
        listening.close()


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and port of ``HOST:PORT``. Raises :class:`~transports.errors.UsageError` for anything else, and
    for a host that is not the loopback of this machine."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 1 << 16 and is_loopback(host)):
        raise UsageError(
            f"--http {text}: give HOST:PORT of this machine, such as 127.0.0.1:8765; for others put a proxy with TLS "
            "before it"
        )
    return host, int(port)
