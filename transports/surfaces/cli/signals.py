"""Signals that end a command. Only the first one counts: closing takes a few seconds at most."""

from __future__ import annotations

import signal  # and nothing heavier: until we listen, a signal means a traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Stopped", "cancelling", "stoppable"]

_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal went away"}

_first: int | None = None
_cancel: Callable[[], object] | None = None


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(_WORDS[signal.Signals(number).name])
        self.status = 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """The first signal raises :class:`Stopped` in here, or does what :func:`cancelling` says. One that our parent had
    us ignore (``nohup``, a background job) stays ignored."""
    global _first
    _first = None
    numbers = [getattr(signal, name) for name in _WORDS if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _: FrameType | None) -> None:
    global _first
    if _first is None:
        _first = number
        if _cancel is None:
            raise Stopped(number)
        _cancel()


@contextmanager
def cancelling(cancel: Callable[[], object]) -> Iterator[Callable[[], Stopped | None]]:
    """In here a signal calls ``cancel``, in whatever the main thread does at that moment. Gives a function that tells
    whether one came."""
    global _cancel
    _cancel = cancel
    try:
        yield lambda: None if _first is None else Stopped(_first)
    finally:
        _cancel = None
