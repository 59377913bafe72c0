"""``abp mcp`` as a process: every request gets exactly one answer, whatever it is, and the next one is answered too."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

import httpx2 as httpx

ABP = [sys.executable, "-m", "transports.surfaces.cli", "mcp"]
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
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


class Process:
    """The bridge over stdio, spoken to by hand."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout
        self._writing, self._reading = process.stdin, process.stdout
        self._pings = 0

    def send(self, message: bytes) -> None:
        self._writing.write(message + b"\n")
        self._writing.flush()

    def answers(self, message: bytes) -> list[Any]:
        """All that is answered to a message, up to the answer of a request after it."""
        self._pings += 1
        last = f"ping {self._pings}"
        self.send(message)
        answers: list[Any] = []
        while len(answers) < 1 or answers[-1]["id"] != last:
            if len(answers) == 1:  # one after the other: requests are answered as they end
                self.send(json.dumps({"jsonrpc": "2.0", "id": last, "method": "ping"}).encode())
            line = self._reading.readline()
            assert line, "the bridge has ended"
            answers.append(json.loads(line))
        return answers[:-1]


def test_client_that_gave_up_discovery_before_the_start_is_initialized(tmp_path: Path) -> None:
    """Both requests have arrived when the process begins to read."""
    requests = [
        {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": ENVELOPE}},
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
    ]
    lines = "".join(f"{json.dumps(request)}\n" for request in requests)
    done = subprocess.run(
        ABP,
        input=lines,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "ABP_OUTPUT_DIR": str(tmp_path)},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [("result" in answer, answer["id"]) for answer in answers] == [(False, 0), (True, 1)]


@pytest.mark.parametrize(
    "messages",
    [
        [("initialize", HELLO), *[("tools/list", {})] * 20],
        [("tools/list", {"_meta": ENVELOPE}), ("tools/call", {"_meta": ENVELOPE, "name": "abp_status"})],
    ],
    ids=["legacy", "2026-07-28"],
)
def test_requests_are_answered_after_stdin_ends(tmp_path: Path, messages: list[tuple[str, dict[str, Any]]]) -> None:
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(messages)
    ]
    done = subprocess.run(
        ABP,
        input="\n".join(lines),  # the last line without its end
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "ABP_OUTPUT_DIR": str(tmp_path)},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {answer["id"] for answer in answers if "result" in answer} == {*range(len(messages))}


def test_open_subscription_does_not_delay_the_end(tmp_path: Path) -> None:
    params = {"_meta": ENVELOPE, "notifications": {"toolsListChanged": True}}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    with subprocess.Popen(
        ABP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "ABP_OUTPUT_DIR": str(tmp_path)}
    ) as bridge:
        assert bridge.stdin and bridge.stdout
        bridge.stdin.write(json.dumps(listen).encode() + b"\n")
        bridge.stdin.flush()
        assert b"acknowledged" in bridge.stdout.readline()
        closed = time.monotonic()
        bridge.stdin.close()
        assert bridge.stdout.readline()
        assert time.monotonic() - closed < 1  # second, for which the answers of other requests are waited for


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("store")
    with subprocess.Popen(
        ABP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "ABP_OUTPUT_DIR": str(folder)}
    ) as started:
        bridge = Process(started)
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
        assert "result" in bridge.answers(json.dumps(hello).encode())[0]
        bridge.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        bridge.send(b"")  # an empty line is no message
        yield bridge
        assert started.stdin
        started.stdin.close()
        started.wait(30)


@pytest.mark.parametrize("name", MESSAGES)
def test_stdio_message_is_answered_once(process: Process, name: str) -> None:
    message, identity, code = MESSAGES[name]
    (answer,) = process.answers(message)
    assert answer["id"] == identity and type(answer["id"]) is type(identity)
    assert answer.get("error", {"code": 0})["code"] == code, answer
    assert code == 0 or answer["error"]["message"]
    if name == "too many values":
        assert answer["error"]["data"] == {"code": "TOO_LARGE", "limit": 50_000}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("store")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "ABP_OUTPUT_DIR": str(folder), "ABP_MCP_TOKEN": "a-token-of-the-test-0123456789"}
    command = [*ABP, "--http", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as started:
        assert started.stderr
        for line in started.stderr:
            if b"http://127.0.0.1" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp"
        started.terminate()
        started.wait(30)


@pytest.mark.parametrize("name", MESSAGES)
def test_http_message_is_answered_once(address: str, name: str) -> None:
    message, identity, code = MESSAGES[name]
    headers = {
        "Authorization": "Bearer a-token-of-the-test-0123456789",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    with httpx.Client(timeout=60, headers=headers) as client:
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
        session = client.post(address, json=hello).headers["mcp-session-id"]
        client.headers["mcp-session-id"] = session
        client.post(address, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        reply = client.post(address, content=message)
        if reply.headers["content-type"].startswith("text/event-stream"):
            (answer,) = [
                json.loads(line[5:])
                for line in reply.text.splitlines()
                if line.startswith("data:") and line[5:].strip()
            ]
        else:
            answer = reply.json()
    # too many values are refused on arrival, before the id may be there
    assert answer["id"] == identity or (answer["id"] is None and reply.status_code == 413)
    assert answer.get("error", {"code": 0})["code"] == code, answer
    assert reply.status_code < 500
