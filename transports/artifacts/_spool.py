"""Staged files of stores without a folder. A temporary folder is made only when ``path`` is read."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from abc import abstractmethod
from contextlib import suppress
from functools import cache
from pathlib import Path

from .._internal.tasks import in_thread
from ..errors import StoreError
from ._base import StagedFile
from ._content import measure_file
from ._files import belongs_to_us, map_os_errors, may_be_running, open_file

#: Bytes whose hashing is faster than the hand-over to a thread.
_HASHED_AT_ONCE = 256 << 10


class SpooledFile(StagedFile):
    """A staged file in memory, or wherever the store puts its chunks.

    A subclass stores chunks in :meth:`_store_chunk`. Content that another program wrote to ``path`` is in
    :attr:`external_file`.
    """

    def _reset_state(self) -> None:
        super()._reset_state()
        self._folder: Path | None = None
        #: File that another program wrote at ``path``, once it is measured.
        self.external_file: Path | None = None

    @property
    def path(self) -> Path:
        return self._spool_folder() / "content"

    def _spool_folder(self) -> Path:
        """Return the temporary folder of this file, which is made at the first call."""
        if self._folder is None:
            with map_os_errors("make a temporary folder", Path(tempfile.gettempdir())):
                _remove_left_folders()
                self._folder = Path(tempfile.mkdtemp(prefix=f"abp-spool-{os.getpid()}-"))
        return self._folder

    async def _append_chunk(self, chunk: memoryview) -> None:
        if len(chunk) <= _HASHED_AT_ONCE:
            self._measure_chunk(chunk)
        else:
            await in_thread(self._measure_chunk, chunk)

    def _measure_chunk(self, chunk: memoryview) -> None:
        self._meter.add(chunk)
        self._store_chunk(chunk)

    @abstractmethod
    def _store_chunk(self, chunk: memoryview) -> None: ...

    async def _measure_external_file(self) -> bool:
        return self._folder is not None and await in_thread(self._read_external_file)

    def _read_external_file(self) -> bool:
        """Measure the file at ``path``. Return ``False`` if there is none."""
        with map_os_errors("read the staged file", self.path.parent):
            try:
                fd = open_file(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return False
            try:
                self._meter = measure_file(fd, self._store.max_bytes)
                self._measured_state = _fingerprint(os.fstat(fd))
            finally:
                os.close(fd)
        self.external_file = self.path
        return True

    def check_external_file(self) -> None:
        """Raise :class:`~transports.errors.StoreError` if the external file has changed since it was measured.

        A store calls this after it has read the content again and before the artifact becomes visible.
        """
        if self.external_file is None:
            return
        with map_os_errors("read the staged file", self.external_file.parent):
            status = self.external_file.lstat()
        if _fingerprint(status) != self._measured_state:
            raise StoreError("the staged file changed after it was measured; commit it when it is finished")

    async def aclose(self) -> None:
        if self._folder is not None:
            await in_thread(shutil.rmtree, self._folder, ignore_errors=True)


class BufferedFile(SpooledFile):
    def _reset_state(self) -> None:
        super()._reset_state()
        self._chunks: list[bytes] = []

    def _store_chunk(self, chunk: memoryview) -> None:
        self._chunks.append(bytes(chunk))

    async def read_all(self) -> bytes:
        """Return the measured content, written or external. Raises :class:`~transports.errors.StoreError` if an
        external file has changed since it was measured."""
        if self.external_file is None:
            return b"".join(self._chunks)
        data = await in_thread(self.external_file.read_bytes)
        self.check_external_file()
        return data


@cache
def _remove_left_folders() -> None:
    """Remove the folders of killed processes, once per process."""
    for folder in Path(tempfile.gettempdir()).glob("abp-spool-*"):
        writer = re.match(r"abp-spool-([0-9]{1,9})-", folder.name)
        if writer is None:
            continue
        with suppress(OSError):
            status = folder.lstat()
            is_own_folder = stat.S_ISDIR(status.st_mode) and belongs_to_us(status)
            if is_own_folder and not may_be_running(int(writer[1]), status.st_mtime):
                shutil.rmtree(folder, ignore_errors=True)


def _fingerprint(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns
