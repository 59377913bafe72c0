"""Checks of the binary content of answers (docs/protocol.md 9 and 10)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ....errors import BadDescriptor, BadEncoding, DownloadFailed, SizeMismatch, UrlExpired
from ....protocol._media import contradicts, safe_filename, sniff
from ....protocol.binary import Encoded
from .._evidence import ContentItem, Evidence, NotApplicable, Rules

RULES = Rules()
#: Minimum lifetime of a downloadUrl in seconds: an hour, less the time for an answer to arrive.
_LIFETIME = 3600 - 60
_STANDARD = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def _contents(app: Evidence) -> list[tuple[str, ContentItem]]:
    if not app.contents:
        raise NotApplicable("no answer held binary content")
    return app.contents


def _downloads(app: Evidence) -> list[tuple[str, ContentItem]]:
    downloads = [(name, item) for name, item in app.contents if isinstance(item.node.get("downloadUrl"), str)]
    if not downloads:
        raise NotApplicable("no answer held a downloadUrl")
    return downloads


@RULES(
    "binary.taken",
    "MUST",
    "Content can be read",
    source="docs/protocol.md 9.2, 9.4",
    fix="answer an ArrayBuffer, typed array, Blob or base64 text that is whole",
)
def _taken(app: Evidence) -> Iterator[str]:
    other_checks = SizeMismatch | BadEncoding | BadDescriptor | DownloadFailed
    for name, item in _contents(app):
        if item.error is not None and not isinstance(item.error, other_checks):
            yield f"{name}: {item.error.message}"


@RULES(
    "binary.size",
    "MUST",
    "A declared size is the size of the content, in bytes",
    source="docs/protocol.md 9.9",
    fix="declare the length of the bytes, not of their base64, as a whole number",
)
def _size(app: Evidence) -> Iterator[str]:
    for name, item in _contents(app):
        if isinstance(item.error, SizeMismatch | BadDescriptor):
            yield f"{name}: {item.error.message}"


@RULES(
    "binary.size_given",
    "SHOULD",
    "Content declares its size",
    source="docs/protocol.md 9.2",
    fix="add size, in bytes",
)
def _size_given(app: Evidence) -> Iterator[str]:
    for name, item in _contents(app):
        if "downloadUrl" not in item.node and _is_described(item) and item.node.get("size") is None:
            yield f"{name} has no size"


@RULES(
    "binary.reference_size",
    "MUST",
    "A downloadUrl comes with the size of its file",
    source="docs/protocol.md 10.1",
    fix="add size, in bytes: without it a truncated file cannot be distinguished from a whole one",
)
def _reference_size(app: Evidence) -> Iterator[str]:
    for name, item in _downloads(app):
        if item.node.get("size") is None:
            yield f"{name} is a downloadUrl without size"


@RULES(
    "binary.fields",
    "MUST",
    "Content declares its mimeType, and text its encoding",
    source="docs/protocol.md 9.2",
    fix="add mimeType, and encoding: 'base64' or 'utf-8' where content is text",
)
def _fields(app: Evidence) -> Iterator[str]:
    for name, item in _contents(app):
        if not _is_described(item):
            continue
        if not isinstance(item.node.get("mimeType"), str):
            yield f"{name} has no mimeType"
        if isinstance(item.node.get("content"), str) and item.node.get("encoding") is None:
            yield f"{name} is text without encoding"


@RULES(
    "binary.encoding",
    "MUST",
    "Base64 is valid",
    source="docs/protocol.md 9.8; RFC 4648 §3.5",
    fix="encode the bytes with a library; btoa(String.fromCharCode(...bytes)) breaks on large content",
)
def _encoding(app: Evidence) -> Iterator[str]:
    for name, item in _contents(app):
        if isinstance(item.error, BadEncoding):
            yield f"{name}: {item.error.message}"


@RULES(
    "binary.alphabet",
    "SHOULD",
    "Base64 is in the standard alphabet, with its padding",
    source="docs/protocol.md 9.8; RFC 4648 §3.2, §4",
    fix="use + and / instead of - and _, and end with = as needed",
)
def _alphabet(app: Evidence) -> Iterator[str]:
    for name, item in _contents(app):
        if item.error is not None or item.binary is None:
            continue
        content = item.binary.content
        if not isinstance(content, Encoded) or content.encoding != "base64" or not isinstance(content.text, str):
            continue
        if len(content.text) % 4:
            yield f"{name}: without padding"
        elif not _STANDARD.fullmatch(content.text):
            yield f"{name}: in the URL-safe alphabet"


@RULES(
    "binary.type",
    "MUST",
    "Content is of the declared mimeType",
    source="docs/protocol.md 9.11",
    fix="declare the type that the content has",
)
def _type(app: Evidence) -> Iterator[str]:
    for name, item in _contents(app):
        declared = item.node.get("mimeType")
        sniffed = sniff(item.head)
        if isinstance(declared, str) and sniffed is not None and contradicts(declared, sniffed):
            yield f"{name} is declared {declared[:60]!r} and begins like {sniffed}"


@RULES(
    "binary.filename",
    "SHOULD",
    "A suggested file name is a plain name",
    source="docs/protocol.md 9.2, 9.11",
    fix="suggest a name without folders and control characters, such as report.pdf",
)
def _filename(app: Evidence) -> Iterator[str]:
    for name, item in _contents(app):
        suggested = item.node.get("filename")
        if suggested is None:
            continue
        mime_type = item.node.get("mimeType")
        if not isinstance(mime_type, str):
            mime_type = None
        is_plain = isinstance(suggested, str) and suggested == safe_filename(
            suggested, fallback="", mime_type=mime_type
        )
        if not suggested or not is_plain:
            yield f"{name}: {suggested!r:.80}"


@RULES(
    "binary.download",
    "MUST",
    "A downloadUrl gives the whole file",
    source="docs/protocol.md 10.6",
    fix="serve the bytes that were declared, with 200 and a Content-Length, until expiresAt",
)
def _whole_download(app: Evidence) -> Iterator[str]:
    for name, item in _downloads(app):
        if isinstance(item.error, DownloadFailed) and not isinstance(item.error, UrlExpired):
            yield f"{name}: {item.error.message}"


@RULES(
    "binary.expiry",
    "MUST",
    "A downloadUrl has not expired when it is answered",
    source="docs/protocol.md 10.4",
    fix="set expiresAt to a time in the future, in milliseconds",
)
def _expiry(app: Evidence) -> Iterator[str]:
    for name, item in _downloads(app):
        if isinstance(item.error, UrlExpired):
            yield f"{name}: {item.error.message}"


@RULES(
    "binary.lifetime",
    "SHOULD",
    "A downloadUrl lives for an hour or more",
    source="docs/protocol.md 10.4",
    fix="set expiresAt to an hour from now or later, in milliseconds",
)
def _lifetime(app: Evidence) -> Iterator[str]:
    for name, item in _downloads(app):
        if item.expires_in is not None and 0 < item.expires_in < _LIFETIME:
            yield f"{name} expires in {item.expires_in / 60:.0f} minutes"


@RULES(
    "binary.at_once",
    "SHOULD",
    "A download is complete after one request",
    source="docs/protocol.md 10.6",
    fix="do not interrupt the download: not every client resumes it",
)
def _at_once(app: Evidence) -> Iterator[str]:
    for name, item in _downloads(app):
        if item.error is None and item.attempts > 1:
            yield f"{name} took {item.attempts} requests"


@RULES(
    "binary.stays",
    "SHOULD",
    "A download that needs credentials stays at its origin",
    source="docs/protocol.md 10.3",
    fix="sign the address that is redirected to, or serve the file where the credentials are checked",
)
def _stays(app: Evidence) -> Iterator[str]:
    for name, item in _downloads(app):
        if item.left_origin:
            yield f"{name} is redirected to another origin, which gets no credentials"


def _is_described(item: ContentItem) -> bool:
    """Return whether the item is a descriptor or a reference. Other content has no fields of its own."""
    node: Mapping[str, object] = item.node
    return "content" in node or "downloadUrl" in node
