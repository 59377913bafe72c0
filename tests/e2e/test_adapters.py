"""Pages without any protocol, driven by a script of the caller's."""

from __future__ import annotations

import contextlib
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Error as PlaywrightError

from tests.support.pages import serve_answers, serve_page
from tests.support.slow import slow_but
from transports import Browser, PlaywrightTransport, UsageError, connect
from transports.errors import CapabilityError, NotAbpApp
from transports.testing.conformance import CHECKS, Plan, check_app
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "adapters" / "report.js"


def content(ref: Any) -> bytes:
    assert ref.path is not None
    return bytes(ref.path.read_bytes())


def page() -> Any:
    """Serve the page of the example."""
    return runpy.run_path(str(EXAMPLES / "any_page.py"))["serve_page"]()


async def test_adapter_turns_any_page_into_app(browser: Browser, tmp_path: Path) -> None:
    async with page() as url, connect(url, adapter=SCRIPT, browser=browser, store=tmp_path) as app:
        assert set(app.capabilities) == {"table.csv", "chart.png", "report.download"}
        chart = await app.call("chart.png")
        assert content(chart.artifacts["image"]).startswith(b"\x89PNG")
        report = await app.call("report.download")
        assert (content(report.artifact()), report.artifact().filename) == (b"Sold: 270\n", "report.txt")
        with contextlib.suppress(PlaywrightError):  # the page is closed meanwhile, since it is opened again
            await app.transport.page.reload()  # type: ignore[attr-defined]
        table = await app.call("table.csv", timeout=15)
        assert content(table.artifacts["file"]).decode() == 'Month,Sold\r\nJanuary,120\r\n"February, short",150\r\n'
        with pytest.raises(UsageError, match="selector"):
            await app.call("table.csv", {"selector": 1})


async def test_adapter_is_limited_to_its_origin_and_reports_errors(
    fixture: Fixture, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "own.js"
    script.write_text("window.abp = {initialize: async () => ({}), call: async () => ({success: true, data: 1})}")
    blank = fixture.url + "static/blank.html"
    async with connect(blank, adapter=script, browser=browser, store=tmp_path / "out") as app:
        assert (await app.call("anything")).data == 1

    async def leave(_: web.Request) -> web.Response:
        raise web.HTTPFound(blank)

    async with serve_answers(leave) as away:
        transport = PlaywrightTransport(away, adapter=script, browser=browser, grace=0.2)
        with pytest.raises(NotAbpApp, match=r"own\.js is not installed"):
            await connect(away, transport=transport, store=tmp_path / "out")
    monkeypatch.setattr(PlaywrightTransport, "_default_grace", 0.3)
    refusals = (
        "[['x', {}, 7], [7, {}, () => 1], ['x', {}, () => 1], ['x', {}, () => 1]].map((declared) => "
        "{ try { abp.capability(...declared); } catch (error) { return error.message; } })"
    )
    for text, reason in (
        ("abp.capability('x'", "the adapter own.js is not valid JavaScript: line 1"),
        (
            f"// one\n// two\nthrow new Error({refusals})",
            r"^the adapter own\.js failed \(own\.js:3\): [^;]*run must be a function,[^;]*: name must be a non-empty "
            r'string,,[^;]*the capability "x" is declared twice; it ran in the page at \S+ \(title \'.*\'\) '
            r"\[NOT_SUPPORTED\]$",
        ),
        ("// nothing", r"no window\.abp .*; the adapter own\.js ran and registered nothing: call abp\.capability"),
    ):
        script.write_text(text)
        with pytest.raises((UsageError, NotAbpApp), match=reason):
            await connect(blank, adapter=script, browser=browser, store=tmp_path / "out")
    with pytest.raises(UsageError, match="adapter= cannot be combined with an app that is not a top page"):
        await check_app(fixture.url, adapter=script, browser=browser, transport="postmessage")


@pytest.mark.slow
async def test_adapter_is_judged_as_what_it_makes_of_the_page(browser: Browser, tmp_path: Path) -> None:
    script = tmp_path / "own.js"
    script.write_text(
        """
        const app = { id: 'x', name: 'x', version: '1' }, capabilities = [{ name: 'x', available: true }];
        window.abp = {
          protocolVersion: '0.1', app,
          initialize: async () => ({ sessionId: '1', protocolVersion: '0.1', app, capabilities }),
          shutdown: async () => ({ success: true }), call: async () => ({ success: true, data: 1 }),
        };
        """
    )
    async with page() as url:
        report = await check_app(url, Plan(skip=["report.download"]), adapter=SCRIPT, browser=browser)
        assert [one.findings for one in report.outcomes if one.status == "failed"] == []
        warned = {one.check.id for one in report.outcomes if one.status == "warning"}
        assert warned <= {"binary.size_given", "schema.content"}
        assert report.kind == "page" and set(report.called) == {"table.csv", "chart.png"}
        tools = tmp_path / "tools.js"
        tools.write_text(
            "document.modelContext.registerTool({name: 'title', description: 'The title of the page', "
            "execute: () => ({ title: document.title })})"
        )
        report = await check_app(url, Plan(), adapter=tools, browser=browser)
        assert report.kind == "webmcp" and report.called == ("title",) and report.conformant
        report = await check_app(url, Plan(), adapter=script, browser=browser)
    assert report.left_out == () and len(report.outcomes) == len(CHECKS)  # it has an object of its own
    assert "errors.unknown" in {one.check.id for one in report.with_status("failed")}


async def test_adapter_output_schema_is_listed_and_checked(browser: Browser, tmp_path: Path) -> None:
    script = tmp_path / "own.js"
    script.write_text(
        """
        const file = { properties: { content: {}, mimeType: { type: 'string' } }, required: ['mimeType'] };
        const outputSchema = { type: 'object', properties: { rows: { type: 'integer' }, file }, required: ['rows'] };
        const data = (rows) => ({ rows, file: { content: new Blob(['a']), mimeType: 'text/csv', size: 1 } });
        abp.capability('good', { description: 'A table', outputSchema }, () => data(1));
        abp.capability('bad', { description: 'A table', outputSchema }, () => data('one'));
        abp.capability('none', { description: 'A table' }, () => data(1));
        abp.capability('invalid', { description: 'A table', outputSchema: { type: 'table' } }, () => ({ rows: 1 }));
        """
    )
    async with page() as url:
        async with connect(url, adapter=script, browser=browser, store=tmp_path / "out") as app:
            assert app.capabilities["good"].output_schema["required"] == ["rows"]
            assert app.capabilities["good"].input_schema == {"type": "object"}
            assert app.capabilities["none"].output_schema == {}
            assert (await app.call("good")).warnings == ()
            (warning,) = (await app.call("bad")).warnings
            assert warning == 'outputSchema: data.rows: "one" is not of type "integer"'
        report = await check_app(url, Plan(), adapter=script, browser=browser)
    findings = {one.check.id: one.findings for one in report.outcomes if one.status in ("failed", "warning")}
    assert [text.partition(":")[0] for text in findings.pop("schema.valid")] == ["invalid"]
    assert findings == {
        "schema.result": ('bad: outputSchema: data.rows: "one" is not of type "integer"',),
        "schema.content": ("none: outputSchema does not say that file is content with mimeType",),
    }
    judged = {one.check.id for one in report.outcomes}
    assert judged >= {"session.reachable", "page.reload", "answers.real", "errors.shape", "schema.valid"}
    assert {"session.initialize", "page.call", "errors.unknown", "cancel.forms"} <= {*report.left_out} - judged
    assert len(report.left_out) + len(judged) == len(CHECKS) and report.as_dict()["left_out"] == [*report.left_out]
    (line,) = [text for text, _ in report.lines() if "left out" in text]
    assert line.startswith("\nleft out, as the author of an adapter cannot change them: manifest.link, ")
    assert line.endswith("cancel.early")


#: What the scripts of the ABP Framework of ASP.NET leave in a page, in short.
_FRAMEWORK = "window.abp = { appPath: '/', localization: {}, auth: {}, ajax() {}, notify: {}, event: { on() {} } };"


@pytest.mark.parametrize("tools", slow_but([True, False], False))
async def test_foreign_window_abp_is_reported_unless_page_has_tools(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: bool
) -> None:
    monkeypatch.setattr(PlaywrightTransport, "_default_grace", 0.3)
    register = "navigator.modelContext ?? document.modelContext"
    tool = (
        f"({register}).registerTool({{name: 'title', description: 'x', execute: () => ({{ title: document.title }})}})"
    )
    html = f"<!doctype html><title>Shop</title><script>{_FRAMEWORK}{tool if tools else ''}</script>"
    async with serve_page(html) as url:
        session = connect(url, browser=browser, store=tmp_path)
        if tools:
            async with session as app:
                assert (await app.call("title")).data == {"title": "Shop"}
        else:
            with pytest.raises(NotAbpApp) as caught:
                await session
            assert "has a window.abp of another product, with neither initialize nor call" in caught.value.message
            assert "the ABP Framework of ASP.NET has one" in caught.value.message


async def test_adapter_app_validates_call_params_and_errors_name_their_line(
    fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    script = tmp_path / "own.js"
    script.write_text(
        """const missing = undefined;
abp.capability("broken", {}, () => missing.value);
abp.capability("later", {}, async () => {
  await abp.find("#none", 50);
});
abp.capability("refused", {}, () => { throw Object.assign(new Error("not today"), { code: "PERMISSION_DENIED" }); });
abp.capability("odd", {}, () => { throw "text"; });
const a = { type: 'integer' }, b = { type: ['number', 'null'] }, c = { type: 'array' }, d = { type: 'object' };
abp.capability('sum', { required: ['a'], properties: { a, b, c, d } }, ({ a, b }) => ({ sum: a + (b ?? 0) }));
"""
    )
    blank = fixture.url + "static/blank.html"
    async with connect(blank, adapter=script, browser=browser, store="none:") as app:
        for name, said in {
            "broken": r"Cannot read properties of undefined .* \(own\.js:2\)$",
            "later": r"no element matched #none within 0\.05 s \(own\.js:4\)$",
            "refused": "not today$",
            "odd": "text$",
        }.items():
            with pytest.raises(CapabilityError) as caught:
                await app.call(name)
            assert re.search(said, caught.value.message), caught.value.message

        page_of_app: Any = app.transport
        call = "(params) => window.abp.call('sum', params)"
        for params, code, name in (
            ({}, "MISSING_PARAM", "a"),
            (None, "MISSING_PARAM", "a"),
            ({"a": "1"}, "INVALID_TYPE", "a"),
            ({"a": 1.5}, "INVALID_TYPE", "a"),
            ({"a": 1, "b": True}, "INVALID_TYPE", "b"),
            ({"a": 1, "c": {}}, "INVALID_TYPE", "c"),
            ({"a": 1, "d": []}, "INVALID_TYPE", "d"),
            ([1], "INVALID_TYPE", "params"),
        ):
            answer = await page_of_app.page.evaluate(call, params)
            assert (answer["success"], answer["error"]["code"]) == (False, code), params
            assert answer["error"]["message"].startswith(f"{name} "), answer
        whole: Any = {"a": 1, "b": None, "c": [], "d": {}, "e": "x"}
        for fitting, total in (({"a": 1}, 1), (whole, 1), ({"a": 1, "b": 2.5}, 3.5)):
            assert (await page_of_app.page.evaluate(call, fitting))["data"] == {"sum": total}
