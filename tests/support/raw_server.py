"""A raw HTTP server that answers byte by byte, for tests of clients: broken bodies, silence, redirects, TLS."""

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.support.needs import missing

BODY = bytes(range(256)) * 40
HALF = len(BODY) // 2


@dataclass
class Connection:
    """One request and the way to answer it, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    target: str
    headers: Mapping[str, str]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def pause(self) -> None:
        """Let the client read what came before the next thing happens."""
        await asyncio.sleep(0.03)

    async def hang(self) -> None:
        """Say nothing until the client goes."""
        with suppress(ConnectionError):
            await self.reader.read()

    def reset(self) -> None:
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Answer: TypeAlias = bytes | Callable[[Connection], Awaitable[None]]


@dataclass
class RawServer:
    """A server that gives each connection the next answer, and the last one for ever."""

    answers: list[Answer]
    connects: int = 0
    seen: list[Connection] = field(default_factory=list)
    handlers: set[asyncio.Task[None]] = field(default_factory=set)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.handlers.add(task)
        self.connects += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            request, *lines = head.strip().split("\r\n")
            pairs = (line.partition(": ")[::2] for line in lines)
            connection = Connection(reader, writer, request.split()[1], dict(pairs))
            self.seen.append(connection)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, bytes):
                await connection.send(answer)
            else:
                await answer(connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.handlers.discard(task)
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    def sent(self, name: str) -> list[str | None]:
        """A header of every request so far."""
        return [connection.headers.get(name) for connection in self.seen]


Serve: TypeAlias = Callable[..., Awaitable[RawServer]]


def sockets_on_same_port(*hosts: str) -> tuple[list[socket.socket], int]:
    """Sockets bound to one port of several addresses, and the port. Another program may use a port of one of them."""
    for _ in range(50):
        sockets = [socket.socket() for _ in hosts]
        port = 0
        try:
            for sock, host in zip(sockets, hosts, strict=True):
                sock.bind((host, port))
                port = sock.getsockname()[1]
        except OSError:
            for sock in sockets:
                sock.close()
        else:
            return sockets, port
    raise AssertionError(f"no port is free at all of {hosts}")


@asynccontextmanager
async def listening(
    *answers: Answer,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    sock: socket.socket | None = None,
) -> AsyncIterator[RawServer]:
    raw = RawServer(list(answers) or [reply(BODY)])
    if sock:
        host = sock.getsockname()[0]
        server = await asyncio.start_server(raw.serve, sock=sock, ssl=tls)
    else:
        server = await asyncio.start_server(raw.serve, host, 0, ssl=tls)
    scheme, port = "https" if tls else "http", server.sockets[0].getsockname()[1]
    raw.url = f"{scheme}://{host}:{port}"
    try:
        yield raw
    finally:
        server.close()
    if raw.handlers:  # a connection that the client left open would keep its handler waiting
        _, open_ = await asyncio.wait(raw.handlers, timeout=1)
        assert not open_, "the client left a connection open"


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(*answers: Answer, **options: Any) -> RawServer:
            return await stack.enter_async_context(listening(*answers, **options))

        yield start


def reply(body: bytes = b"", status: str = "200 OK", length: int | None = None, /, **more: str) -> bytes:
    """A whole answer; ``Content_Length=""`` leaves a header out."""
    fields = {"Content-Type": "application/pdf", "Content-Length": str(len(body) if length is None else length)}
    fields |= {name.replace("_", "-"): value for name, value in more.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def cut(reset: bool = False, /, **more: str) -> Answer:
    """Half of a body that is announced whole."""

    async def answer(connection: Connection) -> None:
        await connection.send(reply(BODY[:HALF], "200 OK", len(BODY), **more))
        await connection.pause()
        if reset:
            connection.reset()

    return answer


def rest(body: bytes = BODY, start: int = HALF, /, span: str | None = None, **more: str) -> bytes:
    """What a range request from ``start`` asks for."""
    span = f"bytes {start}-{len(body) - 1}/{len(body)}" if span is None else span
    return reply(body[start:], "206 Partial Content", Content_Range=span, **{"ETag": '"v1"', **more})


def moved(to: str, status: str = "302 Found") -> bytes:
    return reply(b"", status, Location=to)


def chunked(*chunks: bytes, end: bool = True) -> bytes:
    body = b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks)
    return reply(body + (b"0\r\n\r\n" if end else b""), Content_Length="", Transfer_Encoding="chunked", ETag='"v1"')


def then(answer: bytes) -> Answer:
    """``answer``, read by the client before the connection ends."""

    async def answering(connection: Connection) -> None:
        await connection.send(answer)
        await connection.pause()

    return answering


async def hang(connection: Connection) -> None:
    await connection.hang()


def stall(part: bytes) -> Answer:
    async def answer(connection: Connection) -> None:
        await connection.send(part)
        await connection.hang()

    return answer


def drip(data: bytes, every: float = 0.05) -> Answer:
    async def answer(connection: Connection) -> None:
        for byte in data:
            if connection.writer.transport.is_closing():
                return
            await connection.send(bytes([byte]))
            await asyncio.sleep(every)

    return answer


class Dns(AbstractResolver):
    """Answers the next list of addresses, and the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), 0

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        self.asked += 1
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        kind = {True: socket.AF_INET6, False: socket.AF_INET}
        return [
            ResolveResult(hostname=host, host=ip, port=port, family=kind[":" in ip], proto=0, flags=0)
            for ip in addresses
        ]

    async def close(self) -> None:
        pass


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate of this machine, which signs itself, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}"
    try:
        subprocess.run(
            [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-out", cert, "-keyout", key],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        missing("the openssl program", "it makes the certificate")
    return cert, key


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"), "test")


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", context)
