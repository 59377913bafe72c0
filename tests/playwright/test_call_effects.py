"""Effects that a page announces: a call waits for a few of them, and what waits is gone when it is over."""

from __future__ import annotations

import asyncio

import pytest

from transports.errors import BrowserCrashed, TransportError
from transports.playwright._effect_tracker import EffectTracker, ExpectedEffect
from transports.protocol.binary import BinaryData
from transports.protocol.messages import Message

_LIMIT = 100


async def _release(_: object) -> None:
    """Nothing is held."""


def tracker() -> EffectTracker:
    lost: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()
    return EffectTracker(lost, lambda _: None, _release)


def waiting(effects: list[ExpectedEffect | None]) -> int:
    return sum(effect is not None and effect.timer is not None and not effect.timer.cancelled() for effect in effects)


@pytest.mark.parametrize("place", ["", "window", "a frame"])
async def test_call_waits_for_at_most_100_announced_effects(place: str) -> None:
    effects = tracker()
    greedy, modest = effects.begin_call("greedy"), effects.begin_call("modest")
    announced = [effects.expect(greedy, place, {}) for _ in range(30_000)]
    assert len(greedy.expected) == waiting(announced) == _LIMIT
    announced.append(effects.expect(modest, place, {}))  # other calls are not kept from waiting
    assert len(modest.expected) == 1
    reply = asyncio.create_task(effects.add_to_reply(modest, Message("capabilities/call-result", {}), timeout=30))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not reply.done()
    for _ in range(_LIMIT + 1):
        begun = effects.take_expected(place)
        assert begun is not None
        effects.mark_begun(begun)
        last = begun.call
    assert last is modest
    await reply
    assert waiting(announced) == 0


async def test_started_effect_frees_slot_for_another() -> None:
    effects = tracker()
    call = effects.begin_call("one")
    for number in range(1000):
        announced = effects.expect(call, "", {"number": number})
        begun = effects.take_expected("")
        assert begun is not None and begun is announced and begun.detail == {"number": number}
        effects.mark_begun(begun)
        assert waiting([announced]) == 0
    assert not call.expected


async def _failing() -> BinaryData:
    raise KeyError("no content")


async def _endless() -> BinaryData:
    await asyncio.Event().wait()
    raise AssertionError


async def test_output_of_a_lost_page_is_not_promised_for_later() -> None:
    loop = asyncio.get_running_loop()
    lost: asyncio.Future[TransportError] = loop.create_future()
    effects = EffectTracker(lost, lambda _: None, _release)
    call, reply = effects.begin_call("one"), Message("capabilities/call-result", {"success": True})
    effects.add_output(call, _endless(), "the app's file")
    loop.call_later(0.01, lost.set_result, BrowserCrashed("the browser has ended"))
    await effects.add_to_reply(call, reply, timeout=20)
    assert reply.warnings == ("the app's file is lost: the browser has ended",)
    await effects.aclose()


async def test_failing_output_is_a_warning_unless_required(
    caplog: pytest.LogCaptureFixture,
) -> None:
    effects = tracker()
    call, reply = effects.begin_call("one"), Message("capabilities/call-result", {"success": True})
    effects.add_output(call, _failing(), "the app's file")
    await effects.add_to_reply(call, reply, timeout=20)
    assert reply.warnings == ("the app's file: 'no content'",)
    assert "a side effect of the app could not be handled" in caplog.text
    effects.add_output(call, _failing(), "the printed page", required=True)
    with pytest.raises(TransportError, match="the printed page: 'no content'"):
        await effects.add_to_reply(call, reply, timeout=20)
