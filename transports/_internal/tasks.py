"""Helpers for tasks, threads and event loops: begin, cancel, work off the loop, deadlines, back-off, owners."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import os
import random
import types
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar

from ..errors import ABPError, UsageError

logger = logging.getLogger("transports")

P = ParamSpec("P")
T = TypeVar("T")

#: Longest back-off in seconds between two attempts.
MAX_DELAY = 30.0
#: Back-off in seconds after the first failed attempt.
_FIRST_DELAY = 0.1
#: Seconds between two checks of all deadlines at least: thousands of deadlines must not cost a check each.
_TIMER_STEP = 0.005
#: Seconds that a cancelled task gets to end.
_GRACE = 1.0


def begin(work: Awaitable[T], on_error: Callable[[BaseException], object] = lambda _: None) -> asyncio.Task[T]:
    """Run ``work`` as a task that nobody awaits, and return the task. The caller holds it while it runs.

    An exception is logged at once; asyncio would do so only when the task is collected. Work that owes an answer to
    somebody delivers its expected errors itself; ``on_error`` delivers all others. It also gets a cancellation from
    inside the work, of a future say, but not one of the task itself."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(partial(_report_error, getattr(work, "__qualname__", repr(work)), on_error))
    return task


def spawn(
    work: Awaitable[Any],
    tasks: set[asyncio.Task[Any]],
    on_error: Callable[[BaseException], object] = lambda _: None,
) -> None:
    """Run ``work`` as :func:`begin` does. ``tasks`` holds the task while it runs, since the event loop keeps only a
    weak reference."""
    task = begin(work, on_error)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _report_error(name: str, on_error: Callable[[BaseException], object], task: asyncio.Task[Any]) -> None:
    error: BaseException | None
    if task.cancelled():
        error = None if task.cancelling() else asyncio.CancelledError("cancelled from inside")
    else:
        error = task.exception()
    if error is None:
        return
    expected = isinstance(error, ABPError)
    logger.error("the background task %s failed: %r", name, error, exc_info=None if expected else error)
    on_error(error)


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until they have ended, for at most one second.

    A task that ignores its cancellation goes on. Exceptions of the tasks are not raised. Ended tasks are not
    affected."""
    tasks = tuple(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_GRACE)


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking ``work`` in a thread and return its result.

    Unlike :func:`asyncio.to_thread`, it returns only when the thread has ended, even if the caller is cancelled. Then
    the caller may remove files that the thread used."""
    return await finished(asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs)))


async def finished(task: asyncio.Future[T]) -> T:
    """Return the result of ``task``; a cancellation of the caller is raised only when the task has ended."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):  # the first cancellation is raised below; later ones are dropped
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the caller gets the cancellation
        raise


async def ending(work: Awaitable[T], ended: asyncio.Future[None]) -> T:
    """Return the result of ``work``, and complete ``ended`` when it has returned or raised.

    Run as a task, it wakes a waiter on ``ended`` one turn of the event loop sooner than :func:`asyncio.wait` would."""
    try:
        return await work
    finally:
        if not ended.done():
            ended.set_result(None)


def drop(work: Awaitable[object], task: asyncio.Future[Any] | None = None) -> None:
    """Discard ``work`` that will not be awaited, and its ended ``task``, without warnings.

    Python would warn of a coroutine that was never awaited, asyncio of an exception that was never retrieved."""
    if asyncio.iscoroutine(work):
        work.close()
    elif asyncio.isfuture(work):
        work.cancel()
    if task is not None and not task.cancelled():
        task.exception()


class Wait(Generic[T]):
    """A wait for ``work`` in the caller's own task, which :meth:`set_exception` ends from outside::

        result = await Wait(work)

    The work begins in the turn of the event loop in which it is awaited, in a copy of the caller's context. When the
    wait is ended, or its caller cancelled, the work is cancelled. Work that goes on all the same does so in a task of
    its own, and its outcome is ignored. A task for all work would take two turns of the event loop more.

    For libraries that read the stack of each call, as Playwright does, the work begins in a turn of its own: down to
    that, its stack has none of the caller's functions.
    """

    __slots__ = ("_caller", "_cancelled", "_context", "_error", "_future", "_over", "_raised", "_steps")

    def __init__(self, work: Awaitable[T]) -> None:
        caller = asyncio.current_task()
        assert caller is not None
        self._caller: asyncio.Task[Any] = caller
        self._cancelled = caller.cancelling()  # how often it was before
        self._steps = work.__await__()
        self._context = contextvars.copy_context()
        self._future: asyncio.Future[Any] | None = None  # what the work waits for
        self._error: BaseException | None = None
        self._raised: BaseException | None = None  # by the first step of the work
        self._over = False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the caller."""
        return self._caller.get_loop()

    def done(self) -> bool:
        """Return whether the wait is over or was ended."""
        return self._over or self._error is not None

    def set_exception(self, error: BaseException) -> None:
        """End the wait with ``error``, unless the work returns in this turn of the event loop."""
        self._error = error
        if self._future is not None:
            self._future.cancel()

    def __await__(self) -> Generator[Any, None, T]:
        run, steps, stopped = self._context.run, self._steps, False
        asyncio.Handle(self._begin, (), self.get_loop(), self._context)._run()
        try:
            if self._raised is not None:
                raise self._raised
            future = self._future
            while self._error is None and self._caller.cancelling() == self._cancelled:
                self._future = future
                try:
                    yield future
                except BaseException as raised:  # noqa: BLE001 - raised in the work
                    stopped = isinstance(raised, asyncio.CancelledError)
                    future = run(steps.throw, raised)
                else:
                    future = run(steps.send, None)
            if not stopped:
                future = run(steps.throw, asyncio.CancelledError())
            self._leave(future)
            raise asyncio.CancelledError
        except StopIteration as end:
            result: T = end.value
            return result
        except BaseException:
            if self._error is None or self._caller.cancelling() != self._cancelled:
                raise
            raise self._error from None
        finally:
            self._over, self._future, self._raised = True, None, None

    def _begin(self) -> None:
        try:
            self._future = self._steps.send(None)
        except BaseException as raised:  # noqa: BLE001 - raised in the caller
            self._raised = raised

    def _leave(self, future: asyncio.Future[Any] | None) -> None:
        """Let the work go on in a task, from its wait for ``future``."""
        task = self.get_loop().create_task(_go_on(self._steps, future), context=self._context)
        task.add_done_callback(partial(drop, task))


async def _go_on(steps: Generator[Any, None, object], future: asyncio.Future[Any] | None) -> None:
    await _stepping(steps, future)


@types.coroutine
def _stepping(steps: Generator[Any, None, object], future: asyncio.Future[Any] | None) -> Generator[Any, None, None]:
    with suppress(StopIteration):
        while True:
            try:
                yield future
            except BaseException as raised:  # noqa: BLE001 - raised in the work
                future = steps.throw(raised)
            else:
                future = steps.send(None)


class Ending(Protocol):
    """Protocol for what has a deadline: a future, or a :class:`Wait`."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return its event loop."""

    def done(self) -> bool:
        """Return whether it has ended."""

    def set_exception(self, error: BaseException, /) -> None:
        """End it with an error."""


class Deadlines:
    """Deadlines of many futures with one timer for all: 0.3 µs a call, against 3.3 µs of ``asyncio.timeout``.

    A future without a result at its deadline gets the exception ``error(*args)``, at most :data:`_TIMER_STEP` later.
    For use in one event loop.
    """

    def __init__(self) -> None:
        self._due: dict[Ending, tuple[float, Callable[..., BaseException], tuple[Any, ...]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf  # when it fires

    def add(
        self,
        future: Ending,
        seconds: float,
        error: Callable[P, BaseException],
        *args: P.args,
        **_: P.kwargs,
    ) -> None:
        """Watch ``future`` until :meth:`discard`; ``math.inf`` seconds are no deadline."""
        if seconds == math.inf:
            return
        loop = future.get_loop()
        due = loop.time() + seconds
        self._due[future] = due, error, args
        if due < self._next:
            self._start(loop, due)

    def discard(self, future: Ending) -> None:
        """Stop watching ``future``. The timer stays: the next future needs a timer, too."""
        self._due.pop(future, None)

    def clear(self) -> None:
        """Stop watching all futures, and cancel the timer, which would keep its owner in memory until it fires."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._next = None, math.inf

    def _start(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = loop.call_at(due, self._expire, loop), due

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._next = None, math.inf
        now = loop.time()
        for future, (due, error, args) in [*self._due.items()]:
            if due <= now:
                del self._due[future]
                if not future.done():
                    future.set_exception(error(*args))
        if self._due:
            self._start(loop, max(min(due for due, *_ in self._due.values()), now + _TIMER_STEP))


def backoff_delay(attempt: int, max_delay: float = MAX_DELAY) -> float:
    """Return the back-off in seconds after ``attempt`` failures in a row, counted from 1.

    It is 0.1 s, doubled each time, at most ``max_delay``. Jitter of ±50 % keeps clients that lost one server at the
    same time from returning at the same time."""
    return min(_FIRST_DELAY * 2.0 ** min(attempt - 1, 60), max_delay) * random.uniform(0.5, 1.5)


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


class Owner:
    """Owner of one open object: the event loop that opened it, in its process. Its sockets and pipes answer there only.

    ``what`` is the object's name in errors: "session"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def take(self) -> None:
        """Make the running event loop the owner."""
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()

    def require(self) -> None:
        """Raise :class:`~transports.errors.UsageError` outside of the owner. Without an owner yet, do nothing."""
        try:
            if asyncio.get_running_loop() is self._loop or self._loop is None:
                return
        except RuntimeError:  # no loop runs: a forked process without a loop of its own
            if self._loop is None:
                return
        if os.getpid() != self._pid:
            raise UsageError(
                f"this {self._what} belongs to the process that opened it; a forked process opens one of its own"
            )
        raise UsageError(
            f"this {self._what} belongs to another event loop; use it in the loop that opened it, or open one here"
        )
