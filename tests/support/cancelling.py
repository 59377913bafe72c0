"""Work that is cancelled while it is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def cancel_after_turns(turns: int, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
    """Cancel work after so many turns of the event loop, and return its task once that has ended."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    return task
