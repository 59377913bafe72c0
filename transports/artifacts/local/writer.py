"""One thread that stores small content for all that wait, many at a time.

To reach a thread takes longer than to store a small answer, and threads that do it side by side wait for each other's
interpreter lock. So all that wait are done in one visit, with each folder opened once and one message back; the thread
stays for a moment with the folders open, since small answers come in rows. What may have to wait for somebody (for the
disk, for the lock of another process) is done in a thread of its own instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from ...errors import StoreUnavailable
from ...tasks import finished
from .tree import OpenFolders, Tree

__all__ = ["Writer"]

T = TypeVar("T")
_Job: TypeAlias = tuple[Callable[[OpenFolders], Any], "asyncio.Future[Any]"]
_Outcome: TypeAlias = "tuple[asyncio.Future[Any], Any, BaseException | None]"

_BATCH = 32  # jobs with one message back: the first ones shall not wait for very many
_STAY = 0.05  # seconds that a visit waits for more work


class Writer:
    """Runs short blocking work below one root. Any number of event loops may use it; each has a thread of its own, that
    ends with the writer, or after :meth:`close`."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()

    async def run(self, work: Callable[[OpenFolders], T]) -> T:
        """Run ``work`` in the thread and return its result, as :func:`~transports.tasks.in_thread` does: even if the
        caller is cancelled, only when it has ended. It gets folders that are open already."""
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane(self._tree)
        done: asyncio.Future[T] = loop.create_future()
        lane.add(loop, (work, done))
        try:
            return await done
        except asyncio.CancelledError:
            after: asyncio.Future[None] = loop.create_future()
            lane.add(loop, (lambda folders: None, after))  # the thread takes it when ``work`` has ended
            with suppress(StoreUnavailable):
                await finished(after)
            raise

    def close(self) -> None:
        """Let the threads end when their work is done. The next :meth:`run` starts another one."""
        for lane in self._lanes.values():
            lane.end()
        self._lanes.clear()


class _Lane:
    """The work of one event loop. The executor's thread ends when nothing refers to it any more."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._executor = ThreadPoolExecutor(1, "abp-store")
        self._waiting: SimpleQueue[_Job | None] = SimpleQueue()
        self._visited = False  # known to the loop's thread only
        self._stay = _STAY

    def add(self, loop: asyncio.AbstractEventLoop, job: _Job) -> None:
        """Do ``job`` in the visit that is under way, or in a new one."""
        self._waiting.put(job)
        if not self._visited:
            self._start(loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._executor.submit(self._visit, loop)
            self._visited = True
        except RuntimeError as error:  # no thread can be started: too many, or the interpreter ends
            refused = StoreUnavailable(f"nothing can be stored now: {error}")
            while job := _next(self._waiting):
                _deliver([(job[1], None, refused)])

    def end(self) -> None:
        """End the visit that is under way when its work is done."""
        self._stay = 0.0
        self._waiting.put(None)

    def _visit(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            with OpenFolders(self._tree) as folders:
                while job := _next(self._waiting, self._stay):
                    folders.renew()
                    outcomes = [_outcome(job, folders)]
                    while len(outcomes) < _BATCH and (job := _next(self._waiting)):
                        outcomes.append(_outcome(job, folders))
                    loop.call_soon_threadsafe(_deliver, outcomes)
        finally:  # whatever a disk may say when a folder is closed
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._leave, loop)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        self._visited = False
        if not self._waiting.empty():  # it came when the visit was about to end
            self._start(loop)


def _next(waiting: SimpleQueue[_Job | None], seconds: float = 0.0) -> _Job | None:
    try:
        return waiting.get(timeout=seconds)
    except Empty:
        return None


def _outcome(job: _Job, folders: OpenFolders) -> _Outcome:
    work, done = job
    try:
        return done, work(folders), None
    except BaseException as error:  # noqa: BLE001 - it is raised where the work is waited for
        return done, None, error


def _deliver(outcomes: list[_Outcome]) -> None:
    for done, result, error in outcomes:
        if done.done():  # cancelled
            continue
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
