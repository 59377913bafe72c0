"""Passes what a server asks of the client to the session's handler, and the answer back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from mcp.client.session import ClientRequestContext
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
)

from ...protocol.messages import Message
from ...protocol.payloads import ElicitationRequest
from .translation import to_elicit_result, to_elicitation, to_sampling_elicitation, to_sampling_result

__all__ = ["Questions"]


class Questions:
    """Questions that wait for an answer. ``emit`` gives a message to the session."""

    def __init__(self, emit: Callable[[Message], None]) -> None:
        self._emit = emit
        self._pending: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Ask the user (MCP "Elicitation"). Called by the SDK."""
        return to_elicit_result(params, await self._ask(to_elicitation(params)))

    async def sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        """Ask for a message of a language model (MCP "Sampling"). Called by the SDK."""
        return to_sampling_result(await self._ask(to_sampling_elicitation(params)))

    async def _ask(self, question: ElicitationRequest) -> Mapping[str, Any]:
        key = str(uuid.uuid4())
        self._pending[key] = asyncio.get_running_loop().create_future()
        self._emit(Message("elicitation/request", question.model_dump(by_alias=True, exclude_none=True), id=key))
        try:
            return await self._pending[key]
        finally:
            del self._pending[key]

    def answer(self, message: Message) -> None:
        """Take an ``elicitation/response`` of the session; one that nobody waits for is ignored."""
        answer = self._pending.get(message.id or "")
        if answer is not None and not answer.done() and isinstance(message.payload, Mapping):
            answer.set_result(message.payload)

    def close(self) -> None:
        """Cancel all questions, since nobody will answer them any more."""
        for answer in self._pending.values():
            answer.cancel()
