"""``abp serve``, ``abp artifacts link`` and ``abp mcp --gallery`` as processes: what they share, what is left
when they end, and many clients at once, some of which do not read."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.support.command_line import CommandLine, serving
from tests.support.eventually import eventually, eventually_blocking
from tests.support.mcp_clients import APP, Apps, files_of
from tests.support.processes import still_running
from tests.support.web_client import TOKEN, Listening, Web, running
from transports import connect
from transports.artifacts import ArtifactRef, ArtifactStore, LocalStore, Scope
from transports.surfaces.mcp._options import Options
from transports.surfaces.mcp._users import User, Users
from transports.surfaces.shared._activity import Activity
from webapp_fixture import Fixture, serve as serve_fixture

ABP = [sys.executable, "-m", "transports.surfaces.cli"]


class Program:
    """``abp`` as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self, *, error: bool = False) -> str:
        stream = self.process.stderr if error else self.process.stdout
        assert stream is not None
        return (await asyncio.wait_for(stream.readline(), 30)).decode().rstrip("\n")

    async def end(self, number: signal.Signals) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = await asyncio.wait_for(self.process.communicate(), 15)
        return self.process.returncode or 0, out.decode(), err.decode()


@asynccontextmanager
async def abp(folder: Path, *args: str, **env: str) -> AsyncIterator[Program]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ABP_")}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    process = await asyncio.create_subprocess_exec(
        *ABP, *args, **pipes, env={**inherited, "ABP_OUTPUT_DIR": str(folder), **env}
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


class Remote(Web):
    """A server in another process."""

    def __init__(self, url: str, token: str, http: aiohttp.ClientSession) -> None:
        class _Address:
            def __init__(self) -> None:
                self.url = url

        super().__init__(_Address(), None, http, token)  # type: ignore[arg-type]


@asynccontextmanager
async def client(url: str, token: str) -> AsyncIterator[Remote]:
    async with aiohttp.ClientSession() as http:
        yield Remote(url, token, http)


async def apps_of(web: Web, count: int = 1) -> Any:
    """The apps that are connected, once there are so many."""
    apps = (await web.get("/apps")).json["apps"]
    return apps if len(apps) >= count else []


async def put_two_hours_ago(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of an artifact that is two hours old."""
    with monkeypatch.context() as past:
        now = time.time() - 7200
        past.setattr(time, "time", lambda: now)
        ref = await store.put_bytes(b"of two hours ago")
    return Path(str(ref.path))


@pytest.mark.slow
@pytest.mark.requirement("R6-10i")
async def test_bridge_keeps_old_files_in_default_folder_and_logs_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "abp-mcp-bridge")
    old = await put_two_hours_ago(store.scoped(Scope(user="local", session="1")), monkeypatch)
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with abp(tmp_path, "mcp", ABP_OUTPUT_DIR="", TMPDIR=str(tmp_path), ABP_LOG_LEVEL="debug") as program:
        assert program.process.stdin is not None
        program.process.stdin.write(json.dumps(hello).encode() + b"\n")
        assert json.loads(await program.line())["id"] == 1
        _, out, logs = await program.end(signal.SIGTERM)
    assert out == "" and logs.count("abp: ") > 1 and "files stay in" not in logs
    assert old.exists()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> CommandLine:
    """The command in this process."""
    places = {"ABP_OUTPUT_DIR": str(tmp_path / "out"), "XDG_STATE_HOME": str(tmp_path / "state")}
    return CommandLine(places, monkeypatch, capfdbinary)


@pytest.mark.requirement("R2-6.4q")
def test_serve_runs_app_and_others_store_and_link(
    here: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees what another process stores, makes links to it, and removes what has expired."""
    store = LocalStore(tmp_path / "out")
    expired = asyncio.run(put_two_hours_ago(store, monkeypatch))
    env = {**os.environ, "ABP_SERVE_TOKEN": TOKEN}

    async def see_app_and_call(url: str, target: str) -> ArtifactRef:
        async with client(url, TOKEN) as web, Listening(web, None) as events:
            (app,) = (await web.get("/apps")).json["apps"]
            assert app["name"] == "Workbench" and app["transport"] == "websocket"
            async with connect(target, store=tmp_path / "out") as session:
                artifact = (await session.call("data.csv", {"rows": [{"a": 1}]})).artifact()
            stored = (await events.until("artifact_stored"))[2]
            assert stored["id"] == artifact.id and stored["sha256"] == artifact.sha256
            return artifact

    with serving() as fixture:
        command = [*ABP, "serve", "--app", fixture.ws_url, "--ttl", "1h"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True) as server:
            assert server.stdout is not None
            try:
                words, page = server.stdout.readline().split()
                url, _, token = page.partition("#token=")
                assert words == "Open" and token == TOKEN and url.startswith("http://127.0.0.1:")
                artifact = asyncio.run(see_app_and_call(url, fixture.ws_url))
                ran = here("artifacts", "link", artifact.id, "--expires", "1h")
                assert ran.status == 0 and ran.out.startswith(url)
                with urllib.request.urlopen(ran.out.strip()) as opened:  # without the token
                    assert opened.read() == Path(str(artifact.path)).read_bytes()
                elsewhere = here("artifacts", "link", artifact.id, "--json", "--url", "https://a.example")
                assert elsewhere.document["url"].startswith("https://a.example/artifacts/")
                assert here("artifacts", "link", "nothing_000000000000").status == 1
                eventually_blocking(lambda: not expired.exists(), within=30, what="the end of what has expired")
            finally:
                server.send_signal(signal.SIGINT)
            complaint = server.communicate(timeout=15)[1]
    assert server.returncode == 130
    assert complaint.startswith("abp: files stay in ") and complaint.count("\n") == 1
    assert here("artifacts", "link", artifact.id).status == 2  # nobody serves any more


@pytest.mark.parametrize(
    ("args", "status", "complaint"),
    [
        (("serve", "--host", "192.0.2.1", "--token", TOKEN), 2, "cannot listen on 192.0.2.1:0"),
        (("serve", "--app", "nonsense"), 2, "'nonsense' is not a target"),
        (("serve", "--app", "ws://127.0.0.1:9/abp"), 1, "TRANSPORT_ERROR"),
    ],
)
def test_serve_startup_error_is_one_line(here: CommandLine, args: tuple[str, ...], status: int, complaint: str) -> None:
    ran = here(*args)
    assert (ran.status, ran.err.count("\n")) == (status, 1) and complaint in ran.err


# --- beside the bridge ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.requirement("R2-6.4q")
async def test_gallery_works_beside_bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expired = await put_two_hours_ago(LocalStore(tmp_path / "out"), monkeypatch)
    env = {**os.environ, "ABP_OUTPUT_DIR": str(tmp_path / "out"), "ABP_SERVE_TOKEN": TOKEN}
    async with serve_fixture() as fixture:
        with (tmp_path / "err").open("w+") as errors:
            args = [*ABP[1:], "mcp", "--gallery", "--ttl", "1h", "--app", fixture.ws_url]
            transport = stdio_client(StdioServerParameters(command=ABP[0], args=args, env=env), errlog=errors)
            async with Client(transport) as mcp:
                retention, note = (tmp_path / "err").read_text().splitlines()[:2]
                assert retention.startswith("abp: files stay in ") and note.startswith(
                    "abp: gallery: http://127.0.0.1:"
                )
                await eventually(lambda: not expired.exists())
                async with client(note.split()[2].partition("#")[0], TOKEN) as web, Listening(web, None) as events:
                    await eventually(lambda: apps_of(web))
                    (app,) = await apps_of(web)
                    answer = await mcp.call_tool("abp_data_csv", {"rows": [{"a": 1}]})
                    call = (await events.until("call_finished", capability="data.csv"))[2]
                    assert call["session"] == app["session"] == answer.structured_content["session"]
                    stored = (await events.until("artifact_stored"))[2]
                    assert stored["call"] == call["id"] and stored["id"] == files_of(answer.structured_content)[0]["id"]
                    # and the other way: what is called from the page goes through the bridge's app
                    made = await web.post(
                        f"/apps/{app['session']}/calls", {"capability": "data.csv", "params": {"rows": []}}
                    )
                    await events.until("call_finished", id=made.json["id"])
                    assert (await web.ask("DELETE", f"/apps/{app['session']}")).status == 204
                    assert (await mcp.call_tool("abp_status", {})).structured_content["sessions"] == []


async def test_bridge_users_see_own_artifacts_in_gallery(tmp_path: Path) -> None:
    store, activity = LocalStore(tmp_path / "out"), Activity()
    scopes: Mapping[str, Scope] = {f"token-of-{user}-0123": Scope(user=user) for user in ("ann", "bob")}
    async with running(store, activity=activity, users=scopes) as web:
        users = Users(store, Apps(APP), Options(), web.served.calls, activity, {})
        bridge_users = {name: User(users, name, store.scoped(Scope(user=name))) for name in ("ann", "bob")}
        apps = {
            user: await bridge_user.apps.connect("ws://app.test/abp", {}) for user, bridge_user in bridge_users.items()
        }
        ann, bob = (web.with_token(token) for token in scopes)
        assert [one["session"] for one in (await ann.get("/apps")).json["apps"]] == [apps["ann"].key]
        made = await ann.post(f"/apps/{apps['ann'].key}/calls", {"capability": "text.shout", "params": {"text": "a"}})
        assert made.status == 202
        await eventually(lambda: activity.calls[made.json["id"]].status == "completed")
        (artifact,) = (await ann.get("/artifacts")).json["artifacts"]
        assert (await bob.get("/artifacts")).json["total"] == 0 == len((await bob.get("/calls")).json["calls"])
        assert (await bob.get(artifact["url"])).status == 404
        assert (await bob.post(f"/apps/{apps['ann'].key}/calls", {"capability": "text.shout"})).status == 404
        assert len((await web.get("/apps")).json["apps"]) == 2  # the operator sees all
        for bridge_user in bridge_users.values():
            await bridge_user.aclose()


@pytest.mark.slow
async def test_bridge_token_opens_its_gallery(tmp_path: Path) -> None:
    out = tmp_path / "out"
    store = LocalStore(out)
    anns, bobs = [await store.scoped(Scope(user=user)).put_text(user) for user in ("ann", "bob")]
    tokens = "ann=token-of-ann-0123,bob=token-of-bob-0123"
    async with abp(out, "mcp", "--http", "127.0.0.1:0", "--token", tokens, "--gallery") as bridge:
        line = await bridge.line(error=True)
        page, _, token = line.removeprefix("abp: gallery: ").partition("#token=")
        assert "serving at" in await bridge.line(error=True) and len(token) > 30
        async with client(page, token) as operator:
            assert (await operator.get("/artifacts")).json["total"] == 2
            ann = operator.with_token("token-of-ann-0123")
            assert (await ann.get(f"/artifacts/{anns.id}")).body == b"ann"
            assert (await ann.get(f"/artifacts/{bobs.id}")).status == 404
        status, text, _ = await bridge.end(signal.SIGTERM)
        assert status == 143 and text == ""


# --- apps in a browser ------------------------------------------------------------------------------------------------


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
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


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_bridge_exit_ends_its_and_gallery_browsers(fixture: Fixture, tmp_path: Path) -> None:
    async with abp(tmp_path / "out", "mcp", "--gallery", "--app", fixture.url, ABP_SERVE_TOKEN=TOKEN) as bridge:
        url = (await bridge.line(error=True)).split()[2].partition("#")[0]
        async with client(url, TOKEN) as web:
            assert (await web.post("/apps", {"url": fixture.url})).status == 201
            await eventually(lambda: apps_of(web, 2))
            processes = family(bridge.process.pid)
        assert len(processes) > 2 and bridge.process.stdin is not None
        bridge.process.stdin.close()
        out, err = await asyncio.wait_for(bridge.process.communicate(), 15)
        assert bridge.process.returncode == 0 and out == b"" and b"Traceback" not in err, err
        assert await asyncio.to_thread(still_running, processes, 10) == []


# --- many clients at once ---------------------------------------------------------------------------------------------


_HEAD = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"


class Server:
    """``abp serve`` as a process, and what it used before the test."""

    def __init__(self, web: Web, pid: int) -> None:
        self.port = int(web.netloc.rpartition(":")[2])
        self._web = web
        self._process = psutil.Process(pid)
        self._files, self._memory = self._process.num_fds(), self._process.memory_info().rss

    @property
    def megabytes(self) -> float:
        """Growth of the resident memory."""
        return float(self._process.memory_info().rss - self._memory) / (1 << 20)

    async def connect(self, path: str, more: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\n{_HEAD}{more}\r\n".encode())
        await writer.drain()
        return reader, writer

    async def until(self, name: str, value: int) -> None:
        async def reached() -> bool:
            return f"\n{name} {value}.0\n".encode() in (await self._web.get("/metrics")).body

        await eventually(reached, within=200.0, pause=0.1)

    async def until_closed(self) -> None:
        await eventually(lambda: self._process.num_fds() <= self._files + 2, within=200.0, pause=0.1)


@asynccontextmanager
async def measured(folder: Path) -> AsyncIterator[Server]:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    async with abp(folder, "serve", "--json", ABP_SERVE_TOKEN=TOKEN) as program:
        async with client(**json.loads(await program.line())) as web:
            await web.get("/metrics")
            yield Server(web, program.process.pid)
        assert (await program.end(signal.SIGTERM))[0] == 128 + signal.SIGTERM


@pytest.mark.fault(49)
@pytest.mark.slow
async def test_500_stalled_listeners_do_not_affect_200_active_ones(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    rounds, each, stuck, readers = 4, 100, 500, 200
    async with measured(tmp_path / "out") as server, AsyncExitStack() as stack:
        for _ in range(stuck):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # and half of another request
            sock.sendall(f"GET /events HTTP/1.1\r\n{_HEAD}\r\nGET /events HTTP/1.1\r\n{_HEAD}X-Half: ".encode())
        listeners = [await server.connect("/events") for _ in range(readers)]
        for _, writer in listeners:
            stack.callback(writer.transport.abort)
        await server.until("abp_listeners", stuck + readers)
        reading = asyncio.gather(*(_ids(reader, rounds * each) for reader, _ in listeners))
        peak = server.megabytes
        text = "some text " * 80  # an event of 2 KB, more in all than the buffers of the operating system hold
        for n in range(rounds):
            await asyncio.gather(*(
                store.put_bytes(f"{n} {m}".encode(), mime_type="text/plain", meta={"app": text, "capability": text})
                for m in range(each)
            ))  # fmt: skip
            await asyncio.sleep(0.6)  # longer than the server takes to see a change of the store
            peak = max(peak, server.megabytes)
        async with asyncio.timeout(200):
            seen = await reading
        assert all(ids == seen[0] for ids in seen) and len(set(seen[0])) == rounds * each
        await server.until("abp_listeners_dropped_total", stuck)
        await server.until("abp_listeners", readers)
        assert max(peak, server.megabytes) < 100
        for _, writer in listeners:
            writer.close()
        await server.until("abp_listeners", 0)
        await server.until_closed()


async def _ids(reader: asyncio.StreamReader, count: int) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        line = await reader.readline()
        assert line
        if line.startswith(b"data: {"):
            ids.append(json.loads(line[6:])["id"])
    return ids


@pytest.mark.requirement("R2-6.3m", "R2-6.5c", "R4-15f")
@pytest.mark.slow
async def test_200_clients_read_ranges_of_a_200_mb_artifact(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    tail = bytes((1 << 20) - 4)

    def content(start: int, end: int) -> Iterator[bytes]:
        for n in range(start, min(end, 200)):
            yield n.to_bytes(4, "big") + tail

    async def pieces() -> AsyncIterator[bytes]:
        for piece in content(0, 200):
            yield piece

    ref = await store.put_stream(pieces())
    async with measured(tmp_path / "out") as server:
        stuck = [await server.connect(f"/artifacts/{ref.id}") for _ in range(5)]  # they take the head and no more
        ranges = [(n << 20, min(n + 8, 200) << 20) for n in range(200)]
        reading = asyncio.gather(*(_digest(server, ref, f"Range: bytes={a}-{b - 1}\r\n") for a, b in ranges))
        peak = 0.0
        while not reading.done():
            peak = max(peak, server.megabytes)
            await asyncio.sleep(0.05)
        assert await reading == [hashlib.sha256(b"".join(content(n, n + 8))).hexdigest() for n in range(200)]
        assert await _digest(server, ref) == ref.sha256
        for _, writer in stuck:
            writer.transport.abort()
        await server.until_closed()
        assert peak < 150


async def _digest(server: Server, ref: ArtifactRef, more: str = "") -> str:
    reader, writer = await server.connect(f"/artifacts/{ref.id}", f"{more}Connection: close\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 206" if more else b"HTTP/1.1 200")
    digest = hashlib.sha256()
    while chunk := await reader.read(1 << 18):
        digest.update(chunk)
    writer.close()
    return digest.hexdigest()
