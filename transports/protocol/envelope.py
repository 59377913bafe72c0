"""The envelope ``{type, id?, timestamp, payload}`` as JSON text (docs/protocol.md 6.1). Reads files of parameters only.

Content in parameters becomes base64 with ``encoding: "base64"`` (docs/protocol.md 9.13).
"""

from __future__ import annotations

import re
from typing import Any

import pybase64

from ..binary import BinaryData, Encoded
from ..binary.detect import MAX_DEPTH, Place, declares_base64, replace
from ..errors import ProtocolError, UsageError
from .base64_runs import decode_run, decode_with_runs
from .messages import Message
from .strict_json import MAX_LISTED, MAX_VALUES, encode_json, is_deeper

__all__ = ["decode_envelope", "encode_envelope", "to_descriptor"]

#: What stands before content in JSON.
_KEY = re.compile(rb'"content"\s*:\s*"\Z')
#: A message that may hold an app's list of capabilities.
_LISTING = re.compile(rb'"type"\s*:\s*"(?:initialize|capabilities/list)-result"')
_ENDS = 256
#: Signs of the URL-safe alphabet and of data: URLs, which are decoded as text, with all checks.
_NOT_PLAIN_BASE64 = re.compile(rb"[-_:]")
_BYTES_CHECKED = 128 * 1024
#: Bytes of a message up to which its brackets are counted first: as many as it may have levels need no further look.
_COUNTED = 128 * 1024
#: Levels of a whole message: those of an answer, and as many for what is around and beside it. Most code that looks at
#: a message calls itself for each level.
_MAX_LEVELS = 2 * MAX_DEPTH
#: Types of ids and of timestamps.
_IDS, _TIMES = (str, int), (int, float)


def encode_envelope(message: Message) -> bytes:
    """Return the message as UTF-8 JSON.

    Files in its content are read, so call it in a thread if there are any. Raises
    :class:`~transports.errors.UsageError` for values that JSON does not have.
    """
    payload: Any = message.payload
    if message.content:
        descriptors: dict[Place, object] = {found.path: to_descriptor(found.binary) for found in message.content}
        payload = {**payload, "params": replace(payload["params"], descriptors)}
    envelope: dict[str, object] = {"type": message.type, "timestamp": message.timestamp, "payload": payload}
    if message.id is not None:
        envelope["id"] = message.id
    try:
        return encode_json(envelope)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the message cannot be written as JSON: {error}") from error


def to_descriptor(binary: object) -> dict[str, object]:
    """Return the content of a parameter as a descriptor ``{content, mimeType, encoding: "base64", size?, filename?}``
    (docs/protocol.md 9.2). Reads its file."""
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
    """Parse a message from UTF-8 JSON. Unknown fields are ignored.

    A long run of base64 stands in the payload as :class:`~transports.BinaryData` that refers to ``data`` and keeps it
    in memory (:mod:`.base64_runs`). Raises :class:`~transports.errors.ProtocolError`, also for nesting deeper than 128
    levels and for very many values (:func:`.decode_json`).
    """
    listing = len(data) > MAX_VALUES and (_LISTING.search(data[:_ENDS]) or _LISTING.search(data[-_ENDS:]))
    envelope = decode_with_runs(data, _KEY, _content, at_most=MAX_LISTED if listing else MAX_VALUES)
    if len(data) > _COUNTED or data.count(b"{") + data.count(b"[") > _MAX_LEVELS:
        _check_depth(envelope)
    if not isinstance(envelope, dict) or not isinstance(kind := envelope.get("type"), str):
        raise ProtocolError("the app sent JSON that is no envelope: it needs a type")
    identity, timestamp = envelope.get("id"), envelope.get("timestamp")
    return Message(
        kind,
        envelope.get("payload"),
        id=str(identity) if isinstance(identity, _IDS) else None,
        timestamp=int(timestamp) if isinstance(timestamp, _TIMES) else 0,
    )


def _check_depth(envelope: object) -> None:
    if is_deeper(envelope, _MAX_LEVELS):
        raise ProtocolError(f"the app sent a message that is nested deeper than {_MAX_LEVELS} levels")


def _content(node: dict[str, object], _: str, run: memoryview) -> object:
    """Return a run as content where the fields beside it declare base64 (docs/protocol.md 9.2), else as text."""
    declared = declares_base64(node.get("mimeType"), node.get("encoding"))
    plain = declared and _NOT_PLAIN_BASE64.search(run[:_BYTES_CHECKED]) is None
    return BinaryData(Encoded(run, "base64")) if plain else decode_run(run)
