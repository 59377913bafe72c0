"""The reference app used by hand: typing, buttons, dropped files."""

import base64

import pytest
from PIL import Image
from playwright.async_api import Browser, expect

from tests.webapp_fixture.page import picture
from webapp_fixture import Fixture

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.browser, pytest.mark.slow]


async def test_typing_updates_preview_and_tone_is_generated_on_first_view(browser: Browser, fixture: Fixture) -> None:
    page = await browser.new_page()
    await page.goto(fixture.url)
    await page.get_by_label("Markdown").fill("# Hello *you*\n\n<script>alert(1)</script>")
    preview = page.get_by_role("region", name="Preview")
    await expect(preview.get_by_role("heading", name="Hello you")).to_be_visible()
    await expect(preview.locator("script")).to_have_count(0)
    await expect(preview).to_contain_text("<script>alert(1)</script>")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export HTML").click()
    assert (await download.value).suggested_filename == "hello-you.html"

    tone = page.get_by_label("The tone", exact=True)
    await expect(page.get_by_text("points, ")).to_be_visible()  # the chart was drawn
    assert await tone.evaluate("tone => tone.src") == ""
    await tone.scroll_into_view_if_needed()
    await expect(tone).to_have_js_property("duration", 1)
    await page.close()


async def test_files_of_buttons_and_dropped_ones_are_listed(browser: Browser, fixture: Fixture) -> None:
    page = await browser.new_page()
    await page.goto(fixture.url)
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export image").click()
    made = await download.value
    assert made.suggested_filename == "sales-in-2024.png"
    with Image.open(await made.path()) as image:
        assert image.size == (800, 450)
    files = page.get_by_role("region", name="Files")
    await expect(files.get_by_role("listitem").filter(has_text="sales-in-2024.png")).to_have_count(1)

    png = base64.b64decode(picture(600, 300))
    await page.locator("#image-file").set_input_files({"name": "blue.png", "mimeType": "image/png", "buffer": png})
    await expect(page.get_by_text("600 × 300 pixels")).to_be_visible()
    await page.get_by_label("Width in pixels").fill("60")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Resize").click()
    with Image.open(await (await download.value).path()) as image:
        assert image.size == (60, 30)

    drop = await page.evaluate_handle(
        """() => {
          const transfer = new DataTransfer();
          transfer.items.add(new File(['abc'], 'dropped.txt', { type: 'text/plain' }));
          return transfer;
        }"""
    )
    await page.dispatch_event("#files-card", "drop", {"dataTransfer": drop})
    await expect(files).to_contain_text("dropped.txt")

    await files.get_by_role("button", name="Clear").click()
    await page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    await expect(files.get_by_role("listitem")).to_have_count(5)
    await files.get_by_role("button", name="Clear").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(files.get_by_role("listitem")).to_have_count(0)
    await page.close()
