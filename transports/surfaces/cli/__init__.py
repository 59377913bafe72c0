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
        # At exit Python would look for cycles in all modules once more, for a fifth of a short command's time.
        gc.freeze()


def _run_command(args: list[str], *, final: bool) -> int:
    """Run one command and return its exit status, also after a signal. ``final`` means that the process ends then."""
    try:
        with handle_signals(final=final):
            # A signal waits for the import: an exception there would leave half a module.
            with on_signal(lambda: None) as signalled:
                from ._commands import run
            stop = signalled()
            if stop is not None:
                raise stop
            return run(args)
    except Stopped as stop:
        if not is_expected():
            _report_stop(stop, as_json="--json" in args)
        return stop.status


def _report_stop(stop: Stopped, *, as_json: bool) -> None:
    from ...errors import CapabilityError
    from ._output import report_error

    error = CapabilityError(str(stop), code="CANCELLED", retryable=True)
    error.cancelled = True
    report_error(error, as_json=as_json)
