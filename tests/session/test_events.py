"""Event streams, changes of capabilities, and the answers to questions that no handler takes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tests.conftest import Connect
from tests.session.test_calls import ListedApp
from tests.support.apps import LARGE, answering
from tests.support.events import collect_events
from tests.support.limits import change_limits
from tests.support.resources import ResourceApp
from transports import (
    CallTimeout,
    CapabilityError,
    ElicitationRequest,
    MemoryTransport,
    Notification,
    ObservationClamped,
    Progress,
    Result,
    RoutingPolicy,
    UsageError,
    connect,
)
from transports._internal.tasks import Owner
from transports.base import Features
from transports.memory import Call
from transports.protocol._capabilities import Capabilities, CapabilitiesChanged
from transports.protocol.messages import Message
from transports.routing import CustomEvent, TransformContext
from transports.session import _dispatch
from transports.session._events import CallFinished, CallStarted, ConnectionChanged, Event, EventStream, EventStreams
from transports.session._results import Results


async def work(params: Mapping[str, object], call: Call) -> object:
    await call.progress(progress=1, total=2)
    await call.notify("notifications/state/changed", {"page": 1})
    return {"answer": await call.elicit("elicitation/input", {"message": "Name?", "default": "Ada"})}


@pytest.mark.requirement("R2-4.4g")
async def test_truncation_for_agent_emits_event_from_any_thread(app_of: Connect) -> None:
    def transform(capability: str, answer: object, context: TransformContext) -> object:
        context.emit("rows/seen", 999)
        return answer

    routing = RoutingPolicy(transformer=transform)
    async with app_of({"rows": answering({"rows": ["z" * 90] * 999})}, routing=routing) as app, app.events() as events:
        result = await app.call("rows", call_id="c1")
        result.for_agent()
        await asyncio.to_thread(result.for_agent)
        await asyncio.sleep(0)
        await app.aclose()
        seen = [event async for event in events]
    assert [type(event) for event in seen] == [CallStarted, CustomEvent, CallFinished, *[ObservationClamped] * 2]
    assert seen[1] == CustomEvent("c1", "rows", "rows/seen", 999)
    assert seen[3] == seen[4] and cast(ObservationClamped, seen[3]).call == "c1"
    result.for_agent()  # nobody listens any more
    await asyncio.to_thread(result.for_agent)


@pytest.mark.requirement("R2-2.1a", "R2-4.3a")
async def test_in_process_app_stores_content_itself(app_of: Connect, tmp_path: Path) -> None:
    async def report(params: Mapping[str, object], call: Call) -> object:
        ref = await call.artifacts.put_text("a,b", mime_type="text/csv", filename="t.csv", namespace=call.capability)
        return {"table": ref, "rows": 1}

    async with app_of({"report": report}, record=tmp_path / "recording.jsonl") as app:
        result = await app.call("report")
    assert (result.artifact("table").filename, result.metadata) == ("t.csv", {"rows": 1})
    assert await app.store.get(result.artifact().id) == b"a,b"
    assert result.data == {"table": result.artifact().as_dict(), "rows": 1}
    async with connect(f"replay:{tmp_path / 'recording.jsonl'}", store=tmp_path / "replayed") as replayed:
        assert (await replayed.call("report")).data == result.data


async def test_event_stream_holds_events_only_inside_its_block(app_of: Connect) -> None:
    async def read(events: AsyncIterator[Event]) -> list[Event]:
        return [event async for event in events]

    async with app_of({"work": work}) as app:
        stream: Any = app.events()
        await app.call("work")  # before the block: not in the stream
        with pytest.raises(UsageError, match=r"async with app\.events\(\) as events"):
            async for _ in stream:
                pytest.fail("it was not entered")
        async with app.events() as left:
            await app.call("work")
            assert isinstance(await anext(left), CallStarted)
        assert await read(left) == []
        with pytest.raises(UsageError, match="entered once"):
            await cast("EventStream", left).__aenter__()
        async with app.events() as ended:
            reading = asyncio.ensure_future(read(ended))
            await asyncio.sleep(0)
        assert await asyncio.wait_for(reading, 2) == []
        async with app.events() as other, stream as events:
            await app.call("work")
            await app.aclose()
            seen = await read(events)  # the iteration may begin later
            assert await read(other) == seen
    kinds = [CallStarted, Progress, Notification, ElicitationRequest, CallFinished]
    assert [type(event) for event in seen] == kinds


async def test_listener_10_000_events_behind_drops_oldest_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    streams = EventStreams(Owner("session"))
    async with EventStream(streams) as stream:
        for n in range(10_003):
            streams.emit(Progress(progress=n))
        assert caplog.text.count("10000 events behind and loses the oldest") == 1
        streams.close()
        events = [event async for event in stream]
    assert len(events) == 10_000
    assert events[0] == Progress(progress=3)


# --- calls ------------------------------------------------------------------------------------------------------------


async def counted(params: Mapping[str, Any], call: Call) -> object:
    """Sends ``n`` as progress; then fails with ``fail``, waits for ever with ``hang``, else answers."""
    await call.progress(progress=params["n"])
    if params.get("fail"):
        raise CapabilityError("no paper", code="PRINTER_EMPTY")
    if params.get("hang"):
        await asyncio.Event().wait()
    await asyncio.sleep(0.05)
    content = LARGE * (params["n"] % 8 == 0) + str(params["n"]).encode()  # some of it moves by a handle
    return {"n": params["n"], "file": {"content": content, "mimeType": "application/x-thing"}}


@pytest.mark.requirement("R2-5.1a")
async def test_concurrent_calls_get_separate_content_and_events(app_of: Connect) -> None:
    async with collect_events(app_of({"counted": counted})) as (app, events):
        results = await asyncio.gather(*(app.call("counted", {"n": n}, call_id=f"call-{n}") for n in range(40)))
        contents = [await app.store.get(result.artifacts["file"]) for result in results]
    for n, (result, content) in enumerate(zip(results, contents, strict=True)):
        assert content == LARGE * (n % 8 == 0) + str(n).encode()
        started, progress, finished = [event for event in events if getattr(event, "call", "") == f"call-{n}"]
        assert started == CallStarted(f"call-{n}", "counted")
        assert isinstance(progress, Progress) and progress.progress == n  # so many at once, and each knows its own
        assert isinstance(finished, CallFinished) and finished.result is result and finished.error is None
        assert finished.artifacts == tuple(result.artifacts.values()) and finished.duration_ms >= 50
        assert finished.artifacts[0].source["call"] == f"call-{n}"


async def test_failed_and_cancelled_calls_emit_events(app_of: Connect) -> None:
    async with collect_events(app_of({"counted": counted})) as (app, events):
        with pytest.raises(CapabilityError):
            await app.call("counted", {"n": 1, "fail": True})
        with pytest.raises(CallTimeout):
            await app.call("counted", {"n": 1, "hang": True}, timeout=0.05)
        cancelled = asyncio.ensure_future(app.call("counted", {"n": 1, "hang": True}))
        async with asyncio.timeout(30):
            while sum(isinstance(event, Progress) for event in events) < 3:
                await asyncio.sleep(0.01)
        cancelled.cancel()
        await asyncio.wait((cancelled,))
        with pytest.raises(UsageError):
            await app.screenshot()  # refused before anything begins: no call
    finished = [event for event in events if isinstance(event, CallFinished)]
    assert [event.error.code for event in finished if event.error] == ["PRINTER_EMPTY", "TIMEOUT", "CANCELLED"]
    assert all(event.result is None and event.artifacts == () for event in finished)
    assert len({getattr(event, "call", "") for event in events}) == 3


async def test_call_cancelled_while_storing_error_data_is_cancelled(
    app_of: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing = asyncio.Event()

    async def store_for_ever(results: Results, data: object, call: object) -> Result:
        storing.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    monkeypatch.setattr(Results, "from_data", store_for_ever)
    answer = {"success": False, "error": {"code": "X", "message": "no"}, "data": {"pages": 1}}
    transport = MemoryTransport({"fail": nothing}, answers={"fail": answer})
    async with collect_events(app_of(transport)) as (app, events):
        cancelled = asyncio.ensure_future(app.call("fail"))
        await storing.wait()
        cancelled.cancel()
        await asyncio.wait((cancelled,))
    assert cancelled.cancelled()
    (finished,) = [event for event in events if isinstance(event, CallFinished)]
    assert finished.error is not None and finished.error.code == "CANCELLED"


# --- capabilities -----------------------------------------------------------------------------------------------------

nothing = answering(None)


@pytest.mark.requirement("R6-5g")
@pytest.mark.parametrize(
    ("ways", "apart", "notified"),
    [
        (("page",), False, 1),
        (("notification",), False, 1),
        (("page", "notification"), False, 1),
        (("notification", "page"), False, 1),
        (("page", "notification", "notification"), False, 2),
        (("notification", "notification"), False, 2),
        (("page", "notification"), True, 2),
    ],
)
async def test_capability_change_updates_list_and_emits_one_event(
    app_of: Connect, monkeypatch: pytest.MonkeyPatch, ways: tuple[str, ...], apart: bool, notified: int
) -> None:
    """Two equal reports of one change are one, unless they are so far ``apart`` in time that they are of two."""
    if apart:
        change_limits(monkeypatch, _dispatch, duplicate=0)
    handlers = {"one": nothing, "two": nothing}
    transport = ListedApp(handlers, one={"description": "before"})
    notifications: list[Notification] = []
    async with collect_events(app_of(transport, on_notification=notifications.append)) as (app, events):
        del handlers["two"]
        handlers["three"] = nothing
        transport.declared = {"one": {"description": "after"}, "three": {"description": "new"}}
        change = {"added": ["three"], "removed": ["two"], "changed": ["one"]}
        for way in ways:
            transport.emit(
                Message("capabilities/changed", change)
                if way == "page"
                else Message("notification", {"event": "notifications/capabilities/list_changed", "data": change})
            )
        async with asyncio.timeout(30):
            while not any(isinstance(event, CapabilitiesChanged) for event in events) or len(notifications) < notified:
                await asyncio.sleep(0.01)
        assert {name: capability.description for name, capability in app.capabilities.items()} == {
            "one": "after",
            "three": "new",
        }
    changes = [event for event in events if isinstance(event, CapabilitiesChanged)]
    assert changes == [CapabilitiesChanged(("three",), ("two",), ("one",))]
    expected = [("notifications/capabilities/list_changed", change)] * notified
    assert [(one.event, one.data) for one in notifications] == expected


async def test_change_event_updates_capabilities_without_list(app_of: Connect) -> None:
    class UnlistedApp(MemoryTransport):
        features = Features()

    transport = UnlistedApp({"one": nothing, "two": nothing})
    async with app_of(transport) as app, app.events() as events:
        new = {"name": "three", "description": "a third", "inputSchema": {"type": "object"}}
        transport.emit(Message("capabilities/changed", {"added": [new], "removed": ["two"]}))
        async with asyncio.timeout(30):
            while not isinstance(await anext(events), CapabilitiesChanged):
                pass
        assert list(app.capabilities) == ["one", "three"]
        assert app.capabilities["three"].description == "a third"


# --- questions without a handler --------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-6e")
@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        ("elicitation/input", {"default": "Ada"}, {"value": "Ada"}),
        ("elicitation/input", {"message": "Name?"}, None),
        ("sampling/create", {"default": "x"}, None),
    ],
)
async def test_a_question_without_a_handler_gets_the_default_answer(
    app_of: Connect, method: str, params: dict[str, object], answer: object
) -> None:
    async def ask(_: Mapping[str, object], call: Call) -> object:
        return dict(await call.elicit(method, params))

    async with app_of({"ask": ask}) as app:
        data = (await app.call("ask")).data
    assert data == ({"success": True, "data": answer} if answer else {"success": False, "cancelled": True})


async def test_failed_call_reports_its_unanswered_question(app_of: Connect) -> None:
    async def ask(params: Mapping[str, object], call: Call) -> object:
        answer = await call.elicit("elicitation/confirm", {"message": "Sure?", "default": params.get("default", False)})
        if params.get("fail", True):
            raise CapabilityError(f"cancelled: {answer['success']}", code="CANCELLED")
        return dict(answer)

    async def answer(_: ElicitationRequest) -> dict[str, object]:
        return {"success": True, "data": {"confirmed": False}}

    asked = "; the app asked (elicitation/confirm), but there is no handler for questions: give on_elicitation="
    async with app_of({"ask": ask}) as app:
        with pytest.raises(CapabilityError) as caught:
            await app.call("ask", {"default": None})
        assert caught.value.message == f"ask: cancelled: False{asked}" and caught.value.code == "CANCELLED"
        assert (await app.call("ask", {"default": None, "fail": False})).warnings == ()
        with pytest.raises(CapabilityError) as caught:
            await app.call("ask")  # answered, by the app's own default
        assert caught.value.message == "ask: cancelled: True"
    async with app_of({"ask": ask}, on_elicitation=answer) as app:
        with pytest.raises(CapabilityError) as caught:
            await app.call("ask", {"default": None})
        assert caught.value.message == "ask: cancelled: True"


def test_unparsable_capability_keeps_its_name(caplog: pytest.LogCaptureFixture) -> None:
    known = Capabilities().merge([{"name": "odd", "available": {"a": 1}, "description": "x"}, 3, {"name": None}])
    assert list(known) == ["odd"]
    assert known["odd"].description == ""
    assert "the app's entry for odd" in caplog.text
    assert caplog.text.count("left out") == 2


class ReconnectingApp(ResourceApp):
    """An app whose server forgets its subscriptions with the connection."""

    features = Features(listing=True, reconnects=True, resources=True)

    def break_connection(self) -> None:
        self.subscribed.clear()
        self.emit(Message("connection/lost", {"reason": "cut"}))
        self.emit(Message("connection/restored", {}))


class SilentApp(ReconnectingApp):
    """From a moment on, it answers no subscription."""

    is_silent = False

    async def request(self, message: Message, *, timeout: float) -> Message:
        if message.type == "resources/subscribe" and self.is_silent:
            await asyncio.sleep(timeout)
            raise CallTimeout("no answer")
        return await super().request(message, timeout=timeout)


async def test_refused_subscription_is_not_kept_and_renewals_share_one_timeout(app_of: Connect) -> None:
    transport = SilentApp()
    uris = {f"note:///{number}" for number in range(20)}
    async with app_of(transport, timeout=0.4) as app, app.events() as events:
        for uri in uris:
            await app.resources.subscribe(uri)
        transport.is_silent = True
        with pytest.raises(CallTimeout):
            await app.resources.subscribe("note:///refused", timeout=0.01)
        assert app.resources.subscriptions == uris
        transport.break_connection()
        async with asyncio.timeout(10):
            while not (isinstance(event := await anext(events), ConnectionChanged) and event.connected):
                pass


@pytest.mark.requirement("R2-2.4d", "R2-5.7d")
async def test_reconnect_emits_two_events_renews_subscriptions_and_forgets_resources(app_of: Connect) -> None:
    transport = ReconnectingApp()
    async with app_of(transport) as app, app.events() as events:
        for uri in ("note:///long", "file:///x/picture.png"):
            await app.resources.subscribe(uri)
        await app.resources.unsubscribe("note:///long")
        assert transport.subscribed == app.resources.subscriptions == {"file:///x/picture.png"}
        for _ in range(2):
            await app.resources.read("file:///x/picture.png")
        assert transport.reads == 1
        transport.break_connection()
        async with asyncio.timeout(20):
            seen = [await anext(events), await anext(events)]
        assert seen == [ConnectionChanged(False, "cut"), ConnectionChanged(True, "")]
        assert transport.subscribed == {"file:///x/picture.png"}
        await app.resources.read("file:///x/picture.png")
        assert transport.reads == 2  # a change while it was away would not have been reported
