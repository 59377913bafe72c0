"""A check of an app's address, for its host and for a listener, before a browser is started for it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextvars import ContextVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from ..errors import NOTHING_LISTENS, ConnectFailed, is_refused
from ..protocol._plain_text import is_loopback, redact_url

#: Time limit of the check for a listener in seconds; after it, the result is left to the browser.
_PATIENCE = 2.0
#: Likewise of the look-up of a name, which a browser does in far less time than it takes to start.
_LOOK_UP_PATIENCE = 0.1
#: The address that was checked ahead of a session, until that session takes it. A list, so that taking it is visible in
#: the context of every task that shares it.
_ahead: ContextVar[list[str]] = ContextVar("checked_ahead")


async def require_listener(url: str, *, ahead: bool = False) -> None:
    """Raise :class:`~transports.errors.ConnectFailed` if the host has no address, or if it is this machine and every
    address refuses a connection. Each is tried once.

    Addresses of other machines are not tried, and names are not looked up where there may be a proxy that knows them:
    the browser may use one that this process does not. A successful check ``ahead`` of a session replaces the session's
    own check, in the same task or in the tasks that it starts.
    """
    passed = _ahead.get([])
    if not ahead and url in passed:
        passed.remove(url)
        return
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https"):
        return
    if not is_loopback(host):
        await _require_host(url, host)
        if ahead:
            _ahead.set([url])
        return
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    try:
        async with asyncio.timeout(_PATIENCE):
            connection, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
    except OSError as error:  # TimeoutError, too; for all but a refusal the browser has the better message
        if is_refused(error):
            message = f"cannot open {redact_url(url)}: {NOTHING_LISTENS}; start the app or correct the address"
            raise ConnectFailed(message) from error
    else:
        connection.abort()
        if ahead:
            _ahead.set([url])


async def _require_host(url: str, host: str) -> None:
    if host.endswith(".localhost") or _may_use_proxy():  # a browser knows these names by itself
        return
    try:
        async with asyncio.timeout(_LOOK_UP_PATIENCE):
            await asyncio.get_running_loop().getaddrinfo(host, None)
    except socket.gaierror as error:  # of other faults the browser has the better message
        if error.errno == socket.EAI_NONAME:
            message = f"cannot open {redact_url(url)}: the host name is not known; correct the address"
            raise ConnectFailed(message) from error
    except (OSError, UnicodeError):
        return


def _may_use_proxy() -> bool:
    """Return whether a proxy is configured, or may be where this process cannot see it: in a desktop or its system."""
    return bool(getproxies()) or sys.platform != "linux" or "XDG_CURRENT_DESKTOP" in os.environ
