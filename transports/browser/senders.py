"""Who answers in a browser: a document as the browser knows it, in whose name downloads are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..protocol.messages import Sender
from ..protocol.urls import origin_of

if TYPE_CHECKING:
    from playwright.async_api import Frame

    from .page.agent import Document

__all__ = ["around", "sender_of", "sends_cookie"]


def sender_of(
    url: str,
    origin: str,
    *,
    page: Document,
    around: Iterable[str] = (),
    server_address: tuple[str, int] | None = None,
) -> Sender:
    """Return the document of ``origin`` that was at ``url`` last. ``page`` is that of the page, and ``around`` the
    addresses of the documents that it is in, if it is not the page's own."""
    own, domain = _site(origin, page.domain), page.domain
    return Sender(
        url if origin in (origin_of(url), "null") else f"{origin}/",
        origin,
        domain if own.endswith(f"//{domain}") else "",
        _site(page.origin, domain),
        third_party=any(_site(origin_of(one) or "", domain) != own for one in around),
        server_address=server_address,
    )


def around(frames: Iterable[Frame]) -> list[str]:
    """Return the addresses of all documents that one of ``frames`` is in."""
    found: list[str] = []
    for frame in frames:
        parent = frame.parent_frame
        while parent is not None:
            found.append(parent.url)
            parent = parent.parent_frame
    return found


def sends_cookie(sender: Sender, same_site: str, partition: str | None) -> bool:
    """Whether a browser sends a cookie of ``sender``'s own origin with a request that ``sender`` begins: not to a
    document in somebody else's page if the cookie is for pages of its site, nor in another page if it is kept apart for
    one (``Partitioned``)."""
    return (not sender.third_party or same_site == "None") and partition in (None, "", sender.page)


def _site(origin: str, domain: str) -> str:
    """Return the site of an origin: its scheme and registered name, as far as it is ``domain``, else its host."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    if not host:
        return "null"
    if domain and f".{host}".endswith(f".{domain}"):
        host = domain
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}"
