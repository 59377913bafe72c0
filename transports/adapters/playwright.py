"""The Playwright transport: drives an ABP page in a real Chromium, headless by default."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..base import Features
from ..browser.agent import PageAgent
from ..browser.effects import Dialogs
from ..browser.launch import Browser
from ..browser.transport import PageTransport, why_not_loaded
from ..errors import ConnectFailed, NotAbpApp, redact_url
from ..messages import decode_json

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["PlaywrightTransport"]


class PlaywrightTransport(PageTransport):
    """One page in a browser context of its own.

    ``browser`` is a running :class:`~transports.browser.launch.Browser` to share; without it one is started and ended.
    ``timeout`` in seconds covers starting and loading; ``grace`` is how long after the page has loaded ``window.abp``
    may take to appear. ``dialogs`` is how ``confirm`` and ``prompt`` are answered: ``"dismiss"``, or ``"accept"``
    (a prompt with the text it suggests). ``permissions`` are the names of what the app may do as if a user had agreed
    (``"clipboard-read"``, ``"geolocation"``, …); everything else that a browser asks about is denied.
    """

    name = "playwright"
    features = Features(listing=True, cookies=True)

    def __init__(
        self,
        url: str,
        *,
        browser: Browser | None = None,
        headless: bool = True,
        timeout: float = 30.0,
        grace: float = 5.0,
        dialogs: Dialogs = "dismiss",
        permissions: Collection[str] = (),
    ) -> None:
        super().__init__(
            url, browser=browser, headless=headless, timeout=timeout, dialogs=dialogs, permissions=permissions
        )
        self._grace = grace

    async def _enter(self, page: Page, agent: PageAgent) -> None:
        from playwright.async_api import Error

        try:
            response = await page.goto(self._target, wait_until="domcontentloaded", timeout=self._timeout * 1000)
        except Error as error:
            reason = why_not_loaded(str(error), self._target)
            raise ConnectFailed(f"cannot open {redact_url(self._target)}: {reason}") from error
        seen = decode_json(await agent.invoke("ready", int(self._grace * 1000), timeout=self._timeout))
        assert isinstance(seen, dict)
        self._require_abp(seen, response.status if response else None)

    def _require_abp(self, seen: Mapping[str, Any], status: int | None) -> None:
        page = f"the page at {redact_url(self._target)} (title {seen['title']!r}" + (
            f", HTTP {status})" if status else ")"
        )
        if seen["threw"]:
            raise NotAbpApp(f"{page} has a window.abp that throws: {seen['threw']}")
        if not seen["present"]:
            raise NotAbpApp(
                f"{page} has no window.abp {self._grace:g} s after it loaded; "
                "is it the right address, and does the app speak ABP?"
            )
        if seen["missing"]:
            raise NotAbpApp(f"{page} has a window.abp without {' and '.join(seen['missing'])}: it is not whole")
