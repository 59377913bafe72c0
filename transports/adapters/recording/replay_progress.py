"""How far a replay has come, and who waits for what."""

from __future__ import annotations

import asyncio
from collections import deque

from ...errors import NotRecorded
from .script import Score

__all__ = ["Course"]

#: Seconds without anything new after which a program is taken to do otherwise than it did.
_OTHERWISE = 1.0


class Course:
    """Which lines of a score have happened again. ``closed`` ends every wait."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self._happened: set[int] = set()
        self._news = asyncio.Event()
        #: Questions of the app that were asked again, and what is wrong with answers to them.
        self._asked: set[str | None] = set()
        self._otherwise: dict[str | None, NotRecorded] = {}
        self.closed = asyncio.Event()

    def done(self, *lines: int | None) -> None:
        """These lines have happened."""
        self._happened.update(line for line in lines if line is not None)
        self._news.set()
        self._news = asyncio.Event()

    def close(self) -> None:
        self.closed.set()
        self.done()

    def asked(self, question: str | None) -> None:
        """The app has asked again."""
        self._asked.add(question)

    def refuse(self, question: str | None, error: NotRecorded) -> None:
        """The app was answered otherwise: whatever was recorded after the answer raises this."""
        self._otherwise[question] = error

    async def reached(self, line: int, before: deque[int]) -> None:
        """Wait until what stands ``before`` a line has happened; take it out. A program that does otherwise is not
        waited for; an answer to a question of the app is, whoever has to give it."""
        while before and before[0] < line:
            awaited = before.popleft()
            question = self._score.question(awaited)
            asked = question in self._asked
            while awaited not in self._happened and not self.closed.is_set():
                try:
                    await asyncio.wait_for(self._news.wait(), None if asked else _OTHERWISE)
                except TimeoutError:
                    self._happened.add(awaited)  # nobody else has to wait for it
            if asked and question in self._otherwise:
                raise self._otherwise[question]
