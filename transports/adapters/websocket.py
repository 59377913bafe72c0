"""The WebSocket transport: envelopes in JSON text frames (PROTOCOL "Envelope"), made for networks that break.

Use it alone as well: ``async with connect("wss://…") as app``, or with options of its own::

    transport = WebSocketTransport("wss://app.example/abp", token="…", ping_interval=5, ping_timeout=5)
    async with connect(transport.url, transport=transport) as app: ...
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl as ssl_module
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_connection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI, WebSocketException
from websockets.typing import Origin, Subprotocol

from ..base import Features, Transport
from ..errors import ABPError, ConnectFailed, Disconnected, ProtocolError, TooLarge
from ..protocol.envelope import decode_envelope, encode_envelope
from ..protocol.messages import Message
from ..protocol.pending import PendingReplies
from ..protocol.urls import redact_url
from ..tasks import backoff_delay

__all__ = ["State", "WebSocketTransport"]

logger = logging.getLogger("transports.websocket")

State: TypeAlias = Literal["connecting", "open", "reconnecting", "closed"]

_EVENTS = {"notification", "progress", "elicitation/request"}
#: From this size on a message is parsed in a thread: below, the hop costs more than the parse (measured).
_PARSE_INLINE = 256 * 1024
_ID = re.compile(rb'"id"\s*:\s*"([^"\\]{1,128})"')


class WebSocketTransport(Transport):
    """One connection to an ABP app behind a ``ws://`` or ``wss://`` address.

    ``headers`` go into the handshake, ``token`` becomes its ``Authorization: Bearer``; neither is ever logged.
    ``ssl`` is an :class:`ssl.SSLContext` for CAs or client certificates of your own; the default trusts the system's.
    ``proxy`` is a URL, ``None`` for no proxy, or ``True`` for what ``HTTPS_PROXY`` and its like say.

    ``max_bytes`` limits one message, counted in decoded bytes of content (base64 is a third longer on the wire).
    ``ping_interval`` and ``ping_timeout`` in seconds: a peer that is silent for longer than their sum is given up.
    With ``reconnect`` a lost connection is opened again, with growing, jittered delays; requests that were under way
    fail with ``DISCONNECTED``.

    Compression is off: content is base64 of files that are compressed already, so that deflate costs much (34 MB/s
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
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        self._options: dict[str, Any] = {
            "additional_headers": sent,
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
        self._reader: asyncio.Task[None] | None = None
        self._pending = PendingReplies()
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._state: State = "closed"
        self._unknown: Counter[str] = Counter()

    @property
    def url(self) -> str | None:
        """The app's HTTP address: relative download URLs are resolved against it."""
        parts = urlsplit(self._target)
        return urlunsplit(parts._replace(scheme={"ws": "http", "wss": "https"}[parts.scheme]))

    @property
    def state(self) -> State:
        """Where the connection stands now; changes are ``connection/…`` events."""
        return self._state

    @property
    def counts(self) -> Mapping[str, int]:
        """How many messages were ``delivered``, ``event``, ``late``, ``duplicate``, ``unknown`` or ``unreadable``."""
        return self._pending.counts

    async def open(self) -> None:
        self._state = "connecting"
        self._connection = await self._opened()
        self._state = "open"
        self._reader = asyncio.ensure_future(self._run(self._connection))

    async def _opened(self) -> ClientConnection:
        shown = redact_url(self._target)
        try:
            return await open_connection(self._target, **self._options)
        except InvalidStatus as error:
            status = error.response.status_code
            hint = "; give a token= or headers= that it accepts" if status in (401, 403) else ""
            hint = "; is that the address of its WebSocket?" if status in (200, 404, 426) else hint
            raise ConnectFailed(f"{shown} answered HTTP {status} instead of a WebSocket{hint}") from error
        except (InvalidURI, InvalidHandshake) as error:
            raise ConnectFailed(
                f"{shown} did not become a WebSocket ({type(error).__name__}); check the address"
            ) from error
        except TimeoutError as error:
            raise ConnectFailed(f"{shown} did not answer within {self._timeout:g} s; is the app running?") from error
        except ssl_module.SSLError as error:
            raise ConnectFailed(
                f"{shown}: {error.reason or 'TLS failed'}; give an ssl= context that trusts its certificate"
            ) from error
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise ConnectFailed(f"cannot connect to {shown}: {reason}; start the app or correct the address") from error

    # --- coming in ----------------------------------------------------------------------------------------------------

    async def _run(self, connection: ClientConnection | None) -> None:
        """Read until closed; open again what broke."""
        while connection is not None:
            error = await self._read(connection)
            self._connection = None
            self._pending.fail_all(error)
            if self._state == "closed" or not self._reconnect:
                break
            self._change("reconnecting", error)
            connection = await self._again()
            if connection is not None:
                self._connection = connection
                self._change("open")
        self._state = "closed"
        self._events.put_nowait(None)

    def _change(self, state: State, error: ABPError | None = None) -> None:
        self._state = state
        payload = {"state": state, "reason": error.message if error else ""}
        self._events.put_nowait(Message("connection/restored" if state == "open" else "connection/lost", payload))

    async def _again(self) -> ClientConnection | None:
        """A new connection, tried with growing, jittered delays until the transport is closed."""
        for attempt in count(1):
            await asyncio.sleep(backoff_delay(attempt))
            if self._state == "closed":
                break
            with contextlib.suppress(ConnectFailed):
                return await self._opened()
        return None

    async def _read(self, connection: ClientConnection) -> ABPError:
        """Take messages in until the connection ends; returns why it did."""
        try:
            while True:
                data = await connection.recv(decode=False)
                assert isinstance(data, bytes)
                if not await self._take(data):
                    await connection.close(1007)  # RFC 6455 §8.1
        except ConnectionClosed as closed:
            return self._ended(closed)
        except WebSocketException as error:
            return Disconnected(f"the connection broke: {type(error).__name__}")

    def _ended(self, closed: ConnectionClosed) -> ABPError:
        """Why a connection ended, as an error for those who waited (RFC 6455 §7.4.1)."""
        code = closed.rcvd.code if closed.rcvd else closed.sent.code if closed.sent else None
        ours = closed.sent is not None and not closed.rcvd_then_sent
        if code == 1009 and ours:
            return TooLarge(
                f"the app sent a message over the limit of {self._max_bytes:,} bytes; "
                "raise max_bytes=, or have the app answer with a downloadUrl",
                details={"limit": self._max_bytes},
            )
        if code == 1007 and ours:
            return ProtocolError("the app sent a text frame that is no valid UTF-8")
        if code == 1002 and ours:
            return ProtocolError("the app sent frames that break RFC 6455")
        if code == 1011 and ours:
            return Disconnected(f"the app answered no ping for {self._silence:g} s; connect again")
        said = closed.rcvd.reason if closed.rcvd else ""
        return Disconnected(
            f"the connection is gone (code {code or 1006}{': ' + said[:80] if said else ''}); connect again"
        )

    async def _take(self, data: bytes) -> bool:
        """Whether the message was text; what text says is judged by whoever asked for it."""
        try:
            if len(data) <= _PARSE_INLINE:
                message = decode_envelope(data)
            else:
                message = await asyncio.to_thread(decode_envelope, data)
        except ProtocolError as error:
            self._pending.counts["unreadable"] += 1
            if not _is_utf8(data):
                return False
            found = _ID.search(data[:4096]) or _ID.search(data[-4096:])
            if found:  # whose answer it was can still be told: no need to let it wait for its timeout
                self._pending.fail(found[1].decode(errors="replace"), error)
            logger.warning("%s", error.message)
            return True
        outcome = self._pending.deliver(message)
        if outcome != "event":
            if outcome != "delivered":
                logger.warning("ignored a %s reply (%s)", outcome, message.type)
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
        while (message := await self._events.get()) is not None:
            yield message

    # --- going out ----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        return await self._pending.request(message, self._send, timeout=timeout)

    async def notify(self, message: Message) -> None:
        await self._send(message)

    async def _send(self, message: Message) -> None:
        connection = self._connection
        if connection is None:
            raise Disconnected(
                f"the connection is {self._state}; wait for it, or connect again", details={"sent": False}
            )
        async with self._turn:  # what waits to be sent waits unencoded: a slow peer costs time, not memory
            text = await asyncio.to_thread(encode_envelope, message) if message.content else encode_envelope(message)
            try:
                await connection.send(text, text=True)
            except ConnectionClosed as closed:
                raise self._ended(closed) from closed

    async def aclose(self) -> None:
        self._state = "closed"
        connection, reader = self._connection, self._reader
        if connection is not None:
            try:
                async with asyncio.timeout(self._close_timeout):
                    await connection.close()
            except TimeoutError:  # its peer does not even read: a polite end would wait behind all that was sent
                connection.transport.abort()
        if reader is not None:
            reader.cancel()
            await asyncio.wait((reader,))
            self._reader = None
        self._pending.fail_all(Disconnected("the transport was closed during the call"))
        self._events.put_nowait(None)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
