"""One GET with its redirects followed by hand: which address may be asked, what it is sent, what its failure means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

from ..errors import DiscoveryFailed, DownloadFailed
from .headers import foreign_encoding
from .request import Again, get, reason
from .status_errors import phrase
from .transfer import MAX_REDIRECTS, REDIRECTS
from .urls import BadUrl, Target, redirected

__all__ = ["Hops"]


class Hops:
    """``target`` is where the next request goes, or the last one went.

    ``typed`` is the address that the user gave: its host may be private, any other must be public unless
    ``allow_private``; its credentials go to its own origin, until the first redirect away from it. ``what`` names it
    all in messages; ``timeout`` in seconds is for all of it.
    """

    def __init__(
        self, what: str, target: Target, typed: Target, *, accept: str, timeout: float, allow_private: bool
    ) -> None:
        self.target = target
        self._what = what
        self._typed = typed
        self._accept = accept
        self._timeout = timeout
        self._allow_private = allow_private
        self._trusted = target.origin == typed.origin
        self._seen = {target.url}

    @property
    def named(self) -> str:
        return f"{self._what} {self.target.shown}"

    @property
    def authorization(self) -> str | None:
        """What the user's credentials are here, if they are for here."""
        return self._typed.authorization if self._trusted else None

    def failed(
        self, message: str, *, code: str | None = None, retryable: bool = False, **details: object
    ) -> DiscoveryFailed:
        return DiscoveryFailed(message, code=code, retryable=retryable, details={"url": self.target.shown, **details})

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except TimeoutError:
            message = f"{self.named} was not read within {self._timeout:g} s"
            raise self.failed(message, code="TIMEOUT", retryable=True) from None

    @asynccontextmanager
    async def ask(self, conditions: Mapping[str, str] | None = None) -> AsyncIterator[aiohttp.ClientResponse]:
        """GET ``target``, whatever it answers. Raises :class:`~transports.errors.DiscoveryFailed`."""
        headers = {"Accept": self._accept, "Accept-Encoding": "identity", **(conditions or {})}
        if self.authorization:
            headers["Authorization"] = self.authorization
        try:
            async with get(
                self.target.url,
                headers,
                shown=self.named,
                anywhere=self._allow_private or self.target.url.raw_host == self._typed.url.raw_host,
                stall_timeout=self._timeout,
                resolver=None,
            ) as response:
                yield response
        except (Again, DownloadFailed) as failure:
            error = failure.error if isinstance(failure, Again) else failure
            code = None if error.code == DownloadFailed.code else error.code
            details = error.details | {"url": self.target.shown}
            raise DiscoveryFailed(error.message, code=code, retryable=error.retryable, details=details) from None

    def moved(self, response: aiohttp.ClientResponse) -> bool:
        """Whether it is a redirect; then ``target`` is where it leads."""
        if response.status not in REDIRECTS:
            return False
        location = response.headers.get("Location")
        if not location:
            raise self.failed(f"{self.named} answered {phrase(response.status)} without saying where to")
        try:
            target = redirected(self.target, location)
        except BadUrl as error:
            raise self.failed(f"{self.named} redirects to a URL that is not followed: {error}") from None
        if target.url in self._seen:
            raise self.failed(f"{self.named}: redirects lead in a circle")
        if len(self._seen) > MAX_REDIRECTS:
            raise self.failed(f"{self.named}: more than {MAX_REDIRECTS} redirects")
        self._seen.add(target.url)
        self.target = target
        self._trusted = self._trusted and target.origin == self._typed.origin
        return True

    def check(self, response: aiohttp.ClientResponse) -> None:
        """Raises :class:`~transports.errors.DiscoveryFailed` unless the body is what was asked for."""
        if response.status != 200:
            again = response.status == 429 or 500 <= response.status < 600
            message = f"{self.named} answered {phrase(response.status)}"
            raise self.failed(message, retryable=again, status=response.status)
        if coding := foreign_encoding(response.headers):
            message = f"{self.named} came in the coding {coding[:40]!r}, although asked for as it is"
            raise self.failed(message, encoding=coding[:40])

    async def piece(self, response: aiohttp.ClientResponse) -> bytes:
        """Some more of the body; nothing at its end."""
        try:
            return await response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            why = reason(error)
        raise self.failed(f"{self.named} was not read to its end: {why}", retryable=True)
