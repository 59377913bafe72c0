"""Pages with WebMCP tools, in a real browser: what they answer, how they fail, and how they come and go; recorded,
without CDP, and in the conformance check."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Error as PlaywrightError, Route, TimeoutError as PlaywrightTimeout

from tests.e2e.test_browsers import NO_CDP
from tests.mcp_official.node import packages
from tests.support.eventually import eventually
from tests.support.pages import reach_without_cdp, serve_page
from transports import (
    BinaryData,
    Browser,
    CapabilitiesChanged,
    PlaywrightTransport,
    Result,
    Session,
    UsageError,
    WebMcpTransport,
    connect,
)
from transports.errors import (
    ABPError,
    CallTimeout,
    CapabilityError,
    NotAbpApp,
    OutcomeUnknown,
    PersonRequired,
    SizeMismatch,
    UnsupportedBinary,
)
from transports.testing.conformance import Plan, check_app
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).parents[2]
PATTERN = bytes(at % 251 for at in range(1000))
Open = Callable[..., Session]


@pytest.fixture
def cases(fixture: Fixture, browser: Browser, tmp_path: Path) -> Open:
    """A session with the page of cases, in the shared browser."""

    def make(path: str = "webmcp/cases", **options: Any) -> Session:
        url = fixture.url + path
        return connect(url, transport=WebMcpTransport(url, browser=browser, **options), store=tmp_path / "out")

    return make


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(
    fixture: Fixture, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Session]:
    """One page of cases for all tests that leave it as it is."""
    url = fixture.url + "webmcp/cases"
    transport = WebMcpTransport(url, browser=browser)
    async with connect(url, transport=transport, store=tmp_path_factory.mktemp("shared")) as app:
        yield app


def content(ref: Any) -> bytes:
    assert ref.path is not None
    return bytes(ref.path.read_bytes())


async def test_webmcp_files_arrive_complete_in_every_form(shared: Session) -> None:
    buffer = (await shared.call("bytes")).artifacts["document"]
    assert (buffer.size_bytes, buffer.filename, buffer.mime_type) == (300_000, "report.bin", "application/pdf")
    for form in ("blobUrl", "dataUrl", "stream", "view", "file"):
        result = await shared.call("file", {"as": form})
        ref = result.artifacts["file"]
        assert content(ref) == PATTERN, form
        if form in ("blobUrl", "dataUrl", "file"):
            assert (ref.filename, ref.mime_type) == ("case.bin", "application/x-case"), form
    for form in ("blobUrl", "dataUrl"):
        with pytest.raises(SizeMismatch) as lie:
            await shared.call("file", {"as": form, "declared": 999})
        assert lie.value.result is not None and not lie.value.result.artifacts
    with pytest.raises(SizeMismatch):
        await shared.call("bytes", {"declared": 1})
    picture = await shared.call("file", {"as": "image"})
    assert content(next(iter(picture.artifacts.values()))) == PATTERN
    assert hashlib.sha256(content((await shared.call("file", {"as": "big"})).artifact())).hexdigest() == (
        hashlib.sha256(bytes(at % 251 for at in range(90_000))).hexdigest()
    )
    assert (await shared.call("numbers")).data == {"exact": 9007199254740993}
    # the tool's object URL is released once its content is held
    url = (await shared.call("record")).data["url"]  # type: ignore[call-overload,index]
    with pytest.raises(Exception, match="fetch"):
        await shared.transport.page.evaluate("url => fetch(url)", url)  # type: ignore[attr-defined]


@pytest.mark.slow
async def test_playwright_webmcp_api_loses_documented_features(
    cases: Open, fixture: Fixture, context: BrowserContext
) -> None:
    """docs/webmcp.md, "Comparison with Playwright's": the same tools by ``page.webmcp``."""
    page = await context.new_page()
    await page.goto(fixture.url + "webmcp/cases")
    call = page.webmcp.call_tool
    assert await call("echo", {"text": 5}) == {"text": 5, "by": "top"}  # the schema is not looked at
    assert (await call("bytes", {"declared": 1}))["document"] == {
        "content": {}, "mimeType": "application/pdf", "size": 1, "filename": "report.bin",
    }  # fmt: skip
    assert '"blobUrl":"blob:' in str((await call("file", {"as": "blobUrl"}))["content"][0]["text"]).replace(" ", "")
    for form in ("stream", "file"):
        assert (await call("file", {"as": form}))["file"] == {}
    assert set((await call("file", {"as": "view", "size": 4}))["file"]) == {"0", "1"}
    assert (await call("file", {"as": "image"}))["content"][1]["type"] == "image"
    assert '"isError":true' in (await call("fail", {"how": "json"}))["content"][0]["text"].replace(" ", "")
    with pytest.raises(PlaywrightError, match="Tool was executed but the invocation failed"):
        await call("fail", {"how": "throw"})
    for name in ("wait", "order"):
        with pytest.raises(PlaywrightTimeout):
            await call(name, {}, timeout=300)
    assert (await call("record"))["aborted"] == []
    card = (await call("subscribe", {"address": "a@b.example"}))["card"]["content"]
    assert card["499"] == 499 % 251
    names = {tool["name"] for tool in await page.webmcp.tools()}
    assert "echo" in names and "file_side" not in names  # a frame has its own list
    with suppress(PlaywrightError):  # the page that answers may come before the call has ended
        assert await call("search", {"q": "bread"}) is None


async def test_tool_failures_raise_with_tool_message(shared: Session) -> None:
    words = {
        "throw": ("OPERATION_FAILED", "out of range"),
        "isError": ("OPERATION_FAILED", "the words of the tool"),
        "json": ("OPERATION_FAILED", "the kernel died"),
        "code": ("NO_SHEET", "there is no sheet"),
    }
    for how, (code, message) in words.items():
        with pytest.raises(CapabilityError) as failed:
            await shared.call("fail", {"how": how})
        assert (failed.value.code, failed.value.message) == (code, f"fail: {message}")
    assert (await shared.call("fail", {"how": ""})).data == "a bare text"
    with pytest.raises(UsageError, match="text"):
        await shared.call("echo", {"text": 5})
    with pytest.raises(CapabilityError, match="no"):
        await shared.call("nothing")


async def test_webmcp_tools_have_hints_and_are_updated(cases: Open) -> None:
    async with cases() as app:
        hints = app.capabilities["echo"].annotations
        assert hints["readOnlyHint"] is True and hints["untrustedContentHint"] is True
        async with app.events() as events:
            for there in (True, False, True):
                assert (await app.call("toggle")).data == {"there": there}
                async with asyncio.timeout(15):
                    while not isinstance(event := await anext(events), CapabilitiesChanged):
                        pass
                assert (event.added, event.removed) == ((("later",), ()) if there else ((), ("later",)))
                assert ("later" in app.capabilities) is there
        assert (await app.call("later")).data == "here"
        assert (await app.call("forget")).data == {"document": False, "navigator": False}
        assert (await app.call("echo", {"text": "a"})).data == {"text": "a", "by": "top"}


async def test_each_frame_serves_only_its_own_tools(cases: Open, fixture: Fixture) -> None:
    async with cases() as app:
        await eventually(lambda: sum(name.startswith("file_") for name in app.capabilities) == 2)
        by = {name: (await app.call(name, {"text": "x"})).data["by"] for name in app.capabilities if "echo" in name}  # type: ignore[call-overload,index]
        near, far = fixture.url.rstrip("/"), fixture.other_origin.rstrip("/")
        host = far.removeprefix("http://")
        assert by == {"echo": "top", "echo@side": f"side {near}", f"echo@{host}": f"far {far}"}
        for name in ("side@side", f"far@{host}"):
            ref = (await app.call(f"file_{name}")).artifacts["saved"]
            assert content(ref) == bytes([7]) * 400_000 and ref.filename.startswith("frame")
        with pytest.raises(OutcomeUnknown):
            await app.call("leave_side@side")
        await eventually(lambda: "echo@side" not in app.capabilities)
        assert f"echo@{host}" in app.capabilities
        with pytest.raises(CapabilityError):
            await app.call("echo@side", {"text": "x"})


async def test_webmcp_forms_answer_wait_or_navigate(cases: Open) -> None:
    async with cases() as app:
        assert app.capabilities["subscribe"].annotations["autosubmit"] is True
        answered = await app.call("subscribe", {"address": "a@b.example"})
        assert answered.data["address"] == "a@b.example"  # type: ignore[call-overload,index]
        assert content(answered.artifacts["card"]) == PATTERN[:500]
        with pytest.raises(CapabilityError, match="no such address"):
            await app.call("subscribe", {"address": "refused"})
        with pytest.raises(PersonRequired, match="order"):
            await app.call("order", {"item": "tea"})
        seen: Any = (await app.call("record")).data
        assert seen["value"] == "tea" and seen["ordered"] == []
        sent = await app.call("search", {"q": "bread"})
        assert sent.data is None and "was sent" in sent.warnings[0]
        # the call returns when the tools of the next page are known
        assert "query" in app.capabilities and "echo" not in app.capabilities
        assert (await app.call("query")).data == {"q": "bread"}
        with pytest.raises(CapabilityError) as caught:
            await app.call("echo", {"text": "gone"})
        assert caught.value.code == "UNKNOWN_CAPABILITY"


async def test_navigation_during_call_raises_outcome_unknown(shared: Session) -> None:
    with pytest.raises(OutcomeUnknown):
        await shared.call("reload", idempotent=True)
    known = shared.capabilities
    with pytest.raises(UsageError, match="params"):
        await shared.call("echo", {"text": 7})
    assert shared.capabilities is known  # nothing came later
    assert (await shared.call("echo", {"text": "again"})).data == {"text": "again", "by": "top"}


async def test_webmcp_files_are_sent_as_schema_requires(shared: Session, tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_bytes(b"hello")
    picture = BinaryData.from_bytes(b"hello", mime_type="image/png", filename="a.png")
    taken = await shared.call("take", {"url": picture, "text": path, "object": path})
    data: Any = taken.data
    assert data["url"] == "data:image/png;base64,aGVsbG8=" and data["text"] == "aGVsbG8="
    assert data["object"] == {"name": "note.txt", "type": "application/octet-stream", "data": "aGVsbG8=", "size": 5}


async def test_auto_prefers_window_abp_and_reports_page_without_either(
    fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    # An app that has tools, too: its script begins a session of its own, before ours or after it.
    async with connect(fixture.webmcp_url, browser=browser, store=tmp_path) as app:
        assert app.transport.name == "playwright" and "export.pdf" in app.capabilities
        result = await app.call("data.csv", {"rows": [{"product": "tea"}]})
        assert result.artifact().size_bytes == 14
    url = fixture.url + "?absent"
    transport = PlaywrightTransport(url, browser=browser, protocol="auto", grace=0.2)
    with pytest.raises(NotAbpApp, match=r"no window\.abp and no WebMCP tools 0\.2 s after it loaded"):
        await connect(url, transport=transport, store=tmp_path)


@pytest.mark.slow
async def test_page_may_get_less_time_than_its_tools_have(fixture: Fixture, browser: Browser, tmp_path: Path) -> None:
    with pytest.raises(NotAbpApp, match="no WebMCP tools"):
        await connect(fixture.url + "?absent", browser=browser, transport="webmcp", timeout=10, store=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("polyfill", ["document", "navigator"])
async def test_webmcp_polyfill_is_detected_at_install_and_late(
    polyfill: str, fixture: Fixture, context: BrowserContext, tmp_path: Path
) -> None:
    folder = packages(ROOT / "tests" / "support" / "polyfills.json")
    script = (folder / "node_modules" / f"{polyfill}-polyfill" / "dist" / "index.iife.js").read_text(encoding="utf-8")
    gone = "for (const one of [Document, Navigator]) delete one.prototype.modelContext;"
    await context.route(
        "**/polyfill.js", lambda route: route.fulfill(body=gone + script, content_type="text/javascript")
    )
    url = fixture.url + "webmcp/cases?dialect=%2Fpolyfill.js"
    async with connect(url, context=context, transport="webmcp", store=tmp_path) as app:
        assert content((await app.call("file", {"as": "blobUrl"})).artifacts["file"]) == PATTERN
        assert (await app.call("bytes")).artifacts["document"].size_bytes == 300_000
        assert (await app.call("toggle")).data == {"there": True}
        assert (await app.call("later")).data == "here"
    page = await context.new_page()
    await page.goto(url)
    async with connect(url, page=page, transport="webmcp", store=tmp_path) as app:
        late = await app.call("echo", {"text": "late"})
        assert late.data == {"text": "late", "by": "top"}
        assert any("before the session came" in warning for warning in late.warnings)
        with pytest.raises(CapabilityError, match="out of range"):
            await app.call("fail", {"how": "throw"})


@pytest.mark.slow
async def test_effects_of_open_page_are_handled_while_session_opens(
    fixture: Fixture, context: BrowserContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = await context.new_page()
    url = fixture.url + "webmcp/cases"
    await page.goto(url)
    # Frames prolong the opening.
    await page.evaluate("""() => {
      for (let i = 0; i < 5; i++) document.body.append(document.createElement("iframe"));
      setInterval(() => navigator.clipboard.writeText("again").catch(() => {}), 20);
    }""")
    await connect(url, page=page, transport="webmcp", store=tmp_path)
    assert [record.getMessage() for record in caplog.records] == []


async def test_duplicate_tool_name_does_not_affect_first_tool(browser: Browser, tmp_path: Path) -> None:
    # Chromium refuses the second one a moment later, and may leave the first one waiting for as long as it likes.
    html = """<!doctype html><script>
    const tool = () => document.modelContext.registerTool({ name: "twice", description: "Twice",
      execute: () => ({ document: { content: new ArrayBuffer(1000), mimeType: "application/pdf" }, said }) });
    let said = "not yet";
    tool().then(tool).catch((error) => { said = error.name; });
    </script>"""
    async with serve_page(html) as url, connect(url, browser=browser, transport="webmcp", store=tmp_path) as app:
        await eventually(lambda: _says(app, "InvalidStateError"))
        result = await app.call("twice")
        assert result.artifacts["document"].size_bytes == 1000 and result.warnings == ()


async def test_page_that_changes_its_tools_endlessly_is_opened(browser: Browser, tmp_path: Path) -> None:
    html = """<!doctype html><script>
    const tool = (name, options) =>
      document.modelContext.registerTool({ name, description: name, execute: () => name }, options);
    tool("stable");
    setInterval(() => tool("tick", { signal: AbortSignal.timeout(20) }), 40);
    </script>"""
    async with serve_page(html) as url, connect(url, browser=browser, transport="webmcp", store=tmp_path) as app:
        assert (await app.call("stable")).data == "stable"


@pytest.mark.slow
async def test_platform_that_never_lists_tools_is_waited_for_once(browser: Browser, tmp_path: Path) -> None:
    """So does Chromium 151 in a page that was asked before it had a tool."""
    html = """<!doctype html><title>Stuck</title><script>
      document.modelContext.getTools = () => new Promise(() => {});
      const tool = { name: "stable", description: "Answers.", execute: async () => "stable" };
      setTimeout(() => document.modelContext.registerTool(tool), 100);
    </script>"""
    started = time.monotonic()
    async with serve_page(html) as url, connect(url, browser=browser, transport="webmcp", store=tmp_path) as app:
        assert time.monotonic() - started < 15
        assert (await app.call("stable")).data == "stable"


async def _says(app: Session, expected: str) -> bool:
    return dict((await app.call("twice")).data)["said"] == expected  # type: ignore[arg-type]


async def test_attached_page_returns_webmcp_platform_answers(
    fixture: Fixture, context: BrowserContext, tmp_path: Path
) -> None:
    page = await context.new_page()
    url = fixture.url + "webmcp/cases"
    await page.goto(url)
    async with connect(url, page=page, transport="webmcp", store=tmp_path) as app:
        with pytest.raises(UnsupportedBinary, match=r"document: content is \{\}") as lost:
            await app.call("bytes")
        assert isinstance(lost.value.result, Result) and "buffers" in lost.value.result.warnings[0]
        assert content((await app.call("file", {"as": "dataUrl"})).artifacts["file"]) == PATTERN
        with pytest.raises(CapabilityError, match="invocation failed"):  # the platform keeps the tool's words
            await app.call("fail", {"how": "throw"})
    assert await page.evaluate("document.modelContext.getTools().then((tools) => tools.length)") > 10


# --- recordings, browsers without CDP, the conformance check ----------------------------------------------------------


PATIENCE = 15.0
WITHOUT = "for (const one of [Document, Navigator]) delete one.prototype.modelContext;"
POLYFILL = """
Object.defineProperty(document, "modelContext", {
  value: Object.assign(new EventTarget(), { registerTool() {} }), configurable: true,
});
"""


def contents(result: Any) -> dict[str, bytes]:
    return {ref.filename: ref.path.read_bytes() for ref in result.artifacts.values()}


async def with_polyfill(route: Route) -> None:
    response = await route.fetch()
    await route.fulfill(response=response, body=POLYFILL + await response.text())


async def test_tool_side_effects_belong_to_its_call(
    fixture: Fixture, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A download that begins later comes with a later call, as it should: on a busy machine it was missing here.
    monkeypatch.setattr("transports.playwright._effect_tracker.BEGIN_TIMEOUT", 20.0)
    async with connect(fixture.url + "webmcp/cases", browser=browser, store=tmp_path) as app:
        done = await app.call("effects")
        assert done.data == {"asked": False} and done.warnings == ()
        assert done.transport == "webmcp"  # chosen by what the page offers
        assert sorted(effect.kind for effect in done.effects) == ["clipboard", "dialog", "download", "popup", "print"]
        assert len({effect.call for effect in done.effects}) == 1
        kept = {ref.mime_type: ref.path.read_bytes() for ref in done.artifacts.values() if ref.path is not None}
        assert kept.pop("application/pdf").startswith(b"%PDF-")
        assert contents(done)["saved.txt"] == b"saved"
        assert {b"copied", b"shown"} <= set(contents(done).values())
        for name in ("side", "far"):  # a frame of the same origin, and one of another
            place = {"side": "side", "far": fixture.other_origin.removeprefix("http://").rstrip("/")}[name]
            tool = f"effects_{name}@{place}"
            await eventually(lambda tool=tool: tool in app.capabilities)  # type: ignore[misc]
            framed = await app.call(tool)
            assert framed.data == {"done": True} and framed.warnings == ()
            assert sorted(effect.kind for effect in framed.effects) == ["clipboard", "download"]
            assert contents(framed)[f"{name}.txt"] == f"of {name}".encode()
            assert f"copied in {name}".encode() in contents(framed).values()


@pytest.mark.slow
async def test_recording_replays_tools_files_failures_and_changes(
    fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    calls: list[tuple[str, Mapping[str, object]]] = [
        ("echo", {"text": "hi"}),
        ("bytes", {}),
        ("file", {"as": "blobUrl"}),
        ("file", {"as": "dataUrl", "declared": 999}),
        ("effects", {}),
        ("fail", {"how": "throw"}),
        ("take", {"object": b"given"}),
        ("order", {"item": "tea"}),
        ("toggle", {}),
        ("reload", {}),
        ("echo", {"text": "after"}),
    ]

    async def outcomes(app: Session) -> list[object]:
        seen: list[object] = [sorted(app.capabilities["echo"].annotations.items())]
        async with app.events() as events:
            for name, params in calls:
                try:
                    result = await app.call(name, params, timeout=PATIENCE)
                except ABPError as error:
                    seen.append((type(error).__name__, error.code, error.message))
                else:
                    files = sorted((ref.size_bytes, ref.sha256) for ref in result.artifacts.values())
                    data = json.dumps(result.data).replace(str(app.store.url).removeprefix("file://"), "STORE")
                    seen.append((data, files, result.warnings))
                if name == "toggle":
                    async with asyncio.timeout(PATIENCE):
                        while not isinstance(event := await anext(events), CapabilitiesChanged):
                            pass
                    seen.append((event.added, event.removed, "later" in app.capabilities))
        return seen

    url = fixture.url + "webmcp/cases"
    async with connect(url, browser=browser, store=tmp_path / "a", record=tmp_path / "rec.jsonl") as app:
        recorded = await outcomes(app)
    names = [one[0] for one in recorded if isinstance(one, tuple) and str(one[0])[0].isupper()]
    assert names == ["SizeMismatch", "CapabilityError", "PersonRequired", "OutcomeUnknown"]
    async with connect(f"replay:{tmp_path / 'rec.jsonl'}", store=tmp_path / "b") as app:
        assert await outcomes(app) == recorded


@pytest.fixture(params=NO_CDP)
def without_cdp(request: pytest.FixtureRequest, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> Browser:
    """A browser whose pages are reached by Playwright's own API."""
    if request.param == "firefox":
        return request.getfixturevalue("firefox")  # type: ignore[no-any-return]
    reach_without_cdp(monkeypatch)
    return browser


async def test_polyfill_tools_need_no_cdp(
    without_cdp: Browser, fixture: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Firefox and WebKit, which have no WebMCP of their own."""
    context = await without_cdp.playwright.new_context()
    try:
        await context.add_init_script(WITHOUT)
        with monkeypatch.context() as patch, pytest.raises(NotAbpApp, match="no WebMCP"):
            patch.setattr(WebMcpTransport, "_default_grace", 0.3)
            await connect(fixture.url + "static/blank.html", context=context, transport="webmcp", store=tmp_path)
        await context.route("**/static/webmcp/*.js", with_polyfill)
        async with connect(fixture.url + "webmcp/cases", context=context, store=tmp_path) as app:
            assert app.transport.name == "webmcp" and app.transport._agent.channel.cdp is None  # type: ignore[attr-defined]
            assert (await app.call("bytes")).artifacts["document"].size_bytes == 300_000
            for form in ("blobUrl", "stream"):
                ref = (await app.call("file", {"as": form, "size": 500_000})).artifacts["file"]
                assert ref.path is not None and ref.path.read_bytes() == bytes(at % 251 for at in range(500_000))
            await eventually(lambda: "echo@side" in app.capabilities)
            side: Any = (await app.call("echo@side", {"text": "x"})).data
            assert side["by"].startswith("side ")
            with pytest.raises(CapabilityError, match="out of range"):
                await app.call("fail", {"how": "throw"})
            with pytest.raises(CallTimeout):
                await app.call("wait", timeout=0.3)
            with pytest.raises(OutcomeUnknown):
                await app.call("reload")
            assert (await app.call("echo", {"text": "again"})).data == {"text": "again", "by": "top"}
    finally:
        await context.close()


@pytest.mark.slow
async def test_conformance_checks_webmcp_page_by_its_tools(
    fixture: Fixture, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(timeout=1.0, only=("echo", "numbers", "wait"))
    report = await check_app(fixture.url + "webmcp/cases", plan, browser=browser)  # it has no window.abp
    found = {one.check.id: one.findings for one in report.outcomes if one.status in ("failed", "warning")}
    assert "echo: no description of text" in found["webmcp.parameters"]
    assert found["webmcp.answer"] == ("numbers",)
    assert report.kind == "webmcp"
    both = Plan(calls=False, timeout=1)
    assert (await check_app(fixture.webmcp_url, both, browser=browser)).kind == "page"
    own = await check_app(fixture.webmcp_url, both, transport="webmcp", browser=browser)
    assert own.kind == "webmcp"
    assert [one.findings for one in own.outcomes if one.status == "failed"] == []
    monkeypatch.setattr(WebMcpTransport, "_default_grace", 0.3)
    nothing = await check_app(fixture.url, both, transport="webmcp", browser=browser)
    assert any(one.check.id == "webmcp.reached" and one.status == "failed" for one in nothing.outcomes)
