"""Views in every kind of browser that a session takes: lent by a pool, attached, remote, with a window, reached without
CDP, and Firefox (docs/views.md)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Page

from tests.e2e.test_attach import started_by_hand, tabs_of
from tests.e2e.test_pool import server_endpoint
from tests.support.eventually import eventually
from tests.support.needs import missing
from tests.support.pages import reach_without_cdp
from transports import Browser, Session, connect
from transports.batch import Pool

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FETCH = "fetch('https://a.example/').then((answer) => answer.status, String)"
BERLIN: dict[str, Any] = {"theme": "dark", "size": (400, 300), "locale": "de-DE", "timezone": "Europe/Berlin"}


#: The language of a view's page, how it writes a number, and its time zone.
INTL = "[navigator.language, (1.5).toLocaleString(), Intl.DateTimeFormat().resolvedOptions().timeZone]"


async def work_in_a_view(app: Session, *, own_context: bool = True) -> Page:
    """Use all that depends on the browser: calls, files, a picture, the surroundings, the policy. Returns the page."""
    async with app.open_view("board", {"n": 4}, **BERLIN) as view:
        assert (await view.call("echo", {"text": "ü"})).data == {"text": "ü"}
        picture = (await view.call("picture")).artifact()
        assert (picture.mime_type, picture.size_bytes) == ("image/png", 70)
        assert (await view.call("hands")).artifact().sha256 == hashlib.sha256(bytes([1, 2, 3])).hexdigest()
        link = {"contents": [{"type": "resource_link", "uri": "data://report.csv", "name": "report"}]}
        assert (await view.frame.evaluate("(link) => rpc('ui/download-file', link)", link))["result"] == {}
        assert [file.size_bytes for file in view.files] == [8]
        assert (await view.screenshot()).artifact().size_bytes > 1000
        assert await view.frame.evaluate("[innerWidth, innerHeight]") == [400, 300]  # and no bars to scroll
        assert await view.frame.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        assert (await view.frame.evaluate(INTL) == ["de-DE", "1,5", "Europe/Berlin"]) is own_context
        assert isinstance(await view.frame.evaluate(FETCH), str)
        await eventually(lambda: any("connect-src" in text for text in view.violations))
        return view.frame.page


@pytest.mark.slow
async def test_view_works_in_pool_browser(tmp_path: Path, views_address: str) -> None:
    async with (
        Pool(browsers=1, sessions=2, store=tmp_path) as pool,
        connect(views_address, browser=pool, store=tmp_path) as app,
    ):
        assert pool.stats().leased == 0  # the server itself needs no browser
        async with app.open_view("plain"):
            assert pool.stats().leased == 1
            page = await work_in_a_view(app)
        assert page.is_closed()
        assert pool.stats().leased == 0 and [one.calls for one in pool.stats().browsers] == [2]


@pytest.mark.slow
async def test_view_works_in_attached_browser(tmp_path: Path, views_address: str) -> None:
    async with started_by_hand(tmp_path / "profile") as (cdp_url, process):
        async with connect(views_address, cdp_url=cdp_url, store=tmp_path / "out") as app:
            await work_in_a_view(app, own_context=False)
        assert await tabs_of(cdp_url) == ["mine"] and process.is_running()


@pytest.mark.slow
async def test_view_works_in_playwright_server_browser(tmp_path: Path, views_address: str) -> None:
    async with server_endpoint() as far:
        assert far.headers is not None  # which would go to the MCP server; the address takes them, too
        address = f"{far.browser_server}?launch-options={quote(far.headers['x-playwright-launch-options'])}"
        async with connect(views_address, store=tmp_path, browser_server=address) as app:
            await work_in_a_view(app)


@pytest.mark.slow
async def test_view_works_in_headed_browser(tmp_path: Path, views_address: str, whole_chromium: None) -> None:
    if not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
        missing("a display", "a window is drawn on one")
    async with connect(views_address, headless=False, store=tmp_path) as app:
        await work_in_a_view(app)


async def test_view_works_without_cdp(
    browser: Browser, tmp_path: Path, views_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach_without_cdp(monkeypatch)
    async with connect(views_address, browser=browser, store=tmp_path) as app:
        assert (await work_in_a_view(app)).is_closed()


@pytest.mark.slow
async def test_view_works_in_firefox(firefox: Browser, tmp_path: Path, views_address: str) -> None:
    async with connect(views_address, browser=firefox, store=tmp_path) as app:
        assert (await work_in_a_view(app)).is_closed()
