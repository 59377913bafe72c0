"""Detached calls: they go on without the request that made them, and are found again by their id. The MCP bridge and
the web server share this."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from ...artifacts import Scope
from ...errors import ABPError, CapabilityError, LedgerError, UsageError
from ...protocol.payloads import ElicitationRequest
from ...routing import Result
from ...session.events import CallFinished
from ...session.handles import CallStatus
from ...tasks import finished
from .activity import Activity
from .apps import PendingCall
from .call_ledger import CallLedger
from .call_record import CallRecord, question_document, result_document
from .kept_call import KeptCall

__all__ = ["DetachedCalls", "LiveCall", "MakeContent"]

logger = logging.getLogger("transports")

#: Makes of the end of a call what its surface shows of it, as JSON.
MakeContent = Callable[[CallFinished], Awaitable[bytes]]
#: Seconds for cancelled calls to end.
_CLOSE_TIMEOUT = 5.0
#: Seconds between two checks of a call that another server of the same state runs.
_POLL_INTERVAL = 1.0
#: Calls of earlier servers that a server knows from its beginning.
_MAX_RESTORED = 200


@dataclass(eq=False)
class LiveCall:
    """A detached call under way. ``pending`` answers the app's questions; ``task`` ends when what became of the call is
    kept."""

    record: CallRecord
    pending: PendingCall
    task: asyncio.Task[None] = field(init=False)


class DetachedCalls:
    """The detached calls of one server. A request for one names a scope: calls outside of it do not exist for them.

    ``ledger`` keeps what became of them; without one they are kept in memory. ``activity`` logs them as well."""

    def __init__(self, ledger: CallLedger | None = None, activity: Activity | None = None) -> None:
        self.ledger = ledger or CallLedger()
        self._activity = activity
        self._live: dict[str, LiveCall] = {}

    async def restore(self) -> None:
        """Have the activity log know the calls of earlier servers."""
        if self._activity is not None:
            known = await self.ledger.calls(Scope(), _MAX_RESTORED)
            self._activity.restore([record for record in known if record.status.final])

    async def aclose(self) -> None:
        """Cancel all calls, keep that, and close the ledger. Idempotent."""
        await self.cancel_all()
        await self.ledger.aclose()

    async def cancel_all(self) -> None:
        """Cancel all calls, in their apps too, and wait for them."""
        tasks = [live.task for live in self._live.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT)

    async def start(
        self, record: CallRecord, pending: PendingCall, work: Awaitable[Result], content: MakeContent | None = None
    ) -> LiveCall:
        """Keep ``record``, then await ``work`` in a task of its own, and keep what became of it.

        Raises :class:`~transports.errors.UsageError` (``LIMIT_REACHED``) and
        :class:`~transports.errors.LedgerError`; then ``work`` is not begun."""
        try:
            await self.ledger.add(record)
        except BaseException as error:
            if asyncio.iscoroutine(work):
                work.close()
            if isinstance(error, asyncio.CancelledError):  # it is noted all the same
                await finished(asyncio.ensure_future(self._never_began(record)))
            raise
        live = self._live[record.id] = LiveCall(record, pending)
        if self._activity is not None:
            self._activity.call_started(record)
        live.task = asyncio.ensure_future(self._run(live, work, content))
        return live

    async def _run(self, live: LiveCall, work: Awaitable[Result], content: MakeContent | None) -> None:
        started, result, error = time.perf_counter(), None, None
        capability = live.record.capability
        try:
            result = await work
        except ABPError as raised:
            error = raised
        except asyncio.CancelledError:
            error = _cancelled(capability)
        except Exception as raised:
            logger.exception("the call of %s failed", capability)
            error = ABPError(f"this should not have happened ({type(raised).__name__}); the log has more")
        duration = (time.perf_counter() - started) * 1000
        event = CallFinished(live.record.id, capability, duration, result, error)
        await finished(asyncio.ensure_future(self._keep(live, event, content)))

    async def _keep(self, live: LiveCall, event: CallFinished, content: MakeContent | None) -> None:
        made = None
        try:
            try:
                made = await content(event) if content is not None else None
            except Exception:
                logger.exception("what call %s answered cannot be shown", event.call)
            await self._finish(live.record, event, made)
        finally:
            del self._live[event.call]
            if self._activity is not None:  # the session reports the end too, except where it had closed before
                self._activity.call_finished(event)

    async def _never_began(self, record: CallRecord) -> None:
        await self._finish(record, CallFinished(record.id, record.capability, 0.0, None, _cancelled(record.capability)))

    async def _finish(self, record: CallRecord, event: CallFinished, made: bytes | None = None) -> None:
        try:
            await self.ledger.finish(record.ended(event), result_document(event), made)
        except LedgerError as error:
            logger.warning("what became of call %s is not kept: %s", record.id, error.message)

    def question_changed(self, call: str, question: ElicitationRequest | None) -> None:
        """The app asks ``question``; ``None`` once it has its answer."""
        if live := self._live.get(call):
            status = CallStatus.INPUT_REQUIRED if question else CallStatus.WORKING
            asked = question_document(question) if question else None
            live.record = replace(live.record, status=status, question=asked)
            if self._activity is not None:
                self._activity.question_changed(call, question)

    def live(self, call: str, scope: Scope) -> LiveCall | None:
        """Return a call that is under way here and that ``scope`` covers, or ``None``."""
        live = self._live.get(call)
        return live if live is not None and scope.covers(live.record.scope) else None

    async def get(self, call: str, scope: Scope, *, wait: float = 0.0) -> KeptCall:
        """Return a call as it is now, or as it is when it has ended within ``wait`` seconds.

        Raises :class:`~transports.errors.UsageError` (``CALL_NOT_FOUND``) for one that ``scope`` does not cover, and
        one that is known no longer."""
        live, until = self.live(call, scope), time.monotonic() + wait
        if live is not None and wait > 0:
            await asyncio.wait((live.task,), timeout=wait)
            live = self.live(call, scope)
        if live is not None:
            return KeptCall(live.record)
        kept = await self.ledger.get(call, scope)
        while kept is not None and not kept.record.status.final and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _POLL_INTERVAL))
            kept = await self.ledger.get(call, scope)
        if kept is None:
            raise UsageError(f"there is no call {call[:100]!r} (any more)", code="CALL_NOT_FOUND")
        return kept

    async def calls(self, scope: Scope, limit: int) -> list[CallRecord]:
        """Return the newest calls, oldest first."""
        known = await self.ledger.calls(scope, limit)
        return [live.record if (live := self._live.get(record.id)) else record for record in known]

    async def cancel(self, call: str, scope: Scope) -> KeptCall:
        """Cancel a call, in the app too, and return what became of it. One that has ended stays as it is.

        Raises :class:`~transports.errors.UsageError`: ``CALL_NOT_FOUND``, and ``CALL_ELSEWHERE`` for a call that
        another server of the same state runs."""
        if live := self.live(call, scope):
            live.task.cancel()
            await asyncio.wait((live.task,), timeout=_CLOSE_TIMEOUT)
        kept = await self.get(call, scope)
        if live is None and not kept.record.status.final:
            raise UsageError("another server runs this call; cancel it there", code="CALL_ELSEWHERE")
        return kept


def _cancelled(capability: str) -> CapabilityError:
    error = CapabilityError(f"{capability}: cancelled", code="CANCELLED")
    error.cancelled = True
    return error
