"""Attempts of a call: sent, sent again after a failure, cancelled in the app."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Sequence

from .._internal.tasks import MAX_DELAY, backoff_delay, cancel_and_wait, spawn
from .._internal.telemetry import annotate, traced
from ..artifacts._content import readable_copy
from ..base import Transport
from ..errors import ABPError, CallTimeout, CapabilityError, Disconnected, OutcomeUnknown, UsageError, no_answer
from ..protocol._capabilities import answered_data, unknown_members_warning
from ..protocol._find_content import Found, replace_values as replace_places
from ..protocol._strict_json import encode_json
from ..protocol._times import TIMER_TOLERANCE
from ..protocol.messages import Message, new_id
from ._call import Call, Repeats, server_calls
from ._connection import Connection, Handshake
from ._dispatch import EventDispatcher
from ._events import Retrying

logger = logging.getLogger("transports")

#: Codes for a session that the app has forgotten: the handshake is repeated before the call is sent again.
SESSION_LOST = {"NOT_INITIALIZED", "SESSION_EXPIRED", "SESSION_INVALID"}
#: Codes of an app that refused before it ran anything. After any other error the call may have run.
NOT_RUN = SESSION_LOST | {"RATE_LIMITED"}


class Attempts:
    """Attempts of the calls of one session. Calls wait while the ``connection`` is not ready."""

    def __init__(
        self,
        transport: Transport,
        events: EventDispatcher,
        connection: Connection,
        handshake: Handshake,
        *,
        trace_params: bool,
    ) -> None:
        self._transport = transport
        self._events = events
        self._connection = connection
        self._handshake = handshake
        self._trace_params = trace_params
        self._initializing = asyncio.Lock()
        self._handshakes = 0
        self._cancellations: set[asyncio.Task[None]] = set()

    async def send(self, call: Call) -> tuple[Message, object]:
        """Send a call, and send it again after errors that may pass. Return the reply and its data.

        The timeout of the call covers all attempts and the pauses between them."""
        if self._trace_params:
            _annotate_params(call.params, call.content)

        deadline = time.monotonic() + call.timeout
        attempt = 0
        while True:
            attempt += 1
            # Another call may repeat the handshake while this one is under way.
            handshakes = self._handshakes
            attempt_id = call.id if attempt == 1 else new_id()
            try:
                if self._cancellations or not self._connection.ready.is_set():
                    await self._wait_until_ready(call, deadline)
                reply = await self._send_once(call, attempt_id, deadline)
                if reply.relists:
                    await self._connection.relist_capabilities()
                return reply, _checked_data(reply, call.capability)
            except ABPError as error:
                if _is_deadline_error(error, deadline):
                    # Both sides keep the deadline: the error must not depend on which was first (docs/protocol.md 3.4).
                    await self._cancel_in_app(attempt_id, "timeout")
                    raise no_answer("", call.timeout) from None
                if isinstance(error, OutcomeUnknown):
                    # Most often the page has navigated, and the next call needs the tools of the new page.
                    await self._connection.relist_capabilities()

                delay = self._retry_delay(error, attempt, call.repeats)
                if delay is None or time.monotonic() + delay >= deadline:
                    raise
                await self._pause_before_retry(call, attempt, delay, error)
                if error.code in SESSION_LOST:
                    await self._initialize_once(handshakes, deadline)

    async def _pause_before_retry(self, call: Call, attempt: int, delay: float, error: ABPError) -> None:
        logger.info("%s is sent again in %.1f s: %s", call.capability, delay, error.message)
        self._events.emit(Retrying(call.capability, attempt, delay, error))
        if isinstance(error, Disconnected):
            # Until the transport reports that it has reconnected.
            self._connection.ready.clear()
        await asyncio.sleep(delay)

    async def _send_once(self, call: Call, attempt_id: str, deadline: float) -> Message:
        """Make one attempt. After a timeout or a cancellation, ``capabilities/cancel`` is sent in the background."""
        seconds_left = _seconds_left(deadline)
        options: dict[str, object] = {"progressToken": attempt_id, "callId": attempt_id}
        if math.isfinite(seconds_left):  # JSON has no infinity: without the option, the app sets no limit
            options["timeout"] = math.ceil(seconds_left * 1000)
        kept_calls = server_calls.get()
        message = Message(
            "capabilities/call",
            {"capability": call.capability, "params": call.params, "options": options},
            id=attempt_id,
            content=call.content,
            opens_view=kept_calls is not None,
        )

        self._events.begin_attempt(attempt_id, call)
        try:
            sending = self._transport.request(message, timeout=seconds_left)
            reply = await traced(sending, "abp.request", {"abp.transport": self._transport.name}, "client")
        except CallTimeout as error:
            await self._cancel_in_app(attempt_id, "timeout")
            if error.waited is None:
                raise
            # The message names the timeout of the whole call, not the rest that this attempt had.
            raise no_answer("", call.timeout) from None
        except asyncio.CancelledError:
            await self._cancel_in_app(attempt_id, "cancelled by the client")
            raise
        finally:
            self._events.end_attempt(attempt_id)
        if kept_calls is not None and reply.server_call is not None:
            kept_calls.append(reply.server_call)
        return reply

    def _retry_delay(self, error: ABPError, attempt: int, repeats: Repeats) -> float | None:
        """Return after how many seconds the call is sent again, or ``None`` if it must not be.

        After a lost connection, a call is sent again if it is idempotent, or was not sent at all."""
        idempotent = repeats == "idempotent"
        if isinstance(error, Disconnected):
            may_repeat = idempotent or error.sent is False
            if may_repeat and self._transport.features.reconnects:
                return 0.0
            return None

        # Retries after a lost connection, above, are not counted: the deadline alone bounds them.
        max_attempts = 4
        if repeats == "never" or not error.retryable or attempt >= max_attempts:
            return None
        if not idempotent and error.code not in NOT_RUN:
            return None

        if error.retry_after is not None:
            return min(error.retry_after, MAX_DELAY)
        if error.code in SESSION_LOST:
            return 0.0
        return backoff_delay(attempt)

    async def _initialize_once(self, known_handshakes: int, deadline: float) -> None:
        """Repeat the handshake, unless another call has done so: then there are more than ``known_handshakes``."""
        async with self._initializing:
            if self._handshakes == known_handshakes:
                await self._handshake.initialize(_seconds_left(deadline))
                self._handshakes += 1

    async def _wait_until_ready(self, call: Call, deadline: float) -> None:
        """Wait until the app can take a call: for cancellations of earlier calls in a page, and for the connection."""
        if self._cancellations and self._transport.features.page:
            # A page that does not answer a cancellation hangs and is replaced: send nothing until that is known.
            await asyncio.wait(self._cancellations, timeout=min(_seconds_left(deadline), MAX_DELAY))
        if not self._connection.ready.is_set():
            await self._connection.wait_until_ready(_seconds_left(deadline), call.timeout)

    # --- cancellation -------------------------------------------------------------------------------------------------

    async def _cancel_in_app(self, attempt_id: str, reason: str) -> None:
        """Send ``capabilities/cancel``; its answer is awaited in the background."""
        message = Message("capabilities/cancel", {"callId": attempt_id, "reason": reason})
        spawn(self._request_cancellation(message), self._cancellations)
        await asyncio.sleep(0)  # lets the request start before the caller sees the end of the call

    async def _request_cancellation(self, message: Message) -> None:
        with contextlib.suppress(ABPError):
            await self._transport.request(message, timeout=1.0)

    async def aclose(self) -> None:
        """Give pending cancellations a moment (0.1 s) to be sent, then drop them."""
        if self._cancellations:
            await asyncio.wait(self._cancellations, timeout=0.1)
            await cancel_and_wait(self._cancellations)


def _seconds_left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _checked_data(reply: Message, capability: str) -> object:
    """Return the data of an answer, or raise the app's error. Members that ABP does not have add a warning."""
    data = answered_data(reply.payload, capability)
    warning = unknown_members_warning(reply.payload)
    if warning is not None:
        reply.warnings = (*reply.warnings, warning)
    return data


def _is_deadline_error(error: ABPError, deadline: float) -> bool:
    is_timeout = isinstance(error, CapabilityError) and error.code == CallTimeout.code
    return is_timeout and time.monotonic() >= deadline - TIMER_TOLERANCE


def _annotate_params(params: object, content: Sequence[Found]) -> None:
    """Add the parameters to the current span as JSON, without secrets and files, and with long texts cut."""
    without_files = replace_places(params, {item.path: "<content>" for item in content})
    try:
        text = encode_json(readable_copy({"params": without_files})["params"]).decode()
    except (UsageError, KeyError):
        # Not JSON, or too large: the call itself reports the fault.
        return
    annotate({"gen_ai.tool.call.arguments": text})
