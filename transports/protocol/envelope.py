"""The envelope ``{type, id?, timestamp, payload}`` as JSON text (PROTOCOL "Envelope"). No I/O.

Content in parameters becomes base64 with ``encoding: "base64"`` (seed 001 "WebSocket Transport").
"""

from __future__ import annotations

import re
from typing import Any

import pybase64

from ..binary import BinaryData, Encoded
from ..binary.detect import Place, declares_base64, replace
from ..errors import ProtocolError, UsageError
from .base64_runs import decode_with_runs, text_of
from .messages import Message, encode_json

__all__ = ["decode_envelope", "described", "encode_envelope"]

_KEY = re.compile(rb'"content"\s*:\s*"\Z')
#: The URL-safe alphabet and data: URLs are for the careful way.
_OTHERWISE = re.compile(rb"[-_:]")
_LOOKED_AT = 128 * 1024


def encode_envelope(message: Message) -> bytes:
    """The message as UTF-8 JSON; reads files in its content, so large ones want a thread. Raises
    :class:`~transports.errors.UsageError` for values that are no JSON."""
    payload: Any = message.payload
    if message.content:
        descriptors: dict[Place, object] = {found.path: described(found.binary) for found in message.content}
        payload = {**payload, "params": replace(payload["params"], descriptors)}
    envelope: dict[str, object] = {"type": message.type, "timestamp": message.timestamp, "payload": payload}
    if message.id is not None:
        envelope["id"] = message.id
    try:
        return encode_json(envelope)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the message cannot be written as JSON: {error}") from error


def described(binary: object) -> dict[str, object]:
    """Content of a parameter as a descriptor with base64 in it; reads its file."""
    assert isinstance(binary, BinaryData)
    if isinstance(binary.content, Encoded) and binary.content.encoding == "base64":
        content = binary.content.text
    else:
        content = pybase64.b64encode(b"".join(binary.chunks())).decode()
    descriptor: dict[str, object] = {
        **binary.extra,
        "content": content,
        "mimeType": binary.mime_type or "application/octet-stream",
        "encoding": "base64",
    }
    if binary.size is not None:
        descriptor["size"] = binary.size
    if binary.filename:
        descriptor["filename"] = binary.filename
    return descriptor


def decode_envelope(data: bytes) -> Message:
    """A message from UTF-8 JSON. Fields that are not known are ignored. Raises
    :class:`~transports.errors.ProtocolError`.

    A long run of base64 stands in the payload as content that refers to ``data`` (:mod:`.base64_runs`).
    """
    envelope = decode_with_runs(data, _KEY, _content)
    if not isinstance(envelope, dict) or not isinstance(kind := envelope.get("type"), str):
        raise ProtocolError("the app sent JSON that is no envelope: it needs a type")
    identity, timestamp = envelope.get("id"), envelope.get("timestamp")
    return Message(
        kind,
        envelope.get("payload"),
        id=str(identity) if isinstance(identity, str | int) else None,
        timestamp=int(timestamp) if isinstance(timestamp, int | float) else 0,
    )


def _content(node: dict[str, object], _: str, run: memoryview) -> object:
    """A run as content where its description says so (seed 000), else as text."""
    described = declares_base64(node.get("mimeType"), node.get("encoding"))
    plain = described and _OTHERWISE.search(run[:_LOOKED_AT]) is None
    return BinaryData(Encoded(run, "base64")) if plain else text_of(run)
