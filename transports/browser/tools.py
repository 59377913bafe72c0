"""Makes PDFs of HTML and pictures of a page: what a browser offers besides driving an app."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error

from ..base import PdfOptions, ScreenshotOptions
from ..binary import BinaryData
from ..errors import CallTimeout, TransportError, UsageError, first_line, format_seconds
from .source import Tab, close_quietly
from .timeouts import playwright_timeout

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["render_to_pdf", "screenshot"]


async def render_to_pdf(tab: Tab, html: str, options: PdfOptions, *, timeout: float) -> BinaryData:
    """Return ``html`` as a PDF; ``timeout`` in seconds.

    The HTML is loaded in a page that sees neither the app nor its cookies. If the app's context is shared with other
    sessions, it is loaded in another page of that context.
    """
    given: dict[str, Any] = {"print_background": True, **_validated(options, PdfOptions, "render_to_pdf")}
    with _map_errors("render_to_pdf", timeout):
        async with asyncio.timeout(timeout), _separate_page(tab) as page:
            await page.set_content(html, wait_until="load", timeout=playwright_timeout(timeout))
            return BinaryData(await page.pdf(**given), "application/pdf")


async def screenshot(page: Page, options: ScreenshotOptions, *, timeout: float) -> BinaryData:
    """Return what the page shows now as PNG or JPEG (``type="jpeg"``), with ``full_page`` all of it; seconds."""
    given: dict[str, Any] = _validated(options, ScreenshotOptions, "screenshot")
    with _map_errors("screenshot", timeout):
        async with asyncio.timeout(timeout):
            data = await page.screenshot(**given, timeout=playwright_timeout(timeout))
    return BinaryData(data, "image/jpeg" if given.get("type") == "jpeg" else "image/png")


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
