"""Batches of calls: jobs, a pool of sessions and browsers to run them, and the ledger of their outcomes."""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
