"""Search for content in an answer: one walk that applies all rules to every object, text and value.

Text that nothing declares as content is the matter of :mod:`._heuristics`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace as replace_fields
from types import NoneType
from typing import Literal, TypeAlias
from urllib.parse import unquote

from ..errors import ABPError, BadDescriptor, BadEncoding, ProtocolError, UnsupportedBinary
from ._heuristics import Heuristics, loss_by_decoding
from ._media import extension_for, is_binary_mime, normalise_mime
from ._strict_json import MAX_INTEGER
from .binary import BASE64, BinaryData, Broken, Download, Encoded, Handle, decode_data_url, is_base64, sniff_base64

#: Levels of nesting that are searched. A deeper answer is an error: content is never missed silently
#: (docs/faults.md 21).
MAX_DEPTH = 64

#: A place in a tree of JSON values: the keys and indexes that lead to it from the top, ``()`` for the top itself.
Place: TypeAlias = tuple[str | int, ...]

#: The rule that recognised content (docs/requirements.md R2-4.1): a form of ABP, an MCP content block, or a heuristic.
Layer: TypeAlias = Literal["abp", "typed", "heuristic"]


@dataclass(frozen=True, slots=True)
class Found:
    """Content at a place in an answer. For an invalid descriptor, ``binary`` is the error, so that other content is not
    lost. With ``is_flat``, the type and the size of the content stand beside it, not in it (docs/protocol.md 9.5)."""

    path: Place
    binary: BinaryData | ABPError
    layer: Layer = "abp"
    is_flat: bool = False

    @property
    def field(self) -> str:
        return field_of(self.path)


def field_of(place: Place) -> str:
    """Return ``document``, ``pages.0.image``, or ``""`` for the top. A dot or backslash inside a key is escaped by a
    backslash, so no two places have the same text."""
    return ".".join(str(step).replace("\\", "\\\\").replace(".", "\\.") for step in place)


_STEP = re.compile(r"(?:^|\.)((?:[^.\\]|\\.)*)", re.DOTALL)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def find_field(tree: object, field: str) -> tuple[Place, object] | None:
    """Return the place with the text ``field`` (:func:`field_of`), and its value."""
    place: list[str | int] = []
    node = tree
    for step in _STEP.findall(field) if field else ():
        name = re.sub(r"\\(.)", r"\1", step, flags=re.DOTALL)
        if isinstance(node, dict) and name in node:
            place.append(name)
            node = node[name]
        elif isinstance(node, list | tuple) and _INDEX.fullmatch(name) and int(name) < len(node):
            place.append(int(name))
            node = node[int(name)]
        else:
            return None
    return tuple(place), node


def replace_values(tree: object, replacements: Mapping[Place, object]) -> object:
    """Return a copy with other values at the given places. Branches without such a place are shared, not copied."""
    if not replacements:
        return tree
    if () in replacements:
        return replacements[()]

    # Group the replacements by the first step of their places.
    by_step: dict[str | int, dict[Place, object]] = {}
    for path, value in replacements.items():
        by_step.setdefault(path[0], {})[path[1:]] = value

    copy: object = tree
    if isinstance(tree, dict):
        copy = dict(tree)
        for key, value in tree.items():
            if str(key) in by_step:
                copy[key] = replace_values(value, by_step.pop(str(key)))
    elif isinstance(tree, list | tuple):
        copy = list(tree)
        for index in [step for step in by_step if isinstance(step, int) and 0 <= step < len(tree)]:
            copy[index] = replace_values(tree[index], by_step.pop(index))
    if by_step:
        raise KeyError(f"the tree has no place {next(iter(by_step))!r}")
    return copy


_DEFAULT = Heuristics()
_OFF = Heuristics(min_chars=1 << 62)
#: Types that never hold content. They are skipped before any other test: an answer may hold a million numbers.
_NUMBERS = frozenset((int, float, bool, NoneType))
_PLAIN = _NUMBERS | {str, list, dict, tuple}
#: Keys of descriptors, of the flat form and of content blocks.
_DECLARING = frozenset(("mimeType", "content", "type", "blob"))


def find(
    data: object,
    *,
    heuristics: Heuristics | None = _DEFAULT,
    others: list[tuple[Place, object]] | None = None,
    warnings: list[str] | None = None,
) -> list[Found]:
    """Return all content in an answer's ``data``, in order.

    Text without a declaration is checked by the ``heuristics`` (``None``: never). Content with an invalid descriptor is
    returned as its error, so that other content is not lost. Values that are neither JSON nor content are added to
    ``others`` with their places. ``warnings`` get a line for each file that came as decoded text.

    Raises :class:`~transports.errors.ProtocolError` for nesting deeper than :data:`MAX_DEPTH`."""
    search = _Search(heuristics or _OFF, others, warnings)
    search.walk(data, ())
    return search.content


def find_values(data: object, *, others: list[tuple[Place, object]] | None = None) -> list[Found]:
    """Find only values that are content by their type. ``others`` and errors are those of :func:`find`."""
    search = _Search(_OFF, others)
    search.walk_values(data, ())
    return search.content


class _Search:
    __slots__ = ("_heuristics", "_min_chars", "_others", "_warnings", "content")

    def __init__(
        self,
        heuristics: Heuristics,
        others: list[tuple[Place, object]] | None,
        warnings: list[str] | None = None,
    ) -> None:
        self.content: list[Found] = []
        self._heuristics = heuristics
        self._min_chars = heuristics.min_chars
        self._others = others
        self._warnings = warnings

    def walk_values(self, node: object, path: Place) -> None:
        if not isinstance(node, dict | list | tuple):
            self._add_value(node, path)
            return
        if len(path) >= MAX_DEPTH:
            raise _too_deep(path)
        members = node.items() if isinstance(node, dict) else enumerate(node)
        for step, value in members:
            if type(value) not in _NUMBERS:
                self.walk_values(value, (*path, step if isinstance(step, int) else str(step)))

    def walk(self, node: object, path: Place) -> None:
        if isinstance(node, dict | list | tuple) and len(path) >= MAX_DEPTH:
            raise _too_deep(path)
        if isinstance(node, dict):
            self._walk_object(node, path)
        elif isinstance(node, list | tuple):
            for index, value in enumerate(node):
                kind = type(value)
                if kind not in _NUMBERS and (kind is not str or len(value) >= self._min_chars):
                    self.walk(value, (*path, index))
        elif isinstance(node, str):
            if len(node) >= self._min_chars:
                self._add_undeclared(node, path)
        else:
            self._add_value(node, path)

    def _walk_object(self, node: dict[str, object], path: Place) -> None:
        """Search an object: it is content, one of its members is, or content may be deeper inside."""
        declared: Found | None = None
        declared_key: object = None
        if not _DECLARING.isdisjoint(node):
            declared = _declared_content(node, path)
        if declared is not None:
            if declared.path == path:
                self.content.append(declared)
                return
            declared_key = declared.path[len(path)]  # this member is not searched again

        for name, value in node.items():
            # Numbers and short texts are skipped here, although `walk` skips them too: a call of it costs more.
            kind = type(value)
            if declared is not None and name == declared_key:
                self.content.append(declared)
            elif kind not in _NUMBERS and (kind is not str or len(value) >= self._min_chars):  # type: ignore[arg-type]
                self.walk(value, (*path, str(name)))

    def _add_undeclared(self, text: str, path: Place) -> None:
        binary = self._heuristics.recognise(text)
        if binary is not None:
            self.content.append(Found(path, binary, "heuristic"))
            return

        loss = loss_by_decoding(text)
        if loss is not None and self._warnings is not None:
            place = field_of(path) or "the answer"
            self._warnings.append(f"{place}: {loss}")

    def _add_value(self, node: object, path: Place) -> None:
        try:
            binary: BinaryData | ABPError | None = content_value(node)
        except ABPError as error:
            binary = error
        if binary is not None:
            self.content.append(Found(path, binary))
        elif self._others is not None and type(node) not in _PLAIN:
            self._others.append((path, node))


def _too_deep(path: Place) -> ProtocolError:
    beginning = ".".join(map(str, path[:6]))
    return ProtocolError(f"the answer is nested deeper than {MAX_DEPTH} levels at {beginning}…")


def content_value(node: object) -> BinaryData | None:
    """Return a value that is content by its type; ``None`` for any other."""
    match node:
        case BinaryData():
            return node
        case bytes() | bytearray() | memoryview():
            return BinaryData(bytes(node))
        case Handle():
            return BinaryData(node, size=node.size)
        case Broken(reason):
            raise UnsupportedBinary(f"the app returned content that cannot be read: {reason}")
        case _:
            return None


# The descriptor (docs/protocol.md 9.2): an object with a type and content, and what it declares of them.

#: Fields of a descriptor that describe its content. All other fields are metadata.
DESCRIPTOR_KEYS = {"content", "mimeType", "encoding", "size", "filename", "downloadUrl", "expiresAt", "auth"}
#: Binary types whose content is text: without `encoding` it is UTF-8 unless it can be base64.
_TEXTUAL = re.compile(
    r"[+/](x-)?(xml|json|ndjson|jsonl|jsonlines|json-lines|json-seq|csv|yaml|toml|sql|graphql|rtf|postscript|tex|bibtex"
    r"|subrip|obj|mtl|javascript|ecmascript|typescript|sh)$"
)
_HEADER_LINE = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):\s*(\S.*)")


def _declared_content(node: Mapping[str, object], path: Place) -> Found | None:
    """The content of a block or of the flat form is in one of its members; a descriptor is content as a whole."""
    block = read_block(node, path)
    if block is not None:
        block_keys, binary = block
        return Found((*path, *block_keys), binary, "typed")
    if not isinstance(node.get("mimeType"), str) and type(node.get("content")) in _PLAIN:
        return None

    try:
        described = read_descriptor(node)
    except ABPError as error:
        return Found(path, error)
    if described is not None:
        return Found(path, described)

    flat = read_flat_form(node)
    if flat is None:
        return None
    flat_key, binary = flat
    return Found((*path, flat_key), binary, is_flat=True)


def read_descriptor(node: Mapping[str, object]) -> BinaryData | None:
    """Return ``None`` for plain data. ``downloadUrl`` takes precedence over ``content`` (docs/protocol.md 10.1).
    Content other than text needs no ``mimeType``."""
    mime_type = node.get("mimeType")
    content = node.get("content")
    url = node.get("downloadUrl")
    binary: BinaryData | None = None
    if isinstance(mime_type, str) and isinstance(url, str) and url:
        inline = decode_data_url(url)
        binary = BinaryData(_download(url, node) if inline is None else inline)
    elif not isinstance(content, str):
        binary = content_value(content)
        if binary is None and declares_base64(mime_type, node.get("encoding")):
            _refuse_buffer_as_json(content)
    elif isinstance(mime_type, str):
        binary = _text_content(content, mime_type, node)

    if binary is None:
        return None
    metadata = {key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS}
    return _with_declarations(binary, node, metadata)


def _refuse_buffer_as_json(content: object) -> None:
    """Raise :class:`~transports.errors.UnsupportedBinary` for what ``JSON.stringify`` makes of a buffer or ``Blob``."""
    match content:
        case {"type": "Buffer", "data": list()}:
            shape = "a Buffer of Node"
        case {"0": int()} | [int(), *_]:
            shape = "numbers"
        case dict() if not content:
            shape = "{}"
        case _:
            return
    advice = "the app must answer base64 text, or in a page a buffer or Blob that it has awaited"
    raise UnsupportedBinary(f"content is {shape}, as JSON has no buffers; {advice}")


def _with_declarations(binary: BinaryData, node: Mapping[str, object], extra: Mapping[str, object]) -> BinaryData:
    """What ``node`` does not declare is taken from the content: a page's ``File`` has a type and a name."""
    mime_type = node.get("mimeType")
    if not isinstance(mime_type, str) or not mime_type:
        mime_type = binary.mime_type

    size = _declared_size(node.get("size"))
    if size is None:
        size = binary.size

    filename = node.get("filename")
    if not isinstance(filename, str) or not filename:
        filename = binary.filename

    return BinaryData(binary.content, mime_type, size, filename, extra)


def _text_content(text: str, mime_type: str, node: Mapping[str, object]) -> BinaryData | None:
    """Return ``None`` for plain data. An ``encoding`` decides for any type. Without one, content of a binary type is
    base64 (docs/protocol.md 9.2), and content of a text type is a file only if the descriptor also has a file name or a
    size."""
    encoding = node.get("encoding")
    if is_base64_encoding(encoding):
        return _encoded_content(text, "base64")

    media_type = normalise_mime(mime_type)
    if media_type is None:
        return None
    if isinstance(encoding, str) and encoding.lower() in ("utf-8", "utf8"):
        _require_intact(text)
        return BinaryData(Encoded(text, "utf-8"))

    if not is_binary_mime(media_type):
        is_file = encoding is None and _is_named_or_measured(node)
        return _encoded_content(text, "utf-8") if is_file else None

    if encoding is not None:
        raise BadEncoding(f"unknown encoding {_excerpt(encoding)}; ABP knows 'base64' and 'utf-8'")
    if _TEXTUAL.search(media_type) and not is_base64(text):
        return _encoded_content(text, "utf-8")
    return _encoded_content(text, "base64")


def _encoded_content(text: str, encoding: Literal["base64", "utf-8"]) -> BinaryData:
    _require_intact(text)
    inline = decode_data_url(text)
    return BinaryData(Encoded(text, encoding) if inline is None else inline)


def _require_intact(text: str) -> None:
    # Base64, which may be long, is ASCII.
    if text.isascii():
        return
    loss = loss_by_decoding(text)
    if loss is not None:
        raise BadEncoding(f"the content is {loss}")


def _is_named_or_measured(node: Mapping[str, object]) -> bool:
    """Return whether a descriptor has a file name, or a numeric size: ``size: "12pt"`` is that of a font."""
    filename = node.get("filename")
    size = node.get("size")
    is_named = isinstance(filename, str) and bool(filename)
    return is_named or (isinstance(size, int | float) and not isinstance(size, bool))


def is_base64_encoding(encoding: object) -> bool:
    return isinstance(encoding, str) and encoding.lower().replace("_", "-") in ("base64", "base64url", "base64-url")


def declares_base64(mime_type: object, encoding: object) -> bool:
    """Return whether a type and an encoding alone declare text as base64."""
    if encoding is not None:
        return is_base64_encoding(encoding)
    media_type = _media_type(mime_type)
    return media_type is not None and is_binary_mime(media_type) and not _TEXTUAL.search(media_type)


def _media_type(mime_type: object) -> str | None:
    return normalise_mime(mime_type) if isinstance(mime_type, str) else None


def _declared_size(value: object) -> int | None:
    """Return the declared size in bytes. Any other value than a whole number in range is an error, never corrected."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise BadDescriptor(f"size must be a whole number of bytes, the app sent {_excerpt(value)}")
    if not 0 <= value <= MAX_INTEGER:
        raise BadDescriptor(f"size must be between 0 and 2^53-1 bytes, the app sent {_excerpt(value)}")
    return int(value)


def _download(url: str, node: Mapping[str, object]) -> Download:
    headers, query = _credentials(node.get("auth"))
    return Download(url, _expiry(node.get("expiresAt")), headers, query)


def _expiry(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_INTEGER:
        raise BadDescriptor(f"expiresAt must be Unix milliseconds, the app sent {_excerpt(value)}")
    return float(value)


def _credentials(auth: object) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers and the query fields that send the credentials of ``auth`` (docs/protocol.md 10.3)."""
    if auth is None:
        return {}, {}
    if not isinstance(auth, dict):
        raise BadDescriptor("auth must be an object with a type")

    kind = auth.get("type")
    if isinstance(kind, str):
        kind = kind.lower()
    token = _secret_line(auth.get("token"))
    header = _secret_line(auth.get("header"))

    if kind == "query" and token:
        return {}, {"token": token}
    if kind == "bearer" and header:
        return _authorization(header), {}
    if kind == "bearer" and token:
        return {"Authorization": f"Bearer {token}"}, {}
    raise BadDescriptor("auth must be {type:'bearer', header|token} or {type:'query', token}")


def _secret_line(secret: object) -> str:
    """Return a token or header without outer white space; empty if it is missing."""
    if secret is None:
        return ""
    if not isinstance(secret, str) or re.search(r"[\x00-\x1f\x7f]", secret):
        raise BadDescriptor("auth.token and auth.header must be one line of text")
    return secret.strip()


def _authorization(header: str) -> dict[str, str]:
    """Return a header that an app writes as ``Name: value``, as the value of ``Authorization``, or as a token alone."""
    line = _HEADER_LINE.fullmatch(header)
    if line:
        return {line[1]: line[2]}
    if " " in header:
        return {"Authorization": header}
    return {"Authorization": f"Bearer {header}"}


def _excerpt(value: object) -> str:
    """Python refuses to write numbers of more than 4,300 digits, so huge ones are only named."""
    huge_bits = 128
    if isinstance(value, int) and value.bit_length() > huge_bits:
        return "a huge number"
    return repr(value)[:40]


# The flat form (docs/protocol.md 9.5): content under any key, with its type and size beside it.

_GENERIC_KEYS = {"data", "base64", "bytes", "file", "blob", "buffer", "body", "binary", "document", "output", "result"}
_HEX = re.compile(r"(?=\D*\d)[0-9a-fA-F]*")  # with a digit: a run of "A" is base64 of zero bytes


def read_flat_form(node: Mapping[str, object]) -> tuple[str, BinaryData | ABPError] | None:
    """Return the key of the content, and the content or its error.

    The type must be binary or the encoding base64, as in a descriptor (docs/protocol.md 9.2). Keys named after the type
    (``image``, ``png``, ``jpg``) are tried first, then generic names (``data``), then all others; the first with
    content wins. ``{name, mimeType, size}`` in a list of files has no content and stays data."""
    media_type = _media_type(node.get("mimeType"))
    if media_type is None:
        return None
    encoding = node.get("encoding")
    is_certain = is_base64_encoding(encoding)
    if not is_certain and (encoding is not None or not is_binary_mime(media_type)):
        return None

    keys = [key for key in node if isinstance(key, str) and key not in DESCRIPTOR_KEYS]
    type_names = {*media_type.split("/"), extension_for(media_type)[1:]}
    named = dict.fromkeys(key for key in keys if key.lower() in type_names)
    named |= dict.fromkeys(key for key in keys if key.lower() in _GENERIC_KEYS)
    # A dict keeps the order, and has each key once.
    for key in named | dict.fromkeys(keys):
        try:
            content = _flat_content(node[key], is_named=key in named, is_certain=is_certain, size=node.get("size"))
            if content is not None:
                return key, _with_declarations(content, node, {})
        except ABPError as error:
            return key, error
    return None


def _flat_content(value: object, *, is_named: bool, is_certain: bool, size: object) -> BinaryData | None:
    """Under a key named for content (``is_named``), text counts as base64 if its node declares base64 (``is_certain``),
    if it decodes to the declared ``size``, or if it looks like base64. Under any other key it needs a signature."""
    if not isinstance(value, str):
        return content_value(value) if is_named else None

    if is_named:
        inline = decode_data_url(value)
        if inline is not None:
            return BinaryData(inline)

    has_signature = sniff_base64(value) is not None
    if is_named:
        is_content = has_signature or is_certain or _decodes_to(value, size) or _looks_encoded(value)
    else:
        # A short word may begin like a signature by chance.
        is_content = has_signature and len(value) >= 64
    return BinaryData(Encoded(value, "base64")) if is_content else None


def _decodes_to(text: str, size: object) -> bool:
    """Return whether ``text`` is base64 of exactly the declared ``size``, unlike short words and paths."""
    # Four characters of base64 are three bytes.
    decoded_size = len(text.rstrip("=")) * 3 // 4
    return bool(text) and decoded_size == size and is_base64(text)


def _looks_encoded(text: str) -> bool:
    """If it is broken later on, it is an error, not data. Prose, paths, code and tokens have a space, dot or colon
    early on; hashes are short or hexadecimal."""
    start = text[:256]
    return len(text) >= 100 and BASE64.fullmatch(start) is not None and not _HEX.fullmatch(start)


# Content blocks of MCP.


def read_block(node: Mapping[str, object], path: Place) -> tuple[Place, BinaryData | ABPError] | None:
    """Return the keys that lead from an MCP block to its content, and the content or its error.

    An ``image`` or ``audio`` block is recognised only in a list that is the whole answer, or that is called ``content``
    or ``contents``. A resource is recognised anywhere, by its ``uri`` and ``blob``. A ``resource_link`` has no content:
    ``resources/read`` reads it."""
    match node.get("type"):
        case "image" | "audio":
            return _read_media_block(node, path)
        case "resource":
            return _resource_content(node.get("resource"), ("resource", "blob"))
        case _:
            return _resource_content(node, ("blob",))


def _read_media_block(node: Mapping[str, object], path: Place) -> tuple[Place, BinaryData | ABPError] | None:
    data = node.get("data")
    mime_type = node.get("mimeType")
    if not isinstance(data, str | BinaryData) or not isinstance(mime_type, str):
        return None
    if not _is_in_block_list(path):
        return None
    return ("data",), _block_binary(data, mime_type, None)


def _is_in_block_list(path: Place) -> bool:
    return bool(path) and isinstance(path[-1], int) and (len(path) == 1 or path[-2] in ("content", "contents"))


def _resource_content(resource: object, keys: Place) -> tuple[Place, BinaryData | ABPError] | None:
    if not isinstance(resource, dict):
        return None
    uri = resource.get("uri")
    blob = resource.get("blob")
    if not isinstance(uri, str) or not isinstance(blob, str | BinaryData):
        return None
    mime_type = resource.get("mimeType")
    if not isinstance(mime_type, str):
        mime_type = None
    return keys, _block_binary(blob, mime_type, filename_of(uri))


def _block_binary(value: str | BinaryData, mime_type: str | None, filename: str | None) -> BinaryData | ABPError:
    """``value`` is base64 text, or content that a transport has already decoded."""
    if isinstance(value, BinaryData):
        return replace_fields(value, mime_type=mime_type or value.mime_type, filename=filename or value.filename)
    try:
        return BinaryData(block_content(value), mime_type, None, filename)
    except BadEncoding as error:
        return error


def block_content(text: str) -> Encoded | bytes:
    """Servers send base64 of either alphabet, in one line or several (RFC 2045), or a ``data:`` URL."""
    inline = decode_data_url(text)
    if inline is not None:
        return inline
    if "\n" in text:
        text = text.replace("\r", "").replace("\n", "")
    return Encoded(text.strip(), "base64")


def filename_of(uri: object) -> str | None:
    name = last_segment(uri)
    return name if "." in name.strip(".") else None


def last_segment(uri: object) -> str:
    if not isinstance(uri, str) or uri[:5].lower() == "data:":
        return ""
    return unquote(uri.partition("?")[0].partition("#")[0].rpartition("/")[2])
