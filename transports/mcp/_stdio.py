"""Stdio without the SDK, for ``abp proxy`` too: the process of a server, the lines of messages it speaks in, and the
stdin of a server of this kit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import shutil
import signal
import stat
import subprocess
import threading
import time
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from functools import cached_property

import msgspec

from .._internal.tasks import no_processes_error, start_task, wait_despite_cancel
from ..errors import ConnectFailed, first_line
from ._servers import StdioServer

logger = logging.getLogger("transports.mcp")

CHUNK_BYTES = 1 << 20
#: Seconds for a server to end after each step: closing its stdin, terminating it, killing it.
GRACE = 1.0
#: Whether processes have groups, which are signalled together.
_HAS_GROUPS = hasattr(os, "killpg")


# --- process ----------------------------------------------------------------------------------------------------------


class ServerProcess(asyncio.subprocess.Process):
    """Process of a server. ``pipes`` closes this side of its pipes, even if other processes hold the other side.
    ``guard`` is a process that ends the server's group if this Python process is killed."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: asyncio.subprocess.SubprocessStreamProtocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(transport, protocol, loop)
        self.pipes = transport
        self.guard: subprocess.Popen[bytes] | None = None


def _start_guard(group: int) -> subprocess.Popen[bytes] | None:
    """Start a small shell that ends the server if this process dies; ``None`` on Windows, and without a shell."""
    if not _HAS_GROUPS:
        return None
    # The stdin of the shell closes when this process dies. Then the server has two seconds to end by itself.
    script = 'read _; sleep 2; kill -TERM -"$0"; sleep 1; kill -KILL -"$0"'
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            ["/bin/sh", "-c", script, str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return None


async def start_process(
    server: StdioServer, env: Mapping[str, str], stderr: int | None = asyncio.subprocess.PIPE
) -> ServerProcess:
    """Start a server in its own process group, with exactly the variables ``env``.

    With ``stderr=None`` it shares our stderr. If the caller is cancelled, the server and all that it started are ended.
    Raises :class:`~transports.errors.ConnectFailed` if it cannot be started.
    """
    starting = asyncio.ensure_future(_start_process(server, env, stderr))
    try:
        return await wait_despite_cancel(starting)
    except asyncio.CancelledError:
        has_started = not starting.cancelled() and starting.exception() is None
        if has_started:
            await end_process(starting.result())
        raise


async def _start_process(server: StdioServer, env: Mapping[str, str], stderr: int | None) -> ServerProcess:
    command = server.command
    # Windows starts no process by the name npx: its file is npx.cmd.
    if os.name == "nt":
        command = shutil.which(command) or command

    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(CHUNK_BYTES, loop),
            command,
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=env,
            cwd=server.cwd,
            # The server gets a process group, which can be ended as a whole.
            start_new_session=True,
        )
    except NotImplementedError:
        raise no_processes_error(str(server)) from None
    except (OSError, ValueError) as error:
        raise ConnectFailed(f"{server} cannot be started ({_start_problem(server, error)}") from None
    process = ServerProcess(transport, protocol, loop)
    process.guard = _start_guard(process.pid)
    return process


def _start_problem(server: StdioServer, error: OSError | ValueError) -> str:
    """Return the reason and the remedy, as the rest of a message whose parenthesis is already open."""
    if isinstance(error, ValueError):
        # For instance, a variable has "=" in its name. The texts of these errors quote no values.
        return f"{first_line(error)}); correct its command and its variables"
    reason = error.strerror or type(error).__name__
    if server.cwd is not None and not server.cwd.is_dir():
        return f"{reason}); its folder {server.cwd} does not exist: correct cwd"
    if isinstance(error, FileNotFoundError) and " " in server.command:
        return f"{reason}); its command has a space: move its arguments to args"
    return f"{reason}); install it, or correct its command"


async def lines_of(process: asyncio.subprocess.Process, max_bytes: int) -> AsyncGenerator[bytes | MessageEnds, None]:
    """Yield the lines that a server writes to its stdout. After the last line, wait up to a second for its exit."""
    stdout = process.stdout
    assert stdout is not None
    reader = LineSplitter(max_bytes)
    ending = start_task(end_stdout(process, stdout))
    try:
        while chunk := await stdout.read(CHUNK_BYTES):
            waiting = deque(reader.feed(chunk))
            while waiting:
                # The line gets no name here, which would keep a large line in memory until the next one.
                yield waiting.popleft()
        for line in reader.flush():
            yield line
    finally:
        ending.cancel()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await process.wait()


async def end_stdout(process: asyncio.subprocess.Process, stdout: asyncio.StreamReader) -> None:
    """Report the end of stdout after the server's exit: a process that the server started may hold the pipe open."""
    while process.returncode is None:
        await asyncio.sleep(0.5)
    # The last output of the server arrives meanwhile.
    await asyncio.sleep(GRACE)
    stdout.feed_eof()


def exit_reason(server: StdioServer, process: asyncio.subprocess.Process, output: str = "") -> str:
    """Say how a server ended. ``output`` is added to the text."""
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

    The group is killed even if the server has ended, since its children may hold its pipes. Windows has no groups, so
    there the descendants are killed. If the caller is cancelled, this raises once the server has ended.
    """
    await wait_despite_cancel(asyncio.ensure_future(_end_process(process)))


async def _end_process(process: ServerProcess) -> None:
    if not _HAS_GROUPS:
        from ..playwright._process import kill, process_tree

        # They cannot be listed any more once the server has ended.
        descendants = process_tree([process.pid])

    if process.stdin is not None:
        process.stdin.close()
    if not await _wait_for_exit(process):
        _signal_group(process, "SIGTERM")
        await _wait_for_exit(process)

    if _HAS_GROUPS:
        _signal_group(process, "SIGKILL")
    else:
        await kill(descendants)
    if not await _wait_for_exit(process):
        logger.warning("process %d is still running after it was killed", process.pid)
    process.pipes.close()
    if process.guard is not None:
        with process.guard as guard:
            guard.kill()


async def _wait_for_exit(process: asyncio.subprocess.Process) -> bool:
    """Return whether the process ends within :data:`GRACE`. This polls, since ``process.wait()`` would also wait for
    other processes that hold its pipes."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + GRACE
    while process.returncode is None:
        if clock() >= deadline:
            return False
        await asyncio.sleep(0.01)
    return True


def _signal_group(process: asyncio.subprocess.Process, name: str) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if _HAS_GROUPS:
            os.killpg(process.pid, signal.Signals[name])
        else:
            process.terminate()


# --- lines ------------------------------------------------------------------------------------------------------------

# Members whose value is a text, a number or a word, such as "id": 7. They are read from both ends of an object, each up
# to the first member whose value is an object or a list.
_TEXT = rb'"(?:[^"\\]|\\.)*+"'
_MEMBER = rb"\s*+(%s)\s*+:\s*+(%s|[-+.\w]++)\s*+" % (_TEXT, _TEXT)
_MEMBERS_AT_START = re.compile(rb"\s*+\{(?:%s,)*" % _MEMBER, re.DOTALL)
_MEMBERS_AT_END = re.compile(rb"(?:,%s)+\}\s*+\Z" % _MEMBER, re.DOTALL)
_ONE_MEMBER = re.compile(_MEMBER, re.DOTALL)


class MessageEnds:
    """First and last 4 KiB of a message that is not decoded. Its id and its method are looked for in these parts."""

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head = head[:4096]
        self.tail = tail[-4096:]

    @cached_property
    def _members(self) -> Mapping[bytes, bytes]:
        """Members of the message by name, as far as they are in its ends. Their values are as they are written."""
        members: dict[bytes, bytes] = {}
        for match in (_MEMBERS_AT_START.match(self.head), _MEMBERS_AT_END.search(self.tail)):
            if match is not None:
                members |= dict(_ONE_MEMBER.findall(match[0]))
        return members

    @property
    def identity(self) -> bytes:
        """The id of the message, as it is written in JSON. It is empty if it is unknown."""
        identity = self._members.get(b'"id"', b"")
        try:
            msgspec.json.decode(identity)
        except ValueError:
            return b""
        return identity

    @property
    def has_method(self) -> bool:
        """True for a request or a notification."""
        return b'"method"' in self._members

    @property
    def is_message(self) -> bool:
        """True if this claims to be a message of JSON-RPC."""
        return self._members.get(b'"jsonrpc"') == b'"2.0"'


def ends_of_message(line: bytes | MessageEnds) -> MessageEnds:
    return line if isinstance(line, MessageEnds) else MessageEnds(line, line)


class LineSplitter:
    """Splits chunks into lines. Of a line over ``max_bytes``, only the first and last bytes are kept."""

    def __init__(self, max_bytes: float = math.inf) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._ends: MessageEnds | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes | MessageEnds]:
        """Yield the lines that this chunk completes. Empty lines are left out."""
        *parts, rest = chunk.split(b"\n")
        for part in parts:
            self._append_part(part)
            line = self._take_line()
            if line:
                yield line
        self._append_part(rest)

    def flush(self) -> Iterator[bytes | MessageEnds]:
        """Yield the last line, if it has no line break."""
        return self.feed(b"\n")

    def _take_line(self) -> bytes | MessageEnds:
        line: bytes | MessageEnds
        if self._ends is not None:
            line = self._ends
        else:
            line = b"".join(self._parts).removeprefix(BOM_UTF8).strip()
        self._parts = []
        self._size = 0
        self._ends = None
        return line

    def _append_part(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size <= self._max_bytes:
            return

        text = b"".join(self._parts)
        if self._ends is None:
            self._ends = MessageEnds(text, text)
        else:
            self._ends = MessageEnds(self._ends.head, self._ends.tail + text)
        self._parts = []


# --- the stdin of this process ----------------------------------------------------------------------------------------


def exit_soon() -> None:
    """Exit after four seconds even if closing hangs: a client that stopped reading may block a thread in a write."""
    timer = threading.Timer(4, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _parent_watch() -> Callable[[], bool]:
    """Return a function that says whether the process that started this one is still running."""
    parent = os.getppid()
    if os.name != "nt":
        return lambda: os.getppid() == parent
    import psutil  # on Windows, getppid() does not change when the parent ends

    try:
        return psutil.Process(parent).is_running
    except psutil.NoSuchProcess:
        return lambda: False


class Stdin:
    """Asynchronous chunks of stdin, at most 1 MiB each, until stdin or the parent process ends. When the parent has
    ended, this process has four seconds to exit.

    The event loop reads a pipe: a thread takes 80 µs more for a message, a third of a small call of `abp proxy`. Other
    files are read by a daemon thread, since only a daemon can be abandoned. Stdin is replaced by an empty file for this
    process and its children.
    """

    def __init__(self) -> None:
        # If stdin and stdout are the same socket, as with socat or inetd, reading it in the event loop would make it
        # nonblocking, and large writes to stdout would fail.
        self._can_be_nonblocking = _is_pipe(0) and not os.path.sameopenfile(0, 1)
        # Other code that reads descriptor 0 gets an empty file from now on, so it takes no messages of the client.
        self._fd = os.dup(0)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        self._loop = asyncio.get_running_loop()
        # Bounded, so that a client that sends faster than requests are read must wait, as with any pipe.
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(4)
        self._pipe: asyncio.ReadTransport | None = None
        self._parent_lives = _parent_watch()
        threading.Thread(target=self._watch_parent, daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if not self._can_be_nonblocking:
            threading.Thread(target=self._read_file, daemon=True).start()
            while (chunk := await self._queue.get()) is not None:
                yield chunk
            return

        reader = asyncio.StreamReader(CHUNK_BYTES)
        self._pipe, _ = await self._loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._fd, "rb", buffering=0)
        )
        while piece := await reader.read(CHUNK_BYTES):
            yield piece

    def _read_file(self) -> None:
        try:
            while chunk := os.read(self._fd, CHUNK_BYTES):
                self._queue_chunk(chunk)
        except (OSError, RuntimeError):
            pass  # a RuntimeError means that the loop is closed
        finally:
            self._end_chunks()

    def _watch_parent(self) -> None:
        """Exit when the parent has ended, as another process may still hold the pipe open (docs/faults.md 7)."""
        while self._parent_lives():
            time.sleep(0.5)
        exit_soon()
        if self._pipe is None:
            self._end_chunks()
        else:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._pipe.close)

    def _queue_chunk(self, chunk: bytes | None) -> None:
        asyncio.run_coroutine_threadsafe(self._queue.put(chunk), self._loop).result()

    def _end_chunks(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._queue_chunk(None)


def _is_pipe(fd: int) -> bool:
    """Whether the event loop can read the file: it reads only pipes and sockets, and not on Windows."""
    mode = os.fstat(fd).st_mode
    return os.name != "nt" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
