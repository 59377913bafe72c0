"""Binary content of answers (seed "Binary Data Protocol")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ....binary import Encoded
from ....binary.filenames import safe_filename
from ....binary.media import contradicts, sniff
from ....errors import BadDescriptor, BadEncoding, DownloadFailed, SizeMismatch, UrlExpired
from ..evidence import Evidence, Piece
from ..rules import NotApplicable, Rules

RULES = Rules()
_DATA = "seed Binary Data Protocol, BinaryData"
_REFERENCE = "seed Binary Data Protocol, BinaryDataReference"
_STANDARD = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def _pieces(app: Evidence) -> list[tuple[str, Piece]]:
    if not app.pieces:
        raise NotApplicable("no answer held binary content")
    return app.pieces


def _downloads(app: Evidence) -> list[tuple[str, Piece]]:
    found = [(name, piece) for name, piece in app.pieces if isinstance(piece.node.get("downloadUrl"), str)]
    if not found:
        raise NotApplicable("no answer held a downloadUrl")
    return found


@RULES(
    "binary.taken",
    "MUST",
    "Content can be taken",
    source=_DATA,
    fix="answer an ArrayBuffer, typed array, Blob or base64 text that is whole",
)
def taken(app: Evidence) -> Iterator[str]:
    told_elsewhere = SizeMismatch | BadEncoding | BadDescriptor | DownloadFailed
    for name, piece in _pieces(app):
        if piece.error is not None and not isinstance(piece.error, told_elsewhere):
            yield f"{name}: {piece.error.message}"


@RULES(
    "binary.size",
    "MUST",
    "A declared size is the size of the content, in bytes",
    source=_DATA,
    fix="declare the length of the bytes, not of their base64, as a whole number",
)
def size(app: Evidence) -> Iterator[str]:
    for name, piece in _pieces(app):
        if isinstance(piece.error, SizeMismatch | BadDescriptor):
            yield f"{name}: {piece.error.message}"


@RULES(
    "binary.size_given",
    "SHOULD",
    "A size is declared; for a downloadUrl it must be",
    source=_DATA + ": size is RECOMMENDED; BinaryDataReference: REQUIRED",
    fix="add size, in bytes",
)
def size_given(app: Evidence) -> Iterator[str]:
    for name, piece in _pieces(app):
        if _described(piece) and piece.node.get("size") is None:
            yield f"{name} has no size"


@RULES(
    "binary.fields",
    "MUST",
    "Content says its mimeType, and text its encoding",
    source=_DATA + ": mimeType is REQUIRED, encoding is REQUIRED when content is a string",
    fix="add mimeType, and encoding: 'base64' or 'utf-8' where content is text",
)
def fields(app: Evidence) -> Iterator[str]:
    for name, piece in _pieces(app):
        if not _described(piece):
            continue
        if not isinstance(piece.node.get("mimeType"), str):
            yield f"{name} has no mimeType"
        if isinstance(piece.node.get("content"), str) and piece.node.get("encoding") is None:
            yield f"{name} is text without encoding"


@RULES(
    "binary.encoding",
    "MUST",
    "Base64 is valid",
    source=_DATA + "; RFC 4648 §3.5",
    fix="encode the bytes with a library; btoa(String.fromCharCode(...bytes)) breaks on large content",
)
def encoding(app: Evidence) -> Iterator[str]:
    for name, piece in _pieces(app):
        if isinstance(piece.error, BadEncoding):
            yield f"{name}: {piece.error.message}"


@RULES(
    "binary.alphabet",
    "SHOULD",
    "Base64 is in the standard alphabet, with its padding",
    source=_DATA + "; RFC 4648 §3.2, §4",
    fix="use + and / instead of - and _, and end with = as needed",
)
def alphabet(app: Evidence) -> Iterator[str]:
    for name, piece in _pieces(app):
        content = piece.binary.content if piece.binary is not None else None
        text = content.text if isinstance(content, Encoded) and content.encoding == "base64" else None
        if piece.error is None and isinstance(text, str) and (len(text) % 4 or not _STANDARD.fullmatch(text)):
            yield f"{name}: {'without padding' if len(text) % 4 else 'in the URL-safe alphabet'}"


@RULES(
    "binary.type",
    "MUST",
    "Content is of its mimeType",
    source=_DATA,
    fix="declare what the content is",
)
def type_(app: Evidence) -> Iterator[str]:
    for name, piece in _pieces(app):
        declared, found = piece.node.get("mimeType"), sniff(piece.head)
        if isinstance(declared, str) and found is not None and contradicts(declared, found):
            yield f"{name} is declared {declared[:60]!r} and begins like {found}"


@RULES(
    "binary.filename",
    "SHOULD",
    "A suggested file name is a plain name",
    source=_DATA + ": filename, a suggestion",
    fix="suggest a name without folders and control characters, such as report.pdf",
)
def filename(app: Evidence) -> Iterator[str]:
    for name, piece in _pieces(app):
        said = piece.node.get("filename")
        if said is None:
            continue
        mime_type = piece.node.get("mimeType")
        kind = mime_type if isinstance(mime_type, str) else None
        if not isinstance(said, str) or not said or safe_filename(said, fallback="", mime_type=kind) != said:
            yield f"{name}: {said!r:.80}"


@RULES(
    "binary.download",
    "MUST",
    "A downloadUrl gives the whole file",
    source=_REFERENCE,
    fix="serve the bytes that were declared, with 200 and a Content-Length, until expiresAt",
)
def download(app: Evidence) -> Iterator[str]:
    for name, piece in _downloads(app):
        if isinstance(piece.error, DownloadFailed) and not isinstance(piece.error, UrlExpired):
            yield f"{name}: {piece.error.message}"


@RULES(
    "binary.expiry",
    "MUST",
    "A downloadUrl has not expired when it is answered",
    source=_REFERENCE + ": expiresAt, Unix ms",
    fix="set expiresAt to a time to come, in milliseconds",
)
def expiry(app: Evidence) -> Iterator[str]:
    for name, piece in _downloads(app):
        if isinstance(piece.error, UrlExpired):
            yield f"{name}: {piece.error.message}"


@RULES(
    "binary.at_once",
    "SHOULD",
    "A download comes at the first request",
    source=_REFERENCE,
    fix="do not break off: not every client asks again",
)
def at_once(app: Evidence) -> Iterator[str]:
    for name, piece in _downloads(app):
        if piece.error is None and piece.attempts > 1:
            yield f"{name} took {piece.attempts} requests"


@RULES(
    "binary.stays",
    "SHOULD",
    "A download that needs credentials stays at its origin",
    source="PROTOCOL Binary references: credentials go to the URL's own origin only, never past a redirect",
    fix="sign the address that is redirected to, or serve the file where the credentials are checked",
)
def stays(app: Evidence) -> Iterator[str]:
    for name, piece in _downloads(app):
        if piece.strayed:
            yield f"{name} is redirected to another origin, which gets no credentials"


def _described(piece: Piece) -> bool:
    """Whether it is BinaryData or a reference: other content has no fields of its own."""
    node: Mapping[str, object] = piece.node
    return "content" in node or "downloadUrl" in node
