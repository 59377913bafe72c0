"""The ``abp`` command. Exit status: 0 success, 1 the work failed, 2 bad usage; ended by a signal (Ctrl-C is 130,
SIGTERM 143) or by a reader that went away (141), 128 and the signal's number, as every shell has it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .signals import Stopped, cancelling, stoppable

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = list(sys.argv[1:] if args is None else args)
    with stoppable():
        with cancelling(lambda: None) as stopped:  # Ctrl-C is heard by now, but a module half imported serves nobody
            from .commands import run
            from .outcome import report
        try:
            if stop := stopped():
                raise stop
            return run(given)
        except Stopped as stop:
            report("CANCELLED", str(stop), as_json="--json" in given, cancelled=True)
            return stop.status
