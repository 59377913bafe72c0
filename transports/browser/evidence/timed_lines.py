"""Lines with their times, as many as are worth keeping: an app may say any number of things."""

from __future__ import annotations

import time

from ...protocol.secret_values import SecretValues
from ...protocol.timestamps import iso_utc

__all__ = ["MAX_CHARS", "TimedLines"]

#: Lines that are kept, and characters of each.
_MAX_LINES, MAX_CHARS = 5000, 4000


class TimedLines:
    """What was said, each line with its time (UTC). ``silence`` stands for no lines."""

    def __init__(self, silence: str) -> None:
        self._silence = silence
        self._lines: list[str] = []
        self._left_out = 0

    def add(self, text: str) -> None:
        """Keep a line, or count it where there are enough."""
        if len(self._lines) >= _MAX_LINES:
            self._left_out += 1
            return
        cut = text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"
        self._lines.append(f"{iso_utc(time.time())} {cut}")

    def text(self, secrets: SecretValues) -> str:
        """Return the lines without secrets. That of many takes seconds."""
        left_out = [f"… and {self._left_out} more lines, which were not kept"] * bool(self._left_out)
        lines = [secrets.line(line) for line in [*self._lines, *left_out]] or [self._silence]
        return "\n".join(lines) + "\n"
