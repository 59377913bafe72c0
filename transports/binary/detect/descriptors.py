"""Descriptors: ``{content, mimeType, …}`` and ``{downloadUrl, mimeType, …}`` (docs/protocol.md 9.2, 10.1). No I/O.

What a descriptor declares and what is invalid is an error, never a guess; what declares nothing stays plain data.
docs/protocol.md 9.2 and 9.3 have the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import BadDescriptor, BadEncoding
from ..data import BinaryData, Download, Encoded
from ..media import is_binary_mime, normalise_mime
from .content import content_value, decode_data_url, excerpt, is_base64, is_base64_encoding

__all__ = ["DESCRIPTOR_KEYS", "declares_base64", "read_descriptor", "with_declared"]

_MAX_SIZE = 2**53 - 1  # the largest whole number that JavaScript represents exactly

#: Fields of a descriptor that describe its content. Any other field is metadata.
DESCRIPTOR_KEYS = {"content", "mimeType", "encoding", "size", "filename", "downloadUrl", "expiresAt", "auth"}


def read_descriptor(node: Mapping[str, object]) -> BinaryData | None:
    """Return the content of the descriptor ``node`` with what the descriptor says of it, or ``None`` if it is plain
    data.

    ``downloadUrl`` wins over ``content`` (docs/protocol.md 10.1). Content that is no text needs no ``mimeType``. Raises
    :class:`~transports.errors.BadDescriptor` for an invalid ``size``, ``expiresAt`` or ``auth``,
    :class:`~transports.errors.BadEncoding` for an unknown ``encoding`` of a binary type, and
    :class:`~transports.errors.UnsupportedBinary` for content that the page could not read.
    """
    mime_type, content, url = node.get("mimeType"), node.get("content"), node.get("downloadUrl")
    bare: BinaryData | None
    if isinstance(mime_type, str) and isinstance(url, str) and url:
        inline = decode_data_url(url)
        bare = BinaryData(_download(url, node) if inline is None else inline)
    elif isinstance(content, str):
        bare = _text_content(content, mime_type, node) if isinstance(mime_type, str) else None
    else:
        bare = content_value(content)
    if bare is None:
        return None
    return with_declared(bare, node, {key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS})


def with_declared(bare: BinaryData, node: Mapping[str, object], extra: Mapping[str, object]) -> BinaryData:
    """Return content with what its descriptor ``node`` says of it, and ``extra`` as its metadata.

    What the descriptor does not say is taken from the content: a ``Blob`` or ``File`` of a page has a type and a name.
    Raises :class:`~transports.errors.BadDescriptor` for an invalid ``size``.
    """
    mime_type, filename, size = node.get("mimeType"), node.get("filename"), _size(node.get("size"))
    return BinaryData(
        bare.content,
        mime_type if isinstance(mime_type, str) and mime_type else bare.mime_type,
        bare.size if size is None else size,
        filename if isinstance(filename, str) and filename else bare.filename,
        extra,
    )


#: Binary types (docs/protocol.md 9.2) whose content is text: without `encoding` it is UTF-8 unless it can be base64.
_TEXTUAL = re.compile(r"[+/](x-)?(xml|json|javascript|ecmascript|yaml|rtf|postscript|sql|sh)$")


def _text_content(text: str, mime_type: str, node: Mapping[str, object]) -> BinaryData | None:
    """Return ``content`` that arrived as text, or ``None`` if the descriptor is plain data.

    An ``encoding`` decides for any type. Without one, content of a binary type is base64 (docs/protocol.md 9.2), and
    content of a text type is a file only if the descriptor also names or measures it.
    """
    encoding = node.get("encoding")
    if is_base64_encoding(encoding):
        inline = decode_data_url(text)
        return BinaryData(Encoded(text, "base64") if inline is None else inline)
    bare = normalise_mime(mime_type)
    if bare is None:
        return None
    if isinstance(encoding, str) and encoding.lower() in ("utf-8", "utf8"):
        return BinaryData(Encoded(text, "utf-8"))
    binary = is_binary_mime(bare)
    if binary and encoding is not None:
        raise BadEncoding(f"unknown encoding {excerpt(encoding)}; ABP knows 'base64' and 'utf-8'")
    if not binary and (encoding is not None or not _is_named_or_measured(node)):
        return None
    if (inline := decode_data_url(text)) is not None:
        return BinaryData(inline)
    literal = not binary or (_TEXTUAL.search(bare) and not is_base64(text))
    return BinaryData(Encoded(text, "utf-8" if literal else "base64"))


def _is_named_or_measured(node: Mapping[str, object]) -> bool:
    """Whether a descriptor has a file name, or a size that is a number: ``size: "12pt"`` is somebody's font."""
    filename, size = node.get("filename"), node.get("size")
    named = isinstance(filename, str) and bool(filename)
    return named or (isinstance(size, int | float) and not isinstance(size, bool))


def declares_base64(mime_type: object, encoding: object) -> bool:
    """Return whether a descriptor says by itself, without a look at its text, that the text is base64."""
    if encoding is not None:
        return is_base64_encoding(encoding)
    bare = normalise_mime(mime_type) if isinstance(mime_type, str) else None
    return bare is not None and is_binary_mime(bare) and not _TEXTUAL.search(bare)


def _size(value: object) -> int | None:
    """The declared size in bytes. A negative, fractional, textual or absurd one is an error, never corrected."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise BadDescriptor(f"size must be a whole number of bytes, the app sent {excerpt(value)}")
    if not 0 <= value <= _MAX_SIZE:
        raise BadDescriptor(f"size must be between 0 and 2^53-1 bytes, the app sent {excerpt(value)}")
    return int(value)


def _download(url: str, node: Mapping[str, object]) -> Download:
    return Download(url, _expiry(node.get("expiresAt")), *_credentials(node.get("auth")))


def _expiry(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_SIZE:
        raise BadDescriptor(f"expiresAt must be Unix milliseconds, the app sent {excerpt(value)}")
    return float(value)


_HEADER_LINE = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):\s*(\S.*)")


def _credentials(auth: object) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and query fields of ``auth``, which has a few documented forms (docs/protocol.md 10.3)."""
    if auth is None:
        return {}, {}
    if not isinstance(auth, dict):
        raise BadDescriptor("auth must be an object with a type")
    kind, token, header = auth.get("type"), auth.get("token"), auth.get("header")
    for secret in (token, header):
        if secret is not None and (not isinstance(secret, str) or re.search(r"[\x00-\x1f\x7f]", secret)):
            raise BadDescriptor("auth.token and auth.header must be one line of text")
    kind = kind.lower() if isinstance(kind, str) else kind
    token, header = (token or "").strip(), (header or "").strip()
    if kind == "query" and token:
        return {}, {"token": token}
    if kind == "bearer" and header:
        if line := _HEADER_LINE.fullmatch(header):
            return {line[1]: line[2]}, {}
        return {"Authorization": header if " " in header else f"Bearer {header}"}, {}
    if kind == "bearer" and token:
        return {"Authorization": f"Bearer {token}"}, {}
    raise BadDescriptor("auth must be {type:'bearer', header|token} or {type:'query', token}")
