"""The headers by which a server learns on whose behalf a download is made, as a browser's ``fetch`` sends them. No I/O.

Fetch Metadata (W3C) and the ``Origin`` of the Fetch standard, for a GET with the mode ``cors`` that was begun by a
document. A browser leaves ``Sec-Fetch-…`` out for plain http; here each server is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..protocol.messages import Sender
from .urls import Origin, Target, origin_of

__all__ = ["metadata_headers"]

_SITES = ("same-origin", "same-site", "cross-site")


def metadata_headers(sender: Sender, hops: Sequence[Target]) -> dict[str, str]:
    """Return the headers for a request that ``sender`` has begun. ``hops`` are the URLs that it has led to so far; the
    last one is asked now."""
    own = origin_of(sender.origin)
    site = max((_relation(sender, own, hop.origin) for hop in hops), key=_SITES.index)
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    if any(hop.origin != own for hop in hops):
        headers["Origin"] = "null" if _is_tainted(own, hops) else sender.origin
    return headers


def _relation(sender: Sender, own: Origin | None, other: Origin) -> str:
    if own is None or own[0] != other[0]:
        return "cross-site"
    if own == other:
        return "same-origin"
    domain = sender.domain or own[1]
    return "same-site" if own[1] == other[1] or f".{other[1]}".endswith(f".{domain}") else "cross-site"


def _is_tainted(own: Origin | None, hops: Sequence[Target]) -> bool:
    """Whether a server of another origin has redirected to one of a third, who may take the request for its own."""
    return any(hop.origin != before.origin and before.origin != own for before, hop in pairwise(hops))
