"""The flat form ``{pdf: <base64>, mimeType, size}`` (PROTOCOL "What public clients and apps get wrong"). No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import ABPError
from ..data import BinaryData, Encoded
from ..media import extension_for, is_binary_mime, normalise_mime
from .content import BASE64, data_url, is_base64, is_base64_name, leaf, sniffed
from .descriptors import DESCRIPTOR_KEYS, declared

__all__ = ["flat"]

_GENERIC_KEYS = {"data", "base64", "bytes", "file", "blob", "buffer", "body", "binary", "document", "output", "result"}
_HEX = re.compile(r"(?=\D*\d)[0-9a-fA-F]*")  # nothing but "A" is base64 of zeros


def flat(node: Mapping[str, object]) -> tuple[str, BinaryData | ABPError] | None:
    """The documented flat form ``{pdf: <base64>, mimeType, size}``: the key that holds the content, and the content.

    The type must be binary or the encoding base64, as for a descriptor (seed 000). Keys named after the type
    (``image``, ``png``, ``jpg``) are asked first, then generic names (``data``), then any. The first that holds
    content has it, so that ``{name, mimeType, size}`` of a file list stays what it is.
    """
    mime_type, encoding, size = node.get("mimeType"), node.get("encoding"), node.get("size")
    bare = normalise_mime(mime_type) if isinstance(mime_type, str) else None
    certain = is_base64_name(encoding)
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
                return key, declared(content, node, {})
        except ABPError as error:
            return key, error
    return None


def _flat_content(value: object, *, named: bool, certain: bool, size: object) -> BinaryData | None:
    """``value`` as content, if it is some. Under a name that says nothing, only a known signature counts."""
    if not isinstance(value, str):
        return leaf(value) if named else None
    if named and (inline := data_url(value)) is not None:
        return BinaryData(inline)
    signed = sniffed(value) is not None
    by_name = certain or signed or _decodes_to(value, size) or _looks_encoded(value)
    return BinaryData(Encoded(value, "base64")) if (by_name if named else signed and len(value) >= 64) else None


def _decodes_to(text: str, size: object) -> bool:
    """Whether ``text`` is base64 of exactly the declared ``size``: short words and paths are not."""
    return bool(text) and len(text.rstrip("=")) * 3 // 4 == size and is_base64(text)


def _looks_encoded(text: str) -> bool:
    """Whether ``text`` is long and begins like base64, be it broken later on: then that is an error and not data.
    Prose, paths, code and tokens have a space, dot or colon early on; hashes are short, or hexadecimal."""
    start = text[:256]
    return len(text) >= 100 and BASE64.fullmatch(start) is not None and not _HEX.fullmatch(start)
