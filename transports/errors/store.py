"""Errors of the artifact store. The session survives all of them: the app was not even asked."""

from __future__ import annotations

from .base import ABPError

__all__ = ["ArtifactNotFound", "Corrupt", "StoreError", "StoreFull", "StoreUnavailable"]


class StoreError(ABPError):
    """Raised when the store could not read or write: a missing right, a symlink where a folder belongs, a file that
    changed while it was read. The session survives. The message names the folder and what to change."""

    code = "STORE_ERROR"


class StoreFull(StoreError):
    """Raised when no space is left on the disk, or when the limits of the retention are met and nothing may be deleted.
    The session survives. Delete artifacts (``abp artifacts gc``), raise the limits, or name another store."""

    code = "STORE_FULL"


class StoreUnavailable(StoreError):
    """Raised when an object store does not answer, refuses the credentials, or has no such bucket. ``retryable`` is set
    where waiting may help. The session survives. Check the address and the credentials."""

    code = "STORE_UNAVAILABLE"


class ArtifactNotFound(StoreError):
    """Raised when the store has no artifact with this id: it was deleted, expired, or belongs to another scope or
    store. The session survives. ``abp artifacts list`` shows what there is."""

    code = "ARTIFACT_NOT_FOUND"


class Corrupt(StoreError):
    """Raised when stored bytes or metadata no longer match their hash. What was read of them is not to be
    trusted. The session survives. Delete the artifact and store it again; ``abp artifacts fsck`` finds all that are
    damaged."""

    code = "CORRUPT"
