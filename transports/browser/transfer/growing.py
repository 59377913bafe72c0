"""The file of a download while the browser writes it: found, and given the name under which it is read meanwhile."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path
from threading import Event

from ...tasks import in_thread

__all__ = ["GrowingFile", "move_file"]

#: Seconds between two looks for the file, and how many there are: after that the browser writes elsewhere.
_INTERVAL, _LOOKS = 0.003, 300


class GrowingFile:
    """Gives the file of a download the name ``path``, if it can while the browser still writes it.

    Chromium begins with a hidden file in ``temporary``, the folder for its temporary files (``None``: not known), and
    renames it when its writer pauses, which may be at the very end. So make this object before the download begins: a
    file that is new there is taken for the download's own, if there is only one. This is a guess, which :meth:`take`
    corrects.
    """

    def __init__(self, path: Path, temporary: Path | None) -> None:
        self._path = path
        self._temporary = temporary
        self._known = self._hidden()
        self._ended = Event()
        self._looking: asyncio.Future[None] | None = None

    def begin(self, written: Path) -> None:
        """Begin to look for the file, in a thread. ``written`` is what the browser calls it at its end."""
        self._looking = asyncio.ensure_future(in_thread(self._look, written))

    async def take(self, written: Path) -> None:
        """Rename the file that the browser has written to ``path``, whatever has that name by now."""
        await self._stop()
        await in_thread(_take, written, self._path)

    async def drop(self) -> None:
        """Take the name away again."""
        await self._stop()
        self._path.unlink(missing_ok=True)

    async def _stop(self) -> None:
        self._ended.set()
        if self._looking is not None:
            await asyncio.wait((self._looking,))

    def _look(self, written: Path) -> None:
        for _ in range(_LOOKS):
            for found in self._candidates(written):
                try:
                    self._path.hardlink_to(found)
                except FileNotFoundError:  # not there yet, or renamed just now
                    continue
                except OSError:  # another file system, or one without hard links
                    return
                return
            if self._ended.wait(_INTERVAL):
                return

    def _candidates(self, written: Path) -> Iterator[Path]:
        yield written.with_name(f"{written.name}.crdownload")
        new = self._hidden() - self._known
        if self._temporary is not None and len(new) == 1:
            yield self._temporary / next(iter(new))

    def _hidden(self) -> Set[str]:
        if self._temporary is not None:
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
