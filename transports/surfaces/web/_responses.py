"""Requests and responses: JSON, errors with their HTTP status, metrics, and the content of artifacts (RFC 9110)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Literal, TypeAlias
from urllib.parse import quote

from aiohttp import ETag, web
from prometheus_client import Counter, Gauge

from ..._internal.telemetry._prometheus import Exposition
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef, Scope
from ...artifacts._signing import MAX_SECONDS
from ...errors import (
    ABPError,
    ArtifactNotFound,
    BinaryError,
    CallTimeout,
    LedgerError,
    StoreFull,
    StoreUnavailable,
    TooLarge,
    TransportError,
    UsageError,
)
from ...protocol._media import normalise_mime, safe_filename
from ...protocol._strict_json import MAX_REQUESTED, ValueCounter, decode_json, encode_json
from ...protocol.messages import package_version

_STATUS_BY_CLASS: tuple[tuple[type[ABPError], int], ...] = (
    (ArtifactNotFound, 404),
    (StoreFull, 507),
    (StoreUnavailable, 503),
    (LedgerError, 503),
    (TooLarge, 413),
    (BinaryError, 422),
    (CallTimeout, 504),
    (TransportError, 502),
    (UsageError, 400),
)
_STATUS_BY_CODE = {
    "SESSION_INVALID": 404,
    "UNKNOWN_CAPABILITY": 404,
    "CALL_NOT_FOUND": 404,
    "CALL_ELSEWHERE": 409,
    "LIMIT_REACHED": 429,
}


class RequestRefused(ABPError):
    """Raised to answer a request with an error. ``status`` and ``headers`` are those of the response."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message, code=code, retryable=status in (429, 503))
        self.status = status
        self.headers = dict(headers or {})


def json_response(document: object, *, status: int = 200) -> web.Response:
    return web.Response(body=encode_json(document), status=status, content_type="application/json")


def error_response(error: ABPError) -> web.Response:
    """Return the response for an error, whose message contains no secrets."""
    document = {"error": error.as_dict()}
    if isinstance(error, RequestRefused):
        response = json_response(document, status=error.status)
        response.headers.update(error.headers)
        return response
    return json_response(document, status=_status_of(error))


def _status_of(error: ABPError) -> int:
    if error.code in _STATUS_BY_CODE:
        return _STATUS_BY_CODE[error.code]
    for error_class, status in _STATUS_BY_CLASS:
        if isinstance(error, error_class):
            return status
    return 500


def scope_in(body: Mapping[str, object], *fields: str) -> Scope:
    """Return the scope that a body names. Its ``fields``, such as ``tenant``, are optional."""
    values = {field: body[field] for field in fields if body.get(field) is not None}
    try:
        return Scope(**values)  # type: ignore[arg-type]
    except UsageError as error:
        raise RequestRefused(400, "INVALID_PARAMS", error.message) from error


def whole_number(text: str) -> int | None:
    """Return the number that a text is, or ``None`` for anything but one to eight digits."""
    if text.isascii() and text.isdigit() and len(text) <= 8:
        return int(text)
    return None


def seconds_in(body: dict[str, object], key: str, default: float, most: float = MAX_SECONDS) -> float:
    """Read a number above 0 and at most ``most``, by default 30 days."""
    value = body.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
        raise RequestRefused(400, "INVALID_PARAMS", f"{key} must be a number of seconds, at most {most:.0f}")
    return float(value)


async def read_json(
    request: web.Request, media_type: str = "application/json", max_bytes: int = 16 << 20
) -> dict[str, object]:
    """Return the JSON object in the body of a request; it is empty without a body. Refuse another media type, more than
    ``max_bytes`` or 50,000 values and names, a body that takes over 60 seconds, and anything but a JSON object."""
    if not request.can_read_body:
        return {}
    # A form of a foreign page cannot send this type (CSRF).
    if normalise_mime(request.headers.get("Content-Type")) != media_type:
        raise RequestRefused(415, "INVALID_PARAMS", f"send JSON, with `Content-Type: {media_type}`")

    try:
        async with asyncio.timeout(60.0):
            body = await _read_body(request, max_bytes)
    except TimeoutError:
        raise RequestRefused(408, "TIMEOUT", "the body did not arrive within 60 seconds") from None
    try:
        document = decode_json(body)
    except ABPError:
        raise RequestRefused(400, "INVALID_PARAMS", "the body is not valid JSON") from None
    if not isinstance(document, dict):
        raise RequestRefused(400, "INVALID_PARAMS", "the body must be a JSON object")
    return document


async def _read_body(request: web.Request, max_bytes: int) -> bytes:
    """Read a body, and count its values before the JSON is decoded."""
    body = bytearray()
    counter = ValueCounter()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            message = f"the request is over {max_bytes:,} bytes; upload files with POST /artifacts"
            raise RequestRefused(413, "TOO_LARGE", message)
        if counter.add(chunk) > MAX_REQUESTED:
            message = f"the request has more than {MAX_REQUESTED:,} values and names; send fewer, or a file"
            raise RequestRefused(413, "TOO_LARGE", message)
    return bytes(body)


class Metrics(Exposition):
    """Metrics of the web server. A label must have few values, none of them chosen by a client, since each value makes
    a time series."""

    def __init__(self) -> None:
        super().__init__(package_version())
        registry = self.registry
        self.requests = Counter(
            "abp_requests", "Requests, by method, route and status.", ("method", "route", "status"), registry=registry
        )
        self.content_bytes = Counter("abp_content_bytes", "Bytes of artifacts that were sent.", registry=registry)
        self.content_broken_off = Counter(
            "abp_content_broken_off", "Artifacts whose sending broke off, by reason.", ("reason",), registry=registry
        )
        self.uploads = Counter("abp_uploads", "Files that were uploaded.", registry=registry)
        self.listeners_dropped = Counter(
            "abp_listeners_dropped", "Clients of /events that were dropped: they did not read.", registry=registry
        )
        self.listeners = Gauge("abp_listeners", "Clients of /events now.", registry=registry)
        self.apps = Gauge("abp_apps", "Apps that are connected now.", registry=registry)
        self.calls = Gauge("abp_calls", "Calls that are remembered, by status.", ("status",), registry=registry)


_IMAGES = {f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp", "avif", "bmp", "x-icon", "apng")}
_AUDIO = {f"audio/{kind}" for kind in ("mpeg", "wav", "ogg", "flac", "mp4", "aac", "webm")}
_VIDEO = {f"video/{kind}" for kind in ("mp4", "webm", "ogg")}
#: MIME types that a browser shows without running scripts in them.
_INLINE_TYPES = _IMAGES | _AUDIO | _VIDEO | {"application/pdf", "text/plain"}
_TEXT = {"application/xml", "application/javascript", "application/rtf", "application/x-ndjson", "application/yaml"}


def _content_disposition(kind: str, filename: str, mime_type: str) -> str:
    """Return the header that names the file. The name is sanitised again, because stores are not trusted. It is written
    as quoted ASCII, which every client reads, and also as UTF-8 if it has other characters."""
    name = safe_filename(filename, fallback="artifact", mime_type=mime_type)
    ascii_name = re.sub(r"[^\x20-\x7e]|[\"\\%]", "_", name)
    header = f'{kind}; filename="{ascii_name}"'
    if ascii_name != name:
        unquoted = "!#$&+-.^_`|~"  # by RFC 8187, besides letters and digits
        header += f"; filename*=UTF-8''{quote(name, safe=unquoted)}"
    return header


Preview: TypeAlias = Literal["image", "pdf", "audio", "video", "text", "json", "csv", "hex"]


def _preview_of(mime_type: str) -> Preview:
    """Return how the gallery shows a file. SVG may contain scripts, so it is only safe as the source of an image."""
    if mime_type in _IMAGES or mime_type == "image/svg+xml":
        return "image"
    if mime_type == "application/pdf":
        return "pdf"
    if mime_type in _AUDIO:
        return "audio"
    if mime_type in _VIDEO:
        return "video"
    if mime_type == "text/csv":
        return "csv"
    if mime_type == "application/json" or mime_type.endswith("+json"):
        return "json"
    if mime_type.startswith("text/") or mime_type.endswith("+xml") or mime_type in _TEXT:
        return "text"
    return "hex"


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """An artifact with its store. ``run_id`` is the batch run to which the artifact belongs."""

    store: ArtifactStore
    ref: ArtifactRef
    run_id: str | None = None


def artifact_meta(ref: ArtifactRef) -> dict[str, object]:
    source = ref.source
    return {
        "id": ref.id,
        "uri": ref.uri,
        "filename": ref.filename,
        "mime_type": ref.mime_type,
        "size_bytes": ref.size_bytes,
        "sha256": ref.sha256,
        "created": source.get("created"),
        "session": ref.scope.session,
        "capability": source.get("capability"),
        "app": source.get("app"),
        "call": source.get("call"),
        "evidence": source.get("evidence"),
        "preview": _preview_of(ref.mime_type),
        "url": f"/artifacts/{ref.id}",
    }


async def serve_content(
    request: web.Request, artifact: StoredArtifact, metrics: Metrics, piece_timeout: float
) -> web.StreamResponse:
    """Send an artifact. A client that takes longer than ``piece_timeout`` seconds for a piece is cut off. Damaged
    content is never sent completely. Raises the errors of the store until the first piece is sent."""
    ref = artifact.ref
    modified_at = _last_modified(ref)
    headers = _content_headers(ref, modified_at, download="download" in request.query)
    if _precondition_failed(request, ref.sha256, modified_at):
        return web.Response(status=412, headers=headers)
    if _not_modified(request, ref.sha256, modified_at):
        return web.Response(status=304, headers=headers)

    status = 200
    sent_range = range(ref.size_bytes)
    requested_range = _requested_range(request, ref, modified_at)
    if requested_range is not None:
        if requested_range.start >= ref.size_bytes:
            headers["Content-Range"] = f"bytes */{ref.size_bytes}"
            return web.Response(status=416, headers=headers)
        status = 206
        sent_range = requested_range
        headers["Content-Range"] = f"bytes {sent_range.start}-{sent_range.stop - 1}/{ref.size_bytes}"

    response = web.StreamResponse(status=status, headers=headers)
    response.content_type = ref.mime_type
    if ref.mime_type.startswith("text/"):
        response.charset = "utf-8"
    response.content_length = len(sent_range)
    if request.method == "HEAD" or not sent_range:
        await response.prepare(request)
    else:
        # Two of these chunks are in memory for each request.
        pieces = artifact.store.open(ref.id, offset=sent_range.start, length=len(sent_range), chunk_size=128 << 10)
        await _send_pieces(request, response, pieces, metrics, piece_timeout)
    return response


def _content_headers(ref: ArtifactRef, modified: datetime | None, *, download: bool) -> dict[str, str]:
    """Return the headers of an artifact's content. With ``download``, a browser saves the artifact and does not show
    it."""
    is_shown = ref.mime_type in _INLINE_TYPES and not download
    disposition = "inline" if is_shown else "attachment"
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; form-action 'none'; base-uri 'none'"
    )
    if ref.mime_type == "application/pdf":
        # A PDF gets no sandbox, in which Firefox would not show it. The viewer runs no scripts on this origin, and
        # nosniff keeps a browser from taking other content for a PDF.
        policy = f"{policy}; object-src 'self'"
    else:
        policy = f"sandbox; {policy}"

    headers = {
        "ETag": f'"{ref.sha256}"',
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": _content_disposition(disposition, ref.filename, ref.mime_type),
        "Content-Security-Policy": policy,
    }
    if modified:
        headers["Last-Modified"] = format_datetime(modified, usegmt=True)
    return headers


async def _send_pieces(
    request: web.Request,
    response: web.StreamResponse,
    pieces: AsyncGenerator[bytes, None],
    metrics: Metrics,
    piece_timeout: float,
) -> None:
    """Send the pieces of an artifact. The last piece is sent only after the store has compared the hash, which it does
    at its end. After an error, or when the client takes a piece too slowly, the connection is aborted. Errors before
    the first piece is sent are raised."""

    async def write(piece: bytes) -> None:
        async with asyncio.timeout(piece_timeout):
            # The response starts as late as possible, since afterwards an error cannot become the response.
            if not response.prepared:
                await response.prepare(request)
            await response.write(piece)
        metrics.content_bytes.inc(len(piece))

    unsent: bytes | None = None
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                if unsent is not None:
                    await write(unsent)
                unsent = piece
        # By now, the store has compared the hash.
        if unsent is not None:
            await write(unsent)
    except (ABPError, TimeoutError) as error:
        if not response.prepared:
            raise
        metrics.content_broken_off.labels(getattr(error, "code", "SLOW")).inc()
        if request.transport is not None:
            request.transport.abort()


def _last_modified(ref: ArtifactRef) -> datetime | None:
    """Return whole seconds, like HTTP dates."""
    try:
        created_at = datetime.fromisoformat(str(ref.source.get("created")))
    except ValueError:
        return None
    return created_at.astimezone(UTC).replace(microsecond=0)


# RFC 9110 §13.2.2: if a request has conditions by ETag and by date, only the ETag counts.


def _precondition_failed(request: web.Request, sha256: str, modified: datetime | None) -> bool:
    """Check ``If-Match`` (strong comparison) or ``If-Unmodified-Since``."""
    if request.if_match is not None:
        return not any(_tag_matches(tag, sha256) and not tag.is_weak for tag in request.if_match)
    since = request.if_unmodified_since
    return since is not None and modified is not None and modified > since


def _not_modified(request: web.Request, sha256: str, modified: datetime | None) -> bool:
    """Check ``If-None-Match`` (weak comparison) or ``If-Modified-Since``."""
    if request.if_none_match is not None:
        return any(_tag_matches(tag, sha256) for tag in request.if_none_match)
    since = request.if_modified_since
    return since is not None and modified is not None and modified <= since


def _tag_matches(tag: ETag, sha256: str) -> bool:
    return tag.value in (sha256, "*")


def _range_applies(request: web.Request, sha256: str, modified: datetime | None) -> bool:
    """Check ``If-Range`` (RFC 9110 §13.1.5): strong comparison, or the exact date. aiohttp only parses the date."""
    condition = request.headers.get("If-Range")
    if condition is None or condition.strip() == f'"{sha256}"':
        return True
    return modified is not None and request.if_range == modified


def _requested_range(request: web.Request, ref: ArtifactRef, modified: datetime | None) -> range | None:
    header = request.headers.get("Range")
    # RFC 9110 §14.2: only GET has ranges.
    if request.method != "GET" or not header or not _range_applies(request, ref.sha256, modified):
        return None
    return _parse_range(header, ref.size_bytes)


def _parse_range(header: str, size: int) -> range | None:
    """Return the range that a header asks for; if it begins at ``size`` or later, it cannot be satisfied. Return
    ``None`` for headers that RFC 9110 §14.2 allows a server to ignore: other units, several ranges, invalid syntax."""
    match = re.fullmatch(r"bytes=([0-9]{0,18})-([0-9]{0,18})", header.strip().replace(" ", ""))
    if match is None:
        return None
    first, last = match.groups()
    if first and last:
        if int(first) > int(last):
            return None
        return range(int(first), min(int(last) + 1, size))
    if first:
        return range(int(first), size)
    if last:
        return range(max(size - int(last), 0), size)
    return None
