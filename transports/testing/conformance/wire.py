"""A WebSocket as it is: every frame looked at, nothing forgiven. Only for checks; apps are driven by the adapter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI, WebSocketException

from ...base import Features, Transport
from ...errors import ConnectFailed, Disconnected, ProtocolError
from ...protocol.envelope import encode_envelope
from ...protocol.messages import Message
from ...protocol.pending import PendingReplies
from ...protocol.strict_json import decode_json
from ...protocol.urls import redact_url

__all__ = ["Wire"]

_LARGEST = 256 << 20
_EVENTS = ("notification", "progress", "elicitation/request")
_OURS = "initialize", "capabilities/call", "capabilities/cancel", "elicitation/response", "shutdown"
_CLOSING = 1.0


class Wire(Transport):
    """The app at ``url``. ``oddities`` are what its frames had that PROTOCOL "Envelope" does not allow, in words; they
    are kept over several connections if the same list is given."""

    name = "websocket"
    features = Features()

    def __init__(self, url: str, *, timeout: float, oddities: list[str]) -> None:
        self._target = url
        self._timeout = timeout
        self.oddities = oddities
        self._connection: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pending = PendingReplies()
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()

    @property
    def url(self) -> str | None:
        parts = urlsplit(self._target)
        return urlunsplit(parts._replace(scheme={"ws": "http", "wss": "https"}[parts.scheme]))

    async def open(self) -> None:
        try:
            self._connection = await connect(
                self._target,
                compression=None,
                open_timeout=self._timeout,
                close_timeout=_CLOSING,
                ping_interval=None,
                max_size=_LARGEST,
            )
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
            raise ConnectFailed(f"no WebSocket at {redact_url(self._target)} ({error}); is it the address?") from error
        self._reader = asyncio.ensure_future(self._read(self._connection))

    async def aclose(self) -> None:
        self._events.put_nowait(None)
        if self._connection is not None:
            with contextlib.suppress(WebSocketException, OSError, TimeoutError):
                async with asyncio.timeout(2 * _CLOSING):
                    await self._connection.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait((self._reader,))

    async def _read(self, connection: ClientConnection) -> None:
        try:
            while True:
                frame = await connection.recv()
                self._take(frame)
        except ConnectionClosed as closed:
            self._pending.fail_all(Disconnected(f"the connection ended: {self._ended(closed)}"))

    def _ended(self, closed: ConnectionClosed) -> str:
        """How; what the app did wrong is an oddity."""
        ours = closed.sent.code if closed.sent is not None and not closed.rcvd_then_sent else None
        wrongs = {1002: "frames that break RFC 6455", 1007: "a text frame that is not UTF-8", 1009: "a huge message"}
        if ours in wrongs:
            self.oddities.append(f"it sent {wrongs[ours]}")
            return f"it sent {wrongs[ours]}"
        if closed.rcvd is None:
            self.oddities.append("the connection broke off without a closing frame")
            return "without a closing frame"
        return f"the app closed it with {closed.rcvd.code} {closed.rcvd.reason[:80]}"

    def _take(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            self.oddities.append("it sent a binary frame")
        try:
            said = decode_json(frame)
        except ProtocolError as error:
            self.oddities.append(f"it sent text that is not JSON ({error.message.partition(': ')[2][:80]})")
            return
        if not isinstance(said, dict) or not isinstance(kind := said.get("type"), str):
            self.oddities.append("it sent JSON that is no envelope: {type, id?, timestamp, payload}")
            return
        if isinstance(stamp := said.get("timestamp"), bool) or not isinstance(stamp, int | float):
            self.oddities.append(f"a {kind} has no timestamp (Unix milliseconds)")
        identity = said.get("id")
        message = Message(kind, said.get("payload"), id=str(identity) if isinstance(identity, str | int) else None)
        outcome = self._pending.deliver(message)
        if outcome in ("duplicate", "unknown"):
            self.oddities.append(
                f"it answered the same {kind} twice"
                if outcome == "duplicate"
                else f"a {kind} has an id nobody asked with"
            )
        elif outcome == "event" and kind in _EVENTS:
            self._events.put_nowait(message)
        elif outcome == "event":
            self.oddities.append(f"it sent a message of the type {kind[:40]!r}, which ABP does not know")

    async def request(self, message: Message, *, timeout: float) -> Message:
        return await self._pending.request(message, self.notify, timeout=timeout)

    async def notify(self, message: Message) -> None:
        assert message.type in _OURS
        if self._connection is None:
            raise Disconnected("the connection is not open")
        try:
            await self._connection.send(encode_envelope(message), text=True)
        except ConnectionClosed as closed:
            raise Disconnected(f"the connection ended: {self._ended(closed)}") from closed

    async def events(self) -> AsyncIterator[Message]:
        while (message := await self._events.get()) is not None:
            yield message
