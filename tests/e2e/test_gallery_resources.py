"""The resource browser of the gallery, with a server in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.e2e.visits import visiting
from tests.support.gallery import open_gallery
from tests.support.resources import ResourceApp
from transports import Browser

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.requirement("R2-6.3j")
async def test_gallery_browses_reads_and_watches_resources(tmp_path: Path, browser: Browser) -> None:
    server = ResourceApp()
    async with open_gallery(tmp_path, browser, memory=server) as gallery, visiting(gallery, browser) as page:
        await page.get_by_role("link", name="Resources").click()
        listed = page.get_by_role("list", name="Resources of In-process app").get_by_role("button")
        await expect(listed).to_have_count(4)
        await page.get_by_label("Search resources").fill("pdf")
        await expect(listed).to_have_count(1)
        await page.get_by_label("Search resources").fill("")
        assert server.reads == 0  # on demand

        shown = page.locator("#resource")
        await listed.filter(has_text="a b?c=d").click()
        await expect(shown.get_by_role("region", name="Text")).to_have_text("short")
        await expect(shown.get_by_role("heading", name="a b?c=d")).to_be_focused()
        await shown.get_by_role("button", name="Watch").click()
        await expect(shown.get_by_role("button", name="Stop watching")).to_be_visible()
        server.resources["note:///a b?c=d"]["text"] = "another"
        server.change("note:///a b?c=d")
        await expect(shown.get_by_text("The server has changed it")).to_be_visible()
        await shown.get_by_role("button", name="Read again").click()
        await expect(shown.get_by_role("region", name="Text")).to_have_text("another")
        await expect(shown.get_by_text("The server has changed it")).to_be_hidden()

        await listed.filter(has_text="report.pdf").click()
        await expect(shown.locator("iframe")).to_be_visible()
        await shown.get_by_role("link", name="Open as artifact").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_text("application/pdf")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(shown.locator("iframe")).to_be_visible()  # where it was opened

        await page.get_by_role("button", name="Use the template note:///{name}").click()
        await page.keyboard.type("gone")  # in place of the variable, which is selected
        await expect(page.get_by_label("Address", exact=True)).to_have_value("note:///gone")
        await page.keyboard.press("Enter")
        await expect(shown.get_by_role("alert")).to_have_text("note:///gone: there is no such resource")

        server.resources["note:///new"] = {"mimeType": "text/plain", "text": "<img src=x onerror=alert(1)>"}
        server.change_list()
        await listed.filter(has_text="note:///new").click()
        await expect(shown.get_by_role("region", name="Text")).to_have_text("<img src=x onerror=alert(1)>")
