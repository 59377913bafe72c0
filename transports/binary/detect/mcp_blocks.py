"""Content blocks of MCP (docs/requirements.md R2-2.3, MCP schema 2025-11-25): ``image``, ``audio`` and ``resource``
blocks, and the ``contents`` of a ``resources/read`` result. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import ABPError
from ..data import BinaryData, Encoded
from .paths import Place

__all__ = ["read_block"]


def read_block(node: Mapping[str, object], path: Place) -> tuple[Place, BinaryData | ABPError] | None:
    """Return the content of a block, or its error, and the keys that lead to it from ``node``; ``None`` if ``node`` is
    no block with content.

    An ``image`` or ``audio`` block is one only in a list that is the answer, or that is called ``content`` or
    ``contents``. A resource is known anywhere by its ``uri`` and ``blob``. A ``resource_link`` has no content: it is
    read by ``resources/read``.
    """
    kind = node.get("type")
    if kind in ("image", "audio"):
        data = node.get("data")
        if _is_in_block_list(path) and isinstance(data, str | BinaryData) and isinstance(node.get("mimeType"), str):
            return ("data",), _binary(data, str(node["mimeType"]), None)
        return None
    inner, steps = (node.get("resource"), ("resource", "blob")) if kind == "resource" else (node, ("blob",))
    if not isinstance(inner, dict):
        return None
    uri, blob, mime_type = inner.get("uri"), inner.get("blob"), inner.get("mimeType")
    if not isinstance(uri, str) or not isinstance(blob, str | BinaryData):
        return None
    return steps, _binary(blob, mime_type if isinstance(mime_type, str) else None, _name(uri))


def _binary(value: str | BinaryData, mime_type: str | None, filename: str | None) -> BinaryData:
    """Content of base64 text, or of text that a transport has turned into content already."""
    if isinstance(value, str):
        return BinaryData(Encoded(value, "base64"), mime_type, None, filename)
    return replace(value, mime_type=mime_type or value.mime_type, filename=filename or value.filename)


def _is_in_block_list(path: Place) -> bool:
    return bool(path) and isinstance(path[-1], int) and (len(path) == 1 or path[-2] in ("content", "contents"))


def _name(uri: str) -> str | None:
    """The last segment of a URI, if it looks like a file name."""
    last = uri.partition("?")[0].partition("#")[0].rpartition("/")[2]
    return last if "." in last.strip(".") else None
