"""What content is and what to call it: MIME types, extensions, signatures, safe file names. No I/O."""

from __future__ import annotations

import re
import unicodedata

from pathvalidate import sanitize_filename

__all__ = ["OCTET_STREAM", "extension_for", "is_binary_mime", "normalise_mime", "safe_filename", "sniff"]

OCTET_STREAM = "application/octet-stream"

#: MIME type → extension. The first seventeen rows are the table of seed 000; the rest is what apps produce besides.
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
    "model/gltf-binary": ".glb",
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
    "text/x-markdown": "text/markdown",
}

#: (offset, bytes, MIME type). Specific before general.
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF-", "application/pdf"),
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"\x00\x00\x01\x00", "image/x-icon"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"\x1f\x8b\x08", "application/gzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (257, b"ustar", "application/x-tar"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"MThd", "audio/midi"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (0, b"OTTO", "font/otf"),
    (0, b"\x00\x01\x00\x00\x00", "font/ttf"),
    (0, b"\x00asm", "application/wasm"),
    (0, b"glTF", "model/gltf-binary"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"%!PS", "application/postscript"),
    (0, b"{\\rtf", "application/rtf"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_FTYP = {
    b"avif": "image/avif",
    b"heic": "image/heic",
    b"mif1": "image/heic",
    b"M4A ": "audio/mp4",
    b"qt  ": "video/quicktime",
}
_OFFICE = (
    (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
)
#: Declared types that a signature of the second kind does not contradict: containers.
_CONTAINED = {
    "application/zip": re.compile(
        r"\+zip$|officedocument|opendocument|^application/(java-archive|vnd\.android|x-xpinstall)"
    ),
    "application/gzip": re.compile(r"^application/(x-compressed-tar|x-gtar|tar\+gzip|vnd\.)"),
    "audio/ogg": re.compile(r"^(video|application)/ogg$"),
    "video/webm": re.compile(r"^(audio/webm|video/x-matroska|audio/x-matroska)$"),
    "video/mp4": re.compile(r"^(audio/mp4|audio/x-m4a|video/quicktime|video/3gpp)$"),
    "text/html": re.compile(r"xml|^text/"),
    "image/svg+xml": re.compile(r"xml|^text/"),
    "application/xml": re.compile(r"xml|^text/"),
}
_MIME = re.compile(r"^[a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+-]{1,127}$")


def normalise_mime(mime_type: str | None) -> str | None:
    """Lower case, no parameters, well-known aliases resolved (``image/jpg``). ``None`` if it is no MIME type."""
    if not mime_type:
        return None
    bare = mime_type.partition(";")[0].strip().lower()
    return _ALIASES.get(bare, bare) if _MIME.match(bare) else None


def is_binary_mime(mime_type: str) -> bool:
    """Seed 000: every type is binary but ``text/*`` and ``application/json``."""
    bare = normalise_mime(mime_type)
    return bare is not None and not bare.startswith("text/") and bare != "application/json"


def extension_for(mime_type: str | None) -> str:
    """Extension with its dot; ``.bin`` for what is not in the table (seed 000)."""
    return _EXTENSIONS.get(normalise_mime(mime_type) or "", ".bin")


def sniff(head: bytes) -> str | None:
    """MIME type by the first bytes (give 4,096 of them where there are), or ``None`` if no signature is known."""
    for offset, magic, mime_type in _SIGNATURES:
        if head.startswith(magic, offset):
            return _refine(head, mime_type)
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _FTYP.get(head[8:12], "video/mp4")
    if head[:4] == b"\x1aE\xdf\xa3":
        return "video/webm" if b"webm" in head[:64] else "video/x-matroska"
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 in (0xE2, 0xE4, 0xE6):
        return "audio/mpeg"
    return _sniff_markup(head)


def _refine(head: bytes, mime_type: str) -> str | None:
    if mime_type == "image/bmp":  # two letters prove nothing: the header's reserved words must be zero
        return mime_type if len(head) >= 14 and head[6:10] == b"\0\0\0\0" else None
    if mime_type == "application/x-bzip2":
        return mime_type if head[4:10] in (b"1AY&SY", b"\x17rE8P\x90") else None
    if mime_type != "application/zip":
        return mime_type
    if head[30:38] == b"mimetype":  # EPUB and OpenDocument name themselves in their first, stored entry
        name = re.match(rb"[a-z0-9.+/-]+", head[38:138])
        inner = name.group().decode() if name else ""
        inner = next((known for known in _EXTENSIONS if inner.startswith(known)), "")
        return inner or mime_type
    return next((office for part, office in _OFFICE if part in head), mime_type)


def _sniff_markup(head: bytes) -> str | None:
    text = head[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script")):
        return "text/html"
    if text.startswith(b"<svg") or (text.startswith((b"<?xml", b"<!doctype svg")) and b"<svg" in text):
        return "image/svg+xml"
    return "application/xml" if text.startswith(b"<?xml") else None


def contradicts(declared: str, sniffed: str) -> bool:
    """Whether content of the ``sniffed`` type was declared as something it cannot be."""
    bare = normalise_mime(declared)
    if bare is None or bare in (sniffed, OCTET_STREAM):
        return False
    compatible = _CONTAINED.get(sniffed)
    return not (compatible and compatible.search(bare))


_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def safe_filename(suggestion: str | None, *, fallback: str, mime_type: str | None) -> str:
    """A name that is harmless in any folder of any system, from a suggestion by an untrusted side.

    Folders, control and direction-changing characters, leading dots and dashes, trailing dots and spaces and the
    reserved names of Windows go; the result is NFC, at most 120 UTF-8 bytes, and keeps a plausible extension or gets
    the one of ``mime_type``. ``fallback`` (a stem, trusted) is used where nothing is left.
    """
    name = unicodedata.normalize("NFC", suggestion or "")
    name = re.split(r"[/\\]", name)[-1]
    name = "".join(c for c in name if unicodedata.category(c) not in _INVISIBLE)
    name = sanitize_filename(name, platform="universal").strip().lstrip(".-~ ").rstrip(". ")
    stem, dot, extension = name.rpartition(".")
    if not dot or not re.fullmatch(r"[A-Za-z0-9]{1,10}", extension):
        stem, extension = name, extension_for(mime_type).lstrip(".")
    stem = _cut(stem.rstrip(". "), 119 - len(extension)) or fallback
    return sanitize_filename(f"{stem}.{extension}", platform="universal")


def _cut(text: str, limit: int) -> str:
    return text.encode()[:limit].decode(errors="ignore").rstrip(". ")
