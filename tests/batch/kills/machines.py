"""A Ray cluster of several machines, all of which are this one: a head without CPUs, and machines that can be lost."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import psutil

from transports._internal.tasks import cancel_and_wait

#: Machines beside the head, each with one CPU.
MACHINES = 2

_RAY = str(Path(sys.executable).with_name("ray"))
_STORE = "--object-store-memory=83886080"
#: What `ray start --block` prints when its part of the cluster is there.
_STARTED = b"will now block"


class Machines:
    """The parts of a cluster, each a ``ray start`` and what is below it. ``env`` is what a program needs to join."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_ADDRESS": self.address}
        self._folder, self._temporary = folder, temporary
        self._head: asyncio.subprocess.Process | None = None
        self._machines: list[asyncio.subprocess.Process] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._up = asyncio.Semaphore(0)

    async def open(self) -> Self:
        head = ("--head", f"--port={self.address.rpartition(':')[2]}", "--num-cpus=0", "--include-dashboard=false")
        self._head = await self._start(*head, "--disable-usage-stats", f"--temp-dir={self._folder}")
        self._tasks = [asyncio.create_task(self._keep()) for _ in range(MACHINES)]
        for _ in range(MACHINES):
            await self._up.acquire()
        return self

    async def _start(self, *arguments: str) -> asyncio.subprocess.Process:
        common = ("--node-ip-address=127.0.0.1", "--include-log-monitor=false", _STORE, "--block")
        more = {
            "TMPDIR": str(self._temporary),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper": "true",
        }
        process = await asyncio.create_subprocess_exec(
            *(_RAY, "start", *arguments, *common),
            env={**{k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}, **self.env, **more},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            while _STARTED not in (line := await process.stdout.readline()):
                if not line:
                    await process.wait()
                    raise EOFError
        except asyncio.CancelledError:
            _kill(process)
            raise
        return process

    def starts(self) -> list[psutil.Process]:
        return [psutil.Process(one.pid) for one in self._machines if one.returncode is None]

    async def _keep(self) -> None:
        """Have a machine, and another one whenever Ray has ended on it."""
        while True:
            with suppress(EOFError):  # two that start at once may want the same port
                machine = await self._start(f"--address={self.address}", "--num-cpus=1")
                self._machines.append(machine)
                self._up.release()
                await machine.wait()
                self._machines.remove(machine)

    async def aclose(self) -> None:
        await cancel_and_wait(self._tasks)
        for one in (*self._machines, self._head):
            if one is not None and one.returncode is None:
                _kill(one)
                await one.wait()


def _kill(start: asyncio.subprocess.Process) -> None:
    """Kill a ``ray start`` and what is below it."""
    with suppress(psutil.Error):
        main = psutil.Process(start.pid)
        for one in (*main.children(recursive=True), main):
            with suppress(psutil.Error):
                one.kill()


@asynccontextmanager
async def ray_cluster(folder: Path, temporary: Path) -> AsyncIterator[Machines]:
    """Such a cluster: Ray's own files are in ``folder``, those of the actors in ``temporary``."""
    machines = Machines(folder, temporary)
    try:
        yield await machines.open()
    finally:
        await machines.aclose()
