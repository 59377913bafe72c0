"""What a WebSocket peer can do to us, injected for real by the reference app: rows 12-21 of docs/faults.md."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import pytest_asyncio
from websockets.asyncio.server import ServerConnection, serve as serve_websocket

from tests.support.raw_server import listening
from tests.support.rows import each_row
from transports import CallTimeout, Disconnected, ProtocolError, Session, WebSocketTransport, connect
from transports.errors import ConnectFailed, TooLarge
from transports.websocket import _connection
from webapp_fixture import Fixture, serve


@pytest_asyncio.fixture
async def fixture() -> AsyncIterator[Fixture]:
    async with serve() as served:
        yield served


def session(fixture: Fixture, query: str = "", **options: object) -> Session:
    transport = WebSocketTransport(fixture.ws_url + query, **options)  # type: ignore[arg-type]
    return connect(fixture.ws_url, transport=transport, store="none:", timeout=10)


NO_HTTP = r"did not answer in HTTP/1.1, as a WebSocket does; is that the address of its WebSocket, or .* wss://\? \["


@each_row(
    ("answer", "said"),
    [
        (b"220 smtp.example ESMTP\r\n", NO_HTTP),
        (b"", NO_HTTP),
        (b"HTTP/1.0 200 OK\r\n\r\n", NO_HTTP),
        (b"HTTP/1.1 101 OK\r\nX: " + b"x" * 9000 + b"\r\n\r\n", "headers that are too large .*set WEBSOCKETS_"),
    ],
)
async def test_non_http_server_is_explained(answer: bytes, said: str) -> None:
    async with listening(answer) as server:
        with pytest.raises(ConnectFailed, match=said):
            await connect(server.url.replace("http:", "ws:"), store="none:", timeout=10)


def counts(app: Session) -> dict[str, int]:
    assert isinstance(app.transport, WebSocketTransport)
    return dict(app.transport.counts)


@pytest.mark.fault(12)
@pytest.mark.parametrize("fault", ["cut", "no_close"])
async def test_disconnect_fails_calls_in_flight_and_next_call_reconnects(fixture: Fixture, fault: str) -> None:
    async with session(fixture) as app:
        waiting = [asyncio.ensure_future(app.call("job.wait")) for _ in range(3)]
        await asyncio.sleep(0.1)
        with pytest.raises(Disconnected, match=r"it is opened again; it may have run: look at"):
            await app.call(f"wire.{fault}")
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, Disconnected) and error.retryable
        assert (await app.call("file.list")).artifacts
    assert len(fixture.handshakes) == 2


@pytest.mark.load
@pytest.mark.fault(13)
async def test_oversized_message_error_names_limit_and_reconnects_once(fixture: Fixture) -> None:
    async with session(fixture, max_bytes=4_000_000) as app:
        fits = await app.call("file.generate", {"bytes": 4_000_000})  # 5.3 MB of base64
        assert fits.artifacts["file"].size_bytes == 4_000_000
        with pytest.raises(TooLarge, match="4,000,000"):
            await app.call("wire.huge", {"megabytes": 8})
        await asyncio.sleep(0.2)
        assert (await app.call("file.list")).artifacts
    assert len(fixture.handshakes) == 2


@pytest.mark.load
@pytest.mark.fault(14)
@pytest.mark.requirement("R4-15f")
async def test_deflate_bomb_is_not_inflated(fixture: Fixture) -> None:
    async with session(fixture, "?deflate") as app:
        await app.call("file.list")
        before = psutil.Process().memory_info().rss
        with pytest.raises((ProtocolError, TooLarge)):
            await app.call("wire.deflate_bomb", {"megabytes": 64})
        assert psutil.Process().memory_info().rss - before < 32 << 20
        assert (await app.call("file.list")).artifacts


@pytest.mark.fault(16)
async def test_non_utf8_frame_raises_protocol_error(fixture: Fixture) -> None:
    async with session(fixture) as app:
        with pytest.raises(ProtocolError, match="UTF-8"):
            await app.call("wire.invalid_utf8", timeout=3)
        assert (await app.call("file.list")).artifacts


@pytest.mark.fault(17, 21)
async def test_bad_json_drops_message_but_not_session(fixture: Fixture) -> None:
    async with session(fixture) as app:
        for unreadable, kind in enumerate(("junk", "nan", "huge_number", "long_int", "surrogate", "deep"), 1):
            started = time.monotonic()
            with pytest.raises(ProtocolError):
                await app.call("wire.bad_json", {"kind": kind}, timeout=20)
            assert time.monotonic() - started < 10  # its own call is told at once, by the id that could still be read
            assert (await app.call("file.list")).artifacts
            assert counts(app)["unreadable"] == unreadable, kind
    assert len(fixture.handshakes) == 1


@pytest.mark.requirement("R6-8c")
@pytest.mark.load
@pytest.mark.fault(18)
async def test_duplicate_foreign_and_late_replies_are_dropped(fixture: Fixture) -> None:
    async with session(fixture) as app:
        for fault in ("duplicate", "foreign"):
            assert (await app.call(f"wire.{fault}", {"value": fault})).data["value"] == fault  # type: ignore[call-overload, index]
        with pytest.raises(CallTimeout):
            await app.call("wire.late", {"value": "late"}, timeout=0.2)
        await asyncio.sleep(0.5)
        assert (await app.call("file.list")).artifacts
        seen = counts(app)
        assert (seen["duplicate"], seen["unknown"], seen["late"]) == (1, 1, 1)


@pytest.mark.fault(19)
async def test_replies_out_of_order_are_matched(fixture: Fixture) -> None:
    async with session(fixture) as app:
        waits = range(200, 0, -2)  # milliseconds: the last call is answered first
        results = await asyncio.gather(*(app.call("fault.slow", {"ms": wait}) for wait in waits))
        assert [result.data["ms"] for result in results] == list(waits)  # type: ignore[call-overload, index]


@pytest.mark.requirement("R6-8b")
@pytest.mark.fault(20)
async def test_unknown_types_and_extra_fields_are_ignored_with_one_short_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def flood(socket: ServerConnection) -> None:
        async for text in socket:
            request = json.loads(text)
            for n in range(100):
                await socket.send(json.dumps({"type": f"{n}" + "x" * 10_000, "timestamp": 0, "payload": None}))
            if "id" in request:
                answer = {"sessionId": "s", "app": {"name": "X", "more": 1}, "capabilities": [], "more": []}
                kind = f"{request['type']}-result"
                await socket.send(
                    json.dumps({"type": kind, "id": request["id"], "timestamp": 0, "payload": answer, "more": 1})
                )

    async with serve_websocket(flood, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        await connect(f"ws://127.0.0.1:{port}/", store="none:")
    (warning,) = [record for record in caplog.records if "unknown type" in record.getMessage()]
    assert len(warning.getMessage()) < 200


class Line:
    """A slow line to a server: it passes ``step`` bytes on every ``pause`` seconds in each direction, until it is cut
    off (``flowing`` is cleared): then it takes no more, and stays open."""

    def __init__(self, url: str, *, step: int, pause: float) -> None:
        self._target = urlsplit(url)
        self._step, self._pause = step, pause
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.passed = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=self._step)
        port = self._server.sockets[0].getsockname()[1]
        return self._target._replace(netloc=f"127.0.0.1:{port}").geturl()

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(
            self._target.hostname, self._target.port, limit=self._step
        )
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.create_task(self._pass_on(source, target)))

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(self._step):
                await self.flowing.wait()
                target.write(data)
                await target.drain()
                self.passed += len(data)
                await asyncio.sleep(self._pause * len(data) / self._step)
        finally:
            target.close()


IMPATIENT = {"ping_interval": 0.2, "ping_timeout": 0.2, "close_timeout": 0.2}


def impatient(url: str) -> Session:
    transport = WebSocketTransport(url, **IMPATIENT)  # type: ignore[arg-type]
    return connect(url, transport=transport, store="none:", timeout=10)


@pytest.mark.load
async def test_slowly_arriving_answer_counts_as_activity(fixture: Fixture) -> None:
    async with Line(fixture.ws_url, step=20_000, pause=0.03) as url, impatient(url) as app:
        result = await app.call("file.generate", {"bytes": 400_000}, timeout=60)
        assert result.artifacts["file"].size_bytes == 400_000
        assert counts(app)["delivered"] == 2  # over one connection


#: Bytes that are hidden in buffers, and more than those hold.
@pytest.mark.load
@pytest.mark.parametrize("size", [1_000_000, pytest.param(12_000_000, marks=pytest.mark.slow)])
async def test_slowly_received_request_counts_as_activity(fixture: Fixture, tmp_path: Path, size: int) -> None:
    path = tmp_path / "upload.bin"
    path.write_bytes(os.urandom(size))
    async with Line(fixture.ws_url, step=size // 20, pause=0.03) as url, impatient(url) as app:
        result = await app.call("file.digest", {"file": path}, timeout=90)
        assert isinstance(result.data, dict)
        assert result.data["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert counts(app)["delivered"] == 2


@pytest.mark.load
@pytest.mark.fault(15)
@pytest.mark.parametrize("size", [500_000, pytest.param(20_000_000, marks=pytest.mark.slow)])
async def test_peer_that_stops_reading_times_out_by_sent_size(
    fixture: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(_connection, "_MAX_EXTRA", 0.3)
    path = tmp_path / "upload.bin"
    path.write_bytes(os.urandom(size))
    line = Line(fixture.ws_url, step=size // 20, pause=0.1)
    async with line as url, impatient(url) as app:
        calling = asyncio.ensure_future(app.call("file.digest", {"file": path}, timeout=90))
        while line.passed < size // 5:
            await asyncio.sleep(0.01)
        line.flowing.clear()
        with pytest.raises(Disconnected, match="no ping"):
            await calling
