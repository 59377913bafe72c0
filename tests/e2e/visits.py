"""Visits to the gallery page, for the tests of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import BrowserContext, Locator, Page, expect

from tests.support.gallery import Gallery
from transports import Browser

PATIENCE = 15_000  # ms
expect.set_options(timeout=PATIENCE)


@asynccontextmanager
async def visit(browser: Browser, address: str, own: str = "", **options: Any) -> AsyncIterator[Page]:
    """The page in a context of its own. Whatever it complains of fails the test: errors of script, refusals of the
    content policy, and requests to anywhere else than its server, or ``own``."""
    complaints: list[str] = []
    context: BrowserContext = await browser.playwright.new_context(**{"reduced_motion": "reduce", **options})
    context.set_default_timeout(PATIENCE)
    page = await context.new_page()
    server = re.match(r"https?://[^/]+/", own or address)  # beside it: parts of the browser's PDF viewer, at chrome:
    assert server is not None
    page.on("pageerror", lambda error: complaints.append(f"{error}"))
    page.on("console", lambda said: complaints.append(said.text) if "Security Policy" in said.text else None)
    page.on(
        "request",
        lambda asked: None if asked.url.startswith((server[0], "chrome")) else complaints.append(asked.url),
    )
    try:
        await page.goto(address)
        yield page
    finally:
        await context.close()
    assert complaints == []


@asynccontextmanager
async def visiting(gallery: Gallery, browser: Browser, **options: Any) -> AsyncIterator[Page]:
    """Signed in, and hearing what happens."""
    async with visit(browser, gallery.entry, **options) as page:
        await expect(page.locator("#connection")).to_have_text("Live")
        yield page


def card(page: Page, name: str) -> Locator:
    return page.locator(".card", has=page.locator(".name", has_text=re.compile(f"^{re.escape(name)}$")))


async def opened(page: Page, name: str) -> Locator:
    """The dialog with an artifact's details."""
    await card(page, name).click()
    dialog = page.get_by_role("dialog", name=name)
    await expect(dialog).to_be_visible()
    return dialog


async def run(page: Page, capability: str) -> Locator:
    """The form of a capability of the connected app."""
    await page.get_by_role("link", name="Apps").click()
    await page.locator(
        ".capability", has=page.locator(".name", has_text=re.compile(f"^{re.escape(capability)}$"))
    ).click()
    work = page.locator("#work")
    await expect(work.get_by_role("heading", name=capability)).to_be_focused()
    return work
