"""The event loop behind the blocking API: one daemon thread for the process, there while somebody uses it.

One loop for all, and not one per session, since what runs in a loop belongs to it: only so can sessions share a browser
or a store. ``asyncio`` and ``threading`` are enough for it.
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

#: Seconds for work to end once it is cancelled: an app is told, a browser is closed.
_CANCEL = 10.0
#: Seconds for the thread to end.
_END = 5.0


class Closable(Protocol):
    """What keeps a loop alive, and can be closed when the program ends."""

    def finish(self) -> None: ...


class Runner(Protocol):
    """Where coroutines run, and who waits for them."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. Whatever interrupts the wait (Ctrl-C) cancels the coroutine and lets it end."""

    def post(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run it when there is time, and do not wait. It is dropped if the loop has ended."""

    def acquire(self, user: Closable) -> None:
        """Keep the loop alive for ``user``."""

    def release(self, user: Closable) -> None:
        """``user`` needs the loop no more; idempotent."""


class Background:
    """A loop in a thread that begins with its first user and ends with its last one."""

    def __init__(self) -> None:
        self._exiting = False
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a forked process the thread is not there."""
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        self._users: dict[object, None] = {}

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
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
                    concurrent.futures.wait((outcome,), timeout=_CANCEL)
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
        thread = self._thread  # no lock: the garbage collector may call this while it is held
        if thread is None or not thread.is_alive():
            coroutine.close()
        else:
            thread.begin_task(coroutine, concurrent.futures.Future(), [])

    def acquire(self, user: Closable) -> None:
        self._add(user)

    def release(self, user: Closable) -> None:
        self._remove(user)

    def _add(self, user: object) -> _LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread()
                self._thread.begin()
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
        """The program ends: close what is still open, last things first. The thread itself ends with the program: an
        executor cannot be shut down any more."""
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
        self._begun = threading.Event()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._begun.set()
        await self._over.wait()

    def begin(self) -> None:
        self.start()
        self._begun.wait()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        if threading.current_thread() is not self:
            self.join(_END)

    def begin_task(
        self,
        coroutine: Coroutine[Any, Any, T],
        outcome: concurrent.futures.Future[T],
        tasks: list[asyncio.Task[T]],
    ) -> None:
        """Run it in the caller's context. ``tasks`` gets the task, ``outcome`` is told how it ended."""

        def ended(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                outcome.set_exception(asyncio.CancelledError())
            elif error := task.exception():
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        def start() -> None:
            task = self._loop.create_task(coroutine)  # call_soon_threadsafe has brought the context
            task.add_done_callback(ended)
            tasks.append(task)

        self._loop.call_soon_threadsafe(start)

    def cancel(self, tasks: list[asyncio.Task[T]]) -> None:
        def work() -> None:
            for task in tasks:
                task.cancel()

        self._loop.call_soon_threadsafe(work)


SHARED = Background()
