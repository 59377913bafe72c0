"""Pages with WebMCP tools behind what takes an app: recordings, browsers without CDP, the conformance check."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route

from tests.e2e.test_browsers import NO_CDP
from tests.support.eventually import eventually
from tests.support.pages import reach_without_cdp
from transports import Browser, CapabilitiesChanged, Session, WebMcpTransport, connect
from transports.errors import ABPError, CallTimeout, CapabilityError, NotAbpApp, OutcomeUnknown
from transports.testing.conformance import Plan, check_app
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

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
