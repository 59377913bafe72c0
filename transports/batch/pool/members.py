"""One browser of a pool, and its slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...browser.process.launch import Browser
from ...browser.source import close_quietly
from .endpoints import Source
from .held import HeldSession
from .latency import Latency
from .stats import BrowserStats

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

__all__ = ["Member", "Slot"]


class Slot:
    """Room for one session. ``held`` is the one that is open there, ``context`` that of its page if it outlives it."""

    __slots__ = ("context", "held", "leased", "member", "released")

    def __init__(self, member: Member) -> None:
        self.member = member
        self.held: HeldSession | None = None
        self.context: BrowserContext | None = None
        self.leased = False
        #: When it was last used, by :func:`time.monotonic`.
        self.released = 0.0

    async def empty(self, *, keep_context: bool = False) -> None:
        """Close the session, and its context unless it is kept. Never raises."""
        held, self.held = self.held, None
        if held is not None:
            await held.aclose()
        if not keep_context and self.context is not None:
            context, self.context = self.context, None
            await close_quietly(context)


class Member:
    """A browser of the pool; without one, the room for sessions that need none.

    It gets new calls while it is ``serving``. ``due`` is the reason why its successor is being started.
    """

    def __init__(self, number: int, source: Source, browser: Browser | None) -> None:
        self.number = number
        self.source = source
        self.browser = browser
        self.slots = [Slot(self) for _ in range(source.sessions)]
        self.serving = True
        self.due = ""
        self.calls = 0
        self.leased = 0
        self.resident = 0
        self.latency = Latency()
        #: Before this time (:func:`time.monotonic`) no successor is started: the last attempt failed.
        self.not_before = 0.0
        #: Takes back the notice of the browser's end.
        self.stop_watching: Callable[[], None] = lambda: None
        self._started = time.monotonic()
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def age(self) -> float:
        """Seconds since the browser was started."""
        return time.monotonic() - self._started

    @property
    def load(self) -> float:
        """How busy it is for its weight."""
        return self.leased / self.source.weight

    def lease(self, slot: Slot) -> None:
        """Mark ``slot`` as leased."""
        slot.leased = True
        self.leased += 1
        self._drained.clear()

    def end_lease(self, slot: Slot) -> None:
        """Mark ``slot`` as free again."""
        slot.leased, slot.released = False, time.monotonic()
        self.leased -= 1
        if not self.leased:
            self._drained.set()

    def replace(self, slot: Slot) -> None:
        """Put an empty slot in the place of one whose session does not end."""
        self.slots[self.slots.index(slot)] = Slot(self)
        self.end_lease(slot)

    async def drained(self) -> None:
        """Wait until no slot is leased."""
        await self._drained.wait()

    async def aclose(self) -> None:
        """Close all sessions and the browser, within bounds of their own. Calls in them fail."""
        self.serving = False
        self.stop_watching()
        await asyncio.gather(*(slot.empty() for slot in self.slots))
        if self.browser is not None:
            await self.browser.aclose()

    def stats(self) -> BrowserStats:
        """Return its state as of now."""
        return BrowserStats(
            number=self.number,
            sessions=sum(slot.held is not None for slot in self.slots),
            leased=self.leased,
            calls=self.calls,
            age=self.age,
            resident_bytes=self.resident,
            recent_ms=self.latency.recent,
            draining=not self.serving,
        )
