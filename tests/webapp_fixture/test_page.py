"""The capabilities of the reference app, called through window.abp. No part of `transports` is used here."""

import base64
import gzip
import hashlib
import io
import itertools
import json
import wave
from typing import Any

import pytest
import zxingcpp
from PIL import Image
from playwright.async_api import Browser

from tests.support.rows import each_row
from tests.webapp_fixture.page import CSV, PACK, PATTERN, App, content, open_app, picture, png_size
from tests.webapp_fixture.test_websocket import dial
from webapp_fixture import Fixture, block, digest, generate

#: What the app answers over its socket is tested in test_websocket.py, and tests of sessions open the page.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.browser, pytest.mark.slow]


@each_row(
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
        ("file.digest", {"file": {"content": "x", "encoding": "base64"}}, "INVALID_PARAMS", "base64"),
        ("file.digest", {"file": {"content": "abcd"}}, "MISSING_PARAM", "encoding"),
        ("shape", {"shape": "blob"}, "INVALID_PARAMS", "shape must be one of"),
        ("file.generate", {"bytes": -1}, "INVALID_PARAMS", "bytes must be at least 0"),
        ("file.generate", {"bytes": 1, "seed": 4294967296}, "INVALID_PARAMS", "seed must be at most 4294967295"),
        ("form.ask", {"method": "", "params": {}}, "INVALID_PARAMS", "method must not be empty"),
        ("shape", {"shape": "SharedArrayBuffer"}, "NOT_SUPPORTED", "isolated"),
        ("fault.throws", {}, "OPERATION_FAILED", "throws"),
        ("fault.rejects_string", {}, "OPERATION_FAILED", "a plain string"),
        ("generate.qrcode", {"text": "x" * 2332}, "INVALID_PARAMS", "text (2332 characters) is more than a QR code"),
    ],
)
async def test_errors(app: App, fixture: Fixture, name: str, params: dict[str, Any], code: str, part: str) -> None:
    error = await app.error(name, **params)
    assert error["code"] == code and part in error["message"] and error["retryable"] is False
    async with dial(fixture) as client:
        listed = [entry["name"] for entry in (await client.initialize())["capabilities"]]
        if name in listed and code != "NOT_SUPPORTED":  # shared memory is known to a page only
            assert await client.error(name, **params) == code


ROWS: list[dict[str, Any]] = [
    {"name": "Ann, the 'first'", "2": 2, "10": True, "1": None, "note": 'say "hi"\r\nbye'},
    {
        "name": "世界 𝄞",
        "n": 1e21,
        "m": 1.0,
        "x": 1e-7,
        "y": -0.000001234,
        "z": 123456789.125,
        "late": [1, None, ["a", 2]],
    },
    {"big": 12345678901234567890, "o": {"a": 1}, "e": "", "tiny": 5e-324, "huge": 1.7976931348623157e308, "a": 1e20},
    {},
    {"a": 123456789012345680000, "name": -0.0, "x": 0.1, "y": 100, "z": 1.5e300},
]
FILE = {"content": "aGVsbG8=", "encoding": "base64", "mimeType": "x/y", "size": 5}


def decoded(value: Any) -> Any:
    """An answer with bytes in the place of content, in whatever form it came."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "mimeType" in value and "content" in value:
        return {**value, "content": content(value), "encoding": None}
    return {name: decoded(item) for name, item in value.items()}


@pytest.mark.requirement("R5-1b", "R0-11a", "R0-11b", "R0-11c", "R1-1a", "R1-9a", "R1-10c")
@each_row(
    ("name", "params"),
    [
        *(("data.csv", {"rows": rows}) for rows in (ROWS, [], [{"only": "one"}], [{"lone": "a\ud834b"}])),
        ("data.json", {"csv": 'a,b,"c\n"\r\n1,-0,1.50\n"x,""y""",007,123456789012345\n\nz\n'}),
        ("export.html", {"html": "<p>ü", "title": "A & B: Größe"}),
        ("export.html", {"html": "<html>x"}),
        ("image.info", {"image": {"content": picture(20, 30), "encoding": "base64", "mimeType": "image/png"}}),
        ("file.digest", {"file": FILE}),
        ("file.generate", {"bytes": 3000, "seed": 7, "digest": True}),
        ("file.generate", {"bytes": 0, "seed": 4294967295}),  # the lowest and the highest
        *(("shape", {"shape": name, "size": 700}) for name in ("top", "flat", "deep", "list", "empty", "mixed")),
    ],
)
async def test_fixture_socket_answers_like_page(app: App, fixture: Fixture, name: str, params: dict[str, Any]) -> None:
    # As text, because Playwright's own reading of arguments is not JSON's.
    script = f"""async (text) => {{ {PACK}
      const [name, params] = JSON.parse(text);
      return JSON.stringify(await pack((await abp.call(name, params)).data));
    }}"""
    of_page = json.loads(await app.page.evaluate(script, json.dumps([name, params])))
    async with dial(fixture) as client:
        await client.initialize()
        assert decoded(await client.data(name, **params)) == decoded(of_page)


async def test_non_object_params_are_rejected(app: App) -> None:
    assert (await app.answer("file.list", [1]))["error"]["code"] == "INVALID_PARAMS"


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
    document = (await app.data("export.html", markdown="# Grüße\n\nText"))["document"]
    whole = content(document).decode()
    assert whole.startswith("<!doctype html>") and "<h1>Grüße</h1>" in whole and document["filename"] == "gruße.html"


async def test_chart_formats_and_flat_form(app: App) -> None:
    for kind in ("webp", "jpeg"):
        data = await app.data("chart.render", csv=CSV, format=kind, type="line", **{"as": "buffer"})
        assert data["image"]["mimeType"] == f"image/{kind}" and png_size(data["image"]) == (800, 450)
    flat = await app.data("chart.render", csv=CSV, **{"as": "flat"})
    assert sorted(flat) == ["image", "mimeType", "points", "size"]
    assert len(base64.b64decode(flat["image"], validate=True)) == flat["size"]


@pytest.mark.requirement("R1-1a")
@each_row("text", ["https://example.com/a?b=c", "0123456789", "grüße 世界 🙂", "x" * 2331])
async def test_qr_code_decodes_to_its_text(app: App, text: str) -> None:
    data = await app.data("generate.qrcode", text=text, scale=3)
    assert png_size(data["image"]) == (3 * (data["modules"] + 8),) * 2
    with Image.open(io.BytesIO(content(data["image"]))) as image:
        (code,) = zxingcpp.read_barcodes(image)
    assert (code.format, code.text) == (zxingcpp.BarcodeFormat.QRCode, text)


async def test_binary_input_is_accepted_in_every_form(app: App) -> None:
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


@pytest.mark.parametrize("size", [0, 1, 7, 8, (1 << 20) - 1, 1 << 20, (1 << 20) + 3, 40_000_001])
async def test_python_and_page_generators_agree(app: App, size: int) -> None:
    for seed in (0, 7, 0x9E3779B9, 0xFFFFFFFF)[: 1 if size > 1 << 22 else 4 if size < 1 << 19 else 2]:
        form = "blob" if size > 1 << 22 else "buffer"
        data = await app.data("file.generate", bytes=size, seed=seed, digest=True, **{"as": form})
        assert data["sha256"] == digest(size, seed)
        assert hashlib.sha256(content(data["file"])).hexdigest() == digest(size, seed)


async def test_python_generator_matches_its_blocks_and_digest() -> None:
    whole = b"".join(generate(2_500_000, 3))
    assert whole[: 1 << 20] == block(0, 3) and whole[1 << 20 : 1 << 21] == block(1, 3)
    assert b"".join(generate(2_500_000, 3, 1_048_570)) == whole[1_048_570:]
    assert digest(2_500_000, 3) == hashlib.sha256(whole).hexdigest()
    with pytest.raises(ValueError, match="seed"):
        block(0, -1)


@pytest.mark.requirement("R1-9c")
async def test_base64_fallback_works_without_browser_support(app: App) -> None:
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
