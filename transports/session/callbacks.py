"""Runs a user's callbacks where they can neither block nor break a call."""

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

__all__ = ["Callbacks", "run"]

logger = logging.getLogger("transports")


class Callbacks:
    """Gives each callback its values in order. A slow one delays only itself; what one raises is logged."""

    def __init__(self) -> None:
        # by id(): a callable need not be hashable; its task holds it, so no other object takes the id meanwhile
        self._lanes: dict[int, tuple[deque[object], asyncio.Task[None]]] = {}

    def put(self, callback: Callable[..., object], value: object) -> None:
        """Have ``callback(value)`` run after all that was put for it before."""
        if id(callback) in self._lanes:
            self._lanes[id(callback)][0].append(value)
        else:
            values = deque([value])
            self._lanes[id(callback)] = values, asyncio.ensure_future(self._run(callback, values))

    async def settle(self, callbacks: Iterable[Callable[..., object] | None], timeout: float) -> None:
        """Wait until these callbacks have had all their values, but not longer than ``timeout`` seconds."""
        tasks = [self._lanes[id(callback)][1] for callback in callbacks if id(callback) in self._lanes]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    async def aclose(self) -> None:
        """Stop; a callback that still runs in a thread is left to end by itself."""
        lanes = tuple(self._lanes.values())
        for values, _ in lanes:
            values.clear()
        await cancel_and_wait(task for _, task in lanes)

    async def _run(self, callback: Callable[..., object], values: deque[object]) -> None:
        try:
            while values:
                try:
                    await run(callback, values.popleft())
                except (Exception, asyncio.CancelledError) as error:
                    task = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                        raise
                    logger.exception("a callback failed; the call goes on")
        finally:
            del self._lanes[id(callback)]


async def run(callback: Callable[..., object], value: object) -> object:
    """``callback(value)``, whether it is a plain function (run in a thread) or a coroutine function."""
    if inspect.iscoroutinefunction(callback):
        result: Awaitable[object] = callback(value)
        return await result
    returned = await _in_thread(callback, value)
    return await returned if inspect.isawaitable(returned) else returned


async def _in_thread(callback: Callable[..., object], value: object) -> object:
    """:func:`asyncio.to_thread` with a daemon thread for each call: one that waits for a person, or for ever, takes no
    worker from the artifact store and does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: object, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def work() -> None:
        result, error = None, None
        try:
            result = context.run(callback, value)
        except BaseException as raised:  # noqa: BLE001 - raised again where it is awaited
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=work, name="abp-callback", daemon=True).start()
    result, error = await done
    if error is not None:
        raise error
    return result
