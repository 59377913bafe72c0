"""Helpers for tasks, threads and event loops: begin, cancel, work off the loop, back-off, owners."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from ..errors import ABPError, UsageError

logger = logging.getLogger("transports")

P = ParamSpec("P")
T = TypeVar("T")

#: Longest back-off in seconds between two attempts.
MAX_DELAY = 30.0
#: Seconds that a cancelled task gets to end.
_GRACE = 1.0


def start_task(work: Awaitable[T], on_error: Callable[[BaseException], object] = lambda _: None) -> asyncio.Task[T]:
    """Run ``work`` as a task that nobody awaits; the caller must keep a reference to the task while it runs. An
    exception is logged at once; asyncio would log it only when the task is collected. ``on_error`` is called with each
    exception, and with a cancellation that comes from inside of the work, such as that of a future, but not if the task
    itself is cancelled."""
    name = getattr(work, "__qualname__", repr(work))
    task = asyncio.ensure_future(work)
    task.add_done_callback(partial(_report_error, name, on_error))
    return task


def spawn(
    work: Awaitable[Any],
    tasks: set[asyncio.Task[Any]],
    on_error: Callable[[BaseException], object] = lambda _: None,
) -> None:
    """Run ``work`` as :func:`start_task` does, and keep the task in the set ``tasks`` while it runs: the event loop
    keeps only a weak reference."""
    task = start_task(work, on_error)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _report_error(name: str, on_error: Callable[[BaseException], object], task: asyncio.Task[Any]) -> None:
    # The task itself was cancelled by somebody, which is no error.
    if task.cancelled() and task.cancelling():
        return
    error: BaseException | None
    if task.cancelled():
        error = asyncio.CancelledError("cancelled from inside")
    else:
        error = task.exception()
    if error is None:
        return

    traceback = None if isinstance(error, ABPError) else error
    logger.error("the background task %s failed: %r", name, error, exc_info=traceback)
    on_error(error)


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until they have ended, for at most one second: a task that ignores its cancellation goes
    on. Exceptions of the tasks are not raised."""
    tasks = tuple(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_GRACE)


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``work`` in a thread, and return its result. Unlike :func:`asyncio.to_thread`, this returns only when the
    thread has ended, even if the caller is cancelled, so that the caller may then remove files that the thread used."""
    call = partial(contextvars.copy_context().run, work, *args, **kwargs)
    return await wait_despite_cancel(asyncio.get_running_loop().run_in_executor(None, call))


async def in_thread_if(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``work`` in a thread if it is ``large``, since it would hold the event loop; otherwise call it here."""
    if large:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)


async def wait_despite_cancel(task: asyncio.Future[T]) -> T:
    """Await a task. If the caller is cancelled, the cancellation is raised only when the task has ended."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            # The first cancellation is raised below; later ones are dropped.
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        # The caller gets the cancellation, and not an exception of the task.
        mark_retrieved(task)
        raise


def mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Ask a future that has ended for its exception, since asyncio warns of an exception that nobody asked for."""
    if not future.cancelled():
        future.exception()


def discard_unawaited(work: Awaitable[object]) -> None:
    """Discard work without warnings: Python would warn of a coroutine that was never awaited, asyncio of an exception
    that was never retrieved. A task is cancelled."""
    if asyncio.iscoroutine(work):
        work.close()
    elif asyncio.isfuture(work):
        work.cancel()
        work.add_done_callback(mark_retrieved)


def backoff_delay(attempt: int, max_delay: float = MAX_DELAY) -> float:
    """Return the seconds to wait before another attempt; ``attempt`` counts from 1. The delay is 0.1 s, doubled each
    time, at most ``max_delay``. Jitter of ±50 % keeps clients that lost one server at the same time from returning at
    the same time."""
    doublings = min(attempt - 1, 60)  # limited, since a float overflows beyond 2 ** 1023
    delay = min(0.1 * 2.0**doublings, max_delay)
    return delay * random.uniform(0.5, 1.5)


class OpenedHere:
    """Base of objects that ``async with`` opens for one process: it refuses ``with``, and to be pickled for another."""

    def __reduce_ex__(self, _: object) -> NoReturn:
        kind = type(self).__name__.lower()
        raise UsageError(f"a {kind} cannot go to another process; open one there, where it is used")

    if not TYPE_CHECKING:  # a type checker refuses `with` by itself

        def __enter__(self) -> NoReturn:
            kind = type(self).__name__.lower()
            raise UsageError(f"this {kind} is opened with `async with`; in blocking code use transports.sync")

        def __exit__(self, *_: object) -> None:
            """Do nothing: ``with`` looks for this before it begins."""


def no_processes_error(what: str) -> UsageError:
    """Return the error for an event loop that cannot start processes, as is usual in notebooks on Windows."""
    return UsageError(
        f"the event loop of this program starts no processes, so it cannot start {what}; use transports.sync, or an "
        "asyncio.ProactorEventLoop in the place of a SelectorEventLoop (Windows)"
    )


class Owner:
    """The event loop and the process that opened an object. The object's sockets and pipes answer only there. ``what``
    is the object's name in errors, such as "session"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def claim(self) -> None:
        """Make the running event loop the owner."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                f"a {self._what} needs an event loop of asyncio; open it in asyncio.run(…), or use transports.sync"
            ) from None
        self._pid = os.getpid()

    def require_same_loop(self) -> None:
        """Raise :class:`~transports.errors.UsageError` in another event loop than the owner. Do nothing if the object
        has no owner yet."""
        if self._loop is None:
            return
        # No loop runs in a forked process that has started none.
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                return

        if os.getpid() != self._pid:
            raise UsageError(
                f"this {self._what} belongs to the process that opened it; open another in the forked process"
            )
        raise UsageError(
            f"this {self._what} belongs to another event loop; use it in the loop that opened it, or open another here"
        )
