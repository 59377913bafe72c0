"""What servers keep of detached calls and connections: over a restart, for each owner, within limits."""

import asyncio
import inspect
import os
import sqlite3
import stat
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from transports import CallStatus, Scope, UsageError
from transports.errors import ABPError, LedgerError
from transports.protocol._payloads import ElicitationRequest
from transports.routing import Result
from transports.session._events import CallFinished
from transports.surfaces.shared import _detached as call_ledger
from transports.surfaces.shared._activity import Activity, CallRecord
from transports.surfaces.shared._detached import CallLedger, DetachedCalls, OwnerLimits

ANN, BOB = Scope(user="ann"), Scope(user="bob")


def record(call: str, owner: Scope = ANN, *, started: float = 1.0) -> CallRecord:
    scope = replace(owner, session="s1")
    return CallRecord(call, "s1", "Printer", "job.run", "memory", scope, started, detached=True)


def done(call: CallRecord) -> CallRecord:
    return call.with_outcome(CallFinished(call.id, call.capability, 5.0, Result(call.capability, {"done": True}, {})))


class Nobody:
    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        raise AssertionError(request)

    async def aclose(self) -> None:
        raise AssertionError


async def test_outcome_with_text_that_is_not_utf8_is_saved() -> None:
    failed = CallFinished("a", "job.run", 5.0, error=ABPError("/caf\udce9: no space left"))
    async with CallLedger() as ledger:
        await ledger.add(record("a"))
        await ledger.finish(record("a").with_outcome(failed), b"{}")
        kept_call = await ledger.get("a", ANN)
    assert kept_call and kept_call.record.status is CallStatus.FAILED
    assert kept_call.record.error == ("INTERNAL_ERROR", "/caf\ufffd: no space left")


async def test_call_of_live_server_continues_and_of_dead_server_is_unknown(tmp_path: Path) -> None:
    first, second = CallLedger(tmp_path), DetachedCalls(CallLedger(tmp_path))
    await first.add(record("a"))
    seen = await second.get("a", ANN)
    assert seen.record.status is CallStatus.WORKING
    assert not any(
        replace(seen, record=replace(seen.record, status=status)).expired for status in CallStatus if not status.final
    )
    with pytest.raises(UsageError, match="another server runs this call") as caught:
        await second.cancel("a", ANN)
    assert caught.value.code == "CALL_ELSEWHERE"
    await first.aclose()
    lost = await second.get("a", ANN)
    assert lost.record.status is CallStatus.UNKNOWN and not lost.expired
    assert (await second.cancel("a", ANN)).record.status is CallStatus.UNKNOWN  # never sent again, and over
    await second.aclose()


async def test_answers_expire_by_count_size_and_age_and_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with CallLedger(tmp_path, OwnerLimits(answers=3, answer_bytes=50, calls=5)) as ledger:

        async def kept() -> dict[str, bool]:
            return {
                call.id: kept_call.expired
                for call in await ledger.calls(ANN, 10)
                if (kept_call := await ledger.get(call.id, ANN))
            }

        async def end(call: str, number: int, answer: bytes = b"{}") -> None:
            await ledger.add(record(call, started=number))
            await ledger.finish(done(record(call, started=number)), answer)

        await ledger.add(record("bob's", BOB))
        await ledger.finish(done(record("bob's", BOB)), b"{}")
        for number in range(6):
            await end(f"n{number}", number)
        assert await kept() == {"n1": True, "n2": True, "n3": False, "n4": False, "n5": False}
        assert [call.id for call in await ledger.calls(BOB, 10)] == ["bob's"]
        assert await ledger.calls(replace(BOB, session="s2"), 10) == []
        await end("large", 7, b'"' + b"x" * 48 + b'"')
        assert await kept() == {"n2": True, "n3": True, "n4": True, "n5": True, "large": False}
        monkeypatch.setattr(call_ledger, "MAX_AGE", -1.0)
        assert (await kept())["large"]
        assert (gone := await ledger.get("bob's", BOB)) and gone.expired  # looking is enough


async def test_answers_of_all_owners_expire_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept() -> list[str]:
        with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as file:
            return [call for (call,) in file.execute("SELECT id FROM calls WHERE answer IS NOT NULL ORDER BY id")]

    def age() -> None:
        with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as file, file:
            file.execute("UPDATE calls SET finished = finished - 90000")

    async with CallLedger(tmp_path) as ledger:
        for call, owner in (("a", ANN), ("b", BOB)):
            await ledger.add(record(call, owner))
            await ledger.finish(done(record(call, owner)), b"{}")
            assert kept() == [call]  # of another owner
            age()
    async with CallLedger(tmp_path):
        assert kept() == []


async def test_call_of_another_server_is_awaited_and_unknown_after_its_end(tmp_path: Path) -> None:
    first, second = CallLedger(tmp_path), DetachedCalls(CallLedger(tmp_path, OwnerLimits(working=1)))
    await first.add(record("a"))
    waiting = asyncio.ensure_future(second.get("a", ANN, wait=15))
    await second.get("a", ANN, wait=0.05)
    assert not waiting.done()
    await first.finish(done(record("a")), b"{}")
    assert (await waiting).record.status is CallStatus.COMPLETED
    await first.add(record("b", started=2.0))
    await first.aclose()
    await second.ledger.add(record("c", started=3.0))
    assert [call.status.value for call in await second.calls(ANN, 10)] == ["completed", "unknown", "working"]
    await second.aclose()


async def test_owner_call_limit_is_enforced() -> None:
    begun: list[str] = []

    async def work(call: str) -> Result:
        begun.append(call)
        await asyncio.Event().wait()
        raise AssertionError

    calls = DetachedCalls(CallLedger(limits=OwnerLimits(working=2)), activity=(activity := Activity()))
    activity.call_started(replace(record("a"), detached=False))  # the session is first where a call becomes detached
    for call in ("a", "b"):
        await calls.start(record(call), Nobody(), work(call))
    with pytest.raises(UsageError) as caught:
        await calls.start(record("c"), Nobody(), work("c"))
    assert caught.value.code == "LIMIT_REACHED" and caught.value.retryable
    await calls.start(record("d", BOB), Nobody(), work("d"))
    assert (await calls.get("a", ANN, wait=0.01)).record.status is CallStatus.WORKING
    assert begun == ["a", "b", "d"] and activity.calls["a"].detached
    assert (await calls.cancel("a", ANN)).record.status is CallStatus.CANCELLED
    await calls.start(record("e"), Nobody(), work("e"))
    for scope, call in ((BOB, "b"), (ANN, "d"), (ANN, "nothing")):
        with pytest.raises(UsageError) as caught:
            await calls.cancel(call, scope)
        assert caught.value.code == "CALL_NOT_FOUND"
    await calls.cancel_all()
    assert {call.id: call.status.value for call in await calls.calls(Scope(), 10)} == dict.fromkeys("abde", "cancelled")
    assert {call.status for call in activity.calls.values()} == {CallStatus.CANCELLED}
    await calls.aclose()


async def test_work_or_ledger_error_still_ends_call(tmp_path: Path) -> None:
    calls = DetachedCalls(CallLedger(tmp_path))

    async def fail() -> Result:
        raise ValueError("what")

    live = await calls.start(record("a"), Nobody(), fail())
    await live.task
    kept_call = await calls.get("a", ANN)
    assert kept_call.record.status is CallStatus.FAILED and kept_call.answer and b"ValueError" in kept_call.answer

    async def broken(_: CallFinished) -> bytes:
        raise LedgerError("no space is left")

    live = await calls.start(record("b"), Nobody(), fail(), broken)
    await live.task
    assert calls.find_live("b", ANN) is None

    async def no_handles(_: CallFinished) -> bytes:
        raise OSError(24, "Too many open files")

    live = await calls.start(record("c"), Nobody(), fail(), no_handles)
    await live.task
    kept_call = await calls.get("c", ANN)
    assert kept_call.record.status is CallStatus.FAILED and kept_call.answer and kept_call.content is None
    await calls.aclose()


async def test_request_cancelled_before_its_call_starts_leaves_no_call(tmp_path: Path) -> None:
    calls = DetachedCalls(CallLedger(tmp_path))
    assert await calls.calls(ANN, 10) == []

    async def work() -> Result:
        raise AssertionError

    coroutine = work()
    starting = asyncio.ensure_future(calls.start(record("a"), Nobody(), coroutine))
    await asyncio.sleep(0)  # it is being written
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert [call.status for call in await calls.calls(ANN, 10)] == [CallStatus.CANCELLED]
    await calls.aclose()


async def test_kept_connections_are_scoped_to_owner(tmp_path: Path) -> None:
    kept = {"s1": {"url": "https://a/"}, "s2": {"url": "https://b/"}}
    async with CallLedger(tmp_path) as ledger:
        for session, arguments in kept.items():
            await ledger.keep_connection(replace(ANN, session="other"), session, arguments)
    async with CallLedger(tmp_path) as ledger:
        assert [*(await ledger.connections(ANN)).items()] == [*kept.items()]  # the oldest first
        assert await ledger.connections(BOB) == {}
        await ledger.forget_connection(BOB, "s1")
        await ledger.forget_connection(ANN, "s1")
        await ledger.forget_connection(ANN, "s1")
        assert await ledger.connections(ANN) == {"s2": kept["s2"]}


async def test_foreign_or_invalid_ledger_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "calls.sqlite").write_bytes(os.urandom(4096))
    for name in ("link", "file", "damaged"):
        with pytest.raises(LedgerError, match="--state"):
            async with CallLedger(tmp_path / name):
                raise AssertionError(name)
    async with CallLedger(tmp_path / "newer"):
        pass
    with closing(sqlite3.connect(tmp_path / "newer" / "calls.sqlite")) as newer:
        newer.execute("PRAGMA user_version = 3")
    with pytest.raises(LedgerError, match="version 3"):
        await CallLedger(tmp_path / "newer").calls(Scope(), 1)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    async with CallLedger(open_to_all):
        assert stat.S_IMODE(open_to_all.stat().st_mode) == 0o700
