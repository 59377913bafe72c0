"""Stdin of a process that its client has started, and the end of the process with its client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable

_CHUNK = 1 << 20


def exit_soon() -> None:
    """Exit the process after four seconds even if closing hangs: a client that stopped reading may block a thread in a
    write forever."""
    timer = threading.Timer(4, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _parent_watch() -> Callable[[], bool]:
    """Return a function that returns whether the parent process is still running."""
    parent = os.getppid()
    if os.name != "nt":
        return lambda: os.getppid() == parent
    import psutil  # on Windows, getppid() does not change when the parent ends

    try:
        return psutil.Process(parent).is_running
    except psutil.NoSuchProcess:
        return lambda: False


class Stdin:
    """Asynchronous chunks of stdin, at most 1 MiB each, until stdin or the parent process ends. When the parent has
    ended, this process has four seconds to exit.

    The event loop reads a pipe: a thread takes 80 µs more for a message, a third of a small call of `abp proxy`. Other
    files are read by a daemon thread, since only a daemon can be abandoned. Stdin is replaced by an empty file for this
    process and its children."""

    def __init__(self) -> None:
        self._fd = os.dup(0)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        self._loop = asyncio.get_running_loop()
        # Bounded, so that a client that sends faster than requests are read must wait, as with any pipe.
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(4)
        self._pipe: asyncio.ReadTransport | None = None
        self._parent_lives = _parent_watch()
        threading.Thread(target=self._watch_parent, daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if not _is_pipe(self._fd):
            threading.Thread(target=self._read_file, daemon=True).start()
            while (chunk := await self._queue.get()) is not None:
                yield chunk
            return

        reader = asyncio.StreamReader(_CHUNK)
        self._pipe, _ = await self._loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._fd, "rb", buffering=0)
        )
        while piece := await reader.read(_CHUNK):
            yield piece

    def _read_file(self) -> None:
        try:
            while chunk := os.read(self._fd, _CHUNK):
                self._queue_chunk(chunk)
        except (OSError, RuntimeError):
            pass  # a RuntimeError means that the loop is closed
        finally:
            self._end()

    def _watch_parent(self) -> None:
        """Wait for the end of the parent process: another process may hold the pipe open (docs/faults.md 7)."""
        while self._parent_lives():
            time.sleep(0.5)
        exit_soon()
        if self._pipe is None:
            self._end()
        else:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._pipe.close)

    def _queue_chunk(self, chunk: bytes | None) -> None:
        """Add a chunk from a thread, and wait until there is room for it."""
        asyncio.run_coroutine_threadsafe(self._queue.put(chunk), self._loop).result()

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._queue_chunk(None)


def _is_pipe(fd: int) -> bool:
    """Return whether the event loop can read a file, which must be a pipe or a socket, and not on Windows."""
    mode = os.fstat(fd).st_mode
    return os.name != "nt" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
