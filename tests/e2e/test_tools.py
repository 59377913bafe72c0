"""HTML to PDF and pictures of the page, beside calls."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from tests.e2e.conftest import Connect
from tests.support.pdf import pages_of, text_of
from transports import Browser, CallTimeout, PostMessageTransport, UsageError, connect
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_html_becomes_a_pdf(connected: Connect) -> None:
    async with connected() as app:
        result = await app.render_to_pdf("<h1>Grüße</h1><script>document.write('from a script')</script>")
        ref = result.artifacts["document"]
        assert (ref.mime_type, result.capability, result.transport) == (
            "application/pdf",
            "render_to_pdf",
            "playwright",
        )
        assert text_of(ref.path).split() == ["Grüße", "from", "a", "script"]
        pages = await app.render_to_pdf("<p>one</p>" * 200, format="A4", landscape=True, pageRanges="2")
        ((width, height),) = pages_of(pages.artifacts["document"].path)
        assert (width, height) == pytest.approx((842, 595), abs=2)  # A4, landscape
        assert (await app.call("file.list")).artifacts  # the app has not noticed


async def test_the_html_sees_neither_the_app_nor_its_cookies(connected: Connect, fixture: Fixture) -> None:
    async with connected() as app:
        html = f"""<pre id=out></pre><img src="{fixture.url}downloads/of-the-html"><script>
          out.textContent = [typeof abp, location.href].join(" ");
        </script>"""
        ref = (await app.render_to_pdf(html)).artifacts["document"]
        assert text_of(ref.path).split() == ["undefined", "about:blank"]
        (asked,) = [request for request in fixture.requests if "of-the-html" in str(request)]
        assert "cookie" not in {name.lower() for name in asked.headers}
        context = app.transport._tab.page.context  # type: ignore[attr-defined]
        assert len(context.pages) == 1


async def test_what_the_page_shows(connected: Connect) -> None:
    async with connected() as app:
        seen = {}
        ways: dict[str, dict[str, object]] = {
            "png": {},
            "full": {"full_page": True},
            "jpeg": {"type": "jpeg", "quality": 50},
        }
        for name, options in ways.items():
            ref = (await app.screenshot(timeout=10, **options)).artifacts["image"]
            seen[name] = Image.open(io.BytesIO(Path(str(ref.path)).read_bytes()))
            assert ref.mime_type == ("image/jpeg" if name == "jpeg" else "image/png")
        assert seen["png"].size == (1280, 720)
        assert seen["full"].size[1] > 720
        assert len(seen["png"].convert("RGB").getcolors(1 << 24) or []) > 50  # something is there


async def test_an_embedded_app_has_them_too(fixture: Fixture, browser: Browser, tmp_path: Path) -> None:
    transport = PostMessageTransport(fixture.embed_url, browser=browser)
    async with connect(fixture.embed_url, transport=transport, store=tmp_path) as app:
        assert text_of((await app.render_to_pdf("<p>hello</p>")).artifacts["document"].path).split() == ["hello"]
        image = Image.open(str((await app.screenshot()).artifacts["image"].path))
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 50


async def test_bad_options_and_slow_pages_are_said_so(connected: Connect) -> None:
    async with connected() as app:
        with pytest.raises(UsageError, match=r"render_to_pdf has no option colour; there are .*landscape"):
            await app.render_to_pdf("x", colour=True)
        with pytest.raises(UsageError, match="render_to_pdf: the browser refused"):
            await app.render_to_pdf("x", format="A99")
        with pytest.raises(CallTimeout, match=r"within 1 s"):
            await app.render_to_pdf("<script>for (;;);</script>", timeout=1)
        assert (await app.call("file.list")).artifacts


async def test_an_app_without_a_page_has_none(fixture: Fixture, tmp_path: Path) -> None:
    async with connect(fixture.ws_url, store=tmp_path) as app:
        for work in (app.render_to_pdf("x"), app.screenshot()):
            with pytest.raises(UsageError, match="needs an app in a page; this one is reached by websocket"):
                await work
