"""Behaviours of timeouts and cancellation."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import pytest

from ...errors import CallTimeout, CapabilityError
from ...session._session import Session
from ._behaviour import Subject, behaviour, until, value


async def _reasons(session: Session) -> list[str]:
    """Return the reasons of the cancellations that the app received, in order, each once."""
    record = (await session.call("app.record")).data
    return [*dict.fromkeys(entry["reason"] for entry in value(record, "cancelled"))]


async def _started(session: Session, capability: str, **params: object) -> asyncio.Task[Any]:
    """Start a call and give the app time to begin it."""
    task = asyncio.ensure_future(session.call(capability, params))
    await asyncio.sleep(0.2)
    assert not task.done(), f"whether {capability} had ended"
    return task


@behaviour("a timeout reaches the app", "docs/protocol.md 3.4; docs/faults.md 5")
async def _timeout(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(CallTimeout):
            await session.call("job.wait", timeout=0.2)
        assert await _reasons(session) == ["timeout"]


@behaviour("an infinite timeout is no limit", "transports.base.Transport.request")
async def _no_limit(subject: Subject) -> None:
    async with subject.connect() as session:
        await session.call("fault.slow", {"ms": 100}, timeout=math.inf)
        assert await _reasons(session) == []


@behaviour("cancelling reaches the app", "docs/protocol.md 3.2")
async def _cancelled(subject: Subject) -> None:
    async with subject.connect() as session:
        waiting = await _started(session, "job.wait")
        waiting.cancel()
        await asyncio.wait((waiting,), timeout=10)
        assert waiting.cancelled()
        assert await _reasons(session) == ["cancelled by the client"]


@behaviour("after a timeout and a cancellation the next call works", "docs/protocol.md 3.2, 3.4")
async def _next_call(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(CallTimeout):
            await session.call("job.wait", timeout=0.2)
        waiting = await _started(session, "job.wait")
        waiting.cancel()
        await asyncio.wait((waiting,), timeout=10)
        for n in range(3):
            result = await session.call("data.json", {"csv": f"a\r\n{n}\r\n"})
            assert value(result.data, "items", 0, "a") == n


@behaviour("a call that the app never ends stops at its timeout", "docs/protocol.md 3.4, 3.8; docs/faults.md 5")
async def _deaf(subject: Subject) -> None:
    async with subject.connect() as session:
        started = time.monotonic()
        with pytest.raises(CallTimeout):
            await session.call("fault.never", timeout=0.3)
        assert time.monotonic() - started <= 5, "the call's timeout was 0.3 s, and it took more than 5 s"
        await session.call("file.list")


@behaviour("cancelling one call leaves the others alone", "docs/protocol.md 3.2")
async def _only_that(subject: Subject) -> None:
    async with subject.connect() as session:
        slow = asyncio.ensure_future(session.call("fault.slow", {"ms": 700}))
        waiting = await _started(session, "job.wait")
        waiting.cancel()
        await asyncio.wait((waiting,), timeout=10)
        assert value((await slow).data, "ms") == 700


@behaviour("a call that the app cancels raises CANCELLED", "docs/protocol.md 3.2, 8.1")
async def _given_up(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(CapabilityError) as caught:
            await session.call("fault.bad_answer", {"value": {"success": False, "cancelled": True}})
        assert caught.value.code == "CANCELLED"
        assert caught.value.cancelled


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
        assert len(seen) == reports
