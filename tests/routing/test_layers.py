"""The layers of docs/requirements.md R2-4: each alone, in their order, and what an agent sees in the end."""

import base64
import json
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.support.apps import b64
from tests.support.rows import each_row
from transports import LocalStore, NoneStore, Router, Scope
from transports.artifacts import MemoryStore
from transports.errors import ABPError, BadEncoding, ProtocolError, SizeMismatch, StoreFull, UsageError
from transports.protocol._strict_json import JSONValue, encode_json
from transports.protocol.binary import BinaryData, Handle
from transports.routing import (
    GITHUB,
    TABLEAU,
    AgentLimits,
    CustomEvent,
    Fetcher,
    FieldRule,
    ObservationClamped,
    Result,
    RoutingPolicy,
    TransformContext,
)

NOISE = random.Random(9).randbytes(375_000)
PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" + NOISE
PNG = b"\x89PNG\r\n\x1a\n" + NOISE[:2000]
SMALL = b"%PDF-1.4\nsmall"

Json = dict[str, JSONValue]


def at(value: object, *place: str | int) -> JSONValue:
    for step in place:
        value = cast(dict[str | int, object], value)[step]
    return cast(JSONValue, value)


def layers(result: Result) -> list[tuple[str, str]]:
    return [(step.layer, step.place) for step in result.steps]


# --- the incident (docs/requirements.md R2-1.1, R2-B) -----------------------------------------------------------------


@pytest.mark.requirement("R0-1a", "R2-0a", "R2-1.1a", "R2-1.1b", "R2-1.2a", "R2-1.3a", "R2-3.2a", "R2-6.1c", "R2-6.5a")
async def test_undeclared_half_megabyte_base64_field_is_stored(store: LocalStore) -> None:
    answer = {"content": b64(PDF), "name": "Sales Dashboard", "format": "pdf"}
    assert len(answer["content"]) > 500_000
    routed = await Router(store).route(answer, capability="download_workbook")
    ref = routed.artifacts["content"]
    assert ref.path is not None and Path(ref.path).read_bytes() == PDF
    assert routed.data == {"content": ref.as_dict(), "name": "Sales Dashboard", "format": "pdf"}
    assert len(routed.summary().encode()) < 1024
    assert f"File saved: {ref.path}" in routed.summary()
    assert len(encode_json(routed.for_agent())) < 1024
    assert layers(routed) == [("heuristic", "content")]
    leaving = RoutingPolicy(transformer=lambda capability, answer, context: None)
    assert (await Router(store, policy=leaving).route(answer, capability="download_workbook")).steps == routed.steps
    assert b64(PDF)[100:140] not in json.dumps(routed.as_dict()) + routed.summary()


@pytest.mark.requirement("R2-3.4a", "R2-3.4b", "R2-3.4c", "R2-4.1b", "R2-5.5a", "R2-5.5b", "R2-5.5d", "R2-B.a")
@pytest.mark.parametrize("content", [PDF, SMALL], ids=["large", "small"])
async def test_appendix_b_download_workbook_is_routed(store: LocalStore, content: bytes) -> None:
    answer = {"content": b64(content), "name": "Sales Dashboard", "format": "pdf"}
    routed = await Router(store, policy=TABLEAU).route(answer, capability="download_workbook")
    ref = routed.artifacts["content"]
    assert await store.get(ref.id) == content
    assert (ref.filename, ref.mime_type) == ("Sales Dashboard.pdf", "application/pdf")
    size = "366.2 KB" if content is PDF else "14 bytes"
    said = f"Downloaded workbook 'Sales Dashboard' as PDF ({size}). Artifact: {ref.id}"
    assert routed.summary().splitlines()[0] == said
    assert layers(routed) == [("fields", "content")]
    assert routed.metadata == {"name": "Sales Dashboard", "format": "pdf"}


# --- custom -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-2.1a", "R2-3.6a", "R2-3.6b", "R2-4.1a", "R2-4a", "R2-6.1a")
async def test_transformer_overrides_all_other_rules(store: LocalStore) -> None:
    async def transform(capability: str, answer: object, context: TransformContext) -> object:
        assert capability == context.capability == "download_workbook"
        content = base64.b64decode(str(at(answer, "content")))
        return {"workbook": BinaryData.from_bytes(content, filename="w.pdf"), "untouched": at(answer, "other")}

    policy = RoutingPolicy(transformer=transform, tool_fields=TABLEAU.tool_fields)
    answer = {"content": b64(SMALL), "other": b64(PDF[:3000])}
    routed = await Router(store, policy=policy).route(answer, capability="download_workbook")
    assert routed.artifacts["workbook"].filename == "w.pdf"
    assert await store.get(routed.artifacts["workbook"].id) == SMALL
    assert at(routed.data, "untouched") == b64(PDF[:3000])  # no other layer reads it
    assert layers(routed) == [("custom", ""), ("abp", "workbook")]


async def test_content_dropped_by_transformer_is_released() -> None:
    released: list[object] = []

    class Releasing(Fetcher):
        async def release(self, binary: BinaryData | ABPError) -> None:
            released.append(cast(BinaryData, binary).content)

    def explode(capability: str, answer: object, context: object) -> object:
        raise ValueError("no")

    answer = {"kept": b"x", "dropped": Handle("7", 3)}
    for transformer in (lambda capability, answer, context: {"kept": answer["kept"]}, explode):
        policy = RoutingPolicy(transformer=transformer)
        router = Router(MemoryStore(), fetcher=Releasing(), policy=policy)
        if transformer is explode:
            with pytest.raises(ValueError, match="no"):
                await router.route(answer, capability="x")
        else:
            assert list((await router.route(answer, capability="x")).artifacts) == ["kept"]
    assert released.count(Handle("7", 3)) == 2


@pytest.mark.requirement("R2-2.1a", "R2-3.6c", "R2-4.3a")
async def test_references_stored_by_transformer_become_artifacts(store: LocalStore) -> None:
    events: list[object] = []

    async def transform(capability: str, answer: object, context: TransformContext) -> object:
        context.emit("workbook/read", {"bytes": len(SMALL)})
        assert context.artifacts is context.store
        ref = await context.store.put_bytes(SMALL, mime_type="application/pdf", filename="w.pdf", namespace=capability)
        assert ref.scope == context.scope == Scope(session="s")
        return {"artifact": ref, "pages": [{"image": PNG, "again": ref}], "name": "Q3"}

    router = Router(
        store.scoped(Scope(session="s")), policy=RoutingPolicy(transformer=transform), on_event=events.append
    )
    routed = await router.route({"content": b64(SMALL)}, capability="download_workbook", source={"call": "c1"})
    ref = routed.artifacts["artifact"]
    assert (ref.filename, [*routed.artifacts]) == ("w.pdf", ["artifact", "pages.0.again", "pages.0.image"])
    assert at(routed.data, "artifact") == at(routed.data, "pages", 0, "again") == ref.as_dict()
    assert routed.metadata == {"name": "Q3"}
    assert events == [CustomEvent("c1", "download_workbook", "workbook/read", {"bytes": 14})]
    assert "artifacts" not in routed.for_agent()

    whole = RoutingPolicy(transformer=lambda capability, answer, context: ref)
    routed = await Router(store, policy=whole).route({}, capability="x")
    assert (routed.data, dict(routed.artifacts), routed.metadata) == (ref.as_dict(), {"": ref}, {})


# --- configured fields ------------------------------------------------------------------------------------------------


def policy_for(*rules: FieldRule) -> RoutingPolicy:
    return RoutingPolicy(tool_fields={"x": rules})


@pytest.mark.requirement("R2-2.2d", "R2-3.4a", "R2-3.4d", "R2-3.4e")
@each_row(
    ("path", "answer", "places"),
    [
        ("file", {"file": b64(SMALL)}, ["file"]),
        ("a.b.0", {"a": {"b": [b64(SMALL), b64(PNG[:30])]}}, ["a.b.0"]),
        ("pages.*.image", {"pages": [{"image": b64(PNG[:30])}, {"n": 1}, {"image": b64(SMALL)}]}, None),
        ("*", {"one": b64(SMALL), "two": 7}, ["one"]),
        ("a\\.b", {"a.b": b64(SMALL), "a": {"b": b64(SMALL)}}, ["a\\.b"]),
        ("nowhere.at.all", {"file": b64(SMALL)}, [""]),
        ("\\$a", {"$a": b64(SMALL)}, ["$a"]),
        ("$.pages[*].image", {"pages": [{"image": b64(PNG[:30])}, {"n": 1}, {"image": b64(SMALL)}]}, None),
        ("$['a.b'][-1]", {"a.b": ["", b64(SMALL)]}, ["a\\.b.1"]),
        ("$..scan", {"a": [{"b": {"scan": b64(SMALL)}}], "scan": 7}, ["a.0.b.scan"]),
        ("$.all[?@.kind == 'pdf'].file", {"all": [{"kind": "pdf", "file": b64(SMALL)}, {"file": "x"}]}, ["all.0.file"]),
        ("$.pages[1:].image", {"pages": []}, [""]),
        ("file", {"file": ""}, [""]),
        ("file", {"file": {"not": "text"}}, [""]),
    ],
)
async def test_field_rule_selects_its_path(
    path: str, answer: object, places: list[str] | None, store: LocalStore
) -> None:
    routed = await Router(store, policy=policy_for(FieldRule(path))).route(answer, capability="x")
    assert list(routed.artifacts) == (places or ["pages.0.image", "pages.2.image"])
    other = await Router(store, policy=policy_for(FieldRule(path))).route(answer, capability="y")
    assert list(other.artifacts) == [""]


async def test_rule_is_chosen_by_capability_and_format(store: LocalStore) -> None:
    formats = [FieldRule("two", "text/x-a", formats=("a",)), FieldRule("two", "text/x-b", formats=("b", "c"))]
    fields = {"x": [FieldRule("file", "application/x-own"), *formats], "*": [FieldRule("*", "application/x-any")]}
    routed = await Router(store, policy=RoutingPolicy(tool_fields=fields)).route(
        {"file": b64(b"1" * 90), "more": b64(b"2" * 90), "two": b64(b"3" * 90), "format": "c"}, capability="x"
    )
    assert {place: ref.mime_type for place, ref in routed.artifacts.items()} == {
        "file": "application/x-own",
        "more": "application/x-any",
        "two": "text/x-b",
    }


@pytest.mark.requirement("R2-6.4b")
async def test_base64_field_may_have_line_breaks_and_data_url_prefix(store: LocalStore) -> None:
    lines = base64.encodebytes(PNG).decode()
    router = Router(store, policy=policy_for(FieldRule("file")))
    for text in (b64(PNG), lines, lines.replace("\n", "\r\n"), f"data:image/png;base64,{b64(PNG)}"):
        routed = await router.route({"file": text}, capability="x")
        assert await store.get(routed.artifacts["file"].id) == PNG
    github = {"encoding": "base64", "name": "logo.png", "path": "docs/logo.png", "content": lines}
    routed = await Router(store, policy=GITHUB).route(github, capability="get_file_contents")
    ref = routed.artifacts["content"]
    assert (ref.filename, ref.mime_type, await store.get(ref.id)) == ("logo.png", "image/png", PNG)
    assert routed.summary().startswith("Downloaded docs/logo.png (2.0 KB)")
    router = Router(store, policy=policy_for(FieldRule("file", "text/plain")))
    routed = await router.route({"file": "grün", "encoding": "utf-8"}, capability="x")
    assert await store.get(routed.artifacts["file"].id) == "grün".encode()
    left_out = await router.route({"file": "too large", "encoding": "none"}, capability="x")
    assert left_out.data == {"file": "too large", "encoding": "none"}


async def test_configured_field_without_valid_base64_raises(store: LocalStore) -> None:
    for content in ("no pdf. " * 20, b64(PDF)[:-1] + "#"):
        with pytest.raises(BadEncoding) as caught:
            await Router(store, policy=TABLEAU).route({"content": content}, capability="download_workbook")
        assert caught.value.details["field"] == "content"
    assert await store.list() == []


XML = "<?xml version='1.0'?>\n<workbook>" + "<column name='Größe' />\n" * 10
LONG_XML = XML * 2000


@pytest.mark.requirement("R2-6.4a")
@each_row(
    ("answer", "layer"),
    [
        *(({"content": b64(SMALL), "format": same}, "fields") for same in ("pdf", "PDF", "", None, 7)),
        ({"content": b64(PNG), "format": "twbx"}, "heuristic"),
        *(({"content": XML, **more}, None) for more in ({}, {"format": "twb"})),
        *(({"content": LONG_XML, **more}, "size") for more in ({}, {"format": "twb"})),
        *(({"content": word}, None) for word in ("not available", "pending", "pending1", "unknown workbook 123")),
    ],
)
async def test_content_not_matching_rule_falls_through_to_next_layer(
    answer: Json, layer: str | None, store: LocalStore
) -> None:
    routed = await Router(store, policy=TABLEAU).route(answer, capability="download_workbook")
    assert [step for step in layers(routed) if step[1]] == ([] if layer is None else [(layer, "content")])
    if layer in (None, "size"):
        assert routed.data == answer
    if layer == "size":
        assert await store.get(routed.artifacts["content"].id) == LONG_XML.encode()


@pytest.mark.requirement("R2-4.2k")
async def test_summary_is_made_of_values_beside_the_file(store: LocalStore) -> None:
    rule = FieldRule("file", "application/pdf", "'{name}' {size_human} {missing} {flag} {artifact_id}")
    answer = {"file": b64(SMALL), "name": "{size}\n" + "n" * 500, "flag": True}
    routed = await Router(store, policy=policy_for(rule)).route(answer, capability="x")
    line = routed.summary().splitlines()[0]
    assert line.startswith("'{size} nnn") and len(line) < 320  # no template itself
    assert f"…' 14 bytes unknown missing unknown flag {routed.artifacts['file'].id}" in line
    rule = FieldRule("$.pages[0].image", "application/pdf", "Page {n} of {title}", "{n}.pdf")
    answer = {"title": "not beside it", "pages": [{"n": 7, "image": b64(SMALL)}]}
    routed = await Router(store, policy=policy_for(rule)).route(answer, capability="x")
    assert routed.summary().splitlines()[0] == "Page 7 of unknown title"
    assert routed.artifacts["pages.0.image"].filename == "7.pdf"
    policy = RoutingPolicy(default_summary_template="Binary content '{title}' stored as {artifact_id} ({size} bytes)")
    answer = {"file": {"content": b64(SMALL), "mimeType": "application/pdf", "title": "Q3"}}
    routed = await Router(store, policy=policy).route(answer, capability="x")
    assert routed.summary().splitlines()[0] == f"Binary content 'Q3' stored as {routed.artifact().id} (14 bytes)"


# --- content blocks of MCP --------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "R2-2.2b", "R2-2.2c", "R2-2.3a", "R2-2.3b", "R2-2.3c", "R2-3.3a", "R2-3.3b", "R2-3.3c", "R2-4.1c"
)
async def test_all_content_block_types_are_routed(store: LocalStore) -> None:
    link: Json = {"type": "resource_link", "uri": "tableau://workbook/1/pdf", "mimeType": "application/pdf", "size": 9}
    text: Json = {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "hello"}}
    answer = {
        "content": [
            {"type": "text", "text": "two files"},
            {"type": "image", "data": b64(b"tiny"), "mimeType": "image/png"},
            {"type": "audio", "data": b64(b"sound"), "mimeType": "audio/wav"},
            {
                "type": "resource",
                "resource": {"uri": "file:///b/a%20%C3%A9.dat?v=1", "mimeType": "text/plain", "blob": b64(PNG)},
            },
            text,
            link,
        ],
        "isError": False,
    }
    routed = await Router(store).route(answer, capability="tool")
    assert list(routed.artifacts) == ["content.1.data", "content.2.data", "content.3.resource.blob"]
    contents = [await store.get(ref.id) for ref in routed.artifacts.values()]
    assert contents == [b"tiny", b"sound", PNG]
    assert routed.artifacts["content.3.resource.blob"].filename == "a é.dat"
    assert at(routed.data, "content", 5) == link and at(routed.data, "content", 4) == text
    assert at(routed.data, "content", 1, "data", "id") == routed.artifacts["content.1.data"].id
    read = {"contents": [{"uri": "tableau://view/1", "mimeType": "application/pdf", "blob": b64(SMALL)}]}
    resource = (await Router(store).route(read, capability="resources/read")).artifacts
    assert await store.get(resource["contents.0.blob"].id) == SMALL
    assert layers(routed) == [
        ("typed", "content.5"),
        ("typed", "content.1.data"),
        ("typed", "content.2.data"),
        ("typed", "content.3.resource.blob"),
    ]


async def test_broken_block_is_reported_and_siblings_are_kept(store: LocalStore) -> None:
    blocks = [{"type": "image", "data": data, "mimeType": "image/png"} for data in ("###", b64(PNG))]
    with pytest.raises(BadEncoding) as caught:
        await Router(store).route({"content": blocks}, capability="tool")
    assert caught.value.details["field"] == "content.0.data"
    assert caught.value.result is not None and list(caught.value.result.artifacts) == ["content.1.data"]
    link = {"type": "resource_link", "uri": "a://b", "icons": [{"src": "data:image/png;base64," + b64(PNG)}]}
    routed = await Router(store).route({"content": [link]}, capability="tool")
    assert list(routed.artifacts) == ["content.0.icons.0.src"] and at(routed.data, "content", 0, "uri") == "a://b"


async def test_app_objects_resembling_blocks_stay_data(store: LocalStore) -> None:
    answer: Json = {
        "avatar": {"type": "image", "data": "photo123", "mimeType": "image/png"},
        "link": {"type": "resource_link", "uri": "https://a/b", "mimeType": "image/png", "data": "photo123"},
        "odd": [{"type": ["image"], "data": 1}, {"type": "resource", "resource": "room 7"}, {"blob": "b", "uri": None}],
    }
    routed = await Router(store).route(answer, capability="x")
    assert routed.data == answer
    avatar = answer["avatar"]
    assert (await Router(store).route(avatar, capability="x")).data == avatar


@pytest.mark.requirement("R2-3.3d", "R2-4a", "R2-6.1a")
async def test_json_in_text_block_is_routed(store: LocalStore) -> None:
    """docs/requirements.md R2-3.3: many servers answer text with base64 inside."""
    inner = {"content": b64(SMALL), "name": "Sales", "format": "pdf"}
    answer = {"content": [{"type": "text", "text": json.dumps(inner)}, {"type": "text", "text": '{"rows": 3}'}]}
    routed = await Router(store, policy=TABLEAU).route(answer, capability="download_workbook")
    ref = routed.artifacts["content.0.text.content"]
    assert (await store.get(ref.id), ref.filename) == (SMALL, "Sales.pdf")
    assert at(routed.data, "content", 0, "text", "name") == "Sales"
    assert at(routed.data, "content", 1, "text") == '{"rows": 3}'
    texts = (json.dumps({"deep": [b64(PDF)]}), "{")
    undeclared = {"content": [{"type": "text", "text": text} for text in texts]}
    routed = await Router(store).route(undeclared, capability="x")
    assert await store.get(routed.artifacts["content.0.text.deep.0"].id) == PDF
    structured = {"content": [], "structuredContent": inner}
    routed = await Router(store, policy=TABLEAU).route(structured, capability="download_workbook")
    assert await store.get(routed.artifacts["structuredContent.content"].id) == SMALL
    wrapped = {"content": [], "structuredContent": {"result": json.dumps(inner)}}  # as SDKs send a text
    routed = await Router(store, policy=TABLEAU).route(wrapped, capability="download_workbook")
    assert await store.get(routed.artifacts["structuredContent.result.content"].id) == SMALL


# --- heuristics -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-A.f")
async def test_binary_string_becomes_a_file(store: LocalStore) -> None:
    """docs/requirements.md R2-A has the raw head of a ZIP: a page's ``atob`` gives one character for each byte."""
    content = b"PK\x03\x04" + NOISE[:2000]
    routed = await Router(store).route({"zip": content.decode("latin-1")}, capability="x")
    assert await store.get(routed.artifacts["zip"].id) == content
    lossy = content.decode("utf-8", "replace")
    assert (await Router(store).route({"zip": lossy}, capability="x")).data == {"zip": lossy}


@pytest.mark.requirement("R2-4.2a", "R2-4.2c", "R2-4.2e", "R2-6.4e")
async def test_heuristics_can_be_disabled_or_use_custom_minimum(store: LocalStore) -> None:
    answer: Json = {"a": b64(PNG)}
    off = await Router(store, policy=RoutingPolicy(heuristics=False)).route(answer, capability="x")
    assert off.data == answer
    short = RoutingPolicy(min_guessed_chars=16)
    assert list((await Router(store, policy=short).route({"a": b64(SMALL)}, capability="x")).artifacts) == ["a"]
    broken: Json = {"a": b64(PDF)[:-3] + "#", "b": b64(PNG)[:2001], "c": b64(PNG) + "!"}
    assert (await Router(store).route(broken, capability="x")).data == broken


# --- the net for size -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-2.2a", "R2-3.1a", "R2-3.1b", "R2-3.1d", "R2-4.1e", "R2-4.2j")
async def test_long_text_stays_in_data_and_is_stored_as_file(store: LocalStore) -> None:
    html = "<!doctype html><p>" + "é" * 12_000
    routed = await Router(store).route({"html": html, "pages": 3}, capability="render")
    assert routed.data == {"html": html, "pages": 3}
    assert set(routed.artifacts) == {"", "html"}
    ref = routed.artifacts["html"]
    assert await store.get(ref.id) == html.encode()
    assert ref.mime_type == "text/html"
    seen = routed.for_agent()
    assert at(seen, "data", "html", "summary") == f"Large text stored ({len(html):,} characters)"
    assert at(seen, "data", "html", "artifact", "uri") == ref.uri
    assert at(seen, "data", "html", "preview") == html[:200] + "…"
    assert at(seen, "data", "pages") == 3
    assert list(cast(Json, seen["artifacts"])) == [""]
    assert layers(routed) == [("size", "html"), ("size", "")]


@pytest.mark.requirement("R2-4.4e", "R2-4a", "R2-6.1a")
async def test_largest_texts_get_separate_files(store: LocalStore) -> None:
    texts = {f"t{n}": "word " * (2000 + n) for n in range(1, 26)}
    routed = await Router(store).route({**texts, "chart": PNG}, capability="x")
    assert set(routed.artifacts) == {"", "chart", *(f"t{n}" for n in range(6, 26))}
    assert json.loads(await store.get(routed.artifacts[""])) == routed.data
    assert set((await Router(store).route({"chart": PNG, "rows": [1]}, capability="x")).artifacts) == {"chart"}


@pytest.mark.requirement("R2-3.1c", "R2-4.2j")
async def test_router_without_limits_adds_nothing(store: LocalStore) -> None:
    policy = RoutingPolicy(max_inline_chars=None, max_inline_bytes=None)
    routed = await Router(store, policy=policy).route({"chart": PNG, "text": "x" * 50_000}, capability="x")
    assert set(routed.artifacts) == {"chart"}
    assert at(routed.for_agent(max_bytes=2000), "truncated", "note") == (
        "values were cut; the whole answer was not stored: ask for a part of it"
    )


async def test_failed_file_or_full_store_raises_for_texts_and_each_binary(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*args: object, **kwargs: object) -> object:
        raise StoreFull("no space left")

    answer = {"file": BinaryData(PNG, "image/png", 1), "text": "x" * 50_000}
    with pytest.raises(SizeMismatch) as caught:
        await Router(store).route(answer, capability="x")
    result = caught.value.result
    assert isinstance(result, Result) and not result.artifacts
    with pytest.raises(UsageError, match="the answer has none; places with an artifact: none"):
        result.artifact()
    monkeypatch.setattr(store, "put_text", full)
    with pytest.raises(StoreFull):
        await Router(store).route({"text": "x" * 50_000}, capability="x")
    monkeypatch.setattr(store, "put_bytes", full)
    with pytest.raises(StoreFull) as failed:
        await Router(store).route({"a": PNG, "b": PDF, "c": PNG}, capability="x")
    assert failed.value.details == {"field": "a", "also_failed": ["b", "c"]}


# --- what an agent sees -----------------------------------------------------------------------------------------------


@pytest.mark.load
@pytest.mark.requirement("R2-4.1f", "R2-4.4a", "R2-4.4c", "R2-4.4d", "R2-6.1d")
async def test_two_megabyte_json_is_stored_and_clamped(store: LocalStore) -> None:
    rows: list[JSONValue] = [{"id": n, "name": f"Größe {n}", "note": "Delivered. " * 8} for n in range(16_000)]
    routed = await Router(store).route({"rows": rows, "total": len(rows)}, capability="query")
    whole = routed.artifacts[""]
    assert whole.size_bytes > 2_000_000
    for limit in (1024, 10_000, 50_000):
        seen = routed.for_agent(max_bytes=limit)
        text = encode_json(seen)
        assert len(text) <= limit
        assert json.loads(text) == seen
        assert at(seen, "truncated", "bytes") == whole.size_bytes
        assert at(seen, "truncated", "uri") == whole.uri
        assert at(seen, "data", "total") == 16_000
        shown = cast(list[JSONValue], at(seen, "data", "rows"))
        assert shown[-1] == f"… {16_000 - len(shown) + 1:,} more items"
    assert shown[0] == rows[0]
    assert at(seen, "truncated", "path") == str(whole.path)
    assert len(encode_json(routed.for_agent())) > 40_000
    assert json.loads(await store.get(whole)) == {"rows": rows, "total": 16_000}


@pytest.mark.requirement("R2-3.1a", "R2-3.1b", "R2-3.1c", "R2-3.1d")
@pytest.mark.parametrize("text", ["x" * 400_000, b64(PDF)[:400_000] + "#"], ids=["prose", "broken base64"])
async def test_answer_of_one_long_text_is_shown_like_a_field(text: str, store: LocalStore) -> None:
    routed = await Router(store).route(text, capability="x")
    assert routed.data == text and list(routed.artifacts) == [""]  # for a program it stays what it was
    ref = routed.artifact()
    assert json.loads(await store.get(ref)) == text
    seen = routed.for_agent()
    assert len(encode_json(seen)) < 1000
    assert at(seen, "data", "artifact", "uri") == ref.uri
    assert at(seen, "data", "summary") == f"Large text stored ({len(text):,} characters)"
    assert at(seen, "data", "preview") == text[:200] + "…"
    assert "artifacts" not in seen and ("size", "") in layers(routed)
    short = await Router(store).route("x" * 10_000, capability="x")
    assert short.for_agent()["data"] == "x" * 10_000
    policy = RoutingPolicy(max_inline_chars=None, agent=AgentLimits(max_field_chars=None))
    unlimited = await Router(store, policy=policy).route("x" * 20_000, capability="x")
    assert unlimited.for_agent()["data"] == "x" * 20_000


@pytest.mark.requirement("R2-7.4a")
async def test_none_store_result_does_not_claim_saving() -> None:
    answer: Json = {"pdf_data": b64(PDF), "view_name": "Revenue"}
    routed = await Router(NoneStore(), policy=TABLEAU).route(answer, capability="get_view_as_pdf")
    assert routed.summary().splitlines() == [
        f"Downloaded view 'Revenue' as PDF (366.2 KB). Artifact: {routed.artifact().id}. "
        "Note: Binary content not stored.",
        "Binary content not stored: Revenue.pdf",
        "Type: application/pdf",
        f"Size: {len(PDF)} bytes",
        'Metadata: {"view_name":"Revenue"}',
    ]
    shown = cast(Json, at(routed.for_agent(), "data", "pdf_data"))
    assert (shown["uri"], shown["truncated"]) == (None, True) and "not stored" in str(shown["warning"])
    assert "artifact://" not in json.dumps([routed.as_dict(), routed.for_agent(), routed.summary()])
    assert [step.what for step in routed.steps] == [f"application/pdf, {len(PDF)} bytes, not stored"]


@pytest.mark.requirement("R2-7.4f")
async def test_none_store_texts_have_500_character_preview() -> None:
    text = "".join(f"{n} " for n in range(10_000))
    document: Json = {"content": text, "mimeType": "text/plain", "encoding": "utf-8"}
    routed = await Router(NoneStore()).route({"log": text, "file": document}, capability="x")
    assert at(routed.for_agent(), "data", "log", "preview") == text[:500] + "…"
    assert at(routed.for_agent(), "data", "log", "artifact", "uri") is None
    assert at(routed.for_agent(), "data", "file", "text") == text[:500] + "…"
    assert "not stored" in next(step.what for step in routed.steps if step.place == "log")
    assert "artifact://" not in json.dumps([routed.for_agent(), routed.summary()])
    plain = await Router(NoneStore()).route({"rows": list(range(1000))}, capability="x")
    whole = encode_json(plain.data).decode()
    assert plain.summary().splitlines() == [
        "Output not stored: no artifact store is configured",
        f"Size: {len(whole)} characters",
        f"Preview: {whole[:500]}…",
    ]


# --- settings ---------------------------------------------------------------------------------------------------------


async def test_too_deep_answer_is_rejected_even_without_matching_rule(store: LocalStore) -> None:
    answer: object = "end"
    for _ in range(200):
        answer = {"a": answer}
    with pytest.raises(ProtocolError, match="nested deeper"):
        await Router(store, policy=policy_for(FieldRule("$..b"))).route(answer, capability="x")


@pytest.mark.requirement("R2-4.4f", "R2-4.4g")
@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ({"rows": ["z" * 90] * 999}, lambda result: result.for_agent()),
        ({"rows": ["z" * 90] * 99}, lambda result: result.for_agent(max_bytes=2000)),
        ({"file": b64(PDF)}, lambda result: {"summary": result.summary(max_chars=50)}),
    ],
    ids=["above the default", "above a limit", "summary"],
)
async def test_truncation_for_agent_is_logged_and_noted(
    answer: object, read: Callable[[Result], JSONValue], store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[object] = []
    routed = await Router(store, on_event=events.append).route(answer, capability="x", source={"call": "c1"})
    routed.summary(max_chars=5000)
    routed.for_agent(max_bytes=200_000)
    assert (events, caplog.messages) == ([], [])
    shown = read(routed)
    (event,) = events
    assert isinstance(event, ObservationClamped) and (event.call, event.capability) == ("c1", "x")
    assert event.original_bytes > event.clamped_bytes >= len(encode_json(shown)) - len(b'{"summary":""}')
    (message,) = caplog.messages
    assert message == f"x: the answer was cut for an agent from {event.original_bytes} to {event.clamped_bytes} bytes"
    assert pickle.loads(pickle.dumps(routed)) == routed


@pytest.mark.requirement("R2-4.4a", "R2-4.4b")
async def test_agent_limits_of_policy_apply_to_answers(store: LocalStore) -> None:
    agent = AgentLimits(max_bytes=3000, max_field_chars=100, truncation_suffix="<{truncated_chars} more>")
    answer = {"log": "x" * 1100, "rows": list(range(10)), "short": "y" * 100}
    routed = await Router(store, policy=RoutingPolicy(agent=agent)).route(answer, capability="x")
    view = routed.for_agent()
    assert view["data"] == {**answer, "log": "x" * 89 + "<1011 more>"}
    assert at(view, "truncated", "id") == routed.artifacts[""].id
    assert routed.data == answer
    many = await Router(store, policy=RoutingPolicy(agent=agent)).route({"rows": ["z" * 90] * 99}, capability="x")
    assert len(encode_json(many.for_agent())) <= 3000 < len(encode_json(many.for_agent(max_bytes=9000)))


def texts_of(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_of(item)


@pytest.mark.requirement("R2-4.4b", "R2-4.4c")
@pytest.mark.parametrize("policy", [RoutingPolicy(), RoutingPolicy(max_inline_chars=None)], ids=["previews", "texts"])
async def test_many_long_texts_all_stay_within_limit(policy: RoutingPolicy) -> None:
    """More long texts than get files of their own, with room for all of them."""
    answer = {f"page{n}": f"{n:02}" + "x" * (9_998 + n) for n in range(30)}
    routed = await Router(MemoryStore(), policy=policy).route(answer, capability="x")
    view = routed.for_agent(max_bytes=5_000_000)
    data = cast(Json, view["data"])
    assert max(map(len, texts_of(view))) == policy.agent.max_field_chars == 10_000
    assert data["page0"] == answer["page0"] and list(data) == list(answer)
    assert routed.data == answer
    for name, seen in data.items():
        if isinstance(seen, str) and seen != answer[name]:
            kept, _, missing = seen.partition("\n... [truncated: ")
            assert len(kept) + int(missing.partition(" ")[0]) == len(answer[name]) and answer[name].startswith(kept)
    assert max(map(len, texts_of(routed.for_agent()))) <= 10_000 and len(encode_json(routed.for_agent())) <= 50_000
