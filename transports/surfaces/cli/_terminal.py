"""Line input at the terminal, with editing, completion and history."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.defaults import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.output import DummyOutput, Output
from prompt_toolkit.output.defaults import create_output
from prompt_toolkit.output.plain_text import PlainTextOutput

from ..._internal.privacy._redaction import Redactor
from ...artifacts._files import open_file, state_folder
from ...protocol._plain_text import plain_line
from ._output import is_dumb_terminal

if TYPE_CHECKING:
    from ...protocol._declarations import Capability

#: Name of the history's file in the folder of state.
_FILE = "shell-history"


class LineReader:
    """Reader of lines from the terminal at stdin.

    Prompts go to stderr, since stdout is for results. With ``secret`` the typed text is not echoed."""

    class Interrupted(Exception):
        """Raised for Ctrl-C, which arrives as a key here, not as a signal."""

    def __init__(
        self, completer: Completer | None = None, history: History | None = None, *, secret: bool = False
    ) -> None:
        self._secret = secret
        # not passed to PromptSession: with an explicit output it does not detect a dumb terminal
        with create_app_session(input=create_input(sys.stdin), output=self._output()):
            self._session: PromptSession[str] = PromptSession(
                completer=completer,
                history=history,
                is_password=secret,
                complete_while_typing=False,
                interrupt_exception=self.Interrupted,
            )

    def _output(self) -> Output:
        if not is_dumb_terminal():
            return create_output(sys.stderr)
        return DummyOutput() if self._secret else PlainTextOutput(sys.stderr)

    def drop_typed(self) -> None:
        """Discard unread input, which was not meant for the next prompt."""
        if _drop_waiting():
            clear_typeahead(self._session.input)

    async def read(self, prompt: str) -> str:
        """Return the next line. Raises :class:`Interrupted` for Ctrl-C and :class:`EOFError` for Ctrl-D."""
        if not (self._secret and is_dumb_terminal()):
            return await self._session.prompt_async(prompt, handle_sigint=False)
        sys.stderr.write(prompt)
        sys.stderr.flush()
        try:
            return await self._session.prompt_async(handle_sigint=False)
        finally:
            sys.stderr.write("\n")


def _drop_waiting() -> bool:
    """Discard the terminal's input buffer. Return ``False`` if stdin is not a terminal."""
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
        return sys.stdin.isatty()
    import termios

    try:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    except (termios.error, OSError, ValueError):
        return False
    return True


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


class LineCompleter(Completer):
    """Completer of capability names, parameter names, values and file paths.

    ``commands`` are the shell's own, with their descriptions."""

    def __init__(self, capabilities: Callable[[], Mapping[str, Capability]], commands: Mapping[str, str]) -> None:
        self._capabilities = capabilities
        self._commands = commands
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
        for name, description in sorted(({**(self._commands if commands else {}), **described}).items()):
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
