"""Line input at the terminal, with editing, completion and history."""

from __future__ import annotations

import sys

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import Completer
from prompt_toolkit.history import History
from prompt_toolkit.input.defaults import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.output import DummyOutput, Output
from prompt_toolkit.output.defaults import create_output
from prompt_toolkit.output.plain_text import PlainTextOutput

from ._output import is_dumb_terminal


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
