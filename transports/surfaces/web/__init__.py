"""``abp serve``: artifacts, calls and connected apps over HTTP, and the gallery page (``docs/serve.md``)."""

from __future__ import annotations

from .make_link import make_link
from .options import Options
from .server import Served, serve
from .signing import Signer

__all__ = ["Options", "Served", "Signer", "make_link", "serve"]
