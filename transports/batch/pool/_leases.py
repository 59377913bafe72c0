"""Leases of a pool's sessions: each call has a session to itself, and its lease has a time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias

from ..._internal.tasks import cancel_and_wait, finished, spawn
from ...errors import (
    ABPError,
    BrowserCrashed,
    CallTimeout,
    CapabilityError,
    Disconnected,
    TransportError,
    format_seconds,
)
from ...playwright._browser import Browser
from ...routing._result import Result
from ...session._attempts import SESSION_LOST
from ...session._named_apps import shares_browser
from ...session._session import Session
from ._fleet import PATIENCE, Fleet, HeldSession, Slot, Slots, clear_context, open_context

#: :func:`transports.connect`, or a function that replaces it.
Connect: TypeAlias = Callable[..., Session]
#: Reuse by the next call: the open ``session``, a new page in the cleared ``context``, or neither.
Reuse: TypeAlias = Literal["session", "context", "never"]
#: Function that uses a session during a lease.
Work: TypeAlias = Callable[[Session], Coroutine[Any, Any, Result]]

#: Seconds beyond its timeouts that a call or an opening session may take before its lease ends.
GRACE = 15.0


class Leases:
    """Leases of sessions in the slots of ``fleet``.

    ``connect`` makes a session with ``options``; opening it may take ``open_timeout`` seconds.
    """

    def __init__(
        self, fleet: Fleet, *, connect: Connect, reuse: Reuse, open_timeout: float, headless: bool = True
    ) -> None:
        self.options: dict[str, object] = {}
        #: Number of started calls.
        self.calls = 0
        self._fleet = fleet
        self._connect = connect
        self._reuse = reuse
        # Cached, since for the name of an app it reads the settings file.
        self._shares_browser = lru_cache(1000)(
            partial(shares_browser, headless=headless, new_context=reuse != "context")
        )
        self._open_timeout = open_timeout
        self._closed = False
        self._clearing: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Close all sessions and browsers. Running and waiting calls fail. Takes seconds at most."""
        self._closed = True
        await self._fleet.aclose()
        while self._clearing:
            await asyncio.wait(tuple(self._clearing))

    async def run(self, target: str, capability: str, work: Work, seconds: float) -> Result:
        """Return the result of ``work`` in a session for ``target`` of its own.

        Raises the errors of opening (their ``sent`` is ``False``), the errors of ``work``, and
        :class:`~transports.errors.CallTimeout` for work that goes on long after ``seconds``."""
        slot = await self._open_slot(target)
        assert slot.open_session is not None
        started = time.perf_counter()
        result = await self._within_lease(slot, work(slot.open_session.session), seconds + GRACE, capability)
        slot.member.latency.add((target, capability), (time.perf_counter() - started) * 1000)
        return result

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Browser]:
        """Lend a browser for one session of the caller's own. It counts as one call. A browser replaced meanwhile stays
        until its last borrower is done.

        Raises the errors of opening, and :class:`~transports.errors.TransportError` (``LIMIT_REACHED``) if no browser
        has room for another session within the time for opening."""
        slot, browser = await self._borrow_browser()
        slot.member.calls += 1
        try:
            yield browser
        finally:
            self._fleet.browser_slots.release(slot)
            self._fleet.check(slot.member)

    async def _borrow_browser(self) -> tuple[Slot, Browser]:
        """Return a leased slot without a session, and its responsive browser."""
        try:
            async with asyncio.timeout(self._open_timeout + GRACE):
                while True:
                    slot = await self._fleet.browser_slots.acquire("")
                    browser = await self._find_responsive_browser(slot)
                    if browser is not None:
                        return slot, browser
                    self._fleet.retire(slot.member, "ended")
                    self._fleet.browser_slots.release(slot)
        except TimeoutError:
            raise TransportError(
                "all sessions of the pool's browsers are taken; disconnect an app, or give it more browsers",
                code="LIMIT_REACHED",
                retryable=True,
                sent=False,
            ) from None

    async def _find_responsive_browser(self, slot: Slot) -> Browser | None:
        """Close the session of a leased slot, and return the slot's browser; ``None`` if it does not respond.

        If this is cancelled, the slot is released."""
        browser = slot.member.browser
        assert browser is not None
        try:
            await slot.empty()
            if slot.member.serving and await browser.responds(PATIENCE):
                return browser
        except BaseException:
            self._fleet.browser_slots.release(slot)
            raise
        return None

    async def _within_lease(
        self, slot: Slot, work: Coroutine[Any, Any, Result], seconds: float, capability: str
    ) -> Result:
        """Return the result of ``work``. Release the slot after ``seconds`` at most, even if the work goes on."""
        member = slot.member
        member.calls += 1
        self.calls += 1
        task = asyncio.create_task(work)
        healthy = False
        try:
            await asyncio.wait((task,), timeout=seconds)
            if not task.done():
                raise CallTimeout(
                    f"{capability}: the session did not end the call within {format_seconds(seconds)}, the end of its "
                    "lease; it is replaced"
                )
            error = None if task.cancelled() else task.exception()
            healthy = not task.cancelled() and _session_survives(error)
            return task.result()
        finally:
            # The lease ends in any case, also if this is cancelled again while the work is cancelled.
            try:
                if not task.done():
                    await finished(asyncio.ensure_future(cancel_and_wait((task,))))
            finally:
                self._end_lease(slot, healthy=healthy, hangs=not task.done())

    def _end_lease(self, slot: Slot, *, healthy: bool, hangs: bool) -> None:
        """Release a slot after its work, for reuse if its session is ``healthy``.

        If the work ``hangs``, it cannot be stopped: the slot is abandoned and its browser is replaced."""
        member = slot.member
        slots = self._slots_of(slot)
        if hangs:
            member.replace(slot)
            spawn(slot.empty(), self._clearing)
            if member.browser is not None:
                self._fleet.retire(member, "lease")
            slots.grant()
        elif healthy and self._reuse == "session" and member.serving:
            slots.release(slot)
        else:
            spawn(self._clear_slot(slot, slots, healthy=healthy), self._clearing)
        if member.browser is not None:
            self._fleet.check(member)

    async def _clear_slot(self, slot: Slot, slots: Slots, *, healthy: bool) -> None:
        """Close the session of a slot, clear or close its context, then release the slot."""
        try:
            may_reuse_context = healthy and self._reuse == "context" and slot.member.serving
            await slot.empty(keep_context=may_reuse_context)
            if may_reuse_context and slot.context is not None:
                is_clean = await clear_context(slot.context)
                if not is_clean:
                    slot.context = None
        finally:
            slots.release(slot)

    def _slots_of(self, slot: Slot) -> Slots:
        return self._fleet.browserless_slots if slot.member.browser is None else self._fleet.browser_slots

    async def _open_slot(self, target: str) -> Slot:
        """Return a leased slot with an open session for ``target``.

        If the browser ends meanwhile, another one is tried: nothing was sent yet. Raises the errors of opening a
        session.
        """
        slots = self._fleet.browser_slots if self._shares_browser(target) else self._fleet.browserless_slots
        attempts_left = 3
        while True:
            attempts_left -= 1
            slot = await slots.acquire(target)
            try:
                await self._require_session(slot, target)
            except BaseException as error:
                spawn(self._clear_slot(slot, slots, healthy=False), self._clearing)
                if not isinstance(error, ABPError):
                    raise
                if isinstance(error, BrowserCrashed):
                    self._fleet.retire(slot.member, "ended")
                has_browser_ended = not slot.member.serving
                if has_browser_ended and attempts_left and not self._closed:
                    continue
                error.sent = False
                raise
            return slot

    async def _require_session(self, slot: Slot, target: str) -> None:
        """Open a session for ``target`` in a leased slot unless the slot has one."""
        # The browser may have ended since the slot was granted.
        if not slot.member.serving:
            raise Disconnected("the browser of the pool has ended; call again")
        if slot.open_session is None or slot.open_session.target != target:
            await self._open_session(slot, target)

    async def _open_session(self, slot: Slot, target: str) -> None:
        """Open a session for ``target`` in a leased slot, in place of another one."""
        browser = slot.member.browser
        options = self.options
        await slot.empty(keep_context=True)

        if browser is not None and self._reuse == "context":
            if slot.context is None:
                slot.context = await open_context(browser)
            options = {**options, "context": slot.context}
        elif browser is not None:
            options = {**options, "browser": browser}

        slot.open_session = new_session = HeldSession(target, self._connect(target, **options))
        await new_session.opened(self._open_timeout + GRACE)
        # If the browser was ended meanwhile, the slot has been emptied.
        if slot.open_session is not new_session:
            raise Disconnected("the browser of the pool has ended; call again")


def _session_survives(error: BaseException | None) -> bool:
    """Return whether a session can be reused after a call with ``error``. After a timeout the app may still be at work;
    if the app has lost the session, it is opened again."""
    if error is None:
        return True
    if isinstance(error, CapabilityError):
        return error.code not in SESSION_LOST
    return isinstance(error, ABPError) and error.session_survives and not isinstance(error, CallTimeout)
