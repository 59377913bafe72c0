"""Which call gets which slot next."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from ...errors import ABPError
from .members import Member, Slot

__all__ = ["Slots"]

#: A call whose app has a warm session in a free slot goes before older ones, until one of these waited so many seconds.
_MAX_OVERTAKEN = 1.0
#: What opening a session costs, in calls that a browser has under way already.
_COLD = 0.5
#: Waiting calls that are looked at for one with a warm session.
_LOOK_AHEAD = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    target: str
    granted: asyncio.Future[Slot]
    since: float


class Slots:
    """The slots of the browsers that serve, and the calls that wait for one.

    ``may_open`` says whether there is memory for one more session. ``on_demand`` is called for each call, which may be
    work for one more browser.
    """

    def __init__(self, may_open: Callable[[], bool], on_demand: Callable[[], None]) -> None:
        self.members: list[Member] = []
        self._may_open = may_open
        self._on_demand = on_demand
        self._waiters: deque[_Waiter] = deque()

    @property
    def leased(self) -> int:
        """How many slots are leased."""
        return sum(member.leased for member in self.members)

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return len(self._waiters)

    @property
    def waited(self) -> float:
        """Seconds that the oldest of them has waited."""
        return time.monotonic() - self._waiters[0].since if self._waiters else 0.0

    async def acquire(self, target: str) -> Slot:
        """Return a slot, leased: one with a warm session for ``target`` if there is one, else an empty one, else the
        one that was not used for longest, whose session the caller closes. Waits for one to become free."""
        slot = None if self._waiters else self._find(target)
        if slot is not None:
            slot.member.lease(slot)
            self._on_demand()
            return slot
        waiter = _Waiter(target, asyncio.get_running_loop().create_future(), time.monotonic())
        self._waiters.append(waiter)
        self._on_demand()
        try:
            return await waiter.granted
        except BaseException:
            granted = waiter.granted
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.release(granted.result())
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)
            raise

    def release(self, slot: Slot) -> None:
        """Take a slot back, and give it to a call that waits."""
        slot.member.end_lease(slot)
        self.grant()

    def add(self, member: Member) -> None:
        """Give the slots of one more browser to calls."""
        self.members.append(member)
        self.grant()

    def remove(self, member: Member) -> None:
        """Give its slots to no further call."""
        member.serving = False
        with contextlib.suppress(ValueError):
            self.members.remove(member)

    def fail(self, error: Callable[[], ABPError]) -> None:
        """Have all calls that wait raise an error."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.granted.done():
                waiter.granted.set_exception(error())

    def grant(self) -> None:
        """Give free slots to calls that wait, the oldest first, but for warm sessions."""
        while self._waiters:
            waiter = self._next()
            slot = self._find(waiter.target)
            if slot is None:
                return
            self._waiters.remove(waiter)
            if not waiter.granted.done():
                slot.member.lease(slot)
                waiter.granted.set_result(slot)

    def _next(self) -> _Waiter:
        if self.waited < _MAX_OVERTAKEN:
            warm = {slot.held.target for slot in self._free() if slot.held}
            for waiter in islice(self._waiters, _LOOK_AHEAD):
                if waiter.target in warm:
                    return waiter
        return self._waiters[0]

    def _free(self) -> list[Slot]:
        return [slot for member in self.members for slot in member.slots if not slot.leased]

    def _find(self, target: str) -> Slot | None:
        """The free slot that costs least: a warm session in a browser with little to do; else the one whose session
        was not used for longest."""
        free = self._free()
        usable = [slot for slot in free if slot.held and slot.held.target == target]
        if len(usable) < len(free) and self._may_open():
            usable += [slot for slot in free if slot.held is None]
        if usable:
            return min(usable, key=lambda slot: (slot.member.load + (0 if slot.held else _COLD), -slot.released))
        return min((slot for slot in free if slot.held), key=lambda slot: slot.released, default=None)
