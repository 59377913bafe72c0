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
The lock file holds random bytes that change with the ids of its content, so a process that deletes many artifacts reads
the names of all metadata once for each lock, not for each artifact.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import FileIO

from ...errors import StoreError
from .._content import Description
from .._files import PIECE, TO_SYNC, read_at, write_all
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
        #: Ids by the digits of their lock, as they were when this process deleted one.
        self._known_ids: dict[str, _KnownIds] = {}

    def publish(
        self, folders: StoreFolders, staged: str, file: FileIO, description: Description, scope: Scope
    ) -> Metadata:
        """Commit the staged file, which is open as ``file`` and synced; it is closed. After an error only this file is
        left."""
        digest = description.sha256
        durable = description.durability == "disk"
        with self._tree.lock(folders, digest) as lock, ExitStack() as undo:
            key, previous = _choose_id(folders, description, scope)

            commit = _Commit(folders, undo, staged, digest, durable)
            commit.link_blob(file)
            # Some file systems report only here what they could not write. The error still takes the link back.
            file.close()
            names = commit.ensure_name(description, previous)
            if durable:
                folders.root.sync()

            metadata = Metadata.new(key, description, scope, old=previous, names=names)
            if previous is None:
                # Do this before the id exists: a process that remembers the ids must never miss this one.
                _renew_state(lock)
            commit.write_metadata(metadata, replaces_old=previous is not None)
            # The artifact exists now, so no step is taken back any more, and later errors are ignored.
            undo.pop_all()
            with suppress(OSError):
                if self._index.live:
                    status = folders.meta.file_status(f"{key}.json")
                    if status is not None:
                        self._index.put([(metadata, status.st_ino)])

                if commit.has_intent:
                    folders.staging.discard(commit.intent)
                folders.staging.discard(staged)
        return metadata

    def remove(self, key: str, stored: float | None = None) -> bool:
        """Remove an artifact. Return ``False`` if it does not exist, or was not last stored at ``stored``. An artifact
        that is stored again while this waits for the lock stays: the removal counts as the earlier of the two."""
        try:
            with self._tree.folder(".abp", "meta") as meta:
                first_seen = _read_if_valid(meta, key)
        except FileNotFoundError:
            return False
        if stored is not None and (first_seen is None or first_seen.stored != stored):
            return False

        with self._tree.folders() as folders, self._tree.lock(folders, digest_prefix(key)) as lock:
            try:
                metadata = _read_if_valid(folders.meta, key)
            except FileNotFoundError:
                # The artifact is gone, or this is the file of another id, on a file system that ignores case.
                return False
            is_stored_again = first_seen and metadata and metadata.stored != first_seen.stored
            if is_stored_again:
                # The removal counts as done before, unless the caller means one certain time of storing.
                return stored is None

            remaining_ids = self._delete_metadata(folders, lock, key)
            # Without readable metadata, the names and the content are unknown.
            if metadata and remaining_ids is not None:
                _remove_content(folders, metadata, remaining_ids)
        return remaining_ids is not None

    def _delete_metadata(self, folders: StoreFolders, lock: int, key: str) -> set[str] | None:
        """Delete the metadata of an id. Return the ids that may share its content, or ``None`` if the file was gone."""
        digits = digest_prefix(key)[:2]
        known_ids = self._pop_known_ids(folders, lock, digits)
        if not folders.meta.unlink(f"{key}.json"):
            return None
        known_ids.ids.discard(key)
        # A full disk must not stop a removal. Other processes then remember the id, and leave its content to a sweep.
        with suppress(OSError):
            known_ids.state = _renew_state(lock)
            self._known_ids[digits] = known_ids
        folders.meta.sync()
        self._index.forget([key])
        return known_ids.ids

    def _pop_known_ids(self, folders: StoreFolders, lock: int, prefix: str) -> _KnownIds:
        """Return the ids under a lock, and forget them here, so that none is out of date after an error. The caller
        adds them again."""
        known_ids = self._known_ids.pop(prefix, None)
        if known_ids is None or known_ids.state != read_at(lock, _STATE_BYTES, 0):
            return _KnownIds(b"", _ids_with_lock(folders, prefix))
        return known_ids

    def is_orphan(self, digest: str) -> bool:
        """Return whether content has no readable metadata, and no process stores or deletes it at this moment."""
        try:
            with self._tree.locked(digest) as folders:
                records = [_read_if_valid(folders.meta, key) for key in keys_of(folders, digest)]
                is_named = any(metadata and metadata.sha256 == digest for metadata in records)
                return not is_named and folders.blobs.file_status(digest) is not None
        except OSError:
            # Nothing can be locked in a read-only store.
            return True

    def remove_orphan(self, digest: str) -> bool:
        """Remove content without metadata. Return ``False`` if it is gone, has metadata now, or is open on Windows."""
        with self._tree.locked(digest) as folders:
            return not keys_of(folders, digest) and folders.blobs.discard(digest)

    def quarantine(self, digest: str) -> bool:
        """Move a damaged blob to quarantine. Return ``False`` if it is intact or gone by now, or is read on Windows."""
        with self._tree.locked(digest) as folders, suppress(PermissionError):
            # Compare the content, not the inode: a file that replaced the damaged one may have the same inode.
            if folders.blobs.file_status(digest) and not _is_intact(folders.blobs, digest, sync=False):
                folders.blobs.move(digest, folders.quarantine, digest)
                return True
        return False

    def quarantine_metadata(self, key: str) -> bool:
        """Move unreadable metadata to quarantine, with its content unless other metadata names that. What is open on
        Windows is left to a sweep. Return ``False`` if the metadata is gone, can be read by now, or cannot be moved."""
        prefix = digest_prefix(key)
        with self._tree.folders() as folders, self._tree.lock(folders, prefix) as lock:
            # A full disk must not stop this, as in :meth:`_delete_metadata`.
            with suppress(OSError):
                _renew_state(lock)
            try:
                if _read_if_valid(folders.meta, key) is not None:
                    return False
                folders.meta.move(f"{key}.json", folders.quarantine, f"{key}.json")
            except (FileNotFoundError, PermissionError):
                # A missing file may also be the file of another id: see :meth:`remove`.
                return False
            folders.meta.sync()
            self._index.forget([key])

            for digest in folders.blobs.names():
                if digest.startswith(prefix) and not keys_of(folders, digest):
                    _quarantine_content(folders, digest)
        return True


@dataclass(slots=True)
class _KnownIds:
    """The ids of content with one lock, as long as the lock file has this ``state``."""

    state: bytes
    ids: set[str]


_STATE_BYTES = 16


def _renew_state(lock: int) -> bytes:
    """Write new random bytes into a lock file, so that no process relies on the ids that it remembers."""
    state = secrets.token_bytes(_STATE_BYTES)
    os.lseek(lock, 0, os.SEEK_SET)
    write_all(lock, memoryview(state))
    return state


def _ids_with_lock(folders: StoreFolders, digits: str) -> set[str]:
    """Return the ids with metadata whose content has the lock of these two digits."""
    # First leave out most names by a search, which is much faster than taking all names apart.
    names = [name for name in folders.meta.names() if f"_{digits}" in name]
    keys = [name.removesuffix(".json") for name in names]
    return {key for key in keys if digest_prefix(key).startswith(digits)}


def keys_of(folders: StoreFolders, digest: str) -> list[str]:
    """Return the ids whose metadata may name a content: they contain the first digits of its hash."""
    return [key for key in _ids_with_lock(folders, digest[:2]) if digest.startswith(digest_prefix(key))]


def is_name_of(folders: StoreFolders, name: str, digest: str) -> bool:
    return any(_is_same_file(folders.root, name, folder, digest) for folder in (folders.blobs, folders.quarantine))


def move_without_replacing(name: str, folder: Folder, target: Folder, new: str) -> None:
    """Move a file, but reserve its new name by an empty file first. Raises :class:`FileExistsError`."""
    os.close(target.create(new))
    try:
        folder.move(name, target, new)
    except BaseException:
        target.unlink(new)
        raise


def _read_if_valid(meta: Folder, key: str) -> Metadata | None:
    try:
        return read_metadata(meta, key)[0]
    except ValueError:
        return None


# --- steps of a commit, under the lock of the content -----------------------------------------------------------------


def _choose_id(folders: StoreFolders, description: Description, scope: Scope) -> tuple[str, Metadata | None]:
    """Return the id for content, and its metadata if the same content is stored already."""
    namespace, digest = description.namespace, description.sha256
    for key in candidate_ids(namespace, digest, scope):
        try:
            metadata = _read_if_valid(folders.meta, key)
        except OtherCase:
            continue
        except FileNotFoundError:
            return key, None
        # Damaged metadata (None) is replaced.
        if metadata is None or metadata.sha256 == digest:
            return key, metadata
    raise StoreError(f"every id of {digest} is taken by other content; delete {namespace}_{digest}")


@dataclass(slots=True)
class _Commit:
    """A staged file on its way to its place. ``undo`` takes the steps back after an error; ``durable`` steps are synced
    to the disk."""

    folders: StoreFolders
    undo: ExitStack
    staged: str
    digest: str
    durable: bool
    has_intent: bool = False

    @property
    def intent(self) -> str:
        """Name of the file in ``staging/`` that records a readable name, for a sweep if this process dies."""
        return f"{self.staged}.name"

    def link_blob(self, file: FileIO) -> None:
        """Make the staged file the blob of its content, unless an intact blob exists. A damaged blob is replaced."""
        staging, blobs = self.folders.staging, self.folders.blobs
        status = staging.file_status(self.staged)
        if status is None or not os.path.samestat(status, os.fstat(file.fileno())):
            raise StoreError("the staged file was replaced while it was read; nothing was stored")

        exists = blobs.file_status(self.digest) is not None
        if exists and not _is_intact(blobs, self.digest, sync=self.durable):
            logger.warning("the stored copy of %s was damaged; it is in quarantine and replaced", self.digest)
            blobs.move(self.digest, self.folders.quarantine, self.digest)
            exists = False

        if not exists:
            # The mode differs if another program made the file.
            if stat.S_IMODE(status.st_mode) != 0o600 and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o600)
            self._link_or_move(file)
        if self.durable:
            # Sync the names even for an existing blob: its writer may have died before this step.
            blobs.sync()

    def _link_or_move(self, file: FileIO) -> None:
        staging, blobs = self.folders.staging, self.folders.blobs
        try:
            staging.link(self.staged, blobs, self.digest)
            self.undo.callback(blobs.unlink, self.digest)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            # Windows cannot rename an open file.
            file.close()
            staging.move(self.staged, blobs, self.digest)
            self.undo.callback(blobs.move, self.digest, staging, self.staged)

    def ensure_name(self, description: Description, previous: Metadata | None) -> tuple[Name, ...]:
        """Return all names of the artifact, the current one last. Its file exists when this returns."""
        root = self.folders.root
        suggested = description.name
        requested = suggested if description.suggested else ""
        names = list(previous.names) if previous else []

        # Use the newest name again or, if the caller requests a name, the newest for which that was requested.
        matching = (name for name in reversed(names) if requested in ("", name.requested))
        old_name = next(matching, None)
        if old_name is not None:
            names.remove(old_name)
            if _is_same_file(root, old_name.name, self.folders.blobs, self.digest):
                return (*names, old_name)

            if _is_same_file(root, old_name.name, self.folders.quarantine, self.digest):
                # The damaged content stays in quarantine.
                _discard_name(self.folders, old_name.name, self.digest)
            if not root.file_status(old_name.name):
                # The file of the name is gone, so make it again.
                suggested, requested = old_name.name, old_name.requested

        return (*names, Name(self._add_name(suggested), requested))

    def _add_name(self, suggested: str) -> str:
        """Link a free name: ``stem-2.ext``, ``stem-3.ext``… are tried if the suggested one is taken."""
        for name in _variations(suggested):
            if self._link_or_copy_blob(name):
                self.undo.callback(self.folders.root.unlink, name)
                return name
        raise StoreError(f"every variation of the file name {suggested} is taken; suggest another one")

    def _link_or_copy_blob(self, name: str) -> bool:
        """Make a hard link or, on a file system without them, a copy. Return ``False`` if the name is taken."""
        try:
            self.folders.blobs.link(self.digest, self.folders.root, name)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise

        # A copy cannot be distinguished from a user's file. So an intent file first records the name and the blob.
        staging = self.folders.staging
        staging.unlink(self.intent)
        self.has_intent = True
        self.undo.callback(staging.unlink, self.intent)
        staging.write(self.intent, _intent_content(self.digest, name), sync=False)
        return _copy_blob(self.folders, self.digest, name)

    def write_metadata(self, metadata: Metadata, *, replaces_old: bool) -> None:
        """Write the metadata, which makes the artifact visible."""
        staging, meta = self.folders.staging, self.folders.meta
        file_name = f"{metadata.id}.json"
        temporary = temporary_name()
        staging.write(temporary, metadata.encode(), sync=self.durable)
        self.undo.callback(staging.unlink, temporary)
        staging.move(temporary, meta, file_name)

        if replaces_old:
            # The old metadata is gone, so everything that the new metadata names must stay.
            self.undo.pop_all()
        else:
            self.undo.callback(meta.unlink, file_name)
        if self.durable:
            meta.sync()


def _is_intact(blobs: Folder, digest: str, *, sync: bool) -> bool:
    with FileIO(blobs.open(digest, TO_SYNC)) as blob:
        if sync:
            # The process that wrote the blob may not have synced it.
            os.fsync(blob.fileno())
        return hashlib.file_digest(blob, "sha256").hexdigest() == digest


def _variations(name: str) -> Iterator[str]:
    stem, dot, extension = name.rpartition(".")
    yield name
    for number in range(2, 1000):
        yield f"{stem}-{number}{dot}{extension}"
    yield f"{stem}-{secrets.token_hex(8)}{dot}{extension}"


def _intent_content(digest: str, name: str) -> bytes:
    return f"{digest}\n{name}".encode()


def _copy_blob(folders: StoreFolders, digest: str, name: str) -> bool:
    """Copy and sync a blob under a temporary name, then rename the copy. Return ``False`` if the name is taken."""
    with suppress(FileNotFoundError):
        # If this raises no error, a file of this name exists.
        folders.root.stat(name)
        return False

    temporary = temporary_name()
    try:
        _write_copy(folders, digest, temporary)
        try:
            move_without_replacing(temporary, folders.staging, folders.root, name)
        except FileExistsError:
            return False
    finally:
        with suppress(OSError):
            folders.staging.unlink(temporary)
    return True


def _write_copy(folders: StoreFolders, digest: str, copy_name: str) -> None:
    source = folders.blobs.open(digest)
    try:
        target = folders.staging.create(copy_name)
        try:
            while piece := os.read(source, PIECE):
                write_all(target, memoryview(piece))
            # Equal times distinguish an untouched copy from a user's file.
            times = os.fstat(source)
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
            os.fsync(target)
        finally:
            os.close(target)
    finally:
        os.close(source)


# --- steps of a removal, under the lock of the content ----------------------------------------------------------------


def _is_same_file(root: Folder, name: str, blobs: Folder, digest: str) -> bool:
    """Return whether a name leads to the blob, as a hard link or as an untouched copy."""
    status = root.file_status(name)
    blob = blobs.file_status(digest)
    if status is None or blob is None:
        return False
    if os.path.samestat(status, blob):
        return True
    # A copy has one link. Links to other content may have the same time, because times are coarse (milliseconds).
    return status.st_nlink == 1 and (status.st_size, status.st_mtime_ns) == (blob.st_size, blob.st_mtime_ns)


def _remove_content(folders: StoreFolders, metadata: Metadata, known_ids: Collection[str]) -> None:
    """Remove content and its names, but no file of a user. ``known_ids`` are the other ids under its lock."""
    digest = metadata.sha256
    names = [name.name for name in metadata.names if is_name_of(folders, name.name, digest)]
    were_removed = [_discard_name(folders, name, digest) for name in names]
    # Keep the content while a name of it stays: by the content, a sweep recognises a copy.
    if all(were_removed) and not _is_shared(folders, metadata, known_ids):
        folders.blobs.discard(digest)
        folders.quarantine.discard(digest)


def _is_shared(folders: StoreFolders, metadata: Metadata, known_ids: Collection[str]) -> bool:
    """Return whether other metadata may name the content of an artifact whose names are removed."""
    digest = metadata.sha256
    if any(digest.startswith(digest_prefix(key)) for key in known_ids):
        return True
    # Damaged metadata may name content of another lock. Metadata that another program put there, such as a backup or an
    # older version, did not change the lock file, but its name is a link to the content.
    is_of_lock = digest.startswith(digest_prefix(metadata.id))
    blob = folders.blobs.file_status(digest)
    has_other_names = blob is not None and blob.st_nlink > 1
    if is_of_lock and not has_other_names:
        return False
    return bool(keys_of(folders, digest))


def _quarantine_content(folders: StoreFolders, digest: str) -> None:
    """Move content and remove its readable names, except what is open on Windows."""
    with suppress(PermissionError):
        folders.blobs.move(digest, folders.quarantine, digest)
    for name in folders.root.names():
        if is_name_of(folders, name, digest):
            _discard_name(folders, name, digest)


def _discard_name(folders: StoreFolders, name: str, digest: str) -> bool:
    """Remove a readable name. Return ``False`` if it is open and stays; an intent file then records it for a sweep."""
    if folders.root.discard(name) or not folders.root.file_status(name):
        return True
    # An error here must not stop the removal of the artifact.
    with suppress(OSError):
        folders.staging.write(f"-{secrets.token_hex(8)}.name", _intent_content(digest, name), sync=False)
    return False
