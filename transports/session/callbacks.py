"""Callbacks of the user, run where they can neither block nor break a call."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from ..tasks import cancel_and_wait

__all__ = ["MAX_VALUES_WAITING", "Callbacks", "invoke"]

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("transports")


#: Values that wait for one callback at most; after that each new one drops the oldest.
MAX_VALUES_WAITING = 100_000
#: Seconds between two checks of a queue that gets new values while it is waited for.
_POLL = 0.05

#: The queue whose callback runs in this context: what the callback does cannot wait for its own queue.
_current: contextvars.ContextVar[_Queue | None] = contextvars.ContextVar("abp_callback_queue", default=None)


class Callbacks:
    """A queue for each callback, which gets its values one after the other, in order.

    A slow callback delays only itself. One that is :data:`MAX_VALUES_WAITING` values behind loses the oldest, and a
    warning is logged. An exception that it raises is logged, and the next value is delivered.
    """

    def __init__(self) -> None:
        # by id(): a callable need not be hashable; its queue holds it, so no other object takes the id meanwhile
        self._queues: dict[int, _Queue] = {}

    @property
    def busy(self) -> bool:
        """Whether any callback has values that it has not had yet."""
        return bool(self._queues)

    def submit(self, callback: Callable[..., object], value: object) -> None:
        """Run ``callback(value)`` after all values that were submitted for ``callback`` before. Does not wait."""
        queue = self._queues.get(id(callback))
        if queue is None:
            queue = self._queues[id(callback)] = _Queue(callback)
            queue.add(value)
            queue.task = asyncio.ensure_future(self._run(queue))
        else:
            queue.add(value)

    async def wait(
        self, callbacks: Iterable[Callable[..., object] | None] | None = None, *, stalled: float, timeout: float
    ) -> None:
        """Wait until these callbacks, or all, have had the values that were submitted for them until now.

        Gives up after ``timeout`` seconds, and on a callback that spends more than ``stalled`` seconds on one value. A
        callback that waits for itself does not wait.
        """
        ids = set(self._queues) if callbacks is None else {id(callback) for callback in callbacks}
        queues = [self._queues[key] for key in ids if key in self._queues and self._queues[key] is not _current.get()]
        if queues:
            deadline = time.monotonic() + timeout
            await asyncio.gather(*(queue.wait(stalled, deadline) for queue in queues))

    async def aclose(self) -> None:
        """Drop all queues and cancel coroutine callbacks. A plain function that still runs in a thread goes on."""
        queues = tuple(self._queues.values())
        for queue in queues:
            if queue.values:
                logger.warning("the callback %r loses %d values: the session closes", queue.callback, len(queue.values))
            queue.values.clear()
        await cancel_and_wait(queue.task for queue in queues)

    async def _run(self, queue: _Queue) -> None:
        _current.set(queue)
        deliver = queue.deliver_awaiting if inspect.iscoroutinefunction(queue.callback) else queue.deliver_in_thread
        try:
            while queue.values:
                try:
                    await deliver()
                except (Exception, asyncio.CancelledError) as error:
                    task = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                        raise
                    logger.exception("a callback failed; the call goes on")
        finally:
            del self._queues[id(queue.callback)]


class _Queue:
    """The values that wait for one callback, from the first one until all are delivered."""

    task: asyncio.Task[None]

    def __init__(self, callback: Callable[..., object]) -> None:
        self.callback = callback
        self.values: deque[object] = deque(maxlen=MAX_VALUES_WAITING)
        self._submitted = self._dropped = 0  # counted in the event loop
        self._delivered = 0  # counted where the callback runs
        self._begun = time.monotonic()

    def add(self, value: object) -> None:
        if len(self.values) == self.values.maxlen:
            if not self._dropped:  # one warning until the callback has caught up, not one for each value
                logger.warning(
                    "the callback %r is %d values behind and loses the oldest; let it return sooner",
                    self.callback,
                    len(self.values),
                )
            self._dropped += 1
        self._submitted += 1
        self.values.append(value)

    async def wait(self, stalled: float, deadline: float) -> None:
        target = self._submitted
        while self._delivered + self._dropped < target:
            poll = min(_POLL, stalled, max(deadline - time.monotonic(), 0))
            done, _ = await asyncio.wait((self.task,), timeout=poll)
            if done or (now := time.monotonic()) >= deadline or now - self._begun >= stalled:
                return

    async def deliver_awaiting(self) -> None:
        """Deliver one value to a coroutine function."""
        self._begun = time.monotonic()
        try:
            await invoke(self.callback, self.values.popleft())
        finally:
            self._delivered += 1

    async def deliver_in_thread(self) -> None:
        """Deliver values to a plain function in one thread until none is left: a thread for each would be slow."""
        if (returned := await _in_thread(self._deliver)) is not None:
            try:
                await returned
            finally:
                self._delivered += 1

    def _deliver(self) -> Awaitable[object] | None:
        """Call the plain function until no value is left, or until it returns something to be awaited."""
        while True:
            try:
                value = self.values.popleft()
            except IndexError:
                return None
            self._begun = time.monotonic()
            try:
                returned = self.callback(value)
            except Exception:
                logger.exception("a callback failed; the call goes on")
            else:
                if returned is not None and inspect.isawaitable(returned):
                    return returned
            self._delivered += 1


async def invoke(callback: Callable[..., object], value: object) -> object:
    """Return ``callback(value)``; a coroutine function is awaited, a plain function runs in a thread of its own."""
    if inspect.iscoroutinefunction(callback):
        result: Awaitable[object] = callback(value)
        return await result
    returned = await _in_thread(callback, value)
    return await returned if inspect.isawaitable(returned) else returned


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """:func:`asyncio.to_thread` with a daemon thread for each call, so that a function which waits for a person, or for
    ever, takes no worker from the artifact store and does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Callable[[], T]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: Callable[[], T]) -> None:
        if not done.done():
            done.set_result(outcome)

    def call() -> None:
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - raised again in the task that waits
            error = raised

            def outcome() -> T:
                raise error
        else:

            def outcome() -> T:
                return result

        with suppress(RuntimeError):  # the loop is closed, nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=call, name="abp-callback", daemon=True).start()
    return (await done)()
