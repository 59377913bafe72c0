"""Lines of an input that ask for the same as another line, and lines that correct failed ones."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from tests.batch.runs import both_databases, done, filled, numbers
from transports.batch._jobs import Job, State
from transports.batch.ledger._ledger import Addition, Ledger, open_ledger, open_view
from transports.batch.ledger._reads import FINAL, JobQuery
from transports.batch.ledger._schema import SqliteDatabase, make_tables


def line(name: str | None, n: int, **carried: str) -> Job:
    return Job("do", {"n": n}, "memory:", name, carried=carried)


async def lines_of(ledger: Ledger) -> list[tuple[str | None, object, str, bool]]:
    return [(row.job.id, row.job.params["n"], row.state.value, row.copy) async for row in ledger.rows()]


async def run_all(ledger: Ledger, *, failing: Iterable[int] = ()) -> int:
    leased = await ledger.lease(999, 60)
    states = dict.fromkeys(failing, State.FAILED)
    return await ledger.settle(
        [done(one, states.get(one.job.params["n"], State.SUCCEEDED)) for one in leased]  # type: ignore[arg-type]
    )


@both_databases
async def test_duplicate_input_lines_get_rows_but_run_once(place: str) -> None:
    given = [line("a", 1, team="red"), line("b", 1, team="blue"), line("c", 2), line("c", 2)]
    async with await filled(place, given) as ledger:
        assert await run_all(ledger, failing=[2]) == 2
        assert await lines_of(ledger) == [
            ("a", 1, "succeeded", False),
            ("b", 1, "succeeded", True),
            ("c", 2, "failed", False),
            ("c", 2, "failed", True),
        ]
        rows = [row async for row in ledger.rows(State.SUCCEEDED)]
        assert [row.job.carried for row in rows] == [{"team": "red"}, {"team": "blue"}]
        assert rows[0].key == rows[1].key and rows[0].finished == rows[1].finished is not None
        assert numbers(await ledger.counts()) == {"succeeded": 1, "failed": 1}
        assert await ledger.retry_failed() == 1 and await run_all(ledger) == 1
        # what another input brings stands behind; a line that is there already is not added again
        added = await ledger.add(lambda: [[line("b", 1, team="x"), line("d", 1), line("e", 3)]], "two", extend=True)
        assert (added.lines, added.jobs, added.copies, added.replaced) == (3, 1, 0, 0)
        assert [name for name, *_ in await lines_of(ledger)] == ["a", "b", "c", "c", "d", "e"]
        added = await ledger.add(lambda: [[line("f", 9), line("d", 1)]], "three", extend=True)
        assert (added.jobs, added.copies) == (1, 0)
        assert [name for name, *_ in await lines_of(ledger)] == ["a", "b", "c", "c", "d", "e", "f"]
    async with open_ledger(place) as ledger:
        assert numbers(await ledger.counts()) == {"succeeded": 2, "queued": 2}
    async with aclosing(open_view(place)) as view:
        overview = await view.overview()
        assert (overview.states[State.SUCCEEDED], overview.states[State.QUEUED]) == (2, 2)


async def test_copies_and_jobs_are_paged_in_input_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transports.batch.ledger._ledger._CHUNK", 90)
    given = [line(str(n), n if n % 3 else 0) for n in range(280)] + [line(str(n), 1) for n in range(280, 400)]
    async with await filled(str(tmp_path), given) as ledger:
        assert [name for name, *_ in await lines_of(ledger)] == [str(n) for n in range(400)]


async def test_job_search_by_copy_id_finds_copy_and_shared_job(place: str) -> None:
    given = [line("first", 1), line("second", 1), line(None, 1), line("second", 2), line("third", 2), line("other", 3)]
    given.append(line(secrets.token_hex(4000), 2))  # more than an index of PostgreSQL takes
    async with await filled(place, given) as ledger:
        await run_all(ledger)
        keys = {row.job.id: row.key async for row in ledger.rows() if not row.copy}
    async with aclosing(open_view(place)) as view:
        for text, found, copies in (
            ("second", {keys["first"], keys["second"]}, {keys["first"]}),
            ("third", {keys["second"]}, {keys["second"]}),
            ("THIRD", set(), set()),  # the whole id, as it is
            ("first", {keys["first"]}, set()),
            ("do", set(keys.values()), set()),
            ("a\0b", set(), set()),
        ):
            page = await view.jobs(JobQuery(FINAL, text=text))
            assert ({row.key for row in page.rows}, set(page.copies)) == (found, copies)
        assert (await view.jobs(JobQuery(FINAL, code="WRONG", text="third"))).rows == ()
        assert [name for _, name in await view.copies(keys["first"])] == ["second", None]
        assert await view.copies(keys["other"]) == []


class Explained(sqlite3.Cursor):
    """Keeps how SQLite looks at each table of the statements that look for lines that are there already."""

    looks: list[str]

    def execute(self, sql: str, values: Any = ()) -> Self:
        if "abp_input i JOIN" in sql:
            super().execute(f"EXPLAIN QUERY PLAN {sql}", values)
            self.looks += [row[3] for row in self.fetchall() if row[3].startswith(("SEARCH", "SCAN"))]
        return super().execute(sql, values)


def test_existing_lines_are_looked_up_by_key() -> None:
    database = SqliteDatabase(None)
    with closing(sqlite3.connect(":memory:")) as db, closing(db.cursor(Explained)) as cursor:
        cursor.looks = []
        make_tables(database, cursor)
        for fingerprint in ("one", "two"):
            lines = [line("a", 1), line("b", 1), line(fingerprint, 2)]
            Addition(database, "run", partial(iter, [lines]), fingerprint, True).add(cursor, staged=False)
        inputs = [look for look in cursor.looks if look.startswith("SEARCH i USING INTEGER PRIMARY KEY")]
        assert len(inputs) == 4
        assert [look for look in cursor.looks if look not in inputs and "key=?" not in look] == []


@both_databases
async def test_corrected_line_replaces_failed_line_with_same_id(place: str) -> None:
    given = [line("good", 0), line("bad", 1), line("worse", 2), line("twin", 2), line(None, 3), line("good", 4)]
    async with await filled(place, given) as ledger:
        await run_all(ledger, failing=[1, 2, 3])
        corrected = [line("bad", 10), line("worse", 20), line("twin", 2), line(None, 30), line("good", 40)]
        added = await ledger.add(lambda: [corrected], "two", extend=True)
        assert (added.jobs, added.replaced) == (4, 2) and await ledger.replaced() == 2
        await run_all(ledger, failing=[20])
        assert await lines_of(ledger) == [
            ("good", 0, "succeeded", False),
            ("twin", 2, "failed", False),
            (None, 3, "failed", False),
            ("good", 4, "succeeded", False),
            ("bad", 10, "succeeded", False),
            ("worse", 20, "failed", False),
            (None, 30, "succeeded", False),
            ("good", 40, "succeeded", False),
        ]
        # corrected once more: now the same as another job, whose outcome it shares
        added = await ledger.add(lambda: [[line("worse", 10), line("twin", 0)]], "three", extend=True)
        assert (added.jobs, added.copies, added.replaced) == (0, 0, 2) and await ledger.replaced() == 4
        assert {name: state for name, _, state, _ in await lines_of(ledger) if name} == dict.fromkeys(
            ("good", "bad", "worse", "twin"), "succeeded"
        )
        assert numbers(await ledger.counts()) == {"succeeded": 5, "failed": 1}
        # the old job is no longer in the run, so it may be given again
        assert (await ledger.add(lambda: [[line("bad", 1)]], "four", extend=True)).jobs == 1


async def test_correcting_copy_of_failed_job_leaves_other_copies(place: str) -> None:
    async with await filled(place, [line("a", 1), line("b", 1), line("c", 1)]) as ledger:
        await run_all(ledger, failing=[1])
        assert (await ledger.add(lambda: [[line("b", 5)]], "two", extend=True)).replaced == 1
        assert (await ledger.add(lambda: [[line("a", 6)]], "three", extend=True)).replaced == 1
        await run_all(ledger)
        assert await lines_of(ledger) == [
            ("c", 1, "failed", False),
            ("b", 5, "succeeded", False),
            ("a", 6, "succeeded", False),
        ]
        assert (await ledger.add(lambda: [[line("c", 5)]], "four", extend=True)).replaced == 1
        assert numbers(await ledger.counts()) == {"succeeded": 2}


async def test_correction_of_ambiguous_id_keeps_all_failed_lines(place: str) -> None:
    given = [line("team", 1), line("team", 2), line("team", 3), line("team", 3), line("other", 4)]
    async with await filled(place, given) as ledger:
        await run_all(ledger, failing=[1, 2, 3, 4])
        # one line for three jobs: which of them it corrects cannot be told, so all stay
        added = await ledger.add(lambda: [[line("team", 10), line("other", 40)]], "two", extend=True)
        assert (added.jobs, added.replaced) == (2, 1)
        await run_all(ledger)
        assert [n for _, n, state, _ in await lines_of(ledger) if state == "failed"] == [1, 2, 3, 3]
        # one that is corrected beside those that are not
        added = await ledger.add(lambda: [[line("team", 1), line("team", 20), line("team", 3)]], "three", extend=True)
        assert (added.jobs, added.replaced) == (1, 1)
        await run_all(ledger)
        assert [n for _, n, state, _ in await lines_of(ledger) if state == "failed"] == [1, 3, 3]
        added = await ledger.add(lambda: [[line("team", 11), line("team", 30), line("team", 30)]], "four", extend=True)
        assert (added.jobs, added.copies, added.replaced) == (2, 1, 3)
        await run_all(ledger)
        assert numbers(await ledger.counts()) == {"succeeded": 5} and await ledger.replaced() == 5


async def test_corrected_job_is_repeated_only_if_its_next_copy_is_idempotent(place: str) -> None:
    given = [Job("do", {"n": 1}, "memory:", "a", idempotent=True), Job("do", {"n": 1}, "memory:", "b")]
    async with await filled(place, given) as ledger:
        await run_all(ledger, failing=[1])
        assert (await ledger.add(lambda: [[line("a", 5)]], "two", extend=True)).replaced == 1
        await run_all(ledger)
        await ledger.retry_failed()
        assert [one.job.idempotent for one in await ledger.lease(9, 0.01)] == [False]
        ended = [await ledger.expire()]
        while not any(ended[-1]):
            ended.append(await ledger.expire())
        assert ended[-1] == (0, 1)  # none again, one unknown
