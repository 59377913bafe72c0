"""Start of a driver ahead of its browser, so that the imports of a session run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from ._browser_process import BrowserProcess
from ._runfolder import RunFolder

#: Seconds until the driver's process runs, so that imports may hold the interpreter's lock.
_LEAD = 0.03
#: The process that was not taken yet. A list, so that taking it is visible in every task that shares the context.
_ahead: ContextVar[list[BrowserProcess]] = ContextVar("driver_ahead")


@asynccontextmanager
async def driver_ahead() -> AsyncIterator[None]:
    """Start a driver at once for the first browser that is started in the block. An unused driver ends with the block.

    Raises nothing if the driver cannot run: the start of the browser raises."""
    process = BrowserProcess()
    ahead = [process]
    with RunFolder() as folder:
        _ahead.set(ahead)
        try:
            await asyncio.wait((process.begin_driver(folder),), timeout=_LEAD)
            yield
        finally:
            if ahead:
                ahead.clear()
                await process.end()


def next_process() -> BrowserProcess:
    """Return a process for the next browser: the one whose driver was started ahead, or a new one."""
    ahead = _ahead.get([])
    return ahead.pop() if ahead else BrowserProcess()
