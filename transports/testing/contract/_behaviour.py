"""Types :class:`Behaviour` and :class:`Subject`, and helpers for writing behaviours.

Failure messages are for readers who have never seen this code: they state the action, the expectation and the result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...artifacts._base import ArtifactStore
from ...base import Transport
from ...errors import ABPError, CallTimeout
from ...protocol.messages import Message, initialize_params
from ...session._connect import connect
from ...session._dispatch import OnElicitation, OnNotification, OnProgress
from ...session._session import Session

#: Maximum characters of a value in a message.
_MAX_CHARS = 300

E_ = TypeVar("E_", bound=BaseException)


@dataclass(frozen=True, slots=True)
class Subject:
    """Transport under test.

    ``transport`` returns a new, unopened transport to the reference app (:mod:`webapp_fixture`). ``folder`` is an empty
    folder for files. ``target`` is the app's address if it has a page, so that sessions read its manifest too.
    ``timeout`` in seconds is the limit for one behaviour, ``answer_timeout`` for opening a session and for one request.
    """

    transport: Callable[[], Transport]
    folder: Path
    target: str = "contract:"
    timeout: float = 60.0
    answer_timeout: float = 15.0
    #: Requests that ended without an answer, in order.
    unanswered: list[Message] = field(default_factory=list, init=False, repr=False)

    def new_transport(self) -> Transport:
        """Return a new, unopened transport that records its unanswered requests."""
        transport = self.transport()
        request = transport.request

        async def noting(message: Message, *, timeout: float) -> Message:
            try:
                return await request(message, timeout=timeout)
            except CallTimeout:
                self.unanswered.append(message)
                raise

        with contextlib.suppress(AttributeError):  # a class with slots allows no such patch
            transport.request = noting  # type: ignore[method-assign]
        return transport

    def connect(
        self,
        *,
        store: ArtifactStore | str | Path | None = None,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        on_elicitation: OnElicitation | None = None,
    ) -> Session:
        """Return an unopened session over a new transport.

        Artifacts go to ``folder / "out"`` unless ``store`` is given. The callbacks are those of
        :func:`transports.connect`.
        """
        return connect(
            self.target,
            transport=self.new_transport(),
            store=store or self.folder / "out",
            timeout=self.answer_timeout,
            on_progress=on_progress,
            on_notification=on_notification,
            on_elicitation=on_elicitation,
        )


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Required behaviour of every transport.

    ``source`` cites its specification: a section of docs/protocol.md, a row of docs/faults.md, an RFC, or a name in the
    code such as ``transports.base.Transport.events``. ``check`` raises :class:`AssertionError` if it does not hold.
    """

    name: str
    source: str
    check: Callable[[Subject], Awaitable[None]] = field(repr=False)

    def __str__(self) -> str:
        """Return the id of a test: ``calls: text arrives as it was sent``. ``pytest -k calls:`` selects a theme."""
        return f"{self.theme}: {self.name}"

    @property
    def theme(self) -> str:
        """Name of the defining module: ``calls``, ``faults``."""
        return self.check.__module__.rpartition(".")[2].removeprefix("_")


def behaviour(name: str, source: str) -> Callable[[Callable[[Subject], Awaitable[None]]], Behaviour]:
    """Return a decorator that turns a checking coroutine function into a :class:`Behaviour`."""
    return lambda check: Behaviour(name, source, check)


# --- for the behaviours -----------------------------------------------------------------------------------------------


def expect(actual: object, expected: object, what: str) -> None:
    """Raise :class:`AssertionError` unless both are equal. ``what`` names the value for the message."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {_short(expected)}, got {_short(actual)}")


@dataclass(slots=True)
class Caught(Generic[E_]):
    """Holder of the ``error`` that :func:`raises` caught. Unset until its block has ended."""

    error: E_ = field(init=False)


@contextmanager
def raises(kind: type[E_], what: str, *, code: str | None = None) -> Iterator[Caught[E_]]:
    """Expect the block to raise ``kind``, with ``code`` if given. ``what`` describes the action of the block.

    Any other error of the app or the system, or none, is an :class:`AssertionError`.
    """
    caught: Caught[E_] = Caught()
    try:
        yield caught
    except kind as error:
        caught.error = error
        if code is not None:
            expect(getattr(error, "code", None), code, f"the code of {error!r} after {what}")
        return
    except (ABPError, OSError, ValueError, LookupError) as error:
        raise AssertionError(f"{what}: expected {kind.__name__}, got {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what}: expected {kind.__name__}, but nothing was raised")


async def until(condition: Callable[[], bool], what: str, *, seconds: float = 5.0) -> None:
    """Wait until ``condition`` is true. Raise :class:`AssertionError` if it is not within ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {seconds:g} s") from None


def value(tree: object, *path: str | int) -> Any:
    """Return the value at ``path`` in an answer. Raise :class:`AssertionError` if there is none."""
    for step in path:
        try:
            tree = tree[step]  # type: ignore[index]
        except (LookupError, TypeError):
            raise AssertionError(f"the answer has no {'.'.join(map(str, path))}: {_short(tree)}") from None
    return tree


@asynccontextmanager
async def initialized(subject: Subject) -> AsyncIterator[Transport]:
    """Open a transport without a session and initialize the app. Closes at the end."""
    async with subject.new_transport() as transport:
        await transport.request(initialize_request(), timeout=subject.answer_timeout)
        yield transport


def initialize_request() -> Message:
    """Return the first message of a client (docs/protocol.md 2.2)."""
    return Message("initialize", initialize_params("contract"), id="initialize")


def call(capability: str, key: str, **params: object) -> Message:
    """Return a call in the form that sessions send. ``key`` is its callId, its progressToken and the message's id."""
    options = {"callId": key, "progressToken": key, "timeout": 30_000}
    return Message("capabilities/call", {"capability": capability, "params": params, "options": options}, id=key)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}… ({len(text)} characters)"
