"""A run as it is looked at: how it stands, its jobs in pages, and what a look costs."""

from __future__ import annotations

import sqlite3
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from tests.batch.runs import REF, both_databases, done, filled, jobs
from transports.batch._jobs import Job, State
from transports.batch.ledger import _reads
from transports.batch.ledger._ledger import open_ledger, open_view
from transports.batch.ledger._reads import FINAL, JobQuery, LedgerView
from transports.errors import LedgerError, UsageError

S = State


async def test_run_view_counts_jobs_and_follows_changes(place: str) -> None:
    async with await filled(place, jobs(9)) as ledger, aclosing(open_view(place)) as view:
        first = await view.overview()
        assert (first.states[S.QUEUED], first.began, first.succeeded, first.cancelled) == (9, None, (), False)
        leased = await ledger.lease(6, 60)
        long_code = "E" * 300
        errors = [("APP_ERROR", S.FAILED), (long_code, S.FAILED), ("APP_ERROR", S.FAILED), ("TIMEOUT", S.UNKNOWN)]
        await ledger.settle([done(leased[0], artifacts=(REF,))])
        await ledger.settle(
            [done(one, state, error_code=code) for one, (code, state) in zip(leased[1:5], errors, strict=True)]
        )
        now = await view.overview()
        assert {s: n for s, n in now.states.items() if n} == {
            S.QUEUED: 3,
            S.LEASED: 1,
            S.SUCCEEDED: 1,
            S.FAILED: 3,
            S.UNKNOWN: 1,
        }
        assert now.codes == {"APP_ERROR": 2, "E" * 100: 1, "TIMEOUT": 1}
        assert (sum(now.succeeded), sum(now.others), now.recent) == (1, 4, 5)
        assert now.began is not None and abs(now.now - now.began) < 600

        assert await ledger.retry_failed() == 3
        await view.overview()  # it has counted them as failed; jobs that are leased now show that they are not
        await ledger.settle([done(one) for one in [*await ledger.lease(9, 60), leased[5]]])
        await view.overview()
        assert (await view.overview()).states == {**dict.fromkeys(S, 0), S.SUCCEEDED: 8, S.UNKNOWN: 1}
        await ledger.add(lambda: [jobs(2, first=20)], "two", extend=True)
        await ledger.cancel()
        after = await view.overview()
        assert after.cancelled and after.states[S.CANCELLED] == 2


@both_databases
async def test_jobs_are_filtered_by_state_code_and_text_in_pages(place: str) -> None:
    named = [Job("do", {"n": n, "text": f"Größe_{n}%"}, f"http://h{n % 2}.test/", f"id-{n}") for n in range(7)]
    large = Job("do", {"text": "x" * (300 << 10)}, id="large")

    async def ids(view: LedgerView, *states: State, **query: object) -> list[str | None]:
        found: list[str | None] = []
        after = None
        while True:
            page = await view.jobs(JobQuery(states, after=after, limit=2, **query))  # type: ignore[arg-type]
            assert len(page.rows) <= 2
            found += [row.job.id for row in page.rows]
            if (after := page.next) is None:
                return found

    async with await filled(place, [*named, large]) as ledger, aclosing(open_view(place)) as view:
        assert await ids(view, S.QUEUED) == [None, "id-0", "id-2", "id-4", "id-6", "id-1", "id-3", "id-5"]
        for n, one in enumerate(await ledger.lease(20, 60)):
            state = S.FAILED if n % 2 else S.SUCCEEDED
            await ledger.settle(
                [done(one, state, error_code="ODD" if n == 3 else None, error="Wrong! 100% of it" * (n % 2))]
            )
        rows = [row async for row in ledger.rows()]  # some may have ended in one millisecond
        newest = sorted(rows, key=lambda row: (row.finished or 0.0, row.position), reverse=True)
        assert await ids(view, *FINAL) == [None if row.key == large.key else row.job.id for row in newest]
        failed = [row.job.id for row in newest if row.state is S.FAILED]
        assert len(failed) == 4 and await ids(view, S.FAILED) == failed
        assert len(await ids(view, *FINAL, code="ODD")) == 1
        assert await ids(view, *FINAL, text="größe_3%") == ["id-3"]
        assert await ids(view, *FINAL, text="größe_%") == [] == await ids(view, *FINAL, text="rößeX3")
        assert len(await ids(view, *FINAL, text="wrong! 100%")) == 4
        row = await view.job(large.key)
        assert row is not None and row.job == large and await view.job("none") is None
        for after in ("x", "[1]", '["h",1,2]', '["text",1]', f"[1,{2**63}]", f"[1,{-(2**63) - 1}]", f"[{10**400},1]"):
            with pytest.raises(UsageError, match="a different query"):
                await view.jobs(JobQuery(FINAL, after=after))
        with pytest.raises(UsageError, match="a different query"):
            await view.jobs(JobQuery((S.QUEUED,), after=f'["host",{10**24}]'))


def add_ended(folder: Path, count: int) -> None:
    """Add jobs that have ended, one a second: ``k2`` first."""
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db:
        ended = "round(julianday('now') * 86400 - 2440587.5 * 86400) - 100000.0 + p"
        db.execute(
            "WITH RECURSIVE n(p) AS (SELECT 2 UNION ALL SELECT p + 1 FROM n WHERE p < ?) INSERT INTO abp_jobs "
            "(run, key, position, host, job, idempotent, state, finished, error_code) SELECT '', 'k' || p, p, 'h', "
            "'{\"capability\":\"do\"}', 0, CASE WHEN p % 2 THEN 'succeeded' ELSE 'failed' END, "
            f"{ended}, 'CODE' FROM n",
            (count,),
        )
        db.commit()


@pytest.mark.parametrize(("code", "expected"), [(None, 9000), ("CODE", 9000), ("NONE", 0)])
async def test_pages_lead_through_a_run_longer_than_one_search(tmp_path: Path, code: str | None, expected: int) -> None:
    async with await filled(str(tmp_path), jobs(1)):
        add_ended(tmp_path, 9001)
    found: list[str] = []
    async with aclosing(open_view(tmp_path)) as view:
        page = await view.jobs(JobQuery(FINAL, code, limit=1999))
        found += [row.key for row in page.rows]
        while page.next:
            page = await view.jobs(JobQuery(FINAL, code, after=page.next, limit=1999))
            found += [row.key for row in page.rows]
    assert found == [f"k{number}" for number in range(9001, 1, -1)][:expected]


# The last of 102 jobs, a failed one, doubles the step after the others are counted.
@pytest.mark.parametrize(("count", "step"), [(101, 1), (102, 2), (9001, 128)])
async def test_ends_of_a_long_run_are_counted_in_at_most_100_intervals(tmp_path: Path, count: int, step: int) -> None:
    async with await filled(str(tmp_path), jobs(1)):
        add_ended(tmp_path, count)
    async with aclosing(open_view(tmp_path)) as view:
        overview = await view.overview()
    both = [sum(counts) for counts in zip(overview.succeeded, overview.others, strict=True)]
    assert overview.step == step and {*both[:-1]} == {step} and len(both) <= 100
    assert (sum(overview.succeeded), sum(overview.others)) == ((count - 1) // 2, count // 2)


@pytest.mark.slow
async def test_run_view_query_cost_is_independent_of_run_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted are the steps of SQLite's virtual machine."""
    monkeypatch.setattr(_reads, "LIMITS", _reads.Limits(window=100))
    steps: dict[int, list[int]] = {}
    for count in (500, 5000):
        folder = tmp_path / str(count)
        async with await filled(str(folder), jobs(1)):
            pass
        add_ended(folder, count)
        view = open_view(folder)
        await view.overview()
        passed = 0

        def note() -> None:
            nonlocal passed
            passed += 1

        view._database._db.set_progress_handler(note, 10)  # type: ignore[attr-defined]
        looks = [view.overview(), *(view.jobs(JobQuery(FINAL, code, text)) for code, text in
                                    ((None, None), ("NONE", None), (None, "nothing")))]  # fmt: skip
        for look in looks:
            passed = 0
            await look
            steps.setdefault(count, []).append(passed)
        await view.aclose()
    for short, long in zip(steps[500], steps[5000], strict=True):
        assert long < 1.5 * short + 20


async def test_run_view_is_read_only_and_explains_errors(tmp_path: Path) -> None:
    view = open_view(tmp_path)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite cannot be used"):
        await view.overview()
    assert not [*tmp_path.iterdir()]
    (tmp_path / "ledger.sqlite").write_bytes(b"no database, but long enough to be read as one" * 30)
    with pytest.raises(LedgerError, match="it is something else, or damaged"):
        await view.overview()
    await view.aclose()
    async with await filled(str(tmp_path / "run"), jobs(1)):
        view = open_view(tmp_path / "run")
        await view.overview()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            view._database._db.execute("DELETE FROM abp_jobs")  # type: ignore[attr-defined]
        await view.aclose()
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as db:
        db.execute("UPDATE abp_jobs SET artifacts = '7', attempts = 'many', job = '[]'")
        db.commit()
        view = open_view(tmp_path / "run")
        with pytest.raises(LedgerError, match="holds data that no run has written"):
            await view.jobs(JobQuery((S.QUEUED,)))
        await view.aclose()
        db.execute("UPDATE abp_runs SET value = '1' WHERE name = 'schema'")
        db.commit()
    with pytest.raises(LedgerError, match="version 1 and not 4; name another folder"):
        async with open_ledger(str(tmp_path / "run")):
            pass
    view = open_view(tmp_path / "run")
    with pytest.raises(LedgerError, match="version 1 and not 4"):
        await view.overview()
    await view.aclose()
