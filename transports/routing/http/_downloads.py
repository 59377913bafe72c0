"""Downloads: :func:`download` checks the arguments, retries and holds the deadline; :class:`Transfer` is one attempt.

An attempt follows redirects by hand, sends credentials to the right origin only, resumes with ``Range``, and checks the
body against the declared size and the limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ..._internal.tasks import backoff_delay, in_thread
from ...artifacts._base import Staged
from ...base import Fetched
from ...errors import DownloadFailed, EncodingRefused, RedirectRefused, SizeMismatch, Truncated, status_phrase
from ...protocol.messages import Sender
from ._addresses import AddressGuard, own_addresses
from ._decoding import BadBody, BodyDecoder, accept_encoding, can_decode, is_unknown
from ._headers import Representation, content_coding, content_length, content_range, is_part, transfer_coding
from ._request import (
    MAX_REDIRECTS,
    REDIRECTS,
    DownloadRequest,
    RetryRequest,
    download_too_large,
    failure_reason,
    get,
    status_error,
    url_expired,
)
from ._urls import (
    BadHeader,
    BadUrl,
    Origin,
    Target,
    add_query,
    check_headers,
    display_unparsed_url,
    origin_of,
    parse,
    resolve_redirect,
    secret_forms,
)

if TYPE_CHECKING:
    pass

#: Retries after the first request, for any reason: no connection, a broken body, 429, 5xx.
RETRIES = 3

#: Bytes of a decoded body that are written at a time.
_BATCH = 256 << 10

log = logging.getLogger("transports.routing.http")


async def download(request: DownloadRequest, staged: Staged, *, timeout: float) -> Fetched:
    """Download into ``staged``, which is neither committed nor removed here. ``timeout`` (seconds) covers everything.

    Credentials (``headers``, ``query``, user info, cookies) go to the URL's own origin until the first redirect away
    from it. Proxy settings of the environment are not used: a proxy would connect instead, unchecked.

    Failed connections, broken bodies, 429 and 5xx are retried, :data:`RETRIES` times in all. If ``Retry-After`` or the
    back-off reaches past ``timeout``, the failure is raised at once, with ``retry_after``.

    Raises :class:`~transports.errors.DownloadFailed` and its subclasses (``code`` is ``TIMEOUT`` at a deadline),
    :class:`~transports.errors.SizeMismatch`, :class:`~transports.errors.TooLarge`, and the errors of ``staged``,
    ``cookies`` and ``on_progress``. No message, detail or log line holds a credential or a query.
    """
    reference, size = request.reference, request.size
    try:
        start = parse(reference.url, request.base_url if request.sender is None else request.sender.url)
        check_headers(reference.headers)
    except (BadUrl, BadHeader) as error:
        display_url = display_unparsed_url(reference.url)
        raise DownloadFailed(f"cannot download {display_url}: {error}", details={"url": display_url}) from None
    if size is not None and size > request.limit:
        raise download_too_large(start.display_url, request.limit, f"the app declared {size} bytes")
    late = request.seconds_past_expiry()
    if late is not None:
        raise url_expired(start.display_url, late)
    try:
        async with asyncio.timeout(timeout) as deadline:
            return await _retried(Transfer(request, start, staged), deadline)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise DownloadFailed(
            f"{start.display_url} was not downloaded within {timeout:g} s ({staged.size} bytes came); allow more time",
            code="TIMEOUT",
            retryable=True,
            details={"url": start.display_url, "received": staged.size, "timeout_seconds": timeout},
        ) from None


async def _retried(transfer: Transfer, deadline: asyncio.Timeout) -> Fetched:
    loop = asyncio.get_running_loop()
    attempt = 0
    while True:
        attempt += 1
        try:
            return await transfer.attempt()
        except RetryRequest as retry:
            error, wait = retry.error, retry.wait
        if wait is None:
            wait = backoff_delay(attempt)
        ends = deadline.when()
        if attempt > RETRIES or (ends is not None and loop.time() + wait >= ends):
            raise error
        log.info("attempt %d of %d, next in %.1f s: %s", attempt, RETRIES + 1, wait, error.message)
        await asyncio.sleep(wait)


def _next_batch(parts: Iterator[bytes]) -> bytes:
    """Return the next parts of a decoded body, 256 KB or more unless it is the end; a thread for each takes long."""
    batch = bytearray()
    for part in parts:
        batch += part
        if len(batch) >= _BATCH:
            break
    return bytes(batch)


_SITES = ("same-origin", "same-site", "cross-site")


def metadata_headers(sender: Sender, hops: Sequence[Target]) -> dict[str, str]:
    """Return the Fetch Metadata (W3C) and the ``Origin`` of a GET with the mode ``cors`` by ``sender``, as a browser's
    ``fetch`` sends them. Unlike a browser, it includes ``Sec-Fetch-*`` for plain http too.

    ``hops`` are the URLs of the download so far, after redirects; the last one is requested now.
    """
    origin = origin_of(sender.origin)
    site = max((_relation(sender, origin, hop.origin) for hop in hops), key=_SITES.index)
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    if any(hop.origin != origin for hop in hops):
        headers["Origin"] = "null" if _is_tainted(origin, hops) else sender.origin
    return headers


def _relation(sender: Sender, origin: Origin | None, other: Origin) -> str:
    """Return the relation of ``other`` to the sender's ``origin``: one of :data:`_SITES`."""
    if origin == other:
        return "same-origin"
    if origin is None:
        return "cross-site"
    scheme, host, _ = origin
    other_scheme, other_host, _ = other
    domain = sender.domain or host
    is_same_host = host == other_host or f".{other_host}".endswith(f".{domain}")
    return "same-site" if scheme == other_scheme and is_same_host else "cross-site"


def _is_tainted(origin: Origin | None, hops: Sequence[Target]) -> bool:
    """Return whether a server of another origin has redirected to a third origin (Fetch: redirect-tainted origin).

    Then ``Origin`` is ``null``, or the third server would take a request forged by the second for one of ``sender``.
    """
    return any(hop.origin != before.origin and before.origin != origin for before, hop in pairwise(hops))


class Transfer:
    """A download in progress, whose first URL is ``start``.

    ``representation`` describes the staged bytes; bytes of two representations are never joined. ``attempts`` counts
    the requests for the file. ``left_origin`` is true if a redirect led away from the URL's own origin. ``warnings``
    are for the result of the call.
    """

    def __init__(self, request: DownloadRequest, start: Target, staged: Staged) -> None:
        self.request = request
        self.start = start
        self.staged = staged
        self.representation: Representation | None = None
        self.attempts = 0
        self.left_origin = False
        self.warnings: tuple[str, ...] = ()
        sender, server_address = request.sender, request.server_address
        self.own_origin = origin_of(request.base_url)
        if sender is not None:
            self.own_origin, server_address = origin_of(sender.origin), sender.server_address
        self.own_addresses: frozenset[str] = frozenset()
        if self.own_origin is not None:
            _, host, port = self.own_origin
            self.own_addresses = own_addresses(host, port, server_address)
        reference = request.reference
        self.secrets = secret_forms(
            *reference.headers.values(),
            *reference.query.values(),
            *start.url.query.values(),
            start.url.raw_query_string,
            start.authorization or "",
        )

    async def attempt(self) -> Fetched:
        """Download the whole file, or the rest after the staged bytes, starting at the first URL.

        Raises :class:`~._request.RetryRequest` if another attempt may succeed.
        """
        self.attempts += 1
        conditions: dict[str, str] = {}
        if self.staged.size and self.representation is not None and self.representation.validator:
            conditions = {"Range": f"bytes={self.staged.size}-", "If-Range": self.representation.validator}
        else:
            await self._restart()
        target = self.start
        trusted = True
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
                propagate=self.request.propagate and target.origin == self.own_origin,
            ) as response:
                if response.status not in REDIRECTS:
                    return await self._answer(response, target.display_url, bool(conditions))
                target = self._redirected(target, response.headers.get("Location"))
            trusted = trusted and target.origin == self.start.origin
            self.left_origin = self.left_origin or not trusted
        raise self._redirect_refused(target, f"more than {MAX_REDIRECTS} redirects")

    def _guard(self, target: Target) -> AddressGuard:
        is_own = target.origin == self.own_origin
        addresses = self.own_addresses if is_own else ()
        return AddressGuard(allow_private=self.request.allow_private, app_addresses=addresses)

    async def _restart(self) -> None:
        self.representation = None
        if self.staged.size:
            await self.staged.reset()

    # --- requests and redirects ---------------------------------------------------------------------------------

    async def _request(
        self, target: Target, trusted: bool, conditions: Mapping[str, str]
    ) -> tuple[URL, CIMultiDict[str]]:
        """Return the URL and the headers for ``target``, with credentials if it is ``trusted``."""
        codings = accept_encoding() if self.request.accept_compression else "identity"
        headers = CIMultiDict({"Accept-Encoding": codings} | dict(conditions))
        if not trusted:
            return target.url, headers
        if target.authorization:
            headers["Authorization"] = target.authorization
        for name, value in self.request.reference.headers.items():
            headers[name] = value
        if self.request.cookies is not None and target.origin == self.own_origin:
            jar = await self.request.cookies(str(target.url))
            self.secrets |= secret_forms(*jar.values())
            pairs = [f"{name}={value}" for name, value in jar.items() if (name + value).isprintable()]
            if "Cookie" in headers:
                pairs.append(headers["Cookie"])
            if pairs:
                headers["Cookie"] = "; ".join(pairs)
        redirected = target is not self.start
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
            f"{self.start.display_url}: {why}, at {target.display_url}", details={"url": target.display_url}
        )

    # --- answers ------------------------------------------------------------------------------------------------

    async def _answer(self, response: aiohttp.ClientResponse, display_url: str, conditional: bool) -> Fetched:
        if response.status == 416 and conditional:
            await self._restart()
            raise RetryRequest(self._truncated(display_url, "the server could not continue it"))
        if response.status not in (200, 206):
            raise await status_error(response, display_url, self.request, self.secrets)
        part = response.status == 206 or is_part(response.headers, requested=conditional)
        coding = content_coding(response.headers)
        if coding and not self._can_decode(coding, response, part=part):
            self._require_unknown(coding, response, display_url)
            warning = f"{display_url} has the unknown Content-Encoding {coding[:40]!r}; it is stored as it came"
            self.warnings = (warning,)
            coding = None
        end = None
        if part:
            end = await self._take_part(response, display_url, conditional)
        else:
            await self._take_whole(response, display_url, conditional, encoded=coding is not None)
        return await self._body(response, display_url, coding, end)

    def _can_decode(self, coding: str, response: aiohttp.ClientResponse, *, part: bool) -> bool:
        asked_for = self.request.accept_compression and can_decode(coding)
        return asked_for and not part and transfer_coding(response.headers) is None

    def _require_unknown(self, coding: str, response: aiohttp.ClientResponse, display_url: str) -> None:
        """Raise :class:`~transports.errors.EncodingRefused`, unless nobody knows the coding and the length is given:
        then the length proves that the body is whole, and the name changes nothing."""
        length = content_length(response.headers) if self.request.size is None else self.request.size
        if transfer_coding(response.headers) is not None or not is_unknown(coding) or length is None:
            raise self._encoding_refused(display_url, coding, "was not asked for")

    def _expect(self, total: int | None, display_url: str) -> None:
        """Compare the announced length with the declared size and the limit, before any byte is read."""
        if total is not None and self.request.size is not None and total != self.request.size:
            raise self._mismatch(display_url, total, f"the server announces {total}")
        if total is not None and total > self.request.limit:
            raise download_too_large(display_url, self.request.limit, f"the server announces {total} bytes")

    async def _take_whole(
        self, response: aiohttp.ClientResponse, display_url: str, conditional: bool, *, encoded: bool
    ) -> None:
        """Begin with the whole body, also after a Range request: the server starts again, and so do we.

        If the content has not changed since, the server either does not know ranges, or sent the rest without saying
        so. The total of the earlier answer then shows which."""
        before = self.representation if conditional else None
        await self._restart()
        whole = Representation.from_headers(response.headers)
        if encoded:  # its length is not that of the content, and a part of it cannot be decoded
            whole = replace(whole, total=None, validator=None)
        if before is not None and before.matches(response.headers):
            if whole.total is not None and before.total not in (None, whole.total):
                raise RetryRequest(self._truncated(display_url, "the length of the same file differs"), 0.0)
            whole = replace(whole, total=before.total or whole.total, validator=None)
        self.representation = whole
        self._expect(whole.total, display_url)

    async def _take_part(self, response: aiohttp.ClientResponse, display_url: str, conditional: bool) -> int:
        """Accept a part that begins where the staged bytes end, of the same representation, and return the place of its
        end. Otherwise drop the staged bytes and raise :class:`~._request.RetryRequest`, or
        :class:`~transports.errors.DownloadFailed` if the whole was requested."""
        representation = self.representation
        if not conditional:
            representation = replace(Representation.from_headers(response.headers), total=None)
        elif representation is not None and not representation.matches(response.headers):
            representation = None
        span = content_range(response.headers)
        if representation is not None and span is not None:
            first, last, total = span
            if first == self.staged.size and representation.total in (None, total):
                self._expect(total, display_url)
                self.representation = replace(representation, total=total)
                return last + 1
        if not conditional:
            raise DownloadFailed(
                f"{display_url} answered {status_phrase(response.status)} with a part of the file, although the whole "
                "was requested",
                details={"url": display_url, "status": response.status},
            )
        error = self._truncated(display_url, "the server did not continue where the body broke off")
        await self._restart()
        raise RetryRequest(error, 0.0)  # without back-off: the server answers, only the range was wrong

    async def _body(
        self, response: aiohttp.ClientResponse, display_url: str, coding: str | None, end: int | None
    ) -> Fetched:
        representation = self.representation
        assert representation is not None
        size = self.request.size
        expected = representation.total if size is None else size
        decoder = BodyDecoder(coding) if coding else None
        while True:
            failure: Exception | None = None
            try:
                chunk = await response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                failure = error
            if failure is not None:
                if self.staged.size == expected and (decoder is None or decoder.finished):
                    break  # only the last chunk marker is missing, and the size proves that the body is whole
                raise RetryRequest(self._truncated(display_url, failure_reason(failure)))
            if not chunk:
                break
            if decoder is None:
                await self._write(chunk, display_url, expected, end)
            else:
                await self._write_decoded(decoder, chunk, display_url, expected)
        if decoder is not None and not decoder.finished:
            raise RetryRequest(self._truncated(display_url, "the compressed body ended early"))
        if expected is not None and self.staged.size < expected:
            if (representation.framed or decoder) and representation.total is None and size is not None:
                raise self._mismatch(display_url, self.staged.size, f"{self.staged.size} came")
            raise RetryRequest(self._truncated(display_url, "the body ended early"))
        if not self.staged.size:
            await self.staged.write(b"")  # creates the file of an empty download
        complete = representation.framed or expected is not None or decoder is not None
        return Fetched(
            representation.content_type,
            representation.filename,
            complete,
            self.attempts,
            self.left_origin,
            self.warnings,
        )

    async def _write_decoded(self, decoder: BodyDecoder, chunk: bytes, display_url: str, expected: int | None) -> None:
        """Decode a piece of the body, in threads, since a step may take longer than the event loop can wait."""
        parts = decoder.decode(chunk)
        try:
            while decoded := await in_thread(_next_batch, parts):
                await self._write(decoded, display_url, expected)
        except BadBody as error:
            reason = str(error)
        else:
            return
        raise self._encoding_refused(display_url, decoder.coding, reason)

    async def _write(self, chunk: bytes, display_url: str, expected: int | None, end: int | None = None) -> None:
        received = self.staged.size + len(chunk)
        if (expected is not None and received > expected) or (end is not None and received > end):
            if self.request.size is not None and received > self.request.size:
                raise self._mismatch(display_url, received, f"more than {self.request.size} came")
            error = self._truncated(display_url, "the server continued with more than it announced")
            await self._restart()
            raise RetryRequest(error)
        if received > self.request.limit:
            raise download_too_large(display_url, self.request.limit, "the body goes on")
        await self.staged.write(chunk)
        if self.request.on_progress is not None:
            self.request.on_progress(received, expected)

    # --- errors -------------------------------------------------------------------------------------------------

    def _encoding_refused(self, display_url: str, coding: str, why: str) -> EncodingRefused:
        return EncodingRefused(
            f"{display_url} came in the coding {coding[:40]!r}, which {why}; nothing was stored",
            details={"url": display_url, "encoding": coding[:40]},
        )

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
