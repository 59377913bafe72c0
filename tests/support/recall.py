"""How well undeclared files are told from text that looks like them, over files of this machine and made ones."""

from __future__ import annotations

import array
import base64
import bz2
import gzip
import hashlib
import io
import json
import lzma
import pickle
import random
import sqlite3
import struct
import sysconfig
import tarfile
import uuid
import wave
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from PIL import Image

from transports.protocol._find_content import find
from transports.protocol._heuristics import MIN_GUESSED
from transports.protocol.binary import BinaryData

_ROOTS = (Path("/usr/share"), Path(sysconfig.get_paths()["purelib"]))
_LARGEST = 1 << 20
_SMALLEST = MIN_GUESSED  # bytes; a shorter file is shorter than what is looked at
_KINDS = {
    "PDF": ("application/pdf", {".pdf"}),
    "PNG": ("image/png", {".png"}),
    "JPEG": ("image/jpeg", {".jpg", ".jpeg"}),
    "GIF": ("image/gif", {".gif"}),
    "WebP": ("image/webp", {".webp"}),
    "ZIP, JAR, wheel": ("application/zip", {".zip", ".jar", ".whl"}),
    "gzip": ("application/gzip", {".gz"}),
    "TrueType": ("font/ttf", {".ttf"}),
    "WOFF2": ("font/woff2", {".woff2"}),
    "WAV": ("audio/wav", {".wav"}),
    "MP3": ("audio/mpeg", {".mp3"}),
    "icon": ("image/x-icon", {".ico"}),
    "bzip2": ("application/x-bzip2", {".bz2"}),
    "xz": ("application/x-xz", {".xz"}),
    "WebAssembly": ("application/wasm", {".wasm"}),
    "ELF": ("application/x-elf", {".so"}),
    "gettext": ("application/x-gettext-translation", {".mo"}),
}


@dataclass(slots=True)
class Line:
    """One kind: how many there were, how many were taken for files, how many of those for another kind of file."""

    kind: str
    cases: int = 0
    taken: int = 0
    other: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, text: str, expected: str | None, name: str) -> None:
        """Look at one text. ``expected`` is its type, or ``None`` if it is no file."""
        self.cases += 1
        contents = find({"rows": [1, {"field": text}], "n": 2})
        self.taken += bool(contents)
        mime_type = contents[0].binary.mime_type if contents and isinstance(contents[0].binary, BinaryData) else None
        self.other += bool(contents) and expected is not None and mime_type != expected
        if bool(contents) is (expected is None):
            self.examples.append(name)


# --- files ------------------------------------------------------------------------------------------------------------


def files(of_each_kind: int) -> list[Line]:
    """Made ones and so many of this machine of every kind, as base64 in one line, in lines and URL-safe, in turn."""
    lines: dict[str, Line] = {}
    for kind, mime_type, name, data in (*_of_the_machine(of_each_kind), *_made()):
        line = lines.setdefault(kind, Line(kind))
        way = _WAYS[line.cases % len(_WAYS)]
        line.add(way(data), mime_type, name)
    return list(lines.values())


def _in_lines(data: bytes) -> str:
    return base64.encodebytes(data).decode()


_WAYS: tuple[Callable[[bytes], str], ...] = (
    lambda data: base64.b64encode(data).decode(),
    _in_lines,
    lambda data: base64.urlsafe_b64encode(data).decode(),
    lambda data: base64.b64encode(data).decode().rstrip("="),
    lambda data: "data:;base64," + base64.b64encode(data).decode(),
    lambda data: _in_lines(data).replace("\n", "\r\n"),
)


def _of_the_machine(of_each_kind: int) -> Iterator[tuple[str, str, str, bytes]]:
    by_suffix = {suffix: (kind, mime) for kind, (mime, suffixes) in _KINDS.items() for suffix in suffixes}
    counts = dict.fromkeys(_KINDS, 0)
    for root in _ROOTS if of_each_kind else ():
        for path in sorted(root.rglob("*")):
            kind, mime_type = by_suffix.get(path.suffix.lower(), ("", ""))
            if not kind or counts[kind] >= of_each_kind or path.is_symlink() or not path.is_file():
                continue
            if _SMALLEST <= path.stat().st_size <= _LARGEST:
                counts[kind] += 1
                yield kind, mime_type, str(path), path.read_bytes()


def _made() -> Iterator[tuple[str, str, str, bytes]]:
    noise = random.Random(3)
    for n in range(8):
        picture = Image.frombytes("RGB", (40 + n, 30), noise.randbytes((40 + n) * 30 * 3))
        for kind, mime_type, extension in (
            ("PDF", "application/pdf", "PDF"),
            ("PNG", "image/png", "PNG"),
            ("JPEG", "image/jpeg", "JPEG"),
            ("GIF", "image/gif", "GIF"),
            ("WebP", "image/webp", "WEBP"),
            ("BMP", "image/bmp", "BMP"),
            ("TIFF", "image/tiff", "TIFF"),
            ("icon", "image/x-icon", "ICO"),
            ("AVIF", "image/avif", "AVIF"),
        ):
            out = io.BytesIO()
            try:
                picture.save(out, extension)
            except (OSError, KeyError):  # this Pillow cannot write it
                continue
            yield kind, mime_type, f"made {extension} {n}", out.getvalue()
        content = noise.randbytes(2000 + n)
        yield "gzip", "application/gzip", "made", gzip.compress(content)
        yield "bzip2", "application/x-bzip2", "made", bz2.compress(content)
        yield "xz", "application/x-xz", "made", lzma.compress(content)
        yield from _containers(content, n)


def _containers(content: bytes, n: int) -> Iterator[tuple[str, str, str, bytes]]:
    for kind, mime_type, names in (
        ("ZIP, JAR, wheel", "application/zip", ("a.bin",)),
        ("Word", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", ("word/document.xml",)),
        ("Excel", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ("xl/workbook.xml",)),
    ):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            if kind != "ZIP, JAR, wheel":
                archive.writestr("[Content_Types].xml", "<Types/>")
            for name in names:
                archive.writestr(name, content)
        yield kind, mime_type, f"made {n}", out.getvalue()
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(content[:2000])
    yield "WAV", "audio/wav", f"made {n}", out.getvalue()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("a.bin")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    yield "tar", "application/x-tar", f"made {n}", out.getvalue()
    with sqlite3.connect(":memory:") as database:
        database.execute("create table t (n integer)")
    yield "SQLite", "application/vnd.sqlite3", f"made {n}", database.serialize()
    database.close()
    frame = b"\xff\xfb\x90\x00" + content[:413]  # MPEG-1 layer III, 128 kbit/s, 44.1 kHz: 417 bytes
    yield "MP3", "audio/mpeg", f"made {n}", frame * 3
    yield "MIDI", "audio/midi", f"made {n}", b"MThd\x00\x00\x00\x06\x00\x01\x00\x01\x00\x60MTrk" + content


# --- what looks like them ---------------------------------------------------------------------------------------------

_PROSE = {
    "English": "The board asked for what the report holds and for nothing else besides it",
    "German": "Größere Überschreitungen müssen dem Vorstand unverzüglich schriftlich angezeigt werden",
    "French": "Où êtes-vous allés hier soir après le dîner chez la sœur de François",
    "Greek": "Η επιτροπή ζήτησε όσα περιέχει η έκθεση και τίποτα περισσότερο",
    "Russian": "Комиссия запросила всё то что содержит отчёт и ничего сверх этого",
    "Arabic": "طلبت اللجنة ما يتضمنه التقرير ولا شيء غير ذلك على الإطلاق",
    "Chinese": "委员会 要求 报告 中 所 包含 的 内容 而 没有 要求 其他 任何 东西",
    "Hindi": "समिति ने वही माँगा जो रिपोर्ट में है और उसके सिवा कुछ नहीं",
}


def look_alikes() -> list[Line]:
    """Texts of at least 1,000 characters that are no files."""
    lines: dict[str, Line] = {}
    for kind, text in chain(_tokens(), _encoded_data(), _texts(), _sources()):
        if len(text) >= MIN_GUESSED:
            lines.setdefault(kind, Line(kind)).add(text, None, text[:60])
    return list(lines.values())


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _tokens() -> Iterator[tuple[str, str]]:
    noise = random.Random(5)
    for n in range(300):
        header = base64.urlsafe_b64encode(json.dumps({"alg": "RS256", "kid": noise.randbytes(9).hex()}).encode())
        claims = base64.urlsafe_b64encode(
            json.dumps({"sub": str(n), "groups": [noise.randbytes(16).hex()] * 40}).encode()
        )
        signature = base64.urlsafe_b64encode(noise.randbytes(512)).decode().rstrip("=")
        yield "JWT", f"{header.decode().rstrip('=')}.{claims.decode().rstrip('=')}.{signature}"
        yield "part of a JWT", claims.decode().rstrip("=")
        yield "hex", noise.randbytes(600 + n).hex()
        yield "hex, upper case", noise.randbytes(600 + n).hex().upper()
        yield "hashes", "".join(hashlib.sha256(b"%d" % (n + i)).hexdigest() for i in range(20))
        yield "hashes", "\n".join(_b64(hashlib.sha512(b"%d" % (n + i)).digest()) for i in range(20))
        yield "UUIDs", "".join(uuid.UUID(bytes=noise.randbytes(16)).hex for _ in range(40))
        yield "UUIDs", ",".join(str(uuid.UUID(bytes=noise.randbytes(16))) for _ in range(40))
        yield "one alphabet", "".join(noise.choices("ACGT", k=1200))
        yield "one alphabet", "".join(noise.choices("abcdefghijklmnopqrstuvwxyz", k=1200))
        yield "one alphabet", noise.choice("Aa0/+_") * 1200
        yield "paths", "/".join(noise.randbytes(4).hex() for _ in range(150))


def _encoded_data() -> Iterator[tuple[str, str]]:
    """Base64 that is no file of a known kind: keys, ciphers, numbers, objects."""
    noise = random.Random(6)
    for n in range(20_000):
        yield "base64 of noise", _b64(noise.randbytes(750 + n % 300))
    for n in range(300):
        start = noise.randrange(-70_000, 70_000)
        for code in "hiqfd":
            size = 300
            low = max(start, -30_000) if code == "h" else start
            values = array.array(code, [min(low + i, 30_000) if code == "h" else low + i for i in range(size)])
            yield "base64 of numbers", _b64(values.tobytes())
        numbers = [noise.randrange(1 << noise.choice((1, 8, 9, 16, 17, 24, 25))) for _ in range(300)]
        yield "base64 of numbers", _b64(struct.pack("<300I", *numbers))
        yield "base64 of numbers", _b64(struct.pack(">300I", *numbers))
        yield "base64 of numbers", _b64(struct.pack(">I", 65536) + struct.pack(">299I", *numbers[1:]))
        yield "base64 of numbers", _b64(struct.pack("<I", 65536) + struct.pack("<299I", *numbers[1:]))
        yield "base64 of objects", _b64(pickle.dumps({"n": n, "values": numbers}))
        yield "base64 of objects", _b64(json.dumps({"n": n, "values": numbers}).encode())
        yield "base64 of text", _b64((_PROSE["English"] * 20)[n:].encode())
        yield "DER", _b64(b"\x30\x82\x04\xa4\x02\x01\x00" + noise.randbytes(1200))
        yield "PEM", "-----BEGIN PRIVATE KEY-----\n" + _in_lines(noise.randbytes(1200)) + "-----END PRIVATE KEY-----\n"


def _texts() -> Iterator[tuple[str, str]]:
    noise = random.Random(7)
    for language, sentence in _PROSE.items():
        words = sentence.split()
        for _ in range(60):
            yield "prose", " ".join(noise.choices(words, k=400))
            yield "prose without spaces", "".join(noise.choices(words, k=400))
            yield "prose", f"{language}\n" + "\n".join(" ".join(noise.choices(words, k=9)) for _ in range(60))
    for n in range(100):
        rows = [f"{i},customer{i},{noise.random():.4f},{uuid.UUID(int=i + n).hex}" for i in range(40)]
        yield "CSV", "\n".join(["id,name,value,key", *rows])
        yield "SVG", f'<svg viewBox="0 0 {n} 9">' + "".join(f'<path d="M{i} {n}h9v9z"/>' for i in range(80)) + "</svg>"
        yield "HTML", f"<!doctype html><title>{n}</title>" + "<p>Text in a page.</p>" * 80
        yield "words of a file's head", noise.choice(("%PDF-1.7 ", "PK ", "GIF89a ", "RIFF ", "BM ", "ID3 ")) * 300
        yield "beginning of a file in prose", f"The PDF begins with JVBERi0xLjQK; file {n}. " * 60


def _sources() -> Iterator[tuple[str, str]]:
    """Programs and texts of this machine; JavaScript made for the web has long lines and long names."""
    for kind, pattern, most in (("JavaScript", "*.js", 150), ("Python", "*.py", 150), ("CSS", "*.css", 60)):
        for root in _ROOTS:
            for path in islice(sorted(root.rglob(pattern)), most):
                if path.is_file() and path.stat().st_size <= _LARGEST:
                    yield kind, path.read_text(encoding="utf-8", errors="replace")
