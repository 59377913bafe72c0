"""File system ``artifact://`` of fsspec: the artifacts of a store as files that can only be read (docs/data.md).

fsspec finds it by its entry point, so that ``pandas.read_csv("artifact://ID")`` works. Needs the extra ``data``.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from datetime import datetime
from io import SEEK_END, BufferedReader, FileIO, UnsupportedOperation
from pathlib import Path
from typing import ParamSpec, TypeVar

from . import artifacts, sync
from ._internal.files import temp_folder
from ._internal.lazy import requiring_extra
from ._internal.tasks import in_thread
from .artifacts._files import map_os_errors, write_all
from .artifacts._ref import ArtifactRef
from .artifacts._verified import Pieces, open_file_of, verified
from .errors import ArtifactNotFound, UsageError
from .session._settings import Settings, retention_settings
from .session._stores import open_configured_store
from .sync._bridge import SHARED

with requiring_extra("fsspec", "data"):
    from fsspec.spec import AbstractFileSystem

__all__ = ["ArtifactFileSystem"]

P = ParamSpec("P")
T = TypeVar("T")


class ArtifactFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The artifacts of a store as files of fsspec, read-only: ``artifact://ID``, as in ``ref.uri``.

    ``store`` (``storage_options={"store": …}``) is a store, asynchronous or blocking, or its address; by default it is
    that of the command ``abp``: ``ABP_STORE``, else ``ABP_OUTPUT_DIR``, else the temporary folder. A view of a store
    (:meth:`.ArtifactStore.scoped`) shows only what is in its scope.

    Opening a file reads all of it once and compares it with its hash; every piece is compared again when it is read. A
    store without local files is copied into a temporary file. Every method blocks. An unknown id is a
    :class:`FileNotFoundError`; writing is refused; other errors are those of the stores, such as
    :class:`~transports.errors.Corrupt`.
    """

    protocol = "artifact"
    root_marker = ""
    #: fsspec would take two views of one store for the same file system, since it compares their texts.
    cachable = False

    def __init__(
        self,
        store: artifacts.ArtifactStore | sync.ArtifactStore | str | Path | None = None,
        *args: object,
        **storage_options: object,
    ) -> None:
        """Raises :class:`~transports.errors.UsageError` if ``store`` is not a store or its address."""
        super().__init__(*args, **storage_options)
        self._is_ours = store is None or isinstance(store, str | Path)
        self._store = _store_of(store)

    # --- what fsspec asks ---------------------------------------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, **_: object) -> list[dict[str, object]] | list[str]:
        """List the artifacts, in the order of the store, or the one with this id: its name, which is the id, its size,
        and the fields of its reference."""
        key = self._strip_protocol(path)
        entries = [self.info(key)] if key else [_info(ref) for ref in self._run_in_loop(self._store.list)]
        if detail:
            return entries
        return [str(entry["name"]) for entry in entries]

    def info(self, path: str, **_: object) -> dict[str, object]:
        """Return the facts about an artifact, as in :meth:`ls`."""
        key = self._strip_protocol(path)
        if not key:
            return {"name": "", "size": 0, "type": "directory"}
        with _as_file(key):
            return _info(self._run_in_loop(self._store.stat, key))

    def created(self, path: str) -> datetime:
        """Return when the artifact was first stored."""
        return datetime.fromisoformat(str(self.info(path)["created"]))

    modified = created  # the content of an id never changes

    def ukey(self, path: str) -> str:
        """Return the SHA-256 of the content."""
        return str(self.info(path)["sha256"])

    def _open(self, path: str, mode: str = "rb", **_: object) -> BufferedReader:
        if mode != "rb":
            raise UnsupportedOperation(
                "artifact:// can only be read; a file is stored with `await store.put_file(path)`"
            )
        key = self._strip_protocol(path)
        with _as_file(key):
            return self._run_in_loop(self._open_verified, key)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        """Return the content from ``start`` to ``end``, which count from the end if they are negative."""
        with self._open(path) as file:
            first, last, _step = slice(start, end).indices(file.seek(0, SEEK_END))
            file.seek(first)
            return file.read(max(last - first, 0))

    # --- in the loop of the store -------------------------------------------------------------------------------------

    def _run_in_loop(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        async def run() -> T:
            try:
                return await work(*args, **kwargs)
            finally:
                if self._is_ours:  # fsspec never closes a file system
                    await self._store.aclose()

        return SHARED.run(run())

    async def _open_verified(self, key: str) -> BufferedReader:
        ref = await self._store.stat(key)
        pieces = Pieces()
        file = await in_thread(_file_for, ref)

        def add_chunk(chunk: bytes) -> None:
            pieces.add(chunk)
            if ref.path is None:
                with _temporary_errors():
                    write_all(file.fileno(), memoryview(chunk))

        try:
            async with aclosing(self._store.open(ref)) as chunks:  # the store's own way: its audit log, its quarantine
                async for chunk in chunks:
                    await in_thread(add_chunk, chunk)
            pieces.finish(ref)
        except BaseException:
            file.close()
            raise
        return verified(file, ref, pieces)


def _file_for(ref: ArtifactRef) -> FileIO:
    """The copy of a file without a path has no name, so that only this process has it."""
    if ref.path is not None:
        return open_file_of(ref, ref.path)
    with _temporary_errors():
        return tempfile.TemporaryFile("w+b", buffering=0)


def _temporary_errors() -> AbstractContextManager[None]:
    return map_os_errors("copy an artifact", temp_folder(), other="name another one with TMPDIR")


def _store_of(store: object) -> artifacts.ArtifactStore:
    if store is None or isinstance(store, str | Path):
        return open_configured_store(Settings.load(), store, retention=retention_settings())
    wrapped = store.wrapped if isinstance(store, sync.ArtifactStore) else store
    discovered = artifacts.discover_store(wrapped)
    if discovered is None:
        raise UsageError(f"store: a {type(store).__name__} is not a store, its address, or an object that has one")
    return discovered


def _info(ref: ArtifactRef) -> dict[str, object]:
    return {
        "name": ref.id,
        "size": ref.size_bytes,
        "type": "file",
        "created": ref.source.get("created"),
        "filename": ref.filename,
        "mime_type": ref.mime_type,
        "sha256": ref.sha256,
    }


@contextmanager
def _as_file(key: str) -> Iterator[None]:
    """Programs that take a file system look for this error of an unknown id."""
    try:
        yield
    except ArtifactNotFound as error:
        raise FileNotFoundError(errno.ENOENT, error.message, f"artifact://{key}") from error
