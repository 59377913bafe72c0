"""Descriptors: ``{content, mimeType, …}`` and ``{downloadUrl, mimeType, …}`` (seed 001). No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import BadDescriptor, BadEncoding
from ..data import BinaryData, Download, Encoded
from ..media import is_binary_mime, normalise_mime
from .content import data_url, is_base64, is_base64_name, leaf, shown

__all__ = ["DESCRIPTOR_KEYS", "declared", "described", "surely_base64"]

_MAX_SIZE = 2**53 - 1  # what a JavaScript number counts exactly

DESCRIPTOR_KEYS = {"content", "mimeType", "encoding", "size", "filename", "downloadUrl", "expiresAt", "auth"}


def described(node: Mapping[str, object]) -> BinaryData | None:
    mime_type, content, url = node.get("mimeType"), node.get("content"), node.get("downloadUrl")
    bare: BinaryData | None
    if isinstance(mime_type, str) and isinstance(url, str) and url:  # "check for downloadUrl first" (seed 001)
        bare = BinaryData(
            data_url(url) or Download(url, _expiry(node.get("expiresAt")), *_credentials(node.get("auth")))
        )
    elif isinstance(content, str):
        bare = _encoded(content, mime_type, node.get("encoding")) if isinstance(mime_type, str) else None
    else:
        bare = leaf(content)
    if bare is None:
        return None
    return declared(bare, node, {key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS})


def declared(bare: BinaryData, node: Mapping[str, object], extra: Mapping[str, object]) -> BinaryData:
    """Content with what its descriptor says of it; a Blob or File of the page brings its own type and name."""
    mime_type, filename, size = node.get("mimeType"), node.get("filename"), _size(node.get("size"))
    return BinaryData(
        bare.content,
        mime_type if isinstance(mime_type, str) and mime_type else bare.mime_type,
        bare.size if size is None else size,
        filename if isinstance(filename, str) and filename else bare.filename,
        extra,
    )


#: Types whose content is text, so that without `encoding` it is taken as it stands unless it can be base64.
_TEXTUAL = re.compile(r"[+/](x-)?(xml|json|javascript|ecmascript|yaml|rtf|postscript|sql|sh)$")


def _encoded(text: str, mime_type: str, encoding: object) -> BinaryData | None:
    """Seed 000: text is binary data if its MIME type is binary or its encoding is base64; else it is plain data."""
    if is_base64_name(encoding):
        return BinaryData(data_url(text) or Encoded(text, "base64"))
    bare = normalise_mime(mime_type)
    if bare is None or not is_binary_mime(bare):
        return None
    if isinstance(encoding, str) and encoding.lower() in ("utf-8", "utf8"):
        return BinaryData(Encoded(text, "utf-8"))
    if encoding is not None:
        raise BadEncoding(f"unknown encoding {shown(encoding)}; ABP knows 'base64' and 'utf-8'")
    if (inline := data_url(text)) is not None:
        return BinaryData(inline)
    as_it_stands = _TEXTUAL.search(bare) and not is_base64(text)
    return BinaryData(Encoded(text, "utf-8" if as_it_stands else "base64"))


def surely_base64(mime_type: object, encoding: object) -> bool:
    """Whether a descriptor alone, without a look at its text, says that the text is base64."""
    if encoding is not None:
        return is_base64_name(encoding)
    bare = normalise_mime(mime_type) if isinstance(mime_type, str) else None
    return bare is not None and is_binary_mime(bare) and not _TEXTUAL.search(bare)


def _size(value: object) -> int | None:
    """A declared size, or an error: negative, fractional, textual and absurd ones are never guessed at."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise BadDescriptor(f"size must be a whole number of bytes, the app sent {shown(value)}")
    if not 0 <= value <= _MAX_SIZE:
        raise BadDescriptor(f"size must be between 0 and 2^53-1 bytes, the app sent {shown(value)}")
    return int(value)


def _expiry(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_SIZE:
        raise BadDescriptor(f"expiresAt must be Unix milliseconds, the app sent {shown(value)}")
    return float(value)


_HEADER_LINE = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):\s*(\S.*)")


def _credentials(auth: object) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and query fields of ``auth``, in its documented forms (PROTOCOL "Binary references")."""
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
