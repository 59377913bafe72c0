"""The files of a run under names that its input gives, beside the store that keeps them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...artifacts import ArtifactRef, ArtifactStore
from ...artifacts.replacing import remove_left, temporary_path
from ...binary.filenames import safe_filename
from ...errors import ABPError, Corrupt, StoreError, UsageError
from ...protocol.strict_json import JSONValue
from ...tasks import in_thread
from ..jobs import State
from ..ledger import Ledger, Row

__all__ = ["export_files"]

#: What a name may be made of, besides what the input carried.
_FIELDS = ("id", "key", "capability", "field")
_FIELD = r"\{([^{}]*)\}"
#: Digits of a key that tell apart two jobs whose files have one name.
_DIGITS = 16
#: Bytes of a name before what tells it apart and its ending.
_MAX_BYTES = 80


async def export_files(ledger: Ledger, store: ArtifactStore, folder: Path, name: str = "{id}") -> int:
    """Put the files of all jobs that succeeded into ``folder``, and return how many they are.

    ``name`` has fields in braces: ``id`` (a part of the key where the job has none), ``key``, ``capability``, ``field``
    (the file's place in the answer) and what the input carried. The file's own ending is added, before it the place if
    a job has several files and ``name`` does not say ``field``, and a part of the key if another job has the name, then
    the row's position if another line of the job has. A file is a hard link into a store on the same file system, else
    a copy; one that is there already is replaced.

    Raises :class:`~transports.errors.UsageError` for a ``name`` with a field that the first job does not have, and for
    the store's own folder; :class:`~transports.errors.StoreError` if a file cannot be written or has no name
    of its own, and at the end if some are no longer there; :class:`~transports.errors.Corrupt` for one that is damaged.
    """
    used: set[int] = set()
    made = lost = 0
    checked = False
    await in_thread(remove_left, folder)
    async for row in ledger.rows(State.SUCCEEDED):
        if not checked:  # a column of which some cells are empty is one all the same
            _check(name, row)
            checked = True
        for number, file in enumerate(row.artifacts):
            try:
                ref = await store.stat(str(file.get("id")))
            except ABPError:
                lost += 1
                continue
            stem = _stem(name, row, file)
            longer = f"{stem}-{row.key[:_DIGITS]}"
            for chosen in (stem, longer, f"{longer}-{number}", f"{longer}-{row.position}-{number}"):
                chosen = safe_filename(
                    f"{chosen}{Path(ref.filename).suffix}", fallback=row.key, mime_type=ref.mime_type
                )
                if (known := hash(chosen.casefold())) not in used:
                    used.add(known)  # eight bytes of each name, not the name
                    await _put(store, ref, folder / chosen)
                    made += 1
                    break
            else:
                raise StoreError(f"all names for a file of job {row.job.id or row.key} are taken; give --name {{key}}")
    if lost:
        what = "1 file is" if lost == 1 else f"{lost} files are"
        raise StoreError(f"{what} no longer in the store, {made} in {folder}; name the run's store with --store")
    return made


def _check(name: str, row: Row) -> None:
    known = dict.fromkeys([*_FIELDS, *row.job.carried])
    for field in re.findall(_FIELD, name):
        if field not in known:
            given = ", ".join(known)
            raise UsageError(f"--name: there is no {{{field}}}; the fields of job {row.job.id or row.key} are {given}")


def _stem(name: str, row: Row, file: Mapping[str, JSONValue]) -> str:
    field = str(file.get("field") or "")
    given = {**row.job.carried, "id": row.job.id or row.key[:_DIGITS], "key": row.key, "capability": row.job.capability}
    given["field"] = field

    stem = re.sub(_FIELD, lambda match: str(given.get(match[1], "")), name)
    if len(row.artifacts) > 1 and field and "{field}" not in name:
        stem += f"-{field}"
    return re.sub(r"[/\\]", "_", stem).encode(errors="replace")[:_MAX_BYTES].decode(errors="ignore")


async def _put(store: ArtifactStore, ref: ArtifactRef, path: Path) -> None:
    if ref.path is None or not await in_thread(_link, ref, ref.path, path):
        await store.export(ref, path)


def _link(ref: ArtifactRef, file: Path, path: Path) -> bool:
    """Make ``path`` another name of ``file``, the artifact's own, and return whether the file system can."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.parent.samefile(path.parent):
            raise UsageError(f"--files: {path.parent} is the store itself; name another folder")
        with file.open("rb") as opened:
            if hashlib.file_digest(opened, "sha256").hexdigest() != ref.sha256:
                raise Corrupt(
                    f"artifact {ref.id} is damaged: its content does not match its hash; nothing was written to {path}",
                    details={"id": ref.id},
                )
        if path.exists() and path.samefile(file):
            return True
        new = temporary_path(path)
        try:
            os.link(file, new)
            new.replace(path)
        finally:
            with suppress(OSError):  # the first error counts
                new.unlink(missing_ok=True)
    except OSError:
        return False
    return True
