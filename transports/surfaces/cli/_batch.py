"""``abp batch``: the commands for runs of many jobs. Each imports what it does when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._batch_options import BatchOptions, Events, LoneWorkerOptions, Store
from ._options import Json, local_folder, spread_groups
from ._output import print_json, print_rows, print_text
from ._running import asynchronous, run_async

app = typer.Typer(help="Run many jobs, and resume interrupted runs.", add_completion=False, rich_markup_mode=None)

RunPlace = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's folder, or postgresql://HOST/DATABASE?run=NAME")
]


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
    from ._batch_run import read_and_run

    return run_async(lambda: read_and_run(jobs, out, options))


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
    from ._batch_run import work_on

    return await work_on(run, working, as_json=as_json)


@app.command()
@asynchronous
async def status(run: RunPlace, as_json: Json = False) -> None:
    """Show the number of jobs in each state of a run."""
    from ...batch._batch import open_run

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
    from ...batch._batch import open_run

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
    from ._batch_run import export_report

    return await export_report(run, out, files, name, store, as_json=as_json)
