"""Routing of answers (docs/protocol.md 12, docs/requirements.md R2-4): files go to the store, references take their
places, and an agent's view stays small.
"""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
