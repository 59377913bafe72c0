"""The gallery page in a real browser, over the real server and the reference app."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from tests.gallery import PICTURE, TOKEN, Gallery, open_gallery, tone
from transports import Browser
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PATIENCE = 15_000  # ms


@pytest_asyncio.fixture(loop_scope="session")
async def empty(tmp_path: Path, browser: Browser) -> AsyncIterator[Gallery]:
    """No artifacts, no apps."""
    async with open_gallery(tmp_path / "store", browser) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def gallery(tmp_path: Path, fixture: Fixture, browser: Browser) -> AsyncIterator[Gallery]:
    """No artifacts; the reference app is connected."""
    async with open_gallery(tmp_path / "store", browser, fixture) as opened:
        yield opened


@asynccontextmanager
async def visit(browser: Browser, address: str, **options: Any) -> AsyncIterator[Page]:
    """The page in a context of its own. Whatever it complains of fails the test: errors of script, refusals of the
    content policy, and requests to anywhere else."""
    complaints: list[str] = []
    context: BrowserContext = await browser.playwright.new_context(**{"reduced_motion": "reduce", **options})
    context.set_default_timeout(PATIENCE)
    page = await context.new_page()
    own = re.match(r"https?://[^/]+/", address)  # beside it: the parts of the browser's own PDF viewer, at chrome:
    assert own is not None
    page.on("pageerror", lambda error: complaints.append(f"{error}"))
    page.on("console", lambda said: complaints.append(said.text) if "Security Policy" in said.text else None)
    page.on(
        "request",
        lambda asked: None if asked.url.startswith((own[0], "chrome")) else complaints.append(asked.url),
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


def card(page: Page, name: str) -> Any:
    return page.locator(".card", has=page.locator(".name", has_text=re.compile(f"^{re.escape(name)}$")))


async def opened(page: Page, name: str) -> Any:
    """The dialog with an artifact's details."""
    await card(page, name).click()
    dialog = page.get_by_role("dialog", name=name)
    await expect(dialog).to_be_visible()
    return dialog


# --- coming in --------------------------------------------------------------------------------------------------------


async def test_without_a_token_there_is_nothing_but_the_login(empty: Gallery, browser: Browser) -> None:
    await empty.upload("secret.txt", "text/plain", b"secret")
    async with visit(browser, empty.url) as page:
        await page.get_by_label("Token").fill("a token that somebody made up")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#login-problem")).to_contain_text("not the one")
        assert "secret" not in await page.content()
        await page.get_by_label("Token").fill(TOKEN)
        await page.get_by_role("button", name="Sign in").click()
        await expect(card(page, "secret.txt")).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await expect(page.locator(".card:visible")).to_have_count(0)
        await page.reload()
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_the_token_leaves_the_address_at_once(empty: Gallery, browser: Browser) -> None:
    async with visiting(empty, browser) as page:
        assert TOKEN not in page.url
        assert TOKEN not in await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        await page.reload()  # the cookie remembers, which script cannot read
        await expect(page.locator("#connection")).to_have_text("Live")


async def test_the_first_visit_loads_less_than_50_kb_of_script(empty: Gallery, browser: Browser) -> None:
    context = await browser.playwright.new_context()
    page = await context.new_page()
    sizes: dict[str, int] = {}

    async def measure(answer: Any) -> None:
        if answer.url.endswith(".js"):
            sizes[answer.url] = len(await answer.body())

    page.on("response", measure)
    await page.goto(empty.entry)
    await expect(page.locator("#connection")).to_have_text("Live")
    await page.wait_for_load_state("load")
    await context.close()
    assert 5 < len(sizes) and 10_000 < sum(sizes.values()) < 50_000, sizes


# --- the grid ---------------------------------------------------------------------------------------------------------


async def test_what_is_stored_arrives_while_somebody_looks(gallery: Gallery, browser: Browser) -> None:
    async with visiting(gallery, browser) as page:
        await expect(page.get_by_role("heading", name="No artifacts yet")).to_be_visible()
        record = await gallery.call("chart.render", csv="a,b\n1,2\n3,4")
        assert record["status"] == "succeeded"
        await expect(page.locator(".card")).to_have_count(1)
        await expect(page.locator("#count")).to_have_text("1 file")
        await expect(page.locator("#said")).to_contain_text("chart.png")  # for those who do not see it
        await gallery.upload("first name.txt", "text/plain", b"the same")
        await gallery.upload("second name.txt", "text/plain", b"the same")  # to the store one artifact, renamed
        await expect(page.locator(".card .name")).to_have_text(["second name.txt", "chart.png"])
        for meta in (await gallery.ask("GET", "artifacts"))["artifacts"]:
            await gallery.ask("DELETE", f"artifacts/{meta['id']}", expect=204)
        await expect(page.locator(".card")).to_have_count(0)
        await expect(page.get_by_role("heading", name="No artifacts yet")).to_be_visible()


async def test_many_come_page_by_page(empty: Gallery, browser: Browser) -> None:
    for number in range(65):
        await empty.upload(f"note-{number:02}.txt", "text/plain", b"%d" % number)
    async with visiting(empty, browser) as page:
        await expect(page.locator(".card")).to_have_count(60)
        await expect(page.locator("#count")).to_have_text("65 files")
        await page.get_by_role("button", name="Load more").click()
        await expect(page.locator(".card")).to_have_count(65)
        await expect(page.get_by_role("button", name="Load more")).to_be_hidden()
        names = await page.locator(".card .name").all_text_contents()
        assert names == sorted(names, reverse=True)


async def test_filters(gallery: Gallery, browser: Browser) -> None:
    await gallery.call("chart.render", csv="a,b\n1,2")
    await gallery.call("audio.tone", seconds=0.1)
    await gallery.upload("notes.txt", "text/plain", b"notes")
    async with visiting(gallery, browser) as page:
        shown = page.locator(".card .name")
        await expect(shown).to_have_count(3)
        await page.get_by_label("Type").select_option("image/")
        await expect(shown).to_have_text(["chart.png"])
        await page.get_by_label("Type").select_option("")
        await page.get_by_label("Capability", exact=True).select_option("audio.tone")
        await expect(shown).to_have_text([re.compile(r"\.wav$")])
        await gallery.upload("late.txt", "text/plain", b"does not belong here")
        await gallery.call("audio.tone", seconds=0.2)
        await expect(shown).to_have_count(2)
        await page.get_by_role("button", name="Clear").click()
        await expect(shown).to_have_count(5)
        await page.get_by_label("Session").select_option(gallery.app)
        await expect(shown).to_have_count(3)
        await page.get_by_label("Session").select_option("")
        await page.get_by_label("Search names").fill("NOTES")
        await expect(shown).to_have_text(["notes.txt"])
        await page.get_by_label("Search names").fill("nothing of that name")
        await page.get_by_role("button", name="Clear filters").click()
        await expect(shown).to_have_count(5)


async def test_uploads_by_button_and_by_drop(empty: Gallery, browser: Browser) -> None:
    async with visiting(empty, browser) as page:
        await page.get_by_label("Files to upload").set_input_files(
            [{"name": "one.txt", "mimeType": "text/plain", "buffer": b"1"}, {"name": "two.png", "mimeType": "image/png", "buffer": PICTURE}]
        )  # fmt: skip
        await expect(page.locator(".card")).to_have_count(2)
        await page.evaluate(
            """() => {
              const data = new DataTransfer();
              data.items.add(new File(['dropped'], 'three.txt', {type: 'text/plain'}));
              document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
            }"""
        )
        await expect(card(page, "three.txt")).to_be_visible()
        stored = (await empty.ask("GET", "artifacts"))["artifacts"]
        assert {meta["filename"]: meta["size_bytes"] for meta in stored} == {
            "one.txt": 1,
            "two.png": len(PICTURE),
            "three.txt": 7,
        }


async def test_the_keyboard_walks_the_grid(empty: Gallery, browser: Browser) -> None:
    for number in range(7):
        await empty.upload(f"{number}.txt", "text/plain", b"%d" % number)
    async with visiting(empty, browser, viewport={"width": 720, "height": 800}) as page:
        await expect(page.locator(".card")).to_have_count(7)
        focused = "document.activeElement.querySelector('.name')?.textContent ?? document.activeElement.tagName"
        await page.get_by_label("Session").focus()
        await page.keyboard.press("Tab")
        assert await page.evaluate(focused) == "6.txt"
        columns = await page.evaluate(
            "getComputedStyle(document.querySelector('.grid')).gridTemplateColumns.split(' ').length"
        )
        assert columns == 3
        for key, name in (("ArrowRight", "5.txt"), ("ArrowDown", "2.txt"), ("ArrowUp", "5.txt"), ("ArrowLeft", "6.txt"),
                          ("ArrowLeft", "6.txt"), ("End", "0.txt"), ("Home", "6.txt")):  # fmt: skip
            await page.keyboard.press(key)
            assert await page.evaluate(focused) == name, key
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog", name="5.txt")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert await page.evaluate(focused) == "5.txt"
        await page.keyboard.press("Tab")  # one stop for all cards
        assert await page.evaluate("!document.activeElement.matches('.card')")
        outline = await page.locator(".card").first.evaluate(
            "node => (node.focus(), getComputedStyle(node).outlineStyle)"
        )
        assert outline == "solid"


# --- previews ---------------------------------------------------------------------------------------------------------


async def test_images_sound_and_film_are_shown_by_their_elements(empty: Gallery, browser: Browser) -> None:
    await empty.upload("p.png", "image/png", PICTURE)
    await empty.upload("s.wav", "audio/wav", tone())
    async with visiting(empty, browser) as page:
        dialog = await opened(page, "p.png")
        await expect(dialog.get_by_text(re.compile(r"^\d+ × \d+ pixels$"))).to_be_visible()
        await page.keyboard.press("Escape")
        dialog = await opened(page, "s.wav")
        await expect(dialog.locator("audio")).to_have_js_property("duration", 1)


async def test_a_pdf_opens_in_the_browsers_viewer(gallery: Gallery, browser: Browser) -> None:
    record = await gallery.call("export.pdf", html="<h1>A document</h1>")
    async with visiting(gallery, browser) as page:
        await page.goto(f"{gallery.url}#artifact={record['artifacts'][0]}")
        frame = page.locator("dialog iframe")
        await expect(frame).to_be_visible()
        assert await frame.get_attribute("sandbox") is None
        # A viewer that is blocked is an error page, which is a white area: the document is drawn on a dark one.
        box = await frame.bounding_box()
        assert box is not None
        await until_pixels(page, box, lambda colours: len(colours) > 20)


async def until_pixels(page: Page, box: Any, good: Any) -> None:
    from io import BytesIO

    from PIL import Image

    for _ in range(100):
        picture = Image.open(BytesIO(await page.screenshot(clip=box))).convert("RGB")
        if good(picture.getcolors(1 << 20) or []):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the frame does not show it")


async def test_text_json_csv_and_bytes_are_shown_as_what_they_are(empty: Gallery, browser: Browser) -> None:
    await empty.upload("t.txt", "text/plain", "Grüße\n".encode() * 60_000)
    await empty.upload(
        "j.json", "application/json", json.dumps({"list": list(range(250)), "deep": {"key": "<b>"}}).encode()
    )
    await empty.upload("broken.json", "application/json", b'{"no": ')
    await empty.upload("c.csv", "text/csv", b'name,note\n"a ""quoted"" one","two\nlines"\nb,"1,5"\n')
    await empty.upload("b.bin", "application/octet-stream", bytes(range(256)) * 20)
    await empty.upload("empty.txt", "text/plain", b"")
    async with visiting(empty, browser) as page:
        dialog = await opened(page, "t.txt")
        text = dialog.locator("pre.text")
        await expect(dialog.get_by_text("256 kB of 480 kB")).to_be_visible()
        await expect(text).to_contain_text("Grüße")
        await dialog.get_by_role("button", name="Show more").click()
        await expect(dialog.get_by_role("button", name="Show more")).to_be_hidden()
        assert await text.evaluate(
            "node => node.textContent === 'Grüße\\n'.repeat(60000)"
        )  # no character is cut in two
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
        await expect(dialog.get_by_text("no valid JSON")).to_be_visible()
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


# --- what must not happen ---------------------------------------------------------------------------------------------

CANARY = "document.title='PWNED';window.top.document.title='PWNED';fetch('{other}canary-by-script')"
SVG = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="90" height="60" onload="{canary}">
<script>{canary}</script><image xlink:href="{other}canary-by-svg" width="9" height="9"/><rect width="90" height="60" fill="teal"/>
<foreignObject width="9" height="9"><iframe xmlns="http://www.w3.org/1999/xhtml" src="{other}canary-by-frame"/></foreignObject></svg>"""
HTML = """<!doctype html><title>x</title><script>{canary}</script><img src="{other}canary-by-img" onerror="{canary}">
<link rel=stylesheet href="{other}canary-by-css"><meta http-equiv=refresh content="0;url={other}canary-by-refresh">
<form id=f action="{other}canary-by-form"></form><script>f.submit()</script>"""


async def test_nothing_of_an_artifact_runs_or_reaches_the_network(
    empty: Gallery, browser: Browser, fixture: Fixture
) -> None:
    canary = CANARY.format(other=fixture.url)
    evil = {
        "evil.svg": ("image/svg+xml", SVG),
        "evil.html": ("text/html", HTML),
        "evil.xhtml": ("application/xhtml+xml", HTML),
        "evil.pdf": ("application/pdf", HTML),
        "evil.json": ("application/json", json.dumps({"</script><img src=x onerror=alert(1)>": HTML})),
        "evil.csv": ("text/csv", f'"<img src=x onerror=alert(1)>",b\n"{HTML.replace(chr(34), "")}",2\n'),
    }
    metas = {
        name: await empty.upload(name, kind, f"{text}<!-- {name} -->".replace("{canary}", canary).replace("{other}", fixture.url).encode())
        for name, (kind, text) in evil.items()
    }  # fmt: skip
    seen = len(fixture.requests)
    async with visiting(empty, browser) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"script ran: {dialog.message}"))
        title = await page.title()
        for name, meta in metas.items():
            dialog = await opened(page, meta["filename"])
            await expect(dialog.locator(".preview > *").first).to_be_visible()
            if name == "evil.svg":
                await expect(dialog.get_by_text("90 × 60 pixels")).to_be_visible()
                await dialog.get_by_text("Source").click()
                await expect(dialog.locator("pre.text")).to_contain_text("canary-by-svg")
            if name.endswith("html"):
                await expect(dialog.locator("pre.text")).to_contain_text("canary-by-refresh")
            await dialog.get_by_role("button", name="Close").click()
        assert await page.title() == title
        # The same, opened by themselves: as a page of its own and in a frame, as somebody might be lured to do.
        for meta in metas.values():
            address = empty.url.rstrip("/") + meta["url"]
            other = await page.context.new_page()
            try:
                await other.goto(address)
            except Exception as error:  # noqa: BLE001 - a download is what it should become
                assert "Download is starting" in str(error)
            assert await other.title() != "PWNED"
            await other.close()
        # A picture of this server's own, asked for last: whatever was under way has been asked for before it.
        await page.evaluate("url => fetch(url).catch(() => null)", f"{empty.url}healthz")
    assert [str(request) for request in fixture.requests[seen:] if "canary" in str(request)] == []


@pytest.mark.parametrize(
    "name", ["\"quoted' <b>.txt", "two\nlines\r\nX-Evil: 1.txt", "../../../etc/passwd", "…‮gpj.txt", "#?&%00.txt"]
)
async def test_names_are_harmless(empty: Gallery, browser: Browser, name: str) -> None:
    meta = await empty.upload(name, "text/plain", b"content")
    assert "/" not in meta["filename"] and "\n" not in meta["filename"]
    async with visiting(empty, browser) as page:
        dialog = await opened(page, meta["filename"])
        await expect(dialog.locator("pre.text")).to_have_text("content")
        async with page.expect_download() as waiting:
            await dialog.get_by_role("link", name="Download").click()
        download = await waiting.value
        assert "/" not in download.suggested_filename and "\n" not in download.suggested_filename
        assert Path(await download.path()).read_bytes() == b"content"


# --- details ----------------------------------------------------------------------------------------------------------


async def test_details_tell_everything_and_check_the_hash(gallery: Gallery, browser: Browser, tmp_path: Path) -> None:
    record = await gallery.call("chart.render", csv="a,b\n1,2")
    (key,) = record["artifacts"]
    meta = await gallery.ask("GET", f"artifacts/{key}/meta")
    async with visiting(gallery, browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        dialog = await opened(page, "chart.png")
        about = dialog.get_by_role("complementary")
        for value in (
            meta["sha256"],
            meta["id"],
            meta["uri"],
            "image/png",
            f"{meta['size_bytes']:,} bytes",
            gallery.app,
        ):
            await expect(about).to_contain_text(value)
        await about.get_by_role("button", name="Copy SHA-256").click()
        await expect(page.locator("#said")).to_contain_text("SHA-256 copied")
        assert await page.evaluate("navigator.clipboard.readText()") == meta["sha256"]
        await about.get_by_role("button", name="Check hash").click()
        await expect(about.get_by_text("the SHA-256 is right")).to_be_visible()
        for content in (tmp_path / "store" / ".abp").rglob("*"):
            if content.is_file() and content.stat().st_size == meta["size_bytes"]:
                content.chmod(0o600)
                content.write_bytes(b"x" * meta["size_bytes"])
        await about.get_by_role("button", name="Check hash").click()
        await expect(about.get_by_text("not what was stored")).to_be_visible()
        await about.get_by_role("link", name="chart.render").click()
        await expect(page.locator(f"#call-{record['id']}")).to_have_attribute("open", "")
        await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_deleting_asks_first(empty: Gallery, browser: Browser) -> None:
    await empty.upload("one.txt", "text/plain", b"1")
    await empty.upload("two.txt", "text/plain", b"2")
    async with visiting(empty, browser) as page:
        dialog = await opened(page, "two.txt")
        await dialog.get_by_role("button", name="Delete").click()
        question = page.get_by_role("dialog", name="Delete two.txt?")
        assert await question.evaluate("node => document.activeElement.textContent") == "Cancel"
        await page.keyboard.press("Enter")
        await expect(card(page, "two.txt")).to_have_count(1)
        await dialog.get_by_role("button", name="Delete").click()
        await question.get_by_role("button", name="Delete").click()
        await expect(card(page, "two.txt")).to_have_count(0)
        await expect(page.get_by_role("dialog")).to_have_count(0)
        stored = (await empty.ask("GET", "artifacts"))["artifacts"]
        assert [meta["filename"] for meta in stored] == ["one.txt"]


async def test_a_signed_link_opens_without_a_token_until_it_expires(empty: Gallery, browser: Browser) -> None:
    meta = await empty.upload("shared.txt", "text/plain", b"shared")
    async with visiting(empty, browser) as page:
        dialog = await opened(page, "shared.txt")
        await dialog.get_by_label("The link works for").select_option("300")
        await dialog.get_by_role("button", name="Make link").click()
        link = await dialog.get_by_label("Signed link").input_value()
    stranger = await browser.playwright.new_context()
    try:
        page = await stranger.new_page()
        answer = await page.goto(link)
        assert answer is not None and answer.status == 200
        assert await page.inner_text("body") == "shared"
        for address, status in ((empty.url.rstrip("/") + meta["url"], 401), (f"{link[:-3]}abc", 404)):
            answer = await page.goto(address)
            assert answer is not None and answer.status == status
        now = empty.served.links.clock
        empty.served.links.clock = lambda: now() + 301
        try:
            answer = await page.goto(link)
            assert answer is not None and answer.status == 410
            assert "REFERENCE_EXPIRED" in await page.inner_text("body")
        finally:
            empty.served.links.clock = now
    finally:
        await stranger.close()


async def test_a_sessions_token_opens_nothing_of_another_session(
    gallery: Gallery, browser: Browser, fixture: Fixture
) -> None:
    theirs = (await gallery.call("audio.tone", seconds=0.1))["artifacts"][0]
    other = await gallery.served.apps.connect(fixture.url, {})
    gallery.app = other.key
    mine = (await gallery.call("chart.render", csv="a,b\n1,2"))["artifacts"][0]
    token = (await gallery.ask("POST", "tokens", body={"session": other.key}, expect=201))["token"]
    async with visit(browser, f"{gallery.url}#token={token}") as page:
        await expect(page.locator(".card")).to_have_count(1)
        for key, status in ((mine, 200), (theirs, 404)):
            for path in (f"artifacts/{key}", f"artifacts/{key}/meta"):
                assert await page.evaluate("path => fetch(path).then(answer => answer.status)", path) == status, path
        await page.goto(f"{gallery.url}#artifact={theirs}")
        await expect(page.locator(".notice")).to_contain_text("there is no artifact")
        await page.get_by_role("link", name="Calls").click()
        await expect(page.locator(".call strong")).to_have_text(["chart.render"])


# --- calls and apps ---------------------------------------------------------------------------------------------------


async def run(page: Page, capability: str) -> Any:
    """The form of a capability of the connected app."""
    await page.get_by_role("link", name="Apps").click()
    await page.locator(
        ".capability", has=page.locator(".name", has_text=re.compile(f"^{re.escape(capability)}$"))
    ).click()
    work = page.locator("#work")
    await expect(work.get_by_role("heading", name=capability)).to_be_focused()
    return work


async def test_a_form_becomes_a_call_and_an_artifact(gallery: Gallery, browser: Browser) -> None:
    async with visiting(gallery, browser) as page:
        work = await run(page, "chart.render")
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_label("csv")).to_be_focused()  # it is required
        await work.get_by_label("csv").fill("month,tea\nJanuary,3\nFebruary,5")
        await work.get_by_label("type").select_option(label="line")
        await work.get_by_label("width").fill("5000")
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_label("width")).to_be_focused()  # out of range
        await work.get_by_label("width").fill("320")
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
        await work.get_by_role("link", name="chart.png").click()
        await expect(page.get_by_role("dialog").get_by_text("320 × 450 pixels")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(card(page, "chart.png")).to_be_visible()


async def test_nested_parameters_and_the_same_as_json(gallery: Gallery, browser: Browser) -> None:
    async with visiting(gallery, browser) as page:
        work = await run(page, "export.pdf")
        await work.get_by_label("html").fill("<p>wide</p>")
        await work.get_by_role("group", name="options").get_by_label("landscape").select_option(label="Yes")
        await work.get_by_role("button", name="Edit as JSON").click()
        editor = work.get_by_label("Parameters JSON")
        assert json.loads(await editor.input_value()) == {"html": "<p>wide</p>", "options": {"landscape": True}}
        await editor.fill('{"html": ')
        await work.get_by_role("button", name="Run").click()
        await expect(work.locator(".panel")).to_have_count(0)
        await editor.fill('{"html": "<p>tall</p>"}')
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
        work = await run(page, "data.csv")  # an array of objects without properties: each item is JSON
        await work.get_by_label("rows 1").fill('{"a": 1}')
        await work.get_by_role("button", name="Add to rows").click()
        await work.get_by_label("rows 2").fill('{"a": 2}')
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
    newest = (await gallery.ask("GET", "artifacts?capability=data.csv&type=text/csv"))["artifacts"][0]
    async with gallery.http.get(gallery.url.rstrip("/") + newest["url"]) as answer:
        assert (await answer.text()).split() == ["a", "1", "2"]


async def test_files_go_in_as_artifacts_or_from_this_machine(gallery: Gallery, browser: Browser) -> None:
    there = await gallery.upload("there.png", "image/png", PICTURE)
    async with visiting(gallery, browser) as page:
        await expect(page.locator(".card")).to_have_count(1)
        work = await run(page, "image.resize")
        await work.get_by_label(re.compile("^image")).first.select_option(there["id"])
        await work.get_by_label("width").fill("40")
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_text("✓ Succeeded").first).to_be_visible()
        work = await run(page, "file.digest")
        await work.get_by_label("Local file for file").set_input_files(
            {"name": "local.bin", "mimeType": "application/octet-stream", "buffer": b"abc"}
        )
        await expect(work.locator("select").first).to_contain_text("local.bin")
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
        await work.get_by_text("Answer as data").click()
        await work.locator(".answer").get_by_text("data", exact=True).first.click()
        await expect(work.locator(".answer")).to_contain_text(
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        )


async def test_progress_questions_cancelling_and_errors(gallery: Gallery, browser: Browser) -> None:
    async with visiting(gallery, browser) as page:
        work = await run(page, "job.run")
        await work.get_by_label("steps").fill("1000")
        await work.get_by_label("delay").fill("100")
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_role("progressbar")).to_have_attribute("value", re.compile(r"^0\.0\d+$"))
        await expect(page.locator("#running")).to_have_text("1")
        await work.get_by_role("button", name="Cancel").click()
        await expect(work.get_by_text("– Cancelled")).to_be_visible()
        await expect(page.locator("#running")).to_be_hidden()

        for method, params, fill in (
            ("elicitation/input", {"message": "Name?", "schema": {"type": "integer"}}, "42"),
            ("elicitation/select", {"message": "Which?", "options": ["red", "green"]}, "green"),
            ("elicitation/confirm", {"message": "Sure?"}, None),
        ):
            work = await run(page, "form.ask")
            await work.get_by_label("method").fill(method)
            await work.get_by_label(re.compile("^params")).fill(json.dumps(params))
            await work.get_by_role("button", name="Run").click()
            asked = work.get_by_role("form", name="The app asks")
            await expect(asked).to_contain_text(str(params["message"]))
            if fill is None:
                await asked.get_by_role("button", name="Yes").click()
            else:
                answer = asked.get_by_label("Answer")
                await (answer.select_option(label=fill) if method.endswith("select") else answer.fill(fill))
                await asked.get_by_role("button", name="Answer").click()
            await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
        responses = [(await gallery.ask("GET", f"calls/{record['id']}"))["result"]["data"]["response"]["data"]
                     for record in (await gallery.ask("GET", "calls"))["calls"] if record["capability"] == "form.ask"]  # fmt: skip
        assert responses == [{"confirmed": True}, {"selected": "green"}, {"value": 42}]

        work = await run(page, "image.resize")
        await gallery.start("image.resize", {"image": {"content": "AAAA", "encoding": "base64"}, "width": 1})
        await page.get_by_role("link", name="Calls").click()
        failed = page.locator(".call[data-status=failed]")
        await expect(failed).to_have_count(1)
        await failed.locator("summary").click()
        await expect(failed.locator(".problem")).to_be_visible()


async def test_the_timeline_shows_a_run_at_a_glance(gallery: Gallery, browser: Browser) -> None:
    async with visiting(gallery, browser) as page:
        await page.get_by_role("link", name="Calls").click()
        await expect(page.get_by_role("heading", name="No calls yet")).to_be_visible()
        waiting = await gallery.start("job.wait", {})
        row = page.locator(f"#call-{waiting}")
        await expect(row).to_have_attribute("data-status", "running")
        before = await row.locator(".took").text_content()
        await expect(row.locator(".took")).not_to_have_text(str(before))  # it grows
        chart = await gallery.call("chart.render", csv="a,b\n1,2")
        done = page.locator(f"#call-{chart['id']}")
        await expect(done).to_have_attribute("data-status", "succeeded")
        await expect(done.locator(".told")).to_have_text("1 file")
        await expect(done).to_contain_text("playwright")
        bars = [await locator.bounding_box() for locator in (row.locator(".bar"), done.locator(".bar"))]
        assert bars[0] and bars[1] and bars[0]["x"] < bars[1]["x"] and bars[0]["width"] > bars[1]["width"]
        assert await page.locator(".run").count() == 1
        await gallery.ask("DELETE", f"calls/{waiting}", expect=202)
        await expect(row).to_have_attribute("data-status", "cancelled")
        await expect(page.locator(".run h2")).to_contain_text("2 calls")
        await done.locator("summary").click()
        await expect(done.get_by_role("link", name="chart.png")).to_be_visible()


async def test_apps_are_connected_and_disconnected(gallery: Gallery, browser: Browser, fixture: Fixture) -> None:
    async with visiting(gallery, browser) as page:
        await page.get_by_role("link", name="Apps").click()
        await expect(page.locator(".app")).to_have_count(1)
        await page.get_by_label("Address of an app").fill(fixture.ws_url)
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.locator(".app")).to_have_count(2)
        await expect(page.locator(".app").nth(1)).to_contain_text("websocket")
        await page.get_by_label("Search capabilities").fill("chart")
        await expect(page.locator(".capability:visible").first).to_contain_text("chart.render")
        await page.get_by_label("Search capabilities").fill("")
        await page.locator(".app").nth(1).get_by_role("button", name="Disconnect").click()
        await page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
        await expect(page.locator(".app")).to_have_count(1)
        await page.get_by_label("Address of an app").fill("http://127.0.0.1:9/")
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.locator(".notice")).to_be_visible()
        await gallery.call("app.toggle", capability="extra.hello")
        await expect(page.locator(".capability", has_text="extra.hello")).to_be_visible()
        await gallery.call("app.toggle", capability="extra.hello")


async def test_the_page_comes_back_after_the_server_did(tmp_path: Path, browser: Browser) -> None:
    async with open_gallery(tmp_path / "store", browser) as first:
        port = int(first.url.rstrip("/").rpartition(":")[2])
        await first.upload("before.txt", "text/plain", b"1")
        context = await browser.playwright.new_context()
        page = await context.new_page()
        await page.goto(first.entry)
        await expect(card(page, "before.txt")).to_be_visible()
    try:
        await expect(page.locator("#connection")).to_have_text("Connecting …")
        async with open_gallery(tmp_path / "store", browser, port=port) as second:
            await second.upload("meanwhile.txt", "text/plain", b"2")
            await expect(page.locator("#connection")).to_have_text("Live", timeout=PATIENCE)
            await expect(card(page, "meanwhile.txt")).to_be_visible()
            await second.upload("after.txt", "text/plain", b"3")
            await expect(card(page, "after.txt")).to_be_visible()
            await expect(page.locator(".card")).to_have_count(3)
    finally:
        await context.close()


# --- how it looks -----------------------------------------------------------------------------------------------------


async def test_light_and_dark(empty: Gallery, browser: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    async with visiting(empty, browser, color_scheme="dark") as page:
        dark = await page.evaluate(ground)
        theme = page.get_by_role("button", name="Theme")
        await theme.click()
        light = await page.evaluate(ground)
        assert light != dark
        await page.reload()  # remembered
        assert await page.evaluate(ground) == light
        await theme.click()
        assert await page.evaluate(ground) == dark
        await theme.click()
        await page.emulate_media(color_scheme="light")
        assert await page.evaluate(ground) == light


async def test_a_phone_needs_no_scrolling_sideways(gallery: Gallery, browser: Browser) -> None:
    name = "a-name-without-any-place-to-break-it-" * 4 + ".txt"
    long = (await gallery.upload(name, "text/plain", b"x" * 5000))["filename"]
    await gallery.upload("wide.csv", "text/csv", b",".join(b"column%d" % i for i in range(60)) + b"\n")
    await gallery.call("chart.render", csv="a,b\n1,2")
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    async with visiting(
        gallery, browser, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
    ) as page:
        await expect(page.locator(".card")).to_have_count(3)
        assert await page.evaluate(wide) == 0
        for name in (long, "wide.csv", "chart.png"):
            dialog = await opened(page, name)
            assert await page.evaluate(wide) == 0
            assert await dialog.evaluate("node => node.scrollWidth - node.clientWidth") == 0, name
            box = await dialog.get_by_role("button", name="Close").bounding_box()
            assert box is not None and box["x"] + box["width"] <= 360
            await dialog.get_by_role("button", name="Close").click()
        await page.get_by_role("link", name="Calls").click()
        await page.locator(".call > summary").click()
        assert await page.evaluate(wide) == 0
        await run(page, "image.resize")
        assert await page.evaluate(wide) == 0
