"""The ``abp`` command in this process: without a second for each start of Python, and at a terminal."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from transports.surfaces.cli import main
from webapp_fixture import Fixture, serve

T = TypeVar("T")

#: Seconds that a test waits for what a program prints.
PATIENCE = 60.0
CTRL_C, CTRL_D, ENTER, TAB = "\x03", "\x04", "\r", "\t"


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What ``--json`` promises: exactly one document, and nothing beside it."""
        assert self.out.count("\n") == 1 and self.out.endswith("\n"), self
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on stderr."""
        lines = self.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("abp: "), self
        return lines[0]


@contextmanager
def in_thread(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Hold ``server`` open in a thread: the command has the event loop of this one."""
    ready, stop = threading.Event(), threading.Event()
    served: list[T] = []

    async def work() -> None:
        async with server as opened:
            served.append(opened)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield served[0]
    finally:
        stop.set()
        thread.join()


def serving() -> AbstractContextManager[Fixture]:
    """Serve the reference app in a thread."""
    return in_thread(serve())


class CommandLine:
    """Runs ``abp`` in this process. ``env`` is added to its environment, in which no other ``ABP_`` variable is set."""

    def __init__(
        self, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, output: pytest.CaptureFixture[bytes]
    ) -> None:
        for name in [name for name in os.environ if name.startswith("ABP_") and name != "ABP_BROWSER"]:
            monkeypatch.delenv(name)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        self._patch = monkeypatch
        self._output = output

    def __call__(self, *args: object, stdin: str | bytes = "", env: Mapping[str, str] | None = None) -> Ran:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        with self._patch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
            status = main([str(arg) for arg in args])
        out, err = self._output.readouterr()
        return Ran(status, out.decode(errors="surrogateescape"), err.decode())

    def at_terminal(
        self, *args: object, script: Callable[[Terminal], None], term: str = "dumb", stdout: bool = False
    ) -> Ran:
        """Run a command whose stdin and stderr are a terminal, and its stdout too if asked for, while ``script`` types
        at it in another thread."""
        with (
            Terminal() as terminal,
            os.fdopen(os.dup(terminal.follower)) as stdin,
            os.fdopen(os.dup(terminal.follower), "w") as stderr,
            self._patch.context() as patch,
        ):
            patch.setenv("TERM", term)
            patch.setattr("sys.stdin", stdin)
            patch.setattr("sys.stderr", stderr)
            if stdout:
                patch.setattr("sys.stdout", stderr)
            typing = Typing(script, terminal)
            typing.start()
            status = main([str(arg) for arg in args])
            typing.join(PATIENCE)
        assert typing.error is None, (typing.error, terminal.shown)
        return Ran(status, self._output.readouterr()[0].decode(), terminal.shown)


class Typing(threading.Thread):
    """Runs the script of a test; its ``error`` is what it failed with."""

    def __init__(self, script: Callable[[Terminal], None], terminal: Terminal) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._script, self._terminal = script, terminal

    def run(self) -> None:
        try:
            self._script(self._terminal)
        except BaseException as error:
            self.error = error
            self._terminal.hang_up()


class Terminal:
    """A pseudo-terminal: ``follower`` is the program's end, and ``shown`` what came out of the other one."""

    def __init__(self, leader: int | None = None) -> None:
        if leader is None:
            self.leader, self.follower = os.openpty()
        else:
            self.leader, self.follower = leader, -1
        self._bytes = b""
        self._seen = 0
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Terminal:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.follower != -1:
            os.close(self.follower)
        self._reader.join(PATIENCE)
        os.close(self.leader)

    def _read(self) -> None:
        try:
            while data := os.read(self.leader, 65536):
                with self._changed:
                    self._bytes += data
                    self._changed.notify_all()
        except OSError:  # how Linux says that the program's end is closed
            pass

    @property
    def shown(self) -> str:
        return self._bytes.decode(errors="replace").replace("\r\r\n", "\n").replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        """Wait until ``text`` is shown after what was waited for before."""

        def is_shown() -> bool:
            return text in self.shown[self._seen :]

        with self._changed:
            assert self._changed.wait_for(is_shown, PATIENCE), f"no {text!r} in {self.shown[self._seen :]!r}"
            self._seen = self.shown.index(text, self._seen) + len(text)

    def answer(self, prompt: str, text: str, end: str = ENTER) -> None:
        """Wait for a prompt, until keys go to the program and are not shown by the terminal; then type ``text``."""
        self.wait_for(prompt)
        end_at = time.monotonic() + PATIENCE
        while self.cooked:
            assert time.monotonic() < end_at, f"nobody reads after {prompt!r}"
            time.sleep(0.01)
        self.press(text + end)

    @property
    def cooked(self) -> bool:
        """Whether the terminal itself handles keys, such as Ctrl-C, since no program reads them one by one."""
        import termios  # which Windows has not

        return bool(termios.tcgetattr(self.leader)[3] & termios.ICANON)

    def interrupt(self, shown: str, interrupt: Callable[[], object] | None = None) -> None:
        """Interrupt the program while it reads no keys, until it shows ``shown``: by Ctrl-C, or in another way."""
        end_at = time.monotonic() + PATIENCE
        while shown not in self.shown[self._seen :]:
            assert time.monotonic() < end_at, f"no {shown!r} in {self.shown[self._seen :]!r}"
            if self.cooked:
                interrupt() if interrupt is not None else self.press(CTRL_C)
            with self._changed:
                self._changed.wait_for(lambda: shown in self.shown[self._seen :], 0.5)
        self.wait_for(shown)

    def press(self, keys: str) -> None:
        os.write(self.leader, keys.encode())

    def hang_up(self) -> None:
        """End the program: the test has failed."""
        os.kill(os.getpid(), signal.SIGTERM)
