"""Programs of other projects, installed once into folders below ``build/``, which git ignores."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.support.needs import missing

#: What npm and uv print where there is no way to a registry. Anything else, a hash that differs, say, is a failure.
_UNREACHABLE = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH)\b"
    r"|(?i:dns error|Temporary failure in name resolution|Connection refused|Network is unreachable|operation timed out"
    r"|error sending request)"
)
_SECONDS = 600.0


def install_once(folder: Path, commands: Callable[[Path], Iterable[Sequence[str]]]) -> None:
    """Fill ``folder`` by the commands that ``commands`` returns for a fresh one, as a whole or not at all, unless it is
    there. Skips the test that runs where no registry can be reached."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        fresh = Path(temporary) / "fresh"
        for command in commands(fresh):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                missing("a registry", f"{command[0]} did not finish within {_SECONDS:g} s")
            if done.returncode and (unreachable := _UNREACHABLE.search(done.stderr)):
                missing("a registry", f"{command[0]} reaches none ({unreachable[0]})")
            if done.returncode:
                raise RuntimeError(f"{command[0]} failed:\n{done.stderr}")
        try:
            fresh.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise
