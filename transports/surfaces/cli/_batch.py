"""``abp batch``: runs of many jobs, with limits, workers, progress and resumption.

The options of a worker come first, then the progress display, the engines (this process, or Ray), the report, and the
subcommands."""

from __future__ import annotations

import asyncio
import math
import shlex
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self, TypeAlias, cast

import typer

from ..._internal.tasks import begin, in_thread
from ...artifacts._opening import open_store
from ...batch._batch import Engine, LocalEngine, add_input, export_files, open_run
from ...batch._files import export_run, input_notes, require_input, spool_stream
from ...batch._jobs import Consent, State
from ...batch._pool import Pool
from ...batch._ray_engine import RayEngine, require_ray
from ...batch._runner import RunOptions, pool_size
from ...batch.ledger._ledger import Ledger, open_ledger
from ...batch.ledger._schema import Counts, Settlement
from ...errors import ABPError, UsageError
from ...protocol._strict_json import JSONValue
from ...session._connect import connect
from ...session._evidence import keeping
from ..shared._listening import parse_address, serve_metrics
from . import draining
from ._options import (
    OUT,
    AdapterFile,
    EvidenceText,
    Headed,
    Headers,
    Json,
    Timeout,
    Token,
    headers_of,
    local_folder,
    seconds_between,
    spread_groups,
)
from ._output import print_event, print_json, print_note, print_rows, print_text, shows_progress
from ._running import asynchronous, run_async

if TYPE_CHECKING:
    from rich.progress import Progress

MakeEngine: TypeAlias = "Callable[[Ledger, BatchProgress], Engine]"
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

    def consent(self, target: str | None = None, inputs: Path | None = None) -> Consent:
        """Return the permissions of jobs in a run with this ``target``, whose input is in the folder ``inputs``."""
        folder = self.files_from or inputs
        if folder is not None:
            folder = folder.absolute()
        return Consent(self.allow_programs, target, folder, self.files_from is not None)

    def run_options(self, consent: Consent) -> RunOptions:
        return RunOptions(self.concurrency, self.per_host, self.rate, self.retries, self.deadline, consent=consent)

    def for_any_process(self, files: Path) -> WorkerOptions:
        """Return the options with absolute paths, for a process in another folder. ``files`` is the store if
        ``--store`` is not given."""
        store = self.store or str(files)
        is_address = self.store is not None and ":" in self.store
        if not is_address:
            store = str(Path(store).absolute())
        adapter = self.adapter
        if adapter is not None:
            adapter = adapter.absolute()
        return replace(self, store=store, adapter=adapter)

    def pool(self, concurrency: int, *, browsers: int | None) -> Pool:
        headers = headers_of(self.token, self.header or ())
        return Pool(
            *pool_size(concurrency, browsers),
            store=self.store,
            headless=False if self.headed else None,
            timeout=self.timeout,
            connect=keeping(partial(connect, adapter=self.adapter, headers=headers), self.evidence),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneWorkerOptions(WorkerOptions):
    """Options of ``abp batch worker``, which has no folder of a run: its ``--out`` is the store of the files."""

    store: Annotated[
        str | None, typer.Option(*OUT, metavar="STORE", help="Store of the files: a folder, s3://BUCKET/…")
    ] = None


#: Ends of jobs that are remembered for the rate.
_MAX_ENDS = 5000
#: Seconds between two notes where there is no bar.
_NOTE_INTERVAL = 30.0
#: Text in place of the rate until a job ends: the first browsers may take half a minute.
_OPENING = "browsers and apps are starting"


class BatchProgress:
    """Progress of a run while the context lasts: a bar, JSON events, or a note on stderr now and then where there is no
    terminal. It begins with ``counts``."""

    def __init__(self, counts: Counts, *, as_json: bool) -> None:
        self._as_json = as_json
        self._counts = counts
        self._total = counts.total
        self._ended = counts.total - counts.open
        self._ended_at_start = self._ended
        self._failed = counts.failed
        self._recent: deque[float] = deque(maxlen=_MAX_ENDS)
        self._bar: Progress | None = None
        if as_json:
            print_event({"event": "begun", **counts.as_dict()})
            return
        if shows_progress():
            self._add_bar()

    def _add_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TextColumn("{task.fields[failed]}", markup=False),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=self._total, completed=self._ended, rate=_OPENING, failed="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def settled(self, settlement: Settlement) -> None:
        """Report the end of a job, or of an attempt that is repeated."""
        outcome = settlement.outcome
        retry_delay = settlement.again_after
        if self._as_json:
            event = {
                "event": "ended" if retry_delay is None else "retried",
                "id": outcome.job.id,
                "key": settlement.key,
                "status": outcome.state.value,
                "error_code": outcome.error_code,
                "error": outcome.error,
                "duration_ms": round(outcome.milliseconds, 1),
            }
            if retry_delay is not None:
                event["again_after"] = round(retry_delay, 3)
            print_event(event)

        if retry_delay is None:
            failed = self._failed
            if outcome.state is not State.SUCCEEDED:
                failed += 1
            self._show_counts(self._ended + 1, failed)

    def counted(self, counts: Counts) -> None:
        """Show the number of jobs in each state, for an engine that does not report single jobs."""
        if counts == self._counts:
            return
        self._counts = counts
        if self._as_json:
            print_event({"event": "progress", **counts.as_dict()})
        self._show_counts(counts.total - counts.open, counts.failed)

    async def keep_updating(self) -> None:
        """Show the progress also while no job ends, until the task is cancelled."""
        while not self._as_json:
            if self._bar is not None:
                await asyncio.sleep(1.0)
                self._draw_bar()
            else:
                await asyncio.sleep(_NOTE_INTERVAL)
                self._print_progress_note()

    def _print_progress_note(self) -> None:
        note = f"{self._ended} of {self._total} jobs have ended"
        details = [text for text in (self._failed_text(), self._rate_text()) if text]
        if details:
            note += f" ({', '.join(details)})"
        print_note(note)

    def _show_counts(self, ended: int, failed: int) -> None:
        """Note that more jobs have ended, and draw the bar again."""
        newly_ended = min(ended - self._ended, _MAX_ENDS)
        self._recent.extend([time.monotonic()] * newly_ended)
        self._ended = ended
        self._failed = failed
        if self._bar is not None:
            self._draw_bar()

    def _failed_text(self) -> str:
        return f"{self._failed} failed" if self._failed else ""

    def _rate_text(self) -> str:
        """Return the rate of ends in the last ten seconds; empty if fewer than two jobs ended in that time."""
        now = time.monotonic()
        window = 10.0
        while self._recent and now - self._recent[0] > window:
            self._recent.popleft()
        if len(self._recent) < 2:
            return ""
        seconds = max(now - self._recent[0], 0.001)
        return f"{len(self._recent) / seconds:.1f}/s"

    def _draw_bar(self) -> None:
        assert self._bar is not None
        rate = _OPENING
        if self._ended > self._ended_at_start:
            rate = self._rate_text()
        self._bar.update(self._task, completed=self._ended, rate=rate, failed=self._failed_text())


def in_this_process(working: WorkerOptions, consent: Consent) -> MakeEngine:
    options = working.run_options(consent)
    pool = working.pool(options.concurrency, browsers=working.browsers)
    return lambda ledger, progress: LocalEngine(ledger, pool, options, progress.settled)


def on_ray(place: str, working: WorkerOptions, consent: Consent, *, address: str | None, shared: bool) -> MakeEngine:
    """Return a factory of the engine on Ray. Raises :class:`~transports.errors.UsageError` without Ray."""
    require_ray()
    return lambda ledger, progress: RayEngine(
        ledger,
        place,
        partial(working.pool, browsers=1),
        working.run_options(consent),
        address=address,
        browsers=working.browsers,
        shared=shared,
        on_counts=progress.counted,
    )


async def work_off(
    ledger: Ledger, make_engine: MakeEngine, *, as_json: bool, metrics: str | None
) -> tuple[int, Mapping[str, JSONValue]]:
    """Run jobs until all have ended or a signal comes. The first signal lets running jobs end. Return the exit status,
    and the engine's report on its browsers. ``metrics`` is the HOST:PORT to serve metrics at meanwhile."""
    loop = asyncio.get_running_loop()
    progress = BatchProgress(await ledger.counts(), as_json=as_json)
    engine = make_engine(ledger, progress)

    with draining(partial(loop.call_soon_threadsafe, _drain, engine)) as signalled, progress:
        updating = begin(progress.keep_updating())
        try:
            async with _serving_metrics(metrics):
                report = await engine.run()
        finally:
            updating.cancel()
        stopped = signalled()

    browsers: dict[str, JSONValue] = {"browsers": {"calls": report.calls, "recycled": dict(report.recycled)}}
    if stopped is not None:
        return stopped.status, browsers
    return exit_status(await ledger.counts()), browsers


def _drain(engine: Engine) -> None:
    engine.drain()
    print_note("no more jobs are started; running jobs may end (repeat to stop at once)", always=True)


@asynccontextmanager
async def _serving_metrics(address: str | None) -> AsyncIterator[None]:
    """Serve metrics at the HOST:PORT ``address``, if there is one, while the context lasts."""
    if address is None:
        yield
        return

    async with serve_metrics(*parse_address(address, "--metrics"), f"--metrics {address}") as url:
        print_note(f"Prometheus metrics: {url}", always=True)
        yield


def exit_status(counts: Counts) -> int:
    """Return the exit status of a run: 3 if not every job succeeded."""
    all_succeeded = counts[State.SUCCEEDED] == counts.total
    return 0 if all_succeeded else 3


def print_report(
    report: Mapping[str, JSONValue], folder: Path, *, run: Path | None = None, as_json: bool = False
) -> None:
    """Print the report of a run: job counts, errors, hints, the places of its files, and the next step.

    ``run`` is the run's folder, for a step that names it."""
    if as_json:
        print_event({"event": "report", "folder": str(folder), **report})
        return

    counts = cast("Mapping[str, int]", report["states"])
    _print_jobs_and_errors(report, counts)

    print_text(f"Manifest: {folder / 'manifest.jsonl'}")
    if counts.get("failed"):
        print_text(f"Failed jobs, as an input: {folder / 'failed.jsonl'}")
    if counts.get("unknown"):
        print_text(
            "Unknown jobs may have run, so they are never sent again. If the app shows that they did not, put their "
            "lines into a new file and run it with another --out."
        )
    next_step = _next_step(counts, run)
    if next_step is not None:
        print_text(next_step)


def _print_jobs_and_errors(report: Mapping[str, JSONValue], counts: Mapping[str, int]) -> None:
    """Print how many jobs are in each state, repeated lines, errors and hints."""
    jobs = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    print_text(f"Jobs: {jobs or 'none'}")

    copies = report["copies"]
    if copies:
        repeat = "is the same job as an earlier line" if copies == 1 else "are the same jobs as earlier lines"
        print_text(f"Lines: {report['lines']}, of which {copies} {repeat}")

    codes = cast("Mapping[str, int]", report["codes"])
    if codes:
        print_text("Errors: " + ", ".join(f"{code} {count}" for code, count in codes.items()))
        _print_first_errors(codes, cast("Mapping[str, Mapping[str, str | None]]", report["first_errors"]))

    for hint in cast("list[str]", report["hints"]):
        print_text(f"Hint: {hint}")


def _print_first_errors(codes: Mapping[str, int], first_errors: Mapping[str, Mapping[str, str | None]]) -> None:
    """Print the first error of the three most frequent codes."""
    for code in list(codes)[:3]:
        first = first_errors.get(code)
        if first is None or not first["error"]:
            continue
        job = f"job {first['id']}" if first["id"] else f"job with key {first['key']}"
        print_text(f"First {code}, {job}: {first['error']}")


def _next_step(counts: Mapping[str, int], run: Path | None) -> str | None:
    """Return the step that matters most after a run with these counts of jobs. ``run`` is the run's folder, if a
    command can name it."""
    if counts.get("queued") or counts.get("leased"):
        return "To resume: the same `abp batch run` command"
    if counts.get("failed"):
        return (
            "To run failed jobs again: the same command with --retry-failed, or with a corrected copy of failed.jsonl "
            "and --extend"
        )
    if counts.get("cancelled"):
        return "To run cancelled jobs again: the same command with --retry-failed"
    if run is None:
        return None
    quoted_run = shlex.quote(str(run))
    if counts.get("unknown"):
        return f"To look at the unknown jobs: abp serve --batch {quoted_run}"
    if counts.get("succeeded"):
        return f"To get the files: abp batch export {quoted_run} --files FOLDER"
    return None


app = typer.Typer(help="Run many jobs, and resume interrupted runs.", add_completion=False, rich_markup_mode=None)

RunPlace = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's folder, or postgresql://HOST/DATABASE?run=NAME")
]
Events = Annotated[bool, typer.Option("--json", help="Print one JSON document a line: each job as it ends.")]


class EngineName(StrEnum):
    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Options of ``abp batch run``, without the folder of the run."""

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


@app.command("run")
@spread_groups
def run_(
    jobs: Annotated[
        str, typer.Argument(metavar="JOBS", help="JSON Lines, .csv, .tsv or .parquet; - reads JSON Lines from stdin.")
    ],
    *,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="RUN", parser=local_folder, help="The run's folder; an existing run is resumed."),
    ],
    options: BatchOptions,
) -> int:
    """Run all jobs of an input, or resume the run.

    The same command again resumes where it stopped.

    Exit status: 0 all succeeded, 3 not all did, 1 the run could not be done, 130 interrupted."""

    def read_and_run() -> Coroutine[object, object, int]:
        if jobs != "-":
            source = Path(jobs)
            return _run(source, source.parent, out, options)
        source = out / "input.jsonl"
        _read_stdin(source)
        return _run(source, Path(), out, options)

    return run_async(read_and_run)


async def _run(source: Path, inputs: Path, out: Path, options: BatchOptions) -> int:
    """Run the jobs of the file ``source``, whose own files are in the folder ``inputs``. Return the exit status."""
    # Checked before the folder is made.
    await in_thread(require_input, source)
    consent = options.working.consent(options.target, inputs)
    make_engine = _chosen_engine(out, consent, options)
    async with open_ledger(options.ledger or out) as ledger:
        await _add_jobs(ledger, source, out, consent, options)
        # Commands on the run take its folder only if the ledger and the files are in it.
        is_in_folder = options.ledger is None and options.working.store is None
        report = partial(_write_report, ledger, out, run=out if is_in_folder else None, as_json=options.as_json)
        try:
            status, browsers = await work_off(
                ledger, make_engine, as_json=options.as_json, metrics=options.working.metrics
            )
        except asyncio.CancelledError:
            await _try_to_report(report({}))
            raise
        await report(browsers)
    return status


async def _try_to_report(report: Coroutine[object, object, None]) -> None:
    """Write the report of a run that is stopped, unless it takes so long that it would delay the end."""
    with suppress(ABPError, TimeoutError):
        async with asyncio.timeout(5):
            await report


def _chosen_engine(out: Path, consent: Consent, options: BatchOptions) -> MakeEngine:
    working = options.working.for_any_process(out / "files")
    if options.engine is EngineName.LOCAL:
        return in_this_process(working, consent)
    shared = options.ledger is not None and "://" in options.ledger and options.working.store is not None
    place = options.ledger or str(out.absolute())
    return on_ray(place, working, consent, address=options.ray_address, shared=shared)


async def _add_jobs(ledger: Ledger, source: Path, out: Path, consent: Consent, options: BatchOptions) -> None:
    """Add the jobs of the input to the ledger, and print what is noteworthy about them."""
    added = await add_input(ledger, source, out, target=options.target, extend=options.extend, consent=consent)
    if not added.known:
        for note in await in_thread(input_notes, added, source):
            print_note(note)
    if options.retry_failed:
        count = await ledger.retry_failed()
        verb = "job is" if count == 1 else "jobs are"
        print_note(f"{count} {verb} run again")
    await _note_if_all_ended(ledger)


async def _write_report(
    ledger: Ledger, out: Path, browsers: Mapping[str, JSONValue], *, run: Path | None, as_json: bool
) -> None:
    """Write the files of a run and print its report. ``run`` is the folder that other commands take, if any."""
    report = await export_run(ledger, out, browsers)
    print_report(report, out, run=run, as_json=as_json)


async def _note_if_all_ended(ledger: Ledger) -> None:
    counts = await ledger.counts()
    if counts.open:
        return
    jobs_had = f"all {counts.total} jobs had"
    if counts.total == 1:
        jobs_had = "the only job had"
    print_note(f"nothing to do: {jobs_had} ended")


def _read_stdin(path: Path) -> None:
    if sys.stdin is None:
        raise UsageError("stdin is closed; pass a jobs file")
    if sys.stdin.isatty():
        print_note("type one job a line as JSON, then Ctrl-D", always=True)
    spool_stream(sys.stdin.buffer, path)


@app.command()
@spread_groups
@asynchronous
async def worker(
    run: Annotated[
        str, typer.Argument(metavar="URL", help="The run's ledger: postgresql://HOST/DATABASE?run=NAME, or its folder.")
    ],
    *,
    working: LoneWorkerOptions,
    as_json: Events = False,
) -> int:
    """Work on a run until it is done.

    Any machine can that reaches the run's ledger and its apps."""
    ledger = open_run(run)
    if working.store is None and "://" in run:
        raise UsageError("name the run's store with --store URL, the same for all workers")
    make_engine = in_this_process(working.for_any_process(Path(run) / "files"), working.consent())
    async with ledger as opened:
        status, _ = await work_off(opened, make_engine, as_json=as_json, metrics=working.metrics)
    return status


@app.command()
@asynchronous
async def status(run: RunPlace, as_json: Json = False) -> None:
    """Show the number of jobs in each state of a run."""
    async with open_run(run, read_only=True) as ledger:
        counts = await ledger.counts()
    if as_json:
        print_json({"success": True, **counts.as_dict()})
    else:
        print_rows([(name, str(count)) for name, count in counts.as_dict().items()], numbers=(1,))


@app.command()
@asynchronous
async def cancel(run: RunPlace, as_json: Json = False) -> None:
    """Cancel the jobs of a run that have not started.

    Running jobs may end. --retry-failed undoes it."""
    async with open_run(run) as ledger:
        count = await ledger.cancel()
    if as_json:
        print_json({"success": True, "cancelled": count})
    else:
        unit = "job" if count == 1 else "jobs"
        print_text(f"Cancelled: {count} {unit}")


@app.command()
@asynchronous
async def export(
    run: RunPlace,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", parser=local_folder, help="Folder for the manifest (default: the run's)."),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(
            "--files", metavar="DIR", parser=local_folder, help="Put the files of succeeded jobs there, named by job."
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Their names: {id}, {key}, {capability}, {field}, {COLUMN}.")
    ] = "{id}",
    store: Store = None,
    as_json: Events = False,
) -> int:
    """Write manifest, failed jobs and report of a run.

    They show the run as it is now. With --files its files are written, too.

    Exit status: 0 if all succeeded, else 3."""
    run_folder = None if "://" in run else Path(run)
    folder = out or run_folder
    if folder is None:
        raise UsageError("name a folder for the manifest with --out DIR")
    run_store: str | Path | None = None
    if store:
        run_store = store
    elif run_folder is not None:
        run_store = run_folder / "files"
    if files is not None and run_store is None:
        raise UsageError("name the run's store with --store URL")

    async with open_run(run, read_only=True) as ledger:
        report = await export_run(ledger, folder)
        if files is None:
            print_report(report, folder, run=run_folder, as_json=as_json)
        else:
            # Without the folder of the run, the report does not advise to export the files, which is done here.
            print_report(report, folder, run=None, as_json=as_json)
            await _export_files(ledger, run_store, files, name)
        return exit_status(await ledger.counts())


async def _export_files(ledger: Ledger, store: str | Path | None, folder: Path, name: str) -> None:
    async with open_store(store) as opened:
        count = await export_files(ledger, opened, folder, name)
    verb = "file is" if count == 1 else "files are"
    print_note(f"{count} {verb} in {folder}")
