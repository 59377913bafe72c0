"""Evidence of calls in a real page: each kind is there, can be opened, and holds no secret."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import playwright
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import expect

from tests.e2e.visits import visiting
from tests.support.evidence import files_of
from tests.support.gallery import open_gallery
from tests.support.secret_page import CANARY, secret_page
from tests.support.video import placed_ffmpeg
from transports import Browser, CapabilityError, Evidence, connect

ALL_ON_FAILURE = Evidence(
    trace="on-failure", video="on-failure", har="on-failure", console="on-failure", screenshot="on-failure"
)

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def recording_browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """A browser that makes videos: an ffmpeg of this machine stands where Playwright looks for its own."""
    with placed_ffmpeg(tmp_path_factory.mktemp("registry")):
        async with Browser() as browser:
            yield browser


def spellings() -> list[bytes]:
    texts = {CANARY, json.dumps(CANARY)[1:-1], quote(CANARY, safe=""), quote(CANARY), quote_plus(CANARY)}
    texts |= {CANARY.encode().decode("latin-1")}
    found = {text.encode() for text in texts}
    for before in range(3):
        encoded = base64.b64encode(b"x" * before + CANARY.encode())
        found |= {encoded[4:-4], base64.urlsafe_b64encode(b"x" * before + CANARY.encode())[4:-4]}
    return sorted(found)


async def test_failed_call_keeps_five_kinds_of_evidence_without_secrets(
    tmp_path: Path, recording_browser: Browser
) -> None:
    async with (
        secret_page() as url,
        connect(url, browser=recording_browser, store=tmp_path / "out", evidence=ALL_ON_FAILURE) as app,
    ):
        good = await app.call("sign.in", {"password": CANARY, "work": True})
        assert not good.evidence and not good.warnings
        with pytest.raises(CapabilityError) as raised:
            await app.call("sign.in", {"password": CANARY})
        error = raised.value
        with pytest.raises(CapabilityError) as again:
            await app.call("sign.in", {"password": CANARY})
        kinds = {"trace", "video", "har", "console", "screenshot"}
        assert {*error.evidence} == {*again.value.evidence} == kinds, error.details
        refs: dict[str, Any] = {**error.evidence}
        documents: Any = error.as_dict()["evidence"]
        assert [one["kind"] for one in documents] == [*refs]
        assert all(ref.source["evidence"] == kind and ref.source["call"] for kind, ref in refs.items())
        for kind, ref in refs.items():
            for name, data in files_of(ref):
                assert not [form for form in spellings() if form in data], f"{kind}: {name}"
        har = json.loads(refs["har"].path.read_text())
        posts = [entry for entry in har["log"]["entries"] if entry["request"]["method"] == "POST"]
        assert len(posts) == 3 and all(entry["response"]["status"] == 200 for entry in posts)
        console = refs["console"].path.read_text()
        assert "console.log: the user typed <redacted>" in console and "page error: Error: late fault" in console
        assert refs["screenshot"].path.read_bytes().startswith(b"\x89PNG")
        probe = ["ffprobe", "-v", "error", "-show_entries", "format=duration:stream=codec_name", "-of", "json"]
        shown = json.loads(subprocess.check_output([*probe, str(refs["video"].path)], timeout=60))
        assert shown["streams"][0]["codec_name"] == "vp9" and float(shown["format"]["duration"]) > 0


async def assert_viewer_opens(browser: Browser, trace: Path) -> None:
    """Open a trace in Playwright's own viewer, and look for the call and its requests in it."""

    async def send(_: web.Request) -> web.FileResponse:
        return web.FileResponse(trace)

    app = web.Application()
    app.router.add_get("/trace.zip", send)
    app.router.add_static("/viewer", Path(playwright.__file__).parent / "driver/package/lib/vite/traceViewer")
    async with TestServer(app) as server:
        page = await browser.playwright.new_page()
        await page.goto(str(server.make_url(f"/viewer/index.html?trace={server.make_url('/trace.zip')}")))
        await page.get_by_role("tab", name="Network").click(timeout=30_000)
        await page.get_by_text("sign-in?token=%3Credacted%3E").wait_for(timeout=30_000)  # one: of this call alone
        await page.get_by_text("sign.in", exact=True).first.wait_for(timeout=30_000)


@pytest.mark.slow
async def test_gallery_shows_evidence_beside_its_call(tmp_path: Path, recording_browser: Browser) -> None:
    async with secret_page() as url, open_gallery(tmp_path / "store", recording_browser) as gallery:
        gallery.app = (await gallery.served.apps.connect(url, {"evidence": ALL_ON_FAILURE})).key
        good = await gallery.call("sign.in", password=CANARY, work=True)
        failed = await gallery.call("sign.in", password=CANARY)
        assert not good["evidence"] and {*failed["evidence"]} == {"trace", "video", "har", "console", "screenshot"}
        (trace,) = (tmp_path / "store").glob("sign.in-*.zip")
        await assert_viewer_opens(recording_browser, trace)
        async with visiting(gallery, recording_browser) as page:
            await page.goto(f"{gallery.url}#call={failed['id']}")
            section = page.get_by_role("region", name="Evidence of this call")
            await expect(section.locator("[data-evidence=screenshot] img")).to_have_js_property("naturalWidth", 1280)
            for kind in ("video", "console", "har", "trace"):
                await section.locator(f"[data-evidence={kind}] > summary").click()
            video = section.locator("video")
            await video.evaluate("async (video) => { video.muted = true; await video.play(); }")
            assert await video.evaluate("(video) => video.duration > 0 && video.videoWidth > 0")
            await expect(section.locator("pre.text")).to_contain_text("console.log: the user typed <redacted>")
            await expect(section.locator(".requests tbody tr")).to_have_count(3)
            await expect(section.locator(".requests tbody tr").first).to_contain_text("sign-in?token=<redacted>")
            await expect(section.locator("[data-evidence=trace] code")).to_contain_text(
                "playwright show-trace 'sign.in-"
            )
            await page.goto(f"{gallery.url}#artifacts")
            await expect(page.locator(".card .thumb[data-kind=video] video")).to_have_js_property("videoWidth", 800)
