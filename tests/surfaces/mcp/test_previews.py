"""What a model can look at and read in a result: images, in any format, and the beginning of texts and PDFs."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import random

import pytest
from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent
from PIL import Image

from tests.support.mcp_clients import Serve, called, giving, images_of, links_of, read_as_resource, size, words
from tests.support.slow import slow_but
from transports import BinaryData
from transports.surfaces.shared import _previews as images

pytestmark = pytest.mark.parametrize("era", ["2026-07-28"])


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def noise(width: int, height: int) -> Image.Image:
    return Image.frombytes("RGB", (width, height), random.Random(1).randbytes(width * height * 3))


def file(data: bytes, filename: str, mime_type: str) -> BinaryData:
    return BinaryData.from_bytes(data, mime_type=mime_type, filename=filename)


def bytes_of(answer: CallToolResult) -> list[bytes]:
    """The images that a model sees."""
    return [base64.b64decode(block.data, validate=True) for block in images_of(answer)]


def opened(answer: CallToolResult) -> list[Image.Image]:
    opened: list[Image.Image] = [Image.open(io.BytesIO(data)) for data in bytes_of(answer)]
    for block, image in zip(images_of(answer), opened, strict=True):
        assert block.mime_type == f"image/{str(image.format).lower()}" and block.meta
    return opened


def pdf(*pages: str) -> bytes:
    """A PDF with one line of text a page, without the table at its end, which readers make anew."""
    kids = " ".join(f"{10 + 2 * at} 0 R" for at in range(len(pages)))
    parts = [
        "%PDF-1.4",
        "1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj",
        f"2 0 obj<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>endobj",
        "3 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj",
    ]
    for at, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 20 700 Td ({text}) Tj ET"
        parts += [
            f"{10 + 2 * at} 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9999 800]/Contents {11 + 2 * at} 0 R"
            "/Resources<</Font<</F1 3 0 R>>>>>>endobj",
            f"{11 + 2 * at} 0 obj<</Length {len(drawn)}>>stream\n{drawn}\nendstream endobj",
        ]
    return "\n".join([*parts, "trailer<</Root 1 0 R>>", "%%EOF"]).encode()


@pytest.mark.requirement("R3-1a", "R3-1c", "R3-2b", "R3-2d", "R3-3a", "R3-3b", "R3-4a", "R3-4b", "R3-8a", "R3-8b")
@pytest.mark.requirement("R3-8c", "R3-8d", "R3-9c", "R3-9d", "R3-9f")
async def test_image_supported_by_clients_is_sent_unchanged(serve: Serve) -> None:
    """``capture_chart`` of the guide to binary content; a link to the file is a third item."""
    charts = {kind: encoded(noise(40, 30), kind) for kind in ("jpeg", "gif")}
    results = {
        kind: {"image": file(data, f"requests-chart.{kind}", f"image/{kind}"), "metric": "requests"}
        for kind, data in charts.items()
    }
    async with serve(giving(**results)) as client:
        for kind, data in charts.items():
            answer = await client.call_tool(f"abp_{kind}", {})
            assert [type(item) for item in answer.content] == [TextContent, ImageContent, ResourceLink]
            assert all(part in words(answer) for part in ("requests-chart", f"image/{kind}", f"{len(data)} bytes"))
            assert images_of(answer)[0].mime_type == f"image/{kind}" and bytes_of(answer) == [data]


@pytest.mark.load
@pytest.mark.requirement("R3-1b", "R3-1e", "R3-5a", "R3-5b", "R3-5c", "R3-5e", "R3-5f", "R3-7c", "R3-9g", "R4-16e")
@pytest.mark.parametrize(
    ("width", "height", "is_small"),
    slow_but([(400, 400, False), (480, 480, True), (1000, 700, True)], (480, 480, True)),
)
async def test_image_preview_size_follows_documented_table(
    serve: Serve, width: int, height: int, is_small: bool
) -> None:
    picture = encoded(noise(width, height), "PNG")
    assert (len(picture) > 500_000) is is_small
    async with serve(giving(make={"image": file(picture, "a.png", "image/png")})) as client:
        answer = await client.call_tool("abp_make", {})
        (shown,), (image,) = bytes_of(answer), opened(answer)
        assert len(shown) <= 500_000 and (shown == picture) is not is_small
        assert image.width <= 800 and abs(image.width / image.height - width / height) < 0.02
        meta = images_of(answer)[0].meta
        assert meta and meta["thumbnail"] is is_small
        assert [await read_as_resource(client, link.uri) for link in links_of(answer)[:1]] == [picture]


@pytest.mark.load
@pytest.mark.requirement("R3-1b", "R3-5a", "R3-5d", "R3-5f", "R3-9a", "R3-9b", "R3-9g")
async def test_image_limits_apply_per_image_and_in_total(serve: Serve) -> None:
    async def answer_with(pictures: object, **options: int) -> CallToolResult:
        async with serve(giving(make={"pages": pictures}), options=options) as client:
            answer: CallToolResult = await client.call_tool("abp_make", {})
            return answer

    pair = [encoded(noise(100, 100), "PNG") + b"%d" % number for number in range(2)]
    assert all(len(picture) > 25_000 for picture in pair)
    shown = await answer_with(pair, max_total_image_bytes=50_000)
    assert len(bytes_of(shown)) == 2 and all(len(data) <= 25_000 for data in bytes_of(shown))
    assert [max(image.size) <= 100 for image in opened(shown)] == [True] * 2
    for none in ({"max_total_image_bytes": 0}, {"max_image_bytes": 0}):
        assert bytes_of(await answer_with(pair, **none)) == []

    picture = encoded(noise(407, 407), "PNG")
    assert 490_000 < len(picture) < 500_000
    four = [picture + b"%d" % number for number in range(4)]
    assert bytes_of(await answer_with(four)) == four

    # 270 KB, and 90 KB with 256 colours, beside 11 KB: a large one leaves room for the others
    shown = await answer_with([encoded(noise(side, side), "PNG") for side in (300, 60)], max_image_bytes=60_000)
    large, small = opened(shown)
    assert small.size == (60, 60) and 60 < large.width < 300 and "shown" not in words(shown)


@pytest.mark.load
@pytest.mark.requirement("R3-2b", "R3-3b", "R3-4f", "R3-9a", "R3-9b", "R3-9g", "R3-9h")
async def test_multiple_images_are_labelled_and_counted(serve: Serve) -> None:
    """A converted one is at most 1200 pixels wide: the guide's ``sharp(…).resize({ width: 1200, … }).png(…)``."""
    chart, tall = noise(40, 30), Image.new("1", (100, 60_000))
    six = {
        "a": file(encoded(chart, "PNG"), "a.png", "image/png"),
        "b": file(encoded(chart, "BMP"), "b.bmp", "image/bmp"),
        "c": file(encoded(tall, "TIFF", save_all=True, append_images=[chart]), "c.tiff", "image/tiff"),
        "d": file(encoded(Image.new("RGB", (1600, 900), "orange"), "AVIF"), "d.avif", "image/avif"),
        "e": file(encoded(chart, "PNG") + b"e", "e.png", "image/png"),
        "f": file(encoded(chart, "PNG") + b"f", "f.png", "image/png"),
    }
    async with serve(giving(draw=six)) as client:
        answer = await client.call_tool("abp_draw", {})
    assert "Images: 4 of 6 shown; the others are behind their links" in words(answer)
    labels = [item.text for item in answer.content[1:] if isinstance(item, TextContent)]
    assert labels == [
        f"Image 1 of 6: a.png ({len(encoded(chart, 'PNG')):,} bytes)",
        "Image 2 of 6: b.bmp (40 × 30 pixels, shown as a PNG of 40 × 30)",
        "Image 3 of 6: c.tiff (100 × 60000 pixels, shown as a PNG of 3 × 2000, the first of 2 frames)",
        "Image 4 of 6: d.avif (1600 × 900 pixels, shown as a PNG of 1200 × 675)",
    ]
    kinds = [type(item) for item in answer.content]
    assert kinds == [TextContent, *[TextContent, ImageContent] * 4, *[ResourceLink] * 6]
    shown = opened(answer)
    assert [image.format for image in shown] == ["PNG"] * 4
    assert [shown[at].convert("RGB").tobytes() == chart.tobytes() for at in (0, 1)] == [True, True]
    assert shown[3].size == (1200, 675)


@pytest.mark.load
@pytest.mark.requirement("R3-4b", "R3-4c", "R3-4e", "R3-6d")
async def test_text_and_pdf_previews_are_in_answer_text(serve: Serve) -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><text>' + "é" * 2000 + "</text></svg>"
    rows = "region,revenue\r\n" + "north,1\r\n" * 2000
    files = {
        "drawing": file(svg.encode(), "a.svg", "image/svg+xml"),
        "table": file(rows.encode(), "b.csv", "text/csv"),
        "latin": file("caf\xe9,".encode("latin-1") * 9, "c.csv", "text/csv"),
        "note": file(b"short", "d.txt", "text/plain"),
        "rest": file(b"never shown", "e.txt", "text/plain"),
    }
    long = [f"Page {at} says {'words ' * 200}" for at in range(6)]
    contents: dict[str, object] = {
        "export": files,
        "book": file(pdf(*long), "book.pdf", "application/pdf"),
        "scan": file(pdf("", ""), "scan.pdf", "application/pdf"),
        "broken": file(b"%PDF-1.7 broken", "broken.pdf", "application/pdf"),
        "cut": file(b"caf\xc3", "cut.txt", "text/plain"),
        "odd": file(("a" + "é" * 9000).encode(), "odd.txt", "text/plain"),
    }
    async with serve(giving(**contents)) as client:

        async def text(capability: str) -> str:
            answer = await client.call_tool(f"abp_{capability}", {})
            assert not answer.is_error and size(answer) <= 64 * 1024 and not images_of(answer)
            return words(answer)

        export = await text("export")
        assert f"a.svg:\n{svg}" in export and "d.txt:\nshort" in export
        assert f"b.csv begins:\n{rows[:500]}\n… (truncated; {len(rows):,} bytes in all)" in export
        assert "c.csv begins" not in export and "never shown" not in export
        book = await text("book")
        assert "Text of book.pdf, from its beginning:\nPage 0 says words" in book and "Page 3 says" in book
        assert book.endswith("\n… (truncated; 6 pages in all)") and "Page 4 says" not in book
        assert "scan.pdf has 2 pages and no text in the first 2" in await text("scan")
        assert "Text of" not in await text("broken")
        assert "cut.txt:" not in await text("cut")
        assert "odd.txt begins:\naéé" in await text("odd")  # although a character lies across the end of what is read

        # all of the text of a PDF, in slices
        listed = {one["filename"]: one["id"] for one in (await called(client, "abp_artifacts"))["artifacts"]}
        read, offset = "", 0
        while offset is not None:
            arguments = {"id": listed["book.pdf"], "text": True, "offset": offset, "length": 7000}
            header, content = (await client.call_tool("abp_read_artifact", arguments)).content
            assert isinstance(header, TextContent) and isinstance(content, TextContent)
            read, offset = read + content.text, json.loads(header.text)["next_offset"]
        assert read.split() == " ".join(long).split()
        for name, reason in (("broken.pdf", "it cannot be read"), ("b.csv", "is not a PDF")):
            refused = await client.call_tool("abp_read_artifact", {"id": listed[name], "text": True})
            assert refused.is_error and reason in words(refused)


async def test_missing_preview_libraries_name_what_to_install(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(program: str, data: bytes, *arguments: int) -> None:
        pass

    found = importlib.util.find_spec
    missing = ("PIL", "pypdfium2")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name in missing else found(name, *more)
    )
    monkeypatch.setattr(images, "run_reader", fail)
    contents = {
        "draw": file(encoded(noise(60, 60), "PNG"), "a.png", "image/png"),
        "print": file(pdf("Hi"), "a.pdf", "application/pdf"),
    }
    async with serve(giving(**contents), options={"max_image_bytes": 10}) as client:
        drawn = words(await client.call_tool("abp_draw", {}))
        assert "Images: 0 of 1 shown" in drawn and "need Pillow: pip install 'abp-transports[images]'" in drawn
        printed = words(await client.call_tool("abp_print", {}))
        assert "The text of a.pdf needs pypdfium2: pip install 'abp-transports[pdf]'" in printed
