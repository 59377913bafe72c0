"""The proxy as a whole: options, relays for many clients over HTTP, and a proxy over stdio for one that starts it."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ....adapters.mcp import Server, StdioServer
from ....artifacts import ArtifactStore, Scope, write_all
from ....routing import ABP, RoutingPolicy
from .._results import ArtifactView
from .._stdio import Stdin, exit_within
from ._address import AddressServer
from ._process import ProcessServer
from ._relay import Relay, Upstream, Write
from ._rewriting import Rewriter
from ._serving import proxy_http
from ._stats import Stats

#: Default of the largest value in bytes that stays in an answer.
MAX_INLINE = 64 * 1024
#: Most bytes that a pipe takes at once without waiting, if it takes any (POSIX: ``PIPE_BUF``).
_AT_ONCE = 512 if os.name == "nt" else select.PIPE_BUF

#: Makes the relay of a client, given the way to it.
MakeRelay: TypeAlias = Callable[[Write], Relay]


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """Options of a proxy: ``max_inline`` is the largest value in bytes that stays in an answer, ``policy`` has rules
    for files in undeclared fields, and with ``json_previews`` a long JSON text is shortened to JSON."""

    max_inline: int = MAX_INLINE
    policy: RoutingPolicy = ABP
    json_previews: bool = False


def server_of(command: Sequence[str]) -> StdioServer:
    """Return the server of a command, which inherits all variables of this process."""
    return StdioServer(command[0], tuple(command[1:]), env=dict(os.environ))


def relay_of(server: Server, store: ArtifactStore, options: ProxyOptions, stats: Stats, write: Write) -> Relay:
    """Return the relay between one client, which ``write`` reaches, and a server of its own."""

    async def start() -> Upstream:
        return await ProcessServer.start(server) if isinstance(server, StdioServer) else AddressServer(server)

    rewriter = Rewriter(
        store,
        ArtifactView(),
        max_inline=options.max_inline,
        policy=options.policy,
        json_previews=options.json_previews,
    )
    return Relay(start, write, rewriter, stats)


async def run_proxy(
    server: Server,
    store: ArtifactStore,
    options: ProxyOptions,
    stats: Stats,
    *,
    http: tuple[str, int] | None = None,
    users: Mapping[str, str] | None = None,
    on_started: Callable[[str], object] = lambda _: None,
) -> bool:
    """Relay for the client on stdin and stdout, or for clients over HTTP until cancelled. Return whether the client
    ended; otherwise the server ended for good.

    ``http`` is the address to listen on, and ``users`` are the users by their tokens. Raises
    :class:`~transports.errors.ConnectFailed` if the server cannot be started, and
    :class:`~transports.errors.UsageError` for an address that cannot be listened on."""
    if http is None:
        return await proxy_stdio(lambda write: relay_of(server, store, options, stats, write))

    def make(scope: Scope, write: Write) -> Relay:
        return relay_of(server, store.scoped(scope), options, stats, write)

    await proxy_http(make, http, users or {}, on_started)
    return True


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
