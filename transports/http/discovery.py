"""Discovery: from the address of a page over its manifest link to the manifest, without a browser."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from ..binary.media import normalise_mime
from ..errors import DiscoveryFailed, ProtocolError, UsageError
from .cache import ManifestCache
from .headers import one_line
from .manifest import read_manifest
from .page_head import PageHead
from .urls import BadUrl, Target, display_unparsed_url, parse, resolve_redirect

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

    from ..protocol.declarations import Manifest
    from .redirects import RedirectedGet

__all__ = ["HEAD_BYTES", "MANIFEST_BYTES", "Discovery", "discover"]

#: Bytes of a page that are searched for the link (docs/protocol.md 7.1, 7.2).
HEAD_BYTES = 50 * 1024
#: Largest manifest in bytes (docs/protocol.md 1.3).
MANIFEST_BYTES = 1 << 20

#: The cache of the process.
_SHARED = ManifestCache()


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of a discovery: either a ``manifest`` or the ``reason`` why there is none.

    ``page_url`` and ``manifest_url`` are the URLs that answered last, after redirects, without user info;
    ``manifest_url`` is ``None`` if the page names none. ``title`` is the page's, in one line of at most 200 characters.
    ``warnings`` say what was left out of the manifest, or that its version is not the expected one.
    """

    page_url: str
    manifest_url: str | None = None
    title: str = ""
    manifest: Manifest | None = None
    warnings: tuple[str, ...] = ()
    reason: DiscoveryFailed | None = None


async def discover(
    url: str,
    *,
    timeout: float = 10.0,
    allow_private: bool = False,
    cache: ManifestCache | None = None,
    resolver: AbstractResolver | None = None,
) -> Discovery:
    """Return the manifest of the app at ``url``, without a browser.

    ``timeout`` in seconds is for the page, and again for its manifest, each with its redirects. The host of ``url`` may
    have any address, and must keep the one at which it was reached first, or have a public one; other hosts, to which
    redirects and the page's link lead, must be public unless ``allow_private``. User info in ``url`` is sent to its own
    origin only, and a manifest that was fetched with it is not cached. Cookies are neither sent nor kept, and proxy
    settings of the environment are not used.

    Manifests are cached as their ``Cache-Control`` says, in ``cache`` or else in a cache of the process.

    A page that has no manifest or cannot be reached raises nothing: ``reason`` then holds the
    :class:`~transports.errors.DiscoveryFailed` (``code`` is ``TIMEOUT`` at a deadline and ``BLOCKED_ADDRESS`` where a
    private address was refused). Raises :class:`~transports.errors.UsageError` if ``url`` is not a web address.
    """
    from .redirects import RedirectedGet, UserHost  # late, as it imports aiohttp

    try:
        user_target = parse(url)
    except BadUrl as error:
        display_url = display_unparsed_url(url)
        raise UsageError(
            f"{display_url!r} is no page: {error}; give its address, such as http://127.0.0.1:8000/"
        ) from None
    user_host = UserHost(user_target)
    send = partial(RedirectedGet, user_host=user_host, timeout=timeout, allow_private=allow_private, resolver=resolver)
    page = send("the page", user_target, accept="text/html")
    manifest: RedirectedGet | None = None
    title = ""
    try:
        async with page.deadline():
            head, extent = await _read_head(page)
        title = one_line(head.title, 200)
        target = _manifest_target(page, head, extent)
        manifest = send("the manifest", target, accept="application/json")
        async with manifest.deadline():
            body = await _read_body(manifest, _SHARED if cache is None else cache)
        try:
            found, warnings = read_manifest(body)
        except ProtocolError as error:
            raise manifest.error(f"{manifest.label} cannot be used: {error.message}") from None
    except DiscoveryFailed as failure:
        manifest_url = None if manifest is None else str(manifest.target.url)
        return Discovery(str(page.target.url), manifest_url, title, reason=failure)
    return Discovery(str(page.target.url), str(manifest.target.url), title, found, tuple(warnings))


async def _read_head(page: RedirectedGet) -> tuple[PageHead, str]:
    """Return the page's head, and in words how much of the page was read."""
    while True:
        async with page.send() as response:
            if page.follow_redirect(response):
                continue
            page.raise_for_status(response)
            head, size = PageHead(response.charset), 0
            while size < HEAD_BYTES and not head.ended and (data := await page.read_chunk(response)):
                head.feed(data[: HEAD_BYTES - size])
                size = min(size + len(data), HEAD_BYTES)
            if not head.ended:
                head.feed(b"", last=True)
            kind = normalise_mime(response.headers.get("Content-Type"))
            of = "" if kind in (None, "text/html", "application/xhtml+xml") else f" of what it calls {kind}"
            return head, f"in its head ({size} bytes{of})" if head.ended else f"in the first {size} bytes{of}"


def _manifest_target(page: RedirectedGet, head: PageHead, extent: str) -> Target:
    """Return where the page says that its manifest is."""
    if head.href is None:
        raise page.error(
            f'{page.label} has no <link rel="abp-manifest" href="…"> {extent}; '
            "if the app speaks ABP all the same, connecting to it in a browser tells what it can do"
        )
    base = str(page.target.url)
    if head.base:
        with suppress(BadUrl):  # a base that is not valid counts as none, as in browsers (HTML §4.2.3)
            base = str(parse(head.base, base).url)
    try:
        return resolve_redirect(page.target, urljoin(base, head.href))
    except BadUrl as error:
        raise page.error(f"{page.label} has a manifest link that is not followed: {error}") from None
    except ValueError:
        raise page.error(f"{page.label} has a manifest link that is not a valid URL") from None


async def _read_body(manifest: RedirectedGet, cache: ManifestCache) -> bytes:
    """Return the bytes of the manifest, from the cache if they are fresh or were revalidated."""
    while True:
        url = manifest.target.url
        cacheable = manifest.authorization is None  # a manifest for one user is not for another
        cached = cache.get(url) if cacheable else None
        if cached is not None and cache.is_fresh(cached):
            return cached.body
        requested_at = cache.clock()
        async with manifest.send(cached.conditions if cached else None) as response:
            if manifest.follow_redirect(response):
                continue
            if response.status == 304 and cached is not None:
                cache.update(url, cached, response.headers, requested_at)
                return cached.body
            manifest.raise_for_status(response)
            body = bytearray()
            while data := await manifest.read_chunk(response):
                body += data
                if len(body) > MANIFEST_BYTES:
                    raise manifest.error(
                        f"{manifest.label} is larger than {MANIFEST_BYTES} bytes", limit=MANIFEST_BYTES
                    )
            if cacheable:
                cache.put(url, bytes(body), response.headers, requested_at)
            return bytes(body)
