"""Parameters of a call: files and buffers in them become :class:`~transports.BinaryData`, the rest must be JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .data import BinaryData
from .detect import DESCRIPTOR_KEYS, MAX_DEPTH, Found, Place

__all__ = ["prepare_params", "set_path"]

_INDEX = re.compile(r"[0-9]{1,9}")


def prepare_params(params: object) -> tuple[object, list[Found]]:
    """Return a copy of ``params`` in which every ``bytes``, ``Path`` or :class:`BinaryData` is a :class:`BinaryData`,
    and the places of these.

    ``{"content": b"…", "mimeType": "image/png"}`` is one binary: the descriptor and its content together. What the
    descriptor says goes before what the content says of itself.

    Raises :class:`~transports.errors.UsageError` for a file that cannot be read, a value that is no JSON, and nesting
    deeper than :data:`~transports.binary.detect.MAX_DEPTH`, the limit for answers too.
    """
    found: list[Found] = []
    return _prepare(params, (), found), found


def set_path(params: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Set the value at a path of ``params``, in place.

    Objects that are missing on the way are made. In a list, a step is the index of an item, or of the next one to
    append. Raises :class:`~transports.errors.UsageError` if a step leads into a value that is neither.
    """
    inner: Any = params
    for count, step in enumerate(path, 1):
        at: Any = step
        if isinstance(inner, list) and _INDEX.fullmatch(step) and int(step) <= len(inner):
            at = int(step)
            inner += [{}] if at == len(inner) else []
        elif isinstance(inner, dict):
            inner.setdefault(step, {})
        else:
            conflict = f"{path[count - 2]!r} already has a value that is no object"
            raise UsageError(f"{'.'.join(path)}: {conflict}; give the whole at once")
        if count == len(path):
            inner[at] = value
        inner = inner[at]


def _prepare(node: object, path: Place, found: list[Found]) -> object:
    match node:
        case None | bool() | int():
            return node
        case str():
            return _text(node, path)
        case float():
            if not math.isfinite(node):
                raise UsageError(f"params: {node} at {_dotted(path)} is no JSON value")
            return node
        case dict() | list() | tuple() if len(path) >= MAX_DEPTH:
            raise UsageError(f"params are nested deeper than {MAX_DEPTH} levels at {_dotted(path[:6])}…")
        case dict():
            binary = _described(node, path)
            if binary is None:
                return {_text(key, path): _prepare(value, (*path, key), found) for key, value in node.items()}
        case list() | tuple():
            return [_prepare(value, (*path, index), found) for index, value in enumerate(node)]
        case _:
            binary = _content(node)
            if binary is None:
                raise UsageError(
                    f"params: {type(node).__name__} at {_dotted(path)} cannot be sent; "
                    "use JSON values, bytes, pathlib.Path or BinaryData"
                )
    found.append(Found(path, binary))
    return binary


def _described(node: dict[object, object], path: Place) -> BinaryData | None:
    """The content of a descriptor, or ``None`` if ``node`` is no descriptor."""
    mime_type, filename = node.get("mimeType"), node.get("filename")
    if not isinstance(mime_type, str) or (raw := _content(node.get("content"))) is None:
        return None
    inner: list[Found] = []
    extra = _prepare({key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS}, path, inner)
    if inner or not isinstance(extra, dict):
        raise UsageError(f"params: the binary at {_dotted(path)} holds another one beside its content")
    filename = filename if isinstance(filename, str) else raw.filename
    return BinaryData(raw.content, mime_type, raw.size, filename, {**raw.extra, **extra})


def _content(node: object) -> BinaryData | None:
    match node:
        case BinaryData():
            return node
        case bytes() | bytearray() | memoryview():
            return BinaryData.from_bytes(node)
        case Path():
            return BinaryData.from_path(node)
        case _:
            return None


def _text(text: object, path: Place) -> str:
    if not isinstance(text, str):
        raise UsageError(f"params: the key {text!r} at {_dotted(path)} must be text")
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"params: the text at {_dotted(path)} holds half of a surrogate pair") from None
    return text


def _dotted(path: Place) -> str:
    return ".".join(map(str, path)) or "the top"
