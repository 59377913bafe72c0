"""Calls that go on without anybody who waits for them: a handle tells their state, their result, and cancels them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum

from ..errors import ABPError, CapabilityError
from ..errors.tracebacks import short_traceback
from ..errors.transport import may_have_run
from ..routing import Result
from ..tasks import cancel_and_wait

__all__ = ["CallHandle", "CallStatus"]


class CallStatus(StrEnum):
    """The state of a call, in the words of MCP's tasks and one more. The first two change; the others are final."""

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
    #: Nobody knows whether the call has run: the connection, or the server that had it, was lost meanwhile, or its time
    #: was up. It is never sent again.
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """Whether the call has ended."""
        return self not in (CallStatus.WORKING, CallStatus.INPUT_REQUIRED)

    @classmethod
    def of_error(cls, error: ABPError) -> CallStatus:
        """Return the state of a call that ended with ``error``."""
        if isinstance(error, CapabilityError) and (error.cancelled or error.code == "CANCELLED"):
            return cls.CANCELLED
        return cls.UNKNOWN if may_have_run(error) else cls.FAILED


class CallHandle:
    """A call under way, made by :meth:`Session.start <transports.session.session.Session.start>`.

    It belongs to its session, and ends with it. Any number may wait for its result; who stops waiting does not stop the
    call.
    """

    def __init__(
        self, call: str, capability: str, work: Coroutine[object, object, Result], asks: Callable[[str], bool]
    ) -> None:
        #: The id of the call, in events and in the ``source`` of what it stores.
        self.id = call
        #: The capability that is called.
        self.capability = capability
        self._asks = asks
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(_mark_retrieved)

    def __repr__(self) -> str:
        return f"<call {self.id} of {self.capability}>"

    async def status(self) -> CallStatus:
        """Return the state of the call, as of now.

        ABP does not say which call a question belongs to: of several calls under way the latest is taken."""
        if not self._task.done():
            return CallStatus.INPUT_REQUIRED if self._asks(self.id) else CallStatus.WORKING
        if self._task.cancelled():
            return CallStatus.CANCELLED
        error = self._task.exception()
        if error is None:
            return CallStatus.COMPLETED
        return CallStatus.of_error(error) if isinstance(error, ABPError) else CallStatus.FAILED

    @short_traceback
    async def result(self) -> Result:
        """Wait for the end of the call and return its result.

        Raises what :meth:`Session.call <transports.session.session.Session.call>` raises, and
        :class:`~transports.errors.CapabilityError` (``CANCELLED``) if the call was cancelled. Cancelling the awaiting
        task leaves the call alone."""
        await asyncio.wait((self._task,))
        if self._task.cancelled():
            error = CapabilityError(f"{self.capability}: cancelled by the client", code="CANCELLED")
            error.cancelled = True
            raise error
        return self._task.result()

    async def cancel(self) -> None:
        """Cancel the call, in the app too, and wait until it has ended, for a second at most. A call that has ended
        stays as it is."""
        await cancel_and_wait((self._task,))


def _mark_retrieved(task: asyncio.Task[Result]) -> None:
    """Nobody has to ask for the result: asyncio would log an error that nobody asked for."""
    if not task.cancelled():
        task.exception()
