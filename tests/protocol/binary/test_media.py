"""MIME types, extensions, signatures of real files, and file names from an untrusted side."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import unicodedata
import wave
import zipfile

import pytest
from hypothesis import example, given, strategies as st
from PIL import Image

from tests.support.rows import each_row
from transports.protocol._media import (
    OCTET_STREAM,
    contradicts,
    extension_for,
    normalise_mime,
    safe_filename,
    sniff,
)

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
ODT = "application/vnd.oasis.opendocument.text"

# --- names of types ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R0-6f", "R0-7a", "R0-7b")
@each_row(
    ("mime_type", "extension"),
    [
        # docs/requirements.md R0-7, whole.
        ("application/pdf", ".pdf"),
        ("image/png", ".png"),
        ("image/jpeg", ".jpg"),
        ("image/gif", ".gif"),
        ("image/webp", ".webp"),
        ("image/svg+xml", ".svg"),
        ("audio/mpeg", ".mp3"),
        ("audio/wav", ".wav"),
        ("audio/ogg", ".ogg"),
        ("video/mp4", ".mp4"),
        ("video/webm", ".webm"),
        ("application/zip", ".zip"),
        ("application/json", ".json"),
        ("text/html", ".html"),
        ("text/plain", ".txt"),
        ("text/csv", ".csv"),
        ("text/markdown", ".md"),
        ("application/x-anything-else", ".bin"),
        # Ours.
        (DOCX, ".docx"),
        (OCTET_STREAM, ".bin"),
        (None, ".bin"),
    ],
)
def test_extension_for_mime_type(mime_type: str | None, extension: str) -> None:
    assert extension_for(mime_type) == extension


@each_row(
    ("mime_type", "bare"),
    [
        (" Image/PNG ; q=1", "image/png"),
        (" " * 503 + "image/png", "image/png"),
        (" " * 504 + "image/png", "image/pn"),
        ("image/jpg", "image/jpeg"),
        ("audio/x-wav", "audio/wav"),
        ("application/vnd.a-b+zip", "application/vnd.a-b+zip"),
        *((name, None) for name in ("png", "image/", "image/png/x", "image/p ng", "image/png\nX: y", "", None)),
        ("a" * 128 + "/b", None),
    ],
)
def test_mime_type_is_normalised_or_none(mime_type: str | None, bare: str | None) -> None:
    assert normalise_mime(mime_type) == bare


# --- signatures of files as other programs make them ------------------------------------------------------------------


def image(kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (20, 17), "red").save(out, kind, **options)
    return out.getvalue()


def zipped(*names: str, first: bytes | None = None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        if first is not None:
            archive.writestr(zipfile.ZipInfo("mimetype"), first)
        for name in names:
            archive.writestr(name, f"<x>{name}</x>" * 9)
    return out.getvalue()


def sound() -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(99))
    return out.getvalue()


def tarred(form: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"abc"))
    return out.getvalue()


def box(brand: bytes) -> bytes:
    return b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0mp42isom"


OFFICE = ("[Content_Types].xml", "_rels/.rels", "docProps/core.xml")

REAL = {
    "webp": (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    "avif": (box(b"avif"), "image/avif"),
    "png": (image("PNG"), "image/png"),
    "jpeg": (image("JPEG"), "image/jpeg"),
    "gif": (image("GIF"), "image/gif"),
    "bmp": (image("BMP"), "image/bmp"),
    "tiff": (image("TIFF"), "image/tiff"),
    "big-endian tiff": (b"MM\0*" + bytes(9), "image/tiff"),
    "ico": (image("ICO", sizes=[(16, 16)]), "image/x-icon"),
    "pdf": (image("PDF"), "application/pdf"),
    "postscript": (image("EPS"), "application/postscript"),
    "zip": (zipped("a.txt"), "application/zip"),
    "empty zip": (zipped(), "application/zip"),
    "docx": (zipped(*OFFICE, "word/document.xml"), DOCX),
    "xlsx": (zipped(*OFFICE, "xl/workbook.xml"), XLSX),
    "pptx": (zipped(*OFFICE, "ppt/presentation.xml"), PPTX),
    "xlsx of SheetJS": (zipped("xl/_rels/workbook.xml.rels", "xl/theme/theme1.xml"), XLSX),
    "zip of a renamed folder": (zipped("pixl/_rels/workbook.xml.rels", "xl/a"), "application/zip"),
    "office file whose parts come late": (zipped(*OFFICE), "application/zip"),
    "zip of a password/ folder": (zipped(*OFFICE, "password/a.txt", "pixl/b"), "application/zip"),
    "zip of a word/ folder": (zipped("word/list.txt"), "application/zip"),
    "epub": (zipped("META-INF/container.xml", first=b"application/epub+zip"), "application/epub+zip"),
    "odt": (zipped("content.xml", first=ODT.encode()), ODT),
    "zip that says it is a page": (zipped("a", first=b"text/html"), "application/zip"),
    "gzip": (gzip.compress(b"x"), "application/gzip"),
    "bzip2": (bz2.compress(b"x"), "application/x-bzip2"),
    "empty bzip2": (bz2.compress(b""), "application/x-bzip2"),
    "xz": (lzma.compress(b"x"), "application/x-xz"),
    "ustar": (tarred(tarfile.USTAR_FORMAT), "application/x-tar"),
    "gnu tar": (tarred(tarfile.GNU_FORMAT), "application/x-tar"),
    "wav": (sound(), "audio/wav"),
    "avi": (b"RIFF\0\0\0\0AVI LIST", "video/x-msvideo"),
    "unknown riff": (b"RIFF\0\0\0\0CDXA", None),
    "mp3 with id3": (b"ID3\x04\0\0\0\0\0\0", "audio/mpeg"),
    "mp3 without id3": (b"\xff\xfb\x90\x64\0\0", "audio/mpeg"),
    "reserved mpeg version": (b"\xff\xeb\x90\x64", None),
    "reserved mpeg layer": (b"\xff\xf9\x90\x64", None),
    "reserved mpeg bit rate": (b"\xff\xfb\xf0\x64", None),
    "free mpeg bit rate": (b"\xff\xfb\x00\x64", None),
    "reserved mpeg sample rate": (b"\xff\xfb\x9c\x64", None),
    "utf-16 text": ("\ufeffhello".encode("utf-16-le"), None),
    "mpeg sync alone": (b"\xff\xfb", None),
    "ogg": (b"OggS\0\x02", "audio/ogg"),
    "flac": (b"fLaC\0\0\0\x22", "audio/flac"),
    "midi": (b"MThd\0\0\0\x06\0\0", "audio/midi"),
    "mp4": (box(b"isom"), "video/mp4"),
    "unknown brand": (box(b"zzzz"), "video/mp4"),
    "mov": (box(b"qt  "), "video/quicktime"),
    "m4a": (box(b"M4A "), "audio/mp4"),
    "heic": (box(b"heic"), "image/heic"),
    "webm": (b"\x1aE\xdf\xa3\x01\0\0\0\0\0\0\x1fB\x86\x81\x01B\x82\x84webm", "video/webm"),
    "mkv": (b"\x1aE\xdf\xa3\x01\0\0\0\0\0\0\x1fB\x86\x81\x01B\x82\x88matroska", "video/x-matroska"),
    "7z": (b"7z\xbc\xaf\x27\x1c\0\4", "application/x-7z-compressed"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04", "application/zstd"),
    "rar": (b"Rar!\x1a\x07\x01\0", "application/vnd.rar"),
    "woff": (b"wOFF\0\1\0\0", "font/woff"),
    "woff2 of otf": (b"wOF2OTTO", "font/woff2"),
    "otf": (b"OTTO\0\x0b", "font/otf"),
    "ttf": (b"\0\1\0\0\0\x0e", "font/ttf"),
    "wasm": (b"\0asm\1\0\0\0", "application/wasm"),
    "glb": (b"glTF\2\0\0\0", "model/gltf-binary"),
    "rtf": (b"{\\rtf1\\ansi", "application/rtf"),
    "elf": (b"\x7fELF\2\1\1\0", "application/x-elf"),
    "big-endian elf of 32 bits": (b"\x7fELF\1\2\1\0", "application/x-elf"),
    "sqlite": (b"SQLite format 3\0" + bytes(84), "application/vnd.sqlite3"),
    "mo": (b"\xde\x12\x04\x95\0\0\0\0", "application/x-gettext-translation"),
    "big-endian mo": (b"\x95\x04\x12\xde\0\0\0\0", "application/x-gettext-translation"),
    "line break after two bytes": (b"\xa7\r\r\n" + bytes(20), None),
    "html": (b"\xef\xbb\xbf \n<!DOCTYPE HTML><p>", "text/html"),
    "html without doctype": (b"<html lang=en>", "text/html"),
    "html without html": (b"<head><title>", "text/html"),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "image/svg+xml"),
    "svg after xml": (b'<?xml version="1.0"?>\n<!-- x -->\n<svg>', "image/svg+xml"),
    "svg after doctype": (b"<!DOCTYPE svg PUBLIC><svg>", "image/svg+xml"),
    "xml": (b'<?xml version="1.0"?><a/>', "application/xml"),
    "json": (b'{"a": 1}', None),
    "zeros": (bytes(4096), None),
    "nothing": (b"", None),
    # Texts that begin like something else.
    "text on ID3": (b"ID3 tags are read", None),
    "text on BM": (b"BMW and others are cars", None),
    "head of a bmp alone": (image("BMP")[:14], "image/bmp"),
    "short BM": (b"BM\0\0\0\0\0\0\0\0", None),
    "text on BZh": (b"BZh is a magic number", None),
    "text on ELF": (b"\x7fELF is a format", None),
    "text on OTTO": (b"OTTO is a name", None),
    "text on glTF": (b"glTF is a format", None),
    "text on ogg": (b"OggSquish", None),
    "text on ftype": (b"The ftype command", None),
    "text on ustar": (b"x" * 257 + b"ustar archives", None),
}


@pytest.mark.requirement("R2-3.2b", "R2-A.a", "R2-A.b", "R2-A.c", "R2-A.d", "R2-A.e")
@each_row("name", REAL)
def test_file_type_is_detected_from_first_bytes(name: str) -> None:
    data, mime_type = REAL[name]
    assert sniff(data[:4096]) == mime_type
    assert mime_type is None or extension_for(mime_type) != ".bin"


# --- lies (docs/faults.md 27) -----------------------------------------------------------------------------------------


@pytest.mark.fault(27)
@each_row(
    ("declared", "sniffed", "lie"),
    [
        ("image/png", "image/png", False),
        ("image/jpg", "image/jpeg", False),
        ("application/octet-stream", "image/png", False),
        ("no type", "image/png", False),
        ("image/png", "image/jpeg", True),
        ("application/pdf", "application/zip", True),
        ("application/msword", DOCX, True),
        ("text/csv", "application/pdf", True),
        ("application/json", "image/gif", True),
        ("text/x-python", "application/pdf", True),
        # containers
        (DOCX, "application/zip", False),
        ("application/epub+zip", "application/zip", False),
        (XLSX, DOCX, True),
        ("audio/mp4", "video/mp4", False),
        ("audio/webm", "video/webm", False),
        ("video/ogg", "audio/ogg", False),
        ("video/mp4", "image/heic", True),
        # types this library does not know are believed: they may begin like a common one
        ("image/apng", "image/png", False),
        ("application/vnd.apple.pages", "application/zip", False),
        ("image/x-adobe-dng", "image/tiff", False),
        ("application/geopackage+sqlite3", "application/vnd.sqlite3", False),
        # but never against markup, which a browser could run
        ("image/png", "text/html", True),
        ("application/x-unknown", "text/html", True),
        ("application/x-unknown", "image/svg+xml", True),
        ("application/json", "text/html", True),
        ("text/plain", "text/html", False),
        ("application/xhtml+xml", "application/xml", False),
        ("image/svg+xml", "application/xml", False),
    ],
)
def test_mime_contradiction_differs_from_more_specific_type(declared: str, sniffed: str, lie: bool) -> None:
    assert contradicts(declared, sniffed) is lie


# --- file names (docs/faults.md 42) -----------------------------------------------------------------------------------


@pytest.mark.fault(42)
@pytest.mark.requirement("R1-14c", "R4-9g", "R4-11c")
@each_row(
    ("suggestion", "name"),
    [
        ("report.pdf", "report.pdf"),
        ("Bericht 2024 (final).pdf", "Bericht 2024 (final).pdf"),
        ("clip.mp4", "clip.mp4"),
        ("report", "report.pdf"),
        ("Dr. Who", "Dr. Who.pdf"),
        ("a.", "a.pdf"),
        ("../../etc/passwd", "passwd.pdf"),
        ("C:\\temp\\x.png", "x.png"),
        ("folder/", "fallback.pdf"),
        (".bashrc", "bashrc.pdf"),
        (".pdf", "pdf.pdf"),
        ("-rf.txt", "rf.txt"),
        ("~root.txt", "root.txt"),
        ("a\0b\r\n.pdf", "ab.pdf"),
        ("a\u202egpj.exe", "agpj.exe"),
        ('a:b?c*<>|".pdf', "abc.pdf"),
        ("half\ud800.pdf", "half.pdf"),
        ("a\u0301.pdf", "á.pdf"),
        ("CON", "CON_.pdf"),
        ("nul.txt", "nul_.txt"),
        ("Aux .tar.gz", "Aux_.tar.gz"),
        ("-con .;", "con_.;.pdf"),
        ("COM¹.log", "COM¹_.log"),
        ("conout$.x", "conout$_.x"),
        ("a\u2028b.pdf", "ab.pdf"),
        ("x" * 116 + ".pdf", "x" * 116 + ".pdf"),
        ("x" * 117 + ".pdf", "x" * 116 + ".pdf"),
        # of more than 1,000 characters the middle is not read
        ("\u200b" * 500 + "K" + "\u200b" * 495 + ".pdf", "K.pdf"),
        ("\u200b" * 500 + "K" + "\u200b" * 496 + ".pdf", "pdf.pdf"),
        ("é" * 300 + ".docx", "é" * 57 + ".docx"),
        ("x.abcdefghijk", "x.abcdefghijk.pdf"),
        ("..", "fallback.pdf"),
        ("…", "….pdf"),
        ("", "fallback.pdf"),
        (None, "fallback.pdf"),
    ],
)
def test_file_name_is_sanitized(suggestion: str | None, name: str) -> None:
    assert safe_filename(suggestion, fallback="fallback", mime_type="application/pdf") == name


RESERVED = {"con", "prn", "aux", "nul", "conin$", "conout$", "clock$"} | {
    f"{port}{digit}" for port in ("com", "lpt") for digit in "123456789¹²³"
}
NASTY = st.from_regex(r"[.\-~ :/]{0,3}(con|AUX|nul|com1|lpt¹|conin\$)[. :;]{0,3}\w{0,3}[. ]{0,3}", fullmatch=True)


@pytest.mark.fault(42)
@given(st.text(max_size=300) | NASTY, st.sampled_from(["application/pdf", "x", None]))
@example("-con." + "a" * 300, None)
@example("\u0344" * 200, None)
def test_safe_filename_is_always_harmless(suggestion: str, mime_type: str | None) -> None:
    name = safe_filename(suggestion, fallback="fallback", mime_type=mime_type)
    stem, dot, extension = name.rpartition(".")
    assert stem and dot and extension.isascii() and extension.isalnum()
    assert len(name.encode()) <= 120
    assert name[0] not in ".-~ " and name[-1] not in ". "
    assert not set(name) & set('/\\<>:"|?*')
    assert not {unicodedata.category(c) for c in name} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert name.partition(".")[0].rstrip().lower() not in RESERVED
    assert unicodedata.is_normalized("NFC", name)
    assert safe_filename(name, fallback="other", mime_type=mime_type) == name
