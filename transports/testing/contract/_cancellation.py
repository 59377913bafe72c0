"""Behaviours of timeouts and cancellation."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from ...errors import CallTimeout, CapabilityError
from ...session._session import Session
from ._behaviour import Subject, behaviour, expect, raises, until, value


async def _reasons(session: Session) -> list[str]:
    """Return the reasons of the cancellations that the app received, in order, each once."""
    record = (await session.call("app.record")).data
    return [*dict.fromkeys(entry["reason"] for entry in value(record, "cancelled"))]


async def _started(session: Session, capability: str, **params: object) -> asyncio.Task[Any]:
    """Start a call and give the app time to begin it."""
    task = asyncio.ensure_future(session.call(capability, params))
    await asyncio.sleep(0.2)
    expect(task.done(), False, f"whether {capability} had ended")
    return task


@behaviour("a timeout reaches the app", "docs/protocol.md 3.4; docs/faults.md 5")
async def _timeout(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(CallTimeout, "job.wait with 0.2 s", code="TIMEOUT"):
            await session.call("job.wait", timeout=0.2)
        expect(await _reasons(session), ["timeout"], "the reasons that the app got")


@behaviour("an infinite timeout is no limit", "transports.base.Transport.request")
async def _no_limit(subject: Subject) -> None:
    async with subject.connect() as session:
        await session.call("fault.slow", {"ms": 100}, timeout=math.inf)
        expect(await _reasons(session), [], "the reasons that the app got")


@behaviour("cancelling reaches the app", "docs/protocol.md 3.2")
async def _cancelled(subject: Subject) -> None:
    async with subject.connect() as session:
        waiting = await _started(session, "job.wait")
        waiting.cancel()
        await asyncio.wait((waiting,), timeout=10)
        expect(waiting.cancelled(), True, "whether the awaiting task was cancelled")
        expect(await _reasons(session), ["cancelled by the client"], "the reasons that the app got")


@behaviour("after a timeout and a cancellation the next call works", "docs/protocol.md 3.2, 3.4")
async def _next_call(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(CallTimeout, "job.wait with 0.2 s"):
            await session.call("job.wait", timeout=0.2)
        waiting = await _started(session, "job.wait")
        waiting.cancel()
        await asyncio.wait((waiting,), timeout=10)
        for n in range(3):
            result = await session.call("data.json", {"csv": f"a\r\n{n}\r\n"})
            expect(value(result.data, "items", 0, "a"), n, "the answer of a later call")


@behaviour("a call that the app never ends stops at its timeout", "docs/protocol.md 3.4, 3.8; docs/faults.md 5")
async def _deaf(subject: Subject) -> None:
    async with subject.connect() as session:
        started = time.monotonic()
        with raises(CallTimeout, "fault.never with 0.3 s", code="TIMEOUT"):
            await session.call("fault.never", timeout=0.3)
        if time.monotonic() - started > 5:
            raise AssertionError("the call's timeout was 0.3 s, and it took more than 5 s")
        await session.call("file.list")


@behaviour("cancelling one call leaves the others alone", "docs/protocol.md 3.2")
async def _only_that(subject: Subject) -> None:
    async with subject.connect() as session:
        slow = asyncio.ensure_future(session.call("fault.slow", {"ms": 700}))
        waiting = await _started(session, "job.wait")
        waiting.cancel()
        await asyncio.wait((waiting,), timeout=10)
        expect(value((await slow).data, "ms"), 700, "the answer of the other call")


@behaviour("a call that the app cancels raises CANCELLED", "docs/protocol.md 3.2, 8.1")
async def _given_up(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(CapabilityError, "an answer that is cancelled", code="CANCELLED") as caught:
            await session.call("fault.bad_answer", {"value": {"success": False, "cancelled": True}})
        expect(caught.error.cancelled, True, "cancelled of the error")


@behaviour("progress stops with its call", "docs/protocol.md 4.4; docs/faults.md 18")
async def _progress_stops(subject: Subject) -> None:
    seen: list[object] = []
    async with subject.connect() as session:
        job = asyncio.ensure_future(
            session.call("job.run", {"steps": 10000, "delay": 20}, on_progress=lambda item: seen.append(item.progress))
        )
        await until(lambda: len(seen) >= 2, "progress arrives", seconds=10)
        job.cancel()
        await asyncio.wait((job,), timeout=10)
        await session.call("file.list")
        reports = len(seen)
        await session.call("fault.slow", {"ms": 200})
        expect(len(seen), reports, "reports of progress that came after the call's end")
