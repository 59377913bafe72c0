"""Content through the MCP bridge: the size of results, images, resources, files of a call."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import random
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import cast

import psutil
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceLink, TextContent
from PIL import Image

from tests.support.apps import NotingTransport
from tests.support.mcp_clients import (
    URL,
    Apps,
    Serve,
    called,
    files_of,
    giving,
    images_of,
    links_of,
    read_as_resource,
    read_with_tool,
    size,
    words,
)
from transports import ArtifactRef, BinaryData, CapabilityError, NoneStore, Router
from transports.artifacts import MemoryStore, open_store
from transports.errors import AddressBlocked, SizeMismatch
from transports.protocol._strict_json import encode_json
from transports.surfaces.mcp import Bridge, Options
from transports.surfaces.mcp._artifacts import ArtifactDescriber
from transports.surfaces.mcp._results import call_result, error_result
from transports.testing import Call

LIMIT = 50_000
OPTIONS = Options(max_answer_bytes=LIMIT)


@cache
def png(side: int) -> bytes:
    out = io.BytesIO()
    Image.frombytes("RGB", (side, side), random.Random(1).randbytes(side * side * 3)).save(out, "PNG")
    return out.getvalue()


def huge_bomb() -> bytes:
    """A real PNG of 30,000 × 30,000 black pixels, in a file of 720 KB."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row, packer = bytes(1 + 30_000 // 8), zlib.compressobj(1)
    pixels = b"".join(packer.compress(row * 1000) for _ in range(30)) + packer.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"") + os.urandom(200_000)


def picture(data: bytes) -> dict[str, object]:
    return {"image": BinaryData.from_bytes(data, mime_type="image/png", filename="a.png")}


@pytest.mark.requirement("R6-4l", "R0-2c", "R0-9c", "R2-6.1d", "R2-6.1e", "R3-1d", "R3-4d", "R3-6a", "R4-15g")
@pytest.mark.fault(50)
@pytest.mark.parametrize(
    ("era", "what"),
    [
        ("2026-07-28", "400 KB of broken base64"),
        pytest.param("2026-07-28", "a bomb of 30,000 × 30,000", marks=pytest.mark.load),
        pytest.param("2026-07-28", "a broken PNG", marks=pytest.mark.slow),
        pytest.param("2026-07-28", "50 MB PDF", marks=pytest.mark.slow),
        pytest.param("2026-07-28", "500 artifacts", marks=pytest.mark.slow),
        ("2026-07-28", "a megabyte of warnings"),
        # What is made of a result does not depend on the protocol's version.
        pytest.param("legacy", "400 KB of JSON beside a binary", marks=pytest.mark.load),
    ],
)
async def test_results_stay_within_limit_and_remain_fully_readable(serve: Serve, what: str) -> None:
    rows = [{"row": number, "text": "é" * 20} for number in range(6000)]
    makers: dict[str, Callable[[], object]] = {
        "400 KB of broken base64": lambda: base64.b64encode(png(315)).decode() + "#",
        "400 KB of JSON beside a binary": lambda: {"rows": rows, "file": b"\x00\x01" * 100},
        "a bomb of 30,000 × 30,000": lambda: picture(huge_bomb()),
        "a broken PNG": lambda: picture(png(850)[:2_000_000] + bytes(100)),
        "50 MB PDF": lambda: BinaryData(b"%PDF-1.7\n" + random.Random(2).randbytes(50 << 20), "application/pdf"),
        "500 artifacts": lambda: {"pages": [os.urandom(40) for _ in range(500)]},
        "a megabyte of warnings": lambda: {"x" * 1000 + str(n): n for n in range(1000)},
    }
    content = makers[what]()
    before = psutil.Process().memory_info().rss
    async with serve(giving(make=content)) as client:
        answer = await client.call_tool("abp_make", {})
        assert not answer.is_error, answer
        assert size(answer) <= LIMIT and not images_of(answer)
        assert "bomb" not in what or psutil.Process().memory_info().rss - before < 200 << 20  # unpacked: 0.9 GB
        links = links_of(answer)
        assert links and files_of(answer.structured_content)
        for link in links[:3]:
            meta = (await client.read_resource(f"{link.uri}?length=1")).contents[0].meta
            assert link.size is not None and meta
            data = await read_as_resource(client, link.uri)
            assert len(data) == link.size and hashlib.sha256(data).hexdigest() == meta["sha256"]
            if link.size < 10 << 20:
                assert await read_with_tool(client, link.uri) == data
        if what == "400 KB of broken base64":
            assert size(answer) < 3000 and json.loads(data) == content
        if what == "400 KB of JSON beside a binary":  # its form is kept, and it says where all of it is
            document = answer.structured_content
            assert document["truncated"]["uri"] in {link.uri for link in links}
            assert document["data"]["rows"][0] == rows[0] and len(encode_json(document["data"])) < LIMIT // 4
            assert rows == json.loads(await read_as_resource(client, links[-1].uri))["rows"]


@pytest.mark.requirement("R0-2a", "R0-2b", "R0-2c", "R0-9b", "R0-12c")
async def test_inline_data_off_gives_client_only_file_references(serve: Serve) -> None:
    answers = giving(convert_markdown={"html": "<h1>" + "x" * 1219}, draw={"a": png(30)})
    async with serve(answers, options={"inline_data": False}) as client:
        result = await client.call_tool("abp_convert_markdown", {})
        assert re.fullmatch(r"Output saved to file: \S+\nSize: 1234 characters", words(result)), words(result)
        (link,) = links_of(result)
        assert await read_as_resource(client, link.uri) == b'{"html":"<h1>' + b"x" * 1219 + b'"}'
        document = result.structured_content
        assert f"artifact://{document['data']['id']}" == link.uri and "<h1>" not in json.dumps(document)
        drawn = await client.call_tool("abp_draw", {})
        assert not images_of(drawn)
        assert words(drawn).startswith("File saved: ") and "image/png" in words(drawn)


@pytest.mark.requirement("R3-1d", "R3-2c", "R3-6a", "R3-6b", "R3-6c", "R3-6e", "R3-9e", "R4-2c", "R4-8a", "R4-8d")
@pytest.mark.requirement("R4-13e")
async def test_export_returns_text_and_resource(serve: Serve) -> None:
    """``export_csv`` and ``export_pdf`` of the guide."""
    table = "id,name\r\n" + "".join(f"{n},é {n}\r\n" for n in range(2000))
    contents = {"csv": table.encode(), "pdf": b"%PDF-1.4\n" + random.Random(4).randbytes(90_000)}
    kinds = {"csv": "text/csv", "pdf": "application/pdf"}
    files = {
        kind: BinaryData.from_bytes(data, mime_type=kinds[kind], filename=f"orders.{kind}")
        for kind, data in contents.items()
    }
    async with serve(giving(**{kind: {"file": file, "rows": 2000} for kind, file in files.items()})) as client:
        for kind, data in contents.items():
            result = await client.call_tool(f"abp_{kind}", {})
            assert f"orders.{kind}" in words(result) and '"rows":2000' in words(result)
            link = links_of(result)[0]
            assert (link.mime_type, link.size, link.name) == (kinds[kind], len(data), f"orders.{kind}")
            (content,) = (await client.read_resource(link.uri)).contents
            assert hasattr(content, "text") is (kind == "csv") and content.mime_type == kinds[kind]
            assert await read_as_resource(client, link.uri) == data
            listed = {resource.uri: resource for resource in (await client.list_resources()).resources}
            assert (listed[link.uri].mime_type, listed[link.uri].size) == (kinds[kind], len(data))
            assert link.uri in {entry["uri"] for entry in (await called(client, "abp_artifacts"))["artifacts"]}


@pytest.mark.requirement("R2-4.4b")
async def test_text_over_field_limit_is_a_preview_and_no_data_is_a_short_text(serve: Serve) -> None:
    async with serve(giving(read={"log": "x" * 10_001, "n": 1}, see={"log": "x" * 10_000}, stop=None)) as client:
        answer = await client.call_tool("abp_stop", {})
        assert not answer.is_error and words(answer) == "The app answered without data."
        assert len(answer.content) == 1 and not files_of(answer.structured_content)
        shown = (await called(client, "abp_read"))["data"]
        assert shown["n"] == 1 and shown["log"]["preview"] == "x" * 200 + "…"
        assert (await called(client, "abp_see"))["data"] == {"log": "x" * 10_000}


async def test_none_store_result_has_no_link_or_image() -> None:
    store = NoneStore()
    routed = await Router(store).route({**picture(png(20)), "n": 1}, capability="draw")

    def link(ref: ArtifactRef) -> str:
        return f"https://files.test/{ref.id}"

    describer = ArtifactDescriber(link=link)
    answer = await call_result(routed, session="s", store=store, options=OPTIONS, describer=describer)
    assert [type(item) for item in answer.content] == [TextContent]
    assert words(answer).startswith("Binary content not stored: a.png\n") and "https:" not in words(answer)
    assert answer.structured_content is not None
    assert answer.structured_content["data"]["image"]["truncated"] is True

    broken = {"good": b"\x00good", "bad": BinaryData(b"x", size=9)}
    with pytest.raises(SizeMismatch) as caught:
        await Router(store).route(broken, capability="half")
    failed = error_result(caught.value, LIMIT, describer)
    assert [type(item) for item in failed.content] == [TextContent]
    assert "These files were stored" not in words(failed) and "Binary content not stored: half" in words(failed)


async def test_file_removed_meanwhile_does_not_break_result() -> None:
    store = MemoryStore()
    note = BinaryData.from_bytes(b"words", mime_type="text/plain")
    routed = await Router(store).route({**picture(png(20)), "note": note}, capability="draw")
    for ref in routed.artifacts.values():
        await store.delete(ref.id)
    describer = ArtifactDescriber()
    answer = await call_result(routed, session="s", store=store, options=OPTIONS, describer=describer)
    assert [type(item) for item in answer.content] == [TextContent, ResourceLink, ResourceLink]
    assert "Images: 0 of 1 shown" in words(answer) and not answer.is_error


@pytest.mark.requirement("R0-8b")
async def test_agent_does_not_see_full_url_of_failed_download(serve: Serve) -> None:
    url = "http://bob:hunter2@10.0.0.1/f.pdf?sig=s1gn4ture"
    data = {"file": {"downloadUrl": url, "mimeType": "application/pdf"}}
    with pytest.raises(AddressBlocked) as caught:
        await Router(MemoryStore()).route(data, capability="take")
    assert caught.value.download_url == url
    async with serve(giving(take=data)) as client:
        answer = await client.call_tool("abp_take", {})
    assert answer.is_error and "http://10.0.0.1/f.pdf?…" in words(answer)
    for shown in (answer, error_result(caught.value, LIMIT, ArtifactDescriber())):
        assert not [word for word in ("hunter2", "s1gn4ture") if word in shown.model_dump_json()]


async def test_a_long_error_is_cut(serve: Serve) -> None:
    async def fail(params: Mapping[str, object], call: Call) -> object:
        raise CapabilityError("no" * 100_000, details={"log": ["line" * 100] * 5000}, alternatives=["a" * 90] * 5000)

    async with serve(Apps({"fail": fail})) as client:
        answer = await client.call_tool("abp_fail", {})
        assert answer.is_error and size(answer) <= LIMIT
        assert words(answer).startswith("fail: nono")
        assert answer.structured_content["success"] is False


@pytest.mark.requirement("R4-14h")
async def test_error_keeps_previously_stored_artifacts(serve: Serve) -> None:
    half = {"good": b"\x00good", "bad": {"content": "AAAA", "encoding": "base64", "mimeType": "a/b", "size": 9}}
    async with serve(giving(half=half)) as client:
        answer = await client.call_tool("abp_half", {})
        assert answer.is_error and answer.structured_content["error"]["code"] == "SIZE_MISMATCH"
        (link,) = links_of(answer)
        assert await read_as_resource(client, link.uri) == b"\x00good"


# --- resources --------------------------------------------------------------------------------------------------------


@pytest.mark.load
@pytest.mark.requirement("R2-5.5c", "R4-2d", "R4-3c", "R4-3e", "R4-3f", "R4-5c", "R4-6a", "R4-6b", "R4-6c", "R4-8c")
@pytest.mark.requirement("R4-8d", "R4-8e", "R4-8f", "R4-8g", "R4-8h", "R4-12c", "R4-13e", "R4-14f", "R4-14g", "R4-14i")
@pytest.mark.requirement("R4-6d", "R4-14j", "R4-15i")
async def test_resources_are_listed_in_pages_with_size_and_warnings(serve: Serve) -> None:
    async with serve(giving(make=[b"\x00%d" % number for number in range(104)])) as client:
        await called(client, "abp_make")
        page = await client.list_resources()
        seen = list(page.resources)
        while page.next_cursor:
            page = await client.list_resources(cursor=page.next_cursor)
            seen += page.resources
        assert len({one.uri for one in seen}) == len(seen) == 105  # and the document
        first = seen[-1]
        assert first.meta and first.size == first.meta["size_bytes"] == 2 and not first.meta["auto_read_safe"]  # binary
        assert seen[0].meta and seen[0].meta["estimated_tokens"] == -(-seen[0].meta["size_bytes"] // 4) > 10_000
        assert [warning[:6] for warning in seen[0].meta["warnings"]] == ["large:"]
        assert seen[0].meta["large_file_warning"] and not seen[0].meta["auto_read_safe"]
        assert "tokens; large: read ranges" in str(seen[0].description)
        assert first.meta["large_file_warning"] is False and "large" not in str(first.description)
        for one in (first, seen[0]):  # what reading does, and when the artifact was made
            assert one.meta and one.meta["readOnlyHint"] is one.meta["idempotentHint"] is True
            assert one.annotations and str(one.annotations.last_modified).startswith("20")
        entries: list[Mapping[str, object]] = []
        offset = 0
        while offset is not None:  # 100 of them are more than one answer may hold
            answer = await client.call_tool("abp_artifacts", {"limit": 100, "offset": offset})
            listed = answer.structured_content
            assert size(answer) <= LIMIT and "omitted" not in listed
            entries, offset = entries + listed["artifacts"], listed["next_offset"]
        assert [entry["large_file_warning"] for entry in entries] == [True, *[False] * 104]
        assert {entry["auto_read_safe"] for entry in entries} == {False}
        with pytest.raises(MCPError) as refused:
            await client.list_resources(cursor="nowhere")
        assert refused.value.error.code == -32602


async def test_page_of_artifacts_has_at_least_one_however_long_its_path(tmp_path: Path) -> None:
    store = open_store(tmp_path.joinpath(*["d" * 200] * 14))
    bridge = Bridge(Options(max_answer_bytes=4096), store, connect=giving(make=[b"\x00a", b"\x00b"]))
    async with Client(bridge.server) as client:
        await called(client, "abp_connect", url=URL)
        await called(client, "abp_make")
        pages = [await client.call_tool("abp_artifacts", {"offset": offset}) for offset in range(2)]
    assert {words(page).split()[0] for page in pages} == {ref.id for ref in await store.list()}
    assert [page.structured_content["next_offset"] for page in pages if page.structured_content] == [1, None]


@pytest.mark.requirement("R4-3c", "R4-3e", "R4-5c", "R4-14j")
async def test_content_warnings_are_in_description_and_metadata(serve: Serve) -> None:
    declared = {"content": base64.b64encode(b"%PDF-1.4 not a picture").decode(), "mimeType": "image/png"}
    async with serve(giving(make={"file": {**declared, "encoding": "base64"}})) as client:
        made = await client.call_tool("abp_make", {})
        (resource,) = (await client.list_resources()).resources
        assert resource.meta
        (warning,) = resource.meta["warnings"]
        assert "image/png" in warning and "application/pdf" in warning
        assert resource.description == f"22 bytes, from make; {warning}"
        (shown,) = made.structured_content["warnings"]
        assert warning in shown and f"Warning: {shown}" in words(made)


@pytest.mark.requirement("R4-6d", "R4-12e", "R4-16d")
async def test_ranges(serve: Serve) -> None:
    data = random.Random(3).randbytes(9000)
    async with serve(giving(make=data), options={"max_resource_bytes": 5000}) as client:
        uri = files_of(await called(client, "abp_make"))[0]["uri"]
        with pytest.raises(MCPError, match="offset=0&length=5000"):
            await client.read_resource(uri)
        parts = [await read_as_resource(client, f"{uri}?offset={at}&length=5000") for at in (0, 5000, 10_000)]
        assert b"".join(parts) == data and len(parts[0]) == 5000


@pytest.mark.requirement("R0-2c", "R4-12e", "R4-16c")
async def test_text_ranges_end_at_character_boundaries(serve: Serve) -> None:
    text = "a" + '€\n"\\' * 40_000
    binary = BinaryData.from_bytes(text.encode(), mime_type="text/plain")
    async with serve(giving(make=binary)) as client:
        uri = files_of(await called(client, "abp_make"))[0]["uri"]
        assert (await read_with_tool(client, uri)).decode() == text
        for length in range(1, 9):  # "a€" is 1 and 3 bytes
            header, content = (await client.call_tool("abp_read_artifact", {"id": uri, "length": length})).content
            assert isinstance(header, TextContent) and isinstance(content, TextContent)
            assert '"encoding":"utf-8"' in header.text and text.startswith(content.text) and content.text
        part = await client.call_tool("abp_read_artifact", {"id": uri, "offset": 1, "length": 1})
        header, content = (block.text for block in part.content)
        assert ('"encoding":"base64"' in header, '"next_offset":2' in header, content) == (True, True, "4g==")
    latin = BinaryData.from_bytes("café".encode("latin-1"), mime_type="text/plain")
    async with serve(giving(make=latin)) as client:
        uri = files_of(await called(client, "abp_make"))[0]["uri"]
        header, content = (block.text for block in (await client.call_tool("abp_read_artifact", {"id": uri})).content)
        assert '"encoding":"base64"' in header and base64.b64decode(content) == b"caf\xe9"


async def test_model_text_hides_control_characters_and_resource_is_exact(serve: Serve) -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "send it")
    text = f"report\x1b]0;owned\x07 \u202e{hidden}\u200b end"
    binary = BinaryData.from_bytes(text.encode(), mime_type="text/plain")
    async with serve(giving(make=binary)) as client:
        uri = files_of(await called(client, "abp_make"))[0]["uri"]
        header, content = (await client.call_tool("abp_read_artifact", {"id": uri})).content
        assert isinstance(header, TextContent) and isinstance(content, TextContent)
        assert content.text == "report\ufffd]0;owned\ufffd \ufffd end"
        about = json.loads(header.text)
        assert about["length"] == about["size_bytes"] == len(text.encode()) and about["next_offset"] is None
        assert about["note"] == f"control and hidden characters are not shown; the resource {uri} has the exact bytes"
        assert await read_as_resource(client, uri) == text.encode()
    async with serve(giving(make=binary), options={"enable_artifact_resources": False}) as client:
        artifact = files_of(await called(client, "abp_make"))[0]
        header, _ = (await client.call_tool("abp_read_artifact", {"id": artifact["id"]})).content
        assert isinstance(header, TextContent)
        assert json.loads(header.text)["note"] == "control and hidden characters are not shown"


# --- files in ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R4-1a", "R4-2a", "R4-2b", "R4-3a", "R4-4g", "R4-5a", "R4-7a", "R4-7b", "R4-7c", "R4-7d")
@pytest.mark.requirement("R4-7e", "R4-13b", "R4-14a", "R4-14b", "R4-14c")
async def test_tool_accepts_files_as_content_artifact_or_allowed_path(serve: Serve, tmp_path: Path) -> None:
    data = random.Random(4).randbytes(200_000)
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.bin").write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    async with serve(options={"roots": (root,)}) as client:

        async def sent(tool: str = "abp_file_digest", **file: str) -> Mapping[str, object]:
            more = {"capability": "file.digest"} if tool == "abp_call" else {}
            document = await called(client, tool, **more, files=[{"param": "file", **file}])
            data: Mapping[str, object] = document["data"]
            return data

        content = base64.b64encode(data).decode()
        named = {"name": "b.bin", "mime_type": "application/x-b"}
        assert await sent(content=content, **named) == {"sha256": sha256, "name": "b.bin", "type": "application/x-b"}
        by_path = await sent("abp_call", path=str(root / "a.bin"))
        assert by_path["sha256"] == sha256 and by_path["name"] == "a.bin"
        listed = (await called(client, "abp_artifacts"))["artifacts"]
        again = await sent(artifact=listed[0]["uri"])
        assert again["sha256"] == listed[0]["sha256"] and sha256 in {entry["sha256"] for entry in listed}


@pytest.mark.requirement("R4-7g", "R4-2b", "R4-7a", "R4-7c", "R4-14a")
async def test_files_are_assigned_to_parameters_automatically(serve: Serve) -> None:
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
    schemas: Mapping[str, object] = {
        "image.show": {"type": "object", "properties": {"image": image, "title": {"type": "string"}}},
        "image.compare": {"type": "object", "properties": {"before": image, "after": image}},
    }
    first, second = ({"content": base64.b64encode(text).decode()} for text in (b"first", b"second"))
    names = ("data.analyst", *schemas)
    declared = [{"name": name, "inputSchema": schemas.get(name, {})} for name in names]
    apps = Apps(dict.fromkeys(names, receive), lambda handlers: NotingTransport(handlers, list=declared))
    async with serve(apps) as client:
        await called(client, "abp_data_analyst", message="Compare", files=[first, second])
        await called(client, "abp_call", capability="data.analyst", params={"files": ["x"]}, files=[first])
        await called(client, "abp_image_show", files=[first])
        await called(client, "abp_call", capability="data.analyst", files=[{"param": "cover", **first}, second, first])
        assert read(seen[0]["files"]) == [b"first", b"second"] and seen[0]["message"] == "Compare"
        assert cast(list[object], seen[1]["files"])[0] == "x" and len(cast(list[object], seen[1]["files"])) == 2
        assert seen[2].keys() == {"image"} and read([seen[2]["image"]]) == [b"first"]
        assert read([seen[3]["cover"]]) == [b"first"] and read(seen[3]["files"]) == [b"second", b"first"]
        for tool, files, said in [
            ("abp_image_compare", [first], "set `param` of each file to one of before, after"),
            ("abp_image_show", [first, second], "several files have the place image; set `param`"),
            (
                "abp_data_analyst",
                [{"param": "a", **file} for file in (first, second)],
                "several files have the place a;",
            ),
        ]:
            refused = await client.call_tool(tool, {"files": files})
            assert refused.is_error and said in words(refused)


async def test_bridge_reads_paths_only_below_roots(serve: Serve, tmp_path: Path) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    root.mkdir()
    secret.write_bytes(b"secret")
    (root / "link").symlink_to(secret)
    (tmp_path / "rooted").write_bytes(b"beside")
    paths = [secret, root / "link", root / ".." / "secret", tmp_path / "rooted", root / "none", Path("/etc/passwd")]
    async with serve(options={"roots": (root,)}) as client:
        said = set()
        for path in paths:
            answer = await client.call_tool("abp_file_digest", {"files": [{"param": "file", "path": str(path)}]})
            assert answer.is_error
            said.add(words(answer))
        # Nobody learns from it what there is.
        assert len(said) == 1 and "Next: correct the argument files and call again" in words(answer)
    async with serve() as client:
        answer = await client.call_tool("abp_file_digest", {"files": [{"param": "file", "path": str(secret)}]})
        assert answer.is_error and "ABP_MCP_ROOTS" in words(answer)


async def test_invalid_files_argument_is_rejected(serve: Serve) -> None:
    files: list[dict[str, str]] = [{}, {"content": "AAAA", "path": "/etc/passwd"}, {"artifact": "nothing"}]
    async with serve() as client:
        for tool, more in (("abp_file_digest", {}), ("abp_call", {"capability": "file.digest"})):
            for file in files:
                answer = await client.call_tool(tool, {**more, "files": [{"param": "file", **file}]})
                assert answer.is_error, file
            broken = {"param": "file", "content": "not base64!"}
            answer = await client.call_tool(tool, {**more, "files": [broken]})
            # whose content it is, and how to correct it
            assert answer.is_error and words(answer).startswith(
                "file: content: the text is not strictly valid base64 ("
            )
            assert "RFC 4648" in words(answer) and "the app" not in words(answer)
            assert "Next: correct the argument files" in words(answer)
        listed = {"params": {"files": "of the app"}, "files": [{"content": "AAAA"}], "capability": "file.digest"}
        assert (await client.call_tool("abp_call", listed)).is_error


async def test_capability_names_do_not_clash_with_bridge_tools(serve: Serve) -> None:
    async with serve(giving(**{name: name for name in ("call", "a.b", "a_b", "x" * 100)})) as client:
        names = [tool.name for tool in (await client.list_tools()).tools][10:]
        assert names == ["abp_call_2", "abp_a_b", "abp_a_b_2", "abp_" + "x" * 50]
        assert (await called(client, "abp_call_2", x=1))["data"] == "call"
        assert (await called(client, "abp_a_b_2", x=1))["data"] == "a_b"


@pytest.mark.fault(22)
async def test_capabilities_are_listed_in_pages_up_to_limit(serve: Serve) -> None:
    async with serve(giving(**{f"do.{number}": None for number in range(5000)})) as client:
        page = await client.list_tools()
        names = [tool.name for tool in page.tools]
        while page.next_cursor:
            page = await client.list_tools(cursor=page.next_cursor)
            names += [tool.name for tool in page.tools]
        assert len(set(names)) == len(names) == 210
        assert (await called(client, "abp_call", capability="do.4999"))["success"]
        assert size(await client.call_tool("abp_status", {})) <= LIMIT
