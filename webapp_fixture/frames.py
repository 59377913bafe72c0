"""WebSocket frames and ABP messages as bytes, written straight to the transport so that they can be wrong."""

import asyncio
import json
import struct
import time
from typing import Any

TEXT, BINARY, CLOSE, PONG = 0x1, 0x2, 0x8, 0xA
COMPRESSED = 0x40  # RSV1
HIGH_WATER = 4 << 20  # bytes that may wait in a transport before a writer pauses
POLL = 0.005


def header(opcode: int, length: int, rsv: int = 0) -> bytes:
    """Return the header of an unmasked, final frame (RFC 6455 §5.2)."""
    first = 0x80 | rsv | opcode
    if length < 126:
        return struct.pack("!BB", first, length)
    if length < 1 << 16:
        return struct.pack("!BBH", first, 126, length)
    return struct.pack("!BBQ", first, 127, length)


def to_json(value: Any) -> str:
    """Return a value as JSON, also one nested deeper than ``json`` can go."""
    try:
        return json.dumps(value, separators=(",", ":"))
    except RecursionError:
        return _deep_json(value)


def _deep_json(value: Any) -> str:
    """Encode with a stack of the text and the values that are still to be written, the next one last."""
    parts: list[str] = []
    waiting: list[Any] = [(value,)]  # a tuple holds a value; a string is text to write as it is
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, str):
            parts.append(entry)
            continue
        (current,) = entry
        members: list[Any] = []
        if isinstance(current, dict):
            for name, inner in current.items():
                members += ["," if members else "", f"{json.dumps(name)}:", (inner,)]
            waiting += ["}", *reversed(members), "{"]
        elif isinstance(current, list):
            for inner in current:
                members += ["," if members else "", (inner,)]
            waiting += ["]", *reversed(members), "["]
        else:
            parts.append(json.dumps(current))
    return "".join(parts)


def envelope(kind: str, message_id: Any = None, **rest: Any) -> dict[str, Any]:
    """Return a message ``{type, id?, timestamp, payload}``."""
    named = {} if message_id is None else {"id": message_id}
    return {"type": kind, **named, "timestamp": int(time.time() * 1000), **rest}


class Pipe:
    """The sending half of one connection. Frames never interleave."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.silent = False
        self._turn = asyncio.Lock()
        self._close_sent = False

    @property
    def closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._close_sent or self.transport.is_closing()

    async def message(self, message: dict[str, Any]) -> None:
        await self.frame(TEXT, to_json(message).encode("utf-8"))

    async def frame(self, opcode: int, data: bytes, rsv: int = 0) -> None:
        await self.pieces([header(opcode, len(data), rsv), data])

    async def pieces(self, pieces: list[bytes], delay: float = 0) -> None:
        """Send bytes as they are, with ``delay`` seconds before each piece but the first."""
        async with self._turn:
            for number, piece in enumerate(pieces):
                if delay and number:
                    await asyncio.sleep(delay)
                if self.silent or self.closed:
                    return
                self.transport.write(piece)
            while self.transport.get_write_buffer_size() > HIGH_WATER and not self.closed:
                await asyncio.sleep(POLL)

    async def close_frame(self, code: int, reason: str = "") -> None:
        """Begin (or answer) the closing handshake; nothing is sent after it."""
        body = b""
        if code != 1005:  # which means that there is no code
            body = struct.pack("!H", code) + reason.encode()[:123]
        await self.frame(CLOSE, body)
        self._close_sent = True

    def drop(self, at_once: bool = True) -> None:
        """End the TCP connection without a closing handshake; unless ``at_once``, after what is still to be sent."""
        if at_once:
            self.transport.abort()
        else:
            self.transport.close()
