"""Runs a user's event callbacks, in order, where they can neither block nor break a call."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable

__all__ = ["Callbacks"]

logger = logging.getLogger("transports")


class Callbacks:
    """A queue of callbacks and the task that runs them. Plain functions run in a worker thread, coroutine functions in
    the loop; what they raise is logged."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[Callable[..., object], object]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def put(self, callback: Callable[..., object], value: object) -> None:
        """Have ``callback(value)`` run after all that was put before."""
        self._queue.put_nowait((callback, value))
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def settle(self, timeout: float) -> None:
        """Wait until all that was put has run, but not longer than ``timeout`` seconds."""
        if self._task is None:
            return
        waiting = asyncio.ensure_future(self._queue.join())
        await asyncio.wait((waiting,), timeout=timeout)
        waiting.cancel()

    async def aclose(self) -> None:
        """Stop; a callback that still runs in a thread is left to end by itself."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            callback, value = await self._queue.get()
            try:
                await run(callback, value)
            except Exception:
                logger.exception("a callback failed; the call goes on")
            finally:
                self._queue.task_done()


async def run(callback: Callable[..., object], value: object) -> object:
    """``callback(value)``, whether it is a plain function (run in a thread) or a coroutine function."""
    if inspect.iscoroutinefunction(callback):
        result: Awaitable[object] = callback(value)
        return await result
    returned = await asyncio.to_thread(callback, value)
    return await returned if inspect.isawaitable(returned) else returned
