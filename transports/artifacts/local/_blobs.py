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
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from ...errors import ABPError, StoreError
from .._content import Description, Meter, measure_file
from .._files import TO_SYNC, write_all
from .._ref import Metadata, Name, OtherCase, Scope, candidate_ids, digest_prefix
from ._catalog import read_metadata
from ._index import Index
from ._tree import Folder, OpenFile, OpenFolders, Tree, temporary_name, use

logger = logging.getLogger("transports.artifacts")

#: Error numbers for a file system without hard links, or with no more links for this file.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_TRIES = 1000
_PIECE = 1 << 20


def add_readable_name(
    blob: str, blobs: Folder, root: Folder, staging: Folder, wanted: str, intent: str, undo: ExitStack
) -> str:
    """Give a blob a readable name in ``root`` and return it: ``wanted``, or ``stem-2.ext``, ``stem-3.ext``… if taken.

    Nothing is overwritten. Without hard links the name is a copy, which cannot be distinguished from a user's file. So
    its name and the blob's are first written to the file ``intent`` in ``staging``, for a sweep if this process dies.
    The reversal of each step is pushed on ``undo``, for an error.
    """
    for name in _candidates(wanted):
        try:
            blobs.link(blob, root, name)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            staging.unlink(intent)
            undo.callback(staging.unlink, intent)
            staging.write(intent, _intent(blob, name), sync=False)
            if not _copy(blob, blobs, root, staging, name):
                continue
        undo.callback(root.unlink, name)
        return name
    raise StoreError(f"every variation of the file name {wanted} is taken; suggest another one")


def discard_name(name: str, root: Folder, blob: str, staging: Folder) -> bool:
    """Remove a readable name. Return ``False`` if it is open and stays; an intent file then records it for a sweep."""
    if root.discard(name) or not root.lstat(name):
        return True
    with suppress(OSError):  # an error here must not stop the removal of the artifact
        staging.write(f"-{secrets.token_hex(8)}.name", _intent(blob, name), sync=False)
    return False


def _intent(blob: str, name: str) -> bytes:
    return f"{blob}\n{name}".encode()


def _candidates(wanted: str) -> Iterator[str]:
    stem, dot, extension = wanted.rpartition(".")
    yield wanted
    for number in range(2, _TRIES):
        yield f"{stem}-{number}{dot}{extension}"
    yield f"{stem}-{secrets.token_hex(8)}{dot}{extension}"


def _copy(blob: str, blobs: Folder, root: Folder, staging: Folder, name: str) -> bool:
    """Copy and sync a blob under a temporary name, then rename the copy. Return ``False`` if the name is taken."""
    if _exists(name, root):
        return False
    temporary = temporary_name()
    source = blobs.open(blob)
    try:
        target = staging.create(temporary)
        try:
            while chunk := os.read(source, _PIECE):
                write_all(target, memoryview(chunk))
            times = os.fstat(source)  # equal times mark an untouched copy, as opposed to a user's file
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
            os.fsync(target)
        finally:
            os.close(target)
        try:
            place(temporary, staging, root, name)
        except FileExistsError:
            return False
    finally:
        os.close(source)
        with suppress(OSError):
            staging.unlink(temporary)
    return True


def place(name: str, folder: Folder, target: Folder, new: str) -> None:
    """Rename a file without replacing another one: an empty file reserves the new name first. Raises
    :class:`FileExistsError`."""
    os.close(target.create(new))
    try:
        folder.move(name, target, new)
    except BaseException:
        target.unlink(new)
        raise


def _exists(name: str, folder: Folder) -> bool:
    try:
        folder.stat(name)
    except FileNotFoundError:
        return False
    return True


def same_file(name: str, folder: Folder, blob: str, blobs: Folder) -> bool:
    """Return whether a name leads to the blob, as a hard link or as an untouched copy."""
    named, content = folder.lstat(name), blobs.lstat(blob)
    if named is None or content is None:
        return False
    if os.path.samestat(named, content):
        return True
    # a copy has one link; times are coarse (some milliseconds), so links to other content may have the same time
    return named.st_nlink == 1 and (named.st_size, named.st_mtime_ns) == (content.st_size, content.st_mtime_ns)


class ContentFolders(NamedTuple):
    """The open folders of the store while the lock of a content is held."""

    root: Folder
    staging: Folder
    blobs: Folder
    meta: Folder
    quarantine: Folder


class BlobStore:
    """The content, readable names and metadata below one root.

    Every method blocks and raises :class:`OSError`.
    """

    def __init__(self, tree: Tree, index: Index) -> None:
        self._tree = tree
        self._index = index

    @contextmanager
    def locked(self, digest: str, opened: OpenFolders | None = None) -> Iterator[ContentFolders]:
        """Hold the lock of a content for the block. With ``opened`` folders, raises :class:`~._tree.LockBusy` rather
        than wait for the lock."""
        with use(opened, self._tree) as at, at.lock(digest[:2], wait=opened is None):
            parts = ("staging", "blobs", "meta", "quarantine")
            yield ContentFolders(at.at(), *(at.at(".abp", part) for part in parts))

    def publish(
        self,
        staged: OpenFile,
        meter: Meter,
        description: Description,
        scope: Scope,
        folders: OpenFolders | None = None,
    ) -> Metadata:
        """Publish a staged file as an artifact of ``scope`` and return its metadata.

        ``staged`` must be synced; it is closed before it has to be renamed. After an error only the staged file is
        left. With open ``folders``, raises :class:`~._tree.LockBusy` instead of waiting for another commit or
        delete of the same content.
        """
        digest = meter.sha256
        with self.locked(digest, folders) as at, ExitStack() as undo:
            key, old = self._key(at, description.namespace, digest, scope)
            durable = description.durability == "disk"
            self._link_blob(at, staged, digest, undo, durable=durable)
            names = self._ensure_name(at, digest, old, description, f"{staged.name}.name", undo)
            if durable:
                at.root.sync()
            metadata = Metadata.new(key, meter, description, scope, old=old, names=names)
            temporary = temporary_name()
            at.staging.write(temporary, metadata.encode(), sync=durable)
            undo.callback(at.staging.unlink, temporary)
            at.staging.move(temporary, at.meta, f"{key}.json")
            if old:
                undo.pop_all()  # the old metadata is replaced, so everything that the new one names must stay
            else:
                undo.callback(at.meta.unlink, f"{key}.json")
            if durable:
                at.meta.sync()
            undo.pop_all()
            if self._index.live and (found := at.meta.lstat(f"{key}.json")):
                self._index.put([(metadata, found.st_ino)])
            staged.close()
            at.staging.discard(f"{staged.name}.name")
            at.staging.discard(staged.name)
        return metadata

    def _key(self, at: ContentFolders, namespace: str, digest: str, scope: Scope) -> tuple[str, Metadata | None]:
        for key in candidate_ids(namespace, digest, scope):
            try:
                old = read_metadata(at.meta, key)
            except OtherCase:
                continue
            except (FileNotFoundError, ValueError):  # unreadable metadata is replaced
                return key, None
            if old.sha256 == digest:
                return key, old
        raise StoreError(f"every id of {digest} is taken by other content; delete {namespace}_{digest}")

    def _link_blob(self, at: ContentFolders, staged: OpenFile, digest: str, undo: ExitStack, *, durable: bool) -> None:
        found = at.staging.lstat(staged.name)
        if found is None or not os.path.samestat(found, os.fstat(staged.fd)):
            raise StoreError("the staged file was replaced while it was read; nothing was stored")
        there = at.blobs.lstat(digest)
        if there and not _is_intact(at, digest, sync=durable):
            logger.warning("the stored copy of %s was damaged; it is in quarantine and replaced", digest)
            at.blobs.move(digest, at.quarantine, digest)
            there = None
        if not there:
            if stat.S_IMODE(found.st_mode) != 0o600 and hasattr(os, "fchmod"):  # another program made it
                os.fchmod(staged.fd, 0o600)
            try:
                at.staging.link(staged.name, at.blobs, digest)
                undo.callback(at.blobs.unlink, digest)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                staged.close()  # an open file cannot be renamed on Windows
                at.staging.move(staged.name, at.blobs, digest)
                undo.callback(at.blobs.move, digest, at.staging, staged.name)
        if durable:
            at.blobs.sync()  # also for an existing blob: its writer may have died before this step

    def _ensure_name(
        self,
        at: ContentFolders,
        digest: str,
        old: Metadata | None,
        description: Description,
        intent: str,
        undo: ExitStack,
    ) -> tuple[Name, ...]:
        """Return all names of the artifact, the current one last. Its file exists when this returns."""
        requested = description.name if description.suggested else ""
        names = old.names if old else ()
        known = next((name for name in reversed(names) if requested in ("", name.requested)), None)
        wanted = description.name
        if known:
            names = tuple(name for name in names if name != known)
            if same_file(known.name, at.root, digest, at.blobs):
                return (*names, known)
            if same_file(known.name, at.root, digest, at.quarantine):
                discard_name(known.name, at.root, digest, at.staging)  # damaged content, kept in quarantine
            if not at.root.lstat(known.name):
                wanted, requested = known.name, known.requested
        name = add_readable_name(digest, at.blobs, at.root, at.staging, wanted, intent, undo)
        return (*names, Name(name, requested))

    def remove(self, key: str, stored: float | None = None) -> bool:
        """Remove an artifact, all its names, and its content unless another artifact has the same.

        Returns ``False`` if there is no such artifact, or if ``stored`` is not the time of its last storing. An
        artifact that is stored again while this waits for the lock stays: the removal counts as the earlier of the two.
        """
        digest = digest_prefix(key)
        try:
            with self._tree.folder(".abp", "meta") as meta:
                before = read_metadata(meta, key)
        except FileNotFoundError:
            return False
        except ValueError:  # unreadable metadata can still be removed
            before = None
        if stored is not None and (before is None or before.stored != stored):
            return False
        with self.locked(digest) as at:
            try:
                metadata = read_metadata(at.meta, key)
            except FileNotFoundError:  # gone; or the file of another id, on a file system that ignores case
                return False
            except ValueError:
                metadata = None
            if before and metadata and metadata.stored != before.stored:
                return stored is None
            if not at.meta.unlink(f"{key}.json"):
                return False
            at.meta.sync()
            self._index.forget([key])
            if metadata is None:
                return True  # without readable metadata, the names and the content are unknown
            digest, stays = metadata.sha256, False
            for name in metadata.names:  # a user's file under the name stays
                if any(same_file(name.name, at.root, digest, folder) for folder in (at.blobs, at.quarantine)):
                    stays |= not discard_name(name.name, at.root, digest, at.staging)
            if not stays and not _named(at, digest):  # otherwise a sweep needs the content to recognise the copy
                at.blobs.discard(digest)
                at.quarantine.discard(digest)
        return True

    def remove_orphan(self, digest: str) -> bool:
        """Remove content without metadata. Return ``False`` if it is gone, has metadata by now, or is open on
        Windows."""
        with self.locked(digest) as at:
            return not _named(at, digest) and at.blobs.discard(digest)

    def open(self, digest: str) -> int:
        """Return a descriptor to read a blob from. Raises :class:`FileNotFoundError`."""
        with self._tree.folder(".abp", "blobs") as blobs:
            return blobs.open(digest)

    def quarantine(self, digest: str) -> bool:
        """Move a damaged blob to quarantine. Return ``False`` if it is intact or gone by now, or cannot be moved, as on
        Windows while it is being read."""
        with self.locked(digest) as at, suppress(PermissionError):
            # not by inode: a file that replaced it may have the same one
            if at.blobs.lstat(digest) and not _is_intact(at, digest, sync=False):
                at.blobs.move(digest, at.quarantine, digest)
                return True
        return False

    def quarantine_metadata(self, key: str) -> bool:
        """Move unreadable metadata to quarantine, with its content unless other metadata names that.

        The readable names of the content are removed. Content and names that are open on Windows are left to a sweep.
        Returns ``False`` if the metadata is gone, can be read by now, or cannot be moved.
        """
        digest = digest_prefix(key)
        with self.locked(digest) as at:
            try:
                with suppress(ValueError):
                    read_metadata(at.meta, key)
                    return False
                at.meta.move(f"{key}.json", at.quarantine, f"{key}.json")
            except (FileNotFoundError, PermissionError):  # also for the file of another id: see :meth:`remove`
                return False
            at.meta.sync()
            self._index.forget([key])
            for content in at.blobs.names():
                if content.startswith(digest) and not _named(at, content):
                    with suppress(PermissionError):
                        at.blobs.move(content, at.quarantine, content)
                    for name in at.root.names():
                        if any(same_file(name, at.root, content, folder) for folder in (at.blobs, at.quarantine)):
                            discard_name(name, at.root, content, at.staging)
        return True


def _named(at: ContentFolders, digest: str) -> bool:
    return any(keys_of(at, digest))


def keys_of(at: ContentFolders, digest: str) -> list[str]:
    """Return the ids whose metadata may name a content: those with the first digits of its hash."""
    keys = (name.removesuffix(".json") for name in at.meta.names())
    return [key for key in keys if (start := digest_prefix(key)) and digest.startswith(start)]


def _is_intact(at: ContentFolders, digest: str, *, sync: bool) -> bool:
    fd = at.blobs.open(digest, TO_SYNC)
    try:
        if sync:  # its writer may not have synced it
            os.fsync(fd)
        return measure_file(fd, sys.maxsize).sha256 == digest
    except ABPError:  # it changed during the reading
        return False
    finally:
        os.close(fd)
