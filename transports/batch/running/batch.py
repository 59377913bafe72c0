"""A whole batch: its folder, its input, its work and what it leaves behind."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...errors import LedgerError
from ...protocol.strict_json import JSONValue
from ...tasks import in_thread
from ..consent import Consent
from ..jobs import Job
from ..ledger import Added, Ledger, Settlement, open_ledger
from ..pool import Pool
from .options import RunOptions, pool_size
from .outputs import export_run
from .reading import fingerprint, read_jobs, require_input, spool_jobs
from .runner import Driver, OnSettled, Runner

__all__ = ["Source", "add_input", "ignore", "open_run", "run"]

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
