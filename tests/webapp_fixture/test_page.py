"""The reference app itself: by hand, through window.abp, and its downloads. No part of `transports` is used here."""

import asyncio
import base64
import gzip
import hashlib
import io
import itertools
import json
import os
import shutil
import time
import wave
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import aiohttp
import pytest
import pytest_asyncio
from PIL import Image
from playwright.async_api import Browser, Page, async_playwright, expect

from webapp_fixture import Fixture, block, capabilities, digest, generate, serve

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]
module_fixture = pytest_asyncio.fixture(loop_scope="module", scope="module")

# Everything binary in an answer becomes {"$bytes": base64, "kind": ...}, so that it crosses into Python whole.
PACK = """
async function pack(value) {
  const kind = Object.prototype.toString.call(value).slice(8, -1);
  const text = async (blob) => (await new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(blob);
  })).split(',')[1] ?? '';
  if (value instanceof Blob) return { $bytes: await text(value), kind };
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return { $bytes: await text(new Blob([value])), kind };
  if (Array.isArray(value)) return Promise.all(value.map(pack));
  if (value === null || typeof value !== 'object') return value;
  const entries = Object.entries(value).map(async ([name, inner]) => [name, await pack(inner)]);
  return Object.fromEntries(await Promise.all(entries));
}
"""
CALL = f"async ([name, params, options]) => {{ {PACK} return pack(await abp.call(name, params, options)); }}"
INITIALIZE = """() => abp.initialize({
  agent: { name: 'test', version: '1' }, protocolVersion: '0.1',
  features: { notifications: true, progress: true, elicitation: true },
})"""
PATTERN = bytes(i % 251 for i in range(1024))
CSV = "Month,Online,Shop\nJan,120,80\nFeb,150,\nMar,-20,130\n"


@dataclass
class App:
    """A page with an initialised app."""

    page: Page

    async def answer(self, name: str, params: Any = None, **options: Any) -> Any:
        return await self.page.evaluate(CALL, [name, params or {}, options])

    async def data(self, name: str, **params: Any) -> Any:
        answer = await self.answer(name, params)
        assert answer["success"], answer
        return answer["data"]

    async def error(self, name: str, **params: Any) -> Any:
        answer = await self.answer(name, params)
        assert not answer["success"], answer
        return answer["error"]


def content(binary: dict[str, Any]) -> bytes:
    """The bytes of a packed BinaryData; its declared size must be true."""
    held = binary["content"]
    if isinstance(held, dict):
        data = base64.b64decode(held["$bytes"], validate=True)
    else:
        data = base64.b64decode(held, validate=True) if binary["encoding"] == "base64" else held.encode()
    assert len(data) == binary["size"]
    return data


def png_size(binary: dict[str, Any]) -> tuple[int, int]:
    image = Image.open(io.BytesIO(content(binary)))
    image.load()
    assert image.format is not None and Image.MIME[image.format] == binary["mimeType"]
    return image.size


def picture(width: int, height: int) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "#2f6fdb").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@module_fixture
async def fixture() -> AsyncIterator[Fixture]:
    async with serve() as running:
        yield running


@module_fixture
async def browser() -> AsyncIterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("ABP_BROWSER") or next(filter(None, map(shutil.which, names)), None)
    arguments = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=path, args=arguments)
        yield launched
        await launched.close()


async def open_app(browser: Browser, url: str) -> App:
    page = await browser.new_page()
    page.set_default_timeout(5000)
    await page.goto(url)
    await page.evaluate(INITIALIZE)
    return App(page)


@module_fixture
async def app(browser: Browser, fixture: Fixture) -> AsyncIterator[App]:
    opened = await open_app(browser, fixture.url)
    yield opened
    await opened.page.close()


@module_fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


# By hand


async def test_typing_shows_in_the_preview(browser: Browser, fixture: Fixture) -> None:
    page = await browser.new_page()
    await page.goto(fixture.url)
    await page.get_by_label("Markdown").fill("# Hello *you*\n\n<script>alert(1)</script>")
    preview = page.get_by_role("region", name="Preview")
    await expect(preview.get_by_role("heading", name="Hello you")).to_be_visible()
    await expect(preview.locator("script")).to_have_count(0)
    await expect(preview).to_contain_text("<script>alert(1)</script>")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export HTML").click()
    assert (await download.value).suggested_filename == "hello-you.html"
    await page.close()


async def test_buttons_make_files_that_the_list_shows(browser: Browser, fixture: Fixture) -> None:
    page = await browser.new_page()
    await page.goto(fixture.url)
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export image").click()
    made = await download.value
    assert made.suggested_filename == "sales-in-2024.png"
    with Image.open(await made.path()) as image:
        assert image.size == (800, 450)
    files = page.get_by_role("region", name="Files")
    await expect(files.get_by_role("listitem").filter(has_text="sales-in-2024.png")).to_have_count(1)

    png = base64.b64decode(picture(600, 300))
    await page.locator("#image-file").set_input_files({"name": "blue.png", "mimeType": "image/png", "buffer": png})
    await expect(page.get_by_text("600 × 300 pixels")).to_be_visible()
    await page.get_by_label("Width in pixels").fill("60")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Resize").click()
    with Image.open(await (await download.value).path()) as image:
        assert image.size == (60, 30)

    await files.get_by_role("button", name="Clear").click()
    await page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    await expect(files.get_by_role("listitem")).to_have_count(4)
    await files.get_by_role("button", name="Clear").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(files.get_by_role("listitem")).to_have_count(0)
    await page.close()


async def test_a_dropped_file_is_added(browser: Browser, fixture: Fixture) -> None:
    page = await browser.new_page()
    await page.goto(fixture.url)
    drop = await page.evaluate_handle(
        """() => {
          const transfer = new DataTransfer();
          transfer.items.add(new File(['abc'], 'dropped.txt', { type: 'text/plain' }));
          return transfer;
        }"""
    )
    await page.dispatch_event("#files-card", "drop", {"dataTransfer": drop})
    await expect(page.get_by_role("region", name="Files")).to_contain_text("dropped.txt")
    await page.close()


# Through window.abp


async def test_session(browser: Browser, fixture: Fixture) -> None:
    page = await browser.new_page()
    await page.goto(fixture.url)
    before = await page.evaluate("() => abp.call('file.list')")
    assert before["error"]["code"] == "NOT_INITIALIZED" and before["error"]["retryable"]
    session = await page.evaluate(INITIALIZE)
    assert session["app"] == {"id": "dev.abp.workbench", "name": "Workbench", "version": "1.0.0"}
    assert session["protocolVersion"] == "0.1" and session["features"]["progress"] is True
    assert [c["name"] for c in session["capabilities"]] == [c["name"] for c in capabilities()]
    assert await page.evaluate("() => abp.initialized && abp.sessionId") == session["sessionId"]
    again = await page.evaluate(f"({INITIALIZE})().catch((error) => error.code)")
    assert again == "ALREADY_INITIALIZED"
    await page.evaluate("() => abp.shutdown()")
    assert await page.evaluate("() => [abp.initialized, abp.sessionId]") == [False, None]
    await page.close()


async def test_capabilities_are_those_of_the_manifest(app: App, http: aiohttp.ClientSession, fixture: Fixture) -> None:
    listed = await app.page.evaluate("() => abp.listCapabilities()")
    async with http.get(fixture.url + "abp-manifest.json") as response:
        manifest = await response.json()
    known = [(c["name"], c["description"], c["inputSchema"], c["outputSchema"]) for c in manifest["capabilities"]]
    assert known == [(c["name"], c["description"], c["inputSchema"], c["outputSchema"]) for c in listed]
    assert all(c["available"] for c in listed)
    assert await app.page.evaluate("() => abp.describeCapability('nothing')") is None
    assert await app.page.evaluate("() => [abp.supports('chart.render'), abp.supports('x')]") == [True, False]


@pytest.mark.parametrize(
    ("name", "params", "code", "part"),
    [
        ("no.such", {}, "UNKNOWN_CAPABILITY", "no.such"),
        ("chart.render", {}, "MISSING_PARAM", "csv"),
        ("chart.render", {"csv": 5}, "INVALID_TYPE", "csv must be string, not number"),
        ("chart.render", {"csv": CSV, "type": "pie"}, "INVALID_PARAMS", "bar, line"),
        ("chart.render", {"csv": "a,b\nx,many\n"}, "INVALID_PARAMS", "'many' is not a number"),
        ("export.pdf", {"html": "x", "options": {"pageSize": "a9"}}, "INVALID_PARAMS", "options.pageSize"),
        ("export.html", {}, "MISSING_PARAM", "markdown"),
        ("image.info", {"image": {"content": "AAAA"}}, "MISSING_PARAM", "encoding"),
        ("image.info", {"image": {"content": "A*==", "encoding": "base64"}}, "INVALID_PARAMS", "base64"),
        ("image.info", {"image": {"content": "AAAA", "encoding": "base64"}}, "INVALID_PARAMS", "not an image"),
        ("file.digest", {"file": {"content": "AAAA", "encoding": "base64", "size": 4}}, "INVALID_PARAMS", "3 bytes"),
        ("shape", {"shape": "SharedArrayBuffer"}, "NOT_SUPPORTED", "isolated"),
        ("fault.throws", {}, "OPERATION_FAILED", "throws"),
        ("fault.rejects_string", {}, "OPERATION_FAILED", "a plain string"),
    ],
)
async def test_errors(app: App, name: str, params: dict[str, Any], code: str, part: str) -> None:
    error = await app.error(name, **params)
    assert error["code"] == code and part in error["message"] and error["retryable"] is False


async def test_params_that_are_no_object(app: App) -> None:
    assert (await app.answer("file.list", [1]))["error"]["code"] == "INVALID_PARAMS"


async def test_a_capability_comes_and_goes(browser: Browser, fixture: Fixture) -> None:
    app = await open_app(browser, fixture.url)
    await app.page.evaluate(
        "() => { window.seen = []; window.__abp_capabilities_changed = (told) => seen.push(told); }"
    )
    names = "() => abp.listCapabilities().then((list) => list.map(({ name }) => name))"
    usual = await app.page.evaluate(names)
    assert await app.data("app.toggle") == {"capability": "extra.hello", "available": True}
    assert await app.data("extra.hello") == {"greeting": "Hello, world"}
    assert await app.page.evaluate(names) == [*usual, "extra.hello"]
    assert await app.data("app.toggle") == {"capability": "extra.hello", "available": False}
    assert await app.page.evaluate(names) == usual
    assert await app.page.evaluate("seen.map(({ added, removed }) => [added, removed])") == [
        [["extra.hello"], []],
        [[], ["extra.hello"]],
    ]
    assert (await app.error("app.toggle", capability="shape"))["code"] == "INVALID_PARAMS"
    assert (await app.data("app.record"))["handedOut"] == []  # in a frame only
    await app.page.close()


SLEEP = "new Promise((resolve) => setTimeout(resolve, {}))"
MARKDOWN = """# Title & more

One *two* **three** `a<b` [link](https://e.example/?a=1&b=2) [bad](javascript:alert(1)) ![pic](/p.png)

- a
  - b
- c

3. x
4. y

| L | R |
|---|--:|
| 1 | 2 |

> quote

```py
if a < b: pass
```
<b onclick="x">no</b> &amp;
"""


async def test_markdown(app: App) -> None:
    data = await app.data("convert.markdownToHtml", markdown=MARKDOWN)
    html = content(data["html"]).decode()
    assert html == data["html"]["content"] and data["html"]["filename"] == "title-more.html"
    assert data["title"] == "Title & more" and data["words"] > 10
    for part in (
        "<h1>Title &amp; more</h1>",
        "<em>two</em> <strong>three</strong> <code>a&lt;b</code>",
        '<a href="https://e.example/?a=1&amp;b=2">link</a>',
        '<img src="/p.png" alt="pic">',
        "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>",
        '<ol start="3"><li>x</li><li>y</li></ol>',
        '<th align="right">R</th>',
        "<td>1</td>",
        "<blockquote><p>quote</p></blockquote>",
        '<pre><code class="language-py">if a &lt; b: pass\n</code></pre>',
        "&lt;b onclick=&quot;x&quot;&gt;no&lt;/b&gt; &amp;amp;",
    ):
        assert part in html
    assert "javascript" not in html


async def test_export_html(app: App) -> None:
    document = (await app.data("export.html", markdown="# Grüße\n\nText"))["document"]
    html = content(document).decode()
    assert (document["mimeType"], document["encoding"]) == ("text/html", "utf-8")
    assert html.startswith("<!doctype html>") and "<h1>Grüße</h1>" in html and document["filename"] == "gruße.html"
    whole = "<!DOCTYPE html><title>x</title>"
    assert content((await app.data("export.html", html=whole))["document"]).decode() == whole


@pytest.mark.parametrize(("form", "kind"), [("blob", "Blob"), ("buffer", "ArrayBuffer"), ("base64", None)])
async def test_chart(app: App, form: str, kind: str | None) -> None:
    data = await app.data("chart.render", csv=CSV, width=300, height=200, **{"as": form})
    assert png_size(data["image"]) == (300, 200) and (data["points"], data["series"]) == (3, 2)
    held = data["image"]["content"]
    assert (held["kind"] if isinstance(held, dict) else None) == kind


async def test_chart_formats_and_flat_form(app: App) -> None:
    for kind in ("webp", "jpeg"):
        data = await app.data("chart.render", csv=CSV, format=kind, type="line", **{"as": "buffer"})
        assert data["image"]["mimeType"] == f"image/{kind}" and png_size(data["image"]) == (800, 450)
    flat = await app.data("chart.render", csv=CSV, **{"as": "flat"})
    assert sorted(flat) == ["image", "mimeType", "points", "size"]
    assert len(base64.b64decode(flat["image"], validate=True)) == flat["size"]


async def test_images(app: App) -> None:
    image = {"content": picture(64, 32), "mimeType": "image/png", "encoding": "base64"}
    info = await app.data("image.info", image=image)
    raw = base64.b64decode(image["content"])
    assert info == {
        "width": 64,
        "height": 32,
        "size": len(raw),
        "sha256": hashlib.sha256(raw).hexdigest(),
        "received": "base64",
    }
    resized = await app.data("image.resize", image=image, width=16)
    assert png_size(resized["image"]) == (16, 8) == (resized["width"], resized["height"])
    assert resized["original"] == {"width": 64, "height": 32, "size": len(raw)}
    pages = await app.data("export.pages", count=3, width=40, height=60)
    assert [page["number"] for page in pages["pages"]] == [1, 2, 3]
    assert {png_size(page["image"]) for page in pages["pages"]} == {(40, 60)}


async def test_binary_input_in_every_form(app: App) -> None:
    got = await app.page.evaluate(
        """async () => {
          const bytes = Uint8Array.from({ length: 1000 }, (_, at) => at % 251);
          const large = new Uint8Array(1100);
          large.set(bytes, 50);
          const forms = [bytes.buffer, bytes, new DataView(large.buffer, 50, 1000), new Int16Array(bytes.buffer),
            new Blob([bytes]), new File([bytes], 'f'), Array.from(bytes)];
          const answers = forms.map((content) => abp.call('file.digest', { file: { content, mimeType: 'a/b' } }));
          return (await Promise.all(answers)).map((answer) => answer.data);
        }"""
    )
    assert {(one["size"], one["sha256"]) for one in got} == {(1000, hashlib.sha256(PATTERN[:1000]).hexdigest())}
    kinds = ["ArrayBuffer", "Uint8Array", "DataView", "Int16Array", "Blob", "File", "Array"]
    assert [one["received"] for one in got] == kinds


async def test_tone_and_gzip(app: App) -> None:
    tone = await app.data("audio.tone", frequency=1000, seconds=0.5, sampleRate=16000)
    with wave.open(io.BytesIO(content(tone["audio"]))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (16000, 1, 8000)
        samples = memoryview(file.readframes(8000)).cast("h")
    crossings = sum(a < 0 <= b for a, b in itertools.pairwise(samples))
    assert tone["duration"] == 0.5 and abs(crossings - 500) <= 2 and max(samples) > 20000
    packed = await app.data("archive.gzip", text="grüße " * 100)
    assert gzip.decompress(content(packed["archive"])).decode() == "grüße " * 100
    assert packed["originalSize"] == 800


async def test_csv_and_json(app: App) -> None:
    rows = [{"a": 1, "b": 'say "x", y'}, {"a": -2.5, "c": "two\nlines"}]
    made = await app.data("data.csv", rows=rows)
    text = content(made["file"]).decode()
    assert (made["file"]["encoding"], made["file"]["filename"]) == ("utf-8", "data.csv")
    assert text == 'a,b,c\r\n1,"say ""x"", y",\r\n-2.5,,"two\nlines"\r\n' and made["rows"] == 2
    back = await app.data("data.json", csv=text)
    assert back == {"items": [{**rows[0], "c": ""}, {"a": -2.5, "b": "", "c": "two\nlines"}], "count": 2}
    files = (await app.data("file.list"))["files"]
    assert files and all(sorted(one) == ["mimeType", "modified", "name", "size"] for one in files)


@pytest.mark.parametrize("size", [0, 1, 7, 8, (1 << 20) - 1, 1 << 20, (1 << 20) + 3, 40_000_001])
async def test_generators_agree(app: App, size: int) -> None:
    for seed in (0, 7, 0x9E3779B9, 0xFFFFFFFF)[: 1 if size > 1 << 22 else 4]:
        form = "blob" if size > 1 << 22 else "buffer"
        data = await app.data("file.generate", bytes=size, seed=seed, digest=True, **{"as": form})
        assert data["sha256"] == digest(size, seed)
        assert hashlib.sha256(content(data["file"])).hexdigest() == digest(size, seed)


async def test_generator_in_python() -> None:
    whole = b"".join(generate(2_500_000, 3))
    assert whole[: 1 << 20] == block(0, 3) and whole[1 << 20 : 1 << 21] == block(1, 3)
    assert b"".join(generate(2_500_000, 3, 1_048_570)) == whole[1_048_570:]
    assert digest(2_500_000, 3) == hashlib.sha256(whole).hexdigest()
    with pytest.raises(ValueError, match="seed"):
        block(0, -1)


async def test_generated_addresses(app: App) -> None:
    made = await app.data("file.generate", bytes=100_000, seed=2, **{"as": "base64"})
    assert content(made["file"]) == b"".join(generate(100_000, 2))
    for form in ("blobUrl", "dataUrl"):
        file = (await app.data("file.generate", bytes=5000, seed=2, **{"as": form}))["file"]
        read = "async (url) => Array.from(new Uint8Array(await (await fetch(url)).arrayBuffer()))"
        assert bytes(await app.page.evaluate(read, file["downloadUrl"])) == b"".join(generate(5000, 2))


async def test_base64_without_the_browsers_own(app: App) -> None:
    script = """async (sizes) => {
      const { encodeBase64, decodeBase64 } = await import('/static/lib/base64.js');
      const { toBase64 } = Uint8Array.prototype;
      const { fromBase64 } = Uint8Array;
      delete Uint8Array.prototype.toBase64;
      delete Uint8Array.fromBase64;
      const texts = sizes.map((size) => encodeBase64(Uint8Array.from({ length: size }, (_, at) => at % 251)));
      const lengths = texts.map((text) => decodeBase64(text).length);
      Object.assign(Uint8Array.prototype, { toBase64 });
      Object.assign(Uint8Array, { fromBase64 });
      return [texts, lengths];
    }"""
    sizes = [0, 1, 2, 3, 0x6000, 0x6001, 200_000]
    texts, lengths = await app.page.evaluate(script, sizes)
    assert [base64.b64decode(text, validate=True) for text in texts] == [(PATTERN[:251] * 800)[:n] for n in sizes]
    assert lengths == sizes


@pytest.mark.parametrize(
    "shape",
    [
        *("ArrayBuffer", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint32Array", "Float64Array"),
        *("BigUint64Array", "subarray", "DataView", "Blob", "File"),
    ],
)
async def test_shapes(app: App, shape: str) -> None:
    data = await app.data("shape", shape=shape)
    assert content(data["file"]) == PATTERN and data["size"] == 1024
    assert data["file"]["content"]["kind"] == {"subarray": "Uint8Array"}.get(shape, shape)


async def test_all_shapes_answer(app: App) -> None:
    names = next(c for c in capabilities() if c["name"] == "shape")["inputSchema"]["properties"]["shape"]["enum"]
    ask = "(names) => Promise.all(names.map(async (shape) => (await abp.call('shape', { shape })).success))"
    answered = dict(zip(names, await app.page.evaluate(ask, names), strict=True))
    assert [name for name, success in answered.items() if not success] == ["SharedArrayBuffer"]


async def test_shared_memory_on_an_isolated_page(browser: Browser, fixture: Fixture) -> None:
    app = await open_app(browser, fixture.url + "?isolated")
    ask = "async () => { const { data } = await abp.call('shape', { shape: 'SharedArrayBuffer' }); "
    got = await app.page.evaluate(ask + "return [String(data.file.content), ...new Uint8Array(data.file.content)]; }")
    assert got[0] == "[object SharedArrayBuffer]" and bytes(got[1:]) == PATTERN
    await app.page.close()


# Printing


@pytest.mark.parametrize("strict", [False, True])
async def test_only_the_document_is_printed(browser: Browser, fixture: Fixture, strict: bool) -> None:
    app = await open_app(browser, fixture.strict_url if strict else fixture.url)
    await app.page.evaluate("() => { window.print = () => { window.printed = (window.printed ?? 0) + 1; }; }")
    html = "<title>T</title><h1 onclick='x()'>Doc</h1><script>window.bad = 1</script><a href='java\nscript:x()'>a</a>"
    assert await app.data("export.pdf", html=html) == {"rendered": True, "title": "T"}
    assert await app.page.evaluate("() => [window.printed, window.bad, document.title]") == [1, None, "T"]
    root = "document.querySelector('#print-root')"
    assert await app.page.evaluate(f"() => {root}.innerHTML") == "<h1>Doc</h1><a>a</a>"
    shown = "[...document.body.children].filter((e) => e.getClientRects().length)"
    visible = f"() => {shown}.map((e) => e.id || e.localName)"
    seen = f"() => {{ addEventListener('beforeprint', () => {{ window.seen = ({visible})(); }}); }}"
    await app.page.evaluate(seen)
    before = await app.page.evaluate(visible)
    landscape = await app.page.pdf(prefer_css_page_size=True)
    assert landscape.startswith(b"%PDF")
    assert await app.page.evaluate("() => window.seen") == ["print-root"]
    assert await app.page.evaluate(visible) == before
    assert await app.page.evaluate(f"() => [{root}.childNodes.length, document.title]") == [0, "Workbench"]
    await app.page.close()


# Cancelling, progress, questions


@pytest.mark.parametrize("form", ["abp.cancel(callId, 'enough')", "abp.cancel({ callId, reason: 'enough' })"])
async def test_cancel(app: App, form: str) -> None:
    got = await app.page.evaluate(
        f"""async () => {{
          const callId = crypto.randomUUID();
          const waiting = abp.call('job.wait', {{}}, {{ callId }});
          const first = await {form};
          const answer = await Promise.race([waiting, {SLEEP.format(2000)}]);
          return [callId, answer, first, await {form}, await abp.cancel('unknown')];
        }}"""
    )
    call_id, answer, first, second, unknown = got
    assert {k: v for k, v in answer.items() if k != "metadata"} == {"success": False, "cancelled": True}
    assert first == second == {"callId": call_id, "cancelled": True, "reason": "enough"}
    assert unknown == {"callId": "unknown", "cancelled": False}
    record = await app.data("app.record")
    assert record["cancelled"][-2]["callId"] == call_id


@pytest.mark.parametrize(("form", "works"), [("string", [True, False]), ("object", [False, True])])
async def test_cancel_in_one_form_only(browser: Browser, fixture: Fixture, form: str, works: list[bool]) -> None:
    app = await open_app(browser, f"{fixture.url}?canceltype={form}")
    got = await app.page.evaluate(
        """async () => {
          for (const callId of ['a', 'b']) abp.call('job.wait', {}, { callId });
          return [(await abp.cancel('a')).cancelled, (await abp.cancel({ callId: 'b' })).cancelled];
        }"""
    )
    assert got == works
    await app.page.close()


async def test_timeout_is_a_cancellation(app: App) -> None:
    answer = await app.answer("job.wait", timeout=30)
    assert answer["cancelled"] and answer["error"]["code"] == "TIMEOUT" and answer["metadata"]["duration"] >= 29


async def test_events_reach_the_exposed_functions(browser: Browser, fixture: Fixture) -> None:
    page = await browser.new_page()
    events: list[tuple[str, Any]] = []
    for name in ("notification", "progress"):
        await page.expose_function(f"__abp_{name}", lambda payload, name=name: events.append((name, payload)))
    await page.expose_function("__abp_elicitation", lambda request: {"success": True, "data": {"confirmed": True}})
    await page.goto(fixture.url)
    await page.evaluate(INITIALIZE)
    app = App(page)
    await app.answer("job.run", {"steps": 2, "delay": 0, "label": "L"}, progressToken="token", callId="id")
    step = {"operationId": "token", "progress": 2, "total": 2, "percentage": 100, "status": "step 2 of 2", "stage": "L"}
    assert events[2] == ("progress", step)
    assert [payload["event"] for name, payload in events if name == "notification"] == [
        "notifications/operation/started",
        "notifications/operation/completed",
    ]
    asked = await app.data("form.ask", method="elicitation/confirm", params={"message": "?"})
    assert asked == {"response": {"success": True, "data": {"confirmed": True}}}
    assert await app.data("files.clear") == {"cleared": 2}
    first = (await app.data("app.record"))["first"]
    assert first["functions"] == {
        "__abp_notification": True,
        "__abp_progress": True,
        "__abp_elicitation": True,
        "__abp_capabilities_changed": False,
    }
    assert "__abp_progress" in first["names"] and first["replaced"] == []
    await page.close()


@pytest.mark.parametrize("style", ["assign", "call"])
async def test_own_events(browser: Browser, fixture: Fixture, style: str) -> None:
    app = await open_app(browser, f"{fixture.url}?ownevents={style}")
    got = await app.page.evaluate(
        """async (style) => {
          const seen = [];
          const listen = (member, listener) => {
            if (style === 'call') abp[member](listener);
            else abp[member] = listener;
          };
          listen('onProgress', ({ percentage }) => { seen.push(percentage); });
          listen('onElicitation', async ({ method }) => ({ success: true, data: { value: method } }));
          await abp.call('job.run', { steps: 2, delay: 0 });
          return [seen, (await abp.call('form.ask', { method: 'm', params: {} })).data.response];
        }""",
        style,
    )
    assert got == [[50, 100], {"success": True, "data": {"value": "m"}}]
    await app.page.close()


async def test_unanswered_question_cancels(app: App) -> None:
    answer = await app.answer("files.clear")
    assert answer["cancelled"] and not answer["success"]
    assert (await app.data("form.ask", method="m", params={}))["response"]["success"] is False


# Page options and faults


@pytest.mark.parametrize(
    ("query", "script", "expected"),
    [
        (
            "late=300",
            f"async () => {{ const a = !window.abp; await {SLEEP.format(500)}; return [a, !!abp]; }}",
            [True, True],
        ),
        ("absent", "() => 'abp' in window", False),
        ("half", "() => [typeof abp.call, typeof abp.initialize]", ["undefined", "function"]),
        ("throws", "() => { try { window.abp } catch (e) { return e.name } }", "Error"),
        ("initfails", "() => abp.initialize({}).catch((e) => e.message)", "initialize fails on this page"),
        ("wrappedlist", "async () => (await abp.listCapabilities()).success", True),
        ("emptylist", "() => abp.listCapabilities()", []),
        ("faults", "async () => (await abp.listCapabilities()).filter((c) => c.name.startsWith('fault.')).length", 28),
        ("capabilities=20000", "async () => (await abp.listCapabilities()).at(-1).name", "bulk.019999"),
    ],
)
async def test_page_options(browser: Browser, fixture: Fixture, query: str, script: str, expected: Any) -> None:
    page = await browser.new_page()
    await page.goto(f"{fixture.url}?{query}")
    assert await page.evaluate(script) == expected
    await page.close()


async def test_content_faults(app: App) -> None:
    def document(data: Any) -> tuple[Any, int]:
        return data["document"], len(base64.b64decode(data["document"]["content"]["$bytes"]))

    off, size = document(await app.data("fault.wrong_size"))
    assert off["size"] == size + 1
    bad, _ = document(await app.data("fault.bad_size", value="many"))
    assert bad["size"] == "many"
    name, _ = document(await app.data("fault.bad_name", filename="a\u0000b"))
    assert name["filename"] == "a\u0000b"
    page = await app.data("fault.wrong_mime")
    assert content(page["image"]).startswith(b"<!doctype html>") and page["image"]["mimeType"] == "image/png"
    open_ended = (await app.data("fault.no_padding"))["document"]
    assert len(open_ended["content"]) % 4 and len(base64.b64decode(open_ended["content"] + "==")) == open_ended["size"]
    safe = (await app.data("fault.url_safe_base64"))["document"]
    assert {"-", "_"} < set(safe["content"]) and len(base64.urlsafe_b64decode(safe["content"])) == safe["size"]
    assert (await app.data("fault.noncanonical_base64"))["document"]["content"] == "QR=="
    assert "*" in (await app.data("fault.bad_base64"))["document"]["content"]
    partial = (await app.data("fault.partial"))["files"]
    assert [f["size"] - len(base64.b64decode(f["content"]["$bytes"])) for f in partial] == [0, 1, 0]


async def test_answer_faults(app: App) -> None:
    assert await app.answer("fault.crash_half") == {"success": True}
    values: tuple[Any, ...] = (None, "text", 5, [])
    for value in values:
        assert await app.answer("fault.bad_answer", {"value": value}) == value
    depth = """async () => {
      let { data } = await abp.call('fault.deep', { depth: 5000 });
      for (let levels = 1; ; levels += 1) {
        if (!data.nested) return levels;
        data = data.nested;
      }
    }"""
    assert await app.page.evaluate(depth) == 5000
    big = "async () => JSON.stringify(await abp.call('fault.big_json', { megabytes: 2 })).length"
    size = await app.page.evaluate(big)
    assert 2_000_000 < size < 2_300_000
    assert (await app.data("fault.slow", ms=20))["ms"] == 20
    assert (await app.data("fault.spin", ms=20))["ms"] == 20
    never = """async () => {
      const answer = abp.call('fault.never', {}, { callId: 'n', timeout: 10 }).then(() => 'answered');
      await abp.cancel('n');
      return Promise.race([answer, new Promise((resolve) => setTimeout(resolve, 60, 'silent'))]);
    }"""
    assert await app.page.evaluate(never) == "silent"


async def test_navigation_and_dialogs(browser: Browser, fixture: Fixture) -> None:
    app = await open_app(browser, fixture.url)
    messages: list[str] = []

    async def accept(dialog: Any) -> None:
        messages.append(dialog.message)
        await dialog.accept()

    app.page.on("dialog", accept)
    assert await app.data("fault.alert", kind="confirm", message="sure?") == {"answer": True}
    assert messages == ["sure?"]
    await app.page.evaluate("() => { abp.call('fault.navigate'); }")
    await app.page.wait_for_url("**/static/blank.html")
    await app.page.close()


# The strict page


async def test_strict_page(browser: Browser, fixture: Fixture) -> None:
    app = await open_app(browser, fixture.strict_url)
    response = await app.page.reload()
    assert response is not None
    assert response.headers["content-security-policy"] == "default-src 'none'; script-src 'self'"
    await app.page.evaluate(INITIALIZE)
    assert (await app.page.evaluate("() => fetch('/abp-manifest.json').catch((error) => error.name)")) == "TypeError"
    assert png_size((await app.data("chart.render", csv=CSV))["image"]) == (800, 450)
    image = {"content": picture(8, 8), "mimeType": "image/png", "encoding": "base64"}
    assert (await app.data("image.resize", image=image, width=4))["height"] == 4
    assert (await app.data("audio.tone", seconds=0.1))["audio"]["size"] == 44 + 2 * 4410
    assert gzip.decompress(content((await app.data("archive.gzip", text="x"))["archive"])) == b"x"
    assert (await app.data("file.generate", bytes=9, digest=True))["sha256"] == digest(9)
    bearer = await app.data("file.generate", bytes=9, auth="bearer", **{"as": "url"})
    assert bearer["file"]["auth"]["header"] == f"Bearer {fixture.token}"
    await app.page.close()


# Downloads


async def fetch(http: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, Any, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.get(url, headers=named) as response:
        return response.status, response.headers, await response.read()


async def test_ranges(http: aiohttp.ClientSession, fixture: Fixture) -> None:
    url = f"{fixture.url}downloads/2000000/4/a.bin?type=application/pdf"
    whole = b"".join(generate(2_000_000, 4))
    status, headers, body = await fetch(http, url, Accept_Encoding="identity")
    assert (status, body, headers["Content-Type"]) == (200, whole, "application/pdf")
    assert headers["Content-Length"] == "2000000" and "Content-Encoding" not in headers
    etag = headers["ETag"]
    for asked, first, stop in [
        ("0-0", 0, 1),
        ("1048570-1048580", 1048570, 1048581),
        ("1999999-", 1999999, 2000000),
        ("-5", 1999995, 2000000),
    ]:
        status, headers, body = await fetch(http, url, Range=f"bytes={asked}", If_Range=etag)
        assert (status, body) == (206, whole[first:stop])
        assert headers["Content-Range"] == f"bytes {first}-{stop - 1}/2000000"
    status, headers, _ = await fetch(http, url, Range="bytes=2000000-")
    assert (status, headers["Content-Range"]) == (416, "bytes */2000000")
    for odd in ({"Range": "bytes=0-1,4-5"}, {"Range": "bytes=5-2"}, {"Range": "bytes=0-1", "If_Range": '"other"'}):
        status, _, body = await fetch(http, url, **odd)
        assert (status, len(body)) == (200, 2_000_000)
    assert (await fetch(http, url, If_None_Match=etag))[0] == 304
    async with http.head(url) as response:
        assert response.headers["Content-Length"] == "2000000" and await response.read() == b""
    assert (await fetch(http, f"{fixture.url}downloads/0/0/empty"))[2] == b""


@pytest.mark.parametrize("kind", ["bearer", "bearerLine", "bearerToken", "query"])
async def test_credentials(app: App, http: aiohttp.ClientSession, fixture: Fixture, kind: str) -> None:
    file = (await app.data("file.generate", bytes=10, auth=kind, absolute=True, **{"as": "url"}))["file"]
    auth, url, headers = file["auth"], file["downloadUrl"], {}
    if kind == "query":
        assert auth == {"type": "query", "token": fixture.token}
        right, wrong = f"{url}&token={auth['token']}", f"{url}&token=x"
    else:
        right = wrong = url
        line = {"bearerLine": auth.get("header"), "bearer": f"Authorization: {auth.get('header')}"}.get(kind)
        name, _, value = (line or f"Authorization: Bearer {auth.get('token')}").partition(": ")
        headers = {name: value}
    assert (await fetch(http, url))[0] == 401
    assert (await fetch(http, wrong, **{name: f"{value}x" for name, value in headers.items()}))[0] == 403
    status, _, body = await fetch(http, right, **headers)
    assert (status, body) == (200, b"".join(generate(10)))
    record = fixture.requests[-1]
    assert record.method == "GET" and unquote(right).endswith(unquote(record.path_qs))
    assert all(record.headers[name.lower()] == value for name, value in headers.items())


async def test_cookie_and_expiry(app: App, http: aiohttp.ClientSession, fixture: Fixture) -> None:
    file = (await app.data("file.generate", bytes=10, auth="cookie", **{"as": "url"}))["file"]
    assert file["downloadUrl"].startswith("/downloads/") and "auth" not in file
    assert await app.page.evaluate("async (url) => (await fetch(url)).status", file["downloadUrl"]) == 200
    assert await app.page.evaluate("() => document.cookie") == ""
    url = fixture.url.rstrip("/") + file["downloadUrl"]
    async with aiohttp.ClientSession() as fresh:
        assert (await fetch(fresh, url))[0] == 401
    for seconds, status in [(60, 200), (-60, 410)]:
        made = (await app.data("file.generate", bytes=10, expiresIn=seconds, absolute=True, **{"as": "url"}))["file"]
        assert abs(made["expiresAt"] / 1000 - time.time() - seconds) < 5
        assert (await fetch(http, made["downloadUrl"]))[0] == status


async def test_download_faults(app: App, http: aiohttp.ClientSession, fixture: Fixture) -> None:
    async def reference(name: str, **params: Any) -> Any:
        return (await app.data(f"fault.{name}", bytes=300_000, absolute=True, **params))["document"]

    whole = b"".join(generate(300_000))
    assert len((await fetch(http, (await reference("short_download"))["downloadUrl"]))[2]) == 299_999
    assert len((await fetch(http, (await reference("long_download", delta=5))["downloadUrl"]))[2]) == 300_005
    assert (await fetch(http, (await reference("gone"))["downloadUrl"]))[0] == 404
    expired = await reference("expired")
    assert expired["expiresAt"] < time.time() * 1000 and (await fetch(http, expired["downloadUrl"]))[0] == 410

    with pytest.raises(aiohttp.ClientPayloadError):
        await fetch(http, (await reference("short_download", how="cut"))["downloadUrl"])
    url = (await reference("cut_once"))["downloadUrl"]
    async with http.get(url) as response:
        got = b""
        with pytest.raises(aiohttp.ClientPayloadError):
            while True:
                got += await response.content.readany()
    assert len(got) <= 150_000
    status, _, rest = await fetch(http, url, Range=f"bytes={len(got)}-")
    assert (status, got + rest) == (206, whole)

    url = (await reference("gone", status=503, times=1, retryAfter=3))["downloadUrl"]
    status, headers, _ = await fetch(http, url)
    assert (status, headers["Retry-After"]) == (503, "3") and (await fetch(http, url))[2] == whole

    away = await reference("redirect_away")
    assert (await fetch(http, away["downloadUrl"]))[0] == 401
    _, _, body = await fetch(http, away["downloadUrl"], Authorization=away["auth"]["header"])
    landed = fixture.requests[-1]
    assert body == whole and landed.path_qs.startswith("/faults/landing/")
    assert f"http://{landed.headers['Host']}/" == fixture.other_origin
    assert "Authorization" not in landed.headers


async def test_the_server_leaves_nothing() -> None:
    before = asyncio.all_tasks()
    async with serve() as running, aiohttp.ClientSession() as session:
        async with session.get(f"{running.url}downloads/{1 << 30}/0/large") as response:
            await response.content.readexactly(10)
            started = time.monotonic()
            response.close()
        port = int(running.url.rstrip("/").rpartition(":")[2])
        assert json.loads(await (await session.get(running.other_origin + "abp-manifest.json")).text())["abp"] == "0.1"
    assert time.monotonic() - started < 3
    assert asyncio.all_tasks() == before
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)
