"""Callbacks of the user, run where they can neither block nor break a call."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from ..tasks import cancel_and_wait

__all__ = ["Callbacks", "invoke"]

logger = logging.getLogger("transports")


class Callbacks:
    """A queue for each callback, which gets its values one after the other, in order.

    A slow callback delays only itself. An exception that it raises is logged, and the next value is delivered.
    """

    def __init__(self) -> None:
        # by id(): a callable need not be hashable; its task holds it, so no other object takes the id meanwhile
        self._queues: dict[int, tuple[deque[object], asyncio.Task[None]]] = {}

    def submit(self, callback: Callable[..., object], value: object) -> None:
        """Run ``callback(value)`` after all values that were submitted for ``callback`` before. Does not wait."""
        if id(callback) in self._queues:
            self._queues[id(callback)][0].append(value)
        else:
            values = deque([value])
            self._queues[id(callback)] = values, asyncio.ensure_future(self._run(callback, values))

    async def wait(self, callbacks: Iterable[Callable[..., object] | None], timeout: float) -> None:
        """Wait until these callbacks have worked off their queues, at most ``timeout`` seconds."""
        tasks = [self._queues[id(callback)][1] for callback in callbacks if id(callback) in self._queues]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    async def aclose(self) -> None:
        """Drop all queues and cancel coroutine callbacks. A plain function that still runs in a thread goes on."""
        queues = tuple(self._queues.values())
        for values, _ in queues:
            values.clear()
        await cancel_and_wait(task for _, task in queues)

    async def _run(self, callback: Callable[..., object], values: deque[object]) -> None:
        try:
            while values:
                try:
                    await invoke(callback, values.popleft())
                except (Exception, asyncio.CancelledError) as error:
                    task = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                        raise
                    logger.exception("a callback failed; the call goes on")
        finally:
            del self._queues[id(callback)]


async def invoke(callback: Callable[..., object], value: object) -> object:
    """Return ``callback(value)``; a coroutine function is awaited, a plain function runs in a thread of its own."""
    if inspect.iscoroutinefunction(callback):
        result: Awaitable[object] = callback(value)
        return await result
    returned = await _in_thread(callback, value)
    return await returned if inspect.isawaitable(returned) else returned


async def _in_thread(callback: Callable[..., object], value: object) -> object:
    """:func:`asyncio.to_thread` with a daemon thread for each call, so that a function which waits for a person, or for
    ever, takes no worker from the artifact store and does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: object, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def call() -> None:
        result, error = None, None
        try:
            result = context.run(callback, value)
        except BaseException as raised:  # noqa: BLE001 - raised again in the task that waits
            error = raised
        with suppress(RuntimeError):  # the loop is closed, nobody waits any more
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=call, name="abp-callback", daemon=True).start()
    result, error = await done
    if error is not None:
        raise error
    return result
