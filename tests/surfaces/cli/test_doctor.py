"""``abp doctor`` in this process; the whole of it is in ``tests/e2e/test_cli.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.command_line import CommandLine


@contextmanager
def refusing_server() -> Iterator[tuple[str, list[str]]]:
    """A server that refuses each download: its address, and the methods of the requests."""
    methods: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            methods.append(self.command)
            self.send_error(403)

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", methods
        finally:
            server.shutdown()


@pytest.mark.slow
def test_refused_browser_download_is_tried_once(
    abp: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "PLAYWRIGHT_BROWSERS_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("ABP_BROWSER", raising=False)
    with refusing_server() as (address, methods):
        monkeypatch.setenv("PLAYWRIGHT_DOWNLOAD_HOST", address)
        ran = abp("doctor", "--install")
    assert methods == ["HEAD"]
    assert ran.status == 1
    assert "Playwright's browsers cannot be downloaded here: status 403" in ran.err
