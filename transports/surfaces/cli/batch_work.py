"""The work of ``abp batch run`` and ``abp batch worker``: a pool, an engine, and how they end."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .batch_progress import BatchProgress
from .output import print_event, print_note, print_text
from .signals import draining

if TYPE_CHECKING:
    from ...batch import Ledger
    from ...batch.consent import Consent
    from ...batch.engines import Engine
    from ...batch.ledger import Counts
    from ...protocol.strict_json import JSONValue
    from .batch_options import WorkerOptions

    MakeEngine = Callable[[Ledger, BatchProgress], Engine]

__all__ = ["exit_status", "in_this_process", "on_ray", "print_report", "work_off"]

#: Exit status for a run of which not every job succeeded.
_SOME_FAILED = 3


def in_this_process(working: WorkerOptions, consent: Consent) -> MakeEngine:
    """Return what makes the engine that is this process."""
    from ...batch.engines import LocalEngine

    options = working.run_options(consent)
    pool = working.pool(options.concurrency, browsers=working.browsers)
    return lambda ledger, progress: LocalEngine(ledger, pool, options, progress.settled)


def on_ray(place: str, working: WorkerOptions, consent: Consent, *, address: str | None, shared: bool) -> MakeEngine:
    """Return what makes the engine on Ray. Raises :class:`~transports.errors.UsageError` without Ray."""
    from ...batch.engines import RayEngine, require_ray

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
    """Run jobs until none is left or a signal comes; the first one lets the jobs that run end. Return the exit status,
    and the report of the engine on its browsers. ``metrics`` is the HOST:PORT that numbers are served at meanwhile."""
    loop = asyncio.get_running_loop()
    progress = BatchProgress(await ledger.counts(), as_json=as_json)
    engine = make_engine(ledger, progress)

    def drain() -> None:
        loop.call_soon_threadsafe(engine.drain)
        loop.call_soon_threadsafe(
            partial(print_note, "no more jobs are begun; those that run may end (again: stop at once)", always=True)
        )

    with draining(drain) as signalled, progress:
        async with _metrics_at(metrics):
            report = await engine.run()
        stopped = signalled()
    browsers: dict[str, JSONValue] = {"browsers": {"calls": report.calls, "recycled": dict(report.recycled)}}
    return (stopped.status if stopped else exit_status(await ledger.counts())), browsers


@asynccontextmanager
async def _metrics_at(address: str | None) -> AsyncIterator[None]:
    if address is None:
        yield
        return
    from ..shared.listening import parse_address
    from ..shared.metrics_server import serve_metrics

    async with serve_metrics(*parse_address(address, "--metrics"), f"--metrics {address}") as url:
        print_note(f"numbers for Prometheus: {url}", always=True)
        yield


def exit_status(counts: Counts) -> int:
    """Return 0 if every job of a run succeeded, else 3."""
    from ...batch import State

    return 0 if counts[State.SUCCEEDED] == counts.total else _SOME_FAILED


def print_report(report: Mapping[str, JSONValue], folder: Path, *, as_json: bool) -> None:
    """Print how a run stands and where its files are."""
    if as_json:
        print_event({"event": "report", "folder": str(folder), **report})
        return
    states, codes, hints = report["states"], report["codes"], report["hints"]
    count = states if isinstance(states, dict) else {}
    shown = [f"{number} {state}" for state, number in count.items() if number]
    print_text(f"Jobs: {', '.join(shown) or 'none'}")
    if copies := report["copies"]:
        same = "is the same job as an earlier line" if copies == 1 else "are the same jobs as earlier lines"
        print_text(f"Lines: {report['lines']}, of which {copies} {same}")
    if isinstance(codes, dict) and codes:
        print_text("Errors: " + ", ".join(f"{code} {number}" for code, number in codes.items()))
    for hint in hints if isinstance(hints, list) else ():
        print_text(f"Hint: {hint}")
    print_text(f"Manifest: {folder / 'manifest.jsonl'}")
    if count.get("failed"):
        print_text(f"Failed jobs, as an input: {folder / 'failed.jsonl'}")
        print_text("To run a corrected copy of them in their place: the same command with that input and --extend")
    if count.get("queued") or count.get("leased"):
        print_text("To go on: the same `abp batch run` command")
    if again := " and ".join(state for state in ("failed", "cancelled") if count.get(state)):
        print_text(f"To run {again} jobs again: the same command with --retry-failed")
    if any(number for state, number in count.items() if state != "succeeded"):
        print_text(f"To look at them: abp serve --batch {shlex.quote(str(folder))}")
