"""Downloads over HTTP, behind one address guard.

* :mod:`._downloads` — :func:`download`: a ``downloadUrl`` into a staged file, with checks, retries, resuming and the
  deadline.
* :mod:`._redirects` — a GET whose redirects are checked one by one; :func:`fetch_public` — the resources of HTML that
  is rendered as a PDF.
* :mod:`._request` — the arguments of a download; one request on a connection of its own, and the errors for answers
  other than the file.
* :mod:`._addresses` — the guard for addresses, checked at the socket.
* :mod:`._urls` — parsing, origins, and the credentials for each origin; :mod:`._headers` — parsing of headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._addresses import is_public as is_public, own_addresses as own_addresses
    from ._downloads import RETRIES, download
    from ._headers import disposition_parameter as disposition_parameter, filename_of as filename_of, is_json as is_json
    from ._redirects import fetch_public
    from ._request import MAX_REDIRECTS, Cookies, cookies_of
else:  # `_downloads` and `_redirects` import aiohttp, which most sessions never need
    __getattr__ = lazy_names(
        __name__,
        {
            "_addresses": (
                "is_public",
                "own_addresses",
            ),
            "_downloads": (
                "RETRIES",
                "download",
            ),
            "_headers": (
                "disposition_parameter",
                "filename_of",
                "is_json",
            ),
            "_redirects": ("fetch_public",),
            "_request": (
                "Cookies",
                "MAX_REDIRECTS",
                "cookies_of",
            ),
        },
    )

__all__ = [
    "MAX_REDIRECTS",
    "RETRIES",
    "Cookies",
    "cookies_of",
    "download",
    "fetch_public",
]
