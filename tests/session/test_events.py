"""The stream of a session, changes of capabilities, and what is answered when nobody is there to be asked."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conftest import Connect
from tests.session.test_calls import Listed
from transports import (
    CallTimeout,
    CapabilityError,
    ElicitationRequest,
    MemoryTransport,
    Notification,
    Progress,
    UsageError,
)
from transports.adapters.memory import Call
from transports.protocol.capabilities import Capabilities, CapabilitiesChanged
from transports.protocol.messages import Message
from transports.session.events import CallFinished, CallStarted, ConnectionChanged, Event, Listeners


async def work(params: Mapping[str, object], call: Call) -> object:
    await call.progress(progress=1, total=2)
    await call.notify("notifications/state/changed", {"page": 1})
    return {"answer": await call.elicit("elicitation/input", {"message": "Name?", "default": "Ada"})}


async def collect(events: Any, into: list[Event]) -> None:
    async for event in events:
        into.append(event)


async def test_one_stream_has_everything_in_order_and_ends_with_the_session(app_of: Connect) -> None:
    first: list[Event] = []
    second: list[Event] = []
    async with app_of({"work": work}) as app:
        tasks = [asyncio.ensure_future(collect(app.events(), into)) for into in (first, second)]
        await app.call("work")
    await asyncio.wait_for(asyncio.gather(*tasks), 2)
    kinds = [CallStarted, Progress, Notification, ElicitationRequest, CallFinished]
    assert [type(event) for event in first] == kinds
    assert first == second


async def test_a_stream_begins_when_it_is_asked_for(app_of: Connect) -> None:
    heard: list[Event] = []
    async with app_of({"work": work}) as app:
        await app.call("work")
        stream = app.events()
        await app.call("work")
        task = asyncio.ensure_future(collect(stream, heard))  # the iteration may begin later
    await asyncio.wait_for(task, 2)
    assert len(heard) == 5


async def test_a_listener_that_stops_leaves_nothing_behind(app_of: Connect) -> None:
    async with app_of({"work": work}) as app:
        stream: Any = app.events()
        await app.call("work")
        assert isinstance(await anext(stream), CallStarted)
        await stream.aclose()
        assert app._inbox.listeners._queues == []


async def test_a_listener_that_is_far_behind_loses_the_oldest_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    listeners = Listeners()
    stream = listeners.listen()
    for n in range(10_001):
        listeners.put(Progress(progress=n))
    listeners.close()
    heard: list[Event] = []
    await collect(stream, heard)
    assert len(heard) == 10_000
    assert heard[0] == Progress(progress=1)
    assert "has lost one" in caplog.text


# --- calls ------------------------------------------------------------------------------------------------------------


async def counted(params: Mapping[str, object], call: Call) -> object:
    """Tells what it was given as progress; fails, or waits for ever, if told so."""
    await call.progress(progress=params["n"])
    if params.get("fail"):
        raise CapabilityError("no paper", code="PRINTER_EMPTY")
    if params.get("hang"):
        await asyncio.Event().wait()
    await asyncio.sleep(0.05)
    return {"n": params["n"]}


async def test_each_call_is_told_from_its_beginning_to_its_end(app_of: Connect) -> None:
    heard: list[Any] = []
    async with app_of({"counted": counted}) as app:
        task = asyncio.ensure_future(collect(app.events(), heard))
        results = await asyncio.gather(*(app.call("counted", {"n": n}, call_id=f"call-{n}") for n in range(5)))
    await asyncio.wait_for(task, 2)
    for n, result in enumerate(results):
        started, progress, finished = [event for event in heard if event.call == f"call-{n}"]
        assert started == CallStarted(f"call-{n}", "counted")
        assert progress.progress == n  # so many at once, and each knows its own
        assert isinstance(finished, CallFinished) and finished.result is result and finished.error is None
        assert finished.artifacts == tuple(result.artifacts.values()) and finished.duration_ms >= 50
        assert finished.artifacts[0].source["call"] == f"call-{n}"


async def test_calls_that_come_to_nothing_are_told_too(app_of: Connect) -> None:
    heard: list[Any] = []
    async with app_of({"counted": counted}) as app:
        task = asyncio.ensure_future(collect(app.events(), heard))
        with pytest.raises(CapabilityError):
            await app.call("counted", {"n": 1, "fail": True})
        with pytest.raises(CallTimeout):
            await app.call("counted", {"n": 1, "hang": True}, timeout=0.05)
        cancelled = asyncio.ensure_future(app.call("counted", {"n": 1, "hang": True}))
        async with asyncio.timeout(2):
            while sum(isinstance(event, Progress) for event in heard) < 3:
                await asyncio.sleep(0.01)
        cancelled.cancel()
        await asyncio.wait((cancelled,))
        with pytest.raises(UsageError):
            await app.screenshot()  # refused before anything begins: no call
    await asyncio.wait_for(task, 2)
    finished = [event for event in heard if isinstance(event, CallFinished)]
    assert [event.error.code for event in finished if event.error] == ["PRINTER_EMPTY", "TIMEOUT", "CANCELLED"]
    assert all(event.result is None and event.artifacts == () for event in finished)
    assert len({event.call for event in heard}) == 3


async def test_progress_of_every_attempt_belongs_to_the_one_call(app_of: Connect) -> None:
    attempts = 0

    async def flaky(params: Mapping[str, object], call: Call) -> object:
        nonlocal attempts
        attempts += 1
        await call.progress(progress=attempts)
        if attempts < 3:
            raise CapabilityError("later", code="RATE_LIMITED", retryable=True, retry_after=0.01)
        return None

    heard: list[Any] = []
    async with app_of({"flaky": flaky}) as app:
        task = asyncio.ensure_future(collect(app.events(), heard))
        await app.call("flaky", call_id="mine")
    await asyncio.wait_for(task, 2)
    told = [(event.progress, event.call) for event in heard if isinstance(event, Progress)]
    assert told == [(1, "mine"), (2, "mine"), (3, "mine")]
    assert len({event.operation_id for event in heard if isinstance(event, Progress)}) == 3


# --- capabilities -----------------------------------------------------------------------------------------------------
async def nothing(params: Mapping[str, object], call: Call) -> object:
    return None


@pytest.mark.parametrize("ways", [("page",), ("notification",), ("page", "notification"), ("notification", "page")])
async def test_a_change_of_capabilities_refreshes_the_registry_and_is_told_once(
    app_of: Connect, ways: tuple[str, ...]
) -> None:
    handlers = {"one": nothing, "two": nothing}
    transport = Listed(handlers, one={"description": "before"})
    told: list[Notification] = []
    events: list[Event] = []
    async with app_of(transport, on_notification=told.append) as app:
        task = asyncio.ensure_future(collect(app.events(), events))
        del handlers["two"]
        handlers["three"] = nothing
        transport.said = {"one": {"description": "after"}, "three": {"description": "new"}}
        change = {"added": ["three"], "removed": ["two"], "changed": ["one"]}
        for way in ways:
            transport.emit(
                Message("capabilities/changed", change)
                if way == "page"
                else Message("notification", {"event": "notifications/capabilities/list_changed", "data": change})
            )
        async with asyncio.timeout(2):
            while not any(isinstance(event, CapabilitiesChanged) for event in events):
                await asyncio.sleep(0.01)
        assert {name: capability.description for name, capability in app.capabilities.items()} == {
            "one": "after",
            "three": "new",
        }
    await task
    changes = [event for event in events if isinstance(event, CapabilitiesChanged)]
    assert changes == [CapabilitiesChanged(("three",), ("two",), ("one",))]
    assert [(one.event, one.data) for one in told] == [("notifications/capabilities/list_changed", change)]


class Unlisted(MemoryTransport):
    features = MemoryTransport.features.__class__()


async def test_where_there_is_no_list_the_change_itself_says_what_there_is(app_of: Connect) -> None:
    transport = Unlisted({"one": nothing, "two": nothing})
    async with app_of(transport) as app:
        stream: Any = app.events()
        new = {"name": "three", "description": "a third", "inputSchema": {"type": "object"}}
        transport.emit(Message("capabilities/changed", {"added": [new], "removed": ["two"]}))
        async with asyncio.timeout(2):
            while not isinstance(await anext(stream), CapabilitiesChanged):
                pass
        assert list(app.capabilities) == ["one", "three"]
        assert app.capabilities["three"].description == "a third"


async def test_the_connection_is_an_event(app_of: Connect) -> None:
    transport = MemoryTransport({})
    async with app_of(transport) as app:
        stream: Any = app.events()
        transport.emit(Message("connection/lost", {"reason": "cut"}))
        transport.emit(Message("connection/restored", {}))
        async with asyncio.timeout(2):
            assert [await anext(stream), await anext(stream)] == [
                ConnectionChanged(False, "cut"),
                ConnectionChanged(True, ""),
            ]


# --- questions without a handler --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        ("elicitation/input", {"default": "Ada"}, {"value": "Ada"}),
        ("elicitation/input", {"schema": {"type": "string", "default": "Ada"}}, {"value": "Ada"}),
        ("elicitation/input", {"message": "Name?"}, None),
        ("elicitation/input", {"default": None}, None),
        ("elicitation/preference", {"default": 0}, {"value": 0}),
        ("elicitation/select", {"options": ["a", "b"], "default": "b"}, {"selected": "b"}),
        ("elicitation/select", {"options": ["a", "b"]}, None),
        ("elicitation/confirm", {"message": "Sure?"}, None),
        ("elicitation/confirm", {"default": True}, {"confirmed": True}),
        ("elicitation/confirm", {"default": False}, {"confirmed": False}),
        ("elicitation/confirm", {"default": True, "destructive": True}, None),
        ("elicitation/confirm", {"default": False, "destructive": True}, {"confirmed": False}),
        ("elicitation/confirm", {"schema": {"default": True, "destructive": True}}, None),
        ("elicitation/resource", {"default": "x"}, None),
        ("sampling/create", {"default": "x"}, None),
        ("elicitation/of-its-own", {"default": "x"}, None),
    ],
)
async def test_the_default_policy(app_of: Connect, method: str, params: dict[str, object], answer: object) -> None:
    async def ask(_: Mapping[str, object], call: Call) -> object:
        return dict(await call.elicit(method, params))

    async with app_of({"ask": ask}) as app:
        data = (await app.call("ask")).data
    assert data == ({"success": True, "data": answer} if answer else {"success": False, "cancelled": True})


# --- capabilities that are listed by the hundred thousand -----------------------------------------------------------


def test_very_many_capabilities_are_read_when_they_are_asked_for() -> None:
    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    listed = [{"name": f"bulk.{n}", "description": str(n), "inputSchema": schema} for n in range(100_000)]
    known = Capabilities().merge([{"name": f"bulk.{n}", "available": n % 2 == 0} for n in range(100_000)]).merge(listed)
    assert len(known) == 100_000
    assert "bulk.99999" in known
    assert known._read == {}
    assert (known["bulk.7"].description, known["bulk.7"].available) == ("7", False)
    assert list(known._read) == ["bulk.7"]


def test_a_capability_that_cannot_be_read_keeps_its_name(caplog: pytest.LogCaptureFixture) -> None:
    known = Capabilities().merge([{"name": "odd", "available": {"a": 1}, "description": "x"}, 3, {"name": None}])
    assert list(known) == ["odd"]
    assert known["odd"].description == ""
    assert "what the app says of odd" in caplog.text
    assert caplog.text.count("left out") == 2
