"""Writing an artifact to a file where a model wants it, below folders that the operator allows: for clients that cannot
read resources."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from ...artifacts import ArtifactRef, ArtifactStore
from ...artifacts.beneath import folder_beneath
from ...artifacts.local.folder import Folder
from ...artifacts.local.names import NO_LINKS, place
from ...artifacts.local.tree import temporary_name
from ...artifacts.os_errors import write_all
from ...errors import StoreError, UsageError
from ...tasks import in_thread

__all__ = ["export_artifact"]

_PIECE = 1 << 20
#: The details of every refusal: which argument to correct.
_ARGUMENT = {"argument": "path"}


async def export_artifact(store: ArtifactStore, ref: ArtifactRef, path: str, roots: Sequence[Path]) -> Path:
    """Write ``ref`` to ``path``, and return the real path.

    The file appears at once and verified, or not at all, and never replaces another one; a file with the same content
    is left as it is. No symlink leads out of ``roots``, also not one that is made meanwhile. Raises
    :class:`~transports.errors.UsageError` for a path that is not allowed, is taken, or cannot be written."""
    refused = UsageError("path: artifacts may not be written there; have the user allow the folder with "
                         "ABP_MCP_EXPORT_ROOTS, or read the artifact instead", details=dict(_ARGUMENT))  # fmt: skip
    target = Path(path)
    if not target.is_absolute() or "\0" in path or target.name in ("", ".", ".."):
        raise refused
    try:
        with folder_beneath(target.parent, roots, refused) as (real, folder):
            await _write(store, ref, folder, target.name)
            return real / target.name
    except FileExistsError:
        message = f"path: {target.name} is there already with other content; choose another name"
        raise UsageError(message, details=dict(_ARGUMENT)) from None
    except (OSError, StoreError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else error.message
        raise UsageError(f"path: cannot write there: {reason}", details=dict(_ARGUMENT)) from error


async def _write(store: ArtifactStore, ref: ArtifactRef, folder: Folder, name: str) -> None:
    temporary = f".{temporary_name()}"
    fd = -1

    def create() -> None:
        nonlocal fd
        fd = folder.create(temporary)

    try:
        try:
            await in_thread(create)  # a cancellation comes after it: the file is known and removed
            async with aclosing(store.open(ref.id)) as pieces:
                async for piece in pieces:
                    await in_thread(write_all, fd, memoryview(piece))
            await in_thread(os.fsync, fd)
        finally:
            if fd >= 0:
                os.close(fd)
        try:
            await in_thread(_name, temporary, folder, name)
            await in_thread(folder.sync)
        except FileExistsError:
            if await in_thread(_digest, name, folder) != ref.sha256:
                raise
    finally:
        await in_thread(folder.unlink, temporary)


def _name(temporary: str, folder: Folder, name: str) -> None:
    try:
        folder.link(temporary, folder, name)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        place(temporary, folder, folder, name)


def _digest(name: str, folder: Folder) -> str | None:
    """The SHA-256 of a regular file, or ``None`` for anything else of that name."""
    try:
        fd = folder.open(name)
    except OSError:
        return None
    with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor has no path
        digest = hashlib.sha256()
        try:
            while piece := file.read(_PIECE):
                digest.update(piece)
        except OSError:
            return None
        return digest.hexdigest()
