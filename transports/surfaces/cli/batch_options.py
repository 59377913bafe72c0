"""The options of a worker of a batch: of ``abp batch run``, which is one itself, and of ``abp batch worker``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import AdapterFile, EvidenceText, Headed, Headers, Timeout, Token, headers_of, local_folder

if TYPE_CHECKING:
    from ...batch import Pool, RunOptions
    from ...batch.consent import Consent

__all__ = ["WorkerOptions"]

Store = Annotated[str | None, typer.Option("--store", metavar="URL", help="Where files go: a folder, s3://BUCKET/…")]
Concurrency = Annotated[int, typer.Option("--concurrency", metavar="N", min=1, help="Jobs that run at once.")]
PerHost = Annotated[
    int | None, typer.Option("--per-host", metavar="N", min=1, help="Jobs of one host at once, of all workers.")
]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", min=0.001, help="Jobs that this worker begins in a second.")
]
Retries = Annotated[
    int,
    typer.Option("--retries", metavar="N", min=0, help="How often a job is sent again that may be, after an error."),
]
Deadline = Annotated[
    float | None, typer.Option("--deadline", metavar="S", min=0.001, help="Begin nothing more after S seconds.")
]
Browsers = Annotated[int | None, typer.Option("--browsers", metavar="N", min=1, help="Browsers (default: one a core).")]
AllowPrograms = Annotated[
    bool,
    typer.Option(
        "--allow-programs", help="Let jobs name targets that start a program, load an extension or read a file."
    ),
]
FilesFrom = Annotated[
    Path | None,
    typer.Option(
        "--files-from",
        metavar="DIR",
        parser=local_folder,
        help="Where jobs' files are (default: with the input); they may go to any target.",
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option("--metrics", metavar="HOST:PORT", help="Serve numbers for Prometheus at /metrics, on this machine."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The limits of a worker, and how it reaches apps. With Ray they travel to other machines."""

    store: Store = None
    concurrency: Concurrency = 8
    per_host: PerHost = None
    rate: Rate = None
    retries: Retries = 3
    deadline: Deadline = None
    browsers: Browsers = None
    metrics: Metrics = None
    allow_programs: AllowPrograms = False
    files_from: FilesFrom = None
    timeout: Timeout = None
    headed: Headed = False
    adapter: AdapterFile = None
    token: Token = None
    header: Headers = None
    evidence: EvidenceText = ""

    def consent(self, target: str | None = None, inputs: Path | None = None) -> Consent:
        """Return what jobs may do: those of a run with this ``target``, whose input is in the folder ``inputs``."""
        from ...batch.consent import Consent

        folder = self.files_from or inputs
        return Consent(self.allow_programs, target, folder and folder.absolute(), self.files_from is not None)

    def run_options(self, consent: Consent) -> RunOptions:
        """Return the limits of the worker, and what its jobs may do."""
        from ...batch import RunOptions

        return RunOptions(self.concurrency, self.per_host, self.rate, self.retries, self.deadline, consent=consent)

    def for_any_process(self, files: Path) -> WorkerOptions:
        """Return the options with absolute paths, for another folder than this one. ``files`` is the store where
        ``--store`` names none."""
        store = self.store if self.store and ":" in self.store else str(Path(self.store or files).absolute())
        return replace(self, store=store, adapter=self.adapter and self.adapter.absolute())

    def pool(self, concurrency: int, *, browsers: int | None) -> Pool:
        """Return a pool with a session for each of ``concurrency`` jobs."""
        from ...batch import Pool
        from ...batch.running import pool_size
        from ...session.connect import connect
        from ...session.evidence import keeping

        headers = headers_of(self.token, self.header or ())
        return Pool(
            *pool_size(concurrency, browsers),
            store=self.store,
            headless=False if self.headed else None,
            timeout=self.timeout,
            connect=keeping(partial(connect, adapter=self.adapter, headers=headers), self.evidence),
        )
