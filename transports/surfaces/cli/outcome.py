"""How a command ends: documents on stdout, words on stderr, an exit status."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping

from ...errors import ABPError, UsageError

__all__ = ["bad_usage", "interrupted", "out", "perform", "print_json"]


def out(text: str) -> None:
    """A line on stdout, whatever the terminal's encoding can show."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    sys.stdout.flush()


def print_json(document: Mapping[str, object]) -> None:
    """The one document that ``--json`` puts on stdout."""
    from ...messages import encode_json

    out(encode_json(document).decode())


def perform(work: Callable[[], Coroutine[object, object, int]], *, as_json: bool = False) -> int:
    """Run the body of a command; its errors become one line (or one document) and a status."""
    from ...settings import Settings  # late: `abp --help` shall not wait for what only the work needs

    try:
        logging.basicConfig(level=Settings.load().log_level.upper(), stream=sys.stderr, format="abp: %(message)s")
        return asyncio.run(_terminable(work()))
    except (ABPError, ValueError) as error:
        failure = error if isinstance(error, ABPError) else UsageError(str(error))
        status = 2 if isinstance(failure, UsageError) else 1
        _report(failure.as_dict(), cancelled=getattr(failure, "cancelled", False), as_json=as_json)
        return status
    except _Terminated:
        _report({"code": "CANCELLED", "message": "terminated", "retryable": True}, cancelled=True, as_json=as_json)
        return 143


class _Terminated(Exception):
    pass


async def _terminable(work: Coroutine[object, object, int]) -> int:
    """SIGTERM ends the work as Ctrl-C does: by cancellation, so that everything is closed on the way out."""
    task = asyncio.current_task()
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        if task is not None:
            task.cancel()

    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await work
    except asyncio.CancelledError:
        if terminated:
            raise _Terminated from None
        raise


def bad_usage(message: str, *, as_json: bool) -> int:
    """Report wrong arguments."""
    fix = "" if "--help" in message else " (see `abp --help`)"
    _report({"code": "INVALID_PARAMS", "message": message + fix, "retryable": False}, cancelled=False, as_json=as_json)
    return 2


def interrupted(*, as_json: bool) -> int:
    """Report Ctrl-C."""
    _report({"code": "CANCELLED", "message": "interrupted", "retryable": True}, cancelled=True, as_json=as_json)
    return 130


def _report(error: Mapping[str, object], *, cancelled: bool, as_json: bool) -> None:
    if as_json:
        print_json({"success": False, "error": error, "cancelled": cancelled})
    sys.stderr.write(f"abp: {error['message']} [{error['code']}]\n")
