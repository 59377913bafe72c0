"""A server that ended or went away is started or reached again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...errors import ABPError, Disconnected, first_line
from ...protocol.messages import Message
from ...tasks import MAX_DELAY, backoff_delay
from .connection import Connection, first_of

__all__ = ["Keeper"]

logger = logging.getLogger("transports.mcp")


class Keeper:
    """Holds the connection to one server. ``make`` makes a new one; ``tell`` hears of each loss and each return, if
    connections are to be made ``again``. ``timeout`` in seconds is for each of them.

    A task of its own opens and closes them, since the SDK wants both to be done by one.
    """

    def __init__(
        self, make: Callable[[], Connection], tell: Callable[[Message], None], *, timeout: float, again: bool
    ) -> None:
        self._make = make
        self._tell = tell
        self._timeout = timeout
        self._again = again
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_there(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None and not self._connection.lost.done()

    def connected(self) -> Connection:
        """The connection. Raises :class:`~transports.errors.Disconnected` if there is none now."""
        if self._connection is None or self._connection.lost.done():
            raise Disconnected(
                "the MCP server is not there now; wait until it is back, or connect again", details={"sent": False}
            )
        return self._connection

    async def open(self) -> None:
        """Make the first connection. Raises :class:`~transports.errors.ConnectFailed`."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._keep(opened))
        await asyncio.wait((self._task, opened), return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            await self._task  # raises why

    async def aclose(self) -> None:
        """End the connection, and make no other."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()  # raised by open(), or of a connection that nobody needs any more
        self._connection = None

    async def _keep(self, opened: asyncio.Future[None]) -> None:
        attempt, reason = 1, ""
        clock = asyncio.get_running_loop().time
        while True:
            began, connection = clock(), self._make()
            try:
                async with connection.opened(self._timeout):
                    self._connection = connection
                    if opened.done():
                        self._tell(Message("connection/restored", {"reason": reason}))
                    else:
                        opened.set_result(None)
                    await asyncio.shield(connection.lost)
            except Exception as error:  # whatever ends the SDK's tasks ends the connection
                if not opened.done():
                    raise
                connection.lose(_reason(connection, error))
            if self._connection is connection:  # it was there
                self._connection = None
                reason = connection.lost.result()
                self._tell(Message("connection/lost", {"reason": reason}))
                if not self._again:
                    return
                if clock() - began > MAX_DELAY:
                    attempt = 1
            logger.info("%s; it is tried again", reason)
            await asyncio.sleep(backoff_delay(attempt))
            attempt += 1


def _reason(connection: Connection, error: Exception) -> str:
    inner = first_of(error)
    if isinstance(inner, ABPError):
        return inner.message
    said = first_line(connection.server.without_secrets(str(inner)))[:200]
    return f"the connection to {connection.server} broke: {said or type(inner).__name__}"
