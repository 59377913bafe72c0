"""MCP's tasks: the extension ``io.modelcontextprotocol/tasks`` of protocol 2026-07-28 (SEP-2663).

A call of a client that declares the extension becomes a task when it takes long; the client looks for its end with
``tasks/get``, answers the app's questions with ``tasks/update`` and ends it with ``tasks/cancel``. Other clients have
`abp_call` with `detach`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, InputResponses, RequestParams
from pydantic import Field

from ...errors import ABPError, UsageError
from ...protocol.timestamps import iso_utc
from ...session.handles import CallStatus
from ..shared.call_ledger import MAX_AGE
from ..shared.call_record import CallRecord
from ..shared.kept_call import KeptCall
from .artifact_view import ArtifactView
from .detached_tools import kept_result
from .options import Options
from .pending_call import Context, ToolCall, is_modern
from .user import User

__all__ = ["TASK_AFTER", "add_tasks", "new_task", "takes_tasks"]

_EXTENSION = "io.modelcontextprotocol/tasks"
#: Seconds after which a call becomes a task.
TASK_AFTER = 2.0
#: Milliseconds between two questions how far a task is.
_POLL_INTERVAL = 2000


class TaskParams(RequestParams):
    """Parameters of ``tasks/get`` and ``tasks/cancel``."""

    task_id: str = Field(max_length=100)


class UpdateTaskParams(TaskParams):
    """Parameters of ``tasks/update``."""

    input_responses: InputResponses


def takes_tasks(ctx: Context) -> bool:
    """Whether the client of a request declares the extension with it."""
    capabilities = ctx.session.client_capabilities
    return is_modern(ctx) and capabilities is not None and _EXTENSION in (capabilities.extensions or {})


def new_task(record: CallRecord) -> dict[str, object]:
    """Return the result that hands a call to its client as a task."""
    return {"resultType": "task", **_task(record)}


def _task(record: CallRecord) -> dict[str, object]:
    changed = time.time() if record.duration_ms is None else record.started + record.duration_ms / 1000
    return {
        "taskId": record.id,
        "status": record.status.value,
        "createdAt": iso_utc(record.started),
        "lastUpdatedAt": iso_utc(changed),
        "ttlMs": int(MAX_AGE * 1000),
        "pollIntervalMs": _POLL_INTERVAL,
    }


def add_tasks(server: Server[None], user_of: Callable[[Context], User], options: Options, view: ArtifactView) -> None:
    """Have ``server`` declare the extension and answer its requests for the user of each."""

    async def get(ctx: Context, params: TaskParams) -> dict[str, Any]:
        user = _user(ctx)
        live = user.calls.live(params.task_id, user.store.scope)
        if live is not None and isinstance(live.pending, ToolCall) and (question := live.pending.question):
            asked = question.request().model_dump(by_alias=True, mode="json", exclude_none=True)
            return {**_task(live.record), "status": "input_required", "inputRequests": {question.key: asked}}
        kept = await _known(user.calls.get(params.task_id, user.store.scope))
        task = _task(kept.record)
        if not kept.record.status.final:
            return {**task, "status": "working"}
        if kept.record.status is CallStatus.CANCELLED:
            return task
        try:
            result = kept_result(kept, options.max_answer_bytes, view)
        except ABPError as error:
            return {**task, "status": "failed", "error": {"code": INTERNAL_ERROR, "message": str(error)}}
        return {
            **task,
            "status": "completed",
            "result": result.model_dump(by_alias=True, mode="json", exclude_none=True),
        }

    async def update(ctx: Context, params: UpdateTaskParams) -> dict[str, Any]:
        user = _user(ctx)
        await _known(user.calls.get(params.task_id, user.store.scope))
        live = user.calls.live(params.task_id, user.store.scope)
        if live is not None and isinstance(live.pending, ToolCall):
            live.pending.answer_with(params.input_responses)
        return {}

    async def cancel(ctx: Context, params: TaskParams) -> dict[str, Any]:
        user = _user(ctx)
        await _known(user.calls.cancel(params.task_id, user.store.scope))
        return {}

    def _user(ctx: Context) -> User:
        if not is_modern(ctx):
            raise MCPError(METHOD_NOT_FOUND, "tasks are an extension of protocol 2026-07-28")
        return user_of(ctx)

    server.extensions[_EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, get)
    server.add_request_handler("tasks/update", UpdateTaskParams, update)
    server.add_request_handler("tasks/cancel", TaskParams, cancel)


async def _known(work: Awaitable[KeptCall]) -> KeptCall:
    try:
        return await work
    except UsageError as error:
        raise MCPError(INVALID_PARAMS, error.message) from None
