"""``abp serve`` and ``abp mcp --gallery`` with apps in a browser: when they end, nothing is left."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_serve_command import abp, client
from tests.support.processes import still_running
from tests.support.web_client import TOKEN, Listening
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_browser_ends_with_the_server(fixture: Fixture, tmp_path: Path, number: signal.Signals) -> None:
    async with abp(tmp_path / "out", "serve", "--app", fixture.url, "--json") as server:
        first = json.loads(await server.line())
        assert set(first) == {"url", "token"} and first["url"].startswith("http://127.0.0.1:")
        async with client(**first) as web, Listening(web, None) as events:
            (app,) = (await web.get("/apps")).json["apps"]
            assert app["transport"] == "playwright"
            body = {"capability": "export.pdf", "params": {"html": "<h1>Hi</h1>"}}
            call = (await web.post(f"/apps/{app['session']}/calls", body)).json["id"]
            (artifact,) = (await events.until("call_finished", id=call, status="completed"))[2]["artifacts"]
            answer = await web.get(f"/artifacts/{artifact}")
            assert answer.headers["content-type"] == "application/pdf" and answer.body.startswith(b"%PDF")
            await web.post(f"/apps/{app['session']}/calls", {"capability": "job.wait", "params": {}})  # under way
            processes = family(server.process.pid)
            assert len(processes) > 2
        status, _, complaint = await server.end(number)
        assert status == 128 + number and "Traceback" not in complaint, complaint
        assert await asyncio.to_thread(still_running, processes, 10) == []


async def test_bridge_exit_ends_its_and_gallery_browsers(fixture: Fixture, tmp_path: Path) -> None:
    async with abp(tmp_path / "out", "mcp", "--gallery", "--app", fixture.url, ABP_SERVE_TOKEN=TOKEN) as bridge:
        url = (await bridge.line(error=True)).split()[2].partition("#")[0]
        async with client(url, TOKEN) as web:
            assert (await web.post("/apps", {"url": fixture.url})).status == 201
            async with asyncio.timeout(30):
                while len((await web.get("/apps")).json["apps"]) < 2:
                    await asyncio.sleep(0.1)
            processes = family(bridge.process.pid)
        assert len(processes) > 2 and bridge.process.stdin is not None
        bridge.process.stdin.close()
        out, err = await asyncio.wait_for(bridge.process.communicate(), 15)
        assert bridge.process.returncode == 0 and out == b"" and b"Traceback" not in err, err
        assert await asyncio.to_thread(still_running, processes, 10) == []
