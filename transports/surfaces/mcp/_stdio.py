"""MCP over stdin and stdout, for a client that starts the bridge. The bridge always ends with its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from ._bridge import Bridge
from ._messages import check_message
from ._stdin import Stdin, exit_within


async def serve_stdio(bridge: Bridge) -> None:
    """Serve until stdin ends or the parent process dies, then close all sessions.

    Other output to stdout is redirected to stderr meanwhile. If closing takes longer than four seconds, the process
    exits."""
    lines = _Lines()
    bridge.begin()
    try:
        async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (reading, writing):
            lines.refuse.set_result(writing.send)
            await bridge.server.run(reading, writing, bridge.server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client is gone: the normal end
    finally:
        exit_within()
        await bridge.aclose()


class _Lines:
    """Asynchronous lines of stdin that are messages. Any other line, and one of more than 50,000 values and names, is
    answered with an error here and not passed on: every request gets an answer."""

    def __init__(self) -> None:
        #: Function that sends the error of a refused line; set once stdout is open.
        self.refuse: asyncio.Future[Callable[[SessionMessage], Awaitable[None]]] = (
            asyncio.get_running_loop().create_future()
        )
        self._chunks = Stdin()

    async def __aiter__(self) -> AsyncIterator[str]:
        parts: list[bytes] = []
        async for chunk in self._chunks:
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                whole, parts = b"".join((*parts, line)), []
                if not whole.strip():
                    continue
                refusal = await check_message(whole)
                if refusal is None:
                    yield whole.decode()
                else:
                    await (await self.refuse)(SessionMessage(refusal))
            parts.append(rest)
        exit_within()
