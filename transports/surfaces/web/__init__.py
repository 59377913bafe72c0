"""Web server of ``abp serve``: artifacts, calls and connected apps over HTTP, and the gallery (``docs/serve.md``)."""

from __future__ import annotations

from ._options import Options
from ._server import Served, serve
from ._signing import Signer, make_link

__all__ = ["Options", "Served", "Signer", "make_link", "serve"]
