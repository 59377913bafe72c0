"""The programs beside this one: the reference app behind a proxy that can cut, and ``abp serve``; and a small disk."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

from tests.support.mcp_servers import FOLDER
from transports.artifacts import Retention
from transports.mcp._servers import StdioServer

ABP = (sys.executable, "-m", "transports.surfaces.cli")
_REPOSITORY = Path(__file__).parents[2]
_DISK_BYTES = 8 << 20
#: Seconds for a program to say that it is ready, and to end.
_READY, _END = 60.0, 20.0


class Program:
    """A process of ours, and the lines of its stdout. What it says on stderr goes to ``log``."""

    def __init__(self, *command: str, env: Mapping[str, str], log: Path) -> None:
        self._command = command
        self._env = {**os.environ, **env}
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, env=self._env, text=True, cwd=_REPOSITORY
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        stdout: IO[str] = self._process.stdout
        return (await asyncio.wait_for(asyncio.to_thread(stdout.readline), _READY)).strip()

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal, by SIGKILL if that is not enough. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            await asyncio.to_thread(process.wait, _END)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
        if process.stdout is not None:
            process.stdout.close()


class AppServer(Program):
    """The reference app as a process, on one port however often it is killed."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/"
        super().__init__(*ABP, "fixture", "--port", str(self.port), env={}, log=folder / "app.log")

    async def start_ready(self) -> None:
        self.start()
        while await self.line() != "Ctrl-C ends it.":
            pass


def mcp_server() -> StdioServer:
    return StdioServer(sys.executable, (str(FOLDER / "reference.py"),), env=dict(os.environ), name="mcp")


def bridge_server(folder: Path) -> StdioServer:
    """``abp mcp``, with a store of its own that keeps everything."""
    env = {**os.environ, "ABP_OUTPUT_DIR": str(folder), "ABP_RETENTION_ENABLED": "false"}
    return StdioServer(ABP[0], (*ABP[1:], "mcp"), env=env, cwd=_REPOSITORY, name="bridge")


@asynccontextmanager
async def gallery(folder: Path, app: str, audit: Path, log: Path) -> AsyncIterator[tuple[Program, str, str]]:
    """``abp serve`` over the store in ``folder`` with one app: the program, its address and its token."""
    env = {"ABP_OUTPUT_DIR": str(folder), "ABP_AUDIT_LOG": str(audit)}
    program = Program(*ABP, "serve", "--app", app, "--json", env=env, log=log)
    program.start()
    try:
        ready = json.loads(await program.line())
        yield program, ready["url"], ready["token"]
    finally:
        with suppress(psutil.Error):
            psutil.Process(program.pid).resume()
        await program.end()


@contextmanager
def small_disk(folder: Path) -> Iterator[Retention | None]:
    """A disk of 8 MB at ``folder``: a tmpfs where one may be mounted, else a folder whose store must have the limit
    that is yielded."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0 if sys.platform == "linux" else False
    try:
        yield None if mounted else Retention.only(max_session_bytes=_DISK_BYTES, cleanup_strategy="none")
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)
