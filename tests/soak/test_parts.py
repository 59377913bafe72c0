"""The soak sees what it is there to see: lost calls, foreign errors, content that differs, what grows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak.content import Contents
from tests.soak.faults import FAULTS
from tests.soak.ledger import Ledger, check_store
from tests.soak.plan import Plan
from tests.soak.record import RESULT, Record
from tests.soak.resources import Resources, compare
from transports.artifacts import LocalStore, open_store
from transports.errors import Corrupt, Disconnected
from webapp_fixture import generate

HELD = Resources(processes=20, descriptors=100, threads=8, files=10, memory=100 << 20)


def test_seed_fixes_schedule_and_warm_up_runs_every_fault() -> None:
    faults = tuple(FAULTS)
    for plan in (Plan(), Plan.of_minutes(30, 7), Plan.of_minutes(2, 7)):
        assert plan.schedules(faults) == plan.schedules(faults)
        warm_up, rest = plan.schedules(faults)
        assert {name for _, name in warm_up} == set(faults)
        assert rest and all(0 <= at <= plan.seconds for at, _ in rest)
    assert Plan.of_minutes(30, 7).schedules(faults) != Plan.of_minutes(30, 8).schedules(faults)
    assert Plan.of_minutes(30, 7).warm_up == 180


async def test_calls_have_one_outcome_and_unexpected_errors_are_problems() -> None:
    record = Record()
    async with record.call("page"):
        pass
    async with record.call("page"):
        raise Disconnected("the browser has ended")
    record.check()
    assert record.outcomes == {("page", RESULT): 1, ("page", "DISCONNECTED"): 1} and record.problems == []
    for error in (ValueError("foreign"), Corrupt("another file"), AssertionError("wrong")):
        async with record.call("page"):
            raise error
    assert len(record.problems) == 3 and "foreign" in record.problems[0] and "CORRUPT" in record.problems[1]
    open_call = record.call("socket")
    await open_call.__aenter__()
    record.check()
    assert "socket: 1 calls began and 0 have an outcome" in record.problems
    await open_call.__aexit__(None, None, None)
    assert record.count("socket") == (1, 1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"processes": 22, "descriptors": 106, "threads": 11, "files": 12}, None),
        ({"memory": 109 << 20}, None),
        ({"memory": 111 << 20}, "memory grew from 104,857,600 to 116,391,936"),
        ({"descriptors": 111}, "descriptors grew from 100 to 111"),
        ({"processes": 23}, "processes grew from 20 to 23"),
    ],
)
def test_growth_over_ten_percent_is_reported(change: dict[str, int], problem: str | None) -> None:
    assert compare(HELD, replace(HELD, **change)) == ([problem] if problem else [])


async def test_soak_check_compares_store_with_expected_contents(tmp_path: Path) -> None:
    root, audit, contents = tmp_path / "store", tmp_path / "audit.jsonl", Contents()

    async def put(store: LocalStore, *, answered: bool = True) -> str:
        file = contents.next(0.0)
        ref = await store.put_bytes(b"".join(generate(file.size)))
        if answered:
            contents.stored(file, ref.id, ref.sha256)
        return ref.id

    async def checked(killed: bool = False) -> Ledger:
        return await check_store("main", root, contents, audit=audit, killed=killed)

    async with open_store(root, audit=audit) as store:
        assert isinstance(store, LocalStore)
        keys = [await put(store) for _ in range(3)]
        await put(store, answered=False)  # the call failed, the file is there: that may be
        oldest = contents.oldest(2)
        assert oldest is not None and await store.delete(oldest[0])
        good = await checked()
        assert good.problems == []
        assert (good.puts, good.deletes, good.index, good.metadata, good.content, good.compared) == (4, 1, 3, 3, 3, 3)
        ref = await store.put_bytes(b"nobody asked for this")
        assert (await checked()).problems == [f"main: nobody asked for {ref.id}"]
        await store.delete(ref.id)
        await store.delete(keys[1])
        assert any("answered and not there" in problem for problem in (await checked()).problems)
        lost = LocalStore(root)  # without the log
        await lost.delete(keys[2])
        assert any("the audit log differs" in problem for problem in (await checked()).problems)
    stray = root / ".abp" / "blobs" / ("ab" * 32)
    stray.write_bytes(b"half")
    contents.kept.clear()
    assert any("orphan" in problem for problem in (await checked()).problems)
    swept = await check_store("main", root, contents, audit=None, killed=True)
    assert swept.left == 1 and swept.problems == []
