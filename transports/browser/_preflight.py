"""A check for a listener at an app's address, before a browser is started for it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from urllib.parse import urlsplit

from ..errors import NOTHING_LISTENS, ConnectFailed, is_refused
from ..protocol import is_loopback, redact_url

#: Time limit of the check in seconds; after it, the result is left to the browser.
_PATIENCE = 2.0
#: The address that was checked ahead of a session, until that session takes it. A list, so that taking it is visible in
#: the context of every task that shares it.
_ahead: ContextVar[list[str]] = ContextVar("checked_ahead")


async def require_listener(url: str, *, ahead: bool = False) -> None:
    """Raise :class:`~transports.errors.ConnectFailed` if every address of the host refuses a connection. Each is tried
    once.

    Only addresses of this machine are checked: others may be behind a proxy that the browser knows and this process
    does not. A successful check ``ahead`` of a session replaces the session's own check, in the same task or in the
    tasks that it starts.
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
    except OSError as error:  # TimeoutError, too; for all but a refusal the browser has the better message
        if is_refused(error):
            message = f"cannot open {redact_url(url)}: {NOTHING_LISTENS}; start the app or correct the address"
            raise ConnectFailed(message) from error
    else:
        connection.abort()
        if ahead:
            _ahead.set([url])
