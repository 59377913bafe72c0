"""The flat form ``{pdf: <base64>, mimeType, size}`` (docs/protocol.md 9.5). No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import ABPError
from ..data import BinaryData, Encoded
from ..media import extension_for, is_binary_mime, normalise_mime
from .content import BASE64, content_value, decode_data_url, is_base64, is_base64_encoding, sniff_base64
from .descriptors import DESCRIPTOR_KEYS, with_declared

__all__ = ["read_flat_form"]

_GENERIC_KEYS = {"data", "base64", "bytes", "file", "blob", "buffer", "body", "binary", "document", "output", "result"}
_HEX = re.compile(r"(?=\D*\d)[0-9a-fA-F]*")  # with a digit: a run of "A" is base64 of zero bytes


def read_flat_form(node: Mapping[str, object]) -> tuple[str, BinaryData | ABPError] | None:
    """Return the key of ``node`` that holds content in the flat form, and the content or its error; ``None`` if there
    is none.

    The type must be binary or the encoding base64, as in a descriptor (docs/protocol.md 9.2). Keys named after the
    type (``image``, ``png``, ``jpg``) are tried first, then generic names (``data``), then all others; the first with
    content wins. ``{name, mimeType, size}`` of a list of files has none and stays data.
    """
    mime_type, encoding, size = node.get("mimeType"), node.get("encoding"), node.get("size")
    bare = normalise_mime(mime_type) if isinstance(mime_type, str) else None
    certain = is_base64_encoding(encoding)
    if bare is None or not (certain or (encoding is None and is_binary_mime(bare))):
        return None
    own = {*bare.split("/"), extension_for(bare)[1:]}
    ranked = [
        (0 if key.lower() in own else 1 if key.lower() in _GENERIC_KEYS else 2, key)
        for key in node
        if isinstance(key, str) and key not in DESCRIPTOR_KEYS
    ]
    for rank, key in sorted(ranked, key=lambda item: item[0]):
        try:
            content = _flat_content(node[key], named=rank < 2, certain=certain, size=size)
            if content is not None:
                return key, with_declared(content, node, {})
        except ABPError as error:
            return key, error
    return None


def _flat_content(value: object, *, named: bool, certain: bool, size: object) -> BinaryData | None:
    """``value`` as content, or ``None``. Under a name that says nothing of content, only a known signature counts."""
    if not isinstance(value, str):
        return content_value(value) if named else None
    if named and (inline := decode_data_url(value)) is not None:
        return BinaryData(inline)
    signed = sniff_base64(value) is not None
    by_name = certain or signed or _decodes_to(value, size) or _looks_encoded(value)
    return BinaryData(Encoded(value, "base64")) if (by_name if named else signed and len(value) >= 64) else None


def _decodes_to(text: str, size: object) -> bool:
    """Whether ``text`` is base64 of exactly the declared ``size``, which short words and paths are not."""
    return bool(text) and len(text.rstrip("=")) * 3 // 4 == size and is_base64(text)


def _looks_encoded(text: str) -> bool:
    """Whether ``text`` is long and begins like base64. If it is broken later on, that is an error and not data.

    Prose, paths, code and tokens have a space, dot or colon early on; hashes are short or hexadecimal.
    """
    start = text[:256]
    return len(text) >= 100 and BASE64.fullmatch(start) is not None and not _HEX.fullmatch(start)
