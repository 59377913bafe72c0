"""Fetching an ABP ``downloadUrl`` into a staged file that nobody sees until it is verified (seed 001).

* :mod:`.fetch` — :func:`download`: checks before the first request, retries, the deadline.
* :mod:`.transfer` — one attempt: redirects by hand, credentials, resuming, the body.
* :mod:`.connect` — one request on a connection of its own.
* :mod:`.addresses` — which addresses may be connected to, checked at the socket.
* :mod:`.urls` — parsing, origins, and what is sent to which of them.
* :mod:`.headers` — what answers say about themselves.
"""

from __future__ import annotations

from .asked import Cookies, Downloads, Fetched
from .fetch import RETRIES, download
from .transfer import MAX_REDIRECTS

__all__ = ["MAX_REDIRECTS", "RETRIES", "Cookies", "Downloads", "Fetched", "download"]
