"""A proxy over stdin and stdout, for a client that starts it."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ....artifacts import write_all
from .._stdio import Stdin, exit_within
from ._relay import Relay, Write

#: Most bytes that a pipe takes at once without waiting, if it takes any (POSIX: ``PIPE_BUF``).
_AT_ONCE = 512 if os.name == "nt" else select.PIPE_BUF

#: Makes the relay of a client, given the way to it.
MakeRelay: TypeAlias = Callable[[Write], Relay]


async def proxy_stdio(make: MakeRelay) -> bool:
    """Relay until stdin ends, the parent process dies, or the server ends for good. Return whether the client ended.

    Other output to stdout is redirected to stderr. Raises :class:`~transports.errors.ConnectFailed`."""
    stdout = _Stdout()
    try:
        return await make(stdout.write).run(Stdin())
    except BrokenPipeError:
        return True  # the client is gone: the normal end
    finally:
        exit_within()


class _Stdout:
    """Stdout as a way for messages, which nothing else can write to."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._poll = select.poll() if hasattr(select, "poll") else None
        if self._poll is not None:
            self._poll.register(self._fd, select.POLLOUT)

    async def write(self, pieces: Iterable[bytes], _: bytes, __: bool) -> None:
        """Write a message, as fast as the client reads."""
        held: list[bytes] = []
        size = 0
        pieces = iter(pieces)
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size >= _AT_ONCE:
                await asyncio.to_thread(self._write_all, held, pieces)
                return
        line = b"".join((*held, b"\n"))
        if self._poll is not None and [event for _, event in self._poll.poll(0) if event & select.POLLOUT]:
            os.write(self._fd, line)  # short: a pipe that takes any takes it at once
        else:
            await asyncio.to_thread(write_all, self._fd, memoryview(line))

    def _write_all(self, held: list[bytes], pieces: Iterable[bytes]) -> None:
        for piece in held:
            write_all(self._fd, memoryview(piece))
        for piece in pieces:
            write_all(self._fd, memoryview(piece))
        write_all(self._fd, memoryview(b"\n"))
