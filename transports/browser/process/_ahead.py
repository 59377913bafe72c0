"""A driver that is started ahead of its browser, so that a program imports what a session needs beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from ._browser_process import BrowserProcess
from ._runfolder import RunFolder

#: Seconds until the driver's process runs, and imports may take the interpreter's lock.
_LEAD = 0.03
#: The process that nobody has taken yet, as a list of one.
_ahead: ContextVar[list[BrowserProcess]] = ContextVar("driver_ahead")


@asynccontextmanager
async def driver_ahead() -> AsyncIterator[None]:
    """Start a driver at once for the first browser that is started in the block; without one it ends with the block.

    Raises nothing if the driver cannot run: the browser that it is for does."""
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
    """Return what the next browser runs in: a process whose driver was started ahead, if there is one."""
    ahead = _ahead.get([])
    return ahead.pop() if ahead else BrowserProcess()
