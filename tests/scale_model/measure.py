"""What the model is fed with, and what it is compared with: measured on this machine, kept in ``measured.json``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.batch.kills.apps import SocketApp
from tests.benchmarks.ledgers import HELD, TITLE, ledger_work
from tests.benchmarks.machine import machine
from tests.benchmarks.pages import Bench
from tests.scale_model.model import Costs
from transports import Browser
from transports.memory import Call
from webapp_fixture import serve

#: The file with what was measured.
MEASURED = Path(__file__).with_name("measured.json")
#: Runs of ``abp batch run`` with SQLite and no store: sessions and the seconds that the app waits, for a socket;
#: sessions, for a page. The first gives the processor time of a job, the other sockets are what the model has to find.
_SOCKETS = ((32, 0.02), (1, 0.02), (8, 0.02), (1, 0.1), (8, 0.1), (32, 0.1))
_PAGES = (4, 1, 8)
#: Rounds, one after the other; the best of each run is kept, since other work of a machine only takes away.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: jobs a second, and the seconds of the processor that each took in the worker's Python, in its driver and
    browser, and in the app's server."""

    kind: str
    sessions: int
    wait: float
    per_second: float
    python: float
    page: float
    app: float


class Host(SocketApp):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def _count(self, params: Mapping[str, object], _: Call) -> object:
        await asyncio.sleep(self._seconds)
        return {"n": params["n"]}


def load() -> tuple[dict[str, dict[str, float]], list[Measured], dict[str, str]]:
    """Return the ledger's milliseconds, the runs, and the machine."""
    document = json.loads(MEASURED.read_text())
    return document["ledger"], [Measured(**run) for run in document["runs"]], document["machine"]


def costs_of(ledger: dict[str, float], run: Measured, *, crowded: bool = False) -> Costs:
    """The constants of the model: those of one ledger (in milliseconds) and of one run. In a ``crowded`` ledger a
    transaction takes as much longer as sixteen workers at once have found."""
    one, eight = ({what: ledger[f"{what} {count}"] for what in ("lease", "settle")} for count in (1, 8))
    each = {what: (eight[what] - one[what]) / 7 for what in one}
    more = max(8 * ledger["16 at once"] / (eight["lease"] + eight["settle"]), 1.0) if crowded else 1.0
    few, many = (ledger[f"kept beside {held:,}"] for held in HELD)
    return Costs(
        lease=(one["lease"] - each["lease"]) * more / 1000,
        lease_job=each["lease"] * more / 1000,
        settle=(one["settle"] - each["settle"]) * more / 1000,
        settle_job=each["settle"] * more / 1000,
        keep=few * more / 1000,
        keep_lease=max(many - few, 0.0) / (HELD[1] - HELD[0]) / 1000,
        python=run.python,
        page=run.page,
    )


async def measure(scale: float) -> None:
    """Measure everything for about two minutes times ``scale``, and write the file."""
    ledger: dict[str, dict[str, float]] = {}
    runs: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="abp-model-") as folder:
        async with Browser() as browser:
            told = {**machine(browser.version), "cores": str(psutil.cpu_count())}
            bench = Bench("", browser, Path(folder), quick=scale < 1)
            _, tables = await ledger_work(bench)
            ledger = {name: dict(row) for table in tables if table.title == TITLE for name, row in table.cells.items()}
        async with serve() as fixture:
            for _ in range(_ROUNDS):
                for sessions, wait in _SOCKETS:
                    async with Host(wait).served() as url:
                        jobs = int(scale * min(3000, 6 * sessions / wait))
                        runs.append(await _run(url, "count", "socket", sessions, wait, jobs))
                for sessions in _PAGES:
                    runs.append(await _run(fixture.url, "data.json", "page", sessions, 0.0, int(scale * 2000)))
    best = [max(runs[at :: len(runs) // _ROUNDS], key=lambda run: run.per_second) for at in range(len(runs) // _ROUNDS)]
    document = {"machine": told, "ledger": ledger, "runs": [_rounded(run) for run in best]}
    MEASURED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _rounded(run: Measured) -> dict[str, object]:
    values = {name: getattr(run, name) for name in Measured.__slots__}
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}


async def _run(url: str, capability: str, kind: str, sessions: int, wait: float, jobs: int) -> Measured:
    """Measure the part of a run in which all its sessions are open: the last three quarters of its jobs."""
    with tempfile.TemporaryDirectory(prefix="abp-model-") as folder:
        path = Path(folder, "jobs.jsonl")
        with path.open("w") as file:
            for n in range(jobs):
                params = {"n": n, **({"csv": f"n\n{n}\n"} if kind == "page" else {})}
                file.write(json.dumps({"target": url, "capability": capability, "params": params}) + "\n")
        command = [sys.executable, "-m", "transports.surfaces.cli", "batch", "run", str(path), "--json"]
        command += [
            "--out",
            str(Path(folder, "run")),
            "--store",
            "none:",
            "--browsers",
            "1",
            "--concurrency",
            str(sessions),
        ]
        env = {key: value for key, value in os.environ.items() if not key.startswith("ABP_")}
        process = await asyncio.create_subprocess_exec(*command, env=env, stdout=asyncio.subprocess.PIPE, limit=1 << 24)
        marks: list[tuple[float, float, float, float]] = []
        try:
            assert process.stdout is not None
            ended = 0
            async for event in process.stdout:
                document = json.loads(event)
                if document["event"] == "ended":
                    assert document["status"] == "succeeded", document
                    ended += 1
                    if ended in (jobs // 4, jobs - sessions):
                        marks.append((time.perf_counter(), *_processor(psutil.Process(process.pid))))
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    seconds, python, page, app = (after - before for before, after in zip(*marks, strict=True))
    count = jobs - sessions - jobs // 4
    return Measured(kind, sessions, wait, count / seconds, python / count, page / count, app / count)


def _processor(worker: psutil.Process) -> tuple[float, float, float]:
    """Seconds of the processor until now: of the worker, of the processes below it, and of this one."""

    def used(process: psutil.Process) -> float:
        times = process.cpu_times()
        return times.user + times.system

    return used(worker), sum(map(used, worker.children(recursive=True))), used(psutil.Process())
