"""Completion of commands and options in a shell: ``abp --install-completion``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

__all__ = ["complete"]

#: A shell's script sets it to ``complete_bash``, ``complete_zsh`` and so on, and describes the line in more variables.
_VARIABLE = "_ABP_COMPLETE"


def complete(command: Callable[[], Any]) -> int | None:
    """Print what may stand at the cursor of the line that a shell describes in the environment, and return an exit
    status; ``None`` if no shell asks. ``command`` makes the command line, as Typer has it."""
    instruction = os.environ.get(_VARIABLE)
    if not instruction:
        return None
    from typer.completion import shell_complete

    return shell_complete(command(), {}, "abp", _VARIABLE, instruction)
