"""Results of tools in which files are hidden: the same for us and for a host, whatever the day or the machine."""

from __future__ import annotations

import base64
import bz2
import gettext
import gzip
import hashlib
import io
import lzma
import py_compile
import random
import sqlite3
import struct
import sysconfig
import tarfile
import tempfile
import wave
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageFont

from tests.support.recall import texts
from transports.protocol._heuristics import MIN_GUESSED

__all__ = ["Case", "files", "floods", "look_alikes"]

_EACH = 12  # files of a kind: each spelling twice
_LOOK_ALIKES = 5  # texts of a kind
_ZIPPED = {
    "zip": "a.bin",
    "docx": "word/document.xml",
    "xlsx": "xl/workbook.xml",
}
_PICTURES = {
    "pdf": "PDF",
    "png": "PNG",
    "jpeg": "JPEG",
    "gif": "GIF",
    "webp": "WEBP",
    "bmp": "BMP",
    "tiff": "TIFF",
    "ico": "ICO",
    "avif": "AVIF",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One result. ``content`` is the file in it, if there is one."""

    kind: str
    answer: dict[str, object]
    content: bytes | None = None

    def as_dict(self) -> dict[str, object]:
        """As JSON, with the hash of the content for the content."""
        digest = self.content and hashlib.sha256(self.content).hexdigest()
        return {"kind": self.kind, "answer": self.answer, "sha256": digest}


#: How tools write a file into a field.
_SPELLINGS: tuple[Callable[[bytes], str], ...] = (
    lambda data: base64.b64encode(data).decode(),
    lambda data: base64.encodebytes(data).decode(),
    lambda data: base64.encodebytes(data).decode().replace("\n", "\r\n"),
    lambda data: base64.urlsafe_b64encode(data).decode(),
    lambda data: base64.b64encode(data).decode().rstrip("="),
    lambda data: "data:;base64," + base64.b64encode(data).decode(),
)


def files() -> Iterator[Case]:
    """Files of each kind, of which nothing says that they are files."""
    for n in range(_EACH):
        for kind, data in _made(n):
            text = _SPELLINGS[n % len(_SPELLINGS)](data)
            yield Case(kind, {"rows": [1, {"field": text}], "n": n}, data)


def _made(n: int) -> Iterator[tuple[str, bytes]]:
    noise = random.Random(n)
    content = noise.randbytes(2001 + n)
    picture = Image.frombytes("RGB", (40 + n, 30), noise.randbytes((40 + n) * 30 * 3))
    for kind, written_as in _PICTURES.items():
        out = io.BytesIO()
        picture.save(out, written_as)
        yield kind, out.getvalue()
    for kind, name in _ZIPPED.items():
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            if kind != "zip":
                archive.writestr("[Content_Types].xml", "<Types/>")
            archive.writestr(name, content)
        yield kind, out.getvalue()
    yield "gz", gzip.compress(content, mtime=0)
    yield "bz2", bz2.compress(content)
    yield "xz", lzma.compress(content)
    yield "tar", _tarred(content)
    yield "wav", _sound(content)
    frame = b"\xff\xfb\x90\x00" + content[:413]  # MPEG-1 layer III, 128 kbit/s, 44.1 kHz: 417 bytes
    yield "mp3", frame * (3 + n)
    yield "ttf", _font() + content[:n]
    yield "sqlite", _database(n)
    yield "mo", _catalogue(content)
    yield "pyc", _bytecode(n)
    yield "elf", _library(n)


def _tarred(content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("a.bin")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _sound(content: bytes) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(content[: len(content) // 2 * 2])
    return out.getvalue()


def _font() -> bytes:
    """The one that comes with Pillow."""
    font = ImageFont.load_default(10)
    assert isinstance(font, ImageFont.FreeTypeFont) and isinstance(font.path, io.BytesIO)
    return font.path.getvalue()


def _database(n: int) -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute(f"create table t{n} (n integer)")
    try:
        return database.serialize()
    finally:
        database.close()


def _catalogue(content: bytes) -> bytes:
    """A translation of one message, as GNU gettext writes it."""
    message, translated = b"report\0", base64.b64encode(content) + b"\0"
    at = 28 + 16
    head = struct.pack("<7I", 0x950412DE, 0, 1, 28, 36, 0, at)
    tables = struct.pack("<4I", len(message) - 1, at, len(translated) - 1, at + len(message))
    data = head + tables + message + translated
    assert gettext.GNUTranslations(io.BytesIO(data)).gettext("report") == translated[:-1].decode()
    return data


def _bytecode(n: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "module.py"
        source.write_text("".join(f"def f{i}(a): return [a + {i}, {n}]\n" for i in range(20)), encoding="utf-8")
        compiled = py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        assert compiled
        return Path(compiled).read_bytes()


def _library(n: int) -> bytes:
    """The ``n``-th smallest of the extension modules beside us."""
    found = sorted(Path(sysconfig.get_paths()["platlib"]).rglob("*.so"), key=lambda path: (path.stat().st_size, path))
    return found[n].read_bytes()


def look_alikes() -> Iterator[Case]:
    """Long texts that are no files, some of each kind."""
    counts: Counter[str] = Counter()
    for kind, text in texts():
        if len(text) >= MIN_GUESSED and counts[kind] < _LOOK_ALIKES:
            counts[kind] += 1
            yield Case(kind, {"rows": [1, {"field": text}], "n": 1})


def floods() -> Iterator[Case]:
    """What fills the context of a model if nobody stops it."""
    pdf = b"%PDF-1.7\n" + random.Random(2).randbytes(7_000_000)
    yield Case("7 MB of PDF", {"content": base64.b64encode(pdf).decode(), "name": "Sales", "format": "pdf"}, pdf)
    yield Case(
        "30,000 rows",
        {
            "rows": [
                {"id": i, "name": f"customer {i}", "email": f"customer{i}@example.com", "value": i * 7 % 1000}
                for i in range(30_000)
            ]
        },
    )
    yield Case("400 KB of broken base64", {"content": "JVBERi0xLjQK" + "A" * 400_000 + "?"})
    yield Case("1 MB of text", {"text": "a line of a log, of no use to a model\n" * 28_000})
