"""``python -m tests.scale_model``: 10 to 10,000 workers, where they saturate and what a thousand calls cost.

Prints a table; ``--svg docs/scale.svg`` draws it. ``--measure 1`` first measures the constants anew: some minutes of a
quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.scale_model.measure import costs_of, load, measure
from tests.scale_model.model import Setup, simulate
from tests.scale_model.picture import Point, picture

_WORKERS = (10, 30, 100, 300, 1000, 3000, 10_000)
#: Requests that store one file: its content, and then its metadata.
_PUTS = 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.scale_model", description=__doc__)
    parser.add_argument("--work", type=float, default=0.2, help="seconds of a core that the app takes for a job")
    parser.add_argument("--wait", type=float, default=0.8, help="seconds that it waits for others")
    parser.add_argument("--sessions", type=int, default=8, help="sessions of a worker")
    parser.add_argument("--cores", type=int, default=2, help="cores of a worker's machine")
    parser.add_argument("--ledger-cores", type=int, default=8, help="cores of the ledger's PostgreSQL server")
    parser.add_argument("--slots", type=int, default=640, help="jobs that all hosts together run at once")
    parser.add_argument("--puts-per-second", type=float, default=3500.0, help="what one prefix of S3 is said to take")
    parser.add_argument("--machine-price", type=float, default=0.1, help="of one worker's machine for an hour")
    parser.add_argument("--put-price", type=float, default=0.005, help="of a thousand requests to the object store")
    parser.add_argument("--workers", type=int, nargs="+", default=_WORKERS)
    parser.add_argument("--svg", type=Path, metavar="FILE")
    parser.add_argument("--measure", type=float, metavar="SCALE", help="measure the constants anew, 1 for in full")
    return parser.parse_args()


def courses(arguments: argparse.Namespace) -> Mapping[str, Sequence[Point]]:
    """What each number of workers does: with a ledger alone, with an object store, and with hosts that have limits."""
    ledger, runs, _ = load()
    page = min((run for run in runs if run.kind == "page"), key=lambda run: run.python + run.page)
    costs = costs_of(ledger["PostgreSQL"], page, crowded=True)
    base = Setup(
        1,
        arguments.sessions,
        arguments.cores,
        work=arguments.work,
        wait=arguments.wait,
        ledger_cores=arguments.ledger_cores,
        puts_per_second=arguments.puts_per_second,
    )
    setups = {
        "PostgreSQL alone": base,
        "files in one S3 prefix": replace(base, puts=_PUTS),
        f"hosts with {arguments.slots} at once": replace(base, slots=arguments.slots),
    }
    alone = simulate(costs, replace(base, workers=1), seconds=200).per_second
    found: dict[str, list[Point]] = {
        "without limits": [Point(count, alone * count, 0, 0) for count in arguments.workers]
    }
    for name, setup in setups.items():
        for workers in arguments.workers:
            # all workers get their first leases one after the other: that must be over in the half that is not counted
            run = simulate(costs, replace(setup, workers=workers), seconds=max(40.0, workers / 40))
            found.setdefault(name, []).append(Point(workers, run.per_second, run.ledger, run.store))
            print(f"{name:28} {workers:6,} workers {run.per_second:9,.0f} jobs/s  leases {run.ledger:4.0%}", flush=True)
    return found


def main() -> None:
    arguments = _arguments()
    if arguments.measure:
        asyncio.run(measure(arguments.measure))
    found = courses(arguments)

    machine_price, put_price = float(arguments.machine_price), float(arguments.put_price)

    def price(point: Point, puts: int) -> float:
        return 1000 / max(point.per_second, 1e-9) * point.workers * machine_price / 3600 + puts * put_price

    prices = {name: [price(p, _PUTS if "files" in name else 0) for p in points] for name, points in found.items()}
    for name, values in prices.items():
        print(f"{name:28} a thousand calls: {', '.join(f'{value:,.4f}' for value in values)}")
    if arguments.svg:
        arguments.svg.write_text(picture(found, prices), encoding="utf-8")


if __name__ == "__main__":
    main()
