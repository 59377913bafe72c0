"""What a browser can do beside driving an app: HTML to PDF, a picture of the page."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error

from ..binary import BinaryData
from ..errors import CallTimeout, TransportError, UsageError, first_line
from .source import Tab, closing
from .timeouts import playwright_timeout

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["render_to_pdf", "screenshot"]

#: As ``page.pdf`` and ``page.screenshot`` of Playwright have them; ``camelCase`` is understood too.
_PDF = {
    "display_header_footer",
    "footer_template",
    "format",
    "header_template",
    "height",
    "landscape",
    "margin",
    "outline",
    "page_ranges",
    "prefer_css_page_size",
    "print_background",
    "scale",
    "tagged",
    "width",
}
_SCREENSHOT = {"clip", "full_page", "omit_background", "quality", "scale", "type"}


async def render_to_pdf(tab: Tab, html: str, options: Mapping[str, object], *, timeout: float) -> BinaryData:
    """``html`` as a PDF, made in a page that sees neither the app nor its cookies; where the app shares its context
    with others, in a page beside it."""
    given: dict[str, Any] = {"print_background": True, **_checked(options, _PDF, "render_to_pdf")}
    with _explained("render_to_pdf", timeout):
        async with asyncio.timeout(timeout), _page_beside(tab) as page:
            await page.set_content(html, wait_until="load", timeout=playwright_timeout(timeout))
            return BinaryData(await page.pdf(**given), "application/pdf")


async def screenshot(page: Page, options: Mapping[str, object], *, timeout: float) -> BinaryData:
    """What the page shows now, or with ``full_page`` all of it, as PNG or (``type="jpeg"``) JPEG."""
    given: dict[str, Any] = _checked(options, _SCREENSHOT, "screenshot")
    with _explained("screenshot", timeout):
        async with asyncio.timeout(timeout):
            data = await page.screenshot(**given, timeout=playwright_timeout(timeout))
    return BinaryData(data, "image/jpeg" if given.get("type") == "jpeg" else "image/png")


def _checked(options: Mapping[str, object], known: set[str], what: str) -> dict[str, object]:
    named = {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower(): value for name, value in options.items()}
    if unknown := sorted(set(named) - known):
        raise UsageError(f"{what} has no option {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return named


@contextlib.asynccontextmanager
async def _page_beside(tab: Tab) -> AsyncIterator[Page]:
    browser, context = tab.browser, tab.page.context
    apart = None
    if browser is not None and not browser.shares_context:
        apart = context = await browser.playwright.new_context()
    page = await context.new_page()
    try:
        yield page
    finally:
        await closing(apart or page)


@contextlib.contextmanager
def _explained(what: str, timeout: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise CallTimeout(f"{what} was not ready within {timeout:g} s") from error
    except Error as error:
        first = first_line(error)
        if "Timeout" in first and "exceeded" in first:
            raise CallTimeout(f"{what} was not ready within {timeout:g} s") from error
        if "closed" in first or "crashed" in first:
            raise TransportError(f"{what}: {first}") from error
        raise UsageError(f"{what}: the browser refused: {first}") from error
