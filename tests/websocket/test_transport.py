"""The WebSocket transport on real sockets, against a small server of this file's own that can be broken at will."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psutil
import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from tests.support.cancelling import cancel_after_turns
from tests.support.processor import bytes_held_after
from tests.support.raw_server import Connection, certificate as certificate, listening, make_certificate, tls as tls
from tests.support.rows import each_row
from transports import (
    CallTimeout,
    Disconnected,
    Message,
    ProtocolError,
    TransportError,
    UsageError,
    WebSocketTransport,
    connect,
)
from transports._internal.tasks import backoff_delay
from transports.errors import ConnectFailed, TooLarge
from transports.websocket import _transport as transport_module

Answer = Callable[[ServerConnection, dict[str, Any]], Awaitable[None]]


async def send(socket: ServerConnection, kind: str, identity: object, payload: object) -> None:
    envelope = {"type": kind, "id": identity, "timestamp": 1, "payload": payload}
    await socket.send(msgspec.json.encode(envelope), text=True)


async def ok(socket: ServerConnection, request: dict[str, Any], data: object = None) -> None:
    await send(socket, "capabilities/call-result", request["id"], {"success": True, "data": data})


class App:
    """An ABP app behind a WebSocket; ``answer`` decides what becomes of calls."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls: list[dict[str, Any]] = []
        self.initialized = 0
        self.cancelled: list[str] = []
        self.server: Server | None = None
        self.port = 0
        self.headers: list[dict[str, str]] = []

    async def start(self, **options: Any) -> None:
        options = {"max_size": None, "compression": None, **options}
        self.server = await serve(self.serve, "127.0.0.1", self.port, **options)
        self.port = next(iter(self.server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        if self.server is not None:
            for connection in tuple(self.server.connections):
                connection.transport.abort()
            self.server.close()
            await self.server.wait_closed()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/abp"

    async def serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.headers.append(dict(socket.request.headers.raw_items()))
        tasks: set[asyncio.Task[None]] = set()
        async for text in socket:
            message = msgspec.json.decode(text)
            if message["type"] == "initialize":
                self.initialized += 1
                capabilities = [{"name": "x"}]
                info = {"sessionId": "s", "app": {"name": "Test"}, "capabilities": capabilities}
                await send(socket, "initialize-result", message["id"], info)
            elif message["type"] == "capabilities/call":
                self.calls.append(message)
                task = asyncio.ensure_future(self.answer(socket, message))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            elif message["type"] == "capabilities/cancel":
                self.cancelled.append(message["payload"]["callId"])
                await send(socket, "capabilities/cancel-result", message["id"], {"cancelled": True})


@contextlib.asynccontextmanager
async def running(answer: Answer, **options: Any) -> AsyncIterator[App]:
    app = App(answer)
    await app.start(**options)
    try:
        yield app
    finally:
        await app.stop()


async def echo(socket: ServerConnection, request: dict[str, Any]) -> None:
    await ok(socket, request, request["payload"]["params"])


async def test_answer_may_begin_with_byte_order_mark() -> None:
    async def answer(socket: ServerConnection, request: dict[str, Any]) -> None:
        envelope = {"type": "capabilities/call-result", "id": request["id"], "payload": {"success": True, "data": "é"}}
        await socket.send("\ufeff" + json.dumps(envelope))

    async with running(answer) as app, connect(app.url, store="none:", timeout=20) as session:
        assert (await session.call("x", timeout=20)).data == "é"


class _PlainProtocol(asyncio.Protocol):
    """Protocol that passes everything on to another, as uvloop does, which fills no buffers of an asyncio.Protocol."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self.connection_made = inner.connection_made  # type: ignore[method-assign]
        self.connection_lost = inner.connection_lost  # type: ignore[method-assign]
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.inner = inner


class _PlainLoop(asyncio.SelectorEventLoop):
    async def create_connection(self, factory: Any, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        transport, protocol = await super().create_connection(lambda: _PlainProtocol(factory()), *args, **options)
        return transport, protocol.inner


def test_event_loop_may_not_fill_buffers() -> None:
    async def call_app() -> None:
        async with running(echo) as app, connect(app.url, store="none:", timeout=20) as session:
            assert (await session.call("x", {"n": 1}, timeout=20)).data == {"n": 1}
            text = "é" * 400_000
            assert (await session.call("x", {"text": text}, timeout=20)).data == {"text": text}

    with asyncio.Runner(loop_factory=_PlainLoop) as runner:
        runner.run(call_app())


@pytest.mark.parametrize("first_minute", [True, False])
async def test_reconnect_starts_at_one_second_and_backs_off(
    first_minute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []

    def record(*args: Any) -> float:
        delays.append(backoff_delay(*args))
        return 0.001

    monkeypatch.setattr(transport_module, "backoff_delay", record)
    if not first_minute:
        monkeypatch.setattr(transport_module, "_SHORT_DELAYS_FOR", 0.0)
    async with running(echo) as app, connect(app.url, store="none:", timeout=20) as session:
        await session.call("x")
        await app.stop()
        async with asyncio.timeout(20):
            while len(delays) < 12:
                await asyncio.sleep(0.01)
        await app.start()
        await session.call("x")
    assert (max(delays[:12]) < 1) is first_minute


async def test_connection_closed_at_once_names_reason_and_backs_off() -> None:
    opened_at: list[float] = []

    async def refuse(connection: ServerConnection) -> None:
        opened_at.append(time.monotonic())
        await connection.close(1008, "the token has expired")

    async with serve(refuse, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"
        with pytest.raises(Disconnected, match=r"\(code 1008: the token has expired\); connect again"):
            await connect(url, store="none:")
        async with WebSocketTransport(url):
            opened_at.clear()
            await asyncio.sleep(1)
    # After 0.1, 0.2, 0.4 … seconds, each ±50 %; every 0.1 seconds it would be more often.
    assert 1 <= len(opened_at) <= 5


@pytest.mark.parametrize("status", [None, 401], ids=["by a close", "in HTTP"])
async def test_words_of_a_refusal_are_shown_without_the_values_of_headers(status: int | None) -> None:
    token, key = "t0ken-" * (12 if status is None else 100), "k3y-value"
    words = f"{token} is not valid for {key}"

    async def refuse(connection: ServerConnection) -> None:
        await connection.close(1008, words)

    def check(connection: ServerConnection, request: Request) -> Response | None:
        # A text that arrives in several reads.
        return None if status is None else connection.respond(status, words + " " * 200_000)

    async with serve(refuse, "127.0.0.1", 0, process_request=check) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/?key={key}"
        with pytest.raises(TransportError, match=f"{status or 1008}.*: … is not valid for …"):
            await connect(url, headers={"Authorization": f"Bearer {token}"}, store="none:")


async def test_failure_to_reconnect_is_named() -> None:
    is_revoked = False

    def check(connection: ServerConnection, request: Request) -> Response | None:
        return connection.respond(401, "expired\n") if is_revoked else None

    async with running(echo, process_request=check) as app, connect(app.url, store="none:") as session:
        assert app.server is not None
        is_revoked = True
        for connection in app.server.connections:
            connection.transport.abort()
        with pytest.raises(Disconnected, match=r"not back within 1 s: ws:\S+ answered HTTP 401 .*; give token="):
            await session.call("x", idempotent=True, timeout=1)


@pytest.mark.parametrize("content", ["a" * 20_000, b"a" * 3_000_000], ids=["at once", "in parts"])
async def test_request_too_large_for_app_is_not_repeated(content: str | bytes) -> None:
    """Calls that are under way beside it are repeated as after any loss."""

    async def answer(socket: ServerConnection, request: dict[str, Any]) -> None:
        if len(app.calls) > 1:
            await ok(socket, request, "again")

    async with running(answer, max_size=10_000) as app, connect(app.url, store="none:") as session:
        small = asyncio.ensure_future(session.call("x", idempotent=True, timeout=15))
        while not app.calls:
            await asyncio.sleep(0.01)
        for connection in (1, 2):
            refused = r"refused a message of [\d,]+ bytes as too large \(code 1009.*send less"
            with pytest.raises(TooLarge, match=refused):
                await session.call("x", {"content": content}, idempotent=True, timeout=15)
            assert app.initialized == connection
        assert (await small).data == "again"


async def test_break_without_reconnection_ends_session() -> None:
    async def cut(socket: ServerConnection, request: dict[str, Any]) -> None:
        socket.transport.abort()

    async with running(cut) as app:
        transport = WebSocketTransport(app.url, reconnect=False)
        async with connect(app.url, transport=transport, store="none:") as session:
            assert transport.server_address == ("127.0.0.1", urlsplit(app.url).port)
            for reason in (r"x: the connection was lost \(code 1006\); connect again;", "; connect again"):
                with pytest.raises(Disconnected, match=reason):
                    await session.call("x", idempotent=True)
            assert transport.state == "closed"
        with pytest.raises(Disconnected, match="the connection is closed; connect again"):
            await WebSocketTransport(app.url).request(Message("initialize", {}), timeout=1)


@pytest.mark.fault(36)
async def test_headers_and_tokens_are_sent_but_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="transports")
    async with running(echo, subprotocols=["abp"]) as app:
        transport = WebSocketTransport(
            app.url, token="s3cret", headers={"X-Team": "t0p"}, subprotocols=["abp"], origin="https://a.example"
        )
        async with connect(app.url, transport=transport, store="none:") as session:
            await session.call("x")
        (sent,) = app.headers
        assert sent["Authorization"] == "Bearer s3cret" and sent["X-Team"] == "t0p"
        assert sent["Sec-WebSocket-Protocol"] == "abp" and sent["Origin"] == "https://a.example"
    assert "s3cret" not in caplog.text and "t0p" not in caplog.text


@each_row(
    ("headers", "says"),
    [
        ({"Authorization": "Bearer s3cret\n"}, "the header 'Authorization' of ws://app.test/.* has a line end"),
        ({"X-Key": "s3cret-é"}, "a character beyond ASCII"),
        ({"X Key": "s3cret"}, "'X Key' of .* is not the name of a header"),
        ({"Host": "s3cret.test"}, "'host' is part of each handshake"),
        ({"Sec-WebSocket-Protocol": "s3cret"}, "leave it out .subprotocols= is an option"),
        ({"authorization": "s3cret", "Authorization": "Bearer s3cret"}, "given twice"),
    ],
)
def test_header_that_cannot_be_sent_is_named_without_its_value(headers: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says) as unsendable:
        connect("ws://app.test/?key=s3cret", headers=headers, store="none:")
    assert "s3cret" not in unsendable.value.message


def test_address_with_user_excludes_token() -> None:
    with pytest.raises(UsageError, match="the address has a user") as refused:
        WebSocketTransport("ws://ann:s3cret@app.test/", token="t0ken")
    assert "s3cret" not in refused.value.message and "t0ken" not in refused.value.message


async def test_non_websocket_addresses_are_explained() -> None:
    statuses = iter((401, 403, 404))

    async def refuse(connection: ServerConnection, request: object) -> Any:
        return connection.respond(next(statuses), "no\n")

    async with running(echo, process_request=refuse) as app:
        for advice in ("401.*give token=", "403.*give token=.*, perhaps an Origin", "404.*or does it need wss:"):
            with pytest.raises(ConnectFailed, match=advice):
                await connect(app.url, store="none:")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(ConnectFailed, match=r"did not answer within 0\.1 s; is the app running"):
            await connect(url, store="none:", timeout=0.1)
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(ConnectFailed, match=f"ws://{host}:9/: nothing listens there; start the app"):
            await connect(f"ws://{host}:9/", store="none:")


@pytest.mark.slow
async def test_large_answer_is_not_kept_until_the_next_message(tmp_path: Path) -> None:
    content = {"content": base64.b64encode(bytes(1 << 21)).decode(), "encoding": "base64", "mimeType": "a/b"}

    async def answer_file(socket: ServerConnection, request: dict[str, Any]) -> None:
        await ok(socket, request, {"file": content})

    async with running(answer_file) as server, connect(server.url, store=tmp_path) as app:
        assert await bytes_held_after(app, "x", {}) < 1 << 20


@each_row(("stays_half_open", "close_timeout"), [(False, 60.0), (True, 0.5)])
async def test_call_after_server_closed_behind_large_answer_is_sent_on_a_new_connection(
    stays_half_open: bool, close_timeout: float
) -> None:
    async def answer_once(socket: ServerConnection, request: dict[str, Any]) -> None:
        if stays_half_open:
            socket.transport.pause_reading()  # it does not see our closing frame
        await ok(socket, request, {"text": "x" * 300_000})
        await socket.close()

    async with running(answer_once, close_timeout=1) as server:
        transport = WebSocketTransport(server.url, close_timeout=close_timeout)
        async with connect(server.url, transport=transport, store="none:", timeout=20) as app:
            await app.call("x")
            await app.call("x")
        assert len(server.calls) == server.initialized == 2


@pytest.mark.load
async def test_messages_waiting_to_be_sent_use_no_memory() -> None:
    async def freeze(socket: ServerConnection, request: dict[str, Any]) -> None:
        socket.transport.pause_reading()

    async with running(freeze) as app, contextlib.AsyncExitStack() as stack:
        transport = WebSocketTransport(app.url, close_timeout=0.2)
        session = await stack.enter_async_context(connect(app.url, transport=transport, store="none:", timeout=5))
        with pytest.raises(CallTimeout):
            await session.call("x", timeout=0.2)
        data, process = bytes(4 << 20), psutil.Process()
        before = process.memory_info().rss
        calls = [asyncio.ensure_future(session.call("x", {"file": data}, timeout=0.4)) for _ in range(20)]
        await asyncio.sleep(0.3)
        assert process.memory_info().rss - before < 60 << 20  # all of it encoded would be 107 MB
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, CallTimeout)


@pytest.mark.parametrize("is_frozen", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_closing_that_is_cancelled_ends_calls_and_connection(is_frozen: bool) -> None:
    called = asyncio.Event()
    frozen: list[ServerConnection] = []

    async def answer_never(socket: ServerConnection, request: dict[str, Any]) -> None:
        if is_frozen:
            socket.transport.pause_reading()
            frozen.append(socket)
        called.set()

    async def cancelled_after(turns: int) -> bool:
        called.clear()
        transport = WebSocketTransport(app.url, close_timeout=0.05)
        session = await connect(app.url, transport=transport, store="none:")
        handle = await session.start("x")
        await called.wait()
        closing = await cancel_after_turns(turns, session.aclose())
        with pytest.raises(Disconnected):
            await asyncio.wait_for(handle.result(), 2)
        return closing.cancelled()

    async with running(answer_never) as app:
        for turns in range(1, 40):
            if not await cancelled_after(turns):
                break
        async with asyncio.timeout(5):
            while any(open_socket.raddr[1:] == (app.port,) for open_socket in psutil.Process().net_connections()):
                await asyncio.sleep(0.01)
        for socket in frozen:
            socket.transport.resume_reading()


@pytest.mark.load
async def test_tls_works_with_custom_ca_and_client_certificate(
    tmp_path: Path, certificate: tuple[Path, Path], tls: ssl.SSLContext
) -> None:
    client_cert, client_key = make_certificate(tmp_path, "client")
    theirs = tls
    theirs.load_verify_locations(client_cert)
    theirs.verify_mode = ssl.CERT_REQUIRED
    ours = ssl.create_default_context(cafile=certificate[0])
    ours.load_cert_chain(client_cert, client_key)
    async with running(echo, ssl=theirs) as app:
        url = app.url.replace("ws:", "wss:")
        async with connect(url, transport=WebSocketTransport(url, ssl=ours), store="none:") as session:
            assert (await session.call("x", {"n": 1})).data == {"n": 1}
        with pytest.raises(ConnectFailed, match="ssl="):
            await connect(url, store="none:")
    theirs.maximum_version, ours.minimum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    async with running(echo, ssl=theirs) as app:  # it speaks TLS, so nothing says to do without
        url = app.url.replace("ws:", "wss:")
        with pytest.raises(ConnectFailed) as refused:
            await connect(url, transport=WebSocketTransport(url, ssl=ours), store="none:")
        assert "try ws://" not in refused.value.message


async def test_server_without_tls_is_reported_as_such() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1") as server:
        url = f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}/abp"
        with pytest.raises(ConnectFailed, match=r"does not speak TLS as wss:// says .*; try ws://"):
            await connect(url, store="none:")


async def test_invalid_proxy_of_environment_is_named_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://user:my-secret@h:my-'port")
    with pytest.raises(ConnectFailed, match="an option or the address of a proxy is not valid") as failed:
        await connect("ws://127.0.0.1:9/abp", store="none:")
    assert "my-" not in failed.value.message


async def test_proxy_is_set_by_option_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def relay(connection: Connection) -> None:
        host, _, port = connection.target.partition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        await connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(connection.reader, far_writer), pump(far_reader, connection.writer))

    async with listening(relay) as proxy, running(echo) as app:
        transport = WebSocketTransport(app.url, proxy=proxy.url)
        async with connect(app.url, transport=transport, store="none:") as session:
            await session.call("x")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("https_proxy", proxy.url)
        async with connect(app.url, store="none:") as session:
            await session.call("x")
        assert [connection.target for connection in proxy.seen] == [f"127.0.0.1:{app.port}"] * 2


@pytest.mark.load
async def test_connections_leave_no_tasks_or_descriptors() -> None:
    async with running(echo) as app:
        tasks, files = len(asyncio.all_tasks()), psutil.Process().num_fds()
        threads = psutil.Process().num_threads()
        for _ in range(10):
            async with connect(app.url, store="none:") as session:
                await session.call("x")
        await asyncio.sleep(0.2)
        assert len(asyncio.all_tasks()) <= tasks
        assert psutil.Process().num_fds() <= files + 1
        assert psutil.Process().num_threads() <= threads + 8  # the loop's own pool


def nested_run(identity: str) -> bytes:
    """A reply with a run of base64 that is parsed apart, beside nesting that a parser takes and recursion does not."""
    run = {"content": "A" * 200_000, "mimeType": "image/png", "encoding": "base64"}
    text = json.dumps({"type": "capabilities/call-result", "id": identity, "payload": {"data": [run, "HERE"]}})
    return text.replace('"HERE"', "[" * 600 + "]" * 600).encode()


async def test_messages_of_another_protocol_are_ignored_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(socket: ServerConnection, request: dict[str, Any]) -> None:
        for message in ("ping", b"\xff\x00", b"\xff" * 300_000):
            await socket.send(message)
        await ok(socket, request, "good")

    async with running(answer) as app, connect(app.url, store="none:") as session:
        for _ in range(2):
            assert (await session.call("x", timeout=15)).data == "good"
        assert app.initialized == 1
    (warning,) = [record for record in caplog.records if record.name == "transports.websocket"]
    assert warning.getMessage().startswith("ignored a message: ")


async def test_replies_joined_in_one_message_fail_their_calls() -> None:
    """So the example of gorilla/websocket sends what waits."""
    waiting: list[str] = []

    async def answer(socket: ServerConnection, request: dict[str, Any]) -> None:
        waiting.append(json.dumps({"type": "capabilities/call-result", "id": request["id"], "payload": {}}))
        if len(waiting) == 3:
            await socket.send("\n".join(waiting))

    async with running(answer) as app, connect(app.url, store="none:") as session:
        calls = [session.call("x", timeout=15) for _ in range(3)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, ProtocolError) and error.message.count("x: ") == 1


@pytest.mark.fault(21)
@pytest.mark.parametrize("broken", ["nesting", "decoding", "delivery", "connecting again"])
async def test_unreadable_message_does_not_silently_end_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """A message that cannot be read fails its own call; if reading itself fails, the connection is opened again."""

    async def answer(socket: ServerConnection, request: dict[str, Any]) -> None:
        if request["payload"]["params"] == {"bad": True}:
            await socket.send(nested_run(request["id"]), text=True)
        else:
            await ok(socket, request, "good")

    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise RecursionError("too deep")

    async with running(answer) as app, connect(app.url, store="none:") as session:
        if broken == "decoding":
            monkeypatch.setattr(transport_module, "decode_envelope", fail)
        elif broken != "nesting":
            monkeypatch.setattr(session.transport._pending, "deliver", fail)  # type: ignore[attr-defined]
        if broken == "connecting again":
            transport: Any = session.transport
            connect_again = transport._connect

            async def fail_once() -> None:
                transport._connect = connect_again
                raise RuntimeError("a fault of ours")

            transport._connect = fail_once
        message_only = broken in ("nesting", "decoding")
        with pytest.raises(ProtocolError if message_only else Disconnected):
            await session.call("x", {"bad": message_only}, timeout=15)
        assert (await session.call("x", timeout=15)).data == "good"
        assert app.initialized == (1 if message_only else 2)
