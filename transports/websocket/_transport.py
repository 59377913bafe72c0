"""The WebSocket transport: a connection that is opened again when it breaks.

Use: ``async with connect("wss://…") as app``, or with options of the transport::

    transport = WebSocketTransport("wss://app.example/abp", token="…", ping_interval=5, ping_timeout=5)
    async with connect(transport.url, transport=transport) as app: ...
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urldefrag, urljoin, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidProxy,
    InvalidStatus,
    InvalidURI,
    SecurityError,
    WebSocketException,
)
from websockets.frames import CloseCode
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from .._internal.arguments import validate_arguments
from .._internal.tasks import MAX_DELAY, backoff_delay, cancel_and_wait, start_task
from ..base import Features, Transport
from ..errors import (
    ABPError,
    ConnectFailed,
    Disconnected,
    ProtocolError,
    TooLarge,
    UsageError,
    connection_failure,
    first_line,
    format_seconds,
    spelled,
)
from ..protocol._http_headers import check_headers, without_values
from ..protocol._plain_text import origin_of, proxy_advice, redact_url, refusal_words
from ..protocol._strict_json import PARSED_ON_LOOP
from ..protocol._times import checked_timeout
from ..protocol.messages import Message, misdirected
from ._connection import Connection
from .envelope import decode_envelope, encode_envelope
from .pending import PendingReplies

logger = logging.getLogger("transports.websocket")


class _Handshake(connect):
    """Does not follow redirects; :func:`open_connection` does, with rules of its own."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def open_connection(
    url: str, *, headers: Mapping[str, str], timeout: float, options: Mapping[str, Any]
) -> ClientConnection:
    """Open a connection, following redirects, within ``timeout`` seconds.

    ``headers`` are sent to the origin of ``url``, until the first redirect away from it. Raises
    :class:`~transports.errors.ConnectFailed` for a redirect that is not followed, and the errors of the library.
    """
    max_redirects = 5
    headers_to_send: Mapping[str, str] | None = headers
    async with asyncio.timeout(timeout):
        for _ in range(max_redirects + 1):
            try:
                return await _Handshake(url, additional_headers=headers_to_send, open_timeout=None, **options)
            except InvalidStatus as refused:
                locations = refused.response.headers.get_all("Location")
                if refused.response.status_code not in (301, 302, 303, 307, 308) or len(locations) != 1:
                    raise

            source = parse_uri(url)
            url = _redirect_address(url, locations[0])
            target = parse_uri(url)
            if (source.secure, source.host, source.port) != (target.secure, target.host, target.port):
                # For good: the other origin chooses every later address.
                headers_to_send = None
    raise ConnectFailed(f"{redact_url(url)}: more than {max_redirects} redirects; give the final address")


def _redirect_address(url: str, location: str) -> str:
    """Raises :class:`~transports.errors.ConnectFailed` for an address that is not followed."""
    try:
        target = urljoin(url, location)
        is_secure = parse_uri(target).secure
    except (InvalidURI, ValueError) as error:
        scheme, _, rest = urldefrag(location).url.partition(":")
        advice = "correct its redirect"
        if scheme.lower() in ("http", "https"):
            websocket_scheme = f"ws{scheme[4:]}"  # wss for https
            advice = f"give {redact_url(f'{websocket_scheme}:{rest}')} if the app has moved there"
        reason = error.msg if isinstance(error, InvalidURI) else "it is not valid"
        raise ConnectFailed(
            f"{redact_url(url)} redirects to {redact_url(location)}, which is not the address of a WebSocket "
            f"({reason}); {advice}"
        ) from None

    if parse_uri(url).secure and not is_secure:
        raise ConnectFailed(
            f"{redact_url(url)} redirects to {redact_url(target)}, without TLS, which is not followed; give the final "
            "address"
        )
    return target


def open_error(url: str, error: Exception, *, timeout: float, headers: Mapping[str, str]) -> ConnectFailed:
    """What a server says is quoted without the values of ``headers`` and of the address."""
    address = redact_url(url)
    match error:
        case InvalidStatus():
            words = refusal_words(bytes(error.response.body), lambda text: without_values(text, url, headers))
            return _status_error(address, error.response.status_code, words)
        case InvalidMessage(__cause__=SecurityError() as limit):
            return ConnectFailed(
                f"{address} answered with headers that are too large ({limit}); set WEBSOCKETS_MAX_LINE_LENGTH (bytes) "
                "or WEBSOCKETS_MAX_NUM_HEADERS"
            )
        case InvalidMessage():
            return ConnectFailed(f"{address} did not answer in HTTP/1.1, as a WebSocket does{_doubt_address(address)}")
        case TimeoutError():
            return ConnectFailed(f"{address} did not answer within {format_seconds(timeout)}; is the app running?")
        case ssl.SSLError():
            return _tls_error(address, error)
        case socket.gaierror() if error.errno == socket.EAI_NONAME:
            return ConnectFailed(f"cannot connect to {address}: unknown host name; correct the address")
        case OSError():
            reason = connection_failure(error)
            advice = f"start the app or correct the address{proxy_advice(url)}"
            return ConnectFailed(f"cannot connect to {address}: {reason}; {advice}")
        case InvalidProxy():
            # Its text has the whole address of the proxy, with its secrets.
            return ConnectFailed(
                f"cannot connect to {address}: the address of the proxy is not valid ({error.msg}); correct it"
            )
        case ImportError():
            return ConnectFailed(f"cannot connect to {address}: {first_line(error)}; install it, or set NO_PROXY")
        case ValueError():
            reason = first_line(error)
            if "'" in reason or '"' in reason:
                # What it quotes may be a part of the address of a proxy, with its secrets.
                reason = "an option or the address of a proxy is not valid"
            return ConnectFailed(f"cannot connect to {address}: {reason}; correct the options, or the proxy's address")

    # The text of an InvalidURI has the whole address, with its secrets.
    reason = error.msg if isinstance(error, InvalidURI) else first_line(error)
    return ConnectFailed(f"{address} did not become a WebSocket: {reason[:200]}; check the address{proxy_advice(url)}")


def _doubt_address(address: str) -> str:
    # A server with TLS answers a request without it with status 400, or with bytes of TLS.
    alternative = ", or does it need wss://" if address.startswith("ws:") else ""
    return f"; is that the address of its WebSocket{alternative}?"


def _tls_error(address: str, error: ssl.SSLError) -> ConnectFailed:
    # What OpenSSL reports for an answer without TLS.
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
        return ConnectFailed(f"{address} does not speak TLS as wss:// says ({error.reason}); try ws://")
    advice = "give an ssl= context that it accepts"
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = "give an ssl= context that trusts its certificate"
    return ConnectFailed(f"{address}: {error.reason or 'TLS failed'}; {advice}")


def _status_error(address: str, status: int, words: str) -> ConnectFailed:
    advice = ""
    if status in (401, 403):
        advice = f"; give {spelled('token= or headers=')} that it accepts"
        if status == 403:
            # Some servers, such as Django's, refuse a handshake without one.
            advice += ", perhaps an Origin"
    elif status in (200, 400, 404, 426):
        advice = _doubt_address(address)
    message = f"{address} answered HTTP {status} instead of a WebSocket{words}{advice}"
    return ConnectFailed(message, details={"status": status})


_ID_PATTERN = re.compile(rb'"id"\s*:\s*"([^"\\]{1,128})"')


def answered_requests(data: bytes) -> set[str]:
    """Returns ids near the beginning and the end of an unparsable message, which may be several replies in one."""
    ids = _ID_PATTERN.findall(data[:4096]) + _ID_PATTERN.findall(data[-4096:])
    return {request_id.decode(errors="replace") for request_id in ids}


#: Headers that each handshake has, in lower case.
_OF_HANDSHAKE = frozenset(
    {
        *("host", "upgrade", "connection", "sec-websocket-key", "sec-websocket-version"),
        *("sec-websocket-extensions", "sec-websocket-protocol"),
    }
)


def _check_headers(headers: Mapping[str, str], url: str) -> None:
    check_headers(headers, redact_url(url))
    names = [name.lower() for name in headers]
    for name in names:
        if name in _OF_HANDSHAKE:
            raise UsageError(
                f"the header {name!r} is part of each handshake; leave it out (subprotocols= is an option)"
            )
        if names.count(name) > 1:
            raise UsageError(f"the header {name!r} is given twice, perhaps by token=; give it once")
    if "authorization" in names and urlsplit(url).username:
        raise UsageError(
            f"the address has a user, and there is also an Authorization ({spelled('token= or headers=')}); give one"
        )


State: TypeAlias = Literal["connecting", "open", "reconnecting", "closed"]

_CLOSED = "the connection is closed; connect again"

#: Seconds after a loss with short delays between attempts, and the longest short delay before jitter.
_SHORT_DELAYS_FOR, _SHORT_DELAY = 60.0, 0.6


def _delays() -> Iterator[float]:
    """They grow and are jittered. In the first minute they stay short, to notice a restarted server within a second."""
    lost_at = time.monotonic()
    for attempt in count(1):
        is_recent = time.monotonic() - lost_at < _SHORT_DELAYS_FOR
        yield backoff_delay(attempt, _SHORT_DELAY if is_recent else MAX_DELAY)


class _Refusal(NamedTuple):
    request_id: str
    text: str


class WebSocketTransport(Transport):
    """Transport to an ABP app behind a ``ws://`` or ``wss://`` address.

    ``headers`` are sent with the handshake, ``token`` as its ``Authorization: Bearer``. Neither is ever logged or sent
    to another origin after a redirect. ``ssl`` is an :class:`ssl.SSLContext` for custom CAs or client certificates; the
    default trusts the system's CAs. ``proxy`` is a URL, ``None`` for no proxy, or ``True`` for the environment's
    (``HTTPS_PROXY`` and its like).

    ``timeout`` in seconds limits opening a connection, ``close_timeout`` closing it. ``max_bytes`` limits one message,
    counted in decoded bytes of content (base64 is a third longer on the wire). A peer that is silent for longer than
    ``ping_interval`` plus ``ping_timeout`` seconds is given up; while it takes a large message, and for up to a minute
    after that, it may be. With ``reconnect`` a lost connection is opened again,
    with growing, jittered delays. Requests in progress at the loss fail with ``DISCONNECTED``.

    Compression is off. Most content is base64 of files that are compressed already, so deflate costs much (34 MB/s
    against 600) and saves little. A small frame could also inflate to any size.
    """

    name = "websocket"

    @validate_arguments
    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        subprotocols: Sequence[str] = (),
        origin: str | None = None,
        ssl: ssl.SSLContext | None = None,
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
        self._timeout = checked_timeout(timeout)
        self._close_timeout = close_timeout
        self._silence = ping_interval + ping_timeout
        self._headers = dict(headers or {})
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        _check_headers(self._headers, url)

        # Base64 is a third longer than the content; 1 MiB is for the rest of the message.
        max_size = max_bytes * 4 // 3 + (1 << 20)
        self._options: dict[str, Any] = {
            "subprotocols": [Subprotocol(name) for name in subprotocols] or None,
            "origin": Origin(origin) if origin is not None else None,
            "proxy": proxy,
            "compression": None,
            "ping_interval": ping_interval,
            "ping_timeout": ping_timeout,
            "close_timeout": close_timeout,
            "max_size": max_size,
            "create_connection": partial(Connection, on_message=self._on_message, message_limit=max_size),
        }
        if ssl is not None:
            self._options["ssl"] = ssl

        self._connection: Connection | None = None
        self._read_task: asyncio.Task[None] | None = None
        self._pending = PendingReplies()
        #: Bytes of the messages of requests under way, by id.
        self._sizes: dict[str, int] = {}
        self._refusal: _Refusal | None = None
        #: Events of the app and changes of the connection. ``None`` is the end.
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._has_unknown_types = False
        self._has_answered = False
        self._send_lock = asyncio.Lock()
        self._state: State = "closed"
        self._loss = _CLOSED

    @property
    def url(self) -> str | None:
        """HTTP address of the app, the base of relative download URLs."""
        parts = urlsplit(self._target)
        scheme = "https" if parts.scheme == "wss" else "http"
        return urlunsplit(parts._replace(scheme=scheme))

    def receiver(self, message: Message) -> str | None:
        """Return the HTTP address of the current connection, which a redirect may have changed."""
        if self._connection is None:
            return self.url
        return _http_address(self._connection)

    @property
    def server_address(self) -> tuple[str, int] | None:
        """Socket address of the current connection; ``None`` after a redirect to another host."""
        connection = self._connection
        if connection is None or connection.protocol.uri.host != urlsplit(self._target).hostname:
            return None
        host, port = connection.remote_address[:2]
        return host, port

    @property
    def state(self) -> State:
        """Current state of the connection. Each change is a ``connection/…`` event too."""
        return self._state

    @property
    def counts(self) -> Mapping[str, int]:
        """Counts of messages by outcome: ``delivered``, ``event``, ``late``, ``duplicate``, ``unknown`` or
        ``unreadable``."""
        return self._pending.counts

    async def open(self) -> None:
        """Connect and start reading. Raises :class:`~transports.errors.ConnectFailed`."""
        self._state = "connecting"
        self._connection = await self._connect()
        self._state = "open"
        self._read_task = start_task(self._keep_connected(self._connection), self._close_after_bug)

    async def _connect(self) -> Connection:
        try:
            connection = await open_connection(
                self._target, headers=self._headers, timeout=self._timeout, options=self._options
            )
        except (WebSocketException, OSError, ImportError, ValueError) as error:
            # TimeoutError and SSLError are kinds of OSError. A package for SOCKS may be missing; options that do not
            # match, and some addresses of proxies, are a ValueError.
            raise open_error(self._target, error, timeout=self._timeout, headers=self._headers) from None
        assert isinstance(connection, Connection)
        return connection

    # --- receiving ---------------------------------------------------------------------------------------------------

    async def _keep_connected(self, connection: Connection) -> None:
        delays = _delays()
        while True:
            opened_at = time.monotonic()
            error = await self._receive_until_closed(connection)
            # A server may accept each connection and then close it: that is still the same loss.
            is_new_loss = time.monotonic() - opened_at >= 5.0
            if is_new_loss:
                delays = _delays()
            self._connection = None
            self._loss = error.message
            self._pending.fail_all(error)
            if self._state == "closed" or not self._reconnect:
                break

            self._set_state("reconnecting", error)
            connection = await self._connect_again(delays)
            self._connection = connection
            self._refusal = None
            self._set_state("open")
        self._state = "closed"
        self._events.put_nowait(None)

    def _close_after_bug(self, error: BaseException) -> None:
        """Called after a bug in the task that reads the connection."""
        self._connection = None
        self._state = "closed"
        self._loss = f"reading the connection failed ({type(error).__name__}); connect again"
        self._pending.fail_all(Disconnected(self._loss))
        self._events.put_nowait(None)

    def _set_state(self, state: State, error: ABPError | None = None) -> None:
        self._state = state
        kind = "connection/restored" if state == "open" else "connection/lost"
        self._events.put_nowait(Message(kind, {"state": state, "reason": error.message if error else ""}))

    async def _connect_again(self, delays: Iterator[float]) -> Connection:
        while True:
            await asyncio.sleep(next(delays))
            try:
                return await self._connect()
            except ConnectFailed as error:
                self._events.put_nowait(Message("connection/waiting", {"reason": error.message}))
            except Exception:
                # Without this, a bug here would leave a transport that is "reconnecting" for ever.
                logger.exception("connecting to %s again failed", redact_url(self._target))

    async def _receive_until_closed(self, connection: Connection) -> ABPError:
        """Returns the error that ended the connection."""
        try:
            while True:
                # Without a name, which would keep a large message in memory until the next one.
                await self._handle_large(*await connection.receive())
        except ConnectionClosed as closed:
            self._note_refusal(closed)
            if self._refusal is not None:
                self._pending.fail(self._refusal.request_id, TooLarge(self._refusal.text))
            return self._close_error(closed)
        except UnicodeDecodeError:
            # RFC 6455 §8.1.
            await connection.close(1007)
            return self._close_error(connection.protocol.close_exc)
        except WebSocketException as error:
            return self._lost_error(f"the connection broke ({type(error).__name__})")
        except Exception:
            # Without this, a bug here would leave a connection that looks open and reads nothing.
            logger.exception("reading %s failed", redact_url(self._target))
            await connection.close(1011)
            return self._lost_error("reading from the connection failed, so it was closed")

    def _close_error(self, closed: ConnectionClosed) -> ABPError:
        """The error for requests in progress at the end of the connection (RFC 6455 §7.4.1)."""
        close_frame = closed.rcvd or closed.sent
        code = close_frame.code if close_frame else CloseCode.ABNORMAL_CLOSURE.value

        # An app that closes the connection itself may use these codes for other reasons.
        if _is_closed_here(closed):
            match code:
                case CloseCode.MESSAGE_TOO_BIG:
                    return TooLarge(
                        f"the app sent a message over the limit of {self._max_bytes:,} bytes; "
                        "raise max_bytes=, or have the app answer with a downloadUrl",
                        details={"limit": self._max_bytes},
                    )
                case CloseCode.INVALID_DATA:
                    return ProtocolError("the app sent a text frame that is not valid UTF-8")
                case CloseCode.PROTOCOL_ERROR:
                    return ProtocolError("the app sent frames that break RFC 6455")
                case CloseCode.INTERNAL_ERROR:
                    silence = format_seconds(self._silence)
                    return self._lost_error(f"the app answered no ping for {silence} (ping_timeout= gives it longer)")

        return self._lost_error(f"the connection was lost (code {code}{self._reason_of(closed)})")

    def _note_refusal(self, closed: ConnectionClosed) -> None:
        """If the app has closed the connection because of the size of a request, that was the largest under way."""
        is_for_size = closed.rcvd is not None and closed.rcvd.code == CloseCode.MESSAGE_TOO_BIG
        is_by_app = is_for_size and not _is_closed_here(closed)
        if not is_by_app or self._refusal is not None or not self._sizes:
            return
        request_id, size = max(self._sizes.items(), key=itemgetter(1))
        self._refusal = _Refusal(
            request_id,
            f"the app refused a message of {size:,} bytes as too large (code 1009{self._reason_of(closed)}); send less "
            "at once, or raise the app's limit",
        )

    def _reason_of(self, closed: ConnectionClosed) -> str:
        if closed.rcvd is None or not closed.rcvd.reason:
            return ""
        # At most 123 bytes (RFC 6455 §5.5), not cut: the beginning of a secret would not be found.
        return f": {without_values(closed.rcvd.reason, self._target, self._headers)}"

    def _lost_error(self, event: str) -> Disconnected:
        # An app that closes the connection before its first answer refuses it, as for a wrong token.
        is_reopened = self._reconnect and self._has_answered
        advice = "it is opened again" if is_reopened else "connect again"
        return Disconnected(f"{event}; {advice}")

    def _on_message(self, data: bytes, is_text: bool) -> bool:
        """Returns false for a large message. Raises :class:`UnicodeDecodeError` for text that is not valid UTF-8."""
        if len(data) > PARSED_ON_LOOP:
            return False
        try:
            message = decode_envelope(data)
        except Exception as error:  # noqa: BLE001 - any failure concerns this message only
            if is_text:
                data.decode()  # raises UnicodeDecodeError
            self._refuse(data, error)
        else:
            self._deliver(message)
        return True

    async def _handle_large(self, data: bytes, is_text: bool) -> None:
        try:
            message = await asyncio.to_thread(decode_envelope, data)
        except Exception as error:  # noqa: BLE001 - as above
            if is_text:
                await asyncio.to_thread(data.decode)
            self._refuse(data, error)
        else:
            self._deliver(message)

    def _deliver(self, message: Message) -> None:
        outcome = self._pending.deliver(message)
        if outcome == "delivered":
            return

        if outcome != "event":
            # Late replies are normal: they belong to calls that were cancelled or timed out.
            level = logging.INFO if outcome == "late" else logging.WARNING
            logger.log(level, "ignored a %s reply (%s)", outcome, message.type)
        elif message.type in ("notification", "progress", "elicitation/request"):
            self._events.put_nowait(message)
        elif not self._has_unknown_types:
            self._has_unknown_types = True
            logger.warning(
                "ignored a message of the unknown type %r; more of them are ignored quietly", message.type[:80]
            )

    def _refuse(self, data: bytes, reason: Exception) -> None:
        """The requests that the message answers fail now, not at their timeouts."""
        error = reason
        if not isinstance(error, ProtocolError):
            error = ProtocolError(f"the app sent a message that cannot be read ({type(reason).__name__})")
        for request_id in answered_requests(data):
            self._pending.fail(request_id, ProtocolError(error.message, code=error.code, details=error.details))

        # Some apps also send messages of another protocol, such as a heartbeat.
        if not self._pending.counts["unreadable"]:
            logger.warning("ignored a message: %s; more of them are ignored quietly", error.message)
        self._pending.counts["unreadable"] += 1

    async def events(self) -> AsyncIterator[Message]:
        """Yield events of the app and changes of the connection, in order, until the transport is closed."""
        while (message := await self._events.get()) is not None:
            yield message

    # --- sending -----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request and wait for its reply; see :meth:`Transport.request <transports.base.Transport.request>`.

        Raises :class:`~transports.errors.TooLarge` if the reply is over ``max_bytes``, or the request over the app's
        limit.
        """
        try:
            reply = await self._pending.request(message, self._send, timeout=timeout)
        finally:
            self._sizes.pop(message.id or "", None)
        self._has_answered = True
        return reply

    async def notify(self, message: Message) -> None:
        """Send a message that has no reply. Raises :class:`~transports.errors.Disconnected` without a connection."""
        try:
            sending = self._send(message)
            if sending is not None:
                await sending
        finally:
            self._sizes.pop(message.id or "", None)

    def _send(self, message: Message) -> Awaitable[None] | None:
        """Sends now, or returns an awaitable that sends, for files (read in a thread) or a slow peer."""
        connection = self._connection
        if connection is None:
            raise Disconnected(self._loss, sent=False)
        if message.origins is not None:
            address = _http_address(connection)
            if origin_of(address) not in message.origins:
                raise misdirected(address)

        if message.content or self._send_lock.locked() or not connection.can_send_now:
            return self._send_later(connection, message)
        connection.send_now(self._encode(message))
        return None

    async def _send_later(self, connection: Connection, message: Message) -> None:
        # Messages wait here unencoded: a slow peer costs time, not memory.
        async with self._send_lock:
            if message.content:
                text = await asyncio.to_thread(self._encode, message)
            else:
                text = self._encode(message)
            was_open = connection.is_open
            try:
                await connection.send_text(text)
            except ConnectionClosed as closed:
                self._note_refusal(closed)
                if self._refusal is not None and self._refusal.request_id == message.id:
                    raise TooLarge(self._refusal.text) from None
                error = self._close_error(closed)
                if not was_open:
                    error.sent = False
                raise error from None

    def _encode(self, message: Message) -> bytes:
        text = encode_envelope(message)
        self._sizes[message.id or ""] = len(text)
        return text

    async def aclose(self) -> None:
        """Close the connection. A peer that does not read is cut off after ``close_timeout`` seconds."""
        self._state = "closed"
        self._loss = _CLOSED
        try:
            if self._connection is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._close_timeout):
                        await self._connection.close()
        finally:
            # Even if closing is cancelled.
            self._pending.fail_all(Disconnected("the transport was closed during the call"))
            self._events.put_nowait(None)

        if self._read_task is not None:
            await cancel_and_wait((self._read_task,))
            self._read_task = None


def _is_closed_here(closed: ConnectionClosed) -> bool:
    return closed.sent is not None and not closed.rcvd_then_sent


def _http_address(connection: Connection) -> str:
    uri = connection.protocol.uri
    scheme = "https" if uri.secure else "http"
    host = f"[{uri.host}]" if ":" in uri.host else uri.host
    return f"{scheme}://{host}:{uri.port}{uri.path}"
