"""``abp bench``: benchmark of one capability, with latency statistics."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from io import StringIO
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from ...artifacts._ref import Scope
from ...errors import ABPError, UsageError
from ...session._settings import Settings
from ...session._stores import open_configured_store
from ._calls import fitting
from ._options import OUT, ConnectionOptions, Json, Target, Timeout, open_app, spread_groups
from ._output import ProgressBar, print_json, print_note, print_text, run_async, with_quoted_parameter
from ._params import ParamOptions, Params

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ...artifacts._base import ArtifactStore
    from ...session._session import Session


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
    store: Annotated[
        str | None,
        typer.Option(
            *OUT, metavar="STORE", help="Store that the calls use: a folder, none:, … (default: a temporary folder)."
        ),
    ] = None,
    timeout: Timeout = None,
    options: ConnectionOptions,
    as_json: Json = False,
) -> int:
    """Measure one capability: latencies, throughput, errors. Exit status 1 if any call failed.

    The capability is really called, --calls times and once before to warm up. Its artifacts are removed.
    """
    connection = options.connection()

    def work() -> Coroutine[object, object, int]:
        return measure(params.read())

    async def measure(params: Params) -> int:
        measured = Measurement(capability, calls, concurrency)
        try:
            with ProgressBar(capability) as bar:
                async with (
                    _open_scope(store) as scope,
                    open_app(target, connection, store=scope, pause=bar.pause) as app,
                ):

                    def show(count: int) -> None:
                        bar.set_label(f"{capability} {count}/{calls}")

                    await measured.run(app, fitting(params, app, capability), timeout=timeout, on_call=show)
        except asyncio.CancelledError:
            if measured.calls:
                _report(measured, as_json=as_json)
            raise
        _report(measured, as_json=as_json)
        return 1 if measured.failed else 0

    return run_async(work)


@asynccontextmanager
async def _open_scope(url: str | None) -> AsyncIterator[ArtifactStore]:
    """Open the store for the results, by default in a temporary folder. The results have a scope of their own, so that
    removing them never removes other artifacts."""

    with nullcontext(url) if url else TemporaryDirectory(prefix="abp-bench-") as place:
        async with open_configured_store(Settings.load(), place, retention=None) as store:
            yield store.scoped(Scope(session=f"bench-{uuid.uuid4().hex}"))


def _report(measured: Measurement, *, as_json: bool) -> None:
    if as_json:
        print_json(measured.as_dict())
    else:
        _print_tables(measured)
    missing = measured.planned - measured.calls
    if missing:
        reason = "the session has ended" if measured.session_ended else "interrupted"
        print_note(f"{reason}; {missing} of {measured.planned} calls were not made", always=True)
    if measured.failed:
        print_note(f"{measured.failed} of {measured.calls} calls failed", always=True)


def _figures(measured: Measurement) -> dict[str, str]:
    """Return the figures of the report other than latencies."""
    from ...routing._layers import human_size

    rungs = ", ".join(f"{name} {count}" for name, count in measured.rungs.items())
    return {
        "calls": f"{measured.calls:,}",
        "failed": f"{measured.failed:,}",
        "at once": f"{measured.concurrency:,}",
        "calls/s": f"{measured.per_second(len(measured.latencies)):,.1f}",
        "content/s": human_size(round(measured.per_second(measured.size))),
        "rungs": rungs or "none",
    }


def _print_tables(measured: Measurement) -> None:
    """Print the figures as tables, then errors."""

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    latencies = {f"{name} ms": format_ms(value) for name, value in measured.latency_ms().items()}
    figures = _figures(measured)
    print_text(f"{measured.capability} over {measured.transport}")
    for row in (figures, latencies):
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


#: Percentiles of a report by name; the 0th is the fastest call, the 100th the slowest.
_PERCENTILES = {"min": 0, "median": 50, "p95": 95, "p99": 99, "max": 100}


@dataclass(slots=True)
class Failure:
    """Count of the calls that failed with one code, and the message of the first."""

    message: str
    count: int = 0


@dataclass(slots=True)
class Measurement:
    """Statistics of the calls of one capability, ``concurrency`` of them at once.

    :meth:`run` fills it call by call, so that an interrupted run keeps its figures. Times are in seconds. Artifacts are
    removed after each call, since equal content would not be stored again by the next one; no figure includes that
    time.
    """

    capability: str
    planned: int
    concurrency: int
    transport: str = ""
    #: Latencies of successful calls, in the order of their ends.
    latencies: list[float] = field(default_factory=list)
    failures: dict[str, Failure] = field(default_factory=dict)
    #: Bytes of the artifacts of successful calls.
    size: int = 0
    #: Number of contents moved by each rung of the transport (:attr:`transports.Transport.rungs`).
    rungs: Mapping[str, int] = field(default_factory=dict)
    #: True if the session ended before all calls were made.
    session_ended: bool = False
    _begun: int = 0
    _busy: dict[int, float] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Number of calls that failed."""
        return sum(failure.count for failure in self.failures.values())

    @property
    def calls(self) -> int:
        """Number of calls that have ended."""
        return len(self.latencies) + self.failed

    @property
    def seconds(self) -> float:
        """Duration of the calls: the time of the busiest of the concurrent callers, without pauses between calls."""
        return max(self._busy.values(), default=0.0)

    def per_second(self, amount: float) -> float:
        """Return ``amount`` per second of the calls; 0 without calls."""
        return amount / self.seconds if self.seconds else 0.0

    def latency_ms(self) -> dict[str, float]:
        """Return the percentiles of the latencies in milliseconds: ``min``, ``median``, ``p95``, ``p99`` and ``max``.
        Empty if no call succeeded."""
        if not self.latencies:
            return {}
        ordered = sorted(self.latencies)
        return {name: 1000 * percentile(ordered, percent) for name, percent in _PERCENTILES.items()}

    def as_dict(self) -> dict[str, object]:
        """Return the figures as JSON, as docs/command-line.md describes them."""
        return {
            "success": not self.failed and self.calls == self.planned,
            "capability": self.capability,
            "transport": self.transport,
            "planned": self.planned,
            "calls": self.calls,
            "failed": self.failed,
            "concurrency": self.concurrency,
            "seconds": round(self.seconds, 6),
            "calls_per_second": round(self.per_second(len(self.latencies)), 3),
            "bytes": self.size,
            "bytes_per_second": round(self.per_second(self.size), 1),
            "latency_ms": {name: round(value, 3) for name, value in self.latency_ms().items()} or None,
            "rungs": dict(self.rungs),
            "errors": [
                {"code": code, "count": failure.count, "message": failure.message}
                for code, failure in self.failures.items()
            ],
        }

    async def run(
        self,
        app: Session,
        params: Mapping[str, object],
        *,
        timeout: float | None = None,
        on_call: Callable[[int], object] = lambda count: None,
    ) -> None:
        """Make an uncounted call to warm up, then the calls; ``on_call`` gets the number of finished calls.

        A failed call is counted and does not end the others, unless it ended the session. Raises
        :class:`~transports.errors.UsageError` for invalid parameters, and the error of the warm-up call if it ended the
        session."""
        self.transport = app.transport.name
        try:
            warm = await app.call(self.capability, params, timeout=timeout)
            await _remove_artifacts(app, warm)
        except ABPError as error:
            if isinstance(error, UsageError) or not error.session_survives:
                raise
            await _remove_artifacts(app, error)
        before = app.transport.rungs
        try:
            async with asyncio.TaskGroup() as group:
                for caller in range(min(self.concurrency, self.planned)):
                    group.create_task(self._call_in_turn(caller, app, params, timeout, on_call))
        finally:
            moved = {name: count - before.get(name, 0) for name, count in app.transport.rungs.items()}
            self.rungs = {name: count for name, count in moved.items() if count}

    async def _call_in_turn(
        self,
        caller: int,
        app: Session,
        params: Mapping[str, object],
        timeout: float | None,
        on_call: Callable[[int], object],
    ) -> None:
        while self._begun < self.planned and not self.session_ended:
            self._begun += 1
            stored: object = None
            started = time.perf_counter()
            try:
                stored = result = await app.call(self.capability, params, timeout=timeout)
                taken = time.perf_counter() - started
            except ABPError as error:
                taken = time.perf_counter() - started
                stored = error
                self.failures.setdefault(error.code, Failure(with_quoted_parameter(error).message)).count += 1
                self.session_ended = self.session_ended or not error.session_survives
            else:
                self.latencies.append(taken)
                self.size += sum(ref.size_bytes for ref in result.artifacts.values())
            self._busy[caller] = self._busy.get(caller, 0.0) + taken
            on_call(self.calls)
            await _remove_artifacts(app, stored)


async def _remove_artifacts(app: Session, outcome: object) -> None:
    """Remove the artifacts of a result, or of an error with a partly stored answer."""
    result = getattr(outcome, "result", outcome)
    for ref in dict(getattr(result, "artifacts", {})).values():
        with suppress(ABPError):  # a concurrent call with the same answer may have removed it
            await app.store.delete(ref.id)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of ``ordered`` values by the nearest-rank method: always a measured value."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def format_ms(value: float) -> str:
    """Return milliseconds with three significant digits: ``0.123``, ``1.23``, ``12.3``, ``1,234``."""
    for decimals, limit in ((3, 1), (2, 10), (1, 100)):
        if value < limit:
            return f"{value:.{decimals}f}"
    return f"{value:,.0f}"
