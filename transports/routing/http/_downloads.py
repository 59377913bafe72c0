"""Downloads: :func:`download` checks the arguments, retries and holds the deadline; :class:`Transfer` is one attempt.

An attempt follows redirects by hand, sends credentials to the right origin only, resumes with ``Range``, and checks the
body against the declared size and the limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ..._internal.tasks import backoff_delay, in_thread
from ...artifacts._base import Staged
from ...base import Fetched
from ...errors import (
    DownloadFailed,
    EncodingRefused,
    RedirectRefused,
    SizeMismatch,
    Truncated,
    spelled,
    status_phrase,
)
from ...protocol.messages import Sender
from ._addresses import AddressGuard, own_addresses
from ._decoding import BadBody, BodyDecoder, accept_encoding, can_decode, is_unknown
from ._headers import Representation, content_coding, content_range, is_part, transfer_coding
from ._request import (
    MAX_REDIRECTS,
    REDIRECTS,
    BrokenBody,
    DownloadRequest,
    RetryRequest,
    cookie_header,
    cookies_after_redirect,
    download_too_large,
    get,
    read_chunk,
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
    ``cookies`` and ``on_progress``. No message, detail or log line holds a credential or a query."""
    reference = request.reference
    base_url = request.base_url
    if request.sender is not None:
        base_url = request.sender.url
    try:
        start = parse(reference.url, base_url)
        check_headers(reference.headers)
    except (BadUrl, BadHeader) as error:
        display_url = display_unparsed_url(reference.url)
        raise DownloadFailed(f"cannot download {display_url}: {error}", details={"url": display_url}) from None

    if request.size is not None and request.size > request.limit:
        raise download_too_large(start.display_url, request.limit, f"the app declared {request.size} bytes")
    late = request.seconds_past_expiry()
    if late is not None:
        raise url_expired(start.display_url, late)

    try:
        async with asyncio.timeout(timeout) as deadline:
            return await _download_with_retries(Transfer(request, start, staged), deadline)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise DownloadFailed(
            f"{start.display_url} was not downloaded within {timeout:g} s ({staged.size} bytes came); allow more time",
            code="TIMEOUT",
            retryable=True,
            details={"url": start.display_url, "received": staged.size, "timeout_seconds": timeout},
        ) from None


async def _download_with_retries(transfer: Transfer, deadline: asyncio.Timeout) -> Fetched:
    """Repeat attempts until one succeeds, until no retry is left, or until the next would begin after the deadline."""
    while True:
        try:
            return await transfer.attempt()
        except RetryRequest as retry:
            error = retry.error
            wait = retry.wait
        if wait is None:
            wait = backoff_delay(transfer.attempts)

        ends = deadline.when()
        is_too_late = ends is not None and asyncio.get_running_loop().time() + wait >= ends
        if transfer.attempts > RETRIES or is_too_late:
            raise error
        log.info("attempt %d of %d, next in %.1f s: %s", transfer.attempts, RETRIES + 1, wait, error.message)
        await asyncio.sleep(wait)


def _next_batch(parts: Iterator[bytes]) -> bytes:
    """Join parts until they have 256 KB, or the body ends. Each call runs in a thread, and one for each part would take
    long."""
    batch = bytearray()
    for part in parts:
        batch += part
        if len(batch) >= _BATCH:
            break
    return bytes(batch)


#: Values of ``Sec-Fetch-Site``, the closest first.
_SITES = ("same-origin", "same-site", "cross-site")


def metadata_headers(sender: Sender, hops: Sequence[Target]) -> dict[str, str]:
    """Return the headers that a browser's ``fetch`` with the mode ``cors`` sends (Fetch Metadata, W3C), with
    ``Sec-Fetch-*`` for plain http, too. ``hops`` are the URLs of the download so far; the last is requested now. The
    ``Referer`` is only the origin, which is what servers check; the rest of the page's address is private."""
    origin = origin_of(sender.origin)
    site = max((_relation(sender, origin, hop.origin) for hop in hops), key=_SITES.index)
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    is_tainted = _is_tainted(origin, hops)
    if any(hop.origin != origin for hop in hops):
        headers["Origin"] = "null" if is_tainted else sender.origin
    if origin is None or is_tainted:
        return headers

    leaves_tls = origin.scheme == "https" and hops[-1].origin.scheme == "http"
    if not leaves_tls:
        headers["Referer"] = f"{sender.origin}/"
    return headers


def _relation(sender: Sender, origin: Origin | None, other: Origin) -> str:
    """Return how the ``origin`` of a sender and another origin are related, as a value of ``Sec-Fetch-Site``."""
    if origin == other:
        return "same-origin"
    if origin is None:
        return "cross-site"

    scheme, host, _ = origin
    other_scheme, other_host, _ = other
    domain = sender.domain or host
    is_same_domain = host == other_host or f".{other_host}".endswith(f".{domain}")
    if scheme == other_scheme and is_same_domain:
        return "same-site"
    return "cross-site"


def _is_tainted(origin: Origin | None, hops: Sequence[Target]) -> bool:
    """Return whether a server of another origin has redirected to a third origin (Fetch: redirect-tainted origin). Then
    ``Origin`` is ``null``, or the third server would take a request forged by the second for one of ``sender``."""
    return any(hop.origin != before.origin and before.origin != origin for before, hop in pairwise(hops))


@dataclass(frozen=True, slots=True)
class _Answer:
    """Response to a request for a file. ``resumes`` is true if only the rest after the staged bytes was requested."""

    response: aiohttp.ClientResponse
    display_url: str
    resumes: bool


class Transfer:
    """A download with its progress over several requests. ``representation`` describes the staged bytes; bytes of two
    representations are never joined. ``attempts`` counts the requests for the file. ``left_origin`` is true if a
    redirect led away from the URL's own origin."""

    def __init__(self, request: DownloadRequest, start: Target, staged: Staged) -> None:
        self.request = request
        self.start = start
        self.staged = staged
        self.representation: Representation | None = None
        self.attempts = 0
        self.left_origin = False
        self.warnings: tuple[str, ...] = ()

        self.own_origin = origin_of(request.base_url)
        server_address = request.server_address
        if request.sender is not None:
            self.own_origin = origin_of(request.sender.origin)
            server_address = request.sender.server_address
        self.own_addresses: frozenset[str] = frozenset()
        if self.own_origin is not None:
            _, host, port = self.own_origin
            self.own_addresses = own_addresses(host, port, server_address)

        self.secrets = secret_forms(
            *request.reference.headers.values(),
            *request.reference.query.values(),
            *start.url.query.values(),
            start.url.raw_query_string,
            start.authorization or "",
        )

    async def attempt(self) -> Fetched:
        """Download the whole file, or the rest after the staged bytes, starting at the first URL."""
        self.attempts += 1
        conditions = await self._conditions_to_resume()
        target = self.start
        is_trusted = True
        redirect_cookies: dict[str, str] = {}
        seen: set[tuple[URL, bool, str]] = set()
        hops: list[Target] = []
        for _ in range(MAX_REDIRECTS + 1):
            # A server may redirect to the same address, which then gets no credentials, or gets a cookie.
            visit = (target.url, is_trusted, cookie_header(redirect_cookies))
            if visit in seen:
                raise self._redirect_refused(target, "redirects lead in a circle")
            seen.add(visit)
            hops.append(target)

            headers = await self._request_headers(target, is_trusted, conditions, redirect_cookies)
            if self.request.sender is not None:
                headers.update(metadata_headers(self.request.sender, hops))
            async with get(
                self._request_url(target, is_trusted),
                headers,
                display_url=target.display_url,
                guard=self._guard_for(target),
                stall_timeout=self.request.stall_timeout,
                resolver=self.request.resolver,
                propagate=self.request.propagate and target.origin == self.own_origin,
            ) as response:
                if response.status not in REDIRECTS:
                    return await self._receive(_Answer(response, target.display_url, resumes=bool(conditions)))
                next_target = self._redirect_target(target, response.headers.get("Location"))
                redirect_cookies = cookies_after_redirect(redirect_cookies, response, target, next_target)
                target = next_target

            is_trusted = is_trusted and target.origin == self.start.origin
            self.left_origin = self.left_origin or not is_trusted
        raise self._redirect_refused(target, f"more than {MAX_REDIRECTS} redirects")

    async def _conditions_to_resume(self) -> dict[str, str]:
        """Return the headers that request the rest after the staged bytes. If the server gave no validator, drop these
        bytes and return no headers."""
        if self.staged.size and self.representation is not None and self.representation.validator:
            return {"Range": f"bytes={self.staged.size}-", "If-Range": self.representation.validator}
        await self._restart()
        return {}

    async def _restart(self) -> None:
        self.representation = None
        if self.staged.size:
            await self.staged.reset()

    # --- requests and redirects ---------------------------------------------------------------------------------

    def _guard_for(self, target: Target) -> AddressGuard:
        is_own = target.origin == self.own_origin
        addresses = self.own_addresses if is_own else ()
        return AddressGuard(allow_private=self.request.allow_private, app_addresses=addresses)

    def _request_url(self, target: Target, is_trusted: bool) -> URL:
        if not is_trusted:
            return target.url
        is_redirected = target is not self.start
        return add_query(target.url, self.request.reference.query, keep=is_redirected)

    async def _request_headers(
        self, target: Target, is_trusted: bool, conditions: Mapping[str, str], redirect_cookies: Mapping[str, str]
    ) -> CIMultiDict[str]:
        """Return the headers of a request. Only a trusted target gets credentials and the app's cookies."""
        codings = accept_encoding() if self.request.accept_compression else "identity"
        headers = CIMultiDict({"Accept-Encoding": codings} | dict(conditions))
        cookies: dict[str, str] = {}
        if is_trusted:
            if target.authorization:
                headers["Authorization"] = target.authorization
            for name, value in self.request.reference.headers.items():
                headers[name] = value
            if self.request.cookies is not None and target.origin == self.own_origin:
                cookies.update(await self.request.cookies(str(target.url)))

        cookies.update(redirect_cookies)
        self.secrets |= secret_forms(*cookies.values())
        all_cookies = "; ".join(filter(None, (cookie_header(cookies), headers.get("Cookie"))))
        if all_cookies:
            headers["Cookie"] = all_cookies
        return headers

    def _redirect_target(self, source: Target, location: str | None) -> Target:
        if not location:
            raise self._redirect_refused(source, "a redirect without a Location")
        try:
            target = resolve_redirect(source, location)
        except BadUrl as error:
            raise self._redirect_refused(source, f"a redirect to a URL that is not followed: {error}") from None
        self.secrets |= secret_forms(*target.url.query.values(), target.url.raw_query_string)
        return target

    # --- answers ------------------------------------------------------------------------------------------------

    async def _receive(self, answer: _Answer) -> Fetched:
        """Check the status, the part and the coding of an answer, and write its body into the staged file."""
        response = answer.response
        if response.status == 416 and answer.resumes:
            await self._restart()
            raise RetryRequest(self._truncation_error(answer.display_url, "the server could not continue it"))
        if response.status not in (200, 206):
            raise await status_error(response, answer.display_url, self.request, self.secrets)

        holds_part = response.status == 206 or is_part(response.headers, range_requested=answer.resumes)
        coding = content_coding(response.headers)
        if coding and not self._can_decode(coding, response, holds_part=holds_part):
            self._require_unknown(coding, answer)
            warning = f"{answer.display_url} has the unknown Content-Encoding {coding[:40]!r}; it is stored as it came"
            self.warnings = (warning,)
            coding = None

        end = None
        if holds_part:
            end = await self._continue_with_part(answer)
        else:
            await self._begin_whole(answer, is_encoded=coding is not None)
        return await self._stage_body(answer, coding, end)

    def _can_decode(self, coding: str, response: aiohttp.ClientResponse, *, holds_part: bool) -> bool:
        was_offered = self.request.accept_compression and can_decode(coding)
        return was_offered and not holds_part and transfer_coding(response.headers) is None

    def _require_unknown(self, coding: str, answer: _Answer) -> None:
        """Refuse a coding. A coding that does not exist, which the server must have named by mistake, is accepted if
        the end of the body is certain."""
        headers = answer.response.headers
        has_end = self.request.size is not None or Representation.from_headers(headers).framed
        if transfer_coding(headers) is not None or not is_unknown(coding) or not has_end:
            advice = ""
            if can_decode(coding) and not self.request.accept_compression:
                advice = f"; {spelled('accept_compression=True')} decodes it"
            raise self._encoding_refused(answer.display_url, coding, "was not asked for", advice)

    def _check_announced_size(self, total: int | None, display_url: str) -> None:
        if total is None:
            return
        if self.request.size is not None and total != self.request.size:
            raise self._mismatch_error(display_url, total, f"the server announces {total}")
        if total > self.request.limit:
            raise download_too_large(display_url, self.request.limit, f"the server announces {total} bytes")

    async def _begin_whole(self, answer: _Answer, *, is_encoded: bool) -> None:
        """Prepare for a whole file: drop the staged bytes, and check the announced size.

        If only the rest was requested and the file has not changed since, the server either does not know ranges, or
        sent the rest without saying so. The total of the earlier answer then shows which."""
        headers = answer.response.headers
        earlier = self.representation if answer.resumes else None
        await self._restart()
        whole = Representation.from_headers(headers)
        if is_encoded:
            # The announced length counts encoded bytes, and a part of them cannot be decoded.
            whole = replace(whole, total=None, validator=None)
        if earlier is not None and earlier.matches(headers):
            if whole.total is not None and earlier.total not in (None, whole.total):
                raise RetryRequest(
                    self._truncation_error(answer.display_url, "the length of the same file differs"), wait=0.0
                )
            # No validator: the server cannot continue, so the rest is not requested again.
            whole = replace(whole, total=earlier.total or whole.total, validator=None)

        self.representation = whole
        self._check_announced_size(whole.total, answer.display_url)

    async def _continue_with_part(self, answer: _Answer) -> int:
        """Check that a part continues the staged bytes, and return the position where it ends.

        A part that begins elsewhere, or is of another representation, drops the staged bytes and raises
        :class:`~._request.RetryRequest`, or :class:`~transports.errors.DownloadFailed` if the whole was requested."""
        headers = answer.response.headers
        representation = self.representation
        if not answer.resumes:
            # Some servers send a large file in parts: the next attempt requests the rest.
            representation = replace(Representation.from_headers(headers), total=None)
        elif representation is not None and not representation.matches(headers):
            representation = None

        part = content_range(headers)
        if representation is not None and part is not None:
            continues = part.first == self.staged.size and representation.total in (None, part.total)
            if continues:
                self._check_announced_size(part.total, answer.display_url)
                self.representation = replace(representation, total=part.total)
                return part.last + 1

        if not answer.resumes:
            status = answer.response.status
            raise DownloadFailed(
                f"{answer.display_url} answered {status_phrase(status)} with a part of the file, although the whole "
                "was requested",
                details={"url": answer.display_url, "status": status},
            )
        error = self._truncation_error(answer.display_url, "the server did not continue where the body broke off")
        await self._restart()
        # Without back-off: the server answers, only the range was wrong.
        raise RetryRequest(error, wait=0.0)

    # --- bodies -------------------------------------------------------------------------------------------------

    async def _stage_body(self, answer: _Answer, coding: str | None, end: int | None) -> Fetched:
        """Write the body into the staged file. ``end`` is the position in the file after the last byte of a part."""
        representation = self.representation
        assert representation is not None
        expected_size = self.request.size
        if expected_size is None:
            expected_size = representation.total
        decoder = BodyDecoder(coding) if coding else None

        while chunk := await self._read_chunk(answer, expected_size):
            if decoder is None:
                await self._write(chunk, answer.display_url, expected_size, end)
            else:
                await self._write_decoded(decoder, chunk, answer.display_url, expected_size)

        self._check_end(answer.display_url, expected_size, decoder)
        if not self.staged.size:
            # Creates the file of an empty download.
            await self.staged.write(b"")
        if not representation.framed and expected_size is None and decoder is None:
            self.warnings += (
                f"nothing proves that {answer.display_url} is whole: it came without a length; declare its size, or "
                "send Content-Length",
            )
        return Fetched(
            content_type=representation.content_type,
            filename=representation.filename,
            attempts=self.attempts,
            left_origin=self.left_origin,
            warnings=self.warnings,
        )

    async def _read_chunk(self, answer: _Answer, expected: int | None) -> bytes:
        try:
            return await read_chunk(answer.response)
        except BrokenBody as broken:
            if self.staged.size == expected:
                # Every byte has arrived: only the marker of the last chunk is missing.
                return b""
            raise RetryRequest(self._truncation_error(answer.display_url, broken.reason)) from None

    def _check_end(self, display_url: str, expected: int | None, decoder: BodyDecoder | None) -> None:
        """Raise an error if the body ended before the file was complete."""
        if decoder is not None and not decoder.finished:
            raise RetryRequest(self._truncation_error(display_url, "the compressed body ended early"))
        if expected is None or self.staged.size >= expected:
            return

        assert self.representation is not None
        is_end_certain = (self.representation.framed or decoder is not None) and self.representation.total is None
        if is_end_certain and self.request.size is not None:
            # The body is whole, so the app declared a wrong size, and another attempt would not help.
            raise self._mismatch_error(display_url, self.staged.size, f"{self.staged.size} came")
        raise RetryRequest(self._truncation_error(display_url, "the body ended early"))

    async def _write_decoded(self, decoder: BodyDecoder, chunk: bytes, display_url: str, expected: int | None) -> None:
        """Decode a piece of the body and write it. Decoding may take too long for the event loop, so use threads."""
        parts = decoder.decode(chunk)
        try:
            while decoded := await in_thread(_next_batch, parts):
                await self._write(decoded, display_url, expected)
        except BadBody as error:
            raise self._encoding_refused(display_url, decoder.coding, str(error)) from None

    async def _write(self, chunk: bytes, display_url: str, expected: int | None, end: int | None = None) -> None:
        """Write bytes into the staged file, unless there are more than announced, declared or allowed."""
        size = self.staged.size + len(chunk)
        exceeds_file = expected is not None and size > expected
        exceeds_part = end is not None and size > end
        if exceeds_file or exceeds_part:
            if self.request.size is not None and size > self.request.size:
                raise self._mismatch_error(display_url, size, f"more than {self.request.size} came")
            error = self._truncation_error(display_url, "the server continued with more than it announced")
            await self._restart()
            raise RetryRequest(error)
        if size > self.request.limit:
            raise download_too_large(display_url, self.request.limit, "the body goes on")

        await self.staged.write(chunk)
        if self.request.on_progress is not None:
            self.request.on_progress(size, expected)

    # --- errors -------------------------------------------------------------------------------------------------

    def _redirect_refused(self, target: Target, reason: str) -> RedirectRefused:
        return RedirectRefused(
            f"{self.start.display_url}: {reason}, at {target.display_url}", details={"url": target.display_url}
        )

    def _encoding_refused(self, display_url: str, coding: str, reason: str, advice: str = "") -> EncodingRefused:
        return EncodingRefused(
            f"{display_url} came in the coding {coding[:40]!r}, which {reason}; nothing was stored{advice}",
            details={"url": display_url, "encoding": coding[:40]},
        )

    def _mismatch_error(self, display_url: str, actual: int, observation: str) -> SizeMismatch:
        return SizeMismatch(
            f"{display_url}: the app declared {self.request.size} bytes and {observation}; nothing was stored",
            details={"url": display_url, "declared": self.request.size, "actual": actual},
        )

    def _truncation_error(self, display_url: str, reason: str) -> Truncated:
        total = self.request.size
        if total is None and self.representation is not None:
            total = self.representation.total
        total_text = "an unknown number of" if total is None else str(total)
        return Truncated(
            f"{display_url}: {reason}, after {self.staged.size} of {total_text} bytes, at attempt {self.attempts}",
            details={"url": display_url, "received": self.staged.size, "expected": total, "attempts": self.attempts},
        )
