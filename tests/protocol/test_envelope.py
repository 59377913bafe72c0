"""Envelopes as JSON text (docs/protocol.md 6, 9.13)."""

from __future__ import annotations

import base64
import gc
import json
import random
from typing import Any

import pytest

from tests.support.rows import each_row
from transports.errors import BadEncoding, ProtocolError, UsageError
from transports.protocol._params import prepare_params
from transports.protocol.binary import BinaryData, Encoded
from transports.protocol.messages import Message
from transports.websocket.envelope import decode_envelope, encode_envelope


@pytest.mark.requirement("R6-8a")
def test_an_envelope_has_the_documented_fields() -> None:
    written = json.loads(encode_envelope(Message("initialize", {"a": 1}, id="x", timestamp=5)))
    assert written == {"type": "initialize", "id": "x", "timestamp": 5, "payload": {"a": 1}}
    assert "id" not in json.loads(encode_envelope(Message("shutdown", {})))
    with pytest.raises(UsageError, match="JSON"):
        encode_envelope(Message("initialize", {"a": object()}))


@pytest.mark.requirement("R1-2b", "R1-11a")
def test_binary_params_are_sent_as_base64_with_descriptor() -> None:
    named = BinaryData(b"\x00\xff", "image/png", 2, "a.png", {"width": 1})
    bare = BinaryData(Encoded("AAE=", "base64"))
    params, content = prepare_params({"image": named, "list": [bare], "n": 1})
    payload = {"capability": "x", "params": params, "options": {}}
    written = json.loads(encode_envelope(Message("capabilities/call", payload, content=content)))["payload"]["params"]
    described = {"content": "AP8=", "mimeType": "image/png", "encoding": "base64", "size": 2, "filename": "a.png"}
    assert written["image"] == {**described, "width": 1}
    assert base64.b64decode(written["list"][0]["content"]) == b"\x00\x01"
    assert written["n"] == 1


def test_envelope_ignores_unknown_fields_and_accepts_numeric_ids() -> None:
    message = decode_envelope(b'{"type":"progress","id":7,"timestamp":1.5,"payload":{"a":1},"new":true}')
    assert (message.type, message.id, message.timestamp, message.payload) == ("progress", "7", 1, {"a": 1})
    bare = decode_envelope(b'{"type":"x","id":null,"timestamp":"now"}')
    assert (bare.id, bare.timestamp, bare.payload) == (None, 0, None)


_LONG_JUNK = b'{"type":"x","payload":{"content":"' + b"\xff" * 400_000 + b'","mimeType":"text/plain"}}'


@each_row(
    "data", [b"junk", b"[]", b"{}", b'{"type":1}', b"null", b'{"type":"x","payload":NaN}', b"\xff\xfe", _LONG_JUNK]
)
def test_non_envelope_json_raises_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_envelope(data)


def large(content: str, **described: object) -> tuple[object, bytes]:
    """What becomes of a message whose ``data.file`` has this content: the content, and the message."""
    payload = {"success": True, "data": {"file": {"content": content, **described}, "n": [1, {"content": "short"}]}}
    data = json.dumps({"type": "capabilities/call-result", "id": "1", "payload": payload}, ensure_ascii=False).encode()
    answer: Any = decode_envelope(data).payload
    assert answer["success"] is True and answer["data"]["n"] == [1, {"content": "short"}]
    assert {key: value for key, value in answer["data"]["file"].items() if key != "content"} == described
    return answer["data"]["file"]["content"], data


@pytest.mark.requirement("R1-9b")
@each_row("size", [96 * 1024, 1_000_001])  # the first has 128 KiB of base64
@each_row("described", [{"mimeType": "a/b"}, {"mimeType": "text/html", "encoding": "base64"}])
def test_long_content_is_referenced_not_copied(size: int, described: dict[str, object]) -> None:
    raw = random.Random(size).randbytes(size)
    content, data = large(base64.b64encode(raw).decode(), **described)
    assert isinstance(content, BinaryData) and isinstance(content.content, Encoded)
    assert isinstance(content.content.text, memoryview) and content.content.text.obj == data
    assert content.read() == raw
    shorter = base64.b64encode(bytes(96 * 1024 - 3)).decode()
    assert large(shorter, **described)[0] == shorter


def test_foreign_alphabet_is_detected_in_first_128_kib() -> None:
    for sign_at, kind in ((128 * 1024 - 1, str), (128 * 1024, BinaryData)):  # the second is an error when it is decoded
        text = "A" * sign_at + "-" + "A" * (256 * 1024 - sign_at - 1)
        assert isinstance(large(text, mimeType="image/png")[0], kind)


def test_escapes_around_long_content_do_not_affect_it() -> None:
    for size in (200_000, 5 << 20):  # what is searched at a time is between the two
        content = base64.b64encode(bytes(size)).decode()
        payload = {"before": 'say "hi"', "content": content, "mimeType": "image/png", "after": 'and "bye"'}
        answer: Any = decode_envelope(json.dumps({"type": "x", "payload": payload}).encode()).payload
        assert isinstance(answer["content"], BinaryData)
        assert {**answer, "content": content} == payload
    encoded = base64.b64encode(random.Random(1).randbytes(300_000)).decode()
    escaped = json.dumps({"type": "x", "payload": {"content": encoded, "mimeType": "a/b"}}).replace("/", "\\/")
    answer = decode_envelope(escaped.encode()).payload
    assert answer["content"] == encoded


def test_many_long_contents_in_one_message_keep_positions() -> None:
    pages = [{"content": base64.b64encode(bytes([n]) * 300_000).decode(), "mimeType": "image/png"} for n in range(5)]
    data = json.dumps({"type": "x", "payload": {"pages": pages, "filler": ["a", 'b"c'] * 50_000}}).encode()
    answer: Any = decode_envelope(data).payload
    assert [page["content"].read() for page in answer["pages"]] == [bytes([n]) * 300_000 for n in range(5)]
    assert answer["filler"] == ["a", 'b"c'] * 50_000


@each_row(
    ("content", "described"),
    [
        ("A" * 400_000, {"mimeType": "text/plain"}),  # plain data, by docs/protocol.md 9.2
        ("A" * 400_000, {}),
        ("prose " * 80_000, {"mimeType": "text/html", "encoding": "utf-8"}),
        ("ä" * 400_000, {"mimeType": "text/plain"}),
        ("-_Aa" * 100_000, {"mimeType": "a/b"}),  # URL-safe: for the careful way
        ("AAA" * 100_001, {"mimeType": "a/b"}),  # no padding: likewise
        ("<svg>" + "<g/>" * 100_000 + "</svg> ", {"mimeType": "image/svg+xml"}),  # text of a textual type
        ("data:a/b;base64," + "AAAA" * 100_000, {"mimeType": "a/b", "encoding": "base64"}),
        ('say "hi"\\n' * 40_000, {"mimeType": "a/b"}),
    ],
)
def test_long_text_of_other_kinds_stays_text(content: str, described: dict[str, object]) -> None:
    assert large(content, **described)[0] == content


@pytest.mark.parametrize("text", ["A" * 400_000 + "!!!!", "A" * (4 << 20) + "AA==" + "AAAA" * 4])
def test_invalid_long_base64_raises_bad_encoding(text: str) -> None:
    content, _ = large(text, mimeType="a/b")
    assert isinstance(content, BinaryData)
    with pytest.raises(BadEncoding):
        content.read()


def test_decoding_restores_gc_state() -> None:
    data = json.dumps({"type": "x", "payload": "x" * 100_000}).encode()
    assert gc.isenabled()
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            decode_envelope(data)
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


@pytest.mark.fault(21)
@pytest.mark.parametrize("extra", ["", ', "a": {"content": "' + "A" * 200_000 + '"}'])
def test_message_over_128_levels_is_rejected(extra: str) -> None:
    def message(levels: int) -> bytes:
        return f'{{"type": "x", "payload": {"[" * levels}{"]" * levels}{extra}}}'.encode()

    assert decode_envelope(message(127)).type == "x"
    for levels in (128, 599):
        with pytest.raises(ProtocolError, match="128 levels"):
            decode_envelope(message(levels))
