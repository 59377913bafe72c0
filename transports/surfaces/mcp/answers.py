"""What a tool answers: a few words, the result document of the command line, and links; never more than fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from mcp_types import CallToolResult, ResourceLink, TextContent
from mcp_types.version import is_version_at_least

from ...artifacts import ArtifactRef, ArtifactStore
from ...errors import ABPError, ArtifactNotFound, CapabilityError, UsageError
from ...protocol.strict_json import JSONValue
from ...routing import Result, clamp
from ...routing.guard import MIN_BYTES, json_size
from .about import Link, described
from .images import pictures

__all__ = ["failure", "for_version", "plain", "success"]

_LONGEST_SUMMARY = 4000
_MOST_URLS = 5
#: What of an agent's view stands for an answer that is too large (:meth:`~transports.Result.for_agent`).
_CUT = ("data", "truncated")
_ROUNDS = 40


async def success(
    result: Result,
    *,
    session: str,
    store: ArtifactStore,
    max_bytes: int,
    max_image_bytes: int,
    link: Link | None = None,
) -> CallToolResult:
    """The answer to a call. At most ``max_bytes`` as a message, images apart, which are ``max_image_bytes`` at most
    together, before base64. What is left out is an artifact, or said to be left out."""
    document: dict[str, object] = {**result.as_dict(), "session": session}
    if json_size(document["data"]) > max_bytes // 4:
        document |= {key: value for key, value in result.for_agent(max_bytes=max_bytes // 4).items() if key in _CUT}
    refs = list(result.artifacts.values())
    text = "\n".join([result.summary(max_chars=_LONGEST_SUMMARY), *_urls(refs, link)])
    answer = _fitted(text, document, refs, max_bytes, link, is_error=False)
    images = await pictures(refs, store, max_image_bytes)
    return answer.model_copy(update={"content": [*answer.content[:1], *images, *answer.content[1:]]})


def _urls(refs: Sequence[ArtifactRef], link: Link | None) -> list[str]:
    """Lines for people and models that open addresses."""
    urls = [url for ref in refs[:_MOST_URLS] if link and (url := link(ref))]
    return [f"Open: {url}" for url in urls]


def for_version(answer: CallToolResult, version: str) -> CallToolResult:
    """The answer for a client of that version: links came with 2025-06-18, and older clients refuse what they do not
    know."""
    if is_version_at_least(version, "2025-06-18"):
        return answer
    content = [
        TextContent(text=f"{item.name}: {item.uri}") if isinstance(item, ResourceLink) else item
        for item in answer.content
    ]
    return answer.model_copy(update={"content": content})


def plain(text: str, document: Mapping[str, object], max_bytes: int) -> CallToolResult:
    """An answer without artifacts."""
    return _fitted(text, dict(document), (), max_bytes, None, is_error=False)


def failure(error: ABPError, max_bytes: int, link: Link | None = None) -> CallToolResult:
    """An error as an answer: the model is to read it and go on."""
    lines = [f"{error.message} [{error.code}]"]
    if error.retryable:
        after = "" if error.retry_after is None else f", after {error.retry_after:g} s"
        lines.append(f"Retryable: yes{after}")
    else:
        lines.append("Retryable: no, not unchanged")
    if error.alternatives:
        lines.append(f"Alternatives: {', '.join(error.alternatives[:20])}")
    lines.append(f"Next: {_next(error)}")
    refs: list[ArtifactRef] = []
    document: dict[str, object] = {
        "success": False,
        "error": error.as_dict(),
        "cancelled": isinstance(error, CapabilityError) and error.cancelled,
    }
    if isinstance(error.result, Result):  # part of the answer is in the store
        refs = list(error.result.artifacts.values())
        document["artifacts"] = error.result.as_dict()["artifacts"]
        lines += ["Stored all the same:", error.result.summary(max_chars=_LONGEST_SUMMARY), *_urls(refs, link)]
    return _fitted("\n".join(lines), document, refs, max_bytes, link, is_error=True)


_NEXT = {
    "UNKNOWN_CAPABILITY": "abp_status lists what the app can do",
    "CAPABILITY_UNAVAILABLE": "meet the requirement, then call again; abp_status tells what is available",
    "LIMIT_REACHED": "disconnect one with abp_disconnect",
    "NOT_INITIALIZED": "call abp_connect with the address of the app",
    "SESSION_INVALID": "abp_status lists the sessions",
    "TIMEOUT": "call again with a longer `timeout`, or ask for less at once",
    "CANCELLED": "ask the user whether to go on",
    "PERMISSION_REQUIRED": "ask the user",
    "PERMISSION_DENIED": "ask the user",
    "TRANSPORT_ERROR": "check the address, and whether the app runs",
    "BROWSER_ERROR": "have the user run `abp doctor`",
    "NOT_SUPPORTED": "check with the user that this app speaks ABP",
}


def _next(error: ABPError) -> str:
    if isinstance(error, ArtifactNotFound):
        return "abp_artifacts lists what there is"
    if known := _NEXT.get(error.code):
        return known
    if not error.session_survives:
        return "connect again with abp_connect"
    if isinstance(error, UsageError):
        return "correct the arguments; abp_status with `capability` has their schema"
    return "call again" if error.retryable else "do not repeat it unchanged; tell the user if there is no other way"


def _fitted(
    text: str,
    document: dict[str, object],
    refs: Sequence[ArtifactRef],
    max_bytes: int,
    link: Link | None,
    *,
    is_error: bool,
) -> CallToolResult:
    """The answer, cut where it may be cut until it fits: lists first, then other values, then words."""
    left, links = document, list(refs)
    for _ in range(_ROUNDS):
        answer = _answer(text, left, links, link, is_error)
        if len(answer.model_dump_json(by_alias=True, exclude_none=True).encode()) <= max_bytes:
            return answer
        left, links = _less(left), links[: max(len(links) // 2, 1)]
        text = text if len(text) <= 1000 else text[: max(1000, len(text) // 2)] + "…"
    return _answer(text[:300] + "…", {"success": document["success"], "omitted": {}}, (), None, is_error)


def _answer(
    text: str, document: object, refs: Sequence[ArtifactRef], link: Link | None, is_error: bool
) -> CallToolResult:
    links = [ResourceLink(**described(ref, link).model_dump()) for ref in refs]
    return CallToolResult(content=[TextContent(text=text), *links], structured_content=document, is_error=is_error)


def _less(document: dict[str, object]) -> dict[str, object]:
    """A smaller document of the same form: the largest of its values cut to half, a list between two items."""
    sizes = {key: json_size(value) for key, value in document.items()}
    largest = max(sizes, key=lambda key: sizes[key])
    value = document[largest]
    omitted = document.get("omitted")
    notes = dict(omitted) if isinstance(omitted, dict) else {}
    if isinstance(value, list) and len(value) > 1:
        kept = value[: len(value) // 2]
        notes[largest] = notes.get(largest, 0) + len(value) - len(kept)
        return {**document, largest: kept, "omitted": notes}
    return {**document, largest: clamp(cast(JSONValue, value), max(sizes[largest] // 2, MIN_BYTES))}
