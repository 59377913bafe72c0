"""A network for one page in which every connection is judged: a SOCKS5 proxy (RFC 1928) for the page's context.

Whatever the browser connects to goes through the proxy that its context has: frames, redirects, sockets, workers,
popups, downloads and speculative connections. The proxy gets the host's name, looks it up itself, and connects to an
address that was judged: a name cannot lead elsewhere afterwards (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from ..errors import ABPError, TransportError
from ..errors.transport import NOTHING_LISTENS

if TYPE_CHECKING:
    from playwright.async_api import ProxySettings

__all__ = ["Judge", "JudgedNetwork"]

#: A function that returns the numeric addresses to which a connection with this host and port may be made, in the order
#: in which they are tried. It raises an error of ours if there are none.
Judge: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

#: Connections at a time and in all, and bytes that come in over all of them (docs/security.md).
_MAX_AT_ONCE, _MAX_CONNECTIONS, _MAX_BYTES = 64, 1000, 256 << 20
#: Hosts that are judged at a time: each takes one of the few threads that look up names for the whole process.
_MAX_JUDGED = 4
#: Reasons that are kept.
_MAX_REASONS = 20
_CHUNK = 64 << 10
#: Seconds for the browser to say where it wants to go, and for a server to take a connection.
_STEP_TIMEOUT = 10.0
_END_TIMEOUT = 2.0
_NO_AUTHENTICATION, _NOTHING_FITS = b"\5\0", b"\5\xff"
_CONNECTED, _NOT_ALLOWED = (b"\5" + code + b"\0\1\0\0\0\0\0\0" for code in (b"\0", b"\2"))


class JudgedNetwork:
    """The proxy, from ``async with`` until its end. ``judge`` is asked before each connection.

    ``refused`` says what may not be loaded and why; ``failed`` is the reason of the last connection that was not made,
    whether it may be made or not.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._judging = asyncio.Semaphore(_MAX_JUDGED)
        self._connections: set[asyncio.Task[None]] = set()
        self._made = self._bytes = 0
        self.refused: list[str] = []
        self.failed = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_CHUNK)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=_END_TIMEOUT)

    @property
    def proxy(self) -> ProxySettings:
        """The option ``proxy`` of the page's context."""
        return {"server": f"socks5://127.0.0.1:{self.port}"}

    @property
    def port(self) -> int:
        """The port of ``127.0.0.1`` at which the proxy listens."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._made += 1
        try:
            if self._made > _MAX_CONNECTIONS:
                self._refuse(f"more than {_MAX_CONNECTIONS:,} connections")
            elif len(self._connections) > _MAX_AT_ONCE:
                self._refuse(f"more than {_MAX_AT_ONCE} connections at a time")
            elif not await _is_of_another_user(writer):
                # A peer that breaks the protocol or goes away ends its own connection.
                with contextlib.suppress(OSError, EOFError, ValueError):
                    await self._relay(reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the network: asyncio reports a cancelled connection as a fault
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_STEP_TIMEOUT):
            host, port = await _read_request(reader, writer)
        try:
            from_there, to_there = await self._connect(host, port)
        except ABPError as error:
            self.failed = error.message
            writer.write(_NOT_ALLOWED)
            await writer.drain()
            return
        try:
            writer.write(_CONNECTED)
            await asyncio.gather(_copy(reader, to_there, lambda _: None), _copy(from_there, writer, self._count))
        finally:
            to_there.transport.abort()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with self._judging:
                addresses = await self._judge(host, port)
        except ABPError as error:
            self._refuse(error.message)
            raise
        reason = f"{NOTHING_LISTENS}; correct the address"
        for address in addresses:
            try:
                async with asyncio.timeout(_STEP_TIMEOUT):
                    return await asyncio.open_connection(address, port, limit=_CHUNK)
            except TimeoutError:
                reason = "the host does not answer; correct the address or check the network"
            except OSError:
                continue
        raise TransportError(f"{host} (port {port}): {reason}")

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _MAX_BYTES:
            self._refuse(f"more than {_MAX_BYTES:,} bytes")
            raise EOFError

    def _refuse(self, reason: str) -> None:
        self.failed = reason
        if reason not in self.refused and len(self.refused) < _MAX_REASONS:
            self.refused.append(reason)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None]) -> None:
    while data := await reader.read(_CHUNK):
        count(len(data))
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
    """Return the host and the port that the browser wants. Raises :class:`ValueError` for what is no such request."""
    version, methods = await reader.readexactly(2)
    offered = await reader.readexactly(methods)
    if version != 5 or 0 not in offered:
        writer.write(_NOTHING_FITS)
        raise ValueError
    writer.write(_NO_AUTHENTICATION)
    version, command, _, kind = await reader.readexactly(4)
    if version != 5 or command != 1:  # a connection; neither a listener nor datagrams
        raise ValueError
    if kind == 3:
        (length,) = await reader.readexactly(1)
        host = (await reader.readexactly(length)).decode("ascii")
    else:
        host = str(ipaddress.ip_address(await reader.readexactly({1: 4, 4: 16}.get(kind, 0))))
    return host.strip("[]").lower(), int.from_bytes(await reader.readexactly(2), "big")


async def _is_of_another_user(writer: asyncio.StreamWriter) -> bool:
    """Whether another user of this machine has made the connection; only Linux tells."""
    _, port, *_ = writer.get_extra_info("peername") or ("", 0)  # nothing, if it has gone already
    return sys.platform == "linux" and await asyncio.to_thread(_is_foreign, port)


def _is_foreign(port: int) -> bool:
    try:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return False
    owners = {fields[1]: int(fields[7]) for fields in map(str.split, lines)}
    return owners.get(f"0100007F:{port:04X}") != os.geteuid()
