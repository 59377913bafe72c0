"""The server of a proxy: one that is started, or one behind an address.

``abp proxy`` starts a server with this module and imports the rest while it starts, so it imports little itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ....mcp._servers import Server, StdioServer
from ._process import ProcessServer

if TYPE_CHECKING:
    from ._duplex import Deliver


class Upstream(Protocol):
    """A server that runs or can be reached.

    ``grace`` is the time in seconds for it to end by itself once its client has ended and it owes no answer."""

    @property
    def grace(self) -> float:
        """Seconds to end by itself."""

    async def run(self, deliver: Deliver) -> None:
        """Deliver the server's messages until it ends."""

    async def send(self, line: bytes) -> None:
        """Send a message. Nothing happens if the server has ended."""

    def close_input(self) -> None:
        """Tell the server that its client has ended."""

    @property
    def status(self) -> int:
        """Exit status of a server that has ended."""

    async def aclose(self) -> None:
        """End the server."""


def server_of(command: Sequence[str]) -> StdioServer:
    """Return the server of a command, which inherits all variables of this process."""
    return StdioServer(command[0], tuple(command[1:]), env=dict(os.environ))


async def open_upstream(server: Server) -> Upstream:
    """Start a server, or prepare to speak with one behind an address. The caller closes it.

    Raises :class:`~transports.errors.ConnectFailed` if it cannot be started."""
    if isinstance(server, StdioServer):
        return await ProcessServer.start(server)
    from ._upstream import AddressServer  # late: it needs the SDK

    return AddressServer(server)
