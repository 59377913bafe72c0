"""What a server asks of the client, answered by the session's handler."""

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
from .translation import elicited, question_of, sampled, sampling_of

__all__ = ["Questions"]


class Questions:
    """Questions on their way to the session and back; ``tell`` gives it a message."""

    def __init__(self, tell: Callable[[Message], None]) -> None:
        self._tell = tell
        self._asked: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """The person's answer (MCP "Elicitation")."""
        return elicited(params, await self._ask(question_of(params)))

    async def sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        """A model's words (MCP "Sampling")."""
        return sampled(await self._ask(sampling_of(params)))

    async def _ask(self, question: ElicitationRequest) -> Mapping[str, Any]:
        key = str(uuid.uuid4())
        self._asked[key] = asyncio.get_running_loop().create_future()
        self._tell(Message("elicitation/request", question.model_dump(by_alias=True, exclude_none=True), id=key))
        try:
            return await self._asked[key]
        finally:
            del self._asked[key]

    def answer(self, message: Message) -> None:
        """The session's ``elicitation/response``."""
        asked = self._asked.get(message.id or "")
        if asked is not None and not asked.done() and isinstance(message.payload, Mapping):
            asked.set_result(message.payload)

    def close(self) -> None:
        """Nobody will answer any more."""
        for asked in self._asked.values():
            asked.cancel()
