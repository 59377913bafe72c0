"""A whole batch: its folder, its input, its work and what it leaves behind."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...artifacts import ArtifactRef, ArtifactStore, remove_left, temporary_path
from ...binary import safe_filename
from ...errors import ABPError, Corrupt, LedgerError, StoreError, UsageError
from ...protocol import JSONValue
from ...tasks import in_thread
from .._consent import Consent
from .._jobs import Job, State
from ..ledger import Added, Ledger, Row, Settlement, open_ledger
from ..pool import Pool
from ._outputs import export_run
from ._reading import fingerprint, read_jobs, require_input, spool_jobs
from ._runner import Driver, OnSettled, Runner, RunOptions, pool_size

Source = str | os.PathLike[str] | Iterable[Job]


def open_run(out: str | os.PathLike[str], *, read_only: bool = False) -> Ledger:
    """Return the ledger of an existing run: of a folder, or of a ``postgresql://`` address. One that is ``read_only``
    can be looked at alone, also where nothing can be written. Raises
    :class:`~transports.errors.LedgerError` for a folder without one; so does opening it if it has no input."""
    place = os.fspath(out)
    if "://" not in place and not (Path(place) / "ledger.sqlite").is_file():
        raise LedgerError(f"{place} has no run; `abp batch run JOBS --out {place}` begins one")
    return open_ledger(place, existing=True, read_only=read_only)


async def add_input(
    ledger: Ledger,
    source: Source,
    folder: Path,
    *,
    target: str | None = None,
    extend: bool = False,
    consent: Consent | None = None,
) -> Added:
    """Add the jobs of a file or of an iterable to a ledger; all of them, or none. Those of an iterable are first
    written to ``folder``. A line that goes beyond ``consent`` is no job.

    Raises :class:`~transports.errors.UsageError` for what is no job, and for another input than the run has unless
    ``extend``; :class:`~transports.errors.LedgerError`."""

    def prepare() -> tuple[Path, str]:
        if isinstance(source, str | os.PathLike):
            path = Path(source)
        else:
            path = folder / "input.jsonl"
            spool_jobs(source, path)
        return path, fingerprint(path, target)

    path, name = await in_thread(prepare)
    return await ledger.add(partial(read_jobs, path, target, consent), name, extend=extend)


def ignore(_: Settlement) -> None:
    """Do nothing with an outcome."""


async def run(
    jobs: Source,
    out: str | os.PathLike[str],
    *,
    pool: Driver | None = None,
    target: str | None = None,
    extend: bool = False,
    options: RunOptions | None = None,
    on_settled: OnSettled = ignore,
    allow_programs: bool = False,
    files_from: str | os.PathLike[str] | None = None,
) -> dict[str, JSONValue]:
    """Run all jobs of an input, and return the report that is also in ``out/report.json``.

    ``jobs`` are those of a file (JSON Lines, CSV, Parquet) or of an iterable. ``out`` is the run's folder: called again
    with the same jobs, the run goes on where it stands. ``pool`` runs the jobs; without one, a pool of the run's own
    does, and stores their files in ``out/files``. ``target`` is for jobs that name none.

    The lines of a file may be somebody else's. They name addresses and apps of the settings file; with
    ``allow_programs`` also targets that start a program, load an extension or read a file. The files that they send are
    in the folder of the input, and go to ``target`` and to apps of the settings file; with ``files_from``, a folder,
    they are in that one, and go wherever a line says. The jobs of an iterable are the program's own.

    ``on_settled`` is told of each outcome. Cancelling it stops the run; what ran is settled first.

    Raises :class:`~transports.errors.UsageError` for what is no job, and for other jobs than the run has unless
    ``extend``; :class:`~transports.errors.LedgerError`.
    """
    folder = Path(out)
    consent = None
    if isinstance(jobs, str | os.PathLike):
        await in_thread(require_input, Path(jobs))  # before the folder is made
        consent = Consent(
            allow_programs, target, Path(files_from or Path(jobs).parent).absolute(), files_from is not None
        )
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(open_ledger(folder))
        await add_input(ledger, jobs, folder, target=target, extend=extend, consent=consent)
        options = replace(options or RunOptions(), consent=consent)
        if pool is None:
            own = Pool(*pool_size(options.concurrency), store=folder / "files")
            pool = await stack.enter_async_context(own)
        await Runner(ledger, pool, options, on_settled).run()
        return await export_run(ledger, folder)


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
