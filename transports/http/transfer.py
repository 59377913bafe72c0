"""One download's attempts: redirects by hand, credentials, resuming (RFC 9110 §14), the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ..artifacts.base import Staged
from ..errors import EncodingRefused, RedirectRefused, SizeMismatch, Truncated
from .download_request import Asked, Fetched, too_large
from .headers import Head, content_range, foreign_encoding
from .request import Again, get, reason
from .status_errors import refusal
from .urls import BadUrl, Target, redirected, secrets_of, with_query

__all__ = ["MAX_REDIRECTS", "REDIRECTS", "Transfer"]

MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)


class Transfer:
    """``head`` describes the representation whose first bytes are staged; bytes of two are never joined."""

    def __init__(self, asked: Asked, staged: Staged) -> None:
        self.asked, self.staged = asked, staged
        self.head: Head | None = None
        self.attempts = 0
        self.strayed = False
        reference, start = asked.reference, asked.start
        self.secrets = secrets_of(
            *reference.headers.values(),
            *reference.query.values(),
            *start.url.query.values(),
            start.url.raw_query_string,
            start.authorization or "",
        )

    async def attempt(self) -> Fetched:
        """Everything from the first URL to the last byte. Raises :class:`.connect.Again` where it may be repeated."""
        self.attempts += 1
        conditions: dict[str, str] = {}
        if self.staged.size and self.head is not None and self.head.validator:
            conditions = {"Range": f"bytes={self.staged.size}-", "If-Range": self.head.validator}
        else:
            await self._restart()
        target, trusted = self.asked.start, True
        seen: set[tuple[URL, bool]] = set()
        for _ in range(MAX_REDIRECTS + 1):
            if (target.url, trusted) in seen:
                raise self._redirect_refused(target, "redirects lead in a circle")
            seen.add((target.url, trusted))
            url, headers = await self._request(target, trusted, conditions)
            async with get(
                url,
                headers,
                shown=target.shown,
                anywhere=self.asked.allow_private or target.origin == self.asked.own_origin,
                stall_timeout=self.asked.stall_timeout,
                resolver=self.asked.resolver,
            ) as response:
                if response.status not in REDIRECTS:
                    return await self._answer(response, target.shown, bool(conditions))
                target = self._redirected(target, response.headers.get("Location"))
            trusted = trusted and target.origin == self.asked.start.origin
            self.strayed = self.strayed or not trusted
        raise self._redirect_refused(target, f"more than {MAX_REDIRECTS} redirects")

    async def _restart(self) -> None:
        self.head = None
        if self.staged.size:
            await self.staged.reset()

    # --- requests and redirects ---------------------------------------------------------------------------------

    async def _request(
        self, target: Target, trusted: bool, conditions: Mapping[str, str]
    ) -> tuple[URL, CIMultiDict[str]]:
        """What is sent to ``target``; with credentials if it is ``trusted``."""
        headers = CIMultiDict({"Accept-Encoding": "identity"} | dict(conditions))
        if not trusted:
            return target.url, headers
        if target.authorization:
            headers["Authorization"] = target.authorization
        for name, value in self.asked.reference.headers.items():
            headers[name] = value
        if self.asked.cookies is not None and target.origin == self.asked.own_origin:
            jar = await self.asked.cookies(str(target.url))
            self.secrets |= secrets_of(*jar.values())
            pairs = [f"{name}={value}" for name, value in jar.items() if (name + value).isprintable()]
            if "Cookie" in headers:
                pairs.append(headers["Cookie"])
            if pairs:
                headers["Cookie"] = "; ".join(pairs)
        redirected = target is not self.asked.start
        return with_query(target.url, self.asked.reference.query, keep=redirected), headers

    def _redirected(self, source: Target, location: str | None) -> Target:
        if not location:
            raise self._redirect_refused(source, "a redirect without a Location")
        try:
            target = redirected(source, location)
        except BadUrl as error:
            raise self._redirect_refused(source, f"a redirect to a URL that is not followed: {error}") from None
        self.secrets |= secrets_of(*target.url.query.values(), target.url.raw_query_string)
        return target

    def _redirect_refused(self, target: Target, why: str) -> RedirectRefused:
        return RedirectRefused(f"{self.asked.start.shown}: {why}, at {target.shown}", details={"url": target.shown})

    # --- answers ------------------------------------------------------------------------------------------------

    async def _answer(self, response: aiohttp.ClientResponse, shown: str, conditional: bool) -> Fetched:
        if response.status == 200 or (response.status == 206 and conditional):
            if coding := foreign_encoding(response.headers):
                raise EncodingRefused(
                    f"{shown} came in the coding {coding[:40]!r}, although asked for as it is; nothing was stored",
                    details={"url": shown, "encoding": coding[:40]},
                )
            if response.status == 200:  # also where the rest was asked for: the server starts again, and so do we
                await self._restart()
                self.head = Head.of(response.headers)
                self._expect(self.head.total, shown)
            else:
                await self._continue(response, shown)
            return await self._body(response, shown)
        if response.status == 416 and conditional:
            await self._restart()
            raise Again(self._truncated(shown, "the server could not continue it"))
        raise await refusal(response, shown, self.asked, self.secrets)

    def _expect(self, total: int | None, shown: str) -> None:
        """Before any byte: the announced length against the declared size and the limit."""
        if total is not None and self.asked.size is not None and total != self.asked.size:
            raise self._mismatch(shown, total, f"the server announces {total}")
        if total is not None and total > self.asked.limit:
            raise too_large(shown, self.asked.limit, f"the server announces {total} bytes")

    async def _continue(self, response: aiohttp.ClientResponse, shown: str) -> None:
        """Accepts a 206 that starts where the staged bytes end and is about the same representation; else all is
        forgotten and asked for again."""
        head, span = self.head, content_range(response.headers.get("Content-Range"))
        if head is not None and span is not None and head.same(response.headers):
            first, _, total = span
            if first == self.staged.size and head.total in (None, total):
                self._expect(total, shown)
                self.head = replace(head, total=total)
                return
        error = self._truncated(shown, "the server did not continue where the body broke off")
        await self._restart()
        raise Again(error, 0.0)

    async def _body(self, response: aiohttp.ClientResponse, shown: str) -> Fetched:
        head, size = self.head, self.asked.size
        assert head is not None
        expected = head.total if size is None else size
        while True:
            failure: Exception | None = None
            try:
                chunk = await response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                failure = error
            if failure is not None:
                if self.staged.size == expected:
                    break  # only the end of the chunks is missing, and the size proves as much as that would
                raise Again(self._truncated(shown, reason(failure)))
            if not chunk:
                break
            await self._keep(chunk, shown, expected)
        if expected is not None and self.staged.size < expected:
            if head.framed and head.total is None and size is not None:
                raise self._mismatch(shown, self.staged.size, f"{self.staged.size} came")
            raise Again(self._truncated(shown, "the body ended early"))
        if not self.staged.size:
            await self.staged.write(b"")  # an empty file is a file too
        complete = head.framed or expected is not None
        return Fetched(head.content_type, head.filename, complete, self.attempts, self.strayed)

    async def _keep(self, chunk: bytes, shown: str, expected: int | None) -> None:
        now = self.staged.size + len(chunk)
        if expected is not None and now > expected:
            if self.asked.size is not None:
                raise self._mismatch(shown, now, f"more than {self.asked.size} came")
            error = self._truncated(shown, "the server continued with more than it announced")
            await self._restart()
            raise Again(error)
        if now > self.asked.limit:
            raise too_large(shown, self.asked.limit, "the body goes on")
        await self.staged.write(chunk)
        if self.asked.on_progress is not None:
            self.asked.on_progress(now, expected)

    # --- errors -------------------------------------------------------------------------------------------------

    def _mismatch(self, shown: str, actual: int, what: str) -> SizeMismatch:
        return SizeMismatch(
            f"{shown}: the app declared {self.asked.size} bytes and {what}; nothing was stored",
            details={"url": shown, "declared": self.asked.size, "actual": actual},
        )

    def _truncated(self, shown: str, why: str) -> Truncated:
        total = self.asked.size if self.asked.size is not None or self.head is None else self.head.total
        of = "an unknown number of" if total is None else str(total)
        return Truncated(
            f"{shown}: {why}, after {self.staged.size} of {of} bytes, at attempt {self.attempts}",
            details={"url": shown, "received": self.staged.size, "expected": total, "attempts": self.attempts},
        )
