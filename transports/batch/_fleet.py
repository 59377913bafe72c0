"""Browsers of a pool and the slots for sessions in them.

A :class:`Member` is a browser, a :class:`Slot` is room for a session in it, and a :class:`Source` starts browsers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING

from .._internal.tasks import backoff_delay, cancel_and_wait, spawn
from .._internal.telemetry import BROWSER_RESTARTS, record
from ..errors import (
    ABPError,
    ConnectFailed,
    Disconnected,
    TransportError,
    UsageError,
    first_line,
    format_seconds,
    spelled,
)
from ..playwright._browser import Browser
from ..playwright._source import close_quietly, open_or_close
from ..protocol._plain_text import redact_url
from ..session._session import Session

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext


logger = logging.getLogger("transports.batch")

#: Seconds after which an unresponsive browser counts as dead, which ends all its sessions.
PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a fleet in seconds."""

    #: Between two checks of the memory and of the waiting calls.
    tick: float = 0.5
    #: Between two checks of each browser.
    check_interval: float = 5.0
    #: From a failed start of a successor to the next attempt.
    retry: float = 30.0
    #: Longest wait for memory, if no running call could release some.
    memory_patience: float = 60.0
    #: A call with a warm session in a free slot overtakes older calls until the oldest has waited this long.
    max_overtaken: float = 1.0


TIMES = Times()


class Latency:
    """Latency of calls in one browser, by kind of call: the median of the latest hundred calls, compared with the
    median of the first hundred. Only the first 64 kinds are measured."""

    def __init__(self) -> None:
        #: Slowdown of the slowest kind as a factor; 1 means none.
        self.slowdown = 1.0
        #: Median of the latest hundred calls of any kind, in milliseconds.
        self.recent = 0.0
        self._first: dict[object, float] = {}
        self._latest: dict[object, list[float]] = {}

    def add(self, kind: object, milliseconds: float) -> None:
        """Add the duration of a call. ``kind`` identifies similar calls, for instance by target and capability."""
        max_kinds = 64
        if kind not in self._latest and len(self._latest) >= max_kinds:
            return
        latest = self._latest.setdefault(kind, [])
        latest.append(milliseconds)
        calls_of_median = 100
        if len(latest) < calls_of_median:
            return

        self.recent = median(latest)
        latest.clear()
        first = self._first.setdefault(kind, self.recent)
        noise_in_ms = 20.0
        if self.recent - first > noise_in_ms:
            # The first median may be 0, by which nothing can be divided.
            self.slowdown = max(self.slowdown, self.recent / max(first, 0.1))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """External browser for a :class:`Pool`: ``cdp_url`` or ``browser_server`` with their ``headers``, as
    :class:`~transports.Browser` takes them.

    ``weight`` is its share of the calls, compared with other endpoints and the pool's own browsers of weight 1.
    ``sessions`` is its maximum number of sessions, by default that of any browser of the pool.

    Raises :class:`~transports.errors.UsageError` unless weight and number are positive and exactly one address is
    given."""

    cdp_url: str | None = field(default=None, repr=False)
    browser_server: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    weight: float = 1.0
    sessions: int | None = None

    def __post_init__(self) -> None:
        if (self.cdp_url is None) == (self.browser_server is None):
            raise UsageError(f"an endpoint needs either {spelled('cdp_url=')} or {spelled('browser_server=')}")
        has_sessions = self.sessions is None or self.sessions >= 1
        if not self.weight > 0 or not has_sessions:
            raise UsageError("the weight and the sessions of an endpoint must be more than 0")

    def browser(self, timeout: float) -> Browser:
        """Return the browser, not opened yet. Connecting may take ``timeout`` seconds."""
        return Browser(cdp_url=self.cdp_url, browser_server=self.browser_server, headers=self.headers, timeout=timeout)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Starts up to ``count`` browsers, each with up to ``sessions``. ``weight`` is its share of the calls."""

    make: Callable[[], Browser]
    count: int
    sessions: int
    weight: float = 1.0


@dataclass(slots=True)
class _Attempts:
    """Consecutive failures to start a browser of one source, and the earliest time of the next attempt."""

    failures: int = 0
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class BrowserStats:
    """Statistics of one browser of a pool. ``number`` counts the starts of browsers.

    ``age`` is in seconds. ``resident_bytes`` is the memory of all its processes and its driver at the last check (0 for
    an external browser). ``recent_ms`` is the median of its latest hundred calls. ``draining`` is true once its
    successor serves."""

    number: int
    sessions: int
    leased: int
    calls: int
    age: float
    resident_bytes: int
    recent_ms: float
    draining: bool


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Statistics of a pool: its ``browsers``, open ``sessions``, ``leased`` sessions and ``waiting`` calls.

    ``recycled`` counts the replaced browsers by reason: ``calls``, ``age``, ``memory``, ``slow``, ``lease`` (a call
    outlived its lease), ``unresponsive``, ``ended`` (the browser died)."""

    browsers: tuple[BrowserStats, ...]
    sessions: int
    leased: int
    waiting: int
    calls: int
    recycled: Mapping[str, int]


class HeldSession:
    """Open session of a slot. A separate task opens and closes the session, since calls run in different tasks and a
    session must be closed by the task that opened it."""

    def __init__(self, target: str, session: Session) -> None:
        self.target = target
        self.session = session
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task = asyncio.ensure_future(self._keep_open())

    async def _keep_open(self) -> None:
        async with self.session:
            self._opened.set_result(None)
            await self._leave.wait()

    async def wait_until_open(self, timeout: float) -> None:
        """Wait until the session is open, ``timeout`` seconds at most; the session's own limit is stricter. If this is
        cancelled, the session is closed."""
        try:
            await asyncio.wait((self._opened, self._task), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self._opened.done() and not self._task.done():
                await cancel_and_wait((self._task,))

        if self._opened.done():
            return
        if not self._task.done() or self._task.cancelled():
            raise ConnectFailed(f"the session with {redact_url(self.target)} did not open and cannot be closed")
        # The task has failed: raise its error.
        await self._task

    async def aclose(self) -> None:
        """Close the session within ten seconds. Never raises: errors are logged."""
        self._leave.set()
        # The session's transport has stricter limits of its own.
        await asyncio.wait((self._task,), timeout=10.0)
        if not self._task.done():
            await cancel_and_wait((self._task,))

        if self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            if error is not None:
                logger.info("a session closed with an error: %s", first_line(error))


async def open_context(browser: Browser) -> BrowserContext:
    try:
        async with asyncio.timeout(10.0):
            return await open_or_close(browser.playwright.new_context())
    except ABPError:
        raise
    except Exception as error:  # noqa: BLE001 - a driver that ends meanwhile may raise anything
        raise ConnectFailed(f"the browser cannot open a context: {first_line(error)}") from None


async def clear_context(context: BrowserContext) -> bool:
    """Clear all data stored by pages of ``context``: cookies, local storage, databases, caches, files and service
    workers of all origins, and permissions. The browser's HTTP cache stays. Return whether the context is clean; if
    clearing fails, as in a browser without CDP, the context is closed."""
    try:
        async with asyncio.timeout(10.0):
            page = await context.new_page()
            cdp = await context.new_cdp_session(page)
            await cdp.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
            await context.clear_cookies()
            await context.clear_permissions()
            await page.close()
    except Exception as error:  # noqa: BLE001 - after any error the context is abandoned
        logger.info("a context could not be cleared: %s", first_line(error))
        await close_quietly(context)
        return False
    return True


class Slot:
    """Room for one session. ``context`` is the browser context of the session's page, if it is reused afterwards."""

    __slots__ = ("context", "leased", "member", "open_session", "released_at")

    def __init__(self, member: Member) -> None:
        self.member = member
        self.open_session: HeldSession | None = None
        self.context: BrowserContext | None = None
        self.leased = False
        #: End of the last use, by :func:`time.monotonic`.
        self.released_at = 0.0

    async def clear(self, *, keep_context: bool = False) -> None:
        """Close the session, and the context unless it is kept. Never raises."""
        # Both are removed before they are closed, so that another task does not close them again.
        open_session = self.open_session
        self.open_session = None
        if open_session is not None:
            await open_session.aclose()
        if not keep_context and self.context is not None:
            context = self.context
            self.context = None
            await close_quietly(context)


class Member:
    """A browser of the pool, or with ``browser=None`` the room for sessions without a browser. It gets new calls while
    it is ``serving``. ``replacement_reason`` says why it is being replaced; otherwise it is empty."""

    def __init__(self, number: int, source: Source, browser: Browser | None) -> None:
        self.number = number
        self.source = source
        self.browser = browser
        self.slots = [Slot(self) for _ in range(source.sessions)]
        self.serving = True
        self.replacement_reason = ""
        self.calls = 0
        self.leased = 0
        #: Bytes of memory at the last check.
        self.resident = 0
        self.latency = Latency()
        #: Earliest time (:func:`time.monotonic`) for another attempt to start a successor, after a failed one.
        self.not_before = 0.0
        #: Unsubscribes from the browser's end.
        self.stop_watching: Callable[[], None] = lambda: None
        self._started = time.monotonic()
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def age(self) -> float:
        return time.monotonic() - self._started

    @property
    def load(self) -> float:
        """Running calls, divided by the browser's weight."""
        return self.leased / self.source.weight

    @property
    def open_sessions(self) -> int:
        return sum(slot.open_session is not None for slot in self.slots)

    def lease(self, slot: Slot) -> None:
        slot.leased = True
        self.leased += 1
        self._drained.clear()

    def end_lease(self, slot: Slot) -> None:
        slot.leased = False
        slot.released_at = time.monotonic()
        self.leased -= 1
        if not self.leased:
            self._drained.set()

    def abandon_slot(self, slot: Slot) -> None:
        """Give up a slot that cannot be cleared, and put an empty one in its place."""
        self.slots[self.slots.index(slot)] = Slot(self)
        self.end_lease(slot)

    async def drained(self) -> None:
        await self._drained.wait()

    async def aclose(self) -> None:
        self.serving = False
        self.stop_watching()
        await asyncio.gather(*(slot.clear() for slot in self.slots))
        if self.browser is not None:
            await self.browser.aclose()

    def stats(self) -> BrowserStats:
        return BrowserStats(
            number=self.number,
            sessions=self.open_sessions,
            leased=self.leased,
            calls=self.calls,
            age=self.age,
            resident_bytes=self.resident,
            recent_ms=self.latency.recent,
            draining=not self.serving,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A call that waits for a slot. ``since`` is a time by :func:`time.monotonic`."""

    target: str
    granted: asyncio.Future[Slot]
    since: float


class Slots:
    """Slots of the serving browsers, and the queue of waiting calls. ``on_demand`` is called for each call, since it
    may need another browser."""

    def __init__(self, may_open: Callable[[], bool], on_demand: Callable[[], None] = lambda: None) -> None:
        self.members: list[Member] = []
        self._may_open = may_open
        self._on_demand = on_demand
        self._waiters: deque[_Waiter] = deque()

    @property
    def leased(self) -> int:
        return sum(member.leased for member in self.members)

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @property
    def waited(self) -> float:
        """Seconds that the oldest waiting call has waited; 0 if none is waiting."""
        if not self._waiters:
            return 0.0
        return time.monotonic() - self._waiters[0].since

    async def acquire(self, target: str) -> Slot:
        """Wait for a free slot, lease it and return it. A slot with an open session for ``target`` comes first, then an
        empty slot, then the least recently used one, whose session the caller must close."""
        slot = None if self._waiters else self._find_slot(target)
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
            # A slot may have been granted just before the cancellation. Then it must be released.
            future = waiter.granted
            has_slot = future.done() and not future.cancelled() and future.exception() is None
            if has_slot:
                self.release(future.result())
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)
            raise

    def release(self, slot: Slot) -> None:
        slot.member.end_lease(slot)
        self.grant()

    def add(self, member: Member) -> None:
        self.members.append(member)
        self.grant()

    def remove(self, member: Member) -> None:
        member.serving = False
        with contextlib.suppress(ValueError):
            self.members.remove(member)

    def fail_waiters(self, error: Callable[[], ABPError]) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.granted.done():
                waiter.granted.set_exception(error())

    def grant(self) -> None:
        """Grant free slots to waiting calls, in the order of :meth:`_next_waiter`."""
        while self._waiters:
            waiter = self._next_waiter()
            slot = self._find_slot(waiter.target)
            if slot is None:
                return
            self._waiters.remove(waiter)
            if not waiter.granted.done():
                slot.member.lease(slot)
                waiter.granted.set_result(slot)

    def _next_waiter(self) -> _Waiter:
        """Return the call that gets the next slot: the oldest, or shortly a newer one with a warm session."""
        if self.waited < TIMES.max_overtaken:
            warm_targets = {slot.open_session.target for slot in self._free_slots() if slot.open_session}
            # Only the oldest calls are searched, since this runs for each released slot.
            for waiter in islice(self._waiters, 64):
                if waiter.target in warm_targets:
                    return waiter
        return self._waiters[0]

    def _free_slots(self) -> list[Slot]:
        return [slot for member in self.members for slot in member.slots if not slot.leased]

    def _find_slot(self, target: str) -> Slot | None:
        """Return the cheapest free slot: one with an open session for ``target`` or an empty one, in the least busy
        browser; otherwise the least recently used slot, whose session has another target. Of slots that cost the same,
        the one used last is returned: its browser has the most in its caches, and the sessions that stay unused become
        the least recently used ones, which are closed first."""
        warm: list[Slot] = []
        empty: list[Slot] = []
        with_other_target: list[Slot] = []
        for slot in self._free_slots():
            if slot.open_session is None:
                empty.append(slot)
            elif slot.open_session.target == target:
                warm.append(slot)
            else:
                with_other_target.append(slot)

        usable = warm
        if empty and self._may_open():
            usable = warm + empty
        if usable:
            return min(usable, key=_cost_of_use)
        return min(with_other_target, key=attrgetter("released_at"), default=None)


def _cost_of_use(slot: Slot) -> tuple[float, float]:
    # Opening a session costs as much as half a running call.
    opening = 0 if slot.open_session else 0.5
    return slot.member.load + opening, -slot.released_at


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a browser before it is replaced: calls, age in seconds, resident bytes, and the slowdown factor of one
    kind of calls. ``free_memory`` is the bytes that must be free to open a session or a browser."""

    calls: int
    age: float
    memory: int
    slowdown: float
    free_memory: int

    def __post_init__(self) -> None:
        has_positive_limits = min(self.calls, self.age, self.memory) > 0
        if not has_positive_limits or not self.slowdown > 1 or self.free_memory < 0:
            raise UsageError("limits of a pool must be more than 0, and max_slowdown= more than 1")

    def exceeded(self, member: Member) -> str:
        """Return the first reason to replace a browser, as in :class:`PoolStats`. It is empty without a reason."""
        if member.calls >= self.calls:
            return "calls"
        if member.latency.slowdown > self.slowdown:
            return "slow"
        if member.resident > self.memory:
            return "memory"
        if member.age > self.age:
            return "age"
        return ""


class Fleet:
    """Browsers of a pool. Sessions without a browser use the ``browserless_slots``, of which there are as many as slots
    in all browsers. A browser that is ``draining`` gets no new calls, but its running calls go on. ``free_memory``
    returns bytes."""

    def __init__(self, sources: Sequence[Source], limits: Limits, free_memory: Callable[[], int]) -> None:
        self._limits = limits
        self._free_memory = free_memory
        self.size = sum(source.count * source.sessions for source in sources)
        self.browser_slots = Slots(self._may_open, self.grow)
        self.browserless_slots = Slots(self._may_open)
        self.browserless_slots.add(Member(0, Source(Browser, 1, self.size), None))
        self.draining: list[Member] = []
        self.recycled: Counter[str] = Counter()
        self._sources = {source: _Attempts() for source in sources}
        self._launching = asyncio.Lock()
        self._growing = False
        self._started = 0
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._endings: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        spawn(self._watch_waiting(), self._tasks)
        spawn(self._watch_browsers(), self._tasks)

    async def aclose(self) -> None:
        """End all browsers. Waiting calls fail. Takes seconds at most."""
        self._closed = True
        for slots in (self.browser_slots, self.browserless_slots):
            slots.fail_waiters(lambda: Disconnected("the pool is closed; open another one", sent=False))
        tasks = tuple(self._tasks)
        await cancel_and_wait(tasks)
        for member in (*self.browser_slots.members, *self.browserless_slots.members, *self.draining):
            self.browser_slots.remove(member)
            spawn(member.aclose(), self._endings)
        # A cancelled start cleans up after itself.
        await asyncio.gather(*tasks, *self._endings, return_exceptions=True)

    def slots_of(self, member: Member) -> Slots:
        return self.browserless_slots if member.browser is None else self.browser_slots

    def _may_open(self) -> bool:
        return self._free_memory() >= self._limits.free_memory

    # --- more browsers ------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """Start more browsers in the background if there are fewer than calls, and if sources have more."""
        if not self._growing and not self._closed and self._wants_more():
            self._growing = True
            spawn(self._start_browsers(), self._tasks)

    def _wants_more(self) -> bool:
        calls = self.browser_slots.leased + self.browser_slots.waiting
        return len(self.browser_slots.members) < calls and any(map(self._browsers_left, self._sources))

    def _browsers_left(self, source: Source) -> int:
        return max(source.count - sum(member.source is source for member in self.browser_slots.members), 0)

    async def _start_browsers(self) -> None:
        """Start browsers, one after the other, while more are wanted. If memory is missing, or the last start failed
        only a moment ago, this ends, and :meth:`_watch_waiting` tries again later."""
        try:
            while self._wants_more() and not self._closed:
                startable_sources = filter(self._browsers_left, self._sources)
                source = min(startable_sources, key=self._start_order)
                pause, _ = self._start_order(source)
                if pause > 0 or not self._may_open():
                    return

                async with self._launching:
                    await self._try_to_start(source)
        except Exception as error:
            self._fail_waiting(error)
            raise
        finally:
            self._growing = False

    async def _try_to_start(self, source: Source) -> None:
        """Start a browser. If that fails and there is no other browser or source, all waiting calls fail."""
        try:
            await self._start_browser(source)
        except ABPError as error:
            logger.warning("a browser of the pool did not start: %s", error.message)
            all_failed = all(attempts.failures for attempts in self._sources.values())
            if all_failed and not self.browser_slots.members:
                self.browser_slots.fail_waiters(partial(_unsent_error, error))

    def _start_order(self, source: Source) -> tuple[float, float]:
        """Return the sort key of a source: seconds until its next attempt, and its browsers divided by its weight."""
        pause = self._sources[source].not_before - time.monotonic()
        return max(pause, 0.0), (source.count - self._browsers_left(source)) / source.weight

    async def _start_browser(self, source: Source) -> None:
        """Start a browser. The caller holds the lock ``_launching``, so that only one browser starts at a time. Errors
        of other libraries become :class:`~transports.errors.ConnectFailed`."""
        attempts = self._sources[source]
        browser = source.make()
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
        self.browser_slots.add(member)

    # --- fewer --------------------------------------------------------------------------------------------------------

    def retire(self, member: Member, reason: str) -> None:
        """End a dead or unresponsive browser and its calls at once. Other browsers are started if calls need them."""
        if not member.serving or self._closed:
            return
        logger.info("browser %d of the pool is ended: %s", member.number, reason)
        self._stop_serving(member, reason)
        spawn(self._close_member(member), self._endings)
        self.grow()

    def replace_if_over_limit(self, member: Member) -> None:
        """Replace a browser that is over a limit. The new one serves calls before the old one stops."""
        reason = self._limits.exceeded(member)
        is_replaced_already = not member.serving or member.replacement_reason != ""
        if reason and not is_replaced_already and time.monotonic() >= member.not_before:
            member.replacement_reason = reason
            spawn(self._replace_browser(member), self._tasks)

    async def _replace_browser(self, member: Member) -> None:
        async with self._launching:
            if not member.serving:
                return
            try:
                # Without free memory, the old browser is drained first, which frees some.
                if self._may_open():
                    await self._start_browser(member.source)
            except Exception as error:  # noqa: BLE001 - the old browser goes on, whatever the reason
                logger.warning("the successor of browser %d did not start: %s", member.number, first_line(error))
                member.replacement_reason = ""
                member.not_before = time.monotonic() + TIMES.retry
                return
            logger.info("browser %d of the pool is replaced: %s", member.number, member.replacement_reason)
            self._stop_serving(member, member.replacement_reason)

        await member.drained()
        # This is not awaited: aclose() cancels the task that runs here, but waits for the tasks in `_endings`.
        spawn(self._close_member(member), self._endings)
        self.grow()

    def _stop_serving(self, member: Member, reason: str) -> None:
        self.recycled[reason] += 1
        record(BROWSER_RESTARTS, 1, {"reason": reason})
        self.browser_slots.remove(member)
        self.draining.append(member)

    async def _close_member(self, member: Member) -> None:
        try:
            await member.aclose()
        finally:
            self.draining.remove(member)

    # --- watching -----------------------------------------------------------------------------------------------------

    async def _watch_waiting(self) -> None:
        """Once a tick, grant slots, start browsers, and fail calls that have waited too long for memory."""
        while True:
            await asyncio.sleep(TIMES.tick)
            try:
                for slots in (self.browser_slots, self.browserless_slots):
                    # There may be memory again.
                    slots.grant()
                    has_waited_too_long = slots.waited > TIMES.memory_patience
                    if has_waited_too_long and not slots.leased and not self._may_open():
                        slots.fail_waiters(_no_memory)
                self.grow()
            except Exception as error:  # noqa: BLE001 - asking the system for its memory may raise anything
                self._fail_waiting(error)

    def _fail_waiting(self, error: Exception) -> None:
        """Raise an unexpected error in all waiting calls, which would wait for ever."""
        for slots in (self.browser_slots, self.browserless_slots):
            slots.fail_waiters(partial(_unsent_error, TransportError(f"the pool cannot open sessions: {error!r}")))

    async def _watch_browsers(self) -> None:
        while True:
            await asyncio.sleep(TIMES.check_interval)
            try:
                await asyncio.gather(*map(self._check_alive, tuple(self.browser_slots.members)))
            except Exception:  # the next check must still come
                logger.exception("browsers of the pool could not be checked")

    async def _check_alive(self, member: Member) -> None:
        assert member.browser is not None
        if not await member.browser.responds(PATIENCE):
            self.retire(member, "unresponsive")
            return
        member.resident = await member.browser.resident_bytes()
        self.replace_if_over_limit(member)


def _no_memory() -> TransportError:
    return TransportError(
        f"no memory was free for a session within {format_seconds(TIMES.memory_patience)}; end other programs, or "
        "lower min_free_memory=",
        code="OUT_OF_MEMORY",
        retryable=True,
        sent=False,
    )


def _unsent_error(error: ABPError) -> ABPError:
    """Return a new error for one of the waiting calls, which says that nothing of the call was sent."""
    unsent_error = type(error)(error.message, code=error.code, retryable=True, details=error.details, sent=False)
    unsent_error.__cause__ = error.__cause__
    return unsent_error
