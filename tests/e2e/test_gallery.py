"""The gallery page in a real browser, over the real server: coming in, the grid, how it looks."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import FilePayload, Page, Route, expect

from tests.e2e.visits import PATIENCE, card, opened, run, visit, visiting
from tests.support.gallery import PICTURE, TOKEN, Gallery, open_gallery
from transports import Browser

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_login_needs_token_and_page_keeps_it_from_url_and_script(
    shared: tuple[Gallery, Page], browser: Browser
) -> None:
    gallery, _ = shared
    sizes: dict[str, int] = {}

    async def measure(answer: Any) -> None:
        if answer.url.endswith(".js"):
            sizes[answer.url] = len(await answer.body())

    await gallery.upload("secret.txt", "text/plain", b"secret")
    async with visit(browser, gallery.url) as page:
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

        await page.goto("about:blank")
        page.on("response", measure)
        await page.goto(gallery.entry)
        await expect(page.locator("#connection")).to_have_text("Live")
        await page.wait_for_load_state("load")
        page.remove_listener("response", measure)
        assert len(sizes) > 5 and 10_000 < sum(sizes.values()) < 50_000, sizes
        assert TOKEN not in page.url
        assert TOKEN not in await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        await page.reload()  # the cookie remembers, which script cannot read
        await expect(page.locator("#connection")).to_have_text("Live")


async def test_new_and_uploaded_artifacts_appear_live(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    await expect(page.get_by_role("heading", name="No artifacts yet")).to_be_visible()
    record = await gallery.call("data.csv", rows=[{"a": 1}])
    assert record["status"] == "completed"
    await expect(page.locator(".card")).to_have_count(1)
    await expect(page.locator("#count")).to_have_text("1 file")
    await expect(page.locator("#said")).to_contain_text("data.csv")  # for those who do not see it
    await gallery.upload("first name.txt", "text/plain", b"the same")
    await gallery.upload("second name.txt", "text/plain", b"the same")  # to the store one artifact, renamed
    await expect(page.locator(".card .name")).to_have_text(["second name.txt", "data.csv"])
    for meta in (await gallery.ask("GET", "artifacts"))["artifacts"]:
        await gallery.ask("DELETE", f"artifacts/{meta['id']}", expect=204)
    await expect(page.locator(".card")).to_have_count(0)
    await expect(page.get_by_role("heading", name="No artifacts yet")).to_be_visible()

    await page.get_by_label("Files to upload").set_input_files(
        [
            FilePayload(name="one.txt", mimeType="text/plain", buffer=b"1"),
            FilePayload(name="two.png", mimeType="image/png", buffer=PICTURE),
        ]
    )
    await expect(page.locator(".card")).to_have_count(2)
    await page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(['dropped'], 'three.txt', {type: 'text/plain'}));
          document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
        }"""
    )
    await expect(card(page, "three.txt")).to_be_visible()
    stored = (await gallery.ask("GET", "artifacts"))["artifacts"]
    assert {meta["filename"]: meta["size_bytes"] for meta in stored} == {
        "one.txt": 1,
        "two.png": len(PICTURE),
        "three.txt": 7,
    }


@pytest.mark.slow
async def test_events_arriving_before_list_are_not_lost(empty: Gallery, browser: Browser) -> None:
    async with visiting(empty, browser) as page:

        async def late(route: Route) -> None:
            answer = await route.fetch()
            await empty.upload("new.txt", "text/plain", b"new")
            await expect(page.locator("#capability option[value=upload]")).to_have_count(1)  # the event is here
            await route.fulfill(response=answer)

        await page.route("**/artifacts?*", late)
        await page.get_by_label("Type").select_option("text/")
        await expect(card(page, "new.txt")).to_be_visible()
        await page.unroute_all()


@pytest.mark.slow
async def test_gallery_loads_many_artifacts_in_pages_and_no_card_scrolled_past(
    empty: Gallery, browser: Browser
) -> None:
    for number in range(65):
        await empty.upload(f"note-{number:02}.txt", "text/plain", b"%d" % number)
    async with visiting(empty, browser) as page:
        await expect(page.locator(".card")).to_have_count(60)
        await expect(page.locator("#count")).to_have_text("65 files")
        drawn = "nodes => nodes.filter(node => node.checkVisibility({ contentVisibilityAuto: true })).length"
        assert 5 < await page.locator(".card").evaluate_all(drawn) < 60  # those off the screen are not laid out
        await empty.upload("note-65.txt", "text/plain", b"65")
        await expect(page.locator(".card")).to_have_count(61)
        await page.get_by_role("button", name="Load more").click()
        await expect(page.locator(".card")).to_have_count(66)
        await expect(page.get_by_role("button", name="Load more")).to_be_hidden()
        names = await page.locator(".card .name").all_text_contents()
        assert names == sorted(names, reverse=True)

        read: list[str] = []
        page.on("request", lambda request: read.append(request.url) if "/artifacts/" in request.url else None)
        await page.set_viewport_size({"width": 500, "height": 300})
        await page.reload()
        await expect(page.locator(".card").first.locator(".lines")).to_have_text("65")
        before = len(read)
        assert 0 < before < 30, read
        await page.evaluate("""async () => {
          const end = () => document.documentElement.scrollHeight - innerHeight - 1;
          while (scrollY < end()) {
            scrollBy({ top: 400, behavior: "instant" });
            await new Promise(requestAnimationFrame);
          }
        }""")
        await expect(page.locator(".card").last.locator(".lines")).to_have_text("6")
        assert len(read) - before < 20, read


@pytest.mark.slow
async def test_gallery_filters_narrow_shown_artifacts(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    await gallery.call("data.csv", rows=[{"a": 1}])
    await gallery.call("audio.tone", seconds=0.1)
    await gallery.upload("notes.txt", "text/plain", b"notes")
    shown = page.locator(".card .name")
    await expect(shown).to_have_count(3)
    await page.get_by_label("Type").select_option("audio/")
    await expect(shown).to_have_text([re.compile(r"\.wav$")])
    await page.get_by_label("Type").select_option("")
    await page.get_by_label("Capability", exact=True).select_option("data.csv")
    await expect(shown).to_have_text(["data.csv"])
    await gallery.upload("late.txt", "text/plain", b"does not belong here")
    await gallery.call("data.csv", rows=[{"a": 2}])
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


@pytest.mark.slow
async def test_keyboard_navigates_gallery_grid(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    await page.set_viewport_size({"width": 720, "height": 800})
    for number in range(7):
        await gallery.upload(f"{number}.txt", "text/plain", b"%d" % number)
    await page.reload()
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
    await page.wait_for_function("location.hash === '#artifacts'")  # the page has noticed
    assert await page.evaluate(focused) == "5.txt"
    await page.keyboard.press("Tab")  # one stop for all cards
    assert await page.evaluate("!document.activeElement.matches('.card')")
    outline = await page.locator(".card").first.evaluate("node => (node.focus(), getComputedStyle(node).outlineStyle)")
    assert outline == "solid"


@pytest.mark.slow
async def test_hidden_tab_closes_its_event_connection(empty: Gallery, browser: Browser) -> None:
    """A browser has six connections for all tabs of one server: a seventh tab could show nothing."""

    async def listeners() -> str:
        async with empty.http.get(f"{empty.url}metrics") as answer:
            listeners = re.search(r"^abp_listeners (\d+)", await answer.text(), re.MULTILINE)
        assert listeners is not None
        return listeners[1]

    async def listening(page: Page, count: str) -> None:
        until = time.monotonic() + PATIENCE / 1000
        while await listeners() != count:
            assert time.monotonic() < until
            await page.clock.run_for(100)

    see = """hidden => {
      Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    async with visiting(empty, browser) as page:
        await page.clock.install()
        await listening(page, "1")
        await page.evaluate(see, True)
        await page.clock.fast_forward(5_000)
        await page.evaluate(see, False)
        await page.clock.fast_forward(60_000)
        await listening(page, "1")  # it was away for a moment only
        await page.evaluate(see, True)
        await page.clock.fast_forward(60_000)
        await listening(page, "0")
        await empty.upload("meanwhile.txt", "text/plain", b"1")
        await page.evaluate(see, False)
        await expect(card(page, "meanwhile.txt")).to_be_visible()
        await listening(page, "1")


@pytest.mark.slow
@pytest.mark.parametrize("after_an_event", [True, False])
async def test_gallery_reconnects_after_server_restart(tmp_path: Path, browser: Browser, after_an_event: bool) -> None:
    """With a place in the old stream, which the new server does not know (``reset``), and without one."""
    async with open_gallery(tmp_path / "store", browser) as first:
        port = int(first.url.rstrip("/").rpartition(":")[2])
        await first.upload("before.txt", "text/plain", b"1")
        context = await browser.playwright.new_context()
        page = await context.new_page()
        await page.goto(first.entry)
        await expect(card(page, "before.txt")).to_be_visible()
        if after_an_event:
            await first.upload("heard.txt", "text/plain", b"0")
            await expect(card(page, "heard.txt")).to_be_visible()
    try:
        await expect(page.locator("#connection")).to_have_text("Connecting …")
        async with open_gallery(tmp_path / "store", browser, port=port) as second:
            await second.upload("meanwhile.txt", "text/plain", b"2")
            await expect(page.locator("#connection")).to_have_text("Live")
            await expect(card(page, "meanwhile.txt")).to_be_visible()
            await second.upload("after.txt", "text/plain", b"3")
            await expect(card(page, "after.txt")).to_be_visible()
            await expect(page.locator(".card")).to_have_count(4 if after_an_event else 3)
    finally:
        await context.close()


@pytest.mark.slow
async def test_gallery_follows_light_and_dark_scheme(shared: tuple[Gallery, Page]) -> None:
    _, page = shared
    ground = "getComputedStyle(document.body).backgroundColor"
    await page.emulate_media(color_scheme="dark")
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


@pytest.mark.slow
async def test_phone_layout_does_not_scroll_sideways(gallery: Gallery, browser: Browser) -> None:
    name = "a_name_without_any_place_to_break_it_" * 4 + ".txt"
    long = (await gallery.upload(name, "text/plain", b"x" * 5000))["filename"]
    await gallery.upload("wide.csv", "text/csv", b",".join(b"column%d" % i for i in range(60)) + b"\n")
    await gallery.call("chart.render", csv="a,b\n1,2")
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    async with visiting(
        gallery, browser, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True, locale="en-US"
    ) as page:
        await expect(page.locator(".card")).to_have_count(3)
        facts = await page.locator(".card .facts").first.text_content()
        assert re.search(r"· \d\d?:\d\d:\d\d[\u00a0\u202f][AP]M$", facts or "")  # AM and PM stay with their time
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
        work = await run(page, "image.resize")
        assert await page.evaluate(wide) == 0
        await expect(work.get_by_text("* needed")).to_be_visible()
