"""A tool call under way. It may outlive the request that started it: a client of 2026-07-28 answers an app's question
by sending its request again."""

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
from ...protocol.plain_text import plain_line
from ...routing import Result
from ...tasks import cancel_and_wait
from .elicitation import ClientRequest, client_request_for

__all__ = ["Context", "Question", "ToolCall", "is_modern"]

Context = ServerRequestContext[Any, Any]


def is_modern(ctx: Context) -> bool:
    """Whether the client speaks 2026-07-28 or later: no handshake, and no requests from the server to the client."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the app that waits for the client; the answer is set as the result of ``answer``."""

    client_request: ClientRequest
    answer: asyncio.Future[object]

    def request(self) -> InputRequest:
        """Return the question as MCP sends it."""
        return self.client_request.request()


class ToolCall:
    """One call; a :class:`~transports.surfaces.shared.apps.PendingCall`. ``ctx`` is the client's request that waits for
    it now."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.question: Question | None = None
        self._asked = asyncio.Event()
        self._task: asyncio.Task[Result] | None = None
        self._reported = -1.0

    def start(self, work: Coroutine[object, object, Result]) -> None:
        """Run ``work`` in a task of its own, which :meth:`aclose` cancels."""
        self._task = asyncio.ensure_future(work)

    async def next(self, ctx: Context) -> Result | Question:
        """Wait for the result or the next question, on behalf of the request ``ctx``.

        Raises what the call raises. If the client cancels its request, the app's call is cancelled too."""
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
        """Answer :attr:`question` with what the client gave; ``None`` declines."""
        question, self.question = self.question, None
        self._asked.clear()
        if question is not None and not question.answer.done():
            question.answer.set_result(given)

    async def aclose(self) -> None:
        """Cancel the call, in the app too, and wait until it has ended. Not interrupted by cancellation."""
        with anyio.CancelScope(shield=True):
            if self._task is not None:
                await cancel_and_wait((self._task,))
                if self._task.done() and not self._task.cancelled():
                    self._task.exception()  # mark it as retrieved: nobody waits for it any more

    async def progress(self, progress: Progress) -> None:
        """Report progress to the client, if its request asks for it. MCP wants values that grow; others are skipped."""
        value, total = progress.steps
        if value is None or value <= self._reported:
            return
        self._reported = value
        await self.ctx.session.report_progress(value, total, plain_line(progress.text) or None)

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Pass an app's question on to the client and return its answer. A client that cannot be asked, or not in this
        way, gives the default answer of every session (:mod:`transports.protocol.elicitation`)."""
        client_request = client_request_for(request)
        if client_request is None or not client_request.fits(self.ctx.session.client_capabilities):
            return default_answer(request)
        if is_modern(self.ctx):
            self.question = Question(client_request, asyncio.get_running_loop().create_future())
            self._asked.set()
            return client_request.answer(await self.question.answer)
        try:
            related = ServerMessageMetadata(related_request_id=self.ctx.request_id)
            given = await self.ctx.session.send_request(
                client_request.request(), client_request.result, metadata=related
            )
            return client_request.answer(given)
        except MCPError:
            return default_answer(request)
