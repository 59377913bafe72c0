"""Limits of a server's connections: their number, and deadlines for the head and the body of a request. The web server
and the MCP bridge share them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from ...protocol._plain_text import is_loopback

#: Seconds for the head of the first request, and from the end of a response for the head of the next request.
_HEAD_TIMEOUT, _NEXT_HEAD_TIMEOUT = 10.0, 15.0
#: Maximum number of connections, and minimum number of descriptors that stay free for the store and apps.
_MAX_CONNECTIONS, _MIN_FREE_DESCRIPTORS = 4096, 64
T = TypeVar("T")
#: Seconds for a client to send the next piece, and its minimum rate in bytes per second after the first minute.
_READ_TIMEOUT, _MIN_RATE = 60.0, 1024
#: Message of a response with the status 408.
SLOW_BODY = f"nothing arrived for {_READ_TIMEOUT:g} seconds, or too little; send the request again"


class Connections:
    """Connections of the servers of one process, with limits.

    At most three quarters of the descriptors of this process are used for connections, and one address of another
    machine may have a quarter of these. At a limit, a new connection replaces the one that has waited longest for the
    head of a request. If all connections are serving requests, the new one is closed.
    """

    def __init__(self) -> None:
        self._limit = _connection_limit()
        self._by_address: Counter[str] = Counter()
        #: Connections that wait for the head of a request, the longest waiting first.
        self._waiting: dict[_Connection, None] = {}

    @property
    def share(self) -> int:
        """Maximum number of connections of one address of another machine, or of one user: a quarter of all."""
        return max(8, self._limit // 4)

    def protocol_factory(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Return a protocol factory for :meth:`asyncio.loop.create_server`. ``make`` returns the server's own
        protocol."""
        return lambda: _Connection(self, make())

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Mark the current connection as serving a request for the length of a block. Afterwards it waits for the next
        head."""
        connection = _current.get()
        connection.requests += 1
        connection.stop_waiting()
        self._waiting.pop(connection, None)
        try:
            yield
        finally:
            connection.requests -= 1
            if connection.admitted and not connection.requests:
                self._waiting[connection] = None
                connection.wait(_NEXT_HEAD_TIMEOUT)

    def admit(self, connection: _Connection) -> bool:
        """Count a connection, and return whether it may be served."""
        address = connection.address
        own_limit = self._limit if is_loopback(address) else self.share
        if self._by_address.total() >= self._limit:
            evicted = next(iter(self._waiting), None)
        elif self._by_address[address] >= own_limit:
            evicted = next((other for other in self._waiting if other.address == address), None)
        else:
            evicted = connection
        if evicted is None:
            return False
        if evicted is not connection:
            evicted.abort()
        self._by_address[address] += 1
        self._waiting[connection] = None
        return True

    def remove(self, connection: _Connection) -> None:
        """Stop counting an admitted connection."""
        self._waiting.pop(connection, None)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]


class _Connection(asyncio.Protocol):
    """Proxy for the server's protocol ``inner``, used once the connection is admitted.

    ``requests`` is the number of requests being served. Their tasks start in a callback of ``inner``, so that they have
    the connection in their context."""

    def __init__(self, connections: Connections, inner: asyncio.Protocol) -> None:
        self.address = ""
        self.admitted = False
        self.requests = 0
        self._inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        if not self._connections.admit(self):
            transport.abort()
            return
        self.admitted = True
        self.wait(_HEAD_TIMEOUT)
        _current.set(self)
        self._inner.connection_made(transport)

    def abort(self) -> None:
        """Close the connection now, and stop counting it."""
        assert self._transport is not None
        self._transport.abort()
        self._leave()

    def wait(self, timeout: float) -> None:
        """Close the connection after ``timeout`` seconds unless :meth:`stop_waiting` is called before. The timeout is
        renewed while the client reads a response."""
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        self.stop_waiting()
        self._deadline = asyncio.get_running_loop().call_later(timeout, self._end_waiting, timeout, unsent)

    def stop_waiting(self) -> None:
        """Cancel the deadline, since the head has arrived."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _end_waiting(self, timeout: float, unsent_before: int) -> None:
        assert self._transport is not None
        if (unsent := self._transport.get_write_buffer_size()) and unsent != unsent_before:
            self.wait(timeout)
        else:
            self.abort()

    def _leave(self) -> None:
        self.stop_waiting()
        if self.admitted:
            self.admitted = False
            self._connections.remove(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self._deadline is not None:  # the connection was admitted, so the server has seen it
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        _current.set(self)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


_current: ContextVar[_Connection] = ContextVar("connection")


def _connection_limit() -> int:
    """Return the maximum number of connections, given this process's limit of descriptors."""
    try:
        import resource
    except ImportError:  # Windows, where sockets are not counted with files
        return _MAX_CONNECTIONS
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(16, min(_MAX_CONNECTIONS, soft - max(_MIN_FREE_DESCRIPTORS, soft // 4)))


class BodyDeadline:
    """Deadlines of one body: a minute for each piece, and 1,024 bytes per second on average after the first minute."""

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + _READ_TIMEOUT

    def count(self, size: int) -> None:
        """Extend the deadline for ``size`` received bytes."""
        self._ends_at += size / _MIN_RATE

    async def wait(self, piece: Awaitable[T]) -> T:
        """Return the next piece. Raises :class:`TimeoutError` if it does not arrive in time."""
        async with asyncio.timeout(min(_READ_TIMEOUT, self._ends_at - time.monotonic())):
            return await piece
