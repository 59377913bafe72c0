"""The sample apps of the protocol's public guides, written anew: each driven whole, and judged by the conformance check
as the guides would, which call each of them an app that conforms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.eventually import eventually
from tests.support.pdf import text_of
from transports import Browser, ElicitationRequest, PlaywrightTransport, Progress, Session, connect
from transports.testing.conformance import Plan, check_app

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

_FOLDER = Path(__file__).parents[1] / "support" / "sample_apps"
_TEXT = {"type": "string"}
_MARKDOWN = {"name": "convert.markdownToHtml", "required": {"markdown": _TEXT}}
_CHART = {"type": {**_TEXT, "enum": ["bar", "line", "pie"]}, "data": {"type": "object"}}
#: Capabilities that the manifest of each app names, with their required parameters.
_DECLARED: Mapping[str, list[dict[str, Any]]] = {
    "minimal": [_MARKDOWN],
    "multi": [
        _MARKDOWN,
        {"name": "text.uppercase", "required": {"text": _TEXT}},
        {"name": "export.html", "required": {"content": _TEXT}},
    ],
    "print": [{"name": "export.pdf", "required": {"html": _TEXT}}],
    "chart": [{"name": "render.chart", "required": _CHART}],
    "progress": [
        {"name": "process.largefile", "required": {"content": _TEXT}},
        {"name": "crawl.pages", "required": {"urls": {"type": "array", "items": _TEXT}}},
    ],
    "question": [{"name": "export.customPdf", "required": {"html": _TEXT}}],
    "dynamic": [_MARKDOWN],
}


def _manifest(app: str) -> dict[str, Any]:
    capabilities = [
        {
            "name": entry["name"],
            "description": "As the guide describes it",
            "inputSchema": {"type": "object", "properties": entry["required"], "required": [*entry["required"]]},
        }
        for entry in _DECLARED[app]
    ]
    about = {"id": f"com.example.{app}", "name": app, "version": "1.0.0", "description": "A sample"}
    return {"abp": "0.1", "app": about, "capabilities": capabilities}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site() -> AsyncIterator[TestServer]:
    async def page(request: web.Request) -> web.Response:
        app = request.match_info["app"]
        head = f'<title>{app}</title><link rel="abp-manifest" href="/{app}/abp.json">'
        scripts = f"<script src=/base.js></script><script src=/{app}/app.js></script>"
        return web.Response(text=f"<!doctype html>{head}<body><h1>{app}</h1>{scripts}", content_type="text/html")

    async def manifest(request: web.Request) -> web.Response:
        return web.json_response(_manifest(request.match_info["app"]))

    async def script(request: web.Request) -> web.FileResponse:
        return web.FileResponse(_FOLDER / f"{request.match_info.get('app', 'base')}.js")

    app = web.Application()
    app.add_routes(
        [
            web.get("/base.js", script),
            web.get("/{app}/", page),
            web.get("/{app}/abp.json", manifest),
            web.get("/{app}/app.js", script),
        ]
    )
    server = TestServer(app)
    await server.start_server(access_log=None)
    yield server
    await server.close()


def opened(site: TestServer, app: str, browser: Browser, **options: Any) -> Session:
    return connect(str(site.make_url(f"/{app}/")), browser=browser, store="memory:", **options)


@pytest.mark.slow
@pytest.mark.requirement("R6-12a", "R6-12b", "R6-12d")
async def test_samples_answer_html_text_and_a_picture_of_requested_size(site: TestServer, browser: Browser) -> None:
    async with opened(site, "minimal", browser) as app:
        result = await app.call("convert.markdownToHtml", {"markdown": "# Hello\n**bold**"})
        assert result.data == {"html": "<h1>Hello</h1>\n<strong>bold</strong>", "inputLength": 16}
    async with opened(site, "multi", browser) as app:
        assert (await app.call("text.uppercase", {"text": "abc"})).data == {"result": "ABC", "originalLength": 3}
        result = await app.call("export.html", {"content": "<p>é", "title": "T"})
        assert result.artifact("document").filename == "export.html"
        assert (await app.store.get(result.artifact())).decode().endswith("<body><p>é</body></html>")
    async with opened(site, "chart", browser) as app:
        params = {"type": "bar", "data": {"labels": ["a", "b"], "values": [30, 60]}, "options": {"width": 320}}
        result = await app.call("render.chart", params)
        content = await app.store.get(result.artifact("image"))
        assert int.from_bytes(content[16:20]) == 320 and int.from_bytes(content[20:24]) == 400


@pytest.mark.requirement("R6-12c")
async def test_printing_app_returns_pdf_of_its_container(site: TestServer, browser: Browser, tmp_path: Path) -> None:
    stages: list[str | None] = []
    url = str(site.make_url("/print/"))
    async with connect(url, browser=browser, store=tmp_path, on_progress=lambda step: stages.append(step.stage)) as app:
        result = await app.call("export.pdf", {"html": "<p>Only this</p>", "options": {"pageSize": "a4"}})
    ref = result.artifact("document")
    assert ref.mime_type == "application/pdf" and text_of(ref.local_path) == "Only this"
    assert result.data == {"rendered": True}
    assert stages == ["prepare", "print", "done"]


@pytest.mark.requirement("R6-5j", "R6-12e")
async def test_progress_arrives_chunk_by_chunk_and_under_extension_guide_name(
    site: TestServer, browser: Browser
) -> None:
    steps: list[Progress] = []
    async with opened(site, "progress", browser, on_progress=steps.append) as app:
        result = await app.call("process.largefile", {"content": "ab" * 2500})
        await app.call("crawl.pages", {"urls": ["a", "b"]})
    assert result.data == {"result": "AB" * 2500, "chunksProcessed": 5}
    assert [step.percentage for step in steps[:5]] == [20, 40, 60, 80, 100]
    assert [step.status for step in steps[4:]] == ["Processing chunk 5 of 5", "Crawling a", "Crawling b"]


@pytest.mark.requirement("R6-12f")
async def test_page_size_question_is_answered(site: TestServer, browser: Browser) -> None:
    async def answer(request: ElicitationRequest) -> dict[str, object]:
        assert request.params["prompt"] == "What page size for the PDF?"
        return {"success": True, "data": {"value": "a4"}}

    async with opened(site, "question", browser, on_elicitation=answer) as app:
        result = await app.call("export.customPdf", {"html": "<p>x"})
    assert isinstance(result.data, dict) and result.data["pageSize"] == "a4"
    assert result.artifact("pdf").mime_type == "application/pdf"


@pytest.mark.requirement("R6-5j", "R6-12g")
async def test_late_capability_is_learned(site: TestServer, browser: Browser) -> None:
    async with opened(site, "dynamic", browser) as app:
        assert [*app.capabilities] == ["convert.markdownToHtml"]
        assert app.features["dynamicCapabilities"] is True
        assert isinstance(app.transport, PlaywrightTransport) and app.transport.page is not None
        await app.transport.page.evaluate("window.finishDownload()")
        await eventually(lambda: "ai.summarize" in app.capabilities)
        capability = app.capabilities["ai.summarize"]
        assert capability.experimental and capability.browser_requirement == "Chrome 130+ with AI features enabled"
        result = await app.call("ai.summarize", {"text": "a long text to shorten"})
    assert result.data == {"summary": "a long tex"}


@pytest.mark.requirement("R6-12h")
@pytest.mark.slow
@pytest.mark.parametrize("app", _DECLARED)
async def test_sample_apps_pass_conformance(site: TestServer, browser: Browser, app: str) -> None:
    report = await check_app(str(site.make_url(f"/{app}/")), Plan(timeout=2), browser=browser)
    failures = {outcome.check.id: outcome.findings for outcome in report.outcomes if outcome.status == "failed"}
    assert failures == {} and report.conformant
    assert report.called
