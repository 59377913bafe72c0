"""The default store: a folder of files, safe against crashes, symlinks and concurrent writers.

* :mod:`.store` — :class:`LocalStore`, its staged files and its writer thread.
* :mod:`.blobs` — the steps of a commit and of a removal, and readable names.
* :mod:`.catalog` and :mod:`.index` — listing and search; :mod:`.maintenance` — sweeping and checking.
* :mod:`.tree` — folders that symlinks cannot redirect, and locks.
"""

from __future__ import annotations

from .store import LocalStore

__all__ = ["LocalStore"]
