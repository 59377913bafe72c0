"""The envelope ``{type, id?, timestamp, payload}`` as JSON text (PROTOCOL "Envelope"). No I/O.

Content in parameters becomes base64 with ``encoding: "base64"`` (seed 001 "WebSocket Transport").
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import pybase64

from .binary import BinaryData, Encoded
from .detect import Place, replace, surely_base64
from .errors import ProtocolError, UsageError
from .messages import Message, decode_json, encode_json

__all__ = ["decode_envelope", "encode_envelope"]

#: Text that is longer is not parsed but referred to.
_LONG = 128 * 1024
_KEY = re.compile(rb'"content"\s*:\s*"\Z')
#: The URL-safe alphabet and data: URLs are for the careful way.
_OTHERWISE = re.compile(rb"[-_:]")


def encode_envelope(message: Message) -> bytes:
    """The message as UTF-8 JSON; reads files in its content, so large ones want a thread. Raises
    :class:`~transports.errors.UsageError` for values that are no JSON."""
    payload: Any = message.payload
    if message.content:
        descriptors: dict[Place, object] = {found.path: _descriptor(found.binary) for found in message.content}
        payload = {**payload, "params": replace(payload["params"], descriptors)}
    envelope: dict[str, object] = {"type": message.type, "timestamp": message.timestamp, "payload": payload}
    if message.id is not None:
        envelope["id"] = message.id
    try:
        return encode_json(envelope)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the message cannot be written as JSON: {error}") from error


def _descriptor(binary: object) -> dict[str, object]:
    assert isinstance(binary, BinaryData)
    if isinstance(binary.content, Encoded) and binary.content.encoding == "base64":
        content = binary.content.text
    else:
        content = pybase64.b64encode(b"".join(binary.chunks())).decode()
    described: dict[str, object] = {
        **binary.extra,
        "content": content,
        "mimeType": binary.mime_type or "application/octet-stream",
        "encoding": "base64",
    }
    if binary.size is not None:
        described["size"] = binary.size
    if binary.filename:
        described["filename"] = binary.filename
    return described


def decode_envelope(data: bytes) -> Message:
    """A message from UTF-8 JSON. Fields that are not known are ignored. Raises
    :class:`~transports.errors.ProtocolError`.

    A long run of base64 is taken out before the JSON is parsed and stands in the payload as content that refers to
    ``data``: parsing would copy it, and hold Python's lock for as long as that takes (measured: 50-180 ms for 64 MB).
    """
    mark, text, runs = secrets.token_hex(16), data, list[memoryview]()
    if len(data) > _LONG:
        text, runs = _without_runs(data, mark)
    envelope = decode_json(text)
    if not isinstance(envelope, dict) or not isinstance(kind := envelope.get("type"), str):
        raise ProtocolError("the app sent JSON that is no envelope: it needs a type")
    identity, timestamp = envelope.get("id"), envelope.get("timestamp")
    return Message(
        kind,
        _with_runs(envelope.get("payload"), mark, runs) if runs else envelope.get("payload"),
        id=str(identity) if isinstance(identity, str | int) else None,
        timestamp=int(timestamp) if isinstance(timestamp, int | float) else 0,
    )


def _without_runs(data: bytes, mark: str) -> tuple[bytes, list[memoryview]]:
    """``data`` with every long text under a key ``content`` replaced by ``mark`` and its number. Only text without an
    escape is taken, so the quotation mark after it is its end."""
    runs: list[memoryview] = []
    parts: list[bytes] = []
    kept = at = 0
    while at + _LONG < len(data):
        quote = data.rfind(b'"', at, at + _LONG)
        if quote >= 0:  # a run that is longer than the window cannot begin before it
            at = quote + 1
            continue
        end = data.find(b'"', at + _LONG)
        if end < 0:
            break
        if (end - at) % 4 == 0 and _KEY.search(data, max(at - 40, 0), at) and data.find(b"\\", at, end) < 0:
            parts += [data[kept:at], f"{mark}{len(runs)}".encode()]
            runs.append(memoryview(data)[at:end])
            kept = end
        at = end + 1
    return b"".join([*parts, data[kept:]]), runs


def _with_runs(node: object, mark: str, runs: list[memoryview]) -> object:
    """The tree with its long texts back: as content where their description says so (seed 000), else as text."""
    if isinstance(node, list):
        return [_with_runs(item, mark, runs) for item in node]
    if not isinstance(node, dict):
        return node
    whole = {key: _with_runs(value, mark, runs) for key, value in node.items()}
    content = whole.get("content")
    if isinstance(content, str) and content.startswith(mark):
        run = runs[int(content[len(mark) :])]
        described = surely_base64(whole.get("mimeType"), whole.get("encoding"))
        plain = described and _OTHERWISE.search(run[:_LONG]) is None
        whole["content"] = BinaryData(Encoded(run, "base64")) if plain else _text(run)
    return whole


def _text(run: memoryview) -> str:
    try:
        return str(run, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("the app sent text that is no valid UTF-8") from error
