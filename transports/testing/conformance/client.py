"""A client that sends one request at a time and connects again after a break, so that one fault ends no check."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from ...base import Transport
from ...binary.params import prepare_params
from ...errors import ABPError, BinaryError, ProtocolError, TransportError
from ...protocol.declarations import parse
from ...protocol.elicitation import default_answer
from ...protocol.initialize import initialize_params
from ...protocol.messages import Effect, Message
from ...protocol.payloads import ElicitationRequest
from ...tasks import cancel_and_wait
from .evidence import Exchange

__all__ = ["GRACE", "Client"]

#: Seconds beyond its timeout in which a call's answer is still waited for.
GRACE = 1.0


class Client:
    """A client of one app over transports that ``make_transport`` makes; each must not be open yet.

    Requests never raise: what went wrong is the ``error`` of the :class:`~.evidence.Exchange`. After a break the next
    request opens a new connection and initializes the app again. Questions of the app (elicitation) are answered with
    the app's own default, or declined. ``timeout`` in seconds is for every request but calls.
    """

    def __init__(self, make_transport: Callable[[], Transport], *, timeout: float) -> None:
        self._make_transport = make_transport
        self._timeout = timeout
        self._transport: Transport | None = None
        self._listener: asyncio.Task[None] | None = None
        self._initialize_again = False
        self._progress: list[object] = []
        self._effects: list[Effect] = []
        #: Side effects that belong to no call.
        self.effects_outside_calls: list[Effect] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.disconnect()

    @property
    def transport(self) -> Transport:
        """The open transport. To be used while there is a connection only."""
        assert self._transport is not None
        return self._transport

    async def connect(self) -> None:
        """Open a new connection, after closing the one there is. Raises :class:`~transports.errors.ABPError`."""
        await self.disconnect()
        transport = self._make_transport()
        await transport.__aenter__()
        self._transport = transport
        self._listener = asyncio.ensure_future(self._listen(transport))

    async def disconnect(self) -> None:
        """Close the connection, if there is one."""
        if self._listener is not None:
            await cancel_and_wait((self._listener,))
        if self._transport is not None:
            await self._transport.aclose()
        self._transport = self._listener = None

    async def initialize(self) -> Exchange:
        """Send ``initialize``. From now on it is the first message of every new connection."""
        self._initialize_again = False
        if (broken := await self._reconnected()) is not None:
            return broken
        self._initialize_again = True
        return await self._exchange(Message("initialize", initialize_params("abp-conformance")), self._timeout)

    async def request(self, kind: str, payload: object = None) -> Exchange:
        """Send a request of the type ``kind`` that the app answers at once."""
        if (broken := await self._reconnected()) is not None:
            return broken
        return await self._exchange(Message(kind, payload), self._timeout)

    async def call(
        self, capability: str, params: Mapping[str, object], timeout: float, call_id: str | None = None
    ) -> Exchange:
        """Call a capability, which should answer within ``timeout`` seconds. The connection is closed if it has not
        answered :data:`GRACE` seconds later. ``call_id`` is a new one unless given."""
        if (broken := await self._reconnected()) is not None:
            return broken
        identity = call_id or str(uuid.uuid4())
        options = {"timeout": round(timeout * 1000), "progressToken": identity, "callId": identity}
        prepared, content = prepare_params(dict(params))
        payload = {"capability": capability, "params": prepared, "options": options}
        message = Message("capabilities/call", payload, id=identity, content=content)
        return await self._exchange(message, timeout + GRACE)

    async def notify(self, kind: str, payload: object) -> Exchange:
        """Send a message that has no reply. Without a connection nothing is sent."""
        exchange = Exchange()
        try:
            if self._transport is not None:
                await self._transport.notify(Message(kind, payload))
        except ABPError as error:
            exchange.error = error
        return exchange

    async def _reconnected(self) -> Exchange | None:
        """Connect again after a break. Return what failed, or ``None`` if there is a connection."""
        if self._transport is not None:
            return None
        try:
            await self.connect()
        except ABPError as error:
            return Exchange(error=error)
        initialized = await self.initialize() if self._initialize_again else Exchange()
        return initialized if initialized.error is not None else None

    async def _exchange(self, message: Message, timeout: float) -> Exchange:
        exchange, started = Exchange(), time.perf_counter()
        transport = self.transport
        self._progress, self._effects = exchange.progress, exchange.effects
        try:
            reply = await transport.request(message, timeout=timeout)
            exchange.answer, exchange.outputs = reply.payload, len(reply.outputs)
            exchange.effects += reply.effects
            exchange.sender = reply.sender
        except ABPError as error:
            exchange.error = error
            if isinstance(error, TransportError | BinaryError) and not isinstance(error, ProtocolError):
                with contextlib.suppress(ABPError):
                    await self.disconnect()
        exchange.seconds = time.perf_counter() - started
        return exchange

    async def _listen(self, transport: Transport) -> None:
        """Take events in until the transport closes. Progress counts for the exchange under way, of which there is one
        at a time."""
        async for message in transport.events():
            match message.type:
                case "progress":
                    self._progress.append(message.payload)
                case "effect" if isinstance(message.payload, Effect):
                    outside = message.payload.call is None
                    (self.effects_outside_calls if outside else self._effects).append(message.payload)
                case "elicitation/request":
                    with contextlib.suppress(ABPError):
                        request = parse(ElicitationRequest, message.payload, "an elicitation request")
                        answer = Message("elicitation/response", default_answer(request), id=message.id)
                        await transport.notify(answer)
