"""Envelopes as JSON text (PROTOCOL "Envelope"; seed 001 "WebSocket Transport" for content)."""

from __future__ import annotations

import base64
import json

import pytest

from transports.binary import BinaryData, Encoded
from transports.envelope import decode_envelope, encode_envelope
from transports.errors import ProtocolError, UsageError
from transports.messages import Message
from transports.params import outgoing


def test_an_envelope_has_the_documented_fields() -> None:
    written = json.loads(encode_envelope(Message("initialize", {"a": 1}, id="x", timestamp=5)))
    assert written == {"type": "initialize", "id": "x", "timestamp": 5, "payload": {"a": 1}}
    assert "id" not in json.loads(encode_envelope(Message("shutdown", {})))


def test_content_becomes_base64_with_its_description() -> None:
    named = BinaryData(b"\x00\xff", "image/png", 2, "a.png", {"width": 1})
    bare = BinaryData(Encoded("AAE=", "base64"))
    params, content = outgoing({"image": named, "list": [bare], "n": 1})
    payload = {"capability": "x", "params": params, "options": {}}
    written = json.loads(encode_envelope(Message("capabilities/call", payload, content=content)))["payload"]["params"]
    described = {"content": "AP8=", "mimeType": "image/png", "encoding": "base64", "size": 2, "filename": "a.png"}
    assert written["image"] == {**described, "width": 1}
    assert base64.b64decode(written["list"][0]["content"]) == b"\x00\x01"
    assert written["n"] == 1


def test_what_is_no_json_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="JSON"):
        encode_envelope(Message("initialize", {"a": object()}))


def test_unknown_fields_are_ignored_and_numbers_are_ids() -> None:
    message = decode_envelope(b'{"type":"progress","id":7,"timestamp":1.5,"payload":{"a":1},"new":true}')
    assert (message.type, message.id, message.timestamp, message.payload) == ("progress", "7", 1, {"a": 1})
    assert decode_envelope(b'{"type":"x","id":null}').id is None


@pytest.mark.parametrize(
    "data", [b"junk", b"[]", b"{}", b'{"type":1}', b"null", b'{"type":"x","payload":NaN}', b"\xff\xfe"]
)
def test_what_is_no_envelope_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_envelope(data)
