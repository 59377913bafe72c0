"""The file of a download while the browser writes it: found, and given the name under which it is read meanwhile."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

from ...artifacts.system import OPEN_FILES_MOVE
from ...tasks import cancel_and_wait, in_thread, spawn

__all__ = ["GrowingFile", "move_file"]

_INTERVAL = 0.003  # seconds between two checks for the file


class GrowingFile:
    """Gives the file of a download the name ``path``, if it can while the browser still writes it.

    Chromium begins with a hidden file in ``temporary``, the folder for its temporary files, and renames it when its
    writer pauses, which may be at the very end. So make this object before the download begins: a file that is new
    there is taken for the download's own, if there is only one. This is a guess, which :meth:`take` corrects.
    """

    def __init__(self, path: Path, temporary: Path) -> None:
        self._path = path
        self._temporary = temporary
        self._known = self._hidden()
        self._looking: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Begin to look for the file."""
        if OPEN_FILES_MOVE:  # who reads it would keep it from being taken
            spawn(self._look(), self._looking)

    async def take(self, written: Path) -> None:
        """Rename the file that the browser has written to ``path``, whatever has that name by now."""
        await cancel_and_wait(self._looking)
        await in_thread(_take, written, self._path)

    async def drop(self) -> None:
        """Take the name away again."""
        await cancel_and_wait(self._looking)
        self._path.unlink(missing_ok=True)

    async def _look(self) -> None:
        with suppress(OSError):  # another file system, or one without hard links
            while True:
                new = self._hidden() - self._known
                if len(new) == 1:
                    with suppress(FileNotFoundError):  # renamed just now
                        self._path.hardlink_to(
                            self._temporary / next(iter(new))
                        )  # here: nothing may do it after drop()
                        return
                await asyncio.sleep(_INTERVAL)

    def _hidden(self) -> Set[str]:
        with suppress(OSError), os.scandir(self._temporary) as entries:
            return {entry.name for entry in entries if entry.name.startswith(".")}
        return frozenset()


def _take(written: Path, path: Path) -> None:
    # a rename between two names of one file does nothing, and a copy would write into the wrong file
    path.unlink(missing_ok=True)
    move_file(written, path)


def move_file(source: Path, target: Path) -> None:
    """Rename a file, or copy it to another file system."""
    try:
        source.rename(target)
    except OSError:  # another file system
        shutil.move(source, target)
