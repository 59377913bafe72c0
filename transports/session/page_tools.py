"""Tools of the kit's own on an app's page: the content that they make is stored as the answer of a call."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from ..base import PageTools, Transport
from ..errors import UsageError
from ..protocol.ids import new_id
from ..routing import Result
from .calls import Calls
from .results import Results

__all__ = ["run_page_tool"]


async def run_page_tool(
    transport: Transport,
    results: Results,
    calls: Calls,
    tool: str,
    field: str,
    use: Callable[[PageTools], Awaitable[object]],
) -> Result:
    """Return what ``use`` makes with the page, stored under ``field``, with the events of a call.

    Raises :class:`~transports.errors.UsageError` if the transport has no page.
    """
    if not isinstance(transport, PageTools):
        raise UsageError(f"{tool} needs an app in a page; this one is reached by {transport.name}")
    call, started = new_id(), time.perf_counter()

    async def work() -> Result:
        return await results.from_data({field: await use(transport)}, tool, started, call)

    return await calls.with_events(call, tool, work())
