"""A run under a schedule of kills, the processes of it, and the sum at its end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.postgres_server import PostgresServer, run_url, running_server
from tests.support.processes import processes
from transports import open_store
from transports.batch.ledger._ledger import open_ledger

from .apps import Counting, PageApp, SocketApp

#: Jobs that a worker has at once.
CONCURRENCY = 8
_ABP = (sys.executable, "-m", "transports.surfaces.cli", "-q", "batch")
#: What `fsck` says of content whose writer was killed before its metadata were there; `gc` removes it by its age.
_HALF = ("orphan", "name")
_APPS: Mapping[str, type[Counting]] = {"pages": PageApp, "sockets": SocketApp}


@dataclass(frozen=True, slots=True)
class Plan:
    """How many jobs, and what is killed how often. ``workers`` are processes of one run; the database crashes once."""

    jobs: int
    kills: int
    app: str = "sockets"
    ledger: str = "sqlite"
    workers: int = 1
    seed: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("worker", *(("browser", "driver") if self.app == "pages" else ()))


@dataclass(frozen=True)
class Killed:
    """What a run came to. ``problems`` is empty if the sum is whole."""

    killed: Mapping[str, int]
    starts: int
    states: Mapping[str, int]
    seconds: float
    problems: list[str]


async def kill_and_resume(folder: Path, plan: Plan) -> Killed:
    """Run the jobs of a plan, every second one idempotent, and kill its parts on the way: the first worker while it
    reads its input, then what comes next in turn after random numbers of jobs. Let the run end, and compare what the
    app counted with ledger, manifest and store."""
    begun, app = time.monotonic(), _APPS[plan.app]()
    lines = [{"id": str(n), **app.call(n), "idempotent": n % 2 == 0} for n in range(plan.jobs)]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    temporary = folder / "t"
    temporary.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith("ABP_")} | {"TMPDIR": str(temporary)}
    async with AsyncExitStack() as stack:
        server = stack.enter_context(running_server(str(folder))) if plan.ledger == "postgres" else None
        async with app.served() as url:
            ledger = str(folder / "run") if server is None else run_url(server.url)
            crew = Crew(_commands(folder, plan, url, ledger), env, folder / "log", plan.seed)
            killing = asyncio.create_task(_kill(plan, app, crew, folder / "run", server))
            try:
                await crew.work()
            finally:
                killing.cancel()
                await asyncio.wait((killing,))
            if not killing.cancelled() and (error := killing.exception()):
                raise error
        problems, states = crew.problems, dict[str, int]()
        if not problems:
            problems, states = await _differences(app, folder / "run", ledger, plan, crew.killed.total())
    problems += [f"a process is left: {process}" for process in await left_behind(folder)]
    problems += [f"a file is left: {path}" for path in temporary.iterdir()]
    return Killed(dict(crew.killed), crew.starts, states, time.monotonic() - begun, problems)


def _commands(folder: Path, plan: Plan, url: str, ledger: str) -> list[list[str]]:
    common = ["--concurrency", str(CONCURRENCY), "--store", str(folder / "run" / "files")]
    out = ["--out", str(folder / "run"), "--target", url, "--ledger", ledger]
    run = [*_ABP, "run", str(folder / "jobs.jsonl"), *out, *common]
    return [run, *([*_ABP, "worker", ledger, *common] for _ in range(plan.workers - 1))]


async def _kill(plan: Plan, app: Counting, crew: Crew, out: Path, server: PostgresServer | None) -> None:
    chance = random.Random(plan.seed)
    moments = sorted(chance.sample(range(1, plan.jobs * 9 // 10), plan.kills - 1))
    if server is None:
        while not (out / "ledger.sqlite").exists():
            await asyncio.sleep(0.005)
    await _kill_one(crew, "worker", chance)
    await app.until(1)
    crew.has_jobs.set()
    for at, moment in enumerate(moments, 1):
        await app.until(moment)
        if server is not None and at == plan.kills // 2:
            await _crash(crew, server)
        await _kill_one(crew, plan.kinds[at % len(plan.kinds)], chance)


async def _kill_one(crew: Crew, kind: str, chance: random.Random) -> None:
    await asyncio.sleep(chance.random() * 0.01)
    while not crew.kill(kind):  # it is being started
        await asyncio.sleep(0.02)


async def _crash(crew: Crew, server: PostgresServer) -> None:
    """End the database for three seconds. What is not connected yet waits: it would only say that there is none."""
    crew.may_start.clear()
    await asyncio.to_thread(server.crash)
    await asyncio.sleep(3)
    await asyncio.to_thread(server.start)
    crew.killed["database"] += 1
    crew.may_start.set()


async def _differences(
    app: Counting, out: Path, ledger: str, plan: Plan, kills: int
) -> tuple[list[str], dict[str, int]]:
    problems: list[str] = []

    def expect(fits: bool, problem: str) -> None:
        if not fits and len(problems) < 20:
            problems.append(problem)

    manifest = [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]
    async with open_ledger(ledger, existing=True) as opened:
        rows = [row async for row in opened.rows()]
    expect([row.key for row in rows] == [line["key"] for line in manifest], "the manifest is not the ledger")
    expect([line["id"] for line in manifest] == [str(n) for n in range(plan.jobs)], "jobs are lost or doubled")
    async with open_store(str(out / "files")) as store:
        stored = {ref.uri: ref.sha256 for ref in await store.list()}
        found = (await store.fsck()).problems
    for n, (row, line) in enumerate(zip(rows, manifest, strict=True)):
        ran = app.runs[n]
        expect(row.state.value == line["status"], f"job {n} is {row.state} and {line['status']} in the manifest")
        expect(row.state.value in ("succeeded", "unknown"), f"job {n} is {row.state}: {row.error_code} {row.error}")
        if row.job.idempotent:
            expect(
                row.state.value == "succeeded" and ran >= 1,
                f"idempotent job {n} is {row.state} and ran {ran} times: {row.error_code} {row.error}",
            )
        else:
            expect(ran <= 1, f"job {n} ran {ran} times")
            expect(ran == 1 or row.state.value == "unknown", f"job {n} is {row.state} and did not run")
        here = row.state.value == "unknown" or stored.get(line["uri"]) == line["sha256"]
        expect(here, f"the file of job {n} is not in the store")
    # what a worker that was killed had written and not told yet; each belongs to a lease that is lost
    lost, spare = kills * CONCURRENCY, stored.keys() - {line["uri"] for line in manifest}
    expect(len(spare) <= lost, f"{len(spare)} files belong to no job after {kills} kills")
    for problem in found:
        expect(problem.kind in _HALF, f"the store has {problem}")
    expect(len(found) <= len(_HALF) * lost, f"{len(found)} contents are half written after {kills} kills")
    states = Counter(row.state.value for row in rows)
    expect(states["unknown"] <= lost, f"{states['unknown']} jobs are unknown after {kills} kills")
    half = [path.name for path in out.iterdir() if path.name.startswith(".")]
    expect(not half, f"half-written files are left: {half}")
    if (out / "workers").is_dir():
        expect(not list((out / "workers").iterdir()), "lock files are left behind")
    return problems, dict(states)


#: Seconds for one start of a command, at most.
_PATIENCE = 3600.0
#: Seconds after its start within which a worker may not have reached its ledger yet.
_EARLY = 15.0
#: Exit statuses of a worker whose run has ended.
_ENDED = (0, 3)


class Crew:
    """Commands that are started again as often as they are killed, until each has ended by itself."""

    def __init__(self, commands: Sequence[Sequence[str]], env: Mapping[str, str], log: Path, seed: int) -> None:
        self.starts = 0
        self.killed: Counter[str] = Counter()
        self.problems: list[str] = []
        #: Cleared while nothing may be started.
        self.may_start = asyncio.Event()
        self.may_start.set()
        #: Set when the run has its jobs: the first command brings them, the others would find none.
        self.has_jobs = asyncio.Event()
        self._commands, self._env, self._log = commands, env, log
        self._chance = random.Random(seed)
        self._running: dict[int, asyncio.subprocess.Process] = {}

    async def work(self) -> None:
        await asyncio.gather(*map(self._keep, range(len(self._commands))))

    async def _keep(self, number: int) -> None:
        if number:
            await self.has_jobs.wait()
        again = True
        while again:
            await self.may_start.wait()
            self.starts += 1
            started = time.monotonic()
            with self._log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *self._commands[number], env=self._env, stdout=log, stderr=log, start_new_session=True
                )
            self._running[number] = process
            try:
                status = await asyncio.wait_for(process.wait(), _PATIENCE)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                del self._running[number]
            # one that the database's end found while it started has not reached it, and says so
            early = not self.may_start.is_set() and time.monotonic() - started < _EARLY
            again = status == -signal.SIGKILL.value or (early and status == 1)
        if status not in _ENDED:
            said = self._log.read_text(errors="replace")[-2000:]
            self.problems.append(f"{' '.join(self._commands[number])} ended with {status}: {said}")

    def kill(self, kind: str) -> bool:
        """Kill a ``worker`` by chance, or a ``browser`` or ``driver`` below one; whether there was any."""
        with suppress(psutil.Error):
            mains = [psutil.Process(process.pid) for process in self._running.values() if process.returncode is None]
            found = mains if kind == "worker" else [one for main in mains for one in processes(kind, main)]
            if found:
                self._chance.choice(found).kill()
                self.killed[kind] += 1
                return True
        return False


async def left_behind(folder: Path, seconds: float = 20.0) -> list[str]:
    """The processes that name ``folder`` in their arguments or their environment, once they had time to end."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        found = [" ".join(process.cmdline()[:3])[:120] for process in psutil.process_iter() if _names(process, folder)]
        if not found or asyncio.get_running_loop().time() > end:
            return found
        await asyncio.sleep(0.2)


def _names(process: psutil.Process, folder: Path) -> bool:
    with suppress(psutil.Error):
        if process.pid != psutil.Process().pid and process.status() != psutil.STATUS_ZOMBIE:
            return any(str(folder) in word for word in (*process.cmdline(), *process.environ().values()))
    return False
