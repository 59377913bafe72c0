"""Callbacks get their values in order; a slow or broken one disturbs nothing else."""

import asyncio
import contextvars
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from transports.session import _dispatch as module
from transports.session._dispatch import Callbacks, invoke

FOREVER = 60.0


@pytest.fixture
async def callbacks() -> AsyncIterator[Callbacks]:
    made = Callbacks()
    yield made
    await made.aclose()


async def wait_for(callbacks: Callbacks, *which: Callable[..., object]) -> None:
    await asyncio.wait_for(callbacks.wait(which, stalled=FOREVER, timeout=FOREVER), 5)


async def test_waiting_for_callbacks_times_out_without_dropping_values(callbacks: Callbacks) -> None:
    release, seen = asyncio.Event(), list[int]()

    async def wait(value: int) -> None:
        await release.wait()
        seen.append(value)

    callbacks.submit(wait, 1)
    callbacks.submit(wait, 2)
    await asyncio.wait_for(callbacks.wait([wait], stalled=FOREVER, timeout=0.01), 5)
    assert seen == []
    release.set()
    await wait_for(callbacks, wait)
    assert seen == [1, 2]


def raises(value: object) -> None:
    raise RuntimeError(f"plain {value}")


async def test_aclose_waits_for_a_callback_that_swallows_its_cancellation(
    callbacks: Callbacks, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    seen: list[int] = []

    async def stubborn(value: int) -> None:
        seen.append(value)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(FOREVER)
        await asyncio.sleep(0.03)  # and takes its time

    callbacks.submit(stubborn, 1)
    callbacks.submit(stubborn, 2)
    await asyncio.sleep(0.01)
    await asyncio.wait_for(callbacks.aclose(), 5)
    assert seen == [1] and "loses 1 values: the session closes" in caplog.text
    assert asyncio.all_tasks() == before


def test_stuck_callback_holds_up_neither_default_executor_nor_closing_of_loop() -> None:
    """The artifact store works in the loop's own threads; a handler that waits for a person must not stop it."""
    release = threading.Event()
    threads: list[threading.Thread] = []

    def never(value: object) -> None:
        threads.append(threading.current_thread())
        release.wait(FOREVER)

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        callbacks = Callbacks()
        callbacks.submit(never, 1)
        await asyncio.sleep(0.01)
        await asyncio.wait_for(asyncio.to_thread(int), 5)
        await callbacks.aclose()

    try:
        asyncio.run(asyncio.wait_for(main(), 5))
        assert all(thread.daemon and thread.is_alive() for thread in threads)
        assert threads
    finally:
        release.set()
    threads[0].join(5)  # it delivers to a closed loop, in silence
    assert not threads[0].is_alive()


async def test_invoke_returns_callback_result_and_keeps_context() -> None:
    name = contextvars.ContextVar("name", default="none")
    name.set("mine")

    async def answer(value: int) -> int:
        return value + 1

    assert await invoke(answer, 1) == 2
    assert await invoke(lambda value: answer(value), 2) == 3
    assert await invoke(lambda value: name.get(), 0) == "mine"
    with pytest.raises(RuntimeError, match="plain 4"):
        await invoke(raises, 4)
    counter = itertools.count()
    assert await invoke(lambda value: next(counter), 0) == 0


async def test_abandoned_thread_callback_result_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    release, ended = threading.Event(), threading.Event()

    def slow(value: object) -> None:
        release.wait(FOREVER)
        ended.set()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(invoke(slow, 1), 0.01)
    release.set()
    while not ended.is_set():
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert caplog.records == []


async def test_slow_callback_drops_oldest_values_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LIMITS", replace(module.LIMITS, values=10))
    callbacks, entered, release = Callbacks(), threading.Event(), threading.Event()
    seen: list[int] = []

    def block(value: int) -> None:
        entered.set()
        release.wait(FOREVER)
        seen.append(value)

    other: list[int] = []
    listen = other.append
    try:
        with caplog.at_level(logging.WARNING, "transports"):
            callbacks.submit(block, 0)
            while not entered.is_set():
                await asyncio.sleep(0.001)
            for value in range(1, 31):
                callbacks.submit(block, value)
            callbacks.submit(listen, 1)
            await wait_for(callbacks, listen)
        assert other == [1]
    finally:
        release.set()
    await wait_for(callbacks, block)
    assert seen == [0, *range(21, 31)]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "10 values behind" in caplog.text


@pytest.mark.load
async def test_waiting_gives_up_on_stuck_but_not_slow_callback(callbacks: Callbacks) -> None:
    release, seen = threading.Event(), list[int]()

    def slow(value: int) -> None:
        time.sleep(0.02)
        seen.append(value)

    def stuck(value: int) -> None:
        release.wait(FOREVER)

    try:
        for value in range(30):
            callbacks.submit(slow, value)
        callbacks.submit(stuck, 0)
        async with asyncio.timeout(FOREVER / 2):
            await callbacks.wait(stalled=0.5, timeout=FOREVER)
        assert seen == list(range(30))
    finally:
        release.set()


async def test_waiting_ends_despite_new_callback_values(callbacks: Callbacks) -> None:
    seen: list[int] = []

    async def feed(value: int) -> None:
        seen.append(value)
        callbacks.submit(feed, value + 1)
        await asyncio.sleep(0.001)

    callbacks.submit(feed, 0)
    await wait_for(callbacks, feed)
    assert seen
