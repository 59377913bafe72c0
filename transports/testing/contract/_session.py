"""Behaviours of a transport: opening and closing, requests and events without a session; then calls of a session, its
events, timeouts and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import re
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ..._internal.tasks import discard_unawaited
from ...base import Features, Transport
from ...errors import ABPError, CallTimeout, CapabilityError, Disconnected, ProtocolError, TransportError, UsageError
from ...protocol._capabilities import CapabilitiesChanged
from ...protocol._find_content import find
from ...protocol._payloads import ElicitationRequest, Notification, Progress
from ...protocol.binary import BinaryData, Handle
from ...protocol.messages import Message
from ...session._session import Session
from ._behaviour import Subject, Theme, call_message, initialize_request, initialized, running, value_at, wait_until

LIFECYCLE = Theme("lifecycle")
MESSAGES = Theme("messages")


@LIFECYCLE("it has a name, features and an address", "transports.base.Transport")
async def _check_says_what_it_is(subject: Subject) -> None:
    async with subject.transport() as transport:
        assert re.fullmatch(r"[a-z][a-z0-9+._-]*", transport.name), "name is as in a URL scheme"
        assert type(transport.features) is Features
        if transport.url is not None:
            assert re.match(r"(https?|file|chrome-extension)://", transport.url), "url is the base of download URLs"


@LIFECYCLE("closing twice is harmless", "transports.base.Transport.aclose")
async def _check_closes_twice(subject: Subject) -> None:
    async with initialized(subject) as transport:
        pass
    await transport.aclose()
    await transport.aclose()


@LIFECYCLE("closing what was never opened is harmless", "transports.base.Transport.aclose")
async def _check_closes_unopened(subject: Subject) -> None:
    await subject.transport().aclose()


@LIFECYCLE("no task outlives it", "transports.base.Transport.aclose")
async def _check_leaves_no_task(subject: Subject) -> None:
    before = asyncio.all_tasks()
    async with subject.connect() as session:
        await session.call("file.list")
    await session.aclose()
    await wait_until(lambda: not _new_tasks(before), "the tasks that were begun end", seconds=subject.answer_timeout)


def _new_tasks(before: set[asyncio.Task[object]]) -> list[asyncio.Task[object]]:
    """Tasks of a server in this process do not count: it may keep them."""
    new = asyncio.all_tasks() - before
    return [task for task in new if "RequestHandler" not in str(task.get_coro())]


@LIFECYCLE("its events end when it closes", "transports.base.Transport.events")
async def _check_events_end(subject: Subject) -> None:
    async with initialized(subject) as transport:
        listening = asyncio.ensure_future(_collect_events(transport, []))
        await asyncio.sleep(0)
    await wait_until(listening.done, "the iteration over events() ends", seconds=subject.answer_timeout)
    await listening


async def _collect_events(transport: Transport, events: list[Message]) -> None:
    async for message in transport.events():
        events.append(message)


@LIFECYCLE("a request after closing fails", "transports.base.Transport.request")
async def _check_refuses_after_closing(subject: Subject) -> None:
    async with initialized(subject) as transport:
        pass
    with pytest.raises(TransportError):
        await transport.request(call_message("file.list", "1"), timeout=5)


@LIFECYCLE("a call after the session closed raises DISCONNECTED", "docs/protocol.md 8.2")
async def _check_session_refuses_after_closing(subject: Subject) -> None:
    async with subject.connect() as session:
        pass
    with pytest.raises(Disconnected):
        await session.call("file.list")


@LIFECYCLE("a call under way fails when it is closed", "transports.base.Transport.aclose")
async def _check_closing_fails_calls(subject: Subject) -> None:
    transport = subject.transport()
    await transport.open()
    try:
        await transport.request(initialize_request(), timeout=subject.answer_timeout)
        waiting = asyncio.ensure_future(
            transport.request(call_message("job.wait", "1"), timeout=subject.answer_timeout)
        )
        await asyncio.sleep(0.1)
        started = time.monotonic()
    finally:
        await transport.aclose()
    assert time.monotonic() - started <= 15, "closing took longer than 15 s"
    await wait_until(waiting.done, "the call under way ends", seconds=15)
    # The only valid reply is that the call was stopped.
    with contextlib.suppress(ABPError):
        reply = (await waiting).payload
        assert isinstance(reply, dict) and reply.get("success") is False


@LIFECYCLE("two connections know nothing of each other", "transports.base.Transport; docs/protocol.md 2.3")
async def _check_connections_are_apart(subject: Subject) -> None:
    async with subject.connect() as first, subject.connect() as second:
        assert first.session_id != second.session_id
        results = await asyncio.gather(
            first.call("data.json", {"csv": "a\r\n1\r\n"}), second.call("data.json", {"csv": "a\r\n2\r\n"})
        )
        assert [str(result.data).count("2") for result in results] == [0, 1]
    async with subject.connect() as again:
        await again.call("file.list")


@LIFECYCLE.in_session(
    "it has all the tools of a page or none", "transports.base.Features; transports.Session.screenshot"
)
async def _check_page_tools(session: Session) -> None:
    if session.transport.features.page:
        picture = await session.screenshot()
        assert [*picture.artifacts] == ["image"]
        document = await session.render_to_pdf("<h1>Hi</h1>")
        assert [*document.artifacts] == ["document"]
    else:
        with pytest.raises(UsageError):
            await session.screenshot()


@LIFECYCLE("it sends shutdown", "docs/protocol.md 2.3; transports.base.Transport.notify")
async def _check_says_goodbye(subject: Subject) -> None:
    async with initialized(subject) as transport:
        await transport.notify(Message("shutdown", {"reason": "the contract suite is done"}))


@MESSAGES("initialize is answered with the app", "docs/protocol.md 2.2, 6.2")
async def _check_initialize(subject: Subject) -> None:
    async with subject.transport() as transport:
        reply = await transport.request(initialize_request(), timeout=subject.answer_timeout)
        assert reply.type == "initialize-result"
        names = [value_at(entry, "name") for entry in value_at(reply.payload, "capabilities")]
        assert "data.csv" in names, f"the app's capabilities hold no data.csv: {names}"


@MESSAGES("a reply carries its request's id", "docs/protocol.md 6.3")
async def _check_reply_has_id(subject: Subject) -> None:
    async with initialized(subject) as transport:
        reply = await transport.request(call_message("data.csv", "key-7", rows=[]), timeout=subject.answer_timeout)
        assert (reply.type, reply.id) == ("capabilities/call-result", "key-7")
        assert value_at(reply.payload, "success") is True


@MESSAGES("replies come in any order", "docs/protocol.md 6.3; docs/faults.md 19")
async def _check_any_order(subject: Subject) -> None:
    ended: list[str] = []

    async def call_and_note(capability: str, key: str, **params: object) -> None:
        reply = await transport.request(call_message(capability, key, **params), timeout=subject.answer_timeout)
        assert reply.id == key
        ended.append(key)

    async with initialized(subject) as transport, running(call_and_note("fault.slow", "slow", ms=400)) as slow:
        await asyncio.gather(*(call_and_note("data.csv", f"quick-{n}", rows=[{"n": n}]) for n in range(5)))
        assert not slow.done()
        await slow


@MESSAGES("a request of an unknown type is refused", "transports.base.Transport.request")
async def _check_unknown_request(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with pytest.raises(ABPError):
            await transport.request(Message("contract/nonsense", {}, id="1"), timeout=0.5)
        await transport.request(call_message("data.csv", "2", rows=[]), timeout=subject.answer_timeout)


@MESSAGES("it lists capabilities if it says so", "transports.base.Features; docs/protocol.md 2.4")
async def _check_listing(subject: Subject) -> None:
    async with initialized(subject) as transport:
        if transport.features.listing:  # without it sessions do not send this request
            request = Message("capabilities/list", id="1")
            answer: Any = (await transport.request(request, timeout=subject.answer_timeout)).payload
            if isinstance(answer, dict):
                answer = answer.get("data", answer)
            assert "data.csv" in str(answer)


@MESSAGES("a request ends at its deadline", "transports.base.Transport.request; docs/faults.md 5")
async def _check_deadline(subject: Subject) -> None:
    async with initialized(subject) as transport:
        started = time.monotonic()
        with pytest.raises(CallTimeout):
            await transport.request(call_message("fault.slow", "1", ms=3000), timeout=0.2)
        assert time.monotonic() - started <= 2.5, "the deadline was 0.2 s, and the request ended with the call instead"
        await transport.request(call_message("data.csv", "2", rows=[]), timeout=subject.answer_timeout)


@MESSAGES("a late reply is dropped", "docs/protocol.md 6.3; docs/faults.md 18")
async def _check_late_reply(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with pytest.raises(CallTimeout):
            await transport.request(call_message("fault.slow", "late", ms=300), timeout=0.1)
        for n in range(4):
            reply = await transport.request(
                call_message("fault.slow", f"after-{n}", ms=100), timeout=subject.answer_timeout
            )
            assert (reply.id, value_at(reply.payload, "data", "ms")) == (f"after-{n}", 100)


@MESSAGES("cancel is answered for running and for unknown calls", "docs/protocol.md 3.2")
async def _check_cancel_is_answered(subject: Subject) -> None:
    async with (
        initialized(subject) as transport,
        running(transport.request(call_message("job.wait", "running"), timeout=subject.answer_timeout)) as waiting,
    ):
        await asyncio.sleep(0.2)
        for key, cancelled in (("unknown", False), ("running", True)):
            request = Message("capabilities/cancel", {"callId": key, "reason": "enough"}, id=f"cancel-{key}")
            reply = await transport.request(request, timeout=5)
            assert value_at(reply.payload, "cancelled") == cancelled, f"cancelled, for the {key} call"
        async with asyncio.timeout(10):
            answer = (await waiting).payload
        assert (value_at(answer, "success"), value_at(answer, "cancelled")) == (False, True)


@MESSAGES("its events come in order, each once", "transports.base.Transport.events; docs/protocol.md 4.6")
async def _check_events(subject: Subject) -> None:
    seen: list[Message] = []
    async with initialized(subject) as transport:
        listening = asyncio.ensure_future(_collect_events(transport, seen))
        await transport.request(call_message("job.run", "job", steps=3, delay=1), timeout=subject.answer_timeout)
        await wait_until(lambda: len(seen) >= 5, "two notifications and three reports of progress arrive")
    await wait_until(listening.done, "the iteration over events() ends")
    progress = [value_at(message.payload, "progress") for message in seen if message.type == "progress"]
    assert progress == [1, 2, 3]
    notified = [value_at(message.payload, "event") for message in seen if message.type == "notification"]
    assert notified == [_STARTED, _COMPLETED]


@MESSAGES("progress names its call", "docs/protocol.md 4.4")
async def _check_progress_names_its_call(subject: Subject) -> None:
    seen: list[Message] = []
    async with initialized(subject) as transport:
        listening = asyncio.ensure_future(_collect_events(transport, seen))
        await transport.request(call_message("job.run", "my-job", steps=1, delay=1), timeout=subject.answer_timeout)
        await wait_until(lambda: any(message.type == "progress" for message in seen), "progress arrives")
    await listening
    assert [value_at(message.payload, "operationId") for message in seen if message.type == "progress"] == ["my-job"]


@MESSAGES(
    "content that stays on the far side is saved and released",
    "transports.base.Transport.save; transports.base.Transport.release",
)
async def _check_content_is_saved(subject: Subject) -> None:
    async with initialized(subject) as transport:
        reply = await transport.request(
            call_message("file.generate", "content", bytes=600_000), timeout=subject.answer_timeout
        )
        (content,) = find(value_at(reply.payload, "data"))
        assert isinstance(content.binary, BinaryData), f"the content cannot be read: {content.binary!r}"
        handle = content.binary.content
        if isinstance(handle, Handle):
            await transport.save(handle, subject.folder / "fetched", timeout=subject.answer_timeout)
            size = (subject.folder / "fetched").stat().st_size
            await transport.release(handle)
        else:
            size = sum(map(len, content.binary.chunks()))
        assert size == 600_000
        # Content that is not there is released without an error.
        await transport.release(Handle("no-such-content", 10))


@MESSAGES("saving unknown content is an error", "transports.base.Transport.save")
async def _check_unknown_content(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with pytest.raises(ABPError):
            await transport.save(Handle("no-such-content", 10), subject.folder / "nothing", timeout=2)


@MESSAGES("cookies are a mapping", "transports.base.Transport.cookies")
async def _check_cookies(subject: Subject) -> None:
    async with initialized(subject) as transport:
        assert isinstance(await transport.cookies("http://127.0.0.1:9/"), Mapping)


@MESSAGES.in_session("an answer that is nested too deeply fails alone", "docs/protocol.md 1.3; docs/faults.md 21")
async def _check_too_deep(session: Session) -> None:
    with pytest.raises(ProtocolError):
        await session.call("fault.deep", {"depth": 100})
    result = await session.call("fault.deep", {"depth": 50})
    assert str(result.data).count("nested") == 49


CALLS = Theme("calls")
EVENTS = Theme("events")
CANCELLATION = Theme("cancellation")

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
    assert "rows" in value_at(capability.input_schema, "properties")
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
            assert value_at(answer, "available") == available
            change = await _next_change(events)
            names = change.added if available else change.removed
            assert names == ("extra.hello",)
            assert ("extra.hello" in session.capabilities) == available
            if available:
                assert [*(await session.call("extra.hello")).artifacts] == [""]
    assert notifications == [_CHANGED, _CHANGED]


async def _next_change(events: AsyncIterator[object]) -> CapabilitiesChanged:
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
        assert value_at(answered, "response", "success") is False


@CALLS.in_session("text comes back as it was answered", "docs/protocol.md 1.6; RFC 8259 §8.1; docs/faults.md 17")
async def _check_text_back(session: Session) -> None:
    answer = (await session.call("shape", {"shape": "nonAscii"})).data
    assert value_at(answer, "text") == "é 世界 𝄞 🎼"
    assert value_at(answer, "ключ 🎵") == "value"


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
    rows = value_at((await session.call("fault.big_json", {"megabytes": 3})).data, "rows")
    assert (len(rows), value_at(rows, -1, "row")) == (3072, 3071)


@CALLS.in_session("an answer without data is a success", "docs/protocol.md 3.3")
async def _check_without_data(session: Session) -> None:
    assert (await session.call("fault.crash_half")).data is None


@CALLS.in_session("calls at once each get their own answer", "docs/protocol.md 3.1; docs/faults.md 19")
async def _check_at_once(session: Session) -> None:
    calls = [session.call("file.digest", {"file": str(n).encode()}) for n in range(40)]
    sums = [value_at(result.data, "sha256") for result in await asyncio.gather(*calls)]
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
        await wait_until(lambda: len(seen) >= 5, "five reports of progress arrive")
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
        await wait_until(lambda: len(first) + len(second) >= 6, "six reports of progress arrive")
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
        assert value_at(result.data, "steps") == 2


@EVENTS("notifications reach the session", "docs/protocol.md 4.3")
async def _check_notifications(subject: Subject) -> None:
    seen: list[Notification] = []
    async with subject.connect(on_notification=seen.append) as session:
        await session.call("job.run", {"steps": 1, "delay": 1, "label": "mine"})
        await wait_until(lambda: len(seen) >= 2, "two notifications arrive")
    assert [notification.event for notification in seen] == [_STARTED, _COMPLETED]
    assert value_at(seen[0].data, "label") == "mine"


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
        await wait_until(lambda: len(seen) >= 6, "six events arrive")
        await session.aclose()
        async with asyncio.timeout(5):
            await listening
    expected = ["CallStarted", _STARTED, "Progress", "Progress", _COMPLETED, "CallFinished"]
    assert sorted(seen) == sorted(expected)


async def _ask(session: Session, **params: object) -> object:
    answer = await session.call("form.ask", {"method": "elicitation/input", "params": params})
    return value_at(answer.data, "response")


@EVENTS("a question is answered", "docs/protocol.md 5.1, 5.2")
async def _check_answered(subject: Subject) -> None:
    requests: list[ElicitationRequest] = []

    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        requests.append(request)
        return {"success": True, "data": {"value": "blue"}}

    async with subject.connect(on_elicitation=answer) as session:
        response = await _ask(session, message="Colour?")
        assert value_at(response, "data") == {"value": "blue"}
    assert [request.params.get("message") for request in requests] == ["Colour?"]


@EVENTS("several questions at once each get their own answer", "docs/protocol.md 5.4, 6.2")
async def _check_answered_at_once(subject: Subject) -> None:
    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        return {"success": True, "data": {"value": f"to {request.params.get('message')}"}}

    async with subject.connect(on_elicitation=answer) as session:
        responses = await asyncio.gather(*(_ask(session, message=str(n)) for n in range(4)))
    assert [value_at(response, "data", "value") for response in responses] == ["to 0", "to 1", "to 2", "to 3"]


@EVENTS.in_session("a question without a handler is declined", "docs/protocol.md 5.3")
async def _check_declined(session: Session) -> None:
    with pytest.raises(CapabilityError) as caught:
        await session.call("files.clear")
    assert caught.value.cancelled
    assert len(value_at((await session.call("file.list")).data, "files")) > 0


@EVENTS.in_session("the app's default answers a question without a handler", "docs/protocol.md 5.3")
async def _check_default(session: Session) -> None:
    response = await _ask(session, message="Colour?", default="red")
    assert value_at(response, "data", "value") == "red"


@EVENTS("a handler that raises declines", "docs/protocol.md 5.4")
async def _check_handler_raises(subject: Subject) -> None:
    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        raise ValueError("no answer")

    async with subject.connect(on_elicitation=answer) as session:
        response = await _ask(session, message="Colour?")
        assert value_at(response, "success") is False


async def _cancellation_reasons(session: Session) -> list[str]:
    record = (await session.call("app.record")).data
    return [entry["reason"] for entry in value_at(record, "cancelled")]


async def _reasons_after(session: Session, earlier: list[str]) -> set[str]:
    reasons = await _cancellation_reasons(session)
    return set(reasons[len(earlier) :])


async def _start_call(session: Session, capability: str, **params: object) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(session.call(capability, params))
    await asyncio.sleep(0.2)
    assert not task.done(), f"whether {capability} had ended"
    return task


async def _cancel_call(task: asyncio.Task[Any]) -> None:
    discard_unawaited(task)
    await asyncio.wait((task,), timeout=10)


@CANCELLATION.in_session("a timeout reaches the app", "docs/protocol.md 3.4; docs/faults.md 5")
async def _check_timeout(session: Session) -> None:
    earlier = await _cancellation_reasons(session)
    with pytest.raises(CallTimeout):
        await session.call("job.wait", timeout=0.2)
    assert await _reasons_after(session, earlier) == {"timeout"}


@CANCELLATION.in_session("an infinite timeout is no limit", "transports.base.Transport.request")
async def _check_no_limit(session: Session) -> None:
    earlier = await _cancellation_reasons(session)
    await session.call("fault.slow", {"ms": 100}, timeout=math.inf)
    assert await _cancellation_reasons(session) == earlier


@CANCELLATION.in_session("cancelling reaches the app", "docs/protocol.md 3.2")
async def _check_cancelled(session: Session) -> None:
    earlier = await _cancellation_reasons(session)
    waiting = await _start_call(session, "job.wait")
    await _cancel_call(waiting)
    assert waiting.cancelled()
    assert await _reasons_after(session, earlier) == {"cancelled by the client"}


@CANCELLATION.in_session("after a timeout and a cancellation the next call works", "docs/protocol.md 3.2, 3.4")
async def _check_next_call(session: Session) -> None:
    with pytest.raises(CallTimeout):
        await session.call("job.wait", timeout=0.2)
    waiting = await _start_call(session, "job.wait")
    await _cancel_call(waiting)
    for n in range(3):
        result = await session.call("data.json", {"csv": f"a\r\n{n}\r\n"})
        assert value_at(result.data, "items", 0, "a") == n


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
        assert value_at((await slow).data, "ms") == 700


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
        await wait_until(lambda: len(seen) >= 2, "progress arrives", seconds=10)
        await _cancel_call(job)
        await session.call("file.list")
        reports = len(seen)
        await session.call("fault.slow", {"ms": 200})
        assert len(seen) == reports
