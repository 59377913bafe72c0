"""Starts or reaches a lost server again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...errors import ABPError, Disconnected, first_line
from ...protocol.messages import Message
from ...tasks import MAX_DELAY, backoff_delay
from .connection import Connection, root_cause

__all__ = ["Reconnector"]

logger = logging.getLogger("transports.mcp")


class Reconnector:
    """Holds the connection to one server.

    ``make`` creates a connection. With ``reconnect`` a lost one is replaced, with growing, jittered delays, and
    ``emit`` gets ``connection/lost`` and ``connection/restored`` events. ``timeout`` in seconds is for opening each.

    A task of its own opens and closes the connections, since the SDK requires one task for both.
    """

    def __init__(
        self, make: Callable[[], Connection], emit: Callable[[Message], None], *, timeout: float, reconnect: bool
    ) -> None:
        self._make = make
        self._emit = emit
        self._timeout = timeout
        self._reconnect = reconnect
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None and not self._connection.lost.done()

    def connection(self) -> Connection:
        """Return the connection. Raises :class:`~transports.errors.Disconnected` if there is none now."""
        if self._connection is None or self._connection.lost.done():
            advice = "it is tried until it is back" if self._reconnect else "connect again"
            raise Disconnected(f"the MCP server is not there now; {advice}", details={"sent": False})
        return self._connection

    async def open(self) -> None:
        """Open the first connection. Raises :class:`~transports.errors.ConnectFailed`."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._run(opened))
        await asyncio.wait((self._task, opened), return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            await self._task  # raises why

    async def aclose(self) -> None:
        """Close the connection, and open no other."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()  # open() has raised it, or the connection is not needed any more
        self._connection = None

    async def _run(self, opened: asyncio.Future[None]) -> None:
        attempt, reason = 1, ""
        clock = asyncio.get_running_loop().time
        while True:
            began, connection = clock(), self._make()
            try:
                async with connection.open(self._timeout):
                    self._connection = connection
                    if opened.done():
                        self._emit(Message("connection/restored", {"reason": reason}))
                    else:
                        opened.set_result(None)
                    await asyncio.shield(connection.lost)
            except Exception as error:  # whatever ends the SDK's tasks ends the connection
                if not opened.done():
                    raise
                connection.mark_lost(_reason(connection, error))
            if self._connection is connection:  # it was there
                self._connection = None
                reason = connection.lost.result()
                self._emit(Message("connection/lost", {"reason": reason}))
                if not self._reconnect:
                    return
                if clock() - began > MAX_DELAY:
                    attempt = 1
            logger.info("%s; it is tried again", reason)
            await asyncio.sleep(backoff_delay(attempt))
            attempt += 1


def _reason(connection: Connection, error: Exception) -> str:
    inner = root_cause(error)
    if isinstance(inner, ABPError):
        return inner.message
    detail = first_line(connection.server.redact(str(inner)))[:200]
    return f"the connection to {connection.server} broke: {detail or type(inner).__name__}"
