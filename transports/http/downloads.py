"""Downloads: the checks before the first request, the retries, the deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..artifacts.base import Staged
from ..binary import Download
from ..errors import DownloadFailed
from ..protocol.messages import Sender
from ..tasks import backoff_delay
from .addresses import own_addresses
from .download_request import Cookies, DownloadRequest, Fetched, RetryRequest, download_too_large, url_expired
from .urls import BadHeader, BadUrl, check_headers, display_unparsed_url, origin_of, parse

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

    from .transfer import Transfer

__all__ = ["RETRIES", "download"]

#: Requests after the first one, for any reason: no connection, a broken body, 429, 5xx.
RETRIES = 3

log = logging.getLogger("transports.http")


async def download(
    reference: Download,
    staged: Staged,
    *,
    timeout: float,
    limit: int,
    size: int | None = None,
    base_url: str | None = None,
    sender: Sender | None = None,
    server_address: tuple[str, int] | None = None,
    cookies: Cookies | None = None,
    allow_private: bool = False,
    stall_timeout: float = 15.0,
    clock: Callable[[], float] = time.time,
    on_progress: Callable[[int, int | None], None] | None = None,
    resolver: AbstractResolver | None = None,
    propagate: bool = False,
) -> Fetched:
    """Download ``reference`` into ``staged``, which is neither committed nor removed here.

    ``timeout`` (seconds) covers everything, ``stall_timeout`` (seconds) is the longest time without a byte. ``size`` is
    what the app declared and ``limit`` the largest accepted size, both in bytes. ``base_url`` is the app's page:
    relative URLs are resolved against it, and ``cookies`` is called (with a URL) for its origin only. If a document
    asks, it is ``sender``: its address, origin and server stand in the place of ``base_url`` and ``server_address``,
    and servers are told of it as by a browser's ``fetch`` (``Origin``, ``Sec-Fetch-Site``). An address must
    be public unless ``allow_private``, or unless it is that of the app's own origin: ``server_address``, the numeric
    address and the port at which the app was reached, or the host of ``base_url`` itself if that is numeric or
    ``localhost``. ``clock`` gives Unix seconds, for ``expires_at``. ``on_progress`` gets the bytes so far and the
    expected total or ``None``; after a restart it counts from zero again. With ``propagate``, requests to the app's own
    origin carry ``traceparent``.

    Credentials (``headers``, ``query``, user info, cookies) go to the URL's own origin until the first redirect away
    from it. Proxy settings of the environment are not used: a proxy would connect instead, unchecked.

    Failed connections, broken bodies, 429 and 5xx are retried, :data:`RETRIES` times in all. Where ``Retry-After`` or
    the pause reaches past ``timeout``, the failure is raised at once, with ``retry_after``.

    Raises :class:`~transports.errors.DownloadFailed` and its subclasses (``code`` is ``TIMEOUT`` at a deadline),
    :class:`~transports.errors.SizeMismatch`, :class:`~transports.errors.TooLarge`, and what ``staged``, ``cookies`` and
    ``on_progress`` raise. No message, detail or log line holds a credential or a query.
    """
    from .transfer import Transfer  # late, as it imports aiohttp, which most sessions never need

    try:
        start = parse(reference.url, base_url if sender is None else sender.url)
        check_headers(reference.headers)
    except (BadUrl, BadHeader) as error:
        display_url = display_unparsed_url(reference.url)
        raise DownloadFailed(f"cannot download {display_url}: {error}", details={"url": display_url}) from None
    if size is not None and size > limit:
        raise download_too_large(start.display_url, limit, f"the app declared {size} bytes")
    own_origin = origin_of(base_url if sender is None else sender.origin)
    server_address = server_address if sender is None else sender.server_address
    request = DownloadRequest(
        reference,
        start,
        size,
        limit,
        own_origin=own_origin,
        own_addresses=own_addresses(own_origin[1], own_origin[2], server_address) if own_origin else frozenset(),
        cookies=cookies,
        allow_private=allow_private,
        stall_timeout=stall_timeout,
        clock=clock,
        on_progress=on_progress,
        resolver=resolver,
        propagate=propagate,
        sender=sender,
    )
    if (late := request.seconds_past_expiry()) is not None:
        raise url_expired(start.display_url, late)
    try:
        async with asyncio.timeout(timeout) as deadline:
            return await _retried(Transfer(request, staged), deadline)
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
