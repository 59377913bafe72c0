"""Folders that somebody allows, opened so that no symlink leads out of them, also not one that is made meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from ..errors import StoreError, UsageError
from ..files import regular_file
from .local.folder import Folder
from .local.tree import Tree

__all__ = ["folder_beneath", "open_beneath"]


@contextmanager
def folder_beneath(folder: Path, roots: Sequence[Path], refused: UsageError) -> Iterator[tuple[Path, Folder]]:
    """Open a folder in or below one of ``roots``, and give its real path and the folder. What is opened in that is
    there, whatever the path leads to later, on systems with descriptors of folders.

    Raises ``refused`` for any other folder, and what :meth:`Tree.folder` raises for one that is replaced meanwhile."""
    try:
        real = folder.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # ValueError: a NUL in the name
        raise refused from None
    root = next((root for root in roots if real.is_relative_to(root)), None)
    if root is None:
        raise refused
    with Tree(root, own=False).folder(*real.relative_to(root).parts) as opened:
        yield real, opened


def open_beneath(path: str, roots: Sequence[Path], refused: UsageError) -> FileIO:
    """Return a regular file below one of ``roots``, open for reading; its ``name`` is its real path. Raises ``refused``
    for anything else, so that nobody learns what there is."""
    try:
        real = Path(path).resolve(strict=True)
        with folder_beneath(real.parent, roots, refused) as (_, folder):
            return regular_file(folder.open(real.name), str(real))
    except (OSError, RuntimeError, ValueError, StoreError):
        raise refused from None
