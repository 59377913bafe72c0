"""The proxy of a page whose connections are judged: what it connects, what it refuses, and how much it carries."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
import pytest_asyncio

from tests.support.needs import missing
from transports.errors import UsageError
from transports.playwright._page_tools import JudgedNetwork, NetworkLimits

_CONNECTED, _NOT_ALLOWED = b"\5\0\0\1\0\0\0\0\0\0", b"\5\2\0\1\0\0\0\0\0\0"


class Judges:
    """Allows the host ``good`` at one address; counts what it was asked, and how much at a time."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses or ("127.0.0.1",)
        self.asked: list[tuple[str, int]] = []
        self.now = self.most = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        if host != "good":
            raise UsageError(f"{host} is not good")
        return self.addresses


@asynccontextmanager
async def echo(greeting: bytes = b"") -> AsyncIterator[int]:
    """A server that sends ``greeting``, then back what it gets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


Open = Callable[[JudgedNetwork], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
Ask = Callable[[JudgedNetwork, str, int], Awaitable[tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]]]


@pytest_asyncio.fixture
async def opening() -> AsyncIterator[Open]:
    """Opens connections with the proxy."""
    writers: list[asyncio.StreamWriter] = []

    async def opened(network: JudgedNetwork) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", network.port)
        writers.append(writer)
        return reader, writer

    yield opened
    for writer in writers:
        writer.close()


@pytest.fixture
def asking(opening: Open) -> Ask:
    """Asks the proxy for a connection, as a browser does; returns its answer first, empty if it hung up."""

    async def asked(
        network: JudgedNetwork, host: str, port: int
    ) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        network.record_request(f"http://{host}:{port}/")
        reader, writer = await opening(network)
        name = host.encode()
        writer.write(b"\5\1\0" + b"\5\1\0\3" + bytes([len(name)]) + name + port.to_bytes(2, "big"))
        try:
            assert await reader.readexactly(2) == b"\5\0"
            return await reader.readexactly(10), reader, writer
        except (asyncio.IncompleteReadError, ConnectionError):
            return b"", reader, writer

    return asked


async def test_allowed_hosts_are_connected_and_others_rejected_by_name(asking: Ask) -> None:
    judge = Judges()
    async with echo() as port, JudgedNetwork(judge) as network:
        answer, reader, writer = await asking(network, "GOOD", port)
        assert answer == _CONNECTED
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.write_eof()  # the end of one way reaches the other side, and comes back
        assert await reader.read() == b""
        for host in ("bad", "bad", "worse"):
            assert (await asking(network, host, port))[0] == _NOT_ALLOWED
        assert network.refused == ["bad is not good", "worse is not good"]
        assert judge.asked == [("good", port), ("bad", port), ("bad", port), ("worse", port)]


async def test_browser_own_requests_are_rejected_but_not_reported(opening: Open) -> None:
    judge = Judges()
    async with JudgedNetwork(judge) as network:
        reader, writer = await opening(network)
        writer.write(b"\5\1\0" + b"\5\1\0\3\3bad" + b"\0\x50")
        assert await reader.readexactly(12) == b"\5\0" + _NOT_ALLOWED
        assert (network.refused, network.failed) == ([], "")


async def test_only_judged_addresses_are_tried_in_order(asking: Ask) -> None:
    async with echo() as port, JudgedNetwork(Judges("127.0.0.77", "127.0.0.1")) as network:
        assert (await asking(network, "good", port))[0] == _CONNECTED
    async with JudgedNetwork(Judges("127.0.0.77")) as network:
        assert (await asking(network, "good", port))[0] == _NOT_ALLOWED
        assert "nothing listens there" in network.failed and network.refused == []


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\4\1\0\x50\x7f\0\0\1\0",
        b"\5\1\2",  # with a password only
        b"\5\1\0\5\2\0\1\x7f\0\0\1\0\x50",  # to listen
        b"\5\1\0\5\3\0\1\x7f\0\0\1\0\x50",  # datagrams
        b"\5\1\0\5\1\0\7aaaa\0\x50",
        b"\5\1\0\5\1\0\3\2\xff\xfe\0\x50",
        b"\5\1\0\5\1\0\3",
    ],
)
async def test_invalid_socks_request_closes_connection(sent: bytes, opening: Open) -> None:
    judge = Judges()
    async with JudgedNetwork(judge) as network:
        reader, writer = await opening(network)
        writer.write(sent)
        writer.write_eof()
        with suppress(ConnectionError):
            assert len(await reader.read()) <= 2
        assert judge.asked == []


@pytest.mark.parametrize("literal", [b"\1\x7f\0\0\1", b"\4" + bytes(15) + b"\1"])
async def test_ip_literals_are_judged_as_text(literal: bytes, opening: Open) -> None:
    judge = Judges()
    async with JudgedNetwork(judge) as network:
        reader, writer = await opening(network)
        writer.write(b"\5\1\0" + b"\5\1\0" + literal + b"\0\x50")
        assert await reader.readexactly(12) == b"\5\0" + _NOT_ALLOWED
        assert judge.asked == [("127.0.0.1" if len(literal) == 5 else "::1", 80)]
        writer.close()


async def test_network_is_limited_to_64_concurrent_connections(asking: Ask) -> None:
    assert NetworkLimits().at_once == 64
    async with echo() as port, JudgedNetwork(Judges(), NetworkLimits(at_once=6)) as network:
        made = [await asking(network, "good", port) for _ in range(6)]
        assert {answer for answer, *_ in made} == {_CONNECTED} and network.refused == []
        assert (await asking(network, "good", port))[0] == b""
        assert network.refused == ["more than 6 connections at a time"]
        made[0][2].close()
        async with asyncio.timeout(10):
            while (await asking(network, "good", port))[0] != _CONNECTED:
                await asyncio.sleep(0.01)


@pytest.mark.load
async def test_total_connection_limit_is_enforced(asking: Ask) -> None:
    judge = Judges()
    async with JudgedNetwork(judge, NetworkLimits(connections=20)) as network:
        for first in (0, 10):
            asked = [asking(network, "bad", 80 + first + at) for at in range(10)]
            for answer, _, writer in await asyncio.gather(*asked):
                assert answer == _NOT_ALLOWED
                writer.close()
        assert network.refused == ["bad is not good"]
        assert (await asking(network, "bad", 80))[0] == b""
        assert network.refused == ["bad is not good", "more than 20 connections"] and len(judge.asked) == 20
        assert judge.most == 4  # names that are looked up at a time


async def test_received_bytes_limit_closes_connection(asking: Ask) -> None:
    limits = NetworkLimits(received_bytes=300_000)
    async with echo(bytes(100_000)) as port, JudgedNetwork(Judges(), limits) as network:
        for _ in range(3):
            _, reader, writer = await asking(network, "good", port)
            assert await reader.readexactly(100_000)
            writer.close()
        assert network.refused == []
        _, reader, _ = await asking(network, "good", port)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        assert network.refused == ["more than 300,000 bytes"]


async def test_closing_judged_network_closes_all_connections(asking: Ask, opening: Open) -> None:
    async with echo() as port:
        async with JudgedNetwork(Judges()) as network:
            _, reader, _ = await asking(network, "good", port)
            listened = network.port
            silent, _ = await opening(network)
        for end in (reader, silent):
            async with asyncio.timeout(10):
                with suppress(ConnectionError):
                    assert await end.read() == b""
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", listened)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only that tells whose a connection is")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
async def test_connection_of_other_local_user_is_dropped(family: socket.AddressFamily) -> None:
    """Also if this user has a connection from the same port to another one."""
    if os.geteuid() != 0:
        missing("root", "to be another user")
    judge = Judges()
    address = "127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1"
    script = (
        "import os, socket, sys; os.setuid(65534); there = socket.socket(int(sys.argv[1])); there.settimeout(20)\n"
        "there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); there.bind((sys.argv[2], int(sys.argv[4])))\n"
        "there.connect((sys.argv[2], int(sys.argv[3])))\n"
        "try: there.sendall(bytes([5, 1, 0, 5, 1, 0, 3, 1, 97, 0, 80])); print(len(there.recv(100)))\n"
        "except ConnectionError: print(0)"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as own_connection:
        own_connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own_connection.bind(("127.0.0.1", 0))
        own_connection.connect(listener.getsockname())
        _, own_port = own_connection.getsockname()
        async with JudgedNetwork(judge) as network:
            ran = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-I", "-c", script, str(int(family)), address, str(network.port), str(own_port)],
                capture_output=True,
                text=True,
                cwd="/",
            )
        assert (ran.stdout.strip(), judge.asked) == ("0", []), ran.stderr
