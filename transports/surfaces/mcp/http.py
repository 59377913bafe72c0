"""The bridge over streamable HTTP, for clients that find it running."""

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

from ...errors import ABPError, UsageError
from ...protocol.urls import is_loopback
from ...tasks import cancel_and_wait
from .bridge import Bridge
from .tokens import Signed, Verifier

__all__ = ["address", "http_app", "serve_http"]

_PATH = "/mcp"
#: Seconds for requests under way when the server ends.
_GOODBYE = 1


def http_app(bridge: Bridge, users: Mapping[str, str], host: str) -> Starlette:
    """The ASGI application. Every request needs a bearer token of ``users``, or a signed one, and Host and Origin of
    this machine or ``host``: a web page elsewhere must not get in (DNS rebinding). Raises
    :class:`~transports.errors.UsageError` for keys that cannot be used."""
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
    security = TransportSecuritySettings(
        allowed_hosts=[*(f"{name}:*" for name in names), *names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )
    return bridge.server.streamable_http_app(
        streamable_http_path=_PATH,
        host=host,
        transport_security=security,
        max_request_body_size=bridge.options.max_request_bytes,
        token_verifier=Verifier(users, Signed(bridge.options) if bridge.options.jwt_issuer else None),
        auth=AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None),
    )


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the command line hears them


async def serve_http(
    bridge: Bridge, host: str, port: int, users: Mapping[str, str], started: Callable[[str], object]
) -> None:
    """Serve until cancelled; then close all sessions. ``started`` gets the address. Raises
    :class:`~transports.errors.ABPError` where nothing can listen."""
    config = uvicorn.Config(
        http_app(bridge, users, host),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_GOODBYE,
    )
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ABPError(
            f"cannot listen on {host}:{port} ({error.strerror}); name another with --http, port 0 for a free one"
        ) from error
    server = _Uvicorn(config)
    shown = f"[{host}]" if ":" in host else host
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    retiring = asyncio.ensure_future(bridge.retire_idle())
    try:
        started(f"http://{shown}:{listening.getsockname()[1]}{_PATH}")
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await cancel_and_wait((retiring,))
        await bridge.aclose()  # first: calls under way would hold the server up
        await asyncio.wait((serving,), timeout=2 * _GOODBYE)
        listening.close()


def address(text: str) -> tuple[str, int]:
    """``HOST:PORT``. Raises :class:`~transports.errors.UsageError`, also for a host that is not this machine alone."""
    host, mark, port = text.rpartition(":")
    host = host.strip("[]")
    if not (mark and port.isascii() and port.isdigit() and int(port) < 1 << 16 and is_loopback(host)):
        raise UsageError(
            f"--http {text}: give HOST:PORT of this machine, such as 127.0.0.1:8765; for others put a proxy with TLS "
            "before it"
        )
    return host, int(port)
