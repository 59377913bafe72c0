"""Tools of the kit's own on an app's page: the content that they make is stored as the answer of a call."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from ..base import Fetch, PageTools, Transport, WebResource
from ..errors import UsageError
from ..protocol.ids import new_id
from ..routing import Result
from .calls import Calls
from .results import Results

__all__ = ["public_fetch", "run_page_tool"]

#: Seconds for one request of HTML that is printed.
_FETCH_TIMEOUT = 30.0


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


def public_fetch(*, allow_private: bool) -> Fetch:
    """Return a way to public hosts for HTML that is printed; to private ones too with ``allow_private``."""

    async def fetch(url: str, accept: str, max_bytes: int) -> WebResource:
        from ..http import fetch_public  # late: few sessions need it

        return await fetch_public(
            url, accept=accept, timeout=_FETCH_TIMEOUT, max_bytes=max_bytes, allow_private=allow_private
        )

    return fetch
