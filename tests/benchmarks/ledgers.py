"""The ledger of a batch alone: how many jobs it leases and settles in a second, for one worker and for several."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tests.benchmarks.measure import in_turns
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row, Table
from tests.support.postgres_server import postgres_server, run_url
from transports._internal.database import Cursor
from transports.artifacts import ArtifactRef
from transports.batch import Job, Ledger, Outcome, State, open_ledger
from transports.batch.ledger._schema import Database, PostgresDatabase, Settlement, SqliteDatabase

__all__ = ["HELD", "TITLE", "ledger_work"]

#: The table that the model of many workers reads.
TITLE = "Ledger: one transaction, and each job of one for several workers at once"
_HOSTS = 4
#: Leases that others hold while one worker keeps its own.
HELD = (8, 4000)
_REF = ArtifactRef("a" * 32, "artifact://" + "a" * 32, None, "data.json", "application/json", 900, "0" * 64, {})


async def ledger_work(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Jobs leased and settled in ones and in eights, against bare transactions of the same database; then the same by
    several workers at once."""
    rows: list[Row] = []
    cells: dict[str, dict[str, float]] = {}
    folders = count()
    with postgres_server("benchmarks") as server:
        places: dict[str, tuple[Callable[[], str], Callable[[str], Database]]] = {
            "SQLite": (lambda: str(bench.folder / f"ledger-{next(folders)}"), lambda at: SqliteDatabase(Path(at))),
            "PostgreSQL": (lambda: run_url(server), lambda at: PostgresDatabase(at[: at.index("run=") - 1])),
        }
        for name, (place, bare) in places.items():
            found, cells[name] = await _one_worker(name, place(), bare, 200 if bench.quick else 800)
            rows += found
            for workers in (1, 4, 16):
                each = await _several(place(), workers, 400 if bench.quick else 1600)
                cells[name][f"{workers} at once"] = each * 1000
            for held in HELD:
                cells[name][f"kept beside {held:,}"] = await _kept(place(), held) * 1000
    columns = tuple(dict.fromkeys(column for row in cells.values() for column in row))
    return rows, [Table(TITLE, columns, cells)]


async def _one_worker(
    name: str, place: str, bare: Callable[[str], Database], jobs: int
) -> tuple[list[Row], dict[str, float]]:
    spent: dict[str, list[float]] = {}

    def timed(what: str, started: float) -> float:
        spent.setdefault(what, []).append(time.perf_counter() - started)
        return time.perf_counter()

    async with open_ledger(place) as ledger:
        await _fill(ledger, jobs * 8)

        async def through(at_once: int) -> Sequence[float]:
            started = time.perf_counter()
            for _ in range(jobs // 8 // at_once):
                began = time.perf_counter()
                held = await ledger.lease(at_once, 60.0)
                began = timed(f"lease {at_once}", began)
                assert await ledger.settle([_settled(one.key, one.job) for one in held]) == at_once
                timed(f"settle {at_once}", began)
            return [(time.perf_counter() - started) / (jobs // 8)]

        database, run = bare(place), dict(parse_qsl(urlsplit(place).query)).get("run", "")
        database.connect()
        try:
            keys = iter([row.key async for row in ledger.rows()][::-1])

            def transactions(at_once: int) -> None:
                for _ in range(jobs // 8 // at_once):
                    batch = [next(keys) for _ in range(at_once)]
                    for _ in range(2):
                        database.transaction(partial(_touch, run=run, keys=batch), write=True)

            async def alone(at_once: int) -> Sequence[float]:
                started = time.perf_counter()
                await asyncio.to_thread(transactions, at_once)
                return [(time.perf_counter() - started) / (jobs // 8)]

            times = await in_turns(
                {
                    "ones": lambda: through(1),
                    "bare ones": lambda: alone(1),
                    "eights": lambda: through(8),
                    "bare eights": lambda: alone(8),
                },
                rounds=2,
            )
        finally:
            database.close()
    rows = [
        Row(
            work=f"jobs leased and settled in {how}, {name}",
            baseline="two bare transactions that update as many rows by their keys, from the same thread",
            figure=min(times[f"bare {how}"]) / min(times[how]),
            unit="×",
            at_least=0.2,
            measured=f"{1 / min(times[how]):,.0f} jobs a second against {1 / min(times[f'bare {how}']):,.0f}",
            reason="a lease looks for hosts and for the oldest jobs of each, reads them, and comes from another thread",
        )
        for how in ("ones", "eights")
    ]
    return rows, {what: sorted(values)[len(values) // 2] * 1000 for what, values in spent.items()}


def _touch(cursor: Cursor, run: str, keys: Sequence[str]) -> None:
    for key in keys:
        cursor.execute("UPDATE abp_jobs SET milliseconds = milliseconds + 1 WHERE run = ? AND key = ?", (run, key))


async def _several(place: str, workers: int, jobs: int) -> float:
    """The seconds of a job if so many workers lease and settle in eights."""
    async with AsyncExitStack() as stack:
        ledgers = [await stack.enter_async_context(open_ledger(place)) for _ in range(workers)]
        await _fill(ledgers[0], jobs)

        async def work(ledger: Ledger) -> int:
            done = 0
            while held := await ledger.lease(8, 60.0):
                done += await ledger.settle([_settled(one.key, one.job) for one in held])
            return done

        started = time.perf_counter()
        done = await asyncio.gather(*map(work, ledgers))
        seconds = time.perf_counter() - started
    assert sum(done) == jobs, done
    return seconds / jobs


async def _kept(place: str, held: int) -> float:
    """The seconds in which a worker renews its leases and ends those of others, beside so many."""
    async with open_ledger(place) as ledger, open_ledger(place) as other:
        await _fill(ledger, held + 8)
        await other.lease(held, 60.0)
        await ledger.lease(8, 60.0)
        taken = []
        for _ in range(9):
            started = time.perf_counter()
            await ledger.heartbeat(60.0)
            await ledger.expire()
            taken.append(time.perf_counter() - started)
    return sorted(taken)[4]


async def _fill(ledger: Ledger, jobs: int) -> None:
    def batches() -> Iterator[list[Job]]:
        for first in range(0, jobs, 500):
            yield [
                Job("data.json", {"csv": f"n\n{n}\n"}, f"http://app-{n % _HOSTS}.example/")
                for n in range(first, min(first + 500, jobs))
            ]

    await ledger.add(batches, "benchmark")


def _settled(key: str, job: Job) -> Settlement:
    return Settlement(key, Outcome(job, State.SUCCEEDED, milliseconds=5.0, artifacts=(_REF,)))
