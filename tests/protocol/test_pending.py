"""The table of requests: which reply belongs to whom, whatever order, however often, however late."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, strategies as st

from transports.errors import CallTimeout, Disconnected, ProtocolError
from transports.protocol.messages import Message
from transports.websocket.pending import PendingReplies


def reply(identity: str | None, kind: str = "capabilities/call-result", payload: object = None) -> Message:
    return Message(kind, payload, id=identity)


@pytest.mark.fault(18)
async def test_first_reply_wins_and_others_are_counted() -> None:
    pending = PendingReplies()
    future = pending.register(Message("capabilities/call", id="a"))
    assert pending.deliver(reply("a", payload=1)) == "delivered"
    assert pending.deliver(reply("a", payload=2)) == "duplicate"
    assert (await future).payload == 1
    assert pending.deliver(reply("b")) == "unknown"
    assert pending.deliver(reply(None)) == "unknown"
    assert pending.deliver(Message("notification", id="a")) == "event"
    assert pending.counts == {"delivered": 1, "duplicate": 1, "unknown": 2, "event": 1}
    assert len(pending) == 0


@pytest.mark.fault(18)
async def test_reply_after_timeout_is_late_and_not_delivered() -> None:
    pending = PendingReplies()
    future = pending.register(Message("capabilities/call", id="a"))
    pending.forget("a")
    assert pending.deliver(reply("a")) == "late"
    assert not future.done()


async def test_timeout_error_names_unanswered_step_and_how_to_extend_it() -> None:
    async def send(message: Message) -> None:
        pass

    for request, message in (
        (
            "initialize",
            "no answer to initialize within 0.02 s; if the app needs longer to start, raise connect(timeout=) or "
            "ABP_BROWSER_TIMEOUT (milliseconds)",
        ),
        (
            "capabilities/call",
            "no answer within 0.02 s; if it takes longer, raise timeout= (for all calls: ABP_CALL_TIMEOUT, "
            "milliseconds)",
        ),
        ("capabilities/cancel", "no answer to capabilities/cancel within 0.02 s"),
    ):
        with pytest.raises(CallTimeout) as caught:
            await PendingReplies().request(Message(request), send, timeout=0.01999999)
        assert caught.value.message == message


async def test_reply_of_wrong_type_is_not_delivered() -> None:
    pending = PendingReplies()
    future = pending.register(Message("initialize", id="a"))
    assert pending.deliver(reply("a")) == "unknown"
    assert pending.deliver(reply("a", "initialize-result")) == "delivered"
    assert future.done()


async def test_reused_ids_are_rejected() -> None:
    pending = PendingReplies()
    pending.register(Message("capabilities/call", id="a"))
    with pytest.raises(ValueError, match="needs a new id"):
        pending.register(Message("capabilities/call", id="a"))
    pending.deliver(reply("a"))
    with pytest.raises(ValueError, match="needs a new id"):
        pending.register(Message("capabilities/call", id="a"))
    with pytest.raises(ValueError, match="needs a new id"):
        pending.register(Message("capabilities/call"))


async def test_lost_connection_raises_separate_error_for_each_caller() -> None:
    pending = PendingReplies()
    futures = [pending.register(Message("capabilities/call", id=str(n))) for n in range(3)]
    pending.fail("1", ProtocolError("unreadable"))
    pending.fail("none", ProtocolError("nobody"))
    pending.fail_all(Disconnected("gone"))
    errors = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(error).__name__ for error in errors] == ["Disconnected", "ProtocolError", "Disconnected"]
    assert errors[0] is not errors[2]


@pytest.mark.fault(19)
@given(st.permutations(list(range(30))))
def test_out_of_order_replies_reach_their_requests(order: list[int]) -> None:
    async def run() -> None:
        pending = PendingReplies()
        futures = [pending.register(Message("capabilities/call", id=str(n))) for n in range(30)]
        for n in order:
            pending.deliver(reply(str(n), payload=n))
        assert [(await future).payload for future in futures] == list(range(30))

    asyncio.run(run())


async def test_4096_ended_requests_are_remembered() -> None:
    pending = PendingReplies()
    for n in range(4097):
        pending.register(Message("capabilities/call", id=str(n)))
        pending.forget(str(n))
    assert pending.deliver(Message("capabilities/call-result", id="0")) == "unknown"
    assert pending.deliver(Message("capabilities/call-result", id="1")) == "late"
