"""Pools of real browsers: killed, replaced and reached elsewhere, while calls run in them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web
from mcp import Client

from tests.e2e.notebook import notebook
from tests.support.eventually import eventually
from tests.support.mcp_clients import ERAS, called
from tests.support.mcp_http import ANN, BOB, client_of, served
from tests.support.pages import serve_answers
from tests.support.processes import processes
from tests.support.slow import slow_but
from transports import connect
from transports.artifacts import open_store
from transports.batch import Endpoint, Pool, Reuse
from transports.errors import ConnectFailed
from transports.playwright._find import find_browser
from transports.surfaces.shared._apps import pooled
from webapp_fixture import Fixture, digest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MB = 1 << 20
NOBODY = 65534


async def nothing_new(before: set[int]) -> None:
    """Wait until no process is left that was not there before."""
    await eventually(lambda: pids() <= before, within=15)


def pids() -> set[int]:
    return {process.pid for process in processes()}


@pytest.mark.parametrize(("reuse", "contexts"), slow_but([("context", 1), ("never", 0)], ("context", 1)))
async def test_reused_context_is_cleared_and_another_one_is_closed(tmp_path: Path, reuse: Reuse, contexts: int) -> None:
    async with notebook() as url, Pool(1, 1, store=tmp_path, reuse=reuse) as pool:
        await pool.call(url, "note.write", {"text": "mine"})
        seen = (await pool.call(url, "note.read")).data
        assert seen == {"cookie": None, "storage": None, "state": None}
        (member,) = pool._fleet.browser_slots.members
        assert member.browser is not None
        await eventually(lambda: not pool.stats().leased)  # it is being cleared
        assert len(member.browser.playwright.contexts) == contexts


@pytest.mark.slow
async def test_bridge_users_share_only_browsers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[Pool] = []

    class Kept(Pool):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            pools.append(self)

    monkeypatch.setattr("transports.batch.Pool", Kept)
    before, nobodys = pids(), {"cookie": None, "storage": None, "state": None}

    async def read(client: Client, session: str) -> object:
        """What the app has of its own; a call that loses its browser is made again."""
        async with asyncio.timeout(60):
            while (
                answer := await client.call_tool("abp_call", {"capability": "note.read", "session": session})
            ).is_error:
                await asyncio.sleep(0.1)
        assert answer.structured_content is not None
        return answer.structured_content["data"]

    async with (
        notebook() as url,
        pooled(connect, 1, open_store(tmp_path), headless=True) as reach,
        served(tmp_path, reach) as address,  # type: ignore[arg-type]
        client_of(address, ANN, ERAS[-1]) as ann,
        client_of(address, BOB, ERAS[-1]) as bob,
    ):
        (pool,) = pools
        first, second = [(await called(one, "abp_connect", url=url))["session"] for one in (ann, bob)]
        await called(ann, "abp_call", capability="note.write", params={"text": "mine"}, session=first)
        assert await read(bob, second) == nobodys
        assert await read(ann, first) == {**nobodys, "cookie": "mine", "storage": "mine"}
        (member,) = pool._fleet.browser_slots.members
        assert member.leased == 2 and member.browser is not None and len(member.browser.playwright.contexts) == 2

        psutil.Process(member.browser._process.pids[-1]).kill()
        assert await read(ann, first) == await read(bob, second) == nobodys
        assert pool.stats().recycled == {"ended": 1}
        (member,) = pool._fleet.browser_slots.members
    await nothing_new(before)


# --- elsewhere --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def elsewhere(
    *command: str, env: dict[str, str] | None = None
) -> AsyncIterator[tuple[Path, asyncio.StreamReader]]:
    """A program in a folder of its own; where tests run as root, of a user who may not read our files."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    user = NOBODY if sys.platform == "linux" and os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, user, user)
    started = await asyncio.create_subprocess_exec(
        *(part.replace("{folder}", str(folder)) for part in command),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder), "HOME": str(folder), **(env or {})},
        user=user,
        group=user,
        extra_groups=[] if user else None,
    )
    assert started.stdout is not None
    try:
        yield folder, started.stdout
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, 9)
        await started.wait()
        for one in processes():
            if str(folder) in " ".join(one.cmdline()):
                one.kill()
        await asyncio.to_thread(shutil.rmtree, folder, True)


@asynccontextmanager
async def cdp_endpoint() -> AsyncIterator[Endpoint]:
    choice = find_browser()
    assert choice is not None
    command = [choice.path, "--headless", "--no-sandbox", "--remote-debugging-port=0", "--user-data-dir={folder}/p"]
    async with elsewhere(*command, "about:blank") as (folder, _):
        port = folder / "p" / "DevToolsActivePort"
        await eventually(lambda: port.is_file() and port.read_text().strip(), within=60)
        yield Endpoint(cdp_url=f"http://127.0.0.1:{port.read_text().splitlines()[0]}")


@asynccontextmanager
async def server_endpoint() -> AsyncIterator[Endpoint]:
    from playwright._impl._driver import compute_driver_executable, get_driver_env

    choice = find_browser()
    assert choice is not None
    command = [*compute_driver_executable(), "run-server", "--port=0", "--host=127.0.0.1", "--unsafe"]
    async with elsewhere(*command, env=get_driver_env()) as (_, output):
        async with asyncio.timeout(60):
            while b"ws://" not in (line := await output.readline()):
                assert line, "the server has ended"
        url = line.decode().split()[-1].replace("localhost", "127.0.0.1")
        options = json.dumps({"executablePath": choice.path, "chromiumSandbox": False})
        yield Endpoint(browser_server=url, headers={"x-playwright-launch-options": options})


@pytest.mark.parametrize(("endpoint", "reuse"), [(cdp_endpoint, "context"), (server_endpoint, "session")])
@pytest.mark.slow
async def test_files_transfer_both_ways_without_shared_disk(
    fixture: Fixture, tmp_path: Path, endpoint: Callable[[], AbstractAsyncContextManager[Endpoint]], reuse: Reuse
) -> None:
    data = random.Random(1).randbytes(64 * MB)
    (tmp_path / "in.bin").write_bytes(data)
    tmp_path.chmod(0o700)
    async with endpoint() as far, Pool(endpoints=[far], store=tmp_path / "out", reuse=reuse) as pool:
        seen = (await pool.call(fixture.url, "file.digest", files={"file": tmp_path / "in.bin"}, timeout=240)).data
        assert isinstance(seen, dict) and seen["sha256"] == hashlib.sha256(data).hexdigest()
        result = await pool.call(fixture.url, "file.generate", {"bytes": 64 * MB, "seed": 3}, timeout=240)
        assert result.artifact().sha256 == digest(64 * MB, 3)
        assert result.artifact().size_bytes == 64 * MB
        reach = {"cdp_url": far.cdp_url, "browser_server": far.browser_server, "headers": far.headers}
        async with connect(fixture.url, store=tmp_path / "out", **reach) as app:  # type: ignore[arg-type]
            assert (await app.call("file.generate", {"bytes": MB, "seed": 3})).artifact().sha256 == digest(MB, 3)


@pytest.mark.parametrize(
    ("reach", "transport"), slow_but([("cdp_url", "auto"), ("browser_server", "postmessage")], ("cdp_url", "auto"))
)
async def test_remote_browser_headers_are_sent_but_not_shown_in_errors(reach: str, transport: str) -> None:
    sent: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Authorization", ""))
        return web.Response(status=403)

    async with serve_answers(refuse) as served_at:
        url = f"{served_at.replace('http', 'ws')}?token=in-the-url"
        options: dict[str, Any] = {reach: url, "headers": {"Authorization": "Bearer in-a-header"}}
        with pytest.raises(ConnectFailed) as raised:
            await connect("http://127.0.0.1:1/", transport=transport, **options)
        text = f"{raised.value} {raised.value.as_dict()}"
        assert "in-the-url" not in text and "in-a-header" not in text and "403" in text
    assert sent == ["Bearer in-a-header"]
