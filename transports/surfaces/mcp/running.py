"""A call under way, which may outlive the request that began it: a client of 2026-07-28 answers an app's question by
sending its request again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import InputRequest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...protocol.elicitation import default_answer
from ...protocol.payloads import ElicitationRequest, Progress
from ...routing import Result
from ...tasks import cancel_and_wait
from .questions import Asked, asked_of

__all__ = ["Context", "Question", "Running", "is_modern"]

Context = ServerRequestContext[Any, Any]


def is_modern(ctx: Context) -> bool:
    """Whether this client speaks 2026-07-28 or later: no handshake, and nothing may be asked of it unasked."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


@dataclass(frozen=True, slots=True)
class Question:
    """What the app wants to know, until somebody sets ``answer``."""

    asked: Asked
    answer: asyncio.Future[object]

    def request(self) -> InputRequest:
        return self.asked.request()


class Running:
    """One call. ``ctx`` is the request of the client that waits for it now."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.question: Question | None = None
        self._asked = asyncio.Event()
        self._task: asyncio.Task[Result] | None = None
        self._told = -1.0

    def start(self, work: Coroutine[object, object, Result]) -> None:
        self._task = asyncio.ensure_future(work)

    async def next(self, ctx: Context) -> Result | Question:
        """Wait for what comes next. If the client cancels its request, the app's call is cancelled. Raises what the
        call does."""
        assert self._task is not None
        self.ctx = ctx
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((self._task, asked), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.aclose()
            raise
        finally:
            asked.cancel()
        if self.question is not None and not self._task.done():
            return self.question
        return self._task.result()

    def answer(self, given: object) -> None:
        """The client's answer to :attr:`question`; ``None`` if it has none."""
        question, self.question = self.question, None
        self._asked.clear()
        if question is not None and not question.answer.done():
            question.answer.set_result(given)

    async def aclose(self) -> None:
        """Cancel the call, in the app too."""
        with anyio.CancelScope(shield=True):
            if self._task is not None:
                await cancel_and_wait((self._task,))
                if self._task.done() and not self._task.cancelled():
                    self._task.exception()  # nobody waits for it any more

    async def progress(self, progress: Progress) -> None:
        """Tell the client, if it wants to know. MCP's progress only grows."""
        value, total = progress.steps
        if value is None or value <= self._told:
            return
        self._told = value
        await self.ctx.session.report_progress(value, total, progress.text or None)

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        """The client's answer to an app's question; where the client cannot be asked, or not that, the default policy
        of every session (:mod:`transports.protocol.elicitation`)."""
        asked = asked_of(request)
        if asked is None or not asked.fits(self.ctx.session.client_capabilities):
            return default_answer(request)
        if is_modern(self.ctx):
            self.question = Question(asked, asyncio.get_running_loop().create_future())
            self._asked.set()
            return asked.answer(await self.question.answer)
        try:
            related = ServerMessageMetadata(related_request_id=self.ctx.request_id)
            return asked.answer(await self.ctx.session.send_request(asked.request(), asked.result, metadata=related))
        except MCPError:
            return default_answer(request)
