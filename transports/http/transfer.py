"""The attempts of one download: redirects followed by hand, credentials, resuming (RFC 9110 §14), the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ..artifacts.base import Staged
from ..errors import EncodingRefused, RedirectRefused, SizeMismatch, Truncated
from .addresses import AddressGuard
from .download_request import (
    MAX_REDIRECTS,
    REDIRECTS,
    DownloadRequest,
    Fetched,
    RetryRequest,
    download_too_large,
)
from .fetch_metadata import metadata_headers
from .headers import Representation, content_coding, content_range
from .request import failure_reason, get
from .status_errors import status_error
from .urls import BadUrl, Target, add_query, resolve_redirect, secret_forms

__all__ = ["Transfer"]


class Transfer:
    """A download in progress.

    ``representation`` describes the one whose first bytes are staged; bytes of two are never joined. ``attempts``
    counts the requests for the file, ``left_origin`` says whether a redirect led away from the URL's own origin.
    """

    def __init__(self, request: DownloadRequest, staged: Staged) -> None:
        self.request, self.staged = request, staged
        self.representation: Representation | None = None
        self.attempts = 0
        self.left_origin = False
        reference, start = request.reference, request.start
        self.secrets = secret_forms(
            *reference.headers.values(),
            *reference.query.values(),
            *start.url.query.values(),
            start.url.raw_query_string,
            start.authorization or "",
        )

    async def attempt(self) -> Fetched:
        """Download everything, or the rest of it, from the first URL to the last byte.

        Raises :class:`~.download_request.RetryRequest` if another attempt may succeed.
        """
        self.attempts += 1
        conditions: dict[str, str] = {}
        if self.staged.size and self.representation is not None and self.representation.validator:
            conditions = {"Range": f"bytes={self.staged.size}-", "If-Range": self.representation.validator}
        else:
            await self._restart()
        target, trusted = self.request.start, True
        seen: set[tuple[URL, bool]] = set()
        hops: list[Target] = []
        for _ in range(MAX_REDIRECTS + 1):
            if (target.url, trusted) in seen:
                raise self._redirect_refused(target, "redirects lead in a circle")
            seen.add((target.url, trusted))
            hops.append(target)
            url, headers = await self._request(target, trusted, conditions)
            if self.request.sender is not None:
                headers.update(metadata_headers(self.request.sender, hops))
            async with get(
                url,
                headers,
                display_url=target.display_url,
                guard=self._guard(target),
                stall_timeout=self.request.stall_timeout,
                resolver=self.request.resolver,
                propagate=self.request.propagate and target.origin == self.request.own_origin,
            ) as response:
                if response.status not in REDIRECTS:
                    return await self._answer(response, target.display_url, bool(conditions))
                target = self._redirected(target, response.headers.get("Location"))
            trusted = trusted and target.origin == self.request.start.origin
            self.left_origin = self.left_origin or not trusted
        raise self._redirect_refused(target, f"more than {MAX_REDIRECTS} redirects")

    def _guard(self, target: Target) -> AddressGuard:
        own = self.request.own_addresses if target.origin == self.request.own_origin else ()
        return AddressGuard(allow_private=self.request.allow_private, own=own)

    async def _restart(self) -> None:
        self.representation = None
        if self.staged.size:
            await self.staged.reset()

    # --- requests and redirects ---------------------------------------------------------------------------------

    async def _request(
        self, target: Target, trusted: bool, conditions: Mapping[str, str]
    ) -> tuple[URL, CIMultiDict[str]]:
        """Return the URL and the headers for ``target``, with credentials if it is ``trusted``."""
        headers = CIMultiDict({"Accept-Encoding": "identity"} | dict(conditions))
        if not trusted:
            return target.url, headers
        if target.authorization:
            headers["Authorization"] = target.authorization
        for name, value in self.request.reference.headers.items():
            headers[name] = value
        if self.request.cookies is not None and target.origin == self.request.own_origin:
            jar = await self.request.cookies(str(target.url))
            self.secrets |= secret_forms(*jar.values())
            pairs = [f"{name}={value}" for name, value in jar.items() if (name + value).isprintable()]
            if "Cookie" in headers:
                pairs.append(headers["Cookie"])
            if pairs:
                headers["Cookie"] = "; ".join(pairs)
        redirected = target is not self.request.start
        return add_query(target.url, self.request.reference.query, keep=redirected), headers

    def _redirected(self, source: Target, location: str | None) -> Target:
        if not location:
            raise self._redirect_refused(source, "a redirect without a Location")
        try:
            target = resolve_redirect(source, location)
        except BadUrl as error:
            raise self._redirect_refused(source, f"a redirect to a URL that is not followed: {error}") from None
        self.secrets |= secret_forms(*target.url.query.values(), target.url.raw_query_string)
        return target

    def _redirect_refused(self, target: Target, why: str) -> RedirectRefused:
        return RedirectRefused(
            f"{self.request.start.display_url}: {why}, at {target.display_url}", details={"url": target.display_url}
        )

    # --- answers ------------------------------------------------------------------------------------------------

    async def _answer(self, response: aiohttp.ClientResponse, display_url: str, conditional: bool) -> Fetched:
        if response.status == 200 or (response.status == 206 and conditional):
            if coding := content_coding(response.headers):
                raise EncodingRefused(
                    f"{display_url} came in the coding {coding[:40]!r}, which was not asked for; nothing was stored",
                    details={"url": display_url, "encoding": coding[:40]},
                )
            if response.status == 200:  # also if the rest was asked for: the server starts again, and so do we
                await self._restart()
                self.representation = Representation.from_headers(response.headers)
                self._expect(self.representation.total, display_url)
            else:
                await self._continue(response, display_url)
            return await self._body(response, display_url)
        if response.status == 416 and conditional:
            await self._restart()
            raise RetryRequest(self._truncated(display_url, "the server could not continue it"))
        raise await status_error(response, display_url, self.request, self.secrets)

    def _expect(self, total: int | None, display_url: str) -> None:
        """Compare the announced length with the declared size and the limit, before any byte is read."""
        if total is not None and self.request.size is not None and total != self.request.size:
            raise self._mismatch(display_url, total, f"the server announces {total}")
        if total is not None and total > self.request.limit:
            raise download_too_large(display_url, self.request.limit, f"the server announces {total} bytes")

    async def _continue(self, response: aiohttp.ClientResponse, display_url: str) -> None:
        """Accept a 206 that starts where the staged bytes end and is of the same representation. Otherwise drop the
        staged bytes and raise :class:`~.download_request.RetryRequest`."""
        known, span = self.representation, content_range(response.headers.get("Content-Range"))
        if known is not None and span is not None and known.matches(response.headers):
            first, _, total = span
            if first == self.staged.size and known.total in (None, total):
                self._expect(total, display_url)
                self.representation = replace(known, total=total)
                return
        error = self._truncated(display_url, "the server did not continue where the body broke off")
        await self._restart()
        raise RetryRequest(error, 0.0)

    async def _body(self, response: aiohttp.ClientResponse, display_url: str) -> Fetched:
        representation, size = self.representation, self.request.size
        assert representation is not None
        expected = representation.total if size is None else size
        while True:
            failure: Exception | None = None
            try:
                chunk = await response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                failure = error
            if failure is not None:
                if self.staged.size == expected:
                    break  # only the last chunk marker is missing, and the size proves that the body is whole
                raise RetryRequest(self._truncated(display_url, failure_reason(failure)))
            if not chunk:
                break
            await self._write(chunk, display_url, expected)
        if expected is not None and self.staged.size < expected:
            if representation.framed and representation.total is None and size is not None:
                raise self._mismatch(display_url, self.staged.size, f"{self.staged.size} came")
            raise RetryRequest(self._truncated(display_url, "the body ended early"))
        if not self.staged.size:
            await self.staged.write(b"")  # an empty file is a file too
        complete = representation.framed or expected is not None
        return Fetched(representation.content_type, representation.filename, complete, self.attempts, self.left_origin)

    async def _write(self, chunk: bytes, display_url: str, expected: int | None) -> None:
        now = self.staged.size + len(chunk)
        if expected is not None and now > expected:
            if self.request.size is not None:
                raise self._mismatch(display_url, now, f"more than {self.request.size} came")
            error = self._truncated(display_url, "the server continued with more than it announced")
            await self._restart()
            raise RetryRequest(error)
        if now > self.request.limit:
            raise download_too_large(display_url, self.request.limit, "the body goes on")
        await self.staged.write(chunk)
        if self.request.on_progress is not None:
            self.request.on_progress(now, expected)

    # --- errors -------------------------------------------------------------------------------------------------

    def _mismatch(self, display_url: str, actual: int, what: str) -> SizeMismatch:
        return SizeMismatch(
            f"{display_url}: the app declared {self.request.size} bytes and {what}; nothing was stored",
            details={"url": display_url, "declared": self.request.size, "actual": actual},
        )

    def _truncated(self, display_url: str, why: str) -> Truncated:
        total = self.request.size
        if total is None and self.representation is not None:
            total = self.representation.total
        of = "an unknown number of" if total is None else str(total)
        return Truncated(
            f"{display_url}: {why}, after {self.staged.size} of {of} bytes, at attempt {self.attempts}",
            details={"url": display_url, "received": self.staged.size, "expected": total, "attempts": self.attempts},
        )
