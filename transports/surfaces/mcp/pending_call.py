"""A tool call under way. It may outlive the request that started it: a client of 2026-07-28 answers an app's question
by sending its request again, and a detached call waits for nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import InputRequest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...protocol.elicitation import default_answer
from ...protocol.ids import new_id
from ...protocol.payloads import ElicitationRequest, Progress
from ...routing import Result
from ...tasks import cancel_and_wait
from .elicitation import ClientRequest, client_request_for
from .progress import ProgressReporter

__all__ = ["QUESTION_TIMEOUT", "Context", "Question", "ToolCall", "is_modern"]

#: Seconds that a call waits for the answer to its question.
QUESTION_TIMEOUT = 600.0

Context = ServerRequestContext[Any, Any]


def is_modern(ctx: Context) -> bool:
    """Whether the client speaks 2026-07-28 or later: no handshake, and no requests from the server to the client."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the app that waits for the client; the answer is set as the result of ``answer``. ``key`` names it
    among those of its call."""

    key: str
    client_request: ClientRequest
    answer: asyncio.Future[object]

    def request(self) -> InputRequest:
        """Return the question as MCP sends it."""
        return self.client_request.request()


class ToolCall:
    """One call; a :class:`~transports.surfaces.shared.apps.PendingCall`. ``ctx`` is the client's request that waits for
    it now, ``None`` while there is none.

    A ``detached`` call goes on without a request. Its questions wait for one, for ten minutes; ``on_question`` is told
    of each, and with ``None`` of its end."""

    def __init__(
        self,
        ctx: Context,
        *,
        detached: bool = False,
        on_question: Callable[[ElicitationRequest | None], None] = lambda _: None,
    ) -> None:
        self.ctx: Context | None = None if detached else ctx
        #: The name of the call in events, in what it stores and, once it is detached, for its caller.
        self.id = new_id()
        self.detached = detached
        self.on_question = on_question
        self.question: Question | None = None
        #: What the app told last of how far it is.
        self.latest: Progress | None = None
        self.task: asyncio.Task[Result]
        self._client = ctx.session.client_capabilities
        self._asked = asyncio.Event()
        self._asking: asyncio.Future[None] | None = None
        self._turn = asyncio.Lock()
        self._questions = count(1)
        self._reporter: ProgressReporter | None = None

    def start(self, work: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        """Run ``work`` in a task of its own, which :meth:`aclose` cancels."""
        self.task = asyncio.ensure_future(work)
        return self.task

    async def next(
        self, ctx: Context, reporter: ProgressReporter, timeout: float | None = None
    ) -> Result | Question | None:
        """Wait as :meth:`wait` does, and return the result of a call that has ended. Raises what the call raises."""
        question = await self.wait(ctx, reporter, timeout)
        return self.task.result() if self.task.done() else question

    async def wait(self, ctx: Context, reporter: ProgressReporter, timeout: float | None = None) -> Question | None:
        """Wait for the end of the call, on behalf of the request ``ctx``, for ``timeout`` seconds at most, and
        for the person who is being asked.

        A client with a handshake is asked the app's questions here; for one of 2026-07-28 the question is returned. If
        the client cancels its request, the app's call is cancelled too, unless it is detached."""
        self.ctx, self._reporter = ctx, reporter
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self.task.done():
                if self.question is not None and is_modern(ctx):
                    return self.question
                if self.question is not None and self._asking is None:
                    self._asking = asyncio.ensure_future(self._ask_client(ctx, self.question))
                asked = asyncio.ensure_future(self._asked.wait())
                event = self._asking or asked
                left = None if deadline is None or self._asking else max(deadline - time.monotonic(), 0)
                try:
                    await asyncio.wait((self.task, event), return_when=asyncio.FIRST_COMPLETED, timeout=left)
                finally:
                    asked.cancel()
                if not event.done() and not self.task.done():
                    break
            return None
        except asyncio.CancelledError:
            if not self.detached:
                await self.aclose()
            raise
        finally:
            if self._asking is not None:
                self._asking.cancel()
            if self._reporter is reporter:
                self._reporter = None
                self.ctx = None if self.detached else ctx

    async def _ask_client(self, ctx: Context, question: Question) -> None:
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        try:
            wanted = question.client_request
            given: object = await ctx.session.send_request(wanted.request(), wanted.result, metadata=related)
        except MCPError as error:
            given = error
        finally:
            self._asking = None
        if self.question is question:  # the app may have asked something else meanwhile
            self.answer(given)

    def answer(self, given: object) -> None:
        """Answer :attr:`question` with what the client gave; ``None`` declines, an error stands for the default."""
        question, self.question = self.question, None
        self._asked.clear()
        if question is not None and not question.answer.done():
            question.answer.set_result(given)

    def answer_with(self, responses: Mapping[str, object] | None) -> None:
        """Answer :attr:`question` with the response that has its key; one that is answered already is left alone."""
        given = responses or {}
        if self.question is not None and (self.question.key in given or not self.detached):
            self.answer(given.get(self.question.key))

    async def aclose(self) -> None:
        """Cancel the call, in the app too, and wait until it has ended. Not interrupted by cancellation."""
        with anyio.CancelScope(shield=True):
            await cancel_and_wait((self.task,))
            if self.task.done() and not self.task.cancelled():
                self.task.exception()  # mark it as retrieved: nobody waits for it any more

    async def progress(self, progress: Progress) -> None:
        """Report progress to the request that waits, if there is one."""
        self.latest = progress
        if self._reporter is not None:
            await self._reporter.report(progress)

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Pass an app's question on to the client and return its answer. A client that cannot be asked, or not in this
        way, gives the default answer of every session (:mod:`transports.protocol.elicitation`), and so does nobody
        within ten minutes."""
        client_request = client_request_for(request)
        if client_request is None or not client_request.fits(self._client):
            return default_answer(request)
        async with self._turn:  # one question at a time
            question = Question(
                f"question-{next(self._questions)}", client_request, asyncio.get_running_loop().create_future()
            )
            self.question = question
            self._asked.set()
            self.on_question(request)
            try:
                async with asyncio.timeout(QUESTION_TIMEOUT):
                    given = await question.answer
                return default_answer(request) if isinstance(given, MCPError) else client_request.answer(given)
            except TimeoutError:
                return default_answer(request)
            finally:
                if self.question is question:
                    self.question = None
                    self._asked.clear()
                self.on_question(None)
