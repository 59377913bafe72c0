"""Listening servers of the kit: their addresses, the tokens of their users, and limits of their connections."""

from __future__ import annotations

import asyncio
import errno
import hmac
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from contextvars import ContextVar
from typing import TypeVar
from urllib.parse import urlsplit

from ...errors import UsageError
from ...protocol._plain_text import is_loopback

T = TypeVar("T")


def cannot_listen(host: str, port: int, error: OSError, option: str) -> UsageError:
    """Return the error for a port that cannot be listened on. ``option`` is the option of the command line for it."""
    another = f"name another port with {option}, 0 for a free one"
    if error.errno == errno.EADDRINUSE:
        reason = f"port {port} is taken; end the program that listens there, or {another}"
    elif error.errno in (errno.EACCES, errno.EPERM):
        reason = f"port {port} may not be used by this user; {another}"
    else:
        reason = f"{error.strerror or error}; name an address of this machine"
    details = {"host": host, "port": port}
    return UsageError(f"cannot listen on {host}:{port}: {reason}", code="ADDRESS_UNAVAILABLE", details=details)


@asynccontextmanager
async def listening(
    host: str, port: int, option: str, protocol_factory: Callable[[], asyncio.Protocol]
) -> AsyncIterator[int]:
    """Listen on a port, and yield its number; port 0 takes a free port. ``option`` is the option for the port."""
    # "localhost" would also listen on ::1, and with port 0 on a different port there.
    address = "127.0.0.1" if host == "localhost" else host
    try:
        listener = await asyncio.get_running_loop().create_server(protocol_factory, address, port)
    except OSError as error:
        raise cannot_listen(host, port, error, option) from error
    with closing(listener):
        actual_port: int = listener.sockets[0].getsockname()[1]
        yield actual_port


def parse_address(text: str, option: str, public_url: str | None = None) -> tuple[str, int]:
    """Read HOST:PORT. A host other than the loopback needs a proxy with a ``public_url``, as the kit's servers have no
    TLS."""
    address, _, port = text.rpartition(":")
    host = address.strip("[]")
    is_port = port.isascii() and port.isdigit() and int(port) <= 65535
    is_protected = bool(public_url) or is_loopback(host)
    if not host or not is_port or not is_protected:
        raise UsageError(
            f"{option} {text}: give HOST:PORT of this machine, such as 127.0.0.1:8765; for others put a proxy with TLS "
            "before it, and name its address as public_url (docs/team.md)"
        )
    return host, int(port)


def url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def hostname(host: str) -> str | None:
    """Return the name in a ``Host`` header, without the port; ``None`` for an invalid one."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for an invalid one
    except ValueError:
        return None
    if parts.username is not None or parts.path:
        return None
    return parts.hostname


def holder_of(token: str, holders: Mapping[str, T]) -> T | None:
    """Find the holder of a token. All tokens are compared, so that the duration does not reveal a match."""
    matching = None
    for secret, holder in holders.items():
        if hmac.compare_digest(secret.encode(), token.encode("utf-8", "surrogatepass")):
            matching = holder
    return matching


@contextmanager
def counting(counter: Counter[T], key: T) -> Iterator[None]:
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


def base_url(text: str) -> str:
    """Return an address without a trailing slash. Raises :class:`ValueError` unless it is a plain http(s) address."""
    parts = urlsplit(text)  # raises ValueError for http://[ and the like
    has_more = parts.query or parts.fragment or "@" in text
    if parts.scheme not in ("http", "https") or not parts.hostname or has_more:
        raise ValueError(f"{text!r} is not the address of a server, such as https://abp.example")
    return text.rstrip("/")


#: Seconds for the head of a request, from the start of the connection or from the end of the response before.
_HEAD_TIMEOUT = 15.0
#: Seconds for the next piece of a body.
_PIECE_TIMEOUT = 60.0
#: Message of a response with the status 408.
SLOW_BODY = f"nothing arrived for {_PIECE_TIMEOUT:g} seconds, or too little; send the request again"


class Connections:
    """Limits the connections of a server, to three quarters of this process's descriptors at most. At the limit, a new
    connection replaces the one that has waited longest for the head of a request; if all are serving requests, the new
    one is closed. Neither aiohttp nor uvicorn has such a limit, and uvicorn waits for a head without end."""

    def __init__(self) -> None:
        self._limit = _connection_limit()
        self._open: set[_Connection] = set()
        #: Connections that wait for the head of a request, each with its deadline, the longest waiting first.
        self._waiting: dict[_Connection, asyncio.TimerHandle] = {}

    @property
    def max_requests_per_user(self) -> int:
        return max(8, self._limit // 4)

    def protocol_factory(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        return lambda: _Connection(self, make())

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Mark the current connection, if any, as serving a request for the length of a block."""
        connection = _current.get(None)
        if connection is None:
            yield
            return
        self._stop_waiting(connection)
        try:
            yield
        finally:
            if connection in self._open:
                self._wait_for_head(connection)

    def admit(self, connection: _Connection) -> bool:
        """Add a connection. Return ``False`` if the limit is reached and all connections are serving requests."""
        if len(self._open) >= self._limit:
            if not self._waiting:
                return False
            longest_waiting = next(iter(self._waiting))
            self._abort_connection(longest_waiting)

        self._open.add(connection)
        self._wait_for_head(connection)
        return True

    def remove(self, connection: _Connection) -> None:
        self._open.discard(connection)
        self._stop_waiting(connection)

    def _abort_connection(self, connection: _Connection) -> None:
        connection.transport.abort()
        self.remove(connection)

    def _wait_for_head(self, connection: _Connection) -> None:
        unsent = connection.transport.get_write_buffer_size()
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(_HEAD_TIMEOUT, self._end_waiting, connection, unsent)

    def _stop_waiting(self, connection: _Connection) -> None:
        deadline = self._waiting.pop(connection, None)
        if deadline is not None:
            deadline.cancel()

    def _end_waiting(self, connection: _Connection, unsent_before: int) -> None:
        """Abort a connection at its deadline, unless its client is still reading a response."""
        del self._waiting[connection]
        unsent = connection.transport.get_write_buffer_size()
        is_reading = unsent > 0 and unsent != unsent_before
        if is_reading:
            self._wait_for_head(connection)
        else:
            self._abort_connection(connection)


class _Connection(asyncio.Protocol):
    """Passes admitted connections on to ``inner``, the server's protocol. Its callbacks start the tasks of requests, so
    these tasks have the connection in their context."""

    transport: asyncio.Transport

    def __init__(self, connections: Connections, inner: asyncio.Protocol) -> None:
        self._connections = connections
        self._inner = inner
        self._admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._admitted = self._connections.admit(self)
        if self._admitted:
            _current.set(self)
            self._inner.connection_made(transport)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        if self._admitted:
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
    """Return the limit of connections, which leaves a quarter of the process's descriptors for the store and apps."""
    most = 4096
    try:
        import resource  # not on Windows, where sockets are not counted with files
    except ImportError:
        return most
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return most
    free_descriptors = max(64, descriptors // 4)
    return max(16, min(most, descriptors - free_descriptors))


async def pieces_in_time(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of a body. Raises :class:`TimeoutError` after a minute without a piece, or below 1,024 bytes per
    second on average."""
    min_bytes_per_second = 1024
    deadline = time.monotonic() + _PIECE_TIMEOUT
    while True:
        async with asyncio.timeout(min(_PIECE_TIMEOUT, deadline - time.monotonic())):
            piece = await anext(pieces, None)
        if piece is None:
            return
        deadline += len(piece) / min_bytes_per_second
        yield piece
