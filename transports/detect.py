"""Which parts of an answer are binaries (seeds 000 and 001, PROTOCOL "What public clients and apps get wrong"), and
trees with something else in a binary's place. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote, unquote_to_bytes

from .binary import BinaryData, Broken, Content, Download, Encoded, Handle, padded
from .errors import ABPError, BadDescriptor, BadEncoding, ProtocolError, UnsupportedBinary
from .media import is_binary_mime, normalise_mime, sniff

__all__ = ["DESCRIPTOR_KEYS", "MAX_DEPTH", "Found", "Place", "find", "replace"]

#: Deepest nesting of an answer that is looked at; more is an error, never silence (FAULTS 21).
MAX_DEPTH = 64
_MAX_SIZE = 2**53 - 1  # what a JavaScript number counts exactly

#: Where something stands in a tree of JSON values: the keys and indexes that lead to it.
Place: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A binary and its place: ``path`` in the tree. ``binary`` is an error where its description is invalid."""

    path: Place
    binary: BinaryData | ABPError

    @property
    def field(self) -> str:
        """The place as people write it: ``document``, ``pages.0.image``, ``""`` for the top. A dot inside a key is
        escaped, so two places never share a name."""
        return ".".join(str(step).replace("\\", "\\\\").replace(".", "\\.") for step in self.path)


def find(data: object) -> list[Found]:
    """Every binary of an answer's ``data``, in order, at any depth.

    Raises :class:`~transports.errors.ProtocolError` for a nesting over :data:`MAX_DEPTH`. A binary whose description
    is invalid is returned with its error, so that its siblings are not lost.
    """
    found: list[Found] = []
    _walk(data, (), found)
    return found


def _walk(node: object, path: Place, found: list[Found]) -> None:
    if len(path) > MAX_DEPTH:
        raise ProtocolError(f"the answer is nested deeper than {MAX_DEPTH} levels at {'.'.join(map(str, path[:6]))}…")
    try:
        if isinstance(node, dict):
            binary = _described(node)
            if binary is None and (place := _flat(node)) is not None:
                key, flat = place
                found.append(Found((*path, key), flat))
                for other, value in node.items():
                    if other != key:
                        _walk(value, (*path, str(other)), found)
                return
        else:
            binary = _bare(node)
    except ABPError as error:
        found.append(Found(path, error))
        return
    if binary is not None:
        found.append(Found(path, binary))
    elif isinstance(node, dict):
        for key, value in node.items():
            _walk(value, (*path, str(key)), found)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            if isinstance(
                value, dict | list | tuple | str | bytes | bytearray | memoryview | Handle | Broken | BinaryData
            ):
                _walk(value, (*path, index), found)


def _bare(node: object) -> BinaryData | None:
    """Content that stands alone, without a descriptor."""
    match node:
        case BinaryData():
            return node
        case bytes() | bytearray() | memoryview():
            return BinaryData(bytes(node))
        case Handle():
            return BinaryData(node, size=node.size)
        case Broken(reason):
            raise UnsupportedBinary(f"the app answered content that cannot be read: {reason}")
        case str() if len(node) >= _MIN_GUESSED:
            return _guessed(node)
        case _:
            return None


# --- descriptors: {content, mimeType, …} and {downloadUrl, mimeType, …} (seed 001) -----------------------------------

DESCRIPTOR_KEYS = {"content", "mimeType", "encoding", "size", "filename", "downloadUrl", "expiresAt", "auth"}


def _described(node: Mapping[str, object]) -> BinaryData | None:
    mime_type, content, url = node.get("mimeType"), node.get("content"), node.get("downloadUrl")
    declared = mime_type if isinstance(mime_type, str) else None
    filename = node.get("filename")
    result: Content
    if isinstance(url, str) and declared is not None:  # "check for downloadUrl first" (seed 001)
        result = _inline_data_url(url) or Download(url, _expiry(node.get("expiresAt")), *_credentials(node.get("auth")))
    elif isinstance(content, bytes | bytearray | memoryview):
        result = bytes(content)
    elif isinstance(content, Handle):
        result = content
    elif isinstance(content, BinaryData):  # a Blob or File of the page brings its own type and name
        result, declared, filename = content.content, declared or content.mime_type, filename or content.filename
    elif isinstance(content, Broken):
        raise UnsupportedBinary(f"the app answered content that cannot be read: {content.reason}")
    elif isinstance(content, str) and declared is not None:
        encoded = _encoded(content, declared, node.get("encoding"))
        if encoded is None:
            return None
        result = encoded
    else:
        return None
    return BinaryData(
        result,
        declared,
        _size(node.get("size")),
        filename if isinstance(filename, str) and filename else None,
        {key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS},
    )


def _encoded(text: str, mime_type: str, encoding: object) -> Encoded | None:
    """Seed 000: text is binary data if its MIME type is binary or its encoding is base64; else it is plain data."""
    name = encoding.lower().replace("_", "-") if isinstance(encoding, str) else encoding
    if name in ("base64", "base64url", "base64-url"):
        return _data_url(text) or Encoded(text, "base64")
    if not is_binary_mime(mime_type):
        return None
    if name in ("utf-8", "utf8"):
        return Encoded(text, "utf-8")
    if name is not None:
        raise BadEncoding(f"unknown encoding {str(encoding)[:40]!r}; ABP knows 'base64' and 'utf-8'")
    if (inline := _data_url(text)) is not None:
        return inline
    # Without `encoding`, text of a textual type (SVG, XML, JavaScript) that base64 cannot be is taken as it stands.
    textual = re.search(
        r"[+/](xml|json|javascript|ecmascript|yaml|rtf|postscript|sql|x-sh)$", normalise_mime(mime_type) or ""
    )
    return Encoded(text, "utf-8" if textual and not _is_base64(text) else "base64")


_DATA_URL = re.compile(r"data:(?P<mime>[^,;]*)(?P<params>(?:;[^,;]*)*?)(?P<b64>;base64)?,", re.IGNORECASE)


def _data_url(text: str) -> Encoded | None:
    """Base64 in a ``data:`` URL, as ``canvas.toDataURL`` gives it."""
    head = _DATA_URL.match(text[:1024])
    return Encoded(text[head.end() :], "base64") if head and head["b64"] else None


def _inline_data_url(url: str) -> bytes | Encoded | None:
    """The content of a ``data:`` URL (RFC 2397): it is in hand, so nothing is fetched."""
    if url[:5].lower() != "data:":
        return None
    head = _DATA_URL.match(url[:1024])
    if head is None:
        raise BadDescriptor("downloadUrl is a data: URL without a comma")
    return Encoded(unquote(url[head.end() :]), "base64") if head["b64"] else unquote_to_bytes(url[head.end() :])


def _size(value: object) -> int | None:
    """A declared size, or an error: negative, fractional, textual and absurd ones are never guessed at."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadDescriptor(f"size must be a number of bytes, the app sent {str(value)[:40]!r}")
    if isinstance(value, float):
        if not (math.isfinite(value) and value.is_integer()):
            raise BadDescriptor(f"size must be a whole number of bytes, the app sent {value}")
        value = int(value)
    if not 0 <= value <= _MAX_SIZE:
        raise BadDescriptor(f"size must be between 0 and 2^53-1 bytes, the app sent {value}")
    return value


def _expiry(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadDescriptor(f"expiresAt must be Unix milliseconds, the app sent {str(value)[:40]!r}")
    return float(value)


_HEADER_LINE = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*(\S.*)", re.DOTALL)


def _credentials(auth: object) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and query fields of ``auth``, in its documented forms (PROTOCOL "Binary references")."""
    if auth is None:
        return {}, {}
    if not isinstance(auth, dict):
        raise BadDescriptor("auth must be an object with a type")
    kind, token, header = auth.get("type"), auth.get("token"), auth.get("header")
    for secret in (token, header):
        if secret is not None and (not isinstance(secret, str) or re.search(r"[\r\n\0]", secret)):
            raise BadDescriptor("auth.token and auth.header must be one line of text")
    if kind == "query" and token:
        return {}, {"token": token}
    if kind == "bearer" and header:
        if line := _HEADER_LINE.fullmatch(header):
            return {line[1]: line[2]}, {}
        return {"Authorization": header if " " in header else f"Bearer {header}"}, {}
    if kind == "bearer" and token:
        return {"Authorization": f"Bearer {token}"}, {}
    raise BadDescriptor("auth must be {type:'bearer', header|token} or {type:'query', token}")


# --- the flat form and bare base64 (PROTOCOL "What public clients and apps get wrong") -------------------------------

_GENERIC_KEYS = {"data", "base64", "bytes", "file", "blob", "buffer", "body", "binary", "document", "output", "result"}
#: Shorter text is never taken for a file on its looks alone (seed 002 §4.2).
_MIN_GUESSED = 1000
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")


def _flat(node: Mapping[str, object]) -> tuple[str, BinaryData | ABPError] | None:
    """The documented flat form ``{pdf: <base64>, mimeType, size}``: the key that holds the content, and the content.

    A key counts if it is named after the type (``pdf``, ``image``, ``png``) or generically (``data``), or holds base64
    with a known signature; and only if it looks like content, so that ``{name, mimeType, size}`` of a file list stays
    what it is.
    """
    mime_type = node.get("mimeType")
    if not isinstance(mime_type, str) or normalise_mime(mime_type) is None:
        return None
    encoding = node.get("encoding")
    declared_base64 = isinstance(encoding, str) and encoding.lower().startswith("base64")
    if not (declared_base64 or is_binary_mime(mime_type)):
        return None
    kind, _, subtype = (normalise_mime(mime_type) or "").partition("/")
    named = {kind, subtype, subtype.removesuffix("+xml")} | _GENERIC_KEYS
    keys = sorted((key for key in node if key not in DESCRIPTOR_KEYS), key=lambda key: key.lower() not in named)
    for key in keys:
        value = node[key]
        if not isinstance(value, str):
            if key.lower() in named and isinstance(
                value, bytes | bytearray | memoryview | Handle | BinaryData | Broken
            ):
                return key, _flat_binary(node, mime_type, value)
            continue
        inline = _data_url(value) or Encoded(value, "base64")
        if _looks_like_content(inline.text, by_name=key.lower() in named, sure=declared_base64, size=node.get("size")):
            return key, _flat_binary(node, mime_type, inline)
    return None


def _flat_binary(node: Mapping[str, object], mime_type: str, content: object) -> BinaryData | ABPError:
    filename = node.get("filename")
    try:
        bare = BinaryData(content) if isinstance(content, Encoded) else _bare(content)
        assert bare is not None
        return BinaryData(
            bare.content, mime_type, _size(node.get("size")), filename if isinstance(filename, str) else None
        )
    except ABPError as error:
        return error


def _looks_like_content(text: str, *, by_name: bool, sure: bool, size: object) -> bool:
    if len(text) < 4:
        return False
    if not by_name:
        return len(text) >= 64 and _is_base64(text) and sniff(_head(text)) is not None
    if sure:
        return True
    if not _is_base64(
        text
    ):  # broken base64 is an error, a path or a title is not: tell them apart by length and spaces
        return len(text) >= 100 and " " not in text[:200] and "://" not in text[:20]
    return (
        len(text) >= 64
        or sniff(_head(text)) is not None
        or (size is not None and (text.endswith("=") or len(text) >= 16))
    )


def _guessed(text: str) -> BinaryData | None:
    """A long base64 string (or data URL) with a known signature, undeclared. Never a false "maybe": the head must
    decode to a signature and the whole must have the alphabet of base64."""
    inline = _data_url(text) if text.startswith("data:") else Encoded(text, "base64")
    if inline is None:
        return None
    mime_type = sniff(_head(inline.text))
    if mime_type is None or not _is_base64(inline.text):
        return None
    return BinaryData(inline, mime_type)


def _is_base64(text: str) -> bool:
    match = _BASE64.fullmatch(text)
    return match is not None and len(padded(text)) % 4 == 0


def _head(text: str) -> bytes:
    """The first bytes of base64 text, or nothing if they are none."""
    start = text[:5464]
    start = start[: len(start) // 4 * 4]
    try:
        return b"".join(Encoded(start, "base64").chunks())
    except BadEncoding:
        return b""


def replace(tree: object, replacements: Mapping[Place, object]) -> object:
    """A copy of ``tree`` with the values at the given places replaced; what no place leads to is shared, not copied."""
    if not replacements:
        return tree
    if () in replacements:
        return replacements[()]
    below: dict[str | int, dict[Place, object]] = {}
    for path, value in replacements.items():
        below.setdefault(path[0], {})[path[1:]] = value
    if isinstance(tree, dict):
        return {key: replace(value, below.get(str(key), {})) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [replace(value, below.get(index, {})) for index, value in enumerate(tree)]
    raise KeyError(next(iter(replacements)))
