"""The event loop behind the blocking API: one daemon thread for the process, which runs while something uses it.

There is one loop for all and not one per session, since a browser or a store belongs to the loop it was opened in: only
so can sessions share one.

``anyio``'s blocking portal does not fit here. Cancelling its future interrupts every further ``await`` of the work, so
that an app could not be told that its call was cancelled; Ctrl-C in a waiting call does not cancel the work; a forked
process hangs in the portal that it inherits; and at the program's end nothing that is still open is closed.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol, TypeVar

from ..errors import UsageError

__all__ = ["SHARED", "Background", "Closable", "Runner"]

T = TypeVar("T")

logger = logging.getLogger("transports")

#: Seconds that cancelled work may take to end: to tell an app, to close a browser.
_CANCEL_TIMEOUT = 10.0
#: Seconds that the thread may take to end.
_THREAD_END_TIMEOUT = 5.0


class Closable(Protocol):
    """A user of a loop, which keeps the loop alive and can be closed when the program ends."""

    def finish(self) -> None:
        """Close, because the program ends."""


class Runner(Protocol):
    """A loop that coroutines run in while blocking code waits for them."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result. An interrupted wait (Ctrl-C) cancels the coroutine and lets it end."""

    def post(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run the coroutine without waiting for it. It is dropped if the loop has ended."""

    def acquire(self, user: Closable) -> None:
        """Keep the loop alive for ``user``."""

    def release(self, user: Closable) -> None:
        """Let the loop end if ``user`` was its last user; idempotent."""


class Background:
    """A loop in a thread of its own, which starts with the first user and ends with the last one."""

    def __init__(self) -> None:
        self._exiting = False
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Start without a thread: a forked process does not inherit it."""
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        self._users: dict[object, None] = {}

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """As :meth:`Runner.run`, in the caller's context. Raises :class:`~transports.errors.UsageError` in the thread
        of the loop, which would wait for itself."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError(
                "a coroutine callback runs in the loop that this call would wait for; make it a plain function, "
                "which gets a thread of its own"
            )
        with self._using(coroutine) as thread:
            outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
            tasks: list[asyncio.Task[T]] = []
            try:
                thread.begin_task(coroutine, outcome, tasks)
                return outcome.result()
            except BaseException:
                if not outcome.done():  # the wait was interrupted, the work was not
                    thread.cancel(tasks)
                    concurrent.futures.wait((outcome,), timeout=_CANCEL_TIMEOUT)
                raise
            finally:
                del outcome  # its exception holds this frame

    @contextlib.contextmanager
    def _using(self, coroutine: Coroutine[Any, Any, object]) -> Iterator[_LoopThread]:
        user = object()
        try:
            thread = self._add(user)
        except BaseException:
            coroutine.close()
            raise
        try:
            yield thread
        finally:
            self._remove(user)

    def post(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """As :meth:`Runner.post`; for any thread, the garbage collector's calls included."""
        thread = self._thread  # no lock: the garbage collector may call this while it is held
        if thread is None or not thread.is_alive():
            coroutine.close()
        else:
            thread.begin_task(coroutine, concurrent.futures.Future(), [])

    def acquire(self, user: Closable) -> None:
        """As :meth:`Runner.acquire`; starts the thread if it does not run."""
        self._add(user)

    def release(self, user: Closable) -> None:
        """As :meth:`Runner.release`; waits for the thread to end."""
        self._remove(user)

    def _add(self, user: object) -> _LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread()
                self._thread.start_and_wait()
                atexit.unregister(self._finish)  # once, and after all that was registered before: it runs first
                atexit.register(self._finish)
            self._users[user] = None
            return self._thread

    def _remove(self, user: object) -> None:
        with self._lock:
            if self._exiting or user not in self._users:
                return
            del self._users[user]
            if self._users or self._thread is None:
                return
            thread, self._thread = self._thread, None
        thread.end()

    def _finish(self) -> None:
        """Close what is still open when the program ends, the newest first. The thread itself ends with the program,
        since an executor cannot be shut down any more."""
        self._exiting = True
        for user in reversed(tuple(self._users)):
            if finish := getattr(user, "finish", None):
                try:
                    finish()
                except Exception:
                    logger.exception("what was still open at the end of the program did not close")


class _LoopThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="abp-sync", daemon=True)
        self._running = threading.Event()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end_requested = asyncio.Event()
        self._running.set()
        await self._end_requested.wait()

    def start_and_wait(self) -> None:
        self.start()
        self._running.wait()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end_requested.set)
        if threading.current_thread() is not self:
            self.join(_THREAD_END_TIMEOUT)

    def begin_task(
        self,
        coroutine: Coroutine[Any, Any, T],
        outcome: concurrent.futures.Future[T],
        tasks: list[asyncio.Task[T]],
    ) -> None:
        """Run the coroutine in the caller's context; ``tasks`` gets its task, ``outcome`` its result or exception."""

        def on_done(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                outcome.set_exception(asyncio.CancelledError())
            elif error := task.exception():
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        def start() -> None:
            task = self._loop.create_task(coroutine)  # call_soon_threadsafe has brought the context
            task.add_done_callback(on_done)
            tasks.append(task)

        self._loop.call_soon_threadsafe(start)

    def cancel(self, tasks: list[asyncio.Task[T]]) -> None:
        def cancel_all() -> None:
            for task in tasks:
                task.cancel()

        self._loop.call_soon_threadsafe(cancel_all)


SHARED = Background()
