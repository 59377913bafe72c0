"""The opening handshake. Redirects are followed by hand: the websockets library passes headers on to other origins."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.uri import parse_uri

from ...errors import ConnectFailed
from ...protocol.urls import redact_url

__all__ = ["open_connection"]

_REDIRECTS, _MAX_REDIRECTS = (301, 302, 303, 307, 308), 5


class _Handshake(connect):
    """One handshake, which is not redirected."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def open_connection(
    url: str, *, headers: Mapping[str, str], timeout: float, options: Mapping[str, Any]
) -> ClientConnection:
    """Open a connection to ``url``, or where it redirects to, within ``timeout`` seconds. ``headers`` are sent to the
    origin of ``url``, until the first redirect away from it; ``options`` are those of the library.

    Raises :class:`~transports.errors.ConnectFailed` for a redirect that is not followed, and what the library raises.
    """
    sent: Mapping[str, str] | None = headers
    async with asyncio.timeout(timeout):
        for _ in range(_MAX_REDIRECTS + 1):
            try:
                return await _Handshake(url, additional_headers=sent, open_timeout=None, **options)
            except InvalidStatus as refused:
                locations = refused.response.headers.get_all("Location")
                if refused.response.status_code not in _REDIRECTS or len(locations) != 1:
                    raise
                before, url = url, urljoin(url, locations[0])
            old, new = parse_uri(before), parse_uri(url)
            if old.secure and not new.secure:
                raise ConnectFailed(
                    f"{redact_url(before)} redirects to {redact_url(url)}, without TLS, which is not followed; give "
                    "the address that it should lead to"
                )
            if (old.secure, old.host, old.port) != (new.secure, new.host, new.port):
                sent = None
    raise ConnectFailed(
        f"{redact_url(url)}: more than {_MAX_REDIRECTS} redirects; give the address they should lead to"
    )
