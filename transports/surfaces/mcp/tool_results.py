"""Results of tools: a short text, the JSON document of ``abp call --json``, and links; never larger than the limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent
from mcp_types.version import is_version_at_least

from ...artifacts import ArtifactRef, ArtifactStore
from ...binary.detect import Place, field_of, replace
from ...errors import ABPError, ArtifactNotFound, CapabilityError, UsageError
from ...errors.transport import may_have_run, repeat_advice
from ...protocol.durations import format_duration
from ...protocol.plain_text import plain_line, plain_text, plain_tree
from ...protocol.strict_json import JSONValue
from ...routing import Result, clamp
from ...routing.guard import MIN_BYTES, json_size
from ...session.resources import READ_HINT
from .artifact_view import ArtifactView
from .capability_tools import tool_name
from .images import read_images
from .texts import read_texts

__all__ = ["call_result", "error_result", "for_version", "text_result"]

#: Characters of a summary.
_MAX_SUMMARY = 4000
#: Keys of :meth:`~transports.Result.for_agent` that replace data that is too large.
_AGENT_KEYS = ("data", "truncated")
#: Attempts to make a result smaller; each halves its largest value.
_MAX_CUTS = 40


async def call_result(
    result: Result,
    *,
    session: str | None,
    store: ArtifactStore,
    max_bytes: int,
    max_image_bytes: int,
    view: ArtifactView,
) -> CallToolResult:
    """Return the result of a call: a text, with the beginning of files that are text; images; links.

    It has at most ``max_bytes`` as a message, apart from images, which have ``max_image_bytes`` together before base64.
    Data that is left out is in an artifact, or the result says that it is left out. A file that was not stored has no
    link."""
    result = _with_tool_names(result)
    document: dict[str, object] = {**result.as_dict(), "session": session, "capability": plain_line(result.capability)}
    document["warnings"] = [plain_line(warning) for warning in result.warnings]
    if "effects" in document:
        document["effects"] = plain_tree(document["effects"])
    if json_size(document["data"]) > max_bytes // 4:
        document |= {
            key: value for key, value in result.for_agent(max_bytes=max_bytes // 4).items() if key in _AGENT_KEYS
        }
    refs = [ref for ref in result.artifacts.values() if ref.stored]
    made = {"", *map(field_of, result.previews)} - result.inline_fields  # by the router, of data that is shown anyway
    files = [ref for place, ref in result.artifacts.items() if ref.stored and place not in made]
    images = await read_images(files, store, max_image_bytes)
    texts = await read_texts(files, store, max_bytes // 4)
    notes = [images.note] if images.note else []
    if refs and store.retention and store.retention.ttl_seconds is not None:
        notes.append(f"Kept for {format_duration(store.retention.ttl_seconds)}.")
    summary = plain_text(result.summary(max_chars=_MAX_SUMMARY))
    text = "\n".join([summary, *view.url_lines(refs), *notes, *texts])
    labels = sum(len(block.model_dump_json().encode()) for block in images.blocks if isinstance(block, TextContent))
    result_message = _fit(text, document, refs, max_bytes - labels, view, is_error=False)
    if result_message.structured_content != document:  # a message with many references
        result.report_clamped(json_size(document), json_size(result_message.structured_content))
    text_block, *links = result_message.content
    return result_message.model_copy(update={"content": [text_block, *images.blocks, *links]})


def _with_tool_names(result: Result) -> Result:
    """``result``, with the tool that reads a link named beside it in the place of the capability."""
    blocks = result.data.get("content") if isinstance(result.data, dict) else None
    if not isinstance(blocks, list):
        return result
    hint = READ_HINT.replace("resources.read", tool_name("resources.read"))
    links = [at for at, block in enumerate(blocks) if isinstance(block, dict) and block.get("hint") == READ_HINT]
    places: dict[Place, object] = {("content", at, "hint"): hint for at in links}
    return dataclasses.replace(result, data=cast(JSONValue, replace(result.data, places)))


def for_version(result: CallToolResult, version: str) -> CallToolResult:
    """Return a result for a client of that protocol version: links came with 2025-06-18, and older clients refuse
    content that they do not know."""
    if is_version_at_least(version, "2025-06-18"):
        return result
    content = [
        TextContent(text=f"{item.name}: {item.uri}") if isinstance(item, ResourceLink) else item
        for item in result.content
    ]
    return result.model_copy(update={"content": content})


def text_result(text: str, document: Mapping[str, object], max_bytes: int) -> CallToolResult:
    """Return a result without artifacts."""
    return _fit(plain_text(text), dict(document), (), max_bytes, ArtifactView(), is_error=False)


def error_result(error: ABPError, max_bytes: int, view: ArtifactView) -> CallToolResult:
    """Return an error as a result, so that the model reads it: what went wrong, whether to repeat the call, what to do
    next, and what was stored all the same."""
    lines = [f"{error.message} [{error.code}]"]
    if error.retryable:
        after = "" if error.retry_after is None else f", after {error.retry_after:g} s"
        lines.append(f"Retryable: yes{after}")
    else:
        lines.append("Retryable: not before something has changed")
    if error.alternatives:
        lines.append(f"Alternatives: {', '.join(error.alternatives[:20])}")
    lines.append(f"Next: {_next(error)}")
    refs: list[ArtifactRef] = []
    document: dict[str, object] = {
        "success": False,
        "error": plain_tree(error.as_dict()),
        "cancelled": isinstance(error, CapabilityError) and error.cancelled,
    }
    if isinstance(error.result, Result):  # part of the answer is in the store
        refs = [ref for ref in error.result.artifacts.values() if ref.stored]
        document["artifacts"] = error.result.as_dict()["artifacts"]
        heading = "Stored all the same:" if refs else "The rest of the answer:"
        lines += [heading, error.result.summary(max_chars=_MAX_SUMMARY), *view.url_lines(refs)]
    return _fit(plain_text("\n".join(lines)), document, refs, max_bytes, view, is_error=True)


_NEXT = {
    "UNKNOWN_CAPABILITY": "abp_status lists what the app can do",
    "CAPABILITY_UNAVAILABLE": "meet the requirement, then call again; abp_status tells what is available",
    "LIMIT_REACHED": "disconnect one with abp_disconnect",
    "NOT_INITIALIZED": "call abp_connect with the address of the app",
    "SESSION_INVALID": "abp_status lists the sessions",
    "CALL_NOT_FOUND": "abp_status lists the calls that there are",
    "CALL_EXPIRED": "abp_artifacts lists what it stored",
    "TIMEOUT": "{again}, with a longer `timeout` or for less at once",
    "CANCELLED": "ask the user whether to go on",
    "INVALID_ANSWER": "call again, and answer the app's question as it asks",
    "PERMISSION_REQUIRED": "ask the user",
    "PERMISSION_DENIED": "ask the user",
    "TRANSPORT_ERROR": "check the address, and whether the app runs",
    "BROWSER_ERROR": "have the user run `abp doctor`",
    "NOT_SUPPORTED": "check with the user that this app speaks ABP",
}


def _next(error: ABPError) -> str:
    if isinstance(error, ArtifactNotFound):
        return "abp_artifacts lists what there is"
    again, connect = repeat_advice(error), "connect again with abp_connect"
    if known := _NEXT.get(error.code):
        return known.format(again=again)
    if argument := error.details.get("argument"):
        return f"correct the argument {argument} and call again"
    if not error.session_survives:
        if error.retryable:
            return f"{again}; if that fails too, {connect}"
        return f"{connect}; {again}" if may_have_run(error) else connect
    if isinstance(error, UsageError):
        return "correct the arguments; for those of a capability, abp_status with `capability` has the schema"
    if error.retryable or may_have_run(error):
        return again
    return "do not repeat it unchanged; tell the user if there is no other way"


def _fit(
    text: str,
    document: dict[str, object],
    refs: Sequence[ArtifactRef],
    max_bytes: int,
    view: ArtifactView,
    *,
    is_error: bool,
) -> CallToolResult:
    """A result of at most ``max_bytes``: the largest values are cut, and links and text too, until it fits."""
    reduced, links = document, list(refs)
    for _ in range(_MAX_CUTS):
        result = _result(text, reduced, links, view, is_error)
        if len(result.model_dump_json(by_alias=True, exclude_none=True).encode()) <= max_bytes:
            return result
        reduced, links = _reduce(reduced), links[: max(len(links) // 2, 1)]
        text = text if len(text) <= 1000 else text[: max(1000, len(text) // 2)] + "…"
    return _result(text[:300] + "…", {"success": document["success"], "omitted": {}}, (), view, is_error)


def _result(
    text: str, document: object, refs: Sequence[ArtifactRef], view: ArtifactView, is_error: bool
) -> CallToolResult:
    content: list[ContentBlock] = [TextContent(text=text), *view.links(refs)]
    return CallToolResult(content=content, structured_content=document, is_error=is_error)


def _reduce(document: dict[str, object]) -> dict[str, object]:
    """A smaller document of the same form: its largest value is cut in half, a list between two items."""
    sizes = {key: json_size(value) for key, value in document.items()}
    largest = max(sizes, key=lambda key: sizes[key])
    value = document[largest]
    omitted = document.get("omitted")
    notes = dict(omitted) if isinstance(omitted, dict) else {}
    if isinstance(value, list) and len(value) > 1:
        half = value[: len(value) // 2]
        notes[largest] = notes.get(largest, 0) + len(value) - len(half)
        return {**document, largest: half, "omitted": notes}
    return {**document, largest: clamp(cast(JSONValue, value), max(sizes[largest] // 2, MIN_BYTES))}
