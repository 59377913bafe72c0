"""``abp mcp`` as a process: what it prints, and that it ends with its client and leaves no browser."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import httpx2 as httpx
import jwt
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.command_line import PATIENCE, CommandLine, serving
from tests.support.mcp_clients import files_of, words
from tests.support.mcp_http import client_of
from tests.support.processes import still_running
from tests.support.slow import slow_but
from webapp_fixture import Fixture

ABP = [sys.executable, "-m", "transports.surfaces.cli", "mcp"]
WITHIN = 5.0
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}

in_session = pytest.mark.asyncio(loop_scope="session")

pytestmark = pytest.mark.browser


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "ABP_OUTPUT_DIR": str(tmp_path / "out"), **more}


class Bridge:
    """The process, spoken to by hand. Every line that it prints must be protocol."""

    def __init__(self, input: IO[bytes] | None, output: IO[bytes] | None) -> None:
        assert input and output
        self.input, self.output = input, output
        self.count = 0

    def send(self, *messages: Mapping[str, object] | bytes, end: bytes = b"\n") -> None:
        texts = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
        self.input.write(b"\n".join(texts) + end)
        self.input.flush()

    def receive(self) -> Any:
        line = self.output.readline()
        assert line, "the bridge has ended"
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def ask(self, method: str, params: Mapping[str, object]) -> Any:
        self.count += 1
        self.send(request_of(self.count, method, **params))
        while (message := self.receive()).get("id") != self.count:
            pass
        return message["result"]

    def start(self, capability: str, arguments: Mapping[str, object]) -> None:
        """Call, and come back as soon as the app reports progress."""
        more = {"arguments": arguments, "_meta": {"progressToken": "p"}}
        self.send(request_of("call", "tools/call", name=capability, **more))
        while self.receive().get("method") != "notifications/progress":
            pass

    def begin(self, url: str, version: str = "2025-11-25") -> None:
        self.ask("initialize", {**HELLO, "protocolVersion": version})
        answer = self.ask("tools/call", {"name": "abp_connect", "arguments": {"url": url}})
        assert not answer.get("isError"), answer


def request_of(identity: object, method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}


#: A client that starts the bridge and passes on our side of the pipes, which we hold when it is killed.
CLIENT = """
import subprocess, sys, time
with subprocess.Popen(sys.argv[1:]) as bridge:
    print(bridge.pid, file=sys.stderr, flush=True)
    bridge.wait()
"""


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[tuple[Bridge, psutil.Process]]:
    """The bridge below a client that can be killed, and the bridge's own process."""
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, *ABP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    ) as client:
        assert client.stderr
        process = psutil.Process(int(client.stderr.readline()))
        try:
            yield Bridge(client.stdin, client.stdout), process
        finally:
            client.kill()
            if process.is_running():
                process.kill()


def assert_gone(processes: Sequence[psutil.Process]) -> None:
    assert still_running(processes, WITHIN) == []


@pytest.mark.slow
@in_session
async def test_old_clients_get_only_known_content_types(
    fixture: Fixture, bridge: tuple[Bridge, psutil.Process]
) -> None:
    spoken, _ = bridge
    await asyncio.to_thread(spoken.begin, fixture.ws_url, "2024-11-05")
    params = {"name": "abp_data_csv", "arguments": {"rows": [{"a": 1}]}}
    answer = await asyncio.to_thread(spoken.ask, "tools/call", params)
    assert [item["type"] for item in answer["content"]] == ["text", "text"]
    assert files_of(answer["structuredContent"])[0]["uri"] in json.dumps(answer["content"][1])


@pytest.mark.slow
@pytest.mark.fault(7)
@in_session
async def test_client_leaving_during_connect_leaves_no_processes(bridge: tuple[Bridge, psutil.Process]) -> None:
    spoken, process = bridge
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        spoken.ask("initialize", HELLO)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        spoken.send(request_of(99, "tools/call", name="abp_connect", arguments={"url": url}))
        async with asyncio.timeout(20):
            while len(process.children(recursive=True)) < 4:
                await asyncio.sleep(0.05)
        family = [process, *process.children(recursive=True)]
        spoken.input.close()
        await asyncio.to_thread(assert_gone, family)


@pytest.mark.fault(7)
@pytest.mark.requirement("R5-5c", "R0-2c", "R3-7a", "R4-1a", "R4-15l")
@pytest.mark.parametrize(
    ("how", "when"),
    slow_but(
        itertools.product(
            ["stdin closes", "client killed, pipe closes", "client killed, pipe held", "SIGTERM"],
            ["idle", "during a call"],
        ),
        ("client killed, pipe held", "during a call"),  # which the bridge itself has to notice
    ),
)
@in_session
async def test_bridge_drives_browser_and_leaves_none_when_its_client_ends(
    fixture: Fixture, bridge: tuple[Bridge, psutil.Process], how: str, when: str
) -> None:
    spoken, process = bridge
    await asyncio.to_thread(spoken.begin, fixture.url)
    if when == "during a call":
        await asyncio.to_thread(spoken.start, "abp_job_run", {"steps": 10_000, "delay": 50})
    family = [process, *process.children(recursive=True)]
    assert len(family) > 2  # the driver and a browser
    if how.startswith("client killed"):
        os.kill(process.ppid(), signal.SIGKILL)
    if how == "SIGTERM":
        process.terminate()
    elif how != "client killed, pipe held":
        spoken.input.close()
    await asyncio.to_thread(assert_gone, family)


@pytest.mark.requirement("R4-9a", "R4-14k")
def test_mcp_command_applies_its_settings_file_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Only signed tokens are accepted, and tools and summaries are those of the file."""
    key = Ed25519PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    token = jwt.encode({"iss": "i", "aud": "a", "sub": "ann", "exp": time.time() + 60}, key, algorithm="EdDSA")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    url = f"http://{address}/mcp"

    async def visit() -> None:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token[:-4]}AAAA"}, timeout=30) as http:
            while not (refused := await answer_of(http)):
                await asyncio.sleep(0.02)
            assert refused.status_code == 401
        async with client_of(url, token, "legacy") as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {"abp_status", "abp_data_csv", "abp_data_json"}
            answer = await client.call_tool("abp_data_csv", {"rows": [{"name": "tea", "sold": 12}]})
            assert words(answer).startswith("Kept a csv: data_csv_")

    async def answer_of(http: httpx.AsyncClient) -> httpx.Response | None:
        try:
            return await http.post(url, json={})
        except httpx.ConnectError:
            return None

    def client() -> None:
        try:
            asyncio.run(asyncio.wait_for(visit(), PATIENCE))
        except BaseException as error:
            failures.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    failures: list[BaseException] = []
    monkeypatch.chdir(tmp_path)
    abp = CommandLine({"ABP_OUTPUT_DIR": "out"}, monkeypatch, capfdbinary)
    with serving() as app:
        Path("good.toml").write_text(
            '[mcp]\njwt_issuer = "i"\njwt_audience = "a"\njwt_key_file = "key.pem"\n'
            f'apps = ["{app.ws_url}"]\nshow_tools = ["abp_status", "abp_data_*"]\n'
            '[routing]\ndefault_summary_template = "Kept a {content_type}: {artifact_id}"\n'
        )
        thread = threading.Thread(target=client)
        thread.start()
        ran = abp("mcp", "--http", address, "--config", "good.toml", "--state", "state")
        thread.join()
    assert failures == [] and ran.status == 128 + signal.SIGTERM
    assert ran.err.startswith(f"abp: serving at {url}\n") and ran.out == ""  # nobody is given a token
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
