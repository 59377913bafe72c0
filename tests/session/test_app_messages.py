"""Progress, notifications and questions of an app reach the callbacks of a session."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from tests.conftest import Connect
from tests.support.apps import FOREVER, AtAddress, answering, ask
from tests.support.raw_server import Connection, chunked, listening, reply
from transports import (
    CallFinished,
    CallTimeout,
    CapabilityError,
    ElicitationRequest,
    MemoryTransport,
    Message,
    Notification,
    Progress,
    UsageError,
)
from transports.session import _dispatch as event_dispatch
from transports.testing import Call

# --- progress and notifications ---------------------------------------------------------------------------------------


async def steps(params: Mapping[str, object], call: Call) -> object:
    for n in range(5):
        await call.progress(percentage=n * 25)
    return "done"


class Unhashable:
    """A callable object, with equality of its own."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, listen: Callable[[Progress], object]) -> None:
        self.listen = listen

    async def __call__(self, progress: Progress) -> None:
        self.listen(progress)


def listeners(received: list[float | None]) -> Mapping[str, Callable[[Progress], object]]:
    """Callbacks of every kind; those that are awaited let others run between two values."""
    begun: list[float | None] = []

    def plain(progress: Progress) -> None:
        time.sleep(0.02 / (1 + len(received)))
        received.append(progress.percentage)

    async def awaited(progress: Progress) -> None:
        assert begun == received, "one value at a time"
        begun.append(progress.percentage)
        await asyncio.sleep(0.01)
        received.append(progress.percentage)

    async def labelled(label: str, progress: Progress) -> None:
        await awaited(progress)

    return {
        "plain": plain,
        "async": awaited,
        "partial": partial(labelled, "label"),
        "unhashable": Unhashable(lambda progress: received.append(progress.percentage)),
        "returns an awaitable": lambda progress: awaited(progress),
    }


@pytest.mark.parametrize("kind", listeners([]))
@pytest.mark.parametrize("of_session", [False, True], ids=["of the call", "of the session"])
async def test_progress_arrives_in_order_before_the_result(app_of: Connect, kind: str, of_session: bool) -> None:
    received: list[float | None] = []
    listen = listeners(received)[kind]
    async with app_of({"steps": steps}, store="none:", on_progress=listen if of_session else None) as app:
        for _ in range(2):  # the callback is idle between the calls
            await app.call("steps", on_progress=None if of_session else listen)
            assert received[-5:] == [0, 25, 50, 75, 100]
    assert len(received) == 10


def fails() -> None:
    raise RuntimeError("a broken callback")


def exhausts() -> None:
    next(iter(()))


async def cancels_itself() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("broken", [fails, exhausts, cancels_itself])
async def test_failing_progress_callback_does_not_fail_call(
    app_of: Connect, broken: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    received: list[float | None] = []

    def listen(progress: Progress) -> object:
        received.append(progress.percentage)
        return broken()

    async with app_of({"steps": steps}) as app:
        result = await app.call("steps", on_progress=listen)
        assert result.data == "done"
    assert received == [0, 25, 50, 75, 100]
    assert [record.message for record in caplog.records] == ["a callback failed; the call goes on"] * 5


@pytest.mark.requirement("R6-5e")
@pytest.mark.parametrize("kind", ["plain", "async", "notification"])
async def test_blocked_callback_does_not_delay_calls_or_other_callbacks(
    app_of: Connect, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_dispatch, "LIMITS", replace(event_dispatch.LIMITS, callback=0.05))
    release, before, received = threading.Event(), asyncio.all_tasks(), list[Progress]()

    async def both(params: Mapping[str, object], call: Call) -> object:
        await call.notify("counted")
        return await steps(params, call)

    async def slow_async(progress: Progress) -> None:
        await asyncio.sleep(FOREVER)

    def slow(value: object) -> None:
        release.wait(FOREVER)

    try:
        async with (
            asyncio.timeout(FOREVER / 2),
            app_of({"both": both}, on_notification=slow if kind == "notification" else None) as app,
        ):
            if kind != "notification":
                on_progress = slow if kind == "plain" else slow_async
                assert (await app.call("both", on_progress=on_progress)).data == "done"
            await app.call("both", on_progress=received.append)
            assert len(received) == 5  # events do not queue behind the slow callback
    finally:
        release.set()
    assert asyncio.all_tasks() == before


@pytest.mark.requirement("R6-5d")
async def test_progress_reaches_the_call_it_belongs_to(app_of: Connect) -> None:
    """By its id; without one, or with an id the app made up, if only one call is under way."""
    ids: list[str] = []
    go = asyncio.Event()

    async def wait(params: Mapping[str, object], call: Call) -> object:
        ids.append(call.id)
        await go.wait()
        return None

    async def note(params: Mapping[str, object], call: Call) -> object:
        transport.emit(Message("progress", {"stage": "no id"}))
        transport.emit(Message("progress", {"operationId": "export-7", "stage": "made up", "call": "mine"}))
        transport.emit(Message("progress", {"operationId": ids[0], "stage": "another's"}))
        transport.emit(Message("progress", "no object"))
        transport.emit(Message("progress", {"operationId": call.id, "stage": "mine"}))
        return None

    transport = MemoryTransport({"wait": wait, "note": note})
    received: dict[str, list[str | None]] = {"wait": [], "note": [], "after": [], "session": []}

    def into(name: str) -> Callable[[Progress], None]:
        return lambda progress: received[name].append(progress.stage)

    def listen(progress: Progress) -> None:
        into("session")(progress)
        assert progress.call != "mine" or progress.stage == "another's"  # an app cannot say whose it is

    async with app_of(transport, on_progress=listen) as app:
        waiting = asyncio.ensure_future(app.call("wait", call_id="mine", on_progress=into("wait")))
        while not ids:
            await asyncio.sleep(0)
        await app.call("note", on_progress=into("note"))
        go.set()
        await waiting
        await app.call("note", on_progress=into("after"))
    assert received["wait"] == ["another's"]
    assert received["note"] == ["mine"]
    # the first call has ended: what comes late for it is not taken for the only call that is under way
    assert received["after"] == ["no id", "made up", "mine"]
    assert received["session"] == ["no id", "made up", "another's", "mine"] * 2


@pytest.mark.requirement("R6-5f")
async def test_notifications_reach_the_callback_in_order(app_of: Connect) -> None:
    async def change(params: Mapping[str, object], call: Call) -> object:
        await call.notify("notifications/state/changed", {"page": 2})
        transport.emit(Message("notification", 42))
        transport.emit(Message("capabilities/changed", {"added": ["new"]}))
        transport.emit(Message("something/else", {"event": "mine"}))
        return None

    received: list[Notification] = []
    transport = MemoryTransport({"change": change})
    done = asyncio.Event()

    async def listen(notification: Notification) -> None:
        received.append(notification)
        if len(received) == 3:
            done.set()

    async with app_of(transport, on_notification=listen) as app:
        await app.call("change")
        await asyncio.wait_for(done.wait(), 5)
    assert [(one.event, one.data) for one in received] == [
        ("notifications/state/changed", {"page": 2}),
        ("notifications/capabilities/list_changed", {"added": ["new"]}),
        ("mine", None),
    ]


async def flood(params: Mapping[str, Any], call: Call) -> object:
    for n in range(params["count"]):
        await call.notify("counted", n)
    if params.get("fails"):
        raise CapabilityError("no")
    return "done"


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_notifications_reach_callback_in_order_before_call_or_session_ends(
    app_of: Connect, is_async: bool
) -> None:
    received: list[object] = []

    def listen(notification: Notification) -> None:
        received.append(notification.data)

    async def listen_async(notification: Notification) -> None:
        received.append(notification.data)

    transport = MemoryTransport({"flood": flood})
    async with app_of(transport, on_notification=listen_async if is_async else listen) as app:
        await app.call("flood", {"count": 2_000})
        assert received == list(range(2_000))
        with pytest.raises(CapabilityError):
            await app.call("flood", {"count": 200, "fails": True})
        assert len(received) == 2_200
        for n in range(600):
            transport.emit(Message("notification", {"event": "counted", "data": n}))
    assert received[2_200:] == list(range(600))


async def test_a_notification_callback_may_make_calls(app_of: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    # a call that waited for its own callback would hang
    monkeypatch.setattr(event_dispatch, "LIMITS", replace(event_dispatch.LIMITS, callback=FOREVER))
    answers: list[object] = []

    async def call_back(notification: Notification) -> None:
        answers.append((await app.call("one")).data)

    async with app_of({"flood": flood, "one": answering(1)}, on_notification=call_back) as app, asyncio.timeout(4):
        await app.call("flood", {"count": 3})
        assert answers == [1, 1, 1]


# --- progress of downloads --------------------------------------------------------------------------------------------


@pytest.mark.requirement("R1-4d", "R1-4h", "R1-13b")
async def test_download_is_reported_as_progress_of_its_call(app_of: Connect) -> None:
    size = 3 << 20

    async def send_file(connection: Connection) -> None:
        """It says its length at ``/known`` only."""
        known = connection.target == "/known"
        await connection.send(reply(bytes(size)) if known else chunked(*[bytes(size // 3)] * 3))

    answer = {
        "report": {"downloadUrl": "known", "mimeType": "application/pdf", "size": size},
        "pages": [{"downloadUrl": "unknown", "mimeType": "image/png"}],
    }
    seen: list[Progress] = []
    of_session: list[Progress] = []
    async with (
        listening(send_file) as server,
        app_of(AtAddress(f"{server.url}/", {"make": answering(answer)}), on_progress=of_session.append) as app,
        app.events() as events,
    ):
        result = await app.call("make", on_progress=seen.append, call_id="the-call")
        assert [ref.size_bytes for ref in result.artifacts.values()] == [size, size]
        told = []
        async for event in events:
            if isinstance(event, Progress):
                told.append(event)
            if isinstance(event, CallFinished):
                break
    assert seen == of_session == told  # all of it before the call returned
    assert {(one.call, one.stage) for one in seen} == {("the-call", "download")}
    report = [one for one in seen if one.status == "report"]
    assert {one.total for one in report} == {size}
    assert report[-1].progress == size and report[-1].fraction == 1.0
    assert all(one.progress < two.progress for one, two in pairwise(report) if one.progress and two.progress)
    page = [one for one in seen if one.status == "pages.0"]
    assert page and {one.total for one in page} == {None} and page[0].progress
    assert page[0].text == "download · pages.0"


def test_download_progress_is_reported_at_start_end_and_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("transports.session._dispatch.time.monotonic", lambda: clock[0])
    seen: list[Progress] = []
    report = event_dispatch.DownloadProgress(seen.append, "call")
    for received in range(1, 101):
        clock[0] += 1 / 64
        report("a", received, 100)
    report("b", 1, None)
    report("b", 2, None)
    assert [one.progress for one in seen if one.status == "a"] == [*range(1, 100, 7), 100]
    assert [one.progress for one in seen if one.status == "b"] == [1]
    report("", 7, 9)
    assert (seen[-1].status, seen[-1].text, seen[-1].total) == (None, "download", 9)


# --- elicitation ------------------------------------------------------------------------------------------------------


DECLINED = {"success": False, "cancelled": True}


def confirm(request: ElicitationRequest) -> Mapping[str, object]:
    assert request.params["message"] == "Sure?"
    return {"success": True, "data": {"confirmed": request.method == "elicitation/confirm"}}


async def confirm_async(request: ElicitationRequest) -> Mapping[str, object]:
    await asyncio.sleep(0)
    return confirm(request)


def decline(request: ElicitationRequest) -> Mapping[str, object]:
    raise PermissionError("no")


async def decline_async(request: ElicitationRequest) -> Mapping[str, object]:
    raise PermissionError("no")


@pytest.mark.requirement("R6-6b")
@pytest.mark.parametrize("handler", [confirm, confirm_async, None, decline, decline_async])
async def test_handler_answers_elicitation_and_without_its_answer_it_is_declined(
    app_of: Connect, handler: Callable[[ElicitationRequest], Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with app_of({"ask": ask}, on_elicitation=handler) as app:
        answer = (await app.call("ask", timeout=5)).data
    confirmed = {"success": True, "data": {"confirmed": True}}
    assert answer == (confirmed if handler in (confirm, confirm_async) else DECLINED)
    assert len(caplog.records) == (handler in (decline, decline_async))


NAME = {"type": "object", "properties": {"name": {"type": "string"}}}
COLOURS = [{"value": 1, "label": "Red"}, {"value": 2, "label": "Blue"}]


def good(**data: object) -> dict[str, object]:
    return {"success": True, "data": data}


@pytest.mark.requirement("R6-6c")
@pytest.mark.parametrize(
    ("method", "params", "answer", "fault"),
    [
        ("confirm", {}, {"confirmed": True}, "it does not say whether it is a success"),
        ("input", {"message": "Password?", "schema": {"maxLength": 1}}, good(value="s3cret"), "value does not fit"),
        ("select", {"options": COLOURS}, good(selected="3"), "selected is '3', which is none of 1, 2"),
        ("input", {"schema": NAME}, good(value="Ada"), ""),
        ("confirm", {}, DECLINED, ""),
        ("confirm", {}, {"cancelled": True}, ""),
    ],
)
async def test_invalid_elicitation_answer_fails_app_and_caller(
    app_of: Connect, method: str, params: dict[str, object], answer: Any, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The result has a warning; an app that gives up, however it says so, is not the cause of the caller's error."""
    seen: list[Mapping[str, Any]] = []
    both_asked = asyncio.Barrier(2)

    async def ask_it(given: Mapping[str, object], call: Call) -> object:
        seen.append(await call.elicit(f"elicitation/{method}", params))
        if "both" in given:
            await both_asked.wait()
        if "strictly" in given:
            raise CapabilityError("cancelled by the user", code="CANCELLED")
        return 1

    async with app_of({"ask": ask_it}, on_elicitation=lambda _: answer) as app:
        result = await app.call("ask")
        if not fault:
            assert result.warnings == () and seen == [answer]
            return
        (warning,) = result.warnings
        assert warning.startswith(f"the elicitation handler's answer to elicitation/{method} is refused: {fault}")
        error = {"code": "INVALID_ANSWER", "message": warning, "retryable": False}
        assert seen == [{"success": False, "error": error}]
        with pytest.raises(UsageError) as caught:
            await app.call("ask", {"strictly": True})
        assert caught.value.code == "INVALID_ANSWER"
        assert caught.value.message == f"ask: {warning}; then the app said: cancelled by the user"
        assert caught.value.details["app"] == {
            "code": "CANCELLED", "message": "ask: cancelled by the user", "retryable": False,
        }  # fmt: skip
        assert (await app.call("ask")).warnings == (warning,)  # that of this call alone
        caplog.clear()
        both = await asyncio.gather(*(app.call("ask", {"both": True}) for _ in range(2)))  # nobody knows which asked
        assert [result.warnings for result in both] == [(), ()]
        assert [record.message for record in caplog.records] == [warning, warning]


async def test_elicitation_answer_after_call_timeout_is_dropped(
    app_of: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    asked, go, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late(request: ElicitationRequest) -> Mapping[str, object]:
        asked.set()
        await go.wait()
        answered.set()
        return {"success": True, "data": {"confirmed": True}}

    with caplog.at_level(logging.WARNING):
        async with app_of({"ask": ask, "good": answering(1)}, on_elicitation=late) as app:
            with pytest.raises(CallTimeout):
                await app.call("ask", timeout=0.02)
            assert asked.is_set()
            go.set()
            await answered.wait()
            assert (await app.call("good")).data == 1
    assert caplog.records == []


@pytest.mark.requirement("R6-6d")
async def test_question_flood_uses_few_threads_and_declines_late_and_surplus_ones(app_of: Connect) -> None:
    """A handler that is too late still has its thread, so it counts until it returns. A timeout is in milliseconds."""
    release, most = threading.Event(), 0

    def handler(request: ElicitationRequest) -> dict[str, object]:
        nonlocal most
        most = max(most, sum(thread.name == "abp-callback" for thread in threading.enumerate()))
        release.wait(15)
        return {"success": True, "data": {"confirmed": True}}

    async def flood(params: Mapping[str, object], call: Call) -> object:
        async def ask_within(timeout: int | None) -> bool:
            request: dict[str, object] = {"method": "elicitation/confirm", "params": {}, "timeout": timeout}
            return (await transport.ask(Message("elicitation/request", request)))["success"] is True

        late = await asyncio.gather(*(ask_within(30) for _ in range(60)))
        rest = [asyncio.ensure_future(ask_within(None)) for _ in range(400)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(15):
                while sum(one.done() for one in rest) < 400 - 256:
                    await asyncio.sleep(0.01)
        release.set()
        return [sum(late), sum(await asyncio.gather(*rest))]

    transport = MemoryTransport({"flood": flood})
    async with app_of(transport, on_elicitation=handler) as app:
        counted = (await app.call("flood", timeout=60)).data
    assert counted == [0, 256] and most < 48  # 32, and those whose thread is about to end
