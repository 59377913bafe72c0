"""An artifact's bytes over HTTP: ranges, conditions, HEAD (RFC 9110), and headers that let nothing run."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from aiohttp import web

from ...artifacts import ArtifactRef, ArtifactStore
from ...errors import ABPError
from .documents import INLINE
from .metrics import Metrics
from .names import disposition

__all__ = ["content"]

#: Bytes that are read and sent at a time; each reader holds two such pieces.
_PIECE = 128 << 10
#: Seconds for a client to take one piece.
_PATIENCE = 30.0
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
_CLOSED = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; form-action 'none'; base-uri 'none'"
#: Firefox shows no PDF in a sandbox. Its viewer runs nothing on our origin, and a browser that must not guess takes
#: nothing else for a PDF.
_POLICY_PDF = f"{_CLOSED}; object-src 'self'"
_POLICY = f"sandbox; {_CLOSED}"


async def content(request: web.Request, store: ArtifactStore, ref: ArtifactRef, metrics: Metrics) -> web.StreamResponse:
    """The whole or the range that was asked for. What turns out not to be what was stored is never finished: the
    connection breaks off before the last piece."""
    tag, modified = f'"{ref.sha256}"', _modified(ref)
    headers = {
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": disposition(_kind(request, ref), ref.filename, ref.mime_type),
        "Content-Security-Policy": _POLICY_PDF if ref.mime_type == "application/pdf" else _POLICY,
    }
    if modified:
        headers["Last-Modified"] = format_datetime(modified, usegmt=True)
    if _other(request, tag, modified):
        return web.Response(status=412, headers=headers)
    if _unchanged(request, tag, modified):
        return web.Response(status=304, headers=headers)
    start, end, status = 0, ref.size_bytes, 200
    # RFC 9110 §14.2: ranges are of GET alone
    if request.method == "GET" and request.headers.get("Range") and _range_holds(request, tag, modified):
        asked = _asked(request.headers["Range"], ref.size_bytes)
        if asked == "unsatisfiable":
            headers["Content-Range"] = f"bytes */{ref.size_bytes}"
            return web.Response(status=416, headers=headers)
        if isinstance(asked, tuple):
            start, end, status = *asked, 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{ref.size_bytes}"
    answer = web.StreamResponse(status=status, headers=headers)
    answer.content_type = ref.mime_type
    if ref.mime_type.startswith("text/"):
        answer.charset = "utf-8"
    answer.content_length = end - start
    if request.method == "HEAD" or end == start:
        await answer.prepare(request)
    else:
        await _send(request, answer, store, ref, start, end, metrics)
    return answer


async def _send(
    request: web.Request,
    answer: web.StreamResponse,
    store: ArtifactStore,
    ref: ArtifactRef,
    start: int,
    end: int,
    metrics: Metrics,
) -> None:
    held: bytes | None = None
    try:
        async with aclosing(store.open(ref.id, offset=start, length=end - start, chunk_size=_PIECE)) as pieces:
            async for piece in pieces:
                if held is not None:
                    await _write(request, answer, held, metrics)
                held = piece
        if held is not None:  # the store has compared the hash by now
            await _write(request, answer, held, metrics)
    except (ABPError, TimeoutError) as error:
        if not answer.prepared:
            raise
        metrics.count("abp_content_broken_off_total", reason=getattr(error, "code", "SLOW"))
        if request.transport is not None:
            request.transport.abort()


async def _write(request: web.Request, answer: web.StreamResponse, piece: bytes, metrics: Metrics) -> None:
    async with asyncio.timeout(_PATIENCE):
        if not answer.prepared:
            await answer.prepare(request)  # from here on nothing but the content can be said
        await answer.write(piece)
    metrics.count("abp_content_bytes_total", len(piece))


def _kind(request: web.Request, ref: ArtifactRef) -> str:
    return "inline" if ref.mime_type in INLINE and "download" not in request.query else "attachment"


def _modified(ref: ArtifactRef) -> datetime | None:
    try:
        created = datetime.fromisoformat(str(ref.source.get("created")))
    except ValueError:
        return None
    return created.astimezone(UTC).replace(microsecond=0)


def _other(request: web.Request, tag: str, modified: datetime | None) -> bool:
    """Whether it is not what the client wants it to be still; as in RFC 9110 §13.2.2 the tag counts before the date."""
    tags = request.headers.get("If-Match")
    if tags is not None:
        return tags.strip() != "*" and tag not in (one.strip() for one in tags.split(","))
    since = _date(request.headers.get("If-Unmodified-Since"))
    return since is not None and modified is not None and modified > since


def _unchanged(request: web.Request, tag: str, modified: datetime | None) -> bool:
    """Whether the client has it already; likewise."""
    tags = request.headers.get("If-None-Match")
    if tags is not None:
        return tags.strip() == "*" or tag in (one.strip().removeprefix("W/") for one in tags.split(","))
    since = _date(request.headers.get("If-Modified-Since"))
    return since is not None and modified is not None and modified <= since


def _range_holds(request: web.Request, tag: str, modified: datetime | None) -> bool:
    """``If-Range`` (RFC 9110 §13.1.5): a strong comparison, or the exact date."""
    condition = request.headers.get("If-Range")
    if condition is None:
        return True
    return condition.strip() == tag or (modified is not None and _date(condition) == modified)


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC) if text else None
    except (ValueError, TypeError, OverflowError):
        return None


def _asked(header: str, size: int) -> tuple[int, int] | str | None:
    """Start and end (exclusive), ``"unsatisfiable"``, or ``None`` for what RFC 9110 §14.2 lets a server ignore: other
    units, several ranges, nonsense."""
    match = _RANGE.fullmatch(header.strip().replace(" ", ""))
    if match is None or match[0] == "bytes=-" or max(len(match[1]), len(match[2])) > 18:
        return None
    if not match[1]:  # the last so many
        count = min(int(match[2]), size)
        return (size - count, size) if count else "unsatisfiable"
    start = int(match[1])
    end = int(match[2]) + 1 if match[2] else size
    if end <= start and match[2]:
        return None
    return (start, min(end, size)) if start < size else "unsatisfiable"
