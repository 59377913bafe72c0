"""Apps in an iframe: who is believed, what crosses, what is said of an app that cannot be embedded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Page

from tests.support.eventually import eventually
from tests.support.pages import serve_answers
from tests.support.pdf import pages_of, text_of
from tests.support.rows import each_row
from tests.support.slow import slow_but
from transports import Browser, Disconnected, PostMessageTransport, Session, UsageError, connect
from transports.errors import ConnectFailed, NotAbpApp
from transports.postmessage._transport import HARNESS_ORIGIN, _origin_beside
from webapp_fixture import Fixture, digest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MB = 1 << 20
Embedded = Callable[..., Session]


@pytest.fixture
def embedded(fixture: Fixture, browser: Browser, tmp_path: Path) -> Embedded:
    """A session with an embedded app in the shared browser."""

    def make(url: str = "", *, timeout: float = 20.0, **options: Any) -> Session:
        url = url or fixture.embed_url
        transport = PostMessageTransport(url, timeout=timeout, **{"browser": browser, **options})
        return connect(url, transport=transport, store=tmp_path / "out", timeout=timeout)

    return make


def transport_of(app: Session) -> PostMessageTransport:
    assert isinstance(app.transport, PostMessageTransport)
    return app.transport


def page_of(app: Session) -> Page:
    page = transport_of(app).page
    assert page is not None
    return page


async def data_of(app: Session, capability: str, params: dict[str, object] | None = None) -> Any:
    return (await app.call(capability, params)).data


@pytest.mark.requirement("R1-8b", "R1-8c", "R1-10b")
async def test_app_buffer_is_transferred_and_unknown_messages_log_one_short_warning(
    embedded: Embedded, fixture: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded() as app:
        assert app.transport.url == fixture.embed_url  # its downloads are relative to it
        assert app.transport.server_address == ("127.0.0.1", urlsplit(fixture.embed_url).port)
        sandbox = await page_of(app).locator("iframe").get_attribute("sandbox")
        assert sandbox is not None and "allow-top-navigation" not in sandbox and "allow-modals" not in sandbox
        for size in (1000, 300_000, 3 * MB):
            result = await app.call("file.generate", {"bytes": size, "seed": 5})
            assert result.artifacts["file"].sha256 == digest(size, 5)
            answered = await data_of(app, "app.record")
            assert answered["handedOut"][-1] == 0  # byteLength as the app sees it now: detached
        script = "() => { for (let n = 0; n < 20; n += 1) parent.postMessage({ type: n + 'x'.repeat(10000) }, '*'); }"
        await page_of(app).frames[-1].evaluate(script)
        await app.call("file.list")
    (warning,) = [record for record in caplog.records if "unknown type" in record.getMessage()]
    assert len(warning.getMessage()) < 200


async def test_strict_csp_and_sandbox_do_not_block_file_transfer(fixture: Fixture, embedded: Embedded) -> None:
    """The content is taken out of the harness page, which the app's policy and sandbox do not concern."""
    sandbox = "allow-scripts allow-same-origin"
    async with embedded(f"{fixture.embed_url}/strict", sandbox=sandbox) as app:
        ref = (await app.call("file.generate", {"megabytes": 3, "seed": 2, "as": "blob"})).artifacts["file"]
        assert ref.sha256 == digest(3 * MB, 2)
        assert transport_of(app).rungs == {"download": 1, "stream": 0, "slices": 0}


# --- who is believed --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-8c")
@pytest.mark.fault(11)
async def test_messages_from_other_windows_do_not_answer_calls(fixture: Fixture, embedded: Embedded) -> None:
    """A frame inside the app, of another origin, which knows each id and answers first."""
    heard: list[str] = []
    async with embedded(f"{fixture.embed_url}/shouting") as app, app.events() as events:
        assert app.info.name == "Workbench"
        for n in range(3):
            assert await data_of(app, "file.digest", {"file": bytes([n])}) != {"forged": True}
        record = await data_of(app, "app.record")
        assert "forged" not in record
        await eventually(lambda: transport_of(app).counts.get("foreign", 0) >= 6 * 20 * 5)
        await app.aclose()
        async for event in events:
            heard.append(str(event))
    assert not [text for text in heard if "forged" in text]


@pytest.mark.slow
@pytest.mark.fault(11)
async def test_same_origin_window_is_not_treated_as_app(fixture: Fixture, embedded: Embedded) -> None:
    """A popup of the app's origin that shouts at the harness for as long as the call runs."""
    shout = """() => setInterval(() => {
      for (const id of [undefined, "", "1"]) {
        const payload = { success: true, data: { forged: true } };
        opener.postMessage({ type: "capabilities/call-result", id, payload }, "*");
        opener.postMessage({ type: "progress", payload: { progress: 666 } }, "*");
      }
    }, 5)"""
    async with embedded() as app:
        harness = page_of(app)
        async with harness.context.expect_page() as opening:
            assert await harness.evaluate("(url) => open(url, '_blank') !== null", f"{fixture.url}static/blank.html")
        popup = await opening.value
        await popup.wait_for_load_state()
        await popup.evaluate(shout)
        progress: list[Any] = []
        result = await app.call("job.run", {"steps": 5, "delay": 60}, on_progress=progress.append)
        assert "forged" not in str(result.data)
        assert [item.progress for item in progress] == [1, 2, 3, 4, 5]
        await eventually(lambda: transport_of(app).counts.get("foreign", 0) >= 20)


PAGE = """<!doctype html><title>Odd</title><script>
let greeted = 0;
addEventListener("message", (event) => {
  if (event.source !== parent) return;
  const {type, id, payload} = event.data;
  const post = (message) => parent.postMessage({timestamp: 0, ...message}, event.origin);
  if (type === "initialize") {
    greeted += 1;
    if (location.search.includes("late") && greeted < 2) return;
    const said = (payload) => post({type: "initialize-result", id, payload});
    const again = () => said({success: false, error: {code: "ALREADY_INITIALIZED"}});
    const hello = () => said({sessionId: "1", app: {name: "Odd"}, capabilities: [{name: "echo"}]});
    if (location.search.includes("slow")) { if (greeted > 1) again(); else setTimeout(hello, 1200); return; }
    hello();
  }
  if (type === "capabilities/call") {
    for (const odd of [null, 7, "text", [], {}, {type: 3}, {type: "progress"}, {type: "made/up", payload: 1}])
      parent.postMessage(odd, event.origin);
    post({type: "initialize-result", id, payload: {wrong: "type"}});
    post({type: "capabilities/call-result", id: "someone-else", payload: {success: true, data: "wrong id"}});
    post({type: "capabilities/call-result", id, payload: {success: true, data: "right"}});
    post({type: "capabilities/call-result", id, payload: {success: true, data: "twice"}});
  }
});
</script>"""


@pytest_asyncio.fixture(loop_scope="session")
async def odd() -> AsyncIterator[str]:
    """An app that speaks postMessage by itself, in odd ways."""

    async def page(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await asyncio.sleep(60)
        if request.path == "/leads":
            later = "<script>setTimeout(() => { location.href = '/refused?token=hidden'; }, 600)</script>"
            return web.Response(text=later, content_type="text/html")
        if request.path == "/refused":
            return web.Response(text=PAGE, content_type="text/html", headers={"X-Frame-Options": "DENY"})
        if request.path == "/nothing":
            return web.Response(status=204)
        if request.path == "/download":
            return web.Response(text=PAGE, headers={"Content-Disposition": "attachment"})
        if request.path == "/cookie":
            return web.Response(text=request.headers.get("Cookie", ""))
        return web.Response(text=PAGE, content_type="text/html")

    async with serve_answers(page) as url:
        yield url.rstrip("/")


@pytest.mark.fault(11)
async def test_malformed_and_foreign_app_messages_are_counted_and_ignored(embedded: Embedded, odd: str) -> None:
    async with embedded(f"{odd}/", sandbox=None, allow="fullscreen") as app:
        frame = page_of(app).locator("iframe")
        assert [await frame.get_attribute(name) for name in ("sandbox", "allow")] == [None, "fullscreen"]
        for _ in range(2):
            assert await data_of(app, "echo") == "right"
        await eventually(lambda: transport_of(app).counts.get("duplicate", 0) >= 2)
        counts = transport_of(app).counts
        assert counts["malformed"] == 12
        assert counts["unknown"] == 4
        assert counts["delivered"] == 3


async def test_unanswered_initialize_is_repeated_and_slow_one_is_awaited(embedded: Embedded, odd: str) -> None:
    async with embedded(f"{odd}/?late") as late, embedded(f"{odd}/?slow") as slow:
        assert late.info.name == slow.info.name == "Odd"


# --- apps that are gone, or never there -------------------------------------------------------------------------------


@pytest.mark.fault(10)
async def test_app_leaving_its_frame_and_removed_frame_fail_calls_and_are_reembedded(embedded: Embedded) -> None:
    async with embedded() as app:
        for how in ("away", "href", "reload"):
            with pytest.raises(Disconnected, match="navigated or reloaded"):
                await app.call("fault.navigate", {"how": how}, timeout=10)
            assert (await app.call("file.list", timeout=10)).artifacts
        call = asyncio.ensure_future(app.call("fault.never", timeout=20))
        await asyncio.sleep(0.2)
        await page_of(app).evaluate("document.querySelector('iframe').remove()")
        started = time.monotonic()
        with pytest.raises(Disconnected):
            await call
        assert time.monotonic() - started < 10
        assert (await app.call("file.list", timeout=10)).artifacts


@pytest.mark.fault(2)
@pytest.mark.slow
@pytest.mark.parametrize("harness", ["same", "other"])
async def test_a_crashed_frame_process_fails_its_calls(
    embedded: Embedded, whole_browser: Browser, harness: str
) -> None:
    async with embedded(harness=harness, browser=whole_browser) as app:
        page = page_of(app)
        frame = await page.context.new_cdp_session(page if harness == "same" else page.main_frame.child_frames[0])
        call = asyncio.ensure_future(app.call("fault.never", timeout=20))
        await asyncio.sleep(0.2)
        started = time.monotonic()
        crash = asyncio.ensure_future(frame.send("Page.crash"))
        with pytest.raises(Disconnected, match="crashed"):
            await call
        assert time.monotonic() - started < 10
        crash.cancel()
        await asyncio.gather(crash, return_exceptions=True)
        assert (await app.call("file.list", timeout=10)).artifacts


async def test_app_that_cannot_be_embedded_raises_with_reason_at_once(
    fixture: Fixture, embedded: Embedded, odd: str
) -> None:
    """Not when the time for the app's answer is up, as an app that answers nothing."""
    refuses = "refuses to be embedded"
    reasons = {
        f"{fixture.embed_url}/denied": rf"{refuses} \(X-Frame-Options: DENY\).*transport='playwright'",
        f"{fixture.embed_url}/ancestors": rf"{refuses} \(frame-ancestors 'none'\).*transport='playwright'",
        f"{odd}/leads": rf"/leads: it leads to [^ ]*/refused: it {refuses} \(X-Frame-Options: DENY\)",
        f"{odd}/nothing": "the server answers 204 No Content",
        f"{odd}/download": "the address is a download",
        "http://127.0.0.1:3/": "start the app or correct the address",
    }

    async def check(url: str, reason: str, timeout: float = 20.0) -> None:
        with pytest.raises(ConnectFailed, match=reason):
            await embedded(url, timeout=timeout)

    await asyncio.gather(
        *(check(*row) for row in reasons.items()),
        check(f"{odd}/slow", "did not load within 2 s", 2.0),
    )


@pytest.mark.parametrize("page", slow_but(["", "embed/silent"], ""))  # without the script, and one that says nothing
async def test_page_that_answers_no_message_is_not_an_embedded_app(
    fixture: Fixture, embedded: Embedded, page: str
) -> None:
    with pytest.raises(NotAbpApp, match=r"answered no message .*abp-embed\.js"):
        await embedded(f"{fixture.url}{page}", timeout=5.0)


@pytest.mark.parametrize("harness", slow_but(["same", "other"], "same"))
async def test_whole_embedded_app_is_printed(embedded: Embedded, harness: str) -> None:
    """``window.print`` of an embedded app prints the app, all of it, not what the frame happens to show."""
    words = [f"word{n:04}" for n in range(400)]
    async with embedded(harness=harness) as app:
        size = "() => [innerWidth, innerHeight]"
        (frame,) = page_of(app).main_frame.child_frames
        size_before = await frame.evaluate(size)
        result = await app.call("export.pdf", {"html": "".join(f"<p>{word}</p>" for word in words)})
        assert result.warnings == ()
        ref = result.artifacts["document"]
        assert ref.mime_type == "application/pdf"
        assert text_of(ref.path).split() == words
        ((width, _),) = pages_of(ref.path)
        assert width == pytest.approx(595, abs=2)  # A4
        assert await data_of(app, "file.list") is not None  # the frame is alive
        assert await frame.evaluate("matchMedia('screen').matches && !matchMedia('print').matches")
        assert await frame.evaluate(size) == size_before

        page = page_of(app)
        assert page.url == ("http://127.0.0.1:47474/" if harness == "same" else f"{HARNESS_ORIGIN}/")
        assert await page.evaluate("isSecureContext") is True
        assert await page.main_frame.child_frames[0].evaluate("isSecureContext") is True


@pytest.mark.slow
@pytest.mark.parametrize(("harness", "sent", "processes"), [("same", "strict=1", 1), ("other", "", 2)])
async def test_app_with_same_site_harness_keeps_cookies_and_shares_process(
    embedded: Embedded, odd: str, whole_browser: Browser, harness: str, sent: str, processes: int
) -> None:
    async with embedded(f"{odd}/", harness=harness, browser=whole_browser) as app:
        page = page_of(app)
        frame = page.main_frame.child_frames[0]
        await page.context.add_cookies([{"name": "strict", "value": "1", "url": odd, "sameSite": "Strict"}])
        assert await frame.evaluate("() => fetch('/cookie').then((answer) => answer.text())") == sent
        targets = await (await page.context.new_cdp_session(page)).send("Target.getTargets")
        assert 1 + sum(target["url"].startswith(odd) for target in targets["targetInfos"]) == processes


@each_row(
    ("url", "origin"),
    [
        ("http://127.0.0.1:8000/embed", "http://127.0.0.1:47474"),
        ("http://localhost:47474/", "http://localhost:47475"),
        ("https://app.example/a?b#c", "https://app.example:47474"),
        ("https://user:word@app.example:8443/", "https://app.example:47474"),
        ("http://[::1]:8000/", "http://[::1]:47474"),
        ("http://[::1]/", "http://[::1]:47474"),
    ],
)
async def test_same_site_harness_is_served_on_another_port(url: str, origin: str) -> None:
    assert _origin_beside(url) == origin


@each_row(
    ("options", "words"),
    [
        *(({"sandbox": word}, "allow-scripts and allow-") for word in ("", "allow-scripts", "allow-same-origin")),
        ({"harness": "mine"}, "'same' or 'other', not 'mine'"),
    ],
)
async def test_invalid_postmessage_options_are_rejected(options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PostMessageTransport("http://127.0.0.1:8000/", **options)
