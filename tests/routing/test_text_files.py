"""Text that an app declares as a file becomes one, and stays readable in the answer."""

import pickle
from typing import cast

import pytest

from transports import LocalStore, NoneStore, Router
from transports.errors import BadEncoding, BinaryError, SizeMismatch
from transports.protocol.binary import BinaryData, Encoded
from transports.routing import AgentLimits, FieldRule, RoutingPolicy

HELLO = {"content": "héllo 世界", "mimeType": "text/plain", "encoding": "utf-8", "size": 13}


def node(data: object, *steps: str | int) -> dict[str, object]:
    for step in steps:
        data = data[step]  # type: ignore[index]
    return cast("dict[str, object]", data)


def page(characters: int, **more: object) -> dict[str, object]:
    return {"content": "x" * characters, "mimeType": "text/html", "encoding": "utf-8", **more}


async def test_declared_text_is_stored_with_its_type_and_name(store: LocalStore) -> None:
    routed = await Router(store).route({"document": {**HELLO, "filename": "greeting.txt"}, "n": 1}, capability="x")
    assert list(routed.artifacts) == ["document"]
    ref = routed.artifacts["document"]
    assert (ref.mime_type, ref.filename, ref.size_bytes) == ("text/plain", "greeting.txt", 13)
    assert await store.get(ref.id) == "héllo 世界".encode()
    assert routed.data == {"document": {**ref.as_dict(), "text": "héllo 世界"}, "n": 1}
    assert routed.metadata == {"n": 1}
    assert "Type: text/plain\nSize: 13 bytes" in routed.summary()


async def test_whole_answer_text_is_stored_as_file(store: LocalStore) -> None:
    json = {"content": "[1]", "mimeType": "application/json", "filename": "list.json"}
    routed = await Router(store).route(json, capability="x")
    assert await store.get(routed.artifact().id) == b"[1]"
    assert node(routed.data)["text"] == "[1]" and list(routed.artifacts) == [""]
    assert routed.summary().startswith("File saved: ") and "Size: 3 bytes" in routed.summary()
    answer = {"pages": [{"html": page(3, pages=2, text="of the app")}]}
    reference = node((await Router(store).route(answer, capability="x")).data, "pages", 0, "html")
    assert reference["text"] == "xxx" and reference["metadata"] == {"pages": 2, "text": "of the app"}
    table = {"content": "YSxi", "mimeType": "text/csv", "encoding": "base64", "size": 3}
    routed = await Router(store).route({"table": table}, capability="x")
    assert "text" not in node(routed.data, "table") and await store.get(routed.artifact().id) == b"a,b"


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"size": 8}, SizeMismatch, "declared 8 bytes and 13 arrived"),
        ({"content": "a\ud834", "size": 4}, BadEncoding, "surrogate"),
    ],
)
async def test_text_contradicting_its_declaration_is_not_stored(
    store: LocalStore, wrong: dict[str, object], error: type[BinaryError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        await Router(store).route({"good": HELLO, "bad": {**HELLO, **wrong}}, capability="x")
    assert caught.value.result is not None and [*caught.value.result.artifacts] == ["good"]
    assert node(caught.value.result.data, "good")["text"] == "héllo 世界"
    assert node(caught.value.result.data, "bad").keys() == {"error"}


async def test_text_of_other_layers_has_no_inline_text(store: LocalStore) -> None:
    policy = RoutingPolicy(tool_fields={"*": [FieldRule("log", "text/plain", encoding="utf-8")]})
    copied = BinaryData(Encoded("copied", "utf-8"), "text/plain")
    routed = await Router(store, policy=policy).route({"log": "one line"}, capability="x", outputs=[copied])
    assert routed.data == {"log": routed.artifacts["log"].as_dict()}
    assert await store.get(routed.artifacts["captured.0"].id) == b"copied"


async def test_long_text_is_stored_once_and_agent_sees_its_start(store: LocalStore) -> None:
    routed = await Router(store).route({"document": page(20_000)}, capability="x")
    assert list(routed.artifacts) == ["document"]
    assert node(routed.data, "document")["text"] == "x" * 20_000
    assert node(routed.for_agent(), "data", "document")["text"] == "x" * 200 + "…"
    policy = RoutingPolicy(max_inline_chars=None, agent=AgentLimits(max_field_chars=None))
    unlimited = await Router(store, policy=policy).route({"document": page(20_000)}, capability="x")
    assert node(unlimited.for_agent(), "data", "document")["text"] == "x" * 20_000
    routed = await Router(store).route({"document": page(200_000)}, capability="x")
    text = str(node(routed.data, "document")["text"])
    assert len(text.encode()) <= 50_000 and text.endswith(" chars]") and text.startswith("x" * 49_000)
    assert await store.get(routed.artifact().id) == b"x" * 200_000


async def test_no_inline_text_beside_reference_when_inline_data_is_off(store: LocalStore) -> None:
    policy = RoutingPolicy(inline_data=False)
    answer = {"a.b": HELLO, "pages": [HELLO, {"n": 1, "text": "kept"}], "long": page(20_000)}
    routed = await Router(store, policy=policy).route(answer, capability="x")
    assert sorted(routed.artifacts) == ["a\\.b", "long", "pages.0"]
    for shown in (routed.data, routed.for_agent()["data"]):
        assert "text" not in node(shown, "a.b") and "text" not in node(shown, "pages", 0)
        assert "text" not in node(shown, "long") and node(shown, "pages", 1)["text"] == "kept"
    whole = await Router(store, policy=policy).route(HELLO, capability="x")
    assert whole.data == whole.artifact().as_dict()
    assert whole.summary().startswith(f"File saved: {whole.artifact().path}\nType: text/plain\n")


@pytest.mark.parametrize("key", ["$doc", "$.a", "*", "a.b", "a\\"])
async def test_unusual_keys_lead_to_their_references(store: LocalStore, key: str) -> None:
    routed = await Router(store).route({key: HELLO, "n": 1}, capability="x")
    assert "text" in node(routed.data, key)
    assert "text" not in node(routed.by_reference().data, key)


async def test_long_texts_beside_reference_answer_become_files(store: LocalStore) -> None:
    router = Router(store, policy=RoutingPolicy(inline_data=False))
    routed = await router.route({"html": "<h1>é" + "x" * 1218}, capability="convert.markdownToHtml")
    assert routed.summary() == f"Output saved to file: {routed.artifact().path}\nSize: 1234 characters"
    routed = await router.route({"log": "x" * 20_000}, capability="x")
    assert routed.data == routed.artifacts[""].as_dict() and list(routed.artifacts) == ["log", ""]
    assert routed.artifact() == routed.artifacts[""] and pickle.loads(pickle.dumps(routed)) == routed
    assert set(routed.for_agent()) == {"data", "artifacts"}
    for answer, data in (({"n": 1}, {"n": 1}), (None, None)):  # what is not stored stays
        routed = await Router(NoneStore(), policy=RoutingPolicy(inline_data=False)).route(answer, capability="x")
        assert routed.data == data
    assert routed.summary() == "The app answered without data."


#: Files as programs read them that take an answer for text: bytes that are not UTF-8 became U+FFFD.
DECODED = [
    (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", "application/pdf"),
    (b"PK\x03\x04\x14\x00\x08\x08\x08\x00\xe9", "application/zip"),
    (b"GIF89a\x01\x00\x01\x00\x80\xff", "image/gif"),
    (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/png"),
    (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "image/jpeg"),
    (b"\x1f\x8b\x08\x00\x00", "application/gzip"),
]


@pytest.mark.parametrize(("head", "mime_type"), DECODED, ids=[mime_type for _, mime_type in DECODED])
async def test_file_decoded_as_text_is_a_warning_and_an_error_where_declared(
    store: LocalStore, head: bytes, mime_type: str
) -> None:
    text = (head + bytes(range(256)) * 8).decode(errors="replace")
    reason = f"a file ({mime_type}) that was decoded as text, which lost some of its bytes; the app must"
    for answer, place in (({"report": [text]}, "report.0"), (text, "the answer")):
        routed = await Router(store).route(answer, capability="x")
        assert routed.data == answer
        (warning,) = routed.warnings
        assert warning.startswith(f"{place}: {reason}")

    for encoding in ({}, {"encoding": "utf-8"}):
        with pytest.raises(BadEncoding) as caught:
            await Router(store).route({"report": {"content": text, "mimeType": mime_type, **encoding}}, capability="x")
        assert reason in str(caught.value) and caught.value.details["field"] == "report"


async def test_text_about_files_is_no_file_decoded_as_text(store: LocalStore) -> None:
    for text in ("%PDF- is how a PDF begins. " * 100, "A \ufffd in the text, not %PDF-. " * 100, "GIF8 " * 400):
        assert (await Router(store).route({"text": text}, capability="x")).warnings == ()
