"""HTML and pictures of results for notebooks (``_repr_html_``).

Everything is an app's text, so it is escaped: no markup, script, style or address of it is used. The only addresses are
those of files on this machine, and pictures inside of the page. Colours are the notebook's own, light or dark.
"""

from __future__ import annotations

import base64
import hashlib
import os
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from ..files import open_regular, read_regular

#: Largest picture that is shown, in bytes.
MAX_PICTURE = 512 << 10
#: Types of pictures that every notebook shows, and that hold no scripts.
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
#: Rows of a table, characters of a cell, lines and characters of a text.
MAX_ROWS, MAX_CELL, MAX_LINES, MAX_TEXT = 50, 300, 20, 4000
_LINE = "1px solid rgba(128, 128, 128, 0.4)"
_CELL = f"text-align: left; vertical-align: top; padding: 2px 10px; border-bottom: {_LINE}"


class Html(str):
    """Markup made here, which is not escaped again."""

    __slots__ = ()


def _escaped(text: object, limit: int) -> Html:
    if isinstance(text, Html):
        return text
    plain = str(text)
    plain = plain if len(plain) <= limit else plain[: limit - 1] + "…"
    plain = "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\ufffd" for c in plain)
    return Html(escape(plain))


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", count: int = 0) -> Html:
    """Return a table with at most :data:`MAX_ROWS` of its ``count`` rows; the last row says how many more there are."""
    shown = [row for row, _ in zip(rows, range(MAX_ROWS), strict=False)]
    if count > len(shown):
        shown.append((f"… and {count - len(shown):,} more", *[""] * (len(head) - 1)))
    lines = [f"<div><strong>{_escaped(title, MAX_CELL)}</strong></div>"] if title else []
    lines.append('<table style="border-collapse: collapse; margin: 4px 0">')
    if any(head):
        lines.append(
            "".join(["<tr>", *(f'<th style="{_CELL}">{_escaped(one, MAX_CELL)}</th>' for one in head), "</tr>"])
        )
    for row in shown:
        cells = (f'<td style="{_CELL}">{_escaped(one, MAX_CELL)}</td>' for one in row)
        lines.append("".join(["<tr>", *cells, "</tr>"]))
    return Html("\n".join([*lines, "</table>"]))


def preformatted(text: str) -> Html:
    """Return the first lines of a text, as they are."""
    lines = text[: MAX_TEXT + 1].split("\n")
    shown = "\n".join(lines[:MAX_LINES])
    more = "\n…" if len(lines) > MAX_LINES and len(shown) < MAX_TEXT else ""
    return Html(f'<pre style="white-space: pre-wrap; margin: 4px 0">{_escaped(shown, MAX_TEXT)}{more}</pre>')


def file_link(path: str, text: str) -> Html:
    """Return a link to a file, relative to the working folder if it is below."""
    file = Path(path)
    try:
        address = quote(file.relative_to(Path.cwd()).as_posix())
    except (OSError, ValueError):
        address = file.as_uri() if file.is_absolute() else quote(os.fspath(file))
    return Html(f'<a href="{escape(address)}" target="_blank" rel="noopener">{_escaped(text, MAX_CELL)}</a>')


def picture(path: str | None, mime_type: str, size: int, sha256: str) -> str | None:
    """Return a stored picture as base64, or ``None``: of another type, larger than :data:`MAX_PICTURE`, or changed."""
    if path is None or mime_type not in PICTURES or size > MAX_PICTURE:
        return None
    try:
        content = read_regular(Path(path), MAX_PICTURE)
    except OSError:
        return None
    return base64.b64encode(content).decode() if hashlib.sha256(content).hexdigest() == sha256 else None


def picture_html(content: str, mime_type: str, text: str) -> Html:
    """Return a picture in base64 as an element; ``text`` describes it."""
    return Html(
        f'<img src="data:{escape(mime_type)};base64,{content}" alt="{_escaped(text, MAX_CELL)}" '
        'style="max-width: 100%; max-height: 400px">'
    )


def first_lines(path: str) -> Html:
    """Return the beginning of a text file, empty if it cannot be read."""
    try:
        with open_regular(path) as file:
            data = file.read(4 * MAX_TEXT)
    except OSError:
        return Html()
    return preformatted(data.decode("utf-8", "replace"))
