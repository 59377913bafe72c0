"""An MCP server as a process: its messages over stdin and stdout, and its end.

The SDK's own client (2.3) splits all that has come so far again with every chunk: 50 MB in one line take 20 seconds.
Here chunks are joined once, a line has a limit, and what is over it costs its call and not the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from ...errors import ConnectFailed
from .servers import StdioServer
from .wire import Lines, encoded

__all__ = ["Stderr", "stdio_streams"]

logger = logging.getLogger("transports.mcp")

_CHUNK = 1 << 20
#: Bytes of stderr that are kept, and characters of it that a message has.
_KEPT, _TOLD = 8192, 500
#: Seconds for a server to end once its stdin is closed, then once it was asked to, then once it was killed.
_PATIENCE = 1.0
_LOOK = 0.01

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class Stderr:
    """The end of what a server writes to stderr, for messages."""

    def __init__(self, server: StdioServer) -> None:
        self._server = server
        self._kept = b""

    def add(self, chunk: bytes) -> None:
        self._kept = (self._kept + chunk)[-_KEPT:]

    def told(self) -> str:
        """``"; it said: …"``, or nothing."""
        text = self._server.without_secrets(self._kept.decode(errors="replace"))
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return f"; it said: …{text[-_TOLD:]}" if len(text) > _TOLD else f"; it said: {text}" if text else ""


@asynccontextmanager
async def stdio_streams(
    server: StdioServer, stderr: Stderr, *, max_bytes: int, gone: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Start the server; the streams that the SDK's session speaks over. ``gone`` is told why the server ended, if it
    does by itself. At the end the server and all that it started are ended, which takes three seconds at the most.

    Raises :class:`~transports.errors.ConnectFailed` if it cannot be started.
    """
    process = await _started(server)
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    outgoing, waiting = anyio.create_memory_object_stream[SessionMessage](float("inf"))
    tasks = [
        asyncio.ensure_future(work)
        for work in (
            _read(process, Lines(max_bytes), received, lambda: gone(_epitaph(server, process, stderr))),
            _write(process, waiting),
            _listen(process, stderr),
        )
    ]
    try:
        yield incoming, outgoing
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for stream in (received, incoming, outgoing, waiting):
            stream.close()


async def _started(server: StdioServer) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=get_default_environment() | dict(server.env),
            cwd=server.cwd,
            start_new_session=True,
            limit=_CHUNK,
        )
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        raise ConnectFailed(f"{server} cannot be started ({reason}); install it, or correct its command") from error


async def _read(
    process: asyncio.subprocess.Process,
    lines: Lines,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    gone: Callable[[], None],
) -> None:
    assert process.stdout is not None
    try:
        with received:
            while chunk := await process.stdout.read(_CHUNK):
                for line in lines.split(chunk):
                    for message in await lines.messages(line):
                        await received.send(message)
            with contextlib.suppress(TimeoutError):  # its stdout is closed: it should be over
                await asyncio.wait_for(process.wait(), _PATIENCE)
            gone()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # nobody listens any more


async def _write(process: asyncio.subprocess.Process, waiting: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # that the server is gone is told by its stdout
        async for message in waiting:
            process.stdin.write(encoded(message))
            await process.stdin.drain()


async def _listen(process: asyncio.subprocess.Process, stderr: Stderr) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(_KEPT):
        stderr.add(chunk)


def _epitaph(server: StdioServer, process: asyncio.subprocess.Process, stderr: Stderr) -> str:
    code = process.returncode
    how = "closed its stdout" if code is None else f"ended with status {code}" if code >= 0 else _signal(-code)
    return f"{server} {how}{stderr.told()}"


def _signal(number: int) -> str:
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"was ended by signal {number}"


async def _end(process: asyncio.subprocess.Process) -> None:
    """Politely (MCP "Shutdown": close stdin, ask, kill), and all of the group, since others may hold its pipes."""
    if process.stdin is not None:
        process.stdin.close()
    if not await _ended(process):
        _tell(process, signal.SIGTERM)
        await _ended(process)
    if sys.platform != "win32":
        _tell(process, signal.SIGKILL)
    if not await _ended(process):
        logger.warning("the process %d is still there after it was killed", process.pid)
    transport = process._transport  # type: ignore[attr-defined]  # else it waits for whoever holds its pipes
    transport.close()


async def _ended(process: asyncio.subprocess.Process) -> bool:
    """Whether it ends in time. ``process.wait()`` would also wait for others that hold its pipes."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while process.returncode is None:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_LOOK)
    return True


def _tell(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.terminate()
        else:
            os.killpg(process.pid, number)
