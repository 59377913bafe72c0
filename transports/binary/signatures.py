"""Signatures: the MIME type of content by its first bytes. No I/O.

A signature is trusted before a declared type. So every one here is long enough, or checked far enough, that text does
not match it by chance.
"""

from __future__ import annotations

import re

__all__ = ["OFFICE_TYPES", "sniff"]

#: (offset, bytes, MIME type). Long enough that text which happens to begin with these letters is not mistaken.
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
_ENTRY = rb"PK\x03\x04[\s\S]{26}"  # what stands before the name of a file in a ZIP
_OFFICE_MARK = re.compile(_ENTRY + rb"(?:\[Content_Types\]\.xml|_rels/)")
_OFFICE_PART = re.compile(_ENTRY + rb"(word/|xl/|ppt/)")
_SELF_NAMED = re.compile(_ENTRY + rb"mimetype(application/(?:epub\+zip|vnd\.oasis\.opendocument\.[a-z-]+))")

#: The first byte rules most signatures out. Signatures at another offset are tried for every first byte.
_ELSEWHERE = tuple(row for row in _SIGNATURES if row[0] > 0)
_BY_FIRST_BYTE = {
    first: tuple(row for row in _SIGNATURES if row[0] > 0 or row[1][0] == first)
    for first in {row[1][0] for row in _SIGNATURES if row[0] == 0}
}


def sniff(head: bytes) -> str | None:
    """Return the MIME type of content by its first bytes, or ``None`` if they have no known signature.

    4,096 bytes are enough for every signature; Office files are only told from other ZIP files within them.
    """
    if not head:
        return None
    for offset, magic, mime_type in _BY_FIRST_BYTE.get(head[0], _ELSEWHERE):
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
    if head[:2] == b"BM" and len(head) >= 14 and head[6:10] == b"\0\0\0\0":  # two letters alone prove nothing
        return "image/bmp"
    if head[2:4] == b"\r\n" and _is_python_bytecode(head):
        return "application/x-python-code"
    return "audio/mpeg" if _is_mpeg_audio(head) else _sniff_markup(head)


def _sniff_zip(head: bytes) -> str:
    """EPUB and OpenDocument files name their type in the first entry; Office files are known by their entries."""
    if named := _SELF_NAMED.match(head):
        return named[1].decode()
    part = _OFFICE_PART.search(head) if _OFFICE_MARK.search(head) else None
    return OFFICE_TYPES[part[1]] if part else "application/zip"


def _is_python_bytecode(head: bytes) -> bool:
    """Whether the header of a ``.pyc`` file of Python 3.7 or newer (PEP 552) stands before a marshalled code object.
    Versions have magic numbers from 3,390 on."""
    return len(head) > 16 and 3390 <= head[0] | head[1] << 8 < 5000 and head[4:8] in _PYC_FLAGS and head[16] == 0xE3


#: Checked by time, by hash, by hash if asked to (PEP 552).
_PYC_FLAGS = (b"\0\0\0\0", b"\1\0\0\0", b"\3\0\0\0")


def _is_mpeg_audio(head: bytes) -> bool:
    """Whether a frame header of MPEG audio without ID3 tag comes first: 11 bits of sync, no reserved value, and
    no layer I, which nobody writes and which a byte order mark looks like."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer, bitrate, rate = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer in (1, 2) and bitrate not in (0, 15) and rate != 3


def _sniff_markup(head: bytes) -> str | None:
    text = head[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script")):
        return "text/html"
    if text.startswith(b"<svg") or (text.startswith((b"<?xml", b"<!doctype svg")) and b"<svg" in text):
        return "image/svg+xml"
    return "application/xml" if text.startswith(b"<?xml") else None
