"""Files that are two things at once: harmless by their signature, and something else by what they are said to be."""

from __future__ import annotations

import io
import zipfile
from typing import NamedTuple

from PIL import Image

_PAGE = b"<!doctype html><script>window.ran=1;document.title='ran'</script>"


class Polyglot(NamedTuple):
    """``mime_type`` is that of the signature, ``declared`` what the file is as well."""

    data: bytes
    mime_type: str
    declared: str


def _gif_and_script() -> bytes:
    """A picture whose width begins a comment of JavaScript: ``GIF89a/*…*/=1;…``."""
    size, palette = b"/*" + b"\x01\x00", b"\x80\x00\x00" + bytes(6)
    frame = b"," + bytes(4) + b"\x01\x00\x01\x00\x00" + b"\x02\x02L\x01\x00"
    return b"GIF89a" + size + palette + frame + b";*/=1;window.ran=1;"


def _pdf_and_page() -> bytes:
    """A document with a page of HTML in a comment."""
    written = io.BytesIO()
    Image.new("RGB", (40, 40), "red").save(written, "PDF")
    head, _, rest = written.getvalue().partition(b"\n")
    return head + b"\n%" + _PAGE + b"\n" + rest


def _png_and_zip() -> bytes:
    """A picture with an archive behind it, which is read from its end."""
    written = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(written, "PNG")
    with zipfile.ZipFile(written, "a") as archive:
        archive.writestr("page.html", _PAGE)
    return written.getvalue()


POLYGLOTS = (
    Polyglot(_gif_and_script(), "image/gif", "text/javascript"),
    Polyglot(_pdf_and_page(), "application/pdf", "text/html"),
    Polyglot(_png_and_zip(), "image/png", "application/zip"),
)
