"""Calls in progress on one connection: ids, timeouts, progress, cancellation and answers."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from webapp_fixture.csvtext import number_text
from webapp_fixture.errors import AbpError, Cancelled, RawAnswer, describe_error
from webapp_fixture.validate import validate_params

Json = dict[str, Any]
#: Cancelled calls that are remembered, so that a second cancellation has the same answer; also entries of the record.
REMEMBERED = 1000


@dataclass(slots=True)
class Record:
    """Record of what the app saw on one connection; ``app.record`` answers it."""

    calls: list[Json] = field(default_factory=list)
    cancelled: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)

    def push(self, entries: list[Json], **entry: Any) -> Json:
        """Add an entry with the time in Unix ms. The oldest entries are dropped when there are too many."""
        stamped = {**entry, "at": int(time.time() * 1000)}
        entries.append(stamped)
        del entries[: -2 * REMEMBERED]
        return stamped

    def as_json(self) -> Json:
        """Return a copy as JSON. ``first`` and ``handedOut`` are about a page, which a socket does not have."""
        copies = {name: [dict(entry) for entry in getattr(self, name)] for name in ("calls", "cancelled", "events")}
        return {**copies, "first": None, "handedOut": []}


@dataclass(frozen=True, slots=True)
class Context:
    """The means of a handler to report and to ask."""

    call_id: str
    progress: Callable[..., Awaitable[None]]
    """Report: ``progress, total?, status?, stage?``."""
    notify: Callable[[str, Json], Awaitable[None]]
    elicit: Callable[[Json], Awaitable[Json]]


Handler = Callable[[Json, Context], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Capability:
    """A definition, as listed, and its handler."""

    definition: Json
    handler: Handler


@dataclass(frozen=True, slots=True)
class Ticket:
    """A call that was begun and has not ended."""

    name: Any
    call_id: str
    operation_id: Any
    timeout: Any
    stopped: asyncio.Future[str]
    timer: asyncio.TimerHandle | None
    entry: Json
    started: float = field(default_factory=time.perf_counter)


class Calls:
    """The calls of one connection. ``send(type, payload)`` sends a message to the client; ``elicit`` asks it."""

    def __init__(
        self,
        capabilities: dict[str, Capability],
        record: Record,
        send: Callable[[str, Json], Awaitable[None]],
        elicit: Callable[[Json], Awaitable[Json]],
    ) -> None:
        self.capabilities = capabilities
        self.record = record
        self.running: dict[str, Ticket] = {}
        self._send = send
        self._elicit = elicit
        self._cancelled: dict[str, Json] = {}

    def _context(self, ticket: Ticket) -> Context:
        async def progress(**report: Any) -> None:
            if ticket.stopped.done():
                return
            total = report.get("total")
            if total:
                report = {"percentage": round(report["progress"] / total * 100, 1), **report}
            await self._send("progress", {"operationId": ticket.operation_id, **report})

        async def notify(event: str, data: Json) -> None:
            await self._send("notification", {"event": event, "data": data})

        return Context(ticket.call_id, progress, notify, self._elicit)

    def begin(self, name: Any, options: Json) -> Ticket:
        """Begin a call, which can be cancelled from now on. Raises :class:`AbpError` if its id is in use."""
        call_id = options.get("callId", "") or str(uuid.uuid4())
        if not isinstance(call_id, str):
            raise AbpError("INVALID_TYPE", "options.callId must be string")
        if call_id in self.running:
            raise AbpError("INVALID_PARAMS", f"callId {call_id} belongs to a call that is still running")
        loop = asyncio.get_running_loop()
        entry = self.record.push(self.record.calls, callId=call_id, capability=name, state="running")
        stopped = loop.create_future()
        timeout = options.get("timeout")
        timer = None
        if isinstance(timeout, int | float) and timeout > 0:
            timer = loop.call_later(timeout / 1000, self._stop, stopped, "timeout")
        operation_id = options.get("progressToken", call_id)
        ticket = Ticket(name, call_id, operation_id, timeout, stopped=stopped, timer=timer, entry=entry)
        self.running[call_id] = ticket
        return ticket

    async def finish(self, ticket: Ticket, params: Any) -> Any:
        """Run a call and return its answer, as ``window.abp.call`` returns it."""
        context = self._context(ticket)
        try:
            answer = _answer_of(ticket, await self._result(ticket, params, context))
        finally:
            del self.running[ticket.call_id]
            if ticket.timer is not None:
                ticket.timer.cancel()
        duration = round((time.perf_counter() - ticket.started) * 1000, 1)
        if isinstance(answer, RawAnswer):
            ticket.entry.update(state="raw", duration=duration)
            return answer.value
        state = "failed"
        if answer.get("cancelled"):
            state = "cancelled"
        elif answer["success"]:
            state = "succeeded"
        ticket.entry.update(state=state, duration=duration)
        return {**answer, "metadata": {"duration": duration}}

    async def _result(self, ticket: Ticket, params: Any, context: Context) -> Any:
        """Run a call until it ends or is stopped, and return what its handler returned or raised."""
        work = asyncio.ensure_future(self._run(ticket.name, params, context))
        ends: list[asyncio.Future[Any]] = [work]
        try:
            capability = self._capability(ticket.name)
            if capability is None or not capability.definition["features"].get("ignoresCancel"):
                ends.append(ticket.stopped)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()  # nothing happens if it is done
            ended: tuple[Any] = await asyncio.gather(work, return_exceptions=True)
        return ended[0]

    def _capability(self, name: Any) -> Capability | None:
        return self.capabilities.get(name) if isinstance(name, str) else None

    async def _run(self, name: Any, params: Any, context: Context) -> Any:
        capability = self._capability(name)
        if capability is None:
            group = str(name).split(".", maxsplit=1)[0]
            alternatives = [other for other in self.capabilities if other.split(".", maxsplit=1)[0] == group][:10]
            raise AbpError("UNKNOWN_CAPABILITY", f"unknown capability '{name}'", alternatives=alternatives)
        values = {} if params is None else params
        validate_params(values, capability.definition.get("inputSchema", {}))
        return await capability.handler(values, context)

    def cancel(self, call_id: Any, reason: Any) -> Json:
        """Cancel a call and return the answer, the same if asked again. It is ``cancelled: false`` for a call that is
        unknown or has ended."""
        self.record.push(self.record.cancelled, callId=call_id, reason=reason, form="message")
        if not isinstance(call_id, str):
            return {"callId": call_id, "cancelled": False}
        if call_id in self._cancelled:
            return dict(self._cancelled[call_id])
        ticket = self.running.get(call_id)
        if ticket is None or ticket.stopped.done():
            return {"callId": call_id, "cancelled": False}
        answer: Json = {"callId": call_id, "cancelled": True}
        if reason is not None:
            answer["reason"] = reason
        self._cancelled[call_id] = answer
        if len(self._cancelled) > REMEMBERED:
            del self._cancelled[next(iter(self._cancelled))]
        self._stop(ticket.stopped, str(reason) if reason else "cancelled")
        return dict(answer)

    def cancel_all(self, reason: str) -> None:
        """Cancel every call, as at the end of a session."""
        for ticket in self.running.values():
            self._stop(ticket.stopped, reason)

    def close(self) -> None:
        """Drop the calls that were begun and never run, with their timers."""
        for ticket in self.running.values():
            if ticket.timer is not None:
                ticket.timer.cancel()
        self.running.clear()

    @staticmethod
    def _stop(stopped: asyncio.Future[str], reason: str) -> None:
        if not stopped.done():
            stopped.set_result(reason)


def _answer_of(ticket: Ticket, result: Any) -> Json | RawAnswer:
    """Return the answer to a call, given what its handler returned or raised."""
    if isinstance(result, RawAnswer):
        return result
    if not isinstance(result, BaseException):
        return {"success": True, "data": result}
    stopped = ticket.stopped.done()
    if stopped and ticket.stopped.result() == "timeout":
        milliseconds = number_text(ticket.timeout)
        error = AbpError("TIMEOUT", f"{ticket.name} took longer than {milliseconds} ms", retryable=True)
        return {"success": False, "error": error.as_json(), "cancelled": True}
    if stopped or isinstance(result, Cancelled):
        return {"success": False, "cancelled": True}
    return {"success": False, "error": describe_error(result)}
