"""Behaviours of a session over the transport: calls without content, events, timeouts and cancellation."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ..._internal.tasks import drop
from ...errors import CallTimeout, CapabilityError, UsageError
from ...protocol._capabilities import CapabilitiesChanged
from ...protocol._payloads import ElicitationRequest, Notification, Progress
from ...session._session import Session
from ._behaviour import Behaviour, Subject, Theme, running, until, value

BEHAVIOURS: list[Behaviour] = []
CALLS = Theme("calls", BEHAVIOURS)
EVENTS = Theme("events", BEHAVIOURS)
CANCELLATION = Theme("cancellation", BEHAVIOURS)

_CHANGED = "notifications/capabilities/list_changed"
_STARTED = "notifications/operation/started"
_COMPLETED = "notifications/operation/completed"


@CALLS.in_session("the session knows the app's capabilities", "docs/protocol.md 2.2, 2.4")
async def _check_known(session: Session) -> None:
    expected = {"data.csv", "export.pdf", "file.generate", "job.run"}
    assert expected & set(session.capabilities) == expected
    assert session.capabilities["data.csv"].name == "data.csv"


@CALLS.in_session("the session knows the app", "docs/protocol.md 2.2")
async def _check_app(session: Session) -> None:
    assert session.info.name == "Workbench"
    assert session.info.id and session.info.version and session.session_id


@CALLS.in_session("capabilities come with their schemas", "docs/protocol.md 2.5")
async def _check_schemas(session: Session) -> None:
    capability = session.capabilities["data.csv"]
    assert "rows" in value(capability.input_schema, "properties")
    assert capability.description


@CALLS.in_session("parameters are checked before they travel", "docs/protocol.md 3.6")
async def _check_checked(session: Session) -> None:
    with pytest.raises(UsageError):
        await session.call("data.csv", {"rows": 7})


@CALLS.in_session("an unknown capability is the app's own error", "docs/protocol.md 3.5, 8.1")
async def _check_unknown(session: Session) -> None:
    with pytest.raises(CapabilityError) as caught:
        await session.call("export.pfd")
    assert caught.value.code == "UNKNOWN_CAPABILITY"
    assert "export.pdf" in caught.value.alternatives


@CALLS("capabilities come and go", "docs/protocol.md 4.3, 4.5")
async def _check_come_and_go(subject: Subject) -> None:
    notifications: list[str] = []
    session = subject.connect(on_notification=lambda notification: notifications.append(notification.event))
    async with session, session.events() as events:
        for available in (True, False):
            answer = (await session.call("app.toggle")).data
            assert value(answer, "available") == available
            change = await _next_change(events)
            names = change.added if available else change.removed
            assert names == ("extra.hello",)
            assert ("extra.hello" in session.capabilities) == available
            if available:
                assert [*(await session.call("extra.hello")).artifacts] == [""]
    assert notifications == [_CHANGED, _CHANGED]


async def _next_change(events: AsyncIterator[object]) -> CapabilitiesChanged:
    """Return the next change of the capabilities, within five seconds."""
    async with asyncio.timeout(5):
        async for event in events:
            if isinstance(event, CapabilitiesChanged):
                return event
    raise AssertionError("the events ended before a change of the capabilities")


@CALLS.in_session("JSON results become files", "docs/protocol.md 12.1")
async def _check_json_results(session: Session) -> None:
    result = await session.call("data.json", {"csv": "name,sold\r\ntea,12\r\n"})
    assert result.data == {"items": [{"name": "tea", "sold": 12}], "count": 1}
    stored = json.loads(Path(str(result.artifacts[""].path)).read_text(encoding="utf-8"))
    assert stored == result.data


@CALLS.in_session("a result names its transport", "transports.Result.transport")
async def _check_names_its_transport(session: Session) -> None:
    result = await session.call("file.list")
    assert result.transport == session.transport.name


@CALLS("text arrives as it was sent", "docs/protocol.md 1.6; RFC 8259 §8.1")
async def _check_text_is_kept(subject: Subject) -> None:
    sent = "é 世界 𝄞 ‮ \u2028 \x00 \\ \" ' <script> %s {} \t\r\n"
    async with subject.connect() as session:
        rows = [{"text": sent, "ключ 🎵": "value"}]
        content = (await session.call("data.csv", {"rows": rows})).artifacts["file"]
        assert Path(str(content.path)).read_bytes().decode().count("世界 𝄞") == 1
        answered = (await session.call("form.ask", {"method": "contract/echo", "params": {"text": sent}})).data
        assert value(answered, "response", "success") is False


@CALLS.in_session("text comes back as it was answered", "docs/protocol.md 1.6; RFC 8259 §8.1; docs/faults.md 17")
async def _check_text_back(session: Session) -> None:
    answer = (await session.call("shape", {"shape": "nonAscii"})).data
    assert value(answer, "text") == "é 世界 𝄞 🎼"
    assert value(answer, "ключ 🎵") == "value"


@CALLS("numbers, null and empty values arrive as they were sent", "docs/protocol.md 1.6; RFC 8259")
async def _check_values(subject: Subject) -> None:
    sent: dict[str, object] = {"zero": 0, "negative": -1.5, "large": 2**53 - 1, "small": 1e-300}
    sent |= {"nothing": None, "yes": True, "no": False, "empty": "", "list": [], "object": {}}
    sent |= {"nested": [[1, [2, {"three": 3}]]]}
    async with subject.connect() as session:
        answered = (await session.call("fault.bad_answer", {"value": {"success": True, "data": sent}})).data
        assert answered == sent


@CALLS.in_session("a large answer of plain JSON arrives whole", "docs/protocol.md 1.3; docs/faults.md 22")
async def _check_large_json(session: Session) -> None:
    rows = value((await session.call("fault.big_json", {"megabytes": 3})).data, "rows")
    assert (len(rows), value(rows, -1, "row")) == (3072, 3071)


@CALLS.in_session("an answer without data is a success", "docs/protocol.md 3.3")
async def _check_without_data(session: Session) -> None:
    assert (await session.call("fault.crash_half")).data is None


@CALLS.in_session("calls at once each get their own answer", "docs/protocol.md 3.1; docs/faults.md 19")
async def _check_at_once(session: Session) -> None:
    calls = [session.call("file.digest", {"file": str(n).encode()}) for n in range(40)]
    sums = [value(result.data, "sha256") for result in await asyncio.gather(*calls)]
    assert sums == [hashlib.sha256(str(n).encode()).hexdigest() for n in range(40)]


@CALLS("a slow call holds up no quick one", "docs/protocol.md 3.1; transports.base.Transport.request")
async def _check_slow_and_quick(subject: Subject) -> None:
    async with subject.connect() as session, running(session.call("fault.slow", {"ms": 8000})) as slow:
        await asyncio.sleep(0.05)
        try:
            async with asyncio.timeout(0.4 * subject.answer_timeout):
                await session.call("data.json", {"csv": "a\r\n1\r\n"})
        except TimeoutError:
            raise AssertionError("the quick call waited for the slow one") from None
        assert not slow.done()


@CALLS.in_session("an error of the app keeps its code and message", "docs/protocol.md 3.5")
async def _check_app_errors(session: Session) -> None:
    error = {"code": "PERMISSION_DENIED", "message": "not today", "details": {"why": "Sunday"}, "retryable": False}
    with pytest.raises(CapabilityError) as caught:
        await session.call("fault.bad_answer", {"value": {"success": False, "error": error}})
    assert caught.value.code == "PERMISSION_DENIED"
    assert "not today" in caught.value.message
    assert caught.value.details.get("why") == "Sunday"


@CALLS.in_session("an exception of the app is a CapabilityError", "docs/protocol.md 3.3, 8.1")
async def _check_thrown(session: Session) -> None:
    with pytest.raises(CapabilityError) as caught:
        await session.call("fault.throws", {"message": "broken"})
    assert caught.value.code == "OPERATION_FAILED"
    with pytest.raises(CapabilityError) as caught:
        await session.call("fault.rejects_string")
    assert caught.value.code == "OPERATION_FAILED"
    await session.call("file.list")


@EVENTS("progress comes in order and each once", "docs/protocol.md 4.4, 4.6")
async def _check_progress(subject: Subject) -> None:
    seen: list[Progress] = []
    async with subject.connect() as session:
        await session.call("job.run", {"steps": 5, "delay": 1}, on_progress=seen.append)
        await until(lambda: len(seen) >= 5, "five reports of progress arrive")
    assert [item.progress for item in seen] == [1, 2, 3, 4, 5]
    assert [item.fraction for item in seen] == [0.2, 0.4, 0.6, 0.8, 1.0]


@EVENTS("progress belongs to its call", "docs/protocol.md 4.4")
async def _check_progress_of_two(subject: Subject) -> None:
    first: list[str | None] = []
    second: list[str | None] = []
    async with subject.connect() as session:

        async def run_job(label: str, stages: list[str | None]) -> None:
            params = {"steps": 3, "delay": 5, "label": label}
            await session.call("job.run", params, on_progress=lambda item: stages.append(item.stage))

        await asyncio.gather(run_job("one", first), run_job("two", second))
        await until(lambda: len(first) + len(second) >= 6, "six reports of progress arrive")
    assert first == ["one"] * 3
    assert second == ["two"] * 3


@EVENTS("a progress callback that raises or blocks breaks no call", "transports.Session.call")
async def _check_bad_callback(subject: Subject) -> None:
    async def callback(item: Progress) -> None:
        if item.progress == 1:
            raise ValueError("a callback of the contract suite fails on purpose")
        await asyncio.sleep(3600)

    async with subject.connect() as session:
        async with asyncio.timeout(subject.timeout / 2):
            result = await session.call("job.run", {"steps": 2, "delay": 1}, on_progress=callback)
        assert value(result.data, "steps") == 2


@EVENTS("notifications reach the session", "docs/protocol.md 4.3")
async def _check_notifications(subject: Subject) -> None:
    seen: list[Notification] = []
    async with subject.connect(on_notification=seen.append) as session:
        await session.call("job.run", {"steps": 1, "delay": 1, "label": "mine"})
        await until(lambda: len(seen) >= 2, "two notifications arrive")
    assert [notification.event for notification in seen] == [_STARTED, _COMPLETED]
    assert value(seen[0].data, "label") == "mine"


@EVENTS("events() yields the events of a session", "transports.Session.events")
async def _check_listened(subject: Subject) -> None:
    seen: list[str] = []

    async def listen() -> None:
        async for event in events:
            if isinstance(event, Notification):
                seen.append(event.event)
            else:
                seen.append(type(event).__name__)

    async with subject.connect() as session, session.events() as events:
        listening = asyncio.ensure_future(listen())
        await session.call("job.run", {"steps": 2, "delay": 1})
        await until(lambda: len(seen) >= 6, "six events arrive")
        await session.aclose()
        async with asyncio.timeout(5):
            await listening
    expected = ["CallStarted", _STARTED, "Progress", "Progress", _COMPLETED, "CallFinished"]
    assert sorted(seen) == sorted(expected)


async def _ask(session: Session, **params: object) -> object:
    """Have the app ask a question, and return the response that it got."""
    answer = await session.call("form.ask", {"method": "elicitation/input", "params": params})
    return value(answer.data, "response")


@EVENTS("a question is answered", "docs/protocol.md 5.1, 5.2")
async def _check_answered(subject: Subject) -> None:
    requests: list[ElicitationRequest] = []

    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        requests.append(request)
        return {"success": True, "data": {"value": "blue"}}

    async with subject.connect(on_elicitation=answer) as session:
        response = await _ask(session, message="Colour?")
        assert value(response, "data") == {"value": "blue"}
    assert [request.params.get("message") for request in requests] == ["Colour?"]


@EVENTS("several questions at once each get their own answer", "docs/protocol.md 5.4, 6.2")
async def _check_answered_at_once(subject: Subject) -> None:
    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        return {"success": True, "data": {"value": f"to {request.params.get('message')}"}}

    async with subject.connect(on_elicitation=answer) as session:
        responses = await asyncio.gather(*(_ask(session, message=str(n)) for n in range(4)))
    assert [value(response, "data", "value") for response in responses] == ["to 0", "to 1", "to 2", "to 3"]


@EVENTS.in_session("a question without a handler is declined", "docs/protocol.md 5.3")
async def _check_declined(session: Session) -> None:
    with pytest.raises(CapabilityError) as caught:
        await session.call("files.clear")
    assert caught.value.cancelled
    assert len(value((await session.call("file.list")).data, "files")) > 0


@EVENTS.in_session("the app's default answers a question without a handler", "docs/protocol.md 5.3")
async def _check_default(session: Session) -> None:
    response = await _ask(session, message="Colour?", default="red")
    assert value(response, "data", "value") == "red"


@EVENTS("a handler that raises declines", "docs/protocol.md 5.4")
async def _check_handler_raises(subject: Subject) -> None:
    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        raise ValueError("no answer")

    async with subject.connect(on_elicitation=answer) as session:
        response = await _ask(session, message="Colour?")
        assert value(response, "success") is False


async def _cancellation_reasons(session: Session) -> list[str]:
    """Return the reasons of the cancellations that the app received, in order, each once."""
    record = (await session.call("app.record")).data
    return [*dict.fromkeys(entry["reason"] for entry in value(record, "cancelled"))]


async def _start_call(session: Session, capability: str, **params: object) -> asyncio.Task[Any]:
    """Start a call and give the app time to begin it."""
    task = asyncio.ensure_future(session.call(capability, params))
    await asyncio.sleep(0.2)
    assert not task.done(), f"whether {capability} had ended"
    return task


async def _cancel_call(task: asyncio.Task[Any]) -> None:
    drop(task)
    await asyncio.wait((task,), timeout=10)


@CANCELLATION.in_session("a timeout reaches the app", "docs/protocol.md 3.4; docs/faults.md 5")
async def _check_timeout(session: Session) -> None:
    with pytest.raises(CallTimeout):
        await session.call("job.wait", timeout=0.2)
    assert await _cancellation_reasons(session) == ["timeout"]


@CANCELLATION.in_session("an infinite timeout is no limit", "transports.base.Transport.request")
async def _check_no_limit(session: Session) -> None:
    await session.call("fault.slow", {"ms": 100}, timeout=math.inf)
    assert await _cancellation_reasons(session) == []


@CANCELLATION.in_session("cancelling reaches the app", "docs/protocol.md 3.2")
async def _check_cancelled(session: Session) -> None:
    waiting = await _start_call(session, "job.wait")
    await _cancel_call(waiting)
    assert waiting.cancelled()
    assert await _cancellation_reasons(session) == ["cancelled by the client"]


@CANCELLATION.in_session("after a timeout and a cancellation the next call works", "docs/protocol.md 3.2, 3.4")
async def _check_next_call(session: Session) -> None:
    with pytest.raises(CallTimeout):
        await session.call("job.wait", timeout=0.2)
    waiting = await _start_call(session, "job.wait")
    await _cancel_call(waiting)
    for n in range(3):
        result = await session.call("data.json", {"csv": f"a\r\n{n}\r\n"})
        assert value(result.data, "items", 0, "a") == n


@CANCELLATION.in_session(
    "a call that the app never ends stops at its timeout", "docs/protocol.md 3.4, 3.8; docs/faults.md 5"
)
async def _check_deaf(session: Session) -> None:
    started = time.monotonic()
    with pytest.raises(CallTimeout):
        await session.call("fault.never", timeout=0.3)
    assert time.monotonic() - started <= 5, "the call's timeout was 0.3 s, and it took more than 5 s"
    await session.call("file.list")


@CANCELLATION.in_session("cancelling one call leaves the others alone", "docs/protocol.md 3.2")
async def _check_only_that(session: Session) -> None:
    async with running(session.call("fault.slow", {"ms": 700})) as slow:
        waiting = await _start_call(session, "job.wait")
        await _cancel_call(waiting)
        assert value((await slow).data, "ms") == 700


@CANCELLATION.in_session("a call that the app cancels raises CANCELLED", "docs/protocol.md 3.2, 8.1")
async def _check_given_up(session: Session) -> None:
    with pytest.raises(CapabilityError) as caught:
        await session.call("fault.bad_answer", {"value": {"success": False, "cancelled": True}})
    assert caught.value.code == "CANCELLED"
    assert caught.value.cancelled


@CANCELLATION("progress stops with its call", "docs/protocol.md 4.4; docs/faults.md 18")
async def _check_progress_stops(subject: Subject) -> None:
    seen: list[object] = []
    async with subject.connect() as session:
        job = asyncio.ensure_future(
            session.call("job.run", {"steps": 10000, "delay": 20}, on_progress=lambda item: seen.append(item.progress))
        )
        await until(lambda: len(seen) >= 2, "progress arrives", seconds=10)
        await _cancel_call(job)
        await session.call("file.list")
        reports = len(seen)
        await session.call("fault.slow", {"ms": 200})
        assert len(seen) == reports
