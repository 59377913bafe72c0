"""``python -m tests.soak``: one run, its table, and the report if one is asked for."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from pathlib import Path

from tests.soak.report import report
from tests.soak.run import Plan, run

#: A short run begins before pools, caches and arenas are full: bytes of memory that are no leak there.
_SHORT_RUN_MEMORY = 24 << 20


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, help="how long (default: about a minute, each fault at least once)")
    parser.add_argument("--seed", type=int, default=Plan().seed, help="which schedule (default: %(default)s)")
    parser.add_argument("--report", type=Path, metavar="FILE.md", help="write the report there")
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    arguments = _arguments()
    logging.getLogger("transports").setLevel(logging.CRITICAL)
    plan = Plan.of_minutes(arguments.minutes, arguments.seed) if arguments.minutes else Plan(seed=arguments.seed)
    started = time.monotonic()
    outcome = asyncio.run(run(plan, _say, memory_slack=0 if arguments.minutes else _SHORT_RUN_MEMORY))
    _say(f"{time.monotonic() - started:.0f} s in all")
    text = report(outcome)
    if arguments.report:
        arguments.report.write_text(text, encoding="utf-8")
    print(text)
    for problem in outcome.problems:
        print(f"PROBLEM {problem}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
