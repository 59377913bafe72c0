"""Encoding and decoding of the envelope ``{type, id?, timestamp, payload}`` as JSON text (docs/protocol.md 6.1).

Content in parameters becomes base64 with ``encoding: "base64"`` (docs/protocol.md 9.13). Long runs of base64 in a
message bypass the JSON parser (:func:`decode_with_runs`): with them an answer with a file of 5 MB takes 23 ms instead
of 31 ms, and one of 60 MB holds the event loop for 7 ms instead of 60 ms. The only I/O is reading the files of
parameters.
"""

from __future__ import annotations

import re
import secrets
from codecs import BOM_UTF8
from collections.abc import Callable
from typing import Any, TypeAlias

import pybase64

from ..errors import ProtocolError, UsageError
from ..protocol._find_content import MAX_DEPTH, Place, declares_base64, replace_values
from ..protocol._strict_json import MAX_JSON_DEPTH, MAX_LISTED, MAX_VALUES, decode_json, encode_json, objects_in
from ..protocol.binary import BinaryData, Encoded
from ..protocol.messages import Message

__all__ = ["RunHandler", "decode_envelope", "decode_run", "decode_with_runs", "encode_envelope", "to_descriptor"]

#: Minimum length of a run in bytes. Shorter texts cost less to parse than to extract.
_SHORTEST_RUN = 128 * 1024

#: Function that returns the replacement of a run, given the object that holds it, its key there, and the run.
RunHandler: TypeAlias = "Callable[[dict[str, object], str, memoryview], object]"
#: End of the JSON before content.
_CONTENT_KEY = re.compile(rb'"content"\s*:\s*"\Z')
#: Type of a message that may hold an app's list of capabilities.
_LISTING = re.compile(rb'"type"\s*:\s*"(?:initialize|capabilities/list)-result"')
#: Characters of the URL-safe alphabet and of data: URLs. Such texts are decoded later, with all checks.
_NOT_PLAIN_BASE64 = re.compile(rb"[-_:]")


def decode_with_runs(
    data: bytes,
    key: re.Pattern[bytes],
    on_run: RunHandler,
    *,
    max_values: int = MAX_VALUES,
    max_levels: int = MAX_JSON_DEPTH,
) -> object:
    """Parse UTF-8 JSON, passing long runs of base64 to ``on_run`` as views of ``data``.

    A text is a run if it has 128 KiB or more, no escapes and a valid length for base64, and if ``key`` matches the end
    of the JSON before it. Raises :class:`~transports.errors.ProtocolError`.
    """
    if len(data) <= _SHORTEST_RUN:
        return decode_json(data, max_values=max_values, max_levels=max_levels)
    # Unguessable, so that an app cannot forge one.
    marker = secrets.token_hex(16)
    text, runs = _take_runs_out(data, key, marker)
    tree = decode_json(text, max_values=max_values, max_levels=max_levels)
    if runs:
        _put_runs_back(tree, marker, runs, on_run)
    return tree


def decode_run(run: memoryview) -> str:
    try:
        return str(run, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("the app sent text that is not valid UTF-8") from error


def _take_runs_out(data: bytes, key: re.Pattern[bytes], marker: str) -> tuple[bytes, list[memoryview]]:
    """Each run is replaced by ``marker`` and its number."""
    runs: list[memoryview] = []
    parts: list[bytes] = []
    copied = 0
    start = 0
    while start + _SHORTEST_RUN < len(data):
        # A run is longer than this window, so it cannot begin before a quotation mark in the window.
        quote = data.rfind(b'"', start, start + _SHORTEST_RUN)
        if quote >= 0:
            start = quote + 1
            continue
        end = data.find(b'"', start)
        if end < 0:
            break

        has_escapes = data.find(b"\\", start, end) >= 0
        is_base64_length = (end - start) % 4 == 0
        # 40 bytes are enough for the key, and bound the search.
        if is_base64_length and not has_escapes and key.search(data, max(start - 40, 0), start):
            parts += [data[copied:start], f"{marker}{len(runs)}".encode()]
            runs.append(memoryview(data)[start:end])
            copied = end
        start = end + 1
    return b"".join([*parts, data[copied:]]), runs


def _put_runs_back(tree: object, marker: str, runs: list[memoryview], on_run: RunHandler) -> None:
    for node in objects_in(tree):
        for key, value in node.items():
            if isinstance(value, str) and value.startswith(marker):
                number = int(value.removeprefix(marker))
                node[key] = on_run(node, key, runs[number])


def encode_envelope(message: Message) -> bytes:
    """Return the message as UTF-8 JSON.

    Files in its content are read, so call it in a thread if there are any. Raises
    :class:`~transports.errors.UsageError` for values that JSON does not have.
    """
    payload: Any = message.payload
    if message.content:
        descriptors: dict[Place, object] = {item.path: to_descriptor(item.binary) for item in message.content}
        payload = {**payload, "params": replace_values(payload["params"], descriptors)}

    envelope: dict[str, object] = {"type": message.type, "timestamp": message.timestamp, "payload": payload}
    if message.id is not None:
        envelope["id"] = message.id
    try:
        return encode_json(envelope)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the message cannot be written as JSON: {error}") from error


def to_descriptor(binary: object) -> dict[str, object]:
    """Return ``{content, mimeType, encoding: "base64", …}`` (docs/protocol.md 9.2). Reads the file of the content."""
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
    """Parse a message from UTF-8 JSON, perhaps after a byte order mark. Unknown fields are ignored.

    A long run of base64 becomes :class:`~transports.BinaryData` that refers to ``data`` and keeps it in memory
    (:func:`decode_with_runs`). Raises :class:`~transports.errors.ProtocolError`, also for nesting deeper than 128
    levels and for very many values (:func:`.decode_json`).
    """
    max_values = MAX_LISTED if _is_listing(data) else MAX_VALUES
    # Those of an answer, and as many for the rest. Most code that walks a message recurses.
    max_levels = 2 * MAX_DEPTH
    text = data.removeprefix(BOM_UTF8)
    envelope = decode_with_runs(text, _CONTENT_KEY, _content_of_run, max_values=max_values, max_levels=max_levels)
    if not isinstance(envelope, dict) or not isinstance(envelope.get("type"), str):
        raise ProtocolError("the app sent JSON that is not an envelope: it needs a type")

    message_id = envelope.get("id")
    timestamp = envelope.get("timestamp")
    return Message(
        envelope["type"],
        envelope.get("payload"),
        id=str(message_id) if isinstance(message_id, str | int) else None,
        timestamp=int(timestamp) if isinstance(timestamp, int | float) else 0,
    )


def _is_listing(data: bytes) -> bool:
    """The type is near the beginning or the end of a message."""
    # Each value takes a byte at least, so a short message needs no higher limit.
    if len(data) <= MAX_VALUES:
        return False
    return bool(_LISTING.search(data[:256]) or _LISTING.search(data[-256:]))


def _content_of_run(node: dict[str, object], _: str, run: memoryview) -> object:
    """A run is content if the fields beside it declare base64 (docs/protocol.md 9.2), otherwise text."""
    is_declared = declares_base64(node.get("mimeType"), node.get("encoding"))
    if is_declared and _NOT_PLAIN_BASE64.search(run[:_SHORTEST_RUN]) is None:
        return BinaryData(Encoded(run, "base64"))
    return decode_run(run)
