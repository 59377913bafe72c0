"""Options of the commands of ``abp batch``, as the parser reads them. They load nothing that runs jobs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ._options import (
    OUT,
    AdapterFile,
    EvidenceText,
    Headed,
    Headers,
    Timeout,
    Token,
    local_folder,
    seconds_between,
)

Events = Annotated[bool, typer.Option("--json", help="Print one JSON document a line: each job as it ends.")]
Store = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Store of the files: a folder, s3://BUCKET/…")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker: its limits, and its connection to apps. With Ray they are sent to other machines."""

    store: Store = None
    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", min=1, help="Jobs that run at once.")] = 8
    per_host: Annotated[
        int | None, typer.Option("--per-host", metavar="N", min=1, help="Jobs of one host at once, of all workers.")
    ] = None
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="Jobs that this worker starts per second.")
    ] = None
    retries: Annotated[
        int,
        typer.Option("--retries", metavar="N", min=0, help="Retries after an error, for jobs that may be repeated."),
    ] = 3
    deadline: Annotated[
        float | None,
        typer.Option(
            "--deadline",
            metavar="TIME",
            parser=seconds_between(0.001, math.inf),
            help="Start no more jobs after this time: seconds, or 90s, 30m, 8h.",
        ),
    ] = None
    browsers: Annotated[
        int | None, typer.Option("--browsers", metavar="N", min=1, help="Browsers (default: one per core).")
    ] = None
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at /metrics, on this machine."),
    ] = None
    allow_programs: Annotated[
        bool,
        typer.Option(
            "--allow-programs", help="Allow jobs whose targets start a program, load an extension or read a file."
        ),
    ] = False
    files_from: Annotated[
        Path | None,
        typer.Option(
            "--files-from",
            metavar="DIR",
            parser=local_folder,
            help="Folder of the jobs' files (default: that of the input); they may go to any target.",
        ),
    ] = None
    timeout: Timeout = None
    headed: Headed = False
    adapter: AdapterFile = None
    token: Token = None
    header: Headers = None
    evidence: EvidenceText = ""

    def for_any_process(self, files: Path) -> WorkerOptions:
        """Return these options with absolute paths, for a process in another folder. ``files`` is the default store."""
        store = self.store or str(files)
        is_address = self.store is not None and ":" in self.store
        if not is_address:
            store = str(Path(store).absolute())
        adapter = self.adapter
        if adapter is not None:
            adapter = adapter.absolute()
        return replace(self, store=store, adapter=adapter)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneWorkerOptions(WorkerOptions):
    """Options of ``abp batch worker``, which has no folder of a run: its ``--out`` is the store of the files."""

    store: Annotated[
        str | None, typer.Option(*OUT, metavar="STORE", help="Store of the files: a folder, s3://BUCKET/…")
    ] = None


class EngineName(StrEnum):
    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    target: Annotated[
        str | None, typer.Option("--target", metavar="TARGET", help="The app of jobs that name none.")
    ] = None
    ledger: Annotated[
        str | None,
        typer.Option("--ledger", metavar="URL", help="postgresql://HOST/DATABASE?run=NAME, for several workers."),
    ] = None
    engine: Annotated[
        EngineName, typer.Option("--engine", help="This process, or actors on Ray with a browser each.")
    ] = EngineName.LOCAL
    ray_address: Annotated[
        str | None,
        typer.Option("--ray-address", metavar="ADDR", help="A Ray cluster (auto, ray://HOST:10001), else a local one."),
    ] = None
    extend: Annotated[bool, typer.Option("--extend", help="Add these jobs to a run that has others.")] = False
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed and cancelled jobs again.")] = False
    working: WorkerOptions
    as_json: Events = False
