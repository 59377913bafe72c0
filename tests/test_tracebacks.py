"""Tracebacks of errors that leave the library: the caller's lines, not ours, in Python and in pytest."""

import asyncio
import logging
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest

import transports.sync
from tests.conftest import Connect
from tests.support.apps import hang
from transports import ABPError, CallTimeout, CapabilityError, MemoryTransport, UsageError, connect
from transports._internal.arguments import short_traceback
from transports.errors import ConnectFailed
from transports.memory import Call

PACKAGE = str(Path(transports.__file__).parent)


async def refuse(params: Mapping[str, object], call: Call) -> object:
    raise CapabilityError("not today")


def check(caught: pytest.ExceptionInfo[BaseException]) -> None:
    """What Python prints is a few lines, one place of ours at most; what pytest prints shows none."""
    printed = "".join(traceback.format_exception(caught.value))
    assert isinstance(caught.value, ABPError) and printed.splitlines()[-1].endswith(f" [{caught.value.code}]")
    assert __file__ in printed
    assert len(printed.splitlines()) <= 9, printed
    assert printed.count(f'File "{PACKAGE}') <= 1, printed
    frames = [entry.path for entry in caught.traceback.filter(caught)]
    assert not [path for path in frames if str(path).startswith(PACKAGE)]


async def test_traceback_of_async_session_is_short(app_of: Connect) -> None:
    async with app_of({"refuse": refuse, "hang": hang}) as app:
        with pytest.raises(CapabilityError, match="not today") as refused:
            await app.call("refuse")
        with pytest.raises(CallTimeout) as late:
            await app.call("hang", timeout=0.02)
        with pytest.raises(UsageError) as misused:
            await app.screenshot()
    with pytest.raises(ConnectFailed) as failed:
        async with connect("ws://127.0.0.1:9/", store="none:"):
            pass
    with pytest.raises(UsageError, match="on_progress= must be a function, not int") as mistaken:
        connect("http://127.0.0.1:9/", on_progress=3)  # type: ignore[arg-type]
    for caught in (refused, late, misused, failed, mistaken):
        check(caught)


async def test_traceback_of_cancellation_is_short(app_of: Connect) -> None:
    """Ctrl-C prints it: where the caller waited, and not the places in the library or in Playwright."""
    async with app_of({"hang": hang}) as app:
        waiting = asyncio.ensure_future(app.call("hang"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await waiting
    printed = "".join(traceback.format_exception(caught.value))
    assert __file__ in printed and printed.count(f'File "{PACKAGE}') <= 1, printed


async def test_traceback_of_cancelled_caller_code_is_kept() -> None:
    @short_traceback
    async def call() -> None:
        await mine()

    async def mine() -> None:
        await asyncio.sleep(60)

    waiting = asyncio.ensure_future(call())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await waiting
    assert "await asyncio.sleep(60)" in "".join(traceback.format_exception(caught.value))


def test_traceback_of_sync_session_is_short() -> None:
    transport = MemoryTransport({"refuse": refuse, "hang": hang})
    with transports.sync.connect("memory:", transport=transport, store="none:") as app:
        with pytest.raises(CapabilityError, match="not today") as refused:
            app.call("refuse")
        with pytest.raises(CallTimeout) as late:
            app.call("hang", timeout=0.02)
    with (
        pytest.raises(ConnectFailed) as failed,
        transports.sync.connect("ws://127.0.0.1:9/", store="none:"),
    ):
        pass
    for caught in (refused, late, failed):
        check(caught)


async def test_debug_level_logs_full_traceback(app_of: Connect, caplog: pytest.LogCaptureFixture) -> None:
    async with app_of({"refuse": refuse}) as app:
        for level, whole in ((logging.DEBUG, True), (logging.INFO, False)):
            caplog.clear()
            with caplog.at_level(level, "transports"), pytest.raises(CapabilityError):
                await app.call("refuse")
            assert (PACKAGE in caplog.text and "Traceback" in caplog.text and "not today" in caplog.text) == whole


async def test_short_traceback_keeps_cause_and_foreign_exceptions() -> None:
    @short_traceback
    async def work(error: type[Exception]) -> None:
        try:
            raise ZeroDivisionError("mine")
        except ZeroDivisionError as cause:
            raise error("it failed") from cause

    with pytest.raises(UsageError) as caught:
        await work(UsageError)
    assert 'raise ZeroDivisionError("mine")' in "".join(traceback.format_exception(caught.value))
    with pytest.raises(ValueError, match="it failed") as whole:
        await work(ValueError)
    assert 'raise error("it failed")' in "".join(traceback.format_exception(whole.value))
