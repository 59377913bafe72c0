"""Detached calls: the tools `abp_call` with `detach`, `abp_result` and `abp_cancel`, and the tasks extension of MCP.

Both are views of the same calls: with the extension, a call longer than :data:`TASK_AFTER` becomes a task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import Field

from ...errors import ABPError, OutcomeUnknown, UsageError
from ...protocol._plain_text import plain_line
from ...protocol._strict_json import decode_json
from ...protocol._times import iso_utc
from ...routing._result import Result
from ...session._call import CallStatus
from ...session._events import CallFinished
from ..shared._activity import CallRecord, call_record
from ..shared._apps import App, listed_in
from ..shared._detached import MAX_AGE, KeptCall, MakeContent
from ._artifacts import ArtifactView
from ._calls import TASKS, Context, ProgressReporter, ToolCall, is_modern
from ._results import error_result, text_result
from ._users import User


class DetachedTools:
    """Tools for the detached calls of one user. Each raises :class:`~transports.errors.ABPError`.

    ``call_result`` makes the MCP result of a call of an app."""

    def __init__(
        self,
        user: User,
        view: ArtifactView,
        call_result: Callable[[Result, App], Awaitable[types.CallToolResult]],
    ) -> None:
        self._user = user
        self._max_answer_bytes = user.options.max_answer_bytes
        self._view = view
        self._call_result = call_result
        self._scope = user.store.scope

    async def start(
        self, call: ToolCall, app: App, capability: str, work: Callable[[ToolCall], Coroutine[object, object, Result]]
    ) -> types.CallToolResult:
        """Start a call of `abp_call` with `detach`, and return its id as a result."""
        record = call_record(app, call.id, capability, detached=True)

        async def begin() -> Result:
            call.task = asyncio.ensure_future(listed_in(app.pending_calls, call, work))
            return await call.task

        call.on_question = lambda question: self._user.calls.question_changed(call.id, question)
        await self._user.calls.start(record, call, begin(), self._content_maker(app))
        # Let the call begin.
        await asyncio.sleep(0)
        text = f"Started: call {call.id} of {plain_line(capability)}.\nabp_result has its result; abp_cancel ends it."
        return text_result(text, {"success": True, **_call_document(record)}, self._max_answer_bytes)

    async def adopt(self, call: ToolCall, app: App, capability: str) -> CallRecord:
        """Detach a running call from its request, and return its record."""
        record = call_record(app, call.id, capability, detached=True)
        call.detached = True
        call.on_question = lambda question: self._user.calls.question_changed(call.id, question)
        try:
            started = await self._user.calls.start(record, call, call.task, self._content_maker(app))
            return started.record
        except BaseException:
            await call.aclose()
            raise

    def _content_maker(self, app: App) -> MakeContent:
        """Return the function that makes the MCP result of a finished call, as JSON."""

        async def make_content(event: CallFinished) -> bytes:
            self._user.subscribers.resources_changed()
            if event.result is not None:
                result = await self._call_result(event.result, app)
            else:
                error = event.error or ABPError("the call ended without a result")
                result = error_result(error, self._max_answer_bytes, self._view)
            return result.model_dump_json(by_alias=True, exclude_none=True).encode()

        return make_content

    async def result(
        self,
        arguments: Mapping[str, Any],
        ctx: Context,
        reporter: ProgressReporter,
        params: types.CallToolRequestParams,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Answer `abp_result`: the result of a call, its question, or its status while it is running."""
        call = str(arguments["call"])
        wait = float(arguments.get("wait", 20))
        latest_progress = None
        running = _running_call(self._user, call)
        if running is not None:
            if params.request_state is not None:
                running.answer_with(params.input_responses)
            question = await running.wait(ctx, reporter, wait)
            if question is not None:
                return types.InputRequiredResult(
                    input_requests={question.key: question.client_request.request()}, request_state=f"call {call}"
                )
            latest_progress = running.latest
            # A call that has ended has its result soon, once that is written.
            wait = 10.0 if running.task.done() else 0.0

        kept_call = await self._user.calls.get(call, self._scope, wait=wait)
        if latest_progress is not None:
            kept_call = replace(kept_call, record=replace(kept_call.record, progress=latest_progress))
        return _kept_result(kept_call, self._max_answer_bytes, self._view)

    async def cancel(self, arguments: Mapping[str, Any]) -> types.CallToolResult:
        kept_call = await self._user.calls.cancel(str(arguments["call"]), self._scope)
        record = kept_call.record
        text = f"Call {record.id} of {plain_line(record.capability)}: {record.status}"
        return text_result(text, {"success": True, **_call_document(record)}, self._max_answer_bytes)

    async def documents(self) -> list[dict[str, object]]:
        """Return the newest calls, newest first, for `abp_status`."""
        records = await self._user.calls.calls(self._scope, 20)
        return [_call_document(record) for record in reversed(records)]


def _running_call(user: User, call: str) -> ToolCall | None:
    """Return a call of a user that runs in this bridge; ``None`` for any other, such as one that the gallery runs."""
    live = user.calls.live(call, user.store.scope)
    if live is None or not isinstance(live.pending, ToolCall):
        return None
    return live.pending


def _kept_result(call: KeptCall, max_bytes: int, view: ArtifactView) -> types.CallToolResult:
    """Return the result of a call, or its status while it is running. Raises :class:`~transports.errors.ABPError` if
    there is no result: the outcome is unknown, or the result has expired."""
    if call.content is not None:
        return types.CallToolResult.model_validate_json(call.content)

    record = call.record
    name = plain_line(record.capability)
    if record.status is CallStatus.UNKNOWN and call.answer is None:
        reason = "it may have run"
        if record.error:
            _, reason = record.error
        raise OutcomeUnknown(f"{name}: {reason}")
    if call.expired:
        raise UsageError(
            f"{name}: the call is {record.status}; its answer was kept for at most a day and has been deleted",
            code="CALL_EXPIRED",
        )

    document: dict[str, object] = {"success": True, **_call_document(record)}
    if call.answer is not None:
        # The gallery started the call, so its answer is not an MCP result.
        answer: Any = decode_json(call.answer)
        return text_result(f"Call {record.id} of {name}: {record.status}", {**answer, **document}, max_bytes)

    progress = ""
    if record.progress and record.progress.text:
        progress = f" ({record.progress.text})"
    text = f"Call {record.id} of {name} is under way: {record.status}{progress}. Ask again with abp_result."
    return text_result(text, document, max_bytes)


def _call_document(record: CallRecord) -> dict[str, object]:
    return {
        "call": record.id,
        "session": record.session,
        "capability": plain_line(record.capability),
        "status": record.status.value,
        "started": iso_utc(record.started),
        "progress": record.as_dict()["progress"],
    }


#: Seconds after which a call becomes a task.
TASK_AFTER = 2.0


class _TaskParams(types.RequestParams):
    task_id: str = Field(max_length=100)


class _UpdateTaskParams(_TaskParams):
    input_responses: types.InputResponses


def new_task(record: CallRecord) -> dict[str, object]:
    return {"resultType": "task", **_task_fields(record)}


def _task_fields(record: CallRecord) -> dict[str, object]:
    """Return a call as a task of MCP; its status is that of the call."""
    changed = time.time()
    if record.duration_ms is not None:
        changed = record.started + record.duration_ms / 1000
    return {
        "taskId": record.id,
        "status": record.status.value,
        "createdAt": iso_utc(record.started),
        "lastUpdatedAt": iso_utc(changed),
        "ttlMs": int(MAX_AGE * 1000),
        "pollIntervalMs": 2000,
    }


def add_tasks(server: Server[None], user_of: Callable[[Context], User], view: ArtifactView) -> None:
    """Declare the tasks extension on ``server`` and handle its requests. ``user_of`` returns the user of a request."""
    tasks = _Tasks(user_of, view)
    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", _TaskParams, tasks.get)
    server.add_request_handler("tasks/update", _UpdateTaskParams, tasks.update)
    server.add_request_handler("tasks/cancel", _TaskParams, tasks.cancel)


class _Tasks:
    """Handlers of the requests of the tasks extension."""

    def __init__(self, user_of: Callable[[Context], User], view: ArtifactView) -> None:
        self._user_of = user_of
        self._view = view

    async def get(self, ctx: Context, params: _TaskParams) -> dict[str, Any]:
        """Answer ``tasks/get``: the status of a call, with its question or its result."""
        user = self._require_user(ctx)
        call = await _existing_call(user.calls.get(params.task_id, user.store.scope))
        task = _task_fields(call.record)

        running = _running_call(user, params.task_id)
        if running is not None and running.question is not None:
            question = running.question
            request = question.client_request.request().model_dump(by_alias=True, mode="json", exclude_none=True)
            return {**task, "status": "input_required", "inputRequests": {question.key: request}}
        if not call.record.status.final:
            return {**task, "status": "working"}
        if call.record.status is CallStatus.CANCELLED:
            return task

        try:
            result = _kept_result(call, user.options.max_answer_bytes, self._view)
        except ABPError as error:
            return {**task, "status": "failed", "error": {"code": types.INTERNAL_ERROR, "message": str(error)}}
        content = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {**task, "status": "completed", "result": content}

    async def update(self, ctx: Context, params: _UpdateTaskParams) -> dict[str, Any]:
        """Answer ``tasks/update``: answer the question of a call."""
        user = self._require_user(ctx)
        await _existing_call(user.calls.get(params.task_id, user.store.scope))
        running = _running_call(user, params.task_id)
        if running is not None:
            running.answer_with(params.input_responses)
        return {}

    async def cancel(self, ctx: Context, params: _TaskParams) -> dict[str, Any]:
        user = self._require_user(ctx)
        await _existing_call(user.calls.cancel(params.task_id, user.store.scope))
        return {}

    def _require_user(self, ctx: Context) -> User:
        if not is_modern(ctx):
            raise MCPError(types.METHOD_NOT_FOUND, "tasks are an extension of protocol 2026-07-28")
        return self._user_of(ctx)


async def _existing_call(call: Awaitable[KeptCall]) -> KeptCall:
    """Await a look-up of a call; an unknown call becomes an error of the protocol."""
    try:
        return await call
    except UsageError as error:
        raise MCPError(types.INVALID_PARAMS, error.message) from None
