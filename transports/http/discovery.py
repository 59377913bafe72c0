"""Page → link → manifest."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urljoin

from ..binary.media import normalise_mime
from ..errors import DiscoveryFailed, ProtocolError, UsageError
from ..protocol.declarations import Manifest
from .cache import ManifestCache
from .headers import plain
from .manifest import read_manifest
from .page_head import PageHead
from .redirects import Hops
from .urls import BadUrl, Target, parse, redirected, shown_anyway

__all__ = ["HEAD_BYTES", "MANIFEST_BYTES", "Discovery", "discover"]

#: Bytes of a page that are looked at, and the largest manifest (PROTOCOL "Discovery").
HEAD_BYTES = 50 * 1024
MANIFEST_BYTES = 1 << 20

_SHARED = ManifestCache()


@dataclass(frozen=True, slots=True)
class Discovery:
    """What was found: a ``manifest``, or the ``reason`` why there is none, and never both.

    ``page_url`` and ``manifest_url`` are those that answered last, after redirects, without user info; ``manifest_url``
    is ``None`` where the page names none. ``warnings`` are about what was left out of the manifest, or its version.
    """

    page_url: str
    manifest_url: str | None = None
    title: str = ""
    manifest: Manifest | None = None
    warnings: tuple[str, ...] = ()
    reason: DiscoveryFailed | None = None


async def discover(
    url: str, *, timeout: float = 10.0, allow_private: bool = False, cache: ManifestCache | None = None
) -> Discovery:
    """The manifest of the app at ``url``, without a browser.

    ``timeout`` in seconds is for the page, and again for its manifest, each with its redirects. The host of ``url`` may
    have any address; others, to which redirects and the page's link lead, must be public unless ``allow_private``. User
    info in ``url`` is sent to its own origin only, and what was asked for with it is not cached. Cookies are neither
    sent nor kept, and proxy settings of the environment are not used.

    Manifests are cached as their ``Cache-Control`` says, in ``cache``; without it in one that the process shares.

    A page without a manifest is no exception, nor is one that cannot be reached: ``reason`` holds the
    :class:`~transports.errors.DiscoveryFailed` (``code`` is ``TIMEOUT`` at a deadline and ``BLOCKED_ADDRESS`` where a
    private address was refused). Raises :class:`~transports.errors.UsageError` for a ``url`` that is no web address.
    """
    try:
        typed = parse(url)
    except BadUrl as error:
        shown = shown_anyway(url)
        raise UsageError(f"{shown!r} is no page: {error}; give its address, such as http://127.0.0.1:8000/") from None
    page = Hops("the page", typed, typed, accept="text/html", timeout=timeout, allow_private=allow_private)
    manifest: Hops | None = None
    title = ""
    try:
        async with page.deadline():
            head, read = await _head(page)
        title = plain(head.title, 200)
        target = _linked(page, head, read)
        manifest = Hops(
            "the manifest", target, typed, accept="application/json", timeout=timeout, allow_private=allow_private
        )
        async with manifest.deadline():
            body = await _body(manifest, _SHARED if cache is None else cache)
        try:
            found, warnings = read_manifest(body)
        except ProtocolError as error:
            raise manifest.failed(f"{manifest.named} cannot be used: {error.message}") from None
    except DiscoveryFailed as failure:
        manifest_url = None if manifest is None else str(manifest.target.url)
        return Discovery(str(page.target.url), manifest_url, title, reason=failure)
    return Discovery(str(page.target.url), str(manifest.target.url), title, found, tuple(warnings))


async def _head(page: Hops) -> tuple[PageHead, str]:
    """The page's head, and what was read of the page, in words."""
    while True:
        async with page.ask() as response:
            if page.moved(response):
                continue
            page.check(response)
            head, size = PageHead(response.charset), 0
            while size < HEAD_BYTES and not head.ended and (data := await page.piece(response)):
                head.feed(data[: HEAD_BYTES - size])
                size = min(size + len(data), HEAD_BYTES)
            if not head.ended:
                head.feed(b"", last=True)
            kind = normalise_mime(response.headers.get("Content-Type"))
            of = "" if kind in (None, "text/html", "application/xhtml+xml") else f" of what it calls {kind}"
            return head, f"in its head ({size} bytes{of})" if head.ended else f"in the first {size} bytes{of}"


def _linked(page: Hops, head: PageHead, read: str) -> Target:
    """Where the page says its manifest is."""
    if head.href is None:
        raise page.failed(
            f'{page.named} has no <link rel="abp-manifest" href="…"> {read}; '
            "if the app speaks ABP all the same, connecting to it in a browser tells what it can do"
        )
    base = str(page.target.url)
    if head.base:
        with suppress(BadUrl):  # as in browsers (HTML §4.2.3): then it is the page's own address
            base = str(parse(head.base, base).url)
    try:
        return redirected(page.target, urljoin(base, head.href))
    except BadUrl as error:
        raise page.failed(f"{page.named} has a manifest link that is not followed: {error}") from None
    except ValueError:
        raise page.failed(f"{page.named} has a manifest link that is not a valid URL") from None


async def _body(manifest: Hops, cache: ManifestCache) -> bytes:
    """The manifest's bytes: those that are kept, if they may still be used."""
    while True:
        url = manifest.target.url
        usable = manifest.authorization is None  # what one user may see is not kept for another
        kept = cache.get(url) if usable else None
        if kept is not None and cache.fresh(kept):
            return kept.body
        asked_at = cache.clock()
        async with manifest.ask(kept.conditions if kept else None) as response:
            if manifest.moved(response):
                continue
            if response.status == 304 and kept is not None:
                cache.confirm(url, kept, response.headers, asked_at)
                return kept.body
            manifest.check(response)
            body = bytearray()
            while data := await manifest.piece(response):
                body += data
                if len(body) > MANIFEST_BYTES:
                    raise manifest.failed(
                        f"{manifest.named} is larger than {MANIFEST_BYTES} bytes", limit=MANIFEST_BYTES
                    )
            if usable:
                cache.put(url, bytes(body), response.headers, asked_at)
            return bytes(body)
