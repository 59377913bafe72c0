"""Tracks how far a replay has come, and lets operations wait for each other."""

from __future__ import annotations

import asyncio
from collections import deque

from ...errors import NotRecorded
from .script import Script

__all__ = ["ReplayProgress"]

#: Seconds without progress after which the program is assumed to behave differently than it did.
_STALL_TIMEOUT = 1.0


class ReplayProgress:
    """The lines of a script that have happened again. ``closed`` ends every wait."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._done: set[int] = set()
        self._changed = asyncio.Event()
        #: Questions that the app has asked again, and the errors of those that were answered differently.
        self._asked: set[str | None] = set()
        self._mismatches: dict[str | None, NotRecorded] = {}
        self.closed = asyncio.Event()

    def mark_done(self, *lines: int | None) -> None:
        """Mark lines as happened. ``None`` is ignored."""
        self._done.update(line for line in lines if line is not None)
        self._changed.set()
        self._changed = asyncio.Event()

    def close(self) -> None:
        """End every wait."""
        self.closed.set()
        self.mark_done()

    def mark_asked(self, question: str | None) -> None:
        """Note that the app has asked a question again."""
        self._asked.add(question)

    def reject(self, question: str | None, error: NotRecorded) -> None:
        """Note that a question was answered differently: whatever was recorded after the answer raises ``error``."""
        self._mismatches[question] = error

    async def wait_until(self, line: int, before: deque[int]) -> None:
        """Wait until the lines ``before`` a line have happened, and remove them from the queue.

        Each line is waited for a second, since a program that behaves differently may never do it. An answer to a
        question of the app is waited for without a limit, since a person may have to give it.
        """
        while before and before[0] < line:
            awaited = before.popleft()
            question = self._script.question_answered_at(awaited)
            is_question = question in self._asked
            while awaited not in self._done and not self.closed.is_set():
                try:
                    await asyncio.wait_for(self._changed.wait(), None if is_question else _STALL_TIMEOUT)
                except TimeoutError:
                    self._done.add(awaited)  # others need not wait for it either
            if is_question and question in self._mismatches:
                raise self._mismatches[question]
