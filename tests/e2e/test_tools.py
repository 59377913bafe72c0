"""HTML to PDF and pictures of the page, beside calls."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import AsyncIterator, Callable, Sequence
from html import escape
from pathlib import Path
from typing import Unpack

import pytest
import pytest_asyncio
from PIL import Image
from playwright.async_api import Page

from tests.support.eventually import eventually
from tests.support.listener import PEER, listening
from tests.support.pdf import pages_of, text_of
from tests.support.raw_server import listening as serving, reply
from tests.support.slow_page import SlowPage, slow_page
from transports import Browser, CallTimeout, PlaywrightTransport, PostMessageTransport, Session, UsageError, connect
from transports.base import Clip, PdfOptions, ScreenshotOptions
from transports.playwright._page_tools import PictureBrowser, screenshot_of_url
from transports.routing.http import _addresses as addresses
from webapp_fixture import Fixture, serve

__all__ = ["slow_page"]

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fixture() -> AsyncIterator[Fixture]:
    """The reference app with its interface: something for pictures."""
    async with serve() as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def app(fixture: Fixture, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    """One session for all tests that leave its page as it is."""
    transport = PlaywrightTransport(fixture.url, browser=browser)
    async with connect(fixture.url, transport=transport, store=tmp_path_factory.mktemp("tools")) as app:
        yield app


@pytest.mark.requirement("R6-10d")
async def test_html_is_rendered_to_pdf_with_options_in_camel_case(app: Session) -> None:
    result = await app.render_to_pdf("<h1>Grüße</h1><script>document.write('from a script')</script>")
    ref = result.artifacts["document"]
    assert (ref.mime_type, result.capability, result.transport) == (
        "application/pdf",
        "render_to_pdf",
        "playwright",
    )
    assert text_of(ref.path).split() == ["Grüße", "from", "a", "script"]
    assert pages_of(ref.path)[0] == pytest.approx((595, 842), abs=2)  # A4
    options = json.loads('{"landscape": true, "pageRanges": "2"}')
    pages = await app.render_to_pdf("<p>one</p>" * 200, **options)
    (size,) = pages_of(pages.artifacts["document"].path)
    assert size == pytest.approx((842, 595), abs=2)
    assert (await app.call("file.list")).artifacts  # the app has not noticed


@pytest.mark.requirement("R6-9f")
@pytest.mark.parametrize(
    ("html", "options", "size"),
    [
        ("<style>@page { size: 100mm 50mm }</style>", {}, (283, 142)),
        ("<style>@page { size: 50mm 100mm }</style>", {"format": "Letter"}, (612, 792)),
        ("<p>custom</p>", {"width": "100mm", "height": "50mm"}, (283, 142)),
    ],
)
async def test_pdf_paper_is_that_of_options_then_of_document(
    app: Session, html: str, options: PdfOptions, size: tuple[int, int]
) -> None:
    ref = (await app.render_to_pdf(html, **options)).artifacts["document"]
    assert pages_of(ref.path)[0] == pytest.approx(size, abs=2)


@pytest.mark.parametrize(
    ("options", "method", "left_out"),
    [(PdfOptions, Page.pdf, set()), (ScreenshotOptions, Page.screenshot, {"timeout", "mask", "mask_color"})],
)
async def test_pdf_and_screenshot_options_match_playwright(
    options: type, method: Callable[..., object], left_out: set[str]
) -> None:
    known = set(inspect.signature(method).parameters) - {"self", "path"}
    ours = {"url", "width", "height"} if options is ScreenshotOptions else set()
    assert set(options.__annotations__) == (known - left_out) | ours


#: Every way to the network that HTML has. ``PORT`` is replaced; each way writes what it could read, or ``no-…``.
_NETWORK_HTML = """
<link rel=preconnect href="http://127.0.0.1:PORT"><link rel=stylesheet href="http://127.0.0.1:PORT/style">
<iframe src="http://127.0.0.1:PORT/frame"></iframe><img src="http://localhost:PORT/image">
<object data="http://127.0.0.1:PORT/object"></object><script src="http://127.0.0.1:PORT/script"></script>
<form action="http://127.0.0.1:PORT/form" target=_blank></form><pre id=out></pre>
<script>
  const say = (text) => { out.textContent += ` ${text}`; };
  say(typeof abp); say(location.href);
  const peer = (window_) => {
    try {
      const made = new window_.RTCPeerConnection({iceServers: [{urls: "stun:127.0.0.1:PORT"}]});
      made.createDataChannel("x");
      made.createOffer().then((offer) => made.setLocalDescription(offer));
    } catch { say("no-peer"); }
  };
  peer(window);
  const frame = document.createElement("iframe");
  document.body.append(frame);
  peer(frame.contentWindow);
  const peers = `<script>for (let n = 0; n < 2; n += 1) (${peer})(window)</scr` + "ipt>";
  for (const sandbox of ["allow-scripts", "allow-scripts allow-same-origin", "allow-scripts allow-popups"]) {
    const sandboxed = document.createElement("iframe");
    sandboxed.setAttribute("sandbox", sandbox);
    sandboxed.srcdoc = peers.replace("say(", "String(");
    document.body.append(sandboxed);
  }
  window.open("http://127.0.0.1:PORT/popup");
  document.forms[0].submit();
  navigator.sendBeacon("http://127.0.0.1:PORT/beacon");
  new EventSource("http://127.0.0.1:PORT/events");
  new Worker(URL.createObjectURL(new Blob(['fetch("http://127.0.0.1:PORT/worker")'])));
  const socket = new WebSocket("ws://127.0.0.1:PORT/socket");
  const held = document.createElement("img");  // "load" waits until this ends
  held.src = "http://127.0.0.1:PORT/last";
  document.body.append(held);
  fetch("http://127.0.0.1:PORT/fetch").then((r) => r.text()).then(say, () => say("no-fetch"));
  socket.onerror = () => say("no-socket");
</script>"""


async def test_rendered_html_sees_neither_app_nor_network(app: Session) -> None:
    async with listening() as listener:
        ref = (await app.render_to_pdf(_NETWORK_HTML.replace("PORT", str(listener.port)))).artifacts["document"]
        shown = text_of(ref.path).split()
        assert shown[:2] == ["undefined", "http://html.invalid/"]
        assert "secret" not in shown and shown.count("no-peer") == 2
        assert listener.heard == []
        assert len(app.transport._tab.page.context.pages) == 1  # type: ignore[attr-defined]


async def test_rendered_html_reads_only_from_public_hosts(app: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as listener:
        html = _NETWORK_HTML.replace("PORT", str(listener.port))
        shown = text_of((await app.render_to_pdf(html, public_hosts=True)).artifacts["document"].path).split()
        assert listener.heard == [] and "secret" not in shown  # not one way leads to an address that is not public
        monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
        html = html.replace("http://127.0.0.1:", "http://127.0.0.2:", 2)  # the first two stay private
        document = (await app.render_to_pdf(html, public_hosts=True)).artifacts["document"]
        heard = {line.split()[1] for line in listener.heard}
        assert all(line.startswith("GET /") for line in listener.heard)  # neither a beacon nor a datagram
        assert {"/frame", "/object", "/script", "/fetch", "/last"} <= heard
        assert not heard & {"/style", "/socket", "/beacon"}
        assert "secret" in text_of(document.path).split()


@pytest.mark.requirement("R3-7a")
async def test_screenshots_of_page_in_each_format(app: Session) -> None:
    seen = {}
    ways: dict[str, ScreenshotOptions] = {
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


@pytest.mark.requirement("R3-7a", "R3-7b", "R3-7g", "R3-7h")
async def test_screenshots_of_any_url_and_size(app: Session, slow_page: SlowPage) -> None:

    async def shot(**options: Unpack[ScreenshotOptions]) -> Image.Image:
        ref = (await app.screenshot(timeout=30, **options)).artifacts["image"]
        return Image.open(io.BytesIO(Path(str(ref.path)).read_bytes())).convert("RGB")

    whole = await shot(url=slow_page.url)
    assert whole.size == (1280, 800) and whole.getpixel((600, 400)) == slow_page.colour  # it has waited
    assert (await shot(url=slow_page.url, width=640, height=480, full_page=True)).size == (640, 3000)
    clip: Clip = {"x": 10, "y": 20, "width": 30, "height": 40}
    assert (await shot(clip=clip, scale="css")).size == (30, 40)
    assert slow_page.cookies == []  # of the app's page, which is at the same host
    assert (await shot(width=500)).size == (500, 720) and (await shot()).size == (1280, 720)
    wrong: list[tuple[ScreenshotOptions, str]] = [
        ({"width": 1921}, "width must be a whole number from 1 to 1920, not 1921"),
        ({"height": 0}, "height must be a whole number from 1 to 1080, not 0"),
        ({"url": "file:///etc/passwd"}, "must begin with http"),
        ({"url": "http://127.0.0.1:1/?token=secret"}, "cannot open http://127.0.0.1:1/.*refuse this port"),
    ]
    for options, message in wrong:
        with pytest.raises(UsageError, match=message) as caught:
            await app.screenshot(**options)
        assert "secret" not in caught.value.message


@pytest.mark.slow
async def test_an_embedded_app_has_page_tools(fixture: Fixture, browser: Browser, tmp_path: Path) -> None:
    transport = PostMessageTransport(fixture.embed_url, browser=browser)
    async with connect(fixture.embed_url, transport=transport, store=tmp_path) as app:
        assert text_of((await app.render_to_pdf("<p>hello</p>")).artifacts["document"].path).split() == ["hello"]
        image = Image.open(str((await app.screenshot()).artifacts["image"].path))
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 50


@pytest.mark.requirement("R3-7e")
async def test_invalid_pdf_options_and_slow_pages_raise(app: Session) -> None:
    # A type checker refuses wrong options, too: without an error there mypy would complain of the unused comment.
    with pytest.raises(UsageError, match=r"render_to_pdf: unknown option colour; use .*landscape"):
        await app.render_to_pdf("x", colour=True)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="screenshot: unknown option path"):
        await app.screenshot(path="picture.png")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="screenshot: the browser refused"):
        await app.screenshot(type="gif")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="render_to_pdf: the browser refused"):
        await app.render_to_pdf("x", format="A99")
    with pytest.raises(CallTimeout, match=r"within 0\.5 s"):
        await app.render_to_pdf("<script>for (;;);</script>", timeout=0.5)
    assert (await app.call("file.list")).artifacts


async def test_an_app_without_a_page_has_no_page_tools(fixture: Fixture, tmp_path: Path) -> None:
    async with connect(fixture.ws_url, store=tmp_path) as app:
        for work in (app.render_to_pdf("x"), app.screenshot()):
            with pytest.raises(UsageError, match="needs an app in a page; this one is reached by websocket"):
                await work


@pytest.mark.slow
async def test_picture_page_sends_no_datagrams() -> None:
    async with listening() as outside, listening() as control, PictureBrowser() as browser:
        frame = f"<script>({PEER})(window, {outside.port})</script>"
        html = f'<p>x<iframe sandbox="allow-scripts" srcdoc="{escape(frame)}"></iframe>' * 5
        async with serving(reply(html.encode(), Content_Type="text/html")) as server:

            async def judge(host: str, port: int) -> Sequence[str]:
                if f":{port}" not in server.url:
                    raise UsageError(f"port {port} is not allowed")
                return ["127.0.0.1"]

            await screenshot_of_url(browser, server.url, {}, judge, timeout=60)
            page = await browser.playwright.new_page()  # without a proxy
            await page.evaluate(f"(port) => ({PEER})(window, port)", control.port)
            await eventually(lambda: control.heard)
        assert outside.heard == [] and "UDP" not in control.heard
