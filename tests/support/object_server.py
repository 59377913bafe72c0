"""A real S3 server for the tests: SeaweedFS on free ports of this machine, and a TCP proxy that can cut and freeze."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

BUCKET, KEY, SECRET = "artifacts", "test-key", "test-secret"
_READY = 30.0  # seconds
_ROLES = ("master", "volume", "filer", "s3")


def environment(endpoint: str) -> dict[str, str]:
    """The usual variables, for a server at ``endpoint``."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


def _free_ports(count: int) -> list[int]:
    """Ports P such that P + 10000 is free too: each service has its gRPC port there."""
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            port = 10_000 + secrets.randbelow(12_000)  # both are below the system's own range
            with suppress(OSError):
                for number in (port, port + 10_000):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", number))
                ports.append(port)
    return ports


def _die_with_parent() -> None:
    """Also if the tests are killed, the server must not stay (Linux: prctl PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class SeaweedFS:
    """One server with an empty bucket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ports = dict(zip(_ROLES, _free_ports(len(_ROLES)), strict=True))
        self.endpoint = f"http://127.0.0.1:{self.ports['s3']}"

    @staticmethod
    def command() -> str | None:
        """Where the program is, if it is installed."""
        beside = Path(sys.executable).with_name("weed")
        return str(beside) if beside.exists() else shutil.which("weed")

    def __enter__(self) -> Self:
        program = self.command()
        assert program is not None
        config = self._folder / "s3.json"
        credentials = [{"accessKey": KEY, "secretKey": SECRET}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities = [{"name": "test", "credentials": credentials, "actions": actions}]
        config.write_text(json.dumps({"identities": identities}))
        data = self._folder / "data"
        data.mkdir()
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}",
                    "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0",
                    "-master.volumeSizeLimitMB=64", "-volume.max=50",
                    *(f"-{role}.port={port}" for role, port in self.ports.items()),
                    *(f"-{role}.port.grpc={port + 10000}" for role, port in self.ports.items()),
                ],
                stdout=log, stderr=log, cwd=self._folder, start_new_session=True,
                preexec_fn=_die_with_parent,
                env={**os.environ, "HOME": str(self._folder), "TMPDIR": str(self._folder)},
            )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self._end()
            raise
        return self

    def _wait(self) -> None:
        """Until a bucket is made (by the filer, where buckets are folders) and S3 answers."""
        end = time.monotonic() + _READY
        while not (self._made() and self._answers()):
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError((self._folder / "log").read_text(errors="replace")[-3000:])
            time.sleep(0.1)

    def _made(self) -> bool:
        request = urllib.request.Request(f"{self.filer}/buckets/{BUCKET}/", method="POST")
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code == 409  # it is there
        except OSError:
            return False
        return True

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.endpoint, timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code == 403  # who are you?
        except OSError:
            return False
        return True

    @property
    def filer(self) -> str:
        """Where the server's files can be seen without signing anything."""
        return f"http://127.0.0.1:{self.ports['filer']}"

    def files(self, path: str = "") -> list[str]:
        """What lies in the bucket, seen from the server's side, unfinished uploads (``.uploads/…``) too."""
        request = urllib.request.Request(
            f"{self.filer}/buckets/{BUCKET}/{path}?limit=10000", headers={"Accept": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                entries = json.load(answer)["Entries"] or []
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
        found: list[str] = []
        for entry in entries:
            name = path + entry["FullPath"].rpartition("/")[2]
            found += self.files(name + "/") if entry["Mode"] & (1 << 31) else [name]
        return found

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The whole of it is stopped."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        # On a busy machine its threads may go on for a moment.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for role, port in self.ports.items():  # their places are fixed, and SIGKILL leaves them
            for name in (f"{role}-{port}", f"{role}-grpc-{port + 10000}"):
                Path(f"/tmp/seaweedfs-{name}.sock").unlink(missing_ok=True)


class Proxy:
    """A TCP proxy on a free port. ``cut_after`` ends every connection once so many bytes went through it towards the
    server (``up``) or from it (``down``); ``spoil`` may change what comes back."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.cut_up: int | None = None
        self.cut_down: int | None = None
        self.spoil: Callable[[bytes], bytes] | None = None
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._open: set[asyncio.Transport] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is gone: so is the client's connection
            writer.transport.abort()
            return
        ends = [stream.transport for stream in (writer, back) if isinstance(stream.transport, asyncio.Transport)]
        self._open.update(ends)
        pumps = [
            asyncio.ensure_future(self._pump(reader, back, up=True)),
            asyncio.ensure_future(self._pump(there, writer, up=False)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.abort()
        await asyncio.wait(pumps)
        self._open.difference_update(ends)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := await reader.read(65536):
                limit = self.cut_up if up else self.cut_down
                if limit is not None and passed + len(data) > limit:
                    return
                passed += len(data)
                writer.write(self.spoil(data) if self.spoil and not up else data)
                await writer.drain()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for end in list(self._open):
            end.abort()
        if self._serving:
            await asyncio.wait(self._serving)
        await asyncio.sleep(0)
