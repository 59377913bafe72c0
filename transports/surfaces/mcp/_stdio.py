"""MCP over stdin and stdout, for a client that starts the bridge. The bridge always ends with its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from ...mcp._stdio import LineReader, Stdin, exit_soon
from ._bridge import Bridge
from ._messages import check_message

_Refuse: TypeAlias = "asyncio.Future[Callable[[SessionMessage], Awaitable[None]]]"


async def serve_stdio(bridge: Bridge) -> None:
    """Serve until stdin ends or the parent process dies, then close all sessions.

    Other output to stdout is redirected to stderr meanwhile. If closing takes longer than four seconds, the process
    exits."""
    chunks = Stdin()
    #: Sends the error of a refused line, once stdout is open.
    refuse: _Refuse = asyncio.get_running_loop().create_future()
    bridge.begin()
    try:
        stdin = cast("anyio.AsyncFile[str]", _messages(chunks, refuse))
        async with stdio_server(stdin=stdin) as (reading, writing):
            refuse.set_result(writing.send)
            await bridge.server.run(reading, writing, bridge.server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client is gone: the normal end
    finally:
        exit_soon()
        await bridge.aclose()


async def _messages(chunks: Stdin, refuse: _Refuse) -> AsyncIterator[str]:
    """Yield the lines that are messages. Any other line, and one of more than 50,000 values and names, is answered with
    an error here and not passed on: every request gets an answer."""
    reader = LineReader()
    async for chunk in chunks:
        for line in reader.feed(chunk):
            assert isinstance(line, bytes)
            refusal = await check_message(line)
            if refusal is None:
                yield line.decode()
            else:
                send = await refuse
                await send(SessionMessage(refusal))
    exit_soon()
