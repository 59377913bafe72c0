"""Who answers in a browser: a document as the browser knows it, in whose name downloads are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..protocol.messages import Sender
from ..protocol.urls import origin_of

if TYPE_CHECKING:
    from playwright.async_api import Frame

__all__ = ["sender_in", "sends_cookie"]


def sender_in(
    frame: Frame, origin: str, *, page: str, domain: str, server_address: tuple[str, int] | None = None
) -> Sender:
    """Return the document of ``origin`` that is, or was, in ``frame``. ``page`` is the origin of the page around it,
    and ``domain`` the registered name in the page's host, empty if it is not known."""
    own = _site(origin, domain)
    around = [page, *(origin_of(one.url) or "" for one in _above(frame))] if frame.parent_frame else []
    return Sender(
        frame.url if origin in (origin_of(frame.url), "null") else f"{origin}/",
        origin,
        domain if own.endswith(f"//{domain}") else "",
        _site(page, domain),
        third_party=any(_site(one, domain) != own for one in around),
        server_address=server_address,
    )


def sends_cookie(sender: Sender, same_site: str, partition: str | None) -> bool:
    """Whether a browser sends a cookie of ``sender``'s own origin with a request that ``sender`` begins: not to a
    document in somebody else's page if the cookie is for pages of its site, nor in another page if it is kept apart for
    one (``Partitioned``)."""
    return (not sender.third_party or same_site == "None") and partition in (None, "", sender.page)


def _above(frame: Frame) -> Iterator[Frame]:
    """The frames between a frame and its page."""
    while (parent := frame.parent_frame) is not None and parent.parent_frame is not None:
        yield (frame := parent)


def _site(origin: str, domain: str) -> str:
    """Return the site of an origin: its scheme and registered name, as far as it is ``domain``, else its host."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    if not host:
        return "null"
    if domain and f".{host}".endswith(f".{domain}"):
        host = domain
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}"
