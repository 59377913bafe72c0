"""``abp serve``: artifacts, calls and connected apps over HTTP, and the gallery page (``docs/serve.md``)."""

from __future__ import annotations

from .linking import make_link
from .links import Links
from .options import Options
from .server import Served, serve

__all__ = ["Links", "Options", "Served", "make_link", "serve"]
