"""Parameters on their way to the app: every file and buffer becomes a :class:`~transports.binary.BinaryData`."""

from __future__ import annotations

import math
from pathlib import Path

from .binary import BinaryData
from .detect import DESCRIPTOR_KEYS, Found, Place
from .errors import UsageError

__all__ = ["outgoing"]


def outgoing(params: object) -> tuple[object, list[Found]]:
    """Parameters with every ``bytes``, ``Path`` or :class:`BinaryData` made a :class:`BinaryData`, and where they are.

    ``{"content": b"…", "mimeType": "image/png"}`` is one binary, not a field of one.
    Raises :class:`~transports.errors.UsageError` for a file that cannot be read and for values that are no JSON.
    """
    found: list[Found] = []
    return _prepare(params, (), found), found


def _prepare(node: object, path: Place, found: list[Found]) -> object:
    binary: BinaryData | None = None
    match node:
        case None | bool() | int() | str():
            return node
        case float():
            if not math.isfinite(node):
                raise UsageError(f"params: {node} at {_dotted(path)} is no JSON value")
            return node
        case BinaryData():
            binary = node
        case bytes() | bytearray() | memoryview():
            binary = BinaryData.from_bytes(bytes(node))
        case Path():
            binary = BinaryData.from_path(node)
        case dict() if (
            isinstance(content := node.get("content"), bytes | bytearray | memoryview | Path) and "mimeType" in node
        ):
            raw = BinaryData.from_path(content) if isinstance(content, Path) else BinaryData.from_bytes(bytes(content))
            filename = node.get("filename", raw.filename)
            extra = {key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS}
            binary = BinaryData(raw.content, str(node["mimeType"]), raw.size, filename, extra)
        case dict():
            return {_text_key(key, path): _prepare(value, (*path, key), found) for key, value in node.items()}
        case list() | tuple():
            return [_prepare(value, (*path, index), found) for index, value in enumerate(node)]
        case _:
            raise UsageError(
                f"params: {type(node).__name__} at {_dotted(path)} cannot be sent; "
                "use JSON values, bytes, pathlib.Path or BinaryData"
            )
    found.append(Found(path, binary))
    return binary


def _text_key(key: object, path: Place) -> str:
    if not isinstance(key, str):
        raise UsageError(f"params: the key {key!r} at {_dotted(path)} must be text")
    return key


def _dotted(path: Place) -> str:
    return ".".join(map(str, path)) or "the top"
