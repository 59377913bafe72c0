"""What goes out: JSON documents, and errors as JSON with a fitting status."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from ...errors import (
    ABPError,
    ArtifactNotFound,
    BinaryError,
    CallTimeout,
    StoreFull,
    StoreUnavailable,
    TooLarge,
    TransportError,
    UsageError,
)
from ...protocol.strict_json import decode_json, encode_json

__all__ = ["Refused", "body_of", "failure", "json_answer"]

#: Bytes of a JSON document that is sent here, and seconds for all of it.
_LONGEST, _PATIENCE = 16 << 20, 60.0
_BY_KIND: tuple[tuple[type[ABPError], int], ...] = (
    (ArtifactNotFound, 404),
    (StoreFull, 507),
    (StoreUnavailable, 503),
    (TooLarge, 413),
    (BinaryError, 422),
    (CallTimeout, 504),
    (TransportError, 502),
    (UsageError, 400),
)
_BY_CODE = {"SESSION_INVALID": 404, "UNKNOWN_CAPABILITY": 404, "LIMIT_REACHED": 429}


class Refused(ABPError):
    """A request that is refused with a status of its own."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message, code=code, retryable=status in (429, 503))
        self.status = status
        self.headers = dict(headers or {})


def json_answer(document: object, *, status: int = 200) -> web.Response:
    """``document`` as JSON."""
    return web.Response(body=encode_json(document), status=status, content_type="application/json")


def failure(error: ABPError) -> web.Response:
    """An error as an answer; the message holds no secret, as in all errors."""
    if isinstance(error, Refused):
        status, headers = error.status, error.headers
    else:
        status = _BY_CODE.get(error.code) or next((status for kind, status in _BY_KIND if isinstance(error, kind)), 500)
        headers = {}
    answer = json_answer({"error": error.as_dict()}, status=status)
    answer.headers.update(headers)
    return answer


async def body_of(request: web.Request) -> dict[str, object]:
    """The JSON object that was sent; without a body an empty one. Raises :class:`Refused`."""
    if not request.can_read_body:
        return {}
    if request.content_type != "application/json":  # a form on another page cannot send this type
        raise Refused(415, "INVALID_PARAMS", "send JSON, with `Content-Type: application/json`")
    data = bytearray()
    try:
        async with asyncio.timeout(_PATIENCE):
            async for chunk in request.content.iter_any():
                data += chunk
                if len(data) > _LONGEST:
                    words = f"the request is over {_LONGEST:,} bytes; upload files with POST /artifacts"
                    raise Refused(413, "TOO_LARGE", words)
    except TimeoutError:
        raise Refused(408, "TIMEOUT", f"the body was not there within {_PATIENCE:g} seconds") from None
    try:
        document = decode_json(bytes(data))
    except ABPError:
        raise Refused(400, "INVALID_PARAMS", "the body is no valid JSON") from None
    if not isinstance(document, dict):
        raise Refused(400, "INVALID_PARAMS", "the body must be a JSON object")
    return document
