"""Results of tools: a text, a JSON document, images and links, within a size limit."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

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
from ..shared._capability_tools import Advice, error_lines, with_tool_names
from ..shared._previews import ImageLimits, Picture, read_pictures, read_texts
from ._artifacts import ArtifactView

#: Most characters of a summary.
_MAX_SUMMARY = 4000
#: Keys of references that no model needs: the link has the first two, ``abp_artifacts`` lists them all.
_LISTED_KEYS = frozenset({"uri", "filename", "sha256", "scope"})


class OpenedView(NamedTuple):
    """Description of a view that a call has opened, as text and as JSON."""

    text: str
    document: Mapping[str, object]


async def call_result(
    result: Result,
    *,
    session: str | None,
    store: ArtifactStore,
    max_bytes: int,
    image_limits: ImageLimits,
    view: ArtifactView,
    opened: OpenedView | None = None,
) -> CallToolResult:
    """Return the result of a call as an MCP result: a text with the beginnings of text files, images, and links.

    The message has at most ``max_bytes``, apart from its images, which have ``image_limits``. Omitted data is in an
    artifact, or marked as omitted. A file that was not stored has no link. A result :meth:`.Result.by_reference` has
    neither images nor beginnings of files. ``opened`` describes the view that the call has opened.

    The JSON document says nothing twice: a file whose reference is in ``data`` is not among the ``artifacts``."""
    result = with_tool_names(result).without_keys(_LISTED_KEYS)
    document = await _call_document(result, session, opened, max_bytes)
    refs = [ref for ref in result.artifacts.values() if ref.stored]

    previewed: list[ArtifactRef] = []
    if result.inline_data:
        # Files that the router made of long data need no preview, since the text shows the data.
        previewed = [ref for ref in answered_files(result).values() if ref.stored]
    pictures = await read_pictures(previewed, store, image_limits)
    images, label_bytes = _image_blocks(pictures.shown)

    lines = []
    if opened is not None:
        lines.append(opened.text)
    lines.append(plain_text(result.summary(max_chars=_MAX_SUMMARY)))
    lines += view.url_lines(refs)
    if pictures.note:
        lines.append(pictures.note)
    if refs and store.retention and store.retention.ttl_seconds is not None:
        lines.append(f"Kept for {format_duration(store.retention.ttl_seconds)}.")
    lines += await read_texts(previewed, store, max_bytes // 4)

    message = _fit_result(max_bytes - label_bytes, "\n".join(lines), document, refs, view)
    is_cut = message.structured_content != document
    if is_cut:
        result.report_clamped(json_size(document), json_size(message.structured_content))
    message.content[1:1] = images
    return message


async def _call_document(
    result: Result, session: str | None, opened: OpenedView | None, max_bytes: int
) -> dict[str, object]:
    """Return the JSON document of a result. ``data`` of more than a quarter of ``max_bytes`` is shortened."""
    document: dict[str, object] = {"success": True, "session": session, "data": result.data}
    artifacts = [
        {"field": place, **_short_reference(ref)}
        for place, ref in result.artifacts.items()
        if place not in result.inline_fields
    ]
    if artifacts:
        document["artifacts"] = artifacts
    if result.evidence:
        document["evidence"] = [{"kind": kind, **_short_reference(ref)} for kind, ref in result.evidence.items()]
    if result.effects:
        document["effects"] = plain_tree([effect.as_dict() for effect in result.effects])
    if result.warnings:
        document["warnings"] = [plain_line(warning) for warning in result.warnings]
    if opened is not None:
        document["view"] = opened.document

    max_data_bytes = max_bytes // 4
    max_field_chars = result.limits.max_field_chars or max_bytes
    data_bytes = json_size(result.data)
    if data_bytes > min(max_data_bytes, max_field_chars):
        shorten = partial(result.for_agent, max_bytes=max_data_bytes)
        if data_bytes > 128 * 1024:
            # It may have a million values.
            shortened = await in_thread(shorten)
        else:
            shortened = shorten()
        for key in ("data", "truncated"):
            if key in shortened:
                document[key] = shortened[key]
    return document


def _short_reference(ref: ArtifactRef) -> dict[str, object]:
    """Return the fields of a reference that a model needs; all fields if the file was not stored."""
    reference = ref.as_dict()
    if not ref.stored:
        return reference
    return {key: value for key, value in reference.items() if key not in _LISTED_KEYS}


def _image_blocks(pictures: Sequence[Picture]) -> tuple[list[ContentBlock], int]:
    """Return each image as a block, after its label if it has one, and the bytes of all labels."""
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


def for_version(result: CallToolResult, version: str) -> CallToolResult:
    """Return a result for clients of a protocol version: with texts instead of links before 2025-06-18, since older
    clients refuse unknown content."""
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
    return _fit_result(max_bytes, plain_text(text), dict(document), (), ArtifactView())


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
    if isinstance(error.result, Result):
        # A part of the answer was stored before the error.
        artifacts = error.result.artifacts
        refs = [ref for ref in artifacts.values() if ref.stored]
        document["artifacts"] = [{"field": place, **_short_reference(ref)} for place, ref in artifacts.items()]
        lines.append("These files were stored:" if refs else "The rest of the answer:")
        lines.append(error.result.summary(max_chars=_MAX_SUMMARY))
        lines += view.url_lines(refs)
    return _fit_result(max_bytes, plain_text("\n".join(lines)), document, refs, view, is_error=True)


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
    max_bytes: int,
    text: str,
    document: dict[str, object],
    refs: Sequence[ArtifactRef],
    view: ArtifactView,
    *,
    is_error: bool = False,
) -> CallToolResult:
    """Return a result of at most ``max_bytes``. Halve its largest value, its links and its text until it fits."""
    shown_text = text
    shown_document = document
    shown_links: list[ResourceLink] = []
    if view.as_resources:
        shown_links = [_link(ref, view) for ref in refs]

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

    # A round halves one value of the document, which may have very many.
    return CallToolResult(
        content=[TextContent(text=shown_text[:300] + "…")],
        structured_content={"success": document["success"], "omitted": {}},
        is_error=is_error,
    )


def _link(ref: ArtifactRef, view: ArtifactView) -> ResourceLink:
    """Return the link to an artifact. It has a description only if the artifact is large: how to read it in ranges.
    The result itself describes the others."""
    return ResourceLink(
        uri=ref.uri,
        name=ref.filename,
        description=view.description(ref) if view.is_large(ref) else None,
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
