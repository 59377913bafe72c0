"""Behaviours of a transport: opening and closing, and without a session requests, replies and events."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any

import pytest

from ...base import Features, Transport
from ...errors import ABPError, CallTimeout, Disconnected, ProtocolError, TransportError, UsageError
from ...protocol._find_content import find
from ...protocol.binary import BinaryData, Handle
from ...protocol.messages import Message
from ...session._session import Session
from ._behaviour import Behaviour, Subject, Theme, call, initialize_request, initialized, running, until, value

BEHAVIOURS: list[Behaviour] = []
LIFECYCLE = Theme("lifecycle", BEHAVIOURS)
MESSAGES = Theme("messages", BEHAVIOURS)


@LIFECYCLE("it has a name, features and an address", "transports.base.Transport")
async def _check_says_what_it_is(subject: Subject) -> None:
    async with subject.new_transport() as transport:
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
    await subject.new_transport().aclose()


@LIFECYCLE("no task outlives it", "transports.base.Transport.aclose")
async def _check_leaves_no_task(subject: Subject) -> None:
    before = asyncio.all_tasks()
    async with subject.connect() as session:
        await session.call("file.list")
    await session.aclose()
    await until(lambda: not _new_tasks(before), "the tasks that were begun end", seconds=subject.answer_timeout)


def _new_tasks(before: set[asyncio.Task[object]]) -> list[asyncio.Task[object]]:
    """Return the tasks started since ``before``, except those of a server in this process, which may keep them."""
    new = asyncio.all_tasks() - before
    return [task for task in new if "RequestHandler" not in str(task.get_coro())]


@LIFECYCLE("its events end when it closes", "transports.base.Transport.events")
async def _check_events_end(subject: Subject) -> None:
    async def listen(transport: Transport) -> None:
        async for _ in transport.events():
            pass

    async with initialized(subject) as transport:
        listening = asyncio.ensure_future(listen(transport))
        await asyncio.sleep(0)
    await until(listening.done, "the iteration over events() ends", seconds=subject.answer_timeout)
    await listening


@LIFECYCLE("a request after closing fails", "transports.base.Transport.request")
async def _check_refuses_after_closing(subject: Subject) -> None:
    async with initialized(subject) as transport:
        pass
    with pytest.raises(TransportError):
        await transport.request(call("file.list", "1"), timeout=5)


@LIFECYCLE("a call after the session closed raises DISCONNECTED", "docs/protocol.md 8.2")
async def _check_session_refuses_after_closing(subject: Subject) -> None:
    async with subject.connect() as session:
        pass
    with pytest.raises(Disconnected):
        await session.call("file.list")


@LIFECYCLE("a call under way fails when it is closed", "transports.base.Transport.aclose")
async def _check_closing_fails_calls(subject: Subject) -> None:
    transport = subject.new_transport()
    await transport.open()
    try:
        await transport.request(initialize_request(), timeout=subject.answer_timeout)
        waiting = asyncio.ensure_future(transport.request(call("job.wait", "1"), timeout=subject.answer_timeout))
        await asyncio.sleep(0.1)
        started = time.monotonic()
    finally:
        await transport.aclose()
    assert time.monotonic() - started <= 15, "closing took longer than 15 s"
    await until(waiting.done, "the call under way ends", seconds=15)
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
        for tool, made in (("image", session.screenshot()), ("document", session.render_to_pdf("<h1>Hi</h1>"))):
            assert [*(await made).artifacts] == [tool]
    else:
        with pytest.raises(UsageError):
            await session.screenshot()


@LIFECYCLE("it sends shutdown", "docs/protocol.md 2.3; transports.base.Transport.notify")
async def _check_says_goodbye(subject: Subject) -> None:
    async with initialized(subject) as transport:
        await transport.notify(Message("shutdown", {"reason": "the contract suite is done"}))


@MESSAGES("initialize is answered with the app", "docs/protocol.md 2.2, 6.2")
async def _check_initialize(subject: Subject) -> None:
    async with subject.new_transport() as transport:
        reply = await transport.request(initialize_request(), timeout=subject.answer_timeout)
        assert reply.type == "initialize-result"
        names = [value(entry, "name") for entry in value(reply.payload, "capabilities")]
        assert "data.csv" in names, f"the app's capabilities hold no data.csv: {names}"


@MESSAGES("a reply carries its request's id", "docs/protocol.md 6.3")
async def _check_reply_has_id(subject: Subject) -> None:
    async with initialized(subject) as transport:
        reply = await transport.request(call("data.csv", "key-7", rows=[]), timeout=subject.answer_timeout)
        assert (reply.type, reply.id) == ("capabilities/call-result", "key-7")
        assert value(reply.payload, "success") is True


@MESSAGES("replies come in any order", "docs/protocol.md 6.3; docs/faults.md 19")
async def _check_any_order(subject: Subject) -> None:
    ended: list[str] = []

    async def call_and_note(capability: str, key: str, **params: object) -> None:
        reply = await transport.request(call(capability, key, **params), timeout=subject.answer_timeout)
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
        await transport.request(call("data.csv", "2", rows=[]), timeout=subject.answer_timeout)


@MESSAGES("it lists capabilities if it says so", "transports.base.Features; docs/protocol.md 2.4")
async def _check_listing(subject: Subject) -> None:
    async with initialized(subject) as transport:
        if transport.features.listing:  # without it sessions do not send this request
            listed: Any = (
                await transport.request(Message("capabilities/list", id="1"), timeout=subject.answer_timeout)
            ).payload
            listed = listed.get("data", listed) if isinstance(listed, dict) else listed
            assert "data.csv" in str(listed)


@MESSAGES("a request ends at its deadline", "transports.base.Transport.request; docs/faults.md 5")
async def _check_deadline(subject: Subject) -> None:
    async with initialized(subject) as transport:
        started = time.monotonic()
        with pytest.raises(CallTimeout):
            await transport.request(call("fault.slow", "1", ms=3000), timeout=0.2)
        assert time.monotonic() - started <= 2.5, "the deadline was 0.2 s, and the request ended with the call instead"
        await transport.request(call("data.csv", "2", rows=[]), timeout=subject.answer_timeout)


@MESSAGES("a late reply is dropped", "docs/protocol.md 6.3; docs/faults.md 18")
async def _check_late_reply(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with pytest.raises(CallTimeout):
            await transport.request(call("fault.slow", "late", ms=300), timeout=0.1)
        for n in range(4):
            reply = await transport.request(call("fault.slow", f"after-{n}", ms=100), timeout=subject.answer_timeout)
            assert (reply.id, value(reply.payload, "data", "ms")) == (f"after-{n}", 100)


@MESSAGES("cancel is answered for running and for unknown calls", "docs/protocol.md 3.2")
async def _check_cancel_is_answered(subject: Subject) -> None:
    async with (
        initialized(subject) as transport,
        running(transport.request(call("job.wait", "running"), timeout=subject.answer_timeout)) as waiting,
    ):
        await asyncio.sleep(0.2)
        for key, cancelled in (("unknown", False), ("running", True)):
            request = Message("capabilities/cancel", {"callId": key, "reason": "enough"}, id=f"cancel-{key}")
            reply = await transport.request(request, timeout=5)
            assert value(reply.payload, "cancelled") == cancelled, f"cancelled, for the {key} call"
        async with asyncio.timeout(10):
            answer = (await waiting).payload
        assert (value(answer, "success"), value(answer, "cancelled")) == (False, True)


@MESSAGES("its events come in order, each once", "transports.base.Transport.events; docs/protocol.md 4.6")
async def _check_events(subject: Subject) -> None:
    seen: list[Message] = []

    async def listen() -> None:
        async for message in transport.events():
            seen.append(message)

    async with initialized(subject) as transport:
        listening = asyncio.ensure_future(listen())
        await transport.request(call("job.run", "job", steps=3, delay=1), timeout=subject.answer_timeout)
        await until(lambda: len(seen) >= 5, "two notifications and three reports of progress arrive")
    await until(listening.done, "the iteration over events() ends")
    progress = [value(message.payload, "progress") for message in seen if message.type == "progress"]
    assert progress == [1, 2, 3]
    notified = [value(message.payload, "event") for message in seen if message.type == "notification"]
    expected = ["notifications/operation/started", "notifications/operation/completed"]
    assert notified == expected


@MESSAGES("progress names its call", "docs/protocol.md 4.4")
async def _check_progress_names_its_call(subject: Subject) -> None:
    seen: list[object] = []

    async def listen() -> None:
        async for message in transport.events():
            if message.type == "progress":
                seen.append(value(message.payload, "operationId"))

    async with initialized(subject) as transport:
        listening = asyncio.ensure_future(listen())
        await transport.request(call("job.run", "my-job", steps=1, delay=1), timeout=subject.answer_timeout)
        await until(lambda: bool(seen), "progress arrives")
    await listening
    assert seen == ["my-job"]


@MESSAGES(
    "content that stays on the far side is saved and released",
    "transports.base.Transport.save; transports.base.Transport.release",
)
async def _check_content_is_saved(subject: Subject) -> None:
    async with initialized(subject) as transport:
        reply = await transport.request(call("file.generate", "1", bytes=600_000), timeout=subject.answer_timeout)
        (content,) = find(value(reply.payload, "data"))
        assert isinstance(content.binary, BinaryData), f"the content cannot be read: {content.binary!r}"
        handle = content.binary.content
        if isinstance(handle, Handle):
            await transport.save(handle, subject.folder / "fetched", timeout=subject.answer_timeout)
            size = (subject.folder / "fetched").stat().st_size
            await transport.release(handle)
        else:
            size = sum(map(len, content.binary.chunks()))
        assert size == 600_000
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
