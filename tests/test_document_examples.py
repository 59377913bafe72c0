"""The examples that the source documents of docs/requirements.md print, each as a test: types, answers, parameters,
schemas, the incident, signatures, templates, limits. Those of the bridge and of a page are in ``surfaces/mcp/`` and
``e2e/``, settings in ``routing/test_document_settings.py``, types in ``artifacts/test_document_types.py``.

What the documents leave out, such as ``generatePdf``, has a stand-in. These do not run as they are printed:

* R0-5, R0-9: paths have the folder and the time of the test.
* R0-5, R1-4, R2-1, R2-B: content that ends in ``…`` is no base64; real files stand beside it.
* R0-6, R1-6, R1-7, R1-8, R1-9, R1-11: the agent is left out, since the kit is one.
* R1-5: ``expiresAt`` is in the past, so the answer is refused; a later time is shown beside it.
* R2-2.2, R2-3.3, R2-3.5, R2-4.3, R2-4.4: methods of a framework that the kit is not; sessions show what they do.
* R2-2.4: the client of another SDK; ``app.resources`` does the same.
* R2-3.1, R2-3.4, R2-3.6: drafts of settings, of which R2-4.2 has the last names.
* R2-5.3: ids that the document itself rejects.
* R2-7.3: ``_contents_to_artifact`` is left out by the document; with one, the cache runs.
* R2-7.4: the store without ``delete`` is none by the document's own protocol; sizes are written ``512.0 KB``.
* R3: servers on an SDK of Node; what they answer is routed, and the bridge answers the same. R3-8: a third item is
  the link (D14).
* R4-7: a parameter without default follows one with. R4-8: D17. R4-10: YAML as TOML. R4-13: ``_fastmcp`` is ``_meta``.
"""

from __future__ import annotations

import base64
import io
import json
import random
import re
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from PIL import Image

from tests.conftest import Connect
from tests.support.rows import each_row
from transports import ArtifactRef, LocalStore, NoneStore, Router
from transports.artifacts import MemoryStore
from transports.errors import BadEncoding
from transports.protocol._strict_json import JSONValue, encode_json
from transports.routing import (
    TABLEAU,
    FieldRule,
    FileLimits,
    ResourcePolicy,
    RoutingPolicy,
    TransformContext as ToolContext,
    Transformer,
)
from transports.testing import Call

NOISE = random.Random(5).randbytes(600_000)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pdf(size: int) -> bytes:
    return (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" + NOISE)[:size]


# --- R0: how a client routes what capabilities answer -----------------------------------------------------------------

TYPES = {
    "application/pdf": ".pdf",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/ogg": ".ogg",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "application/zip": ".zip",
    "application/json": ".json",
    "text/html": ".html",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "text/markdown": ".md",
    "application/x-something-else": ".bin",
}


@pytest.mark.requirement("R0-6c", "R0-6f", "R0-6g", "R0-6h", "R0-7a", "R0-7b")
async def test_every_documented_type_gets_its_extension(tmp_path: Path) -> None:
    for mime_type, extension in TYPES.items():
        content = b"\x01\x02\x03" + mime_type.encode()  # no signature: the declared type decides
        answer = {"content": b64(content), "mimeType": mime_type, "encoding": "base64", "size": len(content)}
        ref = (await Router(LocalStore(tmp_path)).route(answer, capability="export.file")).artifact()
        assert ref.path is not None and ref.path.read_bytes() == content
        assert re.fullmatch(rf"export_file_\d{{13}}\{extension}", ref.path.name), (mime_type, ref.path.name)
        assert (ref.mime_type, ref.size_bytes) == (mime_type, len(content))


@pytest.mark.requirement("R0-6a", "R0-11b")
async def test_base64_under_custom_field_name_becomes_file(tmp_path: Path) -> None:
    answer = {"pdf": b64(pdf(45_832)), "mimeType": "application/pdf", "size": 45832}
    routed = await Router(LocalStore(tmp_path)).route(answer, capability="export.pdf")
    assert routed.artifacts["pdf"].path is not None and routed.artifacts["pdf"].path.read_bytes() == pdf(45_832)
    path = re.escape(str(tmp_path)) + r"/export_pdf_\d{13}\.pdf"
    expected = rf"File saved: {path}\nType: application/pdf\nSize: 45832 bytes"
    assert re.fullmatch(expected, routed.summary()), routed.summary()
    assert routed.metadata == {}
    beside = await Router(LocalStore(tmp_path)).route({**answer, "filename": "a.pdf", "pageCount": 12}, capability="x")
    assert beside.metadata == {"pageCount": 12} and beside.artifact().filename == "a.pdf"
    nested = await Router(LocalStore(tmp_path)).route({"inner": answer, "mimeType": "is data"}, capability="x")
    assert nested.metadata == {"mimeType": "is data"}


@pytest.mark.requirement("R0-2a", "R0-2b", "R0-2c", "R0-9b", "R0-12c", "R0-12a")
async def test_inline_data_off_stores_small_data_as_reference(tmp_path: Path) -> None:
    """The example of ``convert.markdownToHtml`` with its 1,234 characters, of which some have two bytes."""
    answer = {"html": "<h1>é" + "x" * 1218}
    assert len(json.dumps(answer, separators=(",", ":"), ensure_ascii=False)) == 1234
    router = Router(LocalStore(tmp_path), policy=RoutingPolicy(inline_data=False))
    routed = await router.route(answer, capability="convert.markdownToHtml")
    path = re.escape(str(tmp_path)) + r"/convert_markdownToHtml_\d{13}\.json"
    said = rf"Output saved to file: {path}\nSize: 1234 characters"
    assert re.fullmatch(said, routed.summary(max_chars=100_000)), routed.summary()
    ref = routed.artifact()
    assert routed.data == ref.as_dict() == routed.for_agent()["data"]
    assert ref.path is not None and json.loads(ref.path.read_bytes()) == answer and ref.size_bytes == 1235
    assert "<h1>" not in json.dumps([routed.as_dict(), routed.for_agent()])
    document = {"document": {"content": b64(pdf(45_832)), "mimeType": "application/pdf", "encoding": "base64"}}
    nested = await router.route({**document, "pageCount": 12}, capability="export.pdf")
    assert nested.summary().splitlines()[1:] == [
        "Type: application/pdf",
        "Size: 45832 bytes",
        'Metadata: {"pageCount":12}',
    ]
    assert cast(Any, nested.data)["pageCount"] == 12


# --- R1: binary data in answers and parameters ------------------------------------------------------------------------


BINARY_DATA = """
interface BinaryData {
  content: string | ArrayBuffer | Blob;
  mimeType: string;
  encoding?: 'base64' | 'utf-8';
  size?: number;
  filename?: string;
}
"""
REFERENCE = """
interface BinaryDataReference {
  downloadUrl: string;
  mimeType: string;
  size: number;
  filename?: string;
  expiresAt?: number;
  auth?: {
    type: 'bearer' | 'query';
    token?: string;
    header?: string;
  };
}
"""
IMAGE_AND_AUDIO = """
interface ImageContent {
  type: "image";
  data: string;      // base64
  mimeType: string;  // e.g., "image/png"
}

interface AudioContent {
  type: "audio";
  data: string;      // base64
  mimeType: string;  // e.g., "audio/wav"
}
"""
LINK = """
interface ResourceLink {
  type: "resource_link";
  uri: string;
  mimeType?: string;
  size?: number;     // raw bytes, if known
}
"""
EMBEDDED = """
interface EmbeddedResource {
  type: "resource";
  resource: {
    uri: string;
    mimeType?: string;
    text?: string;   // For text resources
    blob?: string;   // For binary resources (base64)
  };
}
"""


def forms(interface: str, values: Mapping[str, object]) -> list[dict[str, object]]:
    """Return every object that an interface allows: all its required fields, with each choice of the others."""
    fields = re.findall(r"^ +(\w+)(\??): .*[;{]", interface, re.MULTILINE)
    fields = [(name, optional) for name, optional in fields if name in values]
    assert {name for name, _ in fields} == values.keys()
    found: list[dict[str, object]] = [{}]
    for name, optional in fields:
        given = [{**one, name: values[name]} for one in found]
        found = [*found, *given] if optional else given
    return found


@pytest.mark.requirement("R1-4a", "R1-4b", "R1-4c", "R1-4d", "R1-4e", "R1-5a", "R1-5b", "R1-5c", "R1-5d", "R1-15a")
async def test_every_documented_binary_form_becomes_a_file() -> None:
    about = {"mimeType": "application/pdf", "encoding": "base64", "size": 9, "filename": "a.pdf"}
    inline = [
        one
        for content in (b64(pdf(9)), pdf(9))
        for one in forms(BINARY_DATA, {"content": content, **about})
        if isinstance(content, bytes) is ("encoding" not in one)  # required when content is a string
    ]
    described = {name: about[name] for name in ("mimeType", "size", "filename")}
    url = {"downloadUrl": "data:application/pdf;base64," + b64(pdf(9)), "expiresAt": time.time() * 1000 + 3_600_000}
    references = forms(REFERENCE, {**url, **described})
    assert (len(inline), len(references)) == (8, 4)
    for document in (*inline, *references):
        ref = (await Router(MemoryStore()).route({"document": document}, capability="x")).artifacts["document"]
        assert (ref.size_bytes, ref.mime_type) == (9, "application/pdf"), document
        assert (ref.filename == "a.pdf") is ("filename" in document)
        untyped = {name: value for name, value in document.items() if name != "mimeType"}
        if "content" not in untyped or isinstance(untyped["content"], str):
            assert [*(await Router(MemoryStore()).route({"document": untyped}, capability="x")).artifacts] == [""]


@pytest.mark.requirement("R2-2.3a", "R2-2.3b", "R2-2.3c", "R2-3.3a", "R2-3.3b", "R2-3.3c")
async def test_every_documented_block_shape_is_routed() -> None:
    async def routed(block: Mapping[str, object]) -> tuple[list[str], JSONValue]:
        result = await Router(MemoryStore()).route({"content": [block]}, capability="tool")
        return [*result.artifacts], cast(Any, result.data)["content"][0]

    for kind, mime_type in (("image", "image/png"), ("audio", "audio/wav")):
        for block in forms(
            IMAGE_AND_AUDIO.replace("audio", kind), {"type": kind, "data": b64(b"x"), "mimeType": mime_type}
        ):
            assert (await routed(block))[0] == ["content.0.data"]
    for block in forms(LINK, {"type": "resource_link", "uri": "tableau://x", "mimeType": "text/csv", "size": 5}):
        assert await routed(block) == ([""], block)
    values = {"uri": "tableau://x", "mimeType": "text/csv", "text": "a,b", "blob": b64(b"a,b")}
    for resource in forms(EMBEDDED.partition("resource: {")[2], values):
        places, left = await routed({"type": "resource", "resource": resource})
        if "blob" in resource:
            assert places == ["content.0.resource.blob"] and b64(b"a,b") not in json.dumps(left)
        else:
            assert (places, left) == ([""], {"type": "resource", "resource": resource})


@pytest.mark.requirement("R1-11a", "R1-11c")
async def test_image_parameter_is_sent_as_in_example(app_of: Connect) -> None:
    received: list[Mapping[str, object]] = []

    async def process(params: Mapping[str, object], call: Call) -> object:
        received.append(params)
        return None

    image = {"content": b64(b"\x89PNG\r\n\x1a\n"), "mimeType": "image/png", "encoding": "base64"}
    operations = [{"type": "resize", "width": 800}, {"type": "compress", "quality": 80}]
    async with app_of({"process.image": process}) as app:
        await app.call("process.image", {"image": image, "operations": operations})
    assert received == [{"image": image, "operations": operations}]


OUTPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "document": {
            "type": "object",
            "description": "Binary PDF data",
            "properties": {
                "content": {
                    "type": "string",
                    "description": "Base64-encoded PDF (or ArrayBuffer for Puppeteer/postMessage)",
                },
                "mimeType": {"type": "string", "const": "application/pdf"},
                "encoding": {"type": "string", "enum": ["base64"]},
                "size": {"type": "number"},
                "filename": {"type": "string"},
                "downloadUrl": {"type": "string", "format": "uri"},
                "expiresAt": {"type": "number"},
            },
            "required": ["mimeType"],
        },
        "pageCount": {"type": "number"},
    },
}


@pytest.mark.requirement("R1-12a", "R1-12b", "R1-12c", "R1-12d")
async def test_documented_schema_fits_content_in_every_form() -> None:
    described = {"mimeType": "application/pdf", "size": 9}
    url = "data:application/pdf;base64," + b64(pdf(9))
    for document in (
        {"content": b64(pdf(9)), "encoding": "base64", **described},
        {"content": pdf(9), **described},
        {"downloadUrl": url, "expiresAt": time.time() * 1000 + 3_600_000, **described},
    ):
        routed = await Router(MemoryStore()).route(
            {"document": document, "pageCount": 1}, capability="export.pdf", schema=OUTPUT_SCHEMA
        )
        assert routed.warnings == () and routed.artifact().size_bytes == 9
    other = {"document": {"content": b64(pdf(9)), "encoding": "base64", "mimeType": "image/png"}, "pageCount": "one"}
    routed = await Router(MemoryStore()).route(other, capability="export.pdf", schema=OUTPUT_SCHEMA)
    assert any("pageCount" in warning for warning in routed.warnings)


# --- R2: large and binary results of tools ----------------------------------------------------------------------------


def blocks(text: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}]}


INCIDENT: Mapping[str, Callable[[str], object]] = {
    "the field of the example": lambda text: {"content": text},
    "with name and format": lambda text: {"content": text, "name": "Sales Dashboard", "format": "pdf"},
    "a bare string": lambda text: text,
    "a list of one": lambda text: [text],
    "the text of a block": blocks,
    "JSON in the text of a block": lambda text: blocks(json.dumps({"content": text})),
    "structured content beside it": lambda text: {**blocks("see there"), "structuredContent": {"content": text}},
}


@pytest.mark.requirement("R2-1.1a", "R2-1.1b", "R2-1.2a", "R2-1.3a", "R2-1.3b", "R2-6.1c", "R2-5.4b")
@each_row("form", INCIDENT)
async def test_half_megabyte_pdf_never_reaches_model(form: str) -> None:
    text = b64(pdf(375_000))
    assert len(text) == 500_000
    for policy in (None, TABLEAU):
        store = MemoryStore()
        routed = await Router(store, policy=policy).route(INCIDENT[form](text), capability="download_workbook")
        assert await store.get(routed.artifact().id) == pdf(375_000)
        seen = encode_json(routed.for_agent()).decode() + routed.summary()
        assert len(seen) < 2500 and text[:100] not in seen and text[-100:] not in seen
        assert routed.artifact().id in seen


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.bin", NOISE[:2000])
    return out.getvalue()


def drawn(kind: str) -> bytes:
    out = io.BytesIO()
    Image.frombytes("RGB", (60, 60), NOISE[:10_800]).save(out, kind)
    return out.getvalue()


SIGNATURES = {
    "JVBERi": (pdf(3000), "application/pdf"),
    "iVBORw": (drawn("PNG"), "image/png"),
    "/9j/": (drawn("JPEG"), "image/jpeg"),
    "R0lGOD": (drawn("GIF"), "image/gif"),
    "UEsDB": (zipped(), "application/zip"),
}


@pytest.mark.requirement("R2-3.2a", "R2-3.2b", "R2-3.2c", "R2-3.2d", "R2-4.1d")
@pytest.mark.requirement("R2-A.a", "R2-A.b", "R2-A.c", "R2-A.d", "R2-A.e", "R2-A.f")
@pytest.mark.parametrize("depth", [0, 1, 2, 7, 40])
async def test_file_signatures_are_found_at_every_depth(depth: int) -> None:
    for start, (content, mime_type) in SIGNATURES.items():
        text = b64(content)
        assert text.startswith(start) and len(text) > 1000
        forms = [text, content.decode("latin-1")] if start == "UEsDB" else [text]  # PK: a raw head in a text
        for form in forms:
            tree: object = form
            for level in range(depth):
                tree = [level, tree] if level % 2 else {"beside": "x", "inner": tree}
            store = MemoryStore()
            routed = await Router(store).route(tree, capability="tool")
            ref = routed.artifact()
            assert (ref.mime_type, await store.get(ref.id)) == (mime_type, content)
            assert f"Type: {mime_type}" in routed.summary()


async def download_report(query: DownloadQuery, ctx: ToolContext) -> DownloadResult:
    pdf_bytes = await fetch_pdf(query.report_id)

    artifact = await ctx.artifacts.put_bytes(
        pdf_bytes,
        mime_type="application/pdf",
        filename="report.pdf",
        meta={"report_id": query.report_id},
    )

    return DownloadResult(
        summary=f"Downloaded report PDF ({artifact.size_bytes} bytes).",
        artifact=artifact,
    )


class DownloadQuery(NamedTuple):
    report_id: str


@dataclass
class DownloadResult:
    summary: str
    artifact: ArtifactRef


async def fetch_pdf(report_id: str) -> bytes:
    return pdf(9000) + report_id.encode()


@pytest.mark.requirement("R2-2.1a", "R2-4.3a", "R2-6.0d")
async def test_documented_native_tool_runs_as_printed(app_of: Connect) -> None:
    async def handler(params: Mapping[str, object], call: Call) -> object:
        return vars(await download_report(DownloadQuery(str(params["report_id"])), cast(Any, call)))

    async with app_of({"report.download": handler}) as app:
        result = await app.call("report.download", {"report_id": "r7"})
        ref = result.artifacts["artifact"]
        assert await app.store.get(ref.id) == pdf(9000) + b"r7"
    assert (ref.filename, ref.mime_type, ref.source["report_id"]) == ("report.pdf", "application/pdf", "r7")
    assert cast(Any, result.data)["summary"] == "Downloaded report PDF (9002 bytes)."


OUTPUTS = """
// download_workbook response
{
  "content": "JVBERi0xLjQKJeLjz9MKMyAwIG9iago8PAov...",  // base64 PDF
  "name": "Sales Dashboard",
  "format": "pdf"
}

// get_view_as_pdf response
{
  "pdf_data": "JVBERi0xLjQK...",  // base64 PDF
  "view_name": "Revenue by Region",
  "generated_at": "2025-12-22T10:30:00Z"
}

// list_workbooks response (no binary - should pass through)
{
  "workbooks": [
    {"id": "123", "name": "Sales", "project": "Analytics"},
    {"id": "456", "name": "Marketing", "project": "Analytics"}
  ]
}
"""


@pytest.mark.requirement("R2-B.a", "R2-B.b", "R2-B.c", "R2-3.5d", "R2-6.5d")
async def test_documented_outputs_route_as_printed() -> None:
    """Two end in an ellipsis: errors where a rule says that the field is a file, else text."""
    outputs = dict(re.findall(r"// (\w+) response.*\n(\{\n(?:.*\n)*?\}\n)", OUTPUTS))
    assert [*outputs] == ["download_workbook", "get_view_as_pdf", "list_workbooks"]
    answers = {name: json.loads(re.sub(r",  // base64 PDF", ",", text)) for name, text in outputs.items()}
    answers["export"] = {"resource_uri": "tableau://workbook/123/pdf"}  # 3.5 "Usage flow"
    for name, answer in answers.items():
        assert (await Router(MemoryStore()).route(answer, capability=name)).data == answer
        router = Router(MemoryStore(), policy=TABLEAU)
        if name in ("download_workbook", "get_view_as_pdf"):
            with pytest.raises(BadEncoding, match=rf"{name}: {next(iter(answer))}: "):
                await router.route(answer, capability=name)
        else:
            assert (await router.route(answer, capability=name)).data == answer


async def tableau_transformer(tool_name: str, result: dict, ctx: ToolContext) -> dict:  # type: ignore[type-arg]
    if tool_name == "download_workbook" and "content" in result:
        pdf_bytes = base64.b64decode(result["content"])
        artifact = await ctx.artifacts.put_bytes(
            pdf_bytes,
            mime_type="application/pdf",
            filename="workbook.pdf",
            meta={"tool": tool_name},
        )
        return {
            "artifact": artifact,
            "summary": f"Downloaded workbook ({len(pdf_bytes)} bytes)",
            "workbook_name": result.get("name"),
        }
    return result


@pytest.mark.requirement("R2-3.6a", "R2-3.6b", "R2-3.6c")
async def test_documented_transformer_runs_as_printed() -> None:
    content, store = pdf(9000), MemoryStore()
    router = Router(store, policy=RoutingPolicy(transformer=cast(Transformer, tableau_transformer)))
    answer = {"content": b64(content), "name": "Sales Dashboard", "format": "pdf"}
    result = await router.route(answer, capability="download_workbook")
    assert isinstance(result.data, dict)
    ref = result.artifacts["artifact"]
    assert await store.get(ref.id) == content
    assert (ref.mime_type, ref.filename, ref.source["tool"]) == ("application/pdf", "workbook.pdf", "download_workbook")
    assert result.data["summary"] == "Downloaded workbook (9000 bytes)"
    assert result.data["workbook_name"] == "Sales Dashboard"
    assert b64(content)[:40] not in json.dumps(result.for_agent())
    other = {"workbooks": [{"id": "123", "name": "Sales", "project": "Analytics"}]}
    assert (await router.route(other, capability="list_workbooks")).data == other


@pytest.mark.requirement("R2-7.4g")
@pytest.mark.requirement("R2-7.4a", "R2-7.4b", "R2-7.4c")
async def test_none_store_agent_document_matches_documentation() -> None:
    content = pdf(524_288)
    rule = FieldRule("artifact", "application/pdf", "Downloaded PDF ({size_human})")
    router = Router(NoneStore(), policy=RoutingPolicy(tool_fields={"download": [rule]}))
    routed = await router.route({"artifact": b64(content)}, capability="download")
    seen = cast(Mapping[str, Any], routed.for_agent()["data"])["artifact"]
    assert re.fullmatch(r"truncated_[0-9a-f]{12}", seen["id"])
    assert (seen["mime_type"], seen["size_bytes"], seen["truncated"]) == ("application/pdf", 524_288, True)
    assert seen["source"] == {"warning": "Content not stored (no ArtifactStore configured)", "truncated": True}
    assert routed.summary().splitlines()[0] == "Downloaded PDF (512.0 KB). Note: Binary content not stored."


@pytest.mark.requirement("R2-3.1b", "R2-4.2a", "R2-4.2c", "R2-4.2f", "R2-4.2g", "R2-4.2h", "R2-4.2i", "R2-4.2j")
@pytest.mark.requirement("R2-6.1b", "R4-10a", "R4-10b", "R4-10c", "R4-10d")
def test_documented_defaults_match_settings() -> None:
    policy, resources, files = RoutingPolicy(), ResourcePolicy(), FileLimits()
    assert (policy.heuristics, policy.min_guessed_chars, policy.max_inline_chars) == (True, 1000, 10_000)
    assert (resources.enabled, resources.cache_reads_to_artifacts) == (True, True)
    assert (resources.auto_read_if_size_under_bytes, resources.inline_text_if_under_chars) == (0, 10_000)
    assert (files.max_file_bytes, files.large_file_tokens, files.max_auto_read_bytes) == (100 << 20, 10_000, 1 << 20)
    assert files.allowed_mime_types in (("*/*",), ())
