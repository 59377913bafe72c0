"""The default store: one folder of files, safe against crashes, symlinks and concurrent writers."""

from __future__ import annotations

from .store import LocalStore

__all__ = ["LocalStore"]
