"""One thread that stores small content for all that wait, many at a time.

To reach a thread takes longer than to store a small answer, and threads that do it side by side wait for each other's
interpreter lock. So all that wait are done in one visit, with each folder opened once and one message back. What may
have to wait for somebody (for the disk, for the lock of another process) is done in a thread of its own instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from ...errors import StoreUnavailable
from ...tasks import finished
from .tree import OpenFolders, Tree

__all__ = ["Writer"]

T = TypeVar("T")
_Job: TypeAlias = tuple[Callable[[OpenFolders], Any], "asyncio.Future[Any]"]
_Outcome: TypeAlias = "tuple[asyncio.Future[Any], Any, BaseException | None]"

_BATCH = 32  # jobs in one visit: the first ones shall not wait for very many, and each may open a folder of its own


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
        return await finished(done)

    def close(self) -> None:
        """Let the threads end when their work is done. The next :meth:`run` starts another one."""
        self._lanes.clear()


class _Lane:
    """The work of one event loop. The executor's thread ends when nothing refers to it any more."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._executor = ThreadPoolExecutor(1, "abp-store")
        self._waiting: deque[_Job] = deque()
        self._busy = False  # known to the loop's thread only

    def add(self, loop: asyncio.AbstractEventLoop, job: _Job) -> None:
        """Do ``job`` in the next visit, or in the one that is under way."""
        self._waiting.append(job)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._start, loop)  # when all that store in this turn of the loop have said so

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._executor.submit(self._visit, loop)
        except RuntimeError as error:  # no thread can be started: too many, or the interpreter ends
            self._busy = False
            waiting, self._waiting = self._waiting, deque()
            for _, done in waiting:
                done.set_exception(StoreUnavailable(f"nothing can be stored now: {error}"))

    def _visit(self, loop: asyncio.AbstractEventLoop) -> None:
        outcomes: list[_Outcome] = []
        try:
            with OpenFolders(self._tree) as folders:
                while self._waiting and len(outcomes) < _BATCH:
                    work, done = self._waiting.popleft()
                    try:
                        outcomes.append((done, work(folders), None))
                    except BaseException as error:  # noqa: BLE001 - it is raised where the work is waited for
                        outcomes.append((done, None, error))
        finally:  # whatever a disk may say when a folder is closed
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._deliver, loop, outcomes)

    def _deliver(self, loop: asyncio.AbstractEventLoop, outcomes: list[_Outcome]) -> None:
        for done, result, error in outcomes:
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)
        self._busy = bool(self._waiting)
        if self._waiting:
            self._start(loop)
