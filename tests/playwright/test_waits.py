"""How waits on a page end, and those for effects that it announces, of which a call waits for a few."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from typing import Any

import pytest

from transports.errors import BrowserCrashed, CallTimeout, Disconnected, PageCrashed, TransportError
from transports.playwright._agent import PageAgent
from transports.playwright._effect_tracker import EffectTracker, ExpectedEffect
from transports.protocol.binary import BinaryData
from transports.protocol.messages import Message


class _Page:
    """A page and its context, without a browser."""

    browser = None

    def __init__(self) -> None:
        self.context = self

    def on(self, event: str, listener: object) -> None: ...

    def remove_listener(self, event: str, listener: object) -> None: ...


def _agent() -> PageAgent:
    return PageAgent(_Page(), None, lambda *_: None, lambda lost: lost)  # type: ignore[arg-type]


async def _answered(answer: asyncio.Future[str]) -> str:
    return await answer


@pytest.mark.parametrize("future", [False, True])
async def test_wait_ends_with_its_page_or_at_deadline(future: bool) -> None:
    agent, loop = _agent(), asyncio.get_running_loop()

    def work() -> Any:
        endless: asyncio.Future[str] = loop.create_future()
        return asyncio.shield(endless) if future else _answered(endless)

    with pytest.raises(CallTimeout, match="waiting"):
        await agent.with_deadline(work(), "waiting", timeout=0.01)
    waits = [asyncio.ensure_future(agent.with_deadline(work(), "waiting", timeout=60)) for _ in range(3)]
    await asyncio.sleep(0)
    agent.mark_lost(PageCrashed("the page's renderer crashed"))
    agent.mark_lost(Disconnected("the page was closed"))
    for wait in waits:
        with pytest.raises(PageCrashed):
            await asyncio.wait_for(wait, 15)
    with pytest.raises(PageCrashed):  # the page is gone already
        await agent.with_deadline(work(), "waiting", timeout=60)


async def test_failure_of_abandoned_work_is_not_reported() -> None:
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: said.append(about))
    agent, failing = _agent(), asyncio.get_running_loop().create_future()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        unbegun = asyncio.ensure_future(agent.with_deadline(_answered(failing), "waiting", timeout=60))
        await asyncio.sleep(0)  # the wait has begun, and its work has not
        unbegun.cancel()
        stubborn = asyncio.ensure_future(agent.with_deadline(_fails_when_cancelled(), "waiting", timeout=0.01))
        results = await asyncio.gather(unbegun, stubborn, return_exceptions=True)
        await asyncio.sleep(0)
        del unbegun, stubborn
        gc.collect()
    assert [type(result) for result in results] == [asyncio.CancelledError, CallTimeout]
    assert (said, warned) == ([], [])


async def test_late_failure_after_page_loss_is_not_reported() -> None:
    said: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: said.append(about))
    agent, answer = _agent(), loop.create_future()
    waiting = asyncio.ensure_future(agent.with_deadline(_answered(answer), "waiting", timeout=60))
    for _ in range(3):
        await asyncio.sleep(0)
    answer.set_exception(LookupError())
    agent.mark_lost(Disconnected("the page was closed"))
    await asyncio.wait([waiting])
    assert isinstance(waiting.exception(), Disconnected)
    del waiting, answer
    gc.collect()
    await asyncio.sleep(0)
    assert said == []


async def _fails_when_cancelled() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise LookupError from None


async def test_wait_ends_when_the_page_is_left() -> None:
    agent, endless = _agent(), asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(agent.with_deadline(_answered(endless), "waiting", timeout=60))
    await asyncio.sleep(0)
    agent.stop_listening()
    with pytest.raises(Disconnected, match="the page was left"):
        await asyncio.wait_for(waiting, 15)


async def test_answer_arriving_at_its_deadline_counts() -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(_agent().with_deadline(_answered(answer), "waiting", timeout=0.01))
    await asyncio.sleep(0)
    answer.set_result("there")
    time.sleep(0.05)  # the loop is held up
    assert await waiting == "there"


# --- for effects that a page announces --------------------------------------------------------------------------------


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
