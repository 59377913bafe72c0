"""WebSocket connection that parses message frames without copies.

Each byte is read once: small messages in the read buffer, large ones straight into their own memory. The library
(``websockets``) opens the connection, through proxies, TLS and redirects. It also keeps the rare parts of RFC 6455: the
handshake, control frames, closing, and every invalid frame. Its own parsing of messages costs two copies in the event
loop (70-280 ms for 85 MB) and a task switch for each message.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from websockets.asyncio.client import ClientConnection
from websockets.frames import CloseCode, Opcode
from websockets.protocol import State

try:
    from websockets.speedups import apply_mask
except ImportError:  # a build of the library without its compiled part
    from websockets.utils import apply_mask


#: Bytes read at a time while frames are small, and the size of the largest small frame.
_BUFFER = 64 * 1024
#: Bytes of a large frame read at a time. Other tasks wait that long (measured: 0.5 ms).
_PIECE = 1 << 20
#: Maximum bytes of messages held back for the end of a loop iteration, to be written in one piece.
_MAX_HELD = 64 * 1024
#: Approximate memory of a message beside its content, in bytes.
_OVERHEAD = 128
_HEAD_END = b"\r\n\r\n"
_FIN, _TEXT, _BINARY, _CONTINUED = 0x80, int(Opcode.TEXT), int(Opcode.BINARY), int(Opcode.CONT)
_WHOLE_TEXT = _FIN | _TEXT
#: First two bytes of an outgoing text frame: the mask bit is set, the length is missing.
_HEAD = _WHOLE_TEXT << 8 | 0x80
#: First bytes of control frames, and the maximum bytes of their payload (RFC 6455 §5.5).
_PONG = _FIN | Opcode.PONG
_CONTROL, _MAX_CONTROL = {_FIN | Opcode.CLOSE, _FIN | Opcode.PING, _PONG}, 125
#: Bytes per second that the slowest peer reads. A pong stands behind all that was sent before the ping, and buffers on
#: the way hide how much of it the peer has read. They hold some megabytes, so it gets a minute more at most.
_SLOWEST, _MAX_EXTRA = 64 * 1024, 60.0
#: Bytes that the peer's system has acknowledged, in ``tcp_info`` of Linux. The write buffer of asyncio is no measure of
#: it with TLS, which passes everything on at once.
_ACKNOWLEDGED = slice(120, 128)


#: Handler of a message, called in the event loop with the content and whether it is text. Returns false if handling
#: would take long: the message then goes to :meth:`Connection.receive`. Messages come in order. An exception ends the
#: connection.
OnMessage: TypeAlias = Callable[[bytes, bool], bool]


class Connection(ClientConnection, asyncio.BufferedProtocol):
    """Connection for ``websockets.connect(create_connection=…)``. ``on_message`` gets its messages.

    ``message_limit`` limits a message in bytes, whatever its number of frames. Reading from the socket pauses while the
    messages that wait for :meth:`receive` exceed the limit together.
    """

    def __init__(self, *args: Any, on_message: OnMessage, message_limit: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._on_message = on_message
        self._limit = message_limit
        self._buffer = memoryview(bytearray(_BUFFER))
        self._end = 0  # of the bytes in the buffer
        self._head = b""  # the last bytes of the handshake's response
        self._framed = False  # frames are parsed here: after the handshake, before the end
        self._large: memoryview | None = None  # the large frame being received
        self._large_file = io.BytesIO()
        self._received = 0  # bytes of the large frame so far
        self._first = 0  # first byte of the large frame: FIN and opcode
        self._parts: io.BytesIO | None = None  # a message in several frames
        self._parts_text = True
        self._waiting: deque[bytes] = deque()
        self._waiting_size = 0
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self._held: list[bytes] = []
        self._held_size = 0
        self._reads = 0  # reads from the socket so far
        self._sent = 0  # bytes of messages sent so far, and how many of them the peer has read for certain
        self._read_by_peer = 0
        #: True while the peer reads too slowly, so that nothing can be sent at once.
        self.slow = False

    @property
    def _open(self) -> bool:
        return self.protocol.state is State.OPEN

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes:
        """Return the next message that ``on_message`` has declined. Call :meth:`done` when it is handled.

        Raises the exception of ``on_message``, if any, and :class:`websockets.exceptions.ConnectionClosed` once the
        connection is closed.
        """
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self.protocol.close_expected():
                await self.close()  # bounded in time, unlike a peer that does not close its side
            if self.protocol.state is State.CLOSED:
                raise self.protocol.close_exc
            self._changed.clear()
            await self._changed.wait()
        return self._waiting[0]

    def done(self) -> None:
        """Mark the message of :meth:`receive` as handled, and resume reading if it was paused."""
        self._waiting_size -= len(self._waiting.popleft()) + _OVERHEAD
        if self._waiting_size <= self._limit:
            self.transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes (:class:`asyncio.BufferedProtocol`)."""
        self._finish_large()  # over TLS the next read may come before the scheduled call
        if self._large is not None:
            return self._large[self._received : self._received + _PIECE]
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes that have arrived (:class:`asyncio.BufferedProtocol`)."""
        self._reads += 1
        if self._large is not None:
            self._received += nbytes
            if self._received == len(self._large):  # the caller still holds a view, which would force a copy now
                self.loop.call_soon(self._finish_large)
            return
        self._end += nbytes
        if not self._framed and not self._read_response():
            return
        self._read_frames()
        if not self._open:
            self._changed.set()

    def _read_response(self) -> bool:
        """Pass bytes that are not frames to the library: the response to the handshake, and everything after the end.

        Returns whether frames follow.
        """
        data, self._end = bytes(self._buffer[: self._end]), 0
        known = self._head
        if self.protocol.state is not State.CONNECTING or (end := (known + data).find(_HEAD_END)) < 0:
            self._head = (known + data)[-len(_HEAD_END) + 1 :]
            self.data_received(data)
            return False
        end += len(_HEAD_END) - len(known)
        self.data_received(data[:end])
        if not self._open:  # an error, whose text follows
            self.data_received(data[end:])
            return False
        self._framed = True
        self._end = len(data) - end
        self._buffer[: self._end] = data[end:]
        return True

    def _read_frames(self) -> None:
        """Process all whole frames in the buffer."""
        buffer, at, end = self._buffer, 0, self._end
        while self._framed and end - at >= 2:
            first, length = buffer[at], buffer[at + 1]
            body = at + 2
            if length >= 126:
                body += 2 if length == 126 else 8
                if length <= 127 and end < body:
                    break
                length = int.from_bytes(buffer[at + 2 : body]) if length <= 127 else -1  # -1: masked, as no server may
            if first in _CONTROL and 0 <= length <= _MAX_CONTROL:
                if end - body < length:
                    break
                at, control = body + length, bytes(buffer[at : body + length])
                if first == _PONG:
                    self._read_by_peer = int.from_bytes(control[2:])
                self.write_held()  # nothing may follow a closing frame
                self.data_received(control)
                self._framed = self._open
                continue
            parts = self._parts
            expected = first & ~_FIN in (_TEXT, _BINARY) if parts is None else first & ~_FIN == _CONTINUED
            if not expected or length < 0:
                self._fail(CloseCode.PROTOCOL_ERROR, "unexpected frame")
            elif length + (parts.tell() if parts is not None else 0) > self._limit:
                self._fail(CloseCode.MESSAGE_TOO_BIG, f"over the limit of {self._limit} bytes")
            elif end - body >= length:
                data = bytes(buffer[body : body + length])
                at = body + length
                if parts is None and first & _FIN:
                    self._deliver(data, first == _WHOLE_TEXT)
                else:
                    self._take(first, data)
            elif body - at + length <= _BUFFER:
                break
            else:
                self._begin_large(first, length, buffer[body:end])
                at = end
        self._end = end - at if self._framed else 0
        if at and self._end:
            buffer[: self._end] = buffer[at:end]

    def _fail(self, code: CloseCode, reason: str) -> None:
        """End the connection because of an invalid frame (RFC 6455 §7.1.7). The library discards the rest."""
        self.write_held()
        self._framed = False
        self.protocol.fail(code, reason)
        self.data_received(b"")  # writes the closing frame and sets the deadline for the peer's answer
        self._changed.set()

    def _begin_large(self, first: int, length: int, begun: memoryview) -> None:
        # Zeroed memory of this size is not touched until it is written, and the file hands it out uncopied.
        self._large_file = io.BytesIO(bytes(length))
        self._large = self._large_file.getbuffer()
        self._large[: len(begun)] = begun
        self._received = len(begun)
        self._first = first

    def _finish_large(self) -> None:
        """Process the large frame if it is whole. A large frame that was begun since then stays."""
        if self._large is not None and self._received == len(self._large):
            self._large = None
            file, self._large_file = self._large_file, io.BytesIO()
            self._take(self._first, file.getvalue())

    def _take(self, first: int, data: bytes) -> None:
        """Add a frame to its message, and deliver the message if the frame is its last."""
        final = first & _FIN
        if self._parts is None:
            text = first & ~_FIN == _TEXT
            if final:
                self._deliver(data, text)
                return
            self._parts, self._parts_text = io.BytesIO(), text
        self._parts.write(data)
        if final:
            data, self._parts = self._parts.getvalue(), None
            self._deliver(data, self._parts_text)

    def _deliver(self, data: bytes, text: bool) -> None:
        try:
            if not self._waiting and self._on_message(data, text):
                return
        except Exception as error:  # noqa: BLE001 - raised again by `receive`
            self._error = error
            self._framed = False
        else:
            self._waiting.append(data)
            self._waiting_size += len(data) + _OVERHEAD
            if self._waiting_size > self._limit:
                self.transport.pause_reading()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the reader (:class:`asyncio.BaseProtocol`)."""
        super().connection_lost(exc)
        self._held.clear()
        self._changed.set()

    # --- sending ------------------------------------------------------------------------------------------------------

    def send_at_once(self, text: bytes, *, hold: bool) -> bool:
        """Send a text message without waiting, and return whether that was possible.

        It is not if the peer reads too slowly or the connection is closing: :meth:`send` then waits or raises. With
        ``hold`` the message is written at the end of this loop iteration, in one piece with others: a system call costs
        as much as the rest of sending.
        """
        if self.slow or not self._open:
            return False
        held = self._held
        if not held and hold:
            self.loop.call_soon(self.write_held)
        held.append(text)
        self._held_size += len(text)
        if (not hold and len(held) == 1) or self._held_size > _MAX_HELD:
            self.write_held()
        return True

    def write_held(self) -> None:
        """Write the messages that are held back."""
        if self._held:
            data, self._held_size = _text_frames(self._held), 0
            self._held.clear()
            if self._open:
                self._sent += len(data)
                self.transport.write(data)

    async def send_text(self, text: bytes) -> None:
        """Send a text message, after those that are held back, and wait while the peer reads too slowly. Raises
        :class:`websockets.exceptions.ConnectionClosed`."""
        self.write_held()
        self._sent += len(text)
        await self.send(text, text=True)

    def pause_writing(self) -> None:
        """Disable sending at once, since the peer reads too slowly (:class:`asyncio.BaseProtocol`)."""
        self.slow = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Enable sending at once again (:class:`asyncio.BaseProtocol`)."""
        self.slow = False
        super().resume_writing()

    # --- life of the peer ---------------------------------------------------------------------------------------------

    async def keepalive(self) -> None:
        """Ping the peer every ``ping_interval`` seconds, and give it up if it is silent then.

        In place of the library's, for which only the pong is a sign of life: that stands behind a large message in
        either direction, and may take longer than any timeout.
        """
        assert self.ping_interval is not None and self.ping_timeout is not None
        while True:
            await asyncio.sleep(self.ping_interval)
            if not self._open:
                return
            self.protocol.send_ping(self._sent.to_bytes(8))  # not ping(), which waits while the peer reads too slowly
            self.send_data()
            if not await self._is_alive(self.ping_timeout):
                self._fail(CloseCode.INTERNAL_ERROR, "no answer to a ping")
                return

    async def _is_alive(self, timeout: float) -> bool:
        """Return whether a byte arrives, at most ``timeout`` seconds after the peer has read what was sent before."""
        reads, ahead = self._reads, max(self._sent - self._read_by_peer, 0)
        patience = timeout + min(ahead / _SLOWEST, _MAX_EXTRA)
        taken = self._taken()
        end = taken + ahead  # what is sent later proves nothing: the system of a stopped peer takes it, too
        silent_since = self.loop.time()
        while self._open and self._reads == reads:
            if self.loop.time() - silent_since > patience:
                return False
            await asyncio.sleep(timeout / 10)
            before, taken = taken, self._taken()
            if before < taken <= end:
                silent_since = self.loop.time()
        return True

    def _taken(self) -> int:
        """Return the number of bytes that the peer's system has taken."""
        if sys.platform != "linux":
            return self._sent - self.transport.get_write_buffer_size()
        connection = self.transport.get_extra_info("socket")
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.stop)
        return int.from_bytes(info[_ACKNOWLEDGED], sys.byteorder)


def _text_frames(texts: Sequence[bytes]) -> bytes:
    """Return each text as a frame with its own mask (RFC 6455 §5.2 and §5.3)."""
    masks, parts = os.urandom(4 * len(texts)), list[bytes]()
    for at, text in enumerate(texts):
        mask, length = masks[4 * at : 4 * at + 4], len(text)
        if length < 126:
            head = (_HEAD | length).to_bytes(2)
        elif length < 1 << 16:
            head = ((_HEAD | 126) << 16 | length).to_bytes(4)
        else:
            head = ((_HEAD | 127) << 64 | length).to_bytes(10)
        parts += head, mask, apply_mask(text, mask)
    return b"".join(parts)
