"""``abp batch``: many jobs, run with limits, gone on with where they were stopped."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UsageError
from .batch_options import Store, WorkerOptions
from .batch_work import exit_status, in_this_process, on_ray, print_report, work_off
from .option_groups import spread_groups
from .options import Json, local_folder, start_driver
from .output import asynchronous, print_json, print_note, print_text, run_async

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["app"]

app = typer.Typer(help="Run many jobs, and go on where they were stopped.", rich_markup_mode=None)

RunPlace = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's folder, or postgresql://HOST/DATABASE?run=NAME")
]
Events = Annotated[bool, typer.Option("--json", help="Print one JSON document a line: each job as it ends.")]


class EngineName(StrEnum):
    """Who lends the workers."""

    LOCAL = "local"
    RAY = "ray"


@app.command("run")
@spread_groups
def run_(
    jobs: Annotated[
        str, typer.Argument(metavar="JOBS", help="JSON Lines, .csv, .tsv or .parquet; - reads JSON Lines from stdin.")
    ],
    *,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="RUN", parser=local_folder, help="The run's folder; if it has one, it goes on."),
    ],
    target: Annotated[
        str | None, typer.Option("--target", metavar="TARGET", help="The app of jobs that name none.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option("--ledger", metavar="URL", help="postgresql://HOST/DATABASE?run=NAME, for several workers."),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="This process, or actors on Ray with a browser each.")
    ] = EngineName.LOCAL,
    ray_address: Annotated[
        str | None,
        typer.Option("--ray-address", metavar="ADDR", help="A Ray cluster (auto, ray://HOST:10001), else a local one."),
    ] = None,
    extend: Annotated[bool, typer.Option("--extend", help="Add these jobs to a run that has others.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed and cancelled jobs again.")] = False,
    working: WorkerOptions,
    as_json: Events = False,
) -> int:
    """Run all jobs of an input; the same command again goes on where it stopped.

    Exit status: 0 all succeeded, 3 not all did, 1 the run could not be done, 130 interrupted."""

    def work() -> Coroutine[object, object, int]:
        source = out / "input.jsonl" if jobs == "-" else Path(jobs)
        if jobs == "-":
            _read_stdin(source)
        return begin(source)

    async def begin(source: Path) -> int:
        begins = source.is_file() and ledger is None and not (out / "ledger.sqlite").exists()
        async with AsyncExitStack() as stack:
            if begins and engine is EngineName.LOCAL and target is not None:
                await start_driver(target, stack)
            return await run(source)

    async def run(source: Path) -> int:
        from ...batch import open_ledger  # late: it is imported while the driver starts
        from ...batch.running import add_input, export_run, input_notes, require_input
        from ...tasks import in_thread

        await in_thread(require_input, source)  # before the folder is made
        anywhere = working.for_any_process(out / "files")
        consent = working.consent(target, Path() if jobs == "-" else source.parent)
        if engine is EngineName.RAY:
            shared = ledger is not None and "://" in ledger and working.store is not None
            make_engine = on_ray(ledger or str(out.absolute()), anywhere, consent, address=ray_address, shared=shared)
        else:
            make_engine = in_this_process(anywhere, consent)
        async with open_ledger(ledger or out) as opened:
            added = await add_input(opened, source, out, target=target, extend=extend, consent=consent)
            for said in () if added.known else await in_thread(input_notes, added, source):
                print_note(said)
            if retry_failed:
                count = await opened.retry_failed()
                print_note(f"{count} {'job is' if count == 1 else 'jobs are'} run again")
            status, browsers = await work_off(opened, make_engine, as_json=as_json, metrics=working.metrics)
            print_report(await export_run(opened, out, browsers), out, as_json=as_json)
        return status

    return run_async(work)


def _read_stdin(path: Path) -> None:
    from ...batch.running import spool_stream

    if sys.stdin is None:
        raise UsageError("there is no stdin; name a file of jobs")
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
    working: WorkerOptions,
    as_json: Events = False,
) -> int:
    """Help with a run, from any machine that reaches its ledger and its apps, until it is done."""
    from ...batch.running import open_run

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
    """Show how many jobs of a run are in which state."""
    from ...batch.running import open_run

    async with open_run(run, read_only=True) as ledger:
        counts = await ledger.counts()
    if as_json:
        print_json({"success": True, **counts.as_dict()})
    else:
        for name, count in counts.as_dict().items():
            print_text(f"{name:<9}  {count}")


@app.command()
@asynchronous
async def cancel(run: RunPlace, as_json: Json = False) -> None:
    """Cancel the jobs of a run that have not begun; those that run may end. --retry-failed takes it back."""
    from ...batch.running import open_run

    async with open_run(run) as ledger:
        count = await ledger.cancel()
    if as_json:
        print_json({"success": True, "cancelled": count})
    else:
        print_text(f"Cancelled: {count} {'job' if count == 1 else 'jobs'}")


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
    """Write the manifest, the failed jobs and the report of a run as it stands, and its files where they are wanted.

    Exit status: 0 if all succeeded, else 3."""
    from ...artifacts import open_store
    from ...batch.running import export_files, export_run, open_run

    if "://" in run and (out is None or (files is not None and store is None)):
        missing = "a folder for the manifest with --out DIR" if out is None else "the run's store with --store URL"
        raise UsageError(f"name {missing}")
    folder = Path(run) if out is None else out
    async with open_run(run, read_only=True) as ledger:
        print_report(await export_run(ledger, folder), folder, as_json=as_json)
        if files is not None:
            async with open_store(store or Path(run) / "files") as opened:
                count = await export_files(ledger, opened, files, name)
            print_note(f"{count} {'file is' if count == 1 else 'files are'} in {files}")
        return exit_status(await ledger.counts())
