"""The proxy over stdio, for a client that starts it."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncIterable, Awaitable, Callable

from ...._internal.tasks import cancel_and_wait
from ....artifacts._files import write_all
from ....mcp._stdio import LineReader, Stdin, exit_soon
from ._duplex import Duplex
from ._exchange import Exchange, Passed, Shared
from ._messages import MAX_BYTES
from ._upstream import Upstream


async def run_stdio(upstream: Upstream, shared: Shared) -> int:
    """Proxy for the client on stdin and stdout. Return the exit status of a server that has ended, otherwise 0."""
    stdout = _Stdout()
    try:
        return await relay(upstream, shared, Stdin(), stdout.write)
    except BrokenPipeError:
        return 0  # the client has ended
    finally:
        exit_soon()


async def relay(
    upstream: Upstream, shared: Shared, chunks: AsyncIterable[bytes], write: Callable[[Passed], Awaitable[None]]
) -> int:
    """Relay between one client, whose ``chunks`` are read and which ``write`` reaches, and a server.

    When the client ends, the server's input is closed, and its answers still pass. Return the status of a server that
    has ended by itself, otherwise 0."""
    duplex = Duplex(Exchange(shared), upstream.send, write)
    client = asyncio.ensure_future(_read_client(chunks, duplex))
    server = asyncio.ensure_future(duplex.read_server(upstream.run))
    try:
        await asyncio.wait((client, server), return_when=asyncio.FIRST_COMPLETED)
        if client.done() and not client.exception():
            await _let_server_finish(duplex, upstream, server)

        for ended in (client, server):
            if ended.done():
                ended.result()
        if server.done():
            return upstream.status
        return 0
    finally:
        await cancel_and_wait((client, server))
        await duplex.aclose()
        shared.stats.flush()


async def _read_client(chunks: AsyncIterable[bytes], duplex: Duplex) -> None:
    reader = LineReader(MAX_BYTES)
    async for chunk in chunks:
        for line in reader.feed(chunk):
            await duplex.from_client(line)
    last = reader.rest()
    if last:
        await duplex.from_client(last)


async def _let_server_finish(duplex: Duplex, upstream: Upstream, server: asyncio.Future[None]) -> None:
    """Once the client has ended, wait until the server has answered all requests and ended, or has been silent for a
    minute."""

    async def wait_while(is_expected: Callable[[], bool]) -> None:
        while is_expected() and not server.done():
            await asyncio.wait((server,), timeout=0.05)

    await wait_while(lambda: duplex.is_preparing)
    upstream.close_input()
    max_silence = 60
    await wait_while(lambda: duplex.is_busy and duplex.silence < max_silence)
    await asyncio.wait((server,), timeout=upstream.grace)


class _Stdout:
    """Stdout for messages only. Anything else that this process writes to stdout goes to stderr."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._writing = asyncio.Lock()

    async def write(self, message: Passed) -> None:
        if not message.raw:
            return
        line = message.raw + b"\n"
        async with self._writing:
            if self._can_take(len(line)):
                os.write(self._fd, line)
            else:
                await asyncio.to_thread(write_all, self._fd, memoryview(line))

    def _can_take(self, size: int) -> bool:
        """Return whether ``size`` bytes can be written without blocking. A pipe with room for any has room for
        ``PIPE_BUF``.

        Writing in a thread takes 70 µs more, a third of a small call."""
        if not hasattr(select, "poll") or size > select.PIPE_BUF:  # Windows has no poll
            return False
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return any(event & select.POLLOUT for _, event in poll.poll(0))
