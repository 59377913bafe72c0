"""The router alone, on results that came from anywhere."""

import asyncio
import base64
import json
import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.apps import PDF, PNG
from transports import JSONValue, LocalStore, NoneStore, Router, RoutingPolicy
from transports.artifacts._base import AuditLog
from transports.errors import BadEncoding, SizeMismatch, UnsupportedBinary, UsageError
from transports.protocol.binary import BinaryData, Broken, Encoded
from transports.routing import Result

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.requirement("R0-4b")
@pytest.mark.parametrize("policy", [None, RoutingPolicy(max_inline_bytes=0, max_inline_chars=0)])
async def test_success_without_data_is_inline_and_stores_nothing(
    policy: RoutingPolicy | None, store: LocalStore
) -> None:
    routed = await Router(store, policy=policy).route(None, capability="x")
    assert routed.data is None and routed.artifacts == {} and await store.list() == []
    assert routed.summary() == "The app answered without data."
    assert routed.for_agent() == {"data": None, "note": "The app answered without data."}
    assert (routed.as_dict()["success"], routed.as_dict()["data"], routed.as_dict()["artifacts"]) == (True, None, [])
    printed = await Router(store).route(None, capability="x", outputs=[BinaryData(PDF)])
    assert list(printed.artifacts) == ["document"] and "without data" not in printed.summary()
    assert "note" not in printed.for_agent()


@pytest.mark.requirement("R2-6.5d", "R6-4k")
@given(json_values.filter(lambda data: data is not None))
def test_any_json_is_stored_as_it_is(data: object) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = LocalStore(Path(folder))
            routed = await Router(store).route(data, capability="any")
            assert list(routed.artifacts) == [""]
            assert routed.data == data
            assert json.loads(await store.get(routed.artifacts[""])) == data
            assert f"Output saved to file: {folder}" in routed.summary(max_chars=10_000)

    asyncio.run(main())


@given(json_values, st.binary(min_size=1, max_size=40), st.lists(st.integers(0, 3), max_size=3))
def test_only_binaries_are_replaced_at_any_depth(data: object, content: bytes, nest: list[int]) -> None:
    tree: object = {"content": base64.b64encode(content).decode(), "mimeType": "application/x-thing"}
    for n in nest:
        tree = [*([data] * n), tree] if n % 2 else {"sibling": data, "inner": tree}

    async def main() -> None:
        routed = await Router(NoneStore()).route(tree, capability="any")
        ((place, ref),) = routed.artifacts.items()
        assert ref.size_bytes == len(content)
        node, original = routed.data, tree
        for step in place.split(".") if place else ():
            assert isinstance(node, list | dict)
            if isinstance(node, list):
                assert isinstance(original, list)
                assert node[: int(step)] == original[: int(step)]
                node, original = node[int(step)], original[int(step)]
            else:
                assert isinstance(original, dict)
                assert {**node, step: None} == {**original, step: None}
                node, original = node[step], original[step]
        assert node == ref.as_dict()

    asyncio.run(main())


async def test_large_encoded_text_is_decoded_in_chunks(store: LocalStore) -> None:
    content = bytes(range(256)) * 1024
    encoded = BinaryData(Encoded(base64.b64encode(content).decode(), "base64"), "application/x-thing", len(content))
    routed = await Router(store).route({"file": encoded}, capability="x")
    assert await store.get(routed.artifacts["file"].id) == content
    broken = BinaryData(Encoded("A" * 100_000 + "#" * 100, "base64"), "application/x-thing")
    with pytest.raises(BadEncoding):
        await Router(store).route({"file": broken}, capability="x")
    with pytest.raises(SizeMismatch, match=r"^export: pages\.0: the app declared 262143 bytes and 262144 arrived"):
        await Router(store).route({"pages": [replace(encoded, size=len(content) - 1)]}, capability="export")
    assert [ref.id for ref in await store.list()] == [routed.artifacts["file"].id]


async def test_unreadable_content_error_names_its_field(store: LocalStore) -> None:
    with pytest.raises(UnsupportedBinary, match="detached") as caught:
        await Router(store).route({"a": {"b": Broken("a detached buffer")}, "c": PNG}, capability="x")
    assert caught.value.details == {"field": "a.b"}
    assert caught.value.result is not None
    assert list(caught.value.result.artifacts) == ["c"]


async def test_non_json_values_are_rejected(store: LocalStore) -> None:
    for bad in ({"x": object()}, "\ud800"):
        with pytest.raises(UsageError, match="not JSON"):
            await Router(store).route(bad, capability="x")


# --- what comes beside an answer --------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-5.6c")
@pytest.mark.parametrize(
    ("data", "places"),
    [
        (None, ["document", "captured.1", "captured.2"]),
        ({"pages": 2}, ["document", "captured.1", "captured.2"]),
        ({"document": "a title"}, ["captured.0", "captured.1", "captured.2"]),
        ({"image": PNG}, ["image", "captured.0", "captured.1", "captured.2"]),
        ({"captured": [PNG]}, ["captured.0", "captured.1", "captured.2", "captured.3"]),
    ],
)
async def test_captured_outputs_get_distinct_fields_and_are_shown_to_agent(
    store: LocalStore, data: object, places: list[str]
) -> None:
    outputs = [BinaryData(PDF + bytes([n]), "application/pdf") for n in range(3)]
    assert len((await Router(NoneStore()).route({"n": 1}, capability="print", outputs=outputs * 44)).artifacts) == 132
    routed = await Router(store).route(data, capability="print", outputs=outputs, warnings=["slow"])
    assert list(routed.artifacts) == places
    seen: Any = routed.for_agent()
    assert seen["warnings"] == ["slow"]
    assert [seen["artifacts"][place]["sha256"] for place in places[-3:]] == [
        routed.artifacts[place].sha256 for place in places[-3:]
    ]
    contents = [await store.get(ref.id) for ref in routed.artifacts.values()]
    assert contents[-3:] == [output.content for output in outputs]
    own = len(places) - 3
    assert routed.data == data if not own else "id" in json.dumps(routed.data)
    if isinstance(data, dict) and not own:
        assert routed.metadata == data
        told = json.dumps(data, separators=(",", ":"))
        assert routed.summary(max_chars=5000).endswith(f"Metadata: {told}\nWarning: slow")


async def test_failed_output_does_not_change_answer(store: LocalStore) -> None:
    bad = BinaryData(PDF, "application/pdf", size=1)
    with pytest.raises(Exception, match="declared 1 bytes") as caught:
        await Router(store).route({"pages": 2, "image": PNG}, capability="print", outputs=[bad])
    result = getattr(caught.value, "result", None)
    assert result is not None
    assert list(result.artifacts) == ["image"]
    assert result.data == {"pages": 2, "image": result.artifacts["image"].as_dict()}


@pytest.mark.requirement("R0-6a", "R0-11b")
async def test_type_and_size_beside_content_of_its_own_field_are_no_metadata(store: LocalStore) -> None:
    answer = {"pdf": base64.b64encode(PDF).decode(), "mimeType": "application/pdf", "size": len(PDF), "pageCount": 12}
    routed = await Router(store).route(answer, capability="export.pdf")
    assert await store.get(routed.artifacts["pdf"].id) == PDF and routed.metadata == {"pageCount": 12}
    nested = await Router(store).route({"inner": answer, "mimeType": "is data"}, capability="x")
    assert nested.metadata == {"mimeType": "is data"}


# --- the summary ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-5.5a")
async def test_summary_respects_max_chars(store: LocalStore) -> None:
    routed = await Router(store).route({"document": PDF, "note": "é" * 5000}, capability="x")
    for limit in (1, 40, 1000):
        assert len(routed.summary(max_chars=limit)) == limit
        assert routed.summary(max_chars=limit).endswith("…")
    assert len(routed.summary()) == 1000
    assert "…" not in routed.summary(max_chars=10_000)
    assert routed.summary().startswith(f"File saved: {routed.artifacts['document'].path}\n")
    assert routed.small_answer() is None


async def test_small_answer_is_inlined_in_summary(store: LocalStore) -> None:
    routed = await Router(store).route({"imported": 5, "names": ["é"]}, capability="import.run")
    kept = f"Output saved to file: {routed.artifacts[''].path}"
    assert routed.summary() == f'{{"imported": 5, "names": ["é"]}}\n{kept}'
    assert routed.summary(with_answer=False) == kept
    assert routed.small_answer() == '{"imported": 5, "names": ["é"]}'
    unkept = await Router(NoneStore()).route({"imported": 5}, capability="import.run")
    assert unkept.summary() == '{"imported": 5}\nOutput not stored: no artifact store is configured'
    data = {"a": PDF, "b": PNG}
    several = await Router(store).route(data, capability="x")
    assert data == {"a": PDF, "b": PNG}  # the answer itself is not changed
    assert several.summary().splitlines() == [
        *(f"File saved: {several.artifacts['a'].path}", "Type: application/pdf", f"Size: {len(PDF)} bytes"),
        *(f"File saved: {several.artifacts['b'].path}", "Type: image/png", f"Size: {len(PNG)} bytes"),
    ]


@pytest.mark.parametrize(("chars", "limit", "shown"), [(498, 1000, True), (499, 1000, False)])
async def test_answer_over_summary_limit_shows_only_its_size(
    chars: int, limit: int, shown: bool, store: LocalStore
) -> None:
    routed = await Router(store).route("é" * chars, capability="x")
    lines = routed.summary(max_chars=limit).splitlines()
    assert (lines[0].startswith('"ééé'), f"Size: {chars + 2} characters" in lines) == (shown, not shown)


@pytest.mark.parametrize("rows", [1, 5000])
async def test_artifact_is_found_regardless_of_other_data_size(store: LocalStore, rows: int) -> None:
    result = await Router(store).route({"image": PNG, "note": "x" * 4 * rows, "rows": [*range(rows)]}, capability="x")
    assert len(result.artifacts) == (1 if rows == 1 else 3)
    assert result.artifact() is result.artifacts["image"] is result.artifact("image")
    plain = await Router(store).route({"note": "x" * 4 * rows, "rows": [*range(rows)]}, capability="x")
    assert plain.artifact() is plain.artifacts[""] is plain.artifact("")


async def test_ambiguous_artifact_error_names_places(store: LocalStore) -> None:
    result = await Router(store).route({"pages": [PNG, PNG + b"2"]}, capability="export.pages")
    with pytest.raises(UsageError) as caught:
        result.artifact()
    assert caught.value.message == (
        "export.pages: there are 2 artifacts; name one by its place; places with an artifact: 'pages.0', 'pages.1'"
    )
    assert caught.value.details == {"places": ["pages.0", "pages.1"]}
    assert result.artifact("pages.1") is result.artifacts["pages.1"]


@pytest.mark.parametrize("field", ["9" * 5000, "٠", "00", "1"])
def test_field_that_is_no_place_of_data_is_ignored(field: str) -> None:
    data: JSONValue = [{"uri": "artifact://a"}]
    result = Result("x", data, {}, inline_fields=frozenset({field}))
    assert result.without_keys({"uri"}).data == data


# --- references that are made only when somebody looks ---------------------------------------------------------------

DATA = {"ok": True, "names": ["é", "b"]}


async def test_lazily_made_reference_equals_stored_one(caplog: pytest.LogCaptureFixture) -> None:
    store, source = NoneStore(), {"app": "memory", "call": "c1", "token": "secret"}
    result = await Router(store).route(DATA, capability="small", source=source)
    assert [record.name for record in caplog.records] == ["transports.artifacts"]
    eager = await store.put_bytes(
        json.dumps(DATA, ensure_ascii=False, separators=(",", ":")).encode(),
        mime_type="application/json",
        namespace="small",
        meta={"capability": "small", **source},
    )
    made = result.artifacts[""]
    same_time = {"created": eager.source["created"]}
    assert replace(made, filename="", source={**made.source, **same_time}) == replace(eager, filename="")
    assert made.source["created"] <= eager.source["created"]  # type: ignore[operator]
    assert made is result.artifacts[""] and result.artifact() is made
    assert dict(result.artifacts) == {"": made} == result.artifacts and len(result.artifacts) == 1
    with pytest.raises(KeyError):
        result.artifacts["document"]
    again = pickle.loads(pickle.dumps(result))
    assert again == result and type(again.artifacts) is dict
    assert repr(result.artifacts) == repr({"": made})


async def test_required_checks_and_audit_are_not_deferred() -> None:
    lines: list[str] = []
    audit = AuditLog.__new__(AuditLog)
    audit.check = lambda: None  # type: ignore[method-assign]
    audit.write = lambda action, scope, **facts: lines.append(action)  # type: ignore[method-assign]
    await Router(NoneStore(audit=audit)).route(DATA, capability="small")
    assert lines == ["put"]
    with pytest.raises(UsageError, match="JSON"):
        await Router(NoneStore()).route(DATA, capability="small", source={"app": object()})
    with pytest.raises(Exception, match="limit"):
        await Router(NoneStore(max_bytes=3)).route(DATA, capability="small")
