"""How a call gets its answer: attempts, what is sent again and when, and telling the app that nobody waits any more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count

from ..base import Transport
from ..binary.detect import Found
from ..errors import ABPError, CallTimeout, CapabilityError, Disconnected, TransportError
from ..protocol.declarations import parse
from ..protocol.messages import Message
from ..protocol.payloads import Answer
from ..routing import Result
from ..tasks import MAX_DELAY, backoff_delay
from .events import CallFinished, CallStarted, Retrying
from .inbox import Inbox, OnProgress

__all__ = ["Calls"]

logger = logging.getLogger("transports")

#: Seconds for telling an app that its call is not wanted any more.
_CANCEL = 1.0
#: A call is tried at most this often.
_ATTEMPTS = 4
#: Errors that say that the app has forgotten the session: it is greeted again first.
_FORGOTTEN = {"NOT_INITIALIZED", "SESSION_EXPIRED", "SESSION_INVALID"}
#: Errors that say that the app refused before it ran anything; after any other the call may have run.
_NOT_RUN = _FORGOTTEN | {"RATE_LIMITED"}


class Calls:
    """The calls of one session. ``ready`` is set while there is a connection to an app that knows us; ``greet`` makes
    it know us, within so many seconds."""

    def __init__(self, transport: Transport, inbox: Inbox, greet: Callable[[float], Awaitable[None]]) -> None:
        self.ready = asyncio.Event()
        self._transport = transport
        self._inbox = inbox
        self._greet = greet
        self._greeting = asyncio.Lock()
        self._greeted = 0

    async def told(self, call: str, capability: str, work: Awaitable[Result]) -> Result:
        """What ``work`` gives, with an event before it and one after it."""
        self._inbox.tell(CallStarted(call, capability))
        started, result, error = time.perf_counter(), None, None
        try:
            result = await work
        except ABPError as raised:
            error = raised
            raise
        except asyncio.CancelledError:
            error = CapabilityError(f"{capability}: cancelled by the client", code="CANCELLED")
            raise
        finally:
            duration = (time.perf_counter() - started) * 1000
            self._inbox.tell(CallFinished(call, capability, duration, result, error))
        return result

    async def answered(
        self,
        call: str,
        capability: str,
        payload: Mapping[str, object],
        content: Sequence[Found],
        *,
        timeout: float,
        on_progress: OnProgress | None,
        idempotent: bool,
    ) -> tuple[Message, Answer]:
        """The reply to a call and the app's answer in it, within ``timeout`` seconds, however many attempts that takes.
        Raises what :meth:`Session.call <transports.session.session.Session.call>` does."""
        deadline, seconds = time.monotonic() + timeout, timeout
        for attempt in count(1):
            greeted = self._greeted
            try:
                if not self.ready.is_set():
                    await self._reconnected(deadline)
                    seconds = _left(deadline)
                sent = call if attempt == 1 else str(uuid.uuid4())
                reply = await self._sent(sent, call, capability, payload, content, seconds, on_progress)
                answer = parse(Answer, reply.payload, f"the app's answer to {capability}")
                answer.raise_for_error(capability)
                return reply, answer
            except ABPError as error:
                pause = self._pause(error, attempt, idempotent)
                if pause is None or time.monotonic() + pause >= deadline:
                    raise
                logger.info("%s; it is sent again in %.1f s", error.message, pause)
                self._inbox.tell(Retrying(capability, attempt, pause, error))
                if isinstance(error, Disconnected):
                    self.ready.clear()  # until the transport says that it is back
                await asyncio.sleep(pause)
                if error.code in _FORGOTTEN:
                    await self._known_again(greeted, deadline)
                seconds = _left(deadline)
        raise AssertionError("unreachable")

    def _pause(self, error: ABPError, attempt: int, idempotent: bool) -> float | None:
        """Seconds until the call may be sent again; ``None`` if it must not be."""
        if isinstance(error, Disconnected):
            unsent = error.details.get("sent") is False
            return 0.0 if self._transport.features.reconnects and (idempotent or unsent) else None
        if not error.retryable or attempt >= _ATTEMPTS or not (idempotent or error.code in _NOT_RUN):
            return None
        if error.retry_after is not None:
            return min(error.retry_after, MAX_DELAY)
        return 0.0 if error.code in _FORGOTTEN else backoff_delay(attempt)

    async def _known_again(self, greeted: int, deadline: float) -> None:
        async with self._greeting:
            if self._greeted == greeted:  # else another call has seen to it
                await self._greet(_left(deadline))
                self._greeted += 1

    async def _reconnected(self, deadline: float) -> None:
        try:
            await asyncio.wait_for(self.ready.wait(), _left(deadline))
        except TimeoutError as error:
            raise Disconnected("the connection was not there again in time; call again later") from error

    async def _sent(
        self,
        attempt: str,
        call: str,
        capability: str,
        payload: Mapping[str, object],
        content: Sequence[Found],
        seconds: float,
        on_progress: OnProgress | None,
    ) -> Message:
        """One attempt."""
        options = {"timeout": math.ceil(seconds * 1000), "progressToken": attempt, "callId": attempt}
        message = Message("capabilities/call", {**payload, "options": options}, id=attempt, content=content)
        self._inbox.begin(attempt, call, on_progress)
        try:
            return await self._transport.request(message, timeout=seconds)
        except CallTimeout as error:
            await self._cancel(attempt, "timeout")
            raise CallTimeout(f"{capability}: {error.message}") from error
        except asyncio.CancelledError:
            await self._cancel(attempt, "cancelled by the client")
            raise
        finally:
            self._inbox.end(attempt)

    async def _cancel(self, call_id: str, reason: str) -> None:
        message = Message("capabilities/cancel", {"callId": call_id, "reason": reason})
        with contextlib.suppress(TransportError):
            await self._transport.request(message, timeout=_CANCEL)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)
