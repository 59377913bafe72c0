"""Evidence of calls in a real page: each kind is there, can be opened, and holds no secret."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from tests.support.evidence import echo, failing_app, files_of
from tests.support.gallery import open_gallery
from tests.support.pages import serve_answers
from tests.support.secret_page import CANARY, secret_page
from tests.support.slow import slow_but
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


# --- password fields and forms of each type ---------------------------------------------------------------------------


_FORM, _PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"
_HEAD, _END = "--B\r\nContent-Disposition: form-data; ", "\r\n--B--\r\n"
#: Posted bodies, with the type that the page declares, or none; tests/protocol/test_redaction.py has more names.
POSTS = {
    "form": (_FORM, "user=bob&password=HIDE"),
    "type in upper case": ("Application/X-WWW-Form-URLEncoded; Charset=UTF-8", "pass%77ord=HIDE"),
    "form without a type": (None, "user=bob&%70%61ssword=HIDE"),
    "form of another type": ("application/octet-stream", "pass%77ord=HIDE"),
    "form as plain text": ("text/plain", "user=bob\r\npassword=HIDE\r\n"),
    "part": (_PARTS, f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'),
    "part in upper case": ("Multipart/Form-Data; boundary=B", f'{_HEAD.upper()}NAME="PASSWORD"\r\n\r\nHIDE{_END}'),
    "part with bare line feeds": (_PARTS, f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'.replace("\r", "")),
    "part without a type": (None, f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'),
    "part of another type": ("application/octet-stream", f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'),
    "JSON": ("application/json", '{"user": {"password": "HIDE"}}'),
    "JSON without a type": (None, '{"password": ["HIDE"]}'),
    "HTML in JSON": ("application/json", json.dumps({"html": "<p>Hi</p><input type=password value='HIDE'>"})),
    "part in JSON": ("application/json", json.dumps({"body": f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'})),
}
#: Fields of a page that the app loads, and shows in a frame.
FIELDS = {
    "plain field": "<input type=password value=HIDE>",
    "field in upper case": "<INPUT VALUE='HIDE' TYPE='PassWord'>",
    "field with a mark in an attribute": '<input value="HIDE" title="a > b" type="password">',
    "field with an escaped type": '<input value="HIDE" type="pass&#119;ord">',
    "field with spaces": '<input\n type\n =\n password value\t=\n "HIDE" />',
    "long field": f'<input type=password placeholder="{"p" * 5000}" value=HIDE>',
    "mark in a value": '<input type=password value="HIDE>">',
    "hidden field": '<input type=hidden name=api_token value="HIDE">',
    "field in a comment": "<!-- <a title=\" --><!-- <input type=password value='HIDE'> -->",
    "field without scripts": "<noscript><input type=password value=HIDE></noscript>",
    "field in a template": "<template><input type=password value=HIDE></template>",
    "meta": "<meta name=csrf-token content=HIDE>",
    "button": "<button name=access_token value=HIDE>Go</button>",
}
#: A script whose text only looks like fields and forms.
SCRIPT = """const html = `<input type="password" value="${field.kept}">`; if (a && password == b) token=a<b;"""
_PAGE = failing_app(
    "send",
    "<form><input type=password id=field value=FIXED></form>",
    'const field = document.getElementById("field");',
    """
  for (const [type, body] of POSTS) {
    const headers = type === null ? {} : { "Content-Type": type };
    await (await fetch("echo", { method: "POST", body, headers })).text();
  }
  const form = new FormData(document.createElement("form"));
  form.append("user", "bob");
  form.append("password", "FORMDATA");
  form.append("file", new Blob([new Uint8Array([255, 0, 128])]), "a.bin");
  await fetch("echo", { method: "POST", body: form });
  await (await fetch("fields")).text();
  const frame = document.createElement("iframe");
  frame.src = "fields";
  document.body.append(frame);
  await new Promise((resolve) => { frame.onload = resolve; });
  console.log("sent pass%77ord=CONSOLE and user[password]=CONSOLE");
  field.value = "TYPED";
  field.title = "changed";
  await new Promise((resolve) => setTimeout(resolve, 300));""",
)


def passwords(long: bool) -> dict[str, str]:
    """A password for each place that has one. A short one is known by its place alone, never by its value."""
    places = [*POSTS, *FIELDS, "FIXED", "FORMDATA", "CONSOLE", "TYPED"]
    return {place: f"zq{index:03}" + "Wx!7" * long for index, place in enumerate(places)}


@asynccontextmanager
async def form_page(values: dict[str, str]) -> AsyncIterator[str]:
    posts = [(mime_type, body.replace("HIDE", values[name])) for name, (mime_type, body) in POSTS.items()]
    html = _PAGE
    for place in ("FIXED", "FORMDATA", "CONSOLE", "TYPED"):
        html = html.replace(place, values[place])
    fields = "\n".join(field.replace("HIDE", values[name]) for name, field in FIELDS.items())

    html = html.replace("POSTS", json.dumps(posts).replace("</", "<\\/"))
    files = {
        "/": ("text/html", html),
        "/script.js": ("text/javascript", SCRIPT),
        "/fields": ("text/html", f"<!doctype html><title>F</title><script src=script.js></script>{fields}"),
    }

    async def send(request: web.Request) -> web.Response:
        if request.method == "POST":
            return await echo(request)
        content_type, text = files[request.path]
        return web.Response(text=text, content_type=content_type)

    async with serve_answers(send) as url:
        yield url


def spellings_of(value: str) -> set[bytes]:
    shifted = (base64.b64encode(b"x" * before + value.encode())[4 if before else 0 : -4] for before in range(3))
    return {value.encode(), quote(value).encode(), *(one for one in shifted if len(one) >= 4)}


@pytest.mark.parametrize("long", slow_but([True, False], False))
async def test_form_passwords_are_not_in_evidence(tmp_path: Path, browser: Browser, long: bool) -> None:
    values = passwords(long)
    kept = Evidence(trace="on", har="on", console="on")
    async with (
        form_page(values) as url,
        connect(url, browser=browser, store=tmp_path / "out", evidence=kept) as app,
    ):
        with pytest.raises(CapabilityError) as failed:
            await app.call("send", {})
    refs: dict[str, Any] = {**failed.value.evidence}
    assert {*refs} == {"trace", "har", "console"}, failed.value.details
    shown = {
        (kind, place): name
        for kind, ref in refs.items()
        for name, data in files_of(ref)
        if not name.endswith(".jpeg")
        for place, value in values.items()
        if any(spelling in data for spelling in spellings_of(value))
    }
    assert not shown
    whole = b"".join(data for _, data in files_of(refs["trace"]))
    assert b"user=bob&password=" in whole and b"<INPUT VALUE=" in whole and b"Hi</p>" in whole
    har = b"".join(data for _, data in files_of(refs["har"]))  # a trace leaves scripts out
    assert json.dumps(SCRIPT)[1:-1].encode() in har
