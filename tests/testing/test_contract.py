"""The contract suite finds what is wrong with a transport: ways to break one, and the behaviour that must see each."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import in_process
from tests.support.slow import slow_but
from transports import CallTimeout, MemoryTransport, Message, UsageError
from transports.memory import Handler
from transports.testing.contract import BEHAVIOURS, Subject, verify

BY_NAME = {behaviour.name: behaviour for behaviour in BEHAVIOURS}


class NoIds(MemoryTransport):
    async def request(self, message: Message, *, timeout: float) -> Message:
        return dataclasses.replace(await super().request(message, timeout=timeout), id=None)


class EventsTwice(MemoryTransport):
    def emit(self, message: Message) -> None:
        super().emit(message)
        super().emit(message)


class EventsWithoutEnd(MemoryTransport):
    async def events(self) -> AsyncIterator[Message]:
        async for message in super().events():
            yield message
        await asyncio.sleep(3600)


class ProgressOfNobody(MemoryTransport):
    def emit(self, message: Message) -> None:
        payload: Any = message.payload
        super().emit(dataclasses.replace(message, payload={**payload, "operationId": "somebody"}))


class NoDeadline(MemoryTransport):
    async def request(self, message: Message, *, timeout: float) -> Message:
        return await super().request(message, timeout=30)


class WrongDeadline(MemoryTransport):
    async def request(self, message: Message, *, timeout: float) -> Message:
        try:
            return await super().request(message, timeout=timeout)
        except CallTimeout as error:
            raise TimeoutError from error


class NoCancelling(MemoryTransport):
    async def request(self, message: Message, *, timeout: float) -> Message:
        payload: Any = message.payload
        if message.type == "capabilities/cancel":
            message = dataclasses.replace(message, payload={**payload, "callId": "other"})
        return await super().request(message, timeout=timeout)


class OtherBytes(MemoryTransport):
    async def request(self, message: Message, *, timeout: float) -> Message:
        reply = await super().request(message, timeout=timeout)
        payload: Any = reply.payload
        if reply.type == "capabilities/call-result":
            file = payload["data"]["file"]
            file["content"] = f"BBBB{file['content'][4:]}"
        return reply


class LeakedTask(MemoryTransport):
    async def open(self) -> None:
        await super().open()
        self.leaked = asyncio.ensure_future(asyncio.sleep(3600))


class NeverClosed(MemoryTransport):
    async def aclose(self) -> None:
        self._events.put_nowait(None)


class ClosedOnce(MemoryTransport):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True
        await super().aclose()


class OneAtATime(MemoryTransport):
    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        super().__init__(handlers)
        self.turn = asyncio.Lock()

    async def request(self, message: Message, *, timeout: float) -> Message:
        async with self.turn:
            return await super().request(message, timeout=timeout)


BROKEN: dict[type[MemoryTransport], str] = {
    NoIds: "a reply carries its request's id",
    EventsTwice: "its events come in order, each once",
    EventsWithoutEnd: "its events end when it closes",
    ProgressOfNobody: "progress names its call",
    NoDeadline: "a request ends at its deadline",
    WrongDeadline: "a request ends at its deadline",
    NoCancelling: "cancelling reaches the app",
    OtherBytes: "content of 3 MB arrives byte for byte",
    LeakedTask: "no task outlives it",
    NeverClosed: "a request after closing fails",
    ClosedOnce: "closing twice is harmless",
    OneAtATime: "a slow call holds up no quick one",
}


@pytest.mark.load
@pytest.mark.parametrize(
    ("kind", "name"),
    slow_but(BROKEN.items(), *(case for case in BROKEN.items() if case[0] is not NoDeadline)),  # it takes three seconds
)
async def test_contract_detects_broken_transport(kind: type[MemoryTransport], name: str, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    try:
        with pytest.raises(AssertionError) as caught:
            await verify(BY_NAME[name], Subject(lambda: in_process(kind), tmp_path, timeout=20, answer_timeout=0.4))
        assert str(caught.value).startswith(f"{name}: ") and "[source: " in str(caught.value)
    finally:
        for task in asyncio.all_tasks() - before:
            task.cancel()


def test_every_behaviour_has_a_name_and_a_source() -> None:
    assert len(BY_NAME) == len(BEHAVIOURS) > 60
    for behaviour in BEHAVIOURS:
        assert behaviour.source and str(behaviour) == f"{behaviour.theme}: {behaviour.name}"


async def test_declared_deviations_must_be_known_and_real(tmp_path: Path) -> None:
    behaviour, subject = BY_NAME["a reply carries its request's id"], Subject(in_process, tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"remove it from the deviations .reason: so it is"):
        await verify(behaviour, subject, {behaviour.name: "so it is"})
    with pytest.raises(UsageError, match="unknown behaviours in deviations: it sings"):
        await verify(behaviour, subject, {"it sings": "often"})

    with pytest.raises(pytest.xfail.Exception, match="so it is"):
        await verify(behaviour, Subject(lambda: in_process(NoIds), tmp_path), {behaviour.name: "so it is"})

    class Unfinished(MemoryTransport):
        async def request(self, message: Message, *, timeout: float) -> Message:
            raise NotImplementedError

    # Raised through, xfail would pass this test.
    with pytest.raises((AssertionError, pytest.xfail.Exception)) as caught:
        await verify(behaviour, Subject(lambda: in_process(Unfinished), tmp_path), {behaviour.name: "so it is"})
    assert caught.type is AssertionError and "NotImplementedError" in str(caught.value)
