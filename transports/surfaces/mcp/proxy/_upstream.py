"""The server of a proxy: one that is started as a process, or one behind an address.

``abp proxy`` starts a server with this module and imports the rest while it starts, so it imports little itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Protocol

from ....mcp._servers import Server, StdioServer
from ....mcp._stdio import ServerProcess, end_process, exit_reason, lines_of, start_process
from ._messages import MAX_BYTES, Deliver

logger = logging.getLogger("transports")


class Upstream(Protocol):
    """The connection to the server behind the proxy. ``grace`` are the seconds that the server gets to end by itself,
    once the client has ended and all answers are given."""

    grace: float

    async def run(self, deliver: Deliver) -> None:
        """Deliver the server's messages until it ends."""

    async def send(self, line: bytes) -> None:
        """Send a message. Do nothing if the server has ended."""

    def close_input(self) -> None:
        """Tell the server that its client has ended."""

    @property
    def status(self) -> int:
        """Exit status of a server that has ended."""

    async def aclose(self) -> None: ...


def server_of(command: Sequence[str]) -> StdioServer:
    """Return the server that a command line starts. It inherits all variables of this process."""
    return StdioServer(command[0], tuple(command[1:]), env=dict(os.environ))


async def open_upstream(server: Server) -> Upstream:
    """Connect to a server; the caller closes the connection. Raises :class:`~transports.errors.ConnectFailed`."""
    if isinstance(server, StdioServer):
        return await ProcessServer.start(server)
    from ._address import AddressServer  # late: it needs the SDK

    return AddressServer(server)


class ProcessServer:
    """A server that is started as a process. It writes to the stderr of this process."""

    grace = 2.0

    def __init__(self, server: StdioServer, process: ServerProcess) -> None:
        self._server = server
        self._process = process

    @classmethod
    async def start(cls, server: StdioServer) -> ProcessServer:
        return cls(server, await start_process(server, server.env, stderr=None))

    async def run(self, deliver: Deliver) -> None:
        async with aclosing(lines_of(self._process, MAX_BYTES)) as lines:
            async for line in lines:
                await deliver(line)
                del line  # so that a large message is freed now, and not when the next one arrives
        logger.info("%s", self.reason())

    async def send(self, line: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        # If the server has ended, `run` returns, and that is how the proxy learns of it.
        with suppress(ConnectionError, RuntimeError):
            stdin.write(line + b"\n")
            await stdin.drain()

    def close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def status(self) -> int:
        """Exit status as a shell reports it; 1 for a server that has closed its stdout and still runs."""
        code = self._process.returncode
        if code is None:
            return 1
        if code < 0:
            # A signal has ended it.
            return 128 - code
        return code

    def reason(self) -> str:
        return exit_reason(self._server, self._process)

    async def aclose(self) -> None:
        """End the server and its process group, within three seconds."""
        await end_process(self._process)
