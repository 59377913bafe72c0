"""``abp mcp`` as a process: what it prints, that it ends with its client and leaves no browser, and that every request
gets exactly one answer, whatever it is."""

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
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx2 as httpx
import jwt
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.command_line import PATIENCE, CommandLine, serving
from tests.support.eventually import eventually
from tests.support.mcp_clients import files_of, words
from tests.support.mcp_http import ANN, client_of, served
from tests.support.processes import still_running
from tests.support.relayed import LARGE
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
        await eventually(lambda: len(process.children(recursive=True)) >= 4)
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


# --- every message is answered once -----------------------------------------------------------------------------------


ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": HELLO["clientInfo"],
    "io.modelcontextprotocol/clientCapabilities": {},
}
PARSE, REQUEST = -32700, -32600
_DEEP = b"[" * 9000 + b"]" * 9000


def request(identity: bytes, argument: bytes = b"1") -> bytes:
    params = b'{"name":"abp_status","arguments":{"x":' + argument + b"}}"
    return b'{"jsonrpc":"2.0","id":' + identity + b',"method":"tools/call","params":' + params + b"}"


#: Messages, with the id and the code of the error that is their answer; with the code 0, the answer is a result.
MESSAGES: dict[str, tuple[bytes, object, int]] = {
    "too deep": (request(b"7", _DEEP), 7, PARSE),
    "too deep, with an id that is a text": (request(b'"a \\"b"', _DEEP), 'a "b', PARSE),
    "too deep, with the id at the end": (
        b'{"jsonrpc":"2.0","method":"ping","params":{"a":' + _DEEP + b'},"id":8}',
        8,
        PARSE,
    ),
    # Only the ends are read. JSON-RPC has null for an id that is not known.
    "too deep, with ids inside": (
        b'{"jsonrpc":"2.0","params":{"id":1,"a":{"id":2}},"id":9,"method":"ping","x":' + _DEEP + b"}",
        None,
        PARSE,
    ),
    "100,000 levels": (request(b"10", b"[" * 100_000 + b"]" * 100_000), 10, REQUEST),
    "not closed": (request(b"11", b"[" * 30_000), 11, PARSE),
    "as many values as allowed": (request(b'"most"', b"[" + b"0," * 49_900 + b"0]"), "most", 0),
    "too many values": (request(b'"many"', b"[" + b"0," * 50_000 + b"0]"), "many", REQUEST),
    "no JSON": (b"hello", None, PARSE),
    "no UTF-8": (request(b"12", b'"\xff\xfe"'), 12, PARSE),
    "half of a surrogate pair": (request(b"13", b'"\\ud800"'), 13, PARSE),
    "a batch": (b'[{"jsonrpc":"2.0","id":14,"method":"ping"}]', None, REQUEST),
    "an empty batch": (b"[]", None, REQUEST),
    "null": (b"null", None, REQUEST),
    "a text as id": (request(b'"x"'), "x", 0),
    "a huge integer as id": (request(b"9" * 400), int("9" * 400), 0),
    "an integer of 5,000 digits as id": (request(b"9" * 5000), None, PARSE),
    "a whole number as id": (request(b"15.0"), 15, REQUEST),
    "a fraction as id": (request(b"1.5"), None, REQUEST),
    "null as id": (request(b"null"), None, REQUEST),
    "true as id": (request(b"true"), None, REQUEST),
    "an object as id": (request(b'{"id":3}'), None, REQUEST),
    "an integer of 5,000 digits": (request(b"16", b"9" * 5000), 16, PARSE),
    "8 MB of text": (request(b"17", b'"' + b"x" * 8_000_000 + b'"'), 17, 0),
    "no version": (b'{"id":18,"method":"ping"}', 18, REQUEST),
    "a number as method": (b'{"jsonrpc":"2.0","id":19,"method":5}', 19, REQUEST),
    "a list as params": (b'{"jsonrpc":"2.0","id":20,"method":"ping","params":[1]}', 20, REQUEST),
    "an unknown method": (b'{"jsonrpc":"2.0","id":21,"method":"x/y"}', 21, -32601),
}


@contextmanager
def over_socket(folder: Path, command: Sequence[str] = ABP) -> Iterator[tuple[Bridge, socket.socket]]:
    """The process, whose stdin and stdout are one socket, as socat, inetd and socket units of systemd start it."""
    client, theirs = socket.socketpair()
    with client, client.makefile("wb") as requests, client.makefile("rb") as answers:
        with theirs:
            process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno(), env=environment(folder))
        with process:
            client.settimeout(60)
            try:
                yield Bridge(requests, answers), client
            finally:
                process.kill()


def check_answer(name: str, answer: Any, *, no_id: bool = False) -> None:
    """``no_id``: the answer may have none."""
    _, identity, code = MESSAGES[name]
    assert (answer["id"] == identity and type(answer["id"]) is type(identity)) or (no_id and answer["id"] is None), name
    assert answer.get("error", {"code": 0})["code"] == code, (name, answer)
    assert code == 0 or answer["error"]["message"], name


def test_each_stdio_message_is_answered_once(tmp_path: Path) -> None:
    with over_socket(tmp_path) as (spoken, client):
        # A client that gave up discovery before the start: both requests are there when the process begins to read.
        spoken.send(request_of("discovery", "server/discover", _meta=ENVELOPE), request_of(0, "initialize", **HELLO))
        assert [("result" in answer, answer["id"]) for answer in (spoken.receive(), spoken.receive())] == [
            (False, "discovery"),
            (True, 0),
        ]
        spoken.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        spoken.send(b"")  # an empty line is no message
        for name, (message, _, _) in MESSAGES.items():
            spoken.send(message)
            answer = spoken.receive()
            check_answer(name, answer)
            if name == "too many values":
                assert answer["error"]["data"] == {"code": "TOO_LARGE", "limit": 50_000}
            spoken.send(request_of(f"after {name}", "ping"))  # one after the other: requests are answered as they end
            assert spoken.receive()["id"] == f"after {name}"
        check_slow_reading(spoken)
        last = [request_of(f"last {number}", "tools/list") for number in range(20)]
        spoken.send(*last, end=b"")
        client.shutdown(socket.SHUT_WR)
        assert_answered(spoken, last)


@pytest.mark.slow
def test_proxy_answers_over_one_socket(tmp_path: Path) -> None:
    with over_socket(tmp_path, [*ABP[:-1], "proxy", "--", sys.executable, str(LARGE)]) as (spoken, _):
        spoken.ask("initialize", HELLO)
        check_slow_reading(spoken)


def check_slow_reading(spoken: Bridge) -> None:
    """More answers than the socket holds arrive, although they are read late."""
    requests = [request_of(f"slow {number}", "tools/list") for number in range(200)]
    spoken.send(*requests)
    time.sleep(0.5)
    assert_answered(spoken, requests)


def assert_answered(spoken: Bridge, requests: Sequence[Mapping[str, object]]) -> None:
    answers = [spoken.receive() for _ in requests]
    assert {answer["id"] for answer in answers if "result" in answer} == {request["id"] for request in requests}


@pytest.mark.slow
def test_open_subscription_does_not_delay_end_of_bridge(tmp_path: Path) -> None:
    # A bridge waits a second for the answers of other requests. A busy machine may take as long once.
    assert any(seconds_to_end(tmp_path) < 1 for _ in range(3))


def seconds_to_end(folder: Path) -> float:
    """Return how long an open subscription is answered after the end of input."""
    with over_socket(folder) as (spoken, client):
        wanted = {"toolsListChanged": True}
        spoken.send(request_of("listen", "subscriptions/listen", _meta=ENVELOPE, notifications=wanted))
        assert "acknowledged" in spoken.receive()["method"]
        requests = (
            request_of("list", "tools/list", _meta=ENVELOPE),
            request_of("status", "tools/call", _meta=ENVELOPE, name="abp_status"),
        )
        spoken.send(*requests)
        answers = [spoken.receive() for _ in requests]
        assert {answer["id"] for answer in answers if "result" in answer} == {"list", "status"}
        ended = time.monotonic()
        client.shutdown(socket.SHUT_WR)
        assert spoken.receive()["id"] == "listen"
        return time.monotonic() - ended


async def test_each_http_message_is_answered_once(tmp_path: Path) -> None:
    headers = {
        "Authorization": f"Bearer {ANN}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    async with served(tmp_path) as address, httpx.AsyncClient(timeout=60, headers=headers) as client:
        hello = await client.post(address, json=request_of(0, "initialize", **HELLO))
        client.headers["mcp-session-id"] = hello.headers["mcp-session-id"]
        await client.post(address, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        for name, (message, _, _) in MESSAGES.items():
            reply = await client.post(address, content=message)
            if reply.headers["content-type"].startswith("text/event-stream"):
                events = [line[5:] for line in reply.text.splitlines() if line.startswith("data:") and line[5:].strip()]
                (answer,) = map(json.loads, events)
            else:
                answer = reply.json()
            # too many values are refused on arrival, before the id may be there
            check_answer(name, answer, no_id=reply.status_code == 413)
            assert reply.status_code < 500, name
