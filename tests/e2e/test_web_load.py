"""Many clients at once, some of which do not read: memory stays bounded, and all others are served.

The server runs in a process of its own, so that its memory alone is measured. Time limits only end a test that hangs.
"""

import asyncio
import hashlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.web_client import TOKEN
from transports.artifacts import ArtifactRef, LocalStore

_MB = 1 << 20
_HEAD = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"


class Server:
    """``abp serve`` as a process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port
        self.status = psutil.Process(process.pid)

    @property
    def megabytes(self) -> float:
        return float(self.status.memory_info().rss / _MB)

    @property
    def files(self) -> int:
        return int(self.status.num_fds())

    async def connect(self, path: str, more: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\n{_HEAD}{more}\r\n".encode())
        await writer.drain()
        return reader, writer

    async def metrics(self) -> dict[str, float]:
        reader, writer = await self.connect("/metrics", "Connection: close\r\n")
        text = (await reader.read()).partition(b"\r\n\r\n")[2].decode()
        writer.close()
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    async def until(self, name: str, value: float, seconds: float = 200.0) -> None:
        async def reached() -> bool:
            return (await self.metrics()).get(name) == value

        await eventually(reached, within=seconds, pause=0.1)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    environment = {**os.environ, "ABP_OUTPUT_DIR": str(folder), "ABP_SERVE_TOKEN": TOKEN}
    environment.pop("ABP_STORE", None)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "transports.surfaces.cli", "serve", "--json",
        stdout=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        first = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
        yield Server(process, int(first["url"].rstrip("/").rpartition(":")[2]))
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 143
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def allow_sockets(count: int) -> None:
    """Raise this process's limit of open files."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


@pytest.mark.fault(49)
@pytest.mark.slow
async def test_500_listeners_that_never_read_and_200_that_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    allow_sockets(4096)
    store = LocalStore(tmp_path / "out")
    rounds, each, stuck, reading_ones = 4, 100, 500, 200
    async with serving(tmp_path / "out") as server, AsyncExitStack() as stack:
        await server.metrics()
        files, before = server.files, server.megabytes
        for _ in range(stuck):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # and half of another request
            sock.sendall(f"GET /events HTTP/1.1\r\n{_HEAD}\r\nGET /events HTTP/1.1\r\n{_HEAD}X-Half: ".encode())
        listeners = [await server.connect("/events") for _ in range(reading_ones)]
        for _, writer in listeners:
            stack.callback(writer.transport.abort)
        await server.until("abp_listeners", stuck + reading_ones)
        joined = server.megabytes
        reading = [asyncio.ensure_future(_ids(reader, rounds * each)) for reader, _ in listeners]
        peak = joined
        text = "some text " * 80  # an event of 2 KB, more in all than the buffers of the operating system hold
        for n in range(rounds):
            await asyncio.gather(*(
                store.put_bytes(f"{n} {m}".encode(), mime_type="text/plain", meta={"app": text, "capability": text})
                for m in range(each)
            ))  # fmt: skip
            await asyncio.sleep(0.6)  # longer than the server takes to see a change of the store
            peak = max(peak, server.megabytes)
        async with asyncio.timeout(200):
            seen = await asyncio.gather(*reading)
        assert all(one == seen[0] for one in seen) and len(set(seen[0])) == rounds * each
        await server.until("abp_listeners_dropped_total", stuck)
        await server.until("abp_listeners", reading_ones)
        peak = max(peak, server.megabytes)
        for _, writer in listeners:
            writer.close()
        await server.until("abp_listeners", 0)
        async with asyncio.timeout(200):
            while server.files > files + 2:
                await asyncio.sleep(0.1)
        with capsys.disabled():
            print(f"\n700 listeners: {before:.0f} MB before, {joined:.0f} with all, {peak:.0f} at most")
        assert peak - before < 100


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
async def test_200_readers_of_ranges_of_200_megabytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allow_sockets(4096)
    store = LocalStore(tmp_path / "out")
    block = bytes(range(256)) * 4096  # 1 MB

    async def pieces() -> AsyncIterator[bytes]:
        for n in range(200):
            yield n.to_bytes(4, "big") + block[4:]

    ref = await store.put_stream(pieces())
    async with serving(tmp_path / "out") as server:
        await server.metrics()
        files, before = server.files, server.megabytes
        stuck = [await server.connect(f"/artifacts/{ref.id}") for _ in range(5)]  # they take the head and no more
        began = asyncio.get_running_loop().time()
        reading = asyncio.gather(*(_part(server, ref, n) for n in range(200)))
        most = before
        while not reading.done():
            most = max(most, server.megabytes)
            await asyncio.sleep(0.05)
        seconds = asyncio.get_running_loop().time() - began
        for n, digest in enumerate(await reading):
            whole = hashlib.sha256()
            for block_number in range(n, min(n + 8, 200)):
                whole.update(block_number.to_bytes(4, "big") + block[4:])
            assert digest == whole.hexdigest(), n
        digest, size = await _whole(server, ref)
        assert (digest, size) == (ref.sha256, ref.size_bytes)
        for _, writer in stuck:
            writer.transport.abort()
        async with asyncio.timeout(200):
            while server.files > files + 2:
                await asyncio.sleep(0.1)
        with capsys.disabled():
            print(
                f"\n200 readers of 8 MB each: {before:.0f} MB before, {most:.0f} at most, "
                f"{1600 / seconds:.0f} MB/s in all"
            )
        assert most - before < 150


async def _part(server: Server, ref: ArtifactRef, n: int) -> str:
    """8 MB from the n-th one on."""
    start, end = n * _MB, min((n + 8) * _MB, ref.size_bytes)
    return (await _whole(server, ref, f"Range: bytes={start}-{end - 1}\r\n"))[0]


async def _whole(server: Server, ref: ArtifactRef, more: str = "") -> tuple[str, int]:
    reader, writer = await server.connect(f"/artifacts/{ref.id}", f"{more}Connection: close\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 206" if more else b"HTTP/1.1 200")
    digest, size = hashlib.sha256(), 0
    while chunk := await reader.read(1 << 18):
        digest.update(chunk)
        size += len(chunk)
    writer.close()
    return digest.hexdigest(), size
