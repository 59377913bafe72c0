"""Staged files of the local store, and the sweep of those whose writer died."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

from ..errors import StoreError, UsageError
from .base import ArtifactRef, Staged
from .content import Meter, as_bytes, describe, measure_file, nothing_written, too_large
from .disk import Tree, create, in_thread, lstat, reporting, temporary_name, unlink, write_all
from .shelf import Shelf

__all__ = ["LocalStaged", "sweep"]

logger = logging.getLogger("transports.artifacts")

_PIECE = 1 << 20  # bytes collected before a thread is worth its start
_MAX_AGE = 3600.0  # seconds
_NAME = re.compile(r"(\d+)-[0-9a-f]+")


class LocalStaged(Staged):
    """See :class:`~transports.artifacts.base.Staged`. The file is made by the first bytes that are written."""

    def __init__(self, tree: Tree, shelf: Shelf, limit: int) -> None:
        self._tree = tree
        self._shelf = shelf
        self._limit = limit
        self._name = temporary_name()
        self._committed = False
        self._start()

    def _start(self) -> None:
        self._fd = -1
        self._meter = Meter(self._limit)
        self._pending: list[memoryview] = []
        self._size = 0
        self._written = False
        self._usable = True

    @property
    def path(self) -> Path:
        return self._tree.root / ".abp" / "staging" / self._name

    @property
    def size(self) -> int:
        return self._size

    async def write(self, chunk: bytes | memoryview) -> None:
        self._check()
        view = as_bytes(chunk)
        self._usable = False  # until all is well: what is written by half must never be committed
        if self._size + len(view) > self._limit:
            raise too_large(self._limit)
        self._written = True
        self._size += len(view)
        small = len(view) < _PIECE // 4
        # small chunks wait for company; bytes cannot change under us, other buffers can
        self._pending.append(memoryview(bytes(view)) if small and not isinstance(view.obj, bytes) else view)
        if not small or self._size - self._meter.size >= _PIECE:
            await in_thread(self._flush)
        self._usable = True

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        with reporting("write a file", self._tree.root):
            if self._fd < 0:
                with self._tree.folder(".abp", "staging", create=True) as staging:
                    self._fd = create(self._name, staging)
            for chunk in pending:
                self._meter.add(chunk)
                write_all(self._fd, chunk)

    async def reset(self) -> None:
        self._check(usable=False)
        await in_thread(self._discard)
        self._start()

    async def commit(
        self,
        *,
        size: int | None = None,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str = "artifact",
        source: Mapping[str, object] | None = None,
    ) -> ArtifactRef:
        self._check()

        def work() -> ArtifactRef:
            with reporting("store a file", self._tree.root):
                self._measure(size)
                described = describe(
                    self._meter, size=size, mime_type=mime_type, filename=filename, namespace=namespace, source=source
                )
                record = self._shelf.publish(self._name, self._fd, self._meter, described)
                self._committed = True
                return record.ref(self._tree.root / record.names[-1].name)

        return await in_thread(work)

    def _measure(self, declared: int | None) -> None:
        """Have all content in the file, measured and on the disk."""
        if not self._written:
            if self._open_foreign():
                self._measure_foreign()
                return
            if declared != 0:
                raise nothing_written()
        self._written = True
        self._usable = False  # until what is still pending is written, as in write()
        self._flush()
        os.fsync(self._fd)
        self._usable = True

    def _open_foreign(self) -> bool:
        self._close()
        try:
            with self._tree.folder(".abp", "staging") as staging:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not hold us up
                self._fd = os.open(self._name, flags, dir_fd=staging)
        except FileNotFoundError:
            return False
        except OSError as error:
            if self.path.is_symlink():
                raise StoreError("the staged file is a symlink and is not followed; nothing was stored") from error
            raise
        return True

    def _measure_foreign(self) -> None:
        # Writing back to the disk and hashing keep different parts of the machine busy: together they take as long as
        # the slower one.
        failed: list[OSError] = []

        def sync() -> None:
            try:
                os.fsync(self._fd)
            except OSError as error:
                failed.append(error)

        syncing = Thread(target=sync, name="abp-fsync")
        syncing.start()
        try:
            self._meter = measure_file(self._fd, self._limit)
        finally:
            syncing.join()
        if failed:
            raise failed[0]
        self._size = self._meter.size

    def _check(self, *, usable: bool = True) -> None:
        if self._committed:
            raise UsageError("this staged file was committed; stage another one")
        if usable and not self._usable:
            raise UsageError("a write to this staged file failed; reset() it first")

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _discard(self) -> None:
        self._close()
        try:
            with self._tree.folder(".abp", "staging") as staging:
                unlink(self._name, staging)
        except FileNotFoundError:
            pass  # the whole folder is gone
        except (OSError, StoreError) as error:
            logger.warning("the staged file %s could not be removed: %s", self.path, error)

    async def aclose(self) -> None:
        """Remove what was not committed. Never raises but for a cancellation, which it delays."""
        if self._committed:
            self._close()
        else:
            await in_thread(self._discard)


def sweep(tree: Tree) -> None:
    """Remove staged files older than an hour whose writer is gone. Problems are logged."""
    try:
        with tree.folder(".abp", "staging") as staging:
            for name in os.listdir(staging):  # noqa: PTH208 - a descriptor
                match, file = _NAME.fullmatch(name), lstat(name, staging)
                if (
                    match
                    and file
                    and time.time() - file.st_mtime > _MAX_AGE
                    and not _alive(int(match[1]), file.st_mtime)
                ):
                    unlink(name, staging)
    except OSError as error:
        logger.warning("staged files of earlier runs could not be removed from %s: %s", tree.root, error)


def _alive(pid: int, modified: float) -> bool:
    """Whether the writer of a file may still run; a process that started after the last write only has its number."""
    import psutil  # takes 20 ms, and is needed once in a blue moon

    try:
        return bool(psutil.Process(pid).create_time() <= modified)
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, OverflowError):
        return True
