"""Results of tools: a text, the JSON document of ``abp call --json``, images and links, within a size limit.

:func:`read_images` and :func:`read_texts` preview files, :class:`ArtifactView` describes artifacts to clients, and
:func:`call_result` and :func:`error_result` make the messages."""

from __future__ import annotations

import base64
import codecs
import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

from mcp_types import Annotations, CallToolResult, ContentBlock, ImageContent, Resource, ResourceLink, TextContent
from mcp_types.version import is_version_at_least

from ...artifacts import ArtifactRef, ArtifactStore
from ...binary.detect import Place, field_of, replace
from ...errors import ABPError, ArtifactNotFound, CapabilityError, UsageError, may_have_run, repeat_advice
from ...protocol import JSONValue, format_duration, plain_line, plain_text, plain_tree
from ...readers import MAX_SOURCE, run_reader
from ...routing import (
    MIN_BYTES,
    FileLimits,
    Result,
    auto_read_safe,
    clamp,
    estimated_tokens,
    is_textual,
    json_size,
    large_file_warning,
)
from ...session import READ_HINT
from ...tasks import in_thread
from ._tool_list import tool_name

#: Image types that clients show, and image types that are sent as PNG.
_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")
_CONVERTED = ("image/bmp", "image/tiff", "image/avif")
#: Most images in one result (docs/requirements.md R3-9b).
_MAX_IMAGES = 4


@dataclass(slots=True)
class Images:
    """Images of a result as content blocks, each after a label if there are several. ``note`` gives the number of
    missing images and the reason; it is empty if none is missing."""

    blocks: list[TextContent | ImageContent] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits of the images in one result, in bytes before base64: of each image, and of all of them."""

    each: int
    total: int


async def read_images(refs: Sequence[ArtifactRef], store: ArtifactStore, limits: ImageLimits) -> Images:
    """Return the first four images among ``refs`` within ``limits``. If Pillow is installed, large images are made
    smaller, and types that clients do not show are converted."""
    images = [ref for ref in refs if ref.mime_type in (*_SHOWN, *_CONVERTED)]
    result = Images()
    if not images or not limits.each or not limits.total:
        return result
    shown = 0
    chosen = images[:_MAX_IMAGES]
    for number, (ref, share) in enumerate(zip(chosen, _shares(chosen, limits), strict=True), 1):
        made = await _image(ref, store, share)
        if made is None:
            continue
        block, how = made
        shown += 1
        if len(images) > 1:
            result.blocks.append(TextContent(text=f"Image {number} of {len(images)}: {ref.filename}{how}"))
        result.blocks.append(block)
    if shown < len(images):
        result.note = f"Images: {shown} of {len(images)} shown; the others are behind their links"
        if shown < len(chosen) and importlib.util.find_spec("PIL") is None:
            result.note += "; large ones and other formats need Pillow: pip install 'abp-transports[images]'"
    return result


def _shares(refs: Sequence[ArtifactRef], limits: ImageLimits) -> list[int]:
    """Return the size limit of each image in bytes. Small images leave their unused share to larger ones."""
    shares, left = [0] * len(refs), limits.total
    by_size = sorted(range(len(refs)), key=lambda at: (refs[at].mime_type in _CONVERTED, refs[at].size_bytes))
    for images, at in zip(range(len(refs), 0, -1), by_size, strict=True):
        shares[at] = min(limits.each, left // images)
        as_it_is = refs[at].mime_type in _SHOWN
        left -= min(shares[at], refs[at].size_bytes) if as_it_is else shares[at]
    return shares


async def _image(ref: ArtifactRef, store: ArtifactStore, max_bytes: int) -> tuple[ImageContent, str] | None:
    """Return an image, and a description of its size and changes; ``None`` if it cannot be shown."""
    if ref.size_bytes > MAX_SOURCE:
        return None
    try:
        data = await store.get(ref)
    except ABPError:  # removed meanwhile, or damaged: the result still has its reference
        return None
    if ref.mime_type in _SHOWN and len(data) <= max_bytes:
        return _block(ref, data, ref.mime_type, thumbnail=False), f" ({ref.size_bytes:,} bytes)"
    if (made := await run_reader("thumbnail", data, max_bytes)) is None:
        return None
    about, data = made
    mime_type = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
    (width, height), (wide, high) = about["size"], about["source"]
    if smaller := (width, height) != (wide, high):
        change = f"shown as {width} × {height}"
    else:
        change = "with fewer colours or details" if ref.mime_type in _SHOWN else f"{ref.mime_type} as PNG"
    frames = f", the first of {about['frames']}" if about["frames"] > 1 else ""
    block = _block(ref, data, mime_type, thumbnail=smaller or ref.mime_type in _SHOWN)
    return block, f" ({wide} × {high} pixels, {change}{frames})"


def _block(ref: ArtifactRef, data: bytes, mime_type: str, *, thumbnail: bool) -> ImageContent:
    meta = {"artifact": ref.id, "thumbnail": thumbnail}
    return ImageContent(data=base64.b64encode(data).decode(), mime_type=mime_type, _meta=meta)


_PDF, _SVG = "application/pdf", "image/svg+xml"
#: Most previewed files of one result, and most characters of a text and of an SVG or PDF, which has more because a
#: model cannot read it in another way.
_MAX_FILES, _MAX_TEXT, _MAX_DOCUMENT = 4, 500, 4000
#: Most characters read from a PDF.
_MAX_ALL = 10_000_000


async def read_texts(refs: Sequence[ArtifactRef], store: ArtifactStore, max_chars: int) -> list[str]:
    """Return the beginnings of the first four files that are text, SVG or PDF, each below a line with its name, with
    ``max_chars`` at most in total."""
    texts: list[str] = []
    for ref in [ref for ref in refs if ref.mime_type == _PDF or is_textual(ref.mime_type)][:_MAX_FILES]:
        limit = min(max_chars, _MAX_DOCUMENT if ref.mime_type in (_PDF, _SVG) else _MAX_TEXT)
        try:
            text = await (_pdf(ref, store, limit) if ref.mime_type == _PDF else _head(ref, store, limit))
        except ABPError:  # removed meanwhile, or damaged: the result still has its reference
            continue
        if text:
            texts.append(text)
            max_chars -= len(text)
        if max_chars <= 0:
            break
    return texts


async def document_text(ref: ArtifactRef, store: ArtifactStore) -> str:
    """Return the text of a PDF, at most ten million characters.

    Raises :class:`~transports.errors.UsageError` for another type, for a PDF that cannot be read or has more than
    64 MiB, and without pypdfium2. Propagates errors of the store."""
    if ref.mime_type != _PDF or ref.size_bytes > MAX_SOURCE:
        raise UsageError(f"text: {ref.filename} is not a PDF of at most {MAX_SOURCE:,} bytes; read it without `text`")
    made = await run_reader("pdf_text", await store.get(ref), _MAX_ALL)
    if made is None:
        missing = importlib.util.find_spec("pypdfium2") is None
        reason = "pypdfium2 is needed: pip install 'abp-transports[pdf]'" if missing else "it cannot be read"
        raise UsageError(f"text: {ref.filename}: {reason}")
    return made[1].decode()


async def _head(ref: ArtifactRef, store: ArtifactStore, limit: int) -> str:
    data = await store.get(ref, offset=0, length=4 * limit)  # a character has at most four bytes
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) == ref.size_bytes)
    except UnicodeDecodeError:
        return ""
    if len(text) <= limit and len(data) == ref.size_bytes:
        return f"{ref.filename}:\n{text}"
    return f"{ref.filename} begins:\n{text[:limit]}\n… (truncated; {ref.size_bytes:,} bytes in all)"


async def _pdf(ref: ArtifactRef, store: ArtifactStore, limit: int) -> str:
    if importlib.util.find_spec("pypdfium2") is None:
        return f"The text of {ref.filename} needs pypdfium2: pip install 'abp-transports[pdf]'"
    if ref.size_bytes > MAX_SOURCE or (made := await run_reader("pdf_text", await store.get(ref), limit)) is None:
        return ""
    about, data = made
    text, pages = data.decode(), about["pages"]
    if not text.strip():
        return f"{ref.filename} has {pages} pages and no text in the first {about['read']}"
    whole = about["read"] == pages and len(text) < limit
    end = "" if whole else f"\n… (truncated; {pages} pages in all)"
    return f"Text of {ref.filename}{'' if whole else ', from its beginning'}:\n{text}{end}"


#: Function that returns a URL of an artifact, such as a signed one, or ``None``.
Link: TypeAlias = Callable[[ArtifactRef], str | None]

_LARGE = "large: read ranges, artifact://ID?offset=0&length=1000000, or use the local file"
#: Most URLs of artifacts in one text.
_MAX_URLS = 5
#: Most characters of the name of a capability.
_MAX_NAME = 200


def _warnings(ref: ArtifactRef) -> list[str]:
    """Return the first five warnings of the call that an artifact is of."""
    listed = ref.source.get("warnings")
    return [plain_line(str(item)) for item in listed[:5]] if isinstance(listed, list) else []


@dataclass(frozen=True, slots=True)
class ArtifactView:
    """Description of artifacts for clients: metadata, resources, links and URLs.

    ``limits`` decide which artifacts count as large, and which may be read without asking. ``link`` returns a URL that
    opens an artifact. Without ``as_resources`` results hold no links to artifacts, since clients cannot read them."""

    limits: FileLimits = field(default_factory=FileLimits)
    link: Link | None = None
    as_resources: bool = True

    def meta(self, ref: ArtifactRef) -> dict[str, Any]:
        """Return the ``_meta`` of a resource: size in bytes, SHA-256, estimated tokens of its content with the
        resulting flags, at most five warnings of its call, and its ``url`` if there is one.

        ``readOnlyHint`` and ``idempotentHint`` mean that reading changes nothing and may be repeated; MCP has no such
        annotations for resources."""
        meta = {
            "size_bytes": ref.size_bytes,
            "sha256": ref.sha256,
            **self._reading(ref),
            "warnings": [*_warnings(ref), *([_LARGE] if self.is_large(ref) else [])],
            "readOnlyHint": True,
            "idempotentHint": True,
        }
        url = self.url(ref)
        return meta if url is None else {**meta, "url": url}

    def entry(self, ref: ArtifactRef) -> dict[str, object]:
        """Return an artifact as an entry of ``abp_artifacts``: its reference, its estimated tokens, and its flags."""
        url = self.url(ref)
        return {**ref.as_dict(), **self._reading(ref), **({"url": url} if url else {})}

    def _reading(self, ref: ArtifactRef) -> dict[str, object]:
        return {
            "estimated_tokens": estimated_tokens(ref),
            "large_file_warning": self.is_large(ref),
            "auto_read_safe": auto_read_safe(ref, self.limits),
        }

    def is_large(self, ref: ArtifactRef) -> bool:
        """Return whether the content of an artifact is large for the context of a model."""
        return large_file_warning(ref, self.limits)

    def resource(self, ref: ArtifactRef) -> Resource:
        """Return an artifact as an entry of a list of resources. Its description has its size, its capability, and the
        first warning of its call."""
        capability, created = ref.source.get("capability"), ref.source.get("created")
        parts = [f"{ref.size_bytes:,} bytes", *([plain_line(f"from {capability}", _MAX_NAME)] if capability else [])]
        if self.is_large(ref):
            parts.append(f"about {estimated_tokens(ref):,} tokens; {_LARGE}")
        return Resource(
            uri=ref.uri,
            name=ref.filename,
            description="; ".join([", ".join(parts), *(plain_line(one, _MAX_NAME) for one in _warnings(ref)[:1])]),
            mime_type=ref.mime_type,
            size=ref.size_bytes,
            annotations=Annotations(last_modified=created) if isinstance(created, str) else None,
            _meta=self.meta(ref),
        )

    def links(self, refs: Sequence[ArtifactRef]) -> list[ResourceLink]:
        """Return artifacts as links of a result; empty without ``as_resources``."""
        return [ResourceLink(**self.resource(ref).model_dump()) for ref in refs] if self.as_resources else []

    def url(self, ref: ArtifactRef) -> str | None:
        """Return the URL that opens an artifact, if there is one."""
        return self.link(ref) if self.link else None

    def url_lines(self, refs: Sequence[ArtifactRef]) -> list[str]:
        """Return lines with the URLs of the first five artifacts, if they have any, for people and models."""
        return [f"Open: {url}" for ref in refs[:_MAX_URLS] if (url := self.url(ref))]


#: Most characters of a summary.
_MAX_SUMMARY = 4000
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
    JSON."""
    result = _with_tool_names(result)
    document: dict[str, object] = {**result.as_dict(), "session": session, "capability": plain_line(result.capability)}
    document["warnings"] = [plain_line(warning) for warning in result.warnings]
    if opened is not None:
        document["view"] = opened[1]
    if "effects" in document:
        document["effects"] = plain_tree(document["effects"])
    size = json_size(document["data"])
    if size > min(max_bytes // 4, result.limits.max_field_chars or max_bytes):
        read = partial(result.for_agent, max_bytes=max_bytes // 4)
        seen = await in_thread(read) if size > _LARGE_BYTES else read()
        document |= {key: value for key, value in seen.items() if key in _AGENT_KEYS}
    refs = [ref for ref in result.artifacts.values() if ref.stored]
    # files that the router made from data; the text shows the data, so they need no preview
    made = {"", *map(field_of, result.previews)} - result.inline_fields
    files = [ref for place, ref in result.artifacts.items() if ref.stored and place not in made]
    files = files if result.inline_data else []
    images = await read_images(files, store, image_limits)
    texts = await read_texts(files, store, max_bytes // 4)
    notes = [images.note] if images.note else []
    if refs and store.retention and store.retention.ttl_seconds is not None:
        notes.append(f"Kept for {format_duration(store.retention.ttl_seconds)}.")
    summary = plain_text(result.summary(max_chars=_MAX_SUMMARY))
    about = [opened[0]] if opened else []
    text = "\n".join([*about, summary, *view.url_lines(refs), *notes, *texts])
    labels = sum(len(block.model_dump_json().encode()) for block in images.blocks if isinstance(block, TextContent))
    result_message = _fit(text, document, refs, max_bytes - labels, view, is_error=False)
    if result_message.structured_content != document:  # a message with many references
        result.report_clamped(json_size(document), json_size(result_message.structured_content))
    text_block, *links = result_message.content
    return result_message.model_copy(update={"content": [text_block, *images.blocks, *links]})


def _with_tool_names(result: Result) -> Result:
    """Return ``result`` with the hints of its links naming the tool that reads them, instead of the capability."""
    blocks = result.data.get("content") if isinstance(result.data, dict) else None
    if not isinstance(blocks, list):
        return result
    hint = READ_HINT.replace("resources.read", tool_name("resources.read"))
    links = [at for at, block in enumerate(blocks) if isinstance(block, dict) and block.get("hint") == READ_HINT]
    places: dict[Place, object] = {("content", at, "hint"): hint for at in links}
    return dataclasses.replace(result, data=cast(JSONValue, replace(result.data, places)))


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
    lines = [f"{error.message} [{error.code}]"]
    if error.retryable:
        after = "" if error.retry_after is None else f", after {error.retry_after:g} s"
        lines.append(f"Retryable: yes{after}")
    else:
        lines.append("Retryable: no, not until something changes")
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
    "CAPABILITY_UNAVAILABLE": "meet the requirement, then call again; abp_status lists what is available",
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
    content: list[ContentBlock] = [TextContent(text=text), *view.links(refs)]
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
