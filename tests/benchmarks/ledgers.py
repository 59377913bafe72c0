"""The ledger of a batch alone: how many jobs it leases and settles in a second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tests.benchmarks.measure import Way, at_once, in_turns
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from tests.support.postgres_server import run_url, running_server
from transports._internal.database import Cursor
from transports.artifacts import ArtifactRef
from transports.batch import Job, Ledger, Outcome, State, open_ledger
from transports.batch.ledger._schema import Database, PostgresDatabase, Settlement, SqliteDatabase

__all__ = ["ledger_work"]

_HOSTS = 4
_REF = ArtifactRef("a" * 32, "artifact://" + "a" * 32, None, "data.json", "application/json", 900, "0" * 64, {})


async def ledger_work(bench: Bench) -> list[Row]:
    """Jobs leased and settled in ones and in eights, against bare transactions of the same database."""
    rows: list[Row] = []
    jobs = 200 if bench.quick else 800
    with running_server("benchmarks") as server:
        folder = str(bench.folder / "ledger")
        rows += await _one_worker("SQLite", folder, SqliteDatabase(Path(folder)), jobs)
        url = run_url(server.url)
        rows += await _one_worker("PostgreSQL", url, PostgresDatabase(url[: url.index("run=") - 1]), jobs)
    return rows


async def _one_worker(name: str, place: str, database: Database, jobs: int) -> list[Row]:
    async with open_ledger(place) as ledger:
        await _fill(ledger, jobs * 8)

        async def through(size: int) -> None:
            for _ in range(jobs // 8 // size):
                held = await ledger.lease(size, 60.0)
                assert await ledger.settle([_settled(one.key, one.job) for one in held]) == size

        run = dict(parse_qsl(urlsplit(place).query)).get("run", "")
        database.connect()
        try:
            keys = iter([row.key async for row in ledger.rows()][::-1])

            def transactions(size: int) -> None:
                for _ in range(jobs // 8 // size):
                    batch = [next(keys) for _ in range(size)]
                    for _ in range(2):
                        database.transaction(partial(_touch, run=run, keys=batch), write=True)

            ways: dict[str, Way] = {}
            for how, size in (("ones", 1), ("eights", 8)):
                ways[how] = at_once(partial(through, size), jobs // 8)
                ways[f"bare {how}"] = at_once(partial(asyncio.to_thread, transactions, size), jobs // 8)
            times = await in_turns(ways, rounds=2)
        finally:
            database.close()
    return [
        Row(
            work=f"jobs leased and settled in {how}, {name}",
            baseline="two bare transactions that update as many rows by their keys, from the same thread",
            figure=min(times[f"bare {how}"]) / min(times[how]),
            at_least=0.2,
            measured=f"{1 / min(times[how]):,.0f} jobs a second against {1 / min(times[f'bare {how}']):,.0f}",
            want=0.5,
            reason="a lease and its settlement change six indexes, 11 pages of the disk where a bare update changes "
            "one; a lease also asks for the oldest jobs of each host, reads them, and comes from another thread",
        )
        for how in ("ones", "eights")
    ]


def _touch(cursor: Cursor, run: str, keys: Sequence[str]) -> None:
    for key in keys:
        cursor.execute("UPDATE abp_jobs SET milliseconds = milliseconds + 1 WHERE run = ? AND key = ?", (run, key))


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
