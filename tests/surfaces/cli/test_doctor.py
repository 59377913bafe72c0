"""``abp doctor`` in this process; the whole of it is in ``tests/e2e/test_cli.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.command_line import CommandLine, in_thread


@pytest.mark.slow
def test_refused_browser_download_is_tried_once(
    abp: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "PLAYWRIGHT_BROWSERS_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("ABP_BROWSER", raising=False)
    methods: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        methods.append(request.method)
        return web.Response(status=403)

    server = web.Application()
    server.router.add_route("*", "/{path:.*}", refuse)
    with in_thread(TestServer(server)) as refusing:
        monkeypatch.setenv("PLAYWRIGHT_DOWNLOAD_HOST", str(refusing.make_url("/")).rstrip("/"))
        ran = abp("doctor", "--install")
    assert methods == ["HEAD"]
    assert ran.status == 1
    assert "Playwright's browsers cannot be downloaded here: status 403" in ran.err
