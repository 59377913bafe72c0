"""HTML and pictures of results (``_repr_html_``), and progress, for notebooks.

All texts may come from an app, so they are escaped: no markup, script, style or address of an app is used. The only
addresses are those of files on this machine and of the kit's server, and pictures inside of the page. Colours are the
notebook's, light or dark.
"""

from __future__ import annotations

import base64
import contextvars
import hashlib
import os
import sys
import threading
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote

from . import readers
from .files import open_regular, read_regular

#: Largest picture that is shown as it is, in bytes.
MAX_PICTURE = 512 << 10
#: Largest file that a smaller picture is made of, in bytes.
MAX_SOURCE = 16 << 20
#: Seconds that a smaller picture may take; the kernel waits for it.
_SECONDS = 5.0
#: Types of pictures that every notebook shows, and that hold no scripts.
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_ROWS = 50
#: Characters of a cell.
MAX_CELL = 300
MAX_LINES = 20
#: Characters of a text.
MAX_TEXT = 4000
_LINE = "1px solid rgba(128, 128, 128, 0.4)"
_CELL = f"text-align: left; vertical-align: top; padding: 2px 10px; border-bottom: {_LINE}"


class Html(str):
    """Markup made here, which is not escaped again."""

    __slots__ = ()


def _escape_html(text: object, limit: int) -> Html:
    if isinstance(text, Html):
        return text
    plain = str(text)
    if len(plain) > limit:
        plain = plain[: limit - 1] + "…"
    return Html(escape("".join(map(_printable, plain))))


def _printable(character: str) -> str:
    if character in "\n\t" or not unicodedata.category(character).startswith("C"):
        return character
    return "\ufffd"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", count: int = 0) -> Html:
    """Return a table with the first 50 rows. If ``count``, the number of all rows, is known, a last row says how many
    are not shown."""
    shown = list(islice(rows, MAX_ROWS))
    hidden = count - len(shown)
    if hidden > 0:
        padding = [""] * (len(head) - 1)
        shown.append((f"… and {hidden:,} more", *padding))

    lines: list[str] = []
    if title:
        lines.append(f"<div><strong>{_escape_html(title, MAX_CELL)}</strong></div>")
    lines.append('<table style="border-collapse: collapse; margin: 4px 0">')
    if any(head):
        lines.append(_table_row("th", head))
    lines += [_table_row("td", row) for row in shown]
    return Html("\n".join([*lines, "</table>"]))


def _table_row(element: str, cells: Iterable[object]) -> str:
    markup = "".join(f'<{element} style="{_CELL}">{_escape_html(cell, MAX_CELL)}</{element}>' for cell in cells)
    return f"<tr>{markup}</tr>"


def preformatted(text: str) -> Html:
    # One character more than fits shows that the text is cut.
    lines = text[: MAX_TEXT + 1].replace("\r\n", "\n").split("\n")
    shown = "\n".join(lines[:MAX_LINES])
    markup = _escape_html(shown, MAX_TEXT)
    # A text with too many characters ends with … already.
    if len(lines) > MAX_LINES and len(shown) < MAX_TEXT:
        markup = Html(f"{markup}\n…")
    return Html(f'<pre style="white-space: pre-wrap; margin: 4px 0">{markup}</pre>')


def file_link(path: str, text: str) -> Html:
    """Return a link to a file. Its address is relative to the working folder if the file is below that folder."""
    file = Path(path)
    try:
        address = quote(file.relative_to(Path.cwd()).as_posix())
    except (OSError, ValueError):
        address = file.as_uri() if file.is_absolute() else quote(os.fspath(file))
    return Html(f'<a href="{escape(address)}" target="_blank" rel="noopener">{_escape_html(text, MAX_CELL)}</a>')


def download_link(address: str) -> Html:
    return Html(f' <a href="{escape(address)}" rel="noopener noreferrer">download</a>')


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in base64, with its type."""

    mime_type: str
    content: str

    def html(self, text: str) -> Html:
        return Html(
            f'<div><img src="data:{escape(self.mime_type)};base64,{self.content}" alt="{_escape_html(text, MAX_CELL)}" '
            f'style="max-width: 100%; max-height: 400px; border: {_LINE}"></div>'
        )


def read_picture(path: str | None, mime_type: str, size: int, sha256: str) -> Picture | None:
    """Return a stored picture. Return ``None`` for another type of file, for one larger than :data:`MAX_PICTURE`, and
    for one that has changed since it was stored."""
    if mime_type not in PICTURES or size > MAX_PICTURE:
        return None
    content = _unchanged_content(path, MAX_PICTURE, sha256)
    if content is None:
        return None
    return Picture(mime_type, base64.b64encode(content).decode())


def has_thumbnail(path: str | None, mime_type: str, size: int) -> bool:
    return path is not None and mime_type in readers.PICTURES and size <= MAX_SOURCE


def make_thumbnail(path: str | None, mime_type: str, sha256: str) -> Picture | None:
    """Return a small picture of a large image, or of the first page of a PDF, made in a process with limits. It is
    ``None`` if the file has changed, cannot be read, takes more than five seconds, or its library is missing."""
    content = _unchanged_content(path, MAX_SOURCE, sha256)
    if not content:
        return None
    program, limit = readers.PICTURES[mime_type]
    answer = readers.run_reader_blocking(program, content, limit, timeout=_SECONDS)
    if answer is None:
        return None
    _, smaller = answer
    kind = "image/png" if smaller.startswith(b"\x89PNG") else "image/jpeg"
    return Picture(kind, base64.b64encode(smaller).decode())


def _unchanged_content(path: str | None, max_bytes: int, sha256: str) -> bytes | None:
    """Return the content of a file if it still has this hash, otherwise ``None``."""
    if path is None:
        return None
    try:
        content = read_regular(Path(path), max_bytes)
    except OSError:
        return None
    if hashlib.sha256(content).hexdigest() != sha256:
        return None
    return content


def first_lines(path: str) -> Html:
    """Return the beginning of a text file as HTML, which is empty if the file cannot be read."""
    try:
        with open_regular(path) as file:
            data = file.read(4 * MAX_TEXT)
    except OSError:
        return Html()
    return preformatted(data.decode("utf-8", "replace"))


def progress_html(label: str, lines: Sequence[tuple[float | None, str]], seconds: float, *, ended: bool) -> Html:
    minutes, rest = divmod(int(seconds), 60)
    shown = [f"<div>{_escape_html(label, MAX_CELL)} {minutes}:{rest:02}</div>"]
    style = "width: 240px; max-width: 60%; vertical-align: middle"
    for fraction, text in lines:
        if fraction is not None:
            bar = f'<progress max="1" value="{fraction:.3f}" style="{style}"></progress> '
        elif not ended:
            bar = f'<progress max="1" style="{style}"></progress> '
        else:
            bar = ""
        shown.append(f"<div>{bar}{_escape_html(text, MAX_CELL)}</div>")
    return Html("\n".join(shown))


class Reported(Protocol):
    """Progress as an app reports it; see :class:`transports.Progress`."""

    @property
    def call(self) -> str:
        """The id of the call, "" if it is unknown."""

    @property
    def fraction(self) -> float | None:
        """Completed fraction, 0 to 1."""

    @property
    def steps(self) -> tuple[float | None, float | None]:
        """Completed steps, and their number."""

    @property
    def text(self) -> str:
        """Stage and status."""


class ProgressBar:
    """Progress bar in a notebook, while its block lasts; a callback for ``on_progress=``::

        with ProgressBar("report") as bar:
            result = await app.call("report.build", on_progress=bar)

    Calls that run at the same time have a line each, 20 at most. The bar stays below the cell as it was at the end of
    the block. Outside of a notebook it shows nothing.
    """

    def __init__(self, label: str = "") -> None:
        self._label = label
        self._lines: dict[str, tuple[float | None, str]] = {}
        self._started = self._drawn = time.monotonic()
        self._lock = threading.Lock()
        self._handle: Any = None
        self._ended = False

    def __enter__(self) -> Self:
        self._ended = False
        self._started = self._drawn = time.monotonic()
        # A kernel finds the cell of an output by the context variables. Callbacks run in the context of the session.
        self._context = contextvars.copy_context()
        self._handle = _display_output(self._output())
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            self._draw()
            self._handle = None

    def __call__(self, progress: Reported) -> None:
        """Show the progress of a call or of a run, at most ten times a second."""
        max_lines = 20
        seconds_between_drawings = 0.1
        with self._lock:
            if progress.call in self._lines or len(self._lines) < max_lines:
                self._lines[progress.call] = progress.fraction, _progress_in_words(progress)
            if time.monotonic() - self._drawn >= seconds_between_drawings:
                self._draw()

    def _draw(self) -> None:
        """Draw the bar as it is now. The caller holds the lock."""
        self._drawn = time.monotonic()
        if self._handle is not None:
            self._context.run(self._handle.update, self._output(), raw=True)

    def _output(self) -> Mapping[str, str]:
        seconds = time.monotonic() - self._started
        lines = list(self._lines.values()) or [(None, "")]
        html = progress_html(self._label, lines, seconds, ended=self._ended)
        texts = [self._label, *(words for _, words in lines)]
        plain = ", ".join(text for text in texts if text)
        return {"text/html": html, "text/plain": plain}


def _progress_in_words(progress: Reported) -> str:
    completed, total = progress.steps
    if completed is None:
        return progress.text
    steps = f"{completed:,.0f}"
    if total == 100:
        steps += " %"
    elif total is not None:
        steps += f" of {total:,.0f}"
    return f"{steps} · {progress.text}" if progress.text else steps


def _display_output(output: Mapping[str, str]) -> Any:
    """Display an output in the cell that runs, and return its handle; ``None`` outside of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    # A shell without a kernel runs in a terminal, which cannot draw an output anew.
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return None
    return import_module("IPython.display").display(dict(output), raw=True, display_id=True)
