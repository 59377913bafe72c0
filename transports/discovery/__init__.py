"""From a web address to what the app says of itself, without a browser (PROTOCOL "Discovery").

* :mod:`.discover` — :func:`discover`: page → link → manifest.
* :mod:`.head` — the head of a page; no I/O.
* :mod:`.hops` — one GET with its redirects, its limits and its errors.
* :mod:`.cache` — manifests that were fetched before (RFC 9111).
* :mod:`.manifest` — a manifest read leniently, and compared with what the running app says; no I/O.

The manifest only informs: what an app can do is what it answers to ``initialize``.
"""

from __future__ import annotations

from .cache import ManifestCache
from .discover import Discovery, discover
from .manifest import undelivered

__all__ = ["Discovery", "ManifestCache", "discover", "undelivered"]
