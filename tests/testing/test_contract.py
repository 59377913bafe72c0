"""The contract suite finds what is wrong with a transport: ways to break one, and the behaviour that must see each."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import in_process
from transports import CallTimeout, MemoryTransport, Message, UsageError
from transports.testing.contract import BEHAVIOURS, Subject, verify

BY_NAME = {behaviour.name: behaviour for behaviour in BEHAVIOURS}


def every_reply(transport: MemoryTransport, change: Callable[[Message], object]) -> None:
    request = transport.request

    async def changed(message: Message, *, timeout: float) -> Message:
        reply = await request(message, timeout=timeout)
        change(reply)
        return reply

    transport.request = changed  # type: ignore[method-assign]


def every_request(transport: MemoryTransport, change: Callable[[Message], Message]) -> None:
    request = transport.request
    transport.request = lambda message, *, timeout: request(change(message), timeout=timeout)  # type: ignore[method-assign]


def no_ids(transport: MemoryTransport) -> None:
    every_reply(transport, lambda reply: setattr(reply, "id", None))


def events_twice(transport: MemoryTransport) -> None:
    emit = transport.emit

    def twice(message: Message) -> None:
        emit(message)
        emit(message)

    transport.emit = twice  # type: ignore[method-assign]


def events_without_end(transport: MemoryTransport) -> None:
    events = transport.events

    async def endless() -> AsyncIterator[Message]:
        async for message in events():
            yield message
        await asyncio.sleep(3600)

    transport.events = endless  # type: ignore[method-assign]


def progress_of_nobody(transport: MemoryTransport) -> None:
    emit = transport.emit

    def changed(message: Message) -> None:
        payload: Any = message.payload
        emit(dataclasses.replace(message, payload={**payload, "operationId": "somebody"}))

    transport.emit = changed  # type: ignore[method-assign]


def no_deadline(transport: MemoryTransport) -> None:
    request = transport.request
    transport.request = lambda message, *, timeout: request(message, timeout=30)  # type: ignore[method-assign]


def a_wrong_deadline(transport: MemoryTransport) -> None:
    request = transport.request

    async def changed(message: Message, *, timeout: float) -> Message:
        try:
            return await request(message, timeout=timeout)
        except CallTimeout as error:
            raise TimeoutError from error

    transport.request = changed  # type: ignore[method-assign]


def no_cancelling(transport: MemoryTransport) -> None:
    def changed(message: Message) -> Message:
        payload: Any = message.payload
        stopped = message.type == "capabilities/cancel"
        return dataclasses.replace(message, payload={**payload, "callId": "other"}) if stopped else message

    every_request(transport, changed)


def other_bytes(transport: MemoryTransport) -> None:
    def change(reply: Message) -> None:
        payload: Any = reply.payload
        if reply.type == "capabilities/call-result":
            file = payload["data"]["file"]
            file["content"] = f"BBBB{file['content'][4:]}"

    every_reply(transport, change)


def a_leaked_task(transport: MemoryTransport) -> None:
    opening = transport.open

    async def leaking() -> None:
        await opening()
        transport.leaked = asyncio.ensure_future(asyncio.sleep(3600))  # type: ignore[attr-defined]

    transport.open = leaking  # type: ignore[method-assign]


def never_closed(transport: MemoryTransport) -> None:
    async def closed() -> None:
        transport._events.put_nowait(None)

    transport.aclose = closed  # type: ignore[method-assign]


def closed_once(transport: MemoryTransport) -> None:
    closing = transport.aclose
    calls: list[int] = []

    async def closed() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("closed already")
        await closing()

    transport.aclose = closed  # type: ignore[method-assign]


def one_at_a_time(transport: MemoryTransport) -> None:
    request, turn = transport.request, asyncio.Lock()

    async def changed(message: Message, *, timeout: float) -> Message:
        async with turn:
            return await request(message, timeout=timeout)

    transport.request = changed  # type: ignore[method-assign]


BROKEN: dict[Callable[[MemoryTransport], None], str] = {
    no_ids: "a reply carries its request's id",
    events_twice: "its events come in order, each once",
    events_without_end: "its events end when it closes",
    progress_of_nobody: "progress names its call",
    no_deadline: "a request ends at its deadline",
    a_wrong_deadline: "a request ends at its deadline",
    no_cancelling: "cancelling reaches the app",
    other_bytes: "content of 3 MB arrives byte for byte",
    a_leaked_task: "no task outlives it",
    never_closed: "a request after closing fails",
    closed_once: "closing twice is harmless",
    one_at_a_time: "a slow call holds up no quick one",
}


@pytest.mark.load
@pytest.mark.parametrize(("breaking", "name"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", value))
async def test_a_broken_transport_is_found(
    breaking: Callable[[MemoryTransport], None], name: str, tmp_path: Path
) -> None:
    def make() -> MemoryTransport:
        transport = in_process()
        breaking(transport)
        return transport

    before = asyncio.all_tasks()
    try:
        with pytest.raises(AssertionError) as caught:
            await verify(BY_NAME[name], Subject(make, tmp_path, timeout=20, answer_timeout=2))
        assert str(caught.value).startswith(f"{name}: ") and "[source: " in str(caught.value)
        await verify(BY_NAME[name], Subject(in_process, tmp_path))
    finally:
        for task in asyncio.all_tasks() - before:
            task.cancel()


@pytest.mark.parametrize(
    ("unanswered", "name", "words"),
    [
        ("initialize", "a reply carries its request's id", "no answer to initialize (id 'initialize'): "),
        ("capabilities/call", "a reply carries its request's id", "to capabilities/call of data.csv (id 'key-7'): "),
        ("initialize", "JSON results become files", "no answer to initialize (id "),
        ("capabilities/call", "JSON results become files", "no answer to capabilities/call of data.json (id "),
    ],
)
async def test_a_request_without_an_answer_is_named(unanswered: str, name: str, words: str, tmp_path: Path) -> None:
    def make() -> MemoryTransport:
        transport = in_process()
        request = transport.request

        async def silent(message: Message, *, timeout: float) -> Message:
            if message.type == unanswered:
                raise CallTimeout(f"no answer within {timeout:g} s")
            return await request(message, timeout=timeout)

        transport.request = silent  # type: ignore[method-assign]
        return transport

    with pytest.raises(AssertionError) as caught:
        await verify(BY_NAME[name], Subject(make, tmp_path))
    assert words in str(caught.value)


def test_every_behaviour_has_a_name_and_a_source() -> None:
    assert len(BY_NAME) == len(BEHAVIOURS) > 60
    for behaviour in BEHAVIOURS:
        assert behaviour.source and str(behaviour) == f"{behaviour.theme}: {behaviour.name}"


async def test_deviations(tmp_path: Path) -> None:
    behaviour, subject = BY_NAME["a reply carries its request's id"], Subject(in_process, tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"remove it from the deviations .reason: so it is"):
        await verify(behaviour, subject, {behaviour.name: "so it is"})
    with pytest.raises(UsageError, match="unknown behaviours in deviations: it sings"):
        await verify(behaviour, subject, {"it sings": "often"})

    def broken() -> MemoryTransport:
        transport = in_process()
        no_ids(transport)
        return transport

    with pytest.raises(pytest.xfail.Exception, match="so it is"):
        await verify(behaviour, Subject(broken, tmp_path), {behaviour.name: "so it is"})


def test_the_guide_counts_the_behaviours() -> None:
    guide = Path(__file__).parents[2] / "docs" / "testing.md"
    assert f"holds the {len(BEHAVIOURS)} behaviours" in guide.read_text(encoding="utf-8")
