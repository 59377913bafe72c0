"""The event loop and the process that an open object belongs to: sockets and pipes answer there only."""

from __future__ import annotations

import asyncio
import os

from .errors import UsageError

__all__ = ["Owner"]


class Owner:
    """Owner of one open object: the event loop that opened it, in its process. ``what`` is the object's name in errors:
    "session"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def take(self) -> None:
        """Make the running event loop the owner."""
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()

    def require(self) -> None:
        """Raise :class:`~transports.errors.UsageError` outside of the owner. Without an owner yet, do nothing."""
        try:
            if asyncio.get_running_loop() is self._loop or self._loop is None:
                return
        except RuntimeError:  # no loop runs: a forked process without a loop of its own
            if self._loop is None:
                return
        if os.getpid() != self._pid:
            raise UsageError(
                f"this {self._what} belongs to the process that opened it; a forked process opens one of its own"
            )
        raise UsageError(
            f"this {self._what} belongs to another event loop; use it in the loop that opened it, or open one here"
        )
