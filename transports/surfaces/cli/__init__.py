"""The ``abp`` command. Exit status: 0 success, 1 the work failed, 2 bad usage; ended by a signal (Ctrl-C is 130,
SIGTERM 143) or by a reader that went away (141), 128 and the signal's number, as every shell has it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from ._signals import Stopped, handle_signals, on_signal

__all__ = ["main"]

#: New objects until the garbage collector looks for cycles among them. Importing makes many and leaves no garbage: with
#: Python's own 700 a sixth of the time until the browser starts goes to the collector.
_OBJECTS = 20_000


def main(args: Sequence[str] | None = None) -> int:
    """Run one command, by default that of ``sys.argv``, and return its exit status."""
    if args is not None:
        return _run(list(args), final=False)
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    try:
        return _run(sys.argv[1:], final=True)
    finally:
        gc.freeze()  # the process ends, and would look for cycles in all its modules once more: 0.1 s


def _run(given: list[str], *, final: bool) -> int:
    with handle_signals(final=final):
        with on_signal(lambda: None) as signalled:  # not in the middle of an import, which would leave half a module
            from ._commands import run
            from ._output import print_error
        try:
            if stop := signalled():
                raise stop
            return run(given)
        except Stopped as stop:
            print_error("CANCELLED", str(stop), as_json="--json" in given, cancelled=True)
            return stop.status
