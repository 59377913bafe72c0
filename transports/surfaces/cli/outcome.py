"""How a command ends: documents on stdout, words on stderr, an exit status."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import IO

from ...errors import ABPError, UsageError
from .signals import cancelling

__all__ = ["begin", "failed", "out", "perform", "plain", "print_json", "report", "say", "version_of"]

logger = logging.getLogger("transports.cli")

#: What a terminal might obey: control characters but for tab and newline, and those that turn the writing direction.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LONGEST = 2000
_READER_GONE = 141  # what a shell shows for a program that SIGPIPE ended

_printed = False


def begin() -> None:
    """A command starts: no document is out yet."""
    global _printed
    _printed = False


def plain(text: str) -> str:
    """``text`` without anything that a terminal might obey: an app's words are shown, never acted upon."""
    return _UNPRINTABLE.sub("\ufffd", text)


def out(text: str) -> None:
    """Text on stdout, whatever the terminal's encoding can show."""
    if sys.stdout is not None:
        encoding = sys.stdout.encoding or "utf-8"
        _write(sys.stdout, (plain(text) + "\n").encode(encoding, "replace").decode(encoding))


def print_json(document: Mapping[str, object]) -> None:
    """The one document that ``--json`` puts on stdout, in UTF-8 as JSON must be. Later ones are dropped."""
    from ...protocol.strict_json import encode_json

    global _printed
    if sys.stdout is None or _printed:
        return
    try:
        data = encode_json(document)
    except UnicodeEncodeError:  # a path may hold bytes that are no text
        import json

        data = json.dumps(document).encode()
    _printed = True
    _write(sys.stdout.buffer, data + b"\n")


def _write(stream: IO[str] | IO[bytes], data: str | bytes) -> None:
    try:
        stream.write(data)  # type: ignore[arg-type]
        stream.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise ABPError(f"cannot write to standard output: {error.strerror}; the work itself was done") from error


def say(text: str) -> None:
    """One line on stderr, if anybody can hear it."""
    line = plain(" ".join(text.split()))
    line = line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
    with suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(f"abp: {line}\n")
            sys.stderr.flush()


def perform(work: Callable[[], Coroutine[object, object, int]]) -> int:
    """Run the body of a command. What ``work`` does before it returns its coroutine happens outside the event loop,
    where a signal ends it at once: waiting for stdin belongs there."""
    from ...session.settings import Settings  # late: `abp --help` shall not wait for what only the work needs

    level = Settings.load().log_level.upper()
    logging.basicConfig(level=level, stream=sys.stderr, format="abp: %(message)s")
    if level != "DEBUG":  # what nobody waited for when a driver was killed: no news, and in many lines
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    return asyncio.run(_until_stopped(work()))


async def _until_stopped(work: Coroutine[object, object, int]) -> int:
    """A signal cancels the work, so that everything is closed on the way out, whatever comes of it."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    with cancelling(lambda: loop.call_soon_threadsafe(task.cancel)) as stopped:
        await asyncio.wait((task,))
        stop = stopped()
    if stop is not None and (task.cancelled() or task.exception() is not None):
        raise stop
    return task.result()


def failed(error: Exception, *, as_json: bool) -> int:
    """Say in one line what went wrong and what to do about it; returns the exit status."""
    if isinstance(error, BrokenPipeError):  # `abp … | head`; Python would write again at its exit, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _READER_GONE
    if hasattr(error, "format_message"):
        error = UsageError(_usage(error))
    if isinstance(error, ABPError):
        failure = error
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        failure = ABPError(f"the system refused: {where}{error.strerror or error}")
    else:
        logger.debug("the traceback:", exc_info=error)
        failure = ABPError(
            f"this should not have happened ({type(error).__name__}: {error}); "
            "please report it, with what ABP_LOG_LEVEL=DEBUG shows"
        )
    report(
        failure.code,
        failure.message,
        as_json=as_json,
        cancelled=getattr(failure, "cancelled", False),
        document=failure.as_dict(),
    )
    return 2 if isinstance(failure, UsageError) else 1


def _usage(error: Exception) -> str:
    """The words of the argument parser, and where to read on."""
    text: str = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    if context is None:
        return f"{text}; see `abp --help`"
    hint = f"see `{context.command_path} --help`"
    if text.startswith("missing argument"):
        form = " ".join(re.sub("[{}]", "", context.get_usage()).split()[1:])
        return f"{text}; the form is `{form}`, {hint}"
    known = getattr(context.command, "list_commands", None)
    if known is not None and "command" in text:
        return f"{text}; the commands are {', '.join(known(context))}, {hint}"
    return f"{text}; {hint}"


def report(
    code: str, message: str, *, as_json: bool, cancelled: bool = False, document: Mapping[str, object] | None = None
) -> None:
    """The error on stderr and, with ``--json``, as the document on stdout."""
    others = document.get("alternatives") if document else None
    if isinstance(others, list) and not any(str(name) in message for name in others):
        message += f"; did you mean {', '.join(map(str, others))}?"
    say(f"{message} [{code}]")
    if as_json:
        error = document or {"code": code, "message": message, "retryable": cancelled}
        with suppress(OSError, ABPError):  # nobody reads it, and stderr has it
            print_json({"success": False, "error": error, "cancelled": cancelled})


def version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # run from its source
        return "unknown"
