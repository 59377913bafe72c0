"""ABP over a Unix domain socket: one envelope as JSON for each line, in both directions.

>>> from transports import connect
>>> async with connect("abp+unix:///run/app.sock") as app:  # doctest: +SKIP
...     result = await app.call("file.list")
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from transports import Message, Transport
from transports.errors import ConnectFailed, Disconnected, ProtocolError, UsageError
from transports.websocket.envelope import decode_envelope, encode_envelope
from transports.websocket.pending import PendingReplies

__all__ = ["UnixSocketTransport"]

_SCHEME = "abp+unix://"
#: Bytes of the longest line that is read.
_MAX_LINE = 256 << 20
#: Seconds for closing the connection before it is dropped.
_CLOSING = 1.0
_REQUESTS = {"initialize", "capabilities/call", "capabilities/cancel"}
_EVENTS = {"notification", "progress", "elicitation/request"}


class UnixSocketTransport(Transport):
    """One connection to the app that listens on a socket file. ``timeout`` in seconds is for connecting."""

    name = "unix"

    def __init__(self, target: str, *, timeout: float = 30.0) -> None:
        if not target.startswith(_SCHEME):
            raise UsageError(f"{target!r} is no address of a socket; give {_SCHEME}/path/to/app.sock")
        self._path = Path(target.removeprefix(_SCHEME))
        self._timeout = timeout
        self._pending = PendingReplies()
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                reader, self._writer = await asyncio.open_unix_connection(self._path, limit=_MAX_LINE)
        except TimeoutError as error:
            raise ConnectFailed(f"{self._path} did not answer within {self._timeout:g} s; is the app busy?") from error
        except OSError as error:
            raise ConnectFailed(
                f"cannot connect to {self._path}: {error.strerror or error}; start the app or correct the path"
            ) from error
        self._reading = asyncio.ensure_future(self._read(reader))

    async def aclose(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await writer.wait_closed()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        self._pending.fail_all(Disconnected("the transport was closed during the call"))
        self._events.put_nowait(None)

    async def request(self, message: Message, *, timeout: float) -> Message:
        if message.type not in _REQUESTS:
            raise ProtocolError(f"this transport has no request {message.type!r}")
        return await self._pending.request(message, self._send, timeout=timeout)

    async def notify(self, message: Message) -> None:
        await self._send(message)

    async def events(self) -> AsyncIterator[Message]:
        while (message := await self._events.get()) is not None:
            yield message

    async def _send(self, message: Message) -> None:
        if self._writer is None:
            raise Disconnected("the connection is closed; connect again", sent=False)
        line = await asyncio.to_thread(encode_envelope, message) if message.content else encode_envelope(message)
        try:
            self._writer.write(line + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise Disconnected(f"the app is gone ({error.strerror or error}); connect again") from error

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Read lines until the app closes the connection. A line that cannot be read is skipped."""
        with contextlib.suppress(OSError, ValueError):  # broken, or a line over the limit
            while line := await reader.readline():
                with contextlib.suppress(ProtocolError):
                    message = decode_envelope(line)
                    if self._pending.deliver(message) == "event" and message.type in _EVENTS:
                        self._events.put_nowait(message)
        self._pending.fail_all(Disconnected("the app closed the connection; connect again"))
        self._events.put_nowait(None)
