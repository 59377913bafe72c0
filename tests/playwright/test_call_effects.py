"""Effects that a page announces: a call waits for a few of them, and what waits is gone when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from transports.errors import TransportError
from transports.playwright._effect_tracker import EffectTracker
from transports.protocol.binary import BinaryData
from transports.protocol.messages import Message

_LIMIT = 100


async def _release(_: object) -> None:
    """Nothing is held."""


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[asyncio.TimerHandle]]:
    """The timers that trackers have set. Other loops of the process set theirs meanwhile."""
    made: list[asyncio.TimerHandle] = []
    later = asyncio.BaseEventLoop.call_later

    def call_later(self: Any, delay: float, callback: Any, *args: Any, **more: Any) -> asyncio.TimerHandle:
        timer = later(self, delay, callback, *args, **more)
        if isinstance(getattr(callback, "__self__", None), EffectTracker):
            made.append(timer)
        return timer

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", call_later)
    yield made


def tracker() -> EffectTracker:
    lost: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()
    return EffectTracker(lost, lambda _: None, _release)


def waiting(timers: list[asyncio.TimerHandle]) -> int:
    return sum(not timer.cancelled() for timer in timers)


@pytest.mark.parametrize("place", ["", "window", "a frame"])
async def test_a_call_waits_for_a_hundred_announced_effects_and_no_more(
    timers: list[asyncio.TimerHandle], place: str
) -> None:
    effects = tracker()
    call = effects.begin_call("one")
    for _ in range(_LIMIT):
        effects.expect(call, place, {})
    assert len(call.expected) == waiting(timers) == _LIMIT
    for _ in range(30_000 - _LIMIT):
        effects.expect(call, place, {})
    assert len(call.expected) == waiting(timers) == _LIMIT


async def test_an_effect_that_has_begun_leaves_room_for_another(timers: list[asyncio.TimerHandle]) -> None:
    effects = tracker()
    call = effects.begin_call("one")
    for at in range(1000):
        effects.expect(call, "", {"at": at})
        begun = effects.take_expected("")
        assert begun is not None and begun.detail == {"at": at}
        effects.mark_begun(begun)
    assert not call.expected and waiting(timers) == 0


async def test_other_calls_are_not_kept_from_waiting(timers: list[asyncio.TimerHandle]) -> None:
    effects = tracker()
    greedy, modest = effects.begin_call("greedy"), effects.begin_call("modest")
    for _ in range(30_000):
        effects.expect(greedy, "", {})
    effects.expect(modest, "", {})
    assert (len(greedy.expected), len(modest.expected)) == (_LIMIT, 1)
    reply = asyncio.create_task(effects.settle(modest, Message("capabilities/call-result", {}), timeout=30))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not reply.done()
    for _ in range(_LIMIT + 1):
        found = effects.take_expected("")
        assert found is not None
        effects.mark_begun(found)
    assert found is not None and found.call is modest
    await reply
    assert waiting(timers) == 0


async def _failing() -> BinaryData:
    raise KeyError("no content")


async def test_content_that_fails_unexpectedly_is_a_warning_unless_the_call_needs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    effects = tracker()
    call, reply = effects.begin_call("one"), Message("capabilities/call-result", {"success": True})
    effects.add_output(call, _failing(), "the app's file")
    await effects.settle(call, reply, timeout=20)
    assert reply.warnings == ("the app's file: 'no content'",)
    assert "a side effect of the app could not be handled" in caplog.text
    effects.add_output(call, _failing(), "the printed page", required=True)
    with pytest.raises(TransportError, match="the printed page: 'no content'"):
        await effects.settle(call, reply, timeout=20)
