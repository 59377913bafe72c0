"""Signals that end a command: the work is cancelled, so that everything is closed on the way out."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

__all__ = ["Stopped", "stoppable", "until_stopped"]

T = TypeVar("T")

_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal went away"}


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(_WORDS[signal.Signals(number).name])
        self.status = 128 + number


def _numbers() -> list[int]:
    """The signals that count; one that our parent had us ignore (``nohup``, a background job) stays ignored."""
    numbers = [getattr(signal, name) for name in _WORDS if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def stoppable() -> Iterator[None]:
    """The signals raise :class:`Stopped` in here; for the time before and after :func:`until_stopped`."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in _numbers()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def until_stopped(work: Coroutine[object, object, T]) -> T:
    """The work's result. The first signal cancels it; later ones change nothing, as closing takes a few seconds at
    most. Raises :class:`Stopped` when all is closed, whatever the work made of its cancellation."""
    task = asyncio.ensure_future(work)
    stopped: list[int] = []

    def stop(number: int) -> None:
        if not stopped:
            task.cancel()
        stopped.append(number)

    if sys.platform != "win32":
        for number in _numbers():
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
    await asyncio.wait((task,))
    if stopped and (task.cancelled() or task.exception() is not None):
        raise Stopped(stopped[0])
    return task.result()
