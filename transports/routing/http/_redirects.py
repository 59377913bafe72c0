"""A GET request whose redirects are followed by hand: each hop is checked before it is requested.

Discovery and :func:`fetch_public` use it. Downloads follow redirects themselves, as they also resume and retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from aiohttp.abc import AbstractResolver

from ...base import WebResource
from ...errors import DiscoveryFailed, DownloadFailed, UsageError, status_phrase
from ._addresses import AddressGuard, own_addresses
from ._decoding import is_unknown
from ._headers import content_coding, transfer_coding
from ._request import (
    MAX_REDIRECTS,
    REDIRECTS,
    BrokenBody,
    RetryRequest,
    cookie_header,
    cookies_after_redirect,
    get,
    read_chunk,
)
from ._urls import BadUrl, Target, display_unparsed_url, parse, resolve_redirect


class UserHost:
    """The host that the user named. Its first address may be private; later addresses must be the same or public."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._addresses: frozenset[str] | None = None

    def guard(self, target: Target, *, allow_private: bool) -> AddressGuard:
        if target.url.raw_host != self.target.url.raw_host:
            return AddressGuard(allow_private=allow_private)
        if self._addresses is None:  # this is the first request to the host
            return AddressGuard(allow_private=True)
        return AddressGuard(allow_private=allow_private, app_addresses=self._addresses)

    def remember_address(self, guard: AddressGuard) -> None:
        if self._addresses is not None:
            return
        _, host, port = self.target.origin
        address = guard.connected_address()
        server_address = None if address is None else (address, port)
        self._addresses = own_addresses(host, port, server_address)


class RedirectedGet:
    """A GET request that follows redirects. ``target`` is the URL of the next request, or of the last one at the end.
    ``user_host`` is the host of the user's own address. It may be private; any other host must be public unless
    ``allow_private``. The credentials in the user's address go to its own origin until the first redirect away from it.
    ``what`` names the document in messages; ``timeout`` in seconds covers all requests."""

    def __init__(
        self,
        what: str,
        target: Target,
        user_host: UserHost | None,
        *,
        accept: str,
        timeout: float,
        allow_private: bool,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self.target = target
        self._what = what
        self._user_host = user_host
        self._accept = accept
        self._timeout = timeout
        self._allow_private = allow_private
        self._resolver = resolver
        self._trusted = user_host is not None and target.origin == user_host.target.origin
        self._cookies: dict[str, str] = {}
        self._seen = {(target.url, "")}

    @property
    def label(self) -> str:
        return f"{self._what} {self.target.display_url}"

    @property
    def authorization(self) -> str | None:
        if self._user_host is None or not self._trusted:
            return None
        return self._user_host.target.authorization

    def error(
        self, message: str, *, code: str | None = None, retryable: bool = False, **details: object
    ) -> DiscoveryFailed:
        return DiscoveryFailed(
            message, code=code, retryable=retryable, details={"url": self.target.display_url, **details}
        )

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except TimeoutError:
            message = f"{self.label} was not read within {self._timeout:g} s"
            raise self.error(message, code="TIMEOUT", retryable=True) from None

    @asynccontextmanager
    async def send(self, conditions: Mapping[str, str] | None = None) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the response, of any status. ``conditions`` are headers for revalidation."""
        headers = {"Accept": self._accept, "Accept-Encoding": "identity", **(conditions or {})}
        if self.authorization:
            headers["Authorization"] = self.authorization
        if self._cookies:
            headers["Cookie"] = cookie_header(self._cookies)
        if self._user_host is None:
            guard = AddressGuard(allow_private=self._allow_private)
        else:
            guard = self._user_host.guard(self.target, allow_private=self._allow_private)

        try:
            async with get(
                self.target.url,
                headers,
                display_url=self.label,
                guard=guard,
                stall_timeout=self._timeout,
                resolver=self._resolver,
            ) as response:
                if self._user_host is not None:
                    self._user_host.remember_address(guard)
                yield response
        except (RetryRequest, DownloadFailed) as failure:
            error = failure.error if isinstance(failure, RetryRequest) else failure
            # A download's own code would say nothing of a page or a manifest.
            code = None if error.code == DownloadFailed.code else error.code
            details = error.details | {"url": self.target.display_url}
            raise DiscoveryFailed(error.message, code=code, retryable=error.retryable, details=details) from None

    @asynccontextmanager
    async def final_response(self) -> AsyncIterator[aiohttp.ClientResponse]:
        """Follow redirects, and yield the first other response. Raises an error unless its status is 200."""
        while True:
            async with self.send() as response:
                if not self.follow_redirect(response):
                    self.raise_for_status(response)
                    yield response
                    return

    def follow_redirect(self, response: aiohttp.ClientResponse) -> bool:
        """Make the target of a redirect the next :attr:`target`. Return whether the response was a redirect."""
        if response.status not in REDIRECTS:
            return False
        location = response.headers.get("Location")
        if not location:
            raise self.error(f"{self.label} answered {status_phrase(response.status)} without a Location")
        try:
            target = resolve_redirect(self.target, location)
        except BadUrl as error:
            raise self.error(f"{self.label} redirects to a URL that is not followed: {error}") from None

        self._cookies = cookies_after_redirect(self._cookies, response, self.target, target)
        visit = (target.url, cookie_header(self._cookies))
        if visit in self._seen:
            raise self.error(f"{self.label}: redirects lead in a circle")
        if len(self._seen) > MAX_REDIRECTS:
            raise self.error(f"{self.label}: more than {MAX_REDIRECTS} redirects")

        self._seen.add(visit)
        self.target = target
        if self._user_host is not None:
            self._trusted = self._trusted and target.origin == self._user_host.target.origin
        return True

    def raise_for_status(self, response: aiohttp.ClientResponse) -> None:
        """Raise an error for a status other than 200, and for a coded body. A coding that does not exist is accepted:
        the server named it by mistake, and the body is as it was."""
        if response.status != 200:
            retryable = response.status == 429 or 500 <= response.status < 600
            message = f"{self.label} answered {status_phrase(response.status)}"
            raise self.error(message, retryable=retryable, status=response.status)
        coding = content_coding(response.headers)
        if coding and (transfer_coding(response.headers) or not is_unknown(coding)):
            message = f"{self.label} came in the coding {coding[:40]!r}, which was not asked for"
            raise self.error(message, encoding=coding[:40])

    async def read_chunk(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the next bytes of the body, or ``b""`` at its end."""
        try:
            return await read_chunk(response)
        except BrokenBody as broken:
            raise self.error(f"{self.label} was not read to its end: {broken.reason}", retryable=True) from None

    async def read_body(self, response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
        body = bytearray()
        while chunk := await self.read_chunk(response):
            body += chunk
            if len(body) > max_bytes:
                raise self.error(f"{self.label} is larger than {max_bytes} bytes", limit=max_bytes)
        return bytes(body)


async def fetch_public(
    url: str, *, accept: str, timeout: float, max_bytes: int, allow_private: bool = False
) -> WebResource:
    """Return the body behind a URL, and the headers that a browser needs to use it.

    Every host must have a public address unless ``allow_private``; the address that is really connected to is checked.
    No credentials are sent, and no cookies but those that redirects set. ``timeout`` in seconds covers all redirects.
    Raises :class:`~transports.errors.UsageError` if ``url`` is not an http(s) address, and
    :class:`~transports.errors.DiscoveryFailed` (``code`` is ``BLOCKED_ADDRESS`` for a private address)."""
    try:
        target = parse(url)
    except BadUrl as error:
        raise UsageError(f"{display_unparsed_url(url)} is not fetched: {error}") from None
    resource = RedirectedGet(
        "the resource",
        target,
        None,
        accept=accept or "*/*",
        timeout=timeout,
        allow_private=allow_private,
    )
    async with resource.deadline(), resource.final_response() as response:
        body = await resource.read_body(response, max_bytes)
        # None of these headers has a side effect, such as a cookie or a policy.
        header_names = ("Content-Type", "Access-Control-Allow-Origin", "Content-Language")
        headers = {name: response.headers[name] for name in header_names if response.headers.get(name)}
        return WebResource(body, headers)
