"""Kill a run at random moments, and print what it came to."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from .matrix import Plan, kill_and_resume


def main() -> int:
    """Return 0 if the sum is whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--app", choices=("pages", "sockets"), default="pages")
    parser.add_argument("--ledger", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--workers", type=int, default=1, help="processes: abp batch run, and abp batch worker")
    parser.add_argument("--seed", type=int, default=0)
    plan = Plan(**vars(parser.parse_args()))
    # Chromium's sockets are below the folder for temporary files, and their paths are limited
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as folder:
        done = asyncio.run(kill_and_resume(Path(folder), plan))
    print(plan, done, sep="\n")
    return 1 if done.problems else 0


if __name__ == "__main__":
    sys.exit(main())
