"""Progress notifications of one request: the app's own, and heartbeats, which keep a client from giving up."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ...protocol.payloads import Progress
from ...protocol.plain_text import plain_line
from ...tasks import cancel_and_wait

__all__ = ["ProgressReporter"]

#: What a heartbeat adds to the value, since MCP wants values that grow.
_STEP = 1e-6


class ProgressReporter:
    """Tells the client of one request how far it is, if the request has a ``progressToken``. Many clients give up a
    request after some seconds without progress, so there is some every ``interval`` seconds."""

    def __init__(self, ctx: ServerRequestContext[object, object], interval: float) -> None:
        self._ctx = ctx
        self._interval = interval
        self._value = -1.0
        self._total: float | None = None
        self._started = self._reported = time.monotonic()

    async def report(self, progress: Progress) -> None:
        """Pass an app's progress on. Values that do not grow are skipped."""
        value, total = progress.steps
        if value is not None and value > self._value:
            await self._send(value, total, plain_line(progress.text) or None)

    async def _send(self, value: float, total: float | None, text: str | None) -> None:
        self._value, self._total, self._reported = value, total, time.monotonic()
        await self._ctx.session.report_progress(value, total, text)

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Send heartbeats while the block runs."""
        if not self._ctx.meta or "progress_token" not in self._ctx.meta:
            yield
            return
        beating = asyncio.ensure_future(self._beat())
        try:
            yield
        finally:
            await cancel_and_wait((beating,))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(max(self._reported + self._interval - time.monotonic(), 0))
            if time.monotonic() - self._reported < self._interval:
                continue  # the app has told something meanwhile
            before = max(self._value, 0.0)
            value = max(before + _STEP, math.nextafter(before, math.inf))
            total = self._total if self._total is not None and value <= self._total else None
            seconds = time.monotonic() - self._started
            try:
                await self._send(value, total, f"still working after {seconds:.0f} s")
            except MCPError:
                return  # the client is gone
