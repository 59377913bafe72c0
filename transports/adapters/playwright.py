"""The Playwright transport: drives an ABP page in a real browser, headless by default."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from ..base import Features
from ..browser.effects.page_effects import Dialogs
from ..browser.page.agent import PageAgent, is_closed
from ..browser.page.navigation import explain_load_failure
from ..browser.page.problems import not_abp, read_problems
from ..browser.process.extension import extension_folder, extension_page_in
from ..browser.process.launch import Browser
from ..browser.source import PageSource, StorageState
from ..browser.timeouts import playwright_timeout
from ..browser.transport import PageTransport
from ..errors import ConnectFailed, UsageError, format_seconds
from ..protocol.strict_json import decode_json
from ..protocol.urls import redact_url

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

__all__ = ["PlaywrightTransport"]


class PlaywrightTransport(PageTransport):
    """The app at ``url``, or in a Chrome extension (``extension:FOLDER``, or a folder with a ``manifest.json``; its
    page is ``extension_page``).

    ``browser`` is the name of one to start (see :class:`~transports.Browser`), or a running ``Browser`` to share.
    Without a browser of ours, one of these says where the page is:

    - ``page``: the caller's own page of ``playwright.async_api``. An app that is loaded there already is driven as it
      is; a page at another address than ``url`` navigates there. It stays open.
    - ``context``: the caller's own context, in which a page of ours is opened, and closed again.
    - ``cdp_url``: a running Chromium, where a tab of ours is opened, and closed again.

    ``profile`` is a folder that keeps what a user is signed in to; ``storage_state`` is what
    ``context.storage_state()`` has written. ``timeout`` in seconds covers starting and loading; ``grace`` is how many
    seconds ``window.abp`` may take to appear after the page has loaded.

    ``dialogs`` says how ``confirm`` and ``prompt`` are answered: ``"dismiss"``, or ``"accept"`` (a prompt with the text
    it suggests). ``permissions`` are granted as if a user had agreed (``"clipboard-read"``, ``"geolocation"``, …);
    everything else that a browser asks about is denied. Neither is for a caller's own page.

    Raises :class:`~transports.errors.UsageError` if options contradict each other.
    """

    name = "playwright"
    features = Features(listing=True, reconnects=True, cookies=True)

    def __init__(
        self,
        url: str,
        *,
        browser: Browser | str | None = None,
        page: Page | None = None,
        context: BrowserContext | None = None,
        profile: str | Path | None = None,
        storage_state: StorageState | None = None,
        cdp_url: str | None = None,
        extension_page: str | None = None,
        headless: bool = True,
        timeout: float = 30.0,
        grace: float = 5.0,
        dialogs: Dialogs = "dismiss",
        permissions: Collection[str] = (),
    ) -> None:
        folder = extension_folder(url)
        if extension_page is not None and folder is None:
            raise UsageError("extension_page= is for a Chrome extension; give extension:FOLDER as the target")
        self._extension_page = extension_page_in(folder, extension_page) if folder else ""
        source = PageSource(browser, page, context, profile, storage_state, cdp_url, folder, headless)
        super().__init__(url, source=source, timeout=timeout, dialogs=dialogs, permissions=permissions)
        self._grace = grace

    async def _load_app(self, page: Page, agent: PageAgent) -> None:
        from playwright.async_api import Error

        if self._source.extension is not None and self._browser is not None:
            extension = await self._browser.load_extension(self._source.extension)
            self._target = f"chrome-extension://{extension}/{self._extension_page}"
        status = None
        if page is not self._source.page or not _same_document(page.url, self._target):
            try:
                response = await page.goto(
                    self._target, wait_until="domcontentloaded", timeout=playwright_timeout(self._timeout)
                )
            except Error as error:
                if is_closed(error):
                    raise
                reason = explain_load_failure(str(error), self._target)
                raise ConnectFailed(f"cannot open {redact_url(self._target)}: {reason}") from None
            status = response.status if response else None
        found = decode_json(await agent.invoke("ready", int(self._grace * 1000), timeout=self._timeout))
        assert isinstance(found, dict)
        if fault := self._fault(found):
            seen = f"title {found['title']!r}" + (f", HTTP {status}" if status else "")
            advice = "" if found["present"] else "is it the right address, and does the app speak ABP?"
            raise not_abp(f"the page at {redact_url(self._target)} ({seen}) {fault}", advice, await read_problems(page))

    def _fault(self, found: Mapping[str, Any]) -> str:
        """Return what is wrong with the page's ``window.abp``; empty if it is whole."""
        if found["threw"]:
            return f"has a window.abp that throws: {found['threw']}"
        if not found["present"]:
            return f"has no window.abp {format_seconds(self._grace)} after it loaded"
        if found["missing"]:
            return f"has a window.abp without {' and '.join(found['missing'])}: it is not whole"
        return ""


def _same_document(current: str, target: str) -> bool:
    """Whether a page at ``current`` need not navigate to ``target``. A fragment counts only if the target has one."""
    current_parts, target_parts = urlsplit(current), urlsplit(target)
    fragment = target_parts.fragment in ("", current_parts.fragment)
    return fragment and _document(current_parts) == _document(target_parts)


def _document(parts: SplitResult) -> tuple[str, str, str, str]:
    return parts.scheme, parts.netloc.lower(), parts.path or "/", parts.query
