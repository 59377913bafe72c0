"""Work of the commands of ``abp batch``: the progress display, the engines (this process, or Ray), the report."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias, cast

from ..._internal.tasks import in_thread, start_task
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
from ...session._evidence import with_default_evidence
from ..shared._listening import parse_address
from . import draining
from ._batch_options import BatchOptions, EngineName, WorkerOptions
from ._options import headers_of
from ._output import print_event, print_note, print_text, shows_progress

if TYPE_CHECKING:
    from rich.progress import Progress

MakeEngine: TypeAlias = "Callable[[Ledger, BatchProgress], Engine]"
#: Seconds between two notes on the progress, if no bar is shown.
_NOTE_INTERVAL = 30.0
#: Text in place of the rate until a job ends: the first browsers may take half a minute.
_OPENING = "browsers and apps are starting"


class BatchProgress:
    """Shows the progress of a run as a bar, as JSON events, or without a terminal as a note on stderr now and then.
    ``counts`` are the jobs at the beginning."""

    def __init__(self, counts: Counts, *, as_json: bool) -> None:
        self._as_json = as_json
        self._counts = counts
        self._total = counts.total
        self._ended = counts.total - counts.open
        self._ended_at_start = self._ended
        self._failed = counts.failed
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
        """Show the outcome of a job."""
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
        """Show the counts, for an engine that does not report single jobs."""
        if counts == self._counts:
            return
        self._counts = counts
        if self._as_json:
            print_event({"event": "progress", **counts.as_dict()})
        self._show_counts(counts.total - counts.open, counts.failed)

    async def keep_updating(self) -> None:
        """Update the display from time to time even if no job ends, until this task is cancelled."""
        while not self._as_json:
            if self._bar is not None:
                await asyncio.sleep(1.0)
                self._draw_bar()
            else:
                await asyncio.sleep(_NOTE_INTERVAL)
                failed = f" ({self._failed_text()})" if self._failed else ""
                print_note(f"{self._ended} of {self._total} jobs have ended{failed}")

    def _show_counts(self, ended: int, failed: int) -> None:
        self._ended = ended
        self._failed = failed
        if self._bar is not None:
            self._draw_bar()

    def _failed_text(self) -> str:
        return f"{self._failed} failed" if self._failed else ""

    def _draw_bar(self) -> None:
        assert self._bar is not None
        rate = _OPENING
        if self._ended > self._ended_at_start:
            speed = self._bar.tasks[0].speed
            rate = "" if speed is None else f"{speed:.1f}/s"
        self._bar.update(self._task, completed=self._ended, rate=rate, failed=self._failed_text())


def _consent_of(working: WorkerOptions, target: str | None = None, inputs: Path | None = None) -> Consent:
    folder = working.files_from or inputs
    if folder is not None:
        folder = folder.absolute()
    return Consent(working.allow_programs, target, folder, any_target=working.files_from is not None)


def _run_options(working: WorkerOptions, consent: Consent) -> RunOptions:
    return RunOptions(
        working.concurrency, working.per_host, working.rate, working.retries, working.deadline, consent=consent
    )


def _make_pool(working: WorkerOptions, concurrency: int, *, browsers: int | None) -> Pool:
    headers = headers_of(working.token, working.header or ())
    return Pool(
        *pool_size(concurrency, browsers),
        store=working.store,
        headless=False if working.headed else None,
        timeout=working.timeout,
        connect=with_default_evidence(partial(connect, adapter=working.adapter, headers=headers), working.evidence),
    )


def _in_this_process(working: WorkerOptions, consent: Consent) -> MakeEngine:
    options = _run_options(working, consent)
    pool = _make_pool(working, options.concurrency, browsers=working.browsers)
    return lambda ledger, progress: LocalEngine(ledger, pool, options, progress.settled)


def _on_ray(place: str, working: WorkerOptions, consent: Consent, *, address: str | None, shared: bool) -> MakeEngine:
    require_ray()
    return lambda ledger, progress: RayEngine(
        ledger,
        place,
        partial(_make_pool, working, browsers=1),
        _run_options(working, consent),
        address=address,
        browsers=working.browsers,
        shared=shared,
        on_counts=progress.counted,
    )


async def _run_jobs(
    ledger: Ledger, make_engine: MakeEngine, *, as_json: bool, metrics: str | None
) -> tuple[int, Mapping[str, JSONValue]]:
    """Run the jobs until all are done, or until a signal; then running jobs may still end. Return the exit status, and
    the engine's report on its browsers. ``metrics`` is the HOST:PORT at which metrics are served meanwhile."""
    loop = asyncio.get_running_loop()
    progress = BatchProgress(await ledger.counts(), as_json=as_json)
    engine = make_engine(ledger, progress)

    with draining(partial(loop.call_soon_threadsafe, _drain_engine, engine)) as signalled, progress:
        updating = start_task(progress.keep_updating())
        try:
            async with _serving_metrics(metrics):
                report = await engine.run()
        finally:
            updating.cancel()
        stopped = signalled()

    browsers: dict[str, JSONValue] = {"browsers": {"calls": report.calls, "recycled": dict(report.recycled)}}
    if stopped is not None:
        return stopped.status, browsers
    return _exit_status(await ledger.counts()), browsers


def _drain_engine(engine: Engine) -> None:
    engine.drain()
    print_note("no more jobs are started; running jobs may end (repeat to stop at once)", always=True)


@asynccontextmanager
async def _serving_metrics(address: str | None) -> AsyncIterator[None]:
    if address is None:
        yield
        return
    from ..shared._metrics import serve_metrics  # late: it needs a web server

    async with serve_metrics(*parse_address(address, "--metrics"), f"--metrics {address}") as url:
        print_note(f"Prometheus metrics: {url}", always=True)
        yield


def _exit_status(counts: Counts) -> int:
    all_succeeded = counts[State.SUCCEEDED] == counts.total
    return 0 if all_succeeded else 3


def _print_report(
    report: Mapping[str, JSONValue], folder: Path, *, run: Path | None = None, as_json: bool = False
) -> None:
    """Print the report of a run. ``run`` is the run's folder if the advice on the next step may name it."""
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
    for code in list(codes)[:3]:
        first = first_errors.get(code)
        if first is None or not first["error"]:
            continue
        job = f"job {first['id']}" if first["id"] else f"job with key {first['key']}"
        print_text(f"First {code}, {job}: {first['error']}")


def _next_step(counts: Mapping[str, int], run: Path | None) -> str | None:
    """Return advice on what is left to do, or ``None``. ``run`` is the run's folder, if a command can name it."""
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


def read_and_run(jobs: str, out: Path, options: BatchOptions) -> Coroutine[object, object, int]:
    """Read the jobs, and return the coroutine that runs them. ``jobs`` is a file, or ``-`` for stdin, which is read to
    its end before this returns, outside the event loop."""
    if jobs != "-":
        source = Path(jobs)
        return _run(source, source.parent, out, options)
    source = out / "input.jsonl"
    _read_stdin(source)
    return _run(source, Path(), out, options)


async def _run(source: Path, inputs: Path, out: Path, options: BatchOptions) -> int:
    """Run the jobs of the file ``source``, whose own files are in the folder ``inputs``. Return the exit status."""
    # A fault of the input must be reported before the folder of the run is made.
    await in_thread(require_input, source)
    consent = _consent_of(options.working, options.target, inputs)
    make_engine = _chosen_engine(out, consent, options)
    async with open_ledger(options.ledger or out) as ledger:
        await _add_jobs(ledger, source, out, consent, options)
        # Commands on the run take its folder only if the ledger and the files are in it.
        is_in_folder = options.ledger is None and options.working.store is None
        report = partial(_write_report, ledger, out, run=out if is_in_folder else None, as_json=options.as_json)
        try:
            status, browsers = await _run_jobs(
                ledger, make_engine, as_json=options.as_json, metrics=options.working.metrics
            )
        except asyncio.CancelledError:
            await _try_to_report(report({}))
            raise
        await report(browsers)
    return status


async def _try_to_report(report: Coroutine[object, object, None]) -> None:
    """Write the report of a stopped run, but give up after five seconds, so that its end is not delayed."""
    with suppress(ABPError, TimeoutError):
        async with asyncio.timeout(5):
            await report


def _chosen_engine(out: Path, consent: Consent, options: BatchOptions) -> MakeEngine:
    working = options.working.for_any_process(out / "files")
    if options.engine is EngineName.LOCAL:
        return _in_this_process(working, consent)
    shares_ledger = options.ledger is not None and "://" in options.ledger and options.working.store is not None
    place = options.ledger or str(out.absolute())
    return _on_ray(place, working, consent, address=options.ray_address, shared=shares_ledger)


async def _add_jobs(ledger: Ledger, source: Path, out: Path, consent: Consent, options: BatchOptions) -> None:
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
    report = await export_run(ledger, out, browsers)
    _print_report(report, out, run=run, as_json=as_json)


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


async def work_on(run: str, working: WorkerOptions, *, as_json: bool) -> int:
    ledger = open_run(run)
    if working.store is None and "://" in run:
        raise UsageError("name the run's store with --store URL, the same for all workers")
    make_engine = _in_this_process(working.for_any_process(Path(run) / "files"), _consent_of(working))
    async with ledger as open_ledger:
        status, _ = await _run_jobs(open_ledger, make_engine, as_json=as_json, metrics=working.metrics)
    return status


async def export_report(
    run: str, out: Path | None, files: Path | None, name: str, store: str | None, *, as_json: bool
) -> int:
    run_folder = None if "://" in run else Path(run)
    folder = out or run_folder
    if folder is None:
        raise UsageError("name a folder for the manifest with --out DIR")
    run_store: str | Path | None = store or None
    if run_store is None and run_folder is not None:
        run_store = run_folder / "files"
    if files is not None and run_store is None:
        raise UsageError("name the run's store with --store URL")

    async with open_run(run, read_only=True) as ledger:
        report = await export_run(ledger, folder)
        # With the folder of the run, the report would advise to export its files, which --files does now.
        _print_report(report, folder, run=run_folder if files is None else None, as_json=as_json)
        if files is not None:
            await _export_files(ledger, run_store, files, name)
        return _exit_status(await ledger.counts())


async def _export_files(ledger: Ledger, store: str | Path | None, folder: Path, name: str) -> None:
    async with open_store(store) as store_of_files:
        count = await export_files(ledger, store_of_files, folder, name)
    verb = "file is" if count == 1 else "files are"
    print_note(f"{count} {verb} in {folder}")
