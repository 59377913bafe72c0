"""Behaviours of the transport without a session: requests, replies, events, content that stays with the app."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from ...errors import ABPError, CallTimeout, ProtocolError
from ...protocol._find_content import find
from ...protocol.binary import BinaryData, Handle
from ...protocol.messages import Message
from ._behaviour import Subject, behaviour, call, initialize_request, initialized, until, value

_LARGE = 600_000


@behaviour("initialize is answered with the app", "docs/protocol.md 2.2, 6.2")
async def _initialize(subject: Subject) -> None:
    async with subject.new_transport() as transport:
        reply = await transport.request(initialize_request(), timeout=subject.answer_timeout)
        assert reply.type == "initialize-result"
        names = [value(entry, "name") for entry in value(reply.payload, "capabilities")]
        assert "data.csv" in names, f"the app's capabilities hold no data.csv: {names}"


@behaviour("a reply carries its request's id", "docs/protocol.md 6.3")
async def _reply_has_id(subject: Subject) -> None:
    async with initialized(subject) as transport:
        reply = await transport.request(call("data.csv", "key-7", rows=[]), timeout=subject.answer_timeout)
        assert (reply.type, reply.id) == ("capabilities/call-result", "key-7")
        assert value(reply.payload, "success") is True


@behaviour("replies come in any order", "docs/protocol.md 6.3; docs/faults.md 19")
async def _any_order(subject: Subject) -> None:
    ended: list[str] = []

    async def one(capability: str, key: str, **params: object) -> None:
        reply = await transport.request(call(capability, key, **params), timeout=subject.answer_timeout)
        assert reply.id == key
        ended.append(key)

    async with initialized(subject) as transport:
        slow = asyncio.ensure_future(one("fault.slow", "slow", ms=400))
        await asyncio.gather(*(one("data.csv", f"quick-{n}", rows=[{"n": n}]) for n in range(5)))
        assert not slow.done()
        await slow


@behaviour("a request of an unknown type is refused", "transports.base.Transport.request")
async def _unknown_request(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with pytest.raises(ABPError):
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
            assert "data.csv" in str(listed)


@behaviour("a request ends at its deadline", "transports.base.Transport.request; docs/faults.md 5")
async def _deadline(subject: Subject) -> None:
    async with initialized(subject) as transport:
        started = time.monotonic()
        with pytest.raises(CallTimeout):
            await transport.request(call("fault.slow", "1", ms=3000), timeout=0.2)
        assert time.monotonic() - started <= 2.5, "the deadline was 0.2 s, and the request ended with the call instead"
        await transport.request(call("data.csv", "2", rows=[]), timeout=subject.answer_timeout)


@behaviour("a late reply is dropped", "docs/protocol.md 6.3; docs/faults.md 18")
async def _late_reply(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with pytest.raises(CallTimeout):
            await transport.request(call("fault.slow", "late", ms=300), timeout=0.1)
        for n in range(4):
            reply = await transport.request(call("fault.slow", f"after-{n}", ms=100), timeout=subject.answer_timeout)
            assert (reply.id, value(reply.payload, "data", "ms")) == (f"after-{n}", 100)


@behaviour("cancel is answered for running and for unknown calls", "docs/protocol.md 3.2")
async def _cancel_is_answered(subject: Subject) -> None:
    async with initialized(subject) as transport:
        waiting = asyncio.ensure_future(transport.request(call("job.wait", "running"), timeout=subject.answer_timeout))
        await asyncio.sleep(0.2)
        for key, cancelled in (("unknown", False), ("running", True)):
            request = Message("capabilities/cancel", {"callId": key, "reason": "enough"}, id=f"cancel-{key}")
            reply = await transport.request(request, timeout=5)
            assert value(reply.payload, "cancelled") == cancelled, f"cancelled, for the {key} call"
        async with asyncio.timeout(10):
            answer = (await waiting).payload
        assert (value(answer, "success"), value(answer, "cancelled")) == (False, True)


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
    assert progress == [1, 2, 3]
    notified = [value(message.payload, "event") for message in seen if message.type == "notification"]
    expected = ["notifications/operation/started", "notifications/operation/completed"]
    assert notified == expected


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
    assert seen == ["my-job"]


@behaviour(
    "content that stays on the far side is saved and released",
    "transports.base.Transport.save; transports.base.Transport.release",
)
async def _content_is_saved(subject: Subject) -> None:
    async with initialized(subject) as transport:
        reply = await transport.request(call("file.generate", "1", bytes=_LARGE), timeout=subject.answer_timeout)
        (content,) = find(value(reply.payload, "data"))
        assert isinstance(content.binary, BinaryData), f"the content cannot be read: {content.binary!r}"
        handle = content.binary.content
        if isinstance(handle, Handle):
            await transport.save(handle, subject.folder / "fetched", timeout=subject.answer_timeout)
            size = (subject.folder / "fetched").stat().st_size
            await transport.release(handle)
        else:
            size = sum(map(len, content.binary.chunks()))
        assert size == _LARGE
        await transport.release(Handle("no-such-content", 10))


@behaviour("saving unknown content is an error", "transports.base.Transport.save")
async def _unknown_content(subject: Subject) -> None:
    async with initialized(subject) as transport:
        with pytest.raises(ABPError):
            await transport.save(Handle("no-such-content", 10), subject.folder / "nothing", timeout=2)


@behaviour("cookies are a mapping", "transports.base.Transport.cookies")
async def _cookies(subject: Subject) -> None:
    async with initialized(subject) as transport:
        assert isinstance(await transport.cookies("http://127.0.0.1:9/"), Mapping)


@behaviour("an answer that is nested too deeply fails alone", "docs/protocol.md 1.3; docs/faults.md 21")
async def _too_deep(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(ProtocolError):
            await session.call("fault.deep", {"depth": 100})
        result = await session.call("fault.deep", {"depth": 50})
        assert str(result.data).count("nested") == 49
