"""Deadlines of many futures with one timer, and waits that are ended from outside."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
from collections.abc import Awaitable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest

from transports._internal.tasks import Deadlines, Wait, begin, spawn
from transports.errors import UsageError

T = TypeVar("T")
_variable: ContextVar[str] = ContextVar("variable")


async def test_each_future_gets_its_own_error_at_its_own_time() -> None:
    loop, deadlines = asyncio.get_running_loop(), Deadlines()
    ended: dict[int, float] = {}
    futures = {n: loop.create_future() for n in (3, 1, 2)}
    started = loop.time()
    for n, future in futures.items():
        future.add_done_callback(lambda _, n=n: ended.setdefault(n, loop.time() - started))  # type: ignore[misc]
        deadlines.add(future, n * 0.02, lambda n=n: KeyError(n))  # type: ignore[misc]
    forgotten, answered, endless = (loop.create_future() for _ in range(3))
    deadlines.add(forgotten, 0.001, LookupError)
    deadlines.discard(forgotten)
    deadlines.add(answered, 0.001, LookupError)
    answered.set_result("there")
    deadlines.add(endless, math.inf, LookupError)
    for n, future in futures.items():
        with pytest.raises(KeyError, match=str(n)):
            await asyncio.wait_for(future, 15)
    assert all(seconds >= n * 0.02 for n, seconds in ended.items()) and len(ended) == 3
    assert not forgotten.done() and not endless.done() and await answered == "there"


async def test_thousands_of_deadlines_take_few_looks_and_cleared_ones_none(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, deadlines = asyncio.get_running_loop(), Deadlines()
    looks: list[object] = []
    expire = Deadlines._expire

    def counted(self: Deadlines, loop: asyncio.AbstractEventLoop) -> None:
        looks.append(self)
        expire(self, loop)

    monkeypatch.setattr(Deadlines, "_expire", counted)
    futures = [loop.create_future() for _ in range(2000)]
    for n, future in enumerate(futures):
        deadlines.add(future, 0.01 + n * 1e-5, TimeoutError)
    await asyncio.wait(futures, timeout=15)
    assert all(isinstance(future.exception(), TimeoutError) for future in futures)
    assert len(looks) < 20
    last = loop.create_future()
    deadlines.add(last, 0.005, TimeoutError)
    deadlines.clear()
    await asyncio.sleep(0.02)
    assert not last.done()


async def _waiting(work: Awaitable[T], waits: list[Wait[Any]]) -> T:
    wait = Wait(work)
    waits.append(wait)
    return await wait


async def test_the_work_of_a_wait_begins_at_once_and_in_a_context_of_its_own() -> None:
    begun: list[str] = []

    async def work() -> str:
        begun.append(_variable.get())
        _variable.set("the work's")
        await asyncio.sleep(0)
        return _variable.get()

    _variable.set("the caller's")
    waits: list[Wait[Any]] = []
    waiting = _waiting(work(), waits)
    waiting.send(None)  # the first step of the caller
    assert begun == ["the caller's"]
    assert _variable.get() == "the caller's"
    with pytest.raises(StopIteration) as end:
        waiting.send(None)
    assert end.value.value == "the work's"
    assert waits[0].done()


async def test_the_stack_of_work_that_begins_has_none_of_its_callers() -> None:
    """Down to the turn of the event loop, that is: Playwright reads no further, and each function costs it time."""
    read: list[str] = []

    async def work() -> None:
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code is not asyncio.Handle._run.__code__:
            read.append(frame.f_code.co_name)
            frame = frame.f_back

    await _waiting(work(), [])
    assert read == ["work", "_begin"]


async def test_a_wait_gives_what_its_work_gives() -> None:
    async def failing() -> None:
        await asyncio.sleep(0)
        raise LookupError

    async def catching() -> str:
        with suppress(LookupError):
            await answer
        with suppress(asyncio.CancelledError):  # of a future that somebody else cancelled
            await cancelled
        await asyncio.sleep(0)
        return "both"

    loop = asyncio.get_running_loop()
    answer, cancelled, plain = loop.create_future(), loop.create_future(), loop.create_future()
    loop.call_soon(answer.set_exception, LookupError())
    loop.call_later(0.01, cancelled.cancel)
    loop.call_soon(plain.set_result, "plain")
    assert await Wait(catching()) == "both"
    assert await Wait(plain) == "plain"
    with pytest.raises(LookupError):
        await Wait(failing())


@pytest.mark.parametrize("bare", [False, True])
async def test_work_that_goes_on_after_the_end_of_its_wait_does_so_in_a_task_of_its_own(bare: bool) -> None:
    told: list[str] = []
    go, ended = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        try:
            while bare:
                await asyncio.sleep(0)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go.wait()
            told.append(_variable.get())
            ended.set()
            raise LookupError from None  # nobody hears of it

    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: said.append(about))
    _variable.set("the caller's")
    deadlines, waits = Deadlines(), list[Wait[Any]]()
    waiting = asyncio.ensure_future(_waiting(stubborn(), waits))
    await asyncio.sleep(0)
    deadlines.add(waits[0], 0.01, TimeoutError)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting, 15)
    assert told == []
    go.set()
    await asyncio.wait_for(ended.wait(), 15)
    del waiting, waits
    gc.collect()
    await asyncio.sleep(0)
    assert (told, said) == (["the caller's"], [])


async def test_a_caller_that_is_cancelled_in_the_turn_in_which_its_wait_is_ended_is_cancelled() -> None:
    waits: list[Wait[Any]] = []
    for ended_first in (True, False):
        waiting = asyncio.ensure_future(_waiting(asyncio.Event().wait(), waits))
        await asyncio.sleep(0)
        if ended_first:
            waits[-1].set_exception(TimeoutError())
        waiting.cancel()
        if not ended_first:
            waits[-1].set_exception(TimeoutError())
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_wait_in_a_caller_that_was_cancelled_before_ends_with_its_own_error() -> None:
    async def cleaning() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await _waiting(asyncio.Event().wait(), waits)

    waits: list[Wait[Any]] = []
    caller = asyncio.ensure_future(cleaning())
    await asyncio.sleep(0)
    caller.cancel()
    while not waits:
        await asyncio.sleep(0)
    waits[0].set_exception(TimeoutError())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(caller), 15)


async def test_a_wait_that_is_ended_by_its_own_first_step_ends() -> None:
    waits: list[Wait[Any]] = []

    async def work() -> None:
        waits[0].set_exception(TimeoutError())
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_waiting(work(), waits), 15)


async def test_an_unexpected_exception_of_a_task_is_logged_at_once_and_handed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def failing() -> None:
        raise KeyError("unexpected")

    tasks: set[asyncio.Task[Any]] = set()
    errors: list[BaseException] = []
    spawn(failing(), tasks, errors.append)
    async with asyncio.timeout(20):
        while tasks:
            await asyncio.sleep(0)
    assert repr(errors) == "[KeyError('unexpected')]"
    (record,) = caplog.records
    assert record.getMessage().endswith("failing failed: KeyError('unexpected')") and record.exc_info


async def test_a_cancellation_from_inside_a_task_is_an_error_and_one_of_the_task_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    foreign = asyncio.get_running_loop().create_future()
    errors: list[BaseException] = []
    inside, outside = begin(foreign_result(foreign), errors.append), begin(asyncio.Event().wait(), errors.append)
    await asyncio.sleep(0)
    foreign.cancel()
    outside.cancel()
    await asyncio.wait((inside, outside), timeout=20)
    assert [type(error) for error in errors] == [asyncio.CancelledError]
    assert len(caplog.records) == 1


async def foreign_result(future: asyncio.Future[None]) -> None:
    await future


async def test_an_error_of_ours_is_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def failing() -> None:
        raise UsageError("expected")

    await asyncio.wait((begin(failing()),), timeout=20)
    (record,) = caplog.records
    assert "expected" in record.getMessage() and record.exc_info is None
