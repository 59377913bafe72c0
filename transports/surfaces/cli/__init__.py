"""The ``abp`` command.

Exit status: 0 success, 1 the work failed, 2 bad usage. A command that a signal ends exits with 128 plus the signal's
number, as in every shell: Ctrl-C 130, SIGTERM 143, a closed reader of stdout (SIGPIPE) 141."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from ._signals import Stopped, handle_signals, is_expected, on_signal

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command, by default that of ``sys.argv``, and return its exit status."""
    if args is not None:
        return _run_command(list(args), final=False)
    try:
        return _run_command(sys.argv[1:], final=True)
    finally:
        gc.freeze()  # a fifth of a short command: at exit Python would look for cycles in all modules once more


def _run_command(args: list[str], *, final: bool) -> int:
    try:
        with handle_signals(final=final):
            with on_signal(lambda: None) as signalled:  # deferred: an exception in an import would leave half a module
                from ._commands import run
            if stop := signalled():
                raise stop
            return run(args)
    except Stopped as stop:
        if not is_expected():
            from ...errors import CapabilityError
            from ._output import report_error

            error = CapabilityError(str(stop), code="CANCELLED", retryable=True)
            error.cancelled = True
            report_error(error, as_json="--json" in args)
        return stop.status
