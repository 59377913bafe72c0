"""Frames of a WebSocket connection, fed to it in pieces of any size: which messages come out, and what ends it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from tests.support.rows import each_row
from transports.websocket._connection import Connection, OnMessage

LIMIT = 400_000
#: Messages of more bytes go to ``receive``.
SLOW = 150_000


class Wire(asyncio.Transport):
    """What the connection writes and whether it reads, without a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool:
        return False


class Peer:
    """A connection after its handshake, and the server's side of it."""

    def __init__(self, on_message: OnMessage | None = None) -> None:
        self.got: list[bytes] = []
        self.wire = Wire()
        self.connection = Connection(
            ClientProtocol(parse_uri("ws://app/"), max_size=LIMIT),
            on_message=on_message or self.take,
            message_limit=LIMIT,
            ping_interval=None,
            close_timeout=0.01,
        )

    def take(self, data: bytes, text: bool) -> bool:
        if len(data) > SLOW:
            return False
        assert data[:1] == b"B" or text
        self.got.append(data)
        return True

    def response(self) -> bytes:
        protocol = self.connection.protocol
        self.connection.connection_made(self.wire)
        request = protocol.connect()
        protocol.send_request(request)
        server = ServerProtocol()
        server.receive_data(b"".join(protocol.data_to_send()))
        server.send_response(server.accept(server.events_received()[0]))  # type: ignore[arg-type]
        return b"".join(server.data_to_send())

    async def feed(self, data: bytes, sizes: Iterator[int]) -> None:
        """Give bytes to the connection as a socket does: only while it reads, as many as it has room for."""
        at = 0
        while at < len(data):
            async with asyncio.timeout(15):
                while not self.wire.reading:
                    await asyncio.sleep(0)
            room = self.connection.get_buffer(-1)
            count = min(len(room), next(sizes), len(data) - at)
            assert count > 0
            room[:count] = data[at : at + count]
            at += count
            self.connection.buffer_updated(count)
            del room
            if random.random() < 0.5:  # over TLS several reads may come in one turn of the loop
                await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def read(self) -> None:
        """Take what is left to ``receive``, until the end."""
        while True:
            message, _ = await self.connection.receive()
            self.got.append(message)
            await asyncio.sleep(0)


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True, rsv1: bool = False, mask: bool = False) -> bytes:
    made = bytearray(Frame(opcode, data, fin).serialize(mask=mask))
    made[0] |= 0x40 * rsv1
    return bytes(made)


SIZES = (0, 1, 125, 126, 127, 65_525, 65_526, 65_535, 65_536, 65_537, SLOW + 1, LIMIT)


def conversation(chance: random.Random) -> tuple[bytes, list[bytes]]:
    """Messages in one or several frames, with pings between frames."""
    frames, expected = [], []
    for _ in range(chance.randrange(1, 12)):
        size = chance.choice(SIZES) if chance.random() < 0.4 else chance.randrange(300)
        text = size == 0 or chance.random() < 0.8
        data = b"" if size == 0 else (b"T" if text else b"B") + chance.randbytes(size - 1)
        cuts = sorted(chance.randrange(size + 1) for _ in range(chance.choice((0, 0, 1, 3))))
        parts = [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, size], strict=True)]
        for number, part in enumerate(parts):
            opcode = Opcode.CONT if number else Opcode.TEXT if text else Opcode.BINARY
            frames.append(frame(opcode, part, fin=number == len(parts) - 1))
            if chance.random() < 0.2:
                frames.append(frame(Opcode.PING, b"there?"))
        expected.append(data)
    return b"".join(frames), expected


@each_row("seed", range(12))
async def test_fragmented_messages_arrive_complete_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    peer = Peer()
    data, expected = conversation(chance)
    largest = chance.choice((1, 3, 500, 70_000, 2_000_000)) if len(data) < 20_000 else chance.choice((9_000, 2_000_000))
    reading = asyncio.ensure_future(peer.read())
    await peer.feed(peer.response() + data, iter(lambda: chance.randint(1, largest), None))
    async with asyncio.timeout(15):
        while len(peer.got) < len(expected):
            await asyncio.sleep(0)
    assert peer.got == expected
    reading.cancel()
    await asyncio.wait((reading,))


WRONG = {
    "masked": (frame(Opcode.TEXT, b"x", mask=True), 1002),
    "masked ping": (frame(Opcode.PING, b"x", mask=True), 1002),
    "reserved bit": (frame(Opcode.TEXT, b"x", rsv1=True), 1002),
    "unknown opcode": (b"\x83\x01x", 1002),
    "continued without a beginning": (frame(Opcode.CONT, b"x"), 1002),
    "two beginnings": (frame(Opcode.TEXT, b"x", fin=False) * 2, 1002),
    "long control frame": (b"\x89\x7e\x00\x7e" + bytes(126), 1002),
    "control frame in parts": (b"\x09\x00", 1002),
    "over the limit": (b"\x81\x7f" + (LIMIT + 1).to_bytes(8), 1009),
    "over every limit": (b"\x81\x7f" + b"\xff" * 8, 1009),
    "over the limit in parts": (
        frame(Opcode.TEXT, bytes(LIMIT), fin=False) + frame(Opcode.CONT, b"x"),
        1009,
    ),
}


@each_row("case", WRONG)
async def test_protocol_violation_closes_connection_and_stops_reading(case: str) -> None:
    """RFC 6455 §5.2 to §5.5 and §7.4.1."""
    wrong, code = WRONG[case]
    peer = Peer()
    before, after = frame(Opcode.TEXT, b"before"), frame(Opcode.TEXT, b"after") * 40_000
    await peer.feed(peer.response() + before + wrong + after, iter(lambda: 50_000, None))
    assert peer.got == [b"before"]
    sent = peer.connection.protocol.close_sent
    assert sent is not None and sent.code == code and peer.connection.protocol.state is State.CLOSING
    ended = asyncio.ensure_future(peer.read())  # a peer that never closes its side is waited for, but not for ever
    await asyncio.sleep(0.05)
    peer.connection.connection_lost(None)
    with pytest.raises(ConnectionClosed):
        await ended


async def test_message_handler_error_stops_reading_and_reaches_reader() -> None:
    def refuse(data: bytes, text: bool) -> bool:
        raise ZeroDivisionError

    peer = Peer(refuse)
    await peer.feed(peer.response() + frame(Opcode.TEXT, b"x") * 3, iter(lambda: 7, None))
    with pytest.raises(ZeroDivisionError):
        await peer.read()


async def test_can_send_now_is_false_for_slow_or_closed_peer() -> None:
    peer = Peer()
    await peer.feed(peer.response(), iter(lambda: 1000, None))
    peer.wire.written.clear()
    texts = [b"a" * size for size in (0, 125, 126, 65_536)]
    for text in texts:
        assert peer.connection.can_send_now
        peer.connection.send_now(text)
    server = ServerProtocol(state=State.OPEN, max_size=None)
    server.receive_data(b"".join(peer.wire.written))
    assert [event.data for event in server.events_received()] == texts  # type: ignore[union-attr]
    peer.connection.pause_writing()
    assert not peer.connection.can_send_now
    peer.connection.resume_writing()
    assert peer.connection.can_send_now
    await peer.feed(frame(Opcode.CLOSE, b"\x03\xe8"), iter(lambda: 9, None))
    assert not peer.connection.can_send_now


async def test_reading_pauses_during_large_message_and_keeps_order() -> None:
    peer, large = Peer(), frame(Opcode.TEXT, bytes(SLOW + 1))
    data = peer.response() + large + frame(Opcode.TEXT, b"small") * 2
    feeding = asyncio.ensure_future(peer.feed(data, iter(lambda: 50_000, None)))
    message, is_text = await peer.connection.receive()
    assert len(message) == SLOW + 1 and is_text
    assert not peer.wire.reading
    assert [await peer.connection.receive() for _ in range(2)] == [(b"small", True)] * 2
    assert peer.got == []
    ended = asyncio.ensure_future(peer.connection.receive())
    await feeding
    assert peer.wire.reading
    ended.cancel()
    await asyncio.wait((ended,))
