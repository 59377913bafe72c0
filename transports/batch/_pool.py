"""Pool of sessions and browsers: calls and jobs, each in a leased session of its own, with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, cast

import psutil

from .._internal.arguments import short_traceback, validate_arguments
from .._internal.tasks import OpenedHere, cancel_and_wait, spawn, wait_despite_cancel
from ..artifacts._base import ArtifactStore
from ..errors import (
    ABPError,
    BrowserCrashed,
    CallTimeout,
    CapabilityError,
    Disconnected,
    TransportError,
    UsageError,
    format_seconds,
)
from ..playwright._browser import Browser
from ..protocol._strict_json import JSONValue
from ..routing._result import Result
from ..session._attempts import SESSION_LOST
from ..session._call import timeout_seconds
from ..session._connect import connect as default_connect
from ..session._named_apps import shares_browser
from ..session._session import Session
from ..session._settings import Settings, retention_settings
from ..session._stores import open_configured_store
from ._fleet import (
    PATIENCE,
    Endpoint,
    Fleet,
    HeldSession,
    Limits,
    PoolStats,
    Slot,
    Source,
    clear_context,
    open_context,
)
from ._jobs import NOT_SENT, Job, Outcome, require_job

#: :func:`transports.connect`, or a function that replaces it.
Connect: TypeAlias = Callable[..., Session]
#: Reuse by the next call: the open ``session``, a new page in the cleared ``context``, or neither.
Reuse: TypeAlias = Literal["session", "context", "never"]

#: Seconds beyond its timeouts that a call or an opening session may take before its lease ends.
GRACE = 15.0


async def run_all(
    jobs: Iterable[Job] | AsyncIterable[Job], run: Callable[[Job], Awaitable[Outcome]], count: int
) -> AsyncGenerator[Outcome, None]:
    """Run jobs, ``count`` at a time, and yield each outcome as its job ends. Errors of ``jobs`` and ``run`` are raised
    after the outcomes of earlier jobs."""
    remaining_jobs = _iterate_jobs(jobs)
    reading = asyncio.Lock()
    # Each worker puts its outcomes here, and at its end its error or None.
    events: asyncio.Queue[Outcome | BaseException | None] = asyncio.Queue(count)
    workers: set[asyncio.Task[None]] = set()

    def report_end(error: BaseException) -> None:
        """Report an error that a worker does not report itself, such as a cancellation from inside."""
        spawn(events.put(error), workers)

    for _ in range(count):
        spawn(_run_jobs(remaining_jobs, reading, run, events), workers, report_end)

    running_workers = count
    failure: BaseException | None = None
    try:
        while running_workers:
            event = await events.get()
            if isinstance(event, Outcome):
                yield event
                continue
            running_workers -= 1
            if failure is None:
                failure = event
        if failure is not None:
            raise failure
    finally:
        await cancel_and_wait(workers)


async def _run_jobs(
    jobs: AsyncIterator[Job],
    reading: asyncio.Lock,
    run: Callable[[Job], Awaitable[Outcome]],
    events: asyncio.Queue[Outcome | BaseException | None],
) -> None:
    """Run jobs one after the other, as one of several workers. Put the outcomes into ``events``, and at the end the
    error of the jobs' source or ``None``. Only one worker at a time reads ``jobs``."""
    try:
        while True:
            async with reading:
                job = await anext(jobs, None)
            if job is None:
                break
            await events.put(await run(job))
    except Exception as error:  # noqa: BLE001 - any error of the jobs' source is raised by run_all
        await events.put(error)
    else:
        await events.put(None)


async def _iterate_jobs(jobs: Iterable[Job] | AsyncIterable[Job]) -> AsyncIterator[Job]:
    """Yield jobs that have a target. An error here ends the reading for all workers."""
    if isinstance(jobs, AsyncIterable):
        async for job in jobs:
            _require_target(job)
            yield job
    else:
        for job in jobs:
            _require_target(job)
            yield job


def require_open(pool: Pool) -> None:
    if pool.closed:
        raise UsageError("the pool is not open; use `async with Pool(…) as pool`")


def _require_target(job: Job) -> str:
    target = require_job(job).target
    if target is None:
        raise UsageError("the job has no target; give Job(target=…)")
    return target


def free_memory() -> int:
    """Return the bytes that new processes can use without swapping: of this machine, or of the container's limit if
    that is less."""
    free_in_version_2 = _free_in_group(
        "/sys/fs/cgroup", limit="memory.max", used="memory.current", reclaimable="inactive_file"
    )
    free_in_version_1 = _free_in_group(
        "/sys/fs/cgroup/memory",
        limit="memory.limit_in_bytes",
        used="memory.usage_in_bytes",
        reclaimable="total_inactive_file",
    )
    return int(min(psutil.virtual_memory().available, free_in_version_2, free_in_version_1))


def _free_in_group(folder: str, *, limit: str, used: str, reclaimable: str) -> float:
    """Return the free bytes of a control group (Linux), or infinity without a control group or without a limit.
    ``limit`` and ``used`` are files in its folder, ``reclaimable`` is the statistic of the page cache that the kernel
    can reclaim."""
    group = Path(folder)
    # Without a limit the file holds the text "max". Other operating systems have no such files.
    with contextlib.suppress(OSError, ValueError):
        limit_bytes = int((group / limit).read_text())
        used_bytes = int((group / used).read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return limit_bytes - used_bytes + int(statistics.get(reclaimable, 0))
    return math.inf


class Pool(OpenedHere):
    """Pool of sessions and browsers for concurrent calls::

        async with Pool(browsers=2, sessions=8) as pool:
            result = await pool.call(url, "export.pdf", {"html": "<h1>Hi</h1>"})
            async for outcome in pool.map(jobs): ...

    Up to ``browsers`` are started on demand, one after the other; by default one per core. Each has up to ``sessions``,
    and each session runs one call at a time. ``endpoints`` are external browsers
    (:class:`~transports.batch.Endpoint`); with them, the pool starts browsers of its own only if ``browsers`` is given.
    Targets without a browser, such as WebSockets and MCP servers, share as many sessions as all browsers together have.

    ``reuse`` is the state of earlier calls for the same target that a call may see: with ``"session"`` the app as they
    left it; with ``"context"`` a new page, with nothing stored by earlier calls but the HTTP cache; with ``"never"`` a
    new context. ``connect`` makes the session for a target, as :func:`transports.connect` does;
    ``functools.partial(connect, headers=…)`` gives it options. ``store`` is a store or its URL, by default as for
    :func:`transports.connect`, and shared by all sessions. ``timeout`` in seconds limits the opening of a session and
    is the default timeout of calls.

    A browser is replaced after ``recycle_after`` calls or ``max_age`` seconds, when its processes have ``max_memory``
    bytes resident, or when calls of one kind take ``max_slowdown`` times as long as its first hundred. Its successor
    serves before it drains. A dead or unresponsive browser is ended at once. Sessions and browsers are only
    opened while ``min_free_memory`` bytes are free. A call that outlives its timeouts loses its session.

    Raises :class:`~transports.errors.UsageError` for invalid options.
    """

    @validate_arguments
    def __init__(
        self,
        browsers: int | None = None,
        sessions: int = 4,
        *,
        endpoints: Sequence[Endpoint] = (),
        reuse: Reuse = "session",
        store: ArtifactStore | str | Path | None = None,
        headless: bool | None = None,
        timeout: float | None = None,
        connect: Connect = default_connect,
        recycle_after: int = 10_000,
        max_age: float = 3600.0,
        max_memory: int = 4 << 30,
        max_slowdown: float = 3.0,
        min_free_memory: int = 512 << 20,
    ) -> None:
        if reuse not in ("session", "context", "never"):
            raise UsageError(f"reuse= must be 'session', 'context' or 'never', not {reuse!r}")
        if browsers is None:
            browsers = 0 if endpoints else os.cpu_count() or 1
        if browsers < 0 or browsers + len(endpoints) < 1 or sessions < 1:
            raise UsageError("a pool needs at least one browser and one session; correct browsers= and sessions=")
        limits = Limits(recycle_after, max_age, max_memory, max_slowdown, min_free_memory)

        self._settings = settings = Settings.load()
        self._open_timeout = timeout_seconds(timeout, settings.browser_timeout)
        self._call_timeout = timeout_seconds(timeout, settings.call_timeout)
        if headless is None:
            headless = settings.headless

        sources = [
            Source(partial(endpoint.browser, self._open_timeout), 1, endpoint.sessions or sessions, endpoint.weight)
            for endpoint in endpoints
        ]
        if browsers:
            start_browser = partial(Browser, headless=headless, timeout=self._open_timeout)
            sources.insert(0, Source(start_browser, browsers, sessions))
        self._fleet = Fleet(sources, limits, free_memory)
        self._connect = connect
        self._options: dict[str, object] = {}
        if timeout is not None:
            self._options["timeout"] = timeout
        self._reuse = reuse
        # The answers are cached, since the function reads the settings file for the name of an app.
        self._shares_browser = lru_cache(1000)(
            partial(shares_browser, headless=headless, new_context=reuse != "context")
        )
        self._store = store
        self._stack = contextlib.AsyncExitStack()
        self._open = False
        self._calls = 0
        self._clearing: set[asyncio.Task[None]] = set()

    @property
    def closed(self) -> bool:
        """True if the pool is not open, before or after its use."""
        return not self._open

    @property
    def size(self) -> int:
        """Maximum number of concurrent calls."""
        return self._fleet.size

    @short_traceback
    async def __aenter__(self) -> Self:
        store = self._store
        if not isinstance(store, ArtifactStore):
            store = open_configured_store(self._settings, store, retention=retention_settings())
            self._stack.push_async_callback(store.aclose)
        self._options["store"] = store
        self._fleet.start()
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all sessions and browsers. Running and waiting calls fail. Idempotent; takes seconds at most, also if
        it is cancelled: that is raised when all is closed."""
        self._open = False
        await wait_despite_cancel(asyncio.ensure_future(self._close_all()))

    async def _close_all(self) -> None:
        await self._fleet.aclose()
        while self._clearing:
            await asyncio.wait(tuple(self._clearing))
        await self._stack.aclose()

    @short_traceback
    async def call(
        self,
        target: str,
        capability: str,
        params: Mapping[str, object] | None = None,
        *,
        files: Mapping[str, Path] | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Call a capability of the app at ``target``, as :meth:`Session.call <transports.Session.call>`, in a session
        of the pool. Waits for a free session, without a time limit of its own.

        ``files`` are inserted into ``params`` at their places (``image``, ``pages.cover``). Raises the errors of
        opening a session and of the call; ``sent`` is ``False`` if the call was never sent. A call that may
        have run is not sent again. Also raises :class:`~transports.errors.CallTimeout` if the session does not end the
        call after its timeout, and :class:`~transports.errors.TransportError` with the code ``OUT_OF_MEMORY``."""
        if files:
            job = Job(capability, cast("Mapping[str, JSONValue]", params or {}), files=files)
            params = job.call_params()
        return await self._call_in_slot(target, capability, params, timeout, idempotent=False)

    async def run(self, job: Job) -> Outcome:
        """Run a job and return its outcome. Errors of the call are part of the outcome and not raised.

        The call is sent once; the outcome is ``retryable`` if it may be sent again. Raises
        :class:`~transports.errors.UsageError` for a job without a target and for a pool that is not open. A
        cancellation before any part was sent has the argument ``nothing of the job was sent``."""
        return await self._run(job, once=True)

    async def _run(self, job: Job, *, once: bool) -> Outcome:
        """Run a job as :meth:`run` does. Unless ``once``, the call may be sent again, under the conditions of
        :meth:`Session.call <transports.Session.call>`."""
        require_open(self)
        target = _require_target(job)
        started = time.perf_counter()
        was_sent = asyncio.Event()
        try:
            params: Mapping[str, object] = job.params
            if job.files:
                params = await asyncio.to_thread(job.call_params)
            result = await self._call_in_slot(
                target,
                job.capability,
                params,
                job.timeout,
                idempotent=job.idempotent,
                once=once,
                on_session=was_sent.set,
            )
        except asyncio.CancelledError:
            if was_sent.is_set():
                raise
            raise asyncio.CancelledError(NOT_SENT) from None
        except Exception as error:  # noqa: BLE001 - any error is the outcome of this job
            milliseconds = (time.perf_counter() - started) * 1000
            return Outcome.of_error(job, error, sent=was_sent.is_set(), milliseconds=milliseconds)
        milliseconds = (time.perf_counter() - started) * 1000
        return Outcome.of_result(job, result, milliseconds=milliseconds)

    @validate_arguments
    async def map(
        self, jobs: Iterable[Job] | AsyncIterable[Job], concurrency: int | None = None
    ) -> AsyncGenerator[Outcome, None]:
        """Run jobs and yield each outcome as its job ends, in any order.

        ``concurrency`` is the number of jobs at a time, by default the number of sessions. Jobs are read only as
        earlier ones end and their outcomes are consumed, so that any number of jobs needs little memory. A call that
        the app refused, or an idempotent call with a temporary error, is sent again as by :meth:`Session.call
        <transports.Session.call>`. Leaving the loop early cancels the running jobs; they have ended when ``aclose()``
        of the generator returns. Errors of ``jobs`` are raised after the outcomes of earlier jobs."""
        if concurrency is not None and concurrency < 1:
            raise UsageError("concurrency= must be at least 1")
        running = run_all(jobs, partial(self._run, once=False), concurrency or self.size)
        async with contextlib.aclosing(running) as outcomes:
            async for outcome in outcomes:
                yield outcome

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Browser]:
        """Lend a browser of the pool for the length of a block, with room for one session.

        ``connect(url, browser=pool)`` uses this, and moves to another browser if the first dies. The session has a
        browser context to itself. It counts as one call. A browser replaced meanwhile stays until its last borrower is
        done.

        Raises the errors of starting a browser, and :class:`~transports.errors.TransportError` (``LIMIT_REACHED``) if
        all sessions are taken."""
        require_open(self)
        slot, browser = await self._borrow_browser()
        slot.member.calls += 1
        try:
            yield browser
        finally:
            self._fleet.browser_slots.release(slot)
            self._fleet.replace_if_over_limit(slot.member)

    def stats(self) -> PoolStats:
        """Return the current statistics of the pool."""
        fleet = self._fleet
        serving_browsers = fleet.browser_slots.members
        browsers = [*serving_browsers, *fleet.draining]
        members = [*browsers, *fleet.browserless_slots.members]
        return PoolStats(
            browsers=tuple(browser.stats() for browser in browsers),
            sessions=sum(member.open_sessions for member in members),
            leased=sum(member.leased for member in members),
            waiting=fleet.browser_slots.waiting + fleet.browserless_slots.waiting,
            calls=self._calls,
            recycled=dict(fleet.recycled),
        )

    async def _call_in_slot(
        self,
        target: str,
        capability: str,
        params: Mapping[str, object] | None,
        timeout: float | None,
        *,
        idempotent: bool,
        once: bool = False,
        on_session: Callable[[], object] = lambda: None,
    ) -> Result:
        """Make a call in a leased session. ``on_session`` is called when the session is open; nothing of the call is
        sent before."""
        require_open(self)
        call_timeout = self._call_timeout if timeout is None else timeout_seconds(timeout, 0)

        slot = await self._open_slot(target)
        assert slot.open_session is not None
        started = time.perf_counter()
        on_session()
        work = slot.open_session.session.call(capability, params, timeout=timeout, idempotent=idempotent, once=once)
        result = await self._within_lease(slot, work, call_timeout + GRACE, capability)
        slot.member.latency.add((target, capability), (time.perf_counter() - started) * 1000)
        return result

    # --- leases -------------------------------------------------------------------------------------------------------

    async def _borrow_browser(self) -> tuple[Slot, Browser]:
        """Lease an empty slot in a browser that responds. Browsers that have died are retired on the way."""
        slots = self._fleet.browser_slots
        try:
            async with asyncio.timeout(self._open_timeout + GRACE):
                while True:
                    slot = await slots.acquire("")
                    browser = slot.member.browser
                    assert browser is not None
                    with contextlib.ExitStack() as stack:
                        # The slot is released unless it is returned, also after a cancellation.
                        stack.callback(slots.release, slot)
                        await slot.clear()
                        if slot.member.serving and await browser.responds(PATIENCE):
                            stack.pop_all()
                            return slot, browser
                        self._fleet.retire(slot.member, "ended")
        except TimeoutError:
            raise TransportError(
                "all sessions of the pool's browsers are taken; disconnect an app, or give it more browsers",
                code="LIMIT_REACHED",
                retryable=True,
                sent=False,
            ) from None

    async def _within_lease(
        self, slot: Slot, work: Coroutine[Any, Any, Result], lease_seconds: float, capability: str
    ) -> Result:
        """Await a call, for ``lease_seconds`` at most. Then the lease of the slot ends, even if the work cannot be
        stopped."""
        member = slot.member
        member.calls += 1
        self._calls += 1
        task = asyncio.create_task(work)
        healthy = False
        try:
            await asyncio.wait((task,), timeout=lease_seconds)
            if not task.done():
                raise CallTimeout(
                    f"{capability}: the session did not end the call within {format_seconds(lease_seconds)}, the end "
                    "of its lease; it is replaced"
                )
            healthy = not task.cancelled() and _session_survives(task.exception())
            return task.result()
        finally:
            # The lease ends in any case, even if this task is cancelled again while it waits for the work's end.
            try:
                if not task.done():
                    await wait_despite_cancel(asyncio.ensure_future(cancel_and_wait((task,))))
            finally:
                self._end_lease(slot, healthy=healthy, hangs=not task.done())

    def _end_lease(self, slot: Slot, *, healthy: bool, hangs: bool) -> None:
        """Release, clear or abandon a slot. Work that ``hangs`` cannot be stopped, so its browser is replaced."""
        member = slot.member
        slots = self._fleet.slots_of(member)
        if hangs:
            member.abandon_slot(slot)
            spawn(slot.clear(), self._clearing)
            if member.browser is not None:
                self._fleet.retire(member, "lease")
            slots.grant()
        elif healthy and self._reuse == "session" and member.serving:
            slots.release(slot)
        else:
            spawn(self._clear_slot(slot, healthy=healthy), self._clearing)
        if member.browser is not None:
            self._fleet.replace_if_over_limit(member)

    async def _clear_slot(self, slot: Slot, *, healthy: bool) -> None:
        """Close the session of a slot, keep its context only if that may be reused, and release the slot."""
        try:
            may_reuse_context = healthy and self._reuse == "context" and slot.member.serving
            await slot.clear(keep_context=may_reuse_context)
            if may_reuse_context and slot.context is not None:
                is_clean = await clear_context(slot.context)
                if not is_clean:
                    slot.context = None
        finally:
            self._fleet.slots_of(slot.member).release(slot)

    async def _open_slot(self, target: str) -> Slot:
        """Lease a slot, and open a session in it if it has none. If the slot's browser ends meanwhile, this is tried
        twice more, since nothing of the call is sent yet."""
        slots = self._fleet.browser_slots if self._shares_browser(target) else self._fleet.browserless_slots
        attempts_left = 3
        while True:
            attempts_left -= 1
            slot = await slots.acquire(target)
            try:
                await self._require_session(slot, target)
            except ABPError as error:
                has_browser_ended = not slot.member.serving
                if has_browser_ended and attempts_left and self._open:
                    continue
                error.sent = False
                raise
            return slot

    async def _require_session(self, slot: Slot, target: str) -> None:
        """Open a session in the slot unless it has one. If that fails, the slot is released."""
        try:
            # The browser may have ended since the slot was granted.
            if not slot.member.serving:
                raise Disconnected("the browser of the pool has ended; call again")
            if slot.open_session is None or slot.open_session.target != target:
                await self._open_session(slot, target)
        except BaseException as error:
            spawn(self._clear_slot(slot, healthy=False), self._clearing)
            if isinstance(error, BrowserCrashed):
                self._fleet.retire(slot.member, "ended")
            raise

    async def _open_session(self, slot: Slot, target: str) -> None:
        """Close the session of a slot, and open another one for ``target``."""
        browser = slot.member.browser
        options = self._options
        await slot.clear(keep_context=True)

        if browser is not None and self._reuse == "context":
            if slot.context is None:
                slot.context = await open_context(browser)
            options = {**options, "context": slot.context}
        elif browser is not None:
            options = {**options, "browser": browser}

        slot.open_session = new_session = HeldSession(target, self._connect(target, **options))
        await new_session.wait_until_open(self._open_timeout + GRACE)
        # If the browser was ended meanwhile, the slot has been emptied.
        if slot.open_session is not new_session:
            raise Disconnected("the browser of the pool has ended; call again")


def _session_survives(error: BaseException | None) -> bool:
    """Whether a session can be used again after a call with this error. It cannot after a timeout, when the app may
    still be at work, and if the app has lost the session."""
    if error is None:
        return True
    if isinstance(error, CapabilityError):
        return error.code not in SESSION_LOST
    return isinstance(error, ABPError) and error.session_survives and not isinstance(error, CallTimeout)
