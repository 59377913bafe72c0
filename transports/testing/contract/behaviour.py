"""What a behaviour is, what it is tried on, and the words of its checks. Messages are for somebody who sees this code
for the first time: they say what was asked, what was wanted and what came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...artifacts import ArtifactStore
from ...base import Transport
from ...errors import ABPError
from ...protocol.initialize import initialize_params
from ...protocol.messages import Message
from ...session.connect import connect
from ...session.inbox import OnElicitation, OnNotification, OnProgress
from ...session.session import Session

__all__ = ["Behaviour", "Caught", "Subject", "behaviour", "expect", "greeted", "raises", "until", "value"]

#: Characters of a value that a message shows.
_SHOWN = 300

E_ = TypeVar("E_", bound=BaseException)


@dataclass(frozen=True, slots=True)
class Subject:
    """The transport that is tried: ``transport`` makes a new one, not yet opened, to the reference app
    (:mod:`webapp_fixture`); ``folder`` is an empty one for files. ``target`` is the app's address where it has a page,
    whose manifest a session reads too. ``timeout`` in seconds is for one behaviour."""

    transport: Callable[[], Transport]
    folder: Path
    target: str = "contract:"
    timeout: float = 60.0

    def connect(
        self,
        *,
        store: ArtifactStore | str | Path | None = None,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        on_elicitation: OnElicitation | None = None,
    ) -> Session:
        """A session over a new transport; artifacts go to the folder ``out`` of ``folder``."""
        return connect(
            self.target,
            transport=self.transport(),
            store=store or self.folder / "out",
            on_progress=on_progress,
            on_notification=on_notification,
            on_elicitation=on_elicitation,
        )


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One thing that holds for every transport. ``source`` is where that is written: a section of PROTOCOL, a row of
    FAULTS, a seed, or the contract in :mod:`transports.base`. ``check`` raises :class:`AssertionError`."""

    name: str
    source: str
    check: Callable[[Subject], Awaitable[None]] = field(repr=False)

    def __str__(self) -> str:
        """For a test's id, so that ``pytest -k`` takes themes too."""
        return f"{self.theme}: {self.name}"

    @property
    def theme(self) -> str:
        """The last part of its module's name: ``calls``, ``faults``."""
        return self.check.__module__.rpartition(".")[2]


def behaviour(name: str, source: str) -> Callable[[Callable[[Subject], Awaitable[None]]], Behaviour]:
    """Makes a :class:`Behaviour` of the coroutine function that checks it."""
    return lambda check: Behaviour(name, source, check)


# --- for the behaviours -----------------------------------------------------------------------------------------------


def expect(seen: object, wanted: object, what: str) -> None:
    """Both must be equal; ``what`` says what was seen."""
    if seen != wanted:
        raise AssertionError(f"{what}: wanted {_shown(wanted)}, saw {_shown(seen)}")


@dataclass(slots=True)
class Caught(Generic[E_]):
    """What :func:`raises` caught."""

    error: E_ = field(init=False)


@contextmanager
def raises(kind: type[E_], what: str, *, code: str | None = None) -> Iterator[Caught[E_]]:
    """What is done inside must raise ``kind`` with that code; ``what`` says what was done."""
    caught: Caught[E_] = Caught()
    try:
        yield caught
    except kind as error:
        caught.error = error
        if code is not None:
            expect(getattr(error, "code", None), code, f"the code of {error!r} after {what}")
        return
    except (ABPError, OSError, ValueError, LookupError) as error:
        raise AssertionError(f"{what}: wanted {kind.__name__}, saw {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what}: wanted {kind.__name__}, and nothing was raised")


async def until(condition: Callable[[], bool], what: str, *, seconds: float = 5.0) -> None:
    """Wait until it is true, but not for ever."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {seconds:g} s") from None


def value(tree: object, *path: str | int) -> Any:
    """What stands at a place of an answer."""
    for step in path:
        try:
            tree = tree[step]  # type: ignore[index]
        except (LookupError, TypeError):
            raise AssertionError(f"the answer has no {'.'.join(map(str, path))}: {_shown(tree)}") from None
    return tree


@asynccontextmanager
async def greeted(subject: Subject) -> AsyncIterator[Transport]:
    """A transport by itself, opened, to an app that has been greeted."""
    async with subject.transport() as transport:
        await transport.request(hello(), timeout=30)
        yield transport


def hello() -> Message:
    """What a client says first (PROTOCOL "The page object")."""
    return Message("initialize", initialize_params("contract"), id="hello")


def call(capability: str, key: str, **params: object) -> Message:
    """A call as a session makes it. ``key`` is its ``callId``."""
    options = {"callId": key, "progressToken": key, "timeout": 30_000}
    return Message("capabilities/call", {"capability": capability, "params": params, "options": options}, id=key)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
