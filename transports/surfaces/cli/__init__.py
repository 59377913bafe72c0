"""The ``abp`` command, and the signals that end it: SIGINT, SIGTERM, SIGHUP, and SIGBREAK on Windows.

Exit status: 0 success, 1 the work failed, 2 bad usage. A command that a signal ends exits with 128 plus the signal's
number, as in every shell: Ctrl-C 130, SIGTERM 143, a closed reader of stdout (SIGPIPE) 141.

Only the first signal counts, since closing takes a few seconds at most. A command that continues after Ctrl-C declares
that with :func:`on_interrupt`, a command that first finishes its running work with :func:`draining`. This module
imports nothing heavy: a signal before the handlers are set ends in a traceback."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

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
    """Run a command and return its exit status, also after a signal. ``final`` means that the process ends after it."""
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
        # For a server, a signal is the normal end and no error.
        if not _expected:
            _report_stop(stop, as_json="--json" in args)
        return stop.status


def _report_stop(stop: Stopped, *, as_json: bool) -> None:
    from ...errors import CapabilityError
    from ._output import report_error

    error = CapabilityError(str(stop), code="CANCELLED", retryable=True)
    error.cancelled = True
    report_error(error, as_json=as_json)


_REASONS = {
    "SIGINT": "interrupted",
    "SIGTERM": "terminated",
    "SIGHUP": "the terminal went away",
    "SIGBREAK": "interrupted",
}

_received: int | None = None
_expected = False
_drained = False
#: Handlers of the contexts that are open now, the innermost last. Each returns whether it has handled the signal.
_handlers: list[Callable[[int], bool]] = []


class Stopped(KeyboardInterrupt):
    """Raised for the signal that ends a command. ``status`` is its exit status: 128 and the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(_REASONS[signal.Signals(number).name])
        self.status = 128 + number


@contextmanager
def handle_signals(*, final: bool = False) -> Iterator[None]:
    """Handle signals while the context lasts: the first one raises :class:`Stopped`, or calls the callback of
    :func:`on_signal`. A signal that the parent process set to be ignored (``nohup``, a background job) stays ignored.
    ``final`` means that the process ends after the context; then further signals do not interrupt its exit."""
    global _received, _expected, _drained
    _received = None
    _expected = _drained = False
    numbers = [getattr(signal, name) for name in _REASONS if hasattr(signal, name)]
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous_handlers = {number: signal.signal(number, _handle_signal) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            is_exiting = final and (_received is not None or _drained)
            signal.signal(number, signal.SIG_IGN if is_exiting else handler)


def _handle_signal(number: int, _: FrameType | None) -> None:
    global _received
    is_handled = any(handler(number) for handler in reversed(_handlers))
    if not is_handled and _received is None:
        _received = number
        raise Stopped(number)


@contextmanager
def _handling_signals(handler: Callable[[int], bool]) -> Iterator[None]:
    _handlers.append(handler)
    try:
        yield
    finally:
        _handlers.remove(handler)


def expect_signal() -> None:
    """Declare that a signal is the normal end of this command, as of a server, so that no error is printed."""
    global _expected
    _expected = True


@contextmanager
def on_signal(callback: Callable[[], object]) -> Iterator[Callable[[], Stopped | None]]:
    """Call ``callback`` for a signal, in the middle of whatever the main thread does. Yields a function that returns
    the exception for the received signal, or ``None``. Handlers of the event loop (``loop.add_signal_handler``) would
    not suffice: these also cover the imports before the loop, waiting for stdin outside the loop, and its end. The loop
    would also restore the default handlers, not those set before."""

    def handle(number: int) -> bool:
        global _received
        if _received is None:
            _received = number
            callback()
        return True

    with _handling_signals(handle):
        yield lambda: None if _received is None else Stopped(_received)


@contextmanager
def on_interrupt(callback: Callable[[], object]) -> Iterator[None]:
    """Call ``callback`` for each SIGINT while the context lasts, to cancel one call instead of ending the command."""

    def handle(number: int) -> bool:
        is_interrupt = number == signal.SIGINT
        if is_interrupt:
            callback()
        return is_interrupt

    with _handling_signals(handle):
        yield


@contextmanager
def draining(callback: Callable[[], object]) -> Iterator[Callable[[], Stopped | None]]:
    """Call ``callback`` for the first signal while the context lasts, instead of ending the command; a second signal
    ends the command. Yields a function that returns the exception for the first one, or ``None``."""
    first: int | None = None

    def handle(number: int) -> bool:
        nonlocal first
        global _drained
        if first is not None:
            return False
        first = number
        _drained = True
        callback()
        return True

    with _handling_signals(handle):
        yield lambda: None if first is None else Stopped(first)
