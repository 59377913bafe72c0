"""Line input at the terminal, with editing, completion and history."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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

from ..._internal.redaction import Redactor
from ...artifacts._files import open_file, state_folder
from ...protocol._plain_text import plain_line
from ...protocol._strict_json import members_of
from ._output import is_dumb_terminal

if TYPE_CHECKING:
    from ...protocol._declarations import Capability


class LineReader:
    """Reads lines at the terminal. Prompts go to stderr, since stdout is for results. With ``secret`` the typed text is
    not shown."""

    class Interrupted(Exception):
        """Raised for Ctrl-C, which arrives as a key here, not as a signal."""

    def __init__(
        self, completer: Completer | None = None, history: History | None = None, *, secret: bool = False
    ) -> None:
        self._secret = secret
        # The input and output are not passed to PromptSession: with an explicit output it does not detect a dumb
        # terminal.
        with create_app_session(input=create_input(sys.stdin), output=self._make_output()):
            self._session: PromptSession[str] = PromptSession(
                completer=completer,
                history=history,
                is_password=secret,
                complete_while_typing=False,
                interrupt_exception=self.Interrupted,
            )

    def _make_output(self) -> Output:
        if not is_dumb_terminal():
            return create_output(sys.stderr)
        if self._secret:
            return DummyOutput()
        return PlainTextOutput(sys.stderr)

    def drop_typed(self) -> None:
        """Discard unread input, which was not meant for the next prompt."""
        if _discard_input():
            clear_typeahead(self._session.input)

    async def read(self, prompt: str) -> str:
        """Return the next line. Raises :class:`Interrupted` for Ctrl-C and :class:`EOFError` for Ctrl-D."""
        if not (self._secret and is_dumb_terminal()):
            return await self._session.prompt_async(prompt, handle_sigint=False)
        # On a dumb terminal the session has no output, since that would show the secret. So the prompt is written here.
        sys.stderr.write(prompt)
        sys.stderr.flush()
        try:
            return await self._session.prompt_async(handle_sigint=False)
        finally:
            sys.stderr.write("\n")


def _discard_input() -> bool:
    """Discard what was typed and not read yet. Return ``False`` if stdin is not a terminal."""
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
    """Open this user's history file; if it cannot be opened, the history is kept in memory."""
    try:
        path = state_folder() / "shell-history"
        os.close(open_file(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        return InMemoryHistory()
    return _History(path)


class _History(FileHistory):
    """History file without lines that begin with a space, as in other shells, and without lines that hold a secret."""

    def store_string(self, string: str) -> None:
        redactor = Redactor()
        names_secret = any(redactor.is_secret(key) for key in _KEYS.findall(string))
        has_secret = names_secret or redactor.redact_text(string) != string
        if not string.startswith(" ") and not has_secret:
            with suppress(OSError):
                super().store_string(string)


class LineCompleter(Completer):
    """Completes lines of the shell. ``commands`` are the shell's own, with their descriptions."""

    def __init__(self, capabilities: Callable[[], Mapping[str, Capability]], commands: Mapping[str, str]) -> None:
        self._capabilities = capabilities
        self._commands = commands
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor.lstrip()
        name, space, rest = text.partition(" ")
        capabilities = self._capabilities()
        descriptions = {name: capability.description for name, capability in capabilities.items()}
        is_first_word = not space
        if is_first_word:
            yield from self._complete_name(name, {**self._commands, **descriptions})
        elif name == "help":
            yield from self._complete_name(rest, descriptions)
        elif name in capabilities:
            yield from self._complete_parameter(rest, capabilities[name], complete_event)

    def _complete_name(self, typed: str, descriptions: Mapping[str, str]) -> Iterator[Completion]:
        for name, description in sorted(descriptions.items()):
            if name.startswith(typed):
                yield Completion(name, -len(typed), plain_line(name), plain_line(description))

    def _complete_parameter(self, rest: str, capability: Capability, event: CompleteEvent) -> Iterator[Completion]:
        _, _, word = rest.rpartition(" ")
        match = re.match(r"(?P<key>[^=@]*)(?P<sign>[=@])(?P<value>.*)", word)
        if match is None:
            typed_keys = set(re.findall(r"(?:^|\s)([^\s=@]+)[=@]", rest))
            yield from _complete_key(word, capability.input_schema, typed_keys)
        elif match["sign"] == "@":
            yield from self._paths.get_completions(Document(match["value"]), event)
        else:
            schema = _schema_at(capability.input_schema, match["key"].split("."))
            yield from _complete_value(match["value"], schema)


def _complete_key(word: str, schema: Mapping[str, Any], typed_keys: Collection[str]) -> Iterator[Completion]:
    """Complete the name of a parameter. After a dot, ``word`` leads into an object."""
    above, dot, typed = word.rpartition(".")
    path = above.split(".") if dot else []
    for name, declared in _properties(_schema_at(schema, path)).items():
        if not name.startswith(typed) or f"{above}{dot}{name}" in typed_keys:
            continue
        text = f"{name}." if _properties(declared) else f"{name}="
        description = plain_line(str(declared.get("description", "")))
        yield Completion(text, -len(typed), plain_line(text), description)


def _complete_value(typed: str, schema: Mapping[str, Any]) -> Iterator[Completion]:
    values = schema.get("enum")
    if schema.get("type") == "boolean":
        values = [True, False]
    if not isinstance(values, list):
        return
    for value in values:
        text = json.dumps(value)
        if isinstance(value, str) and " " not in value:
            text = value
        if text.startswith(typed):
            yield Completion(text, -len(typed))


def _schema_at(schema: Mapping[str, Any], path: Iterable[str]) -> Mapping[str, Any]:
    for step in path:
        schema = _properties(schema).get(step, {})
    return schema


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the declared properties of an object. The app's schema is not trusted to be valid."""
    properties = members_of(schema.get("properties"))
    return {name: members_of(declared) for name, declared in properties.items()}
