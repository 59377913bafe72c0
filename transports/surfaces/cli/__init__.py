"""The ``abp`` command. Exit status: 0 success, 1 the work failed, 2 bad usage; ended by a signal (Ctrl-C is 130,
SIGTERM 143) or by a reader that went away (141), 128 and the signal's number, as every shell has it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .signals import Stopped, stoppable

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = list(sys.argv[1:] if args is None else args)
    with stoppable():
        try:
            from .commands import run  # in here, so that Ctrl-C finds us ready at any moment

            return run(given)
        except Stopped as stop:
            from .outcome import report

            report("CANCELLED", str(stop), as_json="--json" in given, cancelled=True)
            return stop.status
