"""``/downloads/<size>/<seed>/<name>``: generated files, streamed, with ranges, validators and each kind of credential.

Query: ``auth`` (``bearer``, ``key``, ``query``, ``cookie``), ``expires`` (Unix ms), ``type`` (MIME type).
"""

import asyncio
import hmac
import re
import time
from email.utils import formatdate

from aiohttp import web

from webapp_fixture.generate import generate
from webapp_fixture.state import SESSION_COOKIE, STATE, State

MAX_SIZE = 4 << 30
MODIFIED = formatdate(1_700_000_000, usegmt=True)
routes = web.RouteTableDef()


def offered_credential(request: web.Request, state: State, kind: str) -> tuple[str | None, str]:
    """Return the credential that a request offers, ``None`` if it offers none, and the right one."""
    if kind == "none":
        return "", ""
    if kind == "bearer":
        scheme, _, offered = request.headers.get("Authorization", "").partition(" ")
        return (offered.strip() if scheme.lower() == "bearer" else None), state.token
    if kind == "key":
        return request.headers.get("X-API-Key"), state.token
    if kind == "query":
        return request.query.get("token"), state.token
    if kind == "cookie":
        return request.cookies.get(SESSION_COOKIE), state.session
    raise web.HTTPBadRequest(text=f"auth={kind} is unknown; use bearer, key, query or cookie\n")


def check_access(request: web.Request) -> None:
    """Raise 401 without the credential, 403 with a wrong one, 410 after the expiry."""
    offered, right = offered_credential(request, request.app[STATE], request.query.get("auth", "none"))
    if offered is None:
        raise web.HTTPUnauthorized(text="this download needs a credential\n", headers={"WWW-Authenticate": "Bearer"})
    if not hmac.compare_digest(offered.encode(), right.encode()):
        raise web.HTTPForbidden(text="this credential is not valid here\n")
    expires = request.query.get("expires", "")
    if expires.isdigit() and int(expires) < time.time() * 1000:
        raise web.HTTPGone(text="this address has expired\n")


def file_of(request: web.Request) -> tuple[int, int]:
    """Return size and seed from the address. Raises 404 if they are out of bounds."""
    size, seed = int(request.match_info["size"]), int(request.match_info["seed"])
    if size > MAX_SIZE or seed >= 1 << 32:
        raise web.HTTPNotFound(text="no such file: the size or the seed is out of bounds\n")
    return size, seed


def headers_for(request: web.Request, size: int, seed: int) -> dict[str, str]:
    """Return the headers that every answer about a file has."""
    mime_type = request.query.get("type", "application/octet-stream")
    if not re.fullmatch(r"[\w.+-]+/[\w.+-]+", mime_type):
        mime_type = "application/octet-stream"
    return {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-store",
        "Content-Disposition": "attachment",
        "Content-Type": mime_type,
        "ETag": f'"{size}-{seed}"',
        "Last-Modified": MODIFIED,
    }


def wanted_range(request: web.Request, size: int, etag: str) -> tuple[int, int] | None:
    """Return the range that is asked for as start and stop, or ``None`` for the whole file. Raises 416 if the file has
    no such byte."""
    if "Range" not in request.headers or request.headers.get("If-Range", etag) not in (etag, MODIFIED):
        return None
    try:
        start, stop, _ = request.http_range.indices(size)
    except ValueError:
        return None  # several ranges or not a range at all: the whole file is a right answer
    if start >= stop:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
    return start, stop


async def send(
    request: web.Request, response: web.StreamResponse, size: int, seed: int, start: int = 0, *, pause: float = 0.0
) -> web.StreamResponse:
    """Stream bytes ``start`` to ``size`` as the body (nothing for HEAD), with a ``pause`` in seconds after each MiB."""
    await response.prepare(request)
    if request.method != "HEAD":
        for piece in generate(size, seed, start):
            await response.write(piece)
            if pause:
                await asyncio.sleep(pause)
    await response.write_eof()
    return response


async def send_file(request: web.Request, size: int, seed: int) -> web.StreamResponse:
    """Answer with the file, or with the range that is asked for."""
    headers = headers_for(request, size, seed)
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return web.Response(status=304, headers={"ETag": headers["ETag"]})
    span = wanted_range(request, size, headers["ETag"])
    start, stop = span or (0, size)
    response = web.StreamResponse(headers=headers)
    if span:
        response.set_status(206)
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    response.content_length = stop - start
    return await send(request, response, stop, seed, start)


@routes.get(r"/downloads/{size:\d{1,10}}/{seed:\d{1,10}}/{name}")
async def download(request: web.Request) -> web.StreamResponse:
    """A generated file, after the credential check."""
    check_access(request)
    return await send_file(request, *file_of(request))
