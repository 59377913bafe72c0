"""Types of the contract suite, and helpers for writing behaviours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ..._internal.tasks import discard_unawaited
from ...artifacts._base import ArtifactStore
from ...base import Transport
from ...protocol.messages import Message, initialize_params
from ...session._call import OnProgress
from ...session._connect import connect
from ...session._dispatch import OnElicitation, OnNotification
from ...session._session import Session

T = TypeVar("T")


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
            transport=self.transport(),
            store=store or self.folder / "out",
            timeout=self.answer_timeout,
            on_progress=on_progress,
            on_notification=on_notification,
            on_elicitation=on_elicitation,
        )


SubjectCheck: TypeAlias = Callable[[Subject], Awaitable[None]]
SessionCheck: TypeAlias = Callable[[Session], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Required behaviour of every transport.

    ``source`` cites its specification: a section of docs/protocol.md, a row of docs/faults.md, an RFC, or a name in the
    code such as ``transports.base.Transport.events``. ``check`` asserts it. ``theme`` is its group: ``calls``.
    """

    name: str
    source: str
    check: SubjectCheck = field(repr=False)
    theme: str

    def __str__(self) -> str:
        """Return the id of a test: ``calls: text arrives as it was sent``. ``pytest -k calls:`` selects a theme."""
        return f"{self.theme}: {self.name}"


#: All behaviours, in the order in which they are defined.
REGISTERED: list[Behaviour] = []


class Theme:
    """Decorators that register a check: one that opens transports itself, or one that gets a session."""

    def __init__(self, theme: str) -> None:
        self._theme = theme

    def __call__(self, name: str, source: str) -> Callable[[SubjectCheck], SubjectCheck]:
        def add(check: SubjectCheck) -> SubjectCheck:
            REGISTERED.append(Behaviour(name, source, check, self._theme))
            return check

        return add

    def in_session(self, name: str, source: str) -> Callable[[SessionCheck], SubjectCheck]:
        def add(check: SessionCheck) -> SubjectCheck:
            async def check_session(subject: Subject) -> None:
                async with subject.connect() as session:
                    await check(session)

            return self(name, source)(check_session)

        return add


@asynccontextmanager
async def running(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """If ``work`` is still running when the block ends, cancel it. Its exception is dropped unless the block awaits it:
    after a failed assertion asyncio would log it."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        discard_unawaited(task)
        await asyncio.wait((task,), timeout=10)


async def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 5.0) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {seconds:g} s") from None


def value_at(tree: object, *path: str | int) -> Any:
    for step in path:
        try:
            tree = tree[step]  # type: ignore[index]
        except (LookupError, TypeError):
            raise AssertionError(f"the answer has no {'.'.join(map(str, path))}: {_short_repr(tree)}") from None
    return tree


@asynccontextmanager
async def initialized(subject: Subject) -> AsyncIterator[Transport]:
    """Open a transport without a session."""
    async with subject.transport() as transport:
        await transport.request(initialize_request(), timeout=subject.answer_timeout)
        yield transport


def initialize_request() -> Message:
    return Message("initialize", initialize_params("contract"), id="initialize")


def call_message(capability: str, key: str, **params: object) -> Message:
    """``key`` is the callId, the progressToken and the message's id."""
    options = {"callId": key, "progressToken": key, "timeout": 30_000}
    return Message("capabilities/call", {"capability": capability, "params": params, "options": options}, id=key)


def _short_repr(value: object) -> str:
    text = repr(value)
    if len(text) > 300:
        return f"{text[:300]}… ({len(text)} characters)"
    return text
