"""``abp batch run`` that is killed at random moments and started again, against an app that counts what ran.

``python -m tests.batch.kills --jobs 10000 --kills 20`` is the long form of ``test_kills.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from transports import MemoryTransport, open_store
from transports.adapters.memory import Call
from transports.batch.ledger import open_ledger
from transports.protocol.envelope import decode_envelope, encode_envelope

__all__ = ["CountingApp", "Killed", "kill_and_resume"]

#: Seconds for one start of the command, at most.
_PATIENCE = 600.0
CONCURRENCY = 8


@dataclass
class CountingApp:
    """An app over a WebSocket whose one capability counts how often each job ran."""

    runs: Counter[int] = field(default_factory=Counter)
    ran: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve it, at the address that this yields."""
        async with MemoryTransport({"count": self._count}) as app:

            async def connected(socket: ServerConnection) -> None:
                async def answer(text: str | bytes) -> None:
                    message = decode_envelope(text.encode() if isinstance(text, str) else text)
                    if message.id is not None:
                        reply = await app.request(message, timeout=60)
                        with contextlib.suppress(ConnectionClosed):
                            await socket.send(encode_envelope(reply).decode())

                with contextlib.suppress(ConnectionClosed):
                    async with asyncio.TaskGroup() as tasks:
                        async for text in socket:
                            tasks.create_task(answer(text))

            async with serve(connected, "127.0.0.1", 0) as server:
                yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"

    async def _count(self, params: Mapping[str, object], _: Call) -> object:
        number = params["n"]
        assert isinstance(number, int)
        self.runs[number] += 1
        self.ran.set()
        await asyncio.sleep(0.002)
        return {"n": number}

    async def until(self, total: int) -> None:
        """Wait until so many jobs ran."""
        while self.runs.total() < total:
            self.ran.clear()
            await self.ran.wait()


@dataclass(frozen=True)
class Killed:
    """What a run came to. ``problems`` is empty if the sum is whole."""

    kills: int
    starts: int
    states: Mapping[str, int]
    seconds: float
    problems: list[str]


async def kill_and_resume(folder: Path, jobs: int, kills: int, seed: int = 0) -> Killed:
    """Run ``jobs`` jobs, every second one idempotent, and kill the command ``kills`` times on the way: once while it
    reads its input, then after random numbers of jobs. Then let it end, and compare what the app counted with ledger,
    manifest and store."""
    chance, begun = random.Random(seed), time.monotonic()
    path, out = folder / "jobs.jsonl", folder / "run"
    with path.open("w") as file:
        for n in range(jobs):
            file.write(json.dumps({"id": str(n), "capability": "count", "params": {"n": n}, "idempotent": n % 2 == 0}))
            file.write("\n")
    app = CountingApp()
    moments = [0, *sorted(chance.sample(range(1, jobs * 9 // 10), kills - 1))]
    killed = starts = 0
    async with app.served() as url:
        command = [sys.executable, "-m", "transports.surfaces.cli", "batch", "run", str(path), "--out", str(out)]
        command += ["--target", url, "--concurrency", str(CONCURRENCY), "-q"]
        env = {key: value for key, value in os.environ.items() if not key.startswith("ABP_")}
        status = -signal.SIGKILL.value
        while status < 0:
            starts += 1
            process = await asyncio.create_subprocess_exec(*command, env=env, start_new_session=True)
            try:
                if killed < kills:
                    await _moment(app, moments[killed], out, process)
                    await asyncio.sleep(chance.random() * 0.01)
                    if process.returncode is None:
                        process.kill()
                        killed += 1
                status = await asyncio.wait_for(process.wait(), _PATIENCE)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    problems, states = await _differences(app, out, jobs, kills)
    return Killed(killed, starts, states, time.monotonic() - begun, problems)


async def _moment(app: CountingApp, total: int, out: Path, process: asyncio.subprocess.Process) -> None:
    """Wait for the next kill, or until the command ends: for the file of the ledger, or a number of jobs that ran."""
    reached = asyncio.ensure_future(app.until(total) if total else _exists(out / "jobs.sqlite"))
    ended = asyncio.ensure_future(process.wait())
    await asyncio.wait((reached, ended), timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    for task in (reached, ended):
        task.cancel()


async def _exists(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.005)


async def _differences(app: CountingApp, out: Path, jobs: int, kills: int) -> tuple[list[str], dict[str, int]]:
    problems: list[str] = []

    def expect(fits: bool, problem: str) -> None:
        if not fits and len(problems) < 20:
            problems.append(problem)

    manifest = [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]
    async with open_ledger(out) as ledger:
        rows = [row async for row in ledger.rows()]
    expect([row.key for row in rows] == [line["key"] for line in manifest], "the manifest is not the ledger")
    expect([line["id"] for line in manifest] == [str(n) for n in range(jobs)], "jobs are lost or doubled")
    async with open_store(str(out / "files")) as store:
        stored = {ref.sha256 for ref in await store.list()}
    for n, (row, line) in enumerate(zip(rows, manifest, strict=True)):
        ran = app.runs[n]
        expect(row.state.value == line["status"], f"job {n} is {row.state} and {line['status']} in the manifest")
        expect(row.state.value in ("succeeded", "unknown"), f"job {n} is {row.state}: {row.error}")
        if row.job.idempotent:
            expect(
                row.state.value == "succeeded" and ran >= 1, f"idempotent job {n} is {row.state} and ran {ran} times"
            )
        else:
            expect(ran <= 1, f"job {n} ran {ran} times")
            expect(ran == 1 or row.state.value == "unknown", f"job {n} is {row.state} and did not run")
        expect(row.state.value == "unknown" or line["sha256"] in stored, f"the file of job {n} is not in the store")
    states = Counter(row.state.value for row in rows)
    expect(states["unknown"] <= kills * CONCURRENCY, f"{states['unknown']} jobs are unknown after {kills} kills")
    expect(not list((out / "workers").iterdir()), "lock files are left behind")
    return problems, dict(states)


def main() -> None:
    """Run it and print what it came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(kill_and_resume(Path(folder), args.jobs, args.kills, args.seed)))


if __name__ == "__main__":
    main()
