"""``abp shell``: interactive calls over one connection, with history and completion.

The command and its loop come first, then the history, the parser of a line (:func:`parse_line`), and the completer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from ...artifacts import open_file, state_folder
from ...errors import ProtocolError, UsageError
from ...privacy import Redactor
from ...protocol import plain_line
from ...tasks import cancel_and_wait
from ._calls import fitting
from ._options import ConnectionOptions, Output, Target, Timeout, open_app, spread_groups
from ._output import ProgressBar, print_note, print_result, print_text, report_error, run_async
from ._params import Params, read_file, set_param, set_value
from ._questions import at_terminal
from ._signals import on_interrupt

if TYPE_CHECKING:
    from ...protocol import Capability
    from ...routing import Result
    from ...session import Session

_HELP = """\
CAPABILITY KEY=VALUE KEY@FILE …   call it: export.pdf html="<h1>Hi</h1>" options.landscape=true
CAPABILITY {"key": "value"}       the same, with parameters as JSON
help CAPABILITY                   its parameters
exit, quit                        end; as Ctrl-D. Ctrl-C cancels a call. Tab completes, ↑ goes back."""


@spread_groups
def shell(target: Target, *, output: Output = None, timeout: Timeout = None, options: ConnectionOptions) -> int:
    """Call capabilities line by line, over one connection.

    Without a terminal the lines come from stdin, and the exit status is 1 if any of them failed.
    """

    connection = options.connection()

    def work() -> Coroutine[object, object, int]:
        given = None if at_terminal() or sys.stdin is None else sys.stdin.read().splitlines()

        async def answer() -> int:
            bar = ProgressBar("")
            async with open_app(target, connection, store=output, pause=bar.pause) as app:
                lines = _typed(app) if given is None else _listed(given)
                return await _Shell(app, timeout, bar, interactive=given is None).run(lines)

        return answer()

    return run_async(work)


async def _listed(lines: list[str]) -> AsyncIterator[str]:
    for line in lines:
        yield line


async def _typed(app: Session) -> AsyncIterator[str]:
    """Yield typed lines until Ctrl-D. Ctrl-C discards the current line."""
    from ._terminal import LineReader

    count = len(app.capabilities)
    print_note(f"{app.info.name} has {count} capabilities; Tab completes, `help` says more, Ctrl-D ends")
    reader = LineReader(LineCompleter(lambda: app.capabilities), open_history())
    while True:
        try:
            yield await reader.read("abp> ")
        except reader.Interrupted:
            continue
        except EOFError:
            return


class _Shell:
    """Loop over lines in one session. If ``interactive``, Ctrl-C cancels the call instead of ending the command."""

    def __init__(self, app: Session, timeout: float | None, bar: ProgressBar, *, interactive: bool) -> None:
        self._app = app
        self._timeout = timeout
        self._bar = bar
        self._interactive = interactive
        self._call: asyncio.Task[Result] | None = None

    async def run(self, lines: AsyncIterator[str]) -> int:
        """Run lines until ``exit`` or ``quit``, and return the exit status: 1 if any line failed and the shell is not
        interactive, otherwise 0."""
        loop = asyncio.get_running_loop()
        interrupts = (
            on_interrupt(lambda: loop.call_soon_threadsafe(self._cancel)) if self._interactive else nullcontext()
        )
        failed = False
        with interrupts:
            async for line in lines:
                if line.strip() in ("exit", "quit") and line.strip() not in self._app.capabilities:
                    break
                try:
                    await self._run(line)
                except BrokenPipeError:
                    raise
                except Exception as error:  # noqa: BLE001 - an error ends the line, not the shell
                    report_error(error, as_json=False)
                    failed = True
        return 1 if failed and not self._interactive else 0

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    async def _run(self, line: str) -> None:

        name, _, rest = line.strip().partition(" ")
        if name == "help" and name not in self._app.capabilities:
            self._help(rest.strip())
            return
        name, params = parse_line(line)
        if name:
            await self._run_call(name, params)

    def _help(self, name: str) -> None:
        from ...protocol import find_capability
        from ._calls import print_capabilities, print_capability

        if not name:
            print_capabilities(self._app.info, self._app.capabilities.values())
            print_text(_HELP)
        else:
            print_capability(find_capability(self._app.info.name, name, self._app.capabilities))

    async def _run_call(self, name: str, params: Params) -> None:
        self._bar.set_label(name)
        with self._bar:
            values = fitting(params, self._app, name)
            work = self._app.call(name, values, timeout=self._timeout, on_progress=self._bar.on_progress)
            self._call = asyncio.ensure_future(work)
            try:
                await asyncio.wait((self._call,))
            finally:
                await cancel_and_wait((self._call,))
        if self._call.cancelled():
            print_note(f"{name}: cancelled", always=True)
        else:
            print_result(self._call.result())


_FILE = "shell-history"
_KEYS = re.compile(r"[\"']?([\w.-]+)[\"']?\s*[=@:]")


def open_history() -> History:
    """Return the history of this user, in a file of mode 0600. If the file cannot be opened, the history is kept in
    memory."""
    try:
        path = state_folder() / _FILE
        os.close(open_file(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        return InMemoryHistory()
    return _History(path)


class _History(FileHistory):
    """History file without lines that begin with a space, as in other shells, and without lines that hold a secret."""

    def store_string(self, string: str) -> None:
        redactor = Redactor()
        secret = redactor.text(string) != string or any(redactor.is_secret(key) for key in _KEYS.findall(string))
        if not string.startswith(" ") and not secret:
            with suppress(OSError):
                super().store_string(string)


#: The shell's own commands; a capability with the same name takes precedence.
COMMANDS = {
    "help": "list capabilities and commands; help CAPABILITY: its parameters",
    "exit": "end the shell, as Ctrl-D does",
    "quit": "end the shell, as exit does",
}
_KEY = re.compile(r"\s*([^\s=@'\"{}\[\]]+)([=@])")
_DECODER = json.JSONDecoder()


def parse_line(line: str) -> tuple[str, Params]:
    """Parse a line into its first word and its parameters.

    These are one JSON object, or any number of ``KEY=VALUE`` and ``KEY@PATH`` (a file); a dot in KEY leads into an
    object. VALUE is JSON, ``@FILE``, or text up to the next space; text with spaces needs quotes. Raises
    :class:`~transports.errors.UsageError` for anything else."""
    name, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if rest.startswith("{"):
        return name, Params(_json_object(rest))
    params = Params()
    given: set[tuple[str, ...]] = set()
    while rest:
        match = _KEY.match(rest)
        path = match[1].split(".") if match else []
        if match is None or not all(path):
            word = rest.split()[0]
            raise UsageError(f"{word!r} is not of the form KEY=VALUE or KEY@FILE, such as title=Report or image@a.png")
        text, verbatim, rest = _value(rest[match.end() :], match[1], is_file=match[2] == "@")
        if match[2] == "@":
            set_param(params, path, read_file(text, f"{match[1]}@{text}"), given)
        elif verbatim:
            set_param(params, path, text, given)
        else:
            set_value(params, path, text, f"{match[1]}={text}", given)
    return name, params


def _json_object(text: str) -> dict[str, object]:
    from ...protocol import decode_json

    try:
        params = decode_json(text)
    except ProtocolError as error:
        raise UsageError(f"this is not JSON ({error.message.partition('cannot be read: ')[2]}): {text}") from error
    assert isinstance(params, dict)
    return params


def _value(rest: str, key: str, *, is_file: bool) -> tuple[str, bool, str]:
    """Split ``rest`` into the text of the value at its beginning and the remaining text.

    The second item is true if the text is the value, and not decoded as JSON or ``@FILE``."""
    if rest[:1] == "'":
        text, quote, after = rest[1:].partition("'")
        if not quote or after[:1].strip():
            raise UsageError(f"{key}: the quote ' does not end, or something follows it without a space")
        return text, True, after.strip()
    if rest[:1] in ('"', "{", "["):
        try:
            decoded, end = _DECODER.raw_decode(rest)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UsageError(f"{key}: {rest} is not JSON ({error}); for text as it is: {key}='…'") from None
        if rest[end : end + 1].strip():
            raise UsageError(f"{key}: {rest[end:].split()[0]!r} follows the value without a space")
        return (str(decoded) if is_file else rest[:end]), False, rest[end:].strip()
    text, _, after = rest.partition(" ")
    return text, False, after.strip()


class LineCompleter(Completer):
    """Completer of capability names, parameter names, values and file paths."""

    def __init__(self, capabilities: Callable[[], Mapping[str, Capability]]) -> None:
        self._capabilities = capabilities
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions at the cursor."""
        text = document.text_before_cursor.lstrip()
        name, space, rest = text.partition(" ")
        known = self._capabilities()
        if not space or name == "help":
            yield from self._names(rest if space else name, known, commands=not space)
        elif name in known:
            yield from self._parameters(rest, known[name], complete_event)

    def _names(self, typed: str, known: Mapping[str, Capability], *, commands: bool) -> Iterator[Completion]:
        described = {name: capability.description for name, capability in known.items()}
        for name, description in sorted(((COMMANDS if commands else {}) | described).items()):
            if name.startswith(typed):
                yield Completion(name, -len(typed), plain_line(name), plain_line(description))

    def _parameters(self, rest: str, capability: Capability, event: CompleteEvent) -> Iterator[Completion]:
        word = rest.rpartition(" ")[2]
        given = set(re.findall(r"(?:^|\s)([^\s=@]+)[=@]", rest))
        match = re.match(r"([^=@]*)([=@])(.*)", word)
        schema: Mapping[str, Any] = capability.input_schema
        if match is None:
            above, dot, typed = word.rpartition(".")
            for name, one in _properties(_at(schema, above.split(".") if dot else [])).items():
                full = f"{above}{dot}{name}"
                if name.startswith(typed) and full not in given:
                    ends = "." if _properties(one) else "="
                    described = plain_line(str(one.get("description", "")))
                    yield Completion(f"{name}{ends}", -len(typed), plain_line(f"{name}{ends}"), described)
        elif match[2] == "@":
            yield from self._paths.get_completions(Document(match[3]), event)
        else:
            one = _at(schema, match[1].split("."))
            values = [True, False] if one.get("type") == "boolean" else one.get("enum", [])
            for value in values if isinstance(values, list) else []:
                shown = value if isinstance(value, str) and " " not in value else json.dumps(value)
                if shown.startswith(match[3]):
                    yield Completion(shown, -len(match[3]))


def _at(schema: Mapping[str, Any], path: Iterable[str]) -> Mapping[str, Any]:
    """Return the schema of the parameter at a path; empty if it is not declared."""
    for step in path:
        schema = _properties(schema).get(step, {})
    return schema


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the declared properties of an object. The app's schema is not trusted to be valid."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): one if isinstance(one, Mapping) else {} for name, one in properties.items()}
