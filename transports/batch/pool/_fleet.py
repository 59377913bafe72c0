"""The browsers of a pool: started one after the other, watched, replaced by a successor, ended."""

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
from statistics import median
from typing import TYPE_CHECKING

from ...browser import Browser, close_quietly
from ...errors import ABPError, ConnectFailed, Disconnected, TransportError, UsageError, first_line, format_seconds
from ...protocol import redact_url
from ...session import Session
from ...tasks import backoff_delay, cancel_and_wait, spawn
from ...telemetry import BROWSER_RESTARTS, record

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

#: Calls of one kind that a median is taken over.
_CALLS = 100
#: Milliseconds that a median must grow by to count: below them it is noise.
_NOTABLE = 20.0
#: Kinds of calls that are followed; those that come later are not.
_MAX_KINDS = 64


class Latency:
    """The durations of calls in one browser, by kind: the median of the last hundred against that of the first."""

    def __init__(self) -> None:
        #: By how much the slowest kind has slowed down: 1 for not at all.
        self.slowdown = 1.0
        #: The median of the latest hundred calls of any kind, in milliseconds.
        self.recent = 0.0
        self._first: dict[object, float] = {}
        self._latest: dict[object, list[float]] = {}

    def add(self, kind: object, milliseconds: float) -> None:
        """Count a call of ``kind``, such as its target and capability."""
        if kind not in self._latest and len(self._latest) >= _MAX_KINDS:
            return
        latest = self._latest.setdefault(kind, [])
        latest.append(milliseconds)
        if len(latest) < _CALLS:
            return
        self.recent = median(latest)
        latest.clear()
        first = self._first.setdefault(kind, self.recent)
        if self.recent - first > _NOTABLE:
            self.slowdown = max(self.slowdown, self.recent / max(first, 0.1))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A browser that runs elsewhere, for a :class:`Pool`: ``cdp_url`` or ``browser_server`` with their ``headers``, as
    :class:`~transports.Browser` takes them.

    ``weight`` is its share of the calls beside other endpoints and the pool's own browsers, which have a weight of 1
    each. ``sessions`` is how many it takes at once, by default as many as any browser of the pool.

    Raises :class:`~transports.errors.UsageError` for a weight or a number that is not positive, and unless exactly one
    address is given.
    """

    cdp_url: str | None = field(default=None, repr=False)
    browser_server: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    weight: float = 1.0
    sessions: int | None = None

    def __post_init__(self) -> None:
        if (self.cdp_url is None) == (self.browser_server is None):
            raise UsageError("an endpoint is either cdp_url= or browser_server=; give one of them")
        if not self.weight > 0 or (self.sessions is not None and self.sessions < 1):
            raise UsageError("the weight and the sessions of an endpoint are more than 0")

    def browser(self, timeout: float) -> Browser:
        """Return the browser, not opened yet; connecting to it may take ``timeout`` seconds."""
        return Browser(cdp_url=self.cdp_url, browser_server=self.browser_server, headers=self.headers, timeout=timeout)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """``make`` makes a browser, of which there are ``count`` at most, for ``sessions`` at once each."""

    make: Callable[[], Browser]
    count: int
    sessions: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class BrowserStats:
    """One browser of a pool, by its ``number`` in the order of their starts.

    ``age`` is in seconds, ``resident_bytes`` the memory of all its processes and its driver when it was last looked at
    (0 for one that runs elsewhere), ``recent_ms`` the median of its latest hundred calls. ``draining`` says that its
    successor serves already.
    """

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
    """The state of a pool: its ``browsers``, sessions that are open, those of them that are leased to a call, and calls
    that wait for one. ``recycled`` counts the browsers that were replaced by reason: ``calls``, ``age``, ``memory``,
    ``slow``, ``lease`` (a call outlived it), ``unresponsive``, ``ended`` (it died)."""

    browsers: tuple[BrowserStats, ...]
    sessions: int
    leased: int
    waiting: int
    calls: int
    recycled: Mapping[str, int]


#: Seconds for a session to close; its transport has stricter limits of its own.
_CLOSE_TIMEOUT = 10.0
#: Seconds for a context to open, or to be cleared.
_CONTEXT_TIMEOUT = 10.0


class HeldSession:
    """A session that is opened, held open and closed by a task of its own, since calls come and go in others."""

    def __init__(self, target: str, session: Session) -> None:
        self.target = target
        self.session = session
        self._opened = asyncio.Event()
        self._leave = asyncio.Event()
        self._task = asyncio.ensure_future(self._hold())

    async def _hold(self) -> None:
        async with self.session:
            self._opened.set()
            await self._leave.wait()

    async def opened(self, timeout: float) -> None:
        """Wait until the session is open, ``timeout`` seconds at most; its own limit is stricter.

        Raises what opening it raises. It is closed if this is cancelled."""
        waiting = asyncio.ensure_future(self._opened.wait())
        try:
            await asyncio.wait((waiting, self._task), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            if not self._opened.is_set() and not self._task.done():
                await cancel_and_wait((self._task,))
        if self._opened.is_set():
            return
        if not self._task.done() or self._task.cancelled():
            raise ConnectFailed(f"the session with {redact_url(self.target)} did not open and does not end")
        await self._task

    async def aclose(self) -> None:
        """Close the session, within ten seconds. Never raises: what goes wrong is logged."""
        self._leave.set()
        await asyncio.wait((self._task,), timeout=_CLOSE_TIMEOUT)
        if not self._task.done():
            await cancel_and_wait((self._task,))
        if self._task.done() and not self._task.cancelled() and (error := self._task.exception()):
            logger.info("a session closed with an error: %s", first_line(error))


async def open_context(browser: Browser) -> BrowserContext:
    """Return a new context of ``browser``. Raises :class:`~transports.errors.ConnectFailed` if it opens none."""
    try:
        async with asyncio.timeout(_CONTEXT_TIMEOUT):
            return await browser.playwright.new_context()
    except ABPError:
        raise
    except Exception as error:  # noqa: BLE001 - of a driver that ends meanwhile, any
        raise ConnectFailed(f"the browser opens no context: {first_line(error)}") from None


async def clear_context(context: BrowserContext) -> bool:
    """Remove everything that pages of ``context`` have stored: cookies, local storage, databases, caches, files and
    service workers of all origins, and what they were permitted. The browser's HTTP cache stays.

    Returns whether it is clean. Where it may not be, the context has been closed: a browser without CDP cannot do it.
    """
    try:
        async with asyncio.timeout(_CONTEXT_TIMEOUT):
            page = await context.new_page()
            cdp = await context.new_cdp_session(page)
            await cdp.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
            await context.clear_cookies()
            await context.clear_permissions()
            await page.close()
    except Exception as error:  # noqa: BLE001 - whatever it was, the context is given up
        logger.info("a context could not be cleared: %s", first_line(error))
        await close_quietly(context)
        return False
    return True


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
