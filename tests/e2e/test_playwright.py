"""The Playwright transport against the reference app in a real Chromium."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from PIL import Image
from playwright.async_api import BrowserContext, Error as PlaywrightError, Route

from tests.e2e.conftest import Connect
from tests.e2e.test_attach import value
from tests.support.pages import serve_answers
from tests.support.pdf import text_of
from tests.support.raw_server import Connection, listening, reply
from tests.support.slow import slow_but
from transports import (
    ABPError,
    Browser,
    CallTimeout,
    Disconnected,
    ElicitationRequest,
    PlaywrightTransport,
    Progress,
    Session,
    connect,
)
from transports.errors import BinaryError, ConnectFailed, NotAbpApp
from transports.postmessage._transport import PostMessageTransport
from webapp_fixture import Fixture, digest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
slow = partial(pytest.param, marks=pytest.mark.slow)


def pattern(size: int) -> bytes:
    """The bytes that the app's capability ``shape`` answers."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


# --- content out of the page ------------------------------------------------------------------------------------------

SHAPES = (
    "ArrayBuffer Uint8Array Uint8ClampedArray Int16Array Uint32Array Float64Array BigUint64Array subarray DataView "
    "Blob File flat top topBuffer deep SharedArrayBuffer"
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(
    fixture: Fixture, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Session]:
    """One session for all tests that leave its page as it is, which has a SharedArrayBuffer too."""
    url = f"{fixture.url}?isolated"
    async with connect(url, browser=browser, store=tmp_path_factory.mktemp("shared")) as app:
        yield app


@pytest.mark.requirement("R5-3a")
@pytest.mark.fault(26)
@pytest.mark.requirement("R1-7a", "R1-7b", "R1-7c", "R1-10a")
@pytest.mark.parametrize("size", slow_but([1024, 300 * 1024], 1024))  # inline, and held in the page
async def test_every_binary_shape_arrives_byte_for_byte(shared: Session, size: int) -> None:
    for shape in SHAPES.split():
        result = await shared.call("shape", {"shape": shape, "size": size})
        (ref,) = result.artifacts.values()
        assert ref.path, shape
        assert Path(ref.path).read_bytes() == pattern(size), shape
        assert ref.source["verified"] is True, shape  # against the size that the page itself gives


@pytest.mark.requirement("R1-1a", "R1-11b")
async def test_native_capabilities_return_whole_files_despite_strict_policy(
    connected: Connect, fixture: Fixture
) -> None:
    async with connected(base=fixture.strict_url) as app:
        pdf = (await app.call("export.pdf", {"html": "<h1>Grüße aus Köln</h1>"})).artifacts["document"]
        assert pdf.path and pdf.mime_type == "application/pdf"
        text = text_of(pdf.path)
        assert "Grüße aus Köln" in text and "Workbench" not in text

        chart = (await app.call("chart.render", {"csv": "m,a\nx,1\ny,3", "as": "flat"})).artifacts["image"]
        resized = await app.call("image.resize", {"image": Path(str(chart.path)), "width": 64, "format": "webp"})
        with Image.open(str(resized.artifacts["image"].path)) as image:
            assert (image.format, image.width) == ("WEBP", 64)

        large = await app.call("file.generate", {"megabytes": 2, "seed": 7})
        assert large.artifacts["file"].sha256 == digest(2 << 20, 7)
        download = await app.call("file.generate", {"megabytes": 1, "seed": 8, "as": "url", "auth": "bearer"})
        assert download.artifacts["file"].sha256 == digest(1 << 20, 8)
        ways = ({"as": "blobUrl"}, {"as": "dataUrl"}, {"as": "url", "auth": "cookie"}, {"as": "url", "auth": "none"})
        for way in ways:
            result = await app.call("file.generate", {"bytes": 70_000, **way})
            assert result.artifacts["file"].sha256 == digest(70_000, 0), way
        for size in (64 * 1024, 64 * 1024 + 1):  # with the call, and as a file of the browser
            received = (await app.call("file.digest", {"file": pattern(size)})).data
            assert value(received, "sha256") == hashlib.sha256(pattern(size)).hexdigest()
    assert not list(Path(app.transport._browser.folder).glob("input-*"))  # type: ignore[attr-defined]


@pytest.mark.fault(25)
async def test_wrong_size_of_held_content_is_rejected_before_transfer(shared: Session) -> None:
    """The page knows the real size of content it holds."""
    assert isinstance(shared.transport, PlaywrightTransport)
    before = dict(shared.transport.rungs)
    with pytest.raises(BinaryError) as caught:
        await shared.call("fault.partial", {"count": 3})
    assert caught.value.code == "SIZE_MISMATCH"
    assert caught.value.details["field"] == "files.1"
    assert caught.value.result and list(caught.value.result.artifacts) == ["files.0", "files.2"]
    assert dict(shared.transport.rungs) == before


# --- what the app sees ------------------------------------------------------------------------------------------------


_PAGE_FUNCTIONS = {
    "__abp_notification",
    "__abp_progress",
    "__abp_elicitation",
    "__abp_capabilities_changed",
    "__abp_notify",
    "__abpOnProgress",
}


@pytest.mark.requirement("R6-5a")
async def test_kit_leaves_no_globals_or_nodes_in_page(connected: Connect, fixture: Fixture, browser: Browser) -> None:
    # The app itself writes a line about each call, so only what a kit would add is counted.
    nodes = "document.querySelectorAll('input, iframe, script, style, link, body > *, head > *').length"
    look = f"() => [Object.getOwnPropertyNames(window).sort(), {nodes}]"
    plain = await browser.playwright.new_page()
    await plain.goto(fixture.url, wait_until="load")
    names, _ = await plain.evaluate(look)
    await plain.close()
    async with connected() as app:
        first = value((await app.call("app.record")).data, "first")
        assert set(first["functions"]) >= {"__abp_notification", "__abp_progress", "__abp_elicitation"}
        assert all(first["functions"].values()) and {*first["names"]} == _PAGE_FUNCTIONS
        assert first["replaced"] == []  # or so it looks: see test_effects
        page = app.transport._agent.page  # type: ignore[attr-defined]
        await page.wait_for_load_state("load")
        await app.call("shape", {"shape": "Blob"})
        _, before = await page.evaluate(look)
        await app.call("file.generate", {"megabytes": 2})
        await app.call("file.digest", {"file": bytes(100_000)})
        ours, after = await page.evaluate(look)
    assert {*ours} - {*names} == _PAGE_FUNCTIONS
    assert before == after


async def test_a_small_call_is_one_round_trip(shared: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    cdp = shared.transport._agent.cdp  # type: ignore[attr-defined]
    await shared.call("file.list")
    sent: list[str] = []
    send = cdp.send

    async def counted(method: str, params: Mapping[str, object] | None = None) -> object:
        sent.append(method)
        return await send(method, params)

    monkeypatch.setattr(cdp, "send", counted)
    await shared.call("shape", {"shape": "Blob"})
    assert sent == ["Runtime.callFunctionOn"]


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-5b", "R6-7b", "R6-7f")
@pytest.mark.fault(5)
@pytest.mark.parametrize(
    "query",
    slow_but(
        ["?ownevents=assign&canceltype=string&emptylist", "?ownevents=call&canceltype=object&emptylist"],
        "?ownevents=assign&canceltype=string&emptylist",
    ),
)
async def test_events_arrive_once_in_order_and_questions_and_cancellation_are_answered(
    connected: Connect, query: str
) -> None:
    seen: list[Progress] = []
    events: list[str] = []
    asked: list[ElicitationRequest] = []

    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        asked.append(request)
        return {"success": True, "data": {"value": "blue"}}

    async with connected(query, on_notification=lambda n: events.append(n.event), on_elicitation=answer) as app:
        await app.call("job.run", {"steps": 4, "delay": 5}, on_progress=seen.append)
        result = await app.call("form.ask", {"method": "elicitation/input", "params": {"message": "Colour?"}})
        assert [item.progress for item in seen] == [1, 2, 3, 4]
        assert [item.fraction for item in seen] == [0.25, 0.5, 0.75, 1.0]
        assert events == ["notifications/operation/started", "notifications/operation/completed"]
        assert value(result.data, "response") == {"success": True, "data": {"value": "blue"}}
        assert [request.method for request in asked] == ["elicitation/input"]

        with pytest.raises(CallTimeout, match=r"job\.wait"):
            await app.call("job.wait", timeout=0.3)
        waiting = asyncio.ensure_future(app.call("job.wait"))
        await asyncio.sleep(0.3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        record = (await app.call("app.record")).data
        reasons = [entry["reason"] for entry in value(record, "cancelled")]
        assert list(dict.fromkeys(reasons)) == ["timeout", "cancelled by the client"]


# --- pages that are no apps -------------------------------------------------------------------------------------------


ATTACHED = {"Content-Type": "text/csv", "Content-Disposition": "attachment; filename=x.csv"}
BASIC = {"WWW-Authenticate": "Basic realm=x"}


@asynccontextmanager
async def answering(status: int, headers: Mapping[str, str], body: bytes) -> AsyncIterator[str]:
    """The address of a server that redirects to this answer. With ``name:word`` it answers an empty page."""
    moved = reply(b"", "302 Found", Location="/there")
    answer = reply(body, f"{status} x", **{name.replace("-", "_"): value for name, value in headers.items()})

    async def serve(connection: Connection) -> None:
        signed_in = connection.headers.get("Authorization") == "Basic bmFtZTp3b3Jk"
        page = reply(b"<title>Empty</title>", Content_Type="text/html") if signed_in else answer
        await connection.send(page if connection.target == "/there" else moved)

    async with listening(serve) as server:
        yield server.url


async def test_address_without_page_error_says_what_it_serves(browser: Browser) -> None:
    await check_unopened(browser, 200, ATTACHED, b"a,b", "the address is a download, not a page")
    await check_unopened(browser, 204, {}, b"", "the server answers 204 No Content, so there is no page")


async def check_unopened(browser: Browser, status: int, headers: Mapping[str, str], body: bytes, said: str) -> None:
    async with answering(status, headers, body) as url:
        with pytest.raises(ConnectFailed, match=said):
            await connect(url, browser=browser, store="none:")


@pytest.mark.slow
async def test_answer_that_a_whole_browser_does_not_show_is_named(whole_browser: Browser) -> None:
    asks = r"401 Unauthorized: .* in the address \(https://NAME:PASSWORD@…\)"
    await check_unopened(whole_browser, 401, BASIC, b"sign in", asks)
    fails = "the server answers 503 Service Unavailable; see the log of the server"
    await check_unopened(whole_browser, 503, {"Content-Type": ""}, b"", fails)


async def test_credentials_in_url_open_page(browser: Browser) -> None:
    async with answering(401, BASIC, b"sign in") as url:
        url = url.replace("//", "//name:word@")
        with pytest.raises(NotAbpApp, match="title 'Empty'") as failed:
            transport = PlaywrightTransport(url, browser=browser, grace=0.1)
            await connect(url, transport=transport, store="none:")
        assert "word@" not in failed.value.message


@pytest.mark.fault(9)
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?half", "without call"),
        ("?initfails", "initialize"),
        slow("?absent", "no window.abp"),
        slow("?throws", "throws"),
    ],
)
async def test_incomplete_abp_error_lists_what_was_found(connected: Connect, query: str, words: str) -> None:
    with pytest.raises(ABPError if query == "?initfails" else NotAbpApp, match=words):
        async with connected(query, grace=0.3):
            pass


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "the server answers 404 Not Found at http://gone.test/a; correct the address"),
        slow(
            426,
            "the page at http://gone.test/a (title 'Oops', HTTP 426) has no window.abp 0.1 s after it loaded; use ws://",
        ),
    ],
)
async def test_page_without_abp_error_starts_with_http_error(context: BrowserContext, status: int, said: str) -> None:
    body = "<title>Oops</title>"

    async def serve(route: Route) -> None:
        await route.fulfill(status=status, body=body, content_type="text/html")

    await context.route("http://gone.test/**", serve)

    async def open_it(grace: float) -> str:
        transport = PlaywrightTransport("http://gone.test/a", context=context, grace=grace)
        async with connect("http://gone.test/a", transport=transport, store="none:") as app:
            return app.info.name

    with pytest.raises(NotAbpApp) as caught:
        await open_it(0.1)
    assert caught.value.message.startswith(said)
    reason = "(the page, title 'Oops', has no window.abp 0.1 s after it loaded)"
    assert status == 426 or reason in caught.value.message
    assert "adapter" not in caught.value.message
    if status != 404:
        return
    # an app that a server sends with such a status, as for each path of an app of one page, is an app
    app = "{app: {id: 'x', name: 'X', version: '1'}, sessionId: '1', protocolVersion: '0.1', capabilities: []}"
    late = f"window.abp = {{initialize: async () => ({app}), call() {{}}}}"
    body = f"<script>setTimeout(() => {{ {late} }}, 50)</script>"
    assert await open_it(5.0) == "X"


@pytest.mark.fault(9)
@pytest.mark.parametrize("channel", slow_but(["cdp", "playwright"], "cdp"))
async def test_page_without_abp_error_names_failed_script(
    context: BrowserContext, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://app.test/"
    files = {
        "": "<script src='app.js?token=s3cret'></script><script src='lib.js'></script>"
        "<script>console.log('ready at https://me:s3cret@app.test'); Promise.reject(new Error('no data'));"
        "try { null.foo } catch (error) { console.error('a handler failed:', error) }</script>",
        "app.js": "window.abp = {\n  call: (;\n};",
    }

    async def serve(route: Route) -> None:
        body = files.get(route.request.url.removeprefix(url).partition("?")[0])
        kind = "text/javascript" if route.request.url.startswith(f"{url}app") else "text/html"
        await route.fulfill(status=404 if body is None else 200, body=body or "", content_type=kind)

    async def refuse(*_: object) -> object:
        raise PlaywrightError("CDP session is only available in Chromium")

    await context.route(f"{url}**", serve)
    if channel == "playwright":
        monkeypatch.setattr(type(context), "new_cdp_session", refuse)
    with pytest.raises(NotAbpApp, match=r"no window\.abp 0\.3 s after it loaded; the page reports: ") as caught:
        await connect(url, transport=PlaywrightTransport(url, context=context, grace=0.3), store="none:")
    message, details = caught.value.message, caught.value.details
    assert "SyntaxError" in message and "no data" in message and "lib.js: " in message
    assert channel == "playwright" or "app.js?…:2:" in message
    assert "404" in value(details, "failed_requests", 0)
    logged = "\n".join(cast("list[str]", details["console"]))
    assert "console.log: ready at " in logged
    assert re.search(r"console\.error: a handler failed:.* \(http://app\.test/:1:\d+\)$", logged, re.MULTILINE), logged
    assert "s3cret" not in str(caught.value.as_dict())


#: A page of which something never arrives, and what is said of it.
UNFINISHED = {
    None: "its server has not answered",
    "<script src='/never?token=s3cret'></script>": r"it waits for http://app\.test/never\?…",
    "<script type='module'>import '/never'</script>": "a part of it has not arrived",
    "<script type='module' src='/never'></script>": "it waits for http://app.test/never",
    "<link rel='stylesheet' href='/never'><script></script>": "it waits for http://app.test/never",
}


async def test_page_that_does_not_load_in_time_says_what_it_waits_for(context: BrowserContext) -> None:
    async def serve(route: Route) -> None:
        url = urlsplit(route.request.url)
        body = [*UNFINISHED][int(url.path[1:])] if url.path != "/never" else None
        if body is not None:
            await route.fulfill(body=body, content_type="text/html")

    async def open_page(number: int, reason: str) -> None:
        url = f"http://app.test/{number}"
        with pytest.raises(ConnectFailed, match=rf"did not load within 3 s; {reason}"):
            await connect(url, transport=PlaywrightTransport(url, context=context, timeout=3), store="none:")

    await context.route("http://app.test/**", serve)
    await asyncio.gather(*(open_page(number, reason) for number, reason in enumerate(UNFINISHED.values())))


@pytest.mark.requirement("R6-3c")
@pytest.mark.fault(10)
async def test_late_app_is_awaited_and_reopened_after_navigation_during_a_call(connected: Connect) -> None:
    heard: list[str] = []
    query = "?late=700&wrappedlist"
    async with connected(query, on_notification=lambda notification: heard.append(notification.event)) as app:
        assert app.info.name == "Workbench" and app.capabilities["export.pdf"].input_schema
        with pytest.raises(Disconnected) as caught:
            await app.call("fault.navigate")
        assert caught.value.code == "DISCONNECTED" and caught.value.retryable
        assert (await app.call("file.list")).artifacts
        assert app.transport.url == app.transport._target  # type: ignore[attr-defined]
        assert app.transport.server_address == ("127.0.0.1", urlsplit(app.transport.url).port)
    assert heard == ["connection/lost", "connection/restored"]


async def test_very_long_answer_is_complete_and_leaves_no_file(connected: Connect, browser: Browser) -> None:
    """JSON of some megabytes takes the way of large content."""
    before = set(browser.folder.iterdir())
    async with connected() as app:
        await app.transport._agent.page.evaluate(  # type: ignore[attr-defined]
            """() => {
              const file = { content: new Uint8Array(1000).buffer, mimeType: "a/b" };
              const data = { text: "äöü€😀".repeat(600000), half: "half \\ud800 a pair", file };
              window.abp.call = async () => ({ success: true, data });
            }"""
        )
        result = await app.call("long")
        assert value(result.data, "text") == "äöü€😀" * 600_000
        assert value(result.data, "half") == "half \ufffd a pair"
        assert result.artifacts["file"].size_bytes == 1000
        rungs = app.transport.rungs
        assert rungs["download"] + rungs["stream"] == 1
    assert set(browser.folder.iterdir()) == before


# --- pages that ask to sign in ----------------------------------------------------------------------------------------


FORM = "<!doctype html><title>Hello</title><form><input name=user><input type=password></form>"
#: What a page does 0.6 s after it began, as one does that has asked its server who is there.
LATER = "<script>setTimeout(() => { location.href = %r; }, 600)</script>"
PAGES = {
    "/form": FORM,
    "/scripted": LATER % "/form",
    "/by-name": LATER % "/accounts/sign-in?token=hidden",
    "/accounts/sign-in": "<!doctype html><input name=mail>",
    "/catalog-info": LATER % "/loginfo",
    "/loginfo": "<!doctype html>no form",
}


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[str]:
    async def page(request: web.Request) -> web.Response:
        if request.path == "/redirected":
            raise web.HTTPFound("/form")
        return web.Response(text=PAGES[request.path], content_type="text/html")

    async with serve_answers(page) as url:
        yield url.rstrip("/")


async def test_login_page_error_says_how_to_sign_in(browser: Browser, site: str) -> None:
    async def said(path: str, *, embedded: bool = False) -> NotAbpApp:
        url = site + path
        framed = PostMessageTransport(url, browser=browser)
        transport = framed if embedded else PlaywrightTransport(url, browser=browser, grace=1.5)
        with pytest.raises(NotAbpApp) as caught:
            await connect(url, store="none:", transport=transport, timeout=4.0 if embedded else 30.0)
        assert f"the {'embedded ' if embedded else ''}page at {url}" in caught.value.message
        return caught.value

    asking = ["/form", "/scripted", "/by-name"]
    errors = await asyncio.gather(*map(said, asking), said("/redirected", embedded=True), said("/catalog-info"))
    for error, moved in zip(errors[:-1], ["", "/form", "/accounts/sign-in", "/form"], strict=True):
        assert error.code == "PERMISSION_REQUIRED" and error.message.count("sign in: `abp login NAME`") == 1
        assert (f"now at {site}{moved}" in error.message) is bool(moved) and "hidden" not in error.message
    assert errors[-1].code == "NOT_SUPPORTED" and "abp login" not in errors[-1].message
