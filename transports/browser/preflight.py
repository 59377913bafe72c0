"""A look whether anything listens at an app's address, before a browser is started for it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from ..errors import ConnectFailed
from ..protocol.urls import is_loopback, redact_url
from .page.navigation import NOTHING_LISTENS

__all__ = ["require_listener"]

#: Seconds that the look may take; then the browser finds out.
_PATIENCE = 2.0


async def require_listener(url: str) -> None:
    """Raise :class:`~transports.errors.ConnectFailed` if every address of the host refuses a connection, each of which
    is tried once.

    Only for addresses of this machine: others may be behind a proxy that the browser knows and this process does not.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not is_loopback(host):
        return
    with suppress(TimeoutError, OSError):  # whatever else is wrong, the browser says better
        async with asyncio.timeout(_PATIENCE):
            if await _is_refused(host, parts.port or {"http": 80, "https": 443}[parts.scheme]):
                raise ConnectFailed(f"cannot open {redact_url(url)}: {NOTHING_LISTENS}")


async def _is_refused(host: str, port: int) -> bool:
    loop = asyncio.get_running_loop()
    refused = False
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as probe:
            probe.setblocking(False)
            try:
                await loop.sock_connect(probe, address)
            except OSError as error:  # a machine without IPv6 has no way to ::1
                refused = refused or isinstance(error, ConnectionRefusedError)
                continue
            return False
    return refused
