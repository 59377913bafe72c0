"""One artifact in the gallery: metadata, hash check, links, deletion, scope."""

from __future__ import annotations

import re

import aiohttp
import pytest
from playwright.async_api import Page, expect

from tests.e2e.visits import card, opened
from tests.support.gallery import Gallery

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.requirement("R2-6.3l", "R4-16g")
async def test_details_show_all_metadata_and_check_the_hash(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    record = await gallery.call("chart.render", csv="a,b\n1,2")
    (key,) = record["artifacts"]
    meta = await gallery.ask("GET", f"artifacts/{key}/meta")
    dialog = await opened(page, "chart.png")
    about = dialog.get_by_role("complementary")
    size = f"{meta['size_bytes']:,} bytes"
    for value in (meta["sha256"], meta["id"], meta["uri"], "image/png", size, gallery.app):
        await expect(about).to_contain_text(value)
    await about.get_by_role("button", name="Copy SHA-256").click()
    await expect(page.locator("#said")).to_contain_text("SHA-256 copied")
    assert await page.evaluate("navigator.clipboard.readText()") == meta["sha256"]
    await about.get_by_label("The link works for").select_option("300")
    async with page.expect_request("**/link") as linking:
        await about.get_by_role("button", name="Make link").click()
    assert (await linking.value).post_data_json == {"expires": 300}
    async with aiohttp.request("GET", await about.get_by_label("Signed link").input_value()) as answer:
        assert answer.status == 200 and len(await answer.read()) == meta["size_bytes"]  # without a token
    await about.get_by_role("button", name="Check hash").click()
    await expect(about.get_by_text("the SHA-256 is right")).to_be_visible()
    await page.route("**/verify", lambda route: route.abort())
    await about.get_by_role("button", name="Check hash").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("does not answer")  # not behind the dialog
    await dialog.get_by_role("button", name="Dismiss").click()
    await page.unroute_all()
    for content in (gallery.folder / ".abp").rglob("*"):
        if content.is_file() and content.stat().st_size == meta["size_bytes"]:
            content.chmod(0o600)
            content.write_bytes(b"x" * meta["size_bytes"])
    await about.get_by_role("button", name="Check hash").click()
    await expect(about.get_by_text("not what was stored")).to_be_visible()
    await about.get_by_role("link", name="chart.render").click()
    await expect(page.locator(f"#call-{record['id']}")).to_have_attribute("open", "")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_deletion_asks_for_confirmation_and_lost_links_open_the_gallery(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    await gallery.upload("one.txt", "text/plain", b"1")
    deleted = await gallery.upload("two.txt", "text/plain", b"2")
    dialog = await opened(page, "two.txt")
    await expect(dialog.get_by_text("1 byte", exact=True)).to_be_visible()  # and not "1 byte (1 bytes)"
    await dialog.get_by_role("button", name="Delete").click()
    question = page.get_by_role("dialog", name="Delete two.txt?")
    assert await question.evaluate("node => document.activeElement.textContent") == "Cancel"
    await page.keyboard.press("Enter")
    await expect(card(page, "two.txt")).to_have_count(1)
    await dialog.get_by_role("button", name="Delete").click()
    await question.get_by_role("button", name="Delete").click()
    await expect(card(page, "two.txt")).to_have_count(0)
    await expect(page.get_by_role("dialog")).to_have_count(0)
    stored = (await gallery.ask("GET", "artifacts"))["artifacts"]
    assert [meta["filename"] for meta in stored] == ["one.txt"]
    # The closed dialog takes the artifact out of the address.
    await expect(page).to_have_url(re.compile("#artifacts$"))
    await page.goto(f"{gallery.url}#artifact={deleted['id']}")
    await expect(page.locator(".notice")).to_contain_text("no artifact")
    # A link that was cut within a character. Not reloaded: that would interrupt what the page loads.
    await page.goto("about:blank")
    await page.goto(f"{gallery.url}#artifact=%E6%97")
    await expect(page.locator(".notice")).to_contain_text("no artifact")


@pytest.mark.slow
async def test_details_link_versions_and_show_source_and_scope(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    for text in (b"the first", b"the second"):
        await gallery.upload("notes.txt", "text/plain", text)
    await opened(page, "notes.txt")
    dialog = page.get_by_role("dialog")  # whose name will be another
    await expect(dialog.locator("pre.text")).to_have_text("the first")
    versions = dialog.get_by_role("list", name="Versions of notes.txt")
    await expect(versions.get_by_role("listitem")).to_have_count(2)
    await versions.get_by_role("link").click()
    await expect(dialog.locator("pre.text")).to_have_text("the second")
    await dialog.get_by_text("Source and scope").click()
    await expect(dialog.get_by_role("complementary")).to_contain_text("scope: { }")
