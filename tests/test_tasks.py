"""Errors of tasks that nobody awaits."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from transports._internal.tasks import discard_unawaited, spawn, start_task
from transports.errors import UsageError


async def test_error_of_a_task_is_logged_at_once_with_a_traceback_if_unexpected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def failing(error: Exception) -> None:
        raise error

    tasks: set[asyncio.Task[Any]] = set()
    errors: list[BaseException] = []
    spawn(failing(KeyError("unexpected")), tasks, errors.append)
    async with asyncio.timeout(20):
        while tasks:
            await asyncio.sleep(0)
    assert repr(errors) == "[KeyError('unexpected')]"
    await asyncio.wait((start_task(failing(UsageError("expected"))),), timeout=20)
    unexpected, expected = caplog.records
    assert unexpected.getMessage().endswith("failing failed: KeyError('unexpected')") and unexpected.exc_info
    assert "expected" in expected.getMessage() and expected.exc_info is None


async def test_cancellation_raised_inside_task_is_reported_but_not_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    foreign = asyncio.get_running_loop().create_future()
    errors: list[BaseException] = []
    inside, outside = (
        start_task(foreign_result(foreign), errors.append),
        start_task(asyncio.Event().wait(), errors.append),
    )
    await asyncio.sleep(0)
    foreign.cancel()
    outside.cancel()
    await asyncio.wait((inside, outside), timeout=20)
    assert [type(error) for error in errors] == [asyncio.CancelledError]
    assert len(caplog.records) == 1


async def foreign_result(future: asyncio.Future[None]) -> None:
    await future


async def test_dropped_work_is_cancelled_and_its_late_error_is_ignored() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    go = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go.wait()
            raise LookupError from None

    task = asyncio.ensure_future(stubborn())
    await asyncio.sleep(0)
    discard_unawaited(task)
    discard_unawaited(stubborn())
    go.set()
    await asyncio.wait((task,), timeout=20)
    del task
    gc.collect()
    await asyncio.sleep(0)
    assert errors == []
