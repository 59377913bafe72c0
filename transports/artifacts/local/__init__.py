"""The default store: a folder of files, safe against crashes, symlinks and concurrent writers.

* :mod:`.store` — :class:`LocalStore`; :mod:`.staging` — its staged files.
* :mod:`.blobs` — the order of the steps of a commit and a removal; :mod:`.names` — readable names.
* :mod:`.catalog` and :mod:`.index` — finding artifacts; :mod:`.maintenance` — sweeping and checking.
* :mod:`.tree` — folders that cannot be redirected by symlinks.
"""

from __future__ import annotations

from ._store import LocalStore

__all__ = ["LocalStore"]
