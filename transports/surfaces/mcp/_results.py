"""Results of tools: a text, a JSON document, images and links, within a size limit."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import cast

from mcp_types import CallToolResult, ContentBlock, ImageContent, ResourceLink, TextContent
from mcp_types.version import is_version_at_least

from ..._internal.tasks import in_thread
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef
from ...errors import ABPError, CapabilityError
from ...protocol._plain_text import plain_line, plain_text, plain_tree
from ...protocol._strict_json import JSONValue
from ...protocol._times import format_duration
from ...routing._guard import MIN_BYTES, clamp, json_size
from ...routing._result import Result, answered_files
from ..shared._advice import Advice, error_lines
from ..shared._capability_tools import with_tool_names
from ..shared._previews import ImageLimits, Pictures, read_pictures, read_texts
from ._artifacts import ArtifactView

#: Most characters of a summary.
_MAX_SUMMARY = 4000
#: Keys of references that no model needs: the link has the first two, ``abp_artifacts`` lists them all.
_LISTED_KEYS = frozenset({"uri", "filename", "sha256", "scope"})
#: Keys of :meth:`~transports.Result.for_agent` that replace large data.
_AGENT_KEYS = ("data", "truncated")
#: Bytes of an answer above which it is read for an agent in a thread: it may have a million values.
_LARGE_BYTES = 128 * 1024
#: Most attempts to shrink a result; each halves its largest value.
_MAX_CUTS = 40


async def call_result(
    result: Result,
    *,
    session: str | None,
    store: ArtifactStore,
    max_bytes: int,
    image_limits: ImageLimits,
    view: ArtifactView,
    opened: tuple[str, Mapping[str, object]] | None = None,
) -> CallToolResult:
    """Return the result of a call: a text with the beginnings of text files, images, and links.

    As a message it has at most ``max_bytes``, without images, which have ``image_limits``. Omitted data is in an
    artifact, or marked as omitted. A file that was not stored has no link. A result :meth:`.Result.by_reference` has
    neither images nor beginnings of files. ``opened`` describes the view that the call has opened, as text and as
    JSON.

    The JSON document tells a model what it needs to go on and nothing twice: a file whose reference is in ``data`` is
    not among the ``artifacts``."""
    result = with_tool_names(result).without_keys(_LISTED_KEYS)
    document: dict[str, object] = {"success": True, "session": session, "data": result.data}
    artifacts = {place: ref for place, ref in result.artifacts.items() if place not in result.inline_fields}
    if artifacts:
        document["artifacts"] = [{"field": place, **_reference(ref)} for place, ref in artifacts.items()]
    if result.evidence:
        document["evidence"] = [{"kind": kind, **_reference(ref)} for kind, ref in result.evidence.items()]
    if result.effects:
        document["effects"] = plain_tree([effect.as_dict() for effect in result.effects])
    if result.warnings:
        document["warnings"] = [plain_line(warning) for warning in result.warnings]
    if opened is not None:
        document["view"] = opened[1]
    size = json_size(result.data)
    if size > min(max_bytes // 4, result.limits.max_field_chars or max_bytes):
        read = partial(result.for_agent, max_bytes=max_bytes // 4)
        seen = await in_thread(read) if size > _LARGE_BYTES else read()
        document |= {key: value for key, value in seen.items() if key in _AGENT_KEYS}
    refs = [ref for ref in result.artifacts.values() if ref.stored]
    # the text shows the data, so the files that the router made of it need no preview
    files = [ref for ref in answered_files(result).values() if ref.stored] if result.inline_data else []
    images = await read_pictures(files, store, image_limits)
    blocks = list(_blocks(images))
    texts = await read_texts(files, store, max_bytes // 4)
    notes = [images.note] if images.note else []
    if refs and store.retention and store.retention.ttl_seconds is not None:
        notes.append(f"Kept for {format_duration(store.retention.ttl_seconds)}.")
    summary = plain_text(result.summary(max_chars=_MAX_SUMMARY))
    about = [opened[0]] if opened else []
    text = "\n".join([*about, summary, *view.url_lines(refs), *notes, *texts])
    labels = sum(len(block.model_dump_json().encode()) for block in blocks if isinstance(block, TextContent))
    result_message = _fit(text, document, refs, max_bytes - labels, view, is_error=False)
    if result_message.structured_content != document:  # a message with many references
        result.report_clamped(json_size(document), json_size(result_message.structured_content))
    text_block, *links = result_message.content
    return result_message.model_copy(update={"content": [text_block, *blocks, *links]})


def _reference(ref: ArtifactRef) -> dict[str, object]:
    """Return what a model needs of a reference; all of it if the file was not stored."""
    return {key: value for key, value in ref.as_dict().items() if key not in _LISTED_KEYS or not ref.stored}


def _blocks(images: Pictures) -> Iterator[TextContent | ImageContent]:
    """Yield each image as a content block, after its label if it has one."""
    for picture in images.shown:
        if picture.label:
            yield TextContent(text=picture.label)
        meta = {"artifact": picture.ref.id, "thumbnail": picture.thumbnail}
        data = base64.b64encode(picture.data).decode()
        yield ImageContent(data=data, mime_type=picture.mime_type, _meta=meta)


def for_version(result: CallToolResult, version: str) -> CallToolResult:
    """Return a result for a client of a protocol version. Links exist since 2025-06-18, and older clients refuse
    unknown content, so they get texts."""
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
    """Return an error as a result, so that the model reads it: message, advice on repeating, next step, and the stored
    part of the answer."""
    lines = error_lines(error, _ADVICE)
    refs: list[ArtifactRef] = []
    document: dict[str, object] = {
        "success": False,
        "error": plain_tree(error.as_dict()),
        "cancelled": isinstance(error, CapabilityError) and error.cancelled,
    }
    if isinstance(error.result, Result):  # part of the answer is in the store
        refs = [ref for ref in error.result.artifacts.values() if ref.stored]
        document["artifacts"] = [{"field": place, **_reference(ref)} for place, ref in error.result.artifacts.items()]
        heading = "Stored all the same:" if refs else "The rest of the answer:"
        lines += [heading, error.result.summary(max_chars=_MAX_SUMMARY), *view.url_lines(refs)]
    return _fit(plain_text("\n".join(lines)), document, refs, max_bytes, view, is_error=True)


_ADVICE = Advice(
    by_code={
        "UNKNOWN_CAPABILITY": "abp_status lists what the app can do",
        "CAPABILITY_UNAVAILABLE": "meet the requirement, then call again; abp_status lists what is available",
        "LIMIT_REACHED": "disconnect one with abp_disconnect",
        "NOT_INITIALIZED": "call abp_connect with the address of the app",
        "SESSION_INVALID": "abp_status lists the sessions",
        "CALL_NOT_FOUND": "abp_status lists the calls that there are",
        "CALL_EXPIRED": "abp_artifacts lists what it stored",
        "TIMEOUT": "{again}, with a longer `timeout` or for less at once",
    },
    no_artifact="abp_artifacts lists what there is",
    connect="connect again with abp_connect",
    arguments="correct the arguments; for those of a capability, abp_status with `capability` has the schema",
)


def _fit(
    text: str,
    document: dict[str, object],
    refs: Sequence[ArtifactRef],
    max_bytes: int,
    view: ArtifactView,
    *,
    is_error: bool,
) -> CallToolResult:
    """Return a result of at most ``max_bytes``. Its largest values, its links and its text are cut until it fits."""
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
    links = [ResourceLink.model_validate(link) for link in view.short_links(refs)]
    content: list[ContentBlock] = [TextContent(text=text), *links]
    return CallToolResult(content=content, structured_content=document, is_error=is_error)


def _reduce(document: dict[str, object]) -> dict[str, object]:
    """Return a smaller document of the same form, with its largest value cut in half; a list is cut between items."""
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
