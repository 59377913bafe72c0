"""Pictures of addresses that a model gives: what a page loads, and where it goes, is judged like its own address."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from mcp import Client
from mcp_types import CallToolResult
from PIL import Image

from tests.support.mcp_clients import files_of, images_of, words
from tests.support.slow_page import SlowPage, slow_page
from transports import Browser, playwright as browsers
from transports.artifacts import open_store
from transports.surfaces.mcp import _hosts as hosts
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options

__all__ = ["slow_page"]

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

GREEN, RED = (0, 128, 0), (255, 0, 0)

#: Each way in which a page can reach another host. OTHER is that host, as ``127.0.0.1:8000``.
WAYS = """<!doctype html><title>Ways</title><body style="margin:0;background:green">
<link rel="prefetch" href="http://OTHER/prefetch"><link rel="stylesheet" href="http://OTHER/style">
<script src="http://OTHER/script"></script>
<img src="http://OTHER/image"><img src="/to?http://OTHER/redirected">
<iframe src="http://OTHER/frame"></iframe><iframe src="/to?http://OTHER/redirected-frame"></iframe>
<iframe srcdoc="<iframe src='http://OTHER/nested'></iframe>"></iframe>
<object data="http://OTHER/object"></object><video src="http://OTHER/video"></video>
<form action="http://OTHER/form" method="post" target="into"></form><iframe name="into"></iframe>
<a href="http://OTHER/download" target="kept"></a><iframe name="kept"></iframe>
<script>
const there = "http://OTHER/", socket = "ws://OTHER/";
document.forms[0].submit();
document.querySelector("a").click();
fetch(there + "fetch", { mode: "no-cors" }).catch(() => {});
navigator.sendBeacon(there + "beacon");
new EventSource(there + "events");
new WebSocket(socket + "socket");
open(there + "window");
const inside = `fetch("${there}worker", { mode: "no-cors" }).catch(() => {}); new WebSocket("${socket}worker-socket")`;
new Worker(URL.createObjectURL(new Blob([inside])));
navigator.serviceWorker?.register("/service").catch(() => {});
</script>
<!-- Chromium asks a host of its own about fields. The other hosts may never be reached. -->
<form><input name="name" autocomplete="name"><input name="email" type="email"></form>
<img src="http://image.example/"><img src="data://[x"><img src="http://[2001:db8::1]/">
<script>
fetch("http://fetch.example:81/").catch(() => {});
new WebSocket("wss://socket.example/");
const fetching = `fetch("https://worker.example/").catch(() => {})`;
new Worker(URL.createObjectURL(new Blob([fetching])));
open("http://window.example/");
</script>"""
#: What ``WAYS`` asks for, where nothing is in its way. Beacons and prefetches may come later than the picture.
ASKED = {
    *("style", "script", "image", "redirected", "frame", "redirected-frame", "nested", "object", "video", "form"),
    *("fetch", "events", "socket", "window", "download", "worker", "worker-socket"),
}
#: Goes to OTHER as soon as the picture is being taken: Playwright hides the caret of the field first, and then waits
#: for fonts. The font is there once OTHER was asked.
LEAVING = """<!doctype html><title>Leaving</title><body style="margin:0;background:green">
<input style="border:0;opacity:0"><script>
new MutationObserver((_, observer) => {
  observer.disconnect();
  fetch("/begun", { method: "POST" });
  const frame = Object.assign(document.createElement("iframe"), { src: "http://OTHER/frame" });
  frame.style.cssText = "position:fixed;inset:0;width:100%;height:100%;border:0";
  document.body.append(frame);
  const font = new FontFace("late", "url(/font)");
  document.fonts.add(font);
  font.load().catch(() => {});
}).observe(document.querySelector("input"), { attributes: true });
</script>"""


#: Goes to OTHER for good, once it has loaded.
GOING = """<!doctype html><title>Going</title><body style="background:green"><script>
addEventListener("load", () => setTimeout(() => { location.href = "http://OTHER/frame"; }, 50));
</script>"""


MISSING = {
    *("image.example (port 80)", "fetch.example (port 81)", "socket.example (port 443)", "worker.example (port 443)"),
    *("window.example (port 80)", "2001:db8::1 (port 80)"),
}


@dataclass
class Sites:
    """Two servers: ``here`` with the pages, and ``other``, which notes what it was asked for."""

    here: str = ""
    other: str = ""
    heard: set[str] = field(default_factory=set)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def sites() -> AsyncIterator[Sites]:
    served = Sites()

    async def page(request: web.Request) -> web.Response:
        text = {"ways": WAYS, "leaving": LEAVING, "going": GOING}[request.match_info["page"]]
        return web.Response(text=text.replace("OTHER", served.other), content_type="text/html")

    async def to(request: web.Request) -> web.Response:
        raise web.HTTPFound(request.query_string)

    async def service(request: web.Request) -> web.Response:
        script = f"fetch('http://{served.other}/service', {{ mode: 'no-cors' }}).catch(() => {{}})"
        return web.Response(text=script, content_type="text/javascript")

    async def begin(request: web.Request) -> web.Response:
        served.begun.set()
        return web.Response()

    async def font(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(2):  # where it is kept from asking, nothing is to come
                await served.reached.wait()
        except TimeoutError:
            pass
        raise web.HTTPNotFound

    async def other(request: web.Request) -> web.StreamResponse:
        served.heard.add(request.path.strip("/"))
        if "Upgrade" in request.headers:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.close()
            return socket
        served.reached.set()
        headers = {"Content-Disposition": "attachment"} if request.path == "/download" else {}
        return web.Response(headers=headers, text="<body style='margin:0;background:red'>", content_type="text/html")

    first, second = web.Application(), web.Application()
    first.add_routes(
        [
            web.get("/to", to),
            web.get("/service", service),
            web.post("/begun", begin),
            web.get("/font", font),
            web.get("/{page:ways|leaving|going}", page),
        ]
    )
    second.router.add_route("*", "/{any:.*}", other)
    async with TestServer(first) as here, TestServer(second) as there:
        served.here, served.other = f"127.0.0.1:{here.port}", f"127.0.0.1:{there.port}"
        yield served


@pytest.fixture
def shared(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge takes its pictures with the browser of all tests, and not each with one that it starts for it."""
    room = SimpleNamespace(
        PictureBrowser=lambda **_: nullcontext(browser), screenshot_of_url=browsers.screenshot_of_url
    )
    monkeypatch.setattr(hosts, "browsers", room)


async def picture(store: Path, url: str, *allowed: str, **options: Any) -> CallToolResult:
    bridge = Bridge(Options(allowed_hosts=allowed), open_store(store))
    async with Client(bridge.server, mode="2026-07-28") as client:
        answer = await client.call_tool("abp_screenshot", {"url": url, **options})
        assert isinstance(answer, CallToolResult)
        return answer


def colours(answer: CallToolResult) -> set[object]:
    assert not answer.is_error, answer
    (block,) = images_of(answer)
    image = Image.open(io.BytesIO(base64.b64decode(block.data))).convert("RGB")
    return {colour for _, colour in image.getcolors(1 << 24) or []}


async def test_screenshot_page_cannot_reach_disallowed_hosts_and_warnings_name_them(tmp_path: Path) -> None:
    async with sites() as served:
        answer = await picture(tmp_path, f"http://{served.here}/ways", served.here)
        assert colours(answer) >= {GREEN} and RED not in colours(answer)
        assert served.heard == set()
        other = f"127.0.0.1 (port {served.other.partition(':')[2]})"
        assert other in words(answer)  # it says what is missing
    reasons = answer.structured_content["warnings"]
    named = {reason.removeprefix("not in the picture: ").partition(" may")[0] for reason in reasons}
    assert named == {other, *MISSING}  # and nothing that only the browser asked for


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
async def test_screenshot_page_reaches_all_allowed_hosts(tmp_path: Path) -> None:
    async with sites() as served:
        answer = await picture(tmp_path, f"http://{served.here}/ways", served.here, served.other)
        assert colours(answer) >= {GREEN, RED}
        assert served.heard >= ASKED


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("allowed", [True, False])
async def test_page_navigating_during_screenshot_shows_no_disallowed_host(tmp_path: Path, allowed: bool) -> None:
    async with sites() as served:
        hosts = [served.here, served.other] if allowed else [served.here]
        answer = await picture(tmp_path, f"http://{served.here}/leaving", *hosts)
        assert served.begun.is_set()
        assert (RED in colours(answer), served.heard) == ((True, {"frame"}) if allowed else (False, set()))


@pytest.mark.usefixtures("shared")
async def test_page_at_closed_port_or_going_to_forbidden_host_yields_no_screenshot(tmp_path: Path) -> None:
    async with sites() as served:
        for path in ("going", f"to?http://{served.other}/frame"):
            answer = await picture(tmp_path, f"http://{served.here}/{path}", served.here)
            said = f"127.0.0.1 (port {served.other.partition(':')[2]}) may not be connected"
            assert answer.is_error and said in words(answer) and served.heard == set(), path
    answer = await picture(tmp_path, f"http://{served.other}/", "127.0.0.1")
    assert answer.is_error and "nothing listens" in words(answer)
    assert [*tmp_path.rglob("*.png")] == []


@pytest.mark.usefixtures("shared")
@pytest.mark.requirement("R3-7a", "R3-7b", "R3-7f", "R3-7i")
async def test_screenshot_waits_for_page_and_does_not_require_app(tmp_path: Path, slow_page: SlowPage) -> None:
    options = {"full_page": True, "type": "jpeg"}
    answer = await picture(tmp_path, slow_page.url, "127.0.0.1", width=900, options=options)
    assert not answer.is_error and answer.structured_content is not None, answer
    assert answer.structured_content["data"]["url"] == slow_page.url
    (kept,) = files_of(answer.structured_content)
    assert slow_page.url in words(answer) and f"Size: {kept['size_bytes']} bytes" in words(answer)
    (block,) = images_of(answer)
    image = Image.open(io.BytesIO(base64.b64decode(block.data)))
    assert image.size == (900, 3000) and block.mime_type == "image/jpeg"
    pixel = image.convert("RGB").getpixel((450, 2000))
    assert isinstance(pixel, tuple) and all(abs(a - b) < 9 for a, b in zip(pixel, slow_page.colour, strict=True))
