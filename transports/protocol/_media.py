"""MIME types: signatures of content, names and extensions, contradictions, and safe file names."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Container, Mapping

#: (offset, bytes, MIME type). Long enough that text does not match by chance.
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF-", "application/pdf"),
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"\x00\x00\x01\x00", "image/x-icon"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"\x1f\x8b\x08", "application/gzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (4, b"1AY&SY", "application/x-bzip2"),
    (4, b"\x17rE8P\x90", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (257, b"ustar\x00", "application/x-tar"),
    (257, b"ustar  \x00", "application/x-tar"),
    (0, b"OggS\x00", "audio/ogg"),
    (0, b"fLaC\x00", "audio/flac"),
    (0, b"fLaC\x80", "audio/flac"),
    (0, b"ID3\x02", "audio/mpeg"),
    (0, b"ID3\x03", "audio/mpeg"),
    (0, b"ID3\x04", "audio/mpeg"),
    (0, b"MThd\x00\x00\x00\x06", "audio/midi"),
    (0, b"wOFF\x00\x01\x00\x00", "font/woff"),
    (0, b"wOFFOTTO", "font/woff"),
    (0, b"wOF2\x00\x01\x00\x00", "font/woff2"),
    (0, b"wOF2OTTO", "font/woff2"),
    (0, b"OTTO\x00", "font/otf"),
    (0, b"ttcf\x00", "font/collection"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (0, b"\x00\x01\x00\x00\x00", "font/ttf"),
    (0, b"\x00asm\x01\x00\x00\x00", "application/wasm"),
    (0, b"glTF\x02\x00\x00\x00", "model/gltf-binary"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"\xde\x12\x04\x95", "application/x-gettext-translation"),
    (0, b"\x95\x04\x12\xde", "application/x-gettext-translation"),
    (0, b"\x7fELF\x01\x01\x01", "application/x-elf"),  # 32 or 64 bits, either byte order, version 1
    (0, b"\x7fELF\x01\x02\x01", "application/x-elf"),
    (0, b"\x7fELF\x02\x01\x01", "application/x-elf"),
    (0, b"\x7fELF\x02\x02\x01", "application/x-elf"),
    (0, b"%!PS", "application/postscript"),
    (0, b"{\\rtf", "application/rtf"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_FTYP = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heic",
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
    b"qt  ": "video/quicktime",
}
OFFICE_TYPES = {
    b"word/": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    b"xl/": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    b"ppt/": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
_ENTRY = rb"PK\x03\x04[\s\S]{26}"  # header of a ZIP entry, before the file name
# SheetJS writes [Content_Types].xml last.
_OFFICE_MARK = re.compile(_ENTRY + rb"(?:\[Content_Types\]\.xml|_rels/|(?:word|xl|ppt)/_rels/[a-z]+\.xml\.rels)")
_OFFICE_PART = re.compile(_ENTRY + rb"(word/|xl/|ppt/)")
_SELF_NAMED = re.compile(_ENTRY + rb"mimetype(application/(?:epub\+zip|vnd\.oasis\.opendocument\.[a-z-]+))")
#: Bytes of content in which every signature can be recognised, and in which Office files differ from other ZIP files.
HEAD_BYTES = 4096


def sniff(head: bytes) -> str | None:
    """Return the MIME type of content by its first :data:`HEAD_BYTES`, or ``None`` without a known signature."""
    for offset, magic, mime_type in _SIGNATURES:
        if head.startswith(magic, offset):
            return mime_type

    match head[:4]:
        case b"PK\x03\x04":
            return _sniff_zip(head)
        case b"RIFF" | b"RIFX" | b"RF64":  # big-endian, and over 4 GB
            return _RIFF.get(head[8:12])
        case b"\x1aE\xdf\xa3":
            return "video/webm" if b"webm" in head[:64] else "video/x-matroska"

    if head[:2] == b"\0\0" and head[4:8] == b"ftyp":
        return _FTYP.get(head[8:12], "video/mp4")
    # Two letters alone prove nothing; the header of a bitmap also has four reserved bytes.
    if head[:2] == b"BM" and len(head) >= 14 and head[6:10] == b"\0\0\0\0":
        return "image/bmp"
    if _is_mpeg_audio(head):
        return "audio/mpeg"
    return _sniff_markup(head)


def _sniff_zip(head: bytes) -> str:
    """EPUB and OpenDocument files name their type in the first entry; Office files are known by their entries."""
    self_named = _SELF_NAMED.match(head)
    if self_named:
        return self_named[1].decode()
    office_part = _OFFICE_PART.search(head)
    if office_part and _OFFICE_MARK.search(head):
        return OFFICE_TYPES[office_part[1]]
    return "application/zip"


def _is_mpeg_audio(head: bytes) -> bool:
    """Look for a frame header (no ID3 tag). Layer I is refused: it is out of use and looks like a byte order mark."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False

    # The bits of the layer count downwards: layer II is 2, layer III is 1. Version 1 is reserved.
    version = head[1] >> 3 & 3
    layer = head[1] >> 1 & 3
    bitrate = head[2] >> 4
    sample_rate = head[2] >> 2 & 3
    is_layer_2_or_3 = layer in (1, 2)
    has_reserved_value = version == 1 or bitrate in (0, 15) or sample_rate == 3
    return is_layer_2_or_3 and not has_reserved_value


def _sniff_markup(head: bytes) -> str | None:
    text = head[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script")):
        return "text/html"
    if text.startswith(b"<svg") or (text.startswith((b"<?xml", b"<!doctype svg")) and b"<svg" in text):
        return "image/svg+xml"
    if text.startswith(b"<?xml"):
        return "application/xml"
    return None


OCTET_STREAM = "application/octet-stream"

#: MIME type → extension. The first seventeen rows are those of docs/requirements.md R0-7; apps produce the others, too.
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

#: Signature type of a container → types that such content may be declared as.
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
MARKUP = {"text/html", "image/svg+xml", "application/xml"}
_MIME = re.compile(r"[a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+-]{1,127}")


def normalise_mime(mime_type: str | None) -> str | None:
    """Return a type in lower case, without parameters and aliases (``image/jpg``); ``None`` for any other text."""
    if not mime_type:
        return None
    shortened = mime_type[:512]  # cutting a longer text leaves no valid MIME type
    essence = shortened.partition(";")[0].strip().lower()
    if not _MIME.fullmatch(essence):
        return None
    return _ALIASES.get(essence, essence)


def is_binary_mime(mime_type: str) -> bool:
    """All types are, except ``text/*`` and ``application/json`` (docs/protocol.md 9.2)."""
    media_type = normalise_mime(mime_type)
    return media_type is not None and not media_type.startswith("text/") and media_type != "application/json"


def extension_for(mime_type: str | None) -> str:
    """Return it with its dot; ``.bin`` for an unknown type (docs/protocol.md 9.11, docs/requirements.md R0-7)."""
    return _EXTENSIONS.get(normalise_mime(mime_type) or "", ".bin")


def type_of_extension(extension: str) -> str | None:
    """Return the type whose files have an extension, given without its dot (``pdf``); ``None`` for an unknown one."""
    dotted = f".{extension.lower()}"
    return next((mime_type for mime_type in _EXTENSIONS if _EXTENSIONS[mime_type] == dotted), None)


def text_type_of_name(filename: str | None, head: bytes, *, whole: bool) -> str | None:
    """Return the text type that the extension stands for, if the content is text in UTF-8. Without ``whole``, the last
    character of ``head`` may be cut. ``None`` for other types: their content has a signature, or is markup, which a
    browser could run."""
    mime_type = type_of_extension((filename or "").rpartition(".")[2])
    if mime_type is None or is_binary_mime(mime_type) or mime_type in MARKUP or b"\0" in head:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, whole)
    except UnicodeDecodeError:
        return None
    return mime_type


def contradicts(declared: str, sniffed: str) -> bool:
    """A declared type that this module does not know is accepted (``image/apng`` begins like a PNG), unless the content
    is markup, which a browser could run."""
    media_type = normalise_mime(declared)
    if media_type is None or media_type in (sniffed, OCTET_STREAM):
        return False
    if sniffed in MARKUP:
        # Types of Office files have "openxmlformats" in their names.
        return not media_type.endswith(("/xml", "+xml")) and not media_type.startswith("text/")
    is_known = media_type in _EXTENSIONS or not is_binary_mime(media_type)
    return is_known and media_type not in _CONTAINED_TYPES.get(sniffed, ())


#: Unicode categories of characters that are invisible or change the display of others.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
#: Harmless names, the common case; a stem of five of these characters is not a reserved name of Windows.
_HARMLESS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{4,60}\.[A-Za-z][A-Za-z0-9]{1,9}")


def safe_filename(suggestion: str | None, *, fallback: str, mime_type: str | None) -> str:
    """Return a file name that is harmless in any folder of any system, from an untrusted suggestion.

    Folders, control and direction-changing characters, leading dots and dashes, trailing dots and spaces and the
    reserved names of Windows are removed. It is in NFC, has at most 120 UTF-8 bytes, and keeps a plausible extension or
    gets that of ``mime_type``. If nothing is left, the stem is ``fallback``, which is trusted."""
    if suggestion and _HARMLESS_NAME.fullmatch(suggestion):
        return suggestion

    name = _harmless_part(suggestion or "")
    # An extension has a letter and at most ten characters.
    stem, _, extension = name.rpartition(".")
    if not stem or not re.fullmatch(r"(?=[0-9]*[A-Za-z])[A-Za-z0-9]{1,10}", extension):
        stem = name
        extension = extension_for(mime_type)[1:]

    from pathvalidate import sanitize_filename  # late: a session loads it while its transport opens

    stem = sanitize_filename(
        stem, platform="universal", fs_encoding="utf-8", additional_reserved_names=("CONIN$", "CONOUT$")
    )
    max_stem_bytes = 120 - len(f".{extension}")
    # Cutting may leave a part of a character at the end, which is ignored.
    stem = stem.encode()[:max_stem_bytes].decode(errors="ignore").rstrip(". ")
    return f"{stem or fallback}.{extension}"


def _harmless_part(path: str) -> str:
    last_separator = max(path.rfind("/"), path.rfind("\\"))
    name = path[last_separator + 1 :]
    # Before anything else: composing a long run of marks takes quadratic time.
    if len(name) > 1000:
        name = name[:500] + name[-500:]
    name = "".join(c for c in name if unicodedata.category(c) not in _INVISIBLE and c not in '<>:"|?*')
    name = ".".join(part.rstrip() for part in name.split("."))
    return unicodedata.normalize("NFC", name).strip().lstrip(".-~ ").rstrip(". ")
