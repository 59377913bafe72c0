"""Pages with WebMCP tools, in a real browser: what they answer, how they fail, and how they come and go."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Error as PlaywrightError

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from mcp import Client, StdioServerParameters

from tests.mcp_official.node import Missing, packages
from tests.support.needs import missing
from transports import (
    BinaryData,
    Browser,
    CapabilitiesChanged,
    CapabilityError,
    PlaywrightTransport,
    Session,
    UsageError,
    WebMcpTransport,
    connect,
)
from transports.errors import CallTimeout, NotAbpApp, OutcomeUnknown, PersonRequired, SizeMismatch
from transports.testing.conformance import Plan, check_app
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATTERN = bytes(at % 251 for at in range(1000))
Open = Callable[..., Session]


@pytest.fixture
def cases(fixture: Fixture, browser: Browser, tmp_path: Path) -> Open:
    """A session with the page of cases, in the shared browser."""

    def make(path: str = "webmcp/cases", **options: Any) -> Session:
        url = fixture.url + path
        return connect(url, transport=WebMcpTransport(url, browser=browser, **options), store=tmp_path / "out")

    return make


def content(ref: Any) -> bytes:
    assert ref.path is not None
    return bytes(ref.path.read_bytes())


async def test_files_arrive_whole_in_every_form(cases: Open) -> None:
    async with cases() as app:
        buffer = (await app.call("bytes")).artifacts["document"]
        assert (buffer.size_bytes, buffer.filename, buffer.mime_type) == (300_000, "report.bin", "application/pdf")
        for form in ("blobUrl", "dataUrl", "stream", "view", "file"):
            result = await app.call("file", {"as": form})
            ref = result.artifacts["file"]
            assert content(ref) == PATTERN, form
            if form in ("blobUrl", "dataUrl", "file"):
                assert (ref.filename, ref.mime_type) == ("case.bin", "application/x-case"), form
        for form in ("blobUrl", "dataUrl"):
            with pytest.raises(SizeMismatch) as lie:
                await app.call("file", {"as": form, "declared": 999})
            assert lie.value.result is not None and not lie.value.result.artifacts
        with pytest.raises(SizeMismatch):
            await app.call("bytes", {"declared": 1})
        picture = await app.call("file", {"as": "image"})
        assert content(next(iter(picture.artifacts.values()))) == PATTERN
        assert hashlib.sha256(content((await app.call("file", {"as": "big"})).artifact())).hexdigest() == (
            hashlib.sha256(bytes(at % 251 for at in range(90_000))).hexdigest()
        )
        assert (await app.call("numbers")).data == {"exact": 9007199254740993}
        effects = await app.call("effects")
        assert effects.data["asked"] is False  # type: ignore[call-overload,index]
        assert {effect.kind for effect in effects.effects} >= {"print", "dialog"}
        # the tool's object URL is released once its content is held
        url = (await app.call("record")).data["url"]  # type: ignore[call-overload,index]
        with pytest.raises(Exception, match="fetch"):
            await app.transport.page.evaluate("url => fetch(url)", url)  # type: ignore[attr-defined]


async def test_failures_are_errors_with_the_words_of_the_tool(cases: Open) -> None:
    async with cases() as app:
        words = {
            "throw": ("OPERATION_FAILED", "out of range"),
            "isError": ("OPERATION_FAILED", "the words of the tool"),
            "json": ("OPERATION_FAILED", "the kernel died"),
            "code": ("NO_SHEET", "there is no sheet"),
        }
        for how, (code, message) in words.items():
            with pytest.raises(CapabilityError) as failed:
                await app.call("fail", {"how": how})
            assert (failed.value.code, failed.value.message) == (code, f"fail: {message}")
        assert (await app.call("fail", {"how": ""})).data == "a bare text"
        with pytest.raises(UsageError, match="text"):
            await app.call("echo", {"text": 5})
        with pytest.raises(CapabilityError, match="no"):
            await app.call("nothing")


async def test_a_timeout_and_a_cancellation_reach_the_signal(cases: Open) -> None:
    async with cases() as app:
        with pytest.raises(CallTimeout):
            await app.call("wait", timeout=0.3)
        waiting = asyncio.ensure_future(app.call("wait"))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for _ in range(300):
            record: Any = (await app.call("record")).data
            aborted = record["aborted"]
            if len(aborted) == 2:
                break
            await asyncio.sleep(0.05)
        assert aborted == ["timeout", "cancelled by the client"]


async def test_tools_have_hints_and_come_and_go(cases: Open) -> None:
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


async def test_each_frame_answers_for_its_own_tools(cases: Open, fixture: Fixture) -> None:
    async with cases() as app:
        for _ in range(300):
            if "file_far" in app.capabilities and "file_side" in app.capabilities:
                break
            await asyncio.sleep(0.05)
        by = {name: (await app.call(name, {"text": "x"})).data["by"] for name in app.capabilities if "echo" in name}  # type: ignore[call-overload,index]
        near, far = fixture.url.rstrip("/"), fixture.other_origin.rstrip("/")
        assert by == {"echo": "top", "echo@side": f"side {near}", "echo@far": f"far {far}"}
        for name in ("side", "far"):
            ref = (await app.call(f"file_{name}")).artifacts["saved"]
            assert content(ref) == bytes([7]) * 400_000 and ref.filename.startswith("frame")
        with pytest.raises(OutcomeUnknown):
            await app.call("leave_side")
        for _ in range(300):
            if "echo@side" not in app.capabilities:
                break
            await asyncio.sleep(0.05)
        assert "echo@side" not in app.capabilities and "echo@far" in app.capabilities
        with pytest.raises(CapabilityError):
            await app.call("echo@side", {"text": "x"})


async def test_forms_answer_wait_for_a_person_or_navigate(cases: Open) -> None:
    async with cases() as app:
        assert app.capabilities["subscribe"].annotations["autosubmit"] is True
        answered = await app.call("subscribe", {"address": "a@b.example"})
        assert answered.data["address"] == "a@b.example"  # type: ignore[call-overload,index]
        assert content(answered.artifacts["card"]) == PATTERN[:500]
        with pytest.raises(PersonRequired, match="order"):
            await app.call("order", {"item": "tea"})
        seen: Any = (await app.call("record")).data
        assert seen["value"] == "tea" and seen["ordered"] == []
        sent = await app.call("search", {"q": "bread"})
        assert sent.data is None and "was sent" in sent.warnings[0]
        assert (await app.call("query")).data == {"q": "bread"}
        assert "echo" not in app.capabilities


async def test_a_navigation_in_mid_call_is_an_unknown_outcome(cases: Open) -> None:
    async with cases() as app:
        with pytest.raises(OutcomeUnknown):
            await app.call("reload", idempotent=True)
        assert (await app.call("echo", {"text": "again"})).data == {"text": "again", "by": "top"}


async def test_files_go_in_as_the_schema_asks(cases: Open, tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_bytes(b"hello")
    async with cases() as app:
        picture = BinaryData.from_bytes(b"hello", mime_type="image/png", filename="a.png")
        taken = await app.call("take", {"url": picture, "text": path, "object": path})
    data: Any = taken.data
    assert data["url"] == "data:image/png;base64,aGVsbG8=" and data["text"] == "aGVsbG8="
    assert data["object"] == {"name": "note.txt", "type": "application/octet-stream", "data": "aGVsbG8=", "size": 5}


async def test_auto_takes_what_the_page_has(fixture: Fixture, browser: Browser, tmp_path: Path) -> None:
    async with connect(fixture.url + "webmcp/cases", browser=browser, store=tmp_path) as app:
        result = await app.call("echo", {"text": "hi"})
        assert result.data == {"text": "hi", "by": "top"} and result.transport == "webmcp"
    async with connect(fixture.url, browser=browser, store=tmp_path) as app:
        assert app.transport.name == "playwright" and "export.pdf" in app.capabilities
    url = fixture.url + "?absent"
    transport = PlaywrightTransport(url, browser=browser, protocol="auto", grace=0.2)
    with pytest.raises(NotAbpApp, match=r"no window\.abp and no WebMCP tools 0\.2 s after it loaded"):
        async with connect(url, transport=transport, store=tmp_path):
            pass


@pytest.mark.parametrize("polyfill", ["document", "navigator"])
async def test_a_polyfill_is_seen_when_it_installs_itself_and_late(
    polyfill: str, fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    try:
        folder = packages(ROOT / "tests" / "support" / "polyfills.json")
    except Missing as error:
        missing("npm", error)
    script = (folder / "node_modules" / f"{polyfill}-polyfill" / "dist" / "index.iife.js").read_text(encoding="utf-8")
    gone = "for (const one of [Document, Navigator]) delete one.prototype.modelContext;"
    context = await browser.playwright.new_context()
    await context.route(
        "**/polyfill.js", lambda route: route.fulfill(body=gone + script, content_type="text/javascript")
    )
    url = fixture.url + "webmcp/cases?dialect=%2Fpolyfill.js"
    try:
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
    finally:
        await context.close()


async def test_a_page_that_was_open_answers_what_the_platform_gives(
    fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    context = await browser.playwright.new_context()
    try:
        page = await context.new_page()
        url = fixture.url + "webmcp/cases"
        await page.goto(url)
        async with connect(url, page=page, transport="webmcp", store=tmp_path) as app:
            lost = await app.call("bytes")
            assert lost.data["document"]["content"] == {} and "buffers" in lost.warnings[0]  # type: ignore[call-overload,index]
            assert content((await app.call("file", {"as": "dataUrl"})).artifacts["file"]) == PATTERN
            with pytest.raises(CapabilityError, match="invocation failed"):  # the platform keeps the tool's words
                await app.call("fail", {"how": "throw"})
        assert await page.evaluate("document.modelContext.getTools().then((tools) => tools.length)") > 10
    finally:
        await context.close()


# --- adapters: pages without any protocol -----------------------------------------------------------------------------


async def test_an_adapter_makes_an_app_of_any_page(browser: Browser, tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "any_page.py"))
    script = EXAMPLES / "adapters" / "report.js"
    async with (
        example["serve_page"]() as url,
        connect(url, adapter=script, browser=browser, store=tmp_path) as app,
    ):
        assert set(app.capabilities) == {"table.csv", "chart.png", "report.download"}
        for _ in range(2):  # again after a reload
            table = await app.call("table.csv", timeout=15)
            assert content(table.artifacts["file"]).decode() == 'Month,Sold\r\nJanuary,120\r\n"February, short",150\r\n'
            chart = await app.call("chart.png")
            assert content(chart.artifacts["image"]).startswith(b"\x89PNG")
            report = await app.call("report.download")
            assert (content(report.artifact()), report.artifact().filename) == (b"Sold: 270\n", "report.txt")
            with contextlib.suppress(PlaywrightError):  # the page is closed meanwhile, since it is opened again
                await app.transport.page.reload()  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="selector"):
            await app.call("table.csv", {"selector": 1})


async def test_an_adapter_stays_at_its_origin_and_says_what_is_wrong(
    fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    script = tmp_path / "own.js"
    script.write_text("window.abp = {initialize: async () => ({}), call: async () => ({success: true, data: 1})}")
    blank = fixture.url + "static/blank.html"
    async with connect(blank, adapter=script, browser=browser, store=tmp_path / "out") as app:
        assert (await app.call("anything")).data == 1
    async with contextlib.AsyncExitStack() as stack:
        server = TestServer(web.Application())

        async def leave(_: web.Request) -> web.Response:
            raise web.HTTPFound(blank)

        server.app.router.add_get("/", leave)
        await stack.enter_async_context(server)
        away = str(server.make_url("/"))
        transport = PlaywrightTransport(away, adapter=script, browser=browser, grace=0.2)
        with pytest.raises(NotAbpApp, match=r"own\.js is not installed"):
            async with connect(away, transport=transport, store=tmp_path / "out"):
                pass
    for text, reason in (("abp.capability('x'", "no JavaScript: line 1"), ("throw new Error('mine')", "mine")):
        script.write_text(text)
        with pytest.raises((UsageError, NotAbpApp), match=reason):
            async with connect(blank, adapter=script, browser=browser, store=tmp_path / "out"):
                pass
    for target, path in ((fixture.ws_url, script), (fixture.url, tmp_path / "missing.js")):
        with pytest.raises(UsageError, match="adapter"):
            connect(target, adapter=path)


# --- everything around a session --------------------------------------------------------------------------------------


async def test_the_bridge_and_the_command_line_drive_such_pages(fixture: Fixture, tmp_path: Path) -> None:
    url = fixture.url + "webmcp/cases"
    abp = [sys.executable, "-m", "transports.surfaces.cli"]
    environment = {**os.environ, "ABP_OUTPUT_DIR": str(tmp_path / "out")}
    parameters = StdioServerParameters(command=abp[0], args=[*abp[1:], "mcp", "--app", url], env=environment)
    async with Client(parameters) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"abp_echo", "abp_file", "abp_subscribe"} <= names
        answer = await client.call_tool("abp_file", {"as": "blobUrl"})
        (artifact,) = answer.structured_content["artifacts"]
        assert (artifact["size_bytes"], artifact["filename"]) == (1000, "case.bin")
        assert any(block.type == "resource_link" for block in answer.content)
    command = [*abp, "call", url, "take", "--transport", "webmcp", "--json", "--file", f"text={__file__}"]
    program = await asyncio.create_subprocess_exec(
        *command, "--record", str(tmp_path / "rec"), env=environment, stdout=-1
    )
    printed, _ = await program.communicate()
    document = json.loads(printed)
    assert document["success"] is True and document["transport"] == "webmcp"
    async with connect(f"replay:{tmp_path / 'rec'}", store=tmp_path / "replayed") as app:
        again = await app.call("take", {"text": Path(__file__)})
        assert again.artifacts.keys() == {one["field"] for one in document["artifacts"]}


async def test_conformance_judges_a_page_by_its_tools(fixture: Fixture, browser: Browser) -> None:
    plan = Plan(timeout=1.0, only=("echo", "numbers", "wait"))
    report = await check_app(fixture.url + "webmcp/cases", plan, transport="webmcp", browser=browser)
    found = {one.check.id: one.findings for one in report.outcomes if one.status in ("failed", "warning")}
    assert "echo: no description of text" in found["webmcp.parameters"]
    assert found["webmcp.answer"] == ("numbers",)
    assert report.kind == "webmcp"
    own = await check_app(fixture.webmcp_url, Plan(calls=False), transport="webmcp", browser=browser)
    assert [one.findings for one in own.outcomes if one.status == "failed"] == []
    nothing = await check_app(fixture.url, Plan(calls=False, timeout=1), transport="webmcp", browser=browser)
    assert any(one.check.id == "webmcp.reached" and one.status == "failed" for one in nothing.outcomes)
