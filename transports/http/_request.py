"""A single GET request on a connection of its own, and its failures and error statuses as typed errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NoReturn

import aiohttp
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict
from yarl import URL

from ..errors import AddressBlocked, DownloadFailed, connection_failure
from ..telemetry import Attributes, annotate, propagation_headers, span
from ._addresses import AddressGuard
from ._download_request import DownloadRequest, RetryRequest, url_expired
from ._headers import content_coding, one_line, retry_after

_EXCERPT = 200  # characters of an error's body
_EXCERPT_BYTES = 4096
_EXCERPT_SECONDS = 2.0
_BUFFER = 1 << 18  # bytes; aiohttp returns chunks of up to twice this
_MEANING = {
    401: "it wants other credentials than the app gave",
    403: "the app's credentials are not enough",
    404: "there is no such file",
    206: "a part was sent although the whole was requested",
    204: "there is no content",
}


@asynccontextmanager
async def get(
    url: URL,
    headers: Mapping[str, str],
    *,
    display_url: str,
    guard: AddressGuard,
    stall_timeout: float,
    resolver: AbstractResolver | None,
    propagate: bool = False,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send a GET request without following redirects. ``display_url`` stands for the URL in messages.

    The connection is never shared or reused, so every request passes ``guard``. It is closed at the end of the block,
    also on cancellation. ``stall_timeout`` in seconds limits the connecting, and each pause without a byte. With
    ``propagate`` the request carries ``traceparent``. Raises :class:`~._download_request.RetryRequest` or
    :class:`~transports.errors.DownloadFailed`.
    """
    # Not the URL: its path and query may hold secrets.
    where: Attributes = {"http.request.method": "GET", "server.address": url.host or "", "server.port": url.port or 0}
    with span("GET", where, "client"):
        async with _session(guard, resolver, stall_timeout) as session:
            failure: Exception | None = None
            try:
                sent = CIMultiDict(headers)
                sent.update(propagation_headers() if propagate else {})
                response = await session.get(url, headers=sent, allow_redirects=False)
            except (aiohttp.ClientError, OSError) as error:  # OSError: TimeoutError too
                failure = error
            if failure is not None:  # outside `except`, so that aiohttp's error, which quotes the query, is not chained
                _raise_no_answer(failure, guard, display_url, stall_timeout)
            annotate({"http.response.status_code": response.status})
            try:
                yield response
            finally:
                response.close()


def _session(guard: AddressGuard, resolver: AbstractResolver | None, stall_timeout: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=resolver or aiohttp.ThreadedResolver(),
            use_dns_cache=False,
            force_close=True,
            socket_factory=guard,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        read_bufsize=_BUFFER,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=stall_timeout, sock_read=stall_timeout),
    )


def _raise_no_answer(failure: Exception, guard: AddressGuard, display_url: str, stall_timeout: float) -> NoReturn:
    details: dict[str, object] = {"url": display_url}
    if guard.blocked and not guard.allowed:
        raise AddressBlocked(
            f"{display_url} was not fetched: its address {guard.blocked[-1]} is not public and not the one that "
            "the app itself was reached at; "
            "set ABP_ALLOW_PRIVATE_ADDRESSES=1 if downloads from private addresses are wanted",
            details=details | {"address": guard.blocked[-1]},
        )
    if isinstance(failure, TimeoutError):
        raise RetryRequest(
            DownloadFailed(
                f"{display_url} gave no answer within {stall_timeout:g} s",
                code="TIMEOUT",
                retryable=True,
                details=details,
            )
        )
    message = f"{display_url} was not fetched: {failure_reason(failure)}"
    if isinstance(failure, aiohttp.ClientSSLError | aiohttp.ClientResponseError | aiohttp.InvalidURL):
        raise DownloadFailed(message, details=details)
    raise RetryRequest(DownloadFailed(message, retryable=True, details=details))


def failure_reason(failure: Exception) -> str:
    """Return the reason of a failure in words, without any part of the request."""
    match failure:
        case TimeoutError():
            return "it stalled"
        case aiohttp.ClientConnectorDNSError():
            return "its host name was not found"
        case aiohttp.ClientSSLError():
            return "its certificate or TLS is not valid"
        case aiohttp.ClientConnectorError():
            return f"no connection ({connection_failure(failure.os_error)})"
        case aiohttp.ClientResponseError():
            return "the answer is not valid HTTP"
        case aiohttp.InvalidURL():
            return "its URL is not valid"
        case aiohttp.ClientPayloadError():
            return "the body ended early or is not valid HTTP"
        case _:
            return "the connection broke"


async def body_excerpt(response: aiohttp.ClientResponse, secrets: Iterable[str]) -> str:
    """Return the start of an error's body as text, for a message.

    It has at most 200 characters, no control characters and none of ``secrets``, which servers like to quote. It is
    empty if the body does not arrive within two seconds.
    """
    if content_coding(response.headers):
        return ""
    data = b""
    try:
        async with asyncio.timeout(_EXCERPT_SECONDS):
            while len(data) < _EXCERPT_BYTES and (chunk := await response.content.read(_EXCERPT_BYTES - len(data))):
                data += chunk
    except (aiohttp.ClientError, OSError):
        pass
    # before the search for secrets, because a control character could split one
    text = one_line(data.decode("utf-8", "replace"), len(data))
    ordered = sorted(secrets, key=len, reverse=True)
    for secret in ordered:
        text = text.replace(secret, "…")
    if len(data) >= _EXCERPT_BYTES and ordered:  # a secret may be cut off at the end
        text = text[: -len(ordered[0])]
    return text[:_EXCERPT]


async def status_error(
    response: aiohttp.ClientResponse, display_url: str, request: DownloadRequest, secrets: set[str]
) -> RetryRequest | DownloadFailed:
    """Return the error for a response other than the file.

    It is a :class:`~._download_request.RetryRequest` for 429 and 5xx, and a
    :class:`~transports.errors.UrlExpired` for 410, and for 401, 403 and 404 after ``expires_at``.
    """
    status, late = response.status, request.seconds_past_expiry()
    if status == 410 or (late is not None and status in (401, 403, 404)):
        return url_expired(display_url, late, status)
    details: dict[str, object] = {"url": display_url, "status": status}
    if status >= 400 and (body := await body_excerpt(response, secrets)):
        details["body"] = body
    meaning = f": {_MEANING[status]}" if status in _MEANING else ""
    retryable = status == 429 or 500 <= status < 600
    wait = retry_after(response.headers.get("Retry-After"), request.clock()) if retryable else None
    error = DownloadFailed(
        f"{display_url} answered {status_phrase(status)}{meaning}",
        retryable=retryable,
        retry_after=wait,
        details=details,
    )
    return RetryRequest(error, wait) if retryable else error


def status_phrase(status: int) -> str:
    """Return a status with its reason phrase: ``404 Not Found``."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
