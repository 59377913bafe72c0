"""Calls of a session."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from .._internal.arguments import short_traceback
from .._internal.tasks import Owner, cancel_and_wait, mark_retrieved
from ..errors import ABPError, CapabilityError, may_have_run
from ..protocol._find_content import Found
from ..protocol._times import checked_timeout
from ..protocol.messages import ServerCall
from ..routing._result import Result

if TYPE_CHECKING:
    from ..protocol._payloads import Progress

OnProgress: TypeAlias = Callable[["Progress"], object]
#: Whether a call that was sent may be sent again: never; only if it cannot have run; even if it may have run.
Repeats: TypeAlias = Literal["never", "not run", "idempotent"]


@dataclass(slots=True, eq=False)
class Call:
    """One call of a capability, or of a page tool such as ``screenshot``.

    ``timeout`` in seconds is for the app's answer. ``params`` are JSON values and the ``content`` among them.
    ``output_schema`` is the capability's, ``started`` is a time of :func:`time.perf_counter`. ``refused`` are reasons
    why answers of the elicitation handler were refused during the call, ``unanswered`` is the note on a question that
    was declined for lack of a handler.
    """

    id: str
    capability: str
    timeout: float
    on_progress: OnProgress | None = None
    repeats: Repeats = "not run"
    params: object = field(default_factory=dict)
    content: Sequence[Found] = ()
    output_schema: Mapping[str, object] | None = None
    started: float = field(default_factory=time.perf_counter)
    warnings: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unanswered: str = ""
    result: Result | None = None
    error: ABPError | None = None

    @property
    def finished_result(self) -> Result:
        assert self.result is not None
        return self.result

    @property
    def duration(self) -> float:
        """Seconds since the call began."""
        return time.perf_counter() - self.started

    def fail(self, error: ABPError) -> None:
        """Let the call end with ``error``, even if it has a result already."""
        self.result = None
        self.error = error


#: The list of :func:`keeping_server_calls` in whose block the code runs.
server_calls: ContextVar[list[ServerCall] | None] = ContextVar("server_calls", default=None)


@contextlib.contextmanager
def keeping_server_calls() -> Iterator[list[ServerCall]]:
    """Collect the calls of MCP servers' tools that begin in this block, in the form that the tools' views get."""
    calls: list[ServerCall] = []
    token = server_calls.set(calls)
    try:
        yield calls
    finally:
        server_calls.reset(token)


class CallStatus(StrEnum):
    """State of a call: the states of MCP's tasks, and ``unknown``. The first two change; the others are final."""

    #: The app has the call, or is about to get it.
    WORKING = "working"
    #: The app has asked a question and waits for the answer.
    INPUT_REQUIRED = "input_required"
    #: The call has a result.
    COMPLETED = "completed"
    #: The app refused, or its answer could not be used.
    FAILED = "failed"
    #: The call was cancelled, here or in the app.
    CANCELLED = "cancelled"
    #: It is not known whether the call has run: the connection or the server was lost, or the timeout expired. The call
    #: is never sent again.
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """True if the call has ended."""
        return self not in (CallStatus.WORKING, CallStatus.INPUT_REQUIRED)

    @classmethod
    def of_error(cls, error: ABPError) -> CallStatus:
        """Return the state of a call that ended with ``error``."""
        if isinstance(error, CapabilityError) and (error.cancelled or error.code == "CANCELLED"):
            return cls.CANCELLED
        return cls.UNKNOWN if may_have_run(error) else cls.FAILED


class CallHandle:
    """Handle of a running call, made by :meth:`Session.start <transports.session._session.Session.start>`.

    The call belongs to its session and ends with it. Any number of tasks may wait for :meth:`result`. Cancelling one of
    them does not cancel the call; :meth:`cancel` and closing the session do.
    """

    def __init__(
        self,
        call: str,
        capability: str,
        work: Coroutine[object, object, Result],
        asks: Callable[[str], bool],
        owner: Owner,
    ) -> None:
        #: The id of the call, in events and in the ``source`` of its artifacts.
        self.id = call
        #: The capability that is called.
        self.capability = capability
        self._asks = asks
        self._owner = owner
        self._task = asyncio.ensure_future(work)
        # result() is optional.
        self._task.add_done_callback(mark_retrieved)

    def __repr__(self) -> str:
        return f"<call {self.id} of {self.capability}>"

    async def status(self) -> CallStatus:
        """Return the current state of the call.

        An ABP question does not name its call; with several running calls, it counts as a question of the latest."""
        if not self._task.done():
            return CallStatus.INPUT_REQUIRED if self._asks(self.id) else CallStatus.WORKING
        if self._task.cancelled():
            return CallStatus.CANCELLED
        error = self._task.exception()
        if error is None:
            return CallStatus.COMPLETED
        if isinstance(error, ABPError):
            return CallStatus.of_error(error)
        return CallStatus.FAILED

    @short_traceback
    async def result(self) -> Result:
        """Wait for the end of the call and return its result.

        Raises the errors of :meth:`Session.call <transports.session._session.Session.call>`, and
        :class:`~transports.errors.CapabilityError` (``CANCELLED``) if the call was cancelled. Cancelling ``result()``
        does not cancel the call."""
        self._owner.require_same_loop()
        await asyncio.wait((self._task,))
        if self._task.cancelled():
            error = CapabilityError(f"{self.capability}: cancelled by the client", code="CANCELLED")
            error.cancelled = True
            raise error
        return self._task.result()

    async def cancel(self) -> None:
        """Cancel the call, in the app too, and wait for its end, for a second at most. No effect on an ended call."""
        self._owner.require_same_loop()
        await cancel_and_wait((self._task,))


def timeout_seconds(timeout: float | None, default: float) -> float:
    """Return a timeout in seconds: ``timeout`` (seconds) or, if it is ``None``, ``default`` (**milliseconds**)."""
    return default / 1000 if timeout is None else checked_timeout(timeout)
