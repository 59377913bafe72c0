"""One reference app and one browser for all tests that do not break them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Error as PlaywrightError, Page, expect

from tests.conftest import LIGHT
from tests.e2e.visits import visiting
from tests.support.gallery import Gallery, open_gallery
from tests.support.mcp_over_http import views_server
from tests.support.needs import missing
from transports import Browser, PlaywrightTransport, Session, connect
from transports.errors import BrowserNotFound
from transports.playwright._find import find_browser
from webapp_fixture import Fixture, serve


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fixture() -> AsyncIterator[Fixture]:
    async with serve(interface=False) as served:
        yield served


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with Browser() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    async with await browser.playwright.new_context() as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def whole_browser() -> AsyncIterator[Browser]:
    """A Chromium with all its parts, for the tests of what the light one does otherwise or has not."""
    with pytest.MonkeyPatch.context() as patch:
        if LIGHT:
            patch.delenv("ABP_BROWSER")
        choice = find_browser()
    async with Browser(executable=choice.path if choice else None) as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def firefox() -> AsyncIterator[Browser]:
    """A Firefox, where this machine has one that this Playwright can drive."""
    async with AsyncExitStack() as stack:
        try:
            started = await stack.enter_async_context(Browser(name="firefox"))
            await (await started.playwright.new_context()).close()
        except (BrowserNotFound, PlaywrightError) as error:
            missing("a Firefox", str(error).partition("\n")[0])
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def views_address() -> AsyncIterator[str]:
    """The target of the MCP server with views."""
    async with views_server() as address:
        yield address


Connect = Callable[..., Session]


@pytest_asyncio.fixture(loop_scope="session")
async def connected(fixture: Fixture, browser: Browser, tmp_path: Path) -> Connect:
    """``async with connected("?query", …) as app``: a session in the shared browser, its artifacts in ``tmp_path``."""

    def make(query: str = "", *, base: str | None = None, grace: float = 5.0, **options: Any) -> Session:
        url = (base or fixture.url) + query
        options.setdefault("store", tmp_path / "out")
        return connect(url, transport=PlaywrightTransport(url, browser=browser, grace=grace), **options)

    return make


@pytest_asyncio.fixture(loop_scope="session")
async def empty(tmp_path: Path, browser: Browser) -> AsyncIterator[Gallery]:
    """A gallery without artifacts and apps."""
    async with open_gallery(tmp_path / "store", browser) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def gallery(tmp_path: Path, fixture: Fixture, browser: Browser) -> AsyncIterator[Gallery]:
    """A gallery without artifacts; the reference app is connected."""
    async with open_gallery(tmp_path / "store", browser, fixture) as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def one_visit(
    fixture: Fixture, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Gallery, Page]]:
    """A gallery with the reference app, and a page of it."""
    folder = tmp_path_factory.mktemp("gallery") / "store"
    async with open_gallery(folder, browser, fixture) as gallery, visiting(gallery, browser) as page:
        yield gallery, page


@pytest_asyncio.fixture(loop_scope="session")
async def shared(one_visit: tuple[Gallery, Page]) -> AsyncIterator[tuple[Gallery, Page]]:
    """One gallery and one page of it, for all tests: each finds it without artifacts and dialogs."""
    yield one_visit
    gallery, page = one_visit
    await page.unroute_all()
    await page.set_viewport_size({"width": 1280, "height": 720})
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    while stored := (await gallery.ask("GET", "artifacts"))["artifacts"]:
        for meta in stored:
            await gallery.ask("DELETE", f"artifacts/{meta['id']}", expect=204)
    await page.get_by_role("link", name="Artifacts").click()
    await expect(page.locator(".card")).to_have_count(0)
