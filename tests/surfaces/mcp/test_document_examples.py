"""The examples of the guide to binary content (docs/requirements.md R3) and of the gateway (R4), each over the bridge,
with a client of the official SDK that is linked to it in memory."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import re
from collections.abc import Mapping
from typing import Any, cast

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from mcp_types import ImageContent, ResourceLink, TextContent
from PIL import Image

from tests.support.mcp_clients import Apps, Serve, called, era, read_as_resource, serve, words
from transports import BinaryData, MemoryTransport, Session, connect
from transports.memory import Handler
from transports.protocol.messages import Message
from transports.testing import Call

__all__ = ["era", "serve"]

PNG = b"\x89PNG\r\n\x1a\n"


def noise(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.frombytes("RGB", (width, height), random.Random(3).randbytes(width * height * 3)).save(out, "PNG")
    return out.getvalue()


def given(answer: object) -> Handler:
    async def make(params: Mapping[str, object], call: Call) -> object:
        return answer

    return make


def app(answer: object) -> Apps:
    return Apps({"make": given(answer)})


@pytest.mark.requirement("R3-1a", "R3-1c", "R3-2b", "R3-2d", "R3-3a", "R3-3b", "R3-8a", "R3-8b", "R3-8c", "R3-8d")
@pytest.mark.requirement("R3-9c", "R3-9d")
async def test_a_chart_is_a_text_and_an_image(serve: Serve) -> None:
    """``capture_chart``, and the test that the guide prints for it; a link to the file is a third item."""
    chart = noise(200, 100)
    file = BinaryData.from_bytes(chart, mime_type="image/png", filename="requests-chart.png")
    async with serve(app({"image": file, "metric": "requests"})) as client:
        result = await client.call_tool("abp_make", {})
    assert not result.is_error
    assert [type(item) for item in result.content] == [TextContent, ImageContent, ResourceLink]
    assert "chart" in words(result) and "image/png" in words(result) and f"{len(chart)} bytes" in words(result)
    (image,) = [item for item in result.content if isinstance(item, ImageContent)]
    assert result.content.index(image) > 0 and image.mime_type == "image/png"
    decoded = base64.b64decode(image.data, validate=True)
    assert decoded == chart and decoded[:8] == PNG


@pytest.mark.load
@pytest.mark.requirement("R3-1b", "R3-1e", "R3-5a", "R3-5b", "R3-5c", "R3-5e", "R3-5f", "R3-7c", "R3-9g", "R4-16e")
@pytest.mark.parametrize(
    ("width", "height", "shown"), [(400, 400, "itself"), (480, 480, "small"), (1000, 700, "small")]
)
async def test_images_of_each_size_are_shown_as_the_table_says(
    serve: Serve, width: int, height: int, shown: str
) -> None:
    picture = noise(width, height)
    assert (len(picture) <= 500_000) is (shown == "itself")
    async with serve(app({"image": BinaryData.from_bytes(picture, mime_type="image/png")})) as client:
        result = await client.call_tool("abp_make", {})
        (image,) = [item for item in result.content if isinstance(item, ImageContent)]
        data = base64.b64decode(image.data)
        assert len(data) <= 500_000 and len(image.data) < 1 << 20
        if shown == "itself":
            assert data == picture
        else:
            assert data != picture
            with Image.open(io.BytesIO(data)) as seen:
                assert seen.width <= 800 and abs(seen.width / seen.height - width / height) < 0.02
        links = [item for item in result.content if isinstance(item, ResourceLink)]
        assert [await read_as_resource(client, link.uri) for link in links[:1]] == [picture]


@pytest.mark.load
@pytest.mark.requirement("R3-1b", "R3-5a", "R3-9a", "R3-9b")
async def test_the_limit_is_for_each_image_and_the_total_has_its_own(serve: Serve) -> None:
    """The pair of the guide, before and after, and four images of nearly 500 KB."""
    pair = [noise(309, 309) + b"%d" % n for n in range(2)]
    pair = [picture + bytes(288_700 - len(picture)) for picture in pair]
    four = [noise(407, 407) + b"%d" % n for n in range(4)]
    assert all(490_000 < len(picture) <= 500_000 for picture in four)

    async def images(pictures: object, **options: int) -> list[bytes]:
        async with serve(app({"pages": pictures}), options=options) as client:
            result = await client.call_tool("abp_make", {})
            return [base64.b64decode(item.data) for item in result.content if isinstance(item, ImageContent)]

    assert await images(pair) == pair
    assert await images(four) == four
    shown = await images(four, max_total_image_bytes=1_000_000)
    assert len(shown) == 4 and sum(map(len, shown)) <= 1_000_000 and all(len(one) <= 250_000 for one in shown)
    assert [max(Image.open(io.BytesIO(one)).size) <= 407 for one in shown] == [True] * 4
    assert await images(pair, max_total_image_bytes=0) == await images(pair, max_image_bytes=0) == []


@pytest.mark.requirement("R0-2a", "R0-2b", "R0-2c", "R0-9b", "R0-12c")
async def test_always_saved_to_a_file_a_client_gets_places_of_files_only(serve: Serve) -> None:
    answers: Apps = Apps(
        {"convert_markdown": given({"html": "<h1>" + "x" * 1219}), "draw": given({"a": noise(40, 30)})}
    )
    async with serve(answers, options={"inline_data": False}) as client:
        result = await client.call_tool("abp_convert_markdown", {})
        assert re.fullmatch(r"Output saved to file: \S+\nSize: 1234 characters", words(result)), words(result)
        (link,) = [item for item in result.content if isinstance(item, ResourceLink)]
        assert await read_as_resource(client, link.uri) == b'{"html":"<h1>' + b"x" * 1219 + b'"}'
        document = result.structured_content
        assert f"artifact://{document['data']['id']}" == link.uri and "<h1>" not in json.dumps(document)
        drawn = await client.call_tool("abp_draw", {})
        assert not [item for item in drawn.content if isinstance(item, ImageContent)]
        assert words(drawn).startswith("File saved: ") and "image/png" in words(drawn)


@pytest.mark.load
@pytest.mark.requirement("R3-4f", "R3-9g")
@pytest.mark.parametrize(
    ("source", "shown"), [((1600, 900), (1200, 675)), ((1000, 500), (1000, 500)), ((1280, 8000), (800, 5000))]
)
async def test_an_image_that_is_converted_is_1200_pixels_wide_at_most(
    serve: Serve, source: tuple[int, int], shown: tuple[int, int]
) -> None:
    """The guide's ``sharp(…).resize({ width: 1200, withoutEnlargement: true }).png(…)``."""
    out = io.BytesIO()
    Image.new("RGB", source, "orange").save(out, "BMP")
    async with serve(app({"scan": BinaryData.from_bytes(out.getvalue(), mime_type="image/bmp")})) as client:
        result = await client.call_tool("abp_make", {})
    (image,) = [item for item in result.content if isinstance(item, ImageContent)]
    with Image.open(io.BytesIO(base64.b64decode(image.data))) as seen:
        assert (seen.format, seen.size) == ("PNG", shown)


@pytest.mark.requirement("R3-4b", "R3-9a", "R3-9b", "R3-9f")
async def test_photos_stay_jpeg_svg_is_no_image_and_four_images_are_enough(serve: Serve) -> None:
    out = io.BytesIO()
    Image.frombytes("RGB", (60, 60), random.Random(6).randbytes(10_800)).save(out, "JPEG")
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
    async with serve(app({"photo": out.getvalue(), "drawing": BinaryData(svg, "image/svg+xml")})) as client:
        result = await client.call_tool("abp_make", {})
        (image,) = [item for item in result.content if isinstance(item, ImageContent)]
        assert (image.mime_type, base64.b64decode(image.data)) == ("image/jpeg", out.getvalue())
        assert "image/svg+xml" in {item.mime_type for item in result.content if isinstance(item, ResourceLink)}
    pictures = [noise(20 + n, 20) for n in range(6)]
    async with serve(app({"pages": pictures})) as client:
        result = await client.call_tool("abp_make", {})
        images = [base64.b64decode(item.data) for item in result.content if isinstance(item, ImageContent)]
        assert images == pictures[:4]
        assert len([item for item in result.content if isinstance(item, ResourceLink)]) >= 6


@pytest.mark.requirement("R3-1d", "R3-2c", "R3-6a", "R3-6b", "R3-6c", "R3-6e", "R3-9e", "R4-2c", "R4-8a", "R4-8d")
@pytest.mark.requirement("R4-13e")
@pytest.mark.parametrize("kind", ["csv", "pdf"])
async def test_an_export_is_words_and_a_resource(serve: Serve, kind: str) -> None:
    """``export_csv`` and ``export_pdf``."""
    table = "id,name\n" + "".join(f"{n},row {n}\n" for n in range(2000))
    data = table.encode() if kind == "csv" else b"%PDF-1.4\n" + random.Random(4).randbytes(90_000)
    mime_type = {"csv": "text/csv", "pdf": "application/pdf"}[kind]
    file = BinaryData.from_bytes(data, mime_type=mime_type, filename=f"orders.{kind}")
    async with serve(app({"file": file, "rows": 2000})) as client:
        result = await client.call_tool("abp_make", {})
        assert f"orders.{kind}" in words(result) and '"rows":2000' in words(result)
        link = next(item for item in result.content if isinstance(item, ResourceLink))
        assert (link.mime_type, link.size, link.name) == (mime_type, len(data), f"orders.{kind}")
        (content,) = (await client.read_resource(link.uri)).contents
        assert hasattr(content, "text") is (kind == "csv")
        assert await read_as_resource(client, link.uri) == data
        listed = {resource.uri: resource for resource in (await client.list_resources()).resources}
        assert listed[link.uri].mime_type == mime_type and listed[link.uri].size == len(data)
        table_of_files = (await called(client, "abp_artifacts"))["artifacts"]
        assert link.uri in {one["uri"] for one in table_of_files}


DATA_ANALYST_AGENT = """
@mcp.tool
async def data_analyst_agent(
    message: str,
    files: list[dict[str, str]] = None,  # Supported by MCP/FastMCP
    ctx: Context
) -> str:
    ...
"""


@pytest.mark.requirement("R4-1a", "R4-2a", "R4-2b", "R4-3a", "R4-5a", "R4-7a", "R4-7b", "R4-7c", "R4-7d", "R4-7e")
@pytest.mark.requirement("R4-14a", "R4-14b", "R4-14c")
async def test_a_message_and_its_files_go_in_one_call(serve: Serve) -> None:
    """``data_analyst_agent(message, files)``, which is no Python as it is printed."""
    with pytest.raises(SyntaxError, match="default"):
        compile(DATA_ANALYST_AGENT, "the document", "exec")
    seen: list[tuple[object, bytes]] = []

    async def analyse(params: Mapping[str, object], call: Call) -> object:
        """Analyse files."""
        for file in (params["file"], params["second"]):
            assert isinstance(file, BinaryData)
            seen.append((params["message"], file.read()))
        return {"answer": "two files"}

    table = b"region,revenue\nnorth,1\n"
    files = [
        {"param": "file", "name": "a.csv", "content": base64.b64encode(table).decode(), "mime_type": "text/csv"},
        {"param": "second", "name": "b.bin", "content": base64.b64encode(b"\x00\x01").decode()},
    ]
    async with serve(Apps({"data.analyst": analyse})) as client:
        document = await called(client, "abp_data_analyst", message="Compare them", files=files)
        assert document["data"] == {"answer": "two files"}
        stored = {one["sha256"] for one in (await called(client, "abp_artifacts"))["artifacts"]}
    assert seen == [("Compare them", table), ("Compare them", b"\x00\x01")]
    assert {hashlib.sha256(data).hexdigest() for _, data in seen} <= stored


class Described(Apps):
    """An app whose capabilities have input schemas."""

    def __init__(self, handlers: Mapping[str, Handler], schemas: Mapping[str, Mapping[str, object]]) -> None:
        super().__init__(handlers)
        self.schemas = schemas

    def __call__(self, target: str, **options: Any) -> Session:
        schemas = self.schemas

        class WithSchemas(MemoryTransport):
            async def request(self, message: Message, *, timeout: float) -> Message:
                reply = await super().request(message, timeout=timeout)
                if message.type == "capabilities/list":
                    for one in cast(list[dict[str, object]], reply.payload):
                        one["inputSchema"] = schemas.get(str(one["name"]), {})
                return reply

        return connect("memory:", **{**options, "transport": WithSchemas(self.handlers)})


@pytest.mark.requirement("R4-7g")
@pytest.mark.requirement("R4-2b", "R4-7a", "R4-7c", "R4-14a")
async def test_files_need_no_place(serve: Serve) -> None:
    """``files: list[dict[str, str]]`` of the document: an agent is not asked where each file belongs."""
    seen: list[Mapping[str, object]] = []

    async def receive(params: Mapping[str, object], call: Call) -> object:
        """Keep what comes."""
        seen.append(params)
        return None

    def read(files: object) -> list[bytes]:
        assert isinstance(files, list)
        return [file.read() for file in files]

    image = {"type": "object", "properties": {"content": {}, "mimeType": {"type": "string"}}}
    schemas = {
        "image.show": {"type": "object", "properties": {"image": image, "title": {"type": "string"}}},
        "image.compare": {"type": "object", "properties": {"before": image, "after": image}},
    }
    first, second = ({"content": base64.b64encode(text).decode()} for text in (b"first", b"second"))
    async with serve(Described(dict.fromkeys(("data.analyst", *schemas), receive), schemas)) as client:
        await called(client, "abp_data_analyst", message="Compare", files=[first, second])
        await called(client, "abp_call", capability="data.analyst", params={"files": ["x"]}, files=[first])
        await called(client, "abp_image_show", files=[first])
        assert read(seen[0]["files"]) == [b"first", b"second"] and seen[0]["message"] == "Compare"
        assert cast(list[object], seen[1]["files"])[0] == "x" and len(cast(list[object], seen[1]["files"])) == 2
        assert seen[2].keys() == {"image"} and read([seen[2]["image"]]) == [b"first"]
        for tool, files, said in [
            ("abp_image_compare", [first], "set `param` of each file to one of before, after"),
            ("abp_image_show", [first, second], "several files have the place image; set `param`"),
            (
                "abp_data_analyst",
                [{"param": "a", **first}, {"param": "a", **second}],
                "several files have the place a;",
            ),
        ]:
            refused = await client.call_tool(tool, {"files": files})
            assert refused.is_error and said in words(refused)
