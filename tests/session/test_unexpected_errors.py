"""A transport or a handler raises what nobody expects: whoever waits for an answer gets one all the same."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from tests.conftest import Connect
from tests.support.apps import FOREVER, answering, ask
from transports import ElicitationRequest, MemoryTransport, Message, Notification
from transports.base import Features
from transports.session._events import ConnectionChanged

APP = {"app.ask": ask, "app.work": answering(1)}


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ("no question", "elicitation request"),
        ({"method": "elicitation/confirm", "params": {}}, "the client could not answer: Failed"),
    ],
    ids=["unreadable", "no ordinary exception of the handler"],
)
async def test_app_gets_error_for_unanswerable_question(app_of: Connect, question: object, error: str) -> None:
    async def failing(request: ElicitationRequest) -> Mapping[str, object]:
        pytest.fail("not expected to be asked")  # no Exception

    transport = MemoryTransport(APP)
    async with app_of(transport, on_elicitation=failing), asyncio.timeout(20):
        answer = await transport.ask(Message("elicitation/request", question))
    assert answer["success"] is False
    assert error in str(answer["error"])


class FailingAnswer(MemoryTransport):
    async def notify(self, message: Message) -> None:
        if isinstance(message.payload, dict) and message.payload.get("success"):
            raise ValueError("cannot be sent")
        await super().notify(message)


async def test_app_gets_error_for_unsendable_answer(app_of: Connect) -> None:
    def agree(request: ElicitationRequest) -> Mapping[str, object]:
        return {"success": True, "data": {"confirmed": True}}

    async with app_of(FailingAnswer(APP), on_elicitation=agree) as app:
        async with asyncio.timeout(20):
            answer = (await app.call("app.ask")).data
    assert "the client could not answer: ValueError" in str(answer)


class FailingEvents(MemoryTransport):
    async def events(self) -> AsyncIterator[Message]:
        async for message in super().events():
            if message.payload == "broken":
                raise ValueError("cannot be read")
            yield message


async def test_listeners_are_notified_when_reading_events_fails(
    app_of: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    transport = FailingEvents(APP)
    told: list[Notification] = []
    async with app_of(transport, on_notification=told.append) as app, app.events() as events:
        transport.emit(Message("notification", "broken"))
        async with asyncio.timeout(20):
            event = await anext(events)
            assert isinstance(event, ConnectionChanged) and not event.connected
            assert "ValueError('cannot be read')" in event.reason
            assert (await app.call("app.work")).data == 1
    assert [notification.event for notification in told] == ["connection/lost"]
    assert "EventDispatcher._read_events failed: ValueError('cannot be read')" in caplog.text


class FailingHandshake(MemoryTransport):
    """A transport whose second handshake, or the renewal of a subscription after it, raises an exception."""

    features = Features(listing=True, reconnects=True, resources=True)

    def __init__(self, *, handshake: bool) -> None:
        super().__init__(APP)
        self.handshake = handshake
        self.handshakes = self.subscriptions = 0

    async def request(self, message: Message, *, timeout: float) -> Message:
        self.handshakes += message.type == "initialize"
        if message.type == "initialize" and self.handshake and self.handshakes == 2:
            raise ValueError("cannot be read")
        if message.type == "resources/subscribe":
            self.subscriptions += 1
            if self.subscriptions == 2:
                raise KeyError("no such resource")
            return Message("resources/subscribe-result", {})
        return await super().request(message, timeout=timeout)


@pytest.mark.parametrize("handshake", [True, False], ids=["handshake", "subscription"])
async def test_calls_work_after_unexpected_handshake_failure_on_reconnect(app_of: Connect, handshake: bool) -> None:
    transport = FailingHandshake(handshake=handshake)
    async with app_of(transport) as app, app.events() as events:
        await app.resources.subscribe("app://state")
        transport.emit(Message("connection/lost", {"reason": "cut"}))
        transport.emit(Message("connection/restored", {}))
        async with asyncio.timeout(20):
            while not (isinstance(event := await anext(events), ConnectionChanged) and event.connected):
                pass
            assert (await app.call("app.work", timeout=FOREVER)).data == 1
    assert transport.handshakes == (3 if handshake else 2)
