"""The default store: a folder of files, safe against crashes, symlinks and concurrent writers.

* :mod:`._store` — :class:`LocalStore` and its staged files.
* :mod:`._blobs` — the steps of a commit and of a removal, and readable names.
* :mod:`._catalog` and :mod:`._index` — listing and search; :mod:`._maintenance` — sweeping and checking.
* :mod:`._tree` — folders that symlinks cannot redirect, and locks.
"""
