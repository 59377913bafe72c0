"""Blobs, readable names and metadata of the local store on the disk: the steps of a commit and of a removal. Blocking.

A commit takes these steps. Each is synced to the disk (fsync) before a step that relies on it. With
``durability="process"`` nothing is synced: the system writes the files within seconds, and a power cut before that may
leave metadata without its content, which reading reports as damaged.

1. The staged file is synced, so that no name ever leads to content that a power cut could take back.
2. ``staging/x`` is linked to ``blobs/<sha256>``, and that folder synced. Linking, unlike renaming, never replaces a
   blob that another process made meanwhile, and leaves the staged file for another try if a later step fails.
3. A readable name in the root is linked to the blob. Linking fails if a name is taken, so nothing is overwritten.
4. The metadata is written to ``staging/y``, synced and renamed to ``meta/<id>.json``. **This rename is the commit**:
   before it the id is absent, after it everything that the metadata names is on the disk. A crash earlier leaves at
   most a verified file without metadata, and the next commit of the same content reuses it.

Deleting takes the opposite order: metadata, names, blob. Commits and deletes of content with the same first two digits
of the hash, which are also the first digits in the id, exclude each other by a lock with these digits as its name.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from io import FileIO

from ...errors import ABPError, StoreError
from .._content import Description, Meter, measure_file
from .._files import PIECE, TO_SYNC, write_all
from .._ref import Metadata, Name, OtherCase, Scope, candidate_ids, digest_prefix
from ._index import Index, read_metadata
from ._tree import Folder, StoreFolders, Tree, temporary_name

logger = logging.getLogger("transports.artifacts")

#: Error numbers for a file system without hard links, or with no more links for this file.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class BlobStore:
    """The content, readable names and metadata below one root. Every method raises :class:`OSError`."""

    def __init__(self, tree: Tree, index: Index) -> None:
        self._tree = tree
        self._index = index

    def publish(self, staged: str, file: FileIO, meter: Meter, description: Description, scope: Scope) -> Metadata:
        """Publish a file in ``staging/`` as an artifact of ``scope``. After an error only that file is left.

        ``file`` is this file, open and synced; it is closed before it has to be renamed.
        """
        digest = meter.sha256
        durable = description.durability == "disk"
        with self._tree.locked(digest) as folders, ExitStack() as undo:
            key, previous = _choose_id(folders, description.namespace, digest, scope)
            _link_blob(folders, staged, file, digest, undo, durable=durable)
            intent = f"{staged}.name"
            names = _ensure_name(folders, digest, previous, description, intent, undo)
            if durable:
                folders.root.sync()
            metadata = Metadata.new(key, meter, description, scope, old=previous, names=names)
            temporary = temporary_name()
            folders.staging.write(temporary, metadata.encode(), sync=durable)
            undo.callback(folders.staging.unlink, temporary)
            folders.staging.move(temporary, folders.meta, f"{key}.json")
            if previous:
                undo.pop_all()  # the old metadata is replaced, so everything that the new one names must stay
            else:
                undo.callback(folders.meta.unlink, f"{key}.json")
            if durable:
                folders.meta.sync()
            undo.pop_all()
            if self._index.live and (status := folders.meta.file_status(f"{key}.json")):
                self._index.put([(metadata, status.st_ino)])
            file.close()
            folders.staging.discard(intent)
            folders.staging.discard(staged)
        return metadata

    def remove(self, key: str, stored: float | None = None) -> bool:
        """Remove an artifact, all its names, and its content unless another artifact has the same.

        Returns ``False`` if there is none, or if ``stored`` is not the time of its last storing. An artifact that is
        stored again while this waits for the lock stays: the removal counts as the earlier of the two.
        """
        try:
            with self._tree.folder(".abp", "meta") as meta:
                before = read_metadata(meta, key)
        except FileNotFoundError:
            return False
        except ValueError:  # unreadable metadata can still be removed
            before = None
        if stored is not None and (before is None or before.stored != stored):
            return False
        with self._tree.locked(digest_prefix(key)) as folders:
            try:
                metadata = read_metadata(folders.meta, key)
            except FileNotFoundError:  # gone; or the file of another id, on a file system that ignores case
                return False
            except ValueError:
                metadata = None
            if before and metadata and metadata.stored != before.stored:
                return stored is None
            if not folders.meta.unlink(f"{key}.json"):
                return False
            folders.meta.sync()
            self._index.forget([key])
            if metadata:  # without readable metadata, the names and the content are unknown
                _remove_content(folders, metadata)
        return True

    def remove_orphan(self, digest: str) -> bool:
        """Remove content without metadata. Return ``False`` if it is gone, has metadata by now, or is open on
        Windows."""
        with self._tree.locked(digest) as folders:
            return not keys_of(folders, digest) and folders.blobs.discard(digest)

    def open(self, digest: str) -> int:
        with self._tree.folder(".abp", "blobs") as blobs:
            return blobs.open(digest)

    def quarantine(self, digest: str) -> bool:
        """Move a damaged blob to quarantine. Return ``False`` if it is intact or gone by now, or cannot be moved, as on
        Windows while it is being read."""
        with self._tree.locked(digest) as folders, suppress(PermissionError):
            # not by inode: a file that replaced it may have the same one
            if folders.blobs.file_status(digest) and not _is_intact(folders.blobs, digest, sync=False):
                folders.blobs.move(digest, folders.quarantine, digest)
                return True
        return False

    def quarantine_metadata(self, key: str) -> bool:
        """Move unreadable metadata to quarantine, with its content unless other metadata names that.

        The readable names of the content are removed. Content and names that are open on Windows are left to a sweep.
        Returns ``False`` if the metadata is gone, can be read by now, or cannot be moved.
        """
        prefix = digest_prefix(key)
        with self._tree.locked(prefix) as folders:
            try:
                with suppress(ValueError):
                    read_metadata(folders.meta, key)
                    return False
                folders.meta.move(f"{key}.json", folders.quarantine, f"{key}.json")
            except (FileNotFoundError, PermissionError):  # also for the file of another id: see :meth:`remove`
                return False
            folders.meta.sync()
            self._index.forget([key])
            for digest in folders.blobs.names():
                if digest.startswith(prefix) and not keys_of(folders, digest):
                    with suppress(PermissionError):
                        folders.blobs.move(digest, folders.quarantine, digest)
                    for name in folders.root.names():
                        if is_name_of(folders, name, digest):
                            _discard_name(folders, name, digest)
        return True


def keys_of(folders: StoreFolders, digest: str) -> list[str]:
    """Return the ids whose metadata may name a content: those with the first digits of its hash."""
    keys = (name.removesuffix(".json") for name in folders.meta.names())
    return [key for key in keys if (prefix := digest_prefix(key)) and digest.startswith(prefix)]


def is_name_of(folders: StoreFolders, name: str, digest: str) -> bool:
    """Return whether a readable name leads to a content, in its place or in quarantine."""
    return _same_file(folders.root, name, folders.blobs, digest) or _same_file(
        folders.root, name, folders.quarantine, digest
    )


def place(name: str, folder: Folder, target: Folder, new: str) -> None:
    """Rename a file without replacing another one: an empty file reserves the new name first. Raises
    :class:`FileExistsError`."""
    os.close(target.create(new))
    try:
        folder.move(name, target, new)
    except BaseException:
        target.unlink(new)
        raise


# --- steps of a commit and of a removal, under the lock of the content ------------------------------------------------


def _choose_id(folders: StoreFolders, namespace: str, digest: str, scope: Scope) -> tuple[str, Metadata | None]:
    """Return the id of an artifact, and the metadata that it has already."""
    for key in candidate_ids(namespace, digest, scope):
        try:
            metadata = read_metadata(folders.meta, key)
        except OtherCase:
            continue
        except (FileNotFoundError, ValueError):  # unreadable metadata is replaced
            return key, None
        if metadata.sha256 == digest:
            return key, metadata
    raise StoreError(f"every id of {digest} is taken by other content; delete {namespace}_{digest}")


def _link_blob(
    folders: StoreFolders, staged: str, file: FileIO, digest: str, undo: ExitStack, *, durable: bool
) -> None:
    status = folders.staging.file_status(staged)
    if status is None or not os.path.samestat(status, os.fstat(file.fileno())):
        raise StoreError("the staged file was replaced while it was read; nothing was stored")
    exists = folders.blobs.file_status(digest) is not None
    if exists and not _is_intact(folders.blobs, digest, sync=durable):
        logger.warning("the stored copy of %s was damaged; it is in quarantine and replaced", digest)
        folders.blobs.move(digest, folders.quarantine, digest)
        exists = False
    if not exists:
        if stat.S_IMODE(status.st_mode) != 0o600 and hasattr(os, "fchmod"):  # another program made it
            os.fchmod(file.fileno(), 0o600)
        try:
            folders.staging.link(staged, folders.blobs, digest)
            undo.callback(folders.blobs.unlink, digest)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            file.close()  # an open file cannot be renamed on Windows
            folders.staging.move(staged, folders.blobs, digest)
            undo.callback(folders.blobs.move, digest, folders.staging, staged)
    if durable:
        folders.blobs.sync()  # also for an existing blob: its writer may have died before this step


def _is_intact(blobs: Folder, digest: str, *, sync: bool) -> bool:
    fd = blobs.open(digest, TO_SYNC)
    try:
        if sync:  # its writer may not have synced it
            os.fsync(fd)
        return measure_file(fd, sys.maxsize).sha256 == digest
    except ABPError:  # it changed during the reading
        return False
    finally:
        os.close(fd)


def _ensure_name(
    folders: StoreFolders,
    digest: str,
    previous: Metadata | None,
    description: Description,
    intent: str,
    undo: ExitStack,
) -> tuple[Name, ...]:
    """Return all names of the artifact, the current one last. Its file exists when this returns."""
    requested = description.name if description.suggested else ""
    names = list(previous.names) if previous else []
    free_name = description.name
    for name in reversed(names):
        if requested in ("", name.requested):
            names.remove(name)
            if _same_file(folders.root, name.name, folders.blobs, digest):
                return (*names, name)
            if _same_file(folders.root, name.name, folders.quarantine, digest):
                _discard_name(folders, name.name, digest)  # damaged content, kept in quarantine
            if not folders.root.file_status(name.name):
                free_name, requested = name.name, name.requested
            break
    return (*names, Name(_add_name(folders, digest, free_name, intent, undo), requested))


def _add_name(folders: StoreFolders, digest: str, suggested: str, intent: str, undo: ExitStack) -> str:
    """Give a blob a readable name in the root and return it: the suggested one, or ``stem-2.ext``, ``stem-3.ext``… if
    that is taken.

    Nothing is overwritten. Without hard links the name is a copy, which cannot be distinguished from a user's file. So
    its name and the blob's are first written to the file ``intent`` in ``staging``, for a sweep if this process dies.
    The reversal of each step is pushed on ``undo``, for an error.
    """
    for name in _variations(suggested):
        try:
            folders.blobs.link(digest, folders.root, name)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            folders.staging.unlink(intent)
            undo.callback(folders.staging.unlink, intent)
            folders.staging.write(intent, f"{digest}\n{name}".encode(), sync=False)
            if not _copy_blob(folders, digest, name):
                continue
        undo.callback(folders.root.unlink, name)
        return name
    raise StoreError(f"every variation of the file name {suggested} is taken; suggest another one")


def _variations(name: str) -> Iterator[str]:
    stem, dot, extension = name.rpartition(".")
    yield name
    for number in range(2, 1000):
        yield f"{stem}-{number}{dot}{extension}"
    yield f"{stem}-{secrets.token_hex(8)}{dot}{extension}"


def _copy_blob(folders: StoreFolders, digest: str, name: str) -> bool:
    """Copy and sync a blob under a temporary name, then rename the copy. Return ``False`` if the name is taken."""
    with suppress(FileNotFoundError):
        folders.root.stat(name)
        return False
    temporary = temporary_name()
    source = folders.blobs.open(digest)
    try:
        target = folders.staging.create(temporary)
        try:
            while piece := os.read(source, PIECE):
                write_all(target, memoryview(piece))
            times = os.fstat(source)  # equal times mark an untouched copy, as opposed to a user's file
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
            os.fsync(target)
        finally:
            os.close(target)
        try:
            place(temporary, folders.staging, folders.root, name)
        except FileExistsError:
            return False
    finally:
        os.close(source)
        with suppress(OSError):
            folders.staging.unlink(temporary)
    return True


def _same_file(root: Folder, name: str, blobs: Folder, digest: str) -> bool:
    """Return whether a name leads to the blob, as a hard link or as an untouched copy."""
    named = root.file_status(name)
    blob = blobs.file_status(digest)
    if named is None or blob is None:
        return False
    if os.path.samestat(named, blob):
        return True
    # a copy has one link; times are coarse (some milliseconds), so links to other content may have the same time
    return named.st_nlink == 1 and (named.st_size, named.st_mtime_ns) == (blob.st_size, blob.st_mtime_ns)


def _remove_content(folders: StoreFolders, metadata: Metadata) -> None:
    """Remove the names of an artifact, and its content unless other metadata may name that. A user's file under one of
    the names stays."""
    digest = metadata.sha256
    names = [name.name for name in metadata.names if is_name_of(folders, name.name, digest)]
    removed = [_discard_name(folders, name, digest) for name in names]
    if all(removed) and not keys_of(folders, digest):  # otherwise a sweep needs the content to recognise the copy
        folders.blobs.discard(digest)
        folders.quarantine.discard(digest)


def _discard_name(folders: StoreFolders, name: str, digest: str) -> bool:
    """Remove a readable name. Return ``False`` if it is open and stays; an intent file then records it for a sweep."""
    if folders.root.discard(name) or not folders.root.file_status(name):
        return True
    with suppress(OSError):  # an error here must not stop the removal of the artifact
        folders.staging.write(f"-{secrets.token_hex(8)}.name", f"{digest}\n{name}".encode(), sync=False)
    return False
