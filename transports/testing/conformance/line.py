"""A line to the app: requests one by one, whatever becomes of the connection meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from ...base import Transport
from ...binary.params import outgoing
from ...errors import ABPError, BinaryError, ProtocolError, TransportError
from ...protocol.declarations import parse
from ...protocol.elicitation import default_answer
from ...protocol.initialize import initialize_params
from ...protocol.messages import Effect, Message
from ...protocol.payloads import ElicitationRequest
from ...tasks import cancel_and_wait
from .evidence import Exchange

__all__ = ["GRACE", "Line"]

#: Seconds that an answer may come after the timeout that it was asked for within.
GRACE = 1.0


class Line:
    """``make`` makes a transport that is not open yet. After a break the next request opens another and greets the app
    again. Questions of the app get its own default, or are declined. ``outside`` are effects that no call has caused.
    """

    def __init__(self, make: Callable[[], Transport], *, timeout: float) -> None:
        self._make = make
        self._timeout = timeout
        self._transport: Transport | None = None
        self._pump: asyncio.Task[None] | None = None
        self._greet_again = False
        self._progress: list[object] = []
        self._effects: list[Effect] = []
        self.outside: list[Effect] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.hang_up()

    @property
    def transport(self) -> Transport:
        assert self._transport is not None
        return self._transport

    async def dial(self) -> None:
        """Open a new connection. Raises :class:`~transports.errors.ABPError`."""
        await self.hang_up()
        transport = self._make()
        await transport.__aenter__()
        self._transport = transport
        self._pump = asyncio.ensure_future(self._listen(transport))

    async def hang_up(self) -> None:
        """Close the connection, if there is one."""
        if self._pump is not None:
            await cancel_and_wait((self._pump,))
        if self._transport is not None:
            await self._transport.aclose()
        self._transport = self._pump = None

    async def greet(self) -> Exchange:
        """``initialize``; from now on every new connection begins with it."""
        self._greet_again = False
        if (broken := await self._connected()) is not None:
            return broken
        self._greet_again = True
        return await self._sent(Message("initialize", initialize_params("abp-conformance")), self._timeout)

    async def ask(self, kind: str, payload: object = None) -> Exchange:
        """A request that is answered at once."""
        if (broken := await self._connected()) is not None:
            return broken
        return await self._sent(Message(kind, payload), self._timeout)

    async def call(
        self, capability: str, params: Mapping[str, object], timeout: float, call_id: str | None = None
    ) -> Exchange:
        """A call that the app should answer within ``timeout`` seconds. The connection is given up if it does not."""
        if (broken := await self._connected()) is not None:
            return broken
        identity = call_id or str(uuid.uuid4())
        options = {"timeout": round(timeout * 1000), "progressToken": identity, "callId": identity}
        prepared, content = outgoing(dict(params))
        payload = {"capability": capability, "params": prepared, "options": options}
        message = Message("capabilities/call", payload, id=identity, content=content)
        return await self._sent(message, timeout + GRACE)

    async def tell(self, kind: str, payload: object) -> Exchange:
        """A message without reply."""
        exchange = Exchange()
        try:
            if self._transport is not None:  # else there is nobody to be told
                await self._transport.notify(Message(kind, payload))
        except ABPError as error:
            exchange.error = error
        return exchange

    async def _connected(self) -> Exchange | None:
        """Connect again after a break; why that was not possible."""
        if self._transport is not None:
            return None
        try:
            await self.dial()
        except ABPError as error:
            return Exchange(error=error)
        greeted = await self.greet() if self._greet_again else Exchange()
        return greeted if greeted.error is not None else None

    async def _sent(self, message: Message, timeout: float) -> Exchange:
        exchange, started = Exchange(), time.perf_counter()
        transport = self.transport
        self._progress, self._effects = exchange.progress, exchange.effects
        try:
            reply = await transport.request(message, timeout=timeout)
            exchange.answer, exchange.outputs = reply.payload, len(reply.outputs)
            exchange.effects += reply.effects
        except ABPError as error:
            exchange.error = error
            if isinstance(error, TransportError | BinaryError) and not isinstance(error, ProtocolError):
                with contextlib.suppress(ABPError):
                    await self.hang_up()
        exchange.seconds = time.perf_counter() - started
        return exchange

    async def _listen(self, transport: Transport) -> None:
        async for message in transport.events():
            match message.type:
                case "progress":
                    self._progress.append(message.payload)
                case "effect" if isinstance(message.payload, Effect):
                    (self.outside if message.payload.call is None else self._effects).append(message.payload)
                case "elicitation/request":
                    with contextlib.suppress(ABPError):
                        request = parse(ElicitationRequest, message.payload, "an elicitation request")
                        answer = Message("elicitation/response", default_answer(request), id=message.id)
                        await transport.notify(answer)
