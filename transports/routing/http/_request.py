"""Arguments of a download, a single GET request on a connection of its own, and its failures as typed errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ..._internal.telemetry import Attributes, annotate, propagation_headers, span
from ...base import Transport
from ...errors import AddressBlocked, DownloadFailed, TooLarge, UrlExpired, connection_failure, status_phrase
from ...protocol._http_dates import retry_after
from ...protocol.binary import Download
from ...protocol.messages import Sender
from ._addresses import AddressGuard
from ._headers import content_coding
from ._urls import Target

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)

#: Function that returns the cookies for a URL, by name.
Cookies: TypeAlias = Callable[[str], Awaitable[Mapping[str, str]]]


def cookies_of(app: Transport | None, sender: Sender | None) -> Cookies | None:
    if app is None or not app.features.cookies:
        return None
    return partial(app.cookies, sender=sender)


def cookies_after_redirect(
    cookies: Mapping[str, str], response: aiohttp.ClientResponse, source: Target, target: Target
) -> dict[str, str]:
    """Return the cookies for ``target``: those of earlier redirects, and those that this redirect sets. Some servers
    redirect until their cookie comes back. After a step to another origin, no cookie is sent."""
    if target.origin != source.origin:
        return {}
    new_cookies = {name: morsel.coded_value for name, morsel in response.cookies.items()}
    return {**cookies, **new_cookies}


def cookie_header(cookies: Mapping[str, str]) -> str:
    """Return the value of a ``Cookie`` header, without cookies whose characters no header may hold."""
    return "; ".join(f"{name}={value}" for name, value in cookies.items() if (name + value).isprintable())


class RetryRequest(Exception):
    """Raised when a request may succeed if it is repeated. ``error`` is raised to the caller once no retries are left.
    ``wait`` is the server's ``Retry-After`` in seconds."""

    def __init__(self, error: DownloadFailed, wait: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.wait = wait


class BrokenBody(Exception):
    """Raised when a body cannot be read to its end. ``reason`` is in words, without any part of the request."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadRequest:
    """What to download, and within which limits. ``stall_timeout`` (seconds) is the longest time without a byte.
    ``size`` is the size that the app declared and ``limit`` the largest accepted size, both in bytes. ``base_url`` is
    the app's page: relative URLs are resolved against it, and ``cookies`` is called (with a URL) for its origin only.
    ``sender`` is the document that asks, if there is one. Its address, origin and server then replace ``base_url`` and
    ``server_address``, and requests carry the headers of a browser's ``fetch`` from there (``Origin``, ``Referer``,
    ``Sec-Fetch-Site``).

    An address must be public unless ``allow_private``, or unless it is that of the app's own origin:
    ``server_address``, the numeric address and the port at which the app was reached, or the host of ``base_url``
    itself if that is numeric or ``localhost``. ``clock`` returns Unix seconds, for ``expires_at``. ``on_progress`` gets
    the bytes so far and the expected total or ``None``; after a restart it counts from zero again. With ``propagate``,
    requests to the app's own origin carry ``traceparent``.

    With ``accept_compression`` the server may compress the file. It is decoded while it arrives: ``size``, ``limit``
    and ``on_progress`` are about the decoded bytes. Such a download is not resumed but begun again."""

    reference: Download
    limit: int
    size: int | None = None
    base_url: str | None = None
    sender: Sender | None = None
    server_address: tuple[str, int] | None = None
    cookies: Cookies | None = None
    allow_private: bool = False
    stall_timeout: float = 15.0
    clock: Callable[[], float] = time.time
    on_progress: Callable[[int, int | None], None] | None = None
    resolver: AbstractResolver | None = None
    propagate: bool = False
    accept_compression: bool = False

    def seconds_past_expiry(self) -> float | None:
        """Return how long ago the URL expired, or ``None`` if it has not, or has no expiry."""
        if self.reference.expires_at is None:
            return None
        late = self.clock() - self.reference.expires_at / 1000
        return late if late >= 0 else None


def url_expired(display_url: str, late: float | None, status: int | None = None) -> UrlExpired:
    """Return the error for a URL that expired ``late`` seconds ago. ``status`` is the server's answer to a request."""
    message = f"{display_url} expired"
    advice = "call the capability again for a new URL"
    details: dict[str, object] = {"url": display_url}
    if late is not None:
        message += f" {late:.1f} s ago"
        advice += "; if that has expired, too, compare the clocks"
        details["expired_seconds_ago"] = round(late, 3)
    if status is not None:
        message += f" (the server answers {status})"
        details["status"] = status
    return UrlExpired(f"{message}; {advice}", details=details)


def download_too_large(display_url: str, limit: int, what: str) -> TooLarge:
    return TooLarge(
        f"{display_url}: {what}, and the limit is {limit} bytes (ABP_MAX_ARTIFACT_BYTES)",
        details={"url": display_url, "limit": limit},
    )


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
    """Send a GET request and yield its response. Redirects are not followed. ``display_url`` stands for the URL in
    messages. The connection is never shared or reused, so every request passes ``guard``. It is closed at the end of
    the block, also on cancellation. ``stall_timeout`` in seconds limits the connecting, and each pause without a byte.
    With ``propagate`` the request carries ``traceparent``."""
    # The attributes leave out the path and the query of the URL, which may hold secrets.
    where: Attributes = {"http.request.method": "GET", "server.address": url.host or "", "server.port": url.port or 0}
    with span("GET", where, "client"):
        all_headers = CIMultiDict(headers)
        if propagate:
            all_headers.update(propagation_headers())
        async with _session(guard, resolver, stall_timeout) as session:
            failure: Exception | None = None
            try:
                response = await session.get(url, headers=all_headers, allow_redirects=False)
            except (aiohttp.ClientError, OSError) as error:
                failure = error
            # Raised outside `except`, so that aiohttp's error, which quotes the query, is not chained.
            if failure is not None:
                raise _no_answer_error(failure, guard, display_url, stall_timeout)

            annotate({"http.response.status_code": response.status})
            try:
                yield response
            finally:
                response.close()


def _session(guard: AddressGuard, resolver: AbstractResolver | None, stall_timeout: float) -> aiohttp.ClientSession:
    """Return a session for one request, which shares no connection, cookie or DNS answer with another."""
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
        read_bufsize=1 << 18,  # aiohttp returns chunks of up to twice this size
        # The limit of Chromium: content security policies and cookies often exceed aiohttp's 8 KB.
        max_line_size=1 << 18,
        max_field_size=1 << 18,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=stall_timeout, sock_read=stall_timeout),
    )


def _no_answer_error(
    failure: Exception, guard: AddressGuard, display_url: str, stall_timeout: float
) -> RetryRequest | DownloadFailed:
    details: dict[str, object] = {"url": display_url}
    if guard.blocked and not guard.allowed:
        return AddressBlocked(
            f"{display_url} was not fetched: its address {guard.blocked[-1]} is not public and not the one that "
            "the app itself was reached at; "
            "set ABP_ALLOW_PRIVATE_ADDRESSES=1 if downloads from private addresses are wanted",
            details=details | {"address": guard.blocked[-1]},
        )
    if isinstance(failure, TimeoutError):
        message = f"{display_url} gave no answer within {stall_timeout:g} s"
        return RetryRequest(DownloadFailed(message, code="TIMEOUT", retryable=True, details=details))

    message = f"{display_url} was not fetched: {failure_reason(failure)}"
    if isinstance(failure, aiohttp.ClientSSLError | aiohttp.ClientResponseError | aiohttp.InvalidURL):
        return DownloadFailed(message, details=details)
    return RetryRequest(DownloadFailed(message, retryable=True, details=details))


async def read_chunk(response: aiohttp.ClientResponse) -> bytes:
    """Return the next bytes of a body, or ``b""`` at its end. Raises :class:`BrokenBody`."""
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        reason = failure_reason(error)
    # Raised outside `except`, as in `get`.
    raise BrokenBody(reason)


def failure_reason(failure: Exception) -> str:
    """Return the reason of a failure in words, without any part of the request."""
    match failure:
        case TimeoutError():
            return "it stalled"
        case aiohttp.ClientConnectorDNSError():
            return "its host name was not found"
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(failure.certificate_error, "verify_message", "for an unknown reason")
            return (
                f"its certificate is not valid ({reason}); have this system trust it, or name its CA's file in "
                "SSL_CERT_FILE"
            )
        case aiohttp.ClientSSLError():
            return "its TLS is not valid"
        case aiohttp.ClientConnectorError():
            return f"no connection ({connection_failure(failure.os_error)})"
        case aiohttp.ClientResponseError():
            return "the answer is not valid HTTP, or its headers are too large"
        case aiohttp.InvalidURL():
            return "its URL is not valid"
        case aiohttp.ClientPayloadError():
            return "the body ended early or is not valid HTTP"
        case _:
            return "the connection broke"


async def _read_beginning(response: aiohttp.ClientResponse, timeout: float) -> tuple[bytes, bool]:
    """Return what arrives of a body within ``timeout`` seconds, up to a limit, and whether that is all of it."""
    max_bytes = 4096
    data = b""
    with suppress(aiohttp.ClientError, OSError):
        async with asyncio.timeout(timeout):
            while len(data) < max_bytes:
                chunk = await response.content.read(max_bytes - len(data))
                if not chunk:
                    return data, True
                data += chunk
    return data, False


async def body_excerpt(response: aiohttp.ClientResponse, secrets: Iterable[str], timeout: float = 2.0) -> str:
    """Return the beginning of an error's body for a message: what arrives within ``timeout`` seconds, at most 200
    characters, without control characters and without ``secrets``, which servers like to quote."""
    if content_coding(response.headers):
        return ""

    data, is_whole = await _read_beginning(response, timeout)
    # Remove control characters first, because they could split a secret.
    text = "".join(char for char in data.decode("utf-8", "replace") if char.isprintable() or char.isspace())
    text = " ".join(text.split())
    longest_first = sorted(secrets, key=len, reverse=True)
    for secret in longest_first:
        text = text.replace(secret, "…")
    if longest_first and not is_whole:
        # The end may be a part of a secret, which the search does not notice.
        text = text[: -len(longest_first[0])]
    return text[:200]


async def status_error(
    response: aiohttp.ClientResponse, display_url: str, request: DownloadRequest, secrets: set[str]
) -> RetryRequest | DownloadFailed:
    """Return the error for a response that is not a file: a :class:`RetryRequest` for 429 and 5xx,
    :class:`~transports.errors.UrlExpired` for 410, and for 401, 403 and 404 after ``expires_at``."""
    status = response.status
    late = request.seconds_past_expiry()
    is_refused_late = late is not None and status in (401, 403, 404)
    if status == 410 or is_refused_late:
        return url_expired(display_url, late, status)

    details: dict[str, object] = {"url": display_url, "status": status}
    if status >= 400:
        body = await body_excerpt(response, secrets, min(2.0, request.stall_timeout))
        if body:
            details["body"] = body
    message = f"{display_url} answered {status_phrase(status)}"

    can_retry = status == 429 or 500 <= status < 600
    if not can_retry:
        return DownloadFailed(message, details=details)
    wait = retry_after(response.headers.get("Retry-After"), request.clock())
    return RetryRequest(DownloadFailed(message, retryable=True, retry_after=wait, details=details), wait)
