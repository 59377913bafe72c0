"""A check whether anything listens at an app's address, before a browser is started for it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from urllib.parse import urlsplit

from ..errors import NOTHING_LISTENS, ConnectFailed, is_refused
from ..protocol import is_loopback, redact_url

#: Seconds that the check may take; then the browser finds out.
_PATIENCE = 2.0
#: The address, in a list of one, that was checked ahead of a session and not for it yet.
_ahead: ContextVar[list[str]] = ContextVar("checked_ahead")


async def require_listener(url: str, *, ahead: bool = False) -> None:
    """Raise :class:`~transports.errors.ConnectFailed` if every address of the host refuses a connection, each of which
    is tried once.

    Only for addresses of this machine: others may be behind a proxy that the browser knows and this process does not.
    A check ``ahead`` of a session stands for the session's own, in the same task or in those that it starts: one that
    was passed is not repeated.
    """
    passed = _ahead.get([])
    if not ahead and url in passed:
        passed.remove(url)
        return
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not is_loopback(host):
        return
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    try:
        async with asyncio.timeout(_PATIENCE):
            connection, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
    except OSError as error:  # TimeoutError, too; whatever else is wrong, the browser says better
        if is_refused(error):
            message = f"cannot open {redact_url(url)}: {NOTHING_LISTENS}; start the app or correct the address"
            raise ConnectFailed(message) from error
    else:
        connection.abort()
        if ahead:
            _ahead.set([url])
