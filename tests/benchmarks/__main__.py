"""``python -m tests.benchmarks``: measure everything, print it, and clean up."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from tests.benchmarks import (
    answers,
    batch,
    growth,
    ledgers,
    mcp,
    opening,
    routing,
    sockets,
    speed,
    stores,
    waits,
)
from tests.benchmarks.docs import DOCUMENT, read_report, with_figures
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Report, Row, machine
from transports import Browser
from webapp_fixture import serve

_MEASUREMENTS: dict[str, Callable[[Bench], Awaitable[list[Row]]]] = {
    "opening": opening.sessions,
    "cold": opening.cold_call,
    "imports": opening.imports,
    "waits": waits.waits,
    "page": speed.page_to_file,
    "file": speed.file_to_page,
    "calls": answers.small_calls,
    "kept": answers.kept_answers,
    "socket": sockets.large_message,
    "messages": sockets.small_messages,
    "pauses": sockets.pauses,
    "stream": stores.large_stream,
    "artifacts": stores.many_artifacts,
    "routing": routing.hidden_files,
    "mcp": mcp.mcp_results,
    "proxy": mcp.proxied_results,
    "batch": batch.pooled_calls,
    "runs": batch.whole_runs,
    "ledger": ledgers.ledger_work,
    "growth": growth.growth,
}
#: Those that need a browser which is there already; the others need none, or start one of their own.
WITH_BROWSER = frozenset(("opening", "page", "file", "calls", "kept", "batch"))
#: Those whose figure holds the loading of the app: it has its interface for people, which the others leave out.
WITH_INTERFACE = frozenset(("opening", "cold"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--only", choices=[*_MEASUREMENTS], nargs="+", help="only these")
    parser.add_argument(
        "--write-docs", type=Path, nargs="+", metavar="FILE", help=f"write these runs (--json) into {DOCUMENT.name}"
    )
    return parser.parse_args()


async def _run(arguments: argparse.Namespace) -> Report:
    started = time.monotonic()
    async with Browser() as browser:
        report = Report(machine(browser.version), arguments.quick)
    async with serve() as whole, serve(interface=False) as lean, AsyncExitStack() as stack:
        shared = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abp-bench-")))
        for name in arguments.only or _MEASUREMENTS:
            begun = time.monotonic()
            # A browser and a folder for each, so that none meets what another left behind; nor does a collection of
            # garbage in one search the objects of those before it.
            gc.collect()
            gc.freeze()
            async with AsyncExitStack() as own:
                folder = Path(own.enter_context(tempfile.TemporaryDirectory(prefix="abp-bench-")))
                fresh = await own.enter_async_context(Browser()) if name in WITH_BROWSER else None
                url = (whole if name in WITH_INTERFACE else lean).url
                bench = Bench(url, fresh, folder, shared, arguments.quick)
                rows = await _MEASUREMENTS[name](bench)
            report.rows += rows
            for row in rows:
                _print_row(row)
            report.took[name] = round(time.monotonic() - begun, 1)
            print(f"({name}: {report.took[name]:.0f} s)\n")
    report.seconds = time.monotonic() - started
    return report


def _print_row(row: Row) -> None:
    """One figure, at once when it is known."""
    print(f"\n{row.work}\n    against {row.baseline}")
    targets = f" (at least {row.target(row.at_least)}, we want {row.target(row.want)})" if row.at_least else ""
    print(f"    {row.shown}: {row.verdict}{targets}\n    {row.measured}", flush=True)
    if row.explanation:
        print(f"    why: {row.explanation}", flush=True)


def _print_report(report: Report) -> None:
    """The end of a run: what falls short."""
    short = [row for row in report.rows if row.short]
    print(f"\n{len(report.rows)} figures in {report.seconds:.0f} s", end="")
    print(f"; {len(short)} short: {'; '.join(row.work for row in short)}" if short else "; none falls short")
    if report.quick:
        print("(--quick: the sizes are not those of the targets)")


def main() -> int:
    arguments = _arguments()
    if arguments.write_docs:
        try:
            page = with_figures(
                DOCUMENT.read_text(encoding="utf-8"), [read_report(file) for file in arguments.write_docs]
            )
        except ValueError as error:
            sys.exit(str(error))
        DOCUMENT.write_text(page, encoding="utf-8")
        return 0
    logging.getLogger("transports").setLevel(logging.ERROR)
    try:
        report = asyncio.run(_run(arguments))
    except KeyboardInterrupt:
        return 130
    _print_report(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(row.wrong for row in report.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
