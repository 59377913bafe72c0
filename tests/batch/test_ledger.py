"""The contract of a ledger, over SQLite and over PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.batch.runs import REF, both_databases, done, filled, jobs, numbers
from tests.support.eventually import eventually
from tests.support.postgres_server import run_url
from transports.batch._jobs import Job, Outcome, State
from transports.batch.ledger._ledger import open_ledger
from transports.batch.ledger._schema import Settlement, SqliteDatabase
from transports.errors import UsageError


@both_databases
async def test_jobs_are_deduplicated_by_key_and_read_in_order(place: str, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x")
    rich = Job("do", {"a": [1, None, "ä\0"]}, "ws://b.test/", "7", {"f": file}, 2.5, True, {"team": "blue\0"})

    def input_lines() -> Iterator[list[Job]]:
        yield [*jobs(2), rich]
        yield [*jobs(3), rich]

    async with open_ledger(place) as ledger:
        added = await ledger.add(input_lines, "one")
        assert (added.lines, added.jobs, added.copies, added.known) == (7, 4, 3, False)
        again = await ledger.add(lambda: pytest.fail("read again"), "one")
        assert (again.lines, again.jobs, again.known) == (7, 0, True)
        lines = [row async for row in ledger.rows()]
        assert [(row.job, row.copy) for row in lines[3:5]] == [(job, True) for job in jobs(2)]
        rows = [row for row in lines if not row.copy]
        assert [row.job for row in rows] == [*jobs(2), rich, jobs(3)[2]]
        assert [row.key for row in rows] == [row.job.key for row in rows]
        assert {row.state for row in rows} == {State.QUEUED}
        assert numbers(await ledger.counts()) == {"queued": 4}


async def test_different_input_is_rejected_without_extend(place: str) -> None:
    async with await filled(place, jobs(2)) as ledger:
        with pytest.raises(UsageError, match=r"this run has another input; .*--extend"):
            await ledger.add(lambda: [jobs(3)], "two")
        assert (await ledger.add(lambda: [jobs(3)], "two", extend=True)).jobs == 1
        assert (await ledger.add(lambda: [jobs(2)], "one")).known
    async with open_ledger(place) as ledger:
        assert (await ledger.counts()).total == 3


async def test_unreadable_input_adds_no_jobs(place: str) -> None:
    def broken() -> Iterator[list[Job]]:
        yield jobs(1500)
        raise UsageError("line 1501 is not JSON")

    async with open_ledger(place) as ledger:
        with pytest.raises(UsageError, match="1501"):
            await ledger.add(broken, "one")
        assert (await ledger.counts()).total == 0
        assert (await ledger.add(lambda: [jobs(1)], "corrected")).jobs == 1


async def test_adding_an_endless_input_can_be_cancelled(place: str) -> None:
    began = threading.Event()

    def endless() -> Iterator[list[Job]]:
        for n in itertools.count():
            yield jobs(10, first=10 * n)
            began.set()

    async with open_ledger(place) as ledger:
        adding = asyncio.create_task(ledger.add(endless, "endless"))
        assert await asyncio.to_thread(began.wait, 30)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(adding, 30)
        assert (await ledger.counts()).total == 0


@both_databases
async def test_a_job_is_leased_to_one_worker_at_a_time(place: str) -> None:
    async with await filled(place, jobs(40)) as one, open_ledger(place) as two, open_ledger(place) as three:
        workers = [one, two, three]
        taken = await asyncio.gather(*(worker.lease(4, 60) for worker in workers for _ in range(4)))
        assert Counter(Counter(leased.key for some in taken for leased in some).values()) == {1: 40}
        assert await one.lease(4, 60) == []
        assert {row.worker async for row in one.rows(State.LEASED)} == {worker.worker for worker in workers}
        assert {leased.attempts for some in taken for leased in some} == {1}


@both_databases
async def test_hosts_take_turns_within_per_host_limit(place: str) -> None:
    many = [*jobs(6, "http://a.test/"), *jobs(6, "ws://b.test:1/x"), *jobs(2, "memory:")]
    async with await filled(place, many) as one, open_ledger(place) as two:
        first = await one.lease(3, 60, per_host=2)
        assert Counter(leased.job.target for leased in first) == {
            "http://a.test/": 1,
            "ws://b.test:1/x": 1,
            "memory:": 1,
        }
        assert [leased.job.params["n"] for leased in first] == [0, 0, 0]
        both = first + await two.lease(9, 60, per_host=2)
        assert Counter(leased.job.target for leased in both) == dict.fromkeys((job.target for job in many), 2)
        assert await two.lease(9, 60, per_host=2) == []
        await one.settle([done(leased) for leased in first])
        assert [leased.job.target for leased in await one.lease(9, 60, per_host=2, closed=["a.test"])] == [
            "ws://b.test:1/x"
        ]
        assert len(await one.lease(99, 60)) == 7


async def test_hosts_take_turns_from_request_to_request(place: str) -> None:
    hosts = [f"http://{name}.test/" for name in "abc"]
    async with await filled(place, [job for host in hosts[:2] for job in jobs(6, host)]) as ledger:
        taken = [(await ledger.lease(1, 60))[0].job.target for _ in range(3)]
        await ledger.add(lambda: [jobs(2, hosts[2])], "two", extend=True)
        taken += [(await ledger.lease(1, 60))[0].job.target for _ in range(3)]
        assert taken == [hosts[0], hosts[1], hosts[0], hosts[1], hosts[2], hosts[0]]


async def test_every_host_of_many_gets_its_turn(place: str) -> None:
    many = [job for n in range(200) for job in jobs(1, f"http://h{n:03}.test/")]
    async with await filled(place, many) as ledger:
        first, second = await ledger.lease(150, 60), await ledger.lease(150, 60)
    assert [leased.job.target for leased in first + second] == [job.target for job in many]


async def test_settling_a_job_frees_its_slot_in_same_transaction(place: str) -> None:
    async with await filled(place, jobs(3)) as one, open_ledger(place) as two:
        first = await one.lease(2, 60, per_host=1)
        assert await one.settle_and_lease([], 2, 60, per_host=1) == (0, [])
        held, (second,) = await one.settle_and_lease([done(leased) for leased in first], 2, 60, per_host=1)
        assert held == 1 and second.job.params["n"] == 1
        lost, (third,) = await two.settle_and_lease([done(second)], 2, 60)
        assert lost == 0 and third.job.params["n"] == 2
        assert numbers(await two.counts()) == {"succeeded": 1, "leased": 2}


@both_databases
async def test_outcome_is_written_only_by_lease_holder(place: str) -> None:
    async with await filled(place, jobs(3)) as one, open_ledger(place) as two:
        good, bad, later = await one.lease(3, 60)
        assert await two.settle([done(good)]) == 0
        failed = done(bad, State.FAILED, error_code="NO\0", error="no paper\0\udc00", artifacts=(REF,))
        retry = Settlement(later.key, Outcome(later.job, State.FAILED, error_code="BUSY", milliseconds=2.5), 0.0)
        assert await one.settle([done(good, artifacts=(REF,)), failed, retry]) == 3
        assert await one.settle([done(good, State.FAILED)]) == 0
        rows = [row async for row in one.rows()]
        assert [row.state for row in rows] == [State.SUCCEEDED, State.FAILED, State.QUEUED]
        assert [row.milliseconds for row in rows] == [2.5] * 3
        assert rows[0].artifacts[0]["sha256"] == REF.sha256 and rows[1].artifacts
        assert (rows[1].error_code, rows[1].error) == ("NO", "no paper?")
        assert rows[0].started and rows[0].finished and rows[0].started <= rows[0].finished and not rows[2].finished
        (again,) = await two.lease(3, 60)
        assert (again.key, again.attempts) == (later.key, 2)
        assert numbers(await two.counts()) == {"leased": 1, "succeeded": 1, "failed": 1}


async def test_unstarted_job_is_requeued_unchanged_while_lease_is_valid(place: str) -> None:
    async with await filled(place, jobs(3)) as one, open_ledger(place) as two:
        held = await one.lease(2, 60)
        back = [Settlement(leased.key, Outcome(leased.job, State.CANCELLED), 0.0, begun=False) for leased in held]
        assert await two.settle(back) == 0
        assert await one.settle(back[:1]) == 1
        assert [row.attempts async for row in one.rows()] == [0, 1, 0]
        assert await one.heartbeat(-1) == 1 and await two.expire() == (0, 1)
        assert await one.settle(back) == 0  # what was said of it stays
        assert numbers(await two.counts()) == {"queued": 2, "unknown": 1}
        await one.cancel()
        assert await one.settle(back) == 0


async def test_job_waiting_for_retry_does_not_delay_others(place: str) -> None:
    many = [job for name in "abcd" for job in jobs(2, f"http://{name}.test/")]
    async with await filled(place, many) as one, open_ledger(place) as two:
        held = await one.lease(6, 60, closed=["d.test"])
        waits = dict.fromkeys((leased.key for leased in held), 3600.0) | {held[-1].key: 0.0}
        await one.settle([Settlement(key, Outcome(many[0], State.FAILED), wait) for key, wait in waits.items()])
        leased = await two.lease(8, 60)
        assert [job.key for job in leased if job.job.target != "http://d.test/"] == [held[-1].key]
        assert len(leased) == 3


@both_databases
async def test_expired_lease_marks_job_unknown_unless_idempotent(place: str) -> None:
    async with await filled(place, [*jobs(2), *jobs(2, first=5, idempotent=True)]) as one, open_ledger(place) as two:
        held = await one.lease(4, 60)
        assert await two.expire() == (0, 0)
        assert await one.heartbeat(-1) == 4
        assert await two.expire() == (2, 2)
        rows = [row async for row in one.rows(State.UNKNOWN)]
        assert [row.error_code for row in rows] == ["LEASE_EXPIRED"] * 2 and all(row.finished for row in rows)
        again = await two.lease(9, 60)
        assert [leased.key for leased in again] == [leased.key for leased in held[2:]]
        # what the first worker still learns counts where nobody else has the job
        assert await one.settle([done(leased) for leased in held]) == 2
        assert numbers(await two.counts()) == {"succeeded": 2, "leased": 2}


async def test_lease_expiring_during_expire_is_handled_by_next_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes on between the statements of one transaction."""
    async with await filled(str(tmp_path), jobs(1, idempotent=True)) as ledger:
        await ledger.lease(1, 60)
        ticks = itertools.chain([0.0], itertools.repeat(1e12))
        database = ledger._database
        database._db.create_function("tick", 0, lambda: next(ticks))  # type: ignore[attr-defined]
        monkeypatch.setattr(database, "now_sql", "tick()")
        assert await ledger.expire() == (0, 0)
        assert await ledger.expire() == (1, 0)


async def test_idempotent_job_is_unknown_after_losing_ten_workers(place: str) -> None:
    async with await filled(place, jobs(1, idempotent=True)) as ledger:
        for _ in range(9):
            assert len(await ledger.lease(1, -1)) == 1
            assert await ledger.expire() == (1, 0)
        assert len(await ledger.lease(1, -1)) == 1
        assert await ledger.expire() == (0, 1)


@both_databases
async def test_cancelling_run_keeps_running_and_ended_jobs(place: str) -> None:
    async with await filled(place, jobs(4)) as ledger:
        one, two = await ledger.lease(2, 60)
        await ledger.settle([done(one, State.FAILED, error_code="NO", error="no paper", artifacts=(REF,))])
        assert await ledger.cancel() == 2
        assert await ledger.lease(9, 60) == []
        await ledger.add(lambda: [jobs(6)], "more", extend=True)
        assert numbers(await ledger.counts()) == {"failed": 1, "leased": 1, "cancelled": 4}
        assert await ledger.retry_failed() == 5
        # Nothing of the failed attempt is left: the job may be cancelled now before it runs.
        queued = [row async for row in ledger.rows(State.QUEUED)]
        assert [(row.error_code, row.error, row.artifacts) for row in queued] == [(None, None, ())] * 5
        await ledger.settle([done(two, State.UNKNOWN)])
        assert await ledger.retry_failed() == 0
        assert sorted(leased.attempts for leased in await ledger.lease(9, 60)) == [1] * 5


async def test_cancelled_run_requeues_nothing(place: str) -> None:
    async with await filled(place, [*jobs(2), *jobs(2, first=5, idempotent=True)]) as ledger:
        again, ended, *lost = await ledger.lease(4, 60)
        assert await ledger.cancel() == 0
        outcome = Outcome(again.job, State.FAILED, error_code="RATE_LIMITED")
        await ledger.settle([Settlement(again.key, outcome, 0.0), done(ended)])
        assert await ledger.heartbeat(-1) == len(lost) == 2
        assert await ledger.expire() == (2, 0)
        assert numbers(await ledger.counts()) == {"succeeded": 1, "cancelled": 3}
        assert all([row.finished async for row in ledger.rows()])
        assert await ledger.retry_failed() == 3 and len(await ledger.lease(9, 60)) == 3


async def test_rows_sharing_a_position_are_all_read(tmp_path: Path) -> None:
    async with await filled(str(tmp_path), jobs(350)) as ledger:
        with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as db:
            db.execute("UPDATE abp_jobs SET position = 1 + position / 250")
        assert len({row.key async for row in ledger.rows()}) == 350


@pytest.mark.load
async def test_concurrent_inputs_of_one_run_are_serialized(postgres: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    place, began, go_on = run_url(postgres), threading.Event(), threading.Event()

    def slow() -> Iterator[list[Job]]:
        yield jobs(2)
        began.set()
        assert go_on.wait(30)

    async with open_ledger(place) as one, open_ledger(place) as two:
        first = asyncio.create_task(one.add(slow, "one"))
        assert await asyncio.to_thread(began.wait, 30)
        second = asyncio.create_task(two.add(lambda: [jobs(3)], "two"))
        with psycopg.connect(postgres, autocommit=True) as db:
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            await eventually(lambda: second.done() or db.execute(waiting).fetchall())
        go_on.set()
        assert (await first).jobs == 2
        with pytest.raises(UsageError, match="another input"):
            await second
        assert (await one.counts()).total == 2


@pytest.mark.load
async def test_runs_in_one_database_are_isolated(postgres: str) -> None:
    async with await filled(run_url(postgres), jobs(2)) as one, open_ledger(run_url(postgres)) as two:
        assert (await two.counts()).total == 0
        await two.add(lambda: [jobs(3)], "other")
        assert len(await one.lease(9, 60)) == 2


async def test_encoding_of_the_client_does_not_matter(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    async with await filled(run_url(postgres), [Job("do", {"text": "Ž"}, "memory:", "😀")]) as ledger:
        assert [row.job.id async for row in ledger.rows()] == ["😀"]


async def test_pooler_gets_no_options_and_prepared_statements(postgres: str) -> None:
    """A pooler refuses options of a connection, and gives each transaction another one, which knows no statements."""
    sent = bytearray()
    relays: list[asyncio.Task[None]] = []

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, copy: bytearray) -> None:
        while data := await source.read(65536):
            copy += data
            target.write(data)
        target.close()
        await target.wait_closed()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        relays.append(task)
        far_reader, far_writer = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        await asyncio.gather(pump(reader, far_writer, sent), pump(far_reader, writer, bytearray()))

    (folder,) = parse_qs(urlsplit(postgres).query)["host"]
    with tempfile.TemporaryDirectory() as relay_folder:
        async with (
            await asyncio.start_unix_server(relay, f"{relay_folder}/.s.PGSQL.5432"),
            await filled(run_url(postgres.replace(folder, relay_folder)), jobs(20)) as ledger,
        ):
            for _ in range(10):
                assert len(await ledger.lease(1, 60)) == 1
        await asyncio.gather(*relays)
    assert sent.count(b"abp_jobs") > 10 and b"_pg3_" not in sent
    assert b"\0options\0" not in sent and b"SET LOCAL synchronous_commit = on" in sent


async def test_worker_cost_does_not_grow_with_other_workers_leases(tmp_path: Path) -> None:
    """Counted in steps of the database's own machine, for few jobs and for many."""
    steps: dict[int, Counter[str]] = {}
    for count in (40, 400):
        other = await filled(str(tmp_path / str(count)), jobs(count))
        await other.lease(count // 2, 60)
        async with open_ledger(tmp_path / str(count)) as ledger:
            database, used = ledger._database, Counter[str]()
            assert isinstance(database, SqliteDatabase) and database._db is not None
            database.sees_workers = False  # workers of other machines, who are known by their leases alone
            steps[count] = used
            work: dict[str, Callable[[], Awaitable[object]]] = {
                "lease": partial(ledger.lease, 8, 60),
                "heartbeat": partial(ledger.heartbeat, 60),
                "expire": ledger.expire,
                "is_done": ledger.is_done,
            }
            for name, do in work.items():
                database._db.set_progress_handler(partial(used.update, [name]), 10)
                await do()
        await other.aclose()
    assert all(steps[400][name] <= 1.5 * steps[40][name] + 5 for name in steps[40]), steps


async def test_open_jobs_are_found_without_reading_ended_ones(tmp_path: Path) -> None:
    statements: list[str] = []
    async with await filled(str(tmp_path), jobs(4)) as ledger:
        ledger._database._db.set_trace_callback(statements.append)  # type: ignore[attr-defined]
        await ledger.counts()
        await ledger.is_done()
        await ledger.cancel()
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        looks = [row[3] for sql in statements if "abp_jobs" in sql for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert [look for look in looks if "abp_jobs_queued" in look]
    assert [look for look in looks if "abp_jobs_position" in look or "SCAN abp_jobs" in look] == []


async def test_lock_that_cannot_be_removed_does_not_fail_the_end_of_a_run(tmp_path: Path) -> None:
    async with await filled(str(tmp_path), jobs(1)) as ledger:
        await ledger.lease(1, 60)
        (lock,) = (tmp_path / "workers").iterdir()
        lock.unlink()
        lock.mkdir()
    assert lock.is_dir()
