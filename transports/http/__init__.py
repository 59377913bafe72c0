"""Downloads and manifests over HTTP, behind one address guard.

* :mod:`.downloads` — :func:`download`: a ``downloadUrl`` into a staged file, with checks, retries, resuming and the
  deadline; :mod:`.download_request` — its arguments, its result and its errors.
* :mod:`.discovery` — :func:`discover`: page → link → manifest, without a browser; with the cache of manifests (RFC
  9111).
* :mod:`.redirects` — a GET whose redirects are checked one by one; :func:`fetch_public` — the resources of HTML that
  is rendered as a PDF.
* :mod:`.request` — one request on a connection of its own, and the errors for answers other than the file.
* :mod:`.addresses` — the guard for addresses, checked at the socket.
* :mod:`.urls` — parsing, origins, and the credentials for each origin; :mod:`.headers` — parsing of headers.

A manifest is only a hint: the capabilities of an app are those in its answer to ``initialize``.
"""

from __future__ import annotations

from .discovery import Discovery, ManifestCache, discover, missing_capabilities
from .download_request import MAX_REDIRECTS, Cookies, Downloads, Fetched, cookies_of
from .downloads import RETRIES, download
from .redirects import fetch_public

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
