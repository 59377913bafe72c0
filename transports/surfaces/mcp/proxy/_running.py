"""The proxy as a whole: its options, and the proxy over stdio for a client that starts it, or over HTTP."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...._internal.tasks import cancel_and_wait
from ....artifacts._base import ArtifactStore
from ....artifacts._files import write_all
from ....mcp._servers import Server
from ....mcp._stdio import LineReader
from ....routing._policy import ABP, RoutingPolicy
from .._stdin import Stdin, exit_soon
from ._duplex import Duplex
from ._exchange import Passed, Shared
from ._messages import MAX_BYTES
from ._rewriting import Rewriter
from ._stats import Stats
from ._upstream import Upstream

#: Default of the largest value in bytes that stays in an answer.
MAX_INLINE = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """Options of a proxy.

    ``max_inline`` is the largest value in bytes that stays in an answer. ``policy`` has rules for files in undeclared
    fields. With ``json_previews`` the preview of a long JSON text is JSON, too. ``roots`` are the folders from which
    files of clients over HTTP may be read, if the client shares them."""

    max_inline: int = MAX_INLINE
    policy: RoutingPolicy = ABP
    json_previews: bool = False
    roots: Sequence[Path] = ()


def shared_by(
    store: ArtifactStore, options: ProxyOptions, stats: Stats, *, roots: Sequence[Path] | None = None
) -> Shared:

    def rewriter(scoped: ArtifactStore) -> Rewriter:
        return Rewriter(
            scoped,
            max_inline=options.max_inline,
            policy=options.policy,
            json_previews=options.json_previews,
        )

    return Shared(store, rewriter, stats, roots)


async def run_stdio(upstream: Upstream, store: ArtifactStore, options: ProxyOptions, stats: Stats) -> int:
    """Proxy for the client on stdin and stdout. Return the exit status of a server that has ended, otherwise 0."""
    stdout = _Stdout()
    try:
        return await relay(upstream, shared_by(store, options, stats), Stdin(), stdout.write)
    except BrokenPipeError:
        return 0  # the client has ended
    finally:
        exit_soon()


async def run_http(
    server: Server,
    store: ArtifactStore,
    options: ProxyOptions,
    stats: Stats,
    address: tuple[str, int],
    users: Mapping[str, str],
    on_started: Callable[[str], object] = lambda _: None,
) -> None:
    """Proxy for clients over HTTP until cancelled. The proxy listens on ``address``; ``users`` maps tokens to users.

    Raises :class:`~transports.errors.UsageError` for an address that cannot be listened on."""
    from ._serving import serve_proxy  # late: it needs the SDK

    try:
        await serve_proxy(server, shared_by(store, options, stats, roots=options.roots), address, users, on_started)
    finally:
        stats.flush()


async def relay(
    upstream: Upstream, shared: Shared, chunks: AsyncIterable[bytes], write: Callable[[Passed], Awaitable[None]]
) -> int:
    """Relay between one client, whose ``chunks`` are read and which ``write`` reaches, and a server.

    When the client ends, the server's input is closed, and its answers still pass. Return the status of a server that
    has ended by itself, otherwise 0."""
    duplex = Duplex(shared.exchange(), upstream.send, write)
    client = asyncio.ensure_future(_read_client(chunks, duplex))
    server = asyncio.ensure_future(upstream.run(duplex.from_server))
    try:
        await asyncio.wait((client, server, duplex.failed), return_when=asyncio.FIRST_COMPLETED)
        if client.done() and not client.exception():
            await _let_server_finish(duplex, upstream, server)

        for ended in (client, server, duplex.failed):
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
        while is_expected() and not (server.done() or duplex.failed.done()):
            await asyncio.wait((server, duplex.failed), timeout=0.05, return_when=asyncio.FIRST_COMPLETED)

    await wait_while(lambda: duplex.is_preparing)
    upstream.close_input()
    max_silence = 60
    await wait_while(lambda: duplex.is_busy and duplex.silence < max_silence)
    if not duplex.failed.done():
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
