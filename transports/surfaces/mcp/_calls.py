"""Running tool calls, with their progress and their questions to the client (elicitation and sampling).

A :class:`ToolCall` may outlive the request that started it: a client of 2026-07-28 answers an app's question by sending
its request again, and a detached call runs without a request."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from ..._internal.tasks import cancel_and_wait, mark_retrieved, start_task
from ...protocol._elicitation import (
    DECLINED,
    Question as AppQuestion,
    default_answer,
    model_messages,
    question_of,
    question_text,
)
from ...protocol._payloads import ElicitationRequest, Progress
from ...protocol._plain_text import plain_line, plain_schema, plain_text
from ...protocol.messages import new_id
from ...routing._result import Result
from ..shared._apps import App

#: Name of the tasks extension.
TASKS = "io.modelcontextprotocol/tasks"
#: Timeout of a question in seconds.
QUESTION_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Form:
    """Question for the user of the client, as a form (MCP "Elicitation")."""

    question: AppQuestion
    result: ClassVar[type[BaseModel]] = types.ElicitResult

    def is_supported_by(self, client: types.ClientCapabilities | None) -> bool:
        if client is None or client.elicitation is None:
            return False
        return client.elicitation.form is not None or client.elicitation.url is None

    def request(self) -> types.ElicitRequest:
        return types.ElicitRequest(
            params=types.ElicitRequestFormParams(
                message=plain_text(self.question.message),
                requested_schema=plain_schema(self.question.schema) or self.question.schema,
            )
        )

    def answer(self, response: object) -> Mapping[str, object]:
        """Return the answer for the app, ``{"success": …, "data": …}``. A response without the form's field
        declines."""
        if not isinstance(response, types.ElicitResult) or response.action != "accept":
            return DECLINED
        return self.question.answer(response.content or {})


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt for the model of the client (MCP "Sampling")."""

    params: types.CreateMessageRequestParams
    result: ClassVar[type[BaseModel]] = types.CreateMessageResult

    def is_supported_by(self, client: types.ClientCapabilities | None) -> bool:
        return client is not None and client.sampling is not None

    def request(self) -> types.CreateMessageRequest:
        return types.CreateMessageRequest(params=self.params)

    def answer(self, response: object) -> Mapping[str, object]:
        """Return the answer for the app, ``{"success": True, "data": {"result": …}}``. A response without text
        declines."""
        if not isinstance(response, types.CreateMessageResult | types.CreateMessageResultWithTools):
            return DECLINED
        blocks = response.content if isinstance(response.content, list) else [response.content]
        texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
        if not texts:
            return DECLINED
        return {"success": True, "data": {"result": "\n".join(texts)}}


ClientRequest = Form | Prompt


def client_request_for(request: ElicitationRequest) -> ClientRequest | None:
    """Make a request to the client of an app's question. Return ``None`` for a question that MCP cannot ask: for a
    file, or a prompt without text."""
    if request.method == "sampling/create":
        return _prompt_from(request.params)
    question = question_of(request)
    if question is None:
        return None
    return Form(question)


# --- prompts ----------------------------------------------------------------------------------------------------------


def _prompt_from(params: Mapping[str, object]) -> Prompt | None:
    """Make a prompt of an app's parameters. Return ``None`` if they have neither ``messages`` nor a task. Parameters of
    a wrong type are ignored."""
    texts = model_messages(params)
    task = question_text(params)
    if task:
        texts.append(("user", task))
    if not texts:
        return None
    messages: list[types.SamplingMessage] = []
    for role, text in texts:
        known_role: types.Role = "assistant" if role == "assistant" else "user"
        messages.append(types.SamplingMessage(role=known_role, content=types.TextContent(text=text)))

    default_max_tokens = 1000  # MCP requires a number
    prompt = types.CreateMessageRequestParams(messages=messages, max_tokens=default_max_tokens)
    max_tokens = params.get("maxTokens")
    if isinstance(max_tokens, int) and max_tokens > 0:
        prompt.max_tokens = int(max_tokens)
    system_prompt = params.get("systemPrompt", params.get("system"))
    if isinstance(system_prompt, str):
        prompt.system_prompt = system_prompt
    temperature = params.get("temperature")
    if isinstance(temperature, int | float):
        prompt.temperature = float(temperature)
    stops = params.get("stopSequences")
    if isinstance(stops, list):
        prompt.stop_sequences = [stop for stop in stops if isinstance(stop, str)] or None
    return Prompt(prompt)


class ProgressReporter:
    """Sends the client the progress of its request. After ``interval`` seconds without progress it sends a heartbeat,
    since many clients give up on a silent request. Clients that set no ``progressToken`` get neither."""

    def __init__(self, ctx: ServerRequestContext[object, object], interval: float) -> None:
        self._ctx = ctx
        self._interval = interval
        self._value = -1.0
        self._total: float | None = None
        self._started = self._reported = time.monotonic()

    async def report(self, progress: Progress) -> None:
        """Forward an app's progress. Values that do not grow are skipped."""
        value, total = progress.steps
        if value is not None and value > self._value:
            await self._send_progress(value, total, plain_line(progress.text) or None)

    async def _send_progress(self, value: float, total: float | None, text: str | None) -> None:
        self._value, self._total, self._reported = value, total, time.monotonic()
        await self._ctx.session.report_progress(value, total, text)

    @asynccontextmanager
    async def heartbeats(self) -> AsyncIterator[None]:
        if not self._ctx.meta or "progress_token" not in self._ctx.meta:
            yield
            return
        sending = start_task(self._send_heartbeats())
        try:
            yield
        finally:
            await cancel_and_wait((sending,))

    async def _send_heartbeats(self) -> None:
        while True:
            silent_seconds = time.monotonic() - self._reported
            if silent_seconds < self._interval:
                await asyncio.sleep(self._interval - silent_seconds)
                continue

            # MCP requires values that grow. A very large value does not change by a millionth, so it becomes the next
            # float.
            smallest_step = 1e-6
            previous = max(self._value, 0.0)
            value = max(previous + smallest_step, math.nextafter(previous, math.inf))
            total = self._total
            if total is not None and value > total:
                total = None

            seconds = time.monotonic() - self._started
            try:
                await self._send_progress(value, total, f"still working after {seconds:.0f} s")
            except MCPError:
                return  # the client is gone


Context = ServerRequestContext[Any, Any]


def is_modern(ctx: Context) -> bool:
    """Clients of 2026-07-28 or later have no handshake, and get no requests from the server."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def takes_tasks(ctx: Context) -> bool:
    """Whether the client supports the tasks extension."""
    capabilities = ctx.session.client_capabilities
    return is_modern(ctx) and capabilities is not None and TASKS in (capabilities.extensions or {})


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the app that waits for the client. It is answered by setting the result of ``answer``. ``key``
    identifies it within its call."""

    key: str
    client_request: ClientRequest
    answer: asyncio.Future[object]


class ToolCall:
    """A running call of a tool, a :class:`~transports.surfaces.shared._apps.PendingCall`. ``task`` is its work, which
    the creator sets; ``ctx`` is the client's request that currently waits for the call. A ``detached`` call runs
    without a request, and its questions wait up to ten minutes for a request. ``on_question`` is called with each
    question, and with ``None`` when the question ends."""

    def __init__(self, ctx: Context, *, detached: bool = False) -> None:
        self.ctx: Context | None = None if detached else ctx
        #: Id of the call in events, in the metadata of its artifacts, and for the client once it is detached.
        self.id = new_id()
        self.detached = detached
        self.on_question: Callable[[ElicitationRequest | None], None] = lambda _: None
        self.question: Question | None = None
        self.latest_progress: Progress | None = None
        self.task: asyncio.Task[Result]
        self.opened_view: App | None = None
        self._client = ctx.session.client_capabilities
        #: Set while there is a :attr:`question`.
        self._asked = asyncio.Event()
        #: Task that asks a client with a handshake, and answers the question with its response.
        self._asking: asyncio.Future[None] | None = None
        self._one_question_at_a_time = asyncio.Lock()
        self._question_numbers = count(1)
        self._reporter: ProgressReporter | None = None

    async def wait(self, ctx: Context, reporter: ProgressReporter, timeout: float | None = None) -> Question | None:
        """Wait for at most ``timeout`` seconds, or longer while the user is being asked. A client with a handshake is
        asked the app's questions here; for a client of 2026-07-28 the question is returned. If the client cancels its
        request, the app's call is cancelled too, unless it is detached."""
        self.ctx = ctx
        self._reporter = reporter
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        try:
            while not self.task.done():
                if self.question is not None and is_modern(ctx):
                    return self.question
                if self.question is not None and self._asking is None:
                    self._asking = start_task(self._ask_client(ctx, self.question))
                if not await self._wait_for_event(deadline):
                    break
            return None
        except asyncio.CancelledError:
            if not self.detached:
                await self.aclose()
            raise
        finally:
            if self._asking is not None:
                self._asking.cancel()
            # Another request may wait for the call by now.
            if self._reporter is reporter:
                self._reporter = None
                self.ctx = None if self.detached else ctx

    async def _wait_for_event(self, deadline: float) -> bool:
        """Wait until the call ends or asks a question. Return ``False`` at the deadline, which does not count while the
        user is being asked."""
        if self._asking is not None:
            await asyncio.wait((self.task, self._asking), return_when=asyncio.FIRST_COMPLETED)
            return True

        seconds_left = None
        if deadline < math.inf:
            seconds_left = max(deadline - time.monotonic(), 0)
        next_question = asyncio.ensure_future(self._asked.wait())
        try:
            events = (self.task, next_question)
            ended, _ = await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED, timeout=seconds_left)
        finally:
            next_question.cancel()
        return bool(ended)

    async def _ask_client(self, ctx: Context, question: Question) -> None:
        """Ask a client that has a handshake. An error selects the default answer."""
        client_request = question.client_request
        response: object
        try:
            response = await ctx.session.send_request(
                client_request.request(),
                client_request.result,
                metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
            )
        except Exception as error:  # noqa: BLE001 - the app waits for an answer whatever fails
            response = error
        finally:
            self._asking = None
        # If the app has asked another question meanwhile, this response is too late.
        if self.question is question:
            self.answer(response)

    def answer(self, response: object) -> None:
        """Answer :attr:`question` with the client's response. ``None`` declines, an error selects the default."""
        question = self.question
        self.question = None
        self._asked.clear()
        if question is not None and not question.answer.done():
            question.answer.set_result(response)

    def answer_with(self, responses: Mapping[str, object] | None) -> None:
        """Answer the question. Without a response to it, a detached call keeps waiting, and any other call declines."""
        if self.question is None:
            return
        responses = responses or {}
        if self.question.key in responses or not self.detached:
            self.answer(responses.get(self.question.key))

    async def aclose(self) -> None:
        """Cancel the call, in the app too, and wait until it has ended. Not interrupted by cancellation."""
        with anyio.CancelScope(shield=True):
            await cancel_and_wait((self.task,))
            if self.task.done():
                mark_retrieved(self.task)

    async def progress(self, progress: Progress) -> None:
        """Remember the progress of the app, and report it to the request that waits for the call."""
        self.latest_progress = progress
        if self._reporter is not None:
            await self._reporter.report(progress)

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Ask the client, and return the answer for the app. It is the session's default if the client cannot be asked,
        or does not answer within ten minutes."""
        client_request = client_request_for(request)
        if client_request is None or not client_request.is_supported_by(self._client):
            return default_answer(request)

        async with self._one_question_at_a_time:
            key = f"question-{next(self._question_numbers)}"
            question = Question(key, client_request, asyncio.get_running_loop().create_future())
            self.question = question
            self._asked.set()
            self.on_question(request)
            try:
                async with asyncio.timeout(QUESTION_TIMEOUT):
                    response = await question.answer
            except TimeoutError:
                return default_answer(request)
            finally:
                if self.question is question:
                    self.question = None
                    self._asked.clear()
                self.on_question(None)

        if isinstance(response, Exception):
            return default_answer(request)
        return client_request.answer(response)
