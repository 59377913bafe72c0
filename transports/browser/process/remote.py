"""Browsers that run elsewhere: reached over the DevTools protocol, or through a Playwright server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit, urlunsplit

from ...errors import ConnectFailed, UsageError
from ...protocol.urls import origin_of, redact_url
from ..timeouts import playwright_timeout

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import Playwright

__all__ = ["Remote"]


@dataclass(frozen=True, slots=True)
class Remote:
    """The address of a browser that runs already, and the headers that are sent to it; neither is ever shown whole.

    With ``is_server`` it is that of a Playwright server, else of a Chromium's DevTools.
    """

    url: str
    headers: Mapping[str, str]
    is_server: bool

    @classmethod
    def of(cls, cdp_url: str | None, browser_server: str | None, headers: Mapping[str, str] | None) -> Self | None:
        """Return what these options name, if they name one. Raises :class:`~transports.errors.UsageError` for two
        addresses, and for headers without one."""
        if cdp_url is not None and browser_server is not None:
            raise UsageError("cdp_url= and browser_server= each name a browser; give one of them")
        url = browser_server if cdp_url is None else cdp_url
        if url is None:
            if headers is not None:
                raise UsageError("headers= go to a browser that runs elsewhere; give cdp_url= or browser_server=")
            return None
        return cls(url, dict(headers or {}), browser_server is not None)

    @property
    def display_name(self) -> str:
        """The address without secrets."""
        return redact_url(self.url)

    async def connect(self, playwright: Playwright, engine: str, *, timeout: float) -> PlaywrightBrowser:
        """Return the browser, connected within ``timeout`` seconds."""
        limit = playwright_timeout(timeout)
        if self.is_server:
            kind = getattr(playwright, engine)
            server: PlaywrightBrowser = await kind.connect(self.url, headers=dict(self.headers), timeout=limit)
            return server
        url, headers = await self._endpoint(playwright, limit) if self.headers else (self.url, {})
        # Without Playwright's defaults: its download, media and focus settings stay as its user has them.
        return await playwright.chromium.connect_over_cdp(url, headers=headers, no_defaults=True, timeout=limit)

    async def _endpoint(self, playwright: Playwright, limit: float) -> tuple[str, dict[str, str]]:
        """Return the WebSocket of a Chromium, and the headers for it: those are for the origin of the address alone.
        Playwright asks for it, too, but sends the headers wherever a redirect or the answer leads."""
        headers = dict(self.headers)
        if self.url.lower().startswith(("ws:", "wss:")):
            return self.url, headers
        parts = urlsplit(self.url)
        asked = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/json/version/"))
        asking = await playwright.request.new_context(extra_http_headers=headers)
        try:
            answer = await asking.get(asked, max_redirects=0, timeout=limit)
            text = await answer.text()
        finally:
            await asking.dispose()
        try:
            url = json.loads(text)["webSocketDebuggerUrl"] if answer.ok else None
        except (ValueError, TypeError, KeyError):
            url = None
        if not isinstance(url, str):
            raise self.error(f"(it answered HTTP {answer.status} to /json/version and names no WebSocket)")
        return url, headers if origin_of(url) == origin_of(self.url) else {}

    def error(self, reason: str) -> ConnectFailed:
        """Return the error for a browser that could not be reached."""
        reason = reason.replace(self.url, self.display_name)  # its query may hold a key
        for value in self.headers.values():
            reason = reason.replace(value, "…") if value else reason
        how = (
            "start one of the same version of Playwright with `playwright run-server`"
            if self.is_server
            else "start one with --remote-debugging-port=9222 and a --user-data-dir of its own"
        )
        return ConnectFailed(f"no browser to attach to at {self.display_name} {reason}; {how}, and give its address")
