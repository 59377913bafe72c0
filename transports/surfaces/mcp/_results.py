"""Results of tools: a text, a JSON document, images and links, within a size limit.

Results of detached calls come later: through the tools `abp_call` with `detach`, `abp_result` and `abp_cancel`, and
through the tasks extension of MCP. Both are views of the same calls: with the extension, a call longer than
:data:`TASK_AFTER` becomes a task."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ImageContent,
    InputRequiredResult,
    InputResponses,
    RequestParams,
    ResourceLink,
    TextContent,
)
from mcp_types.version import is_version_at_least
from pydantic import Field

from ..._internal.tasks import in_thread
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef
from ...errors import ABPError, CapabilityError, OutcomeUnknown, UsageError
from ...protocol._plain_text import plain_line, plain_text, plain_tree
from ...protocol._strict_json import JSONValue, decode_json
from ...protocol._times import format_duration, iso_utc
from ...routing._guard import MIN_BYTES, clamp, json_size
from ...routing._result import Result, answered_files
from ...session._call import CallStatus
from ...session._events import CallFinished
from ..shared._activity import CallRecord, call_record
from ..shared._apps import App, run_as_pending
from ..shared._capability_tools import Advice, error_lines
from ..shared._detached import MAX_AGE, KeptCall, MakeContent
from ..shared._previews import ImageLimits, Picture, read_pictures, read_texts
from ._artifacts import ArtifactDescriber
from ._calls import TASKS, Context, ProgressReporter, ToolCall, is_modern
from ._options import Options
from ._users import User

#: Maximum number of characters of a summary.
_MAX_SUMMARY = 4000
#: Keys of references that no model needs: the link has the first two, ``abp_artifacts`` lists them all.
_LISTED_KEYS = frozenset({"uri", "filename", "sha256", "scope"})


class OpenedView(NamedTuple):
    text: str
    document: Mapping[str, object]


async def call_result(
    result: Result,
    *,
    session: str | None,
    store: ArtifactStore,
    options: Options,
    describer: ArtifactDescriber,
    opened: OpenedView | None = None,
) -> CallToolResult:
    """Make the MCP result of a call. ``session`` is the session of the app, or ``None`` for a call without an app;
    ``opened`` is the view that the call has opened.

    Data that does not fit is in an artifact, or marked as omitted. A file that was not stored has no link. A result by
    reference (without ``inline_data``) has neither images nor beginnings of files. The JSON document says nothing
    twice: a file whose reference is in ``data`` is not among the ``artifacts``."""
    max_bytes = options.max_answer_bytes
    if not options.inline_data:
        result = await in_thread(result.by_reference)
    result = result.without_keys(_LISTED_KEYS)
    document = await _call_document(result, session, opened, max_bytes)
    refs = [ref for ref in result.artifacts.values() if ref.stored]

    previewed = _previewed_files(result)
    image_limits = ImageLimits(options.max_image_bytes, options.max_total_image_bytes)
    pictures = await read_pictures(previewed, store, image_limits)
    images, label_bytes = _image_blocks(pictures.shown)

    lines = []
    if opened is not None:
        lines.append(opened.text)
    lines.append(plain_text(result.summary(max_chars=_MAX_SUMMARY)))
    lines += describer.url_lines(refs)
    if pictures.note:
        lines.append(pictures.note)
    seconds_to_live = store.retention.ttl_seconds if store.retention else None
    if refs and seconds_to_live is not None:
        lines.append(f"Kept for {format_duration(seconds_to_live)}.")
    lines += await read_texts(previewed, store, max_bytes // 4)

    message = _fit_result("\n".join(lines), document, refs, describer, max_bytes=max_bytes - label_bytes)
    is_cut = message.structured_content != document
    if is_cut:
        result.report_clamped(json_size(document), json_size(message.structured_content))
    # Images follow the text. They are added last, since they have other limits than the rest of the message.
    message.content[1:1] = images
    return message


def _previewed_files(result: Result) -> list[ArtifactRef]:
    """Return the files of which the result shows an image or the beginning. Files that the router made of long data are
    not among them, since the text shows that data already."""
    if not result.inline_data:
        return []
    return [ref for ref in answered_files(result).values() if ref.stored]


async def _call_document(
    result: Result, session: str | None, opened: OpenedView | None, max_bytes: int
) -> dict[str, object]:
    """Return the JSON document of a result. ``data`` of more than a quarter of ``max_bytes`` is shortened."""
    document: dict[str, object] = {"success": True, "session": session, "data": result.data}
    artifacts = {place: ref for place, ref in result.artifacts.items() if place not in result.inline_fields}
    if artifacts:
        document["artifacts"] = _artifact_entries(artifacts)
    if result.evidence:
        document["evidence"] = [{"kind": kind, **_short_reference(ref)} for kind, ref in result.evidence.items()]
    if result.effects:
        document["effects"] = plain_tree([effect.as_dict() for effect in result.effects])
    if result.warnings:
        document["warnings"] = [plain_line(warning) for warning in result.warnings]
    if opened is not None:
        document["view"] = opened.document
    return document | await _shortened_data(result, max_bytes // 4)


async def _shortened_data(result: Result, max_bytes: int) -> dict[str, object]:
    """Return ``data``, and ``truncated`` if something is cut, in the form for agents. Return an empty dictionary for
    data that is short enough."""
    max_field_chars = result.limits.max_field_chars or max_bytes
    if json_size(result.data) <= min(max_bytes, max_field_chars):
        return {}
    # In a thread, since the data may have a million values.
    view = await in_thread(result.for_agent, max_bytes=max_bytes)
    return {key: view[key] for key in ("data", "truncated") if key in view}


def _artifact_entries(artifacts: Mapping[str, ArtifactRef]) -> list[dict[str, object]]:
    return [{"field": place, **_short_reference(ref)} for place, ref in artifacts.items()]


def _short_reference(ref: ArtifactRef) -> dict[str, object]:
    reference = ref.as_dict()
    if not ref.stored:
        return reference
    return {key: value for key, value in reference.items() if key not in _LISTED_KEYS}


def _image_blocks(pictures: Sequence[Picture]) -> tuple[list[ContentBlock], int]:
    """Return the blocks of pictures and their labels, and the number of bytes of the labels."""
    blocks: list[ContentBlock] = []
    label_bytes = 0
    for picture in pictures:
        if picture.label:
            label = TextContent(text=picture.label)
            label_bytes += len(label.model_dump_json().encode())
            blocks.append(label)
        meta = {"artifact": picture.ref.id, "thumbnail": picture.thumbnail}
        data = base64.b64encode(picture.data).decode()
        blocks.append(ImageContent(data=data, mime_type=picture.mime_type, _meta=meta))
    return blocks, label_bytes


def adapt_to_version(result: CallToolResult, version: str) -> CallToolResult:
    """Replace links by texts for clients before 2025-06-18, which refuse unknown content."""
    if is_version_at_least(version, "2025-06-18"):
        return result
    content: list[ContentBlock] = []
    for block in result.content:
        if isinstance(block, ResourceLink):
            content.append(TextContent(text=f"{block.name}: {block.uri}"))
        else:
            content.append(block)
    return result.model_copy(update={"content": content})


def text_result(text: str, document: Mapping[str, object], max_bytes: int) -> CallToolResult:
    return _fit_result(plain_text(text), dict(document), (), ArtifactDescriber(), max_bytes=max_bytes)


def error_result(error: ABPError, max_bytes: int, describer: ArtifactDescriber) -> CallToolResult:
    """Describe an error, and the part of the answer that was stored before it."""
    lines = error_lines(error, _ADVICE)
    refs: list[ArtifactRef] = []
    document: dict[str, object] = {
        "success": False,
        "error": plain_tree(error.as_dict()),
        "cancelled": isinstance(error, CapabilityError) and error.cancelled,
    }
    if isinstance(error.result, Result):
        refs = [ref for ref in error.result.artifacts.values() if ref.stored]
        document["artifacts"] = _artifact_entries(error.result.artifacts)
        lines.append("These files were stored:" if refs else "The rest of the answer:")
        lines.append(error.result.summary(max_chars=_MAX_SUMMARY))
        lines += describer.url_lines(refs)
    return _fit_result(plain_text("\n".join(lines)), document, refs, describer, max_bytes=max_bytes, is_error=True)


_ADVICE = Advice(
    by_code={
        "UNKNOWN_CAPABILITY": "abp_status lists what the app can do",
        "CAPABILITY_UNAVAILABLE": "meet the requirement, then call again; abp_status lists what is available",
        "LIMIT_REACHED": "disconnect one with abp_disconnect",
        "NOT_INITIALIZED": "call abp_connect with the address of the app",
        "SESSION_INVALID": "abp_status lists the sessions",
        "CALL_NOT_FOUND": "abp_status lists the calls",
        "CALL_EXPIRED": "abp_artifacts lists what it stored",
        "TIMEOUT": "{again}, with a longer `timeout` or for less at once",
    },
    no_artifact="abp_artifacts lists the artifacts",
    connect="connect again with abp_connect",
    arguments="correct the arguments; for those of a capability, abp_status with `capability` has the schema",
)


def _fit_result(
    text: str,
    document: dict[str, object],
    refs: Sequence[ArtifactRef],
    describer: ArtifactDescriber,
    *,
    max_bytes: int,
    is_error: bool = False,
) -> CallToolResult:
    """Halve the largest of document, links and text until the message has at most ``max_bytes``."""
    shown_text = text
    shown_document = document
    shown_links: list[ResourceLink] = []
    if describer.as_resources:
        shown_links = [_resource_link(ref, describer) for ref in refs]

    max_rounds = 40
    min_text_chars = 1000
    for _ in range(max_rounds):
        result = CallToolResult(
            content=[TextContent(text=shown_text), *shown_links],
            structured_content=shown_document,
            is_error=is_error,
        )
        if len(result.model_dump_json(by_alias=True, exclude_none=True).encode()) <= max_bytes:
            return result

        shown_document = _halve_largest_value(shown_document)
        shown_links = shown_links[: max(len(shown_links) // 2, 1)]
        if len(shown_text) > min_text_chars:
            half = max(min_text_chars, len(shown_text) // 2)
            shown_text = shown_text[:half] + "…"

    # Each round has halved only one value of the document, which may have very many.
    return CallToolResult(
        content=[TextContent(text=shown_text[:300] + "…")],
        structured_content={"success": document["success"], "omitted": {}},
        is_error=is_error,
    )


def _resource_link(ref: ArtifactRef, describer: ArtifactDescriber) -> ResourceLink:
    return ResourceLink(
        uri=ref.uri,
        name=ref.filename,
        description=describer.description(ref) if describer.is_large(ref) else None,
        mime_type=ref.mime_type,
        size=ref.size_bytes,
    )


def _halve_largest_value(document: dict[str, object]) -> dict[str, object]:
    """Return a document with its largest value cut in half. For a list, ``omitted`` has the number of items cut."""
    sizes = {key: json_size(value) for key, value in document.items()}
    largest = max(sizes, key=lambda key: sizes[key])
    value = document[largest]

    if isinstance(value, list) and len(value) > 1:
        half = value[: len(value) // 2]
        omitted = document.get("omitted")
        omitted_items = dict(omitted) if isinstance(omitted, dict) else {}
        omitted_items[largest] = omitted_items.get(largest, 0) + len(value) - len(half)
        return {**document, largest: half, "omitted": omitted_items}

    half_size = max(sizes[largest] // 2, MIN_BYTES)
    return {**document, largest: clamp(cast(JSONValue, value), half_size)}


# --- detached calls ---------------------------------------------------------------------------------------------------


class DetachedTools:
    """Tools for the detached calls of one user. Each raises :class:`~transports.errors.ABPError`."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._max_answer_bytes = user.options.max_answer_bytes
        self._scope = user.store.scope

    async def start(
        self, call: ToolCall, app: App, capability: str, work: Callable[[ToolCall], Coroutine[object, object, Result]]
    ) -> CallToolResult:
        """Start a call of `abp_call` with `detach`, and return a result with its id. ``work`` calls the app."""
        record = call_record(app, call.id, capability, detached=True)

        async def begin() -> Result:
            call.task = asyncio.ensure_future(run_as_pending(app.pending_calls, call, work))
            return await call.task

        call.on_question = partial(self._user.calls.question_changed, call.id)
        await self._user.calls.start(record, call, begin(), self._content_maker(app))
        # One turn of the event loop lets the call begin.
        await asyncio.sleep(0)
        text = f"Started: call {call.id} of {plain_line(capability)}.\nabp_result has its result; abp_cancel ends it."
        return text_result(text, {"success": True, **_record_document(record)}, self._max_answer_bytes)

    async def detach(self, call: ToolCall, app: App, capability: str) -> dict[str, object]:
        """Turn a running call into a detached one, and return its task for the client."""
        record = call_record(app, call.id, capability, detached=True)
        call.detached = True
        call.on_question = partial(self._user.calls.question_changed, call.id)
        try:
            started = await self._user.calls.start(record, call, call.task, self._content_maker(app))
        except BaseException:
            await call.aclose()
            raise
        return {"resultType": "task", **_task_fields(started.record)}

    def _content_maker(self, app: App) -> MakeContent:
        """Return the function that makes the stored result of a detached call of ``app`` when the call has finished."""
        user = self._user

        async def make_content(event: CallFinished) -> bytes:
            # The call may have stored artifacts, which are resources of this user.
            user.subscribers.resources_changed()
            if event.result is None:
                error = event.error or ABPError("the call ended without a result")
                content = error_result(error, self._max_answer_bytes, user.describer)
            else:
                content = await call_result(
                    event.result, session=app.key, store=user.store, options=user.options, describer=user.describer
                )
            return content.model_dump_json(by_alias=True, exclude_none=True).encode()

        return make_content

    async def result(
        self,
        ctx: Context,
        reporter: ProgressReporter,
        params: CallToolRequestParams,
        arguments: Mapping[str, Any],
    ) -> CallToolResult | InputRequiredResult:
        """Return the result or the status of a detached call, or the question that its app asks."""
        call_id = str(arguments["call"])
        wait_seconds = float(arguments.get("wait", 20))
        running = _running_call(self._user, call_id)
        if running is not None:
            if params.request_state is not None:
                running.answer_with(params.input_responses)
            question = await running.wait(ctx, reporter, wait_seconds)
            if question is not None:
                return InputRequiredResult(
                    input_requests={question.key: question.client_request.request()}, request_state=f"call {call_id}"
                )
            # The result of a call that has ended is still being written. That takes only a moment.
            wait_seconds = 10.0 if running.task.done() else 0.0

        kept_call = await self._user.calls.get(call_id, self._scope, wait=wait_seconds)
        if running is not None and running.latest_progress is not None:
            kept_call = replace(kept_call, record=replace(kept_call.record, progress=running.latest_progress))
        return _kept_result(kept_call, self._max_answer_bytes)

    async def cancel(self, arguments: Mapping[str, Any]) -> CallToolResult:
        kept_call = await self._user.calls.cancel(str(arguments["call"]), self._scope)
        record = kept_call.record
        text = f"Call {record.id} of {plain_line(record.capability)}: {record.status}"
        return text_result(text, {"success": True, **_record_document(record)}, self._max_answer_bytes)

    async def newest_calls(self) -> list[dict[str, object]]:
        records = await self._user.calls.calls(self._scope, 20)
        return [_record_document(record) for record in reversed(records)]


def _running_call(user: User, call_id: str) -> ToolCall | None:
    """Return a user's call if it is running in this bridge. Return ``None`` for other calls, such as those of the
    gallery."""
    live = user.calls.find_live(call_id, user.store.scope)
    if live is None or not isinstance(live.pending, ToolCall):
        return None
    return live.pending


def _kept_result(call: KeptCall, max_bytes: int) -> CallToolResult:
    """Return the result of a detached call, or its status while it is running. Raises an error if its outcome is
    unknown or its result has expired."""
    if call.content is not None:
        return CallToolResult.model_validate_json(call.content)

    record = call.record
    name = plain_line(record.capability)
    if record.status is CallStatus.UNKNOWN and call.answer is None:
        _, reason = record.error or ("", "it may have run")
        raise OutcomeUnknown(f"{name}: {reason}")
    if call.expired:
        raise UsageError(
            f"{name}: the call is {record.status}; its answer was kept for at most a day and has been deleted",
            code="CALL_EXPIRED",
        )

    document: dict[str, object] = {"success": True, **_record_document(record)}
    if call.answer is not None:
        # The gallery started the call, so its answer is not an MCP result.
        answer: Any = decode_json(call.answer)
        return text_result(f"Call {record.id} of {name}: {record.status}", {**answer, **document}, max_bytes)

    progress = ""
    if record.progress and record.progress.text:
        progress = f" ({record.progress.text})"
    text = f"Call {record.id} of {name} is under way: {record.status}{progress}. Ask again with abp_result."
    return text_result(text, document, max_bytes)


def _record_document(record: CallRecord) -> dict[str, object]:
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


class _TaskParams(RequestParams):
    task_id: str = Field(max_length=100)


class _UpdateTaskParams(_TaskParams):
    input_responses: InputResponses


def _task_fields(record: CallRecord) -> dict[str, object]:
    updated_at = time.time()
    if record.duration_ms is not None:
        updated_at = record.started + record.duration_ms / 1000
    return {
        "taskId": record.id,
        "status": record.status.value,
        "createdAt": iso_utc(record.started),
        "lastUpdatedAt": iso_utc(updated_at),
        "ttlMs": int(MAX_AGE * 1000),
        "pollIntervalMs": 2000,
    }


def add_tasks(server: Server[None], user_of: Callable[[Context], User]) -> None:
    """Add the tasks extension to a server. Tasks are detached calls of the user of a request."""
    tasks = _Tasks(user_of)
    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", _TaskParams, tasks.get)
    server.add_request_handler("tasks/update", _UpdateTaskParams, tasks.update)
    server.add_request_handler("tasks/cancel", _TaskParams, tasks.cancel)


class _Tasks:
    def __init__(self, user_of: Callable[[Context], User]) -> None:
        self._user_of = user_of

    async def get(self, ctx: Context, params: _TaskParams) -> dict[str, Any]:
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
            result = _kept_result(call, user.options.max_answer_bytes)
        except ABPError as error:
            return {**task, "status": "failed", "error": {"code": INTERNAL_ERROR, "message": str(error)}}
        content = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {**task, "status": "completed", "result": content}

    async def update(self, ctx: Context, params: _UpdateTaskParams) -> dict[str, Any]:
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
            raise MCPError(METHOD_NOT_FOUND, "tasks are an extension of protocol 2026-07-28")
        return self._user_of(ctx)


async def _existing_call(call: Awaitable[KeptCall]) -> KeptCall:
    """Await a look-up of a call; an unknown call becomes an error of the protocol."""
    try:
        return await call
    except UsageError as error:
        raise MCPError(INVALID_PARAMS, error.message) from None
