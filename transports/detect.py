"""Which parts of an answer are binaries (seeds 000 and 001, PROTOCOL "What public clients and apps get wrong"), and
trees with something else in a binary's place. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import TypeAlias
from urllib.parse import unquote, unquote_to_bytes

from .binary import BinaryData, Broken, Download, Encoded, Handle, padded
from .errors import ABPError, BadDescriptor, BadEncoding, ProtocolError, UnsupportedBinary
from .media import extension_for, is_binary_mime, normalise_mime, sniff

__all__ = ["DESCRIPTOR_KEYS", "MAX_DEPTH", "Found", "Place", "field_of", "find", "replace", "surely_base64"]

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
        return field_of(self.path)


def field_of(place: Place) -> str:
    """A place as people write it: ``document``, ``pages.0.image``, ``""`` for the top. A dot inside a key is escaped,
    so two places never share a name."""
    return ".".join(str(step).replace("\\", "\\\\").replace(".", "\\.") for step in place)


def find(data: object) -> list[Found]:
    """Every binary of an answer's ``data``, in order, at any depth.

    Raises :class:`~transports.errors.ProtocolError` for a nesting over :data:`MAX_DEPTH`. A binary whose description
    is invalid is returned with its error, so that its siblings are not lost.
    """
    found: list[Found] = []
    _walk(data, (), found)
    return found


def _walk(node: object, path: Place, found: list[Found]) -> None:
    if isinstance(node, dict | list | tuple) and len(path) >= MAX_DEPTH:
        raise ProtocolError(f"the answer is nested deeper than {MAX_DEPTH} levels at {'.'.join(map(str, path[:6]))}…")
    try:
        binary = _described(node) if isinstance(node, dict) else _bare(node)
    except ABPError as error:
        found.append(Found(path, error))
        return
    if binary is not None:
        found.append(Found(path, binary))
    elif isinstance(node, dict):
        flat = _flat(node)
        for name, value in node.items():
            if flat is not None and name == flat[0]:
                found.append(Found((*path, flat[0]), flat[1]))
            elif not isinstance(value, _NO_CONTENT):
                _walk(value, (*path, str(name)), found)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            if not isinstance(value, _NO_CONTENT):
                _walk(value, (*path, index), found)


_NO_CONTENT = (int, float, NoneType)  # passed over quickly: an answer may hold a million numbers


def _bare(node: object) -> BinaryData | None:
    """Content that stands alone, without a descriptor."""
    return _guessed(node) if isinstance(node, str) else _leaf(node)


def _leaf(node: object) -> BinaryData | None:
    """Content that is not text. Raises :class:`~transports.errors.UnsupportedBinary` where there was some."""
    match node:
        case BinaryData():
            return node
        case bytes() | bytearray() | memoryview():
            return BinaryData(bytes(node))
        case Handle():
            return BinaryData(node, size=node.size)
        case Broken(reason):
            raise UnsupportedBinary(f"the app answered content that cannot be read: {reason}")
        case _:
            return None


# --- descriptors: {content, mimeType, …} and {downloadUrl, mimeType, …} (seed 001) -----------------------------------

DESCRIPTOR_KEYS = {"content", "mimeType", "encoding", "size", "filename", "downloadUrl", "expiresAt", "auth"}


def _described(node: Mapping[str, object]) -> BinaryData | None:
    mime_type, content, url = node.get("mimeType"), node.get("content"), node.get("downloadUrl")
    bare: BinaryData | None
    if isinstance(mime_type, str) and isinstance(url, str) and url:  # "check for downloadUrl first" (seed 001)
        bare = BinaryData(
            _data_url(url) or Download(url, _expiry(node.get("expiresAt")), *_credentials(node.get("auth")))
        )
    elif isinstance(content, str):
        bare = _encoded(content, mime_type, node.get("encoding")) if isinstance(mime_type, str) else None
    else:
        bare = _leaf(content)
    if bare is None:
        return None
    return _declared(bare, node, {key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS})


def _declared(bare: BinaryData, node: Mapping[str, object], extra: Mapping[str, object]) -> BinaryData:
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
    if _is_base64_name(encoding):
        return BinaryData(_data_url(text) or Encoded(text, "base64"))
    bare = normalise_mime(mime_type)
    if bare is None or not is_binary_mime(bare):
        return None
    if isinstance(encoding, str) and encoding.lower() in ("utf-8", "utf8"):
        return BinaryData(Encoded(text, "utf-8"))
    if encoding is not None:
        raise BadEncoding(f"unknown encoding {_shown(encoding)}; ABP knows 'base64' and 'utf-8'")
    if (inline := _data_url(text)) is not None:
        return BinaryData(inline)
    as_it_stands = _TEXTUAL.search(bare) and not _is_base64(text)
    return BinaryData(Encoded(text, "utf-8" if as_it_stands else "base64"))


def surely_base64(mime_type: object, encoding: object) -> bool:
    """Whether a descriptor alone, without a look at its text, says that the text is base64."""
    if encoding is not None:
        return _is_base64_name(encoding)
    bare = normalise_mime(mime_type) if isinstance(mime_type, str) else None
    return bare is not None and is_binary_mime(bare) and not _TEXTUAL.search(bare)


def _is_base64_name(encoding: object) -> bool:
    return isinstance(encoding, str) and encoding.lower().replace("_", "-") in ("base64", "base64url", "base64-url")


_DATA_URL = re.compile(r"data:[^,]*?(;\s*base64\s*)?,", re.IGNORECASE)


def _data_url(text: str) -> Encoded | bytes | None:
    """The content of a ``data:`` URL (RFC 2397), as ``canvas.toDataURL`` gives it: it is in hand."""
    head = _DATA_URL.match(text[:1024])
    if head is None:
        return None
    if head[1]:
        return Encoded(unquote(text[head.end() :]), "base64")
    try:
        return unquote_to_bytes(text[head.end() :])
    except UnicodeEncodeError as error:
        raise BadEncoding("the data: URL holds half of a surrogate pair and is no valid UTF-8") from error


def _size(value: object) -> int | None:
    """A declared size, or an error: negative, fractional, textual and absurd ones are never guessed at."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise BadDescriptor(f"size must be a whole number of bytes, the app sent {_shown(value)}")
    if not 0 <= value <= _MAX_SIZE:
        raise BadDescriptor(f"size must be between 0 and 2^53-1 bytes, the app sent {_shown(value)}")
    return int(value)


def _expiry(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_SIZE:
        raise BadDescriptor(f"expiresAt must be Unix milliseconds, the app sent {_shown(value)}")
    return float(value)


def _shown(value: object) -> str:
    """What an app sent, short enough for a message; Python itself refuses to write numbers of over 4,300 digits."""
    return "a huge number" if isinstance(value, int) and value.bit_length() > 128 else repr(value)[:40]


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


# --- the flat form and bare base64 (PROTOCOL "What public clients and apps get wrong") -------------------------------

_GENERIC_KEYS = {"data", "base64", "bytes", "file", "blob", "buffer", "body", "binary", "document", "output", "result"}
#: Shorter text is never taken for a file on its looks alone (seed 002 §4.2).
_MIN_GUESSED = 1000
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/_-]")
_HEX = re.compile(r"(?=\D*\d)[0-9a-fA-F]*")  # nothing but "A" is base64 of zeros


def _flat(node: Mapping[str, object]) -> tuple[str, BinaryData | ABPError] | None:
    """The documented flat form ``{pdf: <base64>, mimeType, size}``: the key that holds the content, and the content.

    The type must be binary or the encoding base64, as for a descriptor (seed 000). Keys named after the type
    (``image``, ``png``, ``jpg``) are asked first, then generic names (``data``), then any. The first that holds
    content has it, so that ``{name, mimeType, size}`` of a file list stays what it is.
    """
    mime_type, encoding, size = node.get("mimeType"), node.get("encoding"), node.get("size")
    bare = normalise_mime(mime_type) if isinstance(mime_type, str) else None
    certain = _is_base64_name(encoding)
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
                return key, _declared(content, node, {})
        except ABPError as error:
            return key, error
    return None


def _flat_content(value: object, *, named: bool, certain: bool, size: object) -> BinaryData | None:
    """``value`` as content, if it is some. Under a name that says nothing, only a known signature counts."""
    if not isinstance(value, str):
        return _leaf(value) if named else None
    if named and (inline := _data_url(value)) is not None:
        return BinaryData(inline)
    signed = _sniffed(value) is not None
    by_name = certain or signed or _decodes_to(value, size) or _looks_encoded(value)
    return BinaryData(Encoded(value, "base64")) if (by_name if named else signed and len(value) >= 64) else None


def _decodes_to(text: str, size: object) -> bool:
    """Whether ``text`` is base64 of exactly the declared ``size``: short words and paths are not."""
    return bool(text) and len(text.rstrip("=")) * 3 // 4 == size and _is_base64(text)


def _looks_encoded(text: str) -> bool:
    """Whether ``text`` is long and begins like base64, be it broken later on: then that is an error and not data.
    Prose, paths, code and tokens have a space, dot or colon early on; hashes are short, or hexadecimal."""
    start = text[:256]
    return len(text) >= 100 and _BASE64.fullmatch(start) is not None and not _HEX.fullmatch(start)


def _guessed(text: str) -> BinaryData | None:
    """A long base64 string (or data URL) with a known signature, undeclared. Never a false "maybe": the head must
    decode to a signature and the whole must have the shape of base64."""
    if len(text) < _MIN_GUESSED:
        return None
    inline = _data_url(text) or Encoded(text, "base64")
    if not isinstance(inline, Encoded) or not isinstance(bare := inline.text, str):
        return None
    mime_type = _sniffed(bare)
    return BinaryData(inline, mime_type) if mime_type is not None and _is_base64(bare) else None


def _is_base64(text: str) -> bool:
    return len(padded(text)) % 4 == 0 and _BASE64.fullmatch(text) is not None


def _sniffed(text: str) -> str | None:
    """The type whose signature base64 text begins with, also if the rest is broken."""
    run = _NO_BASE64.split(text[:5464], maxsplit=1)[0]  # 4,098 bytes
    try:
        return sniff(b"".join(Encoded(run + "A" * (-len(run) % 4), "base64").chunks()))
    except BadEncoding:
        return None


def replace(tree: object, replacements: Mapping[Place, object]) -> object:
    """A copy of ``tree`` with the values at the given places replaced; what no place leads to is shared, not copied.

    Raises ``KeyError`` for a place that is not in the tree.
    """
    if not replacements:
        return tree
    if () in replacements:
        return replacements[()]
    below: dict[str | int, dict[Place, object]] = {}
    for path, value in replacements.items():
        below.setdefault(path[0], {})[path[1:]] = value
    copy: object = tree
    if isinstance(tree, dict):
        copy = {key: replace(value, below.pop(str(key), {})) for key, value in tree.items()}
    elif isinstance(tree, list | tuple):
        copy = [replace(value, below.pop(index, {})) for index, value in enumerate(tree)]
    if below:
        raise KeyError(f"the tree has no place {next(iter(below))!r}")
    return copy
