"""The proxy as a whole: options, and relays for one client over stdio or many over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ....adapters.mcp import Server, StdioServer
from ....artifacts import ArtifactStore
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


async def run_proxy(
    server: Server,
    store: ArtifactStore,
    options: ProxyOptions,
    stats: Stats,
    *,
    http: tuple[str, int] | None = None,
    users: dict[str, str] | None = None,
    on_started: Callable[[str], object] = lambda _: None,
) -> bool:
    """Relay for the client on stdin and stdout, or for clients over HTTP until cancelled. Return whether the client
    ended; otherwise the server ended for good.

    ``http`` is the address to listen on, and ``users`` are the users by their tokens. Raises
    :class:`~transports.errors.ConnectFailed` if the server cannot be started, and
    :class:`~transports.errors.UsageError` for an address that cannot be listened on."""

    async def start() -> Upstream:
        return await ProcessServer.start(server) if isinstance(server, StdioServer) else AddressServer(server)

    def make(view_of: ArtifactStore, write: Write) -> Relay:
        rewriter = Rewriter(
            view_of,
            ArtifactView(),
            max_inline=options.max_inline,
            policy=options.policy,
            json_previews=options.json_previews,
        )
        return Relay(start, write, rewriter, stats)

    if http is None:
        return await proxy_stdio(partial(make, store))
    await proxy_http(make, store, http, users or {}, on_started)
    return True
