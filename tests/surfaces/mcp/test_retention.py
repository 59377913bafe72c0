"""The bridge under a retention: it says what holds, and keeps within it however long it runs."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import pytest
from mcp import Client

from tests.support.apps import files
from tests.support.mcp_clients import URL, Apps, called, words
from transports.artifacts import LocalStore, Retention, sweeping
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options
from transports.testing import Call

SIZE = 1000


class Clock:
    """A clock that only :meth:`advance` moves, for one sleeper."""

    def __init__(self) -> None:
        self.now = time.time()
        self._asleep, self._moved = asyncio.Event(), asyncio.Event()

    async def advance(self, seconds: float) -> None:
        """Move on, and wait until the sleeper sleeps again, after its work if it was due."""
        await self._asleep.wait()
        self._asleep.clear()
        self.now += seconds
        self._moved.set()
        await self._asleep.wait()

    async def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self._moved.clear()
            self._asleep.set()
            await self._moved.wait()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", lambda: clock.now)
    return clock


def app() -> Apps:
    numbers = itertools.count()

    async def make(params: object, call: Call) -> object:
        return {"file": b"\x00 %d " % next(numbers) + bytes(SIZE)}  # no type of which a preview is made

    return Apps({"file.make": make})


@pytest.mark.load
@pytest.mark.requirement("R0-12d", "R2-6.4j", "R2-6.4q", "R2-7.1a", "R2-7.1c", "R2-7.1f")
async def test_bridge_stays_within_limits(tmp_path: Path, clock: Clock) -> None:
    limits = Retention.only(ttl_seconds=600, max_artifacts_per_session=8, max_session_bytes=20 * SIZE)
    most = 0
    async with LocalStore(tmp_path / "out", retention=limits) as store, sweeping(store, sleep=clock.sleep):
        bridge = Bridge(Options(), store, connect=app())
        async with Client(bridge.server, mode="2026-07-28") as client:
            await called(client, "abp_connect", url=URL)
            for _ in range(12):  # a call a minute, then rest
                made = await client.call_tool("abp_file_make", {})
                assert not made.is_error and "\nKept for 10 minutes." in words(made)
                await clock.advance(60)
                most = max(most, len(await store.list()))
                assert len(files(store.root / ".abp" / "blobs")) == len(await store.list()) <= 8
            assert most == 8
            for _ in range(11):
                await clock.advance(60)
            assert await store.list() == [] and not files(store.root / ".abp" / "blobs")
            status = await client.call_tool("abp_status", {})
            assert "removed 10 minutes after it was stored" in words(status)
