"""Downloads and manifests over HTTP, behind one address guard.

* :mod:`.downloads` — :func:`download`: a ``downloadUrl`` into a staged file; checks, retries, the deadline.
* :mod:`.download_request` — its arguments and its result; :mod:`.status_errors` — answers that are not the file.
* :mod:`.transfer` — one attempt: redirects, credentials, resuming, the body.
* :mod:`.discovery` — :func:`discover`: page → link → manifest, without a browser; :mod:`.page_head` and
  :mod:`.manifest` read what came, :mod:`.cache` keeps it (RFC 9111).
* :mod:`.public` — :func:`fetch_public`: what HTML refers to that is rendered as a PDF.
* :mod:`.request` — one request on a connection of its own; :mod:`.redirects` follows redirects of a GET.
* :mod:`.addresses` — which addresses may be connected to, checked at the socket.
* :mod:`.urls` — parsing, origins, and which credentials go to which of them; :mod:`.headers` — reading headers.

A manifest only informs: what an app can do is what it answers to ``initialize``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from ._addresses import is_public as is_public, own_addresses as own_addresses
    from ._discovery import Discovery, ManifestCache, discover, missing_capabilities
    from ._download_request import MAX_REDIRECTS, Cookies, Downloads, Fetched, cookies_of
    from ._downloads import RETRIES, download
    from ._headers import disposition_parameter as disposition_parameter, filename_of as filename_of
    from ._redirects import fetch_public
else:  # `_downloads` and `_redirects` import aiohttp, which most sessions never need
    __getattr__ = lazy_names(
        __name__,
        {
            "_addresses": ("is_public", "own_addresses"),
            "_discovery": ("Discovery", "ManifestCache", "discover", "missing_capabilities"),
            "_download_request": ("MAX_REDIRECTS", "Cookies", "Downloads", "Fetched", "cookies_of"),
            "_downloads": ("RETRIES", "download"),
            "_headers": ("disposition_parameter", "filename_of"),
            "_redirects": ("fetch_public",),
        },
    )

__all__ = [
    "MAX_REDIRECTS",
    "RETRIES",
    "Cookies",
    "Discovery",
    "Downloads",
    "Fetched",
    "ManifestCache",
    "cookies_of",
    "discover",
    "download",
    "fetch_public",
    "missing_capabilities",
]
