"""Page options, faults, printing and the strict page of the reference app."""

import base64
import gzip
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.support.slow import slow_but
from tests.webapp_fixture.page import CSV, INITIALIZE, App, content, open_app, picture, png_size
from webapp_fixture import Fixture, digest

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.browser]


@pytest.mark.parametrize("strict", slow_but([False, True], False))
async def test_only_the_document_is_printed(browser: Browser, fixture: Fixture, strict: bool) -> None:
    app = await open_app(browser, fixture.strict_url if strict else fixture.url)
    await app.page.evaluate("() => { window.print = () => { window.printed = (window.printed ?? 0) + 1; }; }")
    html = "<title>T</title><h1 onclick='x()'>Doc</h1><script>window.bad = 1</script><a href='java\nscript:x()'>a</a>"
    assert await app.data("export.pdf", html=html) == {"rendered": True, "title": "T"}
    assert await app.page.evaluate("() => [window.printed, window.bad, document.title]") == [1, None, "T"]
    root = "document.querySelector('#print-root')"
    assert await app.page.evaluate(f"() => {root}.innerHTML") == "<h1>Doc</h1><a>a</a>"
    shown = "[...document.body.children].filter((e) => e.getClientRects().length)"
    visible = f"() => {shown}.map((e) => e.id || e.localName)"
    seen = f"() => {{ addEventListener('beforeprint', () => {{ window.seen = ({visible})(); }}); }}"
    await app.page.evaluate(seen)
    before = await app.page.evaluate(visible)
    landscape = await app.page.pdf(prefer_css_page_size=True)
    assert landscape.startswith(b"%PDF")
    assert await app.page.evaluate("() => window.seen") == ["print-root"]
    assert await app.page.evaluate(visible) == before
    assert await app.page.evaluate(f"() => [{root}.childNodes.length, document.title]") == [0, "Workbench"]
    await app.page.close()


async def test_fixture_returns_planted_content_faults(app: App) -> None:
    def document(data: Any) -> tuple[Any, int]:
        return data["document"], len(base64.b64decode(data["document"]["content"]["$bytes"]))

    off, size = document(await app.data("fault.wrong_size"))
    assert off["size"] == size + 1
    bad, _ = document(await app.data("fault.bad_size", value="many"))
    assert bad["size"] == "many"
    name, _ = document(await app.data("fault.bad_name", filename="a\u0000b"))
    assert name["filename"] == "a\u0000b"
    page = await app.data("fault.wrong_mime")
    assert content(page["image"]).startswith(b"<!doctype html>") and page["image"]["mimeType"] == "image/png"
    open_ended = (await app.data("fault.no_padding"))["document"]
    assert len(open_ended["content"]) % 4 and len(base64.b64decode(open_ended["content"] + "==")) == open_ended["size"]
    safe = (await app.data("fault.url_safe_base64"))["document"]
    assert {"-", "_"} < set(safe["content"]) and len(base64.urlsafe_b64decode(safe["content"])) == safe["size"]
    assert (await app.data("fault.noncanonical_base64"))["document"]["content"] == "QR=="
    assert "*" in (await app.data("fault.bad_base64"))["document"]["content"]
    partial = (await app.data("fault.partial"))["files"]
    assert [f["size"] - len(base64.b64decode(f["content"]["$bytes"])) for f in partial] == [0, 1, 0]


async def test_fixture_serves_faulty_answers(app: App) -> None:
    assert await app.answer("fault.crash_half") == {"success": True}
    values: tuple[Any, ...] = (None, "text", 5, [])
    for value in values:
        assert await app.answer("fault.bad_answer", {"value": value}) == value
    depth = """async () => {
      let { data } = await abp.call('fault.deep', { depth: 5000 });
      for (let levels = 1; ; levels += 1) {
        if (!data.nested) return levels;
        data = data.nested;
      }
    }"""
    assert await app.page.evaluate(depth) == 5000
    big = "async () => JSON.stringify(await abp.call('fault.big_json', { megabytes: 2 })).length"
    size = await app.page.evaluate(big)
    assert 2_000_000 < size < 2_300_000
    assert (await app.data("fault.slow", ms=20))["ms"] == 20
    assert (await app.data("fault.spin", ms=20))["ms"] == 20
    never = """async () => {
      const answer = abp.call('fault.never', {}, { callId: 'n', timeout: 10 }).then(() => 'answered');
      await abp.cancel('n');
      return Promise.race([answer, new Promise((resolve) => setTimeout(resolve, 60, 'silent'))]);
    }"""
    assert await app.page.evaluate(never) == "silent"


async def test_navigation_and_dialogs(browser: Browser, fixture: Fixture) -> None:
    app = await open_app(browser, fixture.url)
    messages: list[str] = []

    async def accept(dialog: Any) -> None:
        messages.append(dialog.message)
        await dialog.accept()

    app.page.on("dialog", accept)
    assert await app.data("fault.alert", kind="confirm", message="sure?") == {"answer": True}
    assert messages == ["sure?"]
    await app.page.evaluate("() => { abp.call('fault.navigate'); }")
    await app.page.wait_for_url("**/static/blank.html")
    await app.page.close()


@pytest.mark.slow
async def test_strict_page(browser: Browser, fixture: Fixture) -> None:
    app = await open_app(browser, fixture.strict_url)
    response = await app.page.reload()
    assert response is not None
    assert response.headers["content-security-policy"] == "default-src 'none'; script-src 'self'"
    await app.page.evaluate(INITIALIZE)
    assert (await app.page.evaluate("() => fetch('/abp-manifest.json').catch((error) => error.name)")) == "TypeError"
    assert png_size((await app.data("chart.render", csv=CSV))["image"]) == (800, 450)
    image = {"content": picture(8, 8), "mimeType": "image/png", "encoding": "base64"}
    assert (await app.data("image.resize", image=image, width=4))["height"] == 4
    assert (await app.data("audio.tone", seconds=0.1))["audio"]["size"] == 44 + 2 * 4410
    assert gzip.decompress(content((await app.data("archive.gzip", text="x"))["archive"])) == b"x"
    assert (await app.data("file.generate", bytes=9, digest=True))["sha256"] == digest(9)
    bearer = await app.data("file.generate", bytes=9, auth="bearer", **{"as": "url"})
    assert bearer["file"]["auth"]["header"] == f"Bearer {fixture.token}"
    await app.page.close()
