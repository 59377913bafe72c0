"""Content blocks of MCP (seed 002 §2.3, MCP schema 2025-11-25): ``image``, ``audio``, ``resource``, and the
``contents`` of a resource that was read. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import ABPError
from ..data import BinaryData, Encoded
from .paths import Place

__all__ = ["typed"]


def typed(node: Mapping[str, object], path: Place) -> tuple[Place, BinaryData | ABPError] | None:
    """The content of a block, and the keys that lead to it from there. A block says by its place that it is one: it
    stands in a list called ``content``, or the list is the answer. A resource is known by its URI anywhere. A
    ``resource_link`` has none: it is a pointer, which whoever wants it reads (``resources/read``)."""
    kind = node.get("type")
    if kind in ("image", "audio"):
        data = node.get("data")
        if _listed(path) and isinstance(data, str | BinaryData) and isinstance(node.get("mimeType"), str):
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
    """A transport may have taken the text out already."""
    if isinstance(value, str):
        return BinaryData(Encoded(value, "base64"), mime_type, None, filename)
    return replace(value, mime_type=mime_type or value.mime_type, filename=filename or value.filename)


def _listed(path: Place) -> bool:
    return bool(path) and isinstance(path[-1], int) and (len(path) == 1 or path[-2] in ("content", "contents"))


def _name(uri: str) -> str | None:
    """The last part of a URI, if it looks like a file's name."""
    last = uri.partition("?")[0].partition("#")[0].rpartition("/")[2]
    return last if "." in last.strip(".") else None
