"""The WebSocket transport: one connection that is opened again when it breaks.

Use it alone as well: ``async with connect("wss://…") as app``, or with options of its own::

    transport = WebSocketTransport("wss://app.example/abp", token="…", ping_interval=5, ping_timeout=5)
    async with connect(transport.url, transport=transport) as app: ...
"""

from __future__ import annotations

import asyncio
import logging
import ssl as ssl_module
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_connection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI, WebSocketException
from websockets.typing import Origin, Subprotocol

from ...base import Features, Transport
from ...errors import ABPError, ConnectFailed, Disconnected
from ...protocol.envelope import decode_envelope, encode_envelope
from ...protocol.messages import Message
from ...protocol.pending import PendingReplies
from ...protocol.urls import redact_url
from ...tasks import MAX_DELAY, backoff_delay
from .connection_errors import close_error, open_error
from .unreadable import answered_request, is_utf8, unreadable_error

__all__ = ["State", "WebSocketTransport"]

logger = logging.getLogger("transports.websocket")

State: TypeAlias = Literal["connecting", "open", "reconnecting", "closed"]

_EVENTS = {"notification", "progress", "elicitation/request"}
#: From this size on a message is parsed in a thread: below, the hop costs more than the parse (measured).
_PARSE_INLINE = 256 * 1024
#: Seconds after a loss in which each delay before a new attempt is short, and the longest of those before jitter.
_SHORT_DELAYS_FOR, _SHORT_DELAY = 60.0, 0.6


class WebSocketTransport(Transport):
    """One connection to an ABP app behind a ``ws://`` or ``wss://`` address.

    ``headers`` are sent with the handshake, ``token`` as its ``Authorization: Bearer``; neither is ever logged.
    ``ssl`` is an :class:`ssl.SSLContext` for CAs or client certificates of your own; the default trusts the system's.
    ``proxy`` is a URL, ``None`` for no proxy, or ``True`` for the environment's (``HTTPS_PROXY`` and its like).

    ``timeout`` in seconds limits opening a connection, ``close_timeout`` closing it. ``max_bytes`` limits one message,
    counted in decoded bytes of content (base64 is a third longer on the wire). A peer that is silent for longer than
    ``ping_interval`` plus ``ping_timeout`` seconds is given up. With ``reconnect`` a lost connection is opened again,
    with growing, jittered delays; requests that were under way fail with ``DISCONNECTED``.

    Compression is off. Most content is base64 of files that are compressed already, so deflate costs much (34 MB/s
    against 600) and saves little, and a small frame could inflate to any size.
    """

    name = "websocket"

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        subprotocols: Sequence[str] = (),
        origin: str | None = None,
        ssl: ssl_module.SSLContext | None = None,
        proxy: str | Literal[True] | None = True,
        timeout: float = 10.0,
        ping_interval: float = 20.0,
        ping_timeout: float = 20.0,
        close_timeout: float = 3.0,
        max_bytes: int = 100_000_000,
        reconnect: bool = True,
    ) -> None:
        self.features = Features(reconnects=reconnect)
        self._target = url
        self._max_bytes = max_bytes
        self._reconnect = reconnect
        self._timeout = timeout
        self._close_timeout = close_timeout
        self._silence = ping_interval + ping_timeout
        handshake_headers = dict(headers or {})
        if token is not None:
            handshake_headers["Authorization"] = f"Bearer {token}"
        self._options: dict[str, Any] = {
            "additional_headers": handshake_headers,
            "subprotocols": [Subprotocol(name) for name in subprotocols] or None,
            "origin": Origin(origin) if origin is not None else None,
            "proxy": proxy,
            "compression": None,
            "open_timeout": timeout,
            "ping_interval": ping_interval,
            "ping_timeout": ping_timeout,
            "close_timeout": close_timeout,
            "max_size": max_bytes * 4 // 3 + (1 << 20),
        }
        if ssl is not None:
            self._options["ssl"] = ssl
        self._connection: ClientConnection | None = None
        self._read_task: asyncio.Task[None] | None = None
        self._pending = PendingReplies()
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._send_lock = asyncio.Lock()
        self._state: State = "closed"
        self._unknown: Counter[str] = Counter()

    @property
    def url(self) -> str | None:
        """The app's HTTP address, against which relative download URLs are resolved."""
        parts = urlsplit(self._target)
        return urlunsplit(parts._replace(scheme={"ws": "http", "wss": "https"}[parts.scheme]))

    @property
    def server_address(self) -> tuple[str, int] | None:
        """The address that the socket is connected to now; ``None`` after a redirect to another host."""
        connection = self._connection
        if connection is None or connection.protocol.uri.host != urlsplit(self._target).hostname:
            return None
        host, port = connection.remote_address[:2]
        return host, port

    @property
    def state(self) -> State:
        """The state of the connection now. Each change is a ``connection/…`` event too."""
        return self._state

    @property
    def counts(self) -> Mapping[str, int]:
        """How many messages were ``delivered``, ``event``, ``late``, ``duplicate``, ``unknown`` or ``unreadable``."""
        return self._pending.counts

    async def open(self) -> None:
        """Connect and start reading. Raises :class:`~transports.errors.ConnectFailed`."""
        self._state = "connecting"
        self._connection = await self._connect()
        self._state = "open"
        self._read_task = asyncio.ensure_future(self._run(self._connection))

    async def _connect(self) -> ClientConnection:
        try:
            return await open_connection(self._target, **self._options)
        except (InvalidURI, InvalidHandshake, OSError) as error:  # TimeoutError and SSLError are kinds of OSError
            raise open_error(self._target, error, timeout=self._timeout) from None

    # --- receiving ---------------------------------------------------------------------------------------------------

    async def _run(self, connection: ClientConnection | None) -> None:
        """Read until the transport is closed, and open again what breaks."""
        while connection is not None:
            error = await self._read(connection)
            self._connection = None
            self._pending.fail_all(error)
            if self._state == "closed" or not self._reconnect:
                break
            self._set_state("reconnecting", error)
            connection = await self._connect_again()
            if connection is not None:
                self._connection = connection
                self._set_state("open")
        self._state = "closed"
        self._events.put_nowait(None)

    def _set_state(self, state: State, error: ABPError | None = None) -> None:
        self._state = state
        payload = {"state": state, "reason": error.message if error else ""}
        self._events.put_nowait(Message("connection/restored" if state == "open" else "connection/lost", payload))

    async def _connect_again(self) -> ClientConnection | None:
        """Return a new connection, tried with growing, jittered delays; ``None`` once the transport is closed.

        In the first minute they stay short, so that a server which is restarted is noticed within a second.
        """
        lost_at = time.monotonic()
        for attempt in count(1):
            recent = time.monotonic() - lost_at < _SHORT_DELAYS_FOR
            await asyncio.sleep(backoff_delay(attempt, _SHORT_DELAY if recent else MAX_DELAY))
            if self._state == "closed":
                break
            try:
                return await self._connect()
            except ConnectFailed:
                pass
            except Exception:  # a fault of ours must not end in a transport that says for ever that it reconnects
                logger.exception("connecting to %s again failed", redact_url(self._target))
        return None

    async def _read(self, connection: ClientConnection) -> ABPError:
        """Receive messages until the connection ends; returns why it did."""
        try:
            while True:
                data = await connection.recv(decode=False)
                assert isinstance(data, bytes)
                if not await self._receive(data):
                    await connection.close(1007)  # RFC 6455 §8.1
        except ConnectionClosed as closed:
            return self._close_error(closed)
        except WebSocketException as error:
            return Disconnected(f"the connection broke: {type(error).__name__}")
        except Exception:  # a fault of ours must not end in a connection that looks open and hears nothing
            logger.exception("reading %s failed", redact_url(self._target))
            await connection.close(1011)
            return Disconnected("reading from the connection failed, so it was closed; call again")

    def _close_error(self, closed: ConnectionClosed) -> ABPError:
        return close_error(closed, max_bytes=self._max_bytes, silence=self._silence, reconnects=self._reconnect)

    async def _receive(self, data: bytes) -> bool:
        """Handle one message; returns false if it is not UTF-8, so that the connection must be closed.

        Text that cannot be read fails only the request that it answers, if its id can be found.
        """
        try:
            if len(data) <= _PARSE_INLINE:
                message = decode_envelope(data)
            else:
                message = await asyncio.to_thread(decode_envelope, data)
        except Exception as unreadable:  # noqa: BLE001 - whatever a message causes is that message's error alone
            error = unreadable_error(unreadable)
            self._pending.counts["unreadable"] += 1
            if not is_utf8(data):
                return False
            if (request := answered_request(data)) is not None:  # it fails now, instead of at its timeout
                self._pending.fail(request, error)
            logger.warning("%s", error.message)
            return True
        outcome = self._pending.deliver(message)
        if outcome != "event":
            if outcome != "delivered":
                # a late one is what a call that was cancelled or timed out leaves behind
                level = logging.INFO if outcome == "late" else logging.WARNING
                logger.log(level, "ignored a %s reply (%s)", outcome, message.type)
        elif message.type in _EVENTS:
            self._events.put_nowait(message)
        else:
            self._unknown[message.type] += 1
            if self._unknown[message.type] == 1:
                logger.warning(
                    "ignored a message of the unknown type %r; more of them are ignored quietly", message.type
                )
        return True

    async def events(self) -> AsyncIterator[Message]:
        """Yield the app's events and changes of the connection, in order, until the transport is closed."""
        while (message := await self._events.get()) is not None:
            yield message

    # --- sending -----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request and wait for its reply; see :meth:`Transport.request <transports.base.Transport.request>`.

        Raises :class:`~transports.errors.TooLarge` if the reply is over ``max_bytes``.
        """
        return await self._pending.request(message, self._send, timeout=timeout)

    async def notify(self, message: Message) -> None:
        """Send a message that has no reply. Raises :class:`~transports.errors.Disconnected` without a connection."""
        await self._send(message)

    async def _send(self, message: Message) -> None:
        connection = self._connection
        if connection is None:
            advice = "call again" if self._state == "reconnecting" else "connect again"
            raise Disconnected(f"the connection is {self._state}; {advice}", details={"sent": False})
        async with self._send_lock:  # messages wait here unencoded: a slow peer costs time, not memory
            text = await asyncio.to_thread(encode_envelope, message) if message.content else encode_envelope(message)
            try:
                await connection.send(text, text=True)
            except ConnectionClosed as closed:
                raise self._close_error(closed) from None

    async def aclose(self) -> None:
        """Close the connection. A peer that does not read is cut off after ``close_timeout`` seconds."""
        self._state = "closed"
        connection, reader = self._connection, self._read_task
        if connection is not None:
            try:
                async with asyncio.timeout(self._close_timeout):
                    await connection.close()
            except TimeoutError:  # the peer does not read, so the close frame waits behind everything sent before
                connection.transport.abort()
        if reader is not None:
            reader.cancel()
            await asyncio.wait((reader,))
            self._read_task = None
        self._pending.fail_all(Disconnected("the transport was closed during the call"))
        self._events.put_nowait(None)
