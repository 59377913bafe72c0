"""Opening a ledger: of which run, beside whom, and what is refused."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.batch.runs import both_databases, done, filled, jobs
from tests.support.postgres_server import run_url, running_server
from tests.support.rows import each_row
from transports._internal.database import PostgresUrl
from transports.batch._batch import open_run
from transports.batch._jobs import Job
from transports.batch.ledger._ledger import open_ledger, open_view
from transports.batch.ledger._schema import PostgresDatabase
from transports.errors import LedgerError, UsageError


def psycopg_of(place: str) -> Any:
    """A connection of its own to the server of a ledger."""
    psycopg = pytest.importorskip("psycopg")
    return psycopg.connect(re.sub(r"[?&]run=[^&]*", "", place), autocommit=True)


@both_databases
async def test_run_without_jobs_cannot_be_reopened(place: str) -> None:
    async with open_ledger(place) as ledger:
        with pytest.raises(LedgerError, match=r"has no jobs; .* `abp batch run`"):
            await open_run(place).__aenter__()
        if "://" in place:
            typo = open_run(f"{place}-typo")
            with pytest.raises(LedgerError, match=r"-typo' has no jobs; correct run="):
                await typo.__aenter__()
            with psycopg_of(place) as db:
                assert not db.execute("SELECT 1 FROM abp_runs WHERE run = %s", (typo._run,)).fetchall()
        await ledger.add(lambda: [jobs(1)], "one")
    async with open_run(place) as ledger:
        assert (await ledger.counts()).total == 1


@pytest.mark.slow
async def test_reading_run_does_not_wait_for_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transports._internal.database._WAIT", 0.1)
    async with await filled(str(tmp_path), jobs(2)):
        with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            async with open_run(tmp_path) as reader:
                assert (await reader.counts()).total == len([row async for row in reader.rows()]) == 2
                with pytest.raises(LedgerError, match="another process holds it"):
                    await reader.cancel()


async def test_reading_input_does_not_block_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transports._internal.database._WAIT", 0.1)
    began, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[list[Job]]:
        yield jobs(3, first=1)  # two of them are in the run
        began.set()
        assert go_on.wait(30)
        yield jobs(2, first=3)

    async with await filled(str(tmp_path), jobs(3)) as worker, open_ledger(tmp_path) as other:
        adding = asyncio.create_task(other.add(slow, "two", extend=True))
        assert await asyncio.to_thread(began.wait, 30)
        try:
            (leased,) = await worker.lease(1, 60)
            assert await worker.settle([done(leased)]) == 1
            await worker.add(lambda: [jobs(1, first=9)], "three", extend=True)
        finally:
            go_on.set()
        added = await adding
        assert (added.lines, added.jobs, added.known) == (5, 2, False)
        assert [row.job.params["n"] async for row in worker.rows()] == [0, 1, 2, 9, 3, 3, 4]
        assert (await other.add(slow, "two", extend=True)).known


@pytest.mark.load
async def test_run_starts_while_another_is_being_written(postgres: str) -> None:
    """Making an index that is there takes a lock that waits for whatever changes rows."""
    impatient = "&options=-c%20statement_timeout%3D5s"
    async with await filled(run_url(postgres), jobs(2)) as first:
        with psycopg_of(postgres) as db, db.transaction():
            db.execute("LOCK TABLE abp_jobs IN ROW EXCLUSIVE MODE")
            async with await filled(run_url(postgres) + impatient, jobs(3)) as second:
                assert ((await first.counts()).total, (await second.counts()).total) == (2, 3)


def test_silent_database_server_is_detected_while_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")
    asked: dict[str, object] = {}

    def connect(url: str, **options: object) -> None:
        asked.update(options, url=url)
        raise psycopg.OperationalError("nobody is there")

    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(LedgerError, match="nobody is there"):
        PostgresDatabase("postgresql://host/db?options=-c%20lock_timeout%3D5s").connect()
    assert str(asked["url"]).endswith("?options=-c%20lock_timeout%3D5s") and "options" not in asked
    assert [asked.get(f"keepalives_{name}") for name in ("idle", "interval", "count")] == [10, 5, 2]


async def test_ledger_deleted_while_in_use_raises(tmp_path: Path) -> None:
    async with await filled(str(tmp_path), jobs(2)) as ledger, aclosing(open_view(tmp_path)) as view:
        await view.overview()
        (tmp_path / "ledger.sqlite").unlink()
        with pytest.raises(LedgerError, match=r"ledger\.sqlite cannot be used"):
            await view.overview()
        for _ in range(2):
            with pytest.raises(LedgerError, match=r"ledger\.sqlite cannot be used: no such table"):
                await ledger.lease(1, 60)


async def test_closed_ledger_and_foreign_file_are_rejected(tmp_path: Path) -> None:
    async with open_ledger(tmp_path / "run") as ledger:
        pass
    with pytest.raises(LedgerError, match="is closed"):
        await ledger.counts()
    (tmp_path / "run" / "ledger.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite cannot be used: .*name another folder"):
        await open_ledger(tmp_path / "run").__aenter__()
    with pytest.raises(UsageError, match="is not a ledger"):
        open_ledger("mysql://user:secret@host/db")
    with pytest.raises(LedgerError, match="cannot be used") as refused:
        await open_ledger("postgresql://user:secret@127.0.0.1:1/db?connect_timeout=1").__aenter__()
    assert "secret" not in str(refused.value)


@each_row(
    ("address", "shown"),
    [
        ("u@h:5/db?sslmode=require", "u@h:5/db?sslmode=require"),
        ("u:hunter2@h/db?sslmode=require&sslpassword=hunter2", "u@h/db?sslmode=require"),
        ("h/db?user=u&password=hunter2@x", "h/db?user=u"),
        ("u:hunter2@h/db?application_name=a@b&password=hunter2@x", "u@h/db?application_name=a@b"),
        ("h?password=hunter2@x", "h"),
        ("u:hunter2?x@h/db", "u@h/db"),
        ("u:hunter2/x@h/db", "u@h/db"),
        ("u:a/hunter2?hunter2@h/db", "u@h/db"),
        ("u:p@hunter2@h/db", "u@h/db"),
        ("u:p@hunter2/a@h/db?password=hunter2@x", "u@h/db"),
        ("u:p/hunter2?x=y@h/db", "u@h/db"),
        ("u:hunter2#x@h/db?p%61ssword=hunter2", "u@h/db"),
        ("u:hunter2[x@h/db", "u@h/db"),
        ("u:hunter2@[::1]:5,b.test:6/db?target_session_attrs=any", "u@[::1]:5,b.test:6/db?target_session_attrs=any"),
        ("/db?host=/run/a+b&PASSWORD=a&hunter2", "/db?host=/run/a+b"),
        ("u:p@h:port/db?password=a@hunter2", "u@…"),
        ("u:hunter2@h:port/db?password=hunter2", "u@h:port/db"),
    ],
)
def test_postgres_url_never_shows_password(address: str, shown: str) -> None:
    parts = PostgresUrl.read(f"postgresql://{address}")
    assert parts.without_password == f"postgresql://{shown}"
    assert parts.secrets is None or all("hunter2" in secret for secret in parts.secrets)
    more = "&" if "?" in shown or "password" in address.lower().replace("%61", "a") else "?"
    if "…" not in shown:
        again, run = PostgresUrl.read(f"postgresql://{address}{more}run=a%20b").split_off_parameter("run")
        assert (again, run) == (f"postgresql://{address}", "a b")


async def test_ledger_whose_closing_is_cancelled_is_closed(tmp_path: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def slow_batches() -> Iterator[list[Job]]:
        reached.set()
        go_on.wait(20)
        yield list(jobs(1))

    ledger = await open_ledger(tmp_path).__aenter__()
    adding = asyncio.ensure_future(ledger.add(slow_batches, "one"))
    await asyncio.to_thread(reached.wait, 20)
    closing = asyncio.ensure_future(ledger.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(adding, closing, return_exceptions=True)
    assert closing.cancelled()
    assert not [file for file in psutil.Process().open_files() if file.path.startswith(str(tmp_path))]


@pytest.mark.slow
async def test_cancelling_ends_the_wait_for_a_database_that_answers_nothing() -> None:
    with running_server(f"suspended-{os.getpid()}") as server:
        async with open_ledger(run_url(server.url)) as ledger:
            await ledger.add(lambda: [jobs(1)], "one")
            with server.suspended():
                counting = asyncio.ensure_future(ledger.counts())
                await asyncio.sleep(0.5)
                assert not counting.done()
                counting.cancel()
                await asyncio.wait((counting,), timeout=20)
                assert counting.cancelled()
            assert (await ledger.counts()).total == 1
