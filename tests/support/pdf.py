"""What PDFs say and show."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pypdfium2
from PIL import Image


def _document(path: str | Path | None) -> Any:
    return closing(pypdfium2.PdfDocument(str(path)))


def text_of(path: str | Path | None) -> str:
    """The text of all pages, line by line."""
    with _document(path) as document:
        texts = [page.get_textpage().get_text_bounded() for page in document]
    return "\n".join(line.strip() for text in texts for line in text.splitlines() if line.strip())


def pages_of(path: str | Path | None) -> list[tuple[float, float]]:
    """Width and height of each page in points."""
    with _document(path) as document:
        return [page.get_size() for page in document]


def image_of(path: str | Path | None) -> Image.Image:
    """The first page, at 40 dots per inch."""
    with _document(path) as document:
        picture = document[0].render(scale=40 / 72).to_pil()
        assert isinstance(picture, Image.Image)
        return picture.convert("RGB")
