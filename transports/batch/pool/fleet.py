"""The browsers of a pool: started one after the other, watched, replaced by a successor, ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...errors import ABPError, ConnectFailed, Disconnected, TransportError, first_line, format_seconds
from ...tasks import backoff_delay, cancel_and_wait, spawn
from ...telemetry import BROWSER_RESTARTS, record
from .endpoints import Source
from .members import Member
from .slots import Slots

__all__ = ["PATIENCE", "Fleet", "Limits"]

logger = logging.getLogger("transports.batch")

#: Seconds between two checks of the memory, and of each browser.
_TICK, _CHECK_INTERVAL = 0.5, 5.0
#: Seconds after which a browser that answers nothing is taken for dead: that ends all its sessions.
PATIENCE = 15.0
#: Seconds until another successor is tried after one did not start.
_RETRY = 30.0
#: Seconds that calls wait for memory when no call runs that could give some back.
_MEMORY_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When a browser is replaced: after so many calls, seconds, resident bytes, or when calls of one kind take so many
    times as long as in its beginning."""

    calls: int
    age: float
    memory: int
    slowdown: float

    def exceeded(self, member: Member) -> str:
        """Return the first of the reasons to replace a browser, as :class:`~.stats.PoolStats` names them, or ``""``."""
        if member.calls >= self.calls:
            return "calls"
        if member.latency.slowdown > self.slowdown:
            return "slow"
        if member.resident > self.memory:
            return "memory"
        return "age" if member.age > self.age else ""


class Fleet:
    """The browsers of ``sources``, whose slots are in ``slots``; sessions that need no browser have the ``room`` whose
    slots are in ``others``. ``may_open`` says whether there is memory for more."""

    def __init__(self, sources: Sequence[Source], room: Member, limits: Limits, may_open: Callable[[], bool]) -> None:
        self.slots = Slots(may_open, self.grow)
        self.others = Slots(may_open, lambda: None)
        self.others.add(room)
        self.draining: list[Member] = []
        self.recycled: Counter[str] = Counter()
        self._sources = {source: _Attempts() for source in sources}
        self._limits = limits
        self.may_open = may_open
        self._launching = asyncio.Lock()
        self._growing = False
        self._started = 0
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._endings: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to watch."""
        spawn(self._watch_waiting(), self._tasks)
        spawn(self._watch_browsers(), self._tasks)

    async def aclose(self) -> None:
        """End all browsers. Calls that wait fail. Takes seconds at most."""
        self._closed = True
        for slots in (self.slots, self.others):
            slots.fail(lambda: Disconnected("the pool is closed; open another one", details={"sent": False}))
        tasks = tuple(self._tasks)
        await cancel_and_wait(tasks)
        for member in (*self.slots.members, *self.others.members, *self.draining):
            self.slots.remove(member)
            spawn(member.aclose(), self._endings)
        # A start that was stopped cleans up behind itself.
        await asyncio.gather(*tasks, *self._endings, return_exceptions=True)

    # --- more browsers ------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """Start browsers in the background if more calls want one than there are browsers."""
        if not self._growing and not self._closed and self._wants_more():
            self._growing = True
            spawn(self._grow(), self._tasks)

    def _wants_more(self) -> bool:
        serving = len(self.slots.members)
        return serving < self.slots.leased + self.slots.waiting and any(map(self._room, self._sources))

    def _room(self, source: Source) -> int:
        """How many more browsers a source may have."""
        return max(source.count - sum(member.source is source for member in self.slots.members), 0)

    async def _grow(self) -> None:
        try:
            while self._wants_more() and not self._closed:
                if not await self._wait_for_memory():
                    return
                source = min(filter(self._room, self._sources), key=self._order)
                if (pause := self._order(source)[0]) > 0:
                    if self.slots.members:
                        return  # they serve; the next check tries again
                    await asyncio.sleep(pause)
                async with self._launching:
                    try:
                        await self._add(source)
                    except ABPError as error:
                        logger.warning("a browser of the pool did not start: %s", error.message)
                        if not self.slots.members and self._all_failed():
                            self.slots.fail(partial(_unsent, error))
        finally:
            self._growing = False

    def _order(self, source: Source) -> tuple[float, float]:
        """The seconds until a source may be tried again, and how much of its share it has: least goes first."""
        pause = self._sources[source].not_before - time.monotonic()
        return max(pause, 0.0), (source.count - self._room(source)) / source.weight

    def _all_failed(self) -> bool:
        return all(attempts.failures for attempts in self._sources.values())

    async def _wait_for_memory(self) -> bool:
        """Whether a browser may be started. The first one waits; there is no hurry for more."""
        if self.slots.members:
            return self.may_open()
        deadline = time.monotonic() + _MEMORY_PATIENCE
        while not self.may_open():
            if time.monotonic() > deadline:
                self.slots.fail(no_memory)
                return False
            await asyncio.sleep(_TICK)
        return True

    async def _add(self, source: Source) -> None:
        """Start a browser of ``source``; call it with the lock, so that they start one after the other. Raises what
        opening it raises, :class:`~transports.errors.ConnectFailed` for what is no error of ours."""
        attempts, browser = self._sources[source], source.make()
        try:
            await browser.__aenter__()
        except Exception as error:
            attempts.failures += 1
            attempts.not_before = time.monotonic() + backoff_delay(attempts.failures)
            if isinstance(error, ABPError):
                raise
            raise ConnectFailed(f"a browser of the pool did not start: {first_line(error)}") from error
        attempts.failures = 0
        self._started += 1
        member = Member(self._started, source, browser)
        member.stop_watching = browser.on_end(lambda _: self.retire(member, "ended"))
        self.slots.add(member)

    # --- fewer --------------------------------------------------------------------------------------------------------

    def retire(self, member: Member, reason: str) -> None:
        """End a browser at once, and the calls in it: it is dead, or as good as that. Others are started by demand."""
        if not member.serving or self._closed:
            return
        logger.info("browser %d of the pool is ended: %s", member.number, reason)
        self._count(reason)
        self._drain(member)
        spawn(self._end(member), self._endings)
        self.grow()

    def check(self, member: Member) -> None:
        """Replace a browser that exceeds a limit, its successor first: the new one serves before the old one drains."""
        reason = self._limits.exceeded(member)
        if reason and member.serving and not member.due and time.monotonic() >= member.not_before:
            member.due = reason
            spawn(self._replace(member), self._tasks)

    def _count(self, reason: str) -> None:
        self.recycled[reason] += 1
        record(BROWSER_RESTARTS, 1, {"reason": reason})

    async def _replace(self, member: Member) -> None:
        async with self._launching:
            if not member.serving:
                return
            try:
                if self.may_open():  # else it makes room first
                    await self._add(member.source)
            except ABPError as error:
                logger.warning("the successor of browser %d did not start: %s", member.number, error.message)
                member.due, member.not_before = "", time.monotonic() + _RETRY
                return
            logger.info("browser %d of the pool is replaced: %s", member.number, member.due)
            self._count(member.due)
            self._drain(member)
        await member.drained()
        spawn(self._end(member), self._endings)
        self.grow()

    def _drain(self, member: Member) -> None:
        self.slots.remove(member)
        self.draining.append(member)

    async def _end(self, member: Member) -> None:
        await member.aclose()
        self.draining.remove(member)

    # --- watching -----------------------------------------------------------------------------------------------------

    async def _watch_waiting(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            for slots in (self.slots, self.others):
                slots.grant()  # there may be memory again
                if slots.waited > _MEMORY_PATIENCE and not slots.leased and not self.may_open():
                    slots.fail(no_memory)
            self.grow()

    async def _watch_browsers(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            await asyncio.gather(*map(self._check_alive, tuple(self.slots.members)))

    async def _check_alive(self, member: Member) -> None:
        assert member.browser is not None
        if not await member.browser.responds(PATIENCE):
            self.retire(member, "unresponsive")
            return
        member.resident = await member.browser.resident_bytes()
        self.check(member)


@dataclass(slots=True)
class _Attempts:
    """What came of starting browsers of one source: failures in a row, and when the next attempt may be."""

    failures: int = 0
    not_before: float = 0.0


def _unsent(error: ABPError) -> ABPError:
    """Return a copy of an error for one more call, which was not sent."""
    copied = type(error)(error.message, code=error.code, retryable=True, details={**error.details, "sent": False})
    copied.__cause__ = error.__cause__
    return copied


def no_memory() -> TransportError:
    """Return the error for a call that no session can be opened for."""
    return TransportError(
        f"no memory was free for a session within {format_seconds(_MEMORY_PATIENCE)}; end other programs, or lower "
        "min_free_memory=",
        code="OUT_OF_MEMORY",
        retryable=True,
        details={"sent": False},
    )
