"""The history of ``abp shell``, in the user's state folder."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from ...artifacts.system import open_file
from ...protocol.redaction import Redactor
from ..shared.state_folder import state_folder

__all__ = ["open_history"]

_FILE = "shell-history"
_KEYS = re.compile(r"[\"']?([\w.-]+)[\"']?\s*[=@:]")


def open_history() -> History:
    """Return the history of this user, in a file of mode 0600. Where none can be kept, it lasts as long as the
    shell."""
    try:
        path = state_folder() / _FILE
        os.close(open_file(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        return InMemoryHistory()
    return _History(path)


class _History(FileHistory):
    """Keeps no line that begins with a space, as shells do, and none with a secret."""

    def store_string(self, string: str) -> None:
        redactor = Redactor()
        secret = redactor.text(string) != string or any(redactor.is_secret(key) for key in _KEYS.findall(string))
        if not string.startswith(" ") and not secret:
            with suppress(OSError):
                super().store_string(string)
