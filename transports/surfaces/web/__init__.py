"""Web server of ``abp serve``: artifacts, calls and connected apps over HTTP, and the gallery (``docs/serve.md``)."""

from __future__ import annotations

from ._artifacts import make_link
from ._options import Options
from ._server import Served, serve

__all__ = ["Options", "Served", "make_link", "serve"]
