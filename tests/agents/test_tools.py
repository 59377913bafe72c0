"""Tools of an app for a model: names, schemas, files in and out, errors, cancellation."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema_rs
import pytest
from PIL import Image

from tests.conftest import Connect
from tests.support.apps import PDF, NotingTransport, answering, echo, hang
from tests.support.eventually import eventually
from transports import BinaryData, CapabilityError, Disconnected, MemoryTransport, Progress, Session
from transports.agents import AppTools
from transports.memory import Call

FILE = {"type": "object", "properties": {"content": {}, "mimeType": {"type": "string"}}, "description": "The photo"}
#: The ten thousandth byte is in the middle of a character.
TABLE = "n,so\n" + "tee é,12\n" * 3000


def file(data: bytes, filename: str, mime_type: str) -> BinaryData:
    return BinaryData.from_bytes(data, mime_type=mime_type, filename=filename)


def declaring(*capabilities: Mapping[str, object]) -> NotingTransport:
    """An app with these declarations, which answers the parameters of each call."""
    return NotingTransport({str(capability["name"]): echo for capability in capabilities}, list=[*capabilities])


# --- tools ------------------------------------------------------------------------------------------------------------


async def test_capabilities_become_tools_as_on_mcp_bridge(app_of: Connect) -> None:
    """Names, hints and marks, and the number behind a name that is taken."""
    declared: list[dict[str, object]] = [
        {"name": "report.make", "description": "Make\na report.", "annotations": {"readOnlyHint": True, "x": 1}},
        {"name": "report/make", "annotations": {"destructiveHint": True}, "deprecated": True},
        {"name": "read_artifact"},
    ]
    async with app_of(declaring(*declared)) as app:
        tools = AppTools(app, {}).tools
        assert [*tools] == ["abp_report_make", "abp_report_make_2", "abp_read_artifact_2", "abp_read_artifact"]
        made, numbered, *_, read = tools.values()
        assert (made.description, made.hints) == ("Make a report. (changes nothing)", {"readOnlyHint": True})
        assert made.schema == {"type": "object", "properties": {}} and made.capability == "report.make"
        assert numbered.description.endswith("(deprecated, may delete or overwrite)")
        assert read.capability is None and read.hints["readOnlyHint"] and read.schema["required"] == ["id"]


async def test_tools_are_within_the_limits_of_the_apis(app_of: Connect, caplog: pytest.LogCaptureFixture) -> None:
    """One that is too long, or one too many, fails the whole request."""
    branches = [{"properties": {name: {}}, "required": [name]} for name in ("a" * 60, "b")]
    declared = {"description": "words " * 1000, "inputSchema": {"oneOf": branches}, "deprecated": True}
    names = [f"{'long' * 30}.{number}" for number in range(200)]
    async with app_of(declaring(*({"name": name, **declared} for name in names))) as app:
        tools = AppTools(app, {}).tools
        assert len(tools) == 128
        assert "only the first 127 of the app's 200 capabilities are tools" in caplog.text
        for name, tool in tools.items():
            assert len(f"mcp__abp__{name}") <= 64 and len(tool.description) <= 1024
        first = next(iter(tools.values()))
        assert first.description.endswith(
            f"… (deprecated) Give exactly one of these sets of parameters: {'a' * 60}; b."
        )


async def test_agent_tools_follow_capability_changes(app: Session) -> None:
    tools = AppTools(app, {})
    assert "abp_extra_hello" not in tools.tools and tools.tools is tools.tools
    await tools.call("abp_app_toggle", {})
    await eventually(lambda: "abp_extra_hello" in tools.tools)
    await tools.call("abp_app_toggle", {})
    await eventually(lambda: "abp_extra_hello" not in tools.tools)
    answer = await tools.call("abp_extra_hello", {})
    assert answer.is_error and "unknown tool 'abp_extra_hello'" in answer.text


# --- files ------------------------------------------------------------------------------------------------------------


async def test_file_is_passed_between_tools_by_reference(app: Session) -> None:
    tools = AppTools(app, {})
    printed = await tools.call("abp_export_pdf", {"html": "<h1>Sales</h1><p>grew</p>"})
    assert printed.result is not None and not printed.is_error
    ref = printed.result.artifact()
    answer_line, *preview = printed.text.split("\n")
    assert json.loads(answer_line)["data"]["document"]["uri"] == ref.uri
    assert preview == ["Text of sales.pdf:", "Sales", "grew"]
    for named in (ref.uri, ref.id):
        digest = await tools.call("abp_file_digest", {"file": named})
        assert digest.result is not None and isinstance(digest.result.data, dict)
        assert digest.result.data["sha256"] == ref.sha256 and ref.sha256 in digest.text


@pytest.mark.parametrize("strict", [False, True])
async def test_file_parameters_are_strings_at_any_depth(app_of: Connect, tmp_path: Path, strict: bool) -> None:
    pages = {"type": "array", "items": {"type": "object", "properties": {"scan": FILE}, "required": ["scan"]}}
    schema = {
        "type": "object",
        "properties": {"pages": pages, "icon": {"type": "string", "contentEncoding": "base64"}, "label": FILE},
        "required": ["pages"],
    }
    app = declaring({"name": "book.bind", "inputSchema": schema})
    async with app_of(app) as session:
        tools = AppTools(session, {"strict": strict})
        tool = tools.tools["abp_book_bind"]
        assert tool.strict is strict
        properties: Any = tool.schema["properties"]
        scan = properties["pages"]["items"]["properties"]["scan"]
        assert scan["type"] == "string" and scan["description"].startswith("The photo. A file: the id of one")
        first, second = [await session.store.put_bytes(text) for text in (b"one", b"two")]
        arguments = {"pages": [{"scan": first.id}, {"scan": second.uri}], "icon": second.uri}
        answer = await tools.call(tool.name, {**arguments, "label": None} if strict else arguments)
        assert not answer.is_error, answer.text
        sent: Any = app.sent[-1].payload
        params = sent["params"]
        assert {*params} == {"pages", "icon"}
        sent_files = [params["pages"][0]["scan"], params["pages"][1]["scan"], params["icon"]]
        assert [file.read() for file in sent_files] == [b"one", b"two", b"two"]
        await tools.call(tool.name, {"pages": [], "icon": "aGk=", **({"label": None} if strict else {})})
        sent = app.sent[-1].payload
        assert sent["params"] == {"pages": [], "icon": "aGk="}, "base64 is sent as it is"


async def test_agent_tools_read_paths_only_below_roots(app: Session, tmp_path: Path) -> None:
    root, other = tmp_path / "in", tmp_path / "other"
    for folder in (root, other):
        folder.mkdir()
        (folder / "a.txt").write_bytes(b"hello")
    (root / "link.txt").symlink_to(other / "a.txt")
    tools = AppTools(app, {"roots": [root]})
    shown: Any = tools.tools["abp_file_digest"].schema["properties"]
    assert f"below {root}" in shown["file"]["description"]
    read = await tools.call("abp_file_digest", {"file": str(root / "a.txt")})
    assert not read.is_error and '"size":5' in read.text
    for path in (other / "a.txt", root / "link.txt"):
        refused = await tools.call("abp_file_digest", {"file": str(path)})
        assert refused.is_error and "this path may not be read" in refused.text
        assert "Next: correct the argument file" in refused.text
    closed = await AppTools(app, {}).call("abp_file_digest", {"file": str(root / "a.txt")})
    assert closed.is_error and "this path may not be read" in closed.text


async def test_call_with_more_than_16_files_is_rejected(app_of: Connect) -> None:
    schema = {"type": "object", "properties": {"files": {"type": "array", "items": FILE}}}
    async with app_of(declaring({"name": "zip", "inputSchema": schema})) as app:
        tools, ref = AppTools(app, {}), await app.store.put_bytes(b"one")
        assert not (await tools.call("abp_zip", {"files": [ref.id] * 16})).is_error
        beyond = await tools.call("abp_zip", {"files": [ref.id] * 17})
        assert beyond.is_error and "more than 16 files" in beyond.text


@pytest.mark.load
async def test_files_are_attached_by_type_within_limits(app_of: Connect) -> None:
    png = _encoded("PNG", (4, 3))
    contents = {
        "chart": file(png, "chart.png", "image/png"),
        "report": file(PDF, "report.pdf", "application/pdf"),
        "large": file(bytes(5_000_001), "large.bin", "application/octet-stream"),
        "most": file(bytes(5_000_000), "most.bin", "application/octet-stream"),
        "rest": file(b"1" + bytes(4_999_999), "rest.bin", "application/octet-stream"),  # 10 MB in all
    }
    async with app_of({"make": answering(contents)}) as app:
        default = await AppTools(app, {}).call("abp_make", {})
        assert [(attachment.mime_type, attachment.data) for attachment in default.attachments] == [("image/png", png)]
        every = await AppTools(app, {"attach": ("image/*", "application/*")}).call("abp_make", {})
        assert [attachment.filename for attachment in every.attachments] == ["chart.png", "report.pdf", "most.bin"]
        assert every.attachments[1].data == PDF and "Files: 2 too large to be shown" in every.text
        assert len(every.text) < 20_000
    async with app_of({"make": answering({"chart": contents["chart"]})}) as app:
        none = await AppTools(app, {"attach": ()}).call("abp_make", {})
        assert none.attachments == () and none.result is not None
        assert none.result.artifact("chart").size_bytes == len(png)


def _encoded(kind: str, size: tuple[int, int], mode: str = "RGB", **options: object) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 1).save(out, kind, **options)
    return out.getvalue()


_FLAT = _encoded("PNG", (60, 60))
_BROKEN = _FLAT.replace(b"IDAT", b"IDAT\xff")


#: Images by what they are: content, type, the size that is shown, and whether it is shown without Pillow.
_Image: TypeAlias = tuple[bytes, str, tuple[int, int] | None, bool]
IMAGES: dict[str, _Image] = {
    "whole": (_FLAT, "image/png", (60, 60), True),
    "JPEG": (_encoded("JPEG", (30, 20)), "image/jpeg", (30, 20), True),
    "JPEG with padding": (b"\xff\xd8\xff" + _encoded("JPEG", (30, 40))[2:], "image/jpeg", (30, 40), True),
    "WebP": (_encoded("WEBP", (30, 20)), "image/webp", (30, 20), True),
    "lossless WebP": (_encoded("WEBP", (30, 20), lossless=True), "image/webp", (30, 20), True),
    "WebP with alpha": (_encoded("WEBP", (30, 20), "RGBA"), "image/webp", (30, 20), True),
    "as wide as allowed": (_encoded("PNG", (8000, 10)), "image/png", (8000, 10), True),
    "too tall": (_encoded("PNG", (1280, 12_000), "1"), "image/png", (653, 6123), False),
    "too wide": (_encoded("JPEG", (9000, 20)), "image/jpeg", (800, 1), False),
    "cut off": (_FLAT[:100], "image/png", None, False),
    "JPEG cut off": (_encoded("JPEG", (300, 200))[:-200], "image/jpeg", None, False),
    "WebP cut off": (_encoded("WEBP", (300, 200))[:-9], "image/webp", None, False),
    "broken inside": (_BROKEN, "image/png", None, True),
    "random": (bytes(range(256)), "image/png", None, False),
    "signature alone": (b"\x89PNG\r\n\x1a\n", "image/png", None, False),
    "markers alone": (b"\xff\xd8\xff\xe0\xff\xff\xff\xd9", "image/jpeg", None, False),
}


@pytest.mark.load
@pytest.mark.parametrize(
    ("has_pillow", "names"),
    [
        (False, [*IMAGES]),
        (True, ["too wide", "JPEG cut off", "broken inside"]),
        pytest.param(True, [*IMAGES], marks=pytest.mark.slow),
    ],
)
async def test_image_unsupported_by_models_stays_a_reference(
    app_of: Connect, monkeypatch: pytest.MonkeyPatch, has_pillow: bool, names: list[str]
) -> None:
    if not has_pillow:
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == "PIL" else find_spec(name))
    images = {name: IMAGES[name] for name in names}
    app = {
        f"draw.{number}": answering({"picture": file(content, "a.png", mime_type)})
        for number, (content, mime_type, _, _) in enumerate(images.values())
    }
    async with app_of(app) as session:
        tools = AppTools(session, {})
        answers = [await tools.call(f"abp_draw_{number}", {}) for number in range(len(images))]
    for answer, (name, (content, _, shown, shown_without_pillow)) in zip(answers, images.items(), strict=True):
        assert answer.result is not None and answer.result.artifact("picture").size_bytes == len(content), name
        if not has_pillow:
            assert [picture.data for picture in answer.attachments] == [content] * shown_without_pillow, name
        elif shown is not None:
            (picture,) = answer.attachments
            assert Image.open(io.BytesIO(picture.data)).size == shown, name
        else:
            assert answer.attachments == (), name
        if not answer.attachments:
            reason = "cannot be decoded" if has_pillow else "need Pillow"
            assert "Images: 0 of 1 shown" in answer.text and reason in answer.text, name


async def test_multiple_images_are_downscaled_and_keep_real_type(app_of: Connect) -> None:
    contents = {"wide": file(_encoded("JPEG", (2400, 30)), "a.jpg", "image/jpeg"),
                "other": file(_encoded("JPEG", (30, 20)), "b.png", "image/png")}  # fmt: skip
    async with app_of({"draw": answering(contents)}) as app:
        wide, other = (await AppTools(app, {}).call("abp_draw", {})).attachments
    assert max(Image.open(io.BytesIO(wide.data)).size) <= 2000
    assert other.mime_type == "image/jpeg"


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_text_is_read_in_parts_without_splitting_characters(app_of: Connect) -> None:
    async with app_of({}) as app:
        tools = AppTools(app, {})
        ref = await app.store.put_bytes(TABLE.encode(), filename="table.csv", mime_type="text/csv")
        read = ""
        offset: int | None = 0
        while offset is not None:
            answer = await tools.call("abp_read_artifact", {"id": ref.uri, "offset": offset})
            head, _, body = answer.text.partition("\n")
            assert head == f"table.csv, from byte {offset}:" and len(body) < 10_200
            body, _, more = body.partition("\n… (")
            read += body
            offset = int(more.rstrip(")").rpartition(" ")[2]) if more else None
        assert read == TABLE


@pytest.mark.load
async def test_pdf_page_is_read_with_its_image(app: Session) -> None:
    tools = AppTools(app, {"strict": True})
    printed = await tools.call("abp_export_pdf", {"html": "<h1>Sales</h1>", "options": None, "title": None})
    assert printed.result is not None, printed.text
    ref = printed.result.artifact()
    page = await tools.call("abp_read_artifact", {"id": ref.id, "page": 1.0, "offset": None, "picture": True})
    assert page.text == f"Page 1 of 1 of {ref.filename}:\nSales"
    (picture,) = page.attachments
    assert picture.mime_type == "image/png" and picture.data.startswith(b"\x89PNG")
    assert (await tools.call("abp_read_artifact", {"id": ref.id})).attachments == ()
    gone = await tools.call("abp_read_artifact", {"id": ref.id, "page": 2})
    assert gone.is_error and f"{ref.filename} has 1 pages; the first is 1" in gone.text
    for number in (1.5, 0, "1", 10**30):
        assert (await tools.call("abp_read_artifact", {"id": ref.id, "page": number})).is_error, number
    blind = AppTools(app, {"attach": ()}).tools["abp_read_artifact"].schema
    assert "picture" not in str(blind["properties"])


async def test_unreadable_artifact_error_says_what_to_do(app_of: Connect) -> None:
    async with app_of({}) as app:
        tools = AppTools(app, {})
        ref = await app.store.put_bytes(b"\0\1\2", filename="a.bin", mime_type="application/octet-stream")
        binary = await tools.call("abp_read_artifact", {"id": ref.id})
        assert binary.is_error and "give its id to a tool that takes such a file" in binary.text
        broken = await app.store.put_bytes(b"%PDF-1.7 broken", filename="b.pdf", mime_type="application/pdf")
        assert "b.pdf: it cannot be read" in (await tools.call("abp_read_artifact", {"id": broken.id})).text
        none = await tools.call("abp_read_artifact", {"id": "nothing"})
        assert "Next: use an id from the result of a tool" in none.text


# --- errors, progress, cancellation -----------------------------------------------------------------------------------


async def test_tool_errors_are_actionable_for_model(app_of: Connect) -> None:
    async def fail(params: Mapping[str, object], call: Call) -> object:
        raise CapabilityError(
            "the printer is on fire", code="OUT_OF_PAPER", retryable=True, retry_after=3, alternatives=["export.html"]
        )

    async def lose(params: Mapping[str, object], call: Call) -> object:
        raise Disconnected("the connection broke", sent=True)

    async with app_of({"print": fail, "lose": lose, "hang": hang}) as app:
        tools = AppTools(app, {})
        printed = await tools.call("abp_print", {})
        assert printed.is_error and printed.result is None and printed.attachments == ()
        assert printed.text.split("\n") == [
            "print: the printer is on fire; instead there is export.html [OUT_OF_PAPER]",
            "Retryable: yes, after 3 s",
            "Alternatives: export.html",
            "Next: call again",
        ]
        assert "it may have run: look at the app before you call again" in (await tools.call("abp_lose", {})).text
        late = await AppTools(app, {"timeout": 0.05}).call("abp_hang", {})
        assert late.is_error and "within 0.05 s" in late.text and "[TIMEOUT]" in late.text
        assert "before you call again, for less at once" in late.text
        for text, reason in (
            ("{", "the arguments of abp_print"),
            ("[]", "must be an object"),
            ('{"a": NaN}', "the arguments of abp_print"),
        ):
            wrong = await tools.call("abp_print", text)
            assert wrong.is_error and reason in wrong.text and "Next: correct the arguments" in wrong.text
    closed = await tools.call("abp_print", {})
    assert closed.is_error and "the app must be connected again" in closed.text


async def test_artifacts_stored_before_error_are_in_its_answer(app_of: Connect) -> None:
    wrong = {"content": "aGVsbG8=", "encoding": "base64", "mimeType": "text/plain", "size": 6}
    right = {"content": "aGVsbG8=", "encoding": "base64", "mimeType": "text/plain", "size": 5}
    answers = {"two": {"success": True, "data": {"a": right, "b": wrong}}}
    async with app_of(MemoryTransport({"two": hang}, answers=answers)) as app:
        answer = await AppTools(app, {}).call("abp_two", {})
    assert answer.is_error and answer.result is not None
    error_text, stored = answer.text.split("\nStored:\n")
    assert "[SIZE_MISMATCH]" in error_text and json.loads(stored)["data"]["a"]["uri"] == answer.result.artifact("a").uri


async def test_progress_reaches_caller_and_cancel_reaches_app(app: Session) -> None:
    tools = AppTools(app, {})
    seen: list[Progress] = []
    running = asyncio.ensure_future(tools.call("abp_job_run", {"steps": 9999}, on_progress=seen.append))
    await eventually(lambda: bool(seen) and bool(seen[-1].steps[0]))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    async def is_cancelled() -> bool:
        record: Any = (await app.call("app.record")).data
        return [call["state"] for call in record["calls"] if call["capability"] == "job.run"] == ["cancelled"]

    await eventually(is_cancelled)


# --- strict schemas ---------------------------------------------------------------------------------------------------


async def test_strict_tool_call_is_as_expressive_as_plain_one(app_of: Connect) -> None:
    """What is optional may be null, and arrives as left out; what cannot be said strictly stays as it is."""
    margin = {
        "type": "object",
        "properties": {"top": {"type": "number"}, "left": {"type": "number"}},
        "required": ["top"],
    }
    schema = {
        "type": "object",
        "properties": {
            "size": {"type": "string", "enum": ["a4", "letter"], "default": "a4", "minLength": 1},
            "margin": margin,
            "tags": {"type": "array", "items": {"type": "string"}},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "maybe": {"type": ["string", "null"]},
            "kind": {"enum": ["x", "y"]},
        },
        "required": ["margin"],
    }
    anything = {"type": "object", "properties": {"data": {"type": "object"}}}
    recursive = {"type": "object", "properties": {"node": {"$ref": "#"}}}
    declared = {"print": schema, "save": anything, "tree": recursive}
    async with app_of(declaring(*({"name": name, "inputSchema": schema} for name, schema in declared.items()))) as app:
        tools = AppTools(app, {"strict": True})
        assert [tool.strict for tool in tools.tools.values()] == [True, False, False, True]
        tool = tools.tools["abp_print"]
        for node in _objects(tool.schema):
            assert node["additionalProperties"] is False and node["required"] == [*node["properties"]]
        arguments = dict(dict.fromkeys(schema["properties"]), margin={"top": 1, "left": None})
        jsonschema_rs.validate(tool.schema, arguments)
        for caller in (tools, AppTools(app, {"strict": False})):
            answer = await caller.call("abp_print", arguments)
            assert answer.result is not None and answer.result.data == {"margin": {"top": 1}, "maybe": None}
        full: dict[str, object] = {"size": "letter", "margin": {"top": 1, "left": 2}, "tags": ["a"]}
        full |= {"either": 3, "maybe": "b", "kind": "x"}
        jsonschema_rs.validate(tool.schema, full)
        assert (same := (await tools.call("abp_print", full)).result) is not None and same.data == full


def _objects(node: object) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [schema for item in node for schema in _objects(item)]
    if not isinstance(node, dict):
        return []
    objects = [node] if node.get("type") == "object" else []
    return objects + [schema for item in node.values() for schema in _objects(item)]
