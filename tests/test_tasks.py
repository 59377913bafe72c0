"""Deadlines of many futures with one timer."""

from __future__ import annotations

import asyncio
import math

import pytest

from transports.tasks import Deadlines


async def test_each_future_gets_its_own_error_at_its_own_time() -> None:
    loop, deadlines = asyncio.get_running_loop(), Deadlines()
    ended: list[int] = []
    futures = {n: loop.create_future() for n in (3, 1, 2)}
    for n, future in futures.items():
        future.add_done_callback(lambda _, n=n: ended.append(n))  # type: ignore[misc]
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
    assert ended == [1, 2, 3]
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
