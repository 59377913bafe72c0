"""Process of an MCP server: its start in a group of its own, and its end with all that it has started.

It needs nothing of the SDK: ``abp proxy`` does without."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import Mapping

from .._internal.tasks import finished
from ..errors import ConnectFailed
from ._servers import StdioServer

logger = logging.getLogger("transports.mcp")

#: Bytes that are read from a server at once.
CHUNK_BYTES = 1 << 20
#: Seconds for a server to end after each step: closing its stdin, terminating it, killing it.
GRACE = 1.0
#: Whether processes have groups, which are signalled together.
_HAS_GROUPS = hasattr(os, "killpg")


class ServerProcess(asyncio.subprocess.Process):
    """A process whose pipes can be closed although other processes hold them."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: asyncio.subprocess.SubprocessStreamProtocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(transport, protocol, loop)
        self.pipes = transport


async def start_process(
    server: StdioServer, env: Mapping[str, str], stderr: int | None = asyncio.subprocess.PIPE
) -> ServerProcess:
    """Start a server in a process group of its own, with exactly the variables ``env``. With ``stderr=None`` its stderr
    is that of this process. If the caller is cancelled, the server is ended, with what it has started.

    Raises :class:`~transports.errors.ConnectFailed` if it cannot be started."""
    starting = asyncio.ensure_future(_start_process(server, env, stderr))
    try:
        return await finished(starting)
    except asyncio.CancelledError:
        if not starting.cancelled() and starting.exception() is None:
            await end_process(starting.result())
        raise


async def _start_process(server: StdioServer, env: Mapping[str, str], stderr: int | None) -> ServerProcess:
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(CHUNK_BYTES, loop),
            _executable(server.command),
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=env,
            cwd=server.cwd,
            start_new_session=True,  # a process group, which can be ended as a whole
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConnectFailed(f"{server} cannot be started ({reason}); install it, or correct its command") from None
    return ServerProcess(transport, protocol, loop)


def _executable(command: str) -> str:
    """Return the file of a command. Windows starts no process by the name ``npx``: its file is ``npx.cmd``."""
    if os.name == "nt":
        return shutil.which(command) or command
    return command


async def end_stdout(process: asyncio.subprocess.Process) -> None:
    """End the stdout of a process a second after its exit: a process that it has started may hold the pipe open."""
    assert process.stdout is not None
    while process.returncode is None:
        await asyncio.sleep(0.5)
    await asyncio.sleep(GRACE)  # for what it has written
    process.stdout.feed_eof()


def exit_reason(server: StdioServer, process: asyncio.subprocess.Process, output: str = "") -> str:
    """Return how a server ended, for a message, followed by its ``output``."""
    code = process.returncode
    if code is None:
        reason = "closed its stdout"
    elif code >= 0:
        reason = f"ended with status {code}"
    else:
        reason = f"was ended by {_signal_name(-code)}"
    return f"{server} {reason}{output}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def end_process(process: ServerProcess) -> None:
    """End the process group step by step (MCP "Shutdown"): close stdin, terminate, kill.

    The whole group is killed even if the server has ended, since its children may hold its pipes. Without process
    groups (Windows) the server's current descendants are killed, none if the server has ended by itself. A cancellation
    of the caller is raised when the server has ended.
    """
    await finished(asyncio.ensure_future(_end_process(process)))


async def _end_process(process: ServerProcess) -> None:
    if not _HAS_GROUPS:
        from ..playwright._process import kill, process_tree

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
        logger.warning("process %d is still running after it was killed", process.pid)
    process.pipes.close()


async def _wait_for_exit(process: asyncio.subprocess.Process) -> bool:
    """Return whether the process ends within a second.

    ``process.wait()`` would also wait for other processes that hold its pipes.
    """
    deadline = asyncio.get_running_loop().time() + GRACE
    while process.returncode is None:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(0.01)
    return True


def _signal_group(process: asyncio.subprocess.Process, name: str) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if _HAS_GROUPS:
            os.killpg(process.pid, signal.Signals[name])
        else:
            process.terminate()
