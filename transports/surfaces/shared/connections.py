"""Limits for connections: how many there may be, and how long one may take to send the head of its first request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from ...protocol.urls import is_loopback

__all__ = ["Connections"]

#: Seconds for the head of the first request.
_HEAD_TIMEOUT = 10.0
#: Connections at most, whatever the limit of descriptors, and how many are kept free for the store and apps at least.
_MAX_CONNECTIONS, _MIN_FREE_DESCRIPTORS = 4096, 64


class Connections:
    """The connections of one server.

    At most three quarters of the descriptors of this process are connections, and one address of another machine may
    have a quarter of these. Where there are as many as may be, the one that has waited longest for the whole head of a
    request is closed for a new one; if requests are served on all of them, the new one is closed.
    """

    def __init__(self) -> None:
        self._limit = _connection_limit()
        self._by_address: Counter[str] = Counter()
        #: All of them, by aiohttp's protocol for each.
        self._open: dict[asyncio.BaseProtocol, _Connection] = {}
        #: Those that no request is served on, which has its head, the longest waiting first.
        self._waiting: dict[asyncio.BaseProtocol, _Connection] = {}

    def protocol_factory(self, server: web.Server) -> Callable[[], asyncio.Protocol]:
        """Return what makes the protocol of each connection, for :meth:`asyncio.loop.create_server`."""
        return lambda: _Connection(self, server())

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Note that the head of a request has come, and when it was served."""
        if (connection := self._waiting.pop(request.protocol, None)) is not None:
            connection.stop_waiting()
        try:
            return await handler(request)
        finally:
            if (connection := self._open.get(request.protocol)) is not None:
                self._waiting[request.protocol] = connection

    def admit(self, connection: _Connection) -> bool:
        """Count a connection, and return whether it may be served."""
        address = connection.address
        own_limit = self._limit if is_loopback(address) else max(8, self._limit // 4)
        if self._by_address.total() >= self._limit:
            evicted = next(iter(self._waiting.values()), None)
        elif self._by_address[address] >= own_limit:
            evicted = next((other for other in self._waiting.values() if other.address == address), None)
        else:
            evicted = connection
        if evicted is None:
            return False
        if evicted is not connection:
            evicted.abort()
        self._by_address[address] += 1
        self._open[connection.inner] = self._waiting[connection.inner] = connection
        return True

    def remove(self, connection: _Connection) -> None:
        """Forget a connection that was admitted."""
        self._waiting.pop(connection.inner, None)
        del self._open[connection.inner]
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]


class _Connection(asyncio.Protocol):
    """Passes everything to aiohttp's protocol ``inner``, once the connection is admitted."""

    def __init__(self, connections: Connections, inner: web.RequestHandler) -> None:
        self.inner = inner
        self.address = ""
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        if not self._connections.admit(self):
            transport.abort()
            return
        self._admitted = True
        self._deadline = asyncio.get_running_loop().call_later(_HEAD_TIMEOUT, self.abort)
        self.inner.connection_made(transport)

    def abort(self) -> None:
        """Close the connection now. It counts no longer."""
        assert self._transport is not None
        self._transport.abort()
        self._leave()

    def stop_waiting(self) -> None:
        """Lift the deadline: the head has come."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _leave(self) -> None:
        self.stop_waiting()
        if self._admitted:
            self._admitted = False
            self._connections.remove(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self._deadline is not None:  # aiohttp has seen it
            self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        self.inner.eof_received()
        return None

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


def _connection_limit() -> int:
    """Return how many connections there may be, by the descriptors that this process may have."""
    try:
        import resource
    except ImportError:  # Windows, where sockets are not counted with files
        return _MAX_CONNECTIONS
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(16, min(_MAX_CONNECTIONS, soft - max(_MIN_FREE_DESCRIPTORS, soft // 4)))
