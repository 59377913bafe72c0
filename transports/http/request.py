"""One request on a connection of its own, and what its failure means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import NoReturn

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from ..errors import AddressBlocked, DownloadFailed
from .addresses import Guard
from .headers import foreign_encoding, plain

__all__ = ["Again", "excerpt", "get", "reason"]

_EXCERPT = 200  # characters of an error's body
_EXCERPT_BYTES = 4096
_EXCERPT_SECONDS = 2.0
_BUFFER = 1 << 18  # bytes; a body is handed over in pieces of up to twice this


class Again(Exception):
    """Worth another request; ``error`` comes out if there is none left. ``wait``: what the server asks for, seconds."""

    def __init__(self, error: DownloadFailed, wait: float | None = None) -> None:
        super().__init__(error.message)
        self.error, self.wait = error, wait


@asynccontextmanager
async def get(
    url: URL,
    headers: Mapping[str, str],
    *,
    shown: str,
    anywhere: bool,
    stall_timeout: float,
    resolver: AbstractResolver | None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """GET ``url`` without following redirects; ``shown`` is its name in messages.

    The connection is never shared or kept, so that none escapes the address check (off with ``anywhere``), and is
    closed at the end, also by cancellation. Raises :class:`Again` or :class:`~transports.errors.DownloadFailed`.
    """
    guard = Guard(anywhere=anywhere)
    async with aiohttp.ClientSession(
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
    ) as session:
        failure: Exception | None = None
        try:
            response = await session.get(url, headers=headers, allow_redirects=False)
        except (aiohttp.ClientError, OSError) as error:  # OSError: TimeoutError too
            failure = error
        if failure is not None:  # outside of `except`, because aiohttp's errors quote the URL with its query
            _no_answer(failure, guard, shown, stall_timeout)
        try:
            yield response
        finally:
            response.close()


def _no_answer(failure: Exception, guard: Guard, shown: str, stall_timeout: float) -> NoReturn:
    details: dict[str, object] = {"url": shown}
    if guard.blocked and not guard.allowed:
        raise AddressBlocked(
            f"{shown} was not fetched: its address {guard.blocked[-1]} is not public and not the app's own; "
            "set ABP_ALLOW_PRIVATE_ADDRESSES=1 if downloads from private addresses are wanted",
            details=details | {"address": guard.blocked[-1]},
        )
    if isinstance(failure, TimeoutError):
        raise Again(
            DownloadFailed(
                f"{shown} gave no answer within {stall_timeout:g} s", code="TIMEOUT", retryable=True, details=details
            )
        )
    message = f"{shown} was not fetched: {reason(failure)}"
    if isinstance(failure, aiohttp.ClientSSLError | aiohttp.ClientResponseError | aiohttp.InvalidURL):
        raise DownloadFailed(message, details=details)
    raise Again(DownloadFailed(message, retryable=True, details=details))


def reason(failure: Exception) -> str:
    """Why, in words that hold nothing of the request."""
    match failure:
        case TimeoutError():
            return "it stalled"
        case aiohttp.ClientConnectorDNSError():
            return "its host name was not found"
        case aiohttp.ClientSSLError():
            return "its certificate or TLS is not valid"
        case aiohttp.ClientConnectorError():
            return f"no connection ({failure.os_error.strerror or type(failure.os_error).__name__})"
        case aiohttp.ClientResponseError():
            return "the answer is no valid HTTP"
        case aiohttp.InvalidURL():
            return "its URL is not valid"
        case aiohttp.ClientPayloadError():
            return "the body ended early or is no valid HTTP"
        case _:
            return "the connection broke"


async def excerpt(response: aiohttp.ClientResponse, secrets: Iterable[str]) -> str:
    """The start of an error's body as text: at most 200 characters, without control characters and without any of
    ``secrets``, which servers like to quote. Empty where it cannot be read soon."""
    if foreign_encoding(response.headers):
        return ""
    data = b""
    try:
        async with asyncio.timeout(_EXCERPT_SECONDS):
            while len(data) < _EXCERPT_BYTES and (chunk := await response.content.read(_EXCERPT_BYTES - len(data))):
                data += chunk
    except (aiohttp.ClientError, OSError):
        pass
    text = plain(data.decode("utf-8", "replace"), len(data))  # first, or a control character could hide a secret
    ordered = sorted(secrets, key=len, reverse=True)
    for secret in ordered:
        text = text.replace(secret, "…")
    if len(data) >= _EXCERPT_BYTES and ordered:  # half a secret may stand at the end
        text = text[: -len(ordered[0])]
    return text[:_EXCERPT]
