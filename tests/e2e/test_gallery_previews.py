"""Artifacts in the gallery: previews of each kind, which do nothing, and the details of one."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import aiohttp
import pytest
from PIL import Image
from playwright.async_api import Locator, Page, expect

from tests.e2e.visits import card, opened
from tests.support.eventually import eventually
from tests.support.gallery import PICTURE, Gallery, tone
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.requirement("R2-6.3k")
async def test_media_and_pdf_previews_use_native_elements_and_viewer(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    await gallery.upload("p.png", "image/png", PICTURE)
    await gallery.upload("s.wav", "audio/wav", tone())
    dialog = await opened(page, "p.png")
    await expect(dialog.get_by_text(re.compile(r"^\d+ × \d+ pixels$"))).to_be_visible()
    await page.keyboard.press("Escape")
    dialog = await opened(page, "s.wav")
    await expect(dialog.locator("audio")).to_have_js_property("duration", 1)

    record = await gallery.call("export.pdf", html="<h1>A document</h1>")
    await page.goto(f"{gallery.url}#artifact={record['artifacts'][0]}")
    frame = page.locator("dialog iframe")
    await expect(frame).to_be_visible()
    assert await frame.get_attribute("sandbox") is None
    # A viewer that is blocked is an error page, which is a white area: the document is drawn on a dark one.
    box = await frame.bounding_box()
    assert box is not None

    async def is_drawn() -> bool:
        picture = Image.open(io.BytesIO(await page.screenshot(clip=box))).convert("RGB")
        return len(picture.getcolors(1 << 20) or []) > 20

    await eventually(is_drawn, pause=0.1)


@pytest.mark.slow
async def test_gallery_previews_text_json_csv_and_bytes_and_cards_show_content(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    page_of_pdf = io.BytesIO()
    Image.new("RGB", (200, 300), (200, 30, 40)).save(page_of_pdf, "PDF")
    await gallery.upload("page.pdf", "application/pdf", page_of_pdf.getvalue())
    await gallery.upload("broken.pdf", "application/pdf", b"%PDF-1.7 no pages")
    await gallery.upload("tone.wav", "audio/wav", tone())
    await gallery.upload("noise.wav", "audio/wav", b"RIFF but no sound")
    await gallery.upload("table.csv", "text/csv", b"month;tea\njanuary;12\n" + b"x;1\n" * 100)

    def inside(name: str, what: str) -> Locator:
        return page.locator(".card", has=page.get_by_text(name, exact=True)).locator(f".thumb {what}")

    await expect(inside("page.pdf", "img")).to_have_js_property("naturalWidth", 480)
    await expect(inside("tone.wav", ".wave > span")).to_have_count(48)
    await expect(inside("table.csv", ".lines")).to_contain_text("month;tea")
    for name in ("broken.pdf", "noise.wav"):
        await expect(inside(name, ".sheet")).to_have_count(1)

    await gallery.upload("t.txt", "text/plain", "Grüße\n".encode() * 60_000)
    await gallery.upload(
        "j.json", "application/json", json.dumps({"list": list(range(250)), "deep": {"key": "<b>"}}).encode()
    )
    await gallery.upload("broken.json", "application/json", b'{"no": ')
    await gallery.upload("c.csv", "text/csv", b'name,note\n"a ""quoted"" one","two\nlines"\nb,"1,5"\n')
    await gallery.upload("b.bin", "application/octet-stream", bytes(range(256)) * 20)
    await gallery.upload("empty.txt", "text/plain", b"")
    dialog = await opened(page, "t.txt")
    text = dialog.locator("pre.text")
    await expect(dialog.get_by_text("256 kB of 480 kB")).to_be_visible()
    await expect(text).to_contain_text("Grüße")
    await dialog.get_by_role("button", name="Show more").click()
    await expect(dialog.get_by_role("button", name="Show more")).to_be_hidden()
    assert await text.evaluate("node => node.textContent === 'Grüße\\n'.repeat(60000)")  # no character is cut in two
    await page.keyboard.press("Escape")

    dialog = await opened(page, "j.json")
    tree = dialog.locator(".tree")
    await expect(tree.get_by_text("[ 250 items ]")).to_be_visible()
    await expect(tree.get_by_text('"<b>"')).to_have_count(0)  # folded
    await tree.get_by_text("{ 1 key }").click()
    await expect(tree.get_by_text('"<b>"')).to_be_visible()
    await tree.get_by_text("[ 250 items ]").click()
    await tree.get_by_role("button", name="150 more").click()
    await expect(tree.locator(".node .node .leaf")).to_have_count(200 + 1)
    await page.keyboard.press("Escape")

    dialog = await opened(page, "broken.json")
    await expect(dialog.get_by_text("not valid JSON")).to_be_visible()
    await page.keyboard.press("Escape")

    dialog = await opened(page, "c.csv")
    await expect(dialog.get_by_role("columnheader")).to_have_text(["name", "note"])
    await expect(dialog.get_by_role("cell")).to_have_text(['a "quoted" one', "two lines", "b", "1,5"])
    await page.keyboard.press("Escape")

    dialog = await opened(page, "b.bin")
    await expect(dialog.locator("pre.hex")).to_contain_text("00000040  40 41 42 43")
    await expect(dialog.locator("pre.hex")).to_contain_text("@ABCDEFGHIJKLMNO")
    await page.keyboard.press("Escape")

    dialog = await opened(page, "empty.txt")
    await expect(dialog.get_by_role("button", name="Show more")).to_be_hidden()


CANARY = "document.title='PWNED';window.top.document.title='PWNED';fetch('{other}canary-by-script')"
SVG = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="90" height="60"
onload="{canary}"><script>{canary}</script><rect width="90" height="60" fill="teal"/>
<image xlink:href="{other}canary-by-svg" width="9" height="9"/><foreignObject width="9" height="9">
<iframe xmlns="http://www.w3.org/1999/xhtml" src="{other}canary-by-frame"/></foreignObject></svg>"""
HTML = """<!doctype html><title>x</title><script>{canary}</script><img src="{other}canary-by-img" onerror="{canary}">
<link rel=stylesheet href="{other}canary-by-css"><meta http-equiv=refresh content="0;url={other}canary-by-refresh">
<form id=f action="{other}canary-by-form"></form><script>f.submit()</script>"""


async def test_previewed_artifacts_run_nothing_and_reach_no_network(
    shared: tuple[Gallery, Page], fixture: Fixture
) -> None:
    gallery, page = shared
    canary = CANARY.format(other=fixture.url)
    evil = {
        "evil.svg": ("image/svg+xml", SVG),
        "evil.html": ("text/html", HTML),
        "evil.xhtml": ("application/xhtml+xml", HTML),
        "evil.pdf": ("application/pdf", HTML),
        "evil.json": ("application/json", json.dumps({"</script><img src=x onerror=alert(1)>": HTML})),
        "evil.csv": ("text/csv", f'"<img src=x onerror=alert(1)>",b\n"{HTML.replace(chr(34), "")}",2\n'),
    }
    metas = {}
    for name, (kind, text) in evil.items():
        text = f"{text}<!-- {name} -->".replace("{canary}", canary).replace("{other}", fixture.url)
        metas[name] = await gallery.upload(name, kind, text.encode())
    seen = len(fixture.requests)
    page.on("dialog", lambda dialog: pytest.fail(f"script ran: {dialog.message}"))
    title = await page.title()
    for name, meta in metas.items():
        dialog = await opened(page, meta["filename"])
        await expect(dialog.locator(".preview > *").first).to_be_visible()
        if name == "evil.svg":
            await expect(dialog.get_by_text("90 × 60 pixels")).to_be_visible()
            await dialog.get_by_text("Source", exact=True).click()
            await expect(dialog.locator("pre.text")).to_contain_text("canary-by-svg")
        if name.endswith("html"):
            await expect(dialog.locator("pre.text")).to_contain_text("canary-by-refresh")
        await dialog.get_by_role("button", name="Close").click()
    assert await page.title() == title
    # A picture of this server's own, asked for last: whatever was under way has been asked for before it.
    await page.evaluate("url => fetch(url).catch(() => null)", f"{gallery.url}healthz")
    assert [str(request) for request in fixture.requests[seen:] if "canary" in str(request)] == []


@pytest.mark.requirement("R2-6.3i")
async def test_hostile_filename_is_sanitized_in_gallery(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    name = "../../etc/two\nlines\r\nX-Evil: 1\"quoted' <b>#?&%00…\u202egpj.txt"
    meta = await gallery.upload(name, "text/plain", b"content")
    assert not set("/\n\r\u202e") & set(meta["filename"])
    dialog = await opened(page, meta["filename"])
    await expect(dialog.locator("pre.text")).to_have_text("content")
    async with page.expect_download() as waiting:
        await dialog.get_by_role("link", name="Download").click()
    download = await waiting.value
    assert not set("/\n\r\u202e") & set(download.suggested_filename)
    assert Path(await download.path()).read_bytes() == b"content"


# --- details ----------------------------------------------------------------------------------------------------------


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
