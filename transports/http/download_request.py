"""What a download is request and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from aiohttp.abc import AbstractResolver

from ..artifacts.base import Staged
from ..binary import Download
from ..errors import TooLarge, UrlExpired
from .urls import Origin, Target

__all__ = ["Cookies", "DownloadRequest", "Downloads", "Fetched", "download_too_large", "url_expired"]

Cookies: TypeAlias = Callable[[str], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What the final answer said. ``filename`` is untrusted. ``complete`` is ``False`` where nothing proves that the
    body is whole: no declared size, no ``Content-Length``, no chunks. ``attempts`` is how often it was begun, and
    ``strayed`` whether a redirect led away from the URL's own origin."""

    content_type: str | None
    filename: str | None
    complete: bool
    attempts: int = field(default=1, compare=False)
    left_origin: bool = field(default=False, compare=False)


@runtime_checkable
class Downloads(Protocol):
    """What a transport may do that has a say in the session's downloads: one that records or replays them."""

    async def fetch_download(
        self, reference: Download, staged: Staged, fetch: Callable[[Staged], Awaitable[Fetched]]
    ) -> Fetched:
        """Fill ``staged`` with what ``reference`` leads to; ``fetch`` does so over the network."""


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """The arguments of :func:`transports.http.download`, checked."""

    reference: Download
    start: Target
    size: int | None
    limit: int
    own_origin: Origin | None
    cookies: Cookies | None
    allow_private: bool
    stall_timeout: float
    clock: Callable[[], float]
    on_progress: Callable[[int, int | None], None] | None
    resolver: AbstractResolver | None

    def seconds_past_expiry(self) -> float | None:
        """Seconds since the URL expired, if it has."""
        expires = self.reference.expires_at
        late = None if expires is None else self.clock() - expires / 1000
        return late if late is not None and late >= 0 else None


def url_expired(display_url: str, late: float | None, status: int | None = None) -> UrlExpired:
    """``late`` in seconds; ``status`` is the server's, if it was request."""
    since = "" if late is None else f" {late:.1f} s ago"
    answered = "" if status is None else f" (the server answers {status})"
    details: dict[str, object] = {"url": display_url}
    if late is not None:
        details["expired_seconds_ago"] = round(late, 3)
    if status is not None:
        details["status"] = status
    return UrlExpired(
        f"{display_url} expired{since}{answered}; call the capability again for a new URL", details=details
    )


def download_too_large(display_url: str, limit: int, what: str) -> TooLarge:
    return TooLarge(
        f"{display_url}: {what}, and the limit is {limit} bytes (ABP_MAX_ARTIFACT_BYTES)",
        details={"url": display_url, "limit": limit},
    )
