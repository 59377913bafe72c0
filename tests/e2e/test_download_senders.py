"""Who asks for a download: the document that answered, in real browsers, with its cookies and in its name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.pages import page_speaking
from tests.support.slow import slow_but
from transports import Browser, PlaywrightTransport, PostMessageTransport, Session, WebMcpTransport, connect
from transports.errors import ABPError
from transports.protocol.binary import Handle
from transports.protocol.messages import Message

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

BODY = b"saved content"
#: The one capability of a page: it answers references to the URLs that it is given.
GIVE = """give: async ({ urls, size }) => (size
  ? { content: new Uint8Array(size), mimeType: "application/x-of-" + location.hostname, size }
  : { files: urls.map((downloadUrl) => ({ downloadUrl, mimeType: "text/plain" })) })"""


@dataclass
class Site:
    """One server at two sites, ``127.0.0.1`` and ``localhost``, and the headers of what was asked of it."""

    own: str = ""
    other: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[object]] | None = None

    def sent(self, name: str) -> list[str | None]:
        return [headers.get(name) for headers in self.asked]


@pytest_asyncio.fixture(loop_scope="session")
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setenv("ABP_ALLOW_PRIVATE_ADDRESSES", "1")
    made = Site()

    async def page(request: web.Request) -> web.Response:
        frame = request.query.get("frame")
        body = f'<iframe name=side allow=tools src="{frame}"></iframe>' if frame else ""
        if base := request.query.get("base"):
            body = f'<base href="{base}">{body}'
        response = web.Response(text=page_speaking(GIVE, body=body), content_type="text/html")
        for same_site in ("Strict", "Lax"):
            response.set_cookie(same_site.lower(), "1", samesite=same_site)
        response.set_cookie("elsewhere", "1", path="/elsewhere")  # no file is there
        return response

    async def file(request: web.Request) -> web.Response:
        if request.path == "/favicon.ico":
            return web.Response()
        made.asked.append({"url": str(request.url), **request.headers})
        if made.meanwhile is not None:
            await made.meanwhile()
        return web.Response(body=BODY)

    app = web.Application()
    app.add_routes([web.get("/", page), web.get("/deep/page", page), web.get("/{path:.*}", file)])
    async with TestServer(app) as server:
        made.own = f"http://127.0.0.1:{server.port}"
        made.other = f"http://localhost:{server.port}"
        yield made


async def tool_of(app: Session, name: str) -> str:
    """The full name of a frame's tool, once it is there."""
    async with app.events() as events:
        while not (names := [full for full in app.capabilities if full.startswith(name)]):
            await anext(events)
    return names[0]


async def test_page_downloads_send_cookies_only_to_its_origin(site: Site, browser: Browser) -> None:
    url = f"{site.own}/?speaks=abp"
    async with connect(url, transport=PlaywrightTransport(url, browser=browser), store="memory:") as app:
        result = await app.call("give", {"urls": ["file", f"{site.other}/file"]})
    assert [ref.size_bytes for ref in result.artifacts.values()] == [len(BODY)] * 2
    assert site.sent("url") == [f"{site.own}/file", f"{site.other}/file"]
    assert site.sent("Cookie") == ["strict=1; lax=1", None]
    assert site.sent("Sec-Fetch-Site") == ["same-origin", "cross-site"]
    assert site.sent("Origin") == [None, site.own]
    assert site.sent("Referer") == [f"{site.own}/"] * 2
    assert site.sent("Sec-Fetch-Mode") == ["cors"] * 2 and site.sent("Sec-Fetch-Dest") == ["empty"] * 2


async def test_navigating_page_does_not_download_as_next_page(site: Site, browser: Browser) -> None:
    url = f"{site.own}/?speaks=tools"
    transport = WebMcpTransport(url, browser=browser)

    async def leave() -> None:
        site.meanwhile = None
        assert transport.page is not None
        await transport.page.goto(f"{site.other}/?speaks=tools")

    async with connect(url, transport=transport, store="memory:") as app:
        site.meanwhile = leave
        await app.call("give", {"urls": ["file", f"{site.other}/file", "again"]})
        assert site.sent("url") == [f"{site.own}/file", f"{site.other}/file", f"{site.own}/again"]
        assert site.sent("Cookie") == ["strict=1; lax=1", None, "strict=1; lax=1"]
        assert site.sent("Sec-Fetch-Site") == ["same-origin", "cross-site", "same-origin"]


async def test_frame_tool_downloads_as_its_origin_without_page_cookies(site: Site, browser: Browser) -> None:
    frame = f"{site.other}/deep/page?speaks=tools%26name=_far"
    url = f"{site.own}/?speaks=tools&name=_near&frame={frame}"
    transport = WebMcpTransport(url, browser=browser)
    async with connect(url, transport=transport, store="memory:") as app:
        await app.call(await tool_of(app, "give_far"), {"urls": [f"{site.own}/file", "file"]})
        assert site.sent("url") == [f"{site.own}/file", f"{site.other}/deep/file"]
        # its own cookies are for pages of its own site: here it is a stranger's frame
        assert site.sent("Cookie") == [None, None]
        assert site.sent("Origin") == [site.other, None]
        assert site.sent("Sec-Fetch-Site") == ["cross-site", "same-origin"]
        await app.call("give_near", {"urls": ["file"]})
        assert site.sent("Cookie")[-1] == "strict=1; lax=1"


async def test_relative_download_begins_at_base_of_its_document(site: Site, browser: Browser) -> None:
    frame = f"{site.own}/deep/page?speaks=tools&name=_far&base=/far/"
    url = f"{site.own}/deep/page?speaks=tools&name=_near&base={site.other}/near/&frame={quote(frame, safe='')}"
    async with connect(url, transport=WebMcpTransport(url, browser=browser), store="memory:") as app:
        await app.call(await tool_of(app, "give_far"), {"urls": ["file"]})
        await app.call("give_near", {"urls": ["file"]})
    assert site.sent("url") == [f"{site.own}/far/file", f"{site.other}/near/file"]
    assert site.sent("Sec-Fetch-Site") == ["same-origin", "cross-site"]


@pytest.mark.parametrize(
    ("between", "cookies"),
    slow_but([(False, "strict=1; lax=1"), (True, None)], (True, None)),
    ids=["", "in a stranger's"],
)
async def test_same_origin_frame_gets_cookies_unless_nested_in_third_party(
    site: Site, browser: Browser, between: bool, cookies: str | None
) -> None:
    frame = f"{site.own}/deep/page?speaks=tools&name=_inner"
    if between:
        frame = f"{site.other}/?frame={quote(frame, safe='')}"
    url = f"{site.own}/?speaks=tools&name=_near&frame={quote(frame, safe='')}"
    async with connect(url, transport=WebMcpTransport(url, browser=browser), store="memory:") as app:
        await app.call(await tool_of(app, "give_inner"), {"urls": ["file"]})
    assert site.sent("url") == [f"{site.own}/deep/file"] and site.sent("Cookie") == [cookies]
    assert site.sent("Sec-Fetch-Site") == ["same-origin"]


@pytest.mark.slow
@pytest.mark.parametrize(("harness", "cookies"), [("same", "strict=1; lax=1"), ("other", None)])
async def test_embedded_app_downloads_with_cookies_of_its_frame(
    harness: Literal["same", "other"], cookies: str | None, site: Site, whole_browser: Browser
) -> None:
    url = f"{site.own}/deep/page?speaks=messages"
    transport = PostMessageTransport(url, browser=whole_browser, harness=harness)
    async with connect(url, transport=transport, store="memory:") as app:
        page: Any = transport.page
        await (await page.context.new_page()).goto(url)  # a visit of its own, for the cookies
        await app.call("give", {"urls": ["file", f"{site.other}/file"]})
    assert site.sent("url") == [f"{site.own}/deep/file", f"{site.other}/file"]
    assert site.sent("Cookie") == [cookies, None]
    assert site.sent("Sec-Fetch-Site") == ["same-origin", "cross-site"]
    assert site.sent("Origin") == [None, site.own]


async def test_held_content_handles_do_not_resolve_in_next_document(
    site: Site, browser: Browser, tmp_path: Path
) -> None:
    """A long answer and large content stay in the page until they are fetched; the page may be another by then."""
    url = f"{site.own}/?speaks=tools"
    transport, params = WebMcpTransport(url, browser=browser), {"size": 400_000}
    async with transport:
        await transport.request(Message("initialize", {}, id="i"), timeout=20)
        handles: list[Handle] = []
        for place in ("127.0.0.1", "localhost"):
            payload = {"capability": "give", "params": params, "options": {"callId": place}}
            reply: Any = await transport.request(Message("capabilities/call", payload, id=place), timeout=20)
            handles.append(reply.payload["data"]["content"].content)
            if place == "127.0.0.1":
                assert transport.page is not None
                await transport.page.goto(f"{site.other}/?speaks=tools")
        assert handles[0].id != handles[1].id
        with pytest.raises(ABPError):
            await transport.save(handles[0], tmp_path / "gone", timeout=10)
        await transport.save(handles[1], tmp_path / "there", timeout=10)
    assert (tmp_path / "there").stat().st_size == 400_000
