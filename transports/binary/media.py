"""MIME types: their names and extensions, and whether content can be of a declared type. No I/O."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from functools import lru_cache

from .signatures import OFFICE_TYPES

__all__ = ["OCTET_STREAM", "contradicts", "extension_for", "is_binary_mime", "normalise_mime"]

OCTET_STREAM = "application/octet-stream"

#: MIME type → extension. The first seventeen rows are that of docs/requirements.md R0-7; the rest is what apps
#: produce besides.
_EXTENSIONS = {
    "application/pdf": ".pdf",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/ogg": ".ogg",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "application/zip": ".zip",
    "application/json": ".json",
    "text/html": ".html",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "text/markdown": ".md",
    "application/gzip": ".gz",
    "application/x-7z-compressed": ".7z",
    "application/x-bzip2": ".bz2",
    "application/x-xz": ".xz",
    "application/zstd": ".zst",
    "application/x-tar": ".tar",
    "application/vnd.rar": ".rar",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/msword": ".doc",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.oasis.opendocument.spreadsheet": ".ods",
    "application/vnd.oasis.opendocument.presentation": ".odp",
    "application/epub+zip": ".epub",
    "application/postscript": ".ps",
    "application/rtf": ".rtf",
    "application/wasm": ".wasm",
    "application/vnd.sqlite3": ".sqlite",
    "application/xml": ".xml",
    "application/javascript": ".js",
    "text/javascript": ".js",
    "text/css": ".css",
    "text/xml": ".xml",
    "image/bmp": ".bmp",
    "image/tiff": ".tiff",
    "image/avif": ".avif",
    "image/heic": ".heic",
    "image/x-icon": ".ico",
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "audio/aac": ".aac",
    "audio/webm": ".weba",
    "audio/midi": ".mid",
    "video/quicktime": ".mov",
    "video/x-msvideo": ".avi",
    "video/ogg": ".ogv",
    "video/x-matroska": ".mkv",
    "font/woff": ".woff",
    "font/woff2": ".woff2",
    "font/ttf": ".ttf",
    "font/otf": ".otf",
    "font/collection": ".ttc",
    "model/gltf-binary": ".glb",
    "application/x-elf": ".elf",
    "application/x-gettext-translation": ".mo",
    "application/x-python-code": ".pyc",
}

_ALIASES = {
    "application/x-pdf": "application/pdf",
    "application/x-zip-compressed": "application/zip",
    "application/x-gzip": "application/gzip",
    "application/x-javascript": "application/javascript",
    "audio/mp3": "audio/mpeg",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "image/jpg": "image/jpeg",
    "image/vnd.microsoft.icon": "image/x-icon",
    "application/x-sqlite3": "application/vnd.sqlite3",
    "application/x-rar-compressed": "application/vnd.rar",
    "audio/x-flac": "audio/flac",
    "audio/x-m4a": "audio/mp4",
    "text/rtf": "application/rtf",
    "text/x-markdown": "text/markdown",
}

#: Types that content may be declared as although its signature says another: the signature is that of the container.
_CONTAINED_TYPES: Mapping[str, Container[str]] = {
    "application/zip": {
        *OFFICE_TYPES.values(),
        "application/epub+zip",
        "application/vnd.oasis.opendocument.text",
        "application/vnd.oasis.opendocument.spreadsheet",
        "application/vnd.oasis.opendocument.presentation",
    },
    "application/x-ole-storage": {"application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint"},
    "audio/ogg": {"video/ogg"},
    "video/webm": {"audio/webm", "video/x-matroska"},
    "video/mp4": {"audio/mp4", "video/quicktime", "image/avif", "image/heic"},
}
_MARKUP = {"text/html", "image/svg+xml", "application/xml"}
_MIME = re.compile(r"[a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+-]{1,127}")


def normalise_mime(mime_type: str | None) -> str | None:
    """Return a MIME type in lower case, without parameters, with well-known aliases resolved (``image/jpg``).

    Return ``None`` for anything that is no MIME type.
    """
    return _normalised(mime_type[:_MAX_MIME_CHARS]) if mime_type else None


#: Characters of a declared type that are read. A longer one is cut, which leaves no valid MIME type.
_MAX_MIME_CHARS = 512


@lru_cache(maxsize=256)
def _normalised(mime_type: str) -> str | None:
    bare = mime_type.partition(";")[0].strip().lower()
    return _ALIASES.get(bare, bare) if _MIME.fullmatch(bare) else None


def is_binary_mime(mime_type: str) -> bool:
    """Return whether a type is binary: every type is, but ``text/*`` and ``application/json`` (docs/protocol.md 9.2).

    What is no MIME type is not binary.
    """
    bare = normalise_mime(mime_type)
    return bare is not None and not bare.startswith("text/") and bare != "application/json"


def extension_for(mime_type: str | None) -> str:
    """Return the file extension for a type, with its dot; ``.bin`` for a type that is not in the table
    (docs/protocol.md 9.11, docs/requirements.md R0-7)."""
    return _EXTENSIONS.get(normalise_mime(mime_type) or "", ".bin")


def contradicts(declared: str, sniffed: str) -> bool:
    """Return whether content of the ``sniffed`` type cannot be of the ``declared`` type.

    A declared type that this module does not know is believed (``image/apng`` begins like a PNG), unless the content is
    markup: a browser could run it.
    """
    bare = normalise_mime(declared)
    if bare is None or bare in (sniffed, OCTET_STREAM):
        return False
    if sniffed in _MARKUP:
        return "xml" not in bare and not bare.startswith("text/")
    known = bare in _EXTENSIONS or not is_binary_mime(bare)
    return known and bare not in _CONTAINED_TYPES.get(sniffed, ())
