"""The envelope ``{type, id?, timestamp, payload}`` as JSON text (PROTOCOL "Envelope"). No I/O.

Content in parameters becomes base64 with ``encoding: "base64"`` (seed 001 "WebSocket Transport").
"""

from __future__ import annotations

from typing import Any

import pybase64

from .binary import BinaryData, Encoded
from .detect import Place, replace
from .errors import ProtocolError, UsageError
from .messages import Message, decode_json, encode_json

__all__ = ["decode_envelope", "encode_envelope"]


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
    :class:`~transports.errors.ProtocolError`."""
    envelope = decode_json(data)
    if not isinstance(envelope, dict) or not isinstance(kind := envelope.get("type"), str):
        raise ProtocolError("the app sent JSON that is no envelope: it needs a type")
    identity, timestamp = envelope.get("id"), envelope.get("timestamp")
    return Message(
        kind,
        envelope.get("payload"),
        id=str(identity) if isinstance(identity, str | int) else None,
        timestamp=int(timestamp) if isinstance(timestamp, int | float) else 0,
    )
