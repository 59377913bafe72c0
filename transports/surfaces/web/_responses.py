"""JSON requests and responses, errors as JSON with their HTTP status, and the server's metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web
from prometheus_client import Counter, Gauge

from ..._internal.telemetry._prometheus import Exposition
from ...artifacts._ref import Scope
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
from ...protocol._media import normalise_mime
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
    """Raised for a refused request. ``status`` and ``headers`` are those of the response."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message, code=code, retryable=status in (429, 503))
        self.status = status
        self.headers = dict(headers or {})


def json_response(document: object, *, status: int = 200) -> web.Response:
    return web.Response(body=encode_json(document), status=status, content_type="application/json")


def error_response(error: ABPError) -> web.Response:
    """Return ``{"error": {"code", "message", …}}`` with the status for the code of ``error``, or for its class, or 500.
    Messages of errors do not contain secrets."""
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
    """Return the scope in optional ``fields`` of a request's body, such as ``tenant``.

    Raises :class:`RequestRefused` (400) unless each value is a text of 1 to 200 printable characters."""
    values = {field: body[field] for field in fields if body.get(field) is not None}
    try:
        return Scope(**values)  # type: ignore[arg-type]
    except UsageError as error:
        raise RequestRefused(400, "INVALID_PARAMS", error.message) from error


def whole_number(text: str) -> int | None:
    """Return the number in a query, of at most eight digits; ``None`` for anything else."""
    if text.isascii() and text.isdigit() and len(text) <= 8:
        return int(text)
    return None


def seconds_in(body: dict[str, object], key: str, default: float, most: float = MAX_SECONDS) -> float:
    """Return the duration at ``key``, in seconds. Raises :class:`RequestRefused` (400) unless it is a
    number above 0 and at most ``most``, by default 30 days."""
    value = body.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
        raise RequestRefused(400, "INVALID_PARAMS", f"{key} must be a number of seconds, at most {most:.0f}")
    return float(value)


async def read_json(
    request: web.Request, media_type: str = "application/json", max_bytes: int = 16 << 20
) -> dict[str, object]:
    """Return the JSON object in the body of ``request``, or an empty one without a body.

    Raises :class:`RequestRefused` for another media type, above ``max_bytes`` (16 MiB) or 50,000 values and names,
    after 60 seconds, and for any body other than a JSON object."""
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
    """Return the body of ``request``. Raises :class:`RequestRefused` (413) if it has too many bytes or too many values,
    which are counted before the JSON is decoded."""
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
    """Counters and gauges of one web server, in addition to those of every process.

    Values of a label must be few and may not come from a client, since each value makes a time series."""

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
