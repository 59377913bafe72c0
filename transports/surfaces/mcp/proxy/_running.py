"""The proxy as a whole: options, and relays for one client over stdio or many over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ....adapters.mcp import Server, StdioServer
from ....artifacts import ArtifactStore, Scope
from ....routing import ABP, RoutingPolicy
from .._results import ArtifactView
from ._address import AddressServer
from ._process import ProcessServer
from ._relay import Relay, Upstream, Write
from ._rewriting import Rewriter
from ._serving import proxy_http
from ._stats import Stats
from ._stdio import proxy_stdio

#: Default of the largest value in bytes that stays in an answer.
MAX_INLINE = 64 * 1024


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
