"""Loader of the scripts that run in pages, and of a caller's adapter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from .._internal.files import read_regular
from ..errors import UsageError
from ..protocol._plain_text import is_page, origin_of, redact_url


@cache
def load_script(name: str) -> str:
    """Return the text of a script: ``agent.js`` in ``js/``, or ``postmessage/js/harness.js`` of another room."""
    root = files("transports")
    if "/" not in name:
        root = root / "playwright" / "js"
    return (root / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A script for the pages of one ``origin``. ``name`` is its file's name."""

    name: str
    script: str
    origin: str

    def source(self, *, late: bool = False) -> str:
        """Return the script as it is installed in a page: a function that runs at its origin only.

        With ``late``, scripts of the page have run already."""
        natives = load_script("natives.js")
        adapter = load_script("adapter.js")
        arguments = f"{json.dumps(late)}, {json.dumps(self.origin)}, {json.dumps(self.name)}"
        # The stack shows the line above the script. The engine makes this error, as the page may have replaced Error.
        # The line break before the brace ends a comment in the script's last line.
        stack = "(() => { try { null.stack } catch (error) { return error.stack } })()"
        return f"({adapter})({natives}, {arguments}, {stack}, (abp) => {{\n{self.script}\n}})"


def read_adapter(path: str | Path, target: str) -> Adapter:
    """Read the script at ``path`` for the app at ``target``, and bind it to the origin of that address.

    Raises :class:`~transports.errors.UsageError` for a file that is not UTF-8 text, and for a target without an origin.
    """
    origin = origin_of(target)
    if origin is None or not is_page(target):
        raise UsageError("an adapter is for a page at an http(s):// address: it is bound to the page's origin")

    path = Path(path).expanduser()
    try:
        script = read_regular(path, 8 << 20).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the adapter {str(path)!r} cannot be read ({reason}); correct the path") from error
    return Adapter(path.name, script, origin)


def failure_of(adapter: Adapter, threw: str | None) -> str:
    """Return the failure of the adapter itself, from the text of what ``window.abp`` of a page threw; empty if the page
    threw something else. An adapter that fails leaves a ``window.abp`` that throws its reason (``adapter.js``)."""
    reason = (threw or "").removeprefix("Error: ")
    if not reason.startswith(f"the adapter {adapter.name} failed"):
        return ""
    return reason[:300]


def not_installed(adapter: Adapter, target: str, url: str) -> str:
    page = urlsplit(url)
    return (
        f"{redact_url(target)} leads to {page.scheme}://{page.netloc}, where the adapter {adapter.name} "
        f"is not installed: it is for {adapter.origin}; connect to an address of that origin"
    )
