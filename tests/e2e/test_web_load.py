"""Many clients at once, some of which do not read: memory stays bounded, and all others are served.

The server runs in a process of its own, so that its memory alone is measured. Time limits only end a test that hangs.
"""

import asyncio
import hashlib
import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_serve_command import abp, client
from tests.support.eventually import eventually
from tests.support.web_client import TOKEN, Web
from transports.artifacts import ArtifactRef, LocalStore

_HEAD = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"


class Server:
    """``abp serve`` as a process, and what it used before the test."""

    def __init__(self, web: Web, pid: int) -> None:
        self.port = int(web.netloc.rpartition(":")[2])
        self._web = web
        self._process = psutil.Process(pid)
        self._files, self._memory = self._process.num_fds(), self._process.memory_info().rss

    @property
    def megabytes(self) -> float:
        """Growth of the resident memory."""
        return float(self._process.memory_info().rss - self._memory) / (1 << 20)

    async def connect(self, path: str, more: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\n{_HEAD}{more}\r\n".encode())
        await writer.drain()
        return reader, writer

    async def until(self, name: str, value: int) -> None:
        async def reached() -> bool:
            return f"\n{name} {value}.0\n".encode() in (await self._web.get("/metrics")).body

        await eventually(reached, within=200.0, pause=0.1)

    async def until_closed(self) -> None:
        await eventually(lambda: self._process.num_fds() <= self._files + 2, within=200.0, pause=0.1)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    async with abp(folder, "serve", "--json", ABP_SERVE_TOKEN=TOKEN) as program:
        async with client(**json.loads(await program.line())) as web:
            await web.get("/metrics")
            yield Server(web, program.process.pid)
        assert (await program.end(signal.SIGTERM))[0] == 128 + signal.SIGTERM


@pytest.mark.fault(49)
@pytest.mark.slow
async def test_500_stalled_listeners_do_not_affect_200_active_ones(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    rounds, each, stuck, readers = 4, 100, 500, 200
    async with serving(tmp_path / "out") as server, AsyncExitStack() as stack:
        for _ in range(stuck):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # and half of another request
            sock.sendall(f"GET /events HTTP/1.1\r\n{_HEAD}\r\nGET /events HTTP/1.1\r\n{_HEAD}X-Half: ".encode())
        listeners = [await server.connect("/events") for _ in range(readers)]
        for _, writer in listeners:
            stack.callback(writer.transport.abort)
        await server.until("abp_listeners", stuck + readers)
        reading = asyncio.gather(*(_ids(reader, rounds * each) for reader, _ in listeners))
        peak = server.megabytes
        text = "some text " * 80  # an event of 2 KB, more in all than the buffers of the operating system hold
        for n in range(rounds):
            await asyncio.gather(*(
                store.put_bytes(f"{n} {m}".encode(), mime_type="text/plain", meta={"app": text, "capability": text})
                for m in range(each)
            ))  # fmt: skip
            await asyncio.sleep(0.6)  # longer than the server takes to see a change of the store
            peak = max(peak, server.megabytes)
        async with asyncio.timeout(200):
            seen = await reading
        assert all(ids == seen[0] for ids in seen) and len(set(seen[0])) == rounds * each
        await server.until("abp_listeners_dropped_total", stuck)
        await server.until("abp_listeners", readers)
        assert max(peak, server.megabytes) < 100
        for _, writer in listeners:
            writer.close()
        await server.until("abp_listeners", 0)
        await server.until_closed()


async def _ids(reader: asyncio.StreamReader, count: int) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        line = await reader.readline()
        assert line
        if line.startswith(b"data: {"):
            ids.append(json.loads(line[6:])["id"])
    return ids


@pytest.mark.requirement("R2-6.3m", "R2-6.5c", "R4-15f")
@pytest.mark.slow
async def test_200_clients_read_ranges_of_a_200_mb_artifact(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    tail = bytes((1 << 20) - 4)

    def content(start: int, end: int) -> Iterator[bytes]:
        for n in range(start, min(end, 200)):
            yield n.to_bytes(4, "big") + tail

    async def pieces() -> AsyncIterator[bytes]:
        for piece in content(0, 200):
            yield piece

    ref = await store.put_stream(pieces())
    async with serving(tmp_path / "out") as server:
        stuck = [await server.connect(f"/artifacts/{ref.id}") for _ in range(5)]  # they take the head and no more
        ranges = [(n << 20, min(n + 8, 200) << 20) for n in range(200)]
        reading = asyncio.gather(*(_digest(server, ref, f"Range: bytes={a}-{b - 1}\r\n") for a, b in ranges))
        peak = 0.0
        while not reading.done():
            peak = max(peak, server.megabytes)
            await asyncio.sleep(0.05)
        assert await reading == [hashlib.sha256(b"".join(content(n, n + 8))).hexdigest() for n in range(200)]
        assert await _digest(server, ref) == ref.sha256
        for _, writer in stuck:
            writer.transport.abort()
        await server.until_closed()
        assert peak < 150


async def _digest(server: Server, ref: ArtifactRef, more: str = "") -> str:
    reader, writer = await server.connect(f"/artifacts/{ref.id}", f"{more}Connection: close\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 206" if more else b"HTTP/1.1 200")
    digest = hashlib.sha256()
    while chunk := await reader.read(1 << 18):
        digest.update(chunk)
    writer.close()
    return digest.hexdigest()
