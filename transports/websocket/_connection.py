"""WebSocket connection that reads message frames itself.

The library (``websockets``) opens the connection, through proxies, TLS and redirects. It also keeps the rare parts of
RFC 6455: the handshake, control frames, closing, and every invalid frame. Its own reading of messages takes a task
switch for each, and copies that hold the event loop: with it 100 small calls one after the other take 19 ms instead of
16 ms, and an answer of 60 MB holds the loop for 200 ms instead of 7 ms.
"""

from __future__ import annotations

import asyncio
import io
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from websockets.asyncio.client import ClientConnection
from websockets.frames import CloseCode, Opcode
from websockets.protocol import State

_BUFFER_BYTES = 64 * 1024
_FIN = 0x80
_PONG = _FIN | Opcode.PONG
_CONTROL = {_FIN | Opcode.CLOSE, _FIN | Opcode.PING, _PONG}
#: Bytes per second that the slowest peer reads, and the seconds that it gets at most for what was sent before a ping.
#: The pong comes after all of that, and buffers on the way, of some megabytes, hide how much the peer has read.
_SLOWEST_RATE, _MAX_EXTRA = 64 * 1024, 60.0

#: Handler of a message, called in the event loop with the content and whether it is text. Returns false if handling
#: would take long: the message then goes to :meth:`Connection.receive`. Messages come in order. An exception ends the
#: connection.
OnMessage: TypeAlias = Callable[[bytes, bool], bool]


class _Head(NamedTuple):
    """Head of a frame. ``payload`` is its position in the buffer."""

    first: int
    payload: int
    length: int

    @property
    def payload_end(self) -> int:
        return self.payload + self.length


class Connection(ClientConnection, asyncio.BufferedProtocol):
    """``message_limit`` is in bytes, for all frames of a message. Use it as
    ``websockets.connect(create_connection=…)``."""

    def __init__(self, *args: Any, on_message: OnMessage, message_limit: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._on_message = on_message
        self._message_limit = message_limit
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._end = 0  # of the bytes in the buffer
        self._response_tail = b""  # the last bytes of the response to the handshake
        self._reads_frames = False  # after the handshake, before the end

        # The message that has begun, if any, and its current frame.
        self._message: io.BytesIO | None = None
        self._is_text = False
        self._is_last_frame = False
        self._missing = 0  # bytes of the frame

        # For `receive`: messages that `on_message` has declined, and the exception that it raised.
        self._declined: deque[tuple[bytes, bool]] = deque()
        self._error: Exception | None = None
        self._changed = asyncio.Event()

        # For signs of life of the peer.
        self._is_slow = False  # the peer reads too slowly
        self._reads = 0  # reads from the socket so far
        self._sent = 0  # bytes of messages sent so far
        self._read_by_peer = 0  # bytes of messages that the peer has read for certain

    @property
    def is_open(self) -> bool:
        return self.protocol.state is State.OPEN

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def receive(self) -> tuple[bytes, bool]:
        """Return the next message that ``on_message`` has declined, and whether it is text.

        Reading pauses from its arrival to the next call. Raises the exception of ``on_message``, if any, and
        :class:`websockets.exceptions.ConnectionClosed` once the connection is closed."""
        while not self._declined:
            if self._error is not None:
                raise self._error
            if self.protocol.close_expected():
                # The end of the peer's side is read, too. It might never come; this is bounded in time.
                self.transport.resume_reading()
                await self.close()
            if self.protocol.state is State.CLOSED:
                raise self.protocol.close_exc

            self.transport.resume_reading()
            self._changed.clear()
            await self._changed.wait()
        return self._declined.popleft()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._reads += 1
        self._end += nbytes
        if self._reads_frames or self._read_response():
            self._read_frames()
            if not self.is_open:
                self._changed.set()

    def data_received(self, data: bytes) -> None:
        """Some event loops (uvloop) call this instead of filling the buffer."""
        rest = memoryview(data)
        while rest:
            size = min(len(rest), _BUFFER_BYTES - self._end)
            self._buffer[self._end : self._end + size] = rest[:size]
            self.buffer_updated(size)
            rest = rest[size:]

    def _read_response(self) -> bool:
        """Pass bytes that are not frames to the library: the response to the handshake, and everything after the end.

        Returns whether frames follow."""
        data = bytes(self._buffer[: self._end])
        self._end = 0

        # The blank line that ends the response may have begun in an earlier read: up to three bytes are kept.
        blank_line = b"\r\n\r\n"
        searched = self._response_tail + data
        position = -1
        if self.protocol.state is State.CONNECTING:
            position = searched.find(blank_line)
        if position < 0:
            self._response_tail = searched[-3:]
            super().data_received(data)
            return False

        response_bytes = position + len(blank_line) - len(self._response_tail)
        rest = data[response_bytes:]
        super().data_received(data[:response_bytes])
        if not self.is_open:
            # The server refused; the text of its error follows.
            super().data_received(rest)
            return False

        self._reads_frames = True
        self._end = len(rest)
        self._buffer[: self._end] = rest
        return True

    def _read_frames(self) -> None:
        """Only an incomplete head or control frame stays in the buffer."""
        max_control = 125  # bytes of the payload of a control frame (RFC 6455 §5.5)
        start = 0
        end = self._end
        while self._reads_frames:
            if self._missing:
                start = self._read_payload(start, end)
            head = self._read_head(start, end)
            if head is None:
                break
            if head.first in _CONTROL and head.length <= max_control:
                if end < head.payload_end:
                    break
                self._read_control(bytes(self._buffer[start : head.payload_end]))
                start = head.payload_end
            else:
                start = self._read_message_frame(head, start, end)

        # Unread bytes move to the beginning of the buffer. After the end of the connection they are of no use.
        self._end = 0
        if self._reads_frames:
            self._end = end - start
            self._buffer[: self._end] = self._buffer[start:end]

    def _read_head(self, start: int, end: int) -> _Head | None:
        """Returns ``None`` if the head is incomplete, or the connection has failed."""
        # The head has two bytes, and 2 or 8 more for a length that does not fit into 7 bits (RFC 6455 §5.2).
        if end - start < 2:
            return None
        length = self._buffer[start + 1]
        payload = start + 2
        if length >= 0x80:
            # The bit of a masked frame. A server must not mask its frames (RFC 6455 §5.1).
            self._fail(CloseCode.PROTOCOL_ERROR, "masked frame")
            return None
        if length >= 126:
            payload += 2 if length == 126 else 8
            if end < payload:
                return None
            length = int.from_bytes(self._buffer[start + 2 : payload])
        return _Head(self._buffer[start], payload, length)

    def _read_message_frame(self, head: _Head, start: int, end: int) -> int:
        """Reads as far as the frame has arrived, and returns the position after that."""
        opcode = head.first & ~_FIN
        is_last = head.first >= _FIN
        if not self._is_expected(opcode):
            self._fail(CloseCode.PROTOCOL_ERROR, "unexpected frame")
            return start
        if self._message_size() + head.length > self._message_limit:
            self._fail(CloseCode.MESSAGE_TOO_BIG, f"over the limit of {self._message_limit} bytes")
            return start
        if self._message is None and is_last and end >= head.payload_end:
            # The usual case: the whole message is in the buffer.
            self._deliver(bytes(self._buffer[head.payload : head.payload_end]), opcode == Opcode.TEXT)
            return head.payload_end
        self._begin_frame(opcode, is_last, head.length)
        return self._read_payload(head.payload, end)

    def _is_expected(self, opcode: int) -> bool:
        if self._message is None:
            return opcode in (Opcode.TEXT, Opcode.BINARY)
        return opcode == Opcode.CONT

    def _message_size(self) -> int:
        if self._message is None:
            return 0
        return self._message.tell()

    def _begin_frame(self, opcode: int, is_last: bool, length: int) -> None:
        """The payload arrives in pieces, or the frame is a part of a message."""
        if self._message is None:
            self._message = io.BytesIO()
            self._is_text = opcode == Opcode.TEXT
        self._is_last_frame = is_last
        self._missing = length

    def _read_payload(self, start: int, end: int) -> int:
        """Delivers the message if it is whole. Returns the position after the bytes of the frame."""
        assert self._message is not None
        end = min(end, start + self._missing)
        self._message.write(self._buffer[start:end])
        self._missing -= end - start

        if self._is_last_frame and not self._missing:
            message = self._message.getvalue()
            self._message = None
            self._deliver(message, self._is_text)
        return end

    def _read_control(self, frame: bytes) -> None:
        if frame[0] == _PONG:
            self._read_by_peer = int.from_bytes(frame[2:])
        super().data_received(frame)
        self._reads_frames = self.is_open

    def _fail(self, code: CloseCode, reason: str) -> None:
        """Ends the connection (RFC 6455 §7.1.7). The library discards the rest."""
        self._reads_frames = False
        self.protocol.fail(code, reason)
        # Writes the closing frame, and sets the deadline for the peer's answer.
        super().data_received(b"")
        self._changed.set()

    def _deliver(self, message: bytes, is_text: bool) -> None:
        """The message goes to :meth:`receive` if ``on_message`` declines it or an earlier one still waits."""
        try:
            if not self._declined and self._on_message(message, is_text):
                return
        except Exception as error:  # noqa: BLE001 - raised again by `receive`
            self._error = error
            self._reads_frames = False
        else:
            self._declined.append((message, is_text))
            self.transport.pause_reading()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._changed.set()

    async def close(self, code: CloseCode | int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        # The library aborts a closed transport, which asyncio does not allow if bytes were to be written at its end.
        try:
            with suppress(AttributeError):
                await super().close(code, reason)
        except asyncio.CancelledError:
            # A peer that does not read gets the close frame only after everything sent before: it is cut off.
            with suppress(AttributeError):
                self.transport.abort()
            raise

    # --- sending ------------------------------------------------------------------------------------------------------

    @property
    def can_send_now(self) -> bool:
        """True if the connection is open and the peer reads what is sent."""
        return self.is_open and not self._is_slow

    def send_now(self, text: bytes) -> None:
        """Only if :attr:`can_send_now`. With the library's ``send`` 100 calls at once take 18 % longer."""
        self._sent += len(text)
        self.protocol.send_text(text)
        self.send_data()

    async def send_text(self, text: bytes) -> None:
        """Waits while the peer reads too slowly. Raises :class:`websockets.exceptions.ConnectionClosed`."""
        self._sent += len(text)
        try:
            await self.send(text, text=True)
        except AttributeError:  # as in `close`
            raise self.protocol.close_exc from None

    def pause_writing(self) -> None:
        self._is_slow = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._is_slow = False
        super().resume_writing()

    # --- life of the peer ---------------------------------------------------------------------------------------------

    async def keepalive(self) -> None:
        """Replaces the library's, for which only the pong is a sign of life: that comes after a large message in either
        direction, and may take longer than any timeout."""
        assert self.ping_interval is not None and self.ping_timeout is not None
        while True:
            await asyncio.sleep(self.ping_interval)
            if not self.is_open:
                return

            # Not ping(), which waits while the peer reads too slowly.
            self.protocol.send_ping(self._sent.to_bytes(8))
            self.send_data()
            if not await self._is_alive(self.ping_timeout):
                self._fail(CloseCode.INTERNAL_ERROR, "no answer to a ping")
                return

    async def _is_alive(self, timeout: float) -> bool:
        """Returns whether a byte arrives, at most ``timeout`` seconds after the peer has read what was sent before."""
        reads_before = self._reads
        unread = max(self._sent - self._read_by_peer, 0)
        patience = timeout + min(unread / _SLOWEST_RATE, _MAX_EXTRA)

        # Bytes that are sent from now on prove nothing: the system of a stopped peer takes them, too.
        taken = self._bytes_taken()
        earlier_taken = taken + unread  # the number when all earlier bytes are taken
        silent_since = self.loop.time()
        while self.is_open and self._reads == reads_before:
            if self.loop.time() - silent_since > patience:
                return False
            await asyncio.sleep(timeout / 10)

            taken_before = taken
            taken = self._bytes_taken()
            if taken_before < taken <= earlier_taken:
                silent_since = self.loop.time()
        return True

    def _bytes_taken(self) -> int:
        """On Linux those that the peer's system has acknowledged: with TLS the write buffer of asyncio passes
        everything on at once."""
        if sys.platform != "linux":
            return self._sent - self.transport.get_write_buffer_size()
        connection = self.transport.get_extra_info("socket")
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
        acknowledged = info[120:128]  # tcpi_bytes_acked of Linux's struct tcp_info
        return int.from_bytes(acknowledged, sys.byteorder)
