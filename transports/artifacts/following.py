"""Measuring a file while another program still appends to it, so that its hash is ready when the file is."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread

from ..errors import ABPError
from .content import Meter, read_more
from .system import sync_data

__all__ = ["Follower"]

#: Seconds between two checks of the file: the first while it grows, the last while nothing happens.
_SHORTEST_WAIT, _LONGEST_WAIT = 0.001, 0.01
#: Bytes after which they are written to the disk, so that the last sync has little to do.
_SYNC_EVERY = 16 << 20


class Follower:
    """Reads behind a writer that only appends, in a thread of its own, which ends with :meth:`stop`.

    ``open_file()`` returns a descriptor, or -1 while there is no file. What was read is a beginning of the file and no
    more: who uses it reads on to the end, with :func:`~.content.measure_file`, which sees that nothing moves any more.
    A file that shrank, or another one in its place, is read from its start.
    """

    def __init__(self, open_file: Callable[[], int], limit: int) -> None:
        self._open_file = open_file
        self._limit = limit
        self._fd = -1
        self._meter = Meter(limit)
        self._synced = 0
        self._sync_error: OSError | None = None
        self._stopping = Event()
        # a thread of the pool would be one less for those who write the file
        self._thread = Thread(target=self._follow, name="abp-follow", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        wait = _SHORTEST_WAIT
        with suppress(ABPError, OSError):  # measuring the whole file tells what is wrong with it
            while not self._stopping.wait(wait):
                wait = _SHORTEST_WAIT if self._read() else min(2 * wait, _LONGEST_WAIT)
                self._sync()

    def _read(self) -> bool:
        """Read what is new. Returns ``False`` if that is nothing."""
        if self._fd < 0:
            self._fd = self._open_file()
            if self._fd < 0:
                return False
        found = os.fstat(self._fd)
        if found.st_size < self._meter.size:
            self._meter, self._synced = Meter(self._limit), 0
        if not stat.S_ISREG(found.st_mode) or found.st_size == self._meter.size:
            return False
        return read_more(self._fd, self._meter, found.st_size, self._stopping.is_set)

    def _sync(self) -> None:
        if self._meter.size - self._synced >= _SYNC_EVERY:
            self._synced = self._meter.size
            try:
                sync_data(self._fd)
            except OSError as error:
                self._sync_error = error
                raise

    def stop(self, fd: int = -1) -> Meter | None:
        """End the thread. Returns what it measured if it read the file that is open at ``fd``, and that is no shorter
        now. Raises the :class:`OSError` of a failed sync, which the system reports once."""
        self._stopping.set()
        self._thread.join()
        own, self._fd = self._fd, -1
        if own < 0:
            return None
        try:
            if fd < 0 or not os.path.samestat(os.fstat(own), os.fstat(fd)):
                return None
            if self._sync_error is not None:
                raise self._sync_error
            return self._meter if os.fstat(fd).st_size >= self._meter.size else None
        finally:
            os.close(own)
