"""Arguments of a download, and the errors that depend on the arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ..base import Transport
from ..binary import Download
from ..errors import DownloadFailed, TooLarge, UrlExpired
from ..protocol.messages import Sender
from ._urls import Origin, Target

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

#: Redirects followed in one attempt.
MAX_REDIRECTS = 5
#: Status codes of redirects.
REDIRECTS = (301, 302, 303, 307, 308)

Cookies: TypeAlias = Callable[[str], Awaitable[Mapping[str, str]]]
"""Returns the cookies for a URL, by name."""


def cookies_of(app: Transport | None, sender: Sender | None) -> Cookies | None:
    """Return the source of cookies for downloads from ``app`` on behalf of ``sender``, or ``None`` if ``app`` has
    none."""
    if app is None or not app.features.cookies:
        return None
    return app.cookies if sender is None else partial(app.cookies, sender=sender)


class RetryRequest(Exception):
    """Raised when another request may succeed.

    ``error`` is raised to the caller once no retries are left. ``wait`` is the server's ``Retry-After`` in seconds.
    """

    def __init__(self, error: DownloadFailed, wait: float | None = None) -> None:
        super().__init__(error.message)
        self.error, self.wait = error, wait


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """The checked arguments of :func:`transports.http.download`."""

    reference: Download
    start: Target
    size: int | None
    limit: int
    own_origin: Origin | None
    own_addresses: frozenset[str]
    cookies: Cookies | None
    allow_private: bool
    stall_timeout: float
    clock: Callable[[], float]
    on_progress: Callable[[int, int | None], None] | None
    resolver: AbstractResolver | None
    propagate: bool = False
    sender: Sender | None = None
    accept_compression: bool = False

    def seconds_past_expiry(self) -> float | None:
        """Return the seconds since the URL expired, or ``None`` if it has not."""
        expires = self.reference.expires_at
        late = None if expires is None else self.clock() - expires / 1000
        return late if late is not None and late >= 0 else None


def url_expired(display_url: str, late: float | None, status: int | None = None) -> UrlExpired:
    """Return the error for a URL that expired ``late`` seconds ago; ``status`` is the server's answer, if there was a
    request."""
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
    """Return the error for a download of more than ``limit`` bytes; ``what`` is the evidence, in words."""
    return TooLarge(
        f"{display_url}: {what}, and the limit is {limit} bytes (ABP_MAX_ARTIFACT_BYTES)",
        details={"url": display_url, "limit": limit},
    )
