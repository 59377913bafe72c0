"""An MCP server as a process: its messages over stdin and stdout, and its end.

The SDK's own client (2.3) splits everything received so far again with every chunk: 50 MB in one line take 20 seconds.
Here chunks are joined once, a line has a limit, and a line over it fails its call and not the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from ...errors import ConnectFailed
from .servers import StdioServer
from .wire import LineReader, encode_line, unsent_error

__all__ = ["Stderr", "stdio_streams"]

logger = logging.getLogger("transports.mcp")

_CHUNK_BYTES = 1 << 20
#: Bytes of stderr that are kept, and characters of it in a message.
_STDERR_BYTES, _STDERR_CHARS = 8192, 500
#: Seconds for a server to end after each step: closing its stdin, terminating it, killing it.
_GRACE = 1.0
#: Whether processes have groups, which are signalled together.
_HAS_GROUPS = hasattr(os, "killpg")
_POLL_INTERVAL = 0.01

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class Stderr:
    """The last 8 KiB that a server wrote to stderr, for error messages."""

    def __init__(self, server: StdioServer) -> None:
        self._server = server
        self._tail = b""

    def add(self, chunk: bytes) -> None:
        """Append a chunk."""
        self._tail = (self._tail + chunk)[-_STDERR_BYTES:]

    def summary(self) -> str:
        """Return ``"; it said: …"`` with up to 500 characters and no secrets, or an empty text."""
        text = self._server.redact(self._tail.decode(errors="replace"))
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return (
            f"; it said: …{text[-_STDERR_CHARS:]}"
            if len(text) > _STDERR_CHARS
            else f"; it said: {text}"
            if text
            else ""
        )


@asynccontextmanager
async def stdio_streams(
    server: StdioServer, stderr: Stderr, *, max_bytes: int, on_exit: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Start the server and yield the streams that the SDK's session speaks over.

    ``on_exit`` is called with the reason if the server ends by itself. When the block ends, the server and everything
    it started are ended, which takes three seconds at most. ``max_bytes`` limits one message, counted in decoded bytes.

    Raises :class:`~transports.errors.ConnectFailed` if the server cannot be started.
    """
    process = await _start(server)
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    outgoing, waiting = anyio.create_memory_object_stream[SessionMessage](float("inf"))
    with received, incoming, outgoing, waiting:  # closed however the block ends, a second cancellation included
        tasks = [
            asyncio.ensure_future(work)
            for work in (
                _read(process, LineReader(max_bytes), received, lambda: on_exit(_exit_reason(server, process, stderr))),
                _write(process, waiting, received),
                _listen(process, stderr),
            )
        ]
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                await _terminate(process)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


async def _start(server: StdioServer) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            _executable(server.command),
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=get_default_environment() | dict(server.env),
            cwd=server.cwd,
            start_new_session=True,
            limit=_CHUNK_BYTES,
        )
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        raise ConnectFailed(f"{server} cannot be started ({reason}); install it, or correct its command") from None


def _executable(command: str) -> str:
    """On Windows ``npx`` is ``npx.cmd``, which a process is not started by."""
    return (shutil.which(command) if os.name == "nt" else None) or command


async def _read(
    process: asyncio.subprocess.Process,
    lines: LineReader,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    on_exit: Callable[[], None],
) -> None:
    assert process.stdout is not None
    try:
        with received:
            while chunk := await process.stdout.read(_CHUNK_BYTES):
                for line in lines.split(chunk):
                    for message in await lines.parse(line):
                        await received.send(message)
            with contextlib.suppress(TimeoutError):  # its stdout is closed: it should be over
                await asyncio.wait_for(process.wait(), _GRACE)
            on_exit()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the session has closed its stream
    except Exception:  # a fault of ours must not end in a server that looks alive and answers nothing
        logger.exception("reading the server's stdout failed")
        on_exit()


async def _write(
    process: asyncio.subprocess.Process,
    waiting: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    assert process.stdin is not None
    # the end of its stdout reports that it is gone
    with contextlib.suppress(ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for message in waiting:
            try:
                line = encode_line(message)
            except Exception as error:  # noqa: BLE001 - what cannot be sent fails alone; those behind it go on
                if (failed := unsent_error(message, error)) is not None:
                    await received.send(failed)
                continue
            process.stdin.write(line)
            await process.stdin.drain()


async def _listen(process: asyncio.subprocess.Process, stderr: Stderr) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(_STDERR_BYTES):
        stderr.add(chunk)


def _exit_reason(server: StdioServer, process: asyncio.subprocess.Process, stderr: Stderr) -> str:
    code = process.returncode
    how = "closed its stdout" if code is None else f"ended with status {code}" if code >= 0 else _signal_name(-code)
    return f"{server} {how}{stderr.summary()}"


def _signal_name(number: int) -> str:
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"was ended by signal {number}"


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """End the process group step by step (MCP "Shutdown"): close stdin, terminate, kill.

    The whole group is killed even if the server has ended, since its children may hold its pipes. Where there are no
    groups (Windows), it is what the server has started by now, and nothing if the server has ended by itself.
    """
    if not _HAS_GROUPS:
        from ...browser.process.processes import kill, process_tree

        started = process_tree([process.pid])
    if process.stdin is not None:
        process.stdin.close()
    if not await _wait_for_exit(process):
        _signal_group(process, "SIGTERM")
        await _wait_for_exit(process)
    if _HAS_GROUPS:
        _signal_group(process, "SIGKILL")
    else:
        await kill(started)
    if not await _wait_for_exit(process):
        logger.warning("the process %d is still there after it was killed", process.pid)
    transport = process._transport  # type: ignore[attr-defined]  # else it waits for others that hold its pipes
    transport.close()


async def _wait_for_exit(process: asyncio.subprocess.Process) -> bool:
    """Return whether the process ends within a second. ``process.wait()`` would also wait for others that hold its
    pipes.
    """
    deadline = asyncio.get_running_loop().time() + _GRACE
    while process.returncode is None:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_POLL_INTERVAL)
    return True


def _signal_group(process: asyncio.subprocess.Process, name: str) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if _HAS_GROUPS:
            os.killpg(process.pid, signal.Signals[name])
        else:
            process.terminate()
