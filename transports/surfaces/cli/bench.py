"""``abp bench``: how fast an app is through the kit."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UsageError
from ...protocol.plain_text import plain_line
from .option_groups import spread_groups
from .options import ConnectionOptions, Json, Target, Timeout
from .output import print_json, print_note, print_text, run_async
from .params import ParamOptions, require_folder
from .progress import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ...artifacts import ArtifactStore
    from .measurement import Measurement


@spread_groups
def bench(
    target: Target,
    capability: Annotated[str, typer.Argument(metavar="CAPABILITY", help="Its name, such as export.pdf")],
    *,
    params: ParamOptions,
    calls: Annotated[
        int, typer.Option("--calls", metavar="N", min=1, max=1_000_000, help="Calls that are measured.")
    ] = 20,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, max=1000, help="Calls under way at once.")
    ] = 1,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Also draw the histogram into a picture.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="Store that the calls use: a folder, none:, … (default: a temporary folder)."
        ),
    ] = None,
    timeout: Timeout = None,
    options: ConnectionOptions,
    as_json: Json = False,
) -> int:
    """Measure one capability: latencies, throughput, errors. Exit status 1 if any call failed.

    The capability is called for real, once more than --calls says to warm up. What it answers is removed.
    """

    connection = options.connection()

    def work() -> Coroutine[object, object, int]:
        require_folder(plot)
        if plot is not None and plot.suffix.lower() != ".svg":
            raise UsageError(f"--plot {plot}: the picture is SVG; name a file that ends in .svg")
        return measure(params.read())

    async def measure(values: dict[str, object]) -> int:
        from .measurement import Measurement

        measured = Measurement(capability, calls, concurrency)
        try:
            with ProgressBar(capability) as bar:
                async with _store(store) as kept, connection.open(target, store=kept, pause=bar.pause) as app:

                    def show(count: int) -> None:
                        bar.set_label(f"{capability} {count}/{calls}")

                    await measured.run(app, values, timeout=timeout, on_call=show)
        except asyncio.CancelledError:
            if measured.calls:
                _report(measured, plot, as_json=as_json)
            raise
        _report(measured, plot, as_json=as_json)
        return 1 if measured.failed else 0

    return run_async(work)


@asynccontextmanager
async def _store(url: str | None) -> AsyncIterator[ArtifactStore]:
    """Open the store for the results, by default in a folder that is removed. They are in a scope of their own, so that
    removing one removes nothing of anybody else's."""
    from ...artifacts import Scope
    from ...session.settings import Settings
    from ...session.stores import open_configured_store

    with nullcontext(url) if url else TemporaryDirectory(prefix="abp-bench-") as place:
        async with open_configured_store(Settings.load(), place, retention=None) as store:
            yield store.scoped(Scope(session=f"bench-{uuid.uuid4().hex}"))


def _report(measured: Measurement, plot: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json(measured.as_dict())
    else:
        _print(measured)
    if plot is not None:
        _draw(measured, plot)
    if missing := measured.planned - measured.calls:
        why = "the session has ended" if measured.session_ended else "interrupted"
        print_note(f"{why}; {missing} of {measured.planned} calls were not made", always=True)
    if measured.failed:
        print_note(f"{measured.failed} of {measured.calls} calls failed", always=True)


def _heading(measured: Measurement) -> str:
    return f"{measured.capability} over {measured.transport}"


def _figures(measured: Measurement) -> dict[str, str]:
    """The figures beside the latencies."""
    from ...routing.fields import human_size

    rungs = ", ".join(f"{name} {count}" for name, count in measured.rungs.items())
    return {
        "calls": f"{measured.calls:,}",
        "failed": f"{measured.failed:,}",
        "at once": f"{measured.concurrency:,}",
        "calls/s": f"{measured.per_second(len(measured.latencies)):,.1f}",
        "content/s": human_size(round(measured.per_second(measured.size))),
        "rungs": rungs or "none",
    }


def _print(measured: Measurement) -> None:
    """Print the figures as a table, then errors, then the histogram."""
    from io import StringIO

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .histogram import format_ms, histogram_lines

    latencies = {f"{name} ms": format_ms(value) for name, value in measured.latency_ms().items()}
    shown = _figures(measured)
    print_text(_heading(measured))
    for row in (shown, latencies):
        table = Table(box=None, pad_edge=False)
        for name in row:
            table.add_column(name, justify="right", no_wrap=True)
        table.add_row(*map(Text, row.values()))
        console = Console(file=StringIO(), width=200, color_system=None)
        with console.capture() as captured:
            console.print(table)
        if row:
            print_text("\n".join(line.rstrip() for line in captured.get().splitlines()))
    for code, failure in measured.failures.items():
        print_text(f"{failure.count} × {code}: {failure.message}")
    if measured.latencies:
        blocks = _has_blocks()
        print_text("\n".join(histogram_lines([1000 * value for value in measured.latencies], blocks=blocks)))


def _has_blocks() -> bool:
    """Whether stdout can show block characters."""
    try:
        "█▏".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _draw(measured: Measurement, plot: Path) -> None:
    from .histogram import histogram_picture

    if not measured.latencies:
        print_note(f"{plot} was not written: no call succeeded, so there is nothing to draw", always=True)
        return
    notes = " · ".join(f"{name} {value}" for name, value in _figures(measured).items())
    marks = {name: value for name, value in measured.latency_ms().items() if name in ("median", "p95", "p99")}
    values = [1000 * value for value in measured.latencies]
    picture = histogram_picture(plain_line(_heading(measured)), plain_line(notes), values, marks)
    plot.write_text(picture, encoding="utf-8", errors="replace")
