"""Makes PDFs of HTML and pictures of a page: what a browser offers besides driving an app."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from playwright.async_api import Error
from playwright.async_api import TimeoutError as PlaywrightTimeout

from ..base import Fetch, PdfOptions, ScreenshotOptions
from ..binary import BinaryData
from ..errors import CallTimeout, TransportError, UsageError, first_line, format_seconds
from ..protocol.urls import is_page, redact_url
from .fetching import FetchedRequests
from .judged_network import Judge, JudgedNetwork
from .page.navigation import explain_load_failure
from .source import Tab, close_quietly
from .timeouts import playwright_timeout

if TYPE_CHECKING:
    from playwright.async_api import Page, ProxySettings, ViewportSize

    from .process.launch import Browser

__all__ = ["render_to_pdf", "screenshot", "screenshot_of_url"]

#: The view of a page that is opened for a picture, and the largest view, in CSS pixels (docs/requirements.md R3-7).
_VIEW: ViewportSize = {"width": 1280, "height": 800}
_MAX_VIEW = {"width": 1920, "height": 1080}
#: Seconds that a picture waits for the network at most.
_IDLE_TIMEOUT = 15.0
#: A proxy that is not there: nothing listens at the port of RFC 863. Playwright sends loopback addresses there, too.
_NO_PROXY: ProxySettings = {"server": "socks5://127.0.0.1:9"}
#: Peer connections send datagrams past proxies. This runs before the first script of every frame.
_NO_WEBRTC = "for (const name of ['RTCPeerConnection', 'webkitRTCPeerConnection']) delete globalThis[name];"

#: Chromium's words for a connection that a proxy did not make, and its page for a navigation that failed.
_BY_PROXY, _ERROR_PAGE = "ERR_SOCKS_CONNECTION", "chrome-error:"


async def render_to_pdf(tab: Tab, html: str, options: PdfOptions, *, timeout: float, fetch: Fetch | None) -> BinaryData:
    """Return ``html`` as a PDF; ``timeout`` in seconds.

    The HTML is loaded in a context of its own without a network: it sees neither the app nor its cookies, and only
    what is in it (``data:`` and ``blob:`` URLs too) and what ``fetch`` gives is in the PDF. Raises
    :class:`~transports.errors.UsageError` if the browser of a caller's page opens no other context.
    """
    given: dict[str, Any] = {"print_background": True, **_validated(options, PdfOptions, "render_to_pdf")}
    with _map_errors("render_to_pdf", timeout):
        async with asyncio.timeout(timeout), _page_without_network(tab, fetch) as page:
            await page.set_content(html, wait_until="load", timeout=playwright_timeout(timeout))
            return BinaryData(await page.pdf(**given), "application/pdf")


async def screenshot(tab: Tab, options: ScreenshotOptions, *, timeout: float) -> BinaryData:
    """Return what the page of ``tab`` shows now, or what is at the option ``url``, as PNG or JPEG (``type="jpeg"``);
    ``timeout`` in seconds. Another page is in a context of its own, or, if the app's
    context is shared with other sessions, in that one."""
    picture = _Picture(options, timeout)
    with _map_errors("screenshot", timeout):
        async with asyncio.timeout(timeout):
            if picture.url is None:
                return await picture.of_page(tab.page)
            async with _separate_page(tab) as page:
                return await picture.of_url(page, picture.url)


async def screenshot_of_url(
    browser: Browser, url: str, options: ScreenshotOptions, judge: Judge, *, timeout: float
) -> tuple[BinaryData, list[str]]:
    """Return what is at ``url`` in a context of its own of ``browser``, and what may be missing in it and why.

    ``judge`` is asked before each connection of the page. What it refuses is not loaded; if that is the page itself,
    also later than its first document, there is no picture.
    """
    picture = _Picture({**options, "url": url}, timeout)
    with _map_errors("screenshot", timeout):
        async with asyncio.timeout(timeout), JudgedNetwork(judge) as network:
            context = await browser.playwright.new_context(
                accept_downloads=False, service_workers="block", proxy=network.proxy
            )
            try:
                await context.add_init_script(_NO_WEBRTC)
                taken = await picture.of_url(await context.new_page(), url, network)
            finally:
                await close_quietly(context)
    return taken, network.refused


class _Picture:
    """A picture that is to be taken, with validated options."""

    def __init__(self, options: ScreenshotOptions, timeout: float) -> None:
        self._given = cast("dict[str, Any]", _validated(options, ScreenshotOptions, "screenshot"))
        self.url: str | None = self._given.pop("url", None)
        if self.url is not None and not is_page(str(self.url)):
            raise UsageError("screenshot: url must begin with http:// or https://")
        self._width, self._height = (self._size(name, limit) for name, limit in _MAX_VIEW.items())
        self._timeout = timeout

    def _size(self, name: str, limit: int) -> int | None:
        size = self._given.pop(name, None)
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= limit):
            raise UsageError(f"screenshot: {name} must be a whole number from 1 to {limit}, not {size!r}")
        return size

    async def of_page(self, page: Page) -> BinaryData:
        """The page as it is, in another size of view if one is given."""
        if self._width is None and self._height is None:
            return await self._taken(page)
        before = page.viewport_size
        if before is None:
            raise UsageError("screenshot: this page has the size of its window; leave width and height out")
        await page.set_viewport_size(self._view(before))
        try:
            await self._idle(page)
            return await self._taken(page)
        finally:
            with contextlib.suppress(Error):
                await page.set_viewport_size(before)

    async def of_url(self, page: Page, url: str, network: JudgedNetwork | None = None) -> BinaryData:
        """What is at ``url``, once the network is idle."""
        await page.set_viewport_size(self._view(_VIEW))
        try:
            await page.goto(url, wait_until="load", timeout=playwright_timeout(self._timeout))
        except PlaywrightTimeout:
            raise
        except Error as error:
            if network is not None and network.failed and _BY_PROXY in error.message:
                raise _not_opened(url, network.failed) from error
            raise _not_opened(url, explain_load_failure(str(error), url)) from error
        await self._idle(page)
        taken = await self._taken(page)
        if network is not None and network.failed and page.url.startswith(_ERROR_PAGE):
            raise _not_opened(url, network.failed)
        return taken

    def _view(self, default: ViewportSize) -> ViewportSize:
        return {"width": self._width or default["width"], "height": self._height or default["height"]}

    async def _idle(self, page: Page) -> None:
        """Wait for the network; a page that is never idle is taken as it is in the end."""
        with contextlib.suppress(PlaywrightTimeout):
            seconds = min(_IDLE_TIMEOUT, self._timeout / 2)
            await page.wait_for_load_state("networkidle", timeout=playwright_timeout(seconds))

    async def _taken(self, page: Page) -> BinaryData:
        data = await page.screenshot(**self._given, timeout=playwright_timeout(self._timeout))
        return BinaryData(data, "image/jpeg" if self._given.get("type") == "jpeg" else "image/png")


def _not_opened(url: str, reason: str) -> UsageError:
    return UsageError(f"screenshot: cannot open {redact_url(url)}: {reason}")


def _validated(options: Mapping[str, object], kind: type, tool: str) -> dict[str, object]:
    """Return the options in ``snake_case``. A type checker sees wrong ones; this is for those that come as JSON.

    ``camelCase``, as Playwright has it in JavaScript, is accepted too.
    """
    named = {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower(): value for name, value in options.items()}
    if unknown := sorted(set(named) - set(kind.__annotations__)):
        raise UsageError(
            f"{tool} has no option {', '.join(unknown)}; there are {', '.join(sorted(kind.__annotations__))}"
        )
    return named


@contextlib.asynccontextmanager
async def _separate_page(tab: Tab) -> AsyncIterator[Page]:
    browser, context = tab.browser, tab.page.context
    separate = None
    if browser is not None and not browser.shares_context:
        separate = context = await browser.playwright.new_context()
    page = await context.new_page()
    try:
        yield page
    finally:
        await close_quietly(separate or page)


@contextlib.asynccontextmanager
async def _page_without_network(tab: Tab, fetch: Fetch | None) -> AsyncIterator[Page]:
    """Open a page in a context without a network, so also without the app's cookies and cache.

    The context has a proxy at which nothing answers: it takes whatever the browser would connect to or look up, in
    frames, workers, popups and speculative connections too. Being offline makes requests fail at once, before the
    proxy. WebRTC is the only way past the proxy. With ``fetch``, requests are answered before they come to the proxy.
    """
    browser = tab.browser.playwright if tab.browser is not None else tab.page.context.browser
    if browser is None:
        raise UsageError("render_to_pdf: this browser has one context only; HTML needs one that has no network")
    context = await browser.new_context(offline=fetch is None, service_workers="block", proxy=_NO_PROXY)
    try:
        await context.add_init_script(_NO_WEBRTC)
        if fetch is not None:
            await context.route("**/*", FetchedRequests(fetch).answer)
        yield await context.new_page()
    finally:
        await close_quietly(context)


@contextlib.contextmanager
def _map_errors(what: str, timeout: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise CallTimeout(f"{what} was not ready within {format_seconds(timeout)}") from None
    except Error as error:
        first = first_line(error)
        if "Timeout" in first and "exceeded" in first:
            raise CallTimeout(f"{what} was not ready within {format_seconds(timeout)}") from None
        if "closed" in first or "crashed" in first:
            raise TransportError(f"{what}: {first}") from None
        raise UsageError(f"{what}: the browser refused: {first}") from None
