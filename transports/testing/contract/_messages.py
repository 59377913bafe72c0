"""Behaviours of the transport without a session: requests, replies, events, content that stays with the app."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ...errors import ABPError, CallTimeout, ProtocolError
from ...protocol._find_content import find
from ...protocol.binary import BinaryData, Handle
from ...protocol.messages import Message
from ._behaviour import Subject, behaviour, call, expect, initialize_request, initialized, raises, until, value

_LARGE = 600_000


@behaviour("initialize is answered with the app", "docs/protocol.md 2.2, 6.2")
async def _initialize(subject: Subject) -> None:
    async with subject.new_transport() as transport:
        reply = await transport.request(initialize_request(), timeout=subject.answer_timeout)
        expect(reply.type, "initialize-result", "the type of the reply to initialize")
        names = [value(entry, "name") for entry in value(reply.payload, "capabilities")]
        if "data.csv" not in names:
            raise AssertionError(f"the app's capabilities hold no data.csv: {names}")


@behaviour("a reply carries its request's id", "docs/protocol.md 6.3")
async def _reply_has_id(subject: Subject) -> None:
    async with initialized(subject) as transport:
        reply = await transport.request(call("data.csv", "key-7", rows=[]), timeout=subject.answer_timeout)
        expect((reply.type, reply.id), ("capabilities/call-result", "key-7"), "type and id of the reply")
        expect(value(reply.payload, "success"), True, "success of the answer")


@behaviour("replies come in any order", "docs/protocol.md 6.3; docs/faults.md 19")
async def _any_order(subject: Subject) -> None:
    ended: list[str] = []

    async def one(capability: str, key: str, **params: object) -> None:
        reply = await transport.request(call(capability, key, **params), timeout=subject.answer_timeout)
        expect(reply.id, key, "the id of a reply")
        ended.append(key)

    async with initialized(subject) as transport:
        slow = asyncio.ensure_future(one("fault.slow", "slow", ms=400))
        await asyncio.gather(*(one("data.csv", f"quick-{n}", rows=[{"n": n}]) for n in range(5)))
        expect(slow.done(), False, "whether the slow call had ended before the quick ones")
        await slow


@behaviour("a request of an unknown type is refused", "transports.base.Transport.request")
async def _unknown_request(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with raises(ABPError, "a request of the type contract/nonsense"):
            await transport.request(Message("contract/nonsense", {}, id="1"), timeout=0.5)
        await transport.request(call("data.csv", "2", rows=[]), timeout=subject.answer_timeout)


@behaviour("it lists capabilities if it says so", "transports.base.Features; docs/protocol.md 2.4")
async def _listing(subject: Subject) -> None:
    async with initialized(subject) as transport:
        if transport.features.listing:  # without it sessions do not send this request
            listed: Any = (
                await transport.request(Message("capabilities/list", id="1"), timeout=subject.answer_timeout)
            ).payload
            listed = listed.get("data", listed) if isinstance(listed, dict) else listed
            expect("data.csv" in str(listed), True, "whether the list names data.csv")


@behaviour("a request ends at its deadline", "transports.base.Transport.request; docs/faults.md 5")
async def _deadline(subject: Subject) -> None:
    async with initialized(subject) as transport:
        started = time.monotonic()
        with raises(CallTimeout, "a call that takes longer than its 0.2 s", code="TIMEOUT"):
            await transport.request(call("fault.slow", "1", ms=3000), timeout=0.2)
        if time.monotonic() - started > 2.5:
            raise AssertionError("the deadline was 0.2 s, and the request ended with the call instead")
        await transport.request(call("data.csv", "2", rows=[]), timeout=subject.answer_timeout)


@behaviour("a late reply is dropped", "docs/protocol.md 6.3; docs/faults.md 18")
async def _late_reply(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with raises(CallTimeout, "a call that takes longer than its 0.1 s"):
            await transport.request(call("fault.slow", "late", ms=300), timeout=0.1)
        for n in range(4):
            reply = await transport.request(call("fault.slow", f"after-{n}", ms=100), timeout=subject.answer_timeout)
            expect((reply.id, value(reply.payload, "data", "ms")), (f"after-{n}", 100), "the reply to a later call")


@behaviour("cancel is answered for running and for unknown calls", "docs/protocol.md 3.2")
async def _cancel(subject: Subject) -> None:
    async with initialized(subject) as transport:
        waiting = asyncio.ensure_future(transport.request(call("job.wait", "running"), timeout=subject.answer_timeout))
        await asyncio.sleep(0.2)
        for key, cancelled in (("unknown", False), ("running", True)):
            request = Message("capabilities/cancel", {"callId": key, "reason": "enough"}, id=f"cancel-{key}")
            reply = await transport.request(request, timeout=5)
            expect(value(reply.payload, "cancelled"), cancelled, f"cancelled, for the {key} call")
        async with asyncio.timeout(10):
            answer = (await waiting).payload
        expect((value(answer, "success"), value(answer, "cancelled")), (False, True), "the cancelled call's answer")


@behaviour("its events come in order, each once", "transports.base.Transport.events; docs/protocol.md 4.6")
async def _events(subject: Subject) -> None:
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
    expect(progress, [1, 2, 3], "the reported progress")
    notified = [value(message.payload, "event") for message in seen if message.type == "notification"]
    expected = ["notifications/operation/started", "notifications/operation/completed"]
    expect(notified, expected, "the notifications")


@behaviour("progress names its call", "docs/protocol.md 4.4")
async def _progress_names_its_call(subject: Subject) -> None:
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
    expect(seen, ["my-job"], "operationId of the progress")


@behaviour(
    "content that stays on the far side is saved and released",
    "transports.base.Transport.save; transports.base.Transport.release",
)
async def _content(subject: Subject) -> None:
    async with initialized(subject) as transport:
        reply = await transport.request(call("file.generate", "1", bytes=_LARGE), timeout=subject.answer_timeout)
        (found,) = find(value(reply.payload, "data"))
        if not isinstance(found.binary, BinaryData):
            raise AssertionError(f"the content cannot be read: {found.binary!r}")
        handle = found.binary.content
        if isinstance(handle, Handle):
            await transport.save(handle, subject.folder / "fetched", timeout=subject.answer_timeout)
            size = (subject.folder / "fetched").stat().st_size
            await transport.release(handle)
        else:
            size = sum(map(len, found.binary.chunks()))
        expect(size, _LARGE, "bytes of the content")
        await transport.release(Handle("no-such-content", 10))


@behaviour("saving unknown content is an error", "transports.base.Transport.save")
async def _unknown_content(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with raises(ABPError, "save() of a handle that the transport never gave"):
            await transport.save(Handle("no-such-content", 10), subject.folder / "nothing", timeout=2)


@behaviour("cookies are a mapping", "transports.base.Transport.cookies")
async def _cookies(subject: Subject) -> None:
    async with initialized(subject) as transport:
        expect(isinstance(await transport.cookies("http://127.0.0.1:9/"), Mapping), True, "whether it is a mapping")


@behaviour("an answer that is nested too deeply fails alone", "docs/protocol.md 1.3; docs/faults.md 21")
async def _too_deep(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(ProtocolError, "an answer nested 100 levels deep", code="PROTOCOL_ERROR"):
            await session.call("fault.deep", {"depth": 100})
        result = await session.call("fault.deep", {"depth": 50})
        expect(str(result.data).count("nested"), 49, "levels of an answer of 50")
