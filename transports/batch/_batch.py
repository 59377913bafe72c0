"""Entry points of a batch: open or run it, add input, export the files of its jobs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from .._internal.arguments import require_plain_function, short_traceback
from .._internal.files import open_regular
from .._internal.tasks import in_thread
from ..artifacts._base import ArtifactStore
from ..artifacts._files import remove_abandoned_files, temporary_path
from ..artifacts._ref import ArtifactRef
from ..errors import ArtifactNotFound, Corrupt, LedgerError, StoreError, UsageError
from ..protocol._media import safe_filename
from ..protocol._strict_json import JSONValue
from ..session._call import OnProgress
from ._files import Report, export_run, fingerprint, read_jobs, require_input, spool_jobs
from ._jobs import Consent, Job, State
from ._pool import Pool, require_open
from ._runner import Driver, OnSettled, Runner, RunOptions, pool_size
from .ledger._ledger import Ledger, open_ledger
from .ledger._schema import Added, Counts, Row, Settlement

Source = str | os.PathLike[str] | Iterable[Job]
#: Field of a file name template, such as ``{id}``.
_FIELD = r"\{([^{}]*)\}"
#: Digits of a key that make the names of two jobs' files unique.
_KEY_DIGITS = 16


def open_run(out: str | os.PathLike[str], *, read_only: bool = False) -> Ledger:
    """Return the ledger of an existing run, to be opened by ``async with``. ``out`` is the run's folder or its
    ``postgresql://`` address. A ``read_only`` ledger also opens where nothing can be written. A folder without a ledger
    is refused here, a ledger without input when it is opened."""
    location = os.fspath(out)
    is_folder = "://" not in location
    if is_folder and not (Path(location) / "ledger.sqlite").is_file():
        raise LedgerError(f"{location} has no run; `abp batch run JOBS --out {location}` begins one")
    return open_ledger(location, existing=True, read_only=read_only)


async def add_input(
    ledger: Ledger,
    source: Source,
    folder: Path,
    *,
    target: str | None = None,
    extend: bool = False,
    consent: Consent | None = None,
) -> Added:
    """Add the jobs of an input to a run: either all of them or none. Jobs of an iterable are first written to
    ``folder``. A line that does more than ``consent`` allows is not a valid job. Raises
    :class:`~transports.errors.UsageError` for invalid jobs, and for an input other than the run's unless ``extend``."""

    def prepare() -> tuple[Path, str]:
        if isinstance(source, str | os.PathLike):
            path = Path(source)
        else:
            path = folder / "input.jsonl"
            spool_jobs(source, path)
        return path, fingerprint(path, target)

    path, fingerprint_of_jobs = await in_thread(prepare)
    return await ledger.add(partial(read_jobs, path, target, consent), fingerprint_of_jobs, extend=extend)


def ignore(_: Settlement) -> None: ...


class _RunProgress:
    """Counts the ended jobs of a run, and reports their number to ``on_progress``. ``counts`` are the jobs of the run
    when it starts. Each outcome is passed on to ``on_settled``."""

    def __init__(self, counts: Counts, on_settled: OnSettled, on_progress: OnProgress) -> None:
        self._total = counts.total
        self._ended = counts.total - counts.open
        self._failed = counts.failed
        self._on_settled = on_settled
        self._on_progress = on_progress

    def report(self) -> None:
        from ..protocol._payloads import Progress  # late, as it loads pydantic

        status = f"{self._failed} failed" if self._failed else None
        self._on_progress(Progress(progress=self._ended, total=self._total, status=status))

    def count(self, settlement: Settlement) -> None:
        self._on_settled(settlement)
        will_be_retried = settlement.again_after is not None
        if will_be_retried:
            return
        self._ended += 1
        if settlement.outcome.state is not State.SUCCEEDED:
            self._failed += 1
        self.report()


@short_traceback
async def run(
    jobs: Source,
    out: str | os.PathLike[str],
    *,
    pool: Driver | None = None,
    target: str | None = None,
    extend: bool = False,
    options: RunOptions | None = None,
    on_settled: OnSettled = ignore,
    on_progress: OnProgress | None = None,
    allow_programs: bool = False,
    files_from: str | os.PathLike[str] | None = None,
) -> Report:
    """Run all jobs of an input, and return the report, as written to ``out/report.json``.

    ``jobs`` is a file (JSON Lines, CSV, Parquet) or an iterable. ``out`` is the run's folder; a second call with the
    same jobs resumes the run. ``pool`` runs the jobs; by default, a pool of the run's own that stores files in
    ``out/files``. ``target`` is the default for jobs without a target.

    The lines of a file are untrusted. They may name addresses and apps of the settings file; with ``allow_programs``
    also targets that start a program, load an extension or read a file. Files to send must be in the folder of the
    input and go only to ``target`` and to apps of the settings file. With ``files_from`` they must be in that folder
    and may go to any target. The jobs of an iterable are trusted.

    ``on_settled`` is called with each outcome, and ``on_progress`` with the number of jobs that have ended, as
    :class:`~transports.Progress`. Both are called in the event loop, which waits for them. Cancelling this function
    stops the run and settles its running jobs.

    Raises :class:`~transports.errors.UsageError` for invalid jobs, and for jobs other than the run's unless ``extend``;
    :class:`~transports.errors.LedgerError`."""
    for name, callback in (("on_settled", on_settled), ("on_progress", on_progress)):
        require_plain_function(name, callback)

    if isinstance(pool, Pool):
        require_open(pool)

    folder = Path(out)
    consent = await _consent_to(jobs, target, files_from, allow_programs=allow_programs)
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(open_ledger(folder))
        await add_input(ledger, jobs, folder, target=target, extend=extend, consent=consent)
        run_options = replace(options or RunOptions(), consent=consent)

        if pool is None:
            browsers, sessions = pool_size(run_options.concurrency)
            pool = await stack.enter_async_context(Pool(browsers, sessions, store=folder / "files"))
        if on_progress is not None:
            progress = _RunProgress(await ledger.counts(), on_settled, on_progress)
            progress.report()
            on_settled = progress.count

        await Runner(ledger, pool, run_options, on_settled).run()
        return await export_run(ledger, folder)


async def _consent_to(
    jobs: Source, target: str | None, files_from: str | os.PathLike[str] | None, *, allow_programs: bool
) -> Consent | None:
    """Return what the lines of a file of jobs may do; ``None`` for other jobs, which are trusted. A file that cannot be
    read is refused here, before anything is made for the run."""
    if not isinstance(jobs, str | os.PathLike):
        return None
    await in_thread(require_input, Path(jobs))
    folder_of_files = Path(files_from or Path(jobs).parent).absolute()
    return Consent(allow_programs, target, folder_of_files, any_target=files_from is not None)


@dataclass(frozen=True, slots=True)
class WorkReport:
    calls: int = 0
    recycled: Mapping[str, int] = field(default_factory=dict)


class Engine(Protocol):
    """Runs the jobs of a ledger, which holds all state of the run."""

    async def run(self) -> WorkReport:
        """Run jobs until each has a final state, the deadline passes or :meth:`drain` is called. If it is cancelled,
        running jobs are cancelled and settled."""

    def drain(self) -> None:
        """Start no more jobs; :meth:`run` returns when the running jobs have ended."""


class LocalEngine:
    """Engine with one worker in this process. It opens its pool."""

    def __init__(self, ledger: Ledger, pool: Pool, options: RunOptions, on_settled: OnSettled = lambda _: None) -> None:
        self._pool = pool
        self._runner = Runner(ledger, pool, options, on_settled)

    def drain(self) -> None:
        self._runner.drain()

    async def run(self) -> WorkReport:
        async with self._pool as pool:
            await self._runner.run()
            stats = pool.stats()
            return WorkReport(stats.calls, dict(stats.recycled))


async def export_files(ledger: Ledger, store: ArtifactStore, folder: Path, name: str = "{id}") -> int:
    """Export the files of all succeeded jobs to ``folder``, and return the number of files.

    ``name`` is a template with fields in braces: ``id`` (or a part of the key), ``key``, ``capability``, ``field`` (the
    file's place in the answer) and the carried fields of the input. The file's extension is appended. Before it comes
    the place, if a job has several files and ``name`` has no ``field``; then a part of the key, if another job has the
    same name; then the row's position, if another line of the job has it. A file is a hard link into a store on the
    same file system, otherwise a copy. Existing files are replaced.

    Raises :class:`~transports.errors.UsageError` for a ``name`` with a field unknown to the first job, and for the
    store's own folder; :class:`~transports.errors.StoreError` at the end if files are missing in the store."""
    filenames = _Filenames(name)
    exported = missing = 0
    await in_thread(remove_abandoned_files, folder)

    async for row in ledger.rows(State.SUCCEEDED):
        filenames.check_template(row)
        for number, file in enumerate(row.artifacts):
            try:
                ref = await store.stat(str(file.get("id")))
            except ArtifactNotFound:
                missing += 1
                continue
            path = folder / filenames.add(row, number, ref)
            is_linked = ref.path is not None and await in_thread(_link_file, ref, ref.path, path)
            if not is_linked:
                await store.export(ref, path)
            exported += 1

    if missing:
        files = "1 file is" if missing == 1 else f"{missing} files are"
        raise StoreError(f"{files} no longer in the store, {exported} in {folder}; name the run's store with --store")
    return exported


class _Filenames:
    """Names for the exported files, made from a template. No name is given twice."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._is_checked = False
        # Hashes, because a run may have millions of files and a hash takes only eight bytes.
        self._used: set[int] = set()

    def check_template(self, row: Row) -> None:
        """Check the fields of the first row only: later ones may have empty cells in a column that exists."""
        if self._is_checked:
            return
        self._is_checked = True
        fields = dict.fromkeys(["id", "key", "capability", "field", *row.job.carried])
        for place in re.findall(_FIELD, self._template):
            if place not in fields:
                job = row.job.id or row.key
                raise UsageError(f"--name: unknown field {{{place}}}; job {job} has {', '.join(fields)}")

    def add(self, row: Row, number: int, ref: ArtifactRef) -> str:
        """Return an unused name for the file ``number`` of a row: the shortest of four possible ones."""
        stem = _fill_template(self._template, row, row.artifacts[number])
        extension = Path(ref.filename).suffix
        stem_with_key = f"{stem}-{row.key[:_KEY_DIGITS]}"
        stems = (stem, stem_with_key, f"{stem_with_key}-{number}", f"{stem_with_key}-{row.position}-{number}")
        for possible_stem in stems:
            filename = safe_filename(f"{possible_stem}{extension}", fallback=row.key, mime_type=ref.mime_type)
            name_hash = hash(filename.casefold())
            if name_hash not in self._used:
                self._used.add(name_hash)
                return filename
        raise StoreError(f"all names for a file of job {row.job.id or row.key} are taken; give --name {{key}}")


def _fill_template(name: str, row: Row, file: Mapping[str, JSONValue]) -> str:
    """Return the name of a file without its extension, 80 bytes at most."""
    place = str(file.get("field") or "")
    values = {
        **row.job.carried,
        "id": row.job.id or row.key[:_KEY_DIGITS],
        "key": row.key,
        "capability": row.job.capability,
        "field": place,
    }
    stem = re.sub(_FIELD, lambda match: str(values.get(match[1], "")), name)
    has_several_files = len(row.artifacts) > 1
    if has_several_files and place and "{field}" not in name:
        stem += f"-{place}"
    stem = re.sub(r"[/\\]", "_", stem)

    # File systems allow 255 bytes; the rest is for the part that makes the name unique, and for the extension.
    max_bytes = 80
    return stem.encode(errors="replace")[:max_bytes].decode(errors="ignore")


def _link_file(ref: ArtifactRef, file: Path, path: Path) -> bool:
    """Make a hard link to a file of the store at ``path``. Return ``False`` if the file system cannot do this."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.parent.samefile(path.parent):
            raise UsageError(f"--files: {path.parent} is the store itself; name another folder")
        _require_intact(ref, file, path)
        is_linked_already = path.exists() and path.samefile(file)
        if not is_linked_already:
            _replace_with_link(file, path)
    except OSError:
        return False
    return True


def _require_intact(ref: ArtifactRef, file: Path, path: Path) -> None:
    """Check the hash of a stored file. The store's own export would check it, but a link is made without that."""
    with open_regular(file) as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 != ref.sha256:
        raise Corrupt(
            f"artifact {ref.id} is damaged: its content does not match its hash; nothing was written to {path}",
            details={"id": ref.id},
        )


def _replace_with_link(file: Path, path: Path) -> None:
    # os.link() does not replace an existing file, so the link is made under another name and then moved.
    link = temporary_path(path)
    try:
        os.link(file, link)
        link.replace(path)
    finally:
        # An error of this cleanup must not hide the first one.
        with suppress(OSError):
            link.unlink(missing_ok=True)
