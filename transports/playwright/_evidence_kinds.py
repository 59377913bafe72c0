"""Kinds of evidence, files of evidence, and the log of timed lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from .._internal.redaction import EvidenceRedactor
from ..protocol._times import iso_utc

#: Playwright's trace, a video (WebM), a HAR 1.2, the console with the page's errors, a screenshot at the end.
EvidenceKind: TypeAlias = Literal["trace", "video", "har", "console", "screenshot"]
KINDS: tuple[EvidenceKind, ...] = get_args(EvidenceKind)
#: Lines kept, and characters of each.
_MAX_LINES = 5000
MAX_CHARS = 4000


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """A file of evidence. ``ending`` is the extension of its name in the store."""

    kind: EvidenceKind
    path: Path
    mime_type: str
    ending: str


class _Line(NamedTuple):
    """A line in three parts. Only ``text`` is searched for secrets that continue in the next line."""

    head: str
    text: str
    tail: str


class TimedLines:
    """A text of lines with their times in UTC. ``silence`` is the text without any lines."""

    def __init__(self, silence: str) -> None:
        self._silence = silence
        self._lines: list[_Line] = []
        self._left_out = 0

    def add(self, text: str | Callable[[], str], *, head: str = "", tail: str = "") -> None:
        """Add a line with the current time, unless it is empty. Beyond the limit, lines are only counted; a function as
        ``text`` is then not called."""
        if len(self._lines) >= _MAX_LINES:
            self._left_out += 1
            return
        if not isinstance(text, str):
            text = text()
        if not text:
            return
        if len(text) > MAX_CHARS:
            text = f"{text[:MAX_CHARS]}…"
        self._lines.append(_Line(f"{iso_utc(time.time())} {head}", text, tail))

    def text(self, redactor: EvidenceRedactor) -> str:
        texts = redactor.known.mask_texts([line.text for line in self._lines])
        lines = [f"{line.head}{text}{line.tail}" for line, text in zip(self._lines, texts, strict=True)]
        if self._left_out:
            lines.append(f"… and {self._left_out} more lines, which were not kept")
        return "\n".join(map(redactor.redact_line, lines or [self._silence])) + "\n"
