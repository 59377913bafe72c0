"""Output of a command: results on stdout, notes and errors on stderr, and exit statuses.

Every command loads this module, also ``abp --help``, so it imports nothing that takes long."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ABPError, CapabilityError, NotRecorded, StoredFile, UsageError
from ...protocol._plain_text import plain_json, plain_line, plain_text, similar_names

if TYPE_CHECKING:
    from ...protocol._payloads import Progress
    from ...routing._result import Result

logger = logging.getLogger("transports.cli")

#: Arguments of the Python API that messages name, and the words for them in messages of the command line.
OPTIONS = {
    "connect(timeout=) or ABP_BROWSER_TIMEOUT": "ABP_BROWSER_TIMEOUT",
    "a pathlib.Path, bytes, an open file or a BinaryData": "it with --file KEY=PATH (in the shell KEY@PATH)",
    "timeout=": "--timeout",
    "transport=": "--transport",
    "token=": "--token",
    "token= or headers=": "--token or --header",
    "headers=": "--token or --header",
    "storage_state=": "--storage-state",
    "profile=": "--profile",
    "cdp_url=": "--cdp-url",
    "browser_server=": "--browser-server",
    "accept_compression=True": "--accept-compression",
    "adapter=": "--adapter",
    "allow_programs=": "--allow-programs",
    "files_from=": "--files-from",
    "target=": "--target",
    "leave headless=True": "leave --headed out",
    "headless=": "--headed",
    "browser=": "--browser",
    "store=": "--out",
    "evidence=": "--evidence",
    "record= or ": "",
    "record=": "--record",
    "open_view": "`abp view --record`",
    ", or give a context= that was made with ignore_https_errors=True": "",
    "give on_elicitation=": "no terminal",
}

#: -1 for ``-q``, otherwise the number of ``-v``.
_verbosity = 0


def is_quiet() -> bool:
    return _verbosity < 0


def log_level(configured: str) -> str:
    levels = {-1: "ERROR", 1: "INFO", 2: "DEBUG"}
    return levels.get(_verbosity, configured).upper()


def _set_verbose(count: int) -> None:
    global _verbosity
    if count:
        _verbosity = min(count, 2)


def _set_quiet(quiet: bool) -> None:
    global _verbosity
    if quiet:
        _verbosity = -1


def _options(
    verbose: Annotated[
        int,
        typer.Option(
            *("-v", "--verbose"),
            count=True,
            expose_value=False,
            callback=_set_verbose,
            show_default=False,
            help="Log more on stderr; -vv logs everything.",
        ),
    ] = 0,
    quiet: Annotated[
        bool,
        typer.Option(
            *("-q", "--quiet"), expose_value=False, callback=_set_quiet, help="Only errors on stderr: no progress."
        ),
    ] = False,
) -> None:
    """Declare ``-v`` and ``-q``; Typer reads them from this signature."""


def add_options(command: Any) -> None:
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    options: Any = typer.main.get_command(app)
    for target in (command, *getattr(command, "commands", {}).values()):
        target.params += options.params


@dataclass(frozen=True, slots=True)
class Limits:
    """Most characters of what is printed, and most rows of a table."""

    #: A note on stderr, such as an error with a long message of the app.
    note: int = 2000
    #: Summary of a result: enough for hundreds of files.
    summary: int = 100_000
    #: Description of a capability in a list; the description of a single one is printed whole.
    description: int = 120
    #: Cell of the table of parameters, except the last of a row, and the choices of an enum in it.
    cell: int = 40
    choices: int = 200
    parameters: int = 100
    #: Requests of a view, and the parameters of each.
    requests: int = 50
    request_params: int = 200
    #: Ids in the message for an ambiguous name.
    ids: int = 5


LIMITS = Limits()

_printed = False
#: Whether something was to be printed on a stdout that is closed.
_lost = False


def start_output() -> None:
    global _printed, _lost, _verbosity
    _printed = _lost = False
    _verbosity = 0


def require_output() -> None:
    """Raise an error if the command had output but stdout is closed. Servers do not call this."""
    if _lost:
        raise _write_error("it is closed")


def _write_error(reason: str | None) -> ABPError:
    return ABPError(f"cannot write to standard output: {reason}; the work itself was done")


def _has_stdout() -> bool:
    """Return whether stdout is open. If it is not, remember that output was lost."""
    global _lost
    if sys.stdout is None:
        _lost = True
    return sys.stdout is not None


def stdout_is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def is_dumb_terminal() -> bool:
    """Return whether the terminal can neither move its cursor nor draw, as in a window of an editor."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def shows_progress() -> bool:
    return not is_quiet() and sys.stderr is not None and sys.stderr.isatty() and not is_dumb_terminal()


def at_terminal() -> bool:
    """Return whether the user can be asked: stdin and stderr are terminals. Stdout is for results and may be a file."""
    # The descriptors are asked: while it draws progress, rich before version 15 replaces stderr by a stream whose
    # isatty() is false.
    try:
        return all(stream is not None and os.isatty(stream.fileno()) for stream in (sys.stdin, sys.stderr))
    except OSError:
        # A stream such as io.StringIO has no file.
        return False


def print_text(text: str, *, end: str = "\n") -> None:
    if _has_stdout():
        _write_stdout(sys.stdout, spellable(plain_text(text)) + end)


def spellable(text: str) -> str:
    """Replace the characters that the encoding of stdout does not have by ``?``."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def aligned_rows(rows: Iterable[Sequence[str]], *, numbers: Collection[int] = ()) -> list[str]:
    """Return the lines of a table. Cells are padded to their width in a terminal, where a Chinese, Japanese or Korean
    character takes two places. ``numbers`` are the columns that are aligned at the right."""
    from rich.cells import cell_len  # slow to import, and only for lists

    plain = [tuple(map(plain_line, row)) for row in rows]
    # A cell that is wider than 80 only shifts its own row.
    widths = [min(80, max(map(cell_len, column))) for column in zip(*plain, strict=True)]
    lines = []
    for row in plain:
        cells = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - cell_len(cell))
            if index in numbers:
                cells.append(padding + cell)
            else:
                cells.append(cell + padding)
        lines.append("  ".join(cells).rstrip())
    return lines


def print_rows(rows: Iterable[Sequence[str]], *, indent: str = "", numbers: Collection[int] = ()) -> None:
    for line in aligned_rows(rows, numbers=numbers):
        print_text(indent + line)


def print_json(document: Mapping[str, object]) -> None:
    """Print in UTF-8, without control characters for a terminal. A second document is dropped."""
    global _printed
    if not _has_stdout() or _printed:
        return
    try:
        data = _encode_plainly(document)
    except UnicodeEncodeError:
        # A path may hold bytes that are not UTF-8, which json.dumps() writes as escapes.
        data = _plain_bytes(json.dumps(document).encode())
    _printed = True
    _write_stdout(sys.stdout.buffer, data + b"\n")


def print_event(document: Mapping[str, object]) -> None:
    """Print one JSON line of a command that prints several, such as events."""
    print_bytes(_encode_plainly(document) + b"\n")


def print_bytes(data: bytes) -> None:
    if _has_stdout():
        _write_stdout(sys.stdout.buffer, data)


def _encode_plainly(document: Mapping[str, object]) -> bytes:
    from ...protocol._strict_json import encode_json  # late: its encoder takes 10 ms to load

    return _plain_bytes(encode_json(document))


def _plain_bytes(data: bytes) -> bytes:
    if data.isascii() and b"\x7f" not in data:
        return data
    return plain_json(data.decode()).encode()


def _write_stdout(stream: IO[str] | IO[bytes], data: str | bytes) -> None:
    """Write and flush. Raises :class:`BrokenPipeError` if the reader has closed the pipe, and
    :class:`~transports.errors.ABPError` for any other failure."""
    # A program that shares the pipe may have made it non-blocking: then an unbuffered stream drops what does not fit.
    # Windows before Python 3.12 does not have this function, which raises AttributeError.
    with suppress(AttributeError, OSError, ValueError):
        os.set_blocking(stream.fileno(), True)
    try:
        stream.write(data)  # type: ignore[arg-type]
        stream.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise _write_error(error.strerror) from error


def print_note(text: str, *, always: bool = False) -> None:
    if is_quiet() and not always:
        return
    line = " ".join(text.split())
    if len(line) > LIMITS.note:
        line = line[: LIMITS.note] + "…"
    print_line(f"abp: {line}")


def expect_mcp_client() -> None:
    """Explain a command that speaks MCP over stdin and stdout to a person who runs it at a terminal.

    Raises :class:`~transports.errors.UsageError` if one of them is closed."""
    if sys.stdin is None or sys.stdout is None:
        raise UsageError("stdin or stdout is closed; an MCP client speaks to this command there")
    if sys.stdin.isatty():
        print_note("an MCP client starts this command and speaks to it here; Ctrl-C ends it", always=True)


def print_line(text: str) -> None:
    with suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(plain_text(text) + "\n")
            sys.stderr.flush()


def report_error(error: Exception, *, as_json: bool) -> int:
    """Print an error. Return the exit status: 2 for bad usage or refused parameters, 141 if the reader of stdout has
    closed the pipe, otherwise 1."""
    if isinstance(error, BrokenPipeError):
        # The reader has gone, as in `abp … | head`. Python would flush stdout at exit, and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141

    failure = _as_abp_error(error)
    print_error(failure)
    if as_json:
        # Stdout may be closed; stderr has the error already.
        with suppress(OSError, ABPError):
            print_json(error_document(failure))

    # Invalid parameters are bad usage, whether the app or the kit finds them.
    bad_params = ("INVALID_PARAMS", "MISSING_PARAM", "INVALID_TYPE")
    is_refused_by_app = isinstance(failure, CapabilityError) and failure.code in bad_params
    is_bad_usage = is_refused_by_app or isinstance(failure, UsageError)
    return 2 if is_bad_usage else 1


def _as_abp_error(error: Exception) -> ABPError:
    """Return the error to report for any exception that ends a command."""
    # Errors of the argument parser have this method; their class is private to Typer.
    if hasattr(error, "format_message"):
        return UsageError(_usage_message(error))
    if isinstance(error, ABPError):
        return error
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        return ABPError(f"the system refused: {file}{error.strerror or error}")
    logger.debug("the traceback:", exc_info=error)
    return ABPError(
        f"this should not have happened ({type(error).__name__}: {error}); "
        "please report it, with what ABP_LOG_LEVEL=DEBUG shows"
    )


def evidence_lines(evidence: Mapping[str, StoredFile]) -> list[str]:
    lines = []
    for kind, file in evidence.items():
        line = f"Evidence, {kind}: {file.path or file.uri}"
        if kind == "trace" and file.path:
            line += f" (playwright show-trace {shlex.quote(str(file.path))})"
        lines.append(line)
    return lines


def print_result(result: Result) -> None:
    """Print a summary; on a terminal, a small answer without files comes first, indented and in colour."""
    print_warnings(result)
    prints_answer = stdout_is_terminal() and result.small_answer() is not None
    if prints_answer:
        _print_value(result.data)
    print_text(replace(result, warnings=()).summary(max_chars=LIMITS.summary, with_answer=not prints_answer))
    for line in evidence_lines(result.evidence):
        print_text(line)


def print_warnings(result: Result) -> None:
    for warning in result.warnings:
        print_note(f"warning: {warning}")


def _print_value(value: object) -> None:
    from rich.console import Console
    from rich.highlighter import JSONHighlighter

    text = plain_json(json.dumps(value, indent=2, ensure_ascii=False))
    coloured_text = JSONHighlighter()(spellable(text))
    Console(file=sys.stdout).print(coloured_text, soft_wrap=True)


def _usage_message(error: Exception) -> str:
    """Reword an error of the parser, which writes ``No such option: --jsn``, ``Missing argument 'CAPABILITY'.`` or
    ``No such command 'cal'. Did you mean 'call'?``, for example."""
    text: str = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    text = text[:1].lower() + text[1:]

    context = getattr(error, "ctx", None)
    if context is None:
        return f"{text}; see `abp --help`"
    hint = f"see `{context.command_path} --help`"

    option = getattr(error, "option_name", None)
    if option:
        similar = similar_names(option, getattr(error, "possibilities", None) or (), max_names=1)
        if similar:
            return f"no such option: {option}; did you mean {similar[0]}?; {hint}"

    if text.startswith("missing argument"):
        _usage, *words = re.sub("[{}]", "", context.get_usage()).split()  # "Usage: abp call …"
        form = " ".join(words)
        if "'CAPABILITY'" in text:
            text += "; `abp capabilities TARGET` lists them"
        return f"{text}; the form is `{form}`, {hint}"

    list_commands = getattr(context.command, "list_commands", None)
    text = re.sub(r"\. Did you mean (.*)\?$", r"; did you mean \1?", text)
    is_like_no_command = "command" in text and "did you mean" not in text
    if list_commands is not None and is_like_no_command:
        return f"{text}; the commands are {', '.join(list_commands(context))}, {hint}"
    return f"{text}; {hint}"


def print_error(error: ABPError, prefix: str = "") -> None:
    """Print an error. The diff of a replay, the invalid lines of a batch, and the places of evidence follow it in
    separate lines."""
    message = prefix + error.message
    extra_lines = ""
    if error.code == NotRecorded.code:
        extra_lines = str(error.details.get("diff", ""))
    elif error.code == UsageError.code:
        extra_lines = str(error.details.get("refused", ""))

    message = message.removesuffix(extra_lines).rstrip()

    print_note(f"{message} [{error.code}]", always=True)
    for line in extra_lines.splitlines():
        print_line(f"    {line}")
    for line in evidence_lines(error.evidence):
        print_note(line)


def error_document(error: ABPError) -> dict[str, object]:
    return {"success": False, "error": error.as_dict(), "cancelled": getattr(error, "cancelled", False)}


def installed_version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # late: it takes 20 ms to load

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


class ProgressBar:
    """Progress bar on stderr while the context lasts, if :func:`shows_progress`."""

    def __init__(self, label: str) -> None:
        #: The callback for progress; ``None`` without a bar.
        self.on_progress: Callable[[Progress], None] | None = None
        self._running = False
        if not shows_progress():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[stage]}", markup=False),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(plain_line(label), total=None, stage="")
        self.on_progress = self._update

    def __enter__(self) -> ProgressBar:
        if self.on_progress is not None:
            self._progress.start()
            self._running = True
        return self

    def __exit__(self, *_: object) -> None:
        if self.on_progress is not None:
            self._progress.stop()
            self._running = False

    def set_label(self, label: str) -> None:
        if self.on_progress is not None:
            self._progress.remove_task(self._task)
            self._task = self._progress.add_task(plain_line(label), total=None, stage="")

    @contextmanager
    def pause(self) -> Iterator[None]:
        running = self._running
        self.__exit__()
        try:
            yield
        finally:
            if running:
                self.__enter__()

    def _update(self, progress: Progress) -> None:
        stage = plain_line(progress.stage or progress.status or "")
        if progress.fraction is None:
            self._progress.update(self._task, stage=stage)
        else:
            self._progress.update(self._task, total=1.0, completed=progress.fraction, stage=stage)
